"""HTML reports: ``capbench figure report``, and ``--report`` of other commands."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capbench.cli import common
from capbench.core.arguments import Help
from capbench.core.errors import CapbenchError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.reports.page import ReportSource
    from capbench.studies.item_scores import Collector
    from capbench.studies.plan import Plan
    from capbench.studies.results import StudyResult


ReportOption = Annotated[Path | None, Help("Also write an HTML report (docs/report.md).", metavar="FILE")]


def write_report(
    report: Path | None, result: StudyResult, collector: Collector | None, plan: Plan, *, written: bool = False
) -> None:
    """Write the report of a run, if ``--report`` is given; ``written``: the result has files next to it."""
    if report is None or collector is None:
        return
    from capbench.reports.page import ReportSource

    source = ReportSource(result, collector.tables, written=written)
    images = None if plan.study.images is None else Path(plan.study.images)
    write_page([source], report, plan.root, image_root=images)


def write_page(
    sources: Sequence[ReportSource], out: Path, root: DataRoot, title: str | None = None, image_root: Path | None = None
) -> None:
    """Write the report, and note its path and size."""
    from capbench.core.files import write_text
    from capbench.reports.page import report_page

    def pictures(dataset: str, images: Iterable[str]) -> Mapping[str, Path]:
        from capbench.datasets.images import image_finder
        from capbench.datasets.opening import open_dataset

        if image_root is not None:
            return image_finder(root, image_root)(images)
        try:
            opened = open_dataset(dataset, root)
        except CapbenchError:  # results of a data set or file that is not installed
            return {}
        return image_finder(root, dataset=opened)(images)

    # The command as typed, without the path of the program.
    command = shlex.join(["capbench", *sys.argv[1:]])
    page = report_page(sources, title=title, command=command, pictures=pictures, progress=common.progress)
    write_text(out, page)
    common.note(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB): open it in a browser")
