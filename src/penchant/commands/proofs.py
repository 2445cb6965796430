"""`--exact`: references proved in rational arithmetic, and the file that `penchant check` proves again."""

import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import cast

import jax
import numpy as np

from ..errors import INFEASIBLE, InterpolationError, NotSeparableError, PenchantError, Unproved
from ..files import check_writable, write_bytes
from ..references.base import Call, Interpolant, Solution, watching
from ..references.exact import programs, proof_of
from ..references.exact_margin import Certificate, about

Contradiction = NotSeparableError | InterpolationError
Proved = Solution | Interpolant | Contradiction


def certificate_path(options: Namespace) -> Path:
    """Where `--out` or `--save` go, or here."""
    folder = getattr(options, "out", None) or (Path(options.save).parent if options.save else ".")
    return Path(folder) / "certificate.json"


@contextmanager
def proving(options: Namespace) -> Iterator[list[Call]]:
    """Watch the solvers; with `--exact`, data on which they find a contradiction get its proof saved before the error goes on."""
    if options.exact:
        check_writable(str(certificate_path(options)))
    with watching() as calls:
        try:
            yield calls
        except INFEASIBLE as error:
            if options.exact:
                _save_contradiction(error, calls, options)
            raise


def _save_contradiction(error: Contradiction, calls: list[Call], options: Namespace) -> None:
    try:
        path = _write(proof_of(error, calls), options)
    except PenchantError as doubt:  # the message of the error that goes on is what the user asked for
        print(f"exact: {doubt}", file=sys.stderr)
    else:
        print(f"exact: proved that no weight has positive margins; penchant check {path}", file=sys.stderr)


def _write(proof: Certificate, options: Namespace) -> Path:
    """The certificate, with the name and the digest of the file that the data are from."""
    file = Path(options.data)
    data = f"{file.name.encode(errors='replace').decode()}, sha256 {sha256(file.read_bytes()).hexdigest()}"
    return write_bytes(certificate_path(options), about(proof, data).encode())


def save_proof(reference: Proved, calls: list[Call], options: Namespace) -> dict:
    """The bounds proved, how long that took, and where the certificate is; nothing without `--exact`."""
    if not options.exact:
        return {}
    started = time.perf_counter()
    proof = proof_of(reference, calls)
    seconds = round(time.perf_counter() - started, 3)
    path = _write(proof, options)
    return {"exact": {"lower": proof.lower, "upper": proof.upper, "seconds": seconds, "certificate": str(path)}}


_PROOFS: dict[bytes, str] = {}  # of this process: nothing, or why there is no proof, by the reference and its data


def prove_all(calls: Iterable[Call]) -> dict:
    """Every reference among the calls proved, once by this process however many claims rest on it: how many, in what time, and why not where there is no proof."""
    started = time.process_time()
    distinct = {_key(call, cast(Proved, found)): prove for call in calls for found, prove in programs([call])}
    for key, prove in distinct.items():
        if key not in _PROOFS:
            _PROOFS[key] = _unproved(prove)
    reasons = Counter(_PROOFS[key] for key in distinct)
    proved, seconds = reasons.pop("", 0), round(time.process_time() - started, 2)
    return {"proved": proved, "seconds": seconds, "unproved": dict(reasons)}


def _unproved(prove: Callable[[], Certificate]) -> str:
    try:
        prove()
    except Unproved as error:
        return str(error).partition("\n")[0]
    return ""


def _key(call: Call, found: Proved) -> bytes:
    arrays = [*jax.tree.leaves(call.data), *(getattr(found, name, None) for name in ("weights", "weight", "dual"))]
    parts = [np.asarray(array).tobytes() for array in arrays if array is not None]
    return sha256(b"".join([str(found.norm).encode(), *parts])).digest()


def print_proofs(found: list[dict]) -> None:
    """Beside the ledger, on standard error: its JSON is a list of claims."""
    reasons = sum((Counter(one["unproved"]) for one in found), Counter())
    proved, seconds = (sum(one[name] for one in found) for name in ("proved", "seconds"))
    print(f"exact: {proved} references proved in {seconds:.1f} s of CPU", file=sys.stderr)
    for reason, count in reasons.items():
        print(f"exact: {count} not proved. {reason}", file=sys.stderr)
