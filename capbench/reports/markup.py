"""Results as Markdown, LaTeX (booktabs) and CSV."""

from __future__ import annotations

import csv
import io

from capbench.reports.tables import Entry, Row, Table
from capbench.reports.tables import tables as make_tables
from capbench.studies.results import Cell, StudyResult

__all__ = ["to_csv", "to_latex", "to_markdown"]

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
            "| " + " | ".join(_md(head) for head in heads) + " |",
            "|" + "|".join(["---"] + ["---:"] * (len(heads) - 1)) + "|",
        ]
        for row in table.rows:
            texts = [row.title]
            for entry, column in zip(row.entries, table.columns, strict=True):
                ours = _ours(row, entry)
                texts.append(f"**{ours}**" if _is_best(ours, column.best) else ours)
                if column.compared:
                    texts += [entry.published, entry.difference]
            lines.append("| " + " | ".join(_md(text, keep_bold=True) for text in texts) + " |")
        lines += ["", *(f"- {_md(note)}" for note in table.notes)]
        blocks.append("\n".join(lines))
    blocks.append(_md_missing(result))
    signatures = dict.fromkeys(s for by_metric in result.signatures.values() for s in by_metric.values())
    blocks.append("Signatures:\n\n" + "\n".join(f"- `{signature}`" for signature in signatures))
    origin = "Computed on the embedded synthetic sample: these numbers say nothing about metrics.\n\n"
    head = f"<!-- capbench {result.capbench}, {result.created} -->\n\n" + (origin if result.sample else "")
    return head + "\n\n".join(block for block in blocks if block) + "\n"


def _ours(row: Row, entry: Entry) -> str:
    return entry.ours or ("waits" if row.missing else "")


def _is_best(text: str, best: str | None) -> bool:
    return best is not None and text.split(" ")[0] == best


def _md(text: str, keep_bold: bool = False) -> str:
    escaped = text.replace("|", "\\|").replace("_", "\\_")
    return escaped if keep_bold else escaped.replace("*", "\\*")


def _md_missing(result: StudyResult) -> str:
    lines = [f"- {_md(m.title or m.protocol)}: {_md(m.reason)}" for m in result.missing]
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
        inner += [_tex(part), "paper", "diff."] if span == 3 else [_tex(part)]
        # Neighbours of one data set share its head.
        if outer and outer[-1][0] == name:
            outer[-1] = (name, outer[-1][1] + span)
        else:
            outer.append((name, span))
    heads, rules, position = [""], [], 2
    for name, span in outer:
        heads.append(rf"\multicolumn{{{span}}}{{c}}{{{_tex(name)}}}")
        rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    body = []
    for row in table.rows:
        texts = [_tex(row.title)]
        for entry, column in zip(row.entries, table.columns, strict=True):
            ours = _ours(row, entry)
            texts.append(rf"\textbf{{{_tex(ours)}}}" if _is_best(ours, column.best) else _tex(ours) or "--")
            if column.compared:
                texts += [_tex(entry.published) or "--", _tex(entry.difference) or "--"]
        body.append(" & ".join(texts) + r" \\")
    notes = " ".join(f"{_tex(note)}." for note in table.notes)
    label = "".join(c if c.isalnum() else "-" for c in result.name)
    return "\n".join(
        [
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
            rf"\caption{{{_tex(table.title)}. {notes}}}",
            rf"\label{{tab:{label}-{number}}}",
            r"\end{table}",
        ]
    )


def _tex(text: str) -> str:
    if text.startswith("-") and text[1:2].isdigit():
        return f"$-${text[1:]}"
    return "".join(_LATEX.get(character, character) for character in text)


def to_csv(result: StudyResult) -> str:
    """One line a cell, full precision, columns as in :class:`~capbench.studies.results.Cell`."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [*Cell.model_fields, "difference"], lineterminator="\n")
    writer.writeheader()
    for cell in result.cells:
        difference = None if cell.published is None else cell.value - cell.published
        writer.writerow({**cell.model_dump(), "difference": difference})
    return stream.getvalue()
