"""Dependence of the ranking of metrics on the protocol, as tables and a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from capbench.core.files import csv_text
from capbench.reports import methods
from capbench.reports.table import USUAL_TABLE, Cell, Column, Row, Table
from capbench.studies.results import NO_TESTS, Ranked, StudyResult
from capbench.studies.uncertainty import decided

_SYMBOLS = {
    "acc-eq-held-out": "held-out acc",
    "acc-eq": "acc-eq",
    "tau-b": "τ-b",
    "tau-c": "τ-c",
    "spearman": "ρ",
    "pearson": "r",
}
_Ranking = dict[str, Ranked]
"""The metrics under one protocol, by column."""


def ranking_tables(result: StudyResult, warnings: Sequence[str]) -> list[Table]:
    """For each data set, a table for each *items* part of its protocols; ``warnings`` are those of the last one."""
    made: list[Table] = []
    infos = {info.id: info for info in result.protocols}
    for _, of_dataset in groupby(result.rankings, key=lambda row: infos[row.protocol].dataset):
        by_protocol = {id_: {row.column: row for row in rows} for id_, rows in groupby(of_dataset, _protocol)}
        default = next(id_ for id_, ranking in by_protocol.items() if any(row.default for row in ranking.values()))
        for items, ids in groupby(by_protocol, key=lambda id_: id_.split("/")[1]):
            title = f"{infos[default].dataset_title}, {items}"
            made.append(_table(result, title, {id_: by_protocol[id_] for id_ in ids}))
        legend = (
            "value, rank, and the number of ranks by which that is better (▲) or worse (▼) than under the protocol "
            f"with *: {infos[default].versioned_id}",
            *methods.legend(result, [(id_, "") for id_ in by_protocol]),
        )
        made[-1] = replace(made[-1], answer=tuple(_summary(result, by_protocol, default)), legend=legend)
    return [*made[:-1], replace(made[-1], warnings=tuple(warnings))]


def _protocol(row: Ranked) -> str:
    return row.protocol


def _table(result: StudyResult, title: str, by_protocol: dict[str, _Ranking]) -> Table:
    """Metrics as rows, protocols as columns; entries are value, mark, rank, and change from the default."""
    firsts = {id_: next(iter(ranking.values())) for id_, ranking in by_protocol.items()}
    rows = [
        Row(name, tuple(Cell(_entry(result, ranking.get(column))) for ranking in by_protocol.values()))
        for column, name in result.columns.items()
        if any(column in ranking for ranking in by_protocol.values())
    ]
    taus = ["–" if first.tau is None else f"{first.tau:.2f}" for first in firsts.values()]
    notes = [f"{id_} is the protocol of {', '.join(of.used_by)}" for id_, of in firsts.items() if of.used_by]
    notes += [note for info in result.protocols if info.id in firsts for note in info.notes if NO_TESTS in note]
    notes += methods.notes(result, [(id_, "") for id_ in firsts])
    columns = tuple(map(_column, firsts.values()))
    return Table(title, columns, (*rows, Row("τ with *", tuple(map(Cell, taus)), "agreement")), notes=tuple(notes))


def _column(first: Ranked) -> Column:
    name = first.protocol.split("/")[2]
    if symbol := next((symbol for symbol in _SYMBOLS if name.endswith(symbol)), ""):
        outer, inner = name.removesuffix(symbol).rstrip("-"), _SYMBOLS[symbol]
    else:
        outer, _, inner = name.partition("-") if "-" in name else ("", "", name)
    return Column(f"{inner} *" if first.default else inner, group=outer, text=True)


def _entry(result: StudyResult, row: Ranked | None) -> str:
    if row is None:
        return "–"
    move, tests = row.move or 0, decided(result, row.protocol)
    arrow = "" if move == 0 else f"▲{move}" if move > 0 else f"▼{-move}"
    # A space instead of the mark keeps ranks aligned.
    mark = "" if tests is None else methods.MARK if row.column in tests.top else " "
    return f"{USUAL_TABLE.number(row.value)}{mark} {row.rank}{arrow}"


def _summary(result: StudyResult, by_protocol: dict[str, _Ranking], default: str) -> list[str]:
    """The main results of the tables of one data set, in a few sentences."""
    others, lines = [ranking for id_, ranking in by_protocol.items() if id_ != default], []
    if others and len(by_protocol[default]) > 1:
        same = sum(not any(row.move for row in ranking.values()) for ranking in others)
        lines.append(f"{same} of {len(others)} other protocols rank the metrics as * does")
        firsts = [row.column for ranking in by_protocol.values() for row in ranking.values() if row.rank == 1]
        names = sorted(dict.fromkeys(firsts), key=firsts.count, reverse=True)
        counted = ", ".join(f"{result.columns[name]} under {firsts.count(name)}" for name in names)
        lines.append(f"first: {counted} of {len(by_protocol)}")
        taus = [(row.tau, row.protocol) for ranking in others for row in ranking.values() if row.tau is not None]
        if taus:
            lines.append("furthest from *: {1} (τ between the rankings {0:.2f})".format(*min(taus)))
    tops = {id_: tests.top for id_ in by_protocol if (tests := result.comparison(id_)) is not None}
    if tops and (untested := [id_ for id_ in by_protocol if id_ not in tops]):
        listed = ", ".join(untested[:3]) + ", …" * (len(untested) > 3)
        lines.append(f"no tests under {len(untested)} of {len(by_protocol)} protocols ({listed})")
    if default in tops and len(tops) > 1:
        best, *_ = tops.pop(default)
        worse = sum(best not in top for top in tops.values())
        lines.append(
            f"{result.columns[best]}, the best under *, is significantly worse than the best under {worse} of "
            f"{len(tops)} other protocols"
        )
    return lines


def rankings_csv(result: StudyResult) -> str:
    """One line for each metric under each protocol; with tests, ``top`` marks the best and those not worse."""
    columns = ["protocol", "default", "column", "title", "value", "rank", "move", "tau", "used_by"]
    tops = {tests.protocol: tests.top for tests in result.comparisons if not tests.group}
    rows = (
        {**row.model_dump(), "title": result.columns[row.column], "used_by": " ".join(row.used_by)}
        | ({"top": row.column in tops[row.protocol] if row.protocol in tops else None} if tops else {})
        for row in result.rankings
    )
    return csv_text([*columns, *(["top"] if tops else [])], rows)
