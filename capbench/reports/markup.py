"""Results as Markdown, LaTeX (booktabs) and CSV."""

from __future__ import annotations

import csv
import io
import re

from capbench.reports.tables import Entry, Row, Table
from capbench.reports.tables import tables as make_tables
from capbench.studies.results import Cell, PairTest, StudyResult

__all__ = ["comparisons_to_csv", "markdown_text", "tex_text", "to_csv", "to_latex", "to_markdown"]

_LATEX = {
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
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "†": r"$^{\dagger}$",
    "α": r"$\alpha$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
}


def to_markdown(result: StudyResult) -> str:
    """All tables as GitHub Markdown, with notes, what is missing, and signatures."""
    blocks = []
    for table in make_tables(result):
        heads = ["metric"]
        for column in table.columns:
            name = " ".join(part for part in column.head if part)
            heads += [name, "published", "diff"] if column.compared else [name]
        lines = [
            f"### {table.title}",
            "",
            "| " + " | ".join(markdown_text(head) for head in heads) + " |",
            "|" + "|".join(["---"] + ["---:"] * (len(heads) - 1)) + "|",
        ]
        for row in _rows(table):
            texts = [row.title]
            for entry, column in zip(row.entries, table.columns, strict=True):
                ours = _ours(row, entry)
                ours = f"**{ours}**" if row is not table.ceiling and _is_best(entry, column.best) else ours
                texts.append(f"{ours} {entry.interval}".rstrip())
                if column.compared:
                    texts += [entry.published, entry.difference]
            lines.append("| " + " | ".join(markdown_text(text, keep_bold=True) for text in texts) + " |")
        lines += ["", *(f"- {markdown_text(note)}" for note in table.notes)]
        lines += [f"- ranks, {markdown_text(ranks)}" for ranks in table.ranks]
        blocks.append("\n".join(lines))
    blocks.append(_md_missing(result))
    signatures = dict.fromkeys(s for by_metric in result.signatures.values() for s in by_metric.values())
    blocks.append("Signatures:\n\n" + "\n".join(f"- `{signature}`" for signature in signatures))
    origin = "Computed on the embedded synthetic sample: these numbers say nothing about metrics.\n\n"
    head = f"<!-- capbench {result.capbench}, {result.created} -->\n\n" + (origin if result.sample else "")
    return head + "\n\n".join(block for block in blocks if block) + "\n"


def _rows(table: Table) -> list[Row]:
    return [*table.rows, *([table.ceiling] if table.ceiling else [])]


def _ours(row: Row, entry: Entry) -> str:
    return entry.marked or ("waits" if row.missing else "")


def _is_best(entry: Entry, best: str | None) -> bool:
    return best is not None and entry.ours.split(" ")[0] == best


def markdown_text(text: str, keep_bold: bool = False) -> str:
    """A text with Markdown's special characters escaped; asterisks are left alone with ``keep_bold``."""
    escaped = text.replace("|", "\\|").replace("_", "\\_")
    return escaped if keep_bold else escaped.replace("*", "\\*")


def _md_missing(result: StudyResult) -> str:
    lines = [f"- {markdown_text(m.title or m.protocol)}: {markdown_text(m.reason)}" for m in result.missing]
    return "Not computed:\n\n" + "\n".join(lines) if lines else ""


def to_latex(result: StudyResult) -> str:
    """All tables as LaTeX ``table`` environments; they need the package ``booktabs``."""
    blocks = [f"% capbench {result.capbench}, {result.created}; needs \\usepackage{{booktabs}}"]
    if result.sample:
        blocks.append("% Computed on the embedded synthetic sample: these numbers say nothing about metrics.")
    for number, table in enumerate(make_tables(result), 1):
        blocks.append(_latex_table(result, table, number))
    return "\n\n".join(blocks) + "\n"


def _latex_table(result: StudyResult, table: Table, number: int) -> str:
    spans = [3 if column.compared else 1 for column in table.columns]
    inner = ["Metric"]
    outer: list[tuple[str, int]] = []
    for column, span in zip(table.columns, spans, strict=True):
        name, part = column.head
        inner += [tex_text(part), "paper", "diff."] if span == 3 else [tex_text(part)]
        # Neighbours of one data set share its head.
        if outer and outer[-1][0] == name:
            outer[-1] = (name, outer[-1][1] + span)
        else:
            outer.append((name, span))
    heads, rules, position = [""], [], 2
    for name, span in outer:
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{tex_text(name)}}}")
        rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    body = []
    for row in _rows(table):
        if row is table.ceiling:
            body.append(r"\midrule")
        texts, below = [tex_text(row.title)], [""]
        for entry, column in zip(row.entries, table.columns, strict=True):
            ours = tex_text(_ours(row, entry)) or "--"
            best = row is not table.ceiling and _is_best(entry, column.best)
            texts.append(rf"\textbf{{{ours}}}" if best else ours)
            interval = re.sub(r"-(?=\d)", "$-$", tex_text(entry.interval))
            below.append(rf"{{\scriptsize {interval}}}" if interval else "")
            if column.compared:
                texts += [tex_text(entry.published) or "--", tex_text(entry.difference) or "--"]
                below += ["", ""]
        body.append(" & ".join(texts) + r" \\")
        if any(below):
            body.append(" & ".join(below) + r" \\")
    notes = " ".join(f"{tex_text(note)}." for note in table.notes)
    label = "".join(c if c.isalnum() else "-" for c in result.name)
    return "\n".join(
        [
            *(f"% ranks, {' '.join(ranks.split())}" for ranks in table.ranks),
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * sum(spans)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            "".join(rules),
            " & ".join(inner) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{tex_text(table.title)}. {notes}}}",
            rf"\label{{tab:{label}-{number}}}",
            r"\end{table}",
        ]
    )


def tex_text(text: str) -> str:
    """A text with LaTeX's special characters escaped, and a real minus sign before a number."""
    if text.startswith("-") and text[1:2].isdigit():
        return f"$-${text[1:]}"
    return "".join(_LATEX.get(character, character) for character in text)


def to_csv(result: StudyResult) -> str:
    """One line a cell, full precision, columns as in :class:`~capbench.studies.results.Cell`.

    ``rank`` is the significance cluster and ``top`` says whether the metric is the best or not significantly worse;
    both are empty without tests. The human ceiling has lines of its own, with ``human-ceiling`` as its metric.
    """
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*Cell.model_fields, "difference", "rank", "top"], lineterminator="\n")
    writer.writeheader()
    for cell in result.cells:
        difference = None if cell.published is None else cell.value - cell.published
        found = result.comparison(cell.protocol, cell.group)
        rank = None if found is None else found.ranks.get(cell.column)
        top = None if found is None or rank is None else cell.column in found.top
        writer.writerow({**cell.model_dump(), "difference": difference, "rank": rank, "top": top})
    for ceiling in result.ceilings:
        name = dict.fromkeys(("metric", "column"), "human-ceiling")
        writer.writerow({**ceiling.model_dump(exclude={"method"}), **name, "title": "human ceiling"})
    return stream.getvalue()


def comparisons_to_csv(result: StudyResult) -> str:
    """One line a pair of metrics, with everything that was tested."""
    stream = io.StringIO()
    shared = ["protocol", "group"]
    how = ["test", "correction", "alpha", "unit", "units", "resamples", "seed", "level"]
    writer = csv.DictWriter(stream, [*shared, *PairTest.model_fields, *how], lineterminator="\n")
    writer.writeheader()
    for found in result.comparisons:
        common = found.model_dump(include={*shared, *how})
        for pair in found.pairs:
            writer.writerow({**common, **pair.model_dump()})
    return stream.getvalue()
