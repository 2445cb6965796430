"""`python -m tests.trials --cases 5000 --seed 0`: every case against its exact answer, counted by family and category, the bad ones named."""

import argparse
import json
import sys
import time
from collections import Counter

import jax

from . import cases, holding
from .checks import check

KEEP = 500  # cases after which compiled code is let go: a process has only so many memory maps
COLUMNS = (holding.RIGHT, holding.ERROR, holding.UNDECIDED, holding.ACCEPTED, holding.UNCHECKED, *holding.BAD)


def trial(numbers, seed=0, seconds=60.0, families=()):
    """(number, family, category, note, CPU seconds) of every case."""
    for count, number in enumerate(numbers, 1):
        case = cases.case(number, seed)
        if not families or case.family in families:
            began = time.process_time()
            category, note = check(case, seconds)
            yield number, case.family, category, note, time.process_time() - began
        if count % KEEP == 0:
            jax.clear_caches()


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.trials", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU time of a case")
    parser.add_argument("--family", action="append", choices=list(cases.FAMILIES))
    parser.add_argument("--json", action="store_true", help="one line of JSON per case")
    options = parser.parse_args()
    counts = Counter()
    numbers = range(options.first, options.first + options.cases)
    for number, family, category, note, spent in trial(numbers, options.seed, options.seconds, options.family):
        counts[family, category] += 1
        if options.json:
            print(json.dumps([number, family, category, note, round(spent, 3)]), flush=True)
        elif category in holding.BAD:
            print(f"case {number}, {family}: {category}: {note}", flush=True)
    if not options.json:
        print(f"{'':20}" + "".join(f"{name:>15}" for name in COLUMNS))
        for family in [*cases.FAMILIES, ""]:
            shown = [sum(n for (f, c), n in counts.items() if c == name and family in (f, "")) for name in COLUMNS]
            print(f"{family or 'all':20}" + "".join(f"{n:15}" for n in shown))
    return int(any(category in holding.BAD for _, category in counts))


if __name__ == "__main__":
    sys.exit(main())
