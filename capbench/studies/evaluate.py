"""One protocol's statistic over scored items: overall and by group, averaged over draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capbench.datasets.protocol import Protocol, StatisticSpec, base_name
from capbench.errors import MissingFileError, StatisticError
from capbench.metrics.requests import Row
from capbench.records import FloatArray, Judgements, Preferences, Ratings, ScoreTable
from capbench.stats.accuracy import pairwise_accuracy
from capbench.stats.aggregate import aggregate
from capbench.stats.correlation import correlation
from capbench.studies.levels import leveled
from capbench.studies.results import Cell

__all__ = ["check_human_side", "evaluate"]


@dataclass(frozen=True)
class _Number:
    value: float
    n: int
    p_value: float | None = None
    ties: int | None = None
    chance: float | None = None


def evaluate(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    rows: Sequence[Row],
) -> tuple[list[Cell], tuple[str, ...]]:
    """Cells of every scored column under one protocol, and the names of the groups.

    Args:
        protocol: the protocol.
        draws: judgements, one for each draw.
        tables: their scores, in the same order; empty if nothing could be scored.
        rows: the rows.

    Raises:
        MissingFileError: the human side that the statistic needs is in a file that is not here.
        StatisticError: a statistic is undefined; metric and protocol are named.
    """
    check_human_side(protocol, draws[0])
    groups: dict[str, None] = {}
    cells: list[Cell] = []
    for row in rows:
        per_draw: list[dict[str, _Number]] = []
        for judgements, table in zip(draws, tables, strict=False):
            if row.key in table.values:
                numbers = _numbers(protocol, judgements, table.values[row.key], table, row)
                per_draw.append(numbers)
                groups.update(dict.fromkeys(g for g in numbers if g))
        if not per_draw:
            continue
        for group in per_draw[0]:
            numbers_of_group = [numbers[group] for numbers in per_draw if group in numbers]
            cells.append(_cell(protocol, row, group, numbers_of_group))
    return cells, tuple(groups)


def check_human_side(protocol: Protocol, judgements: Judgements) -> None:
    """Raise MissingFileError if the human side that a protocol's statistic needs is in a file that is not here."""
    spec = protocol.statistic
    there = {"correlation": judgements.ratings, "accuracy": judgements.preferences, "mean": None}[spec.kind]
    if there is None or spec.human in there:
        return
    try:
        there[spec.human]  # a data set that knows which file is missing says so here
    except KeyError as error:
        from capbench.datasets.base import dataset_names
        from capbench.datasets.catalog import catalog

        have = ", ".join(there) or "none"
        name = base_name(protocol.dataset)
        if name in catalog().datasets:
            hint = f"See 'capbench data info {name}'"
        elif name in dataset_names():
            hint = f"See 'capbench protocols {name}'"
        else:  # a class that is not registered: its name alone finds it nowhere
            hint = "Choose another statistic: 'capbench protocols module:Class' lists them"
        raise MissingFileError(
            f"{protocol} needs the human '{spec.human}'; the files at hand hold: {have}",
            hint=hint,
        ) from error


def _numbers(
    protocol: Protocol, judgements: Judgements, values: FloatArray, table: ScoreTable, row: Row
) -> dict[str, _Number]:
    """The statistic overall (``""``) and for each group. A mean is the corpus score, which for BLEU is no mean."""
    spec, title = protocol.statistic, row.title
    try:
        if spec.level != "captions":
            return _at_level(spec, judgements, values, title)
        if spec.kind == "correlation":
            return _correlations(spec, judgements, judgements.ratings[spec.human], values, title)
        if spec.kind == "accuracy":
            return _accuracies(spec, judgements.preferences[spec.human], values, title)
    except StatisticError as error:
        hint = error.hint or "Leave this row out: --without NAME in correlate, or name the other metrics or data sets"
        raise StatisticError(f"{title} under {protocol}: {error.message}", hint=hint) from error
    sizes = Counter(item.group for item in judgements.items)
    numbers = {"": _Number(table.corpus[row.key], len(values))}
    for name in judgements.groups:
        numbers[name] = _Number(table.group_corpus[name][row.key], sizes[name])
    return numbers


def _correlations(
    spec: StatisticSpec, judgements: Judgements, ratings: Ratings, values: FloatArray, title: str
) -> dict[str, _Number]:
    if spec.coefficient is None:
        raise StatisticError(f"the statistic {spec.name} names no coefficient")
    item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
    scores = values[item]
    group = np.array([judgements.items[i].group for i in item])
    numbers = {}
    for name in ("", *judgements.groups):
        chosen = slice(None) if not name else group == name
        label = f"the human ratings{f' of {name}' if name else ''}"
        measured = correlation(spec.coefficient, scores[chosen], human[chosen], name_x=title, name_y=label)
        numbers[name] = _Number(measured.value, measured.n, measured.p_value, measured.ties_x)
    return numbers


def _at_level(spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str) -> dict[str, _Number]:
    """Within images or over systems. A group in which it is not defined has no number; a note says why."""
    numbers = {}
    for name in ("", *judgements.groups):
        try:
            data = leveled(spec, judgements, {title: values}, name)
        except StatisticError:
            if not name:
                raise
            continue
        value = data.statistic(title)(np.ones((1, data.units), dtype=np.int32))
        numbers[name] = _Number(float(value[0]), data.n)
    return numbers


def _accuracies(spec: StatisticSpec, preferences: Preferences, values: FloatArray, title: str) -> dict[str, _Number]:
    if spec.ties is None:
        raise StatisticError(f"the statistic {spec.name} names no tie rule")
    accuracy = pairwise_accuracy(
        values[preferences.first],
        values[preferences.second],
        preferences.preferred,
        ties=spec.ties,
        groups=preferences.group,
        name=title,
    )
    # The mean over groups is what papers print as "All"; with groups of one size it equals the pooled accuracy.
    numbers = {"": _Number(accuracy.mean, accuracy.pooled.n, None, accuracy.pooled.ties, accuracy.mean_chance)}
    for group in sorted(accuracy.groups, key=lambda group: group.name):
        if group.name:
            numbers[group.name] = _Number(group.value, group.n, None, group.ties, group.chance)
    return numbers


def _cell(
    protocol: Protocol,
    row: Row,
    group: str,
    numbers: Sequence[_Number],
) -> Cell:
    values = np.array([number.value for number in numbers])
    single = len(numbers) == 1
    return Cell(
        protocol=str(protocol),
        metric=row.metric,
        label=row.key.label,
        column=row.name,
        title=row.title,
        group=group,
        value=float(values.mean()),
        sd=None if single else float(values.std(ddof=1)),
        n=numbers[0].n,
        p_value=numbers[0].p_value if single else None,
        ties=numbers[0].ties if single else None,
        chance=numbers[0].chance,
    )
