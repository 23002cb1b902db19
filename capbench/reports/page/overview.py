"""The overview of a report: the best metrics, forest plots, tables by protocol, tests; and the protocols."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from capbench.datasets.protocol import statistic_title
from capbench.reports.methods import details, marks, p_value_of, sentinel_title, test_note
from capbench.reports.page.elements import (
    Html,
    ReportSource,
    axis,
    interval_chart,
    joined,
    plain_table,
    sorted_table,
    tag,
    unbroken,
    wide,
)
from capbench.reports.table import USUAL_TABLE, Table, number
from capbench.reports.tables import tables
from capbench.studies.results import OURS, Cell, ProtocolInfo, StudyResult
from capbench.studies.uncertainty import decided


def tip(result: StudyResult, info: ProtocolInfo, cell: Cell) -> str:
    """The tooltip of a value: metric, data set, interval, data points and signature; several lines."""
    value = f"{info.statistic} = {number(cell.number)}"
    if cell.sd is not None:
        value += f" ± {number(cell.sd)} over {info.draws} draws"
    interval = "no interval: the study was run without --bootstrap"
    if cell.low is not None and (boot := info.bootstrap) is not None:
        drawn = f"{boot.resamples:,} resamples of {boot.unit}s"
        interval = f"{100 * boot.level:g} % interval {USUAL_TABLE.interval(cell.low, cell.high)}, {drawn}"
    tests, signature = decided(result, info.id), signature_of(result, cell)
    lines = [
        f"{cell.title}, {info.dataset_title}",
        value,
        interval,
        f"n = {cell.n:,}" + (f", {cell.ties:,} tied pairs of scores" if cell.ties else ""),
        "" if tests is None else f"rank {tests.ranks[cell.column]} (significance cluster)",
        "" if cell.published is None else f"published: {cell.published_printed}",
        f"protocol {info.versioned_id}",
        f"{OURS}: computed on a substitute for unpublished data" if result.stand_in else "",
        f"signature {signature}" if signature else "",
    ]
    return "\n".join(filter(None, lines))


def by_protocol(sources: Sequence[ReportSource]) -> Iterator[tuple[int, ProtocolInfo, list[Cell]]]:
    """Place of the study, protocol, and the numbers of all its items, the best first; without mean scores."""
    for place, source in enumerate(sources):
        for info in source.result.protocols:
            cells = [c for c in source.result.cells if c.protocol == info.id and not c.group and c.value is not None]
            if cells and info.kind != "mean":
                yield place, info, sorted(cells, key=lambda cell: -cell.number)


def best_first(result: StudyResult, protocol: str) -> list[str]:
    """The columns of a study, the best under a protocol first; those without a value there follow in order."""
    values = {c.column: c.value for c in result.cells if c.protocol == protocol and not c.group and c.value is not None}
    return sorted(result.columns, key=lambda name: -values.get(name, -math.inf))


def signature_of(result: StudyResult, cell: Cell) -> str:
    """The signature of a number's scores; ``""`` if there is none."""
    of_items = result.signatures.get(cell.protocol.rsplit("/", 1)[0], {})
    names = (cell.column, cell.label, cell.metric)
    return next((of_items[name] for name in names if name in of_items), "")


def overview(sources: Sequence[ReportSource]) -> Html:
    """The section with the best metrics, forest plots, the studies' tables and the tests of pairs."""
    blocks = [*_answers(sources), _glance(sources), _forests(sources)]
    blocks += [_study(place, source.result, alone=len(sources) == 1) for place, source in enumerate(sources)]
    return joined([*blocks, *_pairs(sources)])


def _answers(sources: Sequence[ReportSource]) -> list[Html]:
    """The sentences on the best metric for a user's judgements."""
    texts = [line for source in sources for answer in source.result.answers for line in answer.text]
    return [tag("h3", "Answer"), *(tag("p", line) for line in dict.fromkeys(texts))] if texts else []


def statistic_words(info: ProtocolInfo) -> str:
    """The statistic of a protocol in words: ``Kendall's τ-c``, ``within-image Kendall's τ-b``, ``accuracy``."""
    return unbroken(statistic_title(info.statistic))


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


def _glance(sources: Sequence[ReportSource]) -> Html:
    about = _about(sources)
    with_ceiling = any(source.result.ceilings for source in sources)
    rows = []
    for study, info, (best, *others) in by_protocol(sources):
        result = sources[study].result
        ceiling, tests = result.ceiling(info.id), decided(result, info.id)
        also = [] if tests is None else [cell.title for cell in others if cell.column in tests.top]
        interval = tag("span", USUAL_TABLE.interval(best.low, best.high), class_="soft")
        rows.append(
            [
                _head(info, about[study, info.id]),
                tag("b", best.title),
                joined([f"{number(best.number)} ", interval]),
                ", ".join(also) or ("not tested" if tests is None else "none"),
                *(["" if ceiling is None else number(ceiling.value)] if with_ceiling else []),
                f"{best.n:,}",
            ]
        )
    if not rows:
        return tag("p", "No study measured agreement with human ratings.")
    heads = ["judgements", "best metric", "value × 100 [interval]", "not significantly worse"]
    heads += [*(["human ceiling"] if with_ceiling else []), "n"]
    title = tag("h3", "Which metric agrees best with human ratings?")
    return joined([title, plain_table(heads, rows, "Table: best metric by protocol", texts=4)])


def _forests(sources: Sequence[ReportSource]) -> Html | None:
    """A forest plot for each protocol: metrics, human ceiling and sentinels, the highest first, on one scale."""
    about = _about(sources)
    plots = [
        _forest(sources[study].result, info, cells, about[study, info.id])
        for study, info, cells in by_protocol(sources)
        if len(cells) > 1
    ]
    if not plots:
        return None
    note = "Values × 100. Bar: interval, if the study has intervals. Dashed: zero. Grey: not a metric."
    title = tag("h3", "Agreement with human ratings, the highest first")
    return joined([title, tag("div", *plots, class_="forests"), tag("p", note, class_="note")])


def _forest(result: StudyResult, info: ProtocolInfo, cells: Sequence[Cell], about: str) -> Html:
    ceiling, sentinels = result.ceiling(info.id), result.sentinels_of(info.id)
    # Title, value, ends of the interval, and for metrics marks and tooltip.
    drawn = [
        (cell.title, cell.number, cell.low, cell.high, marks(result, cell), tip(result, info, cell)) for cell in cells
    ]
    drawn += [] if ceiling is None else [("human ceiling", ceiling.value, ceiling.low, ceiling.high, "", "")]
    below = () if sentinels is None else sentinels.cells
    known = [cell for cell in below if not cell.group and cell.value is not None]
    drawn += [(sentinel_title(cell.column), cell.number, cell.low, cell.high, "", "") for cell in known]
    every = [0.0, *(end for _, *of, _, _ in drawn for end in of if end is not None)]
    ends = (min(every), max(every))
    rows = []
    for name, value, low, high, marked, tooltip in sorted(drawn, key=lambda row: -row[1]):
        interval = USUAL_TABLE.interval(low, high)
        chart = interval_chart(value, low, high, ends, f"{name} {number(value)} {interval}".strip())
        rows.append(
            tag(
                "tr",
                tag("th", name, scope="row"),
                tag("td", Html(chart), class_="drawn"),
                tag("td", f"{number(value)}{marked}", class_="n", data_tip=tooltip or None),
                tag("td", interval, class_="n soft"),
                class_=None if tooltip else "ceiling",
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


def _pairs(sources: Sequence[ReportSource]) -> list[Html]:
    """A table for each tested protocol: difference, interval, corrected p-value and decision of each pair."""
    blocks = []
    titles: set[str] = set()
    for source in sources:
        result = source.result
        for info in result.protocols:
            tests = decided(result, info.id)
            if tests is None:
                continue
            title = f"Differences between metrics: {info.dataset_title}, {statistic_words(info)}"
            if title in titles:  # another study, or another protocol of the same words
                title = f"{title} ({info.id}, {result.name})"
            titles.add(title)
            rows = []
            for pair in tests.pairs:
                rows.append(
                    [
                        *(result.columns.get(column, column) for column in (pair.better, pair.worse)),
                        number(pair.difference),
                        USUAL_TABLE.interval(pair.low, pair.high) or "–",
                        p_value_of(pair, tests).removeprefix("= "),
                        "significant" if pair.significant else "not significant",
                    ]
                )
            heads = ["better", "worse", "difference", "interval", "corrected p", "decision"]
            table = plain_table(heads, rows, f"Table: {title}", texts=6)
            blocks += [tag("h3", title), table, tag("p", test_note(tests), class_="note")]
    return blocks


def _matrix(table: Table, name: str, study: str) -> Html:
    """A table that is sorted, filtered by data set and copied."""
    datasets = list(dict.fromkeys(column.group for column in table.columns))
    options = [tag("option", choice or "all", value=choice) for choice in ("", *datasets)]
    label, select = tag("label", "Data set", for_=f"{name}-filter"), {"id": f"{name}-filter", "data_filters": name}
    chooser = joined([label, tag("select", *options, **select)], " ") if len(datasets) > 1 else None
    tools = tag("div", chooser, copy_buttons(name), class_="tools")
    return joined([tag("h3", table.title), tools, sorted_table(table, name, f"Table: {table.title} ({study})")])


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
        total = "" if info.n_items_whole is None else f" of {info.n_items_whole:,} (--allow-missing)"
        draws = f", {info.draws} reference samples" if info.draws > 1 else ""
        notes = dict.fromkeys([f"{info.n_items:,} scored items{total}{draws}", *info.notes])
        head = tag("summary", tag("b", f"{info.dataset_title}, {info.statistic}"), " ", tag("code", info.versioned_id))
        text = tag("p", f"{info.description[:1].upper()}{info.description[1:]}.")
        parts.append(tag("details", head, text, tag("ul", *(tag("li", note) for note in notes), class_="note")))
    note = (
        "A protocol is data set / items / statistic: the captions, their references, and the computed statistic. "
        "The same metric has another value under another protocol."
    )
    return joined([tag("p", note, class_="note"), *parts])
