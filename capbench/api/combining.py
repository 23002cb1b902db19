"""``capbench.combine``: learn one score from several metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments
from capbench.api.resolve import (
    Caller,
    DatasetGiven,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    ResolvedJudged,
    ScoresGiven,
    VersionGiven,
    given_inputs,
    python_caller,
    resolve_judged,
)
from capbench.core.errors import UsageError
from capbench.core.files import check_writable
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.studies.combine import Combined, combine_metrics
from capbench.studies.judged import ProgressFactory
from capbench.studies.study import CombineSettings, TestSettings

if TYPE_CHECKING:
    from capbench.datasets.base import Dataset
    from capbench.datasets.protocol import Protocol, StatisticSpec
    from capbench.stats.pairs import Correction

__all__ = ["Combination", "combine", "learn_combination"]


@dataclass(frozen=True)
class Combination:
    """A combination of metrics, evaluated by nested cross-validation.

    Attributes:
        combined: results: the combination and its metrics, weights, contribution of each metric, transfers.
        statistic: statistic of the protocol of the training data.
        saved: the file for ``combination:FILE``; None if it was not saved.
        scores: the file of out-of-fold scores; None if it was not requested.
    """

    combined: Combined
    statistic: StatisticSpec
    saved: Path | None = None
    scores: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return self.combined.as_json()


def combine(
    dataset: DatasetGiven,
    metrics: MetricsGiven = (),
    *,
    protocol: str | None = None,
    learner: str = "auto",
    test: str | Sequence[str] = (),
    lower: str | Sequence[str] = (),
    folds: int = 10,
    inner_folds: int = 5,
    seed: int = 0,
    resamples: int | None = None,
    correction: Correction = "holm",
    save: PathGiven | None = None,
    out: PathGiven | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool | ProgressFactory = False,
) -> Combination:
    """Learn one score from several metrics, as ``capbench train combination`` does.

    Args:
        dataset: the judgements to learn from.
        metrics: the metrics to combine.
        protocol: protocol of the data set; by default its default protocol.
        learner: ``auto``, ``ridge``, ``logistic``, ``monotone`` or ``mean-rank``.
        test: other data sets, or ids of protocols, to test the combination on.
        lower: metrics for which lower scores are better, if they do not declare it.
        folds: number of outer folds of images.
        inner_folds: number of inner folds, which select the penalty.
        seed: seed of folds, resamples and permutations.
        resamples: number of resamples and permutations; by default 1,000 and 10,000.
        correction: correction for the number of pairs, ``holm``, ``bh`` or ``none``.
        save: file to write the combination to, for the metric ``combination:FILE``.
        out: file to write the out-of-fold scores to, .csv, .jsonl or .parquet.
        scores: see :class:`capbench.api.resolve.MetricInputs`, as for ``allow_missing``, ``options``, ``features``,
            ``model``, ``images``, ``data``, ``cache``, ``version`` and ``columns``.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError, StudyError, DataError, MetricError, StatisticError: as :func:`capbench.correlate` raises them.
    """
    check_arguments({**locals(), "test": None}, required=["dataset"])
    return learn_combination(
        dataset,
        metrics,
        protocol,
        given_inputs(locals()),
        python_caller(progress),
        settings=CombineSettings.read(
            "combine", {"learner": learner, "folds": folds, "inner_folds": inner_folds, "seed": seed}
        ),
        compare=TestSettings.read(
            "combine",
            {"correction": correction, "seed": seed} | ({} if resamples is None else {"resamples": resamples}),
        ),
        test=[test] if isinstance(test, str) else test,
        lower=[lower] if isinstance(lower, str) else lower,
        save=None if save is None else Path(save),
        out=None if out is None else Path(out),
    )


def learn_combination(
    dataset: DatasetGiven,
    metrics: MetricsGiven,
    protocol: str | None,
    inputs: MetricInputs,
    caller: Caller,
    *,
    settings: CombineSettings,
    compare: TestSettings,
    test: Sequence[str],
    lower: Sequence[str],
    save: Path | None,
    out: Path | None,
) -> Combination:
    """Learn a combination for Python or the command line; see :func:`combine`."""
    from capbench.metrics.combination import saved_name, write_combination
    from capbench.metrics.scoring import check_ending, write_scores

    for path in filter(None, (save, out)):
        check_writable(path)
    if out is not None:
        check_ending(out)
    judged = resolve_judged(metrics, dataset, protocol, inputs, caller)
    if save is not None:
        for request in judged.requests:
            saved_name(request)
    tests = [_open(text, judged) for text in test]
    combined = combine_metrics(
        judged.dataset,
        judged.protocol,
        judged.requests,
        settings,
        tests=tests,
        lower=lower,
        compare=compare,
        resources=judged.resources,
        cache=judged.cache,
        progress=caller.progress,
    )
    if out is not None:
        write_scores(combined.tables[0], out)
    saved = save if combined.file is not None else None
    if saved is not None and combined.file is not None:
        write_combination(combined.file, saved)
    return Combination(combined, judged.protocol.statistic, saved, out)


def _open(text: str, judged: ResolvedJudged) -> tuple[Dataset, Protocol]:
    """A data set to test the combination on.

    Raises:
        UsageError, ProtocolError: an unknown data set or protocol, or the training data set.
    """
    name, rest = split_protocol(text)
    dataset = open_dataset(name, judged.root)
    if dataset.name == judged.dataset.name:
        raise UsageError(
            f"{judged.caller.spelled('test')} {text}: the combination is learned from {dataset.name}",
            code="conflict",
            value=text,
            hint="Omit it: the results on this data set are already cross-validated",
        )
    return dataset, dataset.protocol(rest)
