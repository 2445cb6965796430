"""The golden ledger, for whoever refactors: every number penchant prints, to the last bit, before and after.

    python -m benchmarks.golden save before.jsonl           claims with twins, studies at seed 0, command lines
    python -m benchmarks.golden compare before.jsonl        computes all again; exits with 1 where anything differs
    python -m benchmarks.golden compare before.jsonl --with after.jsonl      compares what is saved already

`--only claims,commands` and `--paper NAME` choose a part. A row is written as soon as it is known, so that a stopped `save` goes on
where it was. Bits hold on one machine, one release of jax and one thread: the saved values are for the desk, not for the repository.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from penchant.cli import main as penchant
from penchant.commands.claims import check
from penchant.lab import Claim, Lab, Paper, Study
from penchant.papers import find_papers, new_lab
from penchant.report.page import save as save_study

_COMPILED = 25  # rows between which compiled code is let go: the system allows a process only so many pieces of memory
# wall-clock time, paths, names of folders, the code itself
_UNSTABLE = {"seconds", "page", "saved", "folder", "paper", "code"}
_ROWS = {"claims": "claim", "studies": "study"}

COMMANDS = (
    "predict linear.npz",
    "predict linear.npz --optimiser gd --step-size 0.1",
    "train linear.npz --margin 1e4",
    "train linear.npz --optimiser ngd --steps 300",
    "train linear.npz --setting deep-linear --widths 4,4 --risk-level 1000",
    "predict tokens.npz",
    "train tokens.npz --optimiser polyak --steps 200",
    "train tokens.npz --setting attention-kq --margin 1e3 --start small",
    "train tokens.npz --setting attention-diagonal --margin 1e2 --start small",
    "train joint.npz --joint --steps 400",
    "train sparse.npz",
    "train sparse.npz --setting signed-squares --alpha 0.01",
    "train sparse.npz --setting squares --alpha 0.1",
    "train sparse.npz --setting signed-powers --depth 3 --alpha 0.1",
    "train attention.npz --setting attention-regression --steps 50",
)


def _data(folder: Path) -> None:
    """Files of users: made here with NumPy alone, so that no change of a generator moves them."""
    draw = np.random.default_rng(7).standard_normal
    inputs = draw((12, 3)) + np.array([1.5, -1.0, 0.5])
    np.savez(folder / "linear.npz", inputs=inputs, labels=np.where(inputs @ [1.5, -1.0, 0.5] > 0, 1, -1))
    tokens = draw((4, 3, 6))
    labels = np.array([1, -1, 1, -1])
    np.savez(folder / "tokens.npz", tokens=tokens, labels=labels, head=draw(6))
    np.savez(folder / "joint.npz", tokens=tokens, labels=labels, optimal=np.zeros(4, int))
    inputs = np.abs(draw((5, 10)))
    np.savez(folder / "sparse.npz", inputs=inputs, targets=inputs[:, 0] + 2 * inputs[:, 3])
    inputs = draw((40, 3))
    np.savez(folder / "attention.npz", inputs=inputs, targets=inputs @ draw((3, 2)))


def _exact(value: Any) -> Any:
    """Numbers by their bits, without what changes from call to call."""
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items() if key not in _UNSTABLE}
    if isinstance(value, list | tuple):
        return [_exact(item) for item in value]
    return value.hex() if isinstance(value, float) else value


def _claim(paper: Paper, claim: Claim, lab: Lab) -> dict:
    row = check(claim, paper, lab)
    return {key: row[key] for key in ("verdict", "twin", "measured", "predicted", "inequality")}


def _study(paper: Paper, study: Study, _: Lab) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        found = save_study(study, study.result(new_lab()), folder, paper=paper.name, seed=0, full=False, seconds=0.0)
        return json.loads((found / "study.json").read_text(encoding="utf-8"))


def _command(words: str, folder: Path) -> dict:
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        status = penchant([*words.split(), "--json"])
    return {"status": status, "json": json.loads(printed.getvalue())}


def _rows(only: list[str], paper: str | None, folder: Path) -> Iterator[tuple[str, Callable[[], dict]]]:
    """The name of every row, and what computes it."""
    _data(folder)
    if "commands" in only:
        yield from ((f"command {words}", lambda words=words: _command(words, folder)) for words in COMMANDS)
    papers = find_papers((paper,) if paper else ())
    for kind, compute in (("claims", _claim), ("studies", _study)):
        for one in papers if kind in only else ():
            lab = new_lab()
            yield from ((f"{_ROWS[kind]} {item.name}", partial(compute, one, item, lab)) for item in getattr(one, kind))


def _load(path: Path) -> dict[str, Any]:
    """Rows of a file by name; a line cut off by a kill is left out."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            row = json.loads(line)
            found[row["row"].replace("/", "-")] = _exact(row["found"])  # without what is unstable today
    return found


def save(path: Path, only: list[str], paper: str | None) -> dict[str, Any]:
    """Compute what the file does not have yet, and add it."""
    found, started = _load(path), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, path.open("a", encoding="utf-8") as file:
        rows = list(_rows(only, paper, Path(folder)))
        for number, (name, compute) in enumerate(rows, 1):
            name = name.replace("/", "-")
            if name not in found:
                try:
                    found[name] = _exact(compute())
                except Exception as error:
                    found[name] = f"{type(error).__name__}: {error}"
                file.write(json.dumps({"row": name, "found": found[name]}) + "\n")
                file.flush()
                print(f"[{number}/{len(rows)}] {time.monotonic() - started:.0f} s {name}", file=sys.stderr)
            if number % _COMPILED == 0:
                jax.clear_caches()
    return {name.replace("/", "-"): found[name.replace("/", "-")] for name, _ in rows}


def _differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """The places in which two rows differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from _differences(*pair, f"{where}[{number}]")
    elif before != after:
        yield f"{where}: {_readable(before)} -> {_readable(after)}"


def _readable(value: Any) -> str:
    """A number with its digits, everything else in a few words."""
    with contextlib.suppress(TypeError, ValueError):
        return repr(float.fromhex(value))
    return str(value)[:120]


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs, row by row; 1 if anything does."""
    changed = 0
    for name in sorted(before.keys() & after.keys()):
        places = list(_differences(before[name], after[name]))
        changed += bool(places)
        for place in places[:4]:
            print(f"{name}{place}")
        if len(places) > 4:
            print(f"{name}: {len(places) - 4} more places")
    for title, names in (("gone", before.keys() - after.keys()), ("new", after.keys() - before.keys())):
        print(*(f"{title}: {name}" for name in sorted(names)), sep="\n")
    print(f"{len(before.keys() & after.keys())} rows compared, {changed} differ")
    return int(changed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden", description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=("save", "compare"))
    parser.add_argument("file", type=Path, help="JSON lines, one row each")
    parser.add_argument(
        "--with", dest="other", type=Path, help="compare: rows saved already, instead of computing them"
    )
    parser.add_argument("--only", default="commands,claims,studies", help="default: %(default)s")
    parser.add_argument("--paper", help="only the claims and studies of one paper")
    options = parser.parse_args()
    only = options.only.split(",")
    if options.job == "save":
        save(options.file, only, options.paper)
        return 0
    if options.other:
        return compare(_load(options.file), _load(options.other))
    with tempfile.TemporaryDirectory() as folder:
        after = save(Path(folder) / "after.jsonl", only, options.paper)
    return compare({name: found for name, found in _load(options.file).items() if name in after}, after)


if __name__ == "__main__":
    sys.exit(main())
