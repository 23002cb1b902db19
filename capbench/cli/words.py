"""``capbench explore words``: compare scores of words that describe a region with those of other words."""

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


@with_groups
def words(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'words', or the name of a shipped one."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Metric, or LABEL=NAME; repeatable, or a list."),
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option(
            "--entities",
            metavar="FILE",
            help="COCO Entities annotations. Default: coco/coco_entities_release.json in the data folder.",
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", metavar="N", min=1, help="Number of sampled images. Default: 1000.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of the sample. Default: 0.")
    ] = None,
    left_out: LeftOut,
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Compare scores of matching and other words of regions.

    COCO Entities (Cornia et al., CVPR 2019) annotates the words of each region. Prints mean scores with references
    before their fusion, and with the candidate after it, for 1 to 4 references (FAIEr, Table 5).

    Exit code 1: the annotations or requirements of the metric are missing (listed).

    Example: capbench explore words faier-table5 --features coco.h5 --model faier-r-ref=faier.safetensors

    Example: capbench explore words -m faier --entities entities.json --features coco.h5 --model faier.safetensors
    """
    from dataclasses import replace

    from capbench.api.resolve import resolve, resolve_task, study_of_task
    from capbench.datasets.captions import read_entities
    from capbench.studies.explained import region_words
    from capbench.studies.published import load_published
    from capbench.studies.study import WordTask

    if (study is None) == (not metric):
        code = "missing-option" if study is None else "conflict"
        raise UsageError(
            "requires either a study file or metrics", code=code, hint="Example: capbench explore words faier-table5"
        )
    left_out.refuse_without_study(study)
    root = inputs.root()
    waiting: dict[str, str] = {}
    published = None
    if study is not None:
        planned, task = study_of_task(study, WordTask, inputs.values(), left_out.names, common.caller())
        path = entities if entities is not None else root.path / task.entities
        plan, waiting = resolve_task(planned, root, common.caller(), sample=path.is_file())
        requests, resources = plan.requests, plan.resources
        published = load_published(planned.published) if planned.published else None
    else:
        task = WordTask()
        path = entities if entities is not None else root.path / task.entities
        resolved = resolve(metric or [], inputs.values(), common.caller())
        requests, resources = resolved.requests, resolved.resources
    task = replace(task, images=task.images if images is None else images, seed=task.seed if seed is None else seed)
    results: list[WordScores] = []
    if not path.is_file():
        reason = f"requires COCO Entities annotations: {path} does not exist (or pass --entities FILE)"
        if study is None or entities is not None:
            raise MissingFileError("the COCO Entities file does not exist", path=path, hint="Pass --entities FILE")
        waiting |= {row.title: reason for request in requests for row in request.rows}
        # Missing features are not reported for the sample, as they are extracted on first use.
        waiting = (
            dict.fromkeys(waiting, reason) if root.is_sample else waiting | ({} if requests else {"The table": reason})
        )
    elif requests:
        annotated = read_entities(path)
        for request in requests:
            with common.progress(f"{request.label}, {task.images:,} images", task.images) as step:
                results.append(
                    region_words(annotated, request, task, resources=resources, cache=inputs.cache, progress=step)
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
            table.add_row("(paper)", row.title, *cells, style="dim")
    console = common.out()
    console.print(table)
    lines = [note for result in results for note in result.notes]
    if published is not None:
        lines += [f"published: {published.source}", *published.notes]
    for line in (*lines, *(result.signature for result in results)):
        console.print(line, style="dim", markup=False, soft_wrap=True)
