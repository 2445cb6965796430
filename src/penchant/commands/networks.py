"""`experiment`: the papers' real networks. `probe`: the record of a PyTorch network, told and drawn. `kkt`: how far a network is from a KKT point."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ..errors import ArgumentError, DataFileError, MissingExtra, PenchantError
from ..exhibits import Table, plain
from ..files import check_writable, load_npz, write_bytes
from ..lab import Study
from ..report.networks import read_network, summary, write_page
from ..report.page import render, save
from . import Said
from .options import attribute
from .runs import aligned


def probe(options: Namespace) -> Said:
    """Numbers and lines of a record; with --out its page too."""
    header, series = read_network(options.run)
    content = {**{key: header[key] for key in ("model", "layers", "blocks")}, "series": plain(series)}
    first = f"{header['model']}: {len(series['steps'])} records to step {series['steps'][-1]}"
    layers = summary(header, series)
    text = [first, *aligned(layers.rows, layers.columns, len(layers.rows)), layers.caption]
    if options.out:
        content["page"] = str(write_page(options.run, options.out))
        text.append(f"page: {content['page']}")
    return Said(content, text)


def experiment(options: Namespace) -> Said:
    """Run an experiment of the papers on genuine data, or draw what one has written, as a page next to its numbers."""
    from ..papers.deep_linear.figures import result as alexnet
    from ..papers.self_attention import real_networks

    found, place = {}, Path(options.out)
    check_writable(str(place / "index.html"))
    if options.experiment.endswith(".json"):
        found = _earlier(options.experiment)
    else:
        for found in _measured(options):
            found = cast(dict, plain(found))
            write_bytes(place / f"{found['experiment']}.json", json.dumps(found).encode())
    if not found.get("runs"):
        raise PenchantError("No run of the experiment is finished: there is nothing to draw.\n  Fix: run it again.")
    starts = "equal norms" in {one["variant"] for one in found["runs"]}
    curves = real_networks.curves, real_networks.by_variant(found)
    result = alexnet(found, *curves) if starts else real_networks.result(found)
    result = replace(result, tables=(*result.tables, _sources(found)))
    study = Study(found["experiment"], f"{found['experiment']} (after {found['after']})", seeded=False)
    save(study, result, place, full=found["settings"]["full"], seconds=found["seconds"])
    lines = [f"{one.verdict.headline}: {one.statement} ({one.verdict.inequality})" for one in result.findings]
    return Said({**found, "page": str(render(place))}, [*lines, f"page: {place / 'index.html'}"])


def _sources(found: dict) -> Table:
    """Where the data came from, and on what terms."""
    records = [{**one, **part} for one in found["data"].values() for part in one.get("packages", [{}])]
    place = lambda one: one.get("from") or f"{one['client']}: {one['name']} {one['version']}"
    rows = tuple((one["data"], place(one), str(one.get("sha256", "-")), one.get("licence", "-")) for one in records)
    return Table("data", "Data", ("what", "from", "SHA-256", "licence"), rows, "")


def _earlier(path: str) -> dict:
    """What an experiment has written; any other file is refused."""
    try:
        found = json.loads(Path(path).read_text())
    except ValueError as error:
        raise DataFileError(f"'{path}' is no JSON: {error}.") from error
    known = set(found if type(found) is dict else ())
    if missing := {"experiment", "after", "data", "settings", "runs", "seconds"} - known:
        raise DataFileError(f"'{path}' was not written by `penchant experiment`: it has no '{min(missing)}'.")
    return found


def _measured(options: Namespace) -> Iterator[dict]:
    try:
        from ..bridge.torch_experiments import ASKED
        from ..bridge.torch_experiments import experiment as measure
    except ImportError:
        raise MissingExtra("torch", "`penchant experiment`") from None
    asked = {key: value for key, value in vars(options).items() if key in (*ASKED, "full", "device")}
    return measure(options.experiment, folder=options.data, progress=lambda text: print(text, file=sys.stderr), **asked)


def kkt(options: Namespace) -> Said:
    """The meter on a module of the user's own; of several checkpoints the last is told, with the trend."""
    try:
        from ..bridge.kkt import trend
        from ..bridge.torch_kkt import kkt as measure
    except ImportError:
        raise MissingExtra("torch", "`penchant kkt`") from None
    arrays = load_npz(options.data)
    if missing := {"inputs", "labels"} - set(arrays):
        raise DataFileError(f"'{options.data}' has no array '{min(missing)}'; it has {', '.join(sorted(arrays))}.")
    told = lambda text: print(text, file=sys.stderr)
    asked = arrays["inputs"], arrays["labels"]
    readings = [measure(one, *asked, tolerance=options.tolerance, progress=told) for one in _named(options.model)]
    content, lines = readings[-1].content(), readings[-1].lines()
    if len(readings) > 1:
        way = trend(readings)
        content["trend"] = {"verdict": way.headline, "why": way.inequality, "measured": way.measured}
        lines.append(f"trend      {way}")
    return Said(content, lines)


def _named(place: str) -> list:
    """What a script calls by a name."""
    file, _, name = place.rpartition(":")
    if not file:
        raise ArgumentError("model", "penchant kkt", "FILE.py:NAME, a name in a script", f"'{place}'")
    try:
        found = _made(attribute(Path(file), name))
    except PenchantError:
        raise
    except (Exception, SystemExit) as error:
        raise DataFileError(f"'{place}' raised {type(error).__name__}: {error}") from error
    if not found or not all(hasattr(one, "named_parameters") for one in found):
        required = "a module, a list of them, or a function that makes one"
        raise ArgumentError("model", "penchant kkt", required, repr(found))
    return found


def _made(found: Any) -> list:
    """Modules as a list, from a module, some of them, or a function that makes either."""
    made = found if hasattr(found, "named_parameters") or not callable(found) else found()
    return list(made) if isinstance(made, list | tuple) else [made]
