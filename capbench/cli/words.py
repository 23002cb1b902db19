"""``capbench words``: do words that belong to a region fit it better than others?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import Cached, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import MissingFileError, UsageError

if TYPE_CHECKING:
    from capbench.studies.explained import WordScores
    from capbench.studies.published import PublishedTable

__all__ = ["words"]


@with_groups
def words(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'words', or one that comes with capbench."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", "-m", metavar="NAME", help="Metric, or LABEL=NAME; repeatable.")
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option(
            "--entities",
            metavar="FILE",
            help="COCO Entities' annotations. Default: coco/coco_entities_release.json of the data folder.",
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", metavar="N", min=1, help="Images that are drawn. Default: 1000.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of the draw. Default: 0.")
    ] = None,
    left_out: LeftOut,
    given: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Show mean scores of words that belong to a region of the image and of other words (FAIEr, Table 5).

    Which words belong to which regions is told by COCO Entities (Cornia et al., CVPR 2019), a file that its authors
    give out. Scores are those of regions with references before these are fused, and with the candidate afterwards, for
    1 to 4 references.

    Exit code 1: the file or what the metric needs is not here (said).

    Example: capbench words faier-table5 --features coco.h5 --model faier-r-ref=faier.safetensors

    Example: capbench words -m faier --entities entities.json --features coco.h5 --model faier.safetensors
    """
    from dataclasses import replace

    from capbench.api.resolve import resolve, resolve_task, study_of_task
    from capbench.datasets.entities import read_entities
    from capbench.studies.explained import region_words
    from capbench.studies.published import load_published
    from capbench.studies.tasks import WordTask

    if (study is None) == (not metric):
        raise UsageError("give a study file, or metrics with -m", hint="Example: capbench words faier-table5")
    left_out.refuse_without_study(study)
    root = given.root()
    waiting: dict[str, str] = {}
    published = None
    if study is not None:
        planned, task = study_of_task(study, WordTask, given.values(), left_out.names, common.caller())
        path = entities if entities is not None else root.path / task.entities
        plan, waiting = resolve_task(planned, root, common.caller(), sample=path.is_file())
        requests, resources = plan.requests, plan.resources
        published = load_published(planned.published) if planned.published else None
    else:
        task = WordTask()
        path = entities if entities is not None else root.path / task.entities
        resolved = resolve(metric or [], given.values(), common.caller())
        requests, resources = resolved.requests, resolved.resources
    task = replace(task, images=task.images if images is None else images, seed=task.seed if seed is None else seed)
    results: list[WordScores] = []
    if not path.is_file():
        reason = f"waits for COCO Entities' annotations: {path} is not there (or give --entities FILE)"
        if study is None or entities is not None:
            raise MissingFileError("there is no such file of COCO Entities", path=path, hint="Give --entities FILE")
        waiting |= {row.title: reason for request in requests for row in request.rows}
        # The sample's features, which are made on first use, are no reason.
        waiting = (
            dict.fromkeys(waiting, reason) if root.is_sample else waiting | ({} if requests else {"The table": reason})
        )
    elif requests:
        annotated = read_entities(path)
        for request in requests:
            with common.progress(f"{request.label}, {task.images:,} images", task.images) as step:
                results.append(
                    region_words(annotated, request, task, resources=resources, cache=given.cache, progress=step)
                )
    if json_output:
        common.print_json([result.to_dict() for result in results])
    else:
        _print(results, published)
    for title, reason in waiting.items():
        common.note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(1)


def _print(results: list[WordScores], published: PublishedTable | None) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("metric", "references"):
        table.add_column(head)
    heads = ("reference,\nown words", "reference,\nother words", "candidate,\nown words", "candidate,\nother words")
    for head in heads:
        table.add_column(head, justify="right")
    for result in results:
        for mean in result.means:
            values = (mean.reference_own, mean.reference_other, mean.candidate_own, mean.candidate_other)
            table.add_row(result.title, str(mean.references), *(f"{value:.3f}" for value in values))
    if published is not None:
        for row in published.rows:
            printed = (published.cell(column.key, row.key) for column in published.columns)
            cells = ("" if value is None else value.printed for value in printed)
            table.add_row("(paper)", row.printed, *cells, style="dim")
    console = common.out()
    console.print(table)
    lines = [note for result in results for note in result.notes]
    if published is not None:
        lines += [f"published: {published.source}", *published.notes]
    for line in (*lines, *(result.signature for result in results)):
        console.print(line, style="dim", markup=False, soft_wrap=True)
