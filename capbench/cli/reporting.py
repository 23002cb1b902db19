"""What ``report`` and ``--report`` share: the page with its pictures, and the command that makes it again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.metrics.base import Resources
    from capbench.metrics.requests import MetricRequest
    from capbench.reports.report import ReportSource

__all__ = ["ExplanationsOption", "ReportOption", "explaining", "write_page"]

ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Also write everything as one page that opens in a browser: tables, captions on which metrics and people "
        "part, protocols in words (docs/report.md).",
    ),
]

ExplanationsOption = Annotated[
    int | None,
    typer.Option(
        "--explanations",
        metavar="N",
        min=0,
        help="On the page: why metrics that explain themselves gave their scores, for the N captions on which each row "
        "and people part most (at most 200 and 6 MB in all). Default: 5.",
    ),
]


def explaining(
    source: ReportSource, requests: Sequence[MetricRequest], resources: Resources, number: int | None
) -> ReportSource:
    """A study with what explains its metrics.

    Args:
        source: the study.
        requests: its metrics.
        resources: what is given to them.
        number: what ``--explanations`` says.
    """
    from dataclasses import replace

    from capbench.analyses.explained_captions import explainers

    if number == 0 or not source.items:
        return source
    return replace(source, explainers=explainers(source.result, requests, resources))


def write_page(
    sources: Sequence[ReportSource],
    out: Path,
    root: DataRoot,
    *,
    explanations: int | None = None,
    title: str | None = None,
    image_root: Path | None = None,
) -> None:
    """Write the page, and say where it is and how large.

    Args:
        sources: the studies.
        out: the page's file.
        root: the data folder, for pictures.
        explanations: what ``--explanations`` says.
        title: of the page.
        image_root: where pictures are, if not in the data folder.

    Raises:
        UsageError: the file cannot be written.
        DataError: the folder of pictures holds none.
    """
    from capbench.reports.report import write_report
    from capbench.reports.report.explanations import USUAL_NUMBER

    def pictures(images: Iterable[str]) -> Mapping[str, Path]:
        from capbench.datasets.images import image_paths
        from capbench.features.images import images_in

        if image_root is None:
            return image_paths(images, root)
        wanted = set(images)
        return {entry.image: entry.path for entry in images_in(image_root) if entry.image in wanted}

    # As it was typed, but for the path of the program.
    command = shlex.join(["capbench", *sys.argv[1:]])
    number = USUAL_NUMBER if explanations is None else explanations
    write_report(
        sources,
        out,
        title=title,
        command=command,
        pictures=pictures,
        explanations=number,
        progress=common.progress,
    )
    waiting = {
        explainer.label: explainer.waits for source in sources for explainer in source.explainers if explainer.waits
    }
    for label, reason in waiting.items() if number else ():
        common.note(f"explanations of {label} wait for {reason}")
    common.note(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB): open it in a browser")
