"""Attention and decoder trained together: the selection that was reached, the programs of both blocks, and how near they are."""

from collections.abc import Iterator

import numpy as np

from ...case import Case
from ...diagnostics.direction import joint_misalignments
from ...exhibits import Figure, Line
from ...theory.describe import number
from ...theory.joint import JointReferences, joint_references
from ..panel import Panel

_PROGRAMS = {
    "attention": "shortest W that selects the reached tokens",
    "offset": "W-program in which every sample is helped by its decoder margin",
    "support_only": "W-program of the samples that support the decoder",
}
_WORDS = {
    "W, u": "attention matrix and decoder: the output is u' X' softmax(X W q) times the label, for tokens X and query q",
    "log L": "natural logarithm of the joint loss, whose infimum is 0",
    "predicted direction": "W_mm, the shortest W that selects the token named `optimal` in every sample by a margin of 1",
    "rival": "another direction that W might take, from the prediction",
    "decoder program": "shortest u that classifies the reached tokens with margin 1; samples with a positive multiplier support it",
    **{f"{name} program": meaning for name, meaning in _PROGRAMS.items()},
}


def programs(found: JointReferences) -> dict:
    """The programs of both blocks for a selection, as JSON values."""
    decoder = found.decoder
    return {
        "tokens": list(found.tokens),
        "attention": found.attention.value,
        "decoder": {"value": decoder.value, "lower": decoder.bracket.lower, "upper": decoder.bracket.upper},
        "decoder_support": [int(k) for k in np.flatnonzero(decoder.support)],
        "offset": {"lower": found.offset.lower, "upper": found.offset.upper},
    }


def program_lines(content: dict) -> Iterator[str]:
    """What `predict --joint` says besides the prediction."""
    if "programs" not in content:
        return
    decoder, offset = content["programs"]["decoder"], content["programs"]["offset"]
    support = content["programs"]["decoder_support"]
    yield f"decoder    minimum norm with margins >= 1: {decoder['value']:.12g}; support: samples {support}"
    yield f"offset     best smallest offset margin in [{offset['lower']:.12g}, {offset['upper']:.12g}]"


def _numbers(case: Case) -> dict:
    run, limit = case.run, case.limit
    return {
        "status": run.status.name,
        "message": run.status.message,
        "steps": int(run.steps[-1]),
        "log_loss": float(run.log_excess[-1]),
        **{name: float(getattr(run, name)[-1]) for name in ("norm_W", "norm_u")},
        "limit": limit.kind,
        "tokens": list(limit.tokens),
        "concentration": limit.concentration,
        "distances": {name: getattr(limit, name) for name in ("decoder", *_PROGRAMS)},
        "reached_programs": None if limit.references is None else programs(limit.references),
        "first_capped": run.header["first_capped"],
        "programs": None if case.prediction is None else programs(joint_references(run.data)),
    }


def _lines(case: Case, found: dict) -> Iterator[str]:
    yield from case.run.lines()
    yield f"blocks     |W| {case.run.norm_W[-1]:.6g}, |u| {case.run.norm_u[-1]:.6g}"
    attended = f"each with attention at least {found['concentration']:.3g}"
    yield f"limit      {found['limit']}, most attended tokens {found['tokens']}, {attended}"
    for name, value in found["distances"].items():
        what = "u to the decoder program" if name == "decoder" else f"W to the {name.replace('_', '-')} program"
        yield f"direction  1 - corr of {what} of these tokens: {number(value)}"


def _draw(case: Case) -> Iterator[Figure]:
    """W against the reference, its rivals and the programs of the tokens that were reached; both norms; the loss."""
    run, limit, steps = case.run, case.limit, case.run.steps
    moved, turned = run.norm_W > 0, run.norm_u > 0
    to = lambda place: joint_misalignments(run, place)[moved]
    first = next(iter(case.places), "")
    label = lambda name: f"W to the {'predicted direction' if name == first else f'rival {name}'}"
    lines = [Line(label(name), steps[moved], to(place)) for name, place in case.places.items()]
    if limit.references is not None:
        reached = {name: getattr(limit.references, name).weight for name in _PROGRAMS}
        lines += [Line(f"W to the {name} program", steps[moved], to(place)) for name, place in reached.items()]
        decoder = joint_misalignments(run, limit.references.decoder.weight, "u")[turned]
        lines.append(Line("u to the decoder program", steps[turned], decoder))
    caption = "Programs of the tokens that were reached."
    yield Figure("direction", "Directions", "step", "1 - corr", tuple(lines), caption, "log", "log")
    loss = (Line("run", steps[1:], run.log_excess[1:]),)
    yield Figure("loss", "Joint loss", "step", "log L", loss, "In logarithms, exact after underflow.", "log")
    norms = (Line("|W|", steps[1:], run.norm_W[1:]), Line("|u|", steps[1:], run.norm_u[1:]))
    yield Figure("norms", "Norms of both blocks", "step", "norm", norms, "Frobenius and l2.", "log", "log")


JOINT = Panel(lambda case: case.joint, _numbers, _lines, draw=_draw, words=lambda case: _WORDS)
