"""A comparison of captioning systems as sentences, tables and a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from capbench import __version__
from capbench.core.errors import count
from capbench.core.files import csv_text
from capbench.core.records import signature_lines
from capbench.reports.compare import evidence_of
from capbench.reports.methods import CORRECTIONS, MARK, p_value_of
from capbench.reports.table import USUAL_TABLE, Cell, Column, Document, Row, Table, TableStyle

if TYPE_CHECKING:
    from capbench.stats.systems import SystemPair
    from capbench.studies.systems import SystemComparison


def systems_table(comparison: SystemComparison, style: TableStyle = USUAL_TABLE) -> Table:
    """Corpus scores with a sentence for each pair; they keep their scale unless ``style`` multiplies them by 100."""
    table, share = comparison.table, bool(style.percent)
    differing = {(p.system, p.score) for p in table.pairs if p.other == comparison.baseline and p.significant}
    best = {score: max(by_system.values(), key=lambda i: i.value).value for score, by_system in table.intervals.items()}

    def cell(system: str, score: str) -> Cell:
        interval = table.intervals[score][system]
        return Cell(
            style.number(interval.value, share=share),
            MARK if style.daggers and (system, score) in differing else "",
            style.interval(interval.low, interval.high, share=share),
            bold=style.bold and interval.value == best[score],
        )

    method = f"paired {table.test} test, {CORRECTIONS[table.correction]}"
    draws = "" if table.permutations is None else f", {table.permutations:,} permutations"
    legend = [f"{MARK} differs significantly from {comparison.baseline} (α = {table.alpha:g}, {method})"]
    return Table(
        f"Corpus scores, {comparison.images:,} images",
        tuple(map(Column, comparison.titles.values())),
        tuple(
            Row(_name(system, comparison), tuple(cell(system, score) for score in comparison.titles))
            for system in comparison.systems
        ),
        answer=tuple(system_sentence(pair, comparison, style) for pair in table.pairs),
        legend=(*(legend if differing and style.daggers else []), "[a, b]: 95 % bootstrap intervals over images"),
        notes=(
            f"{table.resamples:,} resamples{draws} of {comparison.images:,} images, seed {table.seed}",
            *fixed_notes(comparison.fixed, comparison.titles),
        ),
        head="system",
    )


def system_sentence(pair: SystemPair, comparison: SystemComparison, style: TableStyle = USUAL_TABLE) -> str:
    """One sentence on a pair, by the corrected p-value: the system that scores higher, or that they do not differ."""
    table, share = comparison.table, bool(style.percent)
    title, of_score = comparison.titles[pair.score], table.intervals[pair.score]

    def show(value: float) -> str:
        shown = style.number(value, share=share)
        return shown if shown.startswith("-") else f"+{shown}"

    value, other = (style.number(of_score[name].value, share=share) for name in (pair.system, pair.other))
    values = f"{value} against {other}, difference {show(pair.difference)}"
    corrected = len(table.pairs) if table.correction != "none" else 1
    evidence = evidence_of(
        pair,
        values,
        p_value_of(pair, table),
        show,
        level=0.95,
        alpha=table.alpha,
        corrected=corrected,
        noun="comparison",
    )
    if pair.significant:
        word = "higher" if pair.difference > 0 else "lower"
        return f"{pair.system} scores {word} than {pair.other} in {title}: {evidence}"
    return f"{pair.system} and {pair.other} do not differ significantly in {title}: {evidence}"


def fixed_notes(labels: Iterable[str], titles: Mapping[str, str]) -> list[str]:
    """One line for each metric (by label) whose document frequencies are the same in every resample."""
    return [f"{titles.get(label, label)}'s document frequencies are not resampled" for label in labels]


def _name(system: str, comparison: SystemComparison) -> str:
    """A system's name in a table, which marks the baseline unless that is its name."""
    marked = system == comparison.baseline and system.casefold() != "baseline"
    return f"{system} (baseline)" if marked else system


def systems_document(comparison: SystemComparison, style: TableStyle = USUAL_TABLE) -> Document:
    """The tables with the signatures of metrics and comparison."""
    signatures = [*signature_lines(comparison.signatures), comparison.signature]
    return Document([systems_table(comparison, style)], "compare-systems", f"capbench {__version__}", signatures)


def systems_csv(comparison: SystemComparison) -> str:
    """One line per pair of systems and score."""
    rows = [row | {"significant": str(row["significant"]).lower()} for row in comparison.rows()]
    return csv_text(list(rows[0]), rows)


def systems_html(comparison: SystemComparison) -> str:
    """The tables, sentences and signatures as one self-contained page in the design of the report."""
    from capbench.reports.page.elements import joined, lines_list, sorted_table, tag
    from capbench.reports.page.page import html_document

    document = systems_document(comparison)
    (table,) = document.tables
    signed = lines_list(tag("code", line) for line in document.signatures)
    sections = {
        "scores": (table.title, joined([sorted_table(table, "scores-0", table.title), lines_list(table.lines)])),
        "warnings": ("Warnings", lines_list(comparison.warnings)),
        "signatures": ("Signatures", signed),
    }
    header = f"{count(len(comparison.systems), 'system')}, {comparison.images:,} images. {document.origin}."
    title = f"{', '.join(comparison.systems[:-1])} and {comparison.systems[-1]} compared"
    return html_document(title, [tag("p", header, class_="note")], sections)
