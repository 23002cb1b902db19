"""Combinations of metrics that are learned from a protocol's judgements, as additional columns of scores.

The score of a caption comes from a model fitted on judgements of other images, so tables, intervals and tests treat a
combination like any other metric. :func:`combine_metrics` also measures its weights, and what each metric adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from capbench import __version__
from capbench.core.errors import ProtocolError, UsageError, check_choice
from capbench.core.records import FloatArray, IntArray, Judgements, ScoreColumn, ScoreTable
from capbench.core.typed_json import Strict, Tidy
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Protocol, with_version
from capbench.metrics.combination import CombinationFile, SavedInput, image_digest, saved_name
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.metrics.needs import Resources
from capbench.stats.combination import Examples, Fit, Learner
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.nested_cross_validation import (
    Settings,
    check_judgements,
    learn,
    nested_scores,
    weight_intervals,
)
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.significance import RESAMPLES
from capbench.studies.data_points import agreement, photograph_codes
from capbench.studies.evaluate import check_human_side
from capbench.studies.numbers import protocol_numbers, study_result
from capbench.studies.results import StudyResult
from capbench.studies.run import missing_rows
from capbench.studies.scoring import ProgressFactory, Scored, load_scorable, no_progress, refuse_means
from capbench.studies.study import BootstrapSettings, Study, TestSettings

METRIC = "combination"  # metric name of a combination's row


@dataclass(frozen=True)
class Input:
    """An input column of a combination."""

    row: Row
    lower_is_better: bool = False  # its sign is reversed


@dataclass(frozen=True, eq=False)
class Learned:
    """Out-of-fold scores of a combination on a protocol's items, with the fit behind them."""

    values: FloatArray  # (draws, items)
    examples: Examples  # the judgements with the inputs' scores, of all draws
    penalties: tuple[float, ...]  # chosen without each fold
    signature: str  # everything that can change the scores


def inputs_of(rows: Sequence[Row], requests: Sequence[MetricRequest], lower: Sequence[str] = ()) -> tuple[Input, ...]:
    """Rows as inputs, with reversed signs where their metric, or ``lower`` (rows, labels, metrics), says so."""
    declared = {ScoreColumn(request.label, column) for request in requests for column in request.metric.lower_is_better}
    return tuple(
        Input(row, row.key in declared or any(name in (row.name, row.key.label, row.metric) for name in lower))
        for row in rows
    )


def learner_for(protocol: Protocol, learner: str) -> Learner:
    """The learner that ``learner`` selects for a protocol."""
    side = protocol.statistic.side
    fits = "ridge" if side == "ratings" else "logistic"
    if learner not in ("auto", fits, "monotone", "mean-rank"):
        what, other = ("ratings", "pairs") if side == "ratings" else ("pairs", "ratings")
        message = f"{learner} learns from {other}, and {protocol} has {what}"
        raise ProtocolError(message, code="conflict", value=learner, hint=f"Choose {fits}, monotone or mean-rank")
    return cast("Learner", fits if learner == "auto" else learner)


def examples_of(protocol: Protocol, judgements: Judgements, scores: FloatArray, unit: IntArray) -> Examples:
    """A protocol's judgements with (draws, items, k) scores as examples; ``unit`` (items,) numbers the images."""
    check_human_side(protocol, judgements)
    spec, draws = protocol.statistic, len(scores)
    if spec.side == "ratings":
        ratings = judgements.ratings[spec.human]
        item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
        return Examples(np.concatenate(scores[:, item]), None, np.tile(human, draws), np.tile(unit[item], draws))
    pairs = judgements.preferences[spec.human]
    return Examples.of_pairs(
        np.concatenate(scores[:, pairs.first]),
        np.concatenate(scores[:, pairs.second]),
        np.tile(pairs.preferred, draws),
        np.tile(unit[pairs.first], draws),
    )


def learn_out_of_fold(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    inputs: Sequence[Input],
    how: Settings,
    progress: Callable[[int], None] = lambda _: None,
) -> Learned:
    """Learn a combination from a protocol's judgements, and score all items out of fold."""
    # (draws, items, k), signed so that higher is better.
    columns = [np.stack([table.values[entry.row.key] for table in tables]) for entry in inputs]
    signs = [-1.0 if entry.lower_is_better else 1.0 for entry in inputs]
    scores = np.stack([sign * column for sign, column in zip(signs, columns, strict=True)], axis=2)
    unit, _ = photograph_codes(draws[0].items)
    examples = examples_of(protocol, draws[0], scores, unit)
    captions, units = np.concatenate(scores), np.tile(unit, len(scores))
    values, penalties = nested_scores(examples, captions, units, how, [entry.row.title for entry in inputs], progress)
    # Of the protocol, the scores depend on the items and the human side, not on the statistic.
    spec = protocol.statistic
    items = with_version(f"{protocol.dataset}/{protocol.items.name}", protocol.version)
    # A minus marks a reversed sign.
    lines = [tables[0].signatures[entry.row.key.label].replace("|", ",") for entry in inputs]
    names = [f"{'-' if entry.lower_is_better else ''}{entry.row.name}" for entry in inputs]
    signed = [f"{name}[{line}]" for name, line in zip(names, lines, strict=True)]
    folds = [f"out-of-fold:{how.folds}x{how.inner_folds}-by-photograph", f"seed:{how.seed}"]
    parts = [
        METRIC,
        f"capbench:{__version__}",
        f"learner:{how.learner}",
        *([] if how.learner == "mean-rank" else folds),
        f"learnt:{items},{spec.human}{f',{spec.aggregation}' if spec.side == 'ratings' else ''}",
        f"of:{'+'.join(signed)}",
    ]
    return Learned(values.reshape(len(scores), -1), examples, penalties, "|".join(parts))


_ROW = Row(ScoreColumn(METRIC, METRIC), METRIC, METRIC, METRIC)


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


class CombinationResult(Tidy):
    """A combination of metrics, evaluated by nested cross-validation."""

    comparison: StudyResult  # the combination, out of fold, and the metrics
    title: str
    settings: Settings
    images: int  # photographs with judgements
    on_pairs: bool  # the judgements are choices between two captions, not ratings
    penalty: float  # of the combination learned from all judgements
    fold_penalties: tuple[float, ...]  # chosen without each fold
    parts: tuple[InputPart, ...]
    combination: CombinationFile | None  # learned from all judgements; None if one of its metrics cannot be saved

    def rows(self) -> list[dict[str, Any]]:
        """One row for each metric: its weight and what it adds."""
        return [part.model_dump() for part in self.parts]


def combine_metrics(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    settings: Settings | None = None,
    *,
    lower: Sequence[str] = (),
    compare: TestSettings | None = None,
    resources: Resources | None = None,
    cache: bool = True,
    progress: ProgressFactory = no_progress,
) -> tuple[CombinationResult, tuple[ScoreTable, ...]]:
    """Learn a combination, and measure its agreement with human judgements; with its scores, a table for each draw."""
    settings, compare = settings or Settings(), compare or TestSettings()
    bootstrap = BootstrapSettings(compare.resamples or RESAMPLES, compare.unit, compare.seed)
    rows = [row for request in requests for row in request.rows]
    names = {name for row in rows for name in (row.name, row.key.label, row.metric)}
    if METRIC in names:
        message = f"a metric has the label '{METRIC}', which is the combination's"
        raise UsageError(message, code="duplicate", value=METRIC, hint="Choose another label")
    for name in lower:
        check_choice("metric of the combination", name, names)
    inputs = inputs_of(rows, requests, lower)
    refuse_means(protocol)
    how = replace(settings, learner=learner_for(protocol, settings.learner))
    scorable = load_scorable(dataset, protocol.items, requests, resources, cache=cache).require_all()
    # Judgements, the same in all draws, from which no combination can be learned, are rejected before scoring.
    judgements = scorable.draws[0]
    unit, _ = photograph_codes(judgements.items)
    check_judgements(examples_of(protocol, judgements, np.zeros((1, len(unit), 1)), unit), how)
    scored = scorable.score(progress)
    # Columns of incomplete score files are left out of the combination, and named.
    complete = scored.complete(rows)
    inputs = tuple(entry for entry in inputs if entry.row in complete)

    def learned_from(inputs: Sequence[Input], what: str) -> Learned:
        with progress(what, how.folds) as step:
            return learn_out_of_fold(protocol, scored.draws, scored.tables, inputs, how, step)

    learned = learned_from(inputs, f"learning from {dataset.name}")
    fit, penalty = learn(learned.examples, how, [entry.row.title for entry in inputs], stream=0)
    study = Study(METRIC, f"{_ROW.title} and its metrics", bootstrap=bootstrap, compare=compare, human_ceiling=False)
    # The combination shares the inputs' training records.
    of_inputs = [record for entry in inputs for record in scored.tables[0].trained_on.get(entry.row.key.label, ())]
    trained_on = {METRIC: tuple(dict.fromkeys(of_inputs))} if of_inputs else {}
    tables = tuple(
        replace(
            table,
            values={**table.values, _ROW.key: values},
            signatures={**table.signatures, METRIC: learned.signature},
            trained_on={**table.trained_on, **trained_on},
        )
        for table, values in zip(scored.tables, learned.values, strict=True)
    )
    shown, key = [*(entry.row for entry in inputs), _ROW], f"{dataset.name}/{protocol.items.name}"
    scored_all = replace(scored, tables=tables)
    with progress(f"intervals and tests on {dataset.name}", None):
        numbers = protocol_numbers(study, protocol, scored_all, shown, no_progress, test_groups=False)
    comparison = study_result(
        study,
        [numbers],
        {row.name: row.title for row in shown},
        sample=False,
        signatures={key: scored_all.signatures},
        missing=tuple(
            entry
            for unmet in scored.unscored
            for entry in missing_rows(unmet.request, str(unmet.error), protocol=str(protocol))
        ),
        training={key: scored_all.training} if scored_all.training else {},
    )
    with progress("intervals of the weights", bootstrap.resamples) as step:
        weights = weight_intervals(
            learned.examples,
            fit,
            how,
            penalty,
            resamples=bootstrap.resamples,
            seed=compare.seed,
            level=bootstrap.level,
            progress=step,
        )
    values = [learned.values]
    if len(inputs) > 1:
        values += [
            learned_from([other for other in inputs if other is not entry], f"without {entry.row.title}").values
            for entry in inputs
        ]
    numbered = {str(place): of_one for place, of_one in enumerate(values)}
    data = agreement(protocol, scored.draws[0], numbered, compare.unit)
    drawn = draw_bootstrap(data, resamples=bootstrap.resamples, seed=compare.seed)
    parts = []
    for place, (entry, weight) in enumerate(zip(inputs, weights.tolist(), strict=True), 1):
        numbers_of = dict(zip(("weight", "weight_low", "weight_high"), weight, strict=True))
        if len(inputs) > 1:
            low, high = drawn.difference_interval("0", str(place), bootstrap.level)
            combined, without = drawn.estimates["0"], drawn.estimates[str(place)]
            numbers_of |= {"without": without, "drop": combined - without, "drop_low": low, "drop_high": high}
        parts.append(InputPart(title=entry.row.title, lower_is_better=entry.lower_is_better, **numbers_of))
    result = CombinationResult(
        comparison=comparison,
        title=_ROW.title,
        settings=how,
        images=len(np.unique(learned.examples.unit)),
        on_pairs=learned.examples.target is None,
        penalty=penalty,
        fold_penalties=learned.penalties,
        parts=tuple(parts),
        combination=_file(protocol, requests, inputs, scored, learned, how, fit, penalty),
    )
    return result, tuple(replace(table, values={_ROW.key: table.values[_ROW.key]}) for table in tables)


def _file(
    protocol: Protocol,
    asked: Sequence[MetricRequest],
    inputs: Sequence[Input],
    scored: Scored,
    learned: Learned,
    how: Settings,
    fit: Fit,  # learned from all judgements
    penalty: float,
) -> CombinationFile | None:
    """The combination as a file; None if one of its metrics cannot score other captions."""
    requests = {request.label: request for request in asked}
    try:
        names = {label: saved_name(request) for label, request in requests.items()}
    except UsageError:
        return None
    basis, weights, judgements = fit.basis, fit.weights, scored.draws[0]
    saved = []
    for place, entry in enumerate(inputs):
        label, of_input = entry.row.key.label, basis.owner == place
        saved.append(
            SavedInput(
                name=entry.row.name,
                metric=names[label],
                label=label,
                column=entry.row.key.column,
                options=dict(requests[label].options),
                lower_is_better=entry.lower_is_better,
                signature=scored.tables[0].signatures[label],
                center=float(basis.centers[place]),
                scale=float(basis.scales[place]),
                knots=tuple(basis.knots[place].tolist()),
                means=tuple(basis.means[of_input].tolist()),
                weights=tuple(weights[of_input].tolist()),
                levels=tuple(basis.levels[place].tolist()) if basis.levels else (),
            )
        )
    learned_codes, (unit, _) = set(learned.examples.unit.tolist()), photograph_codes(judgements.items)
    images = (item.image for code, item in zip(unit.tolist(), judgements.items, strict=True) if code in learned_codes)
    return CombinationFile(
        learner=learner_for(protocol, how.learner),
        protocol=protocol.versioned,
        learnt_images=tuple(sorted({image_digest(image) for image in images})),
        examples=len(learned.examples),
        seed=how.seed,
        inner_folds=how.inner_folds,
        penalty=penalty,
        intercept=fit.intercept,
        inputs=tuple(saved),
    )
