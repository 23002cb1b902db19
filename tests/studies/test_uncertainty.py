"""Intervals, tests and the human ceiling of a study are those of the statistics beneath it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from capbench.core.errors import StudyError
from capbench.core.records import Judgements
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot
from capbench.reports.tables import tables
from capbench.stats.agreement import Correlations
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
from capbench.stats.significance import compare, permutations_needed
from capbench.studies.evaluate import FEWEST_IN_CEILING
from capbench.studies.study import BootstrapSettings, TestSettings
from tests.errors import raises
from tests.studies.toys import HUMAN, LENGTH, LENGTHS, TOY, Toy, run

DEFAULT = "toy/all/unaggregated-tau-c"


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    return DataRoot(tmp_path, False, "test")


def by_hand(unit: str) -> Correlations:
    x = np.repeat(LENGTHS, 2).astype(float)
    labels = {"image": np.repeat(np.arange(6), 2), "rating": None}[unit]
    return Correlations.of("tau-c", {"length": x, "negative": -x}, np.array(HUMAN).ravel(), labels)


@pytest.mark.parametrize("unit", ["image", "rating"])
@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_intervals_are_those_of_a_bootstrap_over_the_unit(root: DataRoot, unit: str, method: str) -> None:
    settings = BootstrapSettings(300, unit, 5, method, 0.9)  # type: ignore[arg-type]
    result = run(root, bootstrap=settings)
    data = by_hand(unit)
    sample = draw_bootstrap(data, resamples=300, seed=5)
    expected = bootstrap_intervals(data, sample, method=method, level=0.9)  # type: ignore[arg-type]
    for name, interval in expected.items():
        cell = result.cell(DEFAULT, name)
        assert cell is not None
        assert (cell.low, cell.high) == (interval.low, interval.high)
    info = result.protocols[0].bootstrap
    assert info is not None
    assert info.units == (6 if unit == "image" else 12)
    assert info.model_dump(exclude={"units"}) == {
        "method": method,
        "level": 0.9,
        "unit": unit,
        "resamples": 300,
        "seed": 5,
    }


class TwoNames(Toy):
    """The first two images are one photograph under the ids of Flickr8k and Flickr30k."""

    name = "two-names"

    def _draw(self, selection: ItemSelection, draw: int) -> Judgements:
        judgements = super()._draw(selection, draw)
        names = ("1007129816_e794419615", "1007129816")
        renamed = (replace(item, image=name) for item, name in zip(judgements.items, names, strict=False))
        return replace(judgements, items=(*renamed, *judgements.items[2:]))


def test_one_photograph_under_two_ids_is_one_unit_of_intervals_and_tests(root: DataRoot) -> None:
    protocol = "tests.studies.test_uncertainty:TwoNames"
    settings = TestSettings("permutation", resamples=200, seed=3)
    result = run(root, protocols=(protocol,), bootstrap=BootstrapSettings(300, seed=5), compare=settings)
    x = np.repeat(LENGTHS, 2).astype(float)
    labels = np.repeat([0, 0, 1, 2, 3, 4], 2)
    data = Correlations.of("tau-c", {"length": x, "negative": -x}, np.array(HUMAN).ravel(), labels)
    expected = bootstrap_intervals(data, draw_bootstrap(data, resamples=300, seed=5))
    (info,) = result.protocols
    assert info.bootstrap is not None
    assert info.bootstrap.units == 5
    for name, interval in expected.items():
        cell = result.cell(info.id, name)
        assert cell is not None
        assert (cell.low, cell.high) == (interval.low, interval.high)
    tests = result.comparison(info.id)
    assert tests is not None
    assert tests.units == 5
    assert f"{info.id}: 6 image ids show 5 photographs; ids of one photograph are resampled together" in info.notes
    assert not any("photographs" in note for note in run(root, protocols=(protocol,)).protocols[0].notes)


def test_without_being_asked_there_are_no_intervals_and_no_tests(root: DataRoot) -> None:
    result = run(root)
    assert all(cell.low is None and cell.high is None for cell in result.cells)
    assert result.comparisons == ()
    assert result.protocols[0].bootstrap is None


@pytest.mark.parametrize("test", ["permutation", "bootstrap"])
def test_tests_are_those_of_all_pairs(root: DataRoot, test: str) -> None:
    settings = TestSettings(test, "bh", 0.1, 400, 3)  # type: ignore[arg-type]
    result = run(root, bootstrap=BootstrapSettings(200, seed=3), compare=settings)
    data = by_hand("image")
    drawn = draw_bootstrap(data, resamples=400, seed=3)
    expected = compare(
        data,
        test=test,  # type: ignore[arg-type]
        correction="bh",
        alpha=0.1,
        permutations=400,
        seed=3,
        sample=drawn,
    )
    found = result.comparison(DEFAULT)
    assert found is not None
    assert (found.top, found.ranks) == (expected.top, expected.ranks)
    (pair,), (other,) = found.pairs, expected.pairs
    assert (pair.better, pair.worse, pair.p_value, pair.p_adjusted) == (
        other.better,
        other.worse,
        other.p_value,
        other.p_adjusted,
    )
    assert pair.difference == pytest.approx(other.difference)
    assert pair.low is not None
    assert pair.high is not None
    assert pair.low <= pair.difference <= pair.high
    assert (found.test, found.resamples, found.requested, found.units) == (test, 400, None, 6)


def test_each_group_has_intervals_and_tests_of_its_own(root: DataRoot) -> None:
    study = {"bootstrap": BootstrapSettings(200), "compare": TestSettings()}
    result = run(root, protocols=(f"{TOY}/all/mean-pearson", f"{TOY}/all/votes-strict"), **study)
    assert [(c.protocol.split("/")[2], c.group) for c in result.comparisons] == [
        ("mean-pearson", ""),
        ("mean-pearson", "odd"),
        ("mean-pearson", "even"),
        ("votes-strict", ""),
        ("votes-strict", "A"),
    ]
    # One pair of one image cannot be resampled, and that is said.
    cell = result.cell("toy/all/votes-strict", "length", "B")
    assert cell is not None
    assert cell.low is None
    assert cell.value == 1.0
    notes = result.protocols[1].notes
    assert any("votes-strict B: no intervals" in note and "one unit" in note for note in notes)
    assert any("votes-strict B: no tests" in note for note in notes)


def test_draws_of_references_are_resampled_together(root: DataRoot) -> None:
    result = run(
        root, protocols=(f"{TOY}/drawn/mean-pearson",), bootstrap=BootstrapSettings(300), compare=TestSettings()
    )
    cell = result.cell("toy/drawn/mean-pearson", "length")
    assert cell is not None
    assert cell.low is not None
    assert cell.high is not None
    assert cell.low < cell.number < cell.high
    assert result.comparison("toy/drawn/mean-pearson") is not None


def test_too_few_permutations_are_made_more_and_that_is_said(root: DataRoot) -> None:
    result = run(root, compare=TestSettings(resamples=100, alpha=0.001))
    found = result.comparison(DEFAULT)
    assert found is not None
    assert found.requested == 100
    assert found.resamples == 2 * permutations_needed(1, 0.001)


def test_a_test_that_does_not_fit_is_refused_before_anything_is_scored(root: DataRoot) -> None:
    with pytest.raises(StudyError, match=r"2 problems.*williams.*unaggregated-tau-c.*williams.*votes-strict"):
        run(root, protocols=(TOY, f"{TOY}/all/votes-strict"), compare=TestSettings("williams"))
    with raises(StudyError, "wrong-value"):
        run(root, bootstrap=BootstrapSettings(level=7))


def test_williams_test_needs_no_resamples(root: DataRoot) -> None:
    result = run(
        root,
        protocols=(f"{TOY}/all/mean-pearson",),
        metrics=("tests.studies.toys:Zigzag",),
        compare=TestSettings("williams"),
    )
    zigzag, steps = [3.0, 2, 5, 4, 7, 6], [1.0, 1, 2, 2, 3, 3]
    data = Correlations.of("pearson", {"zigzag": zigzag, "steps": steps}, np.mean(HUMAN, axis=1))
    found = result.comparison("toy/all/mean-pearson")
    assert found is not None
    assert found.pairs[0].p_value == compare(data, test="williams").pairs[0].p_value
    assert (found.resamples, found.seed, found.unit, found.units) == (None, None, None, 6)


def test_what_a_formula_cannot_compare_becomes_a_note(root: DataRoot) -> None:
    result = run(root, protocols=(f"{TOY}/all/mean-pearson",), compare=TestSettings("williams"))
    # Length and its negative are perfectly correlated with each other.
    assert result.comparison("toy/all/mean-pearson") is None
    assert any("no tests between metrics" in note for note in result.protocols[0].notes)


def test_the_human_ceiling_of_ratings_leaves_one_rater_out(root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capbench.studies.evaluate.FEWEST_IN_CEILING", 6)
    result = run(root, bootstrap=BootstrapSettings(300))
    ratings = np.array(HUMAN)
    expected = scipy.stats.kendalltau(ratings[:, ::-1].ravel(), ratings.ravel(), variant="c").statistic
    ceiling = result.ceiling(DEFAULT)
    assert ceiling is not None
    assert ceiling.value == pytest.approx(expected)
    assert ceiling.n == 12
    assert ceiling.low is not None
    assert ceiling.high is not None
    assert ceiling.low <= ceiling.value <= ceiling.high
    assert ceiling.method == "leave-one-rater-out"
    assert "human" not in {cell.metric for cell in result.cells}


def test_a_ceiling_has_an_interval_without_settings_and_none_below_thirty_images(
    root: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FEWEST_IN_CEILING == 30
    monkeypatch.setattr("capbench.studies.evaluate.FEWEST_IN_CEILING", 6)
    (ceiling,) = run(root).ceilings
    (again,) = run(root, bootstrap=BootstrapSettings()).ceilings
    assert ceiling == again
    assert ceiling.bootstrap is not None
    assert (ceiling.n, ceiling.bootstrap.units, ceiling.bootstrap.resamples, ceiling.bootstrap.unit) == (
        12, 6, 1000, "image",
    )  # fmt: skip
    monkeypatch.setattr("capbench.studies.evaluate.FEWEST_IN_CEILING", 7)
    result = run(root)
    assert result.ceilings == ()
    assert [table.ceiling for table in tables(result)] == [None, None]
    (note,) = [note for note in result.protocols[0].notes if "ceiling" in note]
    assert "6 images" in note


@pytest.mark.parametrize("test", ["permutation", "bootstrap"])
def test_intervals_over_images_and_tests_over_ratings_do_not_share_resamples(root: DataRoot, test: str) -> None:
    over_ratings = TestSettings(test, "holm", 0.2, 400, 3, "rating")  # type: ignore[arg-type]
    over_images = BootstrapSettings(400, "image", 3)
    both = run(root, bootstrap=over_images, compare=over_ratings)
    intervals, tests = run(root, bootstrap=over_images), run(root, compare=over_ratings)
    assert [(cell.low, cell.high) for cell in both.cells] == [(cell.low, cell.high) for cell in intervals.cells]
    found, alone = both.comparison(DEFAULT), tests.comparison(DEFAULT)
    assert found is not None
    assert alone is not None
    assert (found.unit, found.units, found.pairs) == ("rating", 12, alone.pairs)
    data = by_hand("rating")
    drawn = draw_bootstrap(data, resamples=400, seed=3) if test == "bootstrap" else None
    expected = compare(data, test=test, alpha=0.2, permutations=400, seed=3, sample=drawn)  # type: ignore[arg-type]
    assert found.pairs[0].p_value == expected.pairs[0].p_value


def test_aggregated_ratings_and_pairs_without_votes_have_no_ceiling(root: DataRoot) -> None:
    result = run(root, protocols=(f"{TOY}/all/mean-pearson", f"{TOY}/all/votes-strict"))
    assert result.ceilings == ()


def test_the_ceiling_can_be_left_out(root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capbench.studies.evaluate.FEWEST_IN_CEILING", 6)
    assert run(root).ceilings
    assert run(root, human_ceiling=False).ceilings == ()


@pytest.mark.real_data
def test_the_published_judgements_leave_the_documented_room(real_data: Path) -> None:
    root = DataRoot(real_data, False, "test")
    ids = ("flickr8k-expert", "pascal-50s", "flickr8k-crowdflower")
    result = run(root, protocols=ids, metrics=(LENGTH,))
    found = {(c.protocol, c.group): round(c.value, 3) for c in result.ceilings}
    pascal = "pascal-50s/json-5-refs/direct-strict"
    assert found == {
        ("flickr8k-expert/no-own-captions/unaggregated-tau-c", ""): 0.554,
        (pascal, ""): 0.85,
        (pascal, "HC"): 0.662,
        (pascal, "HI"): 0.978,
        (pascal, "HM"): 0.961,
        (pascal, "MM"): 0.798,
    }
