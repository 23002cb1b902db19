"""Intervals, tests and the human ceiling of a study are those of the statistics beneath it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

import capbench as cb
from capbench.core.errors import StudyError
from capbench.core.records import Judgements
from capbench.datasets.protocol import ItemSelection
from capbench.datasets.root import DataRoot
from capbench.reports.tables import tables
from capbench.stats.agreement import Correlations
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
from capbench.stats.pairs import Pair, Tests
from capbench.stats.significance import compare
from capbench.studies.human_ceiling import FEWEST_IN_CEILING
from capbench.studies.results import BootstrapInfo
from capbench.studies.study import BootstrapSettings, TestSettings
from capbench.studies.uncertainty import too_few_units
from tests.conftest import Ran
from tests.studies.toys import HUMAN, LENGTH, LENGTHS, TOY, Toy, known, run

DEFAULT = "toy/all/unaggregated-tau-c"


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
        cell = known(result.cell(DEFAULT, name))
        assert (cell.low, cell.high) == (interval.low, interval.high)
    info = result.protocols[0].bootstrap
    assert info == BootstrapInfo(**vars(settings), units=6 if unit == "image" else 12)


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
        cell = known(result.cell(info.id, name))
        assert (cell.low, cell.high) == (interval.low, interval.high)
    tests = known(result.comparison(info.id))
    assert tests.units == 5
    assert f"{info.id}: 6 image ids show 5 photographs; ids of one photograph are resampled together" in info.notes
    assert not any("photographs" in note for note in run(root, protocols=(protocol,)).protocols[0].notes)


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
    found = known(result.comparison(DEFAULT))
    assert (found.top, found.ranks) == (expected.top, expected.ranks)
    (pair,), (other,) = found.pairs, expected.pairs
    for name in ("better", "worse", "p_value", "p_adjusted"):
        assert getattr(pair, name) == getattr(other, name)
    assert pair.difference == pytest.approx(other.difference)
    assert (pair.low or 1) <= pair.difference <= (pair.high or 0)
    assert (found.test, found.resamples, found.requested, found.units) == (test, 400, None, 6)


def test_a_test_that_does_not_fit_is_refused_before_anything_is_scored(root: DataRoot) -> None:
    with pytest.raises(StudyError, match=r"2 problems.*williams.*unaggregated-tau-c.*williams.*votes-strict"):
        run(root, protocols=(TOY, f"{TOY}/all/votes-strict"), compare=TestSettings("williams"))


def test_the_human_ceiling_of_ratings_leaves_one_rater_out(root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capbench.studies.human_ceiling.FEWEST_IN_CEILING", 6)
    result = run(root, bootstrap=BootstrapSettings(300))
    ratings = np.array(HUMAN)
    expected = scipy.stats.kendalltau(ratings[:, ::-1].ravel(), ratings.ravel(), variant="c").statistic
    ceiling = known(result.ceiling(DEFAULT))
    assert ceiling.value == pytest.approx(expected)
    assert ceiling.n == 12
    assert (ceiling.low or 1) <= ceiling.value <= (ceiling.high or 0)
    assert ceiling.method == "leave-one-rater-out"
    assert "human" not in {cell.metric for cell in result.cells}


def test_a_ceiling_has_an_interval_without_settings_and_none_below_thirty_images(
    root: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FEWEST_IN_CEILING == 30
    monkeypatch.setattr("capbench.studies.human_ceiling.FEWEST_IN_CEILING", 6)
    (ceiling,) = run(root).ceilings
    (again,) = run(root, bootstrap=BootstrapSettings()).ceilings
    assert ceiling == again
    assert ceiling.bootstrap is not None
    info = ceiling.bootstrap
    assert (ceiling.n, info.units, info.resamples, info.unit) == (12, 6, 1000, "image")
    monkeypatch.setattr("capbench.studies.human_ceiling.FEWEST_IN_CEILING", 7)
    result = run(root)
    assert result.ceilings == ()
    assert not [row for table in tables(result) for row in table.rows if row.part]
    (note,) = [note for note in result.protocols[0].notes if "ceiling" in note]
    assert "6 images" in note


@pytest.mark.real_data
def test_the_published_judgements_leave_the_documented_room(real_data: Path) -> None:
    root = DataRoot(real_data, False, "test")
    pascal = "pascal-50s/json-5-refs/direct-strict"
    ids = ("flickr8k-expert", pascal, "flickr8k-crowdflower")
    result = run(root, protocols=ids, metrics=(LENGTH,))
    found = {(c.protocol, c.group): round(c.value, 3) for c in result.ceilings}
    assert found == {
        ("flickr8k-expert/no-own-captions/unaggregated-tau-c", ""): 0.554,
        (pascal, ""): 0.85,
        (pascal, "HC"): 0.662,
        (pascal, "HI"): 0.978,
        (pascal, "HM"): 0.961,
        (pascal, "MM"): 0.798,
    }


# The best metric for a user's judgements.

WORDS = ["a", "red", "kite", "flies", "over", "the", "green", "hill", "near", "two", "boats"]


def own_ratings(path: Path, images: int, seed: int = 4) -> Path:
    """A file of ratings: captions that share between none and all of their words with the reference."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "candidate", "reference_1", "reference_2", "rating"])
        for image in range(images):
            for shared in (2, 6, 10):
                words = [*WORDS[:shared], *(f"w{image}{place}" for place in range(11 - shared))]
                rng.shuffle(words)
                rating = int(np.clip(round(shared / 2 + rng.normal(0, 1)), 1, 5))
                writer.writerow([f"{image}.jpg", " ".join(words), " ".join(WORDS), f"boats on lake {image}", rating])
    return path


def own_preferences(path: Path, images: int, seed: int = 8) -> Path:
    """A file of preferences between captions with the reference's words in another order."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "candidate_a", "candidate_b", "reference_1", "preferred"])
        for image in range(images):
            near, far = (" ".join(rng.permutation(WORDS)[:shared]) for shared in rng.integers(3, 10, 2))
            writer.writerow([f"{image}.jpg", near, far, " ".join(WORDS), ("a", "b", "a", "tie")[image % 4]])
    return path


METRICS = ["rouge-l", "bleu-1", "meteor"]


@pytest.mark.parametrize(
    ("make", "images", "amount"),
    [(own_ratings, 24, "72 ratings of 24 images"), (own_preferences, 100, "75 preferences of 75 images")],
)
def test_ones_own_judgements_are_answered_by_the_numbers_of_compare_and_power(
    tmp_path: Path, capbench: Callable[..., Ran], make: Callable[[Path, int], Path], images: int, amount: str
) -> None:
    file = make(tmp_path / "mine.csv", images)
    result = cb.correlate(file, METRICS)
    (answer,) = result.answers
    compared = cb.compare(file, METRICS)
    # Best first, with the intervals and tests of 'compare'.
    (tests,) = compared.comparisons
    assert list(result.columns) == list(answer.ranking) == list(tests.ranks)
    assert result.cells == compared.cells
    assert result.comparisons == compared.comparisons
    assert answer.ties == tests.top[1:]
    assert {column: rank for rank, group in enumerate(answer.groups, 1) for column in group} == tests.ranks
    # The best and the next of another metric with the power analysis of 'power'.
    assert answer.needed is not None
    assert answer.needed.better == answer.ranking[0]
    expected = cb.power(file, [answer.needed.better, answer.needed.worse]).power
    assert (answer.needed.needed, answer.needed.units) == (expected.needed, expected.units)
    assert answer.reasons == {}
    # The sentences have these numbers, and all forms have the sentences.
    titles, best = result.columns, result.value(answer.ranking[0])
    assert f"{titles[answer.ranking[0]]} agrees best" in answer.text[0]
    assert f" {100 * best:.1f} [" in answer.text[0]
    assert amount in answer.text[0]
    rounded = int(float(f"{expected.needed:.2g}"))
    assert f"{rounded:,} images" in " ".join(answer.text)
    assert f"{float(f'{100 * expected.gap:.2g}'):g} points" in answer.text[-1]
    ran = capbench("correlate", "-d", file, *(word for name in METRICS for word in ("-m", name)))
    assert all(line in ran.out and line in str(result) for line in answer.text)


@pytest.mark.parametrize(
    ("metrics", "related"),
    [
        (["bleu-1", "bleu-4", "again=bleu-1"], {"bleu-1 bleu-4", "again bleu-1", "again bleu-4"}),
        (["bleu-1", "bleu-4", "rouge-l"], {"bleu-1 bleu-4"}),
        (["rouge-l", "precise=rouge-l"], set()),
        (["combination:saved.json", "rouge-l", "bleu-1"], {"rouge-l saved", "bleu-1 saved"}),
    ],
)
def test_the_power_analysis_is_of_metrics_that_are_not_computed_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: list[Any], related: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = own_preferences(tmp_path / "mine.csv", 100)
    cb.combine(file, ["rouge-l", "bleu-1"], save="saved.json", resamples=100)
    options = {"precise.beta": 0.01} if "precise=rouge-l" in metrics else {}
    (answer,) = cb.correlate(file, metrics, options=options).answers
    best, *others = answer.ranking
    following = next((name for name in others if " ".join(sorted((best, name))) not in related), None)
    if following is None:
        assert (answer.needed, list(answer.reasons)) == (None, ["needed"])
    else:
        assert answer.needed is not None
        assert (answer.needed.better, answer.needed.worse) == (best, following)


@pytest.mark.parametrize("correction", ["holm", "bh", "none"])
@pytest.mark.parametrize("units", range(1, 13))
def test_too_few_units_are_those_with_too_few_swaps(units: int, correction: str) -> None:
    alpha, pairs = 0.05, 6
    test = Pair(better="a", worse="b", difference=0.1, p_value=0.5, p_adjusted=1, significant=False)
    tests = Tests(
        protocol="p",
        test="permutation",
        correction=correction,  # type: ignore[arg-type]
        alpha=alpha,
        unit="image",
        units=units,
        resamples=1000,
        seed=0,
        level=None,
        top=("a",),
        ranks={"a": 1, "b": 1},
        pairs=(test,) * pairs,
    )
    # The most extreme difference occurs twice among all swaps: unswapped, and with everything swapped.
    smallest = 2 / 2**units * (pairs if correction == "holm" else 1)
    assert bool(too_few_units(tests)) == (smallest > alpha)


def test_the_number_of_images_is_not_estimated_from_fewer_than_twenty(tmp_path: Path) -> None:
    for images in (19, 20):
        (answer,) = cb.correlate(own_ratings(tmp_path / "mine.csv", images), METRICS).answers
        assert ("needed" in answer.reasons) == (answer.needed is None) == (images < 20)


def test_the_number_needed_is_never_below_what_the_test_requires(tmp_path: Path) -> None:
    (answer,) = cb.correlate(own_ratings(tmp_path / "mine.csv", 30), ["rouge-l", "bleu-4", "meteor"]).answers
    assert answer.needed is not None
    # Three pairs: 2 / 2ⁿ times 3 must not exceed .05.
    assert 2 / 2**answer.needed.needed * 3 <= 0.05
