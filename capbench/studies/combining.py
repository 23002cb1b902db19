"""Combinations of metrics that are learnt from a protocol's judgements, as columns beside the metrics themselves.

A combination's scores are out of fold (:mod:`capbench.stats.nested`): each caption's comes from judgements of other
images alone. So it stands in every table, interval and test as any metric does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from capbench import __version__
from capbench.datasets.protocol import Protocol, with_version
from capbench.errors import ProtocolError, StatisticError
from capbench.metrics.requests import MetricRequest, Row
from capbench.records import FloatArray, IntArray, Judgements, ScoreColumn, ScoreTable
from capbench.stats.aggregate import aggregate
from capbench.stats.resampling import unit_codes
from capbench.studies.combine_settings import METRIC, CombineSettings
from capbench.studies.evaluate import check_human_side

if TYPE_CHECKING:  # imported where something is learnt
    from capbench.stats.learning import Examples, Learner
    from capbench.stats.nested import OutOfFold, Settings

__all__ = [
    "Input",
    "Learnt",
    "PlannedCombination",
    "examples_of",
    "image_codes",
    "inputs_of",
    "learn_out_of_fold",
    "learner_for",
    "matrix_of",
    "refuse_unlearnable",
    "row_of",
    "signed_inputs",
    "with_column",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Input:
    """A column that is combined.

    Attributes:
        row: the column, with its name and title.
        lower_is_better: whether it is turned.
    """

    row: Row
    lower_is_better: bool = False

    @property
    def sign(self) -> float:
        """-1 if it is turned, else 1."""
        return -1.0 if self.lower_is_better else 1.0


@dataclass(frozen=True)
class PlannedCombination:
    """A combination whose names are resolved.

    Attributes:
        row: its row.
        inputs: what it combines.
        settings: how it is learnt.
    """

    row: Row
    inputs: tuple[Input, ...]
    settings: CombineSettings


@dataclass(frozen=True, eq=False)
class Learnt:
    """Out-of-fold scores of a combination on a protocol's items, and what they were learnt from.

    Attributes:
        values: (draws, items) scores.
        examples: the judgements beside the inputs' scores, of all draws.
        settings: how it was learnt.
        out_of_fold: folds, weights and penalties.
        signature: one line with everything that can change the scores.
        note: the same in words.
    """

    values: FloatArray
    examples: Examples
    settings: Settings
    out_of_fold: OutOfFold
    signature: str
    note: str


def row_of(label: str, title: str = "") -> Row:
    """The row of a combination."""
    return Row(ScoreColumn(label, METRIC), METRIC, label, title or label)


def inputs_of(rows: Sequence[Row], requests: Sequence[MetricRequest], lower: Sequence[str] = ()) -> tuple[Input, ...]:
    """Rows as inputs, turned where lower scores are better.

    Args:
        rows: the rows.
        requests: the metrics, some of which say that lower is better.
        lower: names of further rows, labels or metrics of which that is true.
    """
    declared = {ScoreColumn(request.label, column) for request in requests for column in request.metric.lower_is_better}
    return tuple(
        Input(row, row.key in declared or any(name in (row.name, row.key.label, row.metric) for name in lower))
        for row in rows
    )


def learner_for(protocol: Protocol, learner: str) -> Learner:
    """The learner that is meant.

    Raises:
        ProtocolError: the protocol has no human judgements, or they are of the other kind.
    """
    kind = protocol.statistic.kind
    if kind == "mean":
        raise ProtocolError(f"{protocol} has no human judgements to learn from")
    fits: Learner = "ridge" if kind == "correlation" else "logistic"
    if learner in ("auto", fits):
        return fits
    if learner == "monotone":
        return "monotone"
    what, other = ("ratings", "pairs") if kind == "correlation" else ("pairs", "ratings")
    raise ProtocolError(f"{learner} learns from {other}, and {protocol} has {what}", hint=f"Choose {fits} or monotone")


def image_codes(judgements: Judgements) -> tuple[IntArray, int]:
    """(items,) number of each item's image, and how many images there are."""
    return unit_codes([item.image for item in judgements.items])


def matrix_of(tables: Sequence[ScoreTable], inputs: Sequence[Input]) -> FloatArray:
    """(draws, items, k) scores of the inputs, higher is better."""
    return np.stack(
        [np.stack([entry.sign * table.values[entry.row.key] for entry in inputs], axis=1) for table in tables]
    )


def examples_of(protocol: Protocol, judgements: Judgements, scores: FloatArray, unit: IntArray) -> Examples:
    """A protocol's judgements beside scores; several draws of references are that many examples of each judgement.

    Args:
        protocol: the protocol.
        judgements: the judgements of any draw: the human side is the same for all.
        scores: (draws, items, k) scores.
        unit: (items,) number of each item's image.

    Raises:
        MissingFileError: the human side is in a file that is not here.
    """
    from capbench.stats.learning import Examples

    check_human_side(protocol, judgements)
    spec, draws = protocol.statistic, len(scores)
    if spec.kind == "correlation":
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
    """Refuse, before anything is scored, what no scores could be learnt to combine.

    Args:
        protocol: the protocol that is learnt from.
        judgements: its judgements, of any draw.
        settings: how.

    Raises:
        ProtocolError: see :func:`learner_for`.
        MissingFileError: the human side is in a file that is not here.
        StatisticError: see :func:`capbench.stats.nested.check_judgements`.
    """
    unit, _ = image_codes(judgements)
    examples = examples_of(protocol, judgements, np.zeros((1, len(judgements.items), 1)), unit)
    from capbench.stats.nested import check_judgements

    _named(protocol, lambda: check_judgements(examples, _settings(protocol, settings)))


def _settings(protocol: Protocol, settings: CombineSettings) -> Settings:
    from capbench.stats.nested import Settings

    return Settings(learner_for(protocol, settings.learner), settings.folds, settings.inner_folds, settings.seed)


def _named(protocol: Protocol, work: Callable[[], T]) -> T:
    """What some work gives; its errors name the protocol."""
    try:
        return work()
    except StatisticError as error:
        raise StatisticError(f"a combination under {protocol}: {error.message}", hint=error.hint) from error


def learn_out_of_fold(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    inputs: Sequence[Input],
    settings: CombineSettings,
    progress: Callable[[int], None] = lambda _: None,
) -> Learnt:
    """Learn a combination from a protocol's judgements, and score all items out of fold.

    Args:
        protocol: the protocol.
        draws: its judgements, one for each draw.
        tables: their scores, which hold all inputs.
        inputs: what is combined.
        settings: how.
        progress: called with 1 for each outer fold.

    Raises:
        ProtocolError: see :func:`learner_for`.
        MissingFileError: the human side is in a file that is not here.
        StatisticError: see :func:`capbench.stats.nested.nested_scores`.
    """
    from capbench.stats.nested import nested_scores

    how = _settings(protocol, settings)
    scores = matrix_of(tables, inputs)
    unit, _ = image_codes(draws[0])
    examples = examples_of(protocol, draws[0], scores, unit)
    names = [entry.row.title for entry in inputs]
    captions, units = np.concatenate(scores), np.tile(unit, len(scores))
    result = _named(protocol, lambda: nested_scores(examples, captions, units, how, names, progress))
    signature = _signature(protocol, tables[0].signatures, inputs, how)
    note = (
        f"{how.learner} over {', '.join(_spelled(entry) for entry in inputs)}; every caption is scored by what was "
        f"learnt on other images ({how.folds} folds, {how.inner_folds} inner folds choose the penalty, "
        f"seed {how.seed})"
    )
    return Learnt(result.scores.reshape(len(scores), -1), examples, how, result, signature, note)


def with_column(
    tables: Sequence[ScoreTable], key: ScoreColumn, values: FloatArray, signature: str
) -> tuple[ScoreTable, ...]:
    """Tables with one more column.

    Args:
        tables: one for each draw.
        key: the column.
        values: (draws, items) its scores.
        signature: its signature.
    """
    return tuple(
        replace(
            table,
            values={**table.values, key: row},
            corpus={**table.corpus, key: float(row.mean())},
            signatures={**table.signatures, key.label: signature},
        )
        for table, row in zip(tables, values, strict=True)
    )


def _spelled(entry: Input) -> str:
    return f"{entry.row.title} (turned)" if entry.lower_is_better else entry.row.title


def _signature(protocol: Protocol, signatures: Mapping[str, str], inputs: Sequence[Input], settings: Settings) -> str:
    """What the scores depend on. Of the protocol it is the items and the human side, not the statistic."""
    spec = protocol.statistic
    aggregation = f",{spec.aggregation}" if spec.kind == "correlation" else ""
    items = with_version(f"{protocol.dataset}/{protocol.items.name}", protocol.version)
    parts = [
        METRIC,
        f"capbench:{__version__}",
        f"learner:{settings.learner}",
        f"out-of-fold:{settings.folds}x{settings.inner_folds}-by-image",
        f"seed:{settings.seed}",
        f"learnt:{items},{spec.human}{aggregation}",
        f"of:{signed_inputs(inputs, signatures)}",
    ]
    return "|".join(parts)


def signed_inputs(inputs: Sequence[Input], signatures: Mapping[str, str]) -> str:
    """The inputs with their signatures, without a bar; one that is turned has a minus before it."""
    return "+".join(
        f"{'-' if entry.lower_is_better else ''}{entry.row.name}[{signatures[entry.row.key.label].replace('|', ',')}]"
        for entry in inputs
    )
