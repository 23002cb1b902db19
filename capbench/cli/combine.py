"""``capbench combine``: what do several metrics say together, learnt honestly?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.given import Given, Opened, Target, open_judged
from capbench.cli.groups import with_groups
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.base import Dataset
    from capbench.datasets.protocol import Protocol

__all__ = ["combine"]

_LEARNERS = ("auto", "ridge", "logistic", "monotone")
_CORRECTIONS = ("holm", "bh", "none")


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
        str,
        typer.Option(
            "--learner",
            help=f"One of {', '.join(_LEARNERS)}; auto is ridge where people gave ratings, logistic where they chose.",
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
        str, typer.Option("--correction", help=f"For the number of pairs: {', '.join(_CORRECTIONS)}.")
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
    from capbench.analyses.combining import combine_metrics
    from capbench.files import check_writable
    from capbench.metrics.combination import saved_name, write_combination
    from capbench.reports.combining import print_combined
    from capbench.score_files.writing import check_ending, write_scores
    from capbench.studies.combine_settings import CombineSettings
    from capbench.studies.settings import TestSettings

    common.check_choice("--learner", learner, _LEARNERS)
    common.check_choice("--correction", correction, _CORRECTIONS)
    if not metric and not given.scores:
        raise UsageError("nothing is to be combined", hint="Name metrics with -m, such as -m cider -m meteor")
    for path in filter(None, (save, out)):
        check_writable(path)
    if out is not None:
        check_ending(out)
    judged = open_judged(metric or [], target, given, json_output=json_output)
    if save is not None:
        for request in judged.requests:
            saved_name(request)
    tests = [_open(text, judged, given) for text in test or ()]
    combined = combine_metrics(
        judged.dataset,
        judged.protocol,
        judged.requests,
        CombineSettings(learner, folds, inner_folds, seed),
        tests=tests,
        lower=lower or (),
        compare=TestSettings(correction=correction, resamples=resamples, seed=seed),  # type: ignore[arg-type]
        resources=judged.resources,
        cache=given.cache,
        progress=common.progress,
    )
    if json_output:
        common.print_json(combined.as_json())
    else:
        statistics = [protocol.statistic for _, protocol in tests]
        print_combined(combined, judged.protocol.statistic, statistics, common.out())
    if out is not None:
        if len(combined.tables) > 1:
            common.note(f"{out}: the scores of the first of {len(combined.tables)} draws of references")
        write_scores(combined.tables[0], out)
        common.note(f"wrote {out}")
    if save is not None and combined.file is not None:
        write_combination(combined.file, save)
        common.note(f"wrote {save}: the metric combination:{save}")


def _open(text: str, judged: Opened, given: Given) -> tuple[Dataset, Protocol]:
    """A data set that the combination is tried on.

    Raises:
        UsageError, ProtocolError: there is no such data set or protocol, or it is the one that is learnt from.
    """
    from capbench.datasets.opening import open_dataset, split_protocol

    name, rest = split_protocol(text)
    dataset = open_dataset(name, given.root())
    if dataset.name == judged.dataset.name:
        raise UsageError(
            f"--test {text}: it is learnt from {dataset.name} already",
            hint="Leave it out: its own numbers are by cross-validation",
        )
    return dataset, dataset.protocol(rest)
