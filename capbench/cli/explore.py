"""``capbench explore``: explain scores, and show captions, retrieval and words of regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from capbench.cli import common
from capbench.cli.commands import Entry, LazyGroup, group
from capbench.cli.options import Cached, argument

_LISTED = "Commands"
EXPLORED = {
    "explain": Entry("explain", "explain", "Explain a metric's scores for captions of one image.", _LISTED),
    "examples": Entry("examples", "examples", "Show captions that a metric rates unlike or like humans.", _LISTED),
    "retrieve": Entry("retrieve", "retrieve", "Measure image and caption retrieval with a metric.", _LISTED),
    "words": Entry("explore", "words", "Compare scores of matching and other words of regions.", _LISTED),
}


class _Explore(LazyGroup):
    entries: ClassVar[Mapping[str, Entry]] = EXPLORED


app = group(
    "Explain scores, and show captions and words.",
    "capbench explore examples --metric cider --dataset composite",
    _Explore,
)


def words(
    *,
    study: Annotated[str, argument("STUDY.yaml", "Study file with 'words', or a shipped one.")],
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Compare scores of matching and other words of regions.

    Prints mean scores with references before their fusion, and with the candidate after it, for 1 to 4 references
    (FAIEr, Table 5; words of COCO Entities). Exit code 1: requirements of the metric are missing (listed).

    Example: capbench explore words faier-table5 --features coco.h5 --model faier-r-ref=faier.safetensors
    """
    from capbench.api.tasks import plan_task
    from capbench.core.files import read_json
    from capbench.core.typed_json import validated
    from capbench.metrics.scoring import complete
    from capbench.studies.region_words import MEANS, Entities, region_words
    from capbench.studies.study import WordTask

    plan, task, waiting = plan_task(study, WordTask, inputs.values(), caller=common.caller())
    path = inputs.root().path / task.entities
    entities = validated(Entities, read_json(path), path, code="wrong-format", hint="Download the file again").root
    results = []
    for request in plan.requests:
        with common.progress(f"{request.label}, {task.images:,} images", task.images) as step:
            metric = request.make(complete(plan.resources))
            results.append({"title": request.rows[0].title, **region_words(entities, metric, task, step)})
    lines = []
    for result in results:
        for mean in result["means"]:
            values = ", ".join(f"{name.replace('_', ' ')} {mean[name]:.3f}" for name in MEANS)
            lines.append(f"{result['title']}, references {mean['references']}: {values}")
        lines += [*result["notes"], result["signature"]]
    common.answer(json_output, results, lines)
    common.leave_if_waiting(waiting)
