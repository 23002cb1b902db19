"""Figures: what they show, that no label is cut off, and that the same numbers give the same file."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from capbench.core.errors import UsageError
from capbench.datasets.root import find_root
from capbench.reports.figures import style as look_of_figures
from capbench.reports.figures.compared import Compared, forest_figure, from_study, significance_figure
from capbench.reports.figures.curves import curves_figure
from capbench.reports.figures.ratings import ratings_figure, score_groups_figure
from capbench.reports.figures.style import Look, metric_styles, save
from capbench.studies.examples import RatedScores
from capbench.studies.results import Ceiling, Point, StudyResult
from capbench.studies.scoring import Scored
from capbench.studies.study import CurveSettings
from tests.errors import raises
from tests.reports.toy import BOOTSTRAP, pairs_tested, study
from tests.studies.toys import Toy

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text


def _study(names: int = 4, *, kind: str = "correlation", p_values: Sequence[float] = ()) -> StudyResult:
    """A study of two protocols, the first with tests of 10,000 permutations, or of 200 with these p-values."""
    ids = ("toy/all/tau-c", "toy/some/tau-c")
    values = {f"a metric with a long name {i}": 0.5 - 0.05 * i for i in range(names)}
    places = itertools.combinations(range(names), 2)
    raw = p_values or [min(1.0, 0.0005 * 10 ** (b - a)) for a, b in places]
    how = {"resamples": 200} if p_values else {"resamples": 10_000, "adjusted": raw}
    tests = pairs_tested(ids[0], values, raw, units=50, top=(next(iter(values)),), **how)
    ceiling = Ceiling(protocol=ids[0], value=0.6, n=10, method="leave-one-rater-out")
    info = {"kind": kind, "bootstrap": BOOTSTRAP}
    more: dict[str, Any] = {"sample": True, "ceilings": (ceiling,), "comparisons": (tests,)}
    return study(dict.fromkeys(ids, values), n=1234, intervals=(0.04, 0.03), info=info, **more)


def _compared(names: int = 4, **more: Any) -> Compared:
    return from_study(_study(names, **more), "toy/all/tau-c")


def _curves() -> StudyResult:
    protocol, counts = "pascal-50s/all-50-refs/direct-strict", (0, 1, 2, 5, 10, 20, 50)
    points = [
        Point(
            protocol=protocol,
            metric="m",
            column=f"c{i}",
            title=f"M{i}",
            group=group,
            at=count,
            value=0.5 + 0.01 * i + 0.002 * count,
            sd=None if count in (0, 50) else 0.01,
            n=100 if group else 400,
        )
        for i in range(9)
        for group in ("", "MM")
        for count in counts
        if count or i == 0
    ]
    info = {"kind": "accuracy", "statistic": "accuracy"}
    return study({protocol: {"c0": 0.5}}, info=info, curves=CurveSettings(counts), points=tuple(points))


def _rated(levels: int = 4, metrics: int = 2, *, constant: bool = False) -> RatedScores:
    generator = np.random.default_rng(1)
    human = np.concatenate([np.arange(levels), generator.integers(0, levels, 300)]).astype(float) + 1
    scores = {
        f"M{i}": np.zeros(len(human)) if constant else human + generator.normal(size=len(human)) for i in range(metrics)
    }
    toy = Toy(find_root("sample"))
    protocol = toy.protocol("drawn/unaggregated-tau-c")
    return RatedScores(protocol, Scored(toy, (), ()), np.arange(len(human)), human, scores, (), sample=True)


def _text_artists(figure: Figure) -> list[Text]:
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if isinstance(text, Text)]


def _texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in _text_artists(figure))


def _all() -> dict[str, Figure]:
    return {
        "forest": forest_figure(_compared()),
        "significance": significance_figure(_compared()),
        "significance-9": significance_figure(_compared(9)),
        "curves": curves_figure(_curves(), ("", "MM")),
        "ratings": ratings_figure(_rated(metrics=5)),
        "ratings-constant": ratings_figure(_rated(metrics=1, constant=True)),
        "score-groups": score_groups_figure(_rated(levels=5, metrics=9)),
    }


def _uncut(path: Path) -> Any:
    """The grey pixels of a picture of which nothing touches the edge: what did would be cut off."""
    pixels = np.asarray(Image.open(path).convert("L"))
    assert all((edge > 252).all() for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])), path
    return pixels


def test_no_label_is_cut_off_or_laid_over_another_axis_label(tmp_path: Path) -> None:
    for name, figure in _all().items():
        path = tmp_path / f"{name}.png"
        save(figure, path)
        assert _uncut(path).min() < 128
        for axes in figure.axes:
            boxes = [text.get_window_extent() for text in axes.get_yticklabels() if text.get_text()]
            assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]), name


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    endings = ("png", "svg", "pdf")
    for name, order in (("first", endings), ("again", endings[::-1])):  # what was written before leaves no trace
        figure = curves_figure(_curves())
        for ending in order:
            save(figure, tmp_path / f"{name}.{ending}")
    for ending in endings:
        first = (tmp_path / f"first.{ending}").read_bytes()
        assert first == (tmp_path / f"again.{ending}").read_bytes()
        assert len(first) > 5_000
    assert "dc:date" not in (tmp_path / "first.svg").read_text(encoding="utf-8")


def test_a_forest_plot_orders_marks_and_prints() -> None:
    figure = forest_figure(_compared())
    axes = figure.axes[0]
    assert [t.get_text()[-1] for t in axes.get_yticklabels()] == ["0", "1", "2", "3"]
    low, high = axes.get_ylim()
    assert low > high  # the best on top
    texts = " ".join(_texts(figure).split())
    for part in ("50.0 [46.0, 53.0]", "human ceiling", "n = 1,234", "toy/all/tau-c", "embedded synthetic sample"):
        assert part in texts
    faces = [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"]
    assert faces == ["#0072B2", "white", "white", "white"]


def test_a_significance_matrix_has_each_pair_and_the_classes_in_it() -> None:
    axes = significance_figure(_compared()).axes[0]
    assert [t.get_text() for t in axes.texts][:2] == ["5.0\np = .005", "10.0\np = .050"]
    assert len(axes.texts) == len(axes.patches) == 6
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["p ≤ .01", "p ≤ α", "not significant"]
    # Six pairs with 200 permutations: Holm's correction gives 6/201 = .02985 at least.
    compared = _compared(p_values=[1 / 201] * 4 + [0.3, 0.5])
    texts = [text.get_text().partition("\n")[2] for text in significance_figure(compared).axes[0].texts]
    assert texts == ["p ≤ .030"] * 4 + ["p = .600", "p = .600"]


def test_figures_that_lack_their_numbers_are_refused() -> None:
    bare = tuple(cell.model_copy(update={"low": None, "high": None}) for cell in _study().cells)
    with raises(UsageError, "missing-value"):
        forest_figure(from_study(_study().model_copy(update={"cells": bare})))
    with raises(UsageError, "missing-value"):
        significance_figure(from_study(_study(), "toy/some/tau-c"))
    with raises(UsageError, "missing-option"):
        from_study(_study())
    with raises(UsageError, "unknown-name", value="toy/none/tau-c"):
        from_study(_study(), "toy/none/tau-c")
    with raises(UsageError, "unknown-name", value="HX"):
        curves_figure(_curves(), ("", "HX"))


def test_letters_that_no_font_has_are_named_and_a_dollar_begins_no_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(look_of_figures, "FONTS", ["DejaVu Sans", "No such family"])
    with pytest.warns(look_of_figures.MissingGlyphs, match=r"語 \(U\+8A9E\)") as caught:
        figure = forest_figure(_compared(), Look(title="$a_1$ costs $5 語"))
    assert len(caught) == 1
    title = next(text for text in _text_artists(figure) if "costs" in text.get_text())
    assert not title.get_parse_math()


def test_curves_have_one_line_a_metric_and_a_place_for_zero() -> None:
    figure = curves_figure(_curves(), ("", "MM"))
    first, second = figure.axes
    assert len(first.lines) == len(second.lines) == 9
    assert np.asarray(first.lines[0].get_xdata(), dtype=float)[0] == 0
    assert np.asarray(first.lines[0].get_ydata(), dtype=float)[-1] == pytest.approx(60)
    assert len({(line.get_color(), line.get_linestyle()) for line in first.lines}) == 9
    assert [t.get_text() for t in first.get_xticklabels()] == ["0", "1", "2", "5", "10", "20", "50"]


def test_a_size_that_is_chosen_is_the_files_and_everything_fits(tmp_path: Path) -> None:
    look = Look(title="A title that is much too long for so small a figure and has to be broken", size=(5.0, 4.0))
    for name, figure in (
        ("forest", forest_figure(_compared(), look)),
        ("curves", curves_figure(_curves(), ("", "MM"), look)),
        ("significance", significance_figure(_compared(), look)),
        ("score-groups", score_groups_figure(_rated(levels=4, metrics=2), look)),
    ):
        save(figure, tmp_path / f"{name}.png", look)
        assert _uncut(tmp_path / f"{name}.png").shape == (640, 800), name


def test_metrics_of_a_figure_look_unlike_each_other() -> None:
    many = metric_styles([*(f"metric {number}" for number in range(60)), "CIDEr"])
    assert len(set(many.values())) == 61
