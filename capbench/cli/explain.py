"""``capbench explore explain``: the parts of a metric's score for captions of one image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capbench.cli import common
from capbench.cli.options import Inputs, ScoringInputs
from capbench.core.arguments import Help
from capbench.core.errors import require

if TYPE_CHECKING:
    from capbench.cli.options import LeftOut
    from capbench.studies.explained import ImageScores
    from capbench.studies.published.tables import PublishedTable


def explain(
    *,
    study: common.StudyArgument = None,
    image: Annotated[str | None, Help("Image id, or an image file.", ("--image", "-i"), "ID")] = None,
    metric: Annotated[
        str | None, Help("tiger (default), reo, faier, vilbertscore or another.", ("--metric", "-m"), "NAME")
    ] = None,
    caption: Annotated[
        list[str] | None, Help("Candidate; repeatable. Default: five.", ("--caption", "-c"), "TEXT")
    ] = None,
    reference: Annotated[
        list[str] | None, Help("Reference; repeatable. Default: all.", ("--reference", "-r"), "TEXT")
    ] = None,
    dataset: Annotated[
        str | None, Help("Data set of the image. Default: flickr8k-expert.", ("--dataset", "-d"), "NAME")
    ] = None,
    out: Annotated[Path | None, common.output("Name of the page and pictures. Default: IMAGE.METRIC.", "NAME")] = None,
    inputs: Inputs,
    json_output: common.JsonOption = False,
) -> None:
    """Explain a metric's scores for captions of one image.

    Prints the scores, and writes an HTML page and a picture of each candidate (PNG, SVG or PDF). With a study file,
    image, captions and metric come from the file. See docs/explain.md.

    Example: capbench explore explain --image f8k_003 --features features/sample.h5 --model sample

    Example: capbench explore explain -m reo -i dog.jpg -c "a dog" -r "a dog jumps" --features dogs.h5 --model FILE
    """
    require("matplotlib", purpose="an explanation's page")
    from capbench.api.explaining import explain as compute
    from capbench.reports.explain import summary_table

    values: Any = inputs.values()
    explained = compute(
        image,
        metric,
        caption or [],
        reference or [],
        study=study,
        dataset=dataset,
        out="" if out is None else str(out),
        progress=common.caller(json_output=json_output),
        **values,
    )
    explanation, files = explained.explanation, list(map(str, explained.files))
    regions = explanation.regions
    result = {
        "metric": explained.metric,
        "picture": None if explained.picture is None else str(explained.picture),
        "files": files,
        "regions": [] if regions is None else list(regions.names),
        "image": explained.image,
        "candidates": [candidate.to_dict() for candidate in explanation.candidates],
        "signature": explanation.signature,
        "notes": list(explanation.notes),
    }
    title = [explained.title] if explained.title else []
    common.answer(json_output, result, [*title, summary_table(explanation), explanation.signature, ", ".join(files)])


def run_study(study: str, inputs: ScoringInputs, left_out: LeftOut, out: Path | None, *, json_output: bool) -> None:
    """Score the captions of a study's image with all its metrics: ``capbench explore examples STUDY``."""
    from dataclasses import asdict, replace

    from capbench.api.tasks import plan_task
    from capbench.core.files import write_json
    from capbench.studies.explained import score_image
    from capbench.studies.published.tables import load_published
    from capbench.studies.study import ImageTask

    root = inputs.root()
    plan, task, waiting = plan_task(study, ImageTask, inputs.values(), left_out.names, common.caller())
    scored = score_image(task, plan.requests, root, resources=plan.resources, cache=inputs.cache)
    scored = replace(scored, title=plan.study.title)
    waiting |= scored.missing
    if scored.under_root:
        common.announce_root(root, json_output=json_output)
    published = load_published(plan.study.published) if plan.study.published else None
    common.answer(json_output, asdict(scored), lambda: _print(scored, published, waiting))
    if out is not None:
        write_json(out, asdict(scored))
        common.wrote(out)
    common.leave_if_waiting(waiting)


def _print(scored: ImageScores, published: PublishedTable | None, waiting: dict[str, str]) -> None:
    from capbench.core.explanations import letter
    from capbench.reports.table import PUBLISHED, Cell, Column, Row, Table
    from capbench.reports.terminal import print_lines, print_table

    console, letters = common.out(), [letter(place) for place in range(len(scored.candidates))]
    print_lines(console, [f"{scored.title}, image {scored.image}"], style="bold")
    print_lines(console, [f"  reference: {text}" for text in scored.references])
    print_lines(console, [f"  {name}: {text}" for name, text in zip(letters, scored.candidates, strict=True)])
    rows = [Row(title, tuple(Cell(_score(value)) for value in values)) for title, values in scored.scores.items()]
    rows += [Row(title, (Cell("missing"), *[Cell()] * (len(letters) - 1))) for title in waiting]
    notes: list[str] = []
    if published is not None:
        for row in published.rows:
            cells = (published.values.get((column.key, row.key)) for column in published.columns)
            texts = tuple(Cell("" if cell is None else cell.printed) for cell in cells)
            rows.append(Row(f"{row.title} (paper)", texts, PUBLISHED))
        notes = [f"published: {published.source}", *published.notes]
    print_table(Table("", tuple(map(Column, letters)), tuple(rows), legend=(*notes, *scored.signatures)), console)


def _score(value: float) -> str:
    """A score with four decimals; one below .001 with four significant digits (``3.907e-9``)."""
    if value == 0 or abs(value) >= 0.001:
        return f"{value:.4f}"
    digits, exponent = f"{value:.3e}".split("e")
    return f"{digits}e{int(exponent)}"
