"""The style of all figures, which the user changes by a :class:`Look`, and writing them: equal numbers, equal bytes."""

from __future__ import annotations

import contextlib
import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench import __version__
from capbench.core.errors import CapbenchWarning, check_choice, require
from capbench.core.files import atomic_write, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
ENDINGS = (".png", ".svg", ".pdf")

# DejaVu Sans is included in matplotlib and has Latin, Greek, Cyrillic and more; the others are used if installed.
FONTS = [
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Unifont",
]

# Okabe and Ito (2008), "Color universal design": distinguishable with every common colour blindness; without the pale
# yellow, which is hardly visible on white. Markers and line styles distinguish curves without colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINES = ("-", "--", "-.", ":")
GREY = "#666666"
BAND = 0.18
_DPI = 160
_POINTS = 9.0
_SETTINGS: dict[str, Any] = {
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
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.fonttype": "none",  # texts that can be searched
    "svg.hashsalt": "capbench",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Look:
    """The user's settings of a figure."""

    title: str = ""  # above the figure
    size: tuple[float, float] | None = None  # width and height in inches, exact for the file; None to fit the content
    font_size: float = _POINTS  # of most texts, in points; all others are in proportion
    caption: bool = True  # the line with the origin of the numbers below the figure; False for a text file with it

    def points(self, size: float) -> float:
        """The font size of a text that has ``size`` points by default."""
        return size * self.font_size / _POINTS


USUAL = Look()
"""The default settings."""


@contextlib.contextmanager
def style(look: Look = USUAL) -> Iterator[None]:
    """The settings of all figures; a user's matplotlibrc is ignored."""
    import matplotlib
    from matplotlib import font_manager

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        installed = {font.name for font in font_manager.fontManager.ttflist}
        # Each glyph comes from the first family that has it.
        matplotlib.rcParams["font.family"] = [family for family in FONTS if family in installed]
        for name, value in _SETTINGS.items():
            scaled = look.points(value) if name.endswith("size") else value
            matplotlib.rcParams[name] = scaled  # type: ignore[index]  # names are literals in the stubs
        yield


def new_figure(
    width: float, height: float, columns: int = 1, rows: int = 1, *, look: Look = USUAL
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its panels, row by row; call it within :func:`style`.

    ``width`` and ``height``, in inches, hold unless the user chooses the size; a larger font increases them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    larger = max(1.0, look.points(1.0))
    figure = Figure(figsize=look.size or (width * larger, height * larger), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False)
    return figure, [axes for row in panels for axes in row]


def caption(*parts: str, sample: bool = False) -> str:
    """The small line below a figure with the origin of its numbers."""
    origin = ("embedded synthetic sample: says nothing about metrics",) if sample else ()
    return " · ".join(fact for fact in (*origin, *parts, f"capbench {__version__}") if fact)


def finish(figure: Figure, text: str, look: Look = USUAL) -> Figure:
    """Add title and caption line (unless declined), and fix the layout; see :func:`fit_fonts`."""
    figure.set_label(text)  # not drawn; caption_text reads it
    if look.caption:
        characters = max(30, int(figure.get_figwidth() * 72 / (look.points(6.5) * 0.56)))
        lines = textwrap.wrap(text, characters, break_on_hyphens=False)
        if len(lines) > 1:  # lines of equal length, without a last one of one word
            lines = textwrap.wrap(text, len(text) // len(lines) + 12, break_on_hyphens=False)
        figure.supxlabel("\n".join(lines), fontsize=look.points(6.5), color=GREY, x=0.01, ha="left")
    if look.title:
        across = max(20, int(figure.get_figwidth() * 72 / (look.points(11) * 0.56)))
        title = "\n".join(textwrap.wrap(look.title, across))
        if figure.legends:
            # A title and a legend above the panels would overlap: the legend gets the title.
            from matplotlib.font_manager import FontProperties

            figure.legends[0].set_title(title, prop=FontProperties(size=look.points(11)))
        else:
            figure.suptitle(title, fontsize=look.points(11))
    take_texts_literally(figure)
    fit_fonts(figure)
    figure.set_layout_engine("none")
    return figure


def fit_fonts(figure: Figure) -> None:
    """Lay a figure out; twice with a layout engine, whose second drawing moves artists by a fraction of a point.

    Warns of MissingGlyphs if no installed font has a character.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.draw_without_rendering()
        take_texts_literally(figure)  # drawing creates the tick labels
        if figure.get_layout_engine() is not None:
            figure.draw_without_rendering()
    missing = sorted({code for entry in caught for code in re.findall(r"[Gg]lyph (\d+)", str(entry.message))}, key=int)
    if missing:
        letters = " ".join(f"{chr(int(code))} (U+{int(code):04X})" for code in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        message = f"no installed font has {letters}{more}: install one, such as {FONTS[1]} (Chinese, Japanese, Korean)"
        warnings.warn(message, MissingGlyphs, stacklevel=3)


class MissingGlyphs(CapbenchWarning):
    """A picture has characters that no font on this machine contains."""


_SHOWN = 12


def take_texts_literally(figure: Figure) -> None:
    """Disable formulas in all texts except matplotlib's tick labels, so that a dollar sign is printed."""
    from matplotlib.text import Text

    for artist in figure.findobj(Text):
        if isinstance(artist, Text) and "\\mathdefault" not in artist.get_text():
            artist.set_parse_math(False)


def check_ending(path: Path) -> str:
    """The format of a file, by its suffix. Raises UsageError with the choices."""
    check_choice("format of a figure", path.suffix.lower(), ENDINGS, code="wrong-value", path=path)
    require("matplotlib", purpose=path.name)
    return path.suffix.lower().removeprefix(".")


def save(figure: Figure, path: Path, look: Look = USUAL) -> list[Path]:
    """Write a figure in the format of the file's suffix, atomically, without dates, and return the written files: the
    figure, and without a caption below it ``NAME.txt``. Without a chosen size, it is cropped to its content."""
    kind = check_ending(path)
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": "capbench"},
        "pdf": {"CreationDate": None, "Creator": "capbench", "Producer": None},
    }
    stream = io.BytesIO()
    cut: dict[str, Any] = {} if look.size else {"bbox_inches": "tight", "pad_inches": 0.08}
    with style(look), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # fit_fonts warned
        figure.savefig(stream, format=kind, dpi=_DPI, metadata=metadata[kind], **cut)
    with atomic_write(path, "wb") as file:
        file.write(stream.getvalue())
    if look.caption:
        return [path]
    text = path.with_suffix(".txt")
    write_text(text, f"{caption_text(figure, look)}\n")
    return [path, text]


def caption_text(figure: Figure, look: Look = USUAL) -> str:
    """The caption of a figure as sentences: its title, panel titles and the origin of its numbers."""
    panels = [axes for axes in figure.axes if axes.get_visible()]
    titles = [title for axes in panels for side in ("left", "center") if (title := axes.get_title(side))]
    facts = str(figure.get_label()).split(" · ")
    parts = [look.title, ", ".join(dict.fromkeys(titles)), "; ".join(facts)]
    return " ".join(f"{part.rstrip('.')}." for part in parts if part)


# Styles of metrics. The colours are those of Okabe and Ito (2008) and two of Tol (2021, "muted").

_PALETTE = (*COLOURS, "#882255", "#999933")
_HATCHES = ("", "///", "...", "xx")


@dataclass(frozen=True)
class MetricStyle:
    """The style of one metric."""

    colour: str
    marker: str
    dashes: str = "-"

    @property
    def hatch(self) -> str:
        """Hatching of bars, which corresponds to the dashes of lines."""
        return _HATCHES[LINES.index(self.dashes)]


def metric_styles(titles: Iterable[str]) -> dict[str, MetricStyle]:
    """Styles of the metrics in one figure, by title."""
    styles: dict[str, MetricStyle] = {}
    for place, title in enumerate(titles):
        turn, colour = divmod(place, len(_PALETTE))
        styles[title] = MetricStyle(_PALETTE[colour], MARKERS[(place + turn) % len(MARKERS)], LINES[turn % len(LINES)])
    return styles
