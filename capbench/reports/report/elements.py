"""HTML in Python: texts are escaped, pieces of HTML are not, and nothing carries a style or a handler of its own.

The page's Content-Security-Policy forbids ``style`` and ``on...`` attributes, so there is no way to write one here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from capbench.explain.drawing import clean

__all__ = ["Html", "data_block", "joined", "tag", "wide"]

_EMPTY = ("br", "input", "meta", "col", "img")


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
    """Pieces in a row; texts among them are escaped."""
    return Html(between.join(str(c) if isinstance(c, Html) else clean(c) for c in children if c is not None))


def wide(content: Html, label: str) -> Html:
    """What may be wider than a phone, in a region of its own that scrolls, from the keyboard too."""
    return tag("div", content, class_="wide", role="region", aria_label=label, tabindex=0)


def data_block(name: str, value: Any) -> Html:
    """Data for the page's script, in a form that no text in it can end.

    >>> data_block("x", "</script>")
    '<script type="application/json" id="x">"\\\\u003c/script\\\\u003e"</script>'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{clean(name)}">{text}</script>')
