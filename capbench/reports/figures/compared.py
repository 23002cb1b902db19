"""Forest plots and significance matrices, from the result of a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capbench.core.errors import UsageError, check_choice
from capbench.datasets.protocol import statistic_title
from capbench.reports.figures.style import COLOURS, GREY, USUAL, Look, caption, finish, new_figure, style
from capbench.reports.methods import CORRECTIONS, intervals, p_value_of, tested_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capbench.stats.pairs import Tests
    from capbench.studies.results import Cell, ProtocolInfo, StudyResult


@dataclass(frozen=True)
class Compared:
    """Metrics under one protocol of a study, the best first."""

    result: StudyResult
    info: ProtocolInfo
    cells: tuple[Cell, ...]
    tests: Tests | None

    @property
    def titles(self) -> list[str]:
        """Titles of the metrics."""
        return [cell.title for cell in self.cells]

    @property
    def title(self) -> str:
        """Title of the figure: ``Flickr8k Expert, Kendall's τ-c``."""
        return f"{self.info.dataset_title}, {statistic_title(self.info.statistic)}"

    def caption(self, *parts: str) -> str:
        """The line with the origin of the numbers."""
        boot, tests = self.info.bootstrap, self.tests
        notes = [self.info.versioned_id, f"n = {max(cell.n for cell in self.cells):,}"]
        if boot is not None:
            notes.append(intervals(boot.level, boot.method, boot.unit, boot.resamples, boot.seed))
        if tests is not None:
            method = tested_by(tests.test, tests.unit, tests.resamples, tests.seed, "")
            notes.append(f"{method}; {CORRECTIONS[tests.correction]}, α = {tests.alpha:g}")
        return caption(*parts, *notes, sample=self.result.sample)


def from_study(result: StudyResult, protocol: str | None = None) -> Compared:
    """From one protocol of a study with intervals or tests; None if there is only one."""
    able = {cell.protocol for cell in result.cells if cell.low is not None and not cell.group}
    able |= {tests.protocol for tests in result.comparisons if not tests.group}
    if not able:
        hint = "Add 'bootstrap' and 'compare' to the study, and run it"
        raise UsageError("the study has neither intervals nor tests", code="missing-value", hint=hint)
    ids = [info.id for info in result.protocols if info.id in able]
    if protocol is None and len(ids) > 1:
        message, hint = f"the study has {len(ids)} protocols", f"Choose one with --protocol: {', '.join(ids)}"
        raise UsageError(message, code="missing-option", value="--protocol", hint=hint)
    chosen = protocol or ids[0]
    check_choice("protocol with intervals or tests", chosen, ids)
    (info,) = [info for info in result.protocols if info.id == chosen]
    cells = [c for c in result.cells if c.protocol == chosen and not c.group and c.value is not None]
    return Compared(result, info, tuple(sorted(cells, key=lambda cell: -cell.number)), result.comparison(chosen))


# Forest plot: the agreement of each metric with human ratings, with its interval.


def forest_figure(compared: Compared, look: Look = USUAL) -> Figure:
    """One row per metric, best first; metrics not significantly worse than the best are filled."""
    cells, tests = compared.cells, compared.tests
    if any(cell.low is None for cell in cells):
        hint = "Add 'bootstrap' to the study, or use 'capbench compare'"
        raise UsageError("a forest plot requires intervals", code="missing-value", hint=hint)
    with style(look):
        figure, (axes,) = new_figure(6.3, 1.1 + 0.34 * len(cells), look=look)
        for row, cell in enumerate(cells):
            value, low, high = (100 * end for end in (cell.number, cell.low or 0.0, cell.high or 0.0))
            filled = tests is None or cell.column in tests.top
            axes.plot([low, high], [row, row], color=COLOURS[0], linewidth=1.8, solid_capstyle="butt")
            face = COLOURS[0] if filled else "white"
            axes.plot(value, row, "o", color=COLOURS[0], markerfacecolor=face, markersize=6)
            axes.text(
                *(1.02, row, f"{value:.1f}  [{low:.1f}, {high:.1f}]"),
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=look.points(8),
                color="black" if filled else GREY,
            )
        ceiling = compared.result.ceiling(compared.info.id)
        if ceiling is not None:
            axes.axvline(100 * ceiling.value, color=COLOURS[1], linewidth=1.2, linestyle="--", label="human ceiling")
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
        axes.set_yticks(range(len(cells)), compared.titles)
        axes.set_ylim(len(cells) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_xlabel(f"{compared.info.statistic} with human ratings × 100")
        axes.set_title(compared.title, loc="left")
        legend = "" if tests is None else "filled: not significantly worse than the best"
        return finish(figure, compared.caption(legend), look)


# Significance matrix: the significant differences between pairs of metrics.

# One hue from light to dark, so that the order remains visible in grey.
_STEPS = ((0.001, "#08519c", "p ≤ .001"), (0.01, "#4292c6", "p ≤ .01"), (1.0, "#9ecae1", "p ≤ α"))
_NOT = "#f0f0f0"


def significance_figure(compared: Compared, look: Look = USUAL) -> Figure:
    """A cell for each pair: the row's metric minus the column's, and the corrected p-value.

    The legend lists the classes of p-values in the figure.
    """
    tests = compared.tests
    if tests is None or not tests.pairs:
        hint = "Add 'compare' to the study, or use 'capbench compare'"
        raise UsageError("a significance matrix requires tests", code="missing-value", hint=hint)
    names = [cell.column for cell in compared.cells]
    with style(look):
        from matplotlib.patches import Patch, Rectangle

        size = 1.6 + 0.62 * len(names)
        figure, (axes,) = new_figure(max(4.6, size + 1.2), max(3.4, size), look=look)
        used = set()
        for pair in tests.pairs:
            # Equal values have either order.
            row, column = sorted((names.index(pair.better), names.index(pair.worse)))
            colour = next(c for limit, c, _ in _STEPS if pair.p_adjusted <= limit) if pair.significant else _NOT
            used.add(colour)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
            p_value = p_value_of(pair, tests, digits=3)
            axes.text(
                *(column, row, f"{100 * pair.difference:z.1f}\np {p_value}".replace(" 0.", " .")),
                ha="center",
                va="center",
                fontsize=look.points(7.5),
                color="white" if colour in (_STEPS[0][1], _STEPS[1][1]) else "black",
            )
        axes.set_xlim(0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 1.5, -0.5)
        axes.xaxis.tick_top()
        long = len(names) > 5
        titles = compared.titles
        axes.set_xticks(range(1, len(names)), titles[1:], rotation=45 if long else 0, ha="left" if long else "center")
        axes.set_yticks(range(len(names) - 1), titles[:-1])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_aspect("equal")
        classes = [(colour, label) for _, colour, label in _STEPS] + [(_NOT, "not significant")]
        patches = [Patch(color=colour, label=label) for colour, label in classes if colour in used]
        if len(names) > 4:  # the lower triangle has room for it
            axes.legend(handles=patches, loc="lower left", bbox_to_anchor=(0.0, 0.0), borderaxespad=0.3)
        else:
            axes.legend(handles=patches, loc="center left", bbox_to_anchor=(1.02, 0.5))
        axes.set_title(compared.title, loc="left", pad=18)
        return finish(figure, compared.caption("row minus column × 100; p-values are corrected"), look)
