"""HTML elements of a report in Python, its small charts, and reading its sources; texts are escaped, HTML is not.

The page's Content-Security-Policy forbids ``style`` and ``on...`` attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from capbench.core.errors import DataError, MissingFileError
from capbench.core.files import sha256_file
from capbench.reports.table import Cell, Row, Table
from capbench.studies.item_scores import ITEMS_FILE, ItemScores, load_items
from capbench.studies.results import StudyResult, load_result

_EMPTY = ("br", "input", "meta", "col", "img")


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """A text in which characters that XML forbids are U+FFFD."""
    return _ILLEGAL.sub("\ufffd", text)


def clean(text: str) -> str:
    """A text for HTML and SVG, with special characters escaped.

    >>> clean("a < b\\x00")
    'a &lt; b�'
    """
    return escape(printable(text))


class Html(str):
    """A piece of HTML; every other string is a text."""

    __slots__ = ()


def tag(name: str, *children: str | None, **attributes: object) -> Html:
    """An element. ``class_`` and ``for_`` are ``class`` and ``for``, ``data_tip`` is ``data-tip``; True is a bare name.

    >>> tag("p", "a < b", class_="note", hidden=True)
    '<p class="note" hidden>a &lt; b</p>'
    """
    head = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        plain = key.rstrip("_").replace("_", "-")
        if plain == "style" or plain.startswith("on"):
            raise ValueError(f"the page's policy forbids the attribute {plain}")
        head += f" {plain}" if value is True else f' {plain}="{clean(str(value))}"'
    if name in _EMPTY:
        return Html(f"<{head}>")
    return Html(f"<{head}>{joined(children)}</{name}>")


def joined(children: Iterable[str | None], between: str = "") -> Html:
    """Pieces joined; texts among them are escaped."""
    return Html(between.join(str(c) if isinstance(c, Html) else clean(c) for c in children if c is not None))


def lines_list(lines: Iterable[str]) -> Html | None:
    """A list of the distinct lines; None without any."""
    listed = [tag("li", line) for line in dict.fromkeys(lines)]
    return tag("ul", *listed) if listed else None


def wide(content: Html, label: str) -> Html:
    """Content that may be wider than a phone, in a region that scrolls, also with the keyboard."""
    return tag("div", content, class_="wide", role="region", aria_label=label, tabindex=0)


def plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]], label: str, *, texts: int = 1) -> Html:
    """A table in a region that scrolls; the first ``texts`` columns have texts, the others numbers."""
    sides = [None if place < texts else "n" for place in range(len(heads))]
    head = tag("tr", *(tag("th", text, scope="col", class_=side) for text, side in zip(heads, sides, strict=True)))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", class_=sides[0]),
            *(tag("td", text, class_=side) for text, side in zip(row[1:], sides[1:], strict=True)),
        )
        for row in rows
    ]
    return wide(tag("table", tag("thead", head), tag("tbody", *body), class_="plain"), label)


def sorted_table(table: Table, name: str, label: str, kind: str = "matrix") -> Html:
    """A table whose rows are sorted by a click on a head; rows of parts stay below. ``kind``: its classes."""
    heads = [tag("th", table.head, scope="col")]
    for column in table.columns:
        over = tag("span", unbroken(column.group), class_="over") if column.group else None
        head = unbroken(column.full or column.head)
        shared = {"data_dataset": column.group, "data_copy": column.heading}
        heads.append(tag("th", over, head, scope="col", class_="n", **shared))

    def below(text: str) -> Html | None:
        return tag("span", text, class_="sub") if text else None

    def cell(of: Cell) -> Html:
        known = re.match(r"[-+]?[\d.]+", of.value)
        return tag(
            "td",
            tag("span", of.marked, class_="strong" if of.bold else "soft" if of.soft else None),
            below(of.below),
            class_="n",
            data_order=known[0] if known else "",
            data_copy=f"{of.marked} {of.below}".strip(),
            data_tip=of.tip or None,
        )

    def line(row: Row) -> Html:
        head = tag("th", row.title, below(row.about), scope="row", data_copy=row.title)
        return tag("tr", head, *map(cell, row.cells))

    foot = [line(row) for row in table.rows if row.part]
    made = tag(
        "table",
        tag("thead", tag("tr", *heads)),
        tag("tbody", *(line(row) for row in table.rows if not row.part)),
        tag("tfoot", *foot) if foot else None,
        class_=kind,
        id=name,
    )
    return wide(made, label)


def unbroken(text: str) -> str:
    """A head that does not break at its hyphens."""
    return text.replace("-", "\u2011")


def data_block(name: str, value: Any) -> Html:
    """Data for the page's script, encoded so that no text can end the element.

    >>> data_block("x", "</script>")
    '<script type="application/json" id="x">"\\\\u003c/script\\\\u003e"</script>'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{clean(name)}">{text}</script>')


# Charts as SVG without styles; the page's classes set the colours.


def svg(body: str, width: float, height: float, label: str) -> str:
    """A drawing of some elements, in CSS pixels, with a description for screen readers."""
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{clean(label)}">{body}</svg>'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


_DRAWN, _HIGH = 240.0, 24.0


def _at(value: float, ends: tuple[float, float]) -> float:
    """The place of a value on the scale of a forest plot."""
    return 14 + (_DRAWN - 28) * (value - ends[0]) / ((ends[1] - ends[0]) or 1.0)


def interval_chart(value: float, low: float | None, high: float | None, ends: tuple[float, float], label: str) -> str:
    """One value with its interval on a scale between two ends, for a table cell."""
    body = line(0, _HIGH / 2, _DRAWN, _HIGH / 2, "scale")
    if ends[0] <= 0 <= ends[1]:
        body += line(_at(0, ends), 0, _at(0, ends), _HIGH, "zero")
    if low is not None and high is not None:
        body += line(_at(low, ends), _HIGH / 2, _at(high, ends), _HIGH / 2, "interval")
    body += f'<circle cx="{_at(value, ends):.1f}" cy="{_HIGH / 2:.1f}" r="2.6" class="point"/>'
    return svg(body, _DRAWN, _HIGH, label)


def axis(ends: tuple[float, float]) -> str:
    """The scale below a forest plot, × 100, with ticks at round values and at zero."""
    span = 100 * (ends[1] - ends[0])
    step = next((step for step in (5, 10, 20, 25) if span / step <= 6), 50)
    ticks = [tick for tick in range(-100, 101, step) if 100 * ends[0] - 1e-9 <= tick <= 100 * ends[1] + 1e-9]
    body = "".join(
        line(_at(tick / 100, ends), 0, _at(tick / 100, ends), 4, "mean")
        + f'<text x="{_at(tick / 100, ends):.1f}" y="15.0" text-anchor="middle" class="small">{tick}</text>'
        for tick in ticks
    )
    return svg(body, _DRAWN, 18, f"scale from {100 * ends[0]:.0f} to {100 * ends[1]:.0f}")


# Sources of a report: results, and their items if available.


@dataclass(frozen=True)
class ReportSource:
    """One study of a report."""

    result: StudyResult  # its numbers
    items: tuple[ItemScores, ...] = ()  # the items behind them; empty if they were not stored
    # paths, as the user wrote them, and SHA-256 of the files of both; empty if they were computed for this report
    files: Mapping[str, str] = field(default_factory=dict)
    written: bool = False  # True if the command that computed them also writes them to files


def read_source(path: str | Path) -> ReportSource:
    """Read a ``results.json``, or the folder of one, and ``items.json.gz`` next to it if there is one."""
    results = Path(path)
    if results.is_dir():
        results = results / "results.json"
    try:
        result = load_result(results)
    except MissingFileError as error:
        hint = "Pass a results.json, which 'capbench correlate ... --out DIR' writes, or its folder"
        raise MissingFileError("there are no results", path=results, hint=hint) from error
    files = {str(results): sha256_file(results)}
    items: tuple[ItemScores, ...] = ()
    items_path = results.with_name(ITEMS_FILE)
    if items_path.is_file():
        items = load_items(items_path)
        ids = {info.id for info in result.protocols}
        unknown = [name for table in items for name in table.protocols if name not in ids]
        if unknown:
            message = f"has items of {unknown[0]}, but {results.name} in the same folder does not have this protocol"
            hint = "Remove it, or write both files again with 'capbench correlate ... --out DIR --items'"
            raise DataError(message, code="mismatch", value=unknown[0], path=items_path, hint=hint)
        files[str(items_path)] = sha256_file(items_path)
    return ReportSource(result, items, files)
