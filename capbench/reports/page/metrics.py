"""The sections of single metrics: agreement by data set, scores by rating, within and between images, systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from capbench.core.records import FloatArray
from capbench.reports.methods import decided, p_value_of, test_note
from capbench.reports.page.elements import Html, ReportSource, joined, levels_chart, plain_table, tag
from capbench.reports.page.overview import best_first, statistic_words
from capbench.reports.table import number
from capbench.studies.item_scores import ItemScores
from capbench.studies.score_profiles import by_level, image_levels, system_means
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
                ends = [number(end) for end in (pair.low, pair.high) if end is not None]
                rows.append(
                    [
                        *(result.columns.get(column, column) for column in (pair.better, pair.worse)),
                        number(pair.difference),
                        f"[{', '.join(ends)}]" if ends else "–",
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
    images = [table.images[place] for place in places.tolist()]
    levels, edges = by_level(scores, human)
    where = f"{table.dataset_title}, {table.items.split('/', 1)[-1]}, {table.side}{f' ({study})' if study else ''}"
    if table.kind == "preferences":
        wrong = int((scores < 0).sum())
        ties = int((scores == 0).sum())
        chart = levels_chart(
            levels, edges, f"{title} on {where}: scores of preferred captions minus the others", pairs=True
        )
        text = (
            f"Score of the caption that human raters prefer minus that of the other: {wrong:,} of {len(scores):,} "
            f"pairs have the opposite order, {ties:,} are tied."
        )
        return _figure(f"Differences on {where}", chart, tag("p", text))
    chart = levels_chart(levels, edges, f"{title} on {where}: scores by rating")
    rows = [
        (f"{level.rating:.3g}", f"{level.n:,}", f"{level.mean:.4g}", "–" if level.sd is None else f"{level.sd:.3g}")
        for level in reversed(levels)  # as in the chart
    ]
    by_rating = plain_table(("rating", "captions", "mean", "sd"), rows, f"Table: {title} by rating, {where}", texts=0)
    within = image_levels(scores, human, images)
    facts = [
        ("Within images", f"τ-b of each image's captions, mean over {within.images:,} images", _known(within.within)),
        ("Between images", f"τ-b of image means, {within.images_between:,} images", _known(within.between)),
        (
            "Variance between images",
            f"of the scores; of human ratings {_share(within.human_share)}",
            _share(within.share),
        ),
    ]
    side = [
        by_rating,
        plain_table(("scores", "meaning", "value"), facts, f"Table: {title} within images, {where}", texts=2),
        _systems(title, where, scores, human, [table.systems[place] for place in places.tolist()]),
    ]
    return _figure(f"Scores by mean rating on {where}", chart, joined(side))


def _systems(title: str, where: str, scores: FloatArray, human: FloatArray, systems: Sequence[str]) -> Html | None:
    means = system_means(scores, human, systems)
    if not means:
        return None
    by_score = sorted(means, key=lambda mean: -mean.score)
    rows = [
        (mean.system, f"{mean.human:.3f}", f"{mean.score:.4g}", f"{by_score.index(mean) + 1}", f"{mean.n:,}")
        for mean in means
    ]
    heads = ("system", "human rating", "metric", "metric's rank", "captions")
    return plain_table(heads, rows, f"Table: systems under {title}, {where}")


def _figure(title: str, chart: str, side: Html) -> Html:
    return tag("div", tag("h3", title), tag("div", Html(chart), tag("div", side), class_="pair"), class_="figure")


def _known(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "not defined" if value is None else f"{100 * value:.0f} %"
