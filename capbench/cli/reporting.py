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
    from capbench.reports.report import ReportSource

__all__ = ["ReportOption", "write_page"]

ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Also write everything as one page that opens in a browser: tables, captions on which metrics and people "
        "part, protocols in words (docs/report.md).",
    ),
]


def write_page(
    sources: Sequence[ReportSource],
    out: Path,
    root: DataRoot,
    *,
    title: str | None = None,
    image_root: Path | None = None,
) -> None:
    """Write the page, and say where it is and how large.

    Args:
        sources: the studies.
        out: the page's file.
        root: the data folder, for pictures.
        title: of the page.
        image_root: where pictures are, if not in the data folder.

    Raises:
        UsageError: the file cannot be written.
        DataError: the folder of pictures holds none.
    """
    from capbench.reports.report import write_report

    def pictures(images: Iterable[str]) -> Mapping[str, Path]:
        from capbench.datasets.images import image_paths
        from capbench.features.images import images_in

        if image_root is None:
            return image_paths(images, root)
        wanted = set(images)
        return {entry.image: entry.path for entry in images_in(image_root) if entry.image in wanted}

    # As it was typed, but for the path of the program.
    command = shlex.join(["capbench", *sys.argv[1:]])
    write_report(sources, out, title=title, command=command, pictures=pictures, progress=common.progress)
    common.note(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB): open it in a browser")
