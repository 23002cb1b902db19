"""``capbench combine``: what do several metrics say together, learnt honestly?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from capbench.cli import common
from capbench.cli.options import Given, Target, with_groups
from capbench.core.errors import UsageError

__all__ = ["combine"]

_Learner = Literal["auto", "ridge", "logistic", "monotone"]


@with_groups
def combine(
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="Metric or column that is combined, or 'all'; repeatable; columns of --scores may be named, too.",
            show_default=False,
        ),
    ] = None,
    target: Target,
    learner: Annotated[
        _Learner,
        typer.Option(
            "--learner",
            help="auto is ridge for human ratings, logistic for human preferences.",
        ),
    ] = "auto",
    test: Annotated[
        list[str] | None,
        typer.Option(
            "--test",
            metavar="NAME",
            help="Another data set, or the id of a protocol, that the combination is tried on; repeatable.",
            show_default=False,
        ),
    ] = None,
    lower: Annotated[
        list[str] | None,
        typer.Option(
            "--lower",
            metavar="NAME",
            help="Metric or column whose lower scores are better, and that does not say so itself; repeatable.",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Outer folds of images.")] = 10,
    inner_folds: Annotated[
        int, typer.Option("--inner-folds", min=2, help="Inner folds, which choose the penalty.")
    ] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of folds, resamples and permutations.")] = 0,
    resamples: Annotated[int, typer.Option("--resamples", min=100, help="Resamples and permutations.")] = 1000,
    correction: Annotated[
        common.Correction, typer.Option("--correction", help="Correction for the number of pairs.")
    ] = "holm",
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Write the combination as JSON: the metric 'combination:FILE'.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the out-of-fold scores: .csv, .jsonl or .parquet, which --scores reads.",
            show_default=False,
        ),
    ] = None,
    given: Given,
    json_output: common.JsonOption = False,
) -> None:
    """Learn one score from several metrics, and measure it by nested cross-validation over images.

    The score of each caption was learnt on other images alone; inner folds choose the penalty there. So the
    combination is tested against its metrics as any metric is. Weights and what each metric adds have bootstrap
    intervals over images. See docs/combinations.md.

    Example: capbench combine -m cider -m meteor -m rouge-l -d flickr8k-expert

    Example: capbench combine -m cider -m meteor -d composite --test flickr8k-expert --save text.json

    Example: capbench combine -m cider -m meteor -d pascal-50s --learner monotone

    Example: capbench correlate -d flickr8k-expert -m cider -m combination:text.json
    """
    from capbench.api.combining import learn_combination
    from capbench.reports.compare import print_combined
    from capbench.studies.study import CombineSettings, TestSettings

    if not metric and not given.scores:
        raise UsageError("nothing is to be combined", hint="Name metrics with -m, such as -m cider -m meteor")
    made = learn_combination(
        target.dataset,
        metric or [],
        target.protocol,
        given.values(),
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
        print_combined(combined, made.statistic, made.tried, common.out())
    if made.scores is not None:
        if len(combined.tables) > 1:
            common.note(f"{made.scores}: the scores of the first of {len(combined.tables)} draws of references")
        common.note(f"wrote {made.scores}")
    if made.saved is not None:
        common.note(f"wrote {made.saved}: the metric combination:{made.saved}")
    if combined.comparison.incomplete or combined.untried:
        raise typer.Exit(1)
