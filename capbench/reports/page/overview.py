"""The overview of a report: the best metrics, forest plots, a table of metrics by protocol; and the protocols."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capbench.core.errors import count
from capbench.reports.methods import MARK, READ_MARK, SENTINEL_MARK, decided, no_better, sentinel_title
from capbench.reports.page.elements import Html, ReportSource, axis, interval_chart, joined, tag, wide
from capbench.reports.table import number
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
    blocks += [_study(place, source.result, numbers, alone=len(sources) == 1) for place, source in enumerate(sources)]
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
    lines = []
    for (study, protocol, group), values in places(numbers).items():
        best = values[0]
        if group or best.info.kind == "mean" or best.cell.value is None:
            continue
        also = [entry.cell.title for entry in values[1:] if entry.top]
        tested = best.rank is not None
        ceiling = sources[study].result.ceiling(protocol)
        lines.append(
            tag(
                "tr",
                tag("th", _head(best.info, about[study, protocol]), scope="row"),
                tag("td", best.cell.title, class_="strong"),
                tag(
                    "td",
                    f"{best.shown} ",
                    tag("span", best.interval, class_="soft") if best.interval else None,
                    data_tip=best.tip,
                ),
                tag("td", ", ".join(also) or ("none" if tested else "not tested")),
                _ceiling_cell(best.info, ceiling) if with_ceiling else None,
                tag("td", f"{best.cell.n:,}", class_="n"),
            )
        )
    if not lines:
        return tag("p", "No study measured agreement with human ratings.")
    heads = ("judgements", "best metric", "value × 100 [interval]", "not significantly worse")
    row = [tag("th", head, scope="col") for head in heads]
    row += [tag("th", head, scope="col", class_="n") for head in (*(["human ceiling"] if with_ceiling else []), "n")]
    table = tag("table", tag("thead", tag("tr", *row)), tag("tbody", *lines), class_="tips plain")
    title = tag("h3", "Which metric agrees best with human ratings?")
    return joined([title, wide(table, "Table: best metric by protocol")])


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


def _study(place: int, result: StudyResult, numbers: Sequence[Entry], *, alone: bool) -> Html:
    """The table of a study with several columns, and what it says about them."""
    by_key = {(e.info.id, e.cell.group, e.cell.column): e for e in numbers if e.study == place}
    columns = [(info, group) for info in result.protocols for group in (*info.groups, "")]
    columns = [c for c in columns if any((c[0].id, c[1]) == key[:2] for key in by_key)]
    title = None if alone else tag("h3", f"{result.title} ({result.name})")
    if not columns:
        return joined([title, tag("p", "Nothing could be computed: see the section Provenance.")])
    made = tables(result, by_source=True)
    notes = [line for table in made for line in (*table.legend, *table.footnotes, *table.notes)]
    listed = tag("ul", *(tag("li", line) for line in dict.fromkeys(notes)), class_="note")
    about = tag("details", tag("summary", "Data and methods"), listed)
    if len(columns) == 1:
        return joined([title, about])
    shown = details(result.protocols)
    heads = [tag("th", "metric", scope="col")]
    for info, group in columns:
        grouped = any(other is info and name for other, name in columns)
        part = group or (("mean" if info.kind == "accuracy" else "all") if grouped else "")
        heads.append(
            tag(
                "th",
                tag("span", unbroken(info.dataset_title), class_="over"),
                f"{statistic_words(info)}{f', {part}' if part else ''}",
                tag("span", shown[info.id], class_="sub") if shown[info.id] else None,
                scope="col",
                class_="n",
                data_dataset=info.dataset_title,
                data_copy=f"{info.dataset_title} {info.statistic}{f' {part}' if part else ''}",
            )
        )
    head, foot = tag("thead", tag("tr", *heads)), _foot(result, columns)
    body = tag("tbody", *_rows(result, numbers, by_key, columns))
    table = tag("table", head, body, foot, class_="tips matrix", id=f"matrix-{place}")
    datasets = list(dict.fromkeys(info.dataset_title for info, _ in columns))
    chooser = _filter(f"matrix-{place}", "Data set", datasets) if len(datasets) > 1 else None
    named = f"{count(len(result.columns), 'metric')} × 100, the best of the first column first"
    return joined(
        [
            title or tag("h3", "All columns"),
            tag("div", chooser, copy_buttons(f"matrix-{place}"), class_="tools"),
            wide(table, f"Table: {result.title} ({result.name})"),
            tag("p", f"{named}. Small figures are intervals. Select a heading to sort.", class_="note"),
            about,
        ]
    )


def _rows(
    result: StudyResult,
    numbers: Sequence[Entry],
    by_key: dict[tuple[str, str, str], Entry],
    columns: Sequence[tuple[ProtocolInfo, str]],
) -> Iterator[Html]:
    missing = {m.column: m for m in result.missing if m.column}
    highest: dict[tuple[str, str], float] = {}
    for (protocol, group, _), e in by_key.items():
        if e.cell.value is not None and e.info.kind != "mean":
            highest[protocol, group] = max(e.cell.value, highest.get((protocol, group), e.cell.value))
    for name in best_first(result, numbers):
        metric, lacks = result.columns[name], missing.get(name)
        cells = []
        for info, group in columns:
            entry = by_key.get((info.id, group, name))
            if entry is None or entry.cell.value is None:
                text = "–" if entry is None else entry.shown
                tip = None if entry is None else entry.tip
                cells.append(tag("td", text, class_="n", data_order="-9", data_tip=tip, data_copy=text))
                continue
            best = "strong" if entry.cell.value == highest.get((info.id, group)) else None
            cells.append(
                tag(
                    "td",
                    tag("span", f"{entry.shown}{entry.mark}", class_=best),
                    tag("span", entry.interval, class_="sub") if entry.interval else None,
                    class_="n",
                    data_order=repr(entry.cell.value),
                    data_tip=entry.tip,
                    data_copy=f"{entry.shown}{entry.mark} {entry.interval}".strip(),
                )
            )
        note = None
        if lacks is not None and not any((info.id, group, name) in by_key for info, group in columns):
            note = tag("span", f"{'requires ' if lacks.planned else ''}{lacks.reason}", class_="sub")
        yield tag("tr", tag("th", metric, note, scope="row", data_copy=metric), *cells)


def _foot(result: StudyResult, columns: Sequence[tuple[ProtocolInfo, str]]) -> Html | None:
    """Rows of the human ceiling and of sentinels, which are not sorted with the metrics."""
    rows = []
    if result.ceilings:
        cells = [_ceiling_cell(info, result.ceiling(info.id, group)) for info, group in columns]
        rows.append(tag("tr", tag("th", "human ceiling", scope="row"), *cells))
    found = (cell for one in result.sentinels for cell in one.cells if cell.value is not None)
    for name in dict.fromkeys(cell.column for cell in found):
        cells = [_sentinel_cell(result, info, name, group) for info, group in columns]
        rows.append(tag("tr", tag("th", sentinel_title(name), scope="row"), *cells))
    return tag("tfoot", *rows) if rows else None


def _sentinel_cell(result: StudyResult, info: ProtocolInfo, name: str, group: str) -> Html:
    sentinels = result.sentinels_of(info.id)
    cell = None if sentinels is None else sentinels.cell(name, group)
    if sentinels is None or cell is None or cell.value is None:
        return tag("td", "" if cell is None else "–", class_="n")
    tip = f"sentinel, not a metric: {sentinels.inputs[name]}\nprotocol {info.versioned_id}"
    return tag("td", number(cell.value), class_="n", data_tip=f"{tip}\nsignature {sentinels.signatures[name]}")


def _ceiling_cell(info: ProtocolInfo, ceiling: Ceiling | None) -> Html:
    if ceiling is None:
        return tag("td", "", class_="n")
    tip = f"human ceiling, not a metric {interval_text(ceiling)}\nn = {ceiling.n:,}\nprotocol {info.versioned_id}"
    return tag("td", number(ceiling.value), class_="n", data_tip=tip)


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
