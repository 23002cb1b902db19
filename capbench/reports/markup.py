"""Tables as Markdown, LaTeX (booktabs) and HTML with the special characters of each format; files of a result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from capbench.core.files import csv_text, json_text, lock, write_text
from capbench.reports.table import PUBLISHED, Cell, Column, Document, Row, Table
from capbench.reports.tables import study_document
from capbench.studies import results
from capbench.studies.results import StudyResult

SAMPLE = "Computed on the embedded synthetic sample: these numbers say nothing about metrics."
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
    "Δ": r"$\Delta$",
    "α": r"$\alpha$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "<": "$<$",
    ">": "$>$",
    "†": r"$^{\dagger}$",
    "‡": r"$^{\ddagger}$",
    "§": r"$^{\S}$",
    "°": r"$^{\circ}$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "|": r"\textbar{}",
    "ˢ": r"\textsuperscript{s}",
    "ᵖ": r"\textsuperscript{p}",
    "ʰ": r"\textsuperscript{h}",
    "\u00a0": "~",
}


def markdown_text(text: str) -> str:
    """A text with Markdown's special characters escaped, in one line.

    >>> markdown_text("$a_1$ & *b* &lt;|")
    '\\\\$a\\\\_1\\\\$ \\\\& \\\\*b\\\\* \\\\&lt;\\\\|'
    """
    return " ".join(re.sub(r"[\\`*_{}\[\]<>#|$&]", r"\\\g<0>", text).split())


def tex_text(text: str) -> str:
    """A text with LaTeX's special characters escaped, and true minus signs before numbers.

    ``*`` or ``[`` at the start follows ``{}``: after the end of a row, LaTeX would read it as an argument.

    >>> tex_text("*VIFIDEL"), tex_text("-0.5†")
    ('{}*VIFIDEL', '$-$0.5$^{\\\\dagger}$')
    """
    start = "{}" if text.startswith(("*", "[")) else ""
    escaped = "".join(LATEX_CHARACTERS.get(character, character) for character in text)
    return start + re.sub(r"(?<![\w)-])-(?=\d)", "$-$", escaped)


# Markdown.


def markdown(document: Document) -> str:
    """Tables as GitHub Markdown, and the signatures; the origin of the numbers is a comment at the top."""
    head = f"<!-- {document.origin} -->\n\n" + (f"{SAMPLE}\n\n" if document.sample else "")
    blocks = [*map(markdown_table, document.tables)]
    if document.signatures:
        blocks.append("Signatures:\n\n" + "\n".join(f"- `{signature}`" for signature in document.signatures))
    return head + "\n\n".join(blocks) + "\n"


def markdown_table(table: Table) -> str:
    """A table as GitHub Markdown with its title and notes, of which data and methods can be opened."""
    heads = [table.head, *(column.heading for column in table.columns)]
    rules = ["---", *("---" if column.text else "---:" for column in table.columns)]
    lines = [f"### {markdown_text(table.title)}", "", _md_row(map(markdown_text, heads)), f"|{'|'.join(rules)}|"]
    for part, rows in groupby(table.rows, lambda row: row.part):
        if part == PUBLISHED:
            lines.append(_md_row([f"*{PUBLISHED}*", *[""] * len(table.columns)]))
        lines += [_md_row([markdown_text(row.title), *map(_md_cell, row.cells)]) for row in rows]
    lines += ["", *(f"- {markdown_text(line)}" for line in table.shown)]
    if table.notes:
        lines += ["", "<details><summary>Data and methods</summary>", ""]
        lines += [*(f"- {markdown_text(note)}" for note in table.notes), "", "</details>"]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip()


def _md_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _md_cell(cell: Cell) -> str:
    text = markdown_text(cell.marked)
    # An interval never breaks.
    below = cell.below.replace(" ", "\u00a0").replace("|", r"\|")
    return f"{f'**{text}**' if cell.bold else text} {below}".strip()


# LaTeX.

_NARROW = 4
"""The largest number of columns of a table that fits one of two columns of a page."""


def latex(document: Document) -> str:
    """Tables for the packages booktabs and graphicx, labelled ``tab:NAME-1``; origin and signatures are comments."""
    head = [f"{document.origin}; needs \\usepackage{{booktabs,graphicx}}", *([SAMPLE] if document.sample else [])]
    lines = "\n".join(f"% {' '.join(line.split())}" for line in (*head, *document.signatures))
    label = "".join(c if c.isalnum() else "-" for c in document.name)
    blocks = [latex_table(table, f"tab:{label}-{number}") for number, table in enumerate(document.tables, 1)]
    return "\n\n".join([lines, *blocks]) + "\n"


def latex_table(table: Table, label: str) -> str:
    """One ``table``, or ``table*`` of more than four columns; one that is wider than the line is reduced to its width.

    Remarks on cells are lettered footnotes. Data and methods are comments above it.
    """
    environment = "table*" if len(table.columns) > _NARROW else "table"
    letters: dict[str, str] = {}
    body = []
    for place, (part, rows) in enumerate(groupby(table.rows, lambda row: row.part)):
        body += [r"\midrule"] if place else []
        if part == PUBLISHED:
            body.append(rf"\emph{{{PUBLISHED}}}{' &' * len(table.columns)} \\")
        for row in rows:
            body += _tex_row(row, table.columns, letters)
    types = "".join(
        rf"p{{{column.width:g}\linewidth}}" if column.width else "l" if column.text else "r" for column in table.columns
    )
    return "\n".join(
        [
            *(f"% {' '.join(line.split())}" for line in (*table.answer, *table.notes)),
            rf"\begin{{{environment}}}[tb]",
            r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{tex_text(table.title)}}}",
            rf"\label{{{label}}}",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{l{types}}}",
            r"\toprule",
            *_tex_heads(table),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            *_tex_notes(table, letters),
            rf"\end{{{environment}}}",
        ]
    )


def _tex_heads(table: Table) -> list[str]:
    """The heads; neighbours of one group share its head."""
    texts = [table.head.capitalize(), *(column.full or column.head for column in table.columns)]
    inner = " & ".join(tex_text(" ".join(head.split())) for head in texts) + r" \\"
    if not any(column.group for column in table.columns):
        return [inner]
    heads, rules, position = [""], [], 2
    for group, columns in groupby(table.columns, lambda column: column.group):
        span = len(list(columns))
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{tex_text(' '.join(group.split()))}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    return [" & ".join(heads) + r" \\", "".join(rules), inner]


def _tex_row(row: Row, columns: Sequence[Column], letters: dict[str, str]) -> list[str]:
    """The line of a row, and one of its cells' second lines."""
    texts, below = [tex_text(row.title)], [""]
    for cell, column in zip(row.cells, columns, strict=True):
        if cell.note:
            letter = letters.setdefault(cell.note, _letter(len(letters)))
            text = rf"{tex_text(cell.value)}\textsuperscript{{{letter}}}"
        else:
            text = tex_text(cell.marked) or ("" if column.text else "--")
        texts.append(rf"\textbf{{{text}}}" if cell.bold else text)
        interval = re.sub(r"-(?=\d)", "$-$", cell.below)
        below.append(rf"{{\scriptsize {interval}}}" if interval else "")
    return [" & ".join(line) + r" \\" for line in (texts, below) if any(line)]


def _letter(place: int) -> str:
    """a, b, … z, aa, ab, …

    >>> _letter(1), _letter(27)
    ('b', 'ab')
    """
    return ("" if place < 26 else _letter(place // 26 - 1)) + chr(ord("a") + place % 26)


def _tex_notes(table: Table, letters: dict[str, str]) -> list[str]:
    """The text below the table: warnings, the meaning of marks, and footnotes by letter."""
    lines = [*table.warnings, *table.legend, *([] if letters else table.footnotes)]
    texts = [f"{tex_text(line.removesuffix('.'))}." for line in lines]
    texts += [rf"\textsuperscript{{{letter}}}{tex_text(note.removesuffix('.'))}." for note, letter in letters.items()]
    return [r"\par\smallskip\parbox{\linewidth}{\footnotesize " + " ".join(texts) + "}"] if texts else []


# HTML, as pieces for notebooks with every text escaped.


def html(document: Document) -> str:
    """Tables with the lines below them, and the signatures."""
    parts = [f"<p>{SAMPLE}</p>"] if document.sample else []
    for table in document.tables:
        listed = "".join(f"<li>{escape(line)}</li>" for line in table.lines)
        parts += [table_html(table), *([f"<ul>{listed}</ul>"] if listed else [])]
    if document.signatures:
        signed = "".join(f"<li><code>{escape(line)}</code></li>" for line in dict.fromkeys(document.signatures))
        parts.append(f"<details><summary>Signatures</summary><ul>{signed}</ul></details>")
    return f'<div class="capbench">{"".join(parts)}</div>'


def table_html(table: Table) -> str:
    """A table without its notes."""

    def line(tag: str, first: str, texts: Iterable[str]) -> str:
        cells = [f'<{tag} style="text-align:left">{escape(first)}</{tag}>']
        for column, text in zip(table.columns, texts, strict=True):
            cells.append(f'<{tag} style="text-align:{"left" if column.text else "right"}">{text}</{tag}>')
        return f"<tr>{''.join(cells)}</tr>"

    rows = []
    for part, group in groupby(table.rows, lambda row: row.part):
        if part == PUBLISHED:
            rows.append(line("td", PUBLISHED, [""] * len(table.columns)))
        rows += [line("td", row.title, map(_html_cell, row.cells)) for row in group]
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = line("th", table.head, [escape(column.heading) for column in table.columns])
    return f"<table>{caption}<thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _html_cell(cell: Cell) -> str:
    text = escape(cell.marked)
    below = escape(cell.below.replace(" ", "\u00a0"))
    return f"{f'<b>{text}</b>' if cell.bold else text} {below}".strip()


# A study's result in each format, and in a folder.


def to_csv(result: StudyResult) -> str:
    """One line per cell, full precision: the fields of :class:`~capbench.studies.results.Cell` and of its tests.

    The human ceiling has lines with the metric ``human-ceiling``, sentinels with ``sentinel``; published numbers
    without one of ours have lines without ``value``, and ``published_column`` is the head of their column in print.
    """
    columns = [*results.Cell.model_fields, "difference", "rank", "top", "own_model", "published_column"]
    columns += ["beats_sentinels"] if result.sentinels else []
    return csv_text(columns, _lines(result))


def _lines(result: StudyResult) -> Iterator[dict[str, object]]:
    yield from result.rows()
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


def write_result(result: StudyResult, folder: Path, *, by_source: bool = False) -> list[Path]:
    """Write ``results.{json,csv,md,tex}`` into a folder, ``comparisons.csv`` if metrics were tested, ``rankings.csv``
    for all protocols and ``curves.{csv,svg}`` for curves, and return their paths; ``by_source``: also for groups."""
    pairs = csv_text(results.PAIR_COLUMNS, result.pairs()) if result.comparisons else ""
    texts = {"results.csv": to_csv(result), "comparisons.csv": pairs}
    texts |= dict.fromkeys(("rankings.csv", "curves.csv", "curves.svg"), "")  # earlier ones belong to another run
    if result.rankings:
        from capbench.reports.sensitivity import rankings_csv

        texts["rankings.csv"] = rankings_csv(result)
    if result.points:
        from capbench.reports.curves import curves_csv

        texts["curves.csv"] = curves_csv(result)
    document = study_document(result, by_source=by_source)
    files = write_files(folder, "results", result.model_dump(mode="json"), document, texts)
    if result.points:
        from capbench.reports.figures.curves import curves_figure
        from capbench.reports.figures.style import save

        groups = dict.fromkeys(point.group for point in result.points if by_source or not point.group)
        files += save(curves_figure(result, [*groups]), folder / "curves.svg")
    return files


def write_files(folder: Path, name: str, record: object, document: Document, texts: Mapping[str, str]) -> list[Path]:
    """Write ``NAME.{json,md,tex}`` and other texts into a folder and return their paths; earlier files whose text is
    ``""`` are removed.

    Each file is replaced as a whole. Two runs with the same folder take turns, so that the files belong to one run.
    """
    texts = {
        f"{name}.json": json_text(record) + "\n",
        f"{name}.md": markdown(document),
        f"{name}.tex": latex(document),
        **texts,
    }
    with lock(folder / ".results"):
        for file, text in texts.items():
            if text:
                write_text(folder / file, text)
            else:
                (folder / file).unlink(missing_ok=True)
    return [folder / file for file, text in texts.items() if text]
