"""One protocol's statistic over scored items: overall and by group, averaged over draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from capbench.core.errors import MissingFileError, StatisticError
from capbench.core.records import FloatArray, IntArray, Judgements, Preferences, Ratings, ScoreTable, TieRule
from capbench.datasets.protocol import Protocol, StatisticSpec, base_name
from capbench.metrics.metric_request import Row
from capbench.stats.correlation import correlation
from capbench.stats.pairwise_accuracy import aggregate, pairwise_accuracy
from capbench.stats.resampling import observed_value
from capbench.stats.ties import is_constant
from capbench.studies.data_points import balanced_sides, in_decided_groups, level_points
from capbench.studies.results import Cell
from capbench.studies.scoring import Scored


def evaluate(
    protocol: Protocol,
    draws: Sequence[Judgements],
    tables: Sequence[ScoreTable],
    rows: Sequence[Row],
) -> tuple[list[Cell], tuple[str, ...]]:
    """Cells of every column that is scored in every draw, and the names of the groups.

    A statistic that is undefined, overall or in one group, gives a cell without a value and with the reason.
    """
    check_human_side(protocol, draws[0])
    groups: dict[str, None] = {}
    cells: list[Cell] = []
    for row in rows if tables else ():
        if not all(row.key in table.values for table in tables):
            continue
        per_draw = [_numbers(protocol, *of_draw, row) for of_draw in zip(draws, tables, strict=True)]
        for group in dict.fromkeys(group for numbers in per_draw for group in numbers):
            cells.append(_cell(protocol, row, group, [numbers.get(group) for numbers in per_draw]))
            groups |= {group: None} if group else {}
    return cells, tuple(groups)


def unscored_cells(protocol: Protocol, scored: Scored, rows: Sequence[Row], groups: Sequence[str]) -> list[Cell]:
    """Cells of columns of incomplete score files, overall and in the groups (also of other rows) without all scores."""
    of_items = scored.draws[0].groups if protocol.statistic.side != "preferences" else ()
    cells = []
    for lacking in scored.unscored:
        columns = set(lacking.request.score_columns) if lacking.of_file else set()
        for row in (row for row in rows if row.key in columns):
            for group in dict.fromkeys(("", *groups, *of_items)):
                if group not in lacking.groups:
                    cells.append(
                        Cell(
                            **_names(protocol, row, group),
                            undefined=str(lacking.error),
                            placeholder=lacking.in_words(group if group in lacking.scored else ""),
                            n=0,
                        )
                    )
    return cells


def check_defined(cells: Iterable[Cell]) -> None:
    """Raise StatisticError with metric, protocol and reason if a cell has no value."""
    for cell in cells:
        if cell.value is None:
            place = f"{cell.protocol}{f', {cell.group}' if cell.group else ''}"
            message, hint = f"{cell.title} under {place}: {cell.undefined}", "Choose other metrics, protocols or data"
            raise StatisticError(message, value=cell.title, hint=hint)


def check_human_side(protocol: Protocol, judgements: Judgements) -> None:
    """Raise MissingFileError if the file with the human side of a protocol's statistic is missing."""
    spec = protocol.statistic
    there = {"ratings": judgements.ratings, "preferences": judgements.preferences, "none": None}[spec.side]
    if there is None or spec.human in there:
        return
    try:
        there[spec.human]  # a data set that knows the missing file raises here
    except KeyError as error:
        message = f"{protocol} requires the human '{spec.human}'; the available files contain: {', '.join(there)}"
        hint = f"See 'capbench data info --protocols {base_name(protocol.dataset)}'"
        raise MissingFileError(message, value=spec.human, hint=hint) from error


@dataclass(frozen=True)
class _Number:
    """The statistic on one draw, or the reason it is undefined."""

    value: float | None
    n: int
    p_value: float | None = None
    ties: int | None = None
    chance: float | None = None
    undefined: str = ""


def _numbers(protocol: Protocol, judgements: Judgements, table: ScoreTable, row: Row) -> dict[str, _Number]:
    """The statistic overall (``""``) and by group. A mean is the corpus score, which for BLEU is not an average."""
    spec, title, values = protocol.statistic, row.title, table.values[row.key]
    if spec.level != "captions":
        return _at_level(spec, judgements, values, title)
    if spec.kind == "correlation":
        return _correlations(spec, judgements, judgements.ratings[spec.human], values, title)
    if spec.kind == "accuracy":
        return _accuracies(spec, judgements, values, title)
    sizes = Counter(item.group for item in judgements.items)
    numbers = {"": _Number(table.corpus[row.key], len(values))}
    for name in judgements.groups:
        numbers[name] = _Number(table.group_corpus[name][row.key], sizes[name])
    return numbers


def _correlations(
    spec: StatisticSpec, judgements: Judgements, ratings: Ratings, values: FloatArray, title: str
) -> dict[str, _Number]:
    assert spec.coefficient is not None
    item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
    scores = values[item]
    group = np.array([judgements.items[i].group for i in item])
    numbers = {}
    for name in ("", *judgements.groups):
        chosen = group == name if name else np.ones(len(item), dtype=np.bool_)
        label = f"the human ratings{f' of {name}' if name else ''}"
        try:
            if (size := int(chosen.sum())) < 2:
                raise StatisticError(f"a correlation requires at least two data points, and {label} have {size}")
            if is_constant(human[chosen]):
                equal = f"all {size:,} values of {label} are equal to {human[chosen][0]:g}"
                raise StatisticError(f"no correlation is defined: {equal}")
            measured = correlation(spec.coefficient, scores[chosen], human[chosen], name_x=title, name_y=label)
        except StatisticError as error:
            numbers[name] = _Number(None, int(chosen.sum()), undefined=error.message)
            continue
        # A p-value assumes independent data points, which several ratings of one caption are not.
        p_value = None if spec.aggregation == "unaggregated" else measured.p_value
        numbers[name] = _Number(measured.value, measured.n, p_value, measured.ties)
    return numbers


def _at_level(spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str) -> dict[str, _Number]:
    numbers = {}
    of_pairs = spec.side == "preferences"
    groups = sorted(set(judgements.preferences[spec.human].group) - {""}) if of_pairs else judgements.groups
    for name in ("", *groups):
        try:
            data = level_points(spec, judgements, {title: values}, name)
            value = observed_value(data.statistic(title))
            if not np.isfinite(value):
                given = "all systems the same mean" if spec.systems else "captions of different ratings the same score"
                raise StatisticError(f"{spec.name} is undefined: {title} gives {given}", value=title)
        except StatisticError as error:
            numbers[name] = _Number(None, 0, undefined=error.message)
            continue
        numbers[name] = _Number(value, data.n)
    return numbers


def _accuracies(spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str) -> dict[str, _Number]:
    assert spec.ties is not None
    preferences, sides = judgements.preferences[spec.human], balanced_sides(spec, judgements)
    if sides is not None:
        return _balanced(spec.ties, preferences, sides, values, title)
    # A group with even votes on all pairs has no accuracy, and the mean over groups excludes it.
    decided = in_decided_groups(preferences)
    sizes = Counter(preferences.group)
    numbers: dict[str, _Number] = {}
    try:
        accuracy = pairwise_accuracy(
            values[preferences.first[decided]],
            values[preferences.second[decided]],
            preferences.preferred[decided],
            ties=spec.ties,
            groups=[group for group, kept in zip(preferences.group, decided, strict=True) if kept],
            name=title,
        )
    except StatisticError as error:
        reason = f"the votes are even on all {len(decided):,} pairs" if len(decided) and not decided.any() else ""
        return {"": _Number(None, 0, undefined=reason or error.message)}
    # The mean over groups is what papers print as "All"; with groups of equal size it equals the pooled accuracy.
    numbers[""] = _Number(accuracy.mean, accuracy.pooled.n, None, accuracy.pooled.ties, accuracy.mean_chance)
    by_name = {group.name: group for group in accuracy.groups}
    for name in sorted(sizes.keys() - {""}):
        if name in by_name:
            group = by_name[name]
            numbers[name] = _Number(group.value, group.n, None, group.ties, group.chance)
        else:
            even = f"the votes are even on all {sizes[name]:,} pairs of {name}; the mean over groups excludes it"
            numbers[name] = _Number(None, 0, undefined=even)
    return numbers


def _balanced(
    ties: TieRule, preferences: Preferences, sides: IntArray, values: FloatArray, title: str
) -> dict[str, _Number]:
    """Length-balanced accuracies: of each group the mean of both sides, overall the mean of the groups."""
    numbers: dict[str, _Number] = {}
    groups = np.array(preferences.group, dtype=object)
    for group in dict.fromkeys(preferences.group):
        halves = []
        for side in (1, -1):
            chosen = (sides == side) & (groups == group)
            if chosen.any():
                first, second = values[preferences.first[chosen]], values[preferences.second[chosen]]
                halves.append(pairwise_accuracy(first, second, preferences.preferred[chosen], ties, name=title).pooled)
        if len(halves) < 2:
            where = f" of {group}" if group else ""
            reason = f"the longer caption, or the shorter one, is preferred in no pair{where}"
            numbers[group] = _Number(None, 0, undefined=reason)
            continue
        numbers[group] = _mean(halves)
    defined = [number for number in numbers.values() if number.value is not None]
    if not defined:
        return {"": next(iter(numbers.values()))} if numbers else {"": _Number(None, 0, undefined="there are no pairs")}
    return {"": _mean(defined), **{name: numbers[name] for name in sorted(numbers) if name}}


def _mean(parts: Sequence[Any]) -> _Number:
    value, chance = (float(np.mean([getattr(part, name) for part in parts])) for name in ("value", "chance"))
    return _Number(value, sum(part.n for part in parts), None, sum(part.ties for part in parts), chance)


def _cell(protocol: Protocol, row: Row, group: str, numbers: Sequence[_Number | None]) -> Cell:
    known = [number for number in numbers if number is not None]
    values = [number.value for number in known if number.value is not None]
    chances = [number.chance for number in known if number.chance is not None]
    defined, single = len(values) == len(numbers), len(numbers) == 1
    return Cell(
        **_names(protocol, row, group),
        value=float(np.mean(values)) if defined else None,
        undefined="" if defined else _reason(numbers),
        sd=float(np.std(values, ddof=1)) if defined and not single else None,
        n=min(number.n for number in known),
        p_value=known[0].p_value if single else None,
        ties=known[0].ties if single else None,
        chance=float(np.mean(chances)) if len(chances) == len(numbers) else None,
    )


def _names(protocol: Protocol, row: Row, group: str) -> dict[str, Any]:
    return {
        "protocol": str(protocol),
        "metric": row.metric,
        "label": row.key.label,
        "column": row.name,
        "title": row.title,
        "group": group,
    }


def _reason(numbers: Sequence[_Number | None]) -> str:
    """The reason a mean over draws is undefined: of the first undefined draw, with its number unless all agree."""
    reasons = ["it has no data of this group" if number is None else number.undefined for number in numbers]
    draw, first = next((draw, reason) for draw, reason in enumerate(reasons, 1) if reason)
    return first if set(reasons) == {first} else f"on draw {draw} of {len(numbers)}: {first}"
