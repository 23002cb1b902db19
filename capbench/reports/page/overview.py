"""The overview of a report: the best metrics, forest plots, a table of metrics by protocol; and the protocols."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capbench.reports.methods import MARK, READ_MARK, SENTINEL_MARK, decided, no_better, sentinel_title
from capbench.reports.page.elements import Html, ReportSource, axis, interval_chart, joined, plain_table, tag, wide
from capbench.reports.table import Row, Table, number
from capbench.reports.tables import details, tables
from capbench.studies.results import OURS, Ceiling, Cell, ProtocolInfo, StudyResult


@dataclass(frozen=True)
class Entry:
    """One number of a report: a cell of a study with its rank and tooltip."""

    study: int  # place of its study
    result: StudyResult
    info: ProtocolInfo
    cell: Cell
    rank: int | None  # significance cluster; None if metrics were not tested
    top: bool  # the best metric, or not significantly worse
    mark: str  # the marks of the tests

    @property
    def shown(self) -> str:
        """The printed value, or the text that replaces it."""
        if self.cell.value is None:
            return self.cell.shown_instead
        return number(self.cell.value, self.info.kind != "mean")

    @property
    def interval(self) -> str:
        """``[low, high]``, or ``""``."""
        return interval_text(self.cell)

    @property
    def tip(self) -> str:
        """The tooltip: metric, protocol, interval, data points, signature; several lines."""
        cell, info = self.cell, self.info
        lines = [f"{cell.title}, {info.dataset_title}{f', {cell.group}' if cell.group else ''}"]
        value = f"{info.statistic} = {self.shown}" if cell.value is not None else f"{self.shown}: {cell.undefined}"
        if cell.sd is not None:
            value += f" ± {number(cell.sd, info.kind != 'mean')} over {info.draws} draws"
        lines.append(value)
        if self.interval and info.bootstrap is not None:
            boot = info.bootstrap
            lines.append(
                f"{100 * boot.level:g} % interval {self.interval}, {boot.resamples:,} resamples of {boot.unit}s"
            )
        elif cell.value is not None:
            lines.append("no interval: the study was run without --bootstrap")
        lines.append(f"n = {cell.n:,}" + (f", {cell.ties:,} tied pairs of scores" if cell.ties else ""))
        lines += [] if self.rank is None else [f"rank {self.rank} (significance cluster)"]
        lines += [] if cell.published is None else [f"published: {cell.published_printed}"]
        lines.append(f"protocol {info.versioned_id}")
        lines += [f"{OURS}: computed on a substitute for unpublished data"] if self.result.stand_in else []
        signature = signature_of(self.result, cell)
        return "\n".join([*lines, *([f"signature {signature}"] if signature else [])])


def interval_text(of: Cell | Ceiling) -> str:
    """``[low, high]``, or ``""``."""
    return "" if of.low is None or of.high is None else f"[{number(of.low)}, {number(of.high)}]"


def entries(sources: Sequence[ReportSource]) -> list[Entry]:
    """All numbers of all studies, in the studies' order."""
    return [entry for place, source in enumerate(sources) for entry in _of_study(place, source.result)]


def _of_study(study: int, result: StudyResult) -> Iterator[Entry]:
    infos = {info.id: info for info in result.protocols}
    for cell in result.cells:
        tests = None if cell.value is None else decided(result, cell.protocol, cell.group)
        top = tests is not None and cell.column in tests.top
        mark = MARK * top + SENTINEL_MARK * (cell.column in no_better(result, cell.protocol, cell.group))
        mark += READ_MARK * result.has_read(cell.protocol, cell.label or cell.metric, cell.group)
        rank = None if tests is None else tests.ranks.get(cell.column)
        yield Entry(study, result, infos[cell.protocol], cell, rank, top, mark)


def places(numbers: Sequence[Entry]) -> dict[tuple[int, str, str], list[Entry]]:
    """Numbers by study, protocol and group, the best first."""
    by_place: dict[tuple[int, str, str], list[Entry]] = {}
    for entry in numbers:
        by_place.setdefault((entry.study, entry.info.id, entry.cell.group), []).append(entry)
    return {place: sorted(values, key=_from_the_best) for place, values in by_place.items()}


def _from_the_best(entry: Entry) -> float:
    """A sort key: the largest value first, missing values last."""
    return math.inf if entry.cell.value is None else -entry.cell.value


def signature_of(result: StudyResult, cell: Cell) -> str:
    """The signature of a number's scores; ``""`` if there is none."""
    of_items = result.signatures.get(cell.protocol.rsplit("/", 1)[0], {})
    names = (cell.column, cell.label, cell.metric)
    return next((of_items[name] for name in names if name in of_items), "")


def overview(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    """The section with the best metrics, forest plots and the studies' tables."""
    blocks = [*_answers(sources), _glance(sources, numbers), _forests(sources, numbers)]
    blocks += [_study(place, source.result, alone=len(sources) == 1) for place, source in enumerate(sources)]
    return tag("section", tag("h2", "Overview"), *blocks, id="overview")


def _answers(sources: Sequence[ReportSource]) -> list[Html]:
    """The sentences on the best metric for a user's judgements."""
    texts = [line for source in sources for answer in source.result.answers for line in answer.text]
    return [tag("h3", "Answer"), *(tag("p", line) for line in dict.fromkeys(texts))] if texts else []


_WORDS = {
    "τ-b": "Kendall's τ-b",
    "τ-c": "Kendall's τ-c",
    "ρ": "Spearman's ρ",
    "r": "Pearson's r",
    "difference r": "Pearson's r of differences",
    "acc-eq": "pairwise accuracy acc*_eq",
}
_WHERE = {
    "images": " within images",
    "sources": " within sources",
    "systems": " over systems",
    "pairs": " with graded preferences",
}


def statistic_words(info: ProtocolInfo) -> str:
    """The statistic of a protocol in words: ``Kendall's τ-c``, ``Kendall's τ-b within images``, ``accuracy``."""
    symbol = info.statistic if info.level == "captions" else info.statistic.partition(" ")[2]
    return unbroken(f"{_WORDS.get(symbol, symbol)}{_WHERE.get(info.level, '')}")


def unbroken(text: str) -> str:
    """A head that does not break at its hyphens."""
    return text.replace("-", "\u2011")


def best_first(result: StudyResult, numbers: Sequence[Entry]) -> list[str]:
    """The columns of a study, the best under its first protocol first; those without a value there follow in order."""
    ids = [info.id for info in result.protocols if info.kind != "mean"] or [info.id for info in result.protocols]
    first = {
        entry.cell.column: _from_the_best(entry)
        for entry in reversed(numbers)
        if entry.result is result and entry.info.id == ids[0] and not entry.cell.group
    }
    return sorted(result.columns, key=lambda name: first.get(name, math.inf))


def _head(info: ProtocolInfo, about: str) -> Html:
    """Data set, statistic and what distinguishes a protocol."""
    text = f"{unbroken(info.dataset_title)}, {statistic_words(info)}"
    return joined([text, tag("span", about, class_="sub") if about else None])


def _about(sources: Sequence[ReportSource]) -> dict[tuple[int, str], str]:
    """The words that distinguish protocols of one data set and statistic, by study and protocol."""
    infos = {info.id: info for source in sources for info in source.result.protocols}
    shown = details(list(infos.values()))
    found = {}
    for place, source in enumerate(sources):
        result = source.result
        for info in result.protocols:
            parts = [shown[info.id], OURS if result.stand_in else "", result.name if len(sources) > 1 else ""]
            found[place, info.id] = ", ".join(filter(None, parts))
    return found


def _glance(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    about = _about(sources)
    with_ceiling = any(source.result.ceilings for source in sources)
    rows = []
    for (study, protocol, group), values in places(numbers).items():
        best = values[0]
        if group or best.info.kind == "mean" or best.cell.value is None:
            continue
        also = [entry.cell.title for entry in values[1:] if entry.top]
        ceiling = sources[study].result.ceiling(protocol)
        row = [
            _head(best.info, about[study, protocol]),
            tag("b", best.cell.title),
            joined([f"{best.shown} ", tag("span", best.interval, class_="soft")]),
            ", ".join(also) or ("not tested" if best.rank is None else "none"),
        ]
        row += ["" if ceiling is None else number(ceiling.value)] if with_ceiling else []
        rows.append([*row, f"{best.cell.n:,}"])
    if not rows:
        return tag("p", "No study measured agreement with human ratings.")
    heads = ["judgements", "best metric", "value × 100 [interval]", "not significantly worse"]
    heads += [*(["human ceiling"] if with_ceiling else []), "n"]
    title = tag("h3", "Which metric agrees best with human ratings?")
    return joined([title, plain_table(heads, rows, "Table: best metric by protocol", texts=4)])


def _forests(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html | None:
    """A forest plot for each protocol: metrics, human ceiling and sentinels, the highest first, on one scale."""
    about = _about(sources)
    plots = []
    for (study, protocol, group), values in places(numbers).items():
        known = [entry for entry in values if entry.cell.value is not None]
        if not group and known and known[0].info.kind != "mean" and len(known) > 1:
            plots.append(_forest(known, sources[study].result, about[study, protocol]))
    if not plots:
        return None
    note = "Values × 100. Bar: interval, if the study has intervals. Dashed: zero. Grey: not a metric."
    title = tag("h3", "Agreement with human ratings, the highest first")
    return joined([title, tag("div", *plots, class_="forests"), tag("p", note, class_="note")])


def _forest(values: Sequence[Entry], result: StudyResult, about: str) -> Html:
    info = values[0].info
    ceiling, sentinels = result.ceiling(info.id), result.sentinels_of(info.id)
    drawn: list[tuple[str, float, Cell | Ceiling, Entry | None]] = [
        (entry.cell.title, entry.cell.number, entry.cell, entry) for entry in values
    ]
    drawn += [("human ceiling", ceiling.value, ceiling, None)] if ceiling is not None else []
    below = () if sentinels is None else sentinels.cells
    drawn += [(sentinel_title(c.column), c.number, c, None) for c in below if not c.group and c.value is not None]
    every = [0.0, *(end for _, value, one, _ in drawn for end in (value, one.low, one.high) if end is not None)]
    ends = (min(every), max(every))
    rows = []
    for name, value, one, entry in sorted(drawn, key=lambda row: -row[1]):
        interval = interval_text(one)
        chart = interval_chart(value, one.low, one.high, ends, f"{name} {number(value)} {interval}".strip())
        rows.append(
            tag(
                "tr",
                tag("th", name, scope="row"),
                tag("td", Html(chart), class_="drawn"),
                tag("td", f"{number(value)}{entry.mark if entry else ''}", class_="n", data_tip=entry and entry.tip),
                tag("td", interval, class_="n soft"),
                class_=None if entry else "ceiling",
            )
        )
    scale = tag("tr", tag("td", ""), tag("td", Html(axis(ends)), class_="drawn"), tag("td", ""), tag("td", ""))
    table = tag("table", tag("tbody", *rows), tag("tfoot", scale), class_="forest tips")
    title = f"{info.dataset_title}, {statistic_words(info)}"
    return tag(
        "div",
        tag("h4", _head(info, about)),
        wide(table, f"Forest plot: {title}{f', {about}' if about else ''}"),
        class_="plot",
    )


def _study(place: int, result: StudyResult, *, alone: bool) -> Html:
    """The tables of a study that have several columns, and what it says about them."""
    title = None if alone else tag("h3", f"{result.title} ({result.name})")
    if not result.protocols:
        return joined([title, tag("p", "Nothing could be computed: see the section Provenance.")])
    made = tables(result, by_source=True)
    shown = [line for table in made for line in (*table.warnings, *table.legend)]
    notes = [line for table in made for line in (*table.footnotes, *table.notes)]
    names = (f"matrix-{place}-{at}" for at in range(len(made)))
    blocks = [_matrix(table, name, result.name) for table, name in zip(made, names, strict=True) if table.columns[1:]]
    blocks += [tag("p", line, class_="note") for line in dict.fromkeys(shown)]
    listed = tag("ul", *(tag("li", line) for line in dict.fromkeys(notes)), class_="note")
    return joined([title, *blocks, tag("details", tag("summary", "Data and methods"), listed)])


def _matrix(table: Table, name: str, study: str) -> Html:
    """A table that is sorted, filtered by data set and copied; the human ceiling and sentinels stay below."""
    heads = [tag("th", table.head, scope="col")]
    for column in table.columns:
        group, full = unbroken(column.group), unbroken(column.full or column.head)
        over = tag("span", group, class_="over") if group else None
        heads.append(
            tag("th", over, full, scope="col", class_="n", data_dataset=column.group, data_copy=column.heading)
        )

    def line(row: Row) -> Html:
        cells = [
            tag(
                "td",
                tag("span", cell.marked, class_="strong" if cell.bold else None),
                tag("span", cell.below, class_="sub") if cell.below else None,
                class_="n",
                data_order=cell.value.split(" ")[0] if re.match(r"[-+]?\d", cell.value) else "-1e9",
                data_copy=f"{cell.marked} {cell.below}".strip(),
            )
            for cell in row.cells
        ]
        return tag("tr", tag("th", row.title, scope="row", data_copy=row.title), *cells)

    foot = [line(row) for row in table.rows if row.part]
    datasets = list(dict.fromkeys(column.group for column in table.columns))
    made = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(line(row) for row in table.rows if not row.part)),
        tag("tfoot", *foot) if foot else None,
        class_="matrix",
        id=name,
    )
    chooser = _filter(name, "Data set", datasets) if len(datasets) > 1 else None
    return joined(
        [
            tag("h3", table.title),
            tag("div", chooser, copy_buttons(name), class_="tools"),
            wide(made, f"Table: {table.title} ({study})"),
        ]
    )


def _filter(target: str, label: str, choices: Sequence[str]) -> Html:
    name = f"{target}-filter"
    options = [tag("option", "all", value="")] + [tag("option", choice, value=choice) for choice in choices]
    return joined([tag("label", label, for_=name), tag("select", *options, id=name, data_filters=target)], " ")


def copy_buttons(target: str) -> Html:
    """Buttons that copy the visible rows of a table."""
    buttons = [
        tag("button", form, type="button", data_copies=target, data_form=form.lower())
        for form in ("LaTeX", "Markdown", "CSV")
    ]
    return tag("span", tag("span", "Copy as"), *buttons, class_="copies", role="group", aria_label="Copy the table as")


def protocols_section(sources: Sequence[ReportSource]) -> Html:
    """All protocols of the page, each once."""
    infos = {info.id: info for source in sources for info in source.result.protocols}
    parts = []
    for info in infos.values():
        whole = "" if info.n_items_whole is None else f" of {info.n_items_whole:,} (--allow-missing)"
        draws = f", {info.draws} reference samples" if info.draws > 1 else ""
        notes = dict.fromkeys([f"{info.n_items:,} scored items{whole}{draws}", *info.notes])
        head = tag("summary", tag("b", f"{info.dataset_title}, {info.statistic}"), " ", tag("code", info.versioned_id))
        text = tag("p", f"{info.description[:1].upper()}{info.description[1:]}.")
        parts.append(tag("details", head, text, tag("ul", *(tag("li", note) for note in notes), class_="note")))
    note = (
        "A protocol is data set / items / statistic: the captions, their references, and the computed statistic. "
        "The same metric has another value under another protocol."
    )
    return tag("section", tag("h2", "Protocols in words"), tag("p", note, class_="note"), *parts, id="protocols")
