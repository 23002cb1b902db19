"""Fonts of figures: letters of all scripts where a font on this machine has them, and one line where none has.

Which font that is, :mod:`capbench.fonts` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from capbench.fonts import UNKNOWN, coverage, warn_missing

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = ["fit_fonts"]


def fit_fonts(figure: Figure) -> None:
    """Give every text of a figure fonts that have its characters; see the module.

    Warns:
        MissingGlyphs: no font has a character; the characters and the fonts that were tried are named.
    """
    texts = [text for text in _texts(figure) if text.get_text()]
    fonts = coverage(text.get_text() for text in texts)
    if fonts.is_usual:
        return
    table = dict.fromkeys(fonts.missing, UNKNOWN)
    for text in texts:
        text.set_fontfamily(list(fonts.families))
        if fonts.missing and text.get_text() != text.get_text().translate(table):
            text.set_text(text.get_text().translate(table))
    if fonts.missing:
        warn_missing("the figure", fonts.missing, fonts.tried)


def _texts(figure: Figure) -> Iterator[Text]:
    from matplotlib.text import Text

    for artist in figure.findobj(Text):
        assert isinstance(artist, Text)
        yield artist
