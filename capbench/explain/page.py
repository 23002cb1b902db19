"""A page of panels and text in inches, drawn by matplotlib, and the charts on it that explanations of TIGEr need."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench import files
from capbench.explain.reo import WordShare, percentages
from capbench.explain.tiger import TigerCandidate
from capbench.records import FloatArray
from capbench.reports.heatmaps import COLOUR_MAP, HEAT_ALPHA, Scene, glow, heat, label_places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BLUE",
    "GREEN",
    "GREY",
    "LINE_IN",
    "ORANGE",
    "WIDTH_IN",
    "Page",
    "colour_bar",
    "gains_chart",
    "group_bars",
    "heat_panel",
    "picture_panel",
    "profile_chart",
    "ranking_chart",
    "shorten",
    "tile_panel",
    "word_bars",
]

# Of Okabe and Ito's colours, which people of all kinds of colour vision tell apart.
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#767676"
WIDTH_IN = 15.0
LINE_IN = 0.24
_MARGIN_IN = 0.3
_DPI = 110
TOP_RANKS = 10
TOP_GAINS = 20

Draw = Callable[["Axes"], None]


class Page:
    """Collects panels and lines of text from the top down, then draws them on a figure of the height they need."""

    def __init__(self) -> None:
        self.top = _MARGIN_IN
        self._panels: list[tuple[float, float, float, float, Draw]] = []
        self._texts: list[tuple[float, float, str, dict[str, Any]]] = []

    def space(self, inches: float) -> None:
        """Leave a gap."""
        self.top += inches

    def text(self, text: str, *, size: float = 10, colour: str = "black", bold: bool = False) -> None:
        """A paragraph over the whole width, wrapped."""
        # DejaVu Sans takes about .6 em a character at most in running text (.65 in bold).
        wide = max(20, int((WIDTH_IN - 2 * _MARGIN_IN) * 72 / (size * (0.64 if bold else 0.57))))
        for line in textwrap.wrap(text, wide) or [""]:
            self.place(_MARGIN_IN, self.top, line, size=size, colour=colour, weight="bold" if bold else "normal")
            self.top += size / 10 * LINE_IN * 0.85

    def place(self, left: float, top: float, text: str, *, size: float = 10, colour: str = "black", **how: Any) -> None:
        """One line of text with its upper left corner at a place, in inches."""
        self._texts.append((left, top, text, {"size": size, "color": colour, "va": "top", "ha": "left", **how}))

    def marked(self, title: str, words: Sequence[tuple[str, float]], colour: str) -> None:
        """A title and words in a row, each on a ground as strong as its value from 0 to 1, wrapped."""
        # Fixed pitch, so that every word's place is known before it is drawn: .602 em, and a word's margins.
        size, pitch, gap = 9.5, 9.5 * 0.602 / 72, 0.11
        self.place(_MARGIN_IN, self.top, title, size=9.5, weight="bold")
        indent = left = 2.1
        for word, value in words:
            text = shorten(word, 60)
            wide = len(text) * pitch
            if left + wide > WIDTH_IN - _MARGIN_IN and left > indent:
                left, self.top = indent, self.top + LINE_IN
            box = {"boxstyle": "square,pad=0.12", "facecolor": _blend(colour, value), "edgecolor": "none"}
            self.place(left, self.top, text, size=size, family="DejaVu Sans Mono", bbox=box)
            left += wide + gap
        self.top += LINE_IN * 1.1

    def panel(self, left: float, width: float, height: float, draw: Draw, *, top: float = 0.0) -> None:
        """A panel at the current height (``top`` inches lower), without moving on."""
        self._panels.append((_MARGIN_IN + left, self.top + top, width, height, draw))

    def save(self, path: Path) -> None:
        """Draw everything and write a PNG.

        Raises:
            UsageError: the file cannot be written.
        """
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        height = self.top + _MARGIN_IN
        # A user's own settings must not change the picture, and "$" in a caption is no mathematics.
        with warnings.catch_warnings(), mpl.rc_context(dict(mpl.rcParamsDefault)):
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # drawn as a box
            mpl.rcParams.update({"text.parse_math": False, "font.family": "DejaVu Sans", "font.size": 9})
            figure = Figure(figsize=(WIDTH_IN, height), dpi=_DPI, facecolor="white")
            FigureCanvasAgg(figure)
            for left, top, text, how in self._texts:
                figure.text(left / WIDTH_IN, 1 - top / height, text, **how)
            for left, top, width, high, draw in self._panels:
                axes = figure.add_axes((left / WIDTH_IN, 1 - (top + high) / height, width / WIDTH_IN, high / height))
                draw(axes)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=_DPI, facecolor="white")
        with files.atomic_write(path, "wb") as stream:
            stream.write(buffer.getvalue())


def shorten(text: str, longest: int) -> str:
    """A text of at most so many characters, cut with an ellipsis.

    >>> shorten("umbrellas", 5)
    'umbr…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _blend(colour: str, value: float) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    part = 0.7 * min(max(value, 0.0), 1.0)  # black text stays readable on the strongest
    return tuple(1 - part * (1 - channel) for channel in to_rgb(colour))


def _legend(axes: Axes, columns: int, above: float = 0.98) -> None:
    close: dict[str, Any] = {"columnspacing": 0.9, "handlelength": 1.1, "handletextpad": 0.5, "borderaxespad": 0.0}
    axes.legend(fontsize=8, frameon=False, ncols=columns, loc="lower left", bbox_to_anchor=(-0.02, above), **close)


def _plain(axes: Axes) -> None:
    """A quiet frame: left and bottom only."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def heat_panel(axes: Axes, scene: Scene, weights: FloatArray, top: Sequence[int] = ()) -> None:
    """A picture under heat from the lowest to the highest weight, with the boxes of some regions and their numbers."""
    from matplotlib.patheffects import withStroke

    assert scene.boxes is not None
    axes.imshow(scene.pixels, interpolation="nearest")
    axes.imshow(heat(scene, weights, float(weights.min()), float(weights.max())), interpolation="nearest")
    axes.set_axis_off()
    for rank, region in reversed(list(enumerate(top))):
        _box(axes, scene.boxes[region], 2.4 - rank * 0.5)
    edge = [withStroke(linewidth=2.5, foreground="black")]
    for region, (x, y) in zip(top, label_places(scene, top, 20), strict=True):
        axes.text(x, y, str(region), color="white", size=9, weight="bold", va="top", path_effects=edge)


def tile_panel(
    axes: Axes, scene: Scene, weights: FloatArray, span: tuple[float, float], top: Sequence[int] = ()
) -> None:
    """A small picture that glows where weights are high, and boxes."""
    assert scene.boxes is not None
    axes.imshow(scene.pixels, interpolation="nearest")
    axes.imshow(glow(scene, weights, *span), interpolation="nearest")
    axes.set_axis_off()
    for region in top:
        _box(axes, scene.boxes[region], 1.4)


def _box(axes: Axes, box: FloatArray, width: float) -> None:
    from matplotlib.patches import Rectangle

    x1, y1, x2, y2 = box.tolist()
    for colour, thick in (("black", width + 1.6), ("white", width)):
        axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linewidth=thick))


def colour_bar(axes: Axes, weights: FloatArray) -> None:
    """What the colours of the heat mean, as they look on a white picture, from the lowest to the highest weight."""
    import matplotlib as mpl
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    low, high = float(weights.min()), float(weights.max())
    scale = ScalarMappable(Normalize(low, high if high > low else low + 1), mpl.colormaps[COLOUR_MAP])
    bar = axes.figure.colorbar(scale, cax=axes, alpha=HEAT_ALPHA, orientation="horizontal", ticks=[])
    bar.outline.set_visible(False)
    for x, value, side in ((0, low, "left"), (1, high, "right")):
        axes.text(x, -0.35, f"{value:.3f}", transform=axes.transAxes, ha=side, va="top", size=8)


def ranking_chart(axes: Axes, candidate: TigerCandidate, names: Sequence[str]) -> None:
    """The best regions by the references (left) and by the candidate (right); lines join the same region."""
    ideal, order = candidate.ideal_order.tolist(), candidate.order.tolist()
    shown = min(TOP_RANKS, len(order))
    left_rank, right_rank = ({region: i for i, region in enumerate(ranks)} for ranks in (ideal, order))
    for region in dict.fromkeys(ideal[:shown] + order[:shown]):
        i, j = left_rank[region], right_rank[region]
        both = i < shown and j < shown
        colour = BLUE if both else GREY
        if both:
            axes.plot([0, 1], [i, j], color=colour, linewidth=1.6, alpha=0.85, solid_capstyle="round")
        fill = colour if both else "white"
        for x, y, other, side in ((0, i, j, "right"), (1, j, i, "left")):
            if y >= shown:
                continue
            axes.plot([x], [y], marker="o", markersize=5, color=colour, markerfacecolor=fill)
            name = shorten(names[region], 16)
            away = "" if both else f" (there {other + 1})"
            axes.text(x - 0.09 if x == 0 else 1.09, y, name + away, ha=side, va="center", size=8.5)
    axes.set_xlim(-1.3, 2.3)
    axes.set_ylim(shown - 0.4, -1.2)
    axes.text(-0.09, -0.85, "references", ha="right", va="center", size=8.5, weight="bold")
    axes.text(1.09, -0.85, "candidate", ha="left", va="center", size=8.5, weight="bold")
    axes.set_axis_off()


def gains_chart(axes: Axes, candidate: TigerCandidate) -> None:
    """DCG, position by position: what the candidate's ranking gains, and what the ideal one would."""
    shown = min(TOP_GAINS, len(candidate.order))
    x = np.arange(1, shown + 1)
    axes.bar(x, candidate.gains[:shown], width=0.8, color=ORANGE, label="candidate")
    axes.step(
        np.append(x - 0.5, shown + 0.5),
        np.append(candidate.ideal_gains[:shown], candidate.ideal_gains[shown - 1]),
        where="post",
        color="black",
        linewidth=1.2,
        label="ideal",
    )
    axes.set_xlim(0.4, shown + 0.6)
    axes.set_xlabel("position", size=8.5)
    axes.locator_params(axis="x", integer=True)
    axes.tick_params(labelsize=8)
    _legend(axes, 2)
    _plain(axes)


def profile_chart(axes: Axes, candidate: TigerCandidate) -> None:
    """Both grounding vectors, regions in the references' order; thin lines are the single references."""
    order = candidate.ideal_order
    x = np.arange(1, len(order) + 1)
    mark = "o" if len(order) <= 60 else None
    for i, caption in enumerate(candidate.references):
        label = "references" if i == 0 else None
        axes.plot(x, caption.grounding[order], color="#b0b0b0", linewidth=0.7, label=label, zorder=1)
    axes.plot(x, candidate.reference[order], color=BLUE, linewidth=2, label="mean", zorder=3)
    axes.plot(
        x, candidate.caption.grounding[order], color=ORANGE, linewidth=1, marker=mark, markersize=3.2, label="candidate"
    )
    axes.set_xlabel("region, in the references' order", size=8.5)
    axes.locator_params(axis="x", integer=True)
    axes.tick_params(labelsize=8)
    _legend(axes, 3)
    _plain(axes)


def picture_panel(axes: Axes, scene: Scene) -> None:
    """The picture alone, in its colours."""
    axes.imshow(scene.colour, interpolation="nearest")
    axes.set_axis_off()


def word_bars(axes: Axes, words: Sequence[WordShare], top: int, colour: str, label: str) -> None:
    """The most similar words on a scale up to 1, each with its part of the length that all words make up."""
    shown = words[:top]
    places = np.arange(len(shown))
    values = [share.similarity for share in shown]
    axes.barh(places, values, color=colour, height=0.7)
    for place, value, part in zip(places.tolist(), values, percentages(words), strict=False):
        axes.text(max(value, 0.0) + 0.02, place, part, va="center", size=8, color=GREY)
    axes.set_yticks(places, [shorten(share.word, 14) for share in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(min(0.0, *values) * 1.05, 1.12)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.tick_params(labelsize=9, length=0)
    axes.tick_params(axis="x", labelsize=8, length=3)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(label, size=8.5)
    _plain(axes)


def group_bars(axes: Axes, groups: Sequence[str], series: Sequence[tuple[str, Sequence[float], str]]) -> None:
    """Bars from 0 to 1 for each group, one for each series (name, values, colour).

    A value of 0 is drawn as a sliver, so that it differs from a bar that is not there.
    """
    wide = 0.8 / len(series)
    for i, (name, values, colour) in enumerate(series):
        x = np.arange(len(groups)) - 0.4 + wide * (i + 0.5)
        axes.bar(x, np.maximum(values, 0.012), width=wide * 0.92, color=colour, label=name)
    axes.set_xticks(np.arange(len(groups)), groups)
    axes.set_ylim(0, 1.0)
    axes.tick_params(labelsize=9)
    axes.set_ylabel("scaled to 0..1 over the candidates", size=8.5)
    _legend(axes, len(series), 1.03)
    _plain(axes)
