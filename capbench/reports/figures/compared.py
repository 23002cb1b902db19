"""Forest plots and significance matrices, from the result of a study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capbench.core.errors import UsageError
from capbench.datasets.protocol import with_version
from capbench.reports.figures.style import (
    COLOURS,
    GREY,
    USUAL,
    Look,
    caption,
    finish,
    heading,
    metric_styles,
    new_figure,
    style,
)
from capbench.reports.methods import p_value_text
from capbench.stats.significance import at_floor, smallest_p

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capbench.studies.results import StudyResult


@dataclass(frozen=True)
class PairResult:
    """The test of one pair."""

    better: str
    worse: str
    difference: float
    p_value: float
    significant: bool
    is_bound: bool = False  # True if the number of permutations limits the p-value


@dataclass(frozen=True)
class Compared:
    """Metrics under one protocol, by title.

    Attributes:
        protocol: its id.
        label: short name of the statistic.
        percent: True for accuracies, which are shown times 100.
        n: data points.
        values: the statistic, best first.
        intervals: low and high end of each; empty if there are none.
        interval_note: method of the intervals, one phrase.
        top: the best metric and those not significantly worse; empty if nothing was tested.
        pairs: the tests.
        test_note: method of the tests, one phrase; ``""`` if there are none.
        ceiling: agreement of one more human rater, None if it is unknown.
        sample: True if the data is the embedded sample.
        version: version of the data set, which ``protocol`` does not contain; ``""`` if it has none.
        smallest_p: the smallest corrected p-value that the number of permutations allows; 0 if there is no limit.
    """

    protocol: str
    label: str
    percent: bool
    n: int
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    interval_note: str
    top: tuple[str, ...]
    pairs: tuple[PairResult, ...]
    test_note: str
    ceiling: float | None = None
    sample: bool = False
    version: str = ""
    smallest_p: float = 0.0

    @property
    def versioned_id(self) -> str:
        """The protocol's id as printed, with the data set's version."""
        return with_version(self.protocol, self.version)


def from_study(result: StudyResult, protocol: str | None = None) -> Compared:
    """From one protocol of a study with intervals or tests.

    Args:
        result: the study.
        protocol: its id; None if the study has only one with intervals or tests.

    Raises:
        UsageError: there is no such protocol, a choice is required, or no protocol has intervals or tests.
    """
    able = {cell.protocol for cell in result.cells if cell.low is not None and not cell.group}
    able |= {tests.protocol for tests in result.comparisons if not tests.group}
    if not able:
        raise UsageError(
            "the study has neither intervals nor tests",
            code="missing-value",
            hint="Add 'bootstrap' and 'compare' to the study, and run it",
        )
    ids = [info.id for info in result.protocols if info.id in able]
    if protocol is None and len(ids) > 1:
        raise UsageError(
            f"the study has {len(ids)} protocols",
            code="missing-option",
            value="--protocol",
            hint=f"Choose one with --protocol: {', '.join(ids)}",
        )
    chosen = protocol or ids[0]
    if chosen not in ids:
        raise UsageError(
            f"the study has no intervals or tests for '{chosen}'",
            code="unknown-name",
            value=chosen,
            hint=f"Choices: {', '.join(ids)}",
        )
    (info,) = [info for info in result.protocols if info.id == chosen]
    cells = [c for c in result.cells if c.protocol == chosen and not c.group and c.value is not None]
    values = {cell.title: cell.value for cell in cells if cell.value is not None}
    tests = result.comparison(chosen)
    boot = info.bootstrap
    ceiling = result.ceiling(chosen)
    titles = result.columns
    return Compared(
        chosen,
        info.statistic,
        info.kind == "accuracy",
        max(cell.n for cell in cells),
        dict(sorted(values.items(), key=lambda pair: -pair[1])),
        {c.title: (c.low, c.high) for c in cells if c.low is not None and c.high is not None},
        ""
        if boot is None
        else _interval_note(boot.level, boot.method, boot.resamples, boot.units, boot.unit, boot.seed),
        () if tests is None else tuple(titles[column] for column in tests.top),
        ()
        if tests is None
        else tuple(
            PairResult(
                titles[p.better],
                titles[p.worse],
                p.difference,
                p.p_adjusted,
                p.significant,
                at_floor(
                    p.p_value,
                    p.p_adjusted,
                    pairs=len(tests.pairs),
                    resamples=tests.resamples,
                    correction=tests.correction,
                ),
            )
            for p in tests.pairs
        ),
        ""
        if tests is None
        else _test_note(tests.test, tests.correction, tests.alpha, tests.resamples, tests.unit, tests.seed),
        None if ceiling is None else ceiling.value,
        result.sample,
        info.version,
        0.0
        if tests is None or tests.resamples is None
        else smallest_p(len(tests.pairs), tests.resamples, tests.correction),
    )


def _interval_note(
    level: float, method: str, resamples: int | None, units: int, unit: str | None, seed: int | None
) -> str:
    drawn = "" if resamples is None else f", {resamples:,} resamples of {units:,} {unit}s, seed {seed}"
    return f"{100 * level:g} % intervals ({method}{drawn})"


def _test_note(
    test: str, correction: str, alpha: float, resamples: int | None, unit: str | None, seed: int | None
) -> str:
    drawn = "" if resamples is None else f", {resamples:,} times by {unit}, seed {seed}"
    return f"{test} test{drawn}; correction {correction}, α = {alpha:g}"


# Forest plot: the agreement of each metric with human ratings, with its interval.


def forest_figure(compared: Compared, look: Look = USUAL) -> Figure:
    """One row per metric, best first; metrics not significantly worse than the best are filled.

    Raises:
        UsageError: there are no intervals.
    """
    names = list(compared.values)
    if not all(name in compared.intervals for name in names):
        raise UsageError(
            "a forest plot requires intervals",
            code="missing-value",
            hint="Add 'bootstrap' to the study, or use 'capbench compare'",
        )
    scale, digits = (100.0, 1) if compared.percent else (1.0, 3)
    with style(look):
        figure, (axes,) = new_figure(7.0, 1.1 + 0.34 * len(names), look=look)
        tested = bool(compared.top)
        styles = metric_styles(names)
        for row, name in enumerate(names):
            low, high = (scale * end for end in compared.intervals[name])
            value = scale * compared.values[name]
            filled = not tested or name in compared.top
            colour = styles[name].colour
            axes.plot([low, high], [row, row], color=colour, linewidth=1.8, solid_capstyle="butt")
            axes.plot(
                *(value, row, styles[name].marker),
                color=colour,
                markerfacecolor=colour if filled else "white",
                markersize=6,
            )
            axes.text(
                *(1.02, row, f"{value:.{digits}f}  [{low:.{digits}f}, {high:.{digits}f}]"),
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=look.points(8),
                color="black" if filled else GREY,
            )
        axes.axvline(scale * compared.values[names[0]], color=GREY, linewidth=0.7, alpha=0.5, zorder=0)
        if compared.ceiling is not None:
            axes.axvline(
                scale * compared.ceiling, color=COLOURS[1], linewidth=1.2, linestyle="--", label="one more human rater"
            )
            axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_xlabel("accuracy, %" if compared.percent else f"{compared.label} with human ratings")
        axes.set_title(heading(compared.protocol, compared.label), loc="left")
        legend = "filled: not significantly worse than the best" if tested else ""
        return finish(
            figure,
            caption(
                compared.versioned_id,
                f"n = {compared.n:,}",
                compared.interval_note,
                legend,
                compared.test_note,
                sample=compared.sample,
            ),
            look,
        )


# Significance matrix: the significant differences between pairs of metrics.

# One hue from light to dark, so that the order remains visible in grey.
_STEPS = ((0.001, "#08519c", "p ≤ .001"), (0.01, "#4292c6", "p ≤ .01"), (1.0, "#9ecae1", "p ≤ α"))
_NOT = "#f0f0f0"


def significance_figure(compared: Compared, look: Look = USUAL) -> Figure:
    """A cell for each pair: the row's metric minus the column's, and the corrected p-value.

    The legend lists only classes of p-values that the number of permutations and the correction allow.

    Raises:
        UsageError: nothing was tested.
    """
    if not compared.pairs:
        raise UsageError(
            "a significance matrix requires tests",
            code="missing-value",
            hint="Add 'compare' to the study, or use 'capbench compare'",
        )
    names = list(compared.values)
    scale, digits = (100.0, 1) if compared.percent else (1.0, 3)
    with style(look):
        from matplotlib.patches import Patch, Rectangle

        size = 1.6 + 0.62 * len(names)
        figure, (axes,) = new_figure(max(4.6, size + 1.2), max(3.4, size), look=look)
        for pair in compared.pairs:
            # Equal values have either order.
            row, column = sorted((names.index(pair.better), names.index(pair.worse)))
            colour = _colour(pair)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
            dark = colour in (_STEPS[0][1], _STEPS[1][1])
            axes.text(
                *(column, row, f"+{scale * pair.difference:.{digits}f}\n{_p(pair)}"),
                ha="center",
                va="center",
                fontsize=look.points(7.5),
                color="white" if dark else "black",
            )
        axes.set_xlim(0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 1.5, -0.5)
        axes.xaxis.tick_top()
        long = len(names) > 5
        axes.set_xticks(range(1, len(names)), names[1:], rotation=45 if long else 0, ha="left" if long else "center")
        axes.set_yticks(range(len(names) - 1), names[:-1])
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_aspect("equal")
        reachable = [(colour, label) for limit, colour, label in _STEPS if compared.smallest_p <= limit]
        patches = [Patch(color=colour, label=label) for colour, label in reachable]
        patches.append(Patch(color=_NOT, label="not significant"))
        if len(names) > 4:  # the lower triangle has room for it
            axes.legend(handles=patches, loc="lower left", bbox_to_anchor=(0.0, 0.0), borderaxespad=0.3)
        else:
            axes.legend(handles=patches, loc="center left", bbox_to_anchor=(1.02, 0.5))
        axes.set_title(heading(compared.protocol, compared.label), loc="left")
        unit = "points of accuracy" if compared.percent else compared.label
        return finish(
            figure,
            caption(
                f"row minus column, in {unit}; p-values are corrected",
                compared.versioned_id,
                f"n = {compared.n:,}",
                compared.test_note,
                sample=compared.sample,
            ),
            look,
        )


def _colour(pair: PairResult) -> str:
    if not pair.significant:
        return _NOT
    return next(colour for limit, colour, _ in _STEPS if pair.p_value <= limit)


def _p(pair: PairResult) -> str:
    # A bound below .001 is printed like any other value below it.
    is_bound = pair.is_bound and pair.p_value >= 0.001
    return f"p {p_value_text(pair.p_value, is_bound=is_bound, digits=3)}".replace(" 0.", " .")
