"""The overview of a report: the best metrics, forest plots, a table of metrics by protocol for each study, all numbers.

Also the section that describes the protocols.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from capbench.reports.methods import (
    MARK,
    READ_MARK,
    SENTINEL_MARK,
    decided,
    no_better,
    rater_note,
    sentinel_notes,
    sentinel_title,
)
from capbench.reports.page.elements import Html, ReportSource, interval_chart, joined, tag, wide
from capbench.reports.table import number
from capbench.reports.tables import details
from capbench.studies.all_protocols import agreement_of_rankings, ranks
from capbench.studies.results import OURS, Ceiling, Cell, ProtocolInfo, StudyResult

# The numbers of a report: every cell of every study with its rank and tooltip.


@dataclass(frozen=True)
class Entry:
    """One number.

    Attributes:
        study: index of its study.
        result: the study.
        info: its protocol.
        cell: the number.
        rank: its significance cluster if metrics were tested, else its rank by value; None for plain means and without
            a value.
        top: True for the best metric and those not significantly worse.
        tested: True if metrics were tested.
        no_better: True if the metric is not significantly better than every sentinel.
        has_read: True if the metric's training has read captions, photographs or judgements of the items.
    """

    study: int
    result: StudyResult
    info: ProtocolInfo
    cell: Cell
    rank: int | None
    top: bool
    tested: bool
    no_better: bool = False
    has_read: bool = False

    @property
    def mark(self) -> str:
        """The marks of the value."""
        marks = ((MARK, self.tested and self.top), (SENTINEL_MARK, self.no_better), (READ_MARK, self.has_read))
        return "".join(mark for mark, is_set in marks if is_set)

    @property
    def percent(self) -> bool:
        """True if it is shown times 100."""
        return self.info.kind == "accuracy"

    @property
    def shown(self) -> str:
        """The printed value, or the text that replaces it."""
        if self.cell.value is None:
            return self.cell.shown_instead
        return number(self.cell.value, self.info.kind != "mean")

    @property
    def interval(self) -> str:
        """``[low, high]``, or ``""``."""
        if self.cell.low is None or self.cell.high is None:
            return ""
        return f"[{interval_end(self.cell.low)}, {interval_end(self.cell.high)}]"

    @property
    def tip(self) -> str:
        """The tooltip: metric, protocol, interval, data points, signature; several lines."""
        cell, info = self.cell, self.info
        lines = [f"{cell.title}, {info.dataset_title}{f', {cell.group}' if cell.group else ''}"]
        value = f"{info.statistic} = {self.shown}{' %' if self.percent else ''}"
        if cell.value is None:
            value = f"{info.statistic}: {self.shown}: {cell.undefined}"
        if cell.sd is not None:
            value += f" ± {number(cell.sd, info.kind != 'mean')} over {info.draws} draws"
        lines.append(value)
        if self.interval and info.bootstrap is not None:
            boot = info.bootstrap
            lines.append(
                f"{100 * boot.level:g} % interval {self.interval}, {boot.resamples:,} resamples of {boot.unit}s"
            )
        elif not self.interval and cell.value is not None:
            lines.append("no interval: the study was run without --bootstrap")
        lines.append(f"n = {cell.n:,}" + (f", {cell.ties:,} tied pairs of scores" if cell.ties else ""))
        if self.rank is not None:
            lines.append(f"rank {self.rank}" + (" (significance cluster)" if self.tested else " (by value, untested)"))
        if cell.published is not None:
            lines.append(f"published: {cell.published_printed}")
        lines.append(f"protocol {info.versioned_id}")
        if self.result.stand_in:
            lines.append(f"{OURS}: computed on a substitute for unpublished data")
        signature = signature_of(self.result, cell)
        return "\n".join([*lines, *([f"signature {signature}"] if signature else [])])


def interval_end(value: float) -> str:
    """An end of an interval."""
    return number(value)


def entries(sources: Sequence[ReportSource]) -> list[Entry]:
    """All numbers of all studies, in the studies' order."""
    return [entry for place, source in enumerate(sources) for entry in _of_study(place, source.result)]


def _of_study(study: int, result: StudyResult) -> Iterator[Entry]:
    infos = {info.id: info for info in result.protocols}
    by_place: dict[tuple[str, str], dict[str, float]] = {}
    for cell in result.cells:
        of_place = by_place.setdefault((cell.protocol, cell.group), {})
        if cell.value is not None:
            of_place[cell.column] = cell.value
    ordered = {place: ranks(values) for place, values in by_place.items()}
    for cell in result.cells:
        info = infos[cell.protocol]
        tests = decided(result, cell.protocol, cell.group)
        rank = ordered[cell.protocol, cell.group].get(cell.column)
        if info.kind == "mean" or cell.value is None:
            rank = None
        elif tests is not None:
            rank = tests.ranks.get(cell.column, rank)
        top = cell.column in tests.top if tests is not None else rank == 1
        no_better_here = cell.column in no_better(result, cell.protocol, cell.group)
        has_read = result.has_read(cell.protocol, cell.label or cell.metric, cell.group)
        yield Entry(study, result, info, cell, rank, top, tests is not None, no_better_here, has_read)


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
    """The signature of a number's scores; ``""`` in files of early versions, which have none."""
    of_items = result.signatures.get(cell.protocol.rsplit("/", 1)[0], {})
    names = (cell.column, cell.label, cell.metric)
    return next((of_items[name] for name in names if name in of_items), "")


def overview(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    """The section with the studies' tables; the page's script fills the list of all numbers."""
    blocks = [*_answers(sources), _glance(sources, numbers), _forests(sources, numbers)]
    for place, source in enumerate(sources):
        blocks.append(_study(place, source.result, numbers, alone=len(sources) == 1))
    blocks.append(_all_numbers(numbers, len(sources) > 1))
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


def statistic_words(info: ProtocolInfo) -> str:
    """The statistic of a protocol in words: ``Kendall's τ-c``, ``Kendall's τ-b within images``, ``accuracy, %``."""
    symbol = info.statistic if info.level == "captions" else info.statistic.partition(" ")[2]
    where = {
        "captions": "",
        "images": " within images",
        "sources": " within sources",
        "systems": " over systems",
        "pairs": " with graded preferences",
    }[info.level]
    return f"{_WORDS.get(symbol, symbol)}{where}{', %' if info.kind == 'accuracy' else ''}"


def best_first(result: StudyResult, numbers: Sequence[Entry]) -> list[str]:
    """The columns of a study, the best under its first protocol first; those without a value there follow in order."""
    first = {entry.cell.column: _from_the_best(entry) for entry in reversed(numbers) if _is_overall(entry, result)}
    return sorted(result.columns, key=lambda name: first.get(name, math.inf))


def _is_overall(entry: Entry, result: StudyResult) -> bool:
    """True for a number of all data points under the first protocol that has a best metric."""
    ids = [info.id for info in result.protocols if info.kind != "mean"] or [info.id for info in result.protocols]
    return entry.result is result and entry.info.id == ids[0] and not entry.cell.group


def _details(sources: Sequence[ReportSource]) -> dict[str, str]:
    """By protocol id, the part that distinguishes protocols of one data set and statistic; see ``tables.details``."""
    infos = {info.id: info for source in sources for info in source.result.protocols}
    return details(list(infos.values()))


def _forests(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html | None:
    """A forest plot for each protocol: the metrics, best first, with their intervals on one scale."""
    shown = _details(sources)
    plots = []
    for (study, protocol, group), values in places(numbers).items():
        known = [entry for entry in values if entry.cell.value is not None]
        if not group and known and known[0].info.kind != "mean" and len(known) > 1:
            result = sources[study].result
            title = f"{known[0].info.dataset_title}, {statistic_words(known[0].info)}"
            about = [shown[protocol], OURS if result.stand_in else "", result.name if len(sources) > 1 else ""]
            plots.append(_forest(title, ", ".join(filter(None, about)), known, result))
    if not plots:
        return None
    return joined(
        [
            tag("h3", "Agreement with human ratings, the best metric first"),
            tag("div", *plots, class_="forests"),
            tag(
                "p",
                "Point: value. Bar: interval, if the study has intervals. Vertical line: value of the best metric. "
                "Each plot has its own scale.",
                class_="note",
            ),
        ]
    )


def _forest(title: str, about: str, values: Sequence[Entry], result: StudyResult) -> Html:
    ceiling, sentinels = result.ceiling(values[0].info.id), result.sentinels_of(values[0].info.id)
    below = [cell for cell in (sentinels.cells if sentinels else ()) if not cell.group and cell.value is not None]
    drawn: list[Cell | Ceiling] = [*(entry.cell for entry in values), *([ceiling] if ceiling else []), *below]
    every = [end for one in drawn for end in (one.value, one.low, one.high) if end is not None]
    ends = (min(every), max(every))
    best = values[0].cell.value

    def row(name: str, value: float, cell: Cell | Ceiling, mark: str, **attributes: object) -> Html:
        low, high = cell.low, cell.high
        interval = "" if low is None or high is None else f"[{interval_end(low)}, {interval_end(high)}]"
        label = f"{name} {number(value)} {interval}".strip()
        chart = interval_chart(value, low, high, ends, label, size=(240.0, 26.0), reference=best)
        return tag(
            "tr",
            tag("th", name, scope="row"),
            tag("td", Html(chart), class_="drawn"),
            tag("td", f"{number(value)}{mark}", class_="n"),
            tag("td", interval, class_="n soft"),
            **attributes,
        )

    rows = [
        row(entry.cell.title, entry.cell.value, entry.cell, entry.mark)
        for entry in values
        if entry.cell.value is not None
    ]
    if ceiling is not None:
        rows.append(row("human ceiling", ceiling.value, ceiling, "", class_="ceiling"))
    rows += [row(sentinel_title(cell.column), cell.number, cell, "", class_="ceiling") for cell in below]
    table = tag("table", tag("tbody", *rows), class_="forest")
    head = tag("h4", title, tag("span", about, class_="sub") if about else None)
    region = f"Forest plot: {title}{f', {about}' if about else ''}"
    return tag("div", head, wide(table, region), class_="plot")


def _glance(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    lines = []
    several = len(sources) > 1
    shown = _details(sources)
    with_ceiling = any(source.result.ceilings for source in sources)
    for (study, protocol, group), values in places(numbers).items():
        best = values[0]
        if group or best.info.kind == "mean" or best.cell.value is None:
            continue
        also = [entry.cell.title for entry in values[1:] if entry.top] if best.tested else []
        ceiling = sources[study].result.ceiling(protocol)
        lines.append(
            tag(
                "tr",
                tag(
                    "th",
                    f"{best.info.dataset_title}, {statistic_words(best.info)}",
                    tag("span", shown[protocol], class_="sub") if shown[protocol] else None,
                    tag("span", OURS, class_="sub") if best.result.stand_in else None,
                    scope="row",
                ),
                # Two studies of one protocol may have different metrics.
                tag("td", sources[study].result.name) if several else None,
                tag("td", best.cell.title, class_="strong"),
                _number_cell(best),
                tag("td", ", ".join(also) or ("none" if best.tested else "not tested")),
                _ceiling_cell(best.info, ceiling) if with_ceiling else None,
                tag("td", f"{best.cell.n:,}", class_="n"),
            )
        )
    if not lines:
        return tag("p", "No study measured agreement with human ratings.")
    heads = (
        "judgements",
        *(("study",) if several else ()),
        "best metric",
        "value [interval]",
        "not significantly worse",
    )
    row = [tag("th", head, scope="col") for head in heads]
    row += [tag("th", head, scope="col", class_="n") for head in (*(["human ceiling"] if with_ceiling else []), "n")]
    return joined(
        [
            tag("h3", "Which metric agrees best with human ratings?"),
            wide(
                tag("table", tag("thead", tag("tr", *row)), tag("tbody", *lines), class_="tips plain"),
                "Table: best metric by protocol",
            ),
        ]
    )


def _study(place: int, result: StudyResult, numbers: Sequence[Entry], *, alone: bool) -> Html:
    by_key = {(e.info.id, e.cell.group, e.cell.column): e for e in numbers if e.study == place}
    columns = [(info, "") for info in result.protocols]
    columns += [(info, group) for info in result.protocols if info.kind == "accuracy" for group in info.groups]
    columns = [c for c in columns if any((c[0].id, c[1]) == key[:2] for key in by_key)]
    title = result.title if alone else f"{result.title} ({result.name})"
    missing = {m.column: m for m in result.missing if m.column}
    shown = details(result.protocols)
    if not columns:
        return joined([tag("h3", title), tag("p", "Nothing could be computed: see the section Provenance.")])
    highest: dict[tuple[str, str], float] = {}
    for (protocol, group, _), e in by_key.items():
        if e.cell.value is not None:
            highest[protocol, group] = max(e.cell.value, highest.get((protocol, group), e.cell.value))
    body = []
    for name in best_first(result, numbers):
        metric, lacks = result.columns[name], missing.get(name)
        entries = [by_key.get((info.id, group, name)) for info, group in columns]
        cells = [
            tag("td", "–", class_="n", data_order="-9", data_copy="")
            if e is None
            else _matrix_cell(e, highest.get((e.info.id, e.cell.group)))
            for e in entries
        ]
        note = None
        if lacks is not None and not any(entries):
            note = tag("span", f"{'requires ' if lacks.planned else ''}{lacks.reason}", class_="sub")
        body.append(tag("tr", tag("th", metric, note, scope="row", data_copy=metric), *cells))
    heads = [tag("th", "metric", scope="col")]
    for info, group in columns:
        heads.append(
            tag(
                "th",
                tag("span", info.dataset_title, class_="over"),
                f"{statistic_words(info)}{f', {group}' if group else ''}",
                tag("span", shown[info.id], class_="sub") if shown[info.id] else None,
                scope="col",
                class_="n",
                data_dataset=info.dataset_title,
                data_copy=f"{info.dataset_title} {info.statistic}{f' {group}' if group else ''}",
            )
        )
    foot = _foot(result, columns)
    table = tag(
        "table", tag("thead", tag("tr", *heads)), tag("tbody", *body), foot, class_="tips matrix", id=f"matrix-{place}"
    )
    tested = any(result.comparisons)
    key = f"{MARK} the best, or not significantly worse. " if tested else ""
    datasets = list(dict.fromkeys(info.dataset_title for info, _ in columns))
    return joined(
        [
            tag("h3", title),
            tag(
                "div",
                _filter(f"matrix-{place}", "Data set", datasets) if len(datasets) > 1 else None,
                copy_buttons(f"matrix-{place}"),
                class_="tools",
            ),
            wide(table, f"Table: {title}"),
            tag(
                "p",
                f"{key}Rows are in the order of the first column, the best metric first. Small figures are ranks and "
                "intervals. Select a column's heading to sort. Point to a number, or move to it with the arrow keys, "
                "for its protocol, interval, n and signature.",
                class_="note",
            ),
            *(
                tag("p", line, class_="note")
                for line in (
                    *sentinel_notes(result.sentinels, [(info.id, group) for info, group in columns]),
                    *_raters(result, columns),
                )
            ),
        ]
    )


def _raters(result: StudyResult, columns: Sequence[tuple[ProtocolInfo, str]]) -> list[str]:
    """The place of human raters among the metrics of each column, one line each."""
    lines = []
    for info, group in columns:
        sentinels = result.sentinels_of(info.id)
        raters = None if sentinels is None else sentinels.raters_of(group)
        if raters is not None:
            note = rater_note(raters, result.columns, number(raters.value))
            lines.append(f"{info.dataset_title}, {statistic_words(info)}{f', {group}' if group else ''}: {note}")
    return lines


def _matrix_cell(entry: Entry, highest: float | None) -> Html:
    mark = entry.mark
    rank = None if entry.rank is None else tag("span", str(entry.rank), class_="rank", aria_label=f"rank {entry.rank}")
    interval = tag("span", entry.interval, class_="sub") if entry.interval else None
    if entry.cell.value is None:
        return tag("td", entry.shown, class_="n", data_order="-9", data_tip=entry.tip, data_copy=entry.shown)
    best = "strong" if entry.cell.value == highest and entry.info.kind != "mean" else None
    return tag(
        "td",
        tag("span", f"{entry.shown}{mark}", class_=best),
        rank,
        interval,
        class_="n",
        data_order=repr(entry.cell.value),
        data_tip=entry.tip,
        data_copy=f"{entry.shown}{mark} {entry.interval}".strip(),
    )


def _number_cell(entry: Entry) -> Html:
    return tag(
        "td",
        f"{entry.shown} ",
        tag("span", entry.interval, class_="soft") if entry.interval else None,
        data_tip=entry.tip,
    )


def _foot(result: StudyResult, columns: Sequence[tuple[ProtocolInfo, str]]) -> Html | None:
    """Rows of the human ceiling and of sentinels, which are not sorted with the metrics."""
    rows = []
    if result.ceilings:
        cells = [_ceiling_cell(info, result.ceiling(info.id, group)) for info, group in columns]
        rows.append(tag("tr", tag("th", "human ceiling", scope="row"), *cells))
    for name in dict.fromkeys(cell.column for one in result.sentinels for cell in one.cells):
        cells = [_sentinel_cell(result, info, name, group) for info, group in columns]
        rows.append(tag("tr", tag("th", sentinel_title(name), scope="row"), *cells))
    return tag("tfoot", *rows) if rows else None


def _sentinel_cell(result: StudyResult, info: ProtocolInfo, name: str, group: str) -> Html:
    sentinels = result.sentinels_of(info.id)
    cell = None if sentinels is None else sentinels.cell(name, group)
    if sentinels is None or cell is None:
        return tag("td", "", class_="n")
    tip = f"sentinel, not a metric: {sentinels.inputs.get(name, cell.undefined)}\nprotocol {info.versioned_id}"
    if cell.value is None:
        return tag("td", cell.shown_instead, class_="n", data_tip=tip)
    tip += f"\nsignature {sentinels.signatures[name]}"
    return tag("td", number(cell.value, info.kind != "mean"), class_="n", data_tip=tip)


def _ceiling_cell(info: ProtocolInfo, ceiling: Ceiling | None) -> Html:
    if ceiling is None:
        return tag("td", "", class_="n")
    method = {
        "leave-one-rater-out": "each rating against the mean of the item's other ratings",
        "votes": "one voter against the majority of the pair's other voters",
    }[ceiling.method]
    tip = f"human ceiling, not a metric: {method}\nn = {ceiling.n:,}\nprotocol {info.versioned_id}"
    if ceiling.low is not None and ceiling.high is not None:
        tip += f"\ninterval [{number(ceiling.low)}, {number(ceiling.high)}]"
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


_HEADS = ("metric", "data set", "group", "statistic", "value", "low", "high", "rank", "n", "published", "protocol")


def _is_published(numbers: Sequence[Entry]) -> bool:
    """True if a number has a published one next to it; otherwise the list of all numbers has no column for them."""
    return any(entry.cell.published is not None for entry in numbers)


def _all_numbers(numbers: Sequence[Entry], studies: bool) -> Html:
    heads = [head for head in _HEADS if head != "published" or _is_published(numbers)]
    heads += ["study"] if studies else []
    numeric = ("value", "low", "high", "rank", "n", "published")
    row = tag("tr", *(tag("th", head, scope="col", class_="n" if head in numeric else None) for head in heads))
    return joined(
        [
            tag("h3", "All numbers"),
            tag("div", tag("span", class_="filters", id="numbers-filters"), copy_buttons("numbers"), class_="tools"),
            wide(tag("table", tag("thead", row), class_="tips", id="numbers"), "Table: all numbers"),
        ]
    )


def number_rows(numbers: Sequence[Entry], *, studies: bool) -> list[dict[str, Any]]:
    """The list of all numbers for the page's script: texts (``t``), sort keys (``s``), tooltips (``tip``).

    Protocol by protocol and group by group, the best metric first.
    """
    rows = []
    with_published = _is_published(numbers)
    for entry in (entry for values in places(numbers).values() for entry in values):
        cell = entry.cell
        ends = ["" if end is None else number(end) for end in (cell.low, cell.high)]
        published = cell.published_printed or ""
        rank = "" if entry.rank is None else str(entry.rank)
        dataset = f"{entry.info.dataset_title} ({OURS})" if entry.result.stand_in else entry.info.dataset_title
        texts = [cell.title, dataset, cell.group or "all", entry.info.statistic, entry.shown, *ends]
        texts += [rank, f"{cell.n:,}", published, entry.info.versioned_id, *([entry.result.name] if studies else [])]
        sort = [*texts[:4], cell.value, cell.low, cell.high, entry.rank, cell.n, cell.published, *texts[10:]]
        if not with_published:
            del texts[9], sort[9]
        rows.append({"t": texts, "s": sort, "tip": entry.tip})
    return rows


# Descriptions of protocols, and the effect of another choice.

_CHOICES = (
    (
        "tau-b",
        "Kendall's τ-b counts ordered pairs and corrects for ties on both sides.",
        "τ-c divides by a bound from the number of ratings instead of correcting for ties: values are lower if there "
        "are few different ratings, and the order of metrics can change if some have many ties.",
    ),
    (
        "tau-c",
        "Kendall's (Stuart's) τ-c counts ordered pairs and divides by a bound from the number of different ratings.",
        "τ-b corrects for the ties of both sides: it is higher for metrics with many ties. Papers differ in their "
        "choice, so values of the two must not be compared.",
    ),
    (
        "spearman",
        "Spearman's ρ is the correlation of ranks: a single caption with a very wrong rank has a large influence.",
        "Kendall's coefficients count pairs and give smaller values; the order of metrics is often the same.",
    ),
    (
        "pearson",
        "Pearson's r is the correlation of the values themselves: it measures linear agreement.",
        "Rank coefficients measure only the order; a nonlinear scale or a few extreme scores do not lower them.",
    ),
    (
        "acc-eq",
        "Pairwise accuracy with tie calibration: a pair counts as tied if its scores differ by less than ε, and the "
        "ties of human raters must be predicted, too.",
        "Kendall's coefficients favour a metric without ties even where human raters have ties.",
    ),
    (
        "difference-pearson",
        "Pearson's r of the differences between captions of one image.",
        "Correlations over all captions also depend on the difficulty of images.",
    ),
    (
        "within-image",
        "Captions are compared only within one image: does the metric rank the captions of an image as the raters do?",
        "Over all captions, a metric also gains by recognising images that are hard to describe.",
    ),
    (
        "within-source",
        "Captions are compared only if they have the same author: does the metric rank the captions of one captioning "
        "system, or of humans, as the raters do?",
        "Over all captions, a metric also gains by distinguishing good from bad captioning systems, or humans from "
        "machines.",
    ),
    (
        "no-human",
        "Only machine captions.",
        "With human captions, a metric also gains by distinguishing human from machine captions.",
    ),
    (
        "system",
        "Whole systems are compared by their means, as in a leaderboard.",
        "Over captions there are thousands of data points instead of a few systems, and agreement is lower, because "
        "single captions are harder to judge.",
    ),
    (
        "unaggregated",
        "Every single rating is a data point.",
        "With one value per item (mean, median, most frequent rating) the disagreement between raters is averaged out, "
        "and every metric's value rises.",
    ),
    (
        "mean",
        "The mean of an item's ratings is its data point.",
        "Single ratings include the disagreement between raters: values fall.",
    ),
    (
        "median",
        "The median of an item's ratings is its data point.",
        "The mean has more different values and therefore fewer ties.",
    ),
    (
        "mode",
        "The most frequent rating of an item is its data point.",
        "The mean has more different values and therefore fewer ties.",
    ),
    (
        "strict",
        "A tie of the metric counts as wrong.",
        "A rule that counts ties as one half, or as right, favours metrics with many ties.",
    ),
    (
        "ties-right",
        "A tie of the metric counts as right.",
        "The strict rule counts it as wrong: the values of metrics with many ties fall.",
    ),
    ("ties-half", "A tie of the metric counts one half, as guessing would.", "The strict rule counts it as wrong."),
    (
        "no-own-captions",
        "Pairs whose caption belongs to the image are left out: the caption would be its own reference.",
        "With them, reference-based metrics give such captions the highest scores trivially.",
    ),
    (
        "any-candidate-out",
        "References identical to one of the image's candidates are left out for all of them.",
        "With them, a human caption is among its own references and gets the highest scores.",
    ),
    (
        "same-text-out",
        "References identical to the candidate are left out.",
        "With them, a human caption is among its own references and gets the highest scores.",
    ),
    (
        "all-references",
        "All references count, including one identical to the candidate.",
        "Without identical references, human captions lose this advantage.",
    ),
    (
        "random",
        "References are sampled at random, several times; values are means over the samples.",
        "With all references, most metrics agree better with human ratings; fewer references show how a metric works "
        "with little data.",
    ),
)


def choices(info: ProtocolInfo) -> list[tuple[str, str]]:
    """The choices in a protocol's id: the meaning of each, and the effect of another one.

    The longest matching name is used once: ``within-image-tau-b`` makes the choices *within-image* and *tau-b*.
    """
    words = "/".join(info.id.split("/")[1:])
    parts = [f"-{part}-" for part in words.split("/")]
    made = []
    for name, means, other in _CHOICES:
        if any(f"-{name}-" in part for part in parts):
            made.append((means, other))
    return made


def protocols_section(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    """All protocols of the page, each once."""
    infos = {info.id: info for source in sources for info in source.result.protocols}
    values: dict[str, dict[str, float]] = {}
    titles: dict[str, str] = {}
    for entry in numbers:
        if not entry.cell.group and entry.info.kind != "mean" and entry.cell.value is not None:
            values.setdefault(entry.info.id, {}).setdefault(entry.cell.column, entry.cell.value)
            titles[entry.cell.column] = entry.cell.title
    parts = [_protocol(info, infos, values, titles) for info in infos.values()]
    return tag(
        "section",
        tag("h2", "Protocols in words"),
        tag(
            "p",
            "A protocol is data set / items / statistic: the captions, their references, and the computed statistic. "
            "The same metric has another value under another protocol.",
            class_="note",
        ),
        *parts,
        id="protocols",
    )


def _protocol(
    info: ProtocolInfo, infos: dict[str, ProtocolInfo], values: dict[str, dict[str, float]], titles: dict[str, str]
) -> Html:
    lines = [tag("p", info.description[:1].upper() + info.description[1:] + ".")]
    made = choices(info)
    if made:
        row = tag("tr", tag("th", "this protocol", scope="col"), tag("th", "another choice", scope="col"))
        body = [tag("tr", tag("td", means), tag("td", other)) for means, other in made]
        lines.append(tag("table", tag("thead", row), tag("tbody", *body), class_="plain words"))
    changes = _changes(info, infos, values, titles)
    if changes:
        lines += [tag("p", "On the same judgements:"), tag("ul", *changes)]
    whole = "" if info.n_items_whole is None else f" of {info.n_items_whole:,} (--allow-missing)"
    size = f"{info.n_items:,} scored items{whole}" + (f", {info.draws} reference samples" if info.draws > 1 else "")
    notes = [size, *info.notes]
    lines.append(tag("ul", *(tag("li", note) for note in dict.fromkeys(notes)), class_="note"))
    head = tag("summary", tag("b", f"{info.dataset_title}, {info.statistic}"), " ", tag("code", info.versioned_id))
    return tag("details", head, *lines)


def _changes(
    info: ProtocolInfo, infos: dict[str, ProtocolInfo], values: dict[str, dict[str, float]], titles: dict[str, str]
) -> list[Html]:
    """Changes of the ranking under the page's other protocols of the same data set."""
    mine = values.get(info.id, {})
    changes = []
    for other in infos.values():
        theirs = values.get(other.id, {})
        common = [name for name in mine if name in theirs]
        if other.id == info.id or other.dataset != info.dataset or len(common) < 2:
            continue
        tau = agreement_of_rankings(mine, theirs)
        best, then = (max(common, key=ranking.__getitem__) for ranking in (mine, theirs))
        order = "" if tau is None else f"the rankings of {len(common)} metrics agree with τ-b {tau:.2f}"
        same = (
            f"{titles[best]} stays first" if best == then else f"{titles[then]} comes first in place of {titles[best]}"
        )
        rest = other.id.split("/", 1)[1]
        changes.append(tag("li", joined([tag("code", rest), f": {'; '.join(filter(None, [order, same]))}."])))
    return changes
