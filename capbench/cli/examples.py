"""``capbench explore examples``: captions on which a metric and human ratings differ most and least."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from annotated_types import Ge

from capbench.cli import common
from capbench.cli.options import LeftOut, ScoringInputs, Target
from capbench.core.arguments import Help
from capbench.core.errors import check_choice


def examples(
    *,
    study: common.StudyArgument = None,
    metric: Annotated[str | None, Help("One metric column. Default: cider.", ("--metric", "-m"), "NAME")] = None,
    target: Target,
    number: Annotated[int, Ge(1), Help("Examples of each kind.", ("--number", "-n"))] = 2,
    out: Annotated[Path | None, common.output("Also write a .md or .json file; for a study, .json.")] = None,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Show captions that a metric rates unlike or like humans.

    Scores are mapped onto the human scale by rank; several ratings of one caption are replaced by their median (TIGEr,
    Table 3). Captions with the largest difference come first; equal differences are in random order (seed 0).

    With a study file that has 'image', show the captions of one image under all its metrics (FAIEr, Figure 5).

    Example: capbench explore examples -d flickr8k-expert -m meteor --number 3 --out examples.md
    """
    from capbench.api.agreement import plan_judged
    from capbench.api.checking import refuse_with_study, refuse_without
    from capbench.core.files import json_text, write_text
    from capbench.reports.examples import examples_lines
    from capbench.reports.markup import markdown_text
    from capbench.studies.examples import choose_examples, rated_scores

    if out is not None:
        endings = (".md", ".json") if study is None else (".json",)
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
    rated = rated_scores(plan, medians=True, cache=inputs.cache, progress=common.progress)
    for line in rated.notes:
        common.note(line)
    found = choose_examples(rated, number)
    common.answer(json_output, found, examples_lines(found))
    if out is not None:
        is_json = out.suffix.lower() == ".json"
        write_text(out, (json_text(found) if is_json else "\n".join(examples_lines(found, markdown_text))) + "\n")
        common.wrote(out)
    common.leave_if_incomplete(rated.scored.incomplete)
