"""Sentinel metrics against plain second implementations, their independence of a photograph's ratings, and reasons."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from capbench.core.records import FloatArray, Item, Judgements, Preferences, Ratings
from capbench.datasets.opening import open_dataset
from capbench.datasets.protocol import (
    ItemSelection,
    Protocol,
    correlations,
    graded_preferences,
    system_statistics,
    within_image_statistics,
    within_source_statistics,
)
from capbench.datasets.root import find_root
from capbench.stats.nested_cross_validation import deal
from capbench.stats.resampling import unit_codes
from capbench.stats.significance import adjust
from capbench.studies.data_points import agreement
from capbench.studies.plan import plan_study
from capbench.studies.results import Cell, Sentinels
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.sentinel_agreement import assess_sentinels
from capbench.studies.sentinels import (
    PENALTY,
    SentinelScores,
    sentinel_scores,
    word_count,
)
from capbench.studies.study import BootstrapSettings, Study, TestSettings
from tests.studies.toys import known

WORDS = ["a", "dog", "cat", "Man", "runs", "sits", "on", "the", "grass", ",", ".", "red"]
SYSTEMS = ("human", "one", "two")
IMAGES, PER_IMAGE = 24, 3


def protocol(statistic: str = "tau-c") -> Protocol:
    specs = {**correlations("rating"), **graded_preferences("votes")}
    for level in (within_image_statistics, within_source_statistics, system_statistics):
        specs |= level("rating")
    return Protocol("set", ItemSelection("items", "all"), specs[statistic])


def judgements(seed: int = 0, draw: int = 0) -> Judgements:
    """Three captions of each of 24 images (12 photographs under two ids), by three systems, two ratings each."""
    random = np.random.default_rng(seed)
    items = []
    for image in range(IMAGES):
        for system in SYSTEMS:
            text = " ".join(random.choice(WORDS, random.integers(2, 9)).tolist())
            references = tuple("word " * (2 + image % 3 + draw + k) for k in range(2))
            items.append(Item(f"{image // 2}_{image % 2:010x}", text, references, f"{image}{system}", system=system))
    place = np.repeat(np.arange(len(items)), 2)
    rater = np.tile([0, 1], len(items))
    quality = np.tile(np.repeat([1, 0, 0], 2), IMAGES)  # the first system is better, the others are alike
    value = np.minimum(5, quality + random.integers(1, 6, len(place))).astype(float)
    ratings = Ratings(place, value, rater, (1.0, 5.0))
    first = np.arange(0, len(items), PER_IMAGE)
    pairs = Preferences(
        np.concatenate([first, first + 1]),
        np.concatenate([first + 1, first + 2]),
        random.choice([-1, 1, 0], 2 * IMAGES, p=[0.3, 0.5, 0.2]),
        ("",) * 2 * IMAGES,
        np.zeros((2 * IMAGES, 0), dtype=np.int64),
    )
    return Judgements("set", "items", tuple(items), {"rating": ratings}, {"votes": pairs}, draw)


def photographs(data: Judgements) -> list[str]:
    return [item.image.partition("_")[0] for item in data.items]


def folds(data: Judgements) -> list[int]:
    unit, units = unit_codes(photographs(data))
    fold: list[int] = deal(unit, 5, units, 0)[unit].tolist()
    return fold


def scores(data: Judgements, name: str, statistic: str = "tau-c", **settings: int) -> FloatArray:
    made = sentinel_scores(protocol(statistic), [data], **settings)[name]
    assert isinstance(made, SentinelScores), made
    assert made.values.shape == (1, len(data.items))
    return np.asarray(made.values[0])


def reason(data: Judgements, name: str, statistic: str = "tau-c") -> str:
    made = sentinel_scores(protocol(statistic), [data])[name]
    assert isinstance(made, str)
    return made


def of_item(data: Judgements) -> list[list[float]]:
    ratings = data.ratings["rating"]
    return [ratings.value[ratings.item == place].tolist() for place in range(len(data.items))]


def binary_features(data: Judgements) -> FloatArray:
    """(items, k) dense features, one column for each feature of any caption."""
    found = []
    for item in data.items:
        tokens = [token.lower() for token in item.candidate.split()]
        names = [f"word {token}" for token in tokens]
        names += [f"bigram {one} {other}" for one, other in itertools.pairwise(tokens)]
        names.append(f"length {len(tokens)}")
        names += ["capital"] * item.candidate[0].isupper() + ["full stop"] * (tokens[-1] == ".")
        found.append(set(names))
    columns = sorted(set().union(*found))
    return np.array([[float(name in names) for name in columns] for names in found])


def ridge(matrix: FloatArray, target: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(matrix.T @ matrix + 36 * np.eye(matrix.shape[1]), matrix.T @ target))


def test_length_counts_words() -> None:
    assert [word_count(text) for text in ("A man's dog .", "two-tone, red", "...", "Ein Größe")] == [3, 3, 0, 2]
    data = judgements()
    expected = [sum(bool(re.search(r"\w", token)) for token in item.candidate.split()) for item in data.items]
    assert scores(data, "length").tolist() == expected


def test_length_ratio_is_relative_to_the_references_of_each_draw() -> None:
    draws = [judgements(draw=0), judgements(draw=1)]
    made = sentinel_scores(protocol(), draws)
    ratio, length = made["length-ratio"], made["length"]
    assert isinstance(ratio, SentinelScores)
    assert isinstance(length, SentinelScores)
    assert length.values.shape == ratio.values.shape == (2, IMAGES * PER_IMAGE)
    for draw, values in enumerate(ratio.values):
        means = np.repeat([2.5 + image % 3 + draw for image in range(IMAGES)], PER_IMAGE)
        np.testing.assert_allclose(values, length.values[draw] / means)


def test_source_is_the_deviation_of_its_mean_in_the_other_folds() -> None:
    data = judgements()
    fold, rated = folds(data), of_item(data)
    expected = []
    for place in range(len(fold)):
        training = [other for other in range(len(fold)) if fold[other] != fold[place]]
        own = [r for other in training if data.items[other].system == data.items[place].system for r in rated[other]]
        expected.append(np.mean(own) - np.mean([r for other in training for r in rated[other]]))
    np.testing.assert_allclose(scores(data, "source", "pearson"), expected)


def test_source_is_a_rank_under_rank_statistics_and_similar_sources_share_it() -> None:
    data = judgements()
    fold, mean = np.array(folds(data)), mean_ratings(data)
    systems = np.array([item.system for item in data.items])
    ranks = scores(data, "source", "tau-c")
    for held_out in range(5):
        of_source = [mean[(fold != held_out) & (systems == name)] for name in SYSTEMS]
        variance = sum(((one - one.mean()) ** 2).sum() for one in of_source) / (sum(map(len, of_source)) - 3)
        order = sorted(range(3), key=lambda place: of_source[place].mean())
        tied = [[order[0]]]
        for lower, higher in itertools.pairwise(order):
            error = np.sqrt(variance / len(of_source[lower]) + variance / len(of_source[higher]))
            if of_source[higher].mean() - of_source[lower].mean() > error:
                tied.append([])
            tied[-1].append(higher)
        for group in tied:
            expected = np.mean([order.index(place) for place in group])
            for place in group:
                assert set(ranks[(fold == held_out) & (systems == SYSTEMS[place])]) == {expected}


def test_candidate_only_is_a_ridge_regression_on_binary_features() -> None:
    data = judgements()
    matrix, mean, fold = binary_features(data), np.array([np.mean(r) for r in of_item(data)]), np.array(folds(data))
    expected = np.empty(len(fold))
    for held_out in range(5):
        training = fold != held_out
        weights = ridge(matrix[training], mean[training] - mean[training].mean())
        expected[~training] = matrix[~training] @ weights
    np.testing.assert_allclose(scores(data, "candidate-only"), expected, atol=1e-7)
    assert PENALTY == 36


def test_image_mean_leaves_out_the_captions_own_ratings() -> None:
    data = judgements()
    images, rated = photographs(data), of_item(data)
    for place, value in enumerate(scores(data, "image-mean")):
        others = [
            r for other in range(len(images)) if other != place and images[other] == images[place] for r in rated[other]
        ]
        assert value == pytest.approx(np.mean(others))


def test_preferences_are_learned_from_differences_of_features() -> None:
    data = judgements()
    pairs, matrix, fold = data.preferences["votes"], binary_features(data), np.array(folds(data))
    expected = np.empty(len(fold))
    for held_out in range(5):
        chosen = (fold[pairs.first] != held_out) & (pairs.preferred != 0)
        weights = ridge(matrix[pairs.first[chosen]] - matrix[pairs.second[chosen]], pairs.preferred[chosen])
        expected[fold == held_out] = (matrix @ weights)[fold == held_out]
    np.testing.assert_allclose(scores(data, "candidate-only", "votes-strict"), expected, atol=1e-7)


def test_source_of_preferences_is_the_share_of_won_pairs() -> None:
    data = judgements()
    pairs, fold = data.preferences["votes"], folds(data)
    won: dict[tuple[int, str], list[float]] = {}
    for first, second, preferred in zip(pairs.first, pairs.second, pairs.preferred, strict=True):
        for side, sign in ((first, 1), (second, -1)):
            if preferred:
                won.setdefault((fold[side], data.items[side].system), []).append(float(preferred == sign))
    for place, value in enumerate(scores(data, "source", "votes-strict")):
        shares = [v for (f, s), v in won.items() if f != fold[place] and s == data.items[place].system]
        assert value == pytest.approx(np.mean(np.concatenate(shares)) - 0.5)


@pytest.mark.parametrize("name", ["source", "candidate-only", "image-mean"])
@pytest.mark.parametrize("statistic", ["tau-c", "pearson"])
def test_own_ratings_do_not_change_a_score(name: str, statistic: str) -> None:
    data = judgements()
    ratings, images = data.ratings["rating"], photographs(data)
    # All of the photograph's ratings, or for the image's mean those of the caption itself.
    own = [place for place, image in enumerate(images) if image == "3"]
    own = own[:1] if name == "image-mean" else own
    value = np.where(np.isin(ratings.item, own), -1000.0 * (1 + np.arange(len(ratings))), ratings.value)
    changed = replace(data, ratings={"rating": replace(ratings, value=value)})
    before, after = scores(data, name, statistic), scores(changed, name, statistic)
    np.testing.assert_array_equal(before[own], after[own])
    assert (before != after).any()


def test_signatures_name_parameters_and_judgements() -> None:
    def signatures(data: Judgements, **settings: Any) -> dict[str, str]:
        made = sentinel_scores(protocol(), [data], **settings)
        return {name: one.signature for name, one in made.items() if isinstance(one, SentinelScores)}

    data = judgements()
    known, other, reseeded = signatures(data), signatures(judgements(seed=1)), signatures(data, seed=1)
    assert known["length"] == other["length"] == "length|capbench:1"
    assert {"penalty:36", "seed:0", "human:rating"} <= set(re.split(r"[|,] ?", known["candidate-only"]))
    assert all(other[name] != known[name] for name in ("source", "candidate-only", "image-mean"))
    assert reseeded["candidate-only"] != known["candidate-only"]
    assert (scores(data, "candidate-only", seed=1) != scores(data, "candidate-only")).any()


def test_undefined_sentinels_have_a_reason() -> None:
    data = judgements()

    def with_items(**fields: Any) -> Judgements:
        return replace(data, items=tuple(replace(item, **fields) for item in data.items))

    assert "sources" in reason(with_items(system=""), "source")
    assert "1 caption" in reason(replace(data, items=(replace(data.items[0], system=""), *data.items[1:])), "source")
    assert "one source" in reason(with_items(system="x"), "source")
    apart = tuple(replace(item, system=f"{item.image.partition('_')[0]}{item.system}") for item in data.items)
    assert "two images" in reason(replace(data, items=apart), "source")
    assert "no references" in reason(with_items(references=()), "length-ratio")
    assert "without words" in reason(with_items(references=("...",)), "length-ratio")
    assert "preferences" in reason(data, "image-mean", "votes-strict")
    assert "within images" in reason(data, "image-mean", "system-pearson")
    assert "there are 1" in reason(with_items(image="one"), "candidate-only")
    alone = tuple(replace(item, image=f"i{place}") for place, item in enumerate(data.items))
    assert "two rated captions" in reason(replace(data, items=alone), "image-mean")


def test_tau_c_of_a_sentinel_has_the_denominator_of_the_ratings() -> None:
    data = judgements()
    source, ratings = np.sign(scores(data, "source") - 1.5), data.ratings["rating"]
    made = agreement(protocol(), data, {"source": source[None]}, "image", rating_levels=True)
    own = agreement(protocol(), data, {"source": source[None]}, "image")
    whole = np.ones((1, made.units), dtype=np.int32)
    expected = scipy.stats.kendalltau(source[ratings.item], ratings.value, variant="c").statistic
    assert own.statistic("source")(whole)[0] == pytest.approx(expected)
    # m = 5 instead of 2: (m - 1) / m is 4/5 instead of 1/2.
    assert made.statistic("source")(whole)[0] == pytest.approx(expected * (1 / 2) / (4 / 5))


def assessed(
    data: Judgements, metrics: Mapping[str, FloatArray], statistic: str = "tau-c", **settings: Any
) -> Sentinels:
    of = protocol(statistic)
    # Only the names of defined metrics are read.
    cells = [Cell(protocol=str(of), metric=name, column=name, title=name, value=0.5, n=1) for name in metrics]
    stacked = {name: values[None] for name, values in metrics.items()}
    tests = TestSettings(**({"resamples": 199} | settings))
    return assess_sentinels(of, [data], {"": stacked}, cells, bootstrap=BootstrapSettings(resamples=100), tests=tests)


def mean_ratings(data: Judgements) -> FloatArray:
    return np.array([np.mean(rated) for rated in of_item(data)])


@pytest.mark.parametrize("statistic", ["tau-c", "tau-b", "pearson", "spearman"])
def test_a_metric_is_marked_unless_it_is_better_than_every_sentinel(statistic: str) -> None:
    data = judgements()
    noise = np.random.default_rng(0).normal(size=len(data.items))
    metrics = {"good": mean_ratings(data) + 0.1 * noise, "length": scores(data, "length") + 0.0, "noise": noise}
    made = assessed(data, metrics, statistic)
    tests = known(made.tests_of())
    assert ([pair.better for pair in tests.pairs], tests.top) == (list(metrics), ("good",))
    # The value of a metric is compared with the sentinel that is hardest to beat.
    values = {cell.column: cell.number for cell in made.cells}
    good = tests.pairs[0]
    assert good.p_value == 1 / 400  # no permutation reaches the difference from any sentinel
    assert values[good.worse] == max(values[name] for name in ("length", "length-ratio", "source", "candidate-only"))
    assert good.difference == pytest.approx(
        agreement(protocol(statistic), data, {"good": metrics["good"][None]}, "image").statistic("good")(
            np.ones((1, IMAGES // 2), dtype=np.int32)
        )[0]
        - values[good.worse]
    )
    for cell in made.cells:
        assert known(cell.low) <= cell.number <= known(cell.high)


def test_the_family_of_p_values_has_one_for_each_metric() -> None:
    data = judgements()
    noise = np.random.default_rng(1).normal(size=len(data.items))
    one = assessed(data, {"a": mean_ratings(data) + 2 * noise}).tests_of()
    three = assessed(data, {"a": mean_ratings(data) + 2 * noise, "b": noise, "c": -noise}).tests_of()
    assert one is not None
    assert three is not None
    assert three.pairs[0].p_value == one.pairs[0].p_value == one.pairs[0].p_adjusted
    p_values = [pair.p_value for pair in three.pairs]
    assert [pair.p_adjusted for pair in three.pairs] == adjust(p_values, "holm").tolist()


def test_tests_of_a_file_of_0_2_are_read() -> None:
    data = judgements()
    made = assessed(data, {"a": mean_ratings(data), "b": np.random.default_rng(1).normal(size=len(data.items))})
    old: Any = made.model_dump(mode="json")
    (tests,) = old["tests"]
    shared = {key: tests[key] for key in ("group", "correction", "alpha", "unit", "units", "seed")}
    numbers = ("difference", "p_value", "p_adjusted")
    pairs = [
        {"column": pair["better"], "sentinel": pair["worse"], "better": pair["significant"]}
        | {name: pair[name] for name in numbers}
        for pair in tests["pairs"]
    ]
    old["tests"] = [{**shared, "permutations": tests["resamples"], "sentinels": ["length"], "tests": pairs}]
    assert Sentinels.model_validate(old) == made


def test_too_few_images_have_a_note_instead_of_marks() -> None:
    data = judgements()
    few = 6 * PER_IMAGE  # three photographs
    ratings = data.ratings["rating"]
    of_few = ratings.item < few
    cut = {name: getattr(ratings, name)[of_few] for name in ("item", "value", "rater")}
    data = replace(data, items=data.items[:few], ratings={"rating": replace(ratings, **cut)}, preferences={})
    made = assessed(data, {"a": np.arange(few, dtype=np.float64)})
    assert (made.tests, len(made.notes)) == ((), 1)
    assert {cell.column for cell in made.cells if cell.value is not None} == {"length", "length-ratio", "image-mean"}


def test_a_study_with_sentinels_has_the_same_numbers_of_metrics(sample: Path, tmp_path: Path) -> None:
    base = Study(
        name="s",
        title="S",
        # Groups; several draws of references.
        protocols=("composite", "pascal-50s/random-1-ref/direct-strict"),
        metrics=("rouge-l", "bleu-4"),
        bootstrap=BootstrapSettings(resamples=100),
        compare=TestSettings(resamples=200),
    )
    results = []
    for sentinels in (False, True):
        plan = plan_study(replace(base, sentinels=sentinels), find_root(sample))
        dumped = run_plan(plan, no_progress, cache=False).model_dump(mode="json")
        assert ("sentinels" in dumped) is sentinels
        results.append({k: v for k, v in dumped.items() if k not in ("sentinels", "created", "seconds", "cached")})
    assert results[0] == results[1]
    groups = {cell["group"] for one in dumped["sentinels"] for cell in one["cells"]}
    assert groups == {"", "8k", "30k", "coco", "HC", "HI", "HM", "MM"}


PUBLISHED = (
    ("composite", "any-candidate-out/correctness-tau-c", "source", 0.45, 0.01),
    ("composite", "any-candidate-out/correctness-tau-c", "candidate-only", 0.551, 0.01),
    ("pascal-50s", "direct-strict", "length", 0.598, 0.01),
    ("thumb", "total-pearson", "source", 0.375, 0.01),
    ("flickr8k-expert", "no-own-captions/unaggregated-tau-c", "image-mean", 0.200, 0.01),
    ("flickr8k-expert", "no-own-captions/unaggregated-tau-c", "candidate-only", 0.201, 0.01),
    ("nebula", "tau-c", "candidate-only", 0.06, 0.01),
)


@pytest.mark.real_data
@pytest.mark.parametrize(("dataset", "name", "sentinel", "expected", "within"), PUBLISHED)
def test_agreement_of_sentinels_with_published_judgements(
    real_data: Path, dataset: str, name: str, sentinel: str, expected: float, within: float
) -> None:
    data = open_dataset(dataset, find_root(real_data))
    of = data.protocol(name)
    draws = data.load(of.items)
    # Nebula has one caption of each photograph, and the standard deviation over assignments of folds is .008 there.
    seeds = range(5 if dataset == "nebula" else 1)
    values = []
    for seed in seeds:
        made = sentinel_scores(of, draws, seed=seed)[sentinel]
        assert isinstance(made, SentinelScores)
        group = "HC" if dataset == "pascal-50s" else ""
        measured = agreement(of, draws[0], {sentinel: made.values}, "image", group, rating_levels=True)
        values.append(measured.statistic(sentinel)(np.ones((1, measured.units), dtype=np.int32))[0])
    assert np.mean(values) == pytest.approx(expected, abs=within)
