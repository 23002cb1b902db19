"""A comparison of captioning systems: sentences, differing captions, and the files of ``compare-systems --out``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench import __version__
from capbench.core.files import csv_text, json_text, write_text
from capbench.core.records import signature_lines
from capbench.reports.compare import interval_caveat
from capbench.reports.markup import markdown_text, tex_text
from capbench.reports.methods import p_value_text
from capbench.stats.significance import at_floor

if TYPE_CHECKING:
    from rich.console import Console

    from capbench.stats.systems import SystemPair
    from capbench.studies.systems import DifferingCaptions, SystemComparison

_TESTS = {"permutation": "paired permutation test", "bootstrap": "paired bootstrap test"}
_P_HEADS = {"holm": "p (Holm)", "bh": "p (BH)", "none": "p"}
_CORRECTIONS = {"holm": ", Holm's correction", "bh": ", Benjamini and Hochberg's correction", "none": ""}


def system_sentence(pair: SystemPair, comparison: SystemComparison) -> str:
    """One sentence on a pair: the system that scores higher, or that the systems do not differ significantly.

    The corrected p-value decides. The interval of the difference is not corrected; where it suggests the opposite, a
    second sentence gives the reason.
    """
    title = comparison.titles[pair.score]
    table = comparison.table
    values = table.intervals[pair.score]
    is_corrected = _is_corrected(comparison)
    evidence = (
        f"{values[pair.system].value:.4f} against {values[pair.other].value:.4f}, difference {pair.difference:+.4f}, "
        f"{'corrected ' if is_corrected else ''}p {_p_value(pair, comparison)}, "
        f"{'uncorrected ' if is_corrected else ''}95 % interval [{pair.low:+.4f}, {pair.high:+.4f}]"
    )
    caveat = interval_caveat(pair, table.alpha, len(table.pairs) if is_corrected else 1, "comparison")
    if pair.significant:
        word = "higher" if pair.difference > 0 else "lower"
        return f"{pair.system} scores {word} than {pair.other} in {title}: {evidence}.{caveat}"
    return f"{pair.system} and {pair.other} do not differ significantly in {title}: {evidence}.{caveat}"


def system_name(system: str, comparison: SystemComparison) -> str:
    """A system's name in a table, which marks the baseline unless that is its name."""
    marked = system == comparison.baseline and system.casefold() != "baseline"
    return f"{system} (baseline)" if marked else system


def fixed_notes(labels: Iterable[str], titles: Mapping[str, str]) -> list[str]:
    """One line for each metric whose document frequencies are the same in every resample.

    Args:
        labels: labels of these metrics.
        titles: title of each score, by its name.
    """
    return [f"{titles.get(label, label)}'s document frequencies are not resampled" for label in labels]


def _is_corrected(comparison: SystemComparison) -> bool:
    return comparison.table.correction != "none" and len(comparison.table.pairs) > 1


def _p_value(pair: SystemPair, comparison: SystemComparison) -> str:
    table = comparison.table
    draws = table.resamples if table.permutations is None else table.permutations
    is_bound = at_floor(
        pair.p_value, pair.p_adjusted, pairs=len(table.pairs), resamples=draws, correction=table.correction
    )
    return p_value_text(pair.p_adjusted, is_bound=is_bound)


def print_examples(comparison: SystemComparison, console: Console) -> None:
    """Print the captions with the largest differences, score by score; nothing if there are none."""
    for title, examples in _examples(comparison):
        console.print(f"\n{title}: largest differences between captions", markup=False)
        for example in examples:
            console.print(f"  {example.image}: difference {example.difference:.4f}", markup=False, soft_wrap=True)
            for system, caption in example.captions.items():
                line = f"    {system} {example.scores[system]:.4f}: {caption}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    if comparison.examples:
        console.print()


def write_systems(comparison: SystemComparison, document: Mapping[str, Any], out: Path) -> None:
    """Write a comparison as ``.json``, ``.md`` or ``.tex``, otherwise as CSV.

    Args:
        comparison: the comparison.
        document: its content for JSON.
        out: the file.

    Raises:
        UsageError: the file cannot be written.
    """
    ending = out.suffix.lower()
    if ending == ".json":
        text = json_text(document) + "\n"
    elif ending == ".md":
        text = systems_markdown(comparison)
    elif ending == ".tex":
        text = systems_latex(comparison)
    else:
        text = systems_csv(comparison)
    write_text(out, text)


def systems_csv(comparison: SystemComparison) -> str:
    """One line per pair of systems and score."""
    rows = [row | {"significant": str(row["significant"]).lower()} for row in comparison.rows()]
    return csv_text(list(rows[0]), rows)


def systems_markdown(comparison: SystemComparison) -> str:
    """Scores, tests and differing captions as GitHub Markdown tables, with notes and signatures."""
    blocks = [f"<!-- capbench {__version__} -->"]
    for table in _tables(comparison):
        lines = [f"### {markdown_text(table.title)}", ""]
        lines.append("| " + " | ".join(map(markdown_text, table.heads)) + " |")
        lines.append("|" + "|".join("---" if width else "---:" for width in table.columns) + "|")
        for row in table.rows:
            cells = zip(row, table.columns, strict=True)
            texts = (markdown_text(cell) if width else " ".join(cell.split()) for cell, width in cells)
            lines.append("| " + " | ".join(texts) + " |")
        if table.notes:
            lines += ["", *(f"- {markdown_text(note)}" for note in table.notes)]
        blocks.append("\n".join(lines))
    signatures = [*signature_lines(comparison.signatures), comparison.signature]
    blocks.append("Signatures:\n\n" + "\n".join(f"- `{signature}`" for signature in signatures))
    return "\n\n".join(blocks) + "\n"


def systems_latex(comparison: SystemComparison) -> str:
    """The same as LaTeX ``table`` environments, which require the packages ``booktabs`` and ``threeparttable``."""
    signatures = [*signature_lines(comparison.signatures), comparison.signature]
    blocks = [
        "\n".join(
            [
                f"% capbench {__version__}; needs \\usepackage{{booktabs,threeparttable}}",
                *(f"% {' '.join(signature.split())}" for signature in signatures),
            ]
        )
    ]
    for number, table in enumerate(_tables(comparison), 1):
        body = []
        for row in table.rows:
            cells = [_latex_cell(cell, width) for cell, width in zip(row, table.columns, strict=True)]
            body += [" & ".join(line) + r" \\" for line in zip(*cells, strict=True) if any(line)]
        notes = [rf"\item {tex_text(note.removesuffix('.'))}." for note in table.notes]
        if notes:
            notes = [r"\begin{tablenotes}[flushleft]\footnotesize", *notes, r"\end{tablenotes}"]
        blocks.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    r"\begin{threeparttable}",
                    rf"\caption{{{tex_text(table.title)}}}",
                    rf"\label{{tab:compare-systems-{number}}}",
                    rf"\begin{{tabular}}{{{''.join(width or 'r' for width in table.columns)}}}",
                    r"\toprule",
                    " & ".join(map(tex_text, table.heads)) + r" \\",
                    r"\midrule",
                    *body,
                    r"\bottomrule",
                    r"\end{tabular}",
                    *notes,
                    r"\end{threeparttable}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(blocks) + "\n"


@dataclass(frozen=True)
class _Table:
    """A table of plain texts.

    Attributes:
        title: its caption.
        heads: one per column.
        columns: LaTeX's type of each column with texts; ``""`` for a column with numbers.
        rows: the cells; what follows a line break is an interval.
        notes: lines below the table.
    """

    title: str
    heads: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def _tables(comparison: SystemComparison) -> Iterator[_Table]:
    table = comparison.table
    images = f"{comparison.images:,} images"
    titles = list(comparison.titles.values())
    differing = {(p.system, p.score) for p in table.pairs if p.other == comparison.baseline and p.significant}
    rows = []
    for system in comparison.systems:
        cells = [system_name(system, comparison)]
        for score in comparison.titles:
            interval = table.intervals[score][system]
            mark = "†" if (system, score) in differing else ""
            cells.append(f"{interval.value:.4f}{mark}\n[{interval.low:.4f}, {interval.high:.4f}]")
        rows.append(cells)
    notes = [f"95 % bootstrap intervals over images ({table.resamples:,} resamples)"]
    notes += fixed_notes(comparison.fixed, comparison.titles)
    evidence = f"{_TESTS[table.test]}{_CORRECTIONS[table.correction]}"
    if differing:
        notes.insert(0, f"† differs significantly from {comparison.baseline} (α = {table.alpha:g}, {evidence})")
    yield _Table(f"Corpus scores, {images}", ["system", *titles], ["l", *[""] * len(titles)], rows, notes)
    yield _Table(
        f"Differences between systems, {images}",
        [
            "metric",
            "system",
            "compared with",
            "difference",
            f"{'uncorrected ' if _is_corrected(comparison) else ''}95 % interval",
            _P_HEADS[table.correction] if _is_corrected(comparison) else "p",
        ],
        ["l", "l", "l", "", "", ""],
        [
            [
                comparison.titles[pair.score],
                pair.system,
                pair.other,
                f"{pair.difference:+.4f}{'†' if pair.significant else ''}",
                f"[{pair.low:+.4f}, {pair.high:+.4f}]",
                _p_value(pair, comparison).removeprefix("= "),
            ]
            for pair in table.pairs
        ],
        [f"† significant (α = {table.alpha:g}, {evidence})"] if any(pair.significant for pair in table.pairs) else [],
    )
    for title, examples in _examples(comparison):
        yield _Table(
            f"{title}: largest differences between captions",
            ["image", "system", "caption", title],
            ["l", "l", r"p{0.5\linewidth}", ""],
            [
                [example.image, system, caption, f"{example.scores[system]:.4f}"]
                for example in examples
                for system, caption in example.captions.items()
            ],
        )


def _examples(comparison: SystemComparison) -> Iterator[tuple[str, list[DifferingCaptions]]]:
    """Titles of scores with their examples."""
    for score, title in comparison.titles.items():
        if examples := [example for example in comparison.examples if example.score == score]:
            yield title, examples


def _latex_cell(text: str, width: str) -> tuple[str, str]:
    """A cell, and the interval that is written below it."""
    if width:
        return tex_text(" ".join(text.split())), ""
    value, _, interval = text.partition("\n")
    value, interval = (re.sub(r"-(?=\d)", "$-$", part) for part in (tex_text(value), interval))
    return value, rf"{{\scriptsize {interval}}}" if interval else ""
