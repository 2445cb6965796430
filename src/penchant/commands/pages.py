"""`explore`, `docs`, `report`: pages from what is saved; `check`: a certificate proved again, by Python alone."""

import json
from argparse import Namespace
from pathlib import Path

from . import Said


def explore(options: Namespace) -> Said:
    from ..report.explore import own_spec, write_explorer

    return _written(write_explorer(options.out, own_spec(options.data) if options.data else None))


def docs(options: Namespace) -> Said:
    from ..report.catalogue import build

    return _written(build(Path(options.docs), Path(options.report), Path(options.out)))


def report(options: Namespace) -> Said:
    from ..report.networks import write_page
    from ..report.page import render

    return _written(write_page(options.saved, options.out) if Path(options.saved).is_file() else render(options.saved))


def _written(page: Path) -> Said:
    return Said({"page": str(page)}, [f"page: {page}"])


def check(options: Namespace) -> Said:
    from ..check import check as prove

    text = Path(options.certificate).read_text(encoding="utf-8", errors="replace")
    try:
        found = {"proved": prove(text), "about": json.loads(text).get("about", "data that are not named")}
    except ValueError as error:  # whatever is wrong with a certificate, it proves nothing
        return Said({"refused": str(error)}, [str(error)], 1)
    return Said(found, ["proved: {proved}\nabout: {about}".format(**found)])
