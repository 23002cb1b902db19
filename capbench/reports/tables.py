"""The one description of a results table that terminal, Markdown and LaTeX all print.

A study gives one main table, of which a column is a protocol (or, for accuracies, a group of pairs), and one
table of groups for every correlation or mean that has groups (Composite's sources, nocaps' domains).

Where metrics were tested against each other, :data:`MARK` stands at the best of a column and at all metrics that are
not significantly worse. People's agreement with each other is a row of its own and never the best.
"""

from __future__ import annotations

from dataclasses import dataclass

from capbench.reports import uncertainty
from capbench.studies.results import Ceiling, Cell, Missing, ProtocolInfo, StudyResult

__all__ = ["MARK", "Column", "Entry", "Row", "Table", "number", "tables"]

#: Stands at the best metric of a column and at those that are not significantly worse.
MARK = uncertainty.MARK


@dataclass(frozen=True)
class Column:
    """One value column.

    Attributes:
        head: its head, from the outside in (``("Composite", "τ-c")``).
        protocol: id of its protocol.
        group: the group that it shows, ``""`` for overall.
        compared: True if published numbers stand beside ours.
        percent: True if values are shown times 100.
        best: our highest number as printed, for emphasis; None if there is only one.
        tested: True if its metrics were tested against each other.
    """

    head: tuple[str, str]
    protocol: str
    group: str
    compared: bool
    percent: bool
    best: str | None = None
    tested: bool = False


@dataclass(frozen=True)
class Entry:
    """One value in print: ours, its interval, published, difference; ``""`` where there is none.

    Attributes:
        ours: the value, with its deviation over draws.
        published: what the paper prints.
        difference: ours minus published.
        interval: ``[low, high]``, with a digit less than the value.
        top: True for the best metric of a tested column and those that are not significantly worse.
    """

    ours: str = ""
    published: str = ""
    difference: str = ""
    interval: str = ""
    top: bool = False

    @property
    def marked(self) -> str:
        """Ours, with the mark right after the value where it belongs there."""
        value, space, deviation = self.ours.partition(" ")
        return f"{value}{MARK}{space}{deviation}" if self.top and value else self.ours


@dataclass(frozen=True)
class Row:
    """One metric's row: an entry for each column, or the reason why there are none."""

    title: str
    entries: tuple[Entry, ...]
    missing: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption and notes, ready to be printed.

    Attributes:
        title: its caption.
        columns: the value columns.
        rows: one for each metric.
        notes: one line each.
        ceiling: the row of people's agreement with each other, None where it is not known.
        ranks: the significance clusters of each tested column, one line each.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    ceiling: Row | None = None
    ranks: tuple[str, ...] = ()


def tables(result: StudyResult) -> list[Table]:
    """The tables of a result, the main one first.

    Correlations share one table. Accuracies have one for each data set, whose columns are the groups of
    pairs and their mean.
    """
    made = []
    correlations = [p for p in result.protocols if p.kind == "correlation"]
    if correlations:
        columns = [_column(result, p, "", (p.dataset_title, p.statistic)) for p in correlations]
        made.append(_table(result, result.title, columns, correlations))
    for info in (p for p in result.protocols if p.kind != "correlation"):
        columns = [_column(result, info, group, (info.dataset_title, group)) for group in info.groups]
        overall = "mean" if info.kind == "accuracy" and info.groups else "all"
        columns.append(_column(result, info, "", (info.dataset_title, overall)))
        title = result.title if not made else f"{info.dataset_title}, {info.statistic}"
        made.append(_table(result, title, columns, [info]))
    for info in correlations:
        if info.groups:
            columns = [_column(result, info, group, (info.dataset_title, group)) for group in info.groups]
            # The main table compares the pooled value with the paper already.
            columns.append(_column(result, info, "", (info.dataset_title, "pooled"), compare=False))
            made.append(_table(result, f"{info.dataset_title} by source, {info.statistic}", columns, [info]))
    if not made:
        made.append(_table(result, result.title, [], []))
    return made


def _column(
    result: StudyResult, info: ProtocolInfo, group: str, head: tuple[str, str], *, compare: bool = True
) -> Column:
    cells = [c for c in result.cells if c.protocol == info.id and c.group == group]
    percent = info.kind == "accuracy"
    printed_elsewhere = any(f"{info.id}|{group}" in m.published for m in result.missing)
    best = None
    if info.kind != "mean" and len(cells) > 1:
        best = number(max(c.value for c in cells), percent)
    return Column(
        head,
        info.id,
        group,
        compared=compare and (printed_elsewhere or any(c.published is not None for c in cells)),
        percent=percent,
        best=best,
        tested=result.comparison(info.id, group) is not None,
    )


def number(value: float, percent: bool) -> str:
    """A statistic in print: four digits, or two of a percentage."""
    return f"{100 * value:.2f}" if percent else f"{value:.4f}"


def _interval(cell: Cell | Ceiling, percent: bool) -> str:
    if cell.low is None or cell.high is None:
        return ""
    low, high = (f"{100 * end:.1f}" if percent else f"{end:.3f}" for end in (cell.low, cell.high))
    return f"[{low}, {high}]"


def _entry(cell: Cell | None, column: Column, missing: Missing | None, top: bool) -> Entry:
    if cell is None:
        return Entry(
            published="" if missing is None else missing.published.get(f"{column.protocol}|{column.group}", "")
        )
    scale = 100 if column.percent else 1
    ours = number(cell.value, column.percent)
    if cell.sd is not None:
        ours += f" ±{number(cell.sd, column.percent)}"
    if cell.published is None:
        return Entry(ours, interval=_interval(cell, column.percent), top=top)
    digits = cell.published_digits if cell.published_digits is not None else 4
    published = f"{scale * cell.published:.{digits}f}"
    if cell.published_sd is not None:
        published += f" ±{scale * cell.published_sd:.{digits}f}"
    if cell.published_note:
        published += "*"
    difference = scale * (cell.value - cell.published)
    signed = f"{difference:+.2f}" if column.percent else f"{difference:+.4f}"
    return Entry(ours, published, signed, _interval(cell, column.percent), top)


def _table(result: StudyResult, title: str, columns: list[Column], infos: list[ProtocolInfo]) -> Table:
    by_column = {m.column: m for m in result.missing if m.column}
    rows = []
    for column_name, row_title in result.columns.items():
        missing = by_column.get(column_name)
        entries = tuple(
            _entry(result.cell(c.protocol, column_name, c.group), c, missing, _is_top(result, c, column_name))
            for c in columns
        )
        rows.append(Row(row_title, entries, "" if missing is None else missing.reason))
    notes = (*_notes(result, infos, columns), *uncertainty.notes(result, [(c.protocol, c.group) for c in columns]))
    ranks = tuple(
        f"{' '.join(part for part in column.head if part)}: {uncertainty.ranks(result, found)}"
        for column in columns
        if (found := result.comparison(column.protocol, column.group)) is not None
    )
    return Table(title, tuple(columns), tuple(rows), notes, _ceiling(result, columns), ranks)


def _is_top(result: StudyResult, column: Column, name: str) -> bool:
    found = result.comparison(column.protocol, column.group)
    return found is not None and name in found.top


def _ceiling(result: StudyResult, columns: list[Column]) -> Row | None:
    found = [result.ceiling(column.protocol, column.group) for column in columns]
    if not any(found):
        return None
    entries = tuple(
        Entry()
        if ceiling is None
        else Entry(number(ceiling.value, column.percent), interval=_interval(ceiling, column.percent))
        for ceiling, column in zip(found, columns, strict=True)
    )
    return Row("human ceiling", entries)


def _notes(result: StudyResult, infos: list[ProtocolInfo], columns: list[Column]) -> tuple[str, ...]:
    notes = []
    for info in infos:
        shown = [c for c in result.cells if c.protocol == info.id and c.group == ""]
        n = shown[0].n if shown else 0
        what = {"correlation": "ratings", "accuracy": "pairs", "mean": "captions"}[info.kind]
        draws = f", {info.draws} draws" if info.draws > 1 else ""
        units = "" if info.bootstrap is None else f", {info.bootstrap.units:,} {info.bootstrap.unit}s are resampled"
        notes.append(f"{info.id}: {n:,} {what} of {info.n_items:,} items{draws}{units}")
        chances = sorted({f"{100 * c.chance:.1f}" for c in shown if c.chance is not None})
        if chances:
            notes.append(f"chance under this tie rule: {' to '.join(dict.fromkeys((chances[0], chances[-1])))} %")
        notes += info.notes
    if any(c.compared for c in columns):
        notes.append(f"published: {result.published}")
        notes += _models(result)
    compared = {(column.protocol, column.group) for column in columns if column.compared}
    for cell in result.cells:
        if cell.published_note and (cell.protocol, cell.group) in compared:
            notes.append(f"* {cell.title} on {_where(result, cell)}: {cell.published_note}")
    return tuple(dict.fromkeys(notes))


def _models(result: StudyResult) -> list[str]:
    """Trained metrics with numbers beside published ones: whose weights they are."""
    notes = []
    for metric in dict.fromkeys(cell.metric for cell in result.cells if cell.published is not None):
        lines = [signatures[metric] for signatures in result.signatures.values() if metric in signatures]
        names = {part.removeprefix("model:") for line in lines for part in line.split("|") if part.startswith("model:")}
        if names:
            titles = dict.fromkeys(cell.title for cell in result.cells if cell.metric == metric)
            named = f"{', '.join(titles)}: by the model {', '.join(sorted(names))} that was given"
            notes.append(f"{named}; the published numbers are of the authors' own")
    return notes


def _where(result: StudyResult, cell: Cell) -> str:
    info = next(p for p in result.protocols if p.id == cell.protocol)
    return f"{info.dataset_title}{f' {cell.group}' if cell.group else ''}, {info.statistic}"
