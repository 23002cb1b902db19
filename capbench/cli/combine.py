"""``capbench train combination``: learn a combination of metrics with nested cross-validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from capbench.cli import common
from capbench.cli.options import ScoringInputs, Target, with_groups
from capbench.core.errors import UsageError

_Learner = Literal["auto", "ridge", "logistic", "monotone", "mean-rank"]


@with_groups
def combine(
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="Metric, column, column of --scores, or 'all'; repeatable.",
            show_default=False,
        ),
    ] = None,
    target: Target,
    learner: Annotated[
        _Learner,
        typer.Option(
            "--learner",
            help="auto: ridge for ratings, logistic for preferences; mean-rank uses no judgements.",
        ),
    ] = "auto",
    test: Annotated[
        list[str] | None,
        typer.Option(
            "--test",
            metavar="NAME",
            help="Another data set or protocol to test the combination on; repeatable.",
            show_default=False,
        ),
    ] = None,
    lower: Annotated[
        list[str] | None,
        typer.Option(
            "--lower",
            metavar="NAME",
            help="Metric or column for which lower scores are better; repeatable.",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Outer folds of images.")] = 10,
    inner_folds: Annotated[
        int, typer.Option("--inner-folds", min=2, help="Inner folds, which select the penalty.")
    ] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of folds, resamples and permutations.")] = 0,
    resamples: Annotated[
        int | None,
        typer.Option(
            "--bootstrap",
            metavar="N",
            min=100,
            help="Number of resamples and permutations. Default: 1,000 and 10,000.",
        ),
    ] = None,
    correction: Annotated[
        common.Correction, typer.Option("--correction", help="Correction for the number of pairs.")
    ] = "holm",
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Write the combination as JSON; it is the metric 'combination:FILE'.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the out-of-fold scores (.csv, .jsonl or .parquet) for --scores.",
            show_default=False,
        ),
    ] = None,
    inputs: ScoringInputs,
    json_output: common.JsonOption = False,
) -> None:
    """Learn a combination of metrics and test it.

    Nested cross-validation over images: each caption's score is learned from other images only. The output has weights
    and each metric's contribution with bootstrap intervals, and a test against every metric. See docs/combinations.md.

    Example: capbench train combination -m cider -m meteor -m rouge-l -d flickr8k-expert

    Example: capbench train combination -m cider -m meteor -d composite --test flickr8k-expert --save text.json

    Example: capbench train combination -m cider -m meteor -d pascal-50s --learner monotone

    Example: capbench correlate -d flickr8k-expert -m cider -m combination:text.json
    """
    from capbench.api.combining import learn_combination
    from capbench.reports.compare import print_combined
    from capbench.studies.study import CombineSettings, TestSettings

    if not metric and not inputs.scores:
        raise UsageError(
            "no metric is named", code="missing-option", hint="Name metrics with -m, such as -m cider -m meteor"
        )
    made = learn_combination(
        target.dataset,
        metric or [],
        target.protocol,
        inputs.values(),
        common.caller(json_output=json_output),
        settings=CombineSettings(learner, folds, inner_folds, seed),
        compare=TestSettings(correction=correction, resamples=resamples, seed=seed),
        test=test or (),
        lower=lower or (),
        save=save,
        out=out,
    )
    combined = made.combined
    if json_output:
        common.print_json(made.to_dict())
    else:
        print_combined(combined, made.statistic, common.out())
    if made.scores is not None:
        if len(combined.tables) > 1:
            common.note(f"{made.scores} has the scores of the first of {len(combined.tables)} samples of references")
        common.note(f"wrote {made.scores}")
    if made.saved is not None:
        common.note(f"wrote {made.saved}; use it as the metric combination:{made.saved}")
    if combined.comparison.missing or combined.comparison.undefined or combined.untried:
        raise typer.Exit(1)
