"""Do 95 % intervals cover 95 % of the time, and do tests at 5 % reject true hypotheses 5 % of the time?

Judgements are drawn from a model whose true correlations and accuracies are known (from a very large draw), again
and again, and every interval and test is computed on each draw. Two settings:

- ``independent``: 400 images with one caption and one rating each, and 400 pairs of one image each;
- ``dependent``: 400 images with four captions of three ratings each (4,800 ratings), and 1,200 pairs, three an image;
  the captions of an image, and the metrics' errors on them, are alike, and so are the ratings of a caption.

The two metrics of the tests are equally good: their true difference is 0.

Example: python scripts/interval_simulation.py --draws 2000 --workers 2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from capbench.core.records import Coefficient, FloatArray, IntArray
from capbench.stats.agreement import Accuracies, Agreement, Correlations
from capbench.stats.correlation import correlation
from capbench.stats.intervals import accuracy_interval, bootstrap_intervals, correlation_interval, draw_bootstrap
from capbench.stats.significance import Test, compare

COEFFICIENTS: tuple[Coefficient, ...] = ("tau-b", "tau-c", "spearman", "pearson")
ACCURACY = "accuracy"
# Single ratings as units are there to show what they do; these are enough for that.
BY_RATING = ("tau-c", "pearson", ACCURACY)


@dataclass(frozen=True)
class Setting:
    """The distribution of simulated judgements.

    Attributes:
        images: number of images.
        captions: captions an image.
        ratings: ratings a caption.
        pairs: pairs of captions an image.
        alike: share of the variance that the captions of an image have in common.
    """

    images: int
    captions: int
    ratings: int
    pairs: int
    alike: float


SETTINGS = {
    "independent": Setting(400, 1, 1, 1, 0.0),
    "dependent": Setting(400, 4, 3, 3, 0.4),
}


@dataclass(frozen=True, eq=False)
class Judged:
    """One draw: ratings with two metrics' scores, and pairs with theirs."""

    image: IntArray
    human: FloatArray
    scores: dict[str, FloatArray]
    pair_image: IntArray
    first: dict[str, FloatArray]
    second: dict[str, FloatArray]
    preferred: IntArray


def draw(setting: Setting, rng: np.random.Generator, images: int | None = None) -> Judged:
    """Draw judgements. Ratings have four levels; scores on pairs have two decimals, so that some tie."""
    count = images or setting.images
    quality, scores, image = _captions(setting, rng, count, setting.captions)
    rated = np.repeat(np.arange(len(quality)), setting.ratings)
    human = _ratings(quality[rated], rng)
    one, one_scores, pair_image = _captions(setting, rng, count, setting.pairs)
    # The second caption of a pair is another caption of the same image.
    other_quality = one * setting.alike + rng.normal(size=len(one)) * np.sqrt(1 - setting.alike**2)
    other_scores = {name: _score(other_quality, pair_image, setting, rng) for name in one_scores}
    votes = np.sign(one[:, None] - other_quality[:, None] + rng.normal(size=(len(one), 5)) * 0.8)
    return Judged(
        image[rated],
        human,
        {name: values[rated] for name, values in scores.items()},
        pair_image,
        {name: np.round(values, 1) for name, values in one_scores.items()},
        {name: np.round(values, 1) for name, values in other_scores.items()},
        np.sign(votes.sum(axis=1)).astype(np.int64),
    )


def _captions(
    setting: Setting, rng: np.random.Generator, images: int, each: int
) -> tuple[FloatArray, dict[str, FloatArray], IntArray]:
    image = np.repeat(np.arange(images), each)
    common = rng.normal(size=images)[image]
    quality = np.sqrt(setting.alike) * common + np.sqrt(1 - setting.alike) * rng.normal(size=len(image))
    return quality, {name: _score(quality, image, setting, rng) for name in ("a", "b")}, image


def _score(quality: FloatArray, image: IntArray, setting: Setting, rng: np.random.Generator) -> FloatArray:
    common = rng.normal(size=int(image.max()) + 1)[image]
    error = np.sqrt(setting.alike) * common + np.sqrt(1 - setting.alike) * rng.normal(size=len(image))
    return np.asarray(0.6 * quality + 0.8 * error, dtype=np.float64)


def _ratings(quality: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.clip(np.floor(2.3 + 1.1 * quality + 0.7 * rng.normal(size=len(quality))), 1.0, 4.0)


def truths(setting: Setting, seed: int = 1, ratings: int = 960_000) -> dict[str, float]:
    """True values of metric ``a``, from a very large draw."""
    judged = draw(setting, np.random.default_rng(seed), ratings // (setting.captions * setting.ratings))
    true_values: dict[str, float] = {c: correlation(c, judged.scores["a"], judged.human).value for c in COEFFICIENTS}
    clear = judged.preferred != 0
    order = np.sign(judged.first["a"] - judged.second["a"])
    true_values[ACCURACY] = float((order == judged.preferred)[clear].mean())
    return true_values


def agreement(judged: Judged, statistic: str, by_image: bool) -> Agreement:
    """The data of one statistic, with images or single data points as units."""
    if statistic == ACCURACY:
        unit = judged.pair_image if by_image else None
        return Accuracies.of("strict", judged.first, judged.second, judged.preferred, unit=unit)
    coefficient = next(c for c in COEFFICIENTS if c == statistic)
    return Correlations.of(coefficient, judged.scores, judged.human, judged.image if by_image else None)


def covered(name: str, statistics: tuple[str, ...], truth: dict[str, float], seed: int) -> dict[tuple[str, str], bool]:
    """Intervals of one draw that contain the true value, by (statistic, kind of interval)."""
    setting = SETTINGS[name]
    judged = draw(setting, np.random.default_rng([11, seed]))
    is_covered: dict[tuple[str, str], bool] = {}
    for statistic in statistics:
        data = agreement(judged, statistic, by_image=True)
        sample = draw_bootstrap(data, seed=seed, workers=1)
        for method in ("percentile", "bca"):
            interval = bootstrap_intervals(data, sample, method=method, workers=1)["a"]
            is_covered[statistic, method] = interval.low <= truth[statistic] <= interval.high
        if statistic == ACCURACY:
            rows = data.credit["a"][0] if isinstance(data, Accuracies) else np.empty(0)
            formula = accuracy_interval(float(rows.sum()), len(rows))
        else:
            coefficient = next(c for c in COEFFICIENTS if c == statistic)
            formula = correlation_interval(coefficient, judged.scores["a"], judged.human)
        is_covered[statistic, "formula"] = formula.low <= truth[statistic] <= formula.high
        if name == "dependent" and statistic in BY_RATING:
            single = agreement(judged, statistic, by_image=False)
            interval = bootstrap_intervals(single, draw_bootstrap(single, seed=seed, workers=1))["a"]
            is_covered[statistic, "percentile, unit: rating"] = interval.low <= truth[statistic] <= interval.high
    return is_covered


def permuted(name: str, statistics: tuple[str, ...], alpha: float, seed: int) -> dict[tuple[str, str], bool]:
    """Permutation tests of one draw that reject: the default test only, for many more draws in the same time."""
    judged = draw(SETTINGS[name], np.random.default_rng([13, seed]))
    is_rejected = {}
    for statistic in statistics:
        data = agreement(judged, statistic, by_image=True)
        table = compare(data, correction="none", permutations=999, seed=seed, workers=1)
        is_rejected[statistic, "permutation"] = table.pairs[0].p_value <= alpha
    return is_rejected


def rejected(name: str, statistics: tuple[str, ...], alpha: float, seed: int) -> dict[tuple[str, str], bool]:
    """Tests of one draw that reject, by (statistic, test). Both metrics are equally good."""
    judged = draw(SETTINGS[name], np.random.default_rng([13, seed]))
    is_rejected: dict[tuple[str, str], bool] = {}
    for statistic in statistics:
        data = agreement(judged, statistic, by_image=True)
        sample = draw_bootstrap(data, resamples=999, seed=seed, workers=1)
        tests: list[Test] = ["permutation", "bootstrap"]
        if statistic == ACCURACY:
            tests.append("mcnemar")
        elif statistic in ("pearson", "spearman"):
            tests += ["williams", "steiger"]
        for test in tests:
            table = compare(data, test=test, correction="none", permutations=999, seed=seed, sample=sample, workers=1)
            is_rejected[statistic, test] = table.pairs[0].p_value <= alpha
        if statistic in ("tau-b", "tau-c", "spearman"):
            # An increasing map leaves a rank statistic as it is: the metrics are still equally good. It leaves the
            # permutation of ranks as it is, too, but not that of z-scores.
            skewed = replace(judged, scores={"a": judged.scores["a"], "b": np.exp(3 * judged.scores["b"])})
            data = agreement(skewed, statistic, by_image=True)
            table = compare(data, correction="none", permutations=999, seed=seed, scale="z-scores", workers=1)
            is_rejected[statistic, "permutation of z-scores, one metric skewed"] = table.pairs[0].p_value <= alpha
        if name == "dependent" and statistic in BY_RATING:
            single = agreement(judged, statistic, by_image=False)
            table = compare(single, correction="none", permutations=999, seed=seed, workers=1)
            is_rejected[statistic, "permutation, unit: rating"] = table.pairs[0].p_value <= alpha
    return is_rejected


def shares(
    work: Callable[[int], dict[tuple[str, str], bool]], draws: int, workers: int
) -> dict[tuple[str, str], float]:
    """Share of draws in which each entry of the results is true."""
    if workers == 1:
        results = [work(seed) for seed in range(draws)]
    else:
        with ProcessPoolExecutor(workers) as pool:
            results = list(pool.map(work, range(draws), chunksize=10))
    return {key: float(np.mean([result[key] for result in results])) for key in results[0]}


def main() -> None:
    """Print the two tables as Markdown."""
    parser = argparse.ArgumentParser(description="Coverage of intervals and false-positive rate of tests")
    parser.add_argument("--draws", type=int, default=2000, help="simulated data sets a setting")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--setting", choices=list(SETTINGS), help="one setting only")
    parser.add_argument("--table", choices=["coverage", "rejections", "permutation"], help="one table only")
    arguments = parser.parse_args()
    statistics = (*COEFFICIENTS, ACCURACY)
    for name, setting in SETTINGS.items():
        if arguments.setting not in (None, name):
            continue
        started = time.perf_counter()
        truth = truths(setting)
        print(f"\n{name}: true values " + ", ".join(f"{key} {value:.4f}" for key, value in truth.items()), flush=True)
        for title, work in (
            ("coverage of nominal 95 % intervals", partial(covered, name, statistics, truth)),
            ("rejections at 5 %", partial(rejected, name, statistics, 0.05)),
            ("permutation test alone at 5 %", partial(permuted, name, statistics, 0.05)),
        ):
            if (arguments.table or "") not in title or (arguments.table is None and work.func is permuted):
                continue
            shares_by_kind = shares(work, arguments.draws, arguments.workers)
            kinds = list(dict.fromkeys(kind for _, kind in shares_by_kind))
            print(f"\n{title}, {arguments.draws} data sets\n\n| statistic | {' | '.join(kinds)} |")
            print("|---|" + "---|" * len(kinds))
            for statistic in statistics:
                cells = [
                    f"{100 * shares_by_kind[statistic, k]:.1f}" if (statistic, k) in shares_by_kind else ""
                    for k in kinds
                ]
                print(f"| {statistic} | {' | '.join(cells)} |", flush=True)
        print(f"\n{time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
