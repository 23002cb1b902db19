"""The sections of single metrics: tests of pairs, and scores by rating."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capbench.reports.methods import decided, p_value_of, test_note
from capbench.reports.page.elements import Html, ReportSource, levels_chart, plain_table, tag
from capbench.reports.page.overview import best_first, statistic_words
from capbench.reports.table import USUAL_TABLE, number
from capbench.studies.item_scores import ItemScores
from capbench.studies.score_profiles import by_level
from capbench.studies.scoring import ProgressFactory, no_progress


def metric_sections(sources: Sequence[ReportSource], progress: ProgressFactory = no_progress) -> Html:
    """The tests of pairs, and the scores of each metric in a collapsed part; a metric of several studies has one."""
    titles: dict[str, str] = {}
    for source in sources:
        ids = [info.id for info in sorted(source.result.protocols, key=lambda info: info.kind == "mean")]
        names = best_first(source.result, ids[0]) if ids else source.result.columns
        titles = {name: source.result.columns[name] for name in names} | titles
    scored = sum(len(table.scores) for source in sources for table in source.items)
    with progress("page", scored) as step:
        parts = [part for name, title in titles.items() if (part := _metric(name, title, sources, step)) is not None]
    listed = [
        tag("h2", "Scores of each metric"),
        tag("p", tag("button", "Open all", type="button", id="open-all"), class_="tools") if len(parts) > 1 else None,
        *parts,
    ]
    return tag("section", *_pairs(sources), *(listed if parts else []), id="metrics")


def _metric(name: str, title: str, sources: Sequence[ReportSource], step: Callable[[int], None]) -> Html | None:
    """The scores of a metric by rating, or the reason why it was not computed; None without either."""
    reasons = [m.reason for s in sources for m in s.result.missing if m.column == name]
    body = [tag("p", f"Not computed: {reason}") for reason in dict.fromkeys(reasons)]
    for source in sources:
        for table in source.items:
            if name in table.scores:
                body.append(_scores(name, title, table, source.result.name if len(sources) > 1 else ""))
                step(1)
    return tag("details", tag("summary", tag("b", title)), *body, class_="metric") if body else None


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
            blocks += [tag("h2", title), table, tag("p", test_note(tests), class_="note")]
    return blocks


def _scores(name: str, title: str, table: ItemScores, study: str) -> Html:
    places, scores = table.points(name)
    human = table.human_values[places]
    levels, edges = by_level(scores, human)
    where = f"{table.dataset_title}, {table.items.split('/', 1)[-1]}, {table.side}{f' ({study})' if study else ''}"
    if table.kind == "preferences":
        head, label = f"Differences on {where}", "scores of preferred captions minus the others"
        text = (
            f"Score of the caption that human raters prefer minus that of the other: {int((scores < 0).sum()):,} of "
            f"{len(scores):,} pairs have the opposite order, {int((scores == 0).sum()):,} are tied."
        )
        side = tag("p", text)
    else:
        head, label = f"Scores by mean rating on {where}", "scores by rating"
        rows = [
            (f"{level.rating:.3g}", f"{level.n:,}", f"{level.mean:.4g}", "–" if level.sd is None else f"{level.sd:.3g}")
            for level in reversed(levels)  # as in the chart
        ]
        heads = ("rating", "captions", "mean", "sd")
        side = plain_table(heads, rows, f"Table: {title} by rating, {where}", texts=0)
    chart = levels_chart(levels, edges, f"{title} on {where}: {label}", pairs=table.kind == "preferences")
    return tag(
        "div", tag("h3", head), tag("div", tag("div", Html(chart)), tag("div", side), class_="pair"), class_="figure"
    )
