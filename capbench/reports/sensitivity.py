"""Dependence of the ranking of metrics on the protocol, as tables and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from capbench.core.files import csv_text
from capbench.reports import methods
from capbench.reports.markup import write_files
from capbench.reports.table import USUAL_TABLE, Cell, Column, Document, Row, Table
from capbench.reports.tables import result_signatures
from capbench.studies.all_protocols import ProtocolRanking, Sensitivity, SensitivityResult
from capbench.studies.results import NO_TESTS, PAIR_COLUMNS, is_left_out
from capbench.studies.uncertainty import decided

_SYMBOLS = {
    "acc-eq-held-out": "held-out acc",
    "acc-eq": "acc-eq",
    "tau-b": "τ-b",
    "tau-c": "τ-c",
    "spearman": "ρ",
    "pearson": "r",
}


def tables(found: SensitivityResult) -> list[Table]:
    """For each data set, a table for each *items* part of its protocols."""
    made: list[Table] = []
    versioned = {info.id: info.versioned_id for info in found.result.protocols}
    for data in found.datasets:
        parts = groupby(data.protocols, key=lambda ranking: ranking.items)
        made += [_table(found, data, items, list(rankings)) for items, rankings in parts]
        legend = (
            "value, rank, and the number of ranks by which that is better (▲) or worse (▼) than under the protocol "
            f"with *: {versioned.get(data.default, data.default)}",
            *methods.legend(found.result, [(p.id, "") for p in data.protocols]),
        )
        made[-1] = replace(made[-1], answer=tuple(summary(found, data)), legend=legend)
    if made:
        made[-1] = replace(made[-1], warnings=tuple(_not_computed(found)))
    return made


def _table(found: SensitivityResult, data: Sensitivity, items: str, rankings: Sequence[ProtocolRanking]) -> Table:
    """Metrics as rows, protocols as columns; entries are value, mark, rank, and change from the default."""
    titles = {name: title for name, title in found.result.columns.items() if name in data.protocols[0].values}
    rows = [
        Row(title, tuple(Cell(_entry(found, ranking, name)) for ranking in rankings)) for name, title in titles.items()
    ]
    taus = ["–" if ranking.tau is None else f"{ranking.tau:.2f}" for ranking in rankings]
    places = [(ranking.id, "") for ranking in rankings]
    return Table(
        f"{data.title}, {items}",
        tuple(_column(ranking, ranking.id == data.default) for ranking in rankings),
        (*rows, Row("τ with *", tuple(map(Cell, taus)), "agreement")),
        notes=(
            *(f"{p.id} is the protocol of {', '.join(p.used_by)}" for p in rankings if p.used_by),
            *methods.notes(found.result, places),
        ),
    )


def _column(ranking: ProtocolRanking, is_default: bool) -> Column:
    name = ranking.statistic
    if symbol := next((symbol for symbol in _SYMBOLS if name.endswith(symbol)), ""):
        outer, inner = name.removesuffix(symbol).rstrip("-"), _SYMBOLS[symbol]
    else:
        outer, _, inner = name.partition("-") if "-" in name else ("", "", name)
    return Column(f"{inner} *" if is_default else inner, group=outer, text=True)


def _entry(found: SensitivityResult, ranking: ProtocolRanking, name: str) -> str:
    if name not in ranking.values:
        return "–"
    move, tests = ranking.moves.get(name, 0), decided(found.result, ranking.id)
    arrow = "" if move == 0 else f"▲{move}" if move > 0 else f"▼{-move}"
    # A space instead of the mark keeps ranks aligned.
    mark = "" if tests is None else methods.MARK if name in tests.top else " "
    return f"{USUAL_TABLE.number(ranking.values[name])}{mark} {ranking.ranks[name]}{arrow}"


def summary(found: SensitivityResult, data: Sensitivity) -> list[str]:
    """The main results of the tables of one data set, in a few sentences."""
    titles = found.result.columns
    others = [p for p in data.protocols if p.id != data.default]
    base = next(p for p in data.protocols if p.id == data.default)
    lines = []
    if others and len(base.ranks) > 1:
        same = sum(not any(p.moves.values()) for p in others)
        lines.append(f"{same} of {len(others)} other protocols rank the metrics as * does")
        firsts = [name for p in data.protocols for name, rank in p.ranks.items() if rank == 1]
        counts = sorted({name: -firsts.count(name) for name in firsts}.items(), key=lambda entry: entry[1])
        counted = ", ".join(f"{titles[name]} under {-count}" for name, count in counts)
        lines.append(f"first: {counted} of {len(data.protocols)}")
        if known := [(p.tau, p.id) for p in others if p.tau is not None]:
            tau, id_ = min(known)
            lines.append(f"furthest from *: {id_} (τ between the rankings {tau:.2f})")
    return [*lines, *_tested(found, data)]


def _tested(found: SensitivityResult, data: Sensitivity) -> list[str]:
    """Results of the tests of changes of rank, one line each; none if metrics were not tested."""
    if not found.result.comparisons:
        return []
    notes = {info.id: info.notes for info in found.result.protocols}
    tests = {p.id: tests for p in data.protocols if (tests := found.result.comparison(p.id)) is not None}
    untested: dict[str, list[str]] = {}
    for id_ in (p.id for p in data.protocols if p.id not in tests):
        reasons = (note.partition(NO_TESTS)[2] for note in notes[id_] if note.startswith(f"{id_}{NO_TESTS}"))
        untested.setdefault(next(reasons, ""), []).append(id_)
    lines = [
        f"no tests under {len(ids)} of {len(data.protocols)} protocols ({ids[0]}{', …' if len(ids) > 1 else ''})"
        f"{': ' + reason if reason else ''}"
        for reason, ids in untested.items()
    ]
    others = [id_ for id_ in tests if id_ != data.default]
    if data.default in tests and others:
        best = tests[data.default].top[0]
        worse = sum(best not in tests[id_].top for id_ in others)
        lines.append(
            f"{found.result.columns[best]}, the best under *, is significantly worse than the best under {worse} of "
            f"{len(others)} other protocols"
        )
    return lines


def _not_computed(found: SensitivityResult) -> list[str]:
    lines, by_reason = [], dict[str, list[str]]()
    for missing in found.result.missing:
        if missing.column:
            lines.append(f"{missing.title}{' ' if is_left_out(missing.reason) else ': requires '}{missing.reason}")
        else:
            by_reason.setdefault(missing.reason, []).append(missing.protocol)
    counted = [f"{len(ids)} protocols not computed ({ids[0]}, …): {reason}" for reason, ids in by_reason.items()]
    return [*counted, *dict.fromkeys(lines), *found.result.undefined_lines()]


def sensitivity_document(found: SensitivityResult) -> Document:
    """All tables with the signatures."""
    result, made = found.result, tables(found)
    origin = f"capbench {result.capbench}, {result.created}"
    return Document(made, "protocols", origin, result_signatures(result), result.sample)


def write_sensitivity(found: SensitivityResult, folder: Path) -> list[Path]:
    """Write ``all-protocols.{json,md,tex,csv}`` into a folder and return their paths; with tests also the CSV file
    ``all-protocols-comparisons``, one line per pair."""
    rows = found.rows()
    pairs = csv_text(PAIR_COLUMNS, found.result.pairs()) if found.result.comparisons else ""
    texts = {"all-protocols.csv": csv_text(list(rows[0]), rows), "all-protocols-comparisons.csv": pairs}
    return write_files(folder, "all-protocols", found.model_dump(mode="json"), sensitivity_document(found), texts)
