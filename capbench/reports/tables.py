"""The one description of a results table that terminal, Markdown and LaTeX all print.

A study gives one main table, of which a column is a protocol (or, for accuracies, a group of pairs), and one
table of groups for every correlation or mean that has groups (Composite's sources, nocaps' domains).

Where metrics were tested against each other, :data:`MARK` stands at the best of a column and at all metrics that are
not significantly worse. People's agreement with each other is a row of its own and never the best.

Published numbers stand beside ours; rows that only the paper has come below, and columns that none of ours is have a
table of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from capbench.reports import published, uncertainty
from capbench.reports.heads import details
from capbench.reports.table_records import Column, Entry, Row, Table
from capbench.studies.published.printed import PrintedColumn, PrintedNumber, tells_no_reason
from capbench.studies.results import OURS, Ceiling, Cell, Missing, ProtocolInfo, StudyResult

__all__ = ["MARK", "PUBLISHED_ONLY", "number", "tables"]

#: Stands at the best metric of a column and at those that are not significantly worse.
MARK = uncertainty.MARK
#: Head of the rows that only the paper has.
PUBLISHED_ONLY = "published only"


def tables(result: StudyResult, *, by_source: bool = True) -> list[Table]:
    """The tables of a result, the main one first.

    Correlations share one table. Accuracies have one for each data set, whose columns are the groups of
    pairs and their mean. Published columns that none of ours is come last.

    Args:
        result: the result.
        by_source: False without the tables of a correlation's groups (Composite's sources, nocaps' domains).
    """
    builder = _Builder(result, details(result.protocols))
    correlations = [p for p in result.protocols if p.kind == "correlation"]
    if correlations:
        builder.add(result.title, [builder.column(p, "", p.statistic) for p in correlations], correlations)
    for info in (p for p in result.protocols if p.kind != "correlation"):
        columns = [builder.column(info, group, group) for group in builder.groups(info)]
        overall = "mean" if info.kind == "accuracy" and columns else "all"
        columns.append(builder.column(info, "", overall))
        title = ", ".join(word for word in (info.dataset_title, builder.details[info.id], info.statistic) if word)
        builder.add(title if builder.made else result.title, columns, [info])
    for info in correlations if by_source else ():
        groups = builder.groups(info)
        if groups:
            columns = [builder.column(info, group, group) for group in groups]
            # The main table compares the pooled value with the paper already.
            columns.append(builder.column(info, "", "pooled", compare=False))
            source = ", ".join(word for word in (info.dataset_title, builder.details[info.id]) if word)
            # The title says which protocol it is; the heads need not.
            columns = [replace(column, detail="") for column in columns]
            builder.add(f"{source} by source, {info.statistic}", columns, [info])
    unplaced = published.unplaced(result)
    if not result.protocols and (result.columns or not unplaced):
        builder.add(result.title, [], [])
    for title, printed in unplaced.items():
        builder.add_unplaced(title if builder.made else f"{result.title}. {title}", printed)
    return builder.made


def number(value: float, percent: bool) -> str:
    """A statistic in print: four digits, or two of a percentage."""
    return f"{100 * value:.2f}" if percent else f"{value:.4f}"


@dataclass
class _Builder:
    """Makes the tables of one result.

    Attributes:
        result: the result.
        details: what tells protocols with the same head apart, by id.
        made: the tables so far.
        remarked: True once a table carries the remarks on the whole published table.
    """

    result: StudyResult
    details: dict[str, str]
    made: list[Table] = field(default_factory=list)
    remarked: bool = False

    def groups(self, info: ProtocolInfo) -> tuple[str, ...]:
        """Groups of a protocol that there are numbers of: ours or published ones."""
        table = self.result.published_table
        printed = [] if table is None else [c.group for c in table.columns if c.protocol == info.id and c.group]
        return tuple(dict.fromkeys((*info.groups, *printed)))

    def column(self, info: ProtocolInfo, group: str, inner: str, *, compare: bool = True) -> Column:
        result = self.result
        cells = [c for c in result.cells if c.protocol == info.id and c.group == group]
        percent = info.kind == "accuracy"
        printed = result.published_table is not None and result.published_table.column(info.id, group) is not None
        waiting = any(f"{info.id}|{group}" in missing.published for missing in result.missing)
        best = None
        if info.kind != "mean" and len(cells) > 1:
            best = number(max(c.value for c in cells), percent)
        detail = self.details[info.id]
        title = f"{info.dataset_title}{f' ({detail})' if detail else ''}"
        return Column(
            (info.dataset_title, inner),
            info.id,
            group,
            compared=compare and (printed or waiting or any(c.published is not None for c in cells)),
            percent=percent,
            best=best,
            tested=result.comparison(info.id, group) is not None,
            detail=detail,
            where=f"{title}{f' {group}' if group else ''}, {info.statistic}",
        )

    def add(self, title: str, columns: list[Column], infos: list[ProtocolInfo]) -> None:
        """Make the table of some columns of ours."""
        result = self.result
        if result.stand_in and OURS not in title:
            title = f"{title} ({OURS})"
        missing_by_row = {missing.column: missing for missing in result.missing if missing.column}
        rows = []
        for name, row_title in result.columns.items():
            missing = missing_by_row.get(name)
            entries = tuple(self._entry(name, column, missing) for column in columns)
            rows.append(Row(row_title, entries, "" if missing is None else missing.reason))
        only = self._published_only(columns)
        places = [(column.protocol, column.group) for column in columns]
        notes = [
            *_sizes(result, infos),
            *self._published_notes(columns, [*rows, *only]),
            *uncertainty.notes(result, places),
        ]
        ranks = tuple(
            f"{column.name}: {uncertainty.ranks(result, tests)}"
            for column in columns
            if (tests := result.comparison(column.protocol, column.group)) is not None
        )
        ceiling = _ceiling(result, columns)
        compared = any(column.compared for column in columns)
        footnotes = _footnotes(columns, [*rows, *only]) if compared else []
        self.made.append(
            Table(
                title,
                tuple(columns),
                tuple(rows),
                tuple(dict.fromkeys(notes)),
                ceiling,
                ranks,
                tuple(only),
                tuple(footnotes),
            )
        )

    def add_unplaced(self, title: str, printed: list[PrintedColumn]) -> None:
        """Make the table of published columns that none of ours is."""
        columns = [
            Column(
                ("", column.head),
                column.protocol or "",
                column.group,
                compared=False,
                percent=column.unit == "percent",
                where=column.head,
                published_alone=True,
            )
            for column in printed
        ]
        rows = self._printed_rows(printed)
        footnotes = _footnotes(columns, rows)
        notes = [f"published: {self.result.published}", *self._remarks(), *footnotes]
        self.made.append(Table(title, tuple(columns), tuple(rows), tuple(notes), footnotes=tuple(footnotes)))

    def _entry(self, name: str, column: Column, missing: Missing | None) -> Entry:
        result = self.result
        cell = result.cell(column.protocol, name, column.group)
        if cell is not None:
            tests = result.comparison(column.protocol, column.group)
            return _cell_entry(cell, column, tests is not None and name in tests.top)
        if not column.compared:
            return Entry()
        if result.published_table is not None:
            return _printed_entry(result.published_table.number(name, column.protocol, column.group))
        return Entry(
            published="" if missing is None else missing.published.get(f"{column.protocol}|{column.group}", "")
        )

    def _published_only(self, columns: list[Column]) -> list[Row]:
        """Rows of the paper that are none of ours and have a number under one of the columns."""
        table = self.result.published_table
        if table is None:
            return []
        return self._printed_rows(
            [table.column(c.protocol, c.group) if c.compared else None for c in columns], only=True
        )

    def _printed_rows(self, columns: Sequence[PrintedColumn | None], *, only: bool = False) -> list[Row]:
        """Rows of the paper that have a number in one of the columns, in print order; ``only`` those that none of ours
        is."""
        table = self.result.published_table
        rows = []
        for printed in [] if table is None else table.rows:
            numbers = {number.column: number for number in printed.numbers}
            entries = tuple(_printed_entry(None if column is None else numbers.get(column.key)) for column in columns)
            if any(entry.published for entry in entries) and not (only and printed.rows):
                rows.append(Row(printed.title, entries))
        return rows

    def _published_notes(self, columns: list[Column], rows: list[Row]) -> list[str]:
        compared = [column for column in columns if column.compared]
        if not compared:
            return [] if self.made else published.no_numbers(self.result)
        return [
            f"published: {self.result.published}",
            *published.basis(self.result, [(c.protocol, c.group, c.name) for c in compared]),
            *published.own_models(self.result),
            *self._remarks(),
            *_footnotes(columns, rows),
        ]

    def _remarks(self) -> list[str]:
        """The remarks on the whole published table, once."""
        lines = [] if self.remarked else published.remarks(self.result)
        self.remarked = True
        return lines


def _footnotes(columns: list[Column], rows: list[Row]) -> list[str]:
    noted: dict[str, list[str]] = {}
    unexplained: list[str] = []
    for index, column in enumerate(columns):
        for row in rows:
            entry = row.entries[index]
            if entry.note:
                noted.setdefault(entry.note, []).append(f"{row.title} on {column.where}")
            elif entry.unexplained:
                unexplained.append(f"{row.title} on {column.where}")
    return published.footnotes(noted, unexplained)


def _interval(cell: Cell | Ceiling, percent: bool) -> str:
    if cell.low is None or cell.high is None:
        return ""
    low, high = (f"{100 * end:.1f}" if percent else f"{end:.3f}" for end in (cell.low, cell.high))
    return f"[{low}, {high}]"


def _printed_entry(printed: PrintedNumber | None) -> Entry:
    if printed is None:
        return Entry()
    return Entry(published=_noted(printed.printed, printed.note, unexplained=False), note=printed.note or "")


def _noted(printed: str, note: str | None, *, unexplained: bool) -> str:
    """A published number with its footnote mark, in the form of ours (``50.9 ±0.70``)."""
    mark = published.UNEXPLAINED if unexplained or tells_no_reason(note or "") else "*" if note else ""
    return printed.replace("± ", "±") + mark


def _cell_entry(cell: Cell, column: Column, top: bool) -> Entry:
    scale = 100 if column.percent else 1
    ours = number(cell.value, column.percent)
    if cell.sd is not None:
        ours += f" ±{number(cell.sd, column.percent)}"
    if cell.published is None or not column.compared:
        return Entry(ours, interval=_interval(cell, column.percent), top=top)
    printed = cell.published_printed
    if printed is None:
        digits = cell.published_digits if cell.published_digits is not None else 4
        printed = f"{scale * cell.published:.{digits}f}"
        if cell.published_sd is not None:
            printed += f" ±{scale * cell.published_sd:.{digits}f}"
    difference = scale * (cell.value - cell.published)
    return Entry(
        ours,
        _noted(printed, cell.published_note, unexplained=cell.unexplained),
        f"{difference:+.2f}" if column.percent else f"{difference:+.4f}",
        _interval(cell, column.percent),
        top,
        cell.published_note or "",
        cell.unexplained,
    )


def _ceiling(result: StudyResult, columns: list[Column]) -> Row | None:
    ceilings = [result.ceiling(column.protocol, column.group) for column in columns]
    if not any(ceilings):
        return None
    entries = tuple(
        Entry()
        if ceiling is None
        else Entry(number(ceiling.value, column.percent), interval=_interval(ceiling, column.percent))
        for ceiling, column in zip(ceilings, columns, strict=True)
    )
    return Row("human ceiling", entries)


def _sizes(result: StudyResult, infos: list[ProtocolInfo]) -> list[str]:
    """How much data is behind each protocol, and what was left out."""
    notes = []
    for info in infos:
        cells = [c for c in result.cells if c.protocol == info.id and c.group == ""]
        # Labels of statistics within images and over systems begin so; results of any version have them.
        points = {"within-image": "captions", "system": "systems"}.get(info.statistic.partition(" ")[0], "ratings")
        what = {"correlation": points, "accuracy": "pairs", "mean": "captions"}[info.kind]
        size = f"{cells[0].n:,} {what} of {info.n_items:,} items" if cells else f"{info.n_items:,} items"
        draws = f", {info.draws} draws" if info.draws > 1 else ""
        units = "" if info.bootstrap is None else f", {info.bootstrap.units:,} {info.bootstrap.unit}s are resampled"
        notes.append(f"{info.versioned_id}: {size}{draws}{units}")
        chances = sorted({f"{100 * c.chance:.1f}" for c in cells if c.chance is not None})
        if chances:
            notes.append(f"chance under this tie rule: {' to '.join(dict.fromkeys((chances[0], chances[-1])))} %")
        notes += info.notes
    return notes
