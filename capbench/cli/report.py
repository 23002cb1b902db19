"""``capbench report``: results as one page that people open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import common
from capbench.cli.reporting import write_page

__all__ = ["report"]


def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="RESULTS...", help="Files results.json, or folders that hold one.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the page.")] = None,
    data: common.DataOption = None,
    image_root: Annotated[
        Path | None,
        typer.Option("--image-root", metavar="DIR", help="Where pictures are. Default: the data folder's */images."),
    ] = None,
) -> None:
    """Write results of studies as one HTML file that opens without a network.

    Tables are sorted, searched and copied as LaTeX, Markdown and CSV; every number tells its protocol, signature, n and
    interval; protocols are explained; files have checksums.

    Captions on which metrics and people part need items beside the results: 'capbench correlate ... --out DIR --items'
    writes them. Pictures are taken from the data folder, for the captions that are listed first.

    Example: capbench report results/tiger-table1 --out report.html

    Example: capbench report results/tiger-table1 results/tiger-table2 results/text-metrics --title "Text metrics"
    """
    from capbench.datasets.root import find_root
    from capbench.files import check_folder, check_writable
    from capbench.reports.report import read_source

    if image_root is not None:
        check_folder(image_root, "--image-root")
    check_writable(out)
    sources = [read_source(path) for path in results]
    write_page(sources, out, find_root(data), title=title, image_root=image_root)
