"""A leaderboard in the terminal, as one HTML page and one LaTeX table: numbers × 100 with :data:`MARKS` of their
origin, sorted by the column that the title names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from capbench.core.errors import count
from capbench.reports.markup import SAMPLE
from capbench.reports.methods import MARK, SENTINEL_MARK
from capbench.reports.page.elements import Html, joined, plain_table, sorted_table, tag
from capbench.reports.ranking import missing_lines
from capbench.reports.table import CEILING, SENTINELS, Cell, Column, Document, Row, Table, TableStyle
from capbench.studies.leaderboard import BoardColumn, BoardRow, ImageDifference, Leaderboard, PaperNumber

if TYPE_CHECKING:
    from rich.console import Console

MARKS = {"computed": "", "scores": "ˢ", "printed": "ᵖ", "second-hand": "ʰ"}
"""Mark of a number by its origin."""
_MEANING = {
    "scores": "computed from scores in a file",
    "printed": "as printed in a paper",
    "second-hand": "as printed by others than the metric's authors; after all others",
}
_OTHERS = "Published numbers under other protocols, or under protocols that their papers do not state, × 100"
_IMAGES = "What the image contributes: number minus that of the same networks with a substitute image, × 100"
_SUBSTITUTES = {
    "mean": "mean features of the training images",
    "blank": "blank images",
    "shuffled": "other images of the data set",
}
_SENTINEL = "candidate-only"
"""The sentinel that is shown; JSON has all."""
_MANY_COLUMNS = 8


def _origin(row: BoardRow, column: str) -> str:
    """The origin of a row's number in a column, a key of :data:`MARKS`; ``""`` without one."""
    if column in row.ours:
        return row.origin
    return "" if column not in row.printed else "second-hand" if row.is_second_hand(column) else "printed"


def _of_paper(printed: PaperNumber, digits: int) -> str:
    """A published number with its mark, and at most the digits that it was printed with."""
    mark = MARKS["second-hand" if printed.second_hand else "printed"]
    return f"{TableStyle(digits=min(digits, printed.digits)).number(printed.value)}{mark}"


def shown_number(row: BoardRow, column: str, digits: int = 1) -> str:
    """The number of a row in a column × 100, with the mark of its origin; ``""`` without one."""
    if column in row.ours:
        return f"{TableStyle(digits=digits).number(row.ours[column].value)}{MARKS[row.origin]}"
    return _of_paper(row.printed[column], digits) if column in row.printed else ""


def _cell(row: BoardRow, column: BoardColumn, digits: int) -> Cell:
    ours, tip = row.ours.get(column.name), _tip(row, column)
    text = shown_number(row, column.name, digits) or "–"
    if ours is None:
        return Cell(text, tip=tip, soft=_origin(row, column.name) == "second-hand")
    tests = f"{MARK if ours.top else ''}{SENTINEL_MARK if ours.no_better else ''}"
    return Cell(text, tests, TableStyle(digits=digits).interval(ours.low, ours.high), tip=tip)


def leaderboard_table(board: Leaderboard, columns: Sequence[str] = (), *, sort: str = "", digits: int = 1) -> Table:
    """The table of a leaderboard, sorted by a column, by default the first of the chosen ones."""
    chosen, style = board.chosen(columns), TableStyle(digits=digits)
    order = board.chosen([sort])[0] if sort else chosen[0]
    shown = [row for row in board.sorted(order.name) if any(_origin(row, column.name) for column in chosen)]
    rows = []
    for row in shown:
        about = ["no references"] * (row.reads_references is False) + ["trained on ratings"] * bool(row.uses_ratings)
        numbers = tuple(_cell(row, column, digits) for column in chosen)
        rows.append(Row(row.title, numbers, about=", ".join(about)))
    if any(column.ceiling is not None for column in chosen):
        known = [column.ceiling for column in chosen]
        cells = [
            Cell() if c is None else Cell(style.number(c.value), below=style.interval(c.low, c.high)) for c in known
        ]
        rows.append(Row("human ceiling", tuple(cells), CEILING))
    if any(_SENTINEL in column.sentinels for column in chosen):
        values = [column.sentinels.get(_SENTINEL) for column in chosen]
        cells = [Cell("–" if value is None else style.number(value)) for value in values]
        rows.append(Row(_SENTINEL, tuple(cells), SENTINELS))
    computed = sum(any(column.name in row.ours for column in chosen) for row in shown)
    printed = len(shown) - computed
    which = f" ({computed} computed, {printed} from papers only)" if printed else ""
    tasks = count(len(chosen), "task")
    title = f"{count(len(shown), 'metric')}{which} on {tasks}, × 100, sorted by {order.title} {order.statistic}"
    return Table(
        title,
        tuple(Column(column.statistic, column.title) for column in chosen),
        tuple(rows),
        warnings=tuple(_warnings(board, chosen)),
        legend=tuple(_legend(board, shown, chosen)),
        notes=(f"published numbers: {', '.join(board.published)}; the page and JSON give the source of each",),
    )


def _warnings(board: Leaderboard, columns: Sequence[BoardColumn]) -> Iterator[str]:
    """Remarks on numbers that are not computed, one line each."""
    yield from (f"{column.title}: published numbers only, not installed" for column in columns if column.reason)
    yield from missing_lines({row.title: row.missing for row in board.rows})
    yield from (f"left out: {name}: {reason}" for name, reason in board.left_out.items())


def _legend(board: Leaderboard, rows: Sequence[BoardRow], columns: Sequence[BoardColumn]) -> Iterator[str]:
    """Meaning of marks and intervals, one line each."""
    origins = {_origin(row, column.name) for row in rows for column in columns}
    yield from (f"{MARKS[origin]} {text}" for origin, text in _MEANING.items() if origin in origins)
    if settings := next((column.bootstrap for column in columns if column.bootstrap is not None), None):
        drawn = f"{settings.resamples:,} resamples, seed {settings.seed}"
        yield f"[low, high]: {100 * settings.level:g} % bootstrap intervals over {settings.unit}s ({drawn})"
    ours = [row.ours[column.name] for row in rows for column in columns if column.name in row.ours]
    if permutations := next((column.permutations for column in columns if column.permutations is not None), None):
        correction = "" if board.correction == "none" else f", {board.correction}"
        yield (
            f"{MARK} best computed number of the column, or not significantly worse: {permutations:,} permutations "
            f"over images, seed {board.ranking.seed}{correction}, α = {board.alpha:g}; published numbers are not tested"
        )
    if any(number.no_better for number in ours):
        yield f"{SENTINEL_MARK} not significantly better than every sentinel (docs/sentinels.md), α = {board.alpha:g}"
    if any(_SENTINEL in column.sentinels for column in columns):
        yield f"{_SENTINEL}: a sentinel, which sees neither image nor references"


def print_leaderboard(
    board: Leaderboard,
    console: Console,
    *,
    columns: Sequence[str] = (),
    sort: str = "",
    digits: int = 1,
    intervals: bool = False,
) -> None:
    """Print the table, what images contribute, and published numbers under other protocols."""
    from capbench.reports.terminal import print_lines, print_table

    table = leaderboard_table(board, columns, sort=sort, digits=digits)
    print_table(table if intervals else _without_intervals(table), console)
    chosen = board.chosen(columns)
    images = []
    for title, substitute, texts in _images(board, chosen, digits):
        numbers = (f"{column.title} {text}" for column, text in zip(chosen, texts, strict=True) if text)
        images.append(f"  {title}, {substitute}: {', '.join(numbers)}")
    others = [] if columns else [f"  {heading}: {numbers}" for heading, numbers in _others(board, digits)]
    for head, lines in ((_IMAGES, images), (_OTHERS, others)):
        if lines:
            print_lines(console, [head], style="bold")
            print_lines(console, lines)


def _without_intervals(table: Table) -> Table:
    rows = tuple(replace(row, cells=tuple(replace(cell, below="") for cell in row.cells)) for row in table.rows)
    return replace(table, rows=rows, legend=tuple(line for line in table.legend if not line.startswith("[")))


def _others(board: Leaderboard, digits: int) -> Iterator[tuple[str, str]]:
    """Published numbers under other protocols: by heading, the metrics with their numbers, the best first."""
    for heading in dict.fromkeys(heading for row in board.rows for heading in row.others):
        rows = sorted((row for row in board.rows if heading in row.others), key=lambda row: -row.others[heading].value)
        yield heading, ", ".join(f"{row.title} {_of_paper(row.others[heading], digits)}" for row in rows)


def _images(board: Leaderboard, columns: Sequence[BoardColumn], digits: int) -> Iterator[tuple[str, str, list[str]]]:
    """Title, substitute image and differences by column of each row with substitute images."""
    for row in board.rows:
        for kind, substitute in _SUBSTITUTES.items():
            found = [row.image.get(column.name, {}).get(kind) for column in columns]
            texts = ["" if difference is None else _difference(difference, digits) for difference in found]
            if any(texts):
                yield row.title, substitute, texts


def _difference(difference: ImageDifference, digits: int) -> str:
    return f"{100 * difference.value:+.{digits}f} {TableStyle(digits=digits).interval(difference.low, difference.high)}"


def board_document(board: Leaderboard, columns: Sequence[str] = (), *, sort: str = "", digits: int = 1) -> Document:
    """The table for LaTeX, without intervals; by default all columns, or, of more than eight, those with published
    numbers."""
    if not columns and len(board.columns) > _MANY_COLUMNS:
        columns = [c.name for c in board.columns if any(c.name in row.printed for row in board.rows)]
    table = replace(_without_intervals(leaderboard_table(board, columns, sort=sort, digits=digits)), warnings=())
    return Document([table], "leaderboard", f"capbench {board.capbench}, {board.created}", sample=board.sample)


# The page.


def to_html(board: Leaderboard, *, sort: str = "", digits: int = 1) -> str:
    """One HTML page in the design of the report, which can be sorted by every column."""
    from capbench.reports.page.page import html_document

    table = leaderboard_table(board, sort=sort, digits=digits)
    facts = f"{table.title}. Computed {board.created[:10]} with capbench {board.capbench}."
    header = [tag("p", facts, class_="note"), tag("p", SAMPLE, class_="warning") if board.sample else None]
    with_images = [column for column in board.columns if any(column.name in row.image for row in board.rows)]
    images = [[title, substitute, *texts] for title, substitute, texts in _images(board, with_images, digits)]
    heads = ["metric", "substitute image", *(f"{column.title} {column.statistic}" for column in with_images)]
    sizes = [max((row.ours[c.name].n for row in board.rows if c.name in row.ours), default=0) for c in board.columns]
    protocols = [[c.title, c.versioned, f"{n:,}" if n else ""] for c, n in zip(board.columns, sizes, strict=True)]
    others = [list(pair) for pair in _others(board, digits)]
    shown = sorted_table(table, "matrix-0", "Table: leaderboard", "tips matrix board")
    notes = [tag("li", line) for line in (*table.warnings, *table.legend, *table.notes)]
    sections = {
        "overview": ("Leaderboard", joined([shown, tag("ul", *notes, class_="note")])),
        "images": ("What the image contributes", _plain(heads, images, _IMAGES)),
        "other-protocols": ("Other protocols", _plain(["protocol, or printed heading", "numbers"], others, _OTHERS)),
        "protocols": ("Protocols", _plain(["column", "protocol", "n"], protocols)),
        "provenance": ("Provenance", _provenance(board)),
    }
    title = "Agreement of caption metrics with human judgements"
    return html_document(title, header, sections, {})


def _tip(row: BoardRow, column: BoardColumn) -> str:
    """The tooltip of a number: its origin, data points, rank, published number and protocol."""
    ours, printed, origin = row.ours.get(column.name), row.printed.get(column.name), _origin(row, column.name)
    if not origin:
        return row.missing.get(column.name, column.reason)
    tip = [_MEANING.get(origin, "computed by capbench")]
    if ours is not None:
        tip += [f"n = {ours.n:,}", *([f"rank {ours.rank} of the column"] if ours.rank is not None else [])]
    if printed is not None:
        tip += [f"{'' if ours is None else 'published: '}{printed.printed}, {printed.source}"]
        tip += [printed.note] if printed.note else []
    return "\n".join([*tip, f"protocol {column.versioned}"])


def _plain(heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> Html:
    """A table of texts below a note; empty without rows."""
    if not rows:
        return Html("")
    shown = plain_table(heads, rows, f"Table: {heads[0]}", texts=len(heads))
    return joined([tag("p", f"{note}.", class_="note") if note else None, shown])


def _provenance(board: Leaderboard) -> Html:
    lines = [
        tag("li", f"{row.title}: ", tag("code", line))
        for row in board.rows
        for line in dict.fromkeys(row.signatures.values())
    ]
    note = tag("p", "A signature identifies everything that can change a metric's scores.", class_="note")
    command = tag("p", tag("code", board.command, id="again")) if board.command else None
    return joined([command, tag("details", tag("summary", "Signatures"), note, tag("ul", *lines))])
