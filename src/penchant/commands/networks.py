"""`probe`: the record of a PyTorch network, told and drawn."""

from argparse import Namespace
from collections.abc import Iterator

from ..exhibits import Table, plain
from ..lab import Study
from ..report.networks import network_page, read_network, summary
from ..report.page import render, save


def probe(options: Namespace) -> tuple[dict, list[str]]:
    """Numbers and lines of a record; with --out its page too."""
    header, series = read_network(options.run)
    content = {
        "model": header["model"],
        "layers": header["layers"],
        "blocks": header["blocks"],
        "series": plain(series),
    }
    text = [
        f"{header['model']}: {len(series['steps'])} records to step {series['steps'][-1]}",
        *_aligned(summary(header, series)),
    ]
    if options.out:
        study = Study("probe", f"Network: {header['model']}")
        save(study, network_page(header, series), options.out, paper="", seed=0, full=False, seconds=0.0)
        content["page"] = str(render(options.out))
        text.append(f"page: {content['page']}")
    return content, text


def _aligned(table: Table) -> Iterator[str]:
    rows = [table.columns, *table.rows]
    widths = [max(len(str(row[k])) for row in rows) for k in range(len(table.columns))]
    for row in rows:
        yield "  ".join(f"{cell!s:>{width}}" for cell, width in zip(row, widths, strict=True))
    yield table.caption
