"""The options of `predict` and `train` as one table: parser, help and refusals are made of it. Imports nothing heavy, so that `--help` is quick."""

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..optimisers import table

LAYERS = "attention-regression"
_LINEAR, _JOINT = "own", "joint"
_TOKENS = ("attention", "attention-kq", "attention-diagonal")
_POWERS = ("signed-squares", "signed-powers", "squares")
_CLASSES = ("multiclass", "next-token")
_OWN = ("linear", *_CLASSES, *_TOKENS, "deep-linear", "regression", *_POWERS)
_SETTINGS = {_LINEAR: _OWN, _JOINT: (_JOINT,), LAYERS: (LAYERS,)}  # by kind of training
OPTIMISERS: dict[str, tuple[str, ...]] = {  # by kind of training, its default first
    _LINEAR: ("flow", *table.OPTIMISERS, *table.LAYER_RULES),
    _JOINT: tuple(table.JOINT),
    LAYERS: ("gd", "adam"),
}
_EVERY = tuple(dict.fromkeys((*OPTIMISERS[_LINEAR], "joint-ngd", "scheduled")))


def whole(text: str) -> int:
    """An integer that the machine can count to."""
    if not -(2**62) < int(text) < 2**62:
        raise argparse.ArgumentTypeError(f"an integer below 2^62 is required, not {text}")
    return int(text)


def seed(text: str) -> int:
    if whole(text) < 0:
        raise argparse.ArgumentTypeError(f"a nonnegative integer is required, not {text}")
    return int(text)


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(one) for one in text.split(","))


def seeds(text: str) -> tuple[int, ...]:
    """`0,2,5`, or `0:8` for the first eight."""
    first, _, end = text.partition(":")
    found = tuple(range(seed(first), seed(end))) if end else tuple(seed(one) for one in text.split(","))
    if len({*found}) < max(len(found), 1):
        raise argparse.ArgumentTypeError(f"one seed or more, each once, is required, not {text}")
    return found


def variant(text: str) -> tuple[str, tuple[float, ...]]:
    """A rule or a start by its name, with a rate of its own and a cap: `SNGD=0.1,0.5`."""
    name, _, given = text.partition("=")
    return name, numbers(given) if given else ()


def _step_size(text: str) -> float | str:
    """A number, or the word that asks for one chosen at every step."""
    if text == "adaptive":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"neither a number nor 'adaptive': {text!r}") from None


class Flag(NamedTuple):
    """One option: its words for the parser, the settings that take it (and joint training), and where only some optimisers do, which ones.

    `kind` reads a value, or is a tuple of choices, or None for a switch; `group` is "" or the budget, of which one is given, or files.
    """

    name: str
    kind: Callable[[str], object] | tuple[str, ...] | None
    help: str
    metavar: str | None = None
    default: str | int | None = None
    takes: tuple[str, ...] = (*_OWN, _JOINT, LAYERS)
    optimisers: Mapping[str, tuple[str, ...]] = {}
    group: str = ""
    alias: str = ""

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    def add(self, parser: argparse._ActionsContainer) -> None:
        if self.kind is None:
            words: dict = {"action": "store_true"}
        elif callable(self.kind):
            words = {"type": self.kind, "metavar": self.metavar, "default": self.default}
        else:
            words = {"choices": self.kind, "default": self.default}
        names = [f"--{name}" for name in (self.name, self.alias) if name]
        parser.add_argument(*names, dest=self.key, help=self.help, **words)

    def taken(self, setting: str, optimiser: str) -> bool:
        """Whether it means anything to runs of a setting and an optimiser."""
        takers = self.optimisers.get(_JOINT if setting == _JOINT else _LINEAR)
        return setting in self.takes and (takers is None or optimiser in takers)

    def given(self, options: argparse.Namespace) -> bool:
        value = getattr(options, self.key, None)  # a zero was given
        return not (value is None or value is False or value == self.default)


_NOT_LAYERS, _OF_LAYERS, _INPUTS = (*_OWN, _JOINT), (LAYERS,), ("linear", "deep-linear", *_CLASSES)


def _taking(option: str) -> dict[str, tuple[str, ...]]:
    """The optimisers that take an option, by kind of training."""
    tables = {_LINEAR: table.OPTIMISERS, _JOINT: table.JOINT}
    return {kind: tuple(name for name, row in rows.items() if option in row.takes) for kind, rows in tables.items()}


# fmt: off
FLAGS = (
    Flag("setting", str, f"{', '.join((*_OWN, LAYERS))} (default: from the names of the arrays)"),
    Flag("joint", None, "attention: train the decoder as well", takes=_NOT_LAYERS),
    Flag("widths", str, "hidden widths of deep-linear (default 8,8), or columns of K and Q", "8,8,8", takes=("deep-linear", "attention-kq")),
    Flag("geometry", ("two_sided", "left", "euclidean"), "preconditioner (default two_sided)", takes=_OF_LAYERS),
    Flag("gauge", ("identity", "plus", "minus"), "of the spectral start (default identity)", takes=_OF_LAYERS),
    Flag("batch", whole, f"samples per step, or queries of {LAYERS} (default: all)", "B", takes=("linear", "multiclass", LAYERS), optimisers={_LINEAR: tuple(table.OPTIMISERS)}),
    Flag("keys", ("batch", "full"), "what a batch attends to (default batch)", takes=_OF_LAYERS),
    Flag("ridge", float, "added to the diagonal of the covariance (default 0)", "R", takes=_OF_LAYERS),
    Flag("logit-limit", float, "largest operator norm of the whitened V: scale moves from V to U beyond it", "L", takes=_OF_LAYERS),
    Flag("layer-scale", float, "start from (C U, V/C) and let V grow no further, with a regulariser that does not see the scale (default: balanced, C = 1)", "C", takes=_OF_LAYERS),
    Flag("alpha", float, "size of the start of squares and powers (default 0.01)", takes=_POWERS),
    Flag("depth", whole, "of signed-powers, w+^D - w-^D (default 3)", takes=("signed-powers",)),
    Flag("bias", None, "linear, deep-linear, multiclass, next-token: add a constant input 1, so that there is an intercept", takes=_INPUTS),
    Flag("normalise", None, "linear, deep-linear, multiclass, next-token: divide the inputs by the largest of their norms", takes=_INPUTS),
    Flag("ties", ("raise", "keep"), "attention: refuse several best tokens in a sample, or leave them out of the margins (default raise)", default="raise", takes=_TOKENS),
    Flag("exact", None, "prove the reference in rational arithmetic and write certificate.json", takes=_OWN),
    Flag("optimiser", _EVERY, "default: flow; with --joint: scheduled; line-search[-capped], assumption5[-tight], sharp and risk-scaled are for deep-linear"),
    Flag("loss", str, "default: exponential; multiclass: cross-entropy; attention: or correlation, -z; linear, deep-linear: or a loss that your Python file, which is executed, defines", "{exponential,logistic,cross-entropy,correlation,FILE.py:NAME}", takes=(*_INPUTS, *_TOKENS, _JOINT)),
    Flag("reduction", ("mean", "sum"), "of the losses of the samples (default mean)", default="mean", takes=_OWN),
    Flag("step-size", _step_size, f"multiplier of the gradient (gd), step length (ngd, momentum), divisor c (polyak); default: from the data; {LAYERS}: or 'adaptive'", optimisers={_LINEAR: tuple(table.OPTIMISERS)}),
    Flag("cap", float, "largest multiplier of the gradient (ngd, momentum, polyak; --joint: joint-ngd)", takes=_NOT_LAYERS, optimisers=_taking(table.CAP)),
    Flag("beta", float, "share of the past that momentum, signum and muon keep (default 0.9; muon 0.95; steepest 0)", takes=_NOT_LAYERS, optimisers=_taking(table.BETA), alias="momentum"),
    Flag("nesterov", None, "muon, steepest: look ahead with the momentum", takes=_OWN, optimisers=_taking(table.NESTEROV)),
    Flag("norm", str, "steepest: frobenius (default), l1, max, spectral, nuclear, lP (entries) or schatten-P", "NORM", takes=_OWN, optimisers=_taking(table.NORM)),
    Flag("step-decay", float, "steps of size H/t^A (ngd, adam, sign, signum, muon, steepest; default: constant)", "A", takes=_OWN, optimisers=_taking(table.DECAY)),
    Flag("weight-decay", float, "decoupled: weights times 1 - D step besides every step", "D", takes=_OWN, optimisers=_taking(table.DECAY)),
    Flag("eps", float, "adam, muon with ns5 (default 0)", "E", takes=_OWN, optimisers=_taking("eps")),
    Flag("log-eps", float, "its logarithm in its place", "S", takes=_OWN, optimisers=_taking("eps")),
    Flag("orthogonaliser", ("polar", "ns5"), "muon: the polar factor (default), or five Newton-Schulz steps", takes=_OWN, optimisers=_taking(table.ORTHOGONALISER)),
    Flag("decays", str, "--joint: exponents of the step lengths length/(t+1)^p of u and W (default 0,0; for scheduled 2/3,1)", "P_U,P_W", takes=(_JOINT,), optimisers=_taking(table.DECAYS)),
    Flag("seed", whole, "seed of a random start (default 0)", default=0),
    Flag("start", str, "default: zeros; deep-linear: or normal (the default there), balanced, zero-first, equal-frobenius, torch-default, all brought below the risk of zero", "{zeros,small,FILE.npz}", "zeros"),
    Flag("scale", float, "standard deviation of the start 'small' (default 1e-3) or of a start of deep-linear (default 0.3; equal-frobenius: norm of a layer, default 1)"),
    Flag("steps", whole, "number of steps (for the flow: of the integrator)", "N", group="budget"),
    Flag("time", float, "physical time (sum of the multipliers of the gradient)", "T", takes=_OWN, group="budget"),
    Flag("log-time", float, "natural logarithm of physical time", "S", takes=_OWN, group="budget"),
    Flag("margin", float, "smallest margin to reach", "M", takes=_OWN, group="budget"),
    Flag("risk-level", float, "-log of the loss above its infimum to reach: risk e^-X", "X", takes=_OWN, group="budget"),
    Flag("tolerance", float, "local error of a step of the flow (default 1e-7; deep-linear: 1e-11)", takes=_OWN, optimisers={_LINEAR: ("flow",)}, group="train"),
    Flag("save", str, "write the trajectory and the final parameters", "run.npz", group="train"),
    Flag("out", str, "write a page about this run to DIR/index.html", "DIR", group="train"),
    Flag("store", str, "also keep the numbers of the run in a run store (`penchant runs`)", "DIR", group="train"),
    Flag("overwrite", None, "with --save and --out: replace the file, or the page in DIR, of an earlier run", group="train"),
)
# fmt: on


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """What an experiment is asked for."""
    parser.add_argument("--full", action="store_true", help="the paper's size, a grid of rates and three seeds")
    parser.add_argument("--device", default="cpu", help="of PyTorch: cpu or cuda (default cpu)")
    parser.add_argument("--data", metavar="FOLDER", help="your own copy of the data (default: by the package client)")
    parser.add_argument("--epochs", type=whole, metavar="N", help="so many epochs (default: the paper's)")
    parser.add_argument(
        "--factors", type=numbers, metavar="A,B", help="the grid of factors on every rate; one: no grid"
    )
    parser.add_argument("--seeds", type=seeds, metavar="0:8", help="or 0,2,5 (default 0:3)")
    parser.add_argument(
        "--first", type=whole, nargs=2, metavar=("TRAIN", "TEST"), help="only the first samples of each set"
    )
    parser.add_argument(
        "--variants", type=variant, nargs="+", metavar="NAME[=RATE[,CAP]]", help="only these rules or starts"
    )
    parser.add_argument("--out", default="out", metavar="DIR", help="where to write (default: out)")


def add_flags(parser: argparse.ArgumentParser, training: bool, own: bool = False) -> None:
    """The data and their options; budgets and files only where something is trained. With `own` an optimiser may be the user's."""
    arrays = "inputs, labels | inputs, counts | inputs, targets | tokens, labels, head [, queries | scores, mask] (--joint: optimal for head)"
    parser.add_argument("data", metavar="DATA", help=f".npz with {arrays}; or .csv, label last")
    budget = parser.add_mutually_exclusive_group() if training else parser
    layers = parser.add_argument_group(LAYERS)
    for flag in FLAGS:
        if own and flag.name == "optimiser":
            flag = flag._replace(
                kind=str,
                metavar="NAME",
                help=f"one of {', '.join(_EVERY)}, or FILE.py:NAME, an optax transformation or a function that makes a torch.optim optimiser of parameters",
            )
        if training or not flag.group:
            flag.add(budget if flag.group == "budget" else layers if flag.takes == _OF_LAYERS else parser)
    if not training:
        parser.add_argument("--save", metavar="FILE.npz", help="write `solution` (smallest margin 1) and `dual`")


def kind_of(options: argparse.Namespace) -> str:
    """The kind of training that options ask for: own data, joint, or attention regression."""
    return LAYERS if options.setting == LAYERS else _JOINT if options.joint else _LINEAR


def refuse(options: argparse.Namespace, own: bool = False) -> None:
    """Options that mean nothing here are refused, not ignored; the default optimiser is filled in. An `own` optimiser takes none."""
    from ..errors import ArgumentError

    kind = kind_of(options)
    reject = lambda flag, required, found: ArgumentError(f"--{flag}", "penchant", required, found)
    if options.optimiser is None and kind != LAYERS:
        options.optimiser = OPTIMISERS[kind][0]
    elif options.optimiser is not None and options.optimiser not in OPTIMISERS[kind] and not (own and kind == _LINEAR):
        raise reject("optimiser", _optimisers(kind, options.optimiser), options.optimiser)
    for flag in (flag for flag in FLAGS if flag.given(options)):
        value = getattr(options, flag.key)
        if not set(_SETTINGS[kind]) & set(flag.takes):
            raise reject(flag.name, *_elsewhere(flag, kind, value))
        takers = flag.optimisers.get(kind)
        if takers is not None and options.optimiser not in takers:
            under = " under --joint" * (kind == _JOINT)
            names = " or ".join(part for part in (", ".join(takers[:-1]), takers[-1]) if part)
            required = (
                f"used with --optimiser {names}{under}" if len(takers) < 6 else f"left out for {options.optimiser}"
            )
            raise reject(flag.name, required, f"--optimiser {options.optimiser} --{flag.name} {value}")
    if options.step_size == "adaptive" and kind != LAYERS:
        raise reject("step-size", f"a number unless --setting {LAYERS}", "adaptive")
    if options.seed < 0:
        raise reject("seed", "a nonnegative integer", options.seed)


def refuse_elsewhere(options: argparse.Namespace, setting: str) -> None:
    """The same for options that only some settings understand, once the data have said which one it is."""
    from ..errors import ArgumentError

    for flag in FLAGS:
        if setting in _OWN and setting not in flag.takes and flag.given(options):
            raise ArgumentError(
                f"--{flag.name}", "penchant", f"used with {' or '.join(flag.takes)}", f"--setting {setting}"
            )


def _optimisers(kind: str, name: str) -> str:
    if kind == LAYERS:
        return f"gd, adam or left out with --setting {LAYERS}"
    if kind != _JOINT and name in table.JOINT:
        return "used with --joint"
    return (
        f"one of {', '.join(table.JOINT)} with --joint"
        if kind == _JOINT
        else f"one of flow, {', '.join(table.OPTIMISERS)}"
    )


def _elsewhere(flag: Flag, kind: str, value: object) -> tuple[str, object]:
    """Where an option belongs, and what was found instead."""
    if flag.name == "exact":
        return f"left out with --joint and --setting {LAYERS}, whose references have no exact proof", "it"
    if kind == LAYERS:
        return f"left out with --setting {LAYERS}", "a value"
    if flag.takes == _OF_LAYERS:
        return f"used with --setting {LAYERS}", value
    return ("used with --joint", value) if flag.takes == (_JOINT,) else ("left out with --joint", "a value")
