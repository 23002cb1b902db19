"""Sentences on pairs of metrics; combinations, examples and reference curves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from capbench import __version__
from capbench.core.errors import count
from capbench.core.files import csv_text, lock, write_json, write_text
from capbench.datasets.protocol import with_version
from capbench.reports.markup import markdown_text
from capbench.reports.methods import p_value_text
from capbench.reports.table import USUAL_TABLE, TableStyle, number
from capbench.reports.terminal import print_result
from capbench.stats.pairs import Pair, Tests
from capbench.stats.significance import at_floor
from capbench.studies.combination_result import CombinationResult
from capbench.studies.examples import Examples
from capbench.studies.results import StudyResult
from capbench.studies.study import METRIC
from capbench.studies.uncertainty import too_few_units

if TYPE_CHECKING:
    from rich.console import Console

    from capbench.stats.systems import SystemPair
    from capbench.studies.references import ReferenceCurves


def print_comparison(
    result: StudyResult,
    console: Console,
    *,
    of: str | None = None,
    details: bool = False,
    style: TableStyle = USUAL_TABLE,
) -> None:
    """Print the table of a result with a sentence for each tested pair, or for each pair with the metric ``of``."""
    answer = [
        sentence(pair, tests, result, style)
        for tests in result.comparisons
        for pair in tests.pairs
        if not tests.group and (of is None or of in (pair.better, pair.worse))
    ]
    print_result(result, console, details=details, style=style, answer=answer)


def sentence(pair: Pair, tests: Tests, result: StudyResult, style: TableStyle = USUAL_TABLE) -> str:
    """One sentence on a pair: the metric that agrees better with human ratings, or that they do not differ.

    With too few units for any difference to be significant, it has no p-value and no verdict. Otherwise the corrected
    p-value decides. The interval of the difference is not corrected; where it suggests the opposite, a second sentence
    gives the reason.
    """
    (info,) = [info for info in result.protocols if info.id == tests.protocol]
    show = style.number

    def value(column: str) -> str:
        cell = result.cell(tests.protocol, column, tests.group)
        return "" if cell is None else show(cell.number)

    better, worse = result.columns[pair.better], result.columns[pair.worse]
    pairs = len(tests.pairs)
    is_corrected = tests.correction != "none" and pairs > 1
    is_bound = at_floor(
        pair.p_value, pair.p_adjusted, pairs=pairs, resamples=tests.resamples, correction=tests.correction
    )
    untested = bool(too_few_units(tests))
    evidence = f"{info.statistic} {value(pair.better)} against {value(pair.worse)}, difference {show(pair.difference)}"
    if not untested:
        p_value = p_value_text(pair.p_adjusted, is_bound=is_bound)
        evidence += f", {'corrected ' if is_corrected else ''}p {p_value}"
    caveat = ""
    if pair.low is not None and pair.high is not None and tests.level is not None:
        evidence += (
            f", {'uncorrected ' if is_corrected else ''}{100 * tests.level:g} % interval "
            f"[{show(pair.low)}, {show(pair.high)}]"
        )
        caveat = interval_caveat(pair, tests.alpha, pairs if is_corrected else 1)
    if untested:
        return f"{better} and {worse} are not tested: {evidence}."
    if pair.significant:
        return f"{better} agrees better with human ratings than {worse}: {evidence}.{caveat}"
    return f"{better} and {worse} do not differ significantly: {evidence}.{caveat}"


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


# A learned combination in the terminal: next to its metrics, its weights, and its transfer to other data sets.


def print_combined(combined: CombinationResult, console: Console) -> None:
    """Print a combination: next to its metrics, its weights, and its transfer to other data sets."""

    def say(text: str, style: str = "dim") -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    settings, (info,) = combined.settings, combined.comparison.protocols
    print_comparison(combined.comparison, console, of=METRIC)
    if settings.learner == "mean-rank":
        say(
            f"{combined.title}: mean of the metrics' quantiles among the judged captions of {combined.images:,} "
            "images; no judgement was used"
        )
        _print_parts(combined, console)
        say("weight: standard deviation of the metric's quantile, divided by the number of metrics")
    else:
        say(
            f"{combined.title}: {settings.learner}; each caption's score was learned on other images "
            f"({combined.images:,} images, {settings.folds} folds, {settings.inner_folds} inner folds, seed "
            f"{settings.seed}); penalties {_span(combined.fold_penalties)}"
        )
        _print_parts(combined, console)
        say(
            f"weight: change of the score for one standard deviation of the metric, in {_unit(combined)}; learned from "
            f"all images with the penalty {combined.penalty:g}; 95 % bootstrap interval over images"
        )
    if len(combined.parts) > 1:
        say(
            f"drop: loss of {info.statistic} if {combined.title} is learned without the metric, with the interval "
            "of the difference on the same resamples of images"
        )
    for transfer in combined.transfers:
        (tested,) = transfer.comparison.protocols
        say(f"\nLearned on {info.id}, tested on {tested.id}", style="bold")
        print_comparison(transfer.comparison, console, of=METRIC)
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


def _print_parts(combined: CombinationResult, console: Console) -> None:
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("metric")
    for head in ("weight", "95 % interval", "without it", "drop", "95 % interval"):
        shown.add_column(head, justify="right")
    for part in combined.parts:
        cells = [f"{part.weight:+.4f}", f"{part.weight_low:+.4f} – {part.weight_high:+.4f}"]
        if part.without is None or part.drop is None or part.drop_low is None or part.drop_high is None:
            cells += ["", "", ""]
        else:
            low, high = number(part.drop_low), number(part.drop_high)
            cells += [number(part.without), number(part.drop), f"{low} – {high}"]
        shown.add_row(f"{part.title} (negated)" if part.lower_is_better else part.title, *cells)
    console.print(shown)


def _span(penalties: Sequence[float]) -> str:
    low, high = min(penalties), max(penalties)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _unit(combined: CombinationResult) -> str:
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
        f"### {markdown_text(examples.metric)} and human ratings on {markdown_text(examples.dataset_title)}",
        "",
        f"| | image | references | candidate | human rating | {markdown_text(examples.metric)} |",
        "|---|---|---|---|---:|---:|",
    ]
    for place, example in enumerate(examples.examples, 1):
        references = "<br>".join(markdown_text(text) for text in example.references) or "none"
        kind = markdown_text(KIND_TITLES[example.kind].format(metric=examples.metric))
        lines.append(
            f"| {place} {kind} | {markdown_text(example.image)} | {references} | {markdown_text(example.candidate)} "
            f"| {example.human:g} | {example.group:g} ({example.score:.3f}) |"
        )
    lines += ["", *(f"- {markdown_text(line)}" for line in _notes(examples))]
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
