"""`python -m benchmarks [names...] [--out benchmarks/RESULTS.md] [--quick]`"""

import argparse
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from penchant.files import write_bytes

from . import machine
from .section import Section
from .timing import clock, say

COMPARISONS = (
    *(
        "steps",
        "references",
        "nuclear",
        "spectral",
        "flow",
        "flow-sizes",
        "key-query",
        "batch",
        "growth",
        "interpolation",
    ),
    *("attention-regression", "deep_linear", "deep_linear_growth", "sweeps"),
)

HEADER = """# Benchmarks

Written by `python3 bootstrap.py bench`. Every comparison runs us and the peer in one process pinned to one core, in turn;
a time is the median of the repeats with half their range, in CPU seconds. A ratio is the time of the peer over ours: below 1 the peer
is faster. Compilation is left out unless a column says "first call".
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="penchant side by side with its peers")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which comparisons, of {', '.join(COMPARISONS)}; all by default"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "RESULTS.md", help="the table; results.json goes next to it"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats, under a minute")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(COMPARISONS))
    if unknown:
        parser.error(f"no comparison is called {unknown[0]!r}; there are {', '.join(COMPARISONS)}")
    torch.set_num_threads(1)
    wall, cpu = time.perf_counter(), clock()
    found = machine.limits()
    facts = {"mode": "quick" if options.quick else "full", **machine.describe(found)}
    sections = []
    for name in options.names or COMPARISONS:
        say(f"{name}: begin")
        module = import_module(f".{name.replace('-', '_')}", __package__)
        sections.append(module.compare(found, options.quick))
        facts["share of the core we had"] = f"{100 * (clock() - cpu) / (time.perf_counter() - wall):.0f} %"
        write(
            options.out, facts, sections, bool(options.names)
        )  # after each one: an interrupted run keeps what it measured
    say(f"wrote {options.out.name} and results.json")


def write(out: Path, facts: dict[str, Any], sections: list[Section], some: bool) -> None:
    """The table and its JSON; where only `some` comparisons were asked for, the others stay as they are."""
    lines = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    text, data = "\n".join([HEADER, lines, ""]), out.with_name("results.json")
    machine, known, told = facts, {}, {}
    if some and out.exists():
        text, *parts = out.read_text(encoding="utf-8").split("\n## ")
        told = {part.partition("\n")[0]: f"## {part.strip()}\n" for part in parts}
        before = json.loads(data.read_text(encoding="utf-8"))
        machine, known = before["machine"], {one["name"]: one for one in before["comparisons"]}
    told |= {section.title: section.markdown() for section in sections}
    known |= {section.name: section.json() | ({"machine": facts} if some else {}) for section in sections}
    write_bytes(out, "\n".join([text.rstrip(), "", *told.values()]).encode())
    write_bytes(data, (json.dumps({"machine": machine, "comparisons": list(known.values())}, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
