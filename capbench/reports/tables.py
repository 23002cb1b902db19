"""Results tables: the structure that terminal, Markdown, LaTeX, CSV and HTML print. Only differences are computed.

A study has one main table, whose columns are protocols (or, for accuracies, groups of pairs), and one table of groups
for every correlation or mean with groups (Composite's sources, nocaps' domains).

If metrics were tested against each other, :data:`MARK` marks the best metric of a column and all metrics that are not
significantly worse. The human ceiling is a separate row and never the best, and so are sentinels; :data:`SENTINEL_MARK`
marks metrics that are not significantly better than every sentinel, :data:`READ_MARK` those whose training has read
captions on which they are tested.

Published numbers are printed next to ours. Rows that only the paper has follow below; published columns without one of
ours form a separate table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from capbench.datasets.protocol import with_version
from capbench.reports import uncertainty
from capbench.reports.table import USUAL_TABLE, Column, Entry, Row, Table, TableStyle, number
from capbench.reports.uncertainty import MARK, READ_NOTE, SENTINEL_MARK
from capbench.studies.published.tables import PrintedNumber, PublishedColumn, given_parts, rescaled, tells_no_reason
from capbench.studies.results import OURS, Cell, ProtocolInfo, StudyResult

# Column headings.


def details(protocols: Sequence[ProtocolInfo]) -> dict[str, str]:
    """By protocol id, the part of the id that distinguishes protocols of the same data set and statistic.

    It is ``""`` if title and statistic are sufficient, else the items, the statistic's full name, or both; also the
    data set if two of them have the same title.
    """
    alike: dict[tuple[str, str], list[ProtocolInfo]] = {}
    for info in protocols:
        alike.setdefault((info.dataset_title, info.statistic), []).append(info)
    shown = {}
    for infos in alike.values():
        parts = [info.id.split("/") for info in infos]
        differing = [place for place in range(len(parts[0])) if len({names[place] for names in parts}) > 1]
        for info, names in zip(infos, parts, strict=True):
            shown[info.id] = ", ".join(names[place] for place in differing)
    return shown


# Notes about the published table.

UNEXPLAINED = "?"
"""Mark of a published number that differs from ours for no known reason."""
NOT_EXPLAINED = (
    "not explained, ours differs in the printed digits and, where references are drawn, by more than three standard "
    "errors"
)

_BASES = {
    "stated": "stated by the paper",
    "reproduced": "inferred: it reproduces the other numbers of this column",
    "inferred": "inferred: it fits best",
}


def basis(result: StudyResult, columns: Iterable[tuple[str, str, str]]) -> list[str]:
    """The evidence for the protocols of compared columns: one line, and one for each column with a remark.

    Args:
        result: the result.
        columns: protocol, group and head of each compared column.
    """
    if result.published_table is None:
        return []
    heads: dict[str, list[str]] = {}
    remarks = []
    for protocol, group, head in columns:
        printed = result.published_table.column(protocol, group)
        if printed is not None and printed.basis is not None:
            heads.setdefault(_BASES[printed.basis], []).append(head)
        if printed is not None and printed.note:
            remarks.append(f"published {head}: {printed.note}")
    known = [
        f"protocol {how}" if len(heads) == 1 else f"protocol of {', '.join(of)} {how}" for how, of in heads.items()
    ]
    return [*known, *remarks]


def remarks(result: StudyResult) -> list[str]:
    """Remarks of the published file on the whole table, and its cited, reference-free and trained rows."""
    if result.published_table is None:
        return []
    rows = result.published_table.rows
    kinds = {
        "rows that the paper cites from other papers": [row.title for row in rows if row.cited],
        "read no references": [row.title for row in rows if row.reads_references is False],
        "trained on human ratings": [row.title for row in rows if row.uses_ratings],
    }
    named = (f"{kind}: {', '.join(dict.fromkeys(titles))}" for kind, titles in kinds.items() if titles)
    return [*result.published_table.notes, *named]


def own_models(result: StudyResult) -> list[str]:
    """Notes on numbers with another model, features or vectors than the published ones; one line each."""
    titles: dict[str, dict[str, None]] = {}
    labels: dict[str, set[str]] = {}
    for cell in result.cells:
        if cell.published is None:
            continue
        for parts in given_parts(result.signatures, cell.label or cell.metric, result.published_table):
            titles.setdefault(_computed_with(parts), {})[cell.title] = None
            labels.setdefault(_computed_with(parts), set()).add(cell.label or cell.metric)
    return [
        f"{', '.join(names)}: {parts}"
        # Otherwise rows of variants would look as if each variant had been computed.
        + (
            "; these rows share it: --model LABEL=FILE selects a separate model for a row"
            if len(labels[parts]) > 1 and parts.startswith("computed with the model")
            else ""
        )
        for parts, names in titles.items()
    ]


def _computed_with(parts: Mapping[str, str]) -> str:
    """The model, features or vectors behind a number."""
    if "model" in parts:
        model = parts["model"]
        note = "" if "+" in model else " (one network, one seed)"
        return (
            f"computed with the model {model}{note}, which is not the "
            "paper's; the published numbers are those of the authors' model"
        )
    inputs = " and ".join(
        text
        for text in (
            f"the features {parts['features'].partition('+')[0]}" if "features" in parts else "",
            f"the word vectors {parts['vectors']}" if "vectors" in parts else "",
        )
        if text
    )
    return f"computed with {inputs}, which may differ from the paper's"


def by_own_model(result: StudyResult, cell: Cell) -> bool:
    """True if a number next to a published one was computed with another network, other features or vectors."""
    given = given_parts(result.signatures, cell.label or cell.metric, result.published_table)
    return cell.published is not None and bool(given)


def footnotes(noted: Mapping[str, Sequence[str]], unexplained: Sequence[str]) -> list[str]:
    """One line for each remark on numbers, with all numbers concerned, and one for differences without explanation.

    Args:
        noted: names of numbers (row and column) by remark.
        unexplained: names of numbers that differ for no known reason.
    """
    lines = [
        f"{UNEXPLAINED if tells_no_reason(note) else '*'} {'; '.join(names)}: {note}" for note, names in noted.items()
    ]
    if unexplained:
        lines.append(f"{UNEXPLAINED} {NOT_EXPLAINED}: {'; '.join(unexplained)}")
    return lines


def no_numbers(result: StudyResult) -> list[str]:
    """One line on a published table whose file has no numbers."""
    table = result.published_table
    return [] if table is None or table.missing is None else [f"published: {table.source}: no numbers. {table.missing}"]


def unplaced_columns(result: StudyResult) -> dict[str, list[PublishedColumn]]:
    """Published columns with numbers that are not next to one of ours, by the reason."""
    table = result.published_table
    if table is None:
        return {}
    whole = {info.id: info.n_items_whole is None for info in result.protocols}
    with_numbers = {number.column for row in table.rows for number in row.numbers}
    columns: dict[str, list[PublishedColumn]] = {}
    for column in table.columns:
        if column.key in with_numbers and not whole.get(column.protocol or "", False):
            reason = "no protocol of ours" if column.protocol is None else "data not available"
            if column.protocol in whole:
                reason = "not compared: ours uses a part of the items (--allow-missing)"
            columns.setdefault(f"Published, {reason}", []).append(column)
    return columns


PUBLISHED_ONLY = "published only"
"""Heading of the rows that only the paper has."""


def tables(result: StudyResult, *, by_source: bool = True, style: TableStyle = USUAL_TABLE) -> list[Table]:
    """The tables of a result, the main one first.

    Correlations share one table. Each data set with accuracies has its own, whose columns are the groups of pairs and
    their mean. Published columns without one of ours are last.

    Args:
        result: the result.
        by_source: False to omit the tables of a correlation's groups (Composite's sources, nocaps' domains).
        style: the user's choices. A table without any chosen column is omitted.

    Raises:
        UsageError: no table has a column of this name.
    """
    builder = _Builder(result, details(result.protocols), style)
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
            # The main table already compares the pooled value with the paper.
            columns.append(builder.column(info, "", "pooled", compare=False))
            source = ", ".join(word for word in (info.dataset_title, builder.details[info.id]) if word)
            # The title names the protocol; the heads need not.
            columns = [replace(column, detail="") for column in columns]
            what = "group" if info.level == "pairs" else "source"
            builder.add(f"{source} by {what}, {info.statistic}", columns, [info])
    unplaced = unplaced_columns(result)
    if not result.protocols and (result.columns or not unplaced):
        builder.add(result.title, [], [])
    for title, printed in unplaced.items():
        builder.add_unplaced(title if builder.made else f"{result.title}. {title}", printed)
    style.check(builder.offered)
    return builder.made


@dataclass
class _Builder:
    """Builds the tables of one result.

    Attributes:
        result: the result.
        details: distinguishing parts of protocol ids, by id (:func:`details`).
        style: the user's choices.
        made: the tables so far.
        offered: their columns, and those that were not chosen.
        remarked: True once a table has the remarks on the whole published table.
    """

    result: StudyResult
    details: dict[str, str]
    style: TableStyle = USUAL_TABLE
    made: list[Table] = field(default_factory=list)
    offered: list[Column] = field(default_factory=list)
    remarked: bool = False

    def groups(self, info: ProtocolInfo) -> tuple[str, ...]:
        """Groups of a protocol with numbers: ours or published ones."""
        table = self.result.published_table
        of_table = [] if table is None or info.n_items_whole is not None else table.columns
        printed = [c.group for c in of_table if c.protocol == info.id and c.group]
        return tuple(dict.fromkeys((*info.groups, *printed)))

    def column(self, info: ProtocolInfo, group: str, inner: str, *, compare: bool = True) -> Column:
        result = self.result
        cells = [c for c in result.cells if c.protocol == info.id and c.group == group]
        percent = self.style.scale(info.kind == "accuracy")
        compare = compare and info.n_items_whole is None
        printed = result.published_table is not None and result.published_table.column(info.id, group) is not None
        best = None
        if self.style.bold and info.kind != "mean" and len(cells) > 1:
            values = [c.value for c in cells if c.value is not None]
            best = number(max(values), percent, self.style.digits) if len(values) > 1 else None
        tested = uncertainty.decided(result, info.id, group) is not None
        detail = self.details[info.id]
        title = f"{info.dataset_title}{f' ({detail})' if detail else ''}"
        return Column(
            (info.dataset_title, inner),
            info.id,
            group,
            compared=compare and (printed or any(c.published is not None for c in cells)),
            percent=percent,
            best=best,
            tested=tested,
            marks=self.style.daggers * (tested + bool(uncertainty.no_better(result, info.id, group)))
            + any(result.has_read(info.id, cell.label or cell.metric, group) for cell in cells),
            detail=detail,
            where=f"{title}{f' {group}' if group else ''}, {info.statistic}",
            rescaled=self.style.rescaled(info.kind == "accuracy"),
        )

    def add(self, title: str, columns: list[Column], infos: list[ProtocolInfo]) -> None:
        """Build the table of some columns of ours, if the user chose any of them."""
        result = self.result
        self.offered += columns
        if not (chosen := self.style.chosen(columns)) and columns:
            return
        columns = chosen
        infos = [info for info in infos if any(column.protocol == info.id for column in columns)]
        if result.stand_in and OURS not in title:
            title = f"{title} ({OURS})"
        missing_by_row = {missing.column: missing for missing in result.missing if missing.column}
        rows = []
        for name, row_title in result.columns.items():
            missing = missing_by_row.get(name)
            entries = tuple(self._entry(name, column) for column in columns)
            rows.append(Row(row_title, entries, "" if missing is None else missing.reason))
        only = self._published_only(columns)
        sentinels = self._sentinels(columns)
        places = [(column.protocol, column.group) for column in columns]
        shown = set().union(*(made.protocols for made in self.made))
        first = [info for info in infos if info.id not in shown]  # tables by source follow that of all items
        answer = [line for info in first for line in _answer(result, info)]
        notes = [
            *answer,
            *_practices(result, first, self.style),
            *_sizes(result, infos),
            *_undefined(columns, rows),
            *_undefined_sentinels(columns, sentinels),
            *self._published_notes(columns, [*rows, *only]),
            *uncertainty.notes(result, places),
            *([READ_NOTE] if any(entry.has_read for row in rows for entry in row.entries) else []),
        ]
        notes = [note for note in notes if self._shows(note)]
        ranks = tuple(
            f"{column.name}: {uncertainty.ranks(result, tests)}"
            for column in columns
            if (tests := uncertainty.decided(result, column.protocol, column.group)) is not None
            and (column.group or result.answer(column.protocol) is None)  # an answer has its groups in words
        )
        ranks += _raters(result, columns, self.style)
        ceiling = self._ceiling(columns)
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
                tuple(answer),
                tuple(sentinels),
            )
        )

    def _shows(self, note: str) -> bool:
        """False for a note on marks or intervals that the user does not want."""
        unwanted = () if self.style.daggers else (MARK, SENTINEL_MARK)
        return not note.startswith((*unwanted, *(() if self.style.intervals else ("[low, high]",))))

    def add_unplaced(self, title: str, printed: list[PublishedColumn]) -> None:
        """Build the table of published columns without one of ours."""
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
        self.offered += columns
        chosen = self.style.chosen(columns)
        printed = [printed[columns.index(column)] for column in chosen]
        if not (columns := chosen):
            return
        rows = self._printed_rows(printed)
        footnotes = _footnotes(columns, rows)
        notes = [f"published: {self.result.published}", *self._remarks(), *footnotes]
        self.made.append(Table(title, tuple(columns), tuple(rows), tuple(notes), footnotes=tuple(footnotes)))

    def _entry(self, name: str, column: Column) -> Entry:
        result = self.result
        cell = result.cell(column.protocol, name, column.group)
        if cell is not None:
            tests = uncertainty.decided(result, column.protocol, column.group)
            entry = _cell_entry(cell, column, self.style, tests is not None and name in tests.top)
            no_better = uncertainty.no_better(result, column.protocol, column.group)
            has_read = result.has_read(column.protocol, cell.label or cell.metric, column.group)
            is_marked = self.style.daggers and name in no_better
            return replace(entry, no_better=is_marked, has_read=has_read and bool(entry.ours))
        if not column.compared or result.published_table is None:
            return Entry()
        return _printed_entry(result.published_table.number(name, column.protocol, column.group), column.rescaled)

    def _sentinels(self, columns: list[Column]) -> list[Row]:
        """A row for each sentinel with a number or a reason in one of the columns."""
        of_columns = [self.result.sentinels_of(column.protocol) for column in columns]
        names = dict.fromkeys(cell.column for one in of_columns if one is not None for cell in one.cells)
        rows = []
        for name in names:
            cells = [
                None if one is None else one.cell(name, column.group)
                for one, column in zip(of_columns, columns, strict=True)
            ]
            entries = tuple(
                Entry() if cell is None else _cell_entry(cell, column, self.style)
                for cell, column in zip(cells, columns, strict=True)
            )
            rows.append(Row(uncertainty.sentinel_title(name), entries))
        return rows

    def _ceiling(self, columns: list[Column]) -> Row | None:
        """The row of the human ceiling; None if it is unknown in all columns."""
        ceilings = [self.result.ceiling(column.protocol, column.group) for column in columns]
        if not any(ceilings):
            return None
        entries = tuple(
            Entry()
            if ceiling is None
            else Entry(
                self.style.number(ceiling.value, column.percent),
                interval=self.style.interval(ceiling.low, ceiling.high, column.percent),
            )
            for ceiling, column in zip(ceilings, columns, strict=True)
        )
        return Row("human ceiling", entries)

    def _published_only(self, columns: list[Column]) -> list[Row]:
        """Rows that only the paper has, with a number in one of the columns."""
        table = self.result.published_table
        if table is None:
            return []
        printed = [table.column(c.protocol, c.group) if c.compared else None for c in columns]
        return self._printed_rows(printed, [column.rescaled for column in columns], only=True)

    def _printed_rows(
        self, columns: Sequence[PublishedColumn | None], places: Sequence[int] = (), *, only: bool = False
    ) -> list[Row]:
        """Rows of the paper with a number in one of the columns, in print order, times ten to the power of ``places``;
        with ``only``, those that the study does not have."""
        table = self.result.published_table
        rows = []
        for printed in [] if table is None else table.rows:
            numbers = {number.column: number for number in printed.numbers}
            entries = tuple(
                _printed_entry(None if column is None else numbers.get(column.key), power)
                for column, power in zip(columns, places or [0] * len(columns), strict=True)
            )
            if any(entry.published for entry in entries) and not (only and printed.rows):
                rows.append(Row(printed.title, entries))
        return rows

    def _published_notes(self, columns: list[Column], rows: list[Row]) -> list[str]:
        compared = [column for column in columns if column.compared]
        if not compared:
            return [] if self.made else no_numbers(self.result)
        return [
            f"published: {self.result.published}",
            *basis(self.result, [(c.protocol, c.group, c.name) for c in compared]),
            *own_models(self.result),
            *self._remarks(),
            *_footnotes(columns, rows),
        ]

    def _remarks(self) -> list[str]:
        """The remarks on the whole published table, once."""
        lines = [] if self.remarked else remarks(self.result)
        self.remarked = True
        return lines


def _practices(result: StudyResult, infos: list[ProtocolInfo], style: TableStyle) -> list[str]:
    """The papers that use another protocol, with the other numbers; a line for each."""
    lines = []
    for info in infos:
        for practice in (one for one in result.practices if one.protocol == info.id):
            percent = style.scale(info.kind == "accuracy")
            values = [
                f"{result.columns[column]} {style.number(practice.values[column], percent)}"
                for column in result.columns
                if column in practice.values
            ]
            other = with_version(practice.other, info.version)
            lines.append(f"{practice.other_used_by} use {other}: {', '.join(values)}")
    return lines


def _answer(result: StudyResult, info: ProtocolInfo) -> list[str]:
    """The sentences on the best metric; with the protocol if there are several."""
    answer = result.answer(info.id)
    text = () if answer is None else answer.text
    return [f"{info.versioned_id}: {line}" for line in text] if len(result.answers) > 1 else [*text]


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
    return footnotes(noted, unexplained)


def _undefined(columns: list[Column], rows: list[Row]) -> list[str]:
    """One line for each reason why a number of ours could not be computed, with all its places."""
    places: dict[tuple[str, str], list[str]] = {}
    for index, column in enumerate(columns):
        for row in rows:
            entry = row.entries[index]
            if entry.undefined:
                places.setdefault((entry.instead, entry.undefined), []).append(f"{row.title} on {column.where}")
    return [f"{instead}: {'; '.join(names)}: {reason}" for (instead, reason), names in places.items()]


def _raters(result: StudyResult, columns: list[Column], style: TableStyle) -> tuple[str, ...]:
    """The place of human raters among the metrics of each column, one line each."""
    lines = []
    for column in columns:
        sentinels = result.sentinels_of(column.protocol)
        raters = None if sentinels is None else sentinels.raters_of(column.group)
        if raters is not None:
            value = style.number(raters.value, column.percent)
            lines.append(f"{column.name}: {uncertainty.rater_note(raters, result.columns, value)}")
    return tuple(lines)


def _undefined_sentinels(columns: list[Column], rows: list[Row]) -> list[str]:
    """As :func:`_undefined`; a sentinel that is undefined in all columns for one reason has no list of columns."""
    lines = []
    for row in rows:
        reasons = {entry.undefined for entry in row.entries}
        reason = reasons.pop() if len(reasons) == 1 else ""
        lines += [f"undefined: {row.title}: {reason}"] if reason else _undefined(columns, [row])
    return lines


def _printed_entry(printed: PrintedNumber | None, power: int = 0) -> Entry:
    if printed is None:
        return Entry()
    text = rescaled(printed.printed, power)
    return Entry(published=_noted(text, printed.note, unexplained=False), note=printed.note or "")


def _noted(printed: str, note: str | None, *, unexplained: bool) -> str:
    """A published number with its footnote mark, in our format (``50.9 ±0.70``)."""
    mark = UNEXPLAINED if unexplained or tells_no_reason(note or "") else "*" if note else ""
    return printed.replace("± ", "±") + mark


def _cell_entry(cell: Cell, column: Column, style: TableStyle, top: bool = False) -> Entry:
    interval = style.interval(cell.low, cell.high, column.percent)
    top = top and style.daggers
    if cell.value is None:
        printed = _printed(cell, column) if column.compared else ""
        return Entry(
            published=_noted(printed, cell.published_note, unexplained=False) if printed else "",
            note=(cell.published_note or "") if printed else "",
            instead=cell.shown_instead,
            undefined=cell.undefined,
        )
    ours = style.number(cell.value, column.percent)
    if cell.sd is not None:
        ours += f" ±{style.number(cell.sd, column.percent)}"
    if cell.published is None or not column.compared:
        return Entry(ours, interval=interval, top=top)
    difference = cell.value - cell.published
    shown = style.number(abs(difference), column.percent)
    return Entry(
        ours,
        _noted(_printed(cell, column), cell.published_note, unexplained=cell.unexplained),
        f"{'-' if difference < 0 else '+'}{shown}",
        interval,
        top,
        cell.published_note or "",
        cell.unexplained,
    )


def _printed(cell: Cell, column: Column) -> str:
    """The published number as printed in the paper; ``""`` if there is none."""
    return rescaled(cell.published_printed or "", column.rescaled)


def data_points(info: ProtocolInfo) -> str:
    """Name of a protocol's data points: ratings, captions, systems or pairs."""
    names = {"captions": "ratings", "images": "captions", "sources": "captions"}
    points: str = names.get(info.level, info.level)
    return {"correlation": points, "accuracy": "pairs", "mean": "captions"}[info.kind]


def _sizes(result: StudyResult, infos: list[ProtocolInfo]) -> list[str]:
    """The amount of data of each protocol, and omitted data."""
    notes = []
    for info in infos:
        cells = [c for c in result.cells if c.protocol == info.id and c.group == ""]
        unit = data_points(info)
        items = f"{info.n_items:,} items"
        if info.n_items_whole is not None:
            items = f"{info.n_items:,} of {info.n_items_whole:,} items (--allow-missing)"
        # A cell without a value may have fewer.
        size = f"{max(cell.n for cell in cells):,} {unit} of {items}" if cells else items
        draws = f", {info.draws} draws" if info.draws > 1 else ""
        units = "" if info.bootstrap is None else f", {info.bootstrap.units:,} {info.bootstrap.unit}s resampled"
        notes.append(f"{info.versioned_id}: {size}{draws}{units}")
        chances = [c.chance for c in cells if c.chance is not None]
        if chances:
            ends = dict.fromkeys(f"{100 * end:.1f}" for end in (min(chances), max(chances)))
            notes.append(f"chance under this tie rule: {' to '.join(ends)} %")
        notes += info.notes
    return notes
