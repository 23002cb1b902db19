"""How all figures look, and how they are written: the same bytes for the same numbers.

Title, size and font size are a user's (:class:`Look`); all else is the same in every figure.
"""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench import __version__
from capbench.core.errors import CapbenchWarning, UsageError
from capbench.core.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = [
    "BAND",
    "COLOURS",
    "ENDINGS",
    "FALLBACKS",
    "FONT",
    "GREY",
    "KNOWN",
    "LINES",
    "MARKERS",
    "UNKNOWN",
    "USUAL",
    "Coverage",
    "Look",
    "MetricStyle",
    "MissingGlyphs",
    "caption",
    "check_ending",
    "coverage",
    "face_files",
    "finish",
    "fit_fonts",
    "metric_key",
    "metric_styles",
    "new_figure",
    "save",
    "statistic_label",
    "style",
    "warn_missing",
]


ENDINGS = (".png", ".svg", ".pdf")

# Okabe and Ito (2008), "Color universal design": told apart with every common colour blindness; the pale yellow is left
# out, which a white page swallows. Markers and line styles tell curves apart where there is no colour at all.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINES = ("-", "--", "-.", ":")
GREY = "#666666"
BAND = 0.18
_DPI = 160
_POINTS = 9.0
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, has τ and ρ
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",  # a reader's fonts cannot clip or move labels
    "svg.hashsalt": "capbench",
    "pdf.fonttype": 42,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Look:
    """What a user chooses of a figure's looks.

    Attributes:
        title: above the figure; ``""`` for none.
        size: width and height in inches, which the file then has; None for a size that fits what is drawn.
        font_size: of most texts, in points; all others keep their proportion to it.
    """

    title: str = ""
    size: tuple[float, float] | None = None
    font_size: float = _POINTS

    def points(self, size: float) -> float:
        """The size of a text that has ``size`` points where most have nine."""
        return size * self.font_size / _POINTS


USUAL = Look()
"""What nobody has chosen anything of."""


@contextlib.contextmanager
def style(look: Look = USUAL) -> Iterator[None]:
    """The settings of all figures; what a user's matplotlibrc says does not count."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        for name, value in _SETTINGS.items():
            scaled = look.points(value) if name.endswith("size") else value
            matplotlib.rcParams[name] = scaled  # type: ignore[index]  # names are literals in the stubs
        yield


def new_figure(
    width: float, height: float, columns: int = 1, rows: int = 1, *, sharey: bool = False, look: Look = USUAL
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its panels, row by row. To be called within :func:`style`.

    Args:
        width: in inches, of a figure whose size the user does not choose; larger letters make it larger.
        height: likewise.
        columns: panels beside each other.
        rows: panels above each other.
        sharey: whether they share the vertical axis.
        look: what the user chooses.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    larger = max(1.0, look.points(1.0))
    figure = Figure(figsize=look.size or (width * larger, height * larger), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, sharey=sharey, squeeze=False)
    return figure, [axes for row in panels for axes in row]


def caption(*parts: str, sample: bool = False) -> str:
    """The small line below a figure that says where its numbers come from."""
    origin = ("embedded synthetic sample: says nothing about metrics",) if sample else ()
    return " · ".join(fact for fact in (*origin, *parts, f"capbench {__version__}") if fact)


def finish(figure: Figure, text: str, look: Look = USUAL) -> Figure:
    """Put title and caption line to a figure, find fonts for its letters, and lay everything out once and for all.

    Warns:
        MissingGlyphs: no font has a character.
    """
    characters = max(30, int(figure.get_figwidth() * 72 / (look.points(6.5) * 0.56)))
    figure.supxlabel(
        "\n".join(textwrap.wrap(text, characters, break_on_hyphens=False)),
        fontsize=look.points(6.5),
        color=GREY,
        x=0.01,
        ha="left",
    )
    if look.title:
        across = max(20, int(figure.get_figwidth() * 72 / (look.points(11) * 0.56)))
        title = "\n".join(textwrap.wrap(look.title, across))
        if figure.legends:
            # A title and a legend above the panels would get the same place: the legend carries the title.
            from matplotlib.font_manager import FontProperties

            figure.legends[0].set_title(title, prop=FontProperties(size=look.points(11)))
        else:
            figure.suptitle(title, fontsize=look.points(11))
    _take_texts_literally(figure)
    with warnings.catch_warnings():
        # Labels of ticks are made by drawing; glyphs that are lacking then are found below.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        figure.draw_without_rendering()
    _take_texts_literally(figure)
    fit_fonts(figure)
    # Each drawing would move things by a fraction of a point, and a second file would differ from the first.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _take_texts_literally(figure: Figure) -> None:
    """A dollar in a name begins no formula; those that matplotlib writes at its ticks stay."""
    from matplotlib.text import Text

    for artist in figure.findobj(Text):
        if isinstance(artist, Text) and "\\mathdefault" not in artist.get_text():
            artist.set_parse_math(False)


def check_ending(path: Path) -> str:
    """The format that a file's name asks for. Raises UsageError with the choices."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path.name}: no figure can be written as '{path.suffix}'", hint=_choices())
    return path.suffix.lower().removeprefix(".")


def save(figure: Figure, path: Path, look: Look = USUAL) -> None:
    """Write a figure as its file's ending says, whole or not at all, without dates.

    A figure whose size nobody chose is cut to what is drawn.

    Raises:
        UsageError: another ending, or the file cannot be written.
    """
    kind = check_ending(path)
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": "capbench"},
        "pdf": {"CreationDate": None, "Creator": "capbench", "Producer": None},
    }
    stream = io.BytesIO()
    cut: dict[str, Any] = {} if look.size else {"bbox_inches": "tight", "pad_inches": 0.08}
    with style(look):
        figure.savefig(stream, format=kind, dpi=_DPI, metadata=metadata[kind], **cut)
    with atomic_write(path, "wb") as file:
        file.write(stream.getvalue())


def statistic_label(protocol: str) -> str:
    """Short name of a protocol's statistic, from its id: ``…/unaggregated-tau-c`` → ``τ-c``; else ``accuracy``."""
    names: Sequence[tuple[str, str]] = (("tau-b", "τ-b"), ("tau-c", "τ-c"), ("spearman", "ρ"), ("pearson", "r"))
    statistic = protocol.rpartition("/")[2]
    return next((label for ending, label in names if statistic.endswith(ending)), "accuracy")


def _choices() -> str:
    return f"End the name in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


# How a metric is drawn: the same colour, marker, dashes and hatching in every figure, by its name alone.
#
# Colours are those of Okabe and Ito (2008) and two of Tol (2021, "muted"); no two metrics that capbench knows look
# alike, and those that the papers put into one figure differ in colour where there are colours enough.

_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY, _BLACK = COLOURS
_WINE, _OLIVE = "#882255", "#999933"
_PALETTE = (*COLOURS, _WINE, _OLIVE)
_HATCHES = ("", "///", "...", "xx")


@dataclass(frozen=True)
class MetricStyle:
    """How one metric is drawn.

    Attributes:
        colour: of its lines, points and bars.
        marker: of its points.
        dashes: of its lines.
        hatch: of its bars.
    """

    colour: str
    marker: str
    dashes: str = "-"

    @property
    def hatch(self) -> str:
        """Bars are told apart where lines are: by dashes."""
        return _HATCHES[LINES.index(self.dashes)]


KNOWN: Mapping[str, MetricStyle] = {
    "bleu-1": MetricStyle(_SKY, "<"),
    "bleu-2": MetricStyle(_SKY, ">", "--"),
    "bleu-3": MetricStyle(_SKY, "X", "-."),
    "bleu-4": MetricStyle(_BLUE, "o"),
    "rouge-l": MetricStyle(_ORANGE, "s"),
    "meteor": MetricStyle(_GREEN, "^"),
    "cider": MetricStyle(_VERMILION, "D"),
    "spice": MetricStyle(_PINK, "v"),
    "spider": MetricStyle(_PINK, "P", "--"),
    "wmd": MetricStyle(_ORANGE, "<", "--"),
    "wmd-distance": MetricStyle(_ORANGE, ">", "-."),
    "nneval": MetricStyle(_GREEN, "P", "--"),
    "bertscore-f": MetricStyle(_BLUE, "P", "--"),
    "bertscore-p": MetricStyle(_BLUE, "X", "-."),
    "bertscore-r": MetricStyle(_BLUE, "<", ":"),
    "bert-tbr": MetricStyle(_PINK, "X", "-."),
    "tiger": MetricStyle(_BLACK, "X"),
    "rrs": MetricStyle(_BLACK, "<", "--"),
    "wds": MetricStyle(_BLACK, ">", "-."),
    "mean-grounding": MetricStyle(_BLACK, "o", ":"),
    "reo-relevance": MetricStyle(_VERMILION, "o", "--"),
    "reo-extraness": MetricStyle(_VERMILION, "s", "-."),
    "reo-omission": MetricStyle(_VERMILION, "^", ":"),
    "reo-relevance-image": MetricStyle(_ORANGE, "o", ":"),
    "reo-extraness-image": MetricStyle(_GREEN, "s", "-."),
    "reo-omission-image": MetricStyle(_GREEN, "v", ":"),
    "faier": MetricStyle(_WINE, "o"),
    "faier-1-ref": MetricStyle(_WINE, "s", "--"),
    "faier-4-ref": MetricStyle(_WINE, "^", "-."),
    "faier-r-ref": MetricStyle(_WINE, "D", ":"),
    "vilbertscore-f": MetricStyle(_OLIVE, "o"),
    # These stand together in the figure of layers, where dashes are the network's.
    "vilbertscore-p": MetricStyle(_VERMILION, "P", "--"),
    "vilbertscore-r": MetricStyle(_BLUE, "D", ":"),
    "clipscore": MetricStyle(_SKY, "o", ":"),
}
"""Styles by :func:`metric_key`."""


def metric_key(title: str) -> str:
    """A metric's title as a key: ``FAIEr-4 ref`` → ``faier-4-ref``."""
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def metric_styles(titles: Iterable[str]) -> dict[str, MetricStyle]:
    """How metrics look that stand in one figure, by title.

    A metric that :data:`KNOWN` does not hold gets a style from its name's CRC-32. Should two of a figure then look
    alike, the later one gets the next style that is free.
    """
    every = [MetricStyle(c, m, d) for d in LINES for m in MARKERS for c in _PALETTE]
    taken: set[MetricStyle] = set(KNOWN.values())
    styles: dict[str, MetricStyle] = {}
    for title in titles:
        key = metric_key(title)
        style = KNOWN.get(key)
        if style is None:
            place = zlib.crc32(key.encode()) % len(every)
            style = next(one for one in (*every[place:], *every[:place]) if one not in taken)
            taken.add(style)
        styles[title] = style
    return styles


# Which installed font has which letters: for figures and for pictures of explanations, in all scripts.
#
# DejaVu Sans, which comes with matplotlib, has Latin, Greek, Cyrillic, Arabic and more, but no Chinese or Korean.
# Letters that it lacks are taken from the first of :data:`FALLBACKS` that is installed and has them, then from any
# other installed font. What no font has would be an empty box: it is replaced by U+FFFD, and said.

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


# Fonts of figures: letters of all scripts where a font on this machine has them, and one line where none has.


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
