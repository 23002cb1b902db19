"""``capbench explore examples``: captions on which a metric and human ratings differ most and least."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from capbench.cli import common
from capbench.cli.options import LeftOut, ScoringInputs, Target
from capbench.core.arguments import Help, Seed
from capbench.core.errors import check_choice

if TYPE_CHECKING:
    from capbench.datasets.protocol import Aggregation


def examples(
    *,
    study: common.StudyArgument = None,
    metric: Annotated[str | None, Help("One metric column. Default: cider.", ("--metric", "-m"), "NAME")] = None,
    target: Target,
    number: Annotated[int, Ge(1), Help("Examples of each kind.", ("--number", "-n"))] = 2,
    seed: Annotated[Seed, Help("Seed of the selection.")] = 0,
    out: Annotated[Path | None, common.output("Also write a .md, .html or .json file; for a study, .json.")] = None,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Show captions that a metric rates unlike or like humans.

    Scores are mapped onto the human scale by rank; several ratings of one caption are replaced by their median (TIGEr,
    Table 3). Captions with the largest difference come first; the seed breaks ties.

    With a study file that has 'image', show the captions of one image under all its metrics (FAIEr, Figure 5).

    Example: capbench explore examples -d flickr8k-expert -m meteor --number 3 --out examples.html
    """
    from capbench.api.agreement import plan_judged
    from capbench.api.checking import refuse_with_study, refuse_without
    from capbench.core.files import json_text, write_text
    from capbench.reports.examples import examples_document, examples_lines, examples_page, examples_table
    from capbench.reports.markup import markdown
    from capbench.studies.examples import choose_examples, rated_scores
    from capbench.studies.scoring import load_scorable

    endings = (".md", ".html", ".json") if study is None else (".json",)
    if out is not None:
        check_choice("ending of --out", out.suffix.lower(), endings, code="wrong-value")
    caller = common.caller(json_output=json_output)
    if study is not None:
        from capbench.cli.explain import run_study

        refuse_with_study({"metrics": metric, **target.changed()}, caller)
        run_study(study, inputs, left_out, out, json_output=json_output)
        return
    refuse_without(left_out.names, caller)
    metrics = [metric] if metric else [] if inputs.scores else ["cider"]
    plan = plan_judged(target.dataset, metrics, target.protocol, inputs.values(), caller)
    ((opened, chosen),) = plan.protocols
    aggregation: Aggregation | None = "median" if chosen.statistic.aggregation == "unaggregated" else None
    loaded = load_scorable(opened, chosen.items, plan.requests, plan.resources, cache=inputs.cache)
    rated = rated_scores(loaded, chosen, aggregation, sample=plan.on_sample, progress=common.progress)
    for line in rated.notes:
        common.note(line)
    examples = choose_examples(rated, number=number, seed=seed)
    common.answer(json_output, examples, [*examples_lines(examples), "", *examples_table(examples).notes])
    if out is not None:
        made = {".md": lambda: markdown(examples_document(examples)), ".html": lambda: examples_page(examples)}
        made[".json"] = lambda: json_text(examples.model_dump(mode="json")) + "\n"
        write_text(out, made[out.suffix.lower()]())
        common.wrote(out)
    common.leave_if_incomplete(rated.incomplete)
