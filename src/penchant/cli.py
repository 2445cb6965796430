"""The command line: parses and calls; every heavy import waits until a command needs it."""

import argparse
import gc
import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from . import __version__
from .training.flags import FLAGS, add_experiment, add_flags, seed

if TYPE_CHECKING:
    from .commands import Said

_DOING = {  # what commands that compile do first
    "study": "importing, computing",
    "predict": "importing, looking for a theorem, checking its hypotheses, solving the reference",
    "train": "importing, predicting, compiling, training",
    "which-margin": "importing, bracketing the best margins, training",
    "sweep": "importing",
    "explore": "importing, drawing",
    "docs": "importing, looking for theorems",
}
_SMALL = 2**14  # bytes of data on which code that compiles in half the time runs as fast


class _UsageError(Exception):
    """Options that argparse cannot read: raised instead of exiting, so that --json answers in JSON too."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A misspelt option or choice is answered with the nearest one."""
        self.print_usage(sys.stderr)
        known = {f"--{flag.name}" for flag in FLAGS} | set(re.findall(r"[\w-]+", message.partition("choose from")[2]))
        wrong = re.findall(r"invalid choice: '([^']*)'|(--[\w-]+)(?==|$| )", message.partition(" (choose")[0])[-1:]
        near = (
            get_close_matches("".join(*wrong), known - {"".join(*wrong)}, 1)
            if wrong and "not allowed with" not in message
            else []
        )
        raise _UsageError(f"{self.prog}: {message}" + (f"\n  Did you mean {near[0]}?" if near else ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. 0: done; 1: `verify` found a check that cannot be trusted, `coverage` an item without one, or a page could not be drawn; 2: bad input, said in one message."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):
        if change := getattr(stream, "reconfigure", None):
            change(errors="surrogateescape")  # names of files need not be text; they are printed as they are
    heard = _listen()
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
        options.words = arguments
        if getattr(options, "store", None):  # refused before the work, not after it
            from .sweeps.store import Store

            Store(options.store, writes=options.command != "runs:runs")
        with warnings.catch_warnings():
            warnings.simplefilter("always", PenchantWarning)
            warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
            return _run(options)
    except PenchantError as error:
        return _refuse(type(error).__name__, str(error), options.json)
    except KeyboardInterrupt:
        return _stopped(*heard[:1])
    except BrokenPipeError:
        return 0
    except MemoryError as error:
        text = f"There is not enough memory: {error}.\n  Usual cause: wide layers; a width w makes matrices of w x w numbers.\n  Fix: a smaller --widths, or fewer samples."
        return _refuse("MemoryError", text, options.json)
    except OSError as error:
        return _refuse("OSError", f"Cannot read or write: {error}", options.json)
    except Exception:
        if heard:  # inside a callback of compiled code a signal becomes an error of JAX's own making
            return _stopped(*heard[:1])
        raise


def _listen() -> list[int]:
    """The exit codes of signals that ask to stop, as they come. Each ends what is being done in such a way that what is being written is cleaned up."""
    heard: list[int] = []

    def stop(number: int, _: object) -> NoReturn:
        heard.append(128 + number)
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for asked in (signal.SIGINT, signal.SIGTERM):
            signal.signal(asked, stop)
    return heard


def _stopped(code: int = 130) -> int:
    print("Interrupted; files written so far are whole.", file=sys.stderr)
    return code


def _check_device() -> None:
    """A device that was asked for and is not there ends in an error of JAX's own making, deep inside the first computation."""
    wanted = os.environ.get("JAX_PLATFORMS")
    if wanted:
        import jax

        from .errors import ArgumentError

        try:
            jax.devices()
        except Exception as error:
            required = "a device of this machine, or not set: then the best one is taken"
            raise ArgumentError("JAX_PLATFORMS", "penchant", required, f"{wanted!r} ({type(error).__name__})") from None


def _refuse(kind: str, message: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"error": kind, "message": message}))
    print(f"{kind}: {message}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="penchant",
        description="Which solution does training select, with what certificate, and how fast?",
        epilog="Start with `penchant verify` (every claim on embedded data) or `penchant predict DATA` (your own).",
    )
    parser.add_argument("--version", action="version", version=f"penchant {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in (_add_evidence, _add_own, _add_sweeps, _add_networks, _add_pages):
        add(commands)
    return parser


def _add_evidence(commands: "argparse._SubParsersAction") -> None:
    _add(commands, "studies", "list the studies", "verify:list_studies")
    study = _add(commands, "study", "run one study and write its page", "verify:run_study")
    study.add_argument("name", metavar="NAME", help="one of `penchant studies`")
    study.add_argument("--seed", type=seed, default=0, help="seed of the data (default 0)")
    study.add_argument("--full", action="store_true", help="the paper's size instead of a quick one")
    study.add_argument("--out", default="out", metavar="DIR", help="where to write (default: out)")
    study.add_argument("--store", metavar="DIR", help="also keep its findings in a run store")
    verify = _add(commands, "verify", "check every claim, with its refutation twin", "verify:verify")
    verify.add_argument("papers", nargs="*", metavar="PAPER", help="only claims of these papers")
    verify.add_argument("--claim", action="append", metavar="ID", help="only this claim (again for more); old ids work")
    verify.add_argument("--all", action="store_true", help="also what the papers do not say: ours and observed")
    verify.add_argument("--jobs", type=int, metavar="N", help="processes, one thread each (default: all cores)")
    verify.add_argument("--fresh", action="store_true", help="check again what was kept from before")
    verify.add_argument("--out", metavar="DIR", help="also run the first study of each paper and write DIR/index.html")
    verify.add_argument("--full", action="store_true", help="with --out: every study, at the paper's size")
    verify.add_argument("--exact", action="store_true", help="prove every reference in rational arithmetic as well")
    verify.add_argument("--seed", type=seed, default=0, help="seed of the studies (default 0)")
    verify.add_argument("--store", metavar="DIR", help="also keep the verdicts in a run store")
    coverage = _add(
        commands, "coverage", "every numbered item of the papers, its claims, their verdicts", "verify:list_coverage"
    )
    coverage.add_argument("papers", nargs="*", metavar="PAPER", help="only items of these papers")


def _add_own(commands: "argparse._SubParsersAction") -> None:
    predict = _add(commands, "predict", "theorem, hypotheses, reference and rivals for your data", "own:predict")
    add_flags(predict, training=False)
    train = _add(commands, "train", "train on your data and judge the run", "own:train")
    add_flags(train, training=True)
    which = _add(
        commands,
        "which-margin",
        "train on your data and say which norm's margin is maximised",
        "which_margin:which_margin",
    )
    add_flags(which, training=True, own=True)
    check = _add(commands, "check", "prove a certificate that --exact wrote, in exact arithmetic", "pages:check")
    check.add_argument("certificate", metavar="certificate.json")


def _add_sweeps(commands: "argparse._SubParsersAction") -> None:
    sweep = _add(
        commands, "sweep", "many runs over a grid and seeds, into a store that goes on where it was", "sweep:run_sweep"
    )
    sweep.add_argument("spec", nargs="?", metavar="SPEC.toml", help="what to run; or --set, --grid and --seeds")
    sweep.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="fix a key of the spec")
    sweep.add_argument(
        "--grid", action="append", default=[], metavar="KEY=A,B", help="or KEY=lin(0,1,5), KEY=geom(1e-3,1,4)"
    )
    sweep.add_argument("--seeds", metavar="0:100", help="seeds of data and starts")
    sweep.add_argument("--store", default="runs", metavar="DIR", help="where runs are kept (default: runs)")
    sweep.add_argument("--engine", choices=("pool", "dask", "here"), default="pool", help="who works (default: pool)")
    sweep.add_argument("--scheduler", metavar="ADDRESS", help="of the dask cluster")
    sweep.add_argument("--jobs", type=int, metavar="N", help="processes of one thread each (default: all cores)")
    sweep.add_argument("--retry", action="store_true", help="run again what failed before")
    sweep.add_argument(
        "--measure", metavar="WHAT", help="a column, or an event such as 'smallest_margin > 0', for tables and pictures"
    )
    sweep.add_argument("--out", metavar="DIR", help="write a page with the map or the boundary")
    runs = _add(commands, "runs", "what a run store holds: list, group, export, prune, check", "runs:runs")
    runs.add_argument("--store", default="runs", metavar="DIR", help="where runs are kept (default: runs)")
    runs.add_argument("--where", metavar="SQL", help="only these runs, such as \"d = 8 and status = 'failed'\"")
    runs.add_argument("--show", metavar="COLUMNS", help="means of columns, shares of events; with --rows: only these")
    runs.add_argument(
        "--export", metavar="FILE", help="write the runs, or what --by or --sql finds, to a .csv or .json"
    )
    asked = runs.add_mutually_exclusive_group()
    asked.add_argument("--by", metavar="COLUMNS", help="group by these (default: kind, name, status)")
    asked.add_argument("--rows", action="store_true", help="the runs themselves")
    asked.add_argument("--sql", metavar="QUERY", help="any question about the table `runs`")
    asked.add_argument("--prune", action="store_true", help="remove the runs for which --where holds")
    asked.add_argument("--check", action="store_true", help="read every byte, and name the files that are not whole")


def _add_networks(commands: "argparse._SubParsersAction") -> None:
    probe = _add(commands, "probe", "tell and draw the record of a PyTorch network", "networks:probe")
    probe.add_argument("run", metavar="RUN.npz", help="what `Probe.save` of penchant.bridge.torch_probe wrote")
    probe.add_argument("--out", metavar="DIR", help="also write its page")
    kkt = _add(commands, "kkt", "how far a PyTorch network is from a KKT point of its margin problem", "networks:kkt")
    kkt.add_argument(
        "model", metavar="SCRIPT.py:NAME", help="a module, a function that makes one, or a list of checkpoints"
    )
    kkt.add_argument(
        "data", metavar="DATA.npz", help="arrays `inputs` and `labels` (classes, or -1 and 1 for one output)"
    )
    kkt.add_argument("--tolerance", type=float, default=1e-2, help="sqrt(T) of a KKT point (default 0.01)")
    run = _add(commands, "experiment", "an experiment of the papers on genuine data", "networks:experiment")
    names = "vit-mnist, vit-cifar10, alexnet-cifar10, encoder-imdb, ..., or NAME.json of an earlier run"
    run.add_argument("experiment", metavar="NAME", help=names)
    add_experiment(run)


def _add_pages(commands: "argparse._SubParsersAction") -> None:
    explore = _add(commands, "explore", "write the explorer: one HTML file that trains in the browser", "pages:explore")
    explore.add_argument("data", nargs="?", metavar="DATA", help="also your own data, as for `train`")
    explore.add_argument("--out", default="explorer.html", metavar="FILE", help="the file (default: explorer.html)")
    docs = _add(commands, "docs", "build the site: a page per theorem and claim, the guide, the explorer", "pages:docs")
    docs.add_argument("--docs", default="docs", metavar="DIR", help="the folder of the guide (default: docs)")
    docs.add_argument("--report", default="report", metavar="DIR", help="verdicts and figures (default: report)")
    docs.add_argument("--out", default="site", metavar="DIR", help="where to write (default: site)")
    report = _add(commands, "report", "draw a saved run, or a directory that penchant wrote", "pages:report")
    report.add_argument("saved", metavar="RUN.npz|DIR", help="what `train --save` or a probe saved, or `--out` wrote")
    report.add_argument("--out", default="out", metavar="DIR", help="of a saved run: where to write (default: out)")


def _add(commands: "argparse._SubParsersAction", name: str, text: str, place: str) -> _Parser:
    """A command is a function of `commands/`, by module and name."""
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=place, doing=_DOING.get(name, ""))
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    return parser


def _run(options: argparse.Namespace) -> int:
    module, _, name = options.command.partition(":")
    call = lambda: getattr(import_module(f".commands.{module}", __package__), name)(options)
    content, lines, code = _compiling(options, call) if options.doing else call()
    if options.json:
        from .exhibits import plain

        print(json.dumps(plain(content), indent=2))
    else:
        print(*lines, sep="\n")
    return code


def _compiling(options: argparse.Namespace, call: Callable[[], "Said"]) -> "Said":
    """Before JAX is used: what was compiled before is found again, and programs do not carry where each of their lines comes from. What is imported stays."""
    from .cache import compile_quickly, keep_compiled
    from .commands.progress import spinner

    with spinner(options.doing):
        gc.disable()
        data = getattr(options, "data", None) if "optimiser" in options else None
        if data and os.path.isfile(data) and os.path.getsize(data) < _SMALL:
            compile_quickly()
        keep_compiled()
        import jax

        jax.config.update("jax_traceback_in_locations_limit", 0)
        import_module(f".commands.{options.command.partition(':')[0]}", __package__)
        gc.freeze()
        gc.enable()
        return call()


if __name__ == "__main__":
    sys.exit(main())
