"""Which installed font has which letters: for figures and for pictures of explanations, in all scripts.

DejaVu Sans, which comes with matplotlib, has Latin, Greek, Cyrillic, Arabic and more, but no Chinese or Korean.
Letters that it lacks are taken from the first of :data:`FALLBACKS` that is installed and has them, then from any other
installed font. What no font has would be an empty box: it is replaced by U+FFFD, and said.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from capbench.errors import CapbenchWarning

__all__ = ["FALLBACKS", "FONT", "UNKNOWN", "Coverage", "MissingGlyphs", "coverage", "face_files", "warn_missing"]

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
UNKNOWN = "\ufffd"
"""Stands where no font has a character."""
_SHOWN = 12
_REGULAR = 400


class MissingGlyphs(CapbenchWarning):
    """A picture holds characters that no font on this machine has."""


@dataclass(frozen=True)
class Coverage:
    """Fonts for some characters.

    Attributes:
        families: :data:`FONT`, and those that have what it lacks.
        missing: code points that none has.
        tried: families that were looked at.
    """

    families: tuple[str, ...]
    missing: frozenset[int]
    tried: tuple[str, ...]

    @property
    def is_usual(self) -> bool:
        """Whether :data:`FONT` alone has all of them."""
        return self.families == (FONT,) and not self.missing


def coverage(texts: Iterable[str]) -> Coverage:
    """The fonts that have the characters of texts."""
    missing = {ord(letter) for text in texts for letter in text if not letter.isspace()} - _characters(FONT)
    families, tried = [FONT], [FONT]
    for family in _installed() if missing else ():
        if not missing:
            break
        tried.append(family)
        known = _characters(family)
        if known & missing:
            families.append(family)
            missing -= known
    return Coverage(tuple(families), frozenset(missing), tuple(tried))


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

    for file in _faces(family):
        try:
            return set(font_manager.get_font(file).get_charmap())
        except (OSError, RuntimeError):
            continue
    return set()


def _faces(family: str) -> list[str]:
    """The files of a family, the face first that is drawn: upright and of the usual weight, as far as there is one."""
    from matplotlib import font_manager

    faces = [entry for entry in font_manager.fontManager.ttflist if entry.name == family]
    faces.sort(key=lambda entry: (entry.style != "normal", abs(_weight(entry.weight) - _REGULAR), entry.fname))
    return [face.fname for face in faces]


def face_files(families: Iterable[str]) -> list[str]:
    """The files of families' regular faces, as far as they can be read."""
    return [file for family in families for file in _faces(family)[:1]]


def _weight(weight: int | str) -> int:
    return weight if isinstance(weight, int) else _REGULAR


def warn_missing(what: str, missing: Iterable[int], tried: Sequence[str]) -> None:
    """Say which characters no font has.

    Args:
        what: where they were to stand (``the figure``).
        missing: code points.
        tried: families that were looked at.

    Warns:
        MissingGlyphs: names them.
    """
    letters = [chr(code) for code in sorted(missing)]
    shown = " ".join(f"{letter} (U+{ord(letter):04X})" for letter in letters[:_SHOWN])
    more = f" and {len(letters) - _SHOWN} more" if len(letters) > _SHOWN else ""
    fonts = ", ".join(tried[:6]) + (f" and {len(tried) - 6} more" if len(tried) > 6 else "")
    warnings.warn(
        f"{what} lacks {shown}{more}: no font here has them (tried {fonts}), so that {UNKNOWN} stands in their "
        f"place. Install one that has, such as {FALLBACKS[0]} (Chinese, Japanese, Korean)",
        MissingGlyphs,
        stacklevel=3,
    )
