"""The pen that all panels of an explanation are drawn with: SVG elements, the width of text, and one style sheet.

Colours are names of the style sheet (``var(--ink)``), so that the same drawing is light or dark on a page, and light in
a picture. Widths are those of DejaVu Sans, which a picture is set in; the fonts of a page are narrower, never wider.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

__all__ = [
    "DARK",
    "DRAWING_STYLE",
    "LIGHT",
    "Drawing",
    "clean",
    "fit",
    "font_folder",
    "gradient",
    "line",
    "rect",
    "shorten",
    "text_at",
    "text_width",
    "wrap",
]

# Of Okabe and Ito's colours, which people of all kinds of colour vision tell apart.
LIGHT = {"ground": "#ffffff", "ink": "#1b1b1b", "soft": "#5c5c5c", "rule": "#c9c9c9"}
LIGHT |= {"reference": "#0072b2", "candidate": "#d55e00", "missing": "#007d5b", "neutral": "#767676"}
DARK = {"ground": "#16181b", "ink": "#ececec", "soft": "#a9adb3", "rule": "#44484e"}
DARK |= {"reference": "#56b4e9", "candidate": "#f0903c", "missing": "#3ccba0", "neutral": "#9a9a9a"}

DRAWING_STYLE = (
    """text { font-size: 12px; fill: var(--ink) } text.small { font-size: 11px; fill: var(--soft) }
text.bold { font-weight: 700 }
text.tag { font-size: 16px; font-weight: 700; fill: #fff; stroke: #000; stroke-width: 3px; paint-order: stroke }
.axis { stroke: var(--soft) } .steps { stroke: var(--ink); stroke-width: 1.6; fill: none }
.line { stroke-width: 2.2; fill: none } .dots { stroke-width: 1.4; fill: none }
.thin { stroke: var(--rule); fill: none } .hollow { fill: var(--ground); stroke: var(--soft) }
.touch { fill: #000; fill-opacity: 0 } .edge { fill: none; stroke: #000 }
.box { fill: none; stroke: #fff } .paper { fill: #fff }
"""
    + "\n".join(
        f".f-{tone} {{ fill: var(--{tone}) }} .s-{tone} {{ stroke: var(--{tone}) }}" for tone in list(LIGHT)[4:]
    )
    + "\n"
)
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Drawing:
    """A piece of SVG.

    Attributes:
        body: its elements.
        width: in CSS pixels.
        height: in CSS pixels.
        label: what it shows, for those who cannot see it.
    """

    body: str
    width: float
    height: float
    label: str

    def element(self, attributes: str = "") -> str:
        """An ``<svg>`` of it, for a page, or with a place for another SVG."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" height="{self.height:g}" '
            f'{attributes}role="img" aria-label="{clean(self.label)}">{self.body}</svg>'
        )


def clean(text: str) -> str:
    """A text for HTML and SVG: what has a meaning there is escaped, and what no XML may hold becomes U+FFFD.

    >>> clean("a < b\\x00")
    'a &lt; b�'
    """
    return escape(_ILLEGAL.sub("\ufffd", text))


def text_at(x: float, y: float, text: str, kind: str = "", anchor: str = "start", more: str = "") -> str:
    """A line of text; ``anchor`` says which end of it lies at x."""
    named = f' class="{kind}"' if kind else ""
    ends = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{ends}{named}{more}>{clean(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str, more: str = "") -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"{more}/>'


def rect(x: float, y: float, width: float, height: float, kind: str, hint: str = "", more: str = "") -> str:
    """A rectangle, with a hint for a pointer that rests on it."""
    head = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{kind}"{more}'
    return f"{head}><title>{clean(hint)}</title></rect>" if hint else f"{head}/>"


def gradient(colours: Sequence[str]) -> str:
    """Definition of the fill ``url(#scale)``: colours at equal distances, from left to right."""
    places = np.linspace(0, 1, len(colours)).tolist()
    stops = "".join(f'<stop offset="{at:.3f}" stop-color="{c}"/>' for at, c in zip(places, colours, strict=True))
    return f'<linearGradient id="scale">{stops}</linearGradient>'


def font_folder() -> Path:
    """Where matplotlib keeps the fonts that it ships, DejaVu among them."""
    import matplotlib as mpl

    return Path(mpl.get_data_path()) / "fonts" / "ttf"


@cache
def _font(bold: bool) -> FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.truetype(str(font_folder() / f"DejaVuSans{'-Bold' if bold else ''}.ttf"), 100)


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of a text in CSS pixels, set in DejaVu Sans of so many pixels."""
    letters = _ILLEGAL.sub("\ufffd", text)
    # Chinese, Japanese and Korean letters, which it lacks, are squares in every font that has them.
    squares = [letter for letter in letters if not letter.isascii() and unicodedata.east_asian_width(letter) in "WF"]
    rest = "".join(letter for letter in letters if letter not in squares) if squares else letters
    return (_font(bold).getlength(rest) + 100 * len(squares)) * size / 100


def shorten(text: str, longest: int) -> str:
    """A text of at most so many characters, cut with an ellipsis.

    >>> shorten("umbrellas", 5)
    'umbr…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def fit(text: str, width: float, size: float = 12) -> str:
    """A text that is at most so wide, cut with an ellipsis."""
    longest = len(text)
    while longest > 1 and text_width(shorten(text, longest), size) > width:
        longest -= 1
    return shorten(text, longest)


def wrap(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Lines of at most a width, broken between words, and inside of a word that is longer than a line."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if text_width(joined, size, bold=bold) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if lines[-1] and text_width(lines[-1] + character, size, bold=bold) > width:
                lines.append("")
            lines[-1] += character
    return lines
