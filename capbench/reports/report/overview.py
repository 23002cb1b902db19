"""The overview: who is best where, a table of metrics by protocol for each study, and every number in one list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capbench.reports.report.elements import Html, joined, tag, wide
from capbench.reports.report.numbers import Entry, places
from capbench.reports.report.sources import ReportSource
from capbench.reports.tables import MARK, number
from capbench.studies.results import OURS, Ceiling, ProtocolInfo, StudyResult

__all__ = ["copy_buttons", "number_rows", "overview"]


def overview(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    """The section with the studies' tables; the list of all numbers is filled by the page's script."""
    blocks = [_glance(sources, numbers)]
    for place, source in enumerate(sources):
        blocks.append(_study(place, source.result, numbers, alone=len(sources) == 1))
    blocks.append(_all_numbers(len(sources) > 1))
    return tag("section", tag("h2", "Overview"), *blocks, id="overview")


def _glance(sources: Sequence[ReportSource], numbers: Sequence[Entry]) -> Html:
    lines = []
    several = len(sources) > 1
    for (study, protocol, group), values in places(numbers).items():
        best = values[0]
        if group or best.info.kind == "mean":
            continue
        also = [entry.cell.title for entry in values[1:] if entry.top] if best.tested else []
        ceiling = sources[study].result.ceiling(protocol)
        lines.append(
            tag(
                "tr",
                tag(
                    "th",
                    best.info.dataset_title,
                    tag("span", _rest(best.info), class_="sub"),
                    tag("span", OURS, class_="sub") if best.result.stand_in else None,
                    scope="row",
                ),
                # Two studies of one protocol may have other metrics.
                tag("td", sources[study].result.name) if several else None,
                tag("td", best.info.statistic),
                tag("td", best.cell.title, class_="strong"),
                _number_cell(best),
                tag("td", ", ".join(also) or ("none" if best.tested else "not tested")),
                _ceiling_cell(best.info, ceiling),
                tag("td", f"{best.cell.n:,}", class_="n"),
            )
        )
    if not lines:
        return tag("p", "No study measured agreement with people.")
    heads = (
        "judgements",
        *(("study",) if several else ()),
        "statistic",
        "best metric",
        "value [interval]",
        "not significantly worse",
    )
    row = [tag("th", head, scope="col") for head in heads]
    row += [tag("th", head, scope="col", class_="n") for head in ("people", "n")]
    return joined(
        [
            tag("h3", "Which metric agrees best with people?"),
            wide(
                tag("table", tag("thead", tag("tr", *row)), tag("tbody", *lines), class_="tips plain"),
                "Table: best metric by protocol",
            ),
        ]
    )


def _rest(info: ProtocolInfo) -> str:
    return " / ".join(info.id.split("/")[1:])


def _study(place: int, result: StudyResult, numbers: Sequence[Entry], *, alone: bool) -> Html:
    by_key = {(e.info.id, e.cell.group, e.cell.column): e for e in numbers if e.study == place}
    columns = [(info, "") for info in result.protocols]
    columns += [(info, group) for info in result.protocols if info.kind == "accuracy" for group in info.groups]
    columns = [c for c in columns if any((c[0].id, c[1]) == key[:2] for key in by_key)]
    title = result.title if alone else f"{result.title} ({result.name})"
    missing = {m.column: m.reason for m in result.missing if m.column}
    if not columns:
        return joined([tag("h3", title), tag("p", "Nothing could be computed: see below, under provenance.")])
    highest = {key[:2]: max(e.cell.value for k, e in by_key.items() if k[:2] == key[:2]) for key in by_key}
    body = []
    for name, metric in result.columns.items():
        entries = [by_key.get((info.id, group, name)) for info, group in columns]
        reason = missing.get(name, "")
        cells = [
            tag("td", "–", class_="n", data_order="-9", data_copy="")
            if e is None
            else _matrix_cell(e, highest[e.info.id, e.cell.group])
            for e in entries
        ]
        note = tag("span", reason, class_="sub") if reason and not any(entries) else None
        body.append(tag("tr", tag("th", metric, note, scope="row", data_copy=metric), *cells))
    heads = [tag("th", "metric", scope="col")]
    for info, group in columns:
        percent = " %" if info.kind == "accuracy" else ""
        heads.append(
            tag(
                "th",
                tag("span", info.dataset_title, class_="over"),
                f"{info.statistic}{percent}{f', {group}' if group else ''}",
                tag("span", _rest(info), class_="sub"),
                scope="col",
                class_="n",
                data_dataset=info.dataset_title,
                data_copy=f"{info.dataset_title} {info.statistic}{f' {group}' if group else ''}",
            )
        )
    foot = _ceilings(result, columns)
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
                f"{key}Small figures are ranks and intervals. A column's head sorts. Rest on a number, or move to it "
                "with the arrow keys, to read its protocol, interval, n and signature.",
                class_="note",
            ),
        ]
    )


def _matrix_cell(entry: Entry, highest: float) -> Html:
    mark = MARK if entry.tested and entry.top else ""
    rank = None if entry.rank is None else tag("span", str(entry.rank), class_="rank", aria_label=f"rank {entry.rank}")
    interval = tag("span", entry.interval, class_="sub") if entry.interval else None
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


def _ceilings(result: StudyResult, columns: Sequence[tuple[ProtocolInfo, str]]) -> Html | None:
    cells = [_ceiling_cell(info, result.ceiling(info.id, group)) for info, group in columns]
    if not result.ceilings:
        return None
    return tag("tfoot", tag("tr", tag("th", "people", scope="row"), *cells))


def _ceiling_cell(info: ProtocolInfo, ceiling: Ceiling | None) -> Html:
    if ceiling is None:
        return tag("td", "", class_="n")
    how = {
        "leave-one-rater-out": "each rating against the mean of the item's other ratings",
        "votes": "one voter against the majority of the pair's other voters",
    }[ceiling.method]
    tip = f"human ceiling, not a metric: {how}\nn = {ceiling.n:,}\nprotocol {info.versioned_id}"
    if ceiling.low is not None and ceiling.high is not None:
        percent = info.kind == "accuracy"
        tip += f"\ninterval [{number(ceiling.low, percent)}, {number(ceiling.high, percent)}]"
    return tag("td", number(ceiling.value, info.kind == "accuracy"), class_="n", data_tip=tip)


def _filter(target: str, label: str, choices: Sequence[str]) -> Html:
    name = f"{target}-filter"
    options = [tag("option", "all", value="")] + [tag("option", choice, value=choice) for choice in choices]
    return joined([tag("label", label, for_=name), tag("select", *options, id=name, data_filters=target)], " ")


def copy_buttons(target: str) -> Html:
    """Buttons that copy the rows of a table as they are shown."""
    buttons = [
        tag("button", form, type="button", data_copies=target, data_form=form.lower())
        for form in ("LaTeX", "Markdown", "CSV")
    ]
    return tag("span", tag("span", "Copy as"), *buttons, class_="copies", role="group", aria_label="Copy the table as")


_HEADS = ("metric", "data set", "group", "statistic", "value", "low", "high", "rank", "n", "published", "protocol")


def _all_numbers(studies: bool) -> Html:
    heads = [*_HEADS, *(["study"] if studies else [])]
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
    """The list of all numbers for the page's script: texts (``t``), what to sort by (``s``), tooltips (``tip``)."""
    rows = []
    for entry in numbers:
        cell, percent = entry.cell, entry.percent
        ends = ["" if end is None else number(end, percent) for end in (cell.low, cell.high)]
        published = "" if cell.published is None else cell.published_printed or number(cell.published, percent)
        rank = "" if entry.rank is None else str(entry.rank)
        dataset = f"{entry.info.dataset_title} ({OURS})" if entry.result.stand_in else entry.info.dataset_title
        texts = [cell.title, dataset, cell.group or "all", entry.info.statistic, entry.shown, *ends]
        texts += [rank, f"{cell.n:,}", published, entry.info.versioned_id, *([entry.result.name] if studies else [])]
        sort = [*texts[:4], cell.value, cell.low, cell.high, entry.rank, cell.n, cell.published, *texts[10:]]
        rows.append({"t": texts, "s": sort, "tip": entry.tip})
    return rows
