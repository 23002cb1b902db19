"""A leaderboard in the terminal, as one HTML page, and as one LaTeX table.

All numbers are multiplied by 100. Marks give the origin of a number: none for computed ones, :data:`MARKS` for the
others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capbench.core.errors import count
from capbench.reports.markup import SAMPLE, tex_text
from capbench.reports.methods import MARK, SENTINEL_MARK, sentinel_title
from capbench.reports.page.elements import Html, joined, tag, wide
from capbench.reports.ranking import missing_lines
from capbench.reports.table import CEILING, SENTINELS, Cell, Column, Row, Table
from capbench.studies.leaderboard import (
    BY_RANK,
    BoardColumn,
    BoardRow,
    ImageDifference,
    Leaderboard,
    OurNumber,
    PaperNumber,
)
from capbench.studies.uncertainty import RANK_RULE

if TYPE_CHECKING:
    from rich.console import Console

MARKS = {"computed": "", "scores": "ˢ", "printed": "ᵖ", "second-hand": "ʰ"}
"""Mark of a number by its origin."""
_MEANING = {
    "scores": "computed from scores in a file",
    "printed": "as printed in a paper",
    "second-hand": "as printed by others than the metric's authors",
}
_TEX_MARKS = {
    "scores": r"\textsuperscript{s}",
    "printed": r"\textsuperscript{p}",
    "second-hand": r"\textsuperscript{h}",
}
_NEW_LINE = r"\\"
_SPACE = "\u00a0"
_OTHERS = "Published numbers under other protocols, or under protocols that their papers do not state, × 100"
_IMAGES = "What the image contributes: number minus that of the same networks with a substitute image, × 100"
_SUBSTITUTES = {
    "mean": "mean features of the training images",
    "blank": "blank images",
    "shuffled": "other images of the data set",
}
_FEW_COLUMNS, _MANY_COLUMNS = 4, 8


@dataclass(frozen=True)
class _Shown:
    """One number of the table.

    Attributes:
        text: the number.
        origin: a key of :data:`MARKS`.
        interval: ``[low, high]``, or ``""``.
        ours: our number; None for a published one.
        printed: the published number; None without one.
    """

    text: str
    origin: str
    interval: str = ""
    ours: OurNumber | None = None
    printed: PaperNumber | None = None

    @property
    def top(self) -> bool:
        return self.ours is not None and self.ours.top

    @property
    def no_better(self) -> bool:
        return self.ours is not None and self.ours.no_better

    @property
    def tests(self) -> str:
        """Marks of the tests."""
        return f"{MARK if self.top else ''}{SENTINEL_MARK if self.no_better else ''}"


def _number(value: float, digits: int) -> str:
    return f"{100 * value:.{digits}f}"


def _shown(row: BoardRow, column: str, digits: int) -> _Shown | None:
    ours, printed = row.ours.get(column), row.printed.get(column)
    if ours is not None:
        return _Shown(_number(ours.value, digits), row.origin, _interval(ours, digits), ours, printed)
    return None if printed is None else _of_paper(printed, digits)


def _of_paper(printed: PaperNumber, digits: int) -> _Shown:
    """A published number, with at most the digits that it was printed with."""
    origin = "second-hand" if printed.second_hand else "printed"
    return _Shown(_number(printed.value, min(digits, printed.digits)), origin, printed=printed)


def shown_number(row: BoardRow, column: str, digits: int = 1) -> str:
    """The number of a row in a column × 100, with the mark of its origin; ``""`` without one."""
    shown = _shown(row, column, digits)
    return "" if shown is None else f"{shown.text}{MARKS[shown.origin]}"


def _interval(ours: OurNumber, digits: int) -> str:
    if ours.low is None or ours.high is None:
        return ""
    return f"[{_number(ours.low, digits)}, {_number(ours.high, digits)}]"


def _title(row: BoardRow, overall: bool) -> str:
    """Title of a row, marked if its overall value is shown and adjusted for missing tasks."""
    return f"{row.title}{'*' if overall and _is_adjusted(row) else ''}"


def _is_adjusted(row: BoardRow) -> bool:
    return row.overall is not None and row.missing_tasks > 0


def _rank_texts(row: BoardRow, digits: int) -> tuple[str, str]:
    return (
        "" if row.rank is None else str(row.rank),
        "" if row.overall is None else _number(row.overall, digits),
    )


# Terminal.


def print_leaderboard(
    board: Leaderboard,
    console: Console,
    *,
    columns: Sequence[str] = (),
    sort: str = BY_RANK,
    digits: int = 1,
    intervals: bool = True,
) -> None:
    """Print the table, and a second one with the published numbers under other protocols.

    Args:
        board: the leaderboard.
        console: prints them.
        columns: names of columns, in their order; by default all.
        sort: ``rank``, or the name of a column.
        digits: digits after the decimal point.
        intervals: False to omit intervals.

    Raises:
        UsageError: there is no such column.
    """
    from capbench.reports.terminal import print_table

    print_table(_table(board, board.chosen(columns), sort, digits, intervals), console)
    images = list(_images(board, board.chosen(columns), digits))
    if images:
        console.print(_IMAGES, style="bold", markup=False, soft_wrap=not console.is_terminal)
    for title, substitute, cells in images:
        titled = zip(board.chosen(columns), cells, strict=True)
        numbers = ", ".join(f"{column.title} {text}" for column, text in titled if text)
        console.print(f"  {title}, {substitute}: {numbers}", markup=False, soft_wrap=not console.is_terminal)
    others = [] if columns else list(_others(board, digits))
    if others:
        console.print(_OTHERS, style="bold", markup=False, soft_wrap=not console.is_terminal)
    for heading, numbers in others:
        console.print(f"  {heading}: {numbers}", markup=False, soft_wrap=not console.is_terminal)


def _table(board: Leaderboard, columns: Sequence[BoardColumn], sort: str, digits: int, intervals: bool) -> Table:
    overall = board.has_overall(columns)
    ranked = [Column(head) for head in ("rank", "overall")] if overall else []
    rows = []
    best = {column.name: board.best(column.name) for column in columns}
    for row in board.sorted(sort):
        cells = []
        for column in columns:
            shown = _shown(row, column.name, digits)
            if shown is None:
                cells.append(Cell("–", _SPACE))
                continue
            interval = shown.interval if intervals else ""
            bold = best[column.name] == row.name
            cells.append(Cell(shown.text, (MARKS[shown.origin] or _SPACE) + shown.tests, interval, bold))
        if any(cell.value != "–" for cell in cells):
            before = [Cell(text) for text in _rank_texts(row, digits)] if overall else []
            rows.append(Row(_title(row, overall), (*before, *cells)))
    title = f"{count(len(rows), 'metric')} on {count(len(columns), 'task')}, numbers × 100"
    rows += _ceiling(columns, digits, intervals, len(ranked))
    rows += _sentinels(columns, digits, len(ranked))
    heads = [*ranked, *(Column(column.statistic, column.title) for column in columns)]
    return Table(title, tuple(heads), tuple(rows), legend=tuple(_notes(board, columns)))


def _ceiling(columns: Sequence[BoardColumn], digits: int, intervals: bool, before: int) -> Iterator[Row]:
    """The row of human ceilings, with a number of empty cells before them; none if all are unknown."""
    known = [column.ceiling for column in columns]
    if any(known):
        cells = [
            Cell()
            if one is None
            else Cell(_number(one.value, digits), _SPACE, _interval(one, digits) if intervals else "")
            for one in known
        ]
        yield Row("human ceiling", (*[Cell()] * before, *cells), CEILING)


def _sentinels(columns: Sequence[BoardColumn], digits: int, before: int) -> Iterator[Row]:
    """The rows of sentinels, with a number of empty cells before their numbers."""
    for name in dict.fromkeys(name for column in columns for name in column.sentinels):
        values = [column.sentinels.get(name) for column in columns]
        cells = [Cell("–" if value is None else _number(value, digits), _SPACE) for value in values]
        yield Row(sentinel_title(name), (*[Cell()] * before, *cells), SENTINELS)


def _others(board: Leaderboard, digits: int) -> Iterator[tuple[str, str]]:
    """Published numbers under other protocols: by heading, the metrics with their numbers, the best first."""
    for heading in dict.fromkeys(heading for row in board.rows for heading in row.others):
        rows = sorted((row for row in board.rows if heading in row.others), key=lambda row: -row.others[heading].value)
        numbers = [(row.title, _of_paper(row.others[heading], digits)) for row in rows]
        yield heading, ", ".join(f"{title} {number.text}{MARKS[number.origin]}" for title, number in numbers)


def _images(board: Leaderboard, columns: Sequence[BoardColumn], digits: int) -> Iterator[tuple[str, str, list[str]]]:
    """Title, substitute image and differences by column of each row with substitute images."""
    for row in board.rows:
        for kind, substitute in _SUBSTITUTES.items():
            found = [row.image.get(column.name, {}).get(kind) for column in columns]
            texts = ["" if one is None else _difference(one, digits) for one in found]
            if any(texts):
                yield row.title, substitute, texts


def _difference(one: ImageDifference, digits: int) -> str:
    return f"{100 * one.value:+.{digits}f} [{_number(one.low, digits)}, {_number(one.high, digits)}]"


def _notes(board: Leaderboard, columns: Sequence[BoardColumn]) -> Iterator[str]:
    """Notes below the table, one line each."""
    overall = board.has_overall(columns)
    if overall:
        yield _overall_note(board)
    origins = {
        shown.origin for row in board.rows for column in columns if (shown := _shown(row, column.name, 1)) is not None
    }
    yield from (f"{MARKS[origin]} {text}" for origin, text in _MEANING.items() if origin in origins)
    yield from _statistics_notes(board, columns)
    if overall and any(_is_adjusted(row) for row in board.rows):
        yield "* not computed in some of these columns: overall value adjusted for how difficult the others are"
    yield from (
        f"{column.title}: published numbers only, its files are not installed (capbench data info {column.dataset})"
        for column in columns
        if column.reason
    )
    yield from missing_lines({row.title: row.missing for row in board.rows})
    yield from (f"left out: {name}: {reason}" for name, reason in board.left_out.items())
    if any(origin in origins for origin in ("printed", "second-hand")):
        yield (
            f"published numbers: {', '.join(board.published)}; --html and --json give the source of each, and mark "
            "metrics that read no references and metrics that were trained on human ratings"
        )


def _overall_note(board: Leaderboard) -> str:
    tasks, titles = board.ranking.tasks, {column.name: column.title for column in board.columns}
    weights = sorted({task.weight for task in tasks}, reverse=True)
    mean = "mean"
    if len(weights) > 1:
        of_weight = [", ".join(titles[task.name] for task in tasks if task.weight == weight) for weight in weights]
        lines = (f"{weight:g}: {columns}" for weight, columns in zip(weights, of_weight, strict=True))
        mean = f"weighted mean ({'; '.join(lines)})"
    return (
        f"rank, overall: capbench rank on the {count(len(tasks), 'column')} with computed numbers: {mean}, where a "
        f"correlation r counts as 50 + 50 r; published numbers are not ranked. {RANK_RULE}"
    )


def _statistics_notes(board: Leaderboard, columns: Sequence[BoardColumn]) -> Iterator[str]:
    """Intervals, tests and sentinels in one line each."""
    settings = next((column.bootstrap for column in columns if column.bootstrap is not None), None)
    if settings is not None:
        yield (
            f"[low, high]: {100 * settings.level:g} % bootstrap intervals over {settings.unit}s "
            f"({settings.resamples:,} resamples, seed {settings.seed})"
        )
    permutations = next((column.permutations for column in columns if column.permutations is not None), None)
    correction = "" if board.correction == "none" else f", {board.correction}"
    if permutations is not None:
        yield (
            f"{MARK} best computed number of the column, or not significantly worse: {permutations:,} permutations "
            f"over images, seed {board.ranking.seed}{correction}, α = {board.alpha:g}; published numbers are not tested"
        )
    if any(ours.no_better for row in board.rows for ours in row.ours.values()):
        yield f"{SENTINEL_MARK} not significantly better than every sentinel (docs/sentinels.md), α = {board.alpha:g}"


# LaTeX.


def to_latex(board: Leaderboard, columns: Sequence[str] = (), *, sort: str = BY_RANK, digits: int = 1) -> str:
    """One ``table`` (``table*`` for more than four columns) for the packages booktabs and graphicx.

    It has one-line footnotes. A table that is wider than the line is reduced to its width.

    Args:
        board: the leaderboard.
        columns: names of columns, in their order; by default all, or, of more than eight, those with published numbers.
        sort: ``rank``, or the name of a column.
        digits: digits after the decimal point.

    Raises:
        UsageError: there is no such column.
    """
    chosen = board.chosen(columns)
    if not columns and len(chosen) > _MANY_COLUMNS:
        chosen = tuple(column for column in chosen if any(column.name in row.printed for row in board.rows)) or chosen
    rows = [row for row in board.sorted(sort) if any(row.value(column.name) is not None for column in chosen)]
    best = {column.name: board.best(column.name) for column in chosen}
    body = []
    for row in rows:
        cells = [_tex_number(_shown(row, column.name, digits), best[column.name] == row.name) for column in chosen]
        body.append(" & ".join([tex_text(row.title), *cells]) + r" \\")
    if any(column.ceiling is not None for column in chosen):
        texts = ["" if column.ceiling is None else _number(column.ceiling.value, digits) for column in chosen]
        body += [r"\midrule", " & ".join(["Human raters", *texts]) + r" \\"]
    words = [[*map(tex_text, _head_words(column))] for column in chosen]
    heads = [f"\\shortstack{{{_NEW_LINE.join(of_column)}}}" for of_column in words]
    size, space = ("footnotesize", 3) if len(chosen) <= _MANY_COLUMNS else ("scriptsize", 2)
    environment = "table" if len(chosen) <= _FEW_COLUMNS else "table*"
    sample = [f"% {SAMPLE}"] if board.sample else []
    footnotes = "\\par\n".join(_tex_notes(board, rows, chosen, digits))
    return "\n".join(
        [
            f"% capbench {board.capbench}, {board.created}; requires \\usepackage{{booktabs,graphicx}}",
            *sample,
            rf"\begin{{{environment}}}",
            rf"\centering\{size}\setlength{{\tabcolsep}}{{{space}pt}}",
            r"\caption{Agreement of caption metrics with human judgements ($\times$100).}",
            r"\label{tab:leaderboard}",
            r"\begin{lrbox}{0}",
            rf"\begin{{tabular}}{{l{'r' * len(chosen)}}}",
            r"\toprule",
            " & ".join(["Metric", *heads]) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{lrbox}",
            r"\resizebox{\ifdim\wd0>\linewidth\linewidth\else\wd0\fi}{!}{\usebox{0}}",
            r"\par\vspace{2pt}",
            r"\begin{minipage}{\linewidth}\footnotesize\raggedright",
            footnotes,
            r"\end{minipage}",
            rf"\end{{{environment}}}",
            "",
        ]
    )


def _head_words(column: BoardColumn) -> list[str]:
    """Short lines of a column's head."""
    title = [part for word in column.title.split() for part in re.findall(r"[^-]+-?", word)]
    return [*title, "acc." if column.statistic == "accuracy" else column.statistic]


def _tex_number(shown: _Shown | None, best: bool) -> str:
    if shown is None:
        return "--"
    number = tex_text(shown.text)
    bold = f"\\textbf{{{number}}}" if best else number
    return f"{bold}{_TEX_MARKS.get(shown.origin, '')}{tex_text(shown.tests)}"


def _tex_notes(
    board: Leaderboard, rows: Sequence[BoardRow], columns: Sequence[BoardColumn], digits: int
) -> Iterator[str]:
    """Footnotes, one line each."""
    shown = [number for row in rows for column in columns if (number := _shown(row, column.name, digits)) is not None]
    for origin, text in _MEANING.items():
        if any(number.origin == origin for number in shown):
            yield f"{_TEX_MARKS[origin]} {text.capitalize()}."
    if any(number.top for number in shown):
        yield tex_text(
            f"{MARK} Best computed metric, or not significantly worse (permutation test, α = {board.alpha:g})."
        )
    if any(number.no_better for number in shown):
        yield tex_text(f"{SENTINEL_MARK} Not significantly better than a baseline without access to the image.")
    halves = [
        (number.ours.high - number.ours.low) / 2
        for number in shown
        if number.ours is not None and number.ours.low is not None and number.ours.high is not None
    ]
    if halves:
        yield tex_text(f"95% bootstrap intervals of computed numbers are at most ±{_number(max(halves), digits)}.")


# HTML.


def to_html(board: Leaderboard, *, sort: str = BY_RANK, digits: int = 1) -> str:
    """One HTML page in the design of the report.

    Args:
        board: the leaderboard.
        sort: ``rank``, or the name of a column; the page can be sorted by every column.
        digits: digits after the decimal point.

    Raises:
        UsageError: there is no such column.
    """
    from capbench.reports.page.page import html_document

    computed = sum(bool(row.ours) for row in board.rows)
    printed = sum(row.origin == "printed" for row in board.rows)
    facts = (
        f"{count(computed, 'computed metric')}, {printed} from papers only, "
        f"{count(len(board.columns), 'task')}; numbers × 100. Computed {board.created[:10]} with capbench "
        f"{board.capbench}."
    )
    header = [
        tag("p", facts, class_="note"),
        tag("p", SAMPLE, class_="warning") if board.sample else None,
    ]
    sections = {
        "overview": ("Leaderboard", _html_table(board, sort, digits)),
        "images": ("What the image contributes", _html_images(board, digits)),
        "other-protocols": ("Other protocols", _html_others(board, digits)),
        "protocols": ("Protocols", _html_protocols(board)),
        "provenance": ("Provenance", _html_provenance(board)),
    }
    shown = {place: (name, content) for place, (name, content) in sections.items() if content}
    main = joined(
        (tag("section", tag("h2", name), content, id=place) for place, (name, content) in shown.items()), "\n"
    )
    title = "Agreement of caption metrics with human judgements"
    return html_document(title, header, {place: name for place, (name, _) in shown.items()}, main)


def _html_table(board: Leaderboard, sort: str, digits: int) -> Html:
    overall = board.has_overall(board.columns)
    heads = [tag("th", "metric", scope="col")]
    heads += [tag("th", "rank", tag("span", "overall", class_="sub"), class_="n")] if overall else []
    heads += [
        tag("th", column.title, tag("span", column.statistic, class_="sub"), class_="n", scope="col")
        for column in board.columns
    ]
    best = {column.name: board.best(column.name) for column in board.columns}
    rows = []
    for row in board.sorted(sort):
        cells = [_html_cell(row, column, digits, best[column.name] == row.name) for column in board.columns]
        if any(row.value(column.name) is not None for column in board.columns):
            rank = [_html_rank(row, digits)] if overall else []
            rows.append(tag("tr", _html_title(row, overall), *rank, *cells))
    foot = []
    below = (*_ceiling(board.columns, digits, True, int(overall)), *_sentinels(board.columns, digits, int(overall)))
    for line in below:
        texts = [
            tag(
                "td",
                cell.value,
                tag("span", cell.below, class_="sub") if cell.below else None,
                class_="n",
            )
            for cell in line.cells
        ]
        foot.append(tag("tr", tag("th", line.title, scope="row"), *texts))
    table = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        tag("tfoot", *foot) if foot else None,
        class_="tips matrix",
        id="matrix-0",
    )
    notes = [tag("li", line) for line in _notes(board, board.columns)]
    return joined([wide(table, "Table: leaderboard"), tag("ul", *notes, class_="note")])


def _html_title(row: BoardRow, overall: bool) -> Html:
    """Title of a row, with what the metric reads and was trained on, if that is unusual."""
    about = ["no references"] if row.reads_references is False else []
    about += ["trained on ratings"] if row.uses_ratings else []
    below = tag("span", ", ".join(about), class_="sub") if about else None
    return tag("th", _title(row, overall), below, scope="row", data_copy=row.title)


def _html_rank(row: BoardRow, digits: int) -> Html:
    rank, overall = _rank_texts(row, digits)
    if not rank:
        return tag("td", "", class_="n", data_order="-9")
    tip = f"rank {row.rank} on {count(row.tasks, 'task')}"
    below = tag("span", overall, class_="sub")
    return tag("td", rank, below, class_="n", data_order=repr(row.overall), data_tip=tip)


def _html_cell(row: BoardRow, column: BoardColumn, digits: int, best: bool) -> Html:
    shown = _shown(row, column.name, digits)
    if shown is None:
        return tag("td", "–", class_="n", data_order="-9", data_tip=row.missing.get(column.name, column.reason or None))
    tip = [_MEANING.get(shown.origin, "computed by capbench")]
    if shown.ours is not None:
        tip += [f"n = {shown.ours.n:,}"]
        tip += [f"rank {shown.ours.rank} of the column"] if shown.ours.rank is not None else []
    if shown.printed is not None:
        where = "" if shown.ours is None else "published: "
        tip += [f"{where}{shown.printed.printed}, {shown.printed.source}"]
        tip += [shown.printed.note] if shown.printed.note else []
    tip += [f"protocol {column.versioned}"]
    return tag(
        "td",
        tag("span", f"{shown.text}{MARKS[shown.origin]}{shown.tests}", class_="strong" if best else None),
        tag("span", shown.interval, class_="sub") if shown.interval else None,
        class_="n",
        data_order=repr(row.value(column.name)),
        data_tip="\n".join(tip),
        data_copy=f"{shown.text} {shown.interval}".strip(),
    )


def _html_images(board: Leaderboard, digits: int) -> Html:
    places = {column for row in board.rows for column in row.image}
    columns = [column for column in board.columns if column.name in places]
    rows = [
        tag(
            "tr", tag("th", title, scope="row"), tag("td", substitute), *(tag("td", text, class_="n") for text in texts)
        )
        for title, substitute, texts in _images(board, columns, digits)
    ]
    if not rows:
        return Html("")
    heads = [tag("th", text, scope="col") for text in ("metric", "substitute image")]
    heads += [
        tag("th", column.title, tag("span", column.statistic, class_="sub"), class_="n", scope="col")
        for column in columns
    ]
    made = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="plain", id="image-differences")
    return joined([tag("p", f"{_IMAGES}.", class_="note"), wide(made, "Table: what the image contributes")])


def _html_others(board: Leaderboard, digits: int) -> Html:
    rows = [
        tag("tr", tag("th", tag("code", heading), scope="row"), tag("td", numbers))
        for heading, numbers in _others(board, digits)
    ]
    if not rows:
        return Html("")
    heads = tag("tr", tag("th", "protocol, or printed heading", scope="col"), tag("th", "numbers", scope="col"))
    made = tag("table", tag("thead", heads), tag("tbody", *rows), class_="plain", id="others")
    return joined([tag("p", f"{_OTHERS}.", class_="note"), wide(made, "Table: other protocols")])


def _html_protocols(board: Leaderboard) -> Html:
    sizes = {
        column.name: max((row.ours[column.name].n for row in board.rows if column.name in row.ours), default=None)
        for column in board.columns
    }
    rows = [
        tag(
            "tr",
            tag("th", column.title, scope="row"),
            tag("td", tag("code", column.versioned)),
            tag("td", "" if (size := sizes[column.name]) is None else f"{size:,}", class_="n"),
        )
        for column in board.columns
    ]
    heads = [tag("th", text, class_="n" if text == "n" else None, scope="col") for text in ("column", "protocol", "n")]
    return wide(tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="plain"), "Table: protocols")


def _html_provenance(board: Leaderboard) -> Html:
    blocks = []
    if board.command:
        blocks.append(tag("p", tag("code", board.command, id="again")))
    lines = [
        tag("li", f"{row.title}: ", tag("code", line))
        for row in board.rows
        for line in dict.fromkeys(row.signatures.values())
    ]
    note = "A signature identifies everything that can change a metric's scores."
    blocks.append(tag("details", tag("summary", "Signatures"), tag("p", note, class_="note"), tag("ul", *lines)))
    return joined(blocks)
