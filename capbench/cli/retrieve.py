"""``capbench explore retrieve``: rank images by captions and captions by images with a metric's scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.api.arguments import RetrievalChanges
from capbench.cli import common
from capbench.cli.options import Cached, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.studies.retrieval import RetrievalResult


@with_groups
def retrieve(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'retrieval', or the name of a shipped one."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric, column, or LABEL=NAME; repeatable, or a list."),
    ] = None,
    changes: RetrievalChanges,
    left_out: LeftOut,
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Measure image and caption retrieval with a metric.

    Samples images, uses the first captions of each as references, and scores all other captions against every image
    (FAIEr, Table 6). R@K is the percentage of queries with a correct result among the first K.

    Exit code 1: done, but requirements of a metric are missing (listed).

    Example: capbench explore retrieve -m cider,meteor --captions flickr8k --split test --images 200

    Example: capbench explore retrieve -m tiger.grounding --captions flickr8k --features F.h5 --model sample

    Example: capbench explore retrieve faier-table6 --features nocaps.h5 --model tiger=scan.safetensors
    """
    from capbench.api.retrieving import compute_retrieval

    if (study is None) == (not metric):
        code = "missing-option" if study is None else "conflict"
        raise UsageError(
            "requires either a study file or metrics", code=code, hint="Example: capbench explore retrieve -m cider"
        )
    caller = common.caller(json_output=json_output)
    values: Any = {**inputs.values(), **changes}
    found = compute_retrieval(metric or (), study, left_out.names, values, caller)
    if json_output:
        common.print_json(found.rows())
    else:
        _print(found)
    common.leave_if_waiting(found.missing)


def _print(found: RetrievalResult) -> None:
    from rich import box
    from rich.table import Table

    from capbench.studies.published import load_published

    title = f"{found.title}: {found.images:,} images, {found.captions:,} captions"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("metric")
    for way in ("caption → image", "image → caption"):
        for head in ("R@1", "R@5", "R@10", "median"):
            table.add_column(f"{way}\n{head}" if head == "R@1" else f"\n{head}", justify="right")
    for result in found.results:
        ways = (result.text_to_image, result.image_to_text)
        cells = [[*(f"{way[f'r@{k}']:.1f}" for k in (1, 5, 10)), f"{way['median_rank']:g}"] for way in ways]
        table.add_row(result.title, *cells[0], *cells[1])
    for name in found.missing:
        table.add_row(name, "missing")
    lines = [found.source]
    if found.published is not None:
        published = load_published(found.published)
        lines += [f"published: {published.source}", *published.notes]
        for row in published.rows:
            cells = [
                [
                    ""
                    if k is None or (cell := published.cell(f"{way}-{k}", row.key)) is None
                    else f"{100 * cell.number:.1f}"
                    for k in (1, 5, 10, None)
                ]
                for way in ("text-to-image", "image-to-text")
            ]
            table.add_row(f"{row.title} (paper)", *cells[0], *cells[1], style="dim")
    console = common.out()
    console.print(table)
    for line in (*lines, *dict.fromkeys(result.signature for result in found.results)):
        console.print(line, style="dim", markup=False, soft_wrap=True)
