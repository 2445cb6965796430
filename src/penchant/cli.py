"""The command line: parses and calls; every heavy import waits until a command needs it."""

import argparse
import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import __version__

_OPTIMISERS = (
    "flow",
    "gd",
    "ngd",
    "momentum",
    "polyak",
    "accelerated",
    "adam",
    "line-search",
    "line-search-capped",
    "assumption5",
    "assumption5-tight",
    "sharp",
    "risk-scaled",
    "joint-ngd",
    "scheduled",
)
_ONLY_JOINT = ("joint-ngd", "scheduled")
_LOSSES = ("exponential", "logistic")  # of joint training
_LAYERS = "attention-regression"


class _UsageError(Exception):
    """Options that argparse cannot read: raised instead of exiting, so that --json answers in JSON too."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise _UsageError(f"{self.prog}: {message}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. 0: done; 1: `verify` found a check that cannot be trusted, or a page could not be drawn; 2: bad input, said in one message."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="surrogateescape"
            )  # names of files need not be text; they are printed as they are
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is being written is cleaned up
    try:
        options = _parser().parse_args(arguments)
    except _UsageError as error:
        return _refuse("UsageError", str(error), "--json" in arguments)
    if "command" not in options:
        _parser().print_help()
        return 2
    from .errors import PenchantError, PenchantWarning

    try:
        _check_device()
        _complete(options)
        with warnings.catch_warnings():
            warnings.simplefilter("always", PenchantWarning)
            warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
            return options.command(options)
    except PenchantError as error:
        return _refuse(type(error).__name__, str(error), options.json)
    except KeyboardInterrupt:
        print("Interrupted; files written so far are whole.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except MemoryError as error:
        text = f"There is not enough memory: {error}.\n  Usual cause: wide layers; a width w makes matrices of w x w numbers.\n  Fix: a smaller --widths, or fewer samples."
        return _refuse("MemoryError", text, options.json)
    except OSError as error:
        return _refuse("OSError", f"Cannot read or write: {error}", options.json)


def _check_device() -> None:
    """A device that was asked for and is not there ends in an error of JAX's own making, deep inside the first computation."""
    wanted = os.environ.get("JAX_PLATFORMS")
    if wanted:
        import jax

        try:
            jax.devices()
        except Exception as error:
            _reject(
                "JAX_PLATFORMS",
                "a device of this machine, or not set: then the best one is taken",
                f"{wanted!r} ({type(error).__name__})",
            )


def _refuse(kind: str, message: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": kind, "message": message}))
    print(f"{kind}: {message}", file=sys.stderr)
    return 2


def _reject(flag: str, required: str, found: object) -> NoReturn:
    """An option that does not go with the others; the import waits for it, so that `--help` stays light."""
    from .errors import ArgumentError

    raise ArgumentError(flag, "penchant", required, found)


def _complete(options: argparse.Namespace) -> None:
    """The default optimiser depends on --joint, and two optimisers exist only there."""
    if "joint" not in options:
        return
    _check_tolerance(options)
    if options.exact and (options.joint or options.setting == _LAYERS):
        _reject("--exact", f"left out with --joint and --setting {_LAYERS}, whose references have no exact proof", "it")
    if options.setting == _LAYERS:
        return
    for name in ("geometry", "gauge", "batch", "keys", "ridge", "logit_limit", "layer_scale"):
        if getattr(options, name) is not None:
            _reject(f"--{name.replace('_', '-')}", f"used with --setting {_LAYERS}", getattr(options, name))
    if options.step_size == "adaptive":
        _reject("--step-size", f"a number unless --setting {_LAYERS}", "adaptive")
    if not options.joint and options.setting != "deep-linear" and options.scale is None:
        options.scale = 1e-3
    for name, given in (
        ("--normalise", options.normalise),
        ("--risk-level", getattr(options, "risk_level", None) is not None),
    ):
        if given and options.joint:
            _reject(name, "left out with --joint", "a value")
    if options.joint and options.loss not in _LOSSES:
        _reject("--loss", f"{' or '.join(_LOSSES)} with --joint", options.loss)
    if options.optimiser is None:
        options.optimiser = "scheduled" if options.joint else "flow"
    if options.optimiser in _ONLY_JOINT and not options.joint:
        _reject("--optimiser", "used with --joint", options.optimiser)


def _check_tolerance(options: argparse.Namespace) -> None:
    """Only an integrator has one."""
    flows = options.optimiser in (None, "flow") and not options.joint and options.setting != _LAYERS
    if getattr(options, "tolerance", None) is not None and not flows:
        _reject("--tolerance", "used with --optimiser flow", f"{options.tolerance:g} without a flow")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="penchant",
        description="Which solution does training select, with what certificate, and how fast?",
        epilog="Start with `penchant verify` (every claim on embedded data) or `penchant predict DATA` (your own).",
    )
    parser.add_argument("--version", action="version", version=f"penchant {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add(commands, "studies", "list the studies", _studies)
    study = _add(commands, "study", "run one study and write its page", _study)
    study.add_argument("name", metavar="NAME", help="one of `penchant studies`")
    study.add_argument("--seed", type=_seed, default=0, help="seed of the data (default 0)")
    study.add_argument("--full", action="store_true", help="the paper's size instead of a quick one")
    study.add_argument("--out", default="out", metavar="DIR", help="where to write (default: out)")
    verify = _add(commands, "verify", "check every claim, with its refutation twin", _verify)
    verify.add_argument("papers", nargs="*", metavar="PAPER", help="only claims of these papers")
    verify.add_argument("--all", action="store_true", help="also what the papers do not say: ours and observed")
    verify.add_argument("--jobs", type=int, metavar="N", help="processes, one thread each (default: all cores)")
    verify.add_argument("--fresh", action="store_true", help="check again what was kept from before")
    verify.add_argument("--out", metavar="DIR", help="also run the first study of each paper and write DIR/index.html")
    verify.add_argument("--full", action="store_true", help="with --out: every study, at the paper's size")
    verify.add_argument("--exact", action="store_true", help="prove every reference in rational arithmetic as well")
    verify.add_argument("--seed", type=_seed, default=0, help="seed of the studies (default 0)")
    predict = _add(commands, "predict", "theorem, hypotheses, reference and rivals for your data", _predict)
    _data_options(predict)
    predict.add_argument("--save", metavar="FILE.npz", help="write `solution` (smallest margin 1) and `dual`")
    train = _add(commands, "train", "train on your data and judge the run", _train)
    _data_options(train)
    _train_options(train)
    check = _add(commands, "check", "prove a certificate that --exact wrote, in exact arithmetic", _check)
    check.add_argument("certificate", metavar="certificate.json")
    report = _add(commands, "report", "make the page of a directory that penchant wrote", _report)
    report.add_argument("directory", metavar="DIR")
    return parser


def _add(commands: Any, name: str, text: str, command: Callable) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    return parser


def _integer(text: str) -> int:
    """An integer that the machine can count to."""
    if not -(2**62) < int(text) < 2**62:
        raise argparse.ArgumentTypeError(f"an integer below 2^62 is required, not {text}")
    return int(text)


def _seed(text: str) -> int:
    if _integer(text) < 0:
        raise argparse.ArgumentTypeError(f"a nonnegative integer is required, not {text}")
    return int(text)


def _step_size(text: str) -> float | str:
    """A number, or the word that asks for one chosen at every step."""
    if text == "adaptive":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"neither a number nor 'adaptive': {text!r}") from None


def _data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data",
        metavar="DATA",
        help=".npz with inputs, labels | inputs, targets | tokens, labels, head [, queries | scores, mask] (--joint: optimal for head); or .csv, label last",
    )
    parser.add_argument(
        "--widths", metavar="8,8,8", help="hidden widths of deep-linear (default 8,8), or columns of K and Q"
    )
    parser.add_argument(
        "--setting",
        help="linear, attention, attention-kq, attention-diagonal, deep-linear, regression, signed-squares, signed-powers, squares, attention-regression (default: from the names of the arrays)",
    )
    layers = parser.add_argument_group(_LAYERS)
    layers.add_argument(
        "--geometry", choices=("two_sided", "left", "euclidean"), help="preconditioner (default two_sided)"
    )
    layers.add_argument(
        "--gauge", choices=("identity", "plus", "minus"), help="of the spectral start (default identity)"
    )
    layers.add_argument("--batch", type=_integer, metavar="B", help="queries per step (default: all)")
    layers.add_argument("--keys", choices=("batch", "full"), help="what a batch attends to (default batch)")
    layers.add_argument("--ridge", type=float, metavar="R", help="added to the diagonal of the covariance (default 0)")
    layers.add_argument(
        "--logit-limit",
        type=float,
        metavar="L",
        help="largest operator norm of the whitened V: scale moves from V to U beyond it",
    )
    layers.add_argument(
        "--layer-scale",
        type=float,
        metavar="C",
        help="start from (C U, V/C) and let V grow no further, with a regulariser that does not see the scale (default: balanced, C = 1)",
    )
    parser.add_argument("--alpha", type=float, help="size of the start of squares and powers (default 0.01)")
    parser.add_argument("--depth", type=_integer, help="of signed-powers, w+^D - w-^D (default 3)")
    parser.add_argument(
        "--bias", action="store_true", help="linear, deep-linear: add a constant input 1, so that there is an intercept"
    )
    parser.add_argument(
        "--normalise", action="store_true", help="linear, deep-linear: divide the inputs by the largest of their norms"
    )
    parser.add_argument(
        "--ties",
        choices=("raise", "keep"),
        default="raise",
        help="attention: refuse several best tokens in a sample, or leave them out of the margins (default raise)",
    )
    parser.add_argument(
        "--exact", action="store_true", help="prove the reference in rational arithmetic and write certificate.json"
    )
    parser.add_argument("--joint", action="store_true", help="attention: train the decoder as well")
    parser.add_argument(
        "--optimiser",
        choices=_OPTIMISERS,
        help="default: flow; with --joint: scheduled; line-search[-capped], assumption5[-tight], sharp and risk-scaled are for deep-linear",
    )
    parser.add_argument(
        "--loss",
        default="exponential",
        metavar="{exponential,logistic,correlation,FILE.py:NAME}",
        help="default: exponential; attention: or correlation, -z; linear, deep-linear: or a loss that your Python file, which is executed, defines",
    )
    parser.add_argument("--reduction", choices=("mean", "sum"), default="mean")
    parser.add_argument(
        "--step-size",
        type=_step_size,
        help=f"multiplier of the gradient (gd), step length (ngd, momentum), divisor c (polyak); default: from the data; {_LAYERS}: or 'adaptive'",
    )
    parser.add_argument(
        "--cap",
        type=float,
        help="largest multiplier of the gradient (ngd, momentum, polyak; --joint: joint-ngd)",
    )
    parser.add_argument("--beta", type=float, help="share of the last step that momentum keeps (default 0.9)")
    parser.add_argument(
        "--decays",
        metavar="P_U,P_W",
        help="--joint: exponents of the step lengths length/(t+1)^p of u and W (default 0,0; for scheduled 2/3,1)",
    )
    parser.add_argument("--seed", type=_integer, default=0, help="seed of a random start (default 0)")
    parser.add_argument(
        "--start",
        default="zeros",
        metavar="{zeros,small,FILE.npz}",
        help="default: zeros; deep-linear: or normal (the default there), balanced, zero-first, equal-frobenius, torch-default, all brought below the risk of zero",
    )
    parser.add_argument(
        "--scale",
        type=float,
        help="standard deviation of the start 'small' (default 1e-3) or of a start of deep-linear (default 0.3; equal-frobenius: norm of a layer, default 1)",
    )


def _train_options(parser: argparse.ArgumentParser) -> None:
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--steps", type=_integer, metavar="N", help="number of steps (for the flow: of the integrator)")
    budget.add_argument(
        "--time", type=float, metavar="T", help="physical time (sum of the multipliers of the gradient)"
    )
    budget.add_argument("--log-time", type=float, metavar="S", help="natural logarithm of physical time")
    budget.add_argument("--margin", type=float, metavar="M", help="smallest margin to reach")
    budget.add_argument(
        "--risk-level", type=float, metavar="X", help="-log of the loss above its infimum to reach: risk e^-X"
    )
    parser.add_argument(
        "--tolerance", type=float, help="local error of a step of the flow (default 1e-7; deep-linear: 1e-11)"
    )
    parser.add_argument("--save", metavar="run.npz", help="write the trajectory and the final parameters")
    parser.add_argument("--out", metavar="DIR", help="write a page about this run to DIR/index.html")
    parser.add_argument(
        "--overwrite", action="store_true", help="with --out: replace the page of an earlier run in DIR"
    )


def _show(options: argparse.Namespace, content: Any, text: Callable[[Any], None]) -> None:
    if options.json:
        from .exhibits import plain

        print(json.dumps(plain(content), indent=2))
    else:
        text(content)


def _studies(options: argparse.Namespace) -> int:
    from .papers import PAPERS

    rows = [
        {"name": study.name, "title": study.title, "paper": paper.name} for paper in PAPERS for study in paper.studies
    ]
    _show(
        options,
        rows,
        lambda rows: print("\n".join(f"{row['name']:28}{row['title']}  [{row['paper']}]" for row in rows)),
    )
    return 0


def _study(options: argparse.Namespace) -> int:
    from .commands.study import print_study, run_study

    _show(options, run_study(options.name, options.seed, options.full, options.out), print_study)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from .commands.verify import print_ledger, verify

    rows, trusted = verify(
        options.papers, options.out, options.seed, options.full, options.all, options.jobs, options.fresh, options.exact
    )
    _show(options, rows, print_ledger)
    return 0 if trusted else 1


def _own_data(options: argparse.Namespace) -> Any:
    """The module that predicts and trains what the options ask for."""
    if options.joint:
        from .commands import joint as module
    elif options.setting == _LAYERS:
        from .commands import attention as module
    else:
        from .commands import own_data as module
    return module


def _predict(options: argparse.Namespace) -> int:
    module = _own_data(options)
    _show(options, module.predict(options), module.print_prediction)
    return 0


def _train(options: argparse.Namespace) -> int:
    from .commands.pages import check_new_page

    module = _own_data(options)
    check_new_page(options)
    content = module.train(options)
    _show(options, content, module.print_run)
    return 1 if "page_error" in content else 0


def _check(options: argparse.Namespace) -> int:
    from .check import check

    with open(options.certificate, encoding="utf-8") as file:
        text = file.read()
    try:
        _show(options, {"proved": check(text)}, lambda content: print(f"proved: {content['proved']}"))
    except Exception as error:  # whatever is wrong with a certificate, it proves nothing
        _show(options, {"refused": f"{type(error).__name__}: {error}"}, lambda content: print(content["refused"]))
        return 1
    return 0


def _report(options: argparse.Namespace) -> int:
    from .report.page import render

    page = render(options.directory)
    _show(options, {"page": str(page)}, lambda content: print(f"page: {content['page']}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
