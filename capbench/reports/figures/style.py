"""How all figures look, and how they are written: the same bytes for the same numbers.

Title, size and font size are a user's (:class:`Look`); all else is the same in every figure.
"""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench import __version__
from capbench.errors import UsageError
from capbench.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BAND",
    "COLOURS",
    "ENDINGS",
    "GREY",
    "LINES",
    "MARKERS",
    "USUAL",
    "Look",
    "caption",
    "check_ending",
    "finish",
    "new_figure",
    "save",
    "statistic_label",
    "style",
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
    from capbench.reports.figures.fonts import fit_fonts

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
