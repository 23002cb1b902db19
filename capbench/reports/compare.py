"""A comparison of metrics in sentences, in the terminal and as HTML; combinations, examples and reference curves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from capbench import __version__
from capbench.core.errors import count
from capbench.core.files import csv_text, lock, write_json, write_text
from capbench.core.records import signature_lines
from capbench.core.training_record import overlap_lines
from capbench.datasets.protocol import StatisticSpec, with_version
from capbench.reports.markup import SAMPLE, document, markdown_document, markdown_signatures, markdown_table, table_html
from capbench.reports.table import USUAL_TABLE, Column, Entry, Row, Table, TableStyle, number
from capbench.reports.uncertainty import (
    MARK,
    READ_MARK,
    READ_NOTE,
    SENTINEL_MARK,
    p_value_text,
    rater_note,
    sentinel_notes,
    sentinel_title,
)
from capbench.stats.pairs import Pair, Tests
from capbench.stats.significance import at_floor
from capbench.studies.combine import Combined
from capbench.studies.compare import MetricComparison
from capbench.studies.examples import Examples
from capbench.studies.uncertainty import RANK_RULE, too_few_units

if TYPE_CHECKING:
    from rich.console import Console

    from capbench.stats.systems import SystemPair
    from capbench.studies.references import ReferenceCurves


def sentence(
    pair: Pair, comparison: MetricComparison, label: str, *, percent: bool, style: TableStyle = USUAL_TABLE
) -> str:
    """One sentence on a pair: the metric that agrees better with human ratings, or that they do not differ.

    With too few units for any difference to be significant, it has no p-value and no verdict. Otherwise the corrected
    p-value decides. The interval of the difference is not corrected; where it suggests the opposite, a second sentence
    gives the reason.

    Args:
        pair: the pair's test.
        comparison: the comparison that contains it.
        label: short name of the statistic (``τ-c``).
        percent: True if values are usually shown times 100.
        style: the user's choices.
    """

    def show(value: float) -> str:
        return style.number(value, style.scale(percent))

    table = comparison.table
    pairs = len(table.pairs)
    is_corrected = table.correction != "none" and pairs > 1
    is_bound = at_floor(
        pair.p_value, pair.p_adjusted, pairs=pairs, resamples=table.resamples, correction=table.correction
    )
    untested = bool(too_few_units(table))
    evidence = (
        f"{label} {show(table.values[pair.better])} against {show(table.values[pair.worse])}, "
        f"difference {show(pair.difference)}"
    )
    if not untested:
        p_value = p_value_text(pair.p_adjusted, is_bound=is_bound)
        evidence += f", {'corrected ' if is_corrected else ''}p {p_value}"
    caveat = ""
    if pair.low is not None and pair.high is not None and table.level is not None:
        evidence += (
            f", {'uncorrected ' if is_corrected else ''}{100 * table.level:g} % interval "
            f"[{show(pair.low)}, {show(pair.high)}]"
        )
        caveat = interval_caveat(pair, table.alpha, pairs if is_corrected else 1)
    if untested:
        return f"{pair.better} and {pair.worse} are not tested: {evidence}."
    if pair.significant:
        return f"{pair.better} agrees better with human ratings than {pair.worse}: {evidence}.{caveat}"
    return f"{pair.better} and {pair.worse} do not differ significantly: {evidence}.{caveat}"


def interval_caveat(pair: Pair | SystemPair, alpha: float, corrected: int, noun: str = "pair") -> str:
    """A sentence on an interval that suggests the opposite of the test; ``""`` if both agree.

    Args:
        pair: the test.
        alpha: the significance level.
        corrected: number of tests for which the p-value is corrected.
        noun: name of such a test.
    """
    if pair.low is None or pair.high is None:
        return ""
    excludes_zero = pair.low > 0 or pair.high < 0
    if excludes_zero is pair.significant:
        return ""
    if excludes_zero and pair.p_value <= alpha:
        return f" Without the correction for {count(corrected, noun)}, the difference is significant."
    contains = "does not contain 0" if excludes_zero else "contains 0"
    return f" The interval {contains}, but the test decides: the two methods differ near the significance level."


def basis(comparison: MetricComparison, data_points: str = "judgements") -> str:
    """Protocol, data and test of a comparison; one line.

    Args:
        comparison: the comparison.
        data_points: name of the data points.
    """
    table = comparison.table
    over = "" if table.unit is None else f" over {table.units:,} {table.unit}s"
    drawn = "" if table.resamples is None else f", {table.resamples:,} times, seed {table.seed}"
    return (
        f"{with_version(comparison.protocol, comparison.version)}: {comparison.n:,} {data_points}; "
        f"{table.test} test{over}{drawn}; "
        f"correction {table.correction}, α = {table.alpha:g}"
    )


def incomplete(comparison: MetricComparison) -> list[str]:
    """One line for each omitted metric, with the reason."""
    return [f"{name}: {less}" for name, less in comparison.incomplete.items()]


def comparison_table(
    comparison: MetricComparison, title: str, label: str, *, percent: bool, style: TableStyle = USUAL_TABLE
) -> Table:
    """A comparison as a table for Markdown, LaTeX and HTML: value with interval, and rank, of each metric and sentinel.

    Args:
        comparison: the comparison.
        title: title of the data set.
        label: short name of the statistic (``τ-c``).
        percent: True if values are usually shown times 100.
        style: the user's choices.

    Raises:
        UsageError: there is no column of this name.
    """
    table = comparison.table
    shown = style.scale(percent)
    tested = not too_few_units(table)
    no_better = frozenset() if comparison.sentinels is None else comparison.sentinels.no_better()
    values = [style.number(value, shown) for value in table.values.values()]
    of_value = Column(
        (title, label),
        comparison.protocol,
        "",
        compared=False,
        percent=shown,
        best=style.number(max(table.values.values()), shown) if style.bold and len(values) > 1 else None,
        rescaled=style.rescaled(percent),
    )
    columns = [of_value, Column(("", "rank"), comparison.protocol, "", compared=False, percent=False)]
    style.check(columns)
    chosen = style.chosen(columns)

    def row(name: str, value: Entry, rank: str) -> Row:
        return Row(name, tuple(value if column is of_value else Entry(ours=rank) for column in chosen))

    rows = [
        row(
            name,
            Entry(
                value,
                interval=style.interval(comparison.intervals[name].low, comparison.intervals[name].high, shown),
                top=style.daggers and tested and name in table.top,
                no_better=style.daggers and name in no_better,
                has_read=name in comparison.read,
            ),
            str(table.ranks[name]) if tested else "–",
        )
        for name, value in zip(table.values, values, strict=True)
    ]
    rows += [row(name, Entry(instead=less.instead), "") for name, less in comparison.incomplete.items()]
    sentinels = [
        row(
            sentinel_title(cell.column),
            Entry(instead=cell.shown_instead)
            if cell.value is None
            else Entry(style.number(cell.value, shown), interval=style.interval(cell.low, cell.high, shown)),
            "",
        )
        for cell in (() if comparison.sentinels is None else comparison.sentinels.cells)
    ]
    legend = [f"{MARK}{line[1:]}" if line.startswith("*") else line for line in _legend(table)]
    notes = [
        *legend,
        *_sentinel_lines(comparison, percent=percent, style=style),
        *_training_lines(comparison),
        *(sentence(pair, comparison, label, percent=percent, style=style) for pair in table.pairs),
        *incomplete(comparison),
        basis(comparison),
        *comparison.notes,
    ]
    unwanted = () if style.daggers else (MARK, SENTINEL_MARK)
    return Table(
        title=f"Agreement with human judgements: {of_value.heading}",
        columns=tuple(chosen),
        rows=tuple(rows),
        notes=tuple(note for note in notes if not note.startswith(unwanted)),
        sentinels=tuple(sentinels),
    )


def comparison_html(comparison: MetricComparison, title: str, label: str, *, percent: bool) -> str:
    """A comparison as a piece of HTML: the metrics, a sentence for each pair, the protocol and test."""
    table = comparison_table(comparison, title, label, percent=percent)
    return document(
        table_html(table),
        notes=[*([SAMPLE] if comparison.sample else []), *table.notes],
        signatures=_all_signatures(comparison),
    )


def comparison_markdown(table: Table, comparison: MetricComparison) -> str:
    """The table of a comparison as a document of Markdown, with signatures."""
    blocks = [markdown_table(table), markdown_signatures(_all_signatures(comparison))]
    return markdown_document(blocks, f"capbench {__version__}", sample=comparison.sample)


def _rank(name: str, table: Tests) -> str:
    """The rank of a metric, with ``*`` if it is not significantly worse than the best; ``–`` if nothing is tested."""
    if too_few_units(table):
        return "–"
    return f"{table.ranks[name]}{'*' if name in table.top else ''}"


def _sentinel_rows(comparison: MetricComparison, *, percent: bool) -> list[list[str]]:
    """Title, value, interval and rank of each sentinel; they have no rank."""
    rows = []
    for cell in () if comparison.sentinels is None else comparison.sentinels.cells:
        if cell.value is None:
            shown, ends = cell.shown_instead, ""
        else:
            shown = number(cell.value, percent)
            known = [number(end, percent) for end in (cell.low, cell.high) if end is not None]
            ends = " – ".join(known)
        rows.append([sentinel_title(cell.column), shown, ends, ""])
    return rows


def _marked(name: str, value: str, comparison: MetricComparison, *, aligned: bool = False) -> str:
    """The value of a metric, with marks if it is not significantly better than every sentinel, and if its training has
    read the judged captions.

    With ``aligned``, values without a mark end with a space if any value has one.
    """
    below = frozenset[str]() if comparison.sentinels is None else comparison.sentinels.no_better()
    for mark, names in ((SENTINEL_MARK, below), (READ_MARK, comparison.read)):
        value += mark if name in names else " " if names and aligned else ""
    return value


def _training_lines(comparison: MetricComparison) -> list[str]:
    """The meaning of the mark of training, and the overlap of each metric's training with the items."""
    return [*([READ_NOTE] if comparison.read else []), *overlap_lines(comparison.training)]


def _sentinel_lines(comparison: MetricComparison, *, percent: bool, style: TableStyle = USUAL_TABLE) -> list[str]:
    """The meaning of the mark, the inputs of the sentinels, reasons why some are undefined, and human raters."""
    sentinels = comparison.sentinels
    if sentinels is None:
        return []
    undefined = [f"{cell.column}: {cell.undefined}" for cell in sentinels.cells if cell.undefined and not cell.group]
    raters = sentinels.raters_of()
    of_raters = [] if raters is None else [rater_note(raters, {}, style.number(raters.value, style.scale(percent)))]
    return [*sentinel_notes([sentinels], [(sentinels.protocol, "")]), *undefined, *of_raters]


def _all_signatures(comparison: MetricComparison) -> list[str]:
    of_sentinels = {} if comparison.sentinels is None else comparison.sentinels.signatures
    return [*signature_lines(comparison.signatures), *of_sentinels.values()]


def _legend(table: Tests) -> list[str]:
    """The meaning of ranks and ``*``, or the reason why there are none; one line each."""
    if reason := too_few_units(table):
        return [f"No tests between the metrics: {reason}."]
    rule = [f"{RANK_RULE}."] if any(table.ranks[name] > 1 for name in table.top) else []
    return ["* not significantly worse than the best", *rule]


def print_comparison(
    comparison: MetricComparison, statistic: StatisticSpec, console: Console, *, of: str | None = None
) -> None:
    """Print a comparison: the metrics, a sentence for each pair, protocol and test, signatures.

    Args:
        comparison: the comparison.
        statistic: of its protocol.
        console: where to.
        of: the metric whose pairs get a sentence; None for all pairs.
    """
    from rich import box
    from rich.table import Table

    percent = statistic.kind == "accuracy"

    def show(value: float) -> str:
        return number(value, percent)

    table = comparison.table
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("metric")
    for head in (statistic.label, "95 % interval", "rank"):
        shown.add_column(head, justify="right")
    for name, value in table.values.items():
        interval = comparison.intervals[name]
        ends = f"{show(interval.low)} – {show(interval.high)}"
        shown.add_row(name, _marked(name, show(value), comparison, aligned=True), ends, _rank(name, table))
    for name, less in comparison.incomplete.items():
        shown.add_row(name, less.instead, "", "")
    if comparison.sentinels is not None:
        shown.add_section()
        for name, text, *rest in _sentinel_rows(comparison, percent=percent):
            shown.add_row(name, _marked("", text, comparison, aligned=True), *rest, style="dim")
    console.print(shown)
    for line in (*_legend(table), *_sentinel_lines(comparison, percent=percent), *_training_lines(comparison)):
        console.print(line, style="dim", markup=False, soft_wrap=True)
    for pair in table.pairs:
        if of is None or of in (pair.better, pair.worse):
            console.print(sentence(pair, comparison, statistic.label, percent=percent), markup=False, soft_wrap=True)
    for line in incomplete(comparison):
        console.print(line, markup=False, soft_wrap=True)
    console.print(basis(comparison, statistic.data_points), style="dim", markup=False, soft_wrap=True)
    for line in (*comparison.notes, *_all_signatures(comparison)):
        console.print(line, style="dim", markup=False, soft_wrap=True)


# A learned combination in the terminal: next to its metrics, its weights, and its transfer to other data sets.


def print_combined(
    combined: Combined, statistic: StatisticSpec, tests: Sequence[StatisticSpec], console: Console
) -> None:
    """Print a combination.

    Args:
        combined: the combination.
        statistic: of the protocol that it was learned from.
        tests: those of the protocols to which it was transferred, in the order of its transfers.
        console: where to print.
    """

    def say(text: str, style: str = "dim") -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    settings = combined.settings
    print_comparison(combined.comparison, statistic, console, of=combined.title)
    if settings.learner == "mean-rank":
        say(
            f"{combined.title}: mean of the metrics' quantiles among the judged captions of {combined.images:,} "
            "images; no judgement was used"
        )
        _print_parts(combined, statistic, console)
        say("weight: standard deviation of the metric's quantile, divided by the number of metrics")
    else:
        say(
            f"{combined.title}: {settings.learner}; each caption's score was learned on other images "
            f"({combined.images:,} images, {settings.folds} folds, {settings.inner_folds} inner folds, seed "
            f"{settings.seed}); penalties {_span(combined.fold_penalties)}"
        )
        _print_parts(combined, statistic, console)
        say(
            f"weight: change of the score for one standard deviation of the metric, in {_unit(combined)}; learned from "
            f"all images with the penalty {combined.penalty:g}; 95 % bootstrap interval over images"
        )
    if len(combined.parts) > 1:
        say(
            f"drop: loss of {statistic.label} if {combined.title} is learned without the metric, with the interval "
            "of the difference on the same resamples of images"
        )
    for transfer, spec in zip(combined.transfers, tests, strict=True):
        say(f"\nLearned on {combined.comparison.protocol}, tested on {transfer.comparison.protocol}", style="bold")
        print_comparison(transfer.comparison, spec, console, of=combined.title)
        renamed = transfer.shared_photographs != transfer.shared
        shared = (
            f"{transfer.shared:,} of these {transfer.images:,} images "
            f"{f'(they show {transfer.shared_photographs:,} photographs) ' if renamed else ''}were also learned from: "
            "their captions are scored by a combination learned without them"
            if transfer.shared
            else f"none of these {transfer.images:,} images was learned from"
        )
        say(f"{combined.title}: {shared}")
    for protocol, reason in combined.untried.items():
        say(f"\nnot tested on {protocol}: {reason}", style="")


def _print_parts(combined: Combined, statistic: StatisticSpec, console: Console) -> None:
    from rich import box
    from rich.table import Table

    percent = statistic.kind == "accuracy"
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("metric")
    for head in ("weight", "95 % interval", "without it", "drop", "95 % interval"):
        shown.add_column(head, justify="right")
    for part in combined.parts:
        cells = [f"{part.weight:+.4f}", f"{part.weight_low:+.4f} – {part.weight_high:+.4f}"]
        if part.without is None or part.drop is None or part.drop_low is None or part.drop_high is None:
            cells += ["", "", ""]
        else:
            low, high = number(part.drop_low, percent), number(part.drop_high, percent)
            cells += [number(part.without, percent), number(part.drop, percent), f"{low} – {high}"]
        shown.add_row(f"{part.title} (negated)" if part.lower_is_better else part.title, *cells)
    console.print(shown)


def _span(penalties: Sequence[float]) -> str:
    low, high = min(penalties), max(penalties)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _unit(combined: Combined) -> str:
    return "log-odds of being preferred" if combined.on_pairs else "points of the ratings' scale"


# Examples of scores (TIGEr, Table 3) as Markdown and as an HTML page.

KIND_TITLES = {
    "metric-higher": "{metric} higher than human ratings",
    "human-higher": "human ratings higher than {metric}",
    "equal": "equal",
}
_SAMPLE = "From the embedded synthetic sample: this says nothing about the metric."
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.45rem .6rem;border-bottom:1px solid #ccc}
th.n,td.n{text-align:right;white-space:nowrap}
ul{margin:0;padding-left:1.1rem}
tr.kind th{background:#eef4f9;border-bottom:1px solid #0072B2}
.note{color:#555;font-size:.85rem;overflow-wrap:anywhere}
"""


def examples_markdown(examples: Examples) -> str:
    """A GitHub Markdown table: image, references, candidate, rating, score group with the score."""
    lines = [
        f"### {plain_markdown(examples.metric)} and human ratings on {plain_markdown(examples.dataset_title)}",
        "",
        f"| | image | references | candidate | human rating | {plain_markdown(examples.metric)} |",
        "|---|---|---|---|---:|---:|",
    ]
    for place, example in enumerate(examples.examples, 1):
        references = "<br>".join(plain_markdown(text) for text in example.references) or "none"
        kind = plain_markdown(KIND_TITLES[example.kind].format(metric=examples.metric))
        lines.append(
            f"| {place} {kind} | {plain_markdown(example.image)} | {references} | {plain_markdown(example.candidate)} "
            f"| {example.human:g} | {example.group:g} ({example.score:.3f}) |"
        )
    lines += ["", *(f"- {plain_markdown(line)}" for line in _notes(examples))]
    return "\n".join(lines) + "\n"


def examples_html(examples: Examples) -> str:
    """The examples as a self-contained HTML page."""
    rows = []
    kind = ""
    for place, example in enumerate(examples.examples, 1):
        if example.kind != kind:
            kind = example.kind
            title = escape(KIND_TITLES[kind].format(metric=examples.metric))
            share = f"{examples.counts[kind]:,} of {examples.n:,} data points"
            rows.append(f'<tr class="kind"><th colspan="6">{title} ({share})</th></tr>')
        references = "".join(f"<li>{escape(text)}</li>" for text in example.references)
        rows.append(
            f"<tr><td>{place}</td><td>{escape(example.image)}</td><td><ul>{references}</ul></td>"
            f"<td>{escape(example.candidate)}</td>"
            f'<td class="n">{example.human:g}</td><td class="n">{example.group:g} ({example.score:.3f})</td></tr>'
        )
    title = escape(f"{examples.metric} and human ratings on {examples.dataset_title}")
    notes = "".join(f'<p class="note">{escape(line)}</p>' for line in _notes(examples))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n<table>\n"
        "<tr><th></th><th>image</th><th>references</th><th>candidate</th>"
        f'<th class="n">human rating</th><th class="n">{escape(examples.metric)}</th></tr>\n'
        + "\n".join(rows)
        + f"\n</table>\n{notes}\n</body></html>\n"
    )


def origin(examples: Examples) -> str:
    """The source of the examples, in one line."""
    aggregate = {"unaggregated": "", "mode": "most frequent rating", "mean": "mean", "median": "median"}[
        examples.aggregation
    ]
    aggregated = f"; several ratings of a caption are aggregated by their {aggregate}" if aggregate else ""
    protocol = with_version(examples.protocol, examples.version)
    return f"{protocol}; n = {examples.n:,}{aggregated}; seed {examples.seed}; capbench {__version__}"


def _notes(examples: Examples) -> list[str]:
    lines = [
        f"{origin(examples)}. Last column: the score on the human scale, by rank, and the score itself.",
        examples.signature,
    ]
    return [_SAMPLE, *lines] if examples.sample else lines


def plain_markdown(text: str) -> str:
    """A user's text for Markdown, with all of its special characters escaped, in one line."""
    for character in "\\`*_{}[]<>#|":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())


# Curves over the number of references as files: JSON, CSV and the picture.


def write_curves(
    curves: ReferenceCurves,
    folder: Path,
    groups: Sequence[str] = ("",),
    *,
    escape_formulas: bool = False,
) -> list[Path]:
    """Write ``curves.{json,csv,png,svg}`` into a folder and return their paths.

    Args:
        curves: the curves.
        folder: created if it does not exist.
        groups: groups to draw, one panel each; ``""`` is all.
        escape_formulas: for the CSV file, see :func:`capbench.core.files.csv_text`.

    Raises:
        UsageError: a file cannot be written.
    """
    from capbench.reports.figures.curves import curves_figure
    from capbench.reports.figures.style import USUAL, save

    with lock(folder / ".curves"):
        write_json(folder / "curves.json", curves.model_dump(mode="json"))
        write_text(folder / "curves.csv", curves_csv(curves, escape_formulas=escape_formulas))
        figure = curves_figure(curves, groups, USUAL)
        pictures = [path for ending in ("png", "svg") for path in save(figure, folder / f"curves.{ending}", USUAL)]
    return list(dict.fromkeys([folder / "curves.json", folder / "curves.csv", *pictures]))


def curves_csv(curves: ReferenceCurves, *, escape_formulas: bool = False) -> str:
    """One line per point, full precision; ``values`` are separated by spaces."""
    columns = ["protocol", "metric", "column", "title", "group", "references", "mean", "sd", "n", "values"]
    rows = (
        {
            "protocol": curves.protocol,
            "references": point.count,
            "values": " ".join(map(repr, point.values)),
            **{name: getattr(point, name) for name in ("metric", "column", "title", "group", "mean", "sd", "n")},
        }
        for point in curves.points
    )
    return csv_text(columns, rows, escape_formulas=escape_formulas)
