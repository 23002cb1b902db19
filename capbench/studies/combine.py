"""Combinations of metrics that are learned from a protocol's judgements, as one more column of scores.

The score of a caption comes from a model fitted on judgements of other images, so tables, intervals and tests treat a
combination like any other metric. :func:`combine_metrics` also measures its weights, and what each metric adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from capbench import __version__
from capbench.core.errors import ProtocolError, UsageError
from capbench.core.records import FloatArray, ScoreColumn, ScoreTable
from capbench.core.typed_json import Strict, Tidy
from capbench.datasets.protocol import Protocol, with_version
from capbench.metrics.combination import CombinationFile, SavedInput, image_digest, saved_name
from capbench.metrics.metric_request import Row
from capbench.stats.combination import Examples, Fit, Learner
from capbench.stats.intervals import draw_bootstrap
from capbench.stats.nested_cross_validation import Settings, learn, nested_scores, weight_intervals
from capbench.studies.data_points import agreement, photograph_codes, rated_points
from capbench.studies.plan import Plan
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.scoring import ProgressFactory, Scored, no_progress
from capbench.studies.study import BootstrapSettings
from capbench.studies.uncertainty import common_scores

METRIC = "combination"  # name of a combination's row, label and column
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
    settings: Settings
    images: int  # photographs with judgements
    on_pairs: bool  # the judgements are choices between two captions, not ratings
    penalty: float  # of the combination learned from all judgements
    parts: tuple[InputPart, ...]
    combination: CombinationFile | None  # learned from all judgements; None if one of its metrics cannot be saved

    def rows(self) -> list[dict[str, Any]]:
        """One row for each metric: its weight and what it adds."""
        return [part.model_dump() for part in self.parts]


def learner_for(protocol: Protocol, learner: Learner | Literal["auto"]) -> Learner:
    """The learner of a protocol's judgements: by default ridge for ratings, logistic for preferences."""
    side = protocol.statistic.side
    fits: Learner = "ridge" if side == "ratings" else "logistic"
    if learner not in ("auto", fits, "monotone", "mean-rank"):
        message = f"{learner} does not learn from {side}, which {protocol} has"
        raise ProtocolError(message, code="conflict", value=learner, hint=f"Choose {fits}, monotone or mean-rank")
    return fits if learner == "auto" else learner


class Combiner:
    """Adds a combination to the scores of a study with one protocol: ``run_plan(plan, progress, extend=combiner)``."""

    rows: list[Row]  # the combined metrics: those with scores of all items
    scored: Scored  # with the combination's scores

    def __init__(self, plan: Plan, settings: Settings, progress: ProgressFactory) -> None:
        ((_, self.protocol),) = plan.protocols
        self.plan, self.settings, self.progress = plan, settings, progress
        self.lower = {ScoreColumn(of.label, column) for of in plan.requests for column in of.metric.lower_is_better}

    def __call__(self, scored: Scored) -> Scored:
        """The scores with those of the combination; its training records are those of its metrics."""
        for unscored in scored.unscored:
            if not unscored.of_file:  # without this metric it would be another combination
                raise unscored.error
        self.scored, self.rows = scored, scored.complete(self.plan.rows)
        self.unit, _ = photograph_codes(scored.draws[0].items)
        values = self.out_of_fold(self.rows, f"learning from {scored.dataset.name}")
        signature, tables = self.signature(), []
        for table, of_draw in zip(scored.tables, values, strict=True):
            records = [record for row in self.rows for record in table.trained_on.get(row.key.label, ())]
            trained_on = {METRIC: tuple(dict.fromkeys(records))} if records else {}
            tables.append(
                replace(
                    table,
                    values={**table.values, _ROW.key: of_draw},
                    signatures={**table.signatures, METRIC: signature},
                    trained_on={**table.trained_on, **trained_on},
                )
            )
        self.scored = replace(scored, tables=tuple(tables))
        return self.scored

    def scores(self, rows: Sequence[Row]) -> FloatArray:
        """(draws, items, k) scores of some metrics; higher is better."""
        columns = common_scores(self.scored.tables, rows)
        return np.stack([(-1.0 if row.key in self.lower else 1.0) * columns[row.name] for row in rows], axis=2)

    def examples(self, scores: FloatArray) -> Examples:
        """The protocol's judgements with (draws, items, k) scores, of all draws."""
        spec, judgements, draws = self.protocol.statistic, self.scored.draws[0], len(scores)
        if spec.side == "ratings":
            item, human = rated_points(spec, judgements, "")
            units = np.tile(self.unit[item], draws)
            return Examples(np.concatenate(scores[:, item]), None, np.tile(human, draws), units)
        pairs = judgements.preferences[spec.human]
        first, second = np.concatenate(scores[:, pairs.first]), np.concatenate(scores[:, pairs.second])
        return Examples.of_pairs(first, second, np.tile(pairs.preferred, draws), np.tile(self.unit[pairs.first], draws))

    def out_of_fold(self, rows: Sequence[Row], what: str) -> FloatArray:
        """(draws, items) scores of a combination of some metrics."""
        scores = self.scores(rows)
        captions, units = np.concatenate(scores), np.tile(self.unit, len(scores))
        titles = [row.title for row in rows]
        with self.progress(what, self.settings.folds) as step:
            values, _ = nested_scores(self.examples(scores), captions, units, self.settings, titles, step)
        return values.reshape(len(scores), -1)

    def signature(self) -> str:
        """Everything that can change the scores: items and human side, not the statistic; a minus reverses a sign."""
        spec, how, lines = self.protocol.statistic, self.settings, self.scored.tables[0].signatures
        items = with_version(f"{self.protocol.dataset}/{self.protocol.items.name}", self.protocol.version)
        human = f"{spec.human},{spec.aggregation}" if spec.side == "ratings" else spec.human
        folds = f"|out-of-fold:{how.folds}x{how.inner_folds}-by-photograph|seed:{how.seed}"
        of = "+".join(
            f"{'-' if row.key in self.lower else ''}{row.name}[{lines[row.key.label].replace('|', ',')}]"
            for row in self.rows
        )
        folds = "" if how.learner == "mean-rank" else folds
        return f"{METRIC}|capbench:{__version__}|learner:{how.learner}{folds}|learnt:{items},{human}|of:{of}"


def combine_metrics(
    plan: Plan, settings: Settings, progress: ProgressFactory = no_progress, *, cache: bool = True
) -> tuple[CombinationResult, tuple[ScoreTable, ...]]:
    """Learn a combination of the metrics of a plan with one protocol, and measure its agreement with human judgements.

    Also returns its out-of-fold scores, a table for each draw of references.
    """
    if METRIC in {name for row in plan.rows for name in (row.name, row.key.label, row.metric)}:
        message = f"a metric has the label '{METRIC}', which is the combination's"
        raise UsageError(message, code="duplicate", value=METRIC, hint="Choose another label")
    combiner, bootstrap = Combiner(plan, settings, progress), plan.study.bootstrap or BootstrapSettings()
    study = replace(plan.study, name=METRIC, title=f"{METRIC} and its metrics", human_ceiling=False)
    with_combination = replace(plan, study=study, rows=(*plan.rows, _ROW))
    comparison = run_plan(with_combination, progress, cache=cache, test_groups=False, extend=combiner)
    rows, tables, judgements = combiner.rows, combiner.scored.tables, combiner.scored.draws[0]
    examples = combiner.examples(combiner.scores(rows))
    fit, penalty = learn(examples, settings, [row.title for row in rows], stream=0)
    resampling = {"resamples": bootstrap.resamples, "seed": bootstrap.seed}
    with progress("intervals of the weights", bootstrap.resamples) as step:
        weights = weight_intervals(
            examples, fit, settings, penalty, **resampling, level=bootstrap.level, progress=step
        ).tolist()
    scores = common_scores(tables, [_ROW])
    for row in rows if len(rows) > 1 else ():
        others = [other for other in rows if other is not row]
        scores[row.name] = combiner.out_of_fold(others, f"without {row.title}")
    data = agreement(combiner.protocol, judgements, scores, bootstrap.unit)
    drawn, parts = draw_bootstrap(data, **resampling), []
    for row, (weight, low, high) in zip(rows, weights, strict=True):
        drop: dict[str, float] = {}
        if len(rows) > 1:
            drop = {"without": drawn.estimates[row.name], "drop": drawn.estimates[METRIC] - drawn.estimates[row.name]}
            drop["drop_low"], drop["drop_high"] = drawn.difference_interval(METRIC, row.name, bootstrap.level)
        known: dict[str, Any] = {"title": row.title, "lower_is_better": row.key in combiner.lower, **drop}
        parts.append(InputPart(weight=weight, weight_low=low, weight_high=high, **known))
    result = CombinationResult(
        comparison=comparison,
        settings=settings,
        images=len(np.unique(examples.unit)),
        on_pairs=examples.target is None,
        penalty=penalty,
        parts=tuple(parts),
        combination=_file(combiner, examples, fit, penalty),
    )
    return result, tuple(replace(table, values={_ROW.key: table.values[_ROW.key]}) for table in tables)


def _file(combiner: Combiner, examples: Examples, fit: Fit, penalty: float) -> CombinationFile | None:
    """The combination learned from all judgements; None if one of its metrics cannot score other captions."""
    requests = {request.label: request for request in combiner.plan.requests}
    basis, settings, protocol, scored = fit.basis, combiner.settings, combiner.protocol, combiner.scored
    try:
        names = {label: saved_name(request) for label, request in requests.items()}
    except UsageError:
        return None
    inputs = [
        SavedInput(
            name=row.name,
            metric=names[row.key.label],
            label=row.key.label,
            column=row.key.column,
            options=dict(requests[row.key.label].options),
            lower_is_better=row.key in combiner.lower,
            signature=scored.tables[0].signatures[row.key.label],
            center=basis.centers[place],
            scale=basis.scales[place],
            knots=basis.knots[place].tolist(),
            means=basis.means[basis.owner == place].tolist(),
            weights=fit.weights[basis.owner == place].tolist(),
            levels=basis.levels[place].tolist() if basis.levels else (),
        )
        for place, row in enumerate(combiner.rows)
    ]
    learned = np.isin(combiner.unit, examples.unit).tolist()
    images = (item.image for item, used in zip(scored.draws[0].items, learned, strict=True) if used)
    return CombinationFile(
        learner=settings.learner,
        protocol=protocol.versioned,
        learnt_images=tuple(sorted({image_digest(image) for image in images})),
        examples=len(examples),
        seed=settings.seed,
        inner_folds=settings.inner_folds,
        penalty=penalty,
        intercept=fit.intercept,
        inputs=tuple(inputs),
    )
