"""Figures: what they show, that no label is cut off, and that the same numbers give the same file."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest

from capbench.core.errors import DataError, UsageError
from capbench.core.records import Item
from capbench.reports.figures import style as fonts
from capbench.reports.figures.compared import (
    Compared,
    PairResult,
    forest_figure,
    from_study,
    read_compared,
    significance_figure,
)
from capbench.reports.figures.curves import curves_figure
from capbench.reports.figures.ratings import ratings_figure, score_groups_figure
from capbench.reports.figures.style import COLOURS, KNOWN, Look, fit_fonts, metric_styles, save, statistic_label
from capbench.reports.figures.training_log import read_log, training_log_figure
from capbench.stats.pairs import Pair, Tests
from capbench.stats.significance import adjust
from capbench.studies.examples import RatedScores
from capbench.studies.references import CurvePoint, ReferenceCurves
from capbench.studies.results import (
    BootstrapInfo,
    Ceiling,
    Cell,
    ProtocolInfo,
    StudyResult,
)
from tests.errors import raises

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text


def _compared(names: int = 4, *, percent: bool = False) -> Compared:
    titles = [f"A metric with a long name {i}" for i in range(names)]
    values = {title: 0.5 - 0.05 * i for i, title in enumerate(titles)}
    pairs = tuple(
        PairResult(a, b, values[a] - values[b], min(1.0, 0.0005 * 10 ** (j - i)), (j - i) < 3)
        for i, a in enumerate(titles)
        for j, b in enumerate(titles)
        if i < j
    )
    return Compared(
        "toy/all/accuracy" if percent else "toy/all/unaggregated-tau-c",
        "accuracy" if percent else "τ-c",
        percent,
        1234,
        values,
        {title: (value - 0.04, value + 0.03) for title, value in values.items()},
        "95 % intervals (percentile, 1,000 resamples of 100 images, seed 0)",
        tuple(titles[:1]),
        pairs,
        "permutation test, 1,000 times by image, seed 0; correction holm, α = 0.05",
        0.6,
        True,
    )


def _curves() -> ReferenceCurves:
    counts = (0, 1, 2, 5, 10, 20, 50)
    points = [
        CurvePoint(
            metric="m",
            column=f"c{i}",
            title=f"M{i}",
            group=group,
            count=count,
            mean=0.5 + 0.01 * i + 0.002 * count,
            sd=None if count in (0, 50) else 0.01,
            values=(0.5,),
            n=100 if group else 400,
        )
        for i in range(9)
        for group in ("", "MM")
        for count in counts
        if count or i == 0
    ]
    return ReferenceCurves(
        capbench="0",
        protocol="pascal-50s/all-50-refs/direct-strict",
        dataset_title="PASCAL-50S",
        statistic="accuracy",
        kind="accuracy",
        n_items=800,
        groups=("MM",),
        counts=counts,
        most=50,
        draws=5,
        seed=0,
        points=tuple(points),
        signatures={"m": "line"},
        seconds=0.0,
    )


def _rated(levels: int = 4, metrics: int = 2, *, constant: bool = False) -> RatedScores:
    generator = np.random.default_rng(1)
    human = np.concatenate([np.arange(levels), generator.integers(0, levels, 300)]).astype(float) + 1
    scores = {
        f"M{i}": np.zeros(len(human)) if constant else human + generator.normal(size=len(human)) for i in range(metrics)
    }
    items = tuple(Item("a", str(i), ("r",)) for i in range(len(human)))
    return RatedScores(
        "toy/all/tau-c", "Toy", items, np.arange(len(human)), human, scores, "unaggregated", 5, {}, sample=True
    )


def _log(folder: Path, *, extra: str = "") -> Path:
    direction = {"r@1": 10.0, "r@5": 30.0, "r@10": 50.0, "median_rank": 5.0, "mean_rank": 9.0}
    rows: list[dict[str, Any]] = []
    for step in range(10, 61, 10):
        rows.append({"kind": "step", "step": step, "epoch": -(-step // 20), "seconds": step / 2, "loss": 3 / step})
        rows[-1]["lr"] = 0.01 if step < 40 else 0.001
        if step % 20 == 0:
            better = {key: value + (step == 40) for key, value in direction.items()}
            rows.append({"kind": "evaluation", "step": step, "epoch": step // 20, "seconds": step / 2})
            rows[-1].update(recall_sum=180.0, image_to_text=better, text_to_image=direction)
    rows.append({"kind": "end", "reason": "epochs", "step": 60})
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + extra, encoding="utf-8")
    return path


def _text_artists(figure: Figure) -> list[Text]:
    from matplotlib.text import Text

    return [text for text in figure.findobj(Text) if isinstance(text, Text)]


def _texts(figure: Figure) -> str:
    found = [text.get_text() for text in _text_artists(figure)]
    return "\n".join(found)


def _all(tmp_path: Path) -> dict[str, Figure]:
    return {
        "forest": forest_figure(_compared()),
        "forest-percent": forest_figure(_compared(12, percent=True)),
        "significance": significance_figure(_compared()),
        "significance-2": significance_figure(_compared(2)),
        "significance-12": significance_figure(_compared(12)),
        "curves": curves_figure(_curves(), ("", "MM")),
        "ratings": ratings_figure(_rated(metrics=5)),
        "ratings-constant": ratings_figure(_rated(metrics=1, constant=True)),
        "score-groups": score_groups_figure(_rated(levels=5, metrics=9)),
        "training-log": training_log_figure(read_log(_log(tmp_path))),
    }


def test_every_figure_says_where_its_numbers_come_from(tmp_path: Path) -> None:
    for name, figure in _all(tmp_path).items():
        texts = " ".join(_texts(figure).split())
        if name == "training-log":
            expected = ["60 steps", "30 s", "largest sum of recalls at step 40"]
        elif name == "curves":
            expected = ["PASCAL-50S", "all-50-refs/direct-strict", "all 400, MM 100", "5 random orders", "seed 0"]
        elif name.startswith(("forest", "significance")):
            expected = ["toy/all/", "n = 1,234", "1,000", "seed 0", "embedded synthetic sample"]
        else:
            expected = ["Toy", "toy/all/tau-c", "n = 30", "draw 1 of 5", "embedded synthetic sample"]
        assert all(part in texts for part in [*expected, "capbench"]), (name, texts)


def test_no_label_is_cut_off_or_laid_over_another_axis_label(tmp_path: Path) -> None:
    for name, figure in _all(tmp_path).items():
        path = tmp_path / f"{name}.png"
        save(figure, path)
        from PIL import Image

        pixels = np.asarray(Image.open(path).convert("L"))
        # The picture is cut to what is drawn plus a margin: whatever touches its edge would be cut off.
        edges = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
        assert all((edge == 255).all() for edge in edges), name
        assert pixels.min() < 128
        for axes in figure.axes:
            boxes = [text.get_window_extent() for text in axes.get_yticklabels() if text.get_text()]
            assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]), name


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_numbers_give_the_same_bytes(ending: str, tmp_path: Path) -> None:
    first, again = tmp_path / f"first.{ending}", tmp_path / f"again.{ending}"
    save(curves_figure(_curves()), first)
    figure = curves_figure(_curves())
    save(figure, tmp_path / "before.png")  # what was written before leaves no trace
    save(figure, again)
    assert first.read_bytes() == again.read_bytes()
    assert first.stat().st_size > 5_000
    if ending == "svg":
        text = first.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert "dc:date" not in text


def test_a_users_matplotlib_settings_do_not_matter(tmp_path: Path) -> None:
    import matplotlib

    save(forest_figure(_compared()), tmp_path / "plain.svg")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "mine"}):
        save(forest_figure(_compared()), tmp_path / "settings.svg")
        assert matplotlib.rcParams["font.size"] == 30  # and ours do not leak
    assert (tmp_path / "plain.svg").read_bytes() == (tmp_path / "settings.svg").read_bytes()


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with raises(UsageError, "wrong-value", value=".gif"):
        save(forest_figure(_compared()), tmp_path / "figure.gif")
    assert not (tmp_path / "figure.gif").exists()


def test_colours_differ_in_lightness_or_hue_under_colour_blindness() -> None:
    # Viénot, Brettel and Mollon (1999): what a deuteranope and a protanope see, in linear RGB.
    simulations = [
        np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
        np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
    ]
    colours = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS])
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    for matrix in simulations:
        seen = np.clip(linear @ matrix.T, 0, 1) ** (1 / 2.2)
        distances = np.linalg.norm(seen[:, None] - seen[None], axis=2) + np.eye(len(seen))
        assert distances.min() > 0.14


def test_a_forest_plot_orders_marks_and_prints(tmp_path: Path) -> None:
    figure = forest_figure(_compared())
    axes = figure.axes[0]
    assert [t.get_text()[-1] for t in axes.get_yticklabels()] == ["0", "1", "2", "3"]
    low, high = axes.get_ylim()
    assert low > high  # the best on top
    assert "0.500  [0.460, 0.530]" in _texts(figure)
    assert "one more human rater" in _texts(figure)
    assert "50.0  [46.0, 53.0]" in _texts(forest_figure(_compared(percent=True)))


def test_a_significance_matrix_shows_each_pair_once() -> None:
    figure = significance_figure(_compared())
    texts = [t.get_text() for t in figure.axes[0].texts]
    assert len(texts) == 6
    assert "+0.050\np = .005" in texts
    assert len(figure.axes[0].patches) == 6


def test_a_significance_matrix_has_only_classes_that_the_permutations_reach() -> None:
    def labels(compared: Compared) -> list[str]:
        legend = significance_figure(compared).axes[0].get_legend()
        assert legend is not None
        return [text.get_text() for text in legend.get_texts()]

    all_classes = ["p ≤ .001", "p ≤ .01", "p ≤ α", "not significant"]
    assert labels(_compared()) == all_classes
    for smallest, number in ((0.001, 4), (0.0015, 3), (0.01, 3), (0.015, 2)):
        assert labels(replace(_compared(), smallest_p=smallest)) == all_classes[4 - number :]


def test_p_values_at_the_floor_are_drawn_as_bounds(tmp_path: Path) -> None:
    """Six pairs with 200 permutations: Holm's correction gives 6/201 = .02985 at least."""
    titles = ["A", "B", "C", "D"]
    names = list(itertools.combinations(titles, 2))
    p_values = [1 / 201] * 4 + [0.3, 0.5]
    adjusted = adjust(p_values, "holm").tolist()
    table = {
        "test": "permutation",
        "correction": "holm",
        "alpha": 0.05,
        "unit": "image",
        "resamples": 200,
        "seed": 0,
        "values": {title: 0.5 - 0.1 * place for place, title in enumerate(titles)},
        "top": ["A"],
        "pairs": [
            {"better": a, "worse": b, "difference": 0.1, "p_value": p, "p_adjusted": q, "significant": q <= 0.05}
            for (a, b), p, q in zip(names, p_values, adjusted, strict=True)
        ],
    }
    interval = {"low": 0.1, "high": 0.6, "level": 0.95, "method": "percentile", "resamples": 100}
    intervals = {title: interval | {"units": 50, "unit": "image", "seed": 0} for title in titles}
    saved = tmp_path / "compare.json"
    raw = {"protocol": "toy/all/tau-c", "n": 100, "intervals": intervals, "table": table}
    saved.write_text(json.dumps(raw), encoding="utf-8")
    compared = read_compared(saved)
    assert compared.smallest_p == pytest.approx(6 / 201)
    texts = [text.get_text().partition("\n")[2] for text in significance_figure(compared).axes[0].texts]
    assert texts == ["p ≤ .030"] * 4 + ["p = .600", "p = .600"]
    table |= {"test": "williams", "resamples": None, "unit": None}
    saved.write_text(json.dumps(raw), encoding="utf-8")
    compared = read_compared(saved)
    assert compared.smallest_p == 0
    assert not any(pair.is_bound for pair in compared.pairs)


def test_figures_that_lack_their_numbers_are_refused() -> None:
    with raises(UsageError, "missing-value"):
        forest_figure(replace(_compared(), intervals={}))
    with raises(UsageError, "missing-value"):
        significance_figure(replace(_compared(), pairs=()))
    with raises(UsageError, "unknown-name", value="HX"):
        curves_figure(_curves(), ("", "HX"))


def test_curves_have_one_line_a_metric_and_a_place_for_zero() -> None:
    figure = curves_figure(_curves(), ("", "MM"))
    first, second = figure.axes
    assert len(first.lines) == len(second.lines) == 9
    assert np.asarray(first.lines[0].get_xdata(), dtype=float)[0] == 0
    assert np.asarray(first.lines[0].get_ydata(), dtype=float)[-1] == pytest.approx(60)
    assert len({(line.get_color(), line.get_linestyle()) for line in first.lines}) == 9
    assert [t.get_text() for t in first.get_xticklabels()] == ["0", "1", "2", "5", "10", "20", "50"]


def test_statistics_are_named_by_the_protocol() -> None:
    assert statistic_label("a/b/unaggregated-tau-c") == "τ-c"
    assert statistic_label("a/b/correctness-spearman") == "ρ"
    assert statistic_label("a/b/direct-strict") == "accuracy"


def _study() -> StudyResult:
    boot = BootstrapInfo(method="percentile", level=0.95, unit="image", units=50, resamples=1000, seed=0)
    ids = ("toy/all/tau-c", "toy/some/tau-c")
    cells = [
        Cell(protocol=p, metric="m", column=c, title=c.upper(), value=v, low=v - 0.1, high=v + 0.1, n=10)
        for p in ids
        for c, v in (("a", 0.3), ("b", 0.4))
    ]
    test = Tests(
        protocol=ids[0],
        test="permutation",
        correction="holm",
        alpha=0.05,
        unit="image",
        units=50,
        resamples=1000,
        seed=0,
        level=0.95,
        top=("b",),
        ranks={"b": 1, "a": 2},
        pairs=(Pair(better="b", worse="a", difference=0.1, p_value=0.01, p_adjusted=0.01, significant=True),),
    )
    infos = tuple(
        ProtocolInfo(
            id=p,
            dataset="toy",
            dataset_title="Toy",
            statistic="τ-c",
            kind="correlation",
            description="",
            n_items=10,
            bootstrap=boot,
        )
        for p in ids
    )
    return StudyResult(
        capbench="0",
        name="toy",
        title="Toy",
        created="now",
        sample=True,
        protocols=infos,
        columns={"a": "A", "b": "B"},
        signatures={},
        cells=tuple(cells),
        ceilings=(Ceiling(protocol=ids[0], value=0.7, n=10, method="leave-one-rater-out"),),
        comparisons=(test,),
        seconds={},
    )


def test_a_studys_results_are_read_protocol_by_protocol(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(_study().model_dump_json(), encoding="utf-8")
    found = read_compared(path, "toy/all/tau-c")
    assert list(found.values) == ["B", "A"]
    assert found.top == ("B",)
    assert found.pairs == (PairResult("B", "A", 0.1, 0.01, True),)
    assert (found.ceiling, found.sample) == (0.7, True)
    assert "1,000 resamples of 50 images" in found.interval_note
    assert from_study(_study(), "toy/some/tau-c").pairs == ()
    with raises(UsageError, "missing-option"):
        read_compared(path)
    with raises(UsageError, "unknown-name", value="toy/none/tau-c"):
        read_compared(path, "toy/none/tau-c")


@pytest.mark.parametrize("text", ["[]", "{}", '{"protocol": "a/b/c", "n": 1, "intervals": {}, "table": {}}', "3"])
def test_other_json_is_no_comparison(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with raises(DataError, "wrong-format"):
        read_compared(path)


def test_a_log_is_read_with_its_best_evaluation(tmp_path: Path) -> None:
    log = read_log(_log(tmp_path))
    assert log.steps.tolist() == [10, 20, 30, 40, 50, 60]
    assert log.evaluated.tolist() == [20, 40, 60]
    assert log.recalls["image → text R@5"].tolist() == [30, 31, 30]
    assert list(log.recalls)[-1] == "text → image R@10"
    assert (log.best, log.epochs, log.seconds, log.cut) == (40, (20, 40), 30, False)
    assert read_log(tmp_path).name == tmp_path.name


def test_an_epoch_ends_where_it_was_evaluated_and_not_at_its_last_logged_loss(tmp_path: Path) -> None:
    direction = {"r@1": 1.0}
    rows = [
        {"step": 20, "epoch": 1, "loss": 1.0},
        {"step": 22, "epoch": 1, "image_to_text": direction, "text_to_image": direction},
        {"step": 40, "epoch": 2, "loss": 0.5},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert read_log(tmp_path).epochs == (22,)


def test_a_log_that_is_being_written_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    log = read_log(_log(tmp_path, extra='{"kind": "step", "st'))
    assert log.cut
    assert "the last line is incomplete" in _texts(training_log_figure(log))


@pytest.mark.parametrize(
    ("text", "code", "row", "value"),
    [
        ("", "missing-value", None, None),
        ('{"step": 1, "loss": NaN}\n', "not-a-number", 1, "loss"),
        ('\n{"step": "one", "loss": 1}\n', "not-a-number", 2, "step"),
        ('{"step": 1, "loss": 1}\nno json\n{"step": 2, "loss": 1}\n', "wrong-format", 2, None),
        ("[1]\n", "wrong-format", 1, None),
        ('{"step": 1}\n', "missing-key", None, "loss"),
        ('{"step": 1, "image_to_text": {"r@1": 1.0}}\n', "missing-key", 1, "text_to_image"),
        (
            '{"step": 1, "image_to_text": {"r@1": 1}, "text_to_image": {"r@1": 1}}\n'
            '{"step": 2, "image_to_text": {"r@5": 1}, "text_to_image": {"r@1": 1}}\n',
            "mismatch",
            None,
            None,
        ),
    ],
)
def test_damaged_logs_are_refused_with_their_row(
    text: str, code: str, row: int | None, value: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text, encoding="utf-8")
    with raises(DataError, code, path=path, row=row, value=value):
        read_log(path)


def test_a_size_that_is_chosen_is_the_files_and_everything_fits(tmp_path: Path) -> None:
    from matplotlib.image import imread

    look = Look(title="A title that is much too long for so small a figure and has to be broken", size=(5.0, 4.0))
    for name, figure in (
        ("forest", forest_figure(_compared(), look)),
        ("curves", curves_figure(_curves(), ("", "MM"), look)),
        ("ratings", ratings_figure(_rated(metrics=2), look)),
        ("significance", significance_figure(_compared(), look)),
        ("score-groups", score_groups_figure(_rated(levels=4, metrics=2), look)),
    ):
        save(figure, tmp_path / f"{name}.png", look)
        picture = imread(tmp_path / f"{name}.png")
        assert picture.shape[:2] == (640, 800), name
        # Nothing touches the edge: nothing is cut.
        edges = [picture[0], picture[-1], picture[:, 0], picture[:, -1]]
        assert all((edge[..., :3] > 0.99).all() for edge in edges), name


def test_the_font_size_is_that_of_all_texts_in_proportion() -> None:
    figures = {size: forest_figure(_compared(), Look(font_size=size)) for size in (9.0, 18.0)}
    sizes = {
        size: {text.get_text(): text.get_fontsize() for text in _text_artists(figure)}
        for size, figure in figures.items()
    }
    both = sizes[9.0].keys() & sizes[18.0].keys() - {""}
    assert len(both) > 5
    assert all(sizes[18.0][text] == pytest.approx(2 * sizes[9.0][text]) for text in both)


def test_a_title_and_a_legend_do_not_get_the_same_place() -> None:
    figure = curves_figure(_curves(), ("",), Look(title="The title"))
    assert "The title" in _texts(figure)
    title = next(text for text in _text_artists(figure) if text.get_text() == "The title")
    labels = [text for legend in figure.legends for text in legend.get_texts()]
    box = title.get_window_extent()
    assert labels
    assert not any(box.overlaps(label.get_window_extent()) for label in labels)


def test_a_dollar_in_a_name_begins_no_formula() -> None:
    figure = forest_figure(_compared(), Look(title="$a_1$ costs $5"))
    assert "$a_1$ costs $5" in _texts(figure)
    title = next(text for text in _text_artists(figure) if "costs" in text.get_text())
    assert not title.get_parse_math()


def test_metrics_look_alike_in_all_figures_and_unlike_each_other() -> None:
    some = metric_styles(["CIDEr", "METEOR", "my metric"])
    others = metric_styles(["my metric", "SPICE", "CIDEr"])
    for name in ("CIDEr", "my metric"):
        assert some[name] == others[name]
    assert metric_styles(["cider"])["cider"] == some["CIDEr"]
    assert len(set(KNOWN.values())) == len(KNOWN)
    many = metric_styles([f"metric {number}" for number in range(60)])
    assert len(set(many.values())) == 60
    assert not set(many.values()) & set(KNOWN.values())
    # What TIGEr's Figure 5 shows together has a colour each.
    shown = metric_styles(["BLEU-1", "BLEU-4", "ROUGE-L", "METEOR", "CIDEr", "SPICE", "TIGEr"])
    assert len({style.colour for style in shown.values()}) == 7


def test_a_curve_keeps_its_colour_whatever_stands_beside_it() -> None:
    curves = _curves()
    lines = {line.get_label(): line for line in curves_figure(curves).axes[0].get_lines()}
    for title in curves.columns.values():
        drawn = metric_styles([title])[title]
        assert (lines[title].get_color(), lines[title].get_marker()) == (drawn.colour, drawn.marker)


def test_letters_that_no_font_has_are_named_once_and_drawn_as_no_box(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(fonts, "_installed", lambda: iter(["DejaVu Serif"]))
    with pytest.warns(fonts.MissingGlyphs) as caught:
        figure = forest_figure(_compared(), Look(title="図 of 語"))
    assert len(caught) == 1
    said = str(caught[0].message)
    assert "図 (U+56F3) 語 (U+8A9E)" in said
    assert "DejaVu Sans, DejaVu Serif" in said
    assert "\n" not in said
    assert "\ufffd of \ufffd" in _texts(figure)


def test_letters_come_from_the_first_font_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "_installed", lambda: iter(["Empty", "Kanji", "Later"]))
    known = {"DejaVu Sans": set(range(0x250)) | {0x3C4}, "Kanji": {ord("図")}, "Later": {ord("図")}}
    monkeypatch.setattr(fonts, "_characters", lambda family: known.get(family, set()))
    from matplotlib.figure import Figure

    figure = Figure()
    text = figure.text(0.5, 0.5, "図 1")
    fit_fonts(figure)
    assert text.get_fontfamily() == ["DejaVu Sans", "Kanji"]
    assert text.get_text() == "図 1"


def test_the_font_that_is_always_there_is_read() -> None:
    assert {ord("τ"), ord("ρ"), ord("\ufffd"), ord("Ж")} <= fonts._characters(fonts.FONT)
    assert fonts._characters("No such family") == set()


def test_columns_that_stand_together_by_layer_differ_in_colour() -> None:
    shown = metric_styles(["vilbertscore-f", "vilbertscore-p", "vilbertscore-r"])
    assert len({style.colour for style in shown.values()}) == 3
