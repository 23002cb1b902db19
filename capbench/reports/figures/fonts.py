"""Fonts of figures: letters of all scripts where a font on this machine has them, and one line where none has.

DejaVu Sans, which comes with matplotlib, has Latin, Greek, Cyrillic, Arabic and more, but no Chinese or Korean.
Letters that it lacks are taken from the first of :data:`FALLBACKS` that is installed and has them, then from any other
installed font. What no font has would be an empty box: it is replaced by U+FFFD, and said.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from capbench.errors import CapbenchWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = ["FALLBACKS", "FONT", "MissingGlyphs", "fit_fonts"]

FONT = "DejaVu Sans"
FALLBACKS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans CJK KR",
    "Noto Sans JP",
    "Noto Sans SC",
    "Noto Sans KR",
    "Source Han Sans",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "IPAexGothic",
    "IPAGothic",
    "NanumGothic",
    "Hiragino Sans",
    "PingFang SC",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Noto Sans",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "Noto Emoji",
    "Unifont",
)
"""Families that are tried before any other, in this order."""
_UNKNOWN = "\ufffd"
_SHOWN = 12
_REGULAR = 400


class MissingGlyphs(CapbenchWarning):
    """A figure holds characters that no font on this machine has."""


def fit_fonts(figure: Figure) -> None:
    """Give every text of a figure fonts that have its characters; see the module.

    Warns:
        MissingGlyphs: no font has a character; the characters and the fonts that were tried are named.
    """
    texts = [text for text in _texts(figure) if text.get_text()]
    needed = {ord(letter) for text in texts for letter in text.get_text() if not letter.isspace()}
    missing = needed - _characters(FONT)
    if not missing:
        return
    families, tried = [FONT], [FONT]
    for family in _installed():
        if not missing:
            break
        tried.append(family)
        known = _characters(family)
        if known & missing:
            families.append(family)
            missing -= known
    table = dict.fromkeys(missing, _UNKNOWN)
    for text in texts:
        text.set_fontfamily(families)
        if missing and text.get_text() != text.get_text().translate(table):
            text.set_text(text.get_text().translate(table))
    if missing:
        _warn(missing, tried)


def _texts(figure: Figure) -> Iterator[Text]:
    from matplotlib.text import Text

    for artist in figure.findobj(Text):
        assert isinstance(artist, Text)
        yield artist


def _installed() -> Iterator[str]:
    """Installed families: the fallbacks in their order, then all others by name."""
    from matplotlib import font_manager

    # The "last resort" draws a box for every character there is.
    names = {entry.name for entry in font_manager.fontManager.ttflist if "lastresort" not in _joined(entry.name)} - {
        FONT
    }
    yield from (family for family in FALLBACKS if family in names)
    yield from sorted(names - set(FALLBACKS))


def _joined(name: str) -> str:
    return name.lower().replace(" ", "")


def _characters(family: str) -> set[int]:
    """Code points that a family's regular face has; none if it cannot be read."""
    from matplotlib import font_manager

    faces = [entry for entry in font_manager.fontManager.ttflist if entry.name == family]
    # The face that matplotlib draws: upright and of the usual weight, as far as there is one.
    faces.sort(key=lambda entry: (entry.style != "normal", abs(_weight(entry.weight) - _REGULAR), entry.fname))
    for face in faces:
        try:
            return set(font_manager.get_font(face.fname).get_charmap())
        except (OSError, RuntimeError):
            continue
    return set()


def _weight(weight: int | str) -> int:
    return weight if isinstance(weight, int) else _REGULAR


def _warn(missing: Iterable[int], tried: list[str]) -> None:
    letters = [chr(code) for code in sorted(missing)]
    shown = " ".join(f"{letter} (U+{ord(letter):04X})" for letter in letters[:_SHOWN])
    more = f" and {len(letters) - _SHOWN} more" if len(letters) > _SHOWN else ""
    fonts = ", ".join(tried[:6]) + (f" and {len(tried) - 6} more" if len(tried) > 6 else "")
    warnings.warn(
        f"the figure lacks {shown}{more}: no font here has them (tried {fonts}), so that {_UNKNOWN} stands in their "
        f"place. Install one that has, such as {FALLBACKS[0]} (Chinese, Japanese, Korean)",
        MissingGlyphs,
        stacklevel=2,
    )
