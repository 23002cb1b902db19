"""Results as Markdown, LaTeX (booktabs), CSV and HTML, and writing them to a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from html import escape
from pathlib import Path
from typing import Any

from capbench.core.files import csv_text, json_text, lock, write_text
from capbench.core.records import signature_lines
from capbench.reports.table import USUAL_TABLE, Column, Entry, Row, Table, TableStyle
from capbench.reports.tables import NOT_EXPLAINED, PUBLISHED_ONLY, UNEXPLAINED, by_own_model
from capbench.reports.tables import tables as make_tables
from capbench.stats.pairs import Pair
from capbench.studies.results import Cell, StudyResult, missing_word

LATEX_CHARACTERS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "τ": r"$\tau$",
    "ρ": r"$\rho$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
    "§": r"$^{\S}$",
    "°": r"$^{\circ}$",
    "α": r"$\alpha$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
}


def to_markdown(result: StudyResult, *, by_source: bool = True, style: TableStyle = USUAL_TABLE) -> str:
    """All tables as GitHub Markdown, with notes, missing metrics and signatures; see :func:`tables.tables`."""
    made = make_tables(result, by_source=by_source, style=style)
    signatures = dict.fromkeys(s for by_label in result.signatures.values() for s in signature_lines(by_label))
    signatures |= dict.fromkeys(line for one in result.sentinels for line in one.signatures.values())
    return markdown_document(
        [*map(markdown_table, made), _md_missing(result), markdown_signatures(signatures)],
        f"capbench {result.capbench}, {result.created}",
        sample=result.sample,
    )


def markdown_document(blocks: Iterable[str], origin: str, *, sample: bool) -> str:
    """A document of Markdown.

    Args:
        blocks: the blocks; empty ones are omitted.
        origin: the origin of the numbers, for a comment at the top.
        sample: True if the numbers were computed on the embedded sample.
    """
    head = f"<!-- {origin} -->\n\n" + (f"{SAMPLE}\n\n" if sample else "")
    return head + "\n\n".join(block for block in blocks if block) + "\n"


def markdown_signatures(signatures: Iterable[str]) -> str:
    """The list of signatures; ``""`` if there are none."""
    lines = [f"- `{signature}`" for signature in signatures]
    return "Signatures:\n\n" + "\n".join(lines) if lines else ""


def markdown_table(table: Table) -> str:
    """One table as GitHub Markdown, with its title and notes."""
    heads = ["metric"]
    for column in table.columns:
        heads += column.parts(column.heading, column.heading if column.published_alone else "published", "diff")
    lines = [
        f"### {table.title}",
        "",
        "| " + " | ".join(markdown_text(head) for head in heads) + " |",
        "|" + "|".join(["---"] + ["---:"] * (len(heads) - 1)) + "|",
    ]
    for row in table.all_rows:
        if table.published_only and row is table.published_only[0]:
            lines.append(f"| *{PUBLISHED_ONLY}* " + "| " * (len(heads) - 1) + "|")
        texts = [row.title.replace("*", r"\*")]
        for entry, column in zip(row.entries, table.columns, strict=True):
            ours = " ".join(_ours(row, entry).split())
            ours = f"**{ours}**" if table.is_metric(row) and _is_best(entry, column.best) else ours
            paper = entry.published.replace("*", r"\*")
            texts += column.parts(f"{ours} {entry.interval}".rstrip(), paper, entry.difference)
        lines.append("| " + " | ".join(markdown_text(text, keep_bold=True) for text in texts) + " |")
    lines += ["", *(f"- {markdown_text(note)}" for note in table.notes)]
    lines += [f"- ranks, {markdown_text(ranks)}" for ranks in table.ranks]
    return "\n".join(lines)


def _ours(row: Row, entry: Entry) -> str:
    return entry.marked or entry.instead or (missing_word(row.missing) if row.missing else "")


def _is_best(entry: Entry, best: str | None) -> bool:
    return best is not None and entry.ours.split(" ")[0] == best


def markdown_text(text: str, keep_bold: bool = False) -> str:
    """A text with Markdown's special characters escaped; with ``keep_bold``, except asterisks."""
    escaped = re.sub(r"[|_$&]", r"\\\g<0>", text)
    return escaped if keep_bold else escaped.replace("*", "\\*")


def _md_missing(result: StudyResult) -> str:
    lines = [f"- {markdown_text(', '.join(names))}: {markdown_text(why)}" for why, names in result.reasons().items()]
    return "Not computed:\n\n" + "\n".join(lines) if lines else ""


def to_latex(result: StudyResult, *, by_source: bool = True, style: TableStyle = USUAL_TABLE) -> str:
    """All tables as LaTeX ``table`` environments with footnotes; see :func:`tables.tables`.

    They require the packages ``booktabs`` and ``threeparttable``. Remarks on published numbers are footnotes, whose
    letters follow the numbers.
    """
    made = make_tables(result, by_source=by_source, style=style)
    return latex_document(made, result.name, f"capbench {result.capbench}, {result.created}", sample=result.sample)


def latex_document(tables: Iterable[Table], name: str, origin: str, *, sample: bool, small: bool = False) -> str:
    """Tables as LaTeX ``table`` environments.

    Args:
        tables: the tables.
        name: name of the result, for the labels (``tab:NAME-1``).
        origin: the origin of the numbers, for a comment at the top.
        sample: True if the numbers were computed on the embedded sample.
        small: True for a small font and narrow columns.
    """
    blocks = [f"% {origin}; needs \\usepackage{{booktabs,threeparttable}}"]
    if sample:
        blocks.append(f"% {SAMPLE}")
    label = "".join(c if c.isalnum() else "-" for c in name)
    blocks += [latex_table(table, f"tab:{label}-{number}", small=small) for number, table in enumerate(tables, 1)]
    return "\n\n".join(blocks) + "\n"


def latex_table(table: Table, label: str, *, small: bool = False) -> str:
    """One table as a LaTeX ``table`` environment; see :func:`latex_document`."""
    spans = [len(column.parts("", "", "")) for column in table.columns]
    inner = ["Metric"]
    outer: list[tuple[str, int]] = []
    for column, span in zip(table.columns, spans, strict=True):
        name, head = column.outer, tex_text(column.inner)
        inner += column.parts(head, head if column.published_alone else "paper", "diff.")
        # Adjacent columns of one data set share its head.
        if outer and outer[-1][0] == name:
            outer[-1] = (name, outer[-1][1] + span)
        else:
            outer.append((name, span))
    heads, rules, position = [""], [], 2
    for name, span in outer:
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{tex_text(name)}}}")
        if name:
            rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    body = []
    letters: dict[str, str] = {}
    for row in table.all_rows:
        if row is table.ceiling or (table.sentinels and row is table.sentinels[0]):
            body.append(r"\midrule")
        if table.published_only and row is table.published_only[0]:
            body += [r"\midrule", rf"\emph{{{PUBLISHED_ONLY}}}" + " &" * sum(spans) + r" \\"]
        texts, below = [tex_text(row.title)], [""]
        for entry, column in zip(row.entries, table.columns, strict=True):
            ours = tex_text(" ".join(_ours(row, entry).split())) or "--"
            best = table.is_metric(row) and _is_best(entry, column.best)
            paper, difference = (tex_text(text) or "--" for text in (_unmarked(entry), entry.difference))
            texts += column.parts(
                rf"\textbf{{{ours}}}" if best else ours, f"{paper}{_footnote_mark(entry, letters)}", difference
            )
            interval = re.sub(r"-(?=\d)", "$-$", entry.interval)
            below += column.parts(rf"{{\scriptsize {interval}}}" if interval else "", "", "")
        body.append(" & ".join(texts) + r" \\")
        if any(below):
            body.append(" & ".join(below) + r" \\")
    return "\n".join(
        [
            *(f"% ranks, {' '.join(ranks.split())}" for ranks in table.ranks),
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}" if small else r"\centering",
            r"\begin{threeparttable}",
            rf"\caption{{{tex_text(table.title)}}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{l{'r' * sum(spans)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            "".join(rules),
            " & ".join(inner) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *_latex_notes(table, letters),
            r"\end{threeparttable}",
            r"\end{table}",
        ]
    )


def _unmarked(entry: Entry) -> str:
    """The published number without its mark, which LaTeX replaces by a letter."""
    return entry.published.rstrip(f"*{UNEXPLAINED}") if entry.note or entry.unexplained else entry.published


def _footnote_mark(entry: Entry, letters: dict[str, str]) -> str:
    """The mark of a published number's footnote; a new footnote gets the next letter."""
    note = entry.note or (NOT_EXPLAINED if entry.unexplained else "")
    return rf"\tnote{{{letters.setdefault(note, _letter(len(letters)))}}}" if note else ""


def _letter(place: int) -> str:
    """a, b, … z, aa, ab, …

    >>> _letter(1), _letter(27)
    ('b', 'ab')
    """
    return ("" if place < 26 else _letter(place // 26 - 1)) + chr(ord("a") + place % 26)


def _latex_notes(table: Table, letters: dict[str, str]) -> list[str]:
    """The text below the table: its footnotes by letter, then its other notes as one paragraph."""
    general = " ".join(f"{tex_text(note.removesuffix('.'))}." for note in table.notes if note not in table.footnotes)
    items = [rf"\item[{letter}] {tex_text(note.removesuffix('.'))}." for note, letter in letters.items()]
    if not items and not general:
        return []
    return [
        r"\begin{tablenotes}[flushleft]\footnotesize",
        *items,
        *([rf"\item {general}"] if general else []),
        r"\end{tablenotes}",
    ]


def tex_text(text: str) -> str:
    """A text with LaTeX's special characters escaped, and a true minus sign before a number.

    ``*`` or ``[`` at the start follows ``{}``: after the end of a row, LaTeX would read it as an argument.

    >>> tex_text("*VIFIDEL"), tex_text("-0.5†")
    ('{}*VIFIDEL', '$-$0.5$^{\\\\dagger}$')
    """
    start = "{}" if text.startswith(("*", "[")) else ""
    if text.startswith("-") and text[1:2].isdigit():
        start, text = "$-$", text[1:]
    return start + "".join(LATEX_CHARACTERS.get(character, character) for character in text)


def to_csv(result: StudyResult, *, escape_formulas: bool = False) -> str:
    """One line per cell, full precision, columns as in :class:`~capbench.studies.results.Cell`.

    ``rank`` is the significance cluster and ``top`` is true if the metric is the best or not significantly worse; both
    are empty without tests. The human ceiling has separate lines with the metric ``human-ceiling``, and sentinels with
    the metric ``sentinel``; with these, ``beats_sentinels`` has the tests against them. ``own_model`` is
    true if the published number is that of another model, the authors' own. Published numbers without one of ours have
    lines without ``value``; ``published_column`` is the head of their column in print.
    """
    columns = [*Cell.model_fields, "difference", "rank", "top", "own_model", "published_column"]
    columns += ["beats_sentinels"] if result.sentinels else []
    return csv_text(columns, _lines(result), escape_formulas=escape_formulas)


def _lines(result: StudyResult) -> Iterator[dict[str, object]]:
    yield from cell_rows(result)
    for ceiling in result.ceilings:
        name = dict.fromkeys(("metric", "column"), "human-ceiling")
        yield {
            **ceiling.model_dump(exclude={"method", "bootstrap", "pairwise_tau_b", "raters"}),
            **name,
            "title": "human ceiling",
        }
    for sentinels in result.sentinels:
        for cell in sentinels.cells:
            yield {**cell.model_dump(), "metric": "sentinel"}
    yield from _published_alone(result)


def cell_rows(result: StudyResult) -> list[dict[str, Any]]:
    """Facts of each cell: its fields, the difference from the paper, whether that is of another model, and with tests
    ``rank`` and ``top``."""
    rows = []
    for cell in result.cells:
        difference = None if cell.published is None or cell.value is None else cell.value - cell.published
        tests = result.comparison(cell.protocol, cell.group)
        rank = None if tests is None else tests.ranks.get(cell.column)
        top = None if tests is None or rank is None else cell.column in tests.top
        own = by_own_model(result, cell)
        facts = {**cell.model_dump(), "difference": difference, "rank": rank, "top": top, "own_model": own}
        if result.sentinels:
            facts["beats_sentinels"] = _beats_sentinels(result, cell)
        rows.append(facts)
    return rows


def _beats_sentinels(result: StudyResult, cell: Cell) -> bool | None:
    """True if a metric is significantly better than every sentinel; None without a test."""
    sentinels = result.sentinels_of(cell.protocol)
    tests = None if sentinels is None else sentinels.tests_of(cell.group)
    return next((test.better for test in tests.tests if test.column == cell.column), None) if tests else None


def _published_alone(result: StudyResult) -> Iterator[dict[str, object]]:
    """Lines of the published numbers without a cell: of missing rows, or of rows that only the paper has."""
    table = result.published_table
    if table is None:
        return
    columns = {column.key: column for column in table.columns}
    with_cells = {(cell.column, cell.protocol, cell.group) for cell in result.cells}
    for row in table.rows:
        for number in row.numbers:
            column = columns[number.column]
            for name in row.rows or ("",):
                if (name, column.protocol, column.group) not in with_cells:
                    yield {
                        "protocol": column.protocol,
                        "column": name,
                        "title": result.columns.get(name, row.title),
                        "group": column.group,
                        "published": number.value,
                        "published_printed": number.printed,
                        "published_digits": number.digits,
                        "published_sd": number.sd,
                        "published_note": number.note,
                        "published_column": column.head,
                    }


def comparisons_to_csv(result: StudyResult, *, escape_formulas: bool = False) -> str:
    """One line per pair of metrics, with all results of its test."""
    shared = ["protocol", "group"]
    how = ["test", "correction", "alpha", "unit", "units", "resamples", "seed", "level"]
    rows = (
        {name: getattr(tests, name) for name in (*shared, *how)} | asdict(pair)
        for tests in result.comparisons
        for pair in tests.pairs
    )
    return csv_text([*shared, *(field.name for field in fields(Pair)), *how], rows, escape_formulas=escape_formulas)


# Results as pieces of HTML for notebooks: tables, notes and signatures, with every text escaped.

SAMPLE = "Computed on the embedded synthetic sample: these numbers say nothing about metrics."


def document(*blocks: str, notes: Sequence[str] = (), signatures: Sequence[str] = ()) -> str:
    """HTML blocks, followed by notes and signatures.

    Args:
        blocks: HTML.
        notes: plain texts.
        signatures: plain texts.
    """
    listed = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(notes))
    signed = "".join(f"<li><code>{escape(line)}</code></li>" for line in dict.fromkeys(signatures))
    parts = [*blocks, *([f"<ul>{listed}</ul>"] if listed else [])]
    if signed:
        parts.append(f"<details><summary>Signatures</summary><ul>{signed}</ul></details>")
    return f'<div class="capbench">{"".join(parts)}</div>'


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1, title: str = "") -> str:
    """A table of plain texts as HTML.

    Args:
        heads: one for each column.
        rows: the texts.
        texts: number of columns, from the left, with texts; the others have numbers.
        title: its caption.
    """

    def cell(tag: str, place: int, text: str) -> str:
        side = "left" if place < texts else "right"
        return f'<{tag} style="text-align:{side}">{escape(text)}</{tag}>'

    def line(tag: str, row: Sequence[str]) -> str:
        return f"<tr>{''.join(cell(tag, place, text) for place, text in enumerate(row))}</tr>"

    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(line("td", row) for row in rows)
    return f"<table>{caption}<thead>{line('th', heads)}</thead><tbody>{body}</tbody></table>"


def to_html(result: StudyResult) -> str:
    """All tables of a result, with notes, missing metrics and signatures."""
    blocks = []
    for table in make_tables(result):
        blocks.append(table_html(table))
        below = [*table.notes, *(f"ranks, {ranks}" for ranks in table.ranks)]
        blocks.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in below) + "</ul>")
    notes = [SAMPLE] if result.sample else []
    notes += [f"{', '.join(names)}: {reason}" for reason, names in result.reasons().items()]
    signatures = [line for by_label in result.signatures.values() for line in signature_lines(by_label)]
    signatures += [line for one in result.sentinels for line in one.signatures.values()]
    return document(*blocks, notes=notes, signatures=signatures)


def table_html(table: Table) -> str:
    """One table as HTML, without its notes."""
    heads = ["metric"]
    for column in table.columns:
        heads += column.parts(column.heading, column.heading if column.published_alone else "published", "diff")
    return html_table(heads, _rows(table), title=table.title)


def _rows(table: Table) -> list[list[str]]:
    rows = []
    for row in table.all_rows:
        if table.published_only and row is table.published_only[0]:
            rows.append([PUBLISHED_ONLY, *[""] * sum(len(column.parts("", "", "")) for column in table.columns)])
        texts = [row.title]
        for entry, column in zip(row.entries, table.columns, strict=True):
            texts += _texts(row, entry, column)
        rows.append(texts)
    return rows


def _texts(row: Row, entry: Entry, column: Column) -> tuple[str, ...]:
    ours = entry.marked or entry.instead or (missing_word(row.missing) if row.missing else "")
    return column.parts(f"{ours} {entry.interval}".strip(), entry.published, entry.difference)


# Writing a result to a folder: CSV, JSON, Markdown and LaTeX.


def write_result(
    result: StudyResult, folder: Path, *, escape_formulas: bool = False, by_source: bool = True
) -> list[Path]:
    """Write ``results.{json,csv,md,tex}`` into a folder and return their paths.

    With tests between metrics there is also ``comparisons.csv``, one line per pair; without them an earlier one is
    removed. Each file is replaced as a whole. Two runs with the same folder take turns, so that the files belong to one
    run.

    Args:
        result: the result.
        folder: created if it does not exist.
        escape_formulas: for CSV files, see :func:`capbench.core.files.csv_text`.
        by_source: False to omit the tables by source from Markdown and LaTeX; the other files have all numbers.

    Raises:
        UsageError: a file cannot be written.
    """
    texts = {
        "results.json": json_text(result.model_dump(mode="json")) + "\n",
        "results.csv": to_csv(result, escape_formulas=escape_formulas),
        "results.md": to_markdown(result, by_source=by_source),
        "results.tex": to_latex(result, by_source=by_source),
    }
    if result.comparisons:
        texts["comparisons.csv"] = comparisons_to_csv(result, escape_formulas=escape_formulas)
    with lock(folder / ".results"):
        if not result.comparisons:
            (folder / "comparisons.csv").unlink(missing_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    return [folder / name for name in texts]
