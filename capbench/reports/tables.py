"""The tables of a study's result, from which all formats are written. Only differences and means of ranks are computed.

The main table has a column for the main number of each protocol, the best metric first; a study of one protocol of
accuracies has its groups of pairs as columns. With a published table, it has the paper's order, the published numbers
next to ours, and below rows that only the paper has; published columns without one of ours form a separate table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from capbench.core.records import signature_lines
from capbench.datasets.protocol import statistic_title, with_version
from capbench.reports import methods
from capbench.reports.methods import MARK, READ_MARK, READ_NOTE, SENTINEL_MARK
from capbench.reports.table import (
    CEILING,
    PUBLISHED,
    SENTINELS,
    USUAL_TABLE,
    Cell,
    Column,
    Document,
    Row,
    Table,
    TableStyle,
)
from capbench.studies import results
from capbench.studies.published.tables import PrintedNumber, PublishedColumn, given_parts, rescaled, tells_no_reason
from capbench.studies.results import OURS, ProtocolInfo, StudyResult
from capbench.studies.uncertainty import decided

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
    """The evidence for the protocols of columns (protocol, group, head), and a line for each column with a remark."""
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
    titles: dict[str, dict[str, str]] = {}  # by note, title → label
    for cell in result.cells:
        label = cell.label or cell.metric
        for parts in (
            given_parts(result.signatures, label, result.published_table) if cell.published is not None else ()
        ):
            titles.setdefault(_computed_with(parts), {})[cell.title] = label
    # Otherwise rows of variants would look as if each variant had been computed.
    shared = "; these rows share it: --model LABEL=FILE selects a separate model for a row"
    return [
        f"{', '.join(of_note)}: {note}{shared if 'the model' in note and len({*of_note.values()}) > 1 else ''}"
        for note, of_note in titles.items()
    ]


def _computed_with(parts: Mapping[str, str]) -> str:
    """The model, features or vectors behind a number."""
    if "model" in parts:
        seeds = "" if "+" in parts["model"] else " (one network, one seed)"
        return (
            f"computed with the model {parts['model']}{seeds}, which is not the paper's; the published numbers are "
            "those of the authors' model"
        )
    inputs = [f"the features {parts['features'].partition('+')[0]}"] if "features" in parts else []
    inputs += [f"the word vectors {parts['vectors']}"] if "vectors" in parts else []
    return f"computed with {' and '.join(inputs)}, which may differ from the paper's"


def unplaced_columns(result: StudyResult) -> dict[str, list[PublishedColumn]]:
    """Published columns with numbers that are not next to one of ours, by the reason."""
    table = result.published_table
    if table is None:
        return {}
    complete = {info.id: info.n_items_whole is None for info in result.protocols}
    with_numbers = {number.column for row in table.rows for number in row.numbers}
    columns: dict[str, list[PublishedColumn]] = {}
    for column in table.columns:
        if column.key in with_numbers and not complete.get(column.protocol or "", False):
            reason = "no protocol of ours" if column.protocol is None else "data not available"
            if column.protocol in complete:
                reason = "not compared: ours uses a part of the items (--allow-missing)"
            columns.setdefault(f"Published, {reason}", []).append(column)
    return columns


def tables(result: StudyResult, *, by_source: bool = False, style: TableStyle = USUAL_TABLE) -> list[Table]:
    """The tables of a result, the main one first.

    With ``by_source`` there is a table of groups for each protocol that has any.
    """
    builder = _Builder(result, style)
    for title, places in _laid(result, style, by_source=by_source):
        builder.add(title, places)
    unplaced = unplaced_columns(result)
    if not result.protocols and (result.columns or not unplaced):
        builder.add(result.title, [])
    for title, columns in unplaced.items():
        builder.add_unplaced(title if builder.made else f"{result.title}. {title}", columns)
    return builder.made


def result_signatures(result: StudyResult) -> list[str]:
    """Signatures of metrics and sentinels, with the items on which they hold if they do not hold everywhere."""
    places: dict[str, list[str]] = {}
    versions = {info.id.rpartition("/")[0]: info.version for info in result.protocols}
    for items, by_label in result.signatures.items():
        for signature in signature_lines(by_label):
            places.setdefault(signature, []).append(with_version(items, versions.get(items, "")))
    for sentinels in result.sentinels:
        for signature in sentinels.signatures.values():
            places.setdefault(signature, []).append(sentinels.protocol)
    return [
        signature if len(where) == len(result.signatures) else f"{signature}  [{', '.join(where)}]"
        for signature, where in places.items()
    ]


def study_document(result: StudyResult, *, by_source: bool = False, style: TableStyle = USUAL_TABLE) -> Document:
    """All tables with their signatures; see :func:`tables`."""
    if result.rankings:
        from capbench.reports.sensitivity import ranking_tables

        made = ranking_tables(result, [*missing_lines(result), *result.undefined_lines()])
    else:
        made = tables(result, by_source=by_source, style=style)
    if result.points:
        from capbench.reports.curves import curve_tables

        made += curve_tables(result, by_source=by_source)
    origin = f"capbench {result.capbench}, {result.created}"
    return Document(made, result.name, origin, result_signatures(result), result.sample)


def _laid(result: StudyResult, style: TableStyle, *, by_source: bool) -> list[tuple[str, list[_Place]]]:
    """Title and columns of each table with a column of ours."""
    shown, printed = methods.details(result.protocols), result.published_table is not None
    columns = () if result.published_table is None else result.published_table.columns
    with_printed = {  # groups that the paper prints
        info.id: [c.group for c in columns if c.protocol == info.id and c.group and info.n_items_whole is None]
        for info in result.protocols
    }
    groups = {info.id: dict.fromkeys((*info.groups, *with_printed[info.id])) for info in result.protocols}
    # Accuracies have a table of their own, with the groups as columns.
    apart = [
        info for info in result.protocols if info.kind != "correlation" and (printed or len(result.protocols) == 1)
    ]
    main = [info for info in result.protocols if info not in apart]
    laid = [(result.title, [_place(result, style, shown, info, "", _statistic(info)) for info in main])] if main else []
    for info in apart:
        overall = "mean" if info.kind == "accuracy" and groups[info.id] else _statistic(info)
        heads = {**{group: group for group in groups[info.id]}, "": overall}
        title = ", ".join(word for word in (info.dataset_title, shown[info.id], info.statistic) if word)
        places = [_place(result, style, shown, info, group, head) for group, head in heads.items()]
        laid.append((title if laid else result.title, places))
    for info in main:
        of_info = [group for group in groups[info.id] if by_source or group in with_printed[info.id]]
        # The main table has the value of all items, and the title names the protocol.
        places = [_place(result, style, shown, info, group, group) for group in of_info]
        source = ", ".join(word for word in (info.dataset_title, shown[info.id]) if word)
        what = "group" if info.kind == "accuracy" or info.level == "pairs" else "source"
        if places:
            places = [replace(place, title=info.dataset_title) for place in places]
            laid.append((f"{source} by {what}, {info.statistic}", places))
    return laid


_SHARES = ("fraction", "percent")
"""Units of correlations and accuracies in print."""


def _statistic(info: ProtocolInfo) -> str:
    return "acc." if info.statistic == "accuracy" else info.statistic


@dataclass(frozen=True)
class _Place:
    """A column of ours."""

    info: ProtocolInfo
    group: str
    head: str
    title: str  # the head above it
    where: str  # its name in notes
    compared: bool  # published numbers are printed next to ours
    power: int  # power of ten by which published numbers are multiplied
    best: str  # our highest number as printed, for emphasis; "" without one

    @property
    def key(self) -> tuple[str, str]:
        return self.info.id, self.group

    @property
    def width(self) -> int:
        """Number of its columns: ours, published and difference, or ours alone."""
        return 3 if self.compared else 1

    @property
    def share(self) -> bool:
        """True for correlations and accuracies, which are multiplied by 100."""
        return self.info.kind != "mean"

    @property
    def column(self) -> Column:
        """Our column."""
        full = {"acc.": "accuracy"}.get(self.head) or " ".join(statistic_title(self.head).split())
        return Column(self.head, self.title, full, place=self.key)

    def columns(self) -> list[Column]:
        """Our column, and next to it those of the paper."""
        published = [Column(name, self.title, full=name, with_previous=True) for name in ("paper", "diff")]
        return [self.column, *(published if self.compared else [])]


def _place(
    result: StudyResult, style: TableStyle, details: Mapping[str, str], info: ProtocolInfo, group: str, head: str
) -> _Place:
    cells = [cell for cell in result.cells if (cell.protocol, cell.group) == (info.id, group)]
    values = [cell.value for cell in cells if cell.value is not None]
    printed = None if result.published_table is None else result.published_table.column(info.id, group)
    emphasised = style.bold and info.kind != "mean" and len(values) > 1
    detail = details[info.id]
    unit = {"correlation": "fraction", "accuracy": "percent"}.get(info.kind, "") if printed is None else printed.unit
    in_notes = f"{info.dataset_title}{f' ({detail})' if detail else ''}{f' {group}' if group else ''}"
    return _Place(
        info,
        group,
        head,
        title=", ".join(part for part in (info.dataset_title, detail) if part),
        where=f"{in_notes}, {info.statistic}",
        compared=info.n_items_whole is None
        and (printed is not None or any(cell.published is not None for cell in cells)),
        power=_power(unit, style),
        best=style.number(max(values)) if emphasised else "",
    )


def _power(unit: str, style: TableStyle) -> int:
    """The power of ten from published numbers to shown ones; 0 but for correlations and accuracies."""
    return {"fraction": 2, "percent": 0}[unit] - (0 if style.hundredfold else 2) if unit in _SHARES else 0


@dataclass
class _Builder:
    """Builds the tables of one result."""

    result: StudyResult
    style: TableStyle
    made: list[Table] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # protocols of earlier tables
    remarked: bool = False  # a table has the remarks on the whole published table

    def add(self, title: str, places: list[_Place]) -> None:
        """Build the table of some columns."""
        result, style = self.result, self.style
        if result.stand_in and OURS not in title:
            title = f"{title} ({OURS})"
        if style.hundredfold and any(place.share for place in places):
            title = f"{title} (× 100)"
        missing = {
            entry.column: "left out" if results.is_left_out(entry.reason) else "missing"
            for entry in result.missing
            if entry.column
        }
        rows = [
            _row(row, [self._cells(name, place, missing.get(name, "")) for place in places], places)
            for name, row in self._order(places).items()
        ]
        below = [*self._ceiling(places), *self._sentinels(places)]
        only = self._published_only(places)
        infos = {place.info.id: place.info for place in places}
        # Tables by group follow that of all items.
        first = [info for id_, info in infos.items() if id_ not in self.seen]
        self.seen |= infos.keys()
        keys = [place.key for place in places]
        compared = [place for place in places if place.compared]
        answer = [line for info in first for line in _answer(result, info)]
        absent = [] if self.made else [*missing_lines(result), *result.undefined_lines()]
        if not self.made and (table := result.published_table) is not None and table.missing is not None:
            absent.append(f"published: {table.source}: no numbers. {table.missing}")
        wheres, at = dict[int, str](), 0  # by place of the published numbers' cells
        for place in places:
            wheres |= {at + 1: place.where} if place.compared else {}
            at += place.width
        remarks = remarks_on_cells([*rows, *only], wheres)
        ranked = [
            f"ranks, {place.column.name}: {methods.ranks(result, tests)}"
            for place in places
            if (tests := decided(result, *place.key)) is not None
            and (place.group or result.answer(place.info.id) is None)  # an answer has its groups in words
        ]
        notes = [
            *(line for info in first for line in _size(result, info)),
            *([f"published: {result.published}"] if compared else []),
            *basis(result, [(*place.key, place.column.name) for place in compared]),
            *(own_models(result) if compared else []),
            *(self._remarks() if compared else []),
            *methods.notes(result, keys),
            *ranked,
            *_undefined_sentinels(result, keys),
        ]
        legend = [
            *methods.legend(result, keys),
            *([READ_NOTE] if any(READ_MARK in cell.marks for row in rows for cell in row.cells) else []),
        ]
        self.made.append(
            Table(
                title,
                tuple(column for place in places for column in place.columns()),
                (*rows, *below, *only),
                answer=tuple(answer or ([] if self.made else self._highest(places))),
                warnings=(*absent, *_changed(result, first)),
                legend=tuple(filter(self._shows, [*legend, *(line for line in remarks if line[0] == UNEXPLAINED)])),
                footnotes=tuple(remarks),
                notes=tuple(filter(self._shows, dict.fromkeys(notes))),
            )
        )

    def _shows(self, line: str) -> bool:
        """False for a line on marks or intervals that the user does not want."""
        unwanted = () if self.style.daggers else (MARK, SENTINEL_MARK)
        return not line.startswith((*unwanted, *(() if self.style.intervals else ("[a, b]", "human ceiling: [a, b]"))))

    def _order(self, places: list[_Place]) -> dict[str, str]:
        """Titles of the metrics by name, the best first by the mean of their ranks in the main columns; in the paper's
        order with a published table."""
        names = self.result.columns
        if self.result.published_table is not None:
            return names
        ranks: dict[str, list[int]] = {name: [] for name in names}
        for place in [place for place in places if not place.group] or places:
            values = {name: value for name in names if (value := self._value(name, place)) is not None}
            for name, value in values.items():
                ranks[name].append(sum(other > value for other in values.values()))
        means = {name: sum(of_name) / len(of_name) if of_name else float("inf") for name, of_name in ranks.items()}
        return {name: names[name] for name in sorted(names, key=lambda name: means[name])}

    def _value(self, name: str, place: _Place) -> float | None:
        cell = self.result.cell(place.info.id, name, place.group)
        return None if cell is None else cell.value

    def _highest(self, places: list[_Place]) -> list[str]:
        """One sentence on the metrics with the highest values."""
        result = self.result
        winners: dict[str, list[str]] = {}
        for place in [place for place in places if not place.group and place.info.kind != "mean"]:
            values = {name: value for name in self._order(places) if (value := self._value(name, place)) is not None}
            if len(values) > 1:
                winners.setdefault(max(values, key=lambda name: values[name]), []).append(place.title)
        if not winners or result.published_table is not None:
            return []
        total = sum(map(len, winners.values()))
        (best, on), *others = sorted(winners.items(), key=lambda entry: -len(entry[1]))
        text = f"{result.columns[best]} has the highest value"
        if total > 1:
            text += f" on {len(on)} of {total}" if others else f" on all {total}"
            text += "".join(f", {result.columns[name]} on {', '.join(titles)}" for name, titles in others)
        tested = any(result.comparison(place.info.id) is not None for place in places)
        return [f"{text}." if tested else f"{text}. Not tested: add --compare permutation"]

    def _cells(self, name: str, place: _Place, missing: str) -> list[Cell]:
        """The cells of a metric: ours, and with ``compared`` the published number and the difference."""
        result, style = self.result, self.style
        cell = result.cell(place.info.id, name, place.group)
        if cell is None:
            table = result.published_table
            printed = None if table is None else table.number(name, *place.key)
            return [Cell(missing), _printed_cell(printed, place.power)][: place.width]
        marks = "" if cell.value is None else methods.marks(result, cell, daggers=style.daggers)
        text = self._number(cell, place)
        ours = Cell(text, marks, self._interval(cell, place), bold=bool(text) and text.split(" ")[0] == place.best)
        if not place.compared or cell.published is None:
            return [ours]
        note = cell.published_note or (NOT_EXPLAINED if cell.unexplained else "")
        printed_cell = _printed_cell(cell.published_printed or "", place.power, note)
        if cell.value is None:
            return [ours, printed_cell]
        difference = style.number(abs(cell.value - cell.published), share=place.share)
        return [ours, printed_cell, Cell(f"{'-' if cell.value < cell.published else '+'}{difference}")]

    def _number(self, cell: results.Cell, place: _Place) -> str:
        if cell.value is None:
            return cell.shown_instead
        shown = self.style.number(cell.value, share=place.share)
        return shown if cell.sd is None else f"{shown} ±{self.style.number(cell.sd, share=place.share)}"

    def _interval(self, of: results.Cell | results.Ceiling, place: _Place) -> str:
        return self.style.interval(of.low, of.high, share=place.share)

    def _ceiling(self, places: list[_Place]) -> list[Row]:
        """The row of the human ceiling, with its intervals if metrics have any; none if it is unknown."""
        cells: list[list[Cell]] = []
        for place in places:
            known = self.result.ceiling(*place.key)
            shown = known is not None and place.info.bootstrap is not None
            interval = self._interval(known, place) if known is not None and shown else ""
            cells.append([] if known is None else [Cell(self.style.number(known.value), below=interval)])
        return [_row("human ceiling", cells, places, CEILING)] if any(cells) else []

    def _sentinels(self, places: list[_Place]) -> list[Row]:
        """A row for each sentinel with a number in one of the columns."""
        rows: dict[str, list[list[Cell]]] = {}
        for at, place in enumerate(places):
            sentinels = self.result.sentinels_of(place.info.id)
            for cell in () if sentinels is None else sentinels.cells:
                if cell.group == place.group and cell.value is not None:
                    shown = Cell(self._number(cell, place), below=self._interval(cell, place))
                    rows.setdefault(cell.column, [[] for _ in places])[at] = [shown]
        return [_row(methods.sentinel_title(name), cells, places, SENTINELS) for name, cells in rows.items()]

    def _published_only(self, places: list[_Place]) -> list[Row]:
        """Rows that only the paper has, with a number in one of the columns."""
        table = self.result.published_table
        columns = [table.column(*place.key) if table is not None and place.compared else None for place in places]
        return [
            _row(
                title,
                [[Cell(), cell][: place.width] for cell, place in zip(cells, places, strict=True)],
                places,
                PUBLISHED,
            )
            for title, cells in self._printed_rows(columns, [place.power for place in places], only=True)
        ]

    def _printed_rows(
        self, columns: Sequence[PublishedColumn | None], powers: Sequence[int], *, only: bool = False
    ) -> list[tuple[str, list[Cell]]]:
        """Titles and cells of the paper's rows with a number in one of the columns, in print order; with ``only``,
        of those that the study does not have."""
        table = self.result.published_table
        rows = []
        for printed in () if table is None else table.rows:
            numbers = {number.column: number for number in printed.numbers}
            cells = [
                _printed_cell(None if column is None else numbers.get(column.key), power)
                for column, power in zip(columns, powers, strict=True)
            ]
            if any(cell.value for cell in cells) and not (only and printed.rows):
                rows.append((printed.title, cells))
        return rows

    def add_unplaced(self, title: str, printed: list[PublishedColumn]) -> None:
        """Build the table of published columns without one of ours."""
        made = self._printed_rows(printed, [_power(column.unit, self.style) for column in printed])
        rows = tuple(Row(row, tuple(cells)) for row, cells in made)
        heads = [column.head for column in printed]
        footnotes = tuple(remarks_on_cells(rows, dict(enumerate(heads))))
        notes = (f"published: {self.result.published}", *self._remarks())
        columns = tuple(Column(column.head, place=(column.protocol or "", column.group)) for column in printed)
        self.made.append(Table(title, columns, rows, footnotes=footnotes, notes=notes))

    def _remarks(self) -> list[str]:
        """The remarks on the whole published table, once."""
        lines = [] if self.remarked else remarks(self.result)
        self.remarked = True
        return lines


def _row(title: str, cells: Iterable[Sequence[Cell]], places: Sequence[_Place], part: str = "") -> Row:
    """A row of one to three cells for each place, filled up with empty ones."""
    filled = [(*of, *[Cell()] * (place.width - len(of))) for of, place in zip(cells, places, strict=True)]
    return Row(title, tuple(cell for of_place in filled for cell in of_place), part)


def remarks_on_cells(rows: Sequence[Row], wheres: Mapping[int, str]) -> list[str]:
    """One line for each remark on published numbers, with all numbers concerned; columns are named by their place."""
    noted: dict[str, list[str]] = {}
    for place, where in wheres.items():
        for row in rows:
            if note := row.cells[place].note:
                noted.setdefault(note, []).append(f"{row.title} on {where}")
    return [
        f"{UNEXPLAINED if note == NOT_EXPLAINED or tells_no_reason(note) else '*'} {'; '.join(names)}: {note}"
        for note, names in noted.items()
    ]


def missing_lines(result: StudyResult) -> list[str]:
    """Missing rows and protocols, one line for each reason."""
    lines = []
    for reason, names in result.reasons().items():
        if len(names) > 4 and names[0] in {entry.protocol for entry in result.missing}:
            names = [f"{len(names)} protocols ({names[0]}, …)"]
        planned = any(entry.planned for entry in result.missing if entry.reason == reason)
        verb = " " if results.is_left_out(reason) else f": require{'s' * (len(names) == 1)} " if planned else None
        lines.append(f"{', '.join(names)}{verb or ' not computed: '}{reason}")
    return lines


def _changed(result: StudyResult, infos: Sequence[ProtocolInfo]) -> list[str]:
    """Causes of numbers other than those of papers: left out items, other practices; a short line each."""
    lines = []
    for info in infos:
        if info.n_items_whole is not None:
            lines.append(f"{info.dataset_title}: {info.n_items:,} of {info.n_items_whole:,} items (--allow-missing)")
        lines += [
            f"{info.dataset_title}: {re.split('[:;]', note)[0]}"
            for note in info.notes
            if re.match(r"[\d,]+ of [\d,]|the scores are those", note) or note.endswith(results.OTHER_NUMBERS)
        ]
    return lines


def _answer(result: StudyResult, info: ProtocolInfo) -> list[str]:
    """The sentences on the best metric; with the protocol if there are several."""
    answer = result.answer(info.id)
    text = () if answer is None else answer.text
    return [f"{info.versioned_id}: {line}" for line in text] if len(result.answers) > 1 else [*text]


def _undefined_sentinels(result: StudyResult, keys: Sequence[tuple[str, str]]) -> list[str]:
    """Reasons of sentinels without a number, one line each."""
    lines = []
    for sentinels in result.sentinels:
        groups = [group for protocol, group in keys if protocol == sentinels.protocol]
        lines += [
            f"{methods.sentinel_title(cell.column)}: {cell.undefined}"
            for cell in sentinels.cells
            if cell.group in groups and cell.undefined
        ]
    return list(dict.fromkeys(lines))


def _printed_cell(printed: PrintedNumber | str | None, power: int, note: str = "") -> Cell:
    """A published number with its remark, in our format (``50.9 ±0.70``)."""
    if isinstance(printed, PrintedNumber):
        note, printed = printed.note or "", printed.printed
    mark = UNEXPLAINED if note == NOT_EXPLAINED or tells_no_reason(note) else "*" * bool(note)
    return Cell(rescaled(printed or "", power).replace("± ", "±"), mark, note=note)


def data_points(info: ProtocolInfo) -> str:
    """Name of a protocol's data points: ratings, captions, systems or pairs."""
    names = {"captions": "ratings", "images": "captions", "sources": "captions"}
    points: str = names.get(info.level, info.level)
    return {"correlation": points, "accuracy": "pairs", "mean": "captions"}[info.kind]


def _size(result: StudyResult, info: ProtocolInfo) -> list[str]:
    """The amount of data of a protocol, and omitted data."""
    cells = [c for c in result.cells if c.protocol == info.id and c.group == ""]
    items = f"{info.n_items:,} items"
    if info.n_items_whole is not None:
        items = f"{info.n_items:,} of {info.n_items_whole:,} items (--allow-missing)"
    # A cell without a value may have fewer.
    size = f"{max(cell.n for cell in cells):,} {data_points(info)} of {items}" if cells else items
    draws = f", {info.draws} draws" if info.draws > 1 else ""
    units = "" if info.bootstrap is None else f", {info.bootstrap.units:,} {info.bootstrap.unit}s resampled"
    lines = [f"{info.versioned_id}: {size}{draws}{units}"]
    chances = [c.chance for c in cells if c.chance is not None]
    if chances:
        ends = dict.fromkeys(f"{100 * end:.1f}" for end in (min(chances), max(chances)))
        lines.append(f"chance under this tie rule: {' to '.join(ends)} %")
    return [*lines, *info.notes]
