"""One protocol's statistic over scored items: overall and by group, averaged over draws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from capbench.core.errors import MissingFileError, StatisticError
from capbench.core.records import FloatArray, Judgements, ScoreTable
from capbench.datasets.protocol import Protocol, StatisticSpec, base_name
from capbench.metrics.metric_request import Row
from capbench.stats.correlation import correlation
from capbench.stats.pairwise_accuracy import pairwise_accuracy
from capbench.stats.ties import is_constant
from capbench.studies.data_points import balanced_sides, defined_value, item_column, level_points, rated_points
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
        make = partial(Cell, **_names(protocol, row))
        of_draws = [
            {cell.group: cell for cell in _cells(protocol.statistic, judgements, table, row, make)}
            for judgements, table in zip(draws, tables, strict=True)
        ]
        for group in dict.fromkeys(group for of_draw in of_draws for group in of_draw):
            cells.append(over_draws([of_draw.get(group) for of_draw in of_draws]))
            groups |= {group: None} if group else {}
    return cells, tuple(groups)


def unscored_cells(protocol: Protocol, scored: Scored, rows: Sequence[Row], groups: Sequence[str]) -> list[Cell]:
    """Cells of columns of incomplete score files, overall and in the groups (also of other rows) without all scores."""
    of_items = scored.draws[0].groups if protocol.statistic.side != "preferences" else ()
    cells = []
    for unmet in scored.unscored:
        columns = set(unmet.request.score_columns) if unmet.of_file else set()
        for row in (row for row in rows if row.key in columns):
            for group in dict.fromkeys(("", *groups, *of_items)):
                if group not in unmet.groups:
                    cells.append(
                        Cell(
                            **_names(protocol, row),
                            group=group,
                            undefined=str(unmet.error),
                            placeholder=unmet.in_words(group if group in unmet.scored else ""),
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
        have = ", ".join(there) or "none"
        message = f"{protocol} requires the human '{spec.human}'; the available files contain: {have}"
        hint = f"See 'capbench data info --protocols {base_name(protocol.dataset)}'"
        raise MissingFileError(message, value=spec.human, hint=hint) from error


def _cells(
    spec: StatisticSpec, judgements: Judgements, table: ScoreTable, row: Row, make: partial[Cell]
) -> Iterator[Cell]:
    """The statistic on one draw, overall and by group. A mean is the corpus score, which for BLEU is not an average."""
    values = table.values[row.key]
    if spec.level != "captions":
        yield from _at_level(spec, judgements, values, row.title, make)
    elif spec.kind == "correlation":
        yield from _correlations(spec, judgements, values, row.title, make)
    elif spec.kind == "accuracy":
        yield from _accuracies(spec, judgements, values, row.title, make)
    else:
        yield make(value=table.corpus[row.key], n=len(values))
        sizes = Counter(item.group for item in judgements.items)
        for group in judgements.groups:
            yield make(group=group, value=table.group_corpus[group][row.key], n=sizes[group])


def _correlations(
    spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str, make: partial[Cell]
) -> Iterator[Cell]:
    items, ratings = rated_points(spec, judgements, "")
    groups = item_column(judgements, items, "group")
    for group in ("", *judgements.groups):
        chosen = groups == group if group else slice(None)
        item, human = items[chosen], ratings[chosen]
        label = f"the human ratings{f' of {group}' if group else ''}"
        try:
            if (size := len(item)) < 2:
                raise StatisticError(f"a correlation requires at least two data points, and {label} have {size}")
            if is_constant(human):
                equal = f"all {size:,} values of {label} are equal to {human[0]:g}"
                raise StatisticError(f"no correlation is defined: {equal}")
            measured = correlation(spec.coefficient, values[item], human, name_x=title, name_y=label)
        except StatisticError as error:
            yield make(group=group, undefined=error.message, n=len(item))
            continue
        # A p-value assumes independent data points, which several ratings of one caption are not.
        p_value = None if spec.aggregation == "unaggregated" else measured.p_value
        yield make(group=group, value=measured.value, n=measured.n, p_value=p_value, ties=measured.ties)


def _at_level(
    spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str, make: partial[Cell]
) -> Iterator[Cell]:
    of_pairs = spec.side == "preferences"
    groups = sorted(set(judgements.preferences[spec.human].group) - {""}) if of_pairs else judgements.groups
    for group in ("", *groups):
        try:
            data = level_points(spec, judgements, {title: values}, group)
            value = defined_value(data, title)
        except StatisticError as error:
            yield make(group=group, undefined=error.message, n=0)
        else:
            yield make(group=group, value=value, n=data.n)


def _accuracies(
    spec: StatisticSpec, judgements: Judgements, values: FloatArray, title: str, make: partial[Cell]
) -> Iterator[Cell]:
    """The mean over groups, which papers print as "All", and the groups, also for the mean of both sides of each."""
    assert spec.ties is not None
    preferences, sides = judgements.preferences[spec.human], balanced_sides(spec, judgements)
    groups, clear = np.array(preferences.group, dtype=object), np.asarray(preferences.preferred) != 0
    first, second = values[preferences.first], values[preferences.second]
    cells: dict[str, Cell] = {}
    for group in dict.fromkeys(preferences.group):
        of_group, where = groups == group, f" of {group}" if group else ""
        parts = [of_group & clear] if sides is None else [of_group & (sides == side) for side in (1, -1)]
        if not all(part.any() for part in parts):
            # A group with even votes on all pairs has no accuracy, and the mean over groups excludes it.
            even = f"the votes are even on all {of_group.sum():,} pairs{where}"
            even += "; the mean over groups excludes it" if group else ""
            unbalanced = f"the longer caption, or the shorter one, is preferred in no pair{where}"
            cells[group] = make(group=group, undefined=even if sides is None else unbalanced, n=0)
            continue
        found = [
            pairwise_accuracy(first[part], second[part], preferences.preferred[part], spec.ties, name=title)
            for part in parts
        ]
        cells[group] = make(group=group, **_mean(found))
    if defined := [cell for cell in cells.values() if cell.value is not None]:
        yield make(**_mean(defined))
        yield from (cells[name] for name in sorted(cells) if name)
    else:
        yield make(undefined=next((cell.undefined for cell in cells.values()), "there are no pairs"), n=0)


def _mean(parts: Sequence[Any]) -> dict[str, Any]:
    means = {name: float(np.mean([getattr(part, name) for part in parts])) for name in ("value", "chance")}
    return means | {name: sum(getattr(part, name) for part in parts) for name in ("n", "ties")}


def over_draws(cells: Sequence[Cell | None]) -> Cell:
    """The mean of one row over draws; ``None`` for a draw without the group."""
    known = [cell for cell in cells if cell is not None]
    if len(cells) == 1:
        return known[0]
    values = [cell.value for cell in known if cell.value is not None]
    chances = [cell.chance for cell in known if cell.chance is not None]
    defined = len(values) == len(cells)
    # The reason of the first undefined draw, with its number unless all agree.
    reasons = ["it has no data of this group" if cell is None else cell.undefined for cell in cells]
    draw, reason = next(((draw, reason) for draw, reason in enumerate(reasons, 1) if reason), (0, ""))
    update = {
        "value": float(np.mean(values)) if defined else None,
        "undefined": reason if {*reasons} == {reason} else f"on draw {draw} of {len(cells)}: {reason}",
        "sd": float(np.std(values, ddof=1)) if defined else None,
        "n": min(cell.n for cell in known),
        "p_value": None,
        "ties": None,
        "chance": float(np.mean(chances)) if len(chances) == len(cells) else None,
    }
    return known[0].model_copy(update=update)


def _names(protocol: Protocol, row: Row) -> dict[str, Any]:
    names = {"metric": row.metric, "label": row.key.label, "column": row.name, "title": row.title}
    return {"protocol": str(protocol), **names}
