"""Dependence of the ranking of metrics on the protocol, as tables in four formats.

A pair of metrics is really reversed under a protocol if its difference is significant there and under the default
protocol, in opposite directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.core.files import csv_text, json_text, lock, write_text
from capbench.reports.markup import comparisons_to_csv, markdown_text, tex_text
from capbench.reports.methods import MARK, notes
from capbench.stats.pairs import Tests
from capbench.studies.all_protocols import ProtocolRanking, Reversal, Sensitivity, SensitivityResult
from capbench.studies.results import NO_TESTS, is_left_out

if TYPE_CHECKING:
    from rich.console import Console

# Significant changes of rank between protocols, in sentences and tables.


def tested(sensitivity: SensitivityResult, data: Sensitivity) -> list[str]:
    """Results of the tests of changes of rank, one line each; none if metrics were not tested."""
    if data.reversals is None:
        return []
    ids = [p.id for p in data.protocols]
    if all(len(p.values) < 2 for p in data.protocols):
        return ["one metric: there is no pair to test"]
    lines = notes(sensitivity.result, [(id_, "") for id_ in ids])
    lines += [
        f"no tests under {len(untested)} of {len(ids)} protocols ({untested[0]}{', …' if len(untested) > 1 else ''})"
        f"{': ' + reason if reason else ''}"
        for reason, untested in _untested(sensitivity, ids).items()
    ]
    tests = {id_: tests for id_ in ids if (tests := sensitivity.result.comparison(id_)) is not None}
    if len(ids) == 1 or not tests:
        return lines
    real = sum(reversal.real for reversal in data.reversals)
    lines.append(
        f"of {len(data.reversals)} pairs × protocols with another order than under *, {real} {_are(real)} significant "
        "in both (really reversed)"
    )
    others = [id_ for id_ in tests if id_ != data.default]
    if data.default in tests and others:
        best = tests[data.default].top[0]
        worse = sum(best not in tests[id_].top for id_ in others)
        lines.append(
            f"{sensitivity.result.columns[best]}, the best under *, is significantly worse than the best under "
            f"{worse} of {len(others)} other protocols"
        )
    return lines


def _untested(sensitivity: SensitivityResult, ids: list[str]) -> dict[str, list[str]]:
    """Protocols without tests, by the reason in their notes."""
    by_reason: dict[str, list[str]] = {}
    protocol_notes = {info.id: info.notes for info in sensitivity.result.protocols}
    for id_ in ids:
        if sensitivity.result.comparison(id_) is None:
            why = (note.partition(NO_TESTS)[2] for note in protocol_notes[id_] if note.startswith(f"{id_}{NO_TESTS}"))
            by_reason.setdefault(next(why, ""), []).append(id_)
    return by_reason


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def real_reversals(sensitivity: SensitivityResult, data: Sensitivity) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The pairs of metrics whose order is significant under the default protocol and significantly reversed elsewhere.

    Returns:
        For each pair, that with the most reversing protocols first: ``METEOR over CIDEr``; their difference under the
        default protocol; and (*items/statistic*, difference) of each protocol that reverses them.
    """
    by_pair: dict[tuple[str, str], list[Reversal]] = {}
    for reversal in data.reversals or ():
        if reversal.real:
            by_pair.setdefault((reversal.better, reversal.worse), []).append(reversal)
    percent = {info.id: info.kind == "accuracy" for info in sensitivity.result.protocols}
    titles = sensitivity.result.columns

    def shown(difference: float, protocol: str) -> str:
        return f"{100 * difference:+.1f}" if percent[protocol] else f"{difference:+.3f}"

    return [
        (
            f"{titles[better]} over {titles[worse]}",
            shown(reversals[0].default_difference, data.default),
            [(r.protocol.removeprefix(f"{data.dataset}/"), shown(r.difference, r.protocol)) for r in reversals],
        )
        for (better, worse), reversals in sorted(by_pair.items(), key=lambda entry: -len(entry[1]))
    ]


def reversal_lines(sensitivity: SensitivityResult, data: Sensitivity) -> list[str]:
    """One line for each pair of :func:`real_reversals`."""
    return [
        f"{pair} ({base} under *): {', '.join(f'{id_} {difference}' for id_, difference in places)}"
        for pair, base, places in real_reversals(sensitivity, data)
    ]


def reversals_to_latex(data: Sensitivity, pairs: list[tuple[str, str, list[tuple[str, str]]]]) -> str:
    """The real reversals as a separate table, since a caption could become too long."""
    rows = [
        f"{tex_text(pair)} & {tex_text(base)} & "
        + ", ".join(f"{_breakable(tex_text(id_))} {tex_text(difference)}" for id_, difference in places)
        + r" \\"
        for pair, base, places in pairs
    ]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\footnotesize",
            r"\begin{tabular}{llp{0.6\linewidth}}",
            r"\toprule",
            r"Pair & under * & reversed under \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{tex_text(data.title)}: pairs of metrics whose order under * ({tex_text(data.default)}) is "
            r"significant, and significantly reversed under other protocols, with the differences of the two metrics.}",
            rf"\label{{{latex_label(f'tab:reversals-{data.dataset}')}}}",
            r"\end{table}",
        ]
    )


def _breakable(protocol: str) -> str:
    return protocol.replace("/", r"/\allowbreak ")


def latex_label(text: str) -> str:
    """A text with only the characters of a LaTeX label."""
    return "".join(c if c.isalnum() or c in ":-" else "-" for c in text)


def reversals_to_csv(sensitivity: SensitivityResult, *, escape_formulas: bool = False) -> str:
    """One line for each pair of metrics under each protocol with another order than under the default."""
    rows = (
        {"dataset": data.dataset, "default": data.default, **reversal.model_dump()}
        for data in sensitivity.datasets
        for reversal in data.reversals or ()
    )
    return csv_text(["dataset", "default", *Reversal.model_fields], rows, escape_formulas=escape_formulas)


_SYMBOLS = {
    "tau-b": "τ-b",
    "tau-c": "τ-c",
    "spearman": "ρ",
    "pearson": "r",
    "acc-eq": "acc-eq",
    "acc-eq-held-out": "held-out acc",
}
_PAPER = 8  # maximum columns of a printed table


@dataclass(frozen=True)
class Block:
    """A table: metrics as rows, protocols with the same *items* part as columns.

    Attributes:
        title: its caption.
        heads: two lines for each column, the outer one shared by adjacent columns.
        rows: title of each metric, and its entries (``0.439† 2▲1``: value, the mark of the best metric of a tested
            column and of those that are not significantly worse, rank, change from the default).
        taus: Kendall's tau between each column's ranking and the default's.
        notes: one line each.
    """

    title: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    taus: tuple[str, ...]
    notes: tuple[str, ...]


def blocks(sensitivity: SensitivityResult, data: Sensitivity, columns: int = _PAPER) -> list[Block]:
    """The tables of one data set.

    Args:
        sensitivity: the whole result, for titles.
        data: one of its data sets.
        columns: maximum number of protocols per table.
    """
    made = []
    kinds = {info.id: info.kind for info in sensitivity.result.protocols}
    titles = {name: title for name, title in sensitivity.result.columns.items() if name in data.protocols[0].values}
    for items, group in groupby(data.protocols, key=lambda ranking: ranking.items):
        for number, rankings in enumerate(_parts(list(group), columns)):
            rows = tuple(
                (
                    title,
                    tuple(
                        _entry(
                            ranking, name, kinds[ranking.id] == "accuracy", sensitivity.result.comparison(ranking.id)
                        )
                        for ranking in rankings
                    ),
                )
                for name, title in titles.items()
            )
            papers = [f"{p.id} is the protocol of {', '.join(p.used_by)}" for p in rankings if p.used_by]
            more = " (continued)" if number else ""
            made.append(
                Block(
                    f"{data.title}, {items}{more}",
                    tuple(_head(ranking, ranking.id == data.default) for ranking in rankings),
                    rows,
                    tuple("–" if ranking.tau is None else f"{ranking.tau:.2f}" for ranking in rankings),
                    tuple(papers),
                )
            )
    return made


def _parts(rankings: list[ProtocolRanking], columns: int) -> list[list[ProtocolRanking]]:
    """Protocols split into tables of a maximum width; those that share an outer head stay together if they fit."""
    parts: list[list[ProtocolRanking]] = [[]]
    for _, group in groupby(rankings, key=lambda ranking: _head(ranking, False)[0]):
        together = list(group)
        if parts[-1] and len(parts[-1]) + len(together) > columns:
            parts.append([])
        for ranking in together:
            if len(parts[-1]) == columns:
                parts.append([])
            parts[-1].append(ranking)
    return parts


def _head(ranking: ProtocolRanking, is_default: bool) -> tuple[str, str]:
    outer, inner = "", ranking.statistic
    for name, symbol in _SYMBOLS.items():
        if ranking.statistic.endswith(name):
            outer, inner = ranking.statistic.removesuffix(name).rstrip("-"), symbol
    if not outer and "-" in inner:
        outer, _, inner = inner.partition("-")
    return outer, f"{inner} *" if is_default else inner


def _entry(ranking: ProtocolRanking, name: str, percent: bool, tests: Tests | None) -> str:
    if name not in ranking.values:
        return "–"
    value, move = ranking.values[name], ranking.moves.get(name, 0)
    arrow = "" if move == 0 else f"▲{move}" if move > 0 else f"▼{-move}"
    # A space instead of the mark keeps ranks aligned.
    mark = "" if tests is None else MARK if name in tests.top else " "
    shown = f"{100 * value:.1f}" if percent else f"{value:.3f}"
    return f"{shown}{mark} {ranking.ranks[name]}{arrow}"


def summary(sensitivity: SensitivityResult, data: Sensitivity) -> tuple[str, ...]:
    """The main results of the tables of one data set, in a few sentences."""
    titles = sensitivity.result.columns
    others = [p for p in data.protocols if p.id != data.default]
    base = next(p for p in data.protocols if p.id == data.default)
    default = next((i.versioned_id for i in sensitivity.result.protocols if i.id == data.default), data.default)
    lines = [
        f"* {default} is the protocol that the others are compared with; entries are value, rank, and the number of "
        "ranks by which that is better (▲) or worse (▼)"
    ]
    if not others or len(base.ranks) < 2:
        return (*lines, *tested(sensitivity, data))
    same = sum(not any(p.moves.values()) for p in others)
    lines.append(f"{same} of {len(others)} other protocols rank the metrics as * does")
    firsts: dict[str, int] = {}
    for protocol in data.protocols:
        for name, rank in protocol.ranks.items():
            if rank == 1:
                firsts[name] = firsts.get(name, 0) + 1
    first = sorted(firsts.items(), key=lambda entry: -entry[1])
    lines.append(
        f"first: {', '.join(f'{titles[name]} under {count}' for name, count in first)} of {len(data.protocols)}"
    )
    known = [(p.tau, p.id) for p in others if p.tau is not None]
    if known:
        tau, id_ = min(known)
        lines.append(f"furthest from *: {id_} (τ between the rankings {tau:.2f})")
    return (*lines, *tested(sensitivity, data))


def print_sensitivity(sensitivity: SensitivityResult, console: Console) -> None:
    """Print every table and its summary; columns that do not fit form another table."""
    from rich import box
    from rich.table import Table

    for data in sensitivity.datasets:
        for block in blocks(sensitivity, data, _fitting(sensitivity, data, console.width)):
            table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
            table.add_column("\nmetric", no_wrap=True)
            previous = ""
            for outer, inner in block.heads:
                table.add_column(f"{outer if outer != previous else ''}\n{inner}", justify="left", no_wrap=True)
                previous = outer
            for title, entries in block.rows:
                table.add_row(title, *entries)
            table.add_section()
            table.add_row("τ with *", *block.taus, style="italic")
            console.print(block.title, style="bold", markup=False)
            console.print(table)
            for note in block.notes:
                console.print(f"  {note}", style="dim", markup=False, soft_wrap=not console.is_terminal)
        for line in summary(sensitivity, data):
            console.print(line, markup=False, soft_wrap=not console.is_terminal)
        for line in reversal_lines(sensitivity, data):
            console.print(f"  {line}", markup=False, soft_wrap=not console.is_terminal)
        console.print()
    for reason, ids in _missing(sensitivity).items():
        console.print(f"{len(ids)} protocols not computed ({ids[0]}, …): {reason}", markup=False, soft_wrap=True)
    for title, reason in _waiting(sensitivity).items():
        separator = " " if is_left_out(reason) else ": requires "
        console.print(f"{title}{separator}{reason}", markup=False, soft_wrap=True)
    for line in sensitivity.result.undefined_lines():
        console.print(line, markup=False, soft_wrap=True)


def _fitting(sensitivity: SensitivityResult, data: Sensitivity, width: int) -> int:
    """Number of protocols that fit next to each other."""
    whole = blocks(sensitivity, data, len(data.protocols))
    first = max([len(title) for block in whole for title, _ in block.rows] + [8]) + 2
    entry = max(
        len(text)
        for block in whole
        for column, head in enumerate(block.heads)
        for text in (*head, *(entries[column] for _, entries in block.rows))
    )
    return max(1, (width - first) // (entry + 2))


def _missing(sensitivity: SensitivityResult) -> dict[str, list[str]]:
    by_reason: dict[str, list[str]] = {}
    for missing in sensitivity.result.missing:
        if missing.protocol:
            by_reason.setdefault(missing.reason, []).append(missing.protocol)
    return by_reason


def _waiting(sensitivity: SensitivityResult) -> dict[str, str]:
    return {missing.title: missing.reason for missing in sensitivity.result.missing if missing.column}


def to_markdown(sensitivity: SensitivityResult) -> str:
    """All tables as GitHub Markdown."""
    lines = [f"<!-- capbench {sensitivity.result.capbench}, {sensitivity.result.created} -->"]
    if sensitivity.result.sample:
        lines += ["", "Computed on the embedded synthetic sample: these numbers say nothing about metrics."]
    for data in sensitivity.datasets:
        for block in blocks(sensitivity, data, len(data.protocols)):
            heads = ["metric", *(" ".join(word for word in head if word) for head in block.heads)]
            lines += ["", f"### {block.title}", "", f"| {' | '.join(markdown_text(head) for head in heads)} |"]
            lines.append("|---|" + "---|" * len(block.heads))
            for title, entries in (*block.rows, ("τ with *", block.taus)):
                texts = [" ".join(text.split()) for text in (title, *entries)]
                lines.append(f"| {' | '.join(map(markdown_text, texts))} |")
            lines += ["", *(f"- {markdown_text(note)}" for note in block.notes)]
        lines += ["", *(f"- {markdown_text(line)}" for line in summary(sensitivity, data))]
        lines += [f"  - {markdown_text(line)}" for line in reversal_lines(sensitivity, data)]
    missing = [f"- {len(ids)} protocols ({ids[0]}, …): {reason}" for reason, ids in _missing(sensitivity).items()]
    missing += [f"- {title}: {reason}" for title, reason in _waiting(sensitivity).items()]
    missing += [f"- {line}" for line in sensitivity.result.undefined_lines()]
    if missing:
        lines += ["", "Not computed:", "", *map(markdown_text, missing)]
    return "\n".join(lines) + "\n"


def to_latex(sensitivity: SensitivityResult) -> str:
    """All tables as LaTeX ``table`` environments; they need the package ``booktabs``."""
    made = [f"% capbench {sensitivity.result.capbench}, {sensitivity.result.created}; needs \\usepackage{{booktabs}}"]
    if sensitivity.result.sample:
        made.append("% Computed on the embedded synthetic sample: these numbers say nothing about metrics.")
    number = 0
    for data in sensitivity.datasets:
        for place, block in enumerate(blocks(sensitivity, data)):
            number += 1
            # The first table of a data set has the summary in its caption.
            sentences = summary(sensitivity, data) if place == 0 else ()
            made.append(_latex(block, sentences, f"tab:protocols-{data.dataset}-{number}"))
        if pairs := real_reversals(sensitivity, data):
            made.append(reversals_to_latex(data, pairs))
    return "\n\n".join(made) + "\n"


def _latex(block: Block, sentences: tuple[str, ...], label: str) -> str:
    outer, rules, position = [""], [], 2
    for name, group in groupby(block.heads, key=lambda head: head[0]):
        span = len(list(group))
        outer.append(rf"\multicolumn{{{span}}}{{c}}{{{tex_text(name)}}}")
        rules.append(rf"\cmidrule(lr){{{position}-{position + span - 1}}}")
        position += span
    rows = [
        " & ".join(tex_text(" ".join(text.split())) for text in (title, *entries)) + r" \\"
        for title, entries in block.rows
    ]
    caption = " ".join(f"{tex_text(text)}." for text in (block.title, *sentences, *block.notes))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\begin{{tabular}}{{l{'l' * len(block.heads)}}}",
            r"\toprule",
            " & ".join(outer) + r" \\",
            "".join(rules),
            " & ".join(["Metric", *(tex_text(inner) for _, inner in block.heads)]) + r" \\",
            r"\midrule",
            *rows,
            r"\midrule",
            " & ".join([tex_text("τ with *"), *map(tex_text, block.taus)]) + r" \\",
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}}}",
            rf"\label{{{latex_label(label)}}}",
            r"\end{table}",
        ]
    )


def to_csv(sensitivity: SensitivityResult, *, escape_formulas: bool = False) -> str:
    """One line for each metric under each protocol; with tests, ``top`` is true for the best and those not worse."""
    heads = ["dataset", "protocol", "default", "column", "title", "value", "rank", "move", "tau", "used_by"]
    with_tests = any(data.reversals is not None for data in sensitivity.datasets)
    columns = [*heads, "top"] if with_tests else heads
    rows = (dict(zip(columns, line, strict=True)) for line in _lines(sensitivity, with_tests))
    return csv_text(columns, rows, escape_formulas=escape_formulas)


def _lines(sensitivity: SensitivityResult, with_tests: bool) -> Iterator[list[object]]:
    for data in sensitivity.datasets:
        for p in data.protocols:
            tests = sensitivity.result.comparison(p.id)
            for name, value in p.values.items():
                title, default = sensitivity.result.columns[name], p.id == data.default
                row = [data.dataset, p.id, default, name, title, value, p.ranks[name], p.moves.get(name), p.tau]
                top = None if tests is None else name in tests.top
                yield [*row, " ".join(p.used_by), *([top] if with_tests else [])]


def write_sensitivity(sensitivity: SensitivityResult, folder: Path, *, escape_formulas: bool = False) -> list[Path]:
    """Write ``all-protocols.{json,csv,md,tex}`` into a folder and return their paths.

    With tests between metrics there are also ``all-protocols-comparisons.csv``, one line per pair, and
    ``all-protocols-reversals.csv``; without them earlier ones are removed.

    Args:
        sensitivity: the result.
        folder: created if it does not exist.
        escape_formulas: for CSV files, see :func:`capbench.core.files.csv_text`.

    Raises:
        UsageError: a file cannot be written.
    """
    texts = {
        "all-protocols.json": json_text(sensitivity.model_dump(mode="json")) + "\n",
        "all-protocols.csv": to_csv(sensitivity, escape_formulas=escape_formulas),
        "all-protocols.md": to_markdown(sensitivity),
        "all-protocols.tex": to_latex(sensitivity),
    }
    of_tests = {
        "all-protocols-comparisons.csv": comparisons_to_csv(sensitivity.result, escape_formulas=escape_formulas),
        "all-protocols-reversals.csv": reversals_to_csv(sensitivity, escape_formulas=escape_formulas),
    }
    if any(data.reversals is not None for data in sensitivity.datasets):
        texts |= of_tests
    with lock(folder / ".results"):
        for name in of_tests.keys() - texts.keys():
            (folder / name).unlink(missing_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    return [folder / name for name in texts]
