"""``capbench explore examples``: captions on which a metric and human ratings differ most and least."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.options import ScoringInputs, Target, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.studies.examples import Examples

_ENDINGS = (".md", ".html", ".json")


@with_groups
def examples(
    *,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY.yaml]", help="Study file with 'image', or the name of a shipped one."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", "-m", metavar="NAME", help="One metric column. Default: cider.")
    ] = None,
    target: Target,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Examples of each kind.")] = 2,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the selection.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Also write a .md, .html or .json file; for a study, .json."),
    ] = None,
    left_out: LeftOut,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Show captions that a metric rates unlike or like humans.

    Scores are mapped onto the human scale by rank; several ratings of one caption are replaced by their median (TIGEr,
    Table 3). Captions with the largest difference come first; the seed breaks ties.

    With a study file that has 'image', show the captions of one image under all its metrics (FAIEr, Figure 5).

    Example: capbench explore examples faier-figure5

    Example: capbench explore examples -d flickr8k-expert -m meteor --number 3 --out examples.html
    """
    from capbench.api.resolve import resolve_judged
    from capbench.core.files import write_text
    from capbench.studies.examples import choose_examples, rated_scores

    endings = _ENDINGS if study is None else (".json",)
    if out is not None and out.suffix.lower() not in endings:
        raise UsageError(
            f"--out {out.name} has an unknown extension",
            code="wrong-value",
            value=out.suffix,
            hint=f"Use {', '.join(endings)}",
        )
    left_out.refuse_without_study(study)
    if study is not None:
        if metric or target != Target():
            raise UsageError(
                "a study file excludes --metric, --dataset and --protocol",
                code="conflict",
                value=study,
                hint="Change the study file, or omit it",
            )
        from capbench.cli.explain import run_study

        run_study(study, inputs, left_out, out, json_output=json_output)
        return
    metrics = [metric] if metric else [] if inputs.scores else ["cider"]
    caller = common.caller(json_output=json_output)
    judged = resolve_judged(metrics, target.dataset, target.protocol, inputs.values(), caller)
    rated = rated_scores(
        judged.dataset,
        judged.protocol,
        judged.requests,
        aggregation="median" if judged.protocol.statistic.aggregation == "unaggregated" else None,
        resources=judged.resources,
        cache=judged.cache,
        sample=judged.sample,
        progress=common.progress,
    )
    for line in rated.notes:
        common.note(line)
    examples = choose_examples(rated, number=number, seed=seed)
    if json_output:
        common.print_json(examples.model_dump(mode="json"))
    else:
        _print(examples)
    if out is not None:
        write_text(out, _text(examples, out.suffix.lower()))
        common.note(f"wrote {out}")
    common.leave_if_incomplete(rated.incomplete)


def _text(examples: Examples, ending: str) -> str:
    import json

    from capbench.reports.compare import examples_html, examples_markdown

    if ending == ".md":
        return examples_markdown(examples)
    if ending == ".html":
        return examples_html(examples)
    return json.dumps(examples.model_dump(mode="json"), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _print(examples: Examples) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from capbench.reports.compare import KIND_TITLES, origin

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True)
    for head, justify in (("image", "left"), ("references", "left"), ("candidate", "left"), ("humans", "right")):
        table.add_column(head, justify=justify, overflow="fold")  # type: ignore[arg-type]
    table.add_column(examples.metric, justify="right", no_wrap=True)
    kind = ""
    for example in examples.examples:
        if example.kind != kind:
            kind = example.kind
            title = KIND_TITLES[kind].format(metric=examples.metric)
            table.add_row(Text(f"{title}: {examples.counts[kind]:,} of {examples.n:,}", style="bold"))
        table.add_row(
            Text(example.image),
            Text("\n".join(example.references)),
            Text(example.candidate),
            f"{example.human:g}",
            f"{example.group:g} ({example.score:.3f})",
        )
    console = common.out()
    console.print(table)
    for line in (origin(examples), examples.signature):
        console.print(line, style="dim", markup=False, soft_wrap=True)
