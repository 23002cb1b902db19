"""``capbench explore words``: compare scores of words that describe a region with those of other words."""

from __future__ import annotations

from typing import Annotated

import typer

from capbench.cli import common
from capbench.cli.options import Cached, with_groups


@with_groups
def words(
    *,
    study: Annotated[str, typer.Argument(metavar="STUDY.yaml", help="Study file with 'words', or a shipped one.")],
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Compare scores of matching and other words of regions.

    COCO Entities (Cornia et al., CVPR 2019) annotates the words of each region. Prints mean scores with references
    before their fusion, and with the candidate after it, for 1 to 4 references (FAIEr, Table 5).

    Exit code 1: requirements of the metric are missing (listed).

    Example: capbench explore words faier-table5 --features coco.h5 --model faier-r-ref=faier.safetensors
    """
    from capbench.api.resolve import resolve_task, study_of_task
    from capbench.core.files import read_json
    from capbench.core.typed_json import validated
    from capbench.metrics.scoring import complete
    from capbench.studies.region_words import MEANS, Entities, region_words
    from capbench.studies.study import WordTask

    planned, task = study_of_task(study, WordTask, inputs.values(), caller=common.caller())
    path = inputs.root().path / task.entities
    entities = validated(Entities, read_json(path), path, code="wrong-format", hint="Download the file again").root
    plan, waiting = resolve_task(planned, inputs.root(), common.caller())
    results = []
    for request in plan.requests:
        with common.progress(f"{request.label}, {task.images:,} images", task.images) as step:
            metric = request.make(complete(plan.resources, cache=inputs.cache))
            results.append({"title": request.rows[0].title, **region_words(entities, metric, task, step)})
    if json_output:
        common.print_json(results)
    for result in () if json_output else results:
        for mean in result["means"]:
            values = ", ".join(f"{name.replace('_', ' ')} {mean[name]:.3f}" for name in MEANS)
            common.out().print(f"{result['title']}, references {mean['references']}: {values}", soft_wrap=True)
        for line in (*result["notes"], result["signature"]):
            common.out().print(line, style="dim", markup=False, soft_wrap=True)
    common.leave_if_waiting(waiting)
