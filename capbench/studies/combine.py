"""Combinations of metrics that are learned from a protocol's judgements, as additional columns of scores.

A combination's scores are out of fold (:mod:`capbench.stats.nested_cross_validation`): the score of a caption comes
from a model fitted on judgements of other images. So tables, intervals and tests treat it like any other metric.
:mod:`capbench.studies.combination_result` measures what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from capbench import __version__
from capbench.core.errors import ProtocolError, StatisticError
from capbench.core.records import FloatArray, IntArray, Judgements, ScoreColumn, ScoreTable, photograph
from capbench.datasets.protocol import Protocol, with_version
from capbench.metrics.metric_request import MetricRequest, Row
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.resampling import unit_codes
from capbench.studies.evaluate import check_human_side
from capbench.studies.study import METRIC, CombineSettings

if TYPE_CHECKING:
    from capbench.stats.combination import Examples, Learner
    from capbench.stats.nested_cross_validation import OutOfFold, Settings


@dataclass(frozen=True)
class Input:
    """An input column of a combination."""

    row: Row
    lower_is_better: bool = False  # its sign is reversed

    @property
    def sign(self) -> float:
        """-1 if the sign is reversed, else 1."""
        return -1.0 if self.lower_is_better else 1.0


@dataclass(frozen=True)
class PlannedCombination:
    """A combination whose names are resolved: its row, its input columns, and how it is learned."""

    row: Row
    inputs: tuple[Input, ...]
    settings: CombineSettings


@dataclass(frozen=True, eq=False)
class Learned:
    """Out-of-fold scores of a combination on a protocol's items, with the fit behind them."""

    values: FloatArray  # (draws, items)
    examples: Examples  # the judgements with the inputs' scores, of all draws
    settings: Settings
    out_of_fold: OutOfFold  # folds, weights and penalties
    signature: str  # everything that can change the scores
    note: str  # the same in words


def row_of(label: str, title: str = "") -> Row:
    """The row of a combination."""
    return Row(ScoreColumn(label, METRIC), METRIC, label, title or label)


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
    if side == "none":
        raise ProtocolError(f"{protocol} has no human judgements to learn from", code="unsupported")
    fits = "ridge" if side == "ratings" else "logistic"
    if learner not in ("auto", fits, "monotone", "mean-rank"):
        what, other = ("ratings", "pairs") if side == "ratings" else ("pairs", "ratings")
        message = f"{learner} learns from {other}, and {protocol} has {what}"
        raise ProtocolError(message, code="conflict", value=learner, hint=f"Choose {fits}, monotone or mean-rank")
    return cast("Learner", fits if learner == "auto" else learner)


def image_codes(judgements: Judgements) -> tuple[IntArray, int]:
    """(items,) number of each item's photograph, and the number of photographs (one may have two image ids)."""
    return unit_codes([photograph(item.image) for item in judgements.items])


def matrix_of(tables: Sequence[ScoreTable], inputs: Sequence[Input]) -> FloatArray:
    """(draws, items, k) scores of the inputs, signed so that higher is better."""
    return np.stack(
        [np.stack([entry.sign * table.values[entry.row.key] for entry in inputs], axis=1) for table in tables]
    )


def examples_of(protocol: Protocol, judgements: Judgements, scores: FloatArray, unit: IntArray) -> Examples:
    """A protocol's judgements with (draws, items, k) scores as examples; each draw repeats every judgement.

    ``judgements`` are those of any draw (the human side is the same for all), ``unit`` the (items,) number of each
    item's image.
    """
    from capbench.stats.combination import Examples

    check_human_side(protocol, judgements)
    spec, draws = protocol.statistic, len(scores)
    if spec.side == "ratings":
        ratings = judgements.ratings[spec.human]
        item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
        return Examples.of_ratings(np.concatenate(scores[:, item]), np.tile(human, draws), np.tile(unit[item], draws))
    pairs = judgements.preferences[spec.human]
    return Examples.of_pairs(
        np.concatenate(scores[:, pairs.first]),
        np.concatenate(scores[:, pairs.second]),
        np.tile(pairs.preferred, draws),
        np.tile(unit[pairs.first], draws),
    )


def refuse_unlearnable(protocol: Protocol, judgements: Judgements, settings: CombineSettings) -> None:
    """Reject, before scoring, judgements (of any draw) from which no combination can be learned."""
    from capbench.stats.nested_cross_validation import check_judgements

    unit, _ = image_codes(judgements)
    examples = examples_of(protocol, judgements, np.zeros((1, len(judgements.items), 1)), unit)
    with _naming(protocol):
        check_judgements(examples, _settings(protocol, settings))


def _settings(protocol: Protocol, settings: CombineSettings) -> Settings:
    from capbench.stats.nested_cross_validation import Settings

    return Settings(learner_for(protocol, settings.learner), settings.folds, settings.inner_folds, settings.seed)


@contextmanager
def _naming(protocol: Protocol) -> Iterator[None]:
    """Name the protocol in errors."""
    try:
        yield
    except StatisticError as error:
        message = f"a combination under {protocol}: {error.message}"
        raise StatisticError(message, code=error.code, value=error.value, hint=error.hint) from error


def learn_out_of_fold(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    inputs: Sequence[Input],
    settings: CombineSettings,
    progress: Callable[[int], None] = lambda _: None,
) -> Learned:
    """Learn a combination from a protocol's judgements, and score all items out of fold.

    ``draws`` and ``tables`` are one for each draw; ``progress`` is called with 1 for each outer fold.
    """
    from capbench.stats.nested_cross_validation import nested_scores

    how = _settings(protocol, settings)
    scores = matrix_of(tables, inputs)
    unit, _ = image_codes(draws[0])
    examples = examples_of(protocol, draws[0], scores, unit)
    captions, units = np.concatenate(scores), np.tile(unit, len(scores))
    with _naming(protocol):
        result = nested_scores(examples, captions, units, how, [entry.row.title for entry in inputs], progress)
    titles = [f"{entry.row.title}{' (turned)' if entry.lower_is_better else ''}" for entry in inputs]
    note = f"{how.learner} over {', '.join(titles)}; "
    if how.learner == "mean-rank":
        note += f"quantiles among the {len(examples.captions):,} judged captions; no judgement was used"
    else:
        note += (
            f"the score of each caption was learned on other images ({how.folds} folds, {how.inner_folds} inner folds "
            f"choose the penalty, seed {how.seed})"
        )
    signature = _signature(protocol, tables[0].signatures, inputs, how)
    return Learned(result.scores.reshape(len(scores), -1), examples, how, result, signature, note)


def with_column(
    tables: Sequence[ScoreTable], key: ScoreColumn, values: FloatArray, signature: str, inputs: Sequence[Input] = ()
) -> tuple[ScoreTable, ...]:
    """Tables, one for each draw, with a column of (draws, items) scores, which shares the inputs' training records."""
    of_inputs = (record for entry in inputs for record in tables[0].trained_on.get(entry.row.key.label, ()))
    records = tuple(dict.fromkeys(of_inputs))
    trained_on = {key.label: records} if records else {}
    return tuple(
        replace(
            table,
            trained_on={**table.trained_on, **trained_on},
            values={**table.values, key: row},
            corpus={**table.corpus, key: float(row.mean())},
            signatures={**table.signatures, key.label: signature},
        )
        for table, row in zip(tables, values, strict=True)
    )


def _signature(protocol: Protocol, signatures: Mapping[str, str], inputs: Sequence[Input], settings: Settings) -> str:
    """Everything that the scores depend on: of the protocol the items and the human side, not the statistic."""
    spec = protocol.statistic
    aggregation = f",{spec.aggregation}" if spec.side == "ratings" else ""
    items = with_version(f"{protocol.dataset}/{protocol.items.name}", protocol.version)
    how = [f"out-of-fold:{settings.folds}x{settings.inner_folds}-by-photograph", f"seed:{settings.seed}"]
    parts = [
        METRIC,
        f"capbench:{__version__}",
        f"learner:{settings.learner}",
        *([] if settings.learner == "mean-rank" else how),
        f"learnt:{items},{spec.human}{aggregation}",
        f"of:{signed_inputs(inputs, signatures)}",
    ]
    return "|".join(parts)


def signed_inputs(inputs: Sequence[Input], signatures: Mapping[str, str]) -> str:
    """The inputs with their signatures, without a bar; a minus marks a reversed sign."""
    return "+".join(
        f"{'-' if entry.lower_is_better else ''}{entry.row.name}[{signatures[entry.row.key.label].replace('|', ',')}]"
        for entry in inputs
    )
