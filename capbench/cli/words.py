"""``capbench explore words``: compare scores of words that describe a region with those of other words."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import Cached, with_groups
from capbench.cli.study_flags import LeftOut


@with_groups
def words(
    *,
    study: Annotated[
        str, typer.Argument(metavar="STUDY.yaml", help="Study file with 'words', or the name of a shipped one.")
    ],
    left_out: LeftOut,
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Compare scores of matching and other words of regions.

    COCO Entities (Cornia et al., CVPR 2019) annotates the words of each region. Prints mean scores with references
    before their fusion, and with the candidate after it, for 1 to 4 references (FAIEr, Table 5).

    Exit code 1: the annotations or requirements of the metric are missing (listed).

    Example: capbench explore words faier-table5 --features coco.h5 --model faier-r-ref=faier.safetensors
    """
    from rich import box
    from rich.table import Table

    from capbench.api.resolve import resolve_task, study_of_task
    from capbench.metrics.scoring import complete
    from capbench.studies.published import load_published
    from capbench.studies.region_words import MEANS, read_entities, region_words
    from capbench.studies.study import WordTask

    root, caller = inputs.root(), common.caller()
    planned, task = study_of_task(study, WordTask, inputs.values(), left_out.names, caller)
    path = root.path / task.entities
    plan, waiting = resolve_task(planned, root, caller, sample=path.is_file())
    if not path.is_file():
        waiting["The table"] = f"requires COCO Entities annotations: {path} does not exist"
    entities = read_entities(path) if path.is_file() and plan.requests else {}
    results: list[dict[str, Any]] = []
    for request in plan.requests if entities else ():
        with common.progress(f"{request.label}, {task.images:,} images", task.images) as step:
            metric = request.make(complete(plan.resources, cache=inputs.cache))
            results.append({"title": request.rows[0].title, **region_words(entities, metric, task, step)})
    if json_output:
        common.print_json(results)
    else:
        rows = [
            [result["title"], str(mean["references"]), *(f"{mean[name]:.3f}" for name in MEANS)]
            for result in results
            for mean in result["means"]
        ]
        lines = [line for result in results for line in (*result["notes"], result["signature"])]
        if planned.published:
            published = load_published(planned.published)
            for of_paper in published.rows:
                cells = (published.cell(column.key, of_paper.key) for column in published.columns)
                rows.append(["(paper)", of_paper.title, *("" if cell is None else cell.printed for cell in cells)])
            lines += [f"published: {published.source}", *published.notes]
        table = Table("metric", "references", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in MEANS:
            table.add_column(f"{name} words".replace("_", ",\n"), justify="right")
        for row in rows:
            table.add_row(*row)
        common.out().print(table)
        for line in lines:
            common.out().print(line, style="dim", markup=False, soft_wrap=True)
    for title, reason in waiting.items():
        common.note(f"{title} {reason}")
    if waiting:
        raise typer.Exit(1)
