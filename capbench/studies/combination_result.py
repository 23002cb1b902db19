"""``capbench train combination``: agreement of a combination, its weights, and its agreement on other data sets.

Scores on the protocol's own items are out of fold, by image. Other data sets are scored with the combination learned
from all judgements, except captions of training images: the fold that excludes the image scores these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from capbench.core.errors import UsageError
from capbench.core.records import ScoreTable, photograph
from capbench.core.typed_json import Strict
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol
from capbench.metrics.combination import CombinationFile, SavedInput, image_digest, saved_name
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources, Scores
from capbench.stats.combination import Fit
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.nested_cross_validation import Settings, learn, weight_intervals
from capbench.stats.significance import RESAMPLES
from capbench.studies.combine import (
    Input,
    Learned,
    image_codes,
    inputs_of,
    learn_out_of_fold,
    matrix_of,
    refuse_unlearnable,
    row_of,
    signed_inputs,
    with_column,
)
from capbench.studies.data_points import agreement
from capbench.studies.judged import ProgressFactory, Scored, judge, no_progress, refuse_means, score_all
from capbench.studies.numbers import protocol_numbers, study_result
from capbench.studies.results import Missing, StudyResult
from capbench.studies.study import METRIC, BootstrapSettings, CombineSettings, Study, TestSettings

_LEVEL = 0.95
_ENDS = ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2)
_ROW = row_of(METRIC)


class InputPart(Strict):
    """One metric's contribution to a combination."""

    title: str
    lower_is_better: bool  # its sign is reversed
    # change of the score per standard deviation of the metric: points of the ratings' scale, or log-odds of being
    # preferred; with a bootstrap interval over images
    weight: float
    weight_low: float
    weight_high: float
    without: float | None = None  # agreement of a combination learned without the metric; None for a single metric
    drop: float | None = None  # agreement of the combination minus ``without``
    drop_low: float | None = None  # its interval, from the same resamples of images for both
    drop_high: float | None = None


class Transfer(Strict):
    """A combination on another data set."""

    comparison: StudyResult  # the combination and the metrics there
    images: int  # image ids
    shared: int  # those of them that show a training photograph, under any id
    shared_photographs: int  # number of these photographs


class CombinationResult(Strict):
    """A combination of metrics, evaluated by nested cross-validation."""

    comparison: StudyResult  # the combination, out of fold, and the metrics
    title: str
    settings: Settings
    images: int  # photographs with judgements
    on_pairs: bool  # the judgements are choices between two captions, not ratings
    penalty: float  # of the combination learned from all judgements
    fold_penalties: tuple[float, ...]  # chosen without each fold
    parts: tuple[InputPart, ...]
    transfers: tuple[Transfer, ...]
    untried: dict[str, str] = Field(
        default_factory=dict
    )  # protocols of --test that files do not cover, with the reason
    combination: CombinationFile | None  # learned from all judgements; None if one of its metrics cannot be saved
    saved: Path | None = Field(default=None, exclude=True)  # the file for combination:FILE
    scores: Path | None = Field(default=None, exclude=True)  # the file of out-of-fold scores

    def rows(self) -> list[dict[str, Any]]:
        """One row for each metric: its weight and what it adds."""
        return [part.model_dump() for part in self.parts]


def combine_metrics(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    settings: CombineSettings | None = None,
    *,
    tests: Sequence[tuple[Dataset, Protocol]] = (),
    lower: Sequence[str] = (),
    compare: TestSettings | None = None,
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> tuple[CombinationResult, tuple[ScoreTable, ...]]:
    """Learn a combination, and measure its agreement with human judgements; with its scores, a table for each draw.

    ``tests`` are other data sets to test it on; ``lower`` names metrics or columns whose lower scores are better.
    Intervals have the number of resamples of the tests (``compare``).
    """
    settings, compare = settings or CombineSettings(), compare or TestSettings()
    for _, other in tests:
        refuse_means(other)
    study = Study(
        name=METRIC,
        title=f"{_ROW.title} and its metrics",
        protocols=(str(protocol),),
        metrics=(),
        bootstrap=BootstrapSettings(
            resamples=compare.resamples or RESAMPLES, unit=compare.unit, seed=compare.seed, level=_LEVEL
        ),
        compare=compare,
        human_ceiling=False,
    )
    inputs = _inputs(requests, lower)
    check = lambda judgements: refuse_unlearnable(protocol, judgements, settings)  # noqa: E731
    scored = score_all(dataset, protocol, requests, resources, cache=cache, progress=progress, check=check)
    # Columns of incomplete score files are left out of the combination, and named.
    complete = scored.complete([entry.row for entry in inputs])
    inputs = tuple(entry for entry in inputs if entry.row in complete)

    def learned_from(inputs: Sequence[Input], what: str) -> Learned:
        with progress(what, settings.folds) as step:
            return learn_out_of_fold(protocol, scored.draws, scored.tables, inputs, settings, step)

    learned = learned_from(inputs, f"learning from {dataset.name}")
    tables = with_column(scored.tables, _ROW.key, learned.values, learned.signature, inputs)
    comparison = _compared(study, protocol, replace(scored, tables=tables), inputs, progress)
    whole, penalty = learn(learned.examples, learned.settings, [entry.row.title for entry in inputs], stream=0)
    drops = {}
    if len(inputs) > 1:
        names = {entry: f"without {entry.row.title}" for entry in inputs}
        rest = {entry: [other for other in inputs if other is not entry] for entry in inputs}
        columns = {_ROW.title: learned.values}
        columns |= {names[entry]: learned_from(rest[entry], names[entry]).values for entry in inputs}
        data = agreement(protocol, scored.draws[0], columns, compare.unit)
        drawn = draw_bootstrap(data, resamples=compare.resamples or RESAMPLES, seed=compare.seed, unit=compare.unit)
        drops = {
            entry: (drawn.estimates[[0, place]], drawn.values[0] - drawn.values[place])
            for place, entry in enumerate(inputs, 1)
        }
    with progress("intervals of the weights", compare.resamples or RESAMPLES) as step:
        weights = weight_intervals(
            learned.examples,
            whole,
            learned.settings,
            penalty,
            resamples=compare.resamples or RESAMPLES,
            seed=compare.seed,
            level=_LEVEL,
            progress=step,
        )
    parts, transfers, untried = [], [], {}
    for entry, weight in zip(inputs, weights, strict=True):
        part = InputPart(
            title=entry.row.title,
            lower_is_better=entry.lower_is_better,
            weight=weight.value,
            weight_low=weight.low,
            weight_high=weight.high,
        )
        if entry in drops:
            (all_of_them, without), differences = drops[entry]
            low, high = np.quantile(differences[~np.isnan(differences)], _ENDS).tolist()
            drop = {"without": float(without), "drop": float(all_of_them - without), "drop_low": low, "drop_high": high}
            part = part.model_copy(update=drop)
        parts.append(part)
    for there, other in tests:
        if reason := _unscored(there, other, requests, inputs, resources, cache=cache):
            untried[str(other)] = reason
            continue
        scored_there = score_all(there, other, requests, resources, cache=cache, progress=progress)
        transfers.append(_transfer(study, other, scored_there, inputs, scored, learned, whole, progress))
    result = CombinationResult(
        comparison=comparison,
        title=_ROW.title,
        settings=learned.settings,
        images=len(np.unique(learned.examples.unit)),
        on_pairs=learned.examples.target is None,
        penalty=penalty,
        fold_penalties=learned.out_of_fold.penalties,
        parts=tuple(parts),
        transfers=tuple(transfers),
        untried=untried,
        combination=_file(protocol, requests, inputs, scored, learned, whole, penalty),
    )
    return result, tuple(
        ScoreTable(
            table.dataset,
            table.items,
            {_ROW.key: table.values[_ROW.key]},
            {_ROW.key: table.corpus[_ROW.key]},
            {METRIC: table.signatures[METRIC]},
        )
        for table in tables
    )


def _inputs(requests: Sequence[MetricRequest], lower: Sequence[str]) -> tuple[Input, ...]:
    rows = [row for request in requests for row in request.rows]
    names = {name for row in rows for name in (row.name, row.key.label, row.metric)}
    if METRIC in names:
        message = f"a metric has the label '{METRIC}', which is the combination's"
        raise UsageError(message, code="duplicate", value=METRIC, hint="Choose another label")
    if unknown := [name for name in lower if name not in names]:
        choices = ", ".join(dict.fromkeys(row.name for row in rows))
        message = f"'{unknown[0]}' is not one of the combined metrics"
        raise UsageError(message, code="unknown-name", value=unknown[0], hint=f"Choices: {choices}")
    return inputs_of(rows, requests, lower)


def _unscored(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    inputs: Sequence[Input],
    resources: Resources | None,
    *,
    cache: bool,
) -> str:
    """The problem of a score file that prevents a test on a data set; ``""`` without one."""
    if not any(request.needs(Scores) for request in requests):
        return ""
    keys = {entry.row.key for entry in inputs}
    lacking = judge(dataset, protocol.items, requests, resources, cache=cache).lacking
    of_files = [less for less in lacking if less.of_file and not keys.isdisjoint(less.request.score_columns)]
    return f"{of_files[0].in_words()}: {of_files[0].error}" if of_files else ""


def _compared(
    study: Study, protocol: Protocol, scored: Scored, inputs: Sequence[Input], progress: ProgressFactory
) -> StudyResult:
    """The combination and the metrics under a protocol, with intervals and tests."""
    rows = [*(entry.row for entry in inputs), _ROW]
    with progress(f"intervals and tests on {scored.dataset.name}", None):
        numbers = protocol_numbers(study, protocol, scored, scored.tables, rows, no_progress, test_groups=False)
    key = f"{scored.dataset.name}/{protocol.items.name}"
    return study_result(
        replace(study, protocols=(str(protocol),)),
        [numbers],
        {row.name: row.title for row in rows},
        sample=False,
        signatures={key: scored.signatures},
        missing=tuple(
            Missing(protocol=str(protocol), column=row.name, title=row.title, reason=str(lacking.error))
            for lacking in scored.lacking
            if lacking.of_file
            for row in lacking.request.rows
        ),
        seconds={},
        training={key: scored.training} if scored.training else {},
    )


def _transfer(
    study: Study,
    protocol: Protocol,
    there: Scored,
    inputs: Sequence[Input],
    scored: Scored,
    learned: Learned,
    whole: Fit,
    progress: ProgressFactory,
) -> Transfer:
    """The combination on another data set; folds without an image score captions of images in both data sets."""
    unit, _ = image_codes(scored.draws[0])
    codes = dict(zip((photograph(item.image) for item in scored.draws[0].items), unit.tolist(), strict=True))
    # -1 is the combination learned from everything; a training image has the fold that excludes it.
    shown = [photograph(item.image) for item in there.draws[0].items]
    fold = np.array([learned.out_of_fold.fold[codes[name]] if name in codes else -1 for name in shown])
    scores = matrix_of(there.tables, inputs)
    values = np.stack([whole.scores(draw) for draw in scores])
    for place, fit in enumerate(learned.out_of_fold.fits):
        if (fold == place).any():
            values[:, fold == place] = np.stack([fit.scores(draw) for draw in scores[:, fold == place]])
    images = {item.image for item in there.draws[0].items}
    shared = sum(photograph(image) in codes for image in images)
    of = signed_inputs(inputs, there.tables[0].signatures)
    signature = f"{learned.signature.partition('|of:')[0]}|shared-images:{shared}|of:{of}"
    tables = with_column(there.tables, _ROW.key, values, signature, inputs)
    return Transfer(
        comparison=_compared(study, protocol, replace(there, tables=tables), inputs, progress),
        images=len(images),
        shared=shared,
        shared_photographs=len(codes.keys() & set(shown)),
    )


def _file(
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    inputs: Sequence[Input],
    scored: Scored,
    learned: Learned,
    whole: Fit,
    penalty: float,
) -> CombinationFile | None:
    """The combination as a file; None if one of its metrics cannot score other captions."""
    try:
        names = {request.label: saved_name(request) for request in requests}
    except UsageError:
        return None
    by_label = {request.label: request for request in requests}
    basis, saved = whole.basis, []
    for place, entry in enumerate(inputs):
        label, of_input = entry.row.key.label, basis.owner == place
        saved.append(
            SavedInput(
                name=entry.row.name,
                metric=names[label],
                label=label,
                column=entry.row.key.column,
                options=dict(by_label[label].options),
                lower_is_better=entry.lower_is_better,
                signature=scored.tables[0].signatures[label],
                center=float(basis.centers[place]),
                scale=float(basis.scales[place]),
                knots=tuple(basis.knots[place].tolist()),
                means=tuple(basis.means[of_input].tolist()),
                weights=tuple(whole.weights[of_input].tolist()),
                levels=tuple(basis.levels[place].tolist()) if basis.levels else (),
            )
        )
    unit, _ = image_codes(scored.draws[0])
    judged = set(np.unique(learned.examples.unit).tolist())
    images = (item.image for code, item in zip(unit.tolist(), scored.draws[0].items, strict=True) if code in judged)
    return CombinationFile(
        learner=learned.settings.learner,
        protocol=protocol.versioned,
        learnt_images=tuple(sorted({image_digest(image) for image in images})),
        examples=len(learned.examples),
        seed=learned.settings.seed,
        inner_folds=learned.settings.inner_folds,
        penalty=penalty,
        intercept=whole.intercept,
        inputs=tuple(saved),
    )
