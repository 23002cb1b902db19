"""Do statistics within images, within sources and over systems behave as theory says, and do their intervals cover?

Images differ in how hard they are, systems in how good they are, and every system describes every image. A metric is
the human score plus noise, with a bias for some systems. The true value of a statistic is that of a very large number
of images (for soft pairwise accuracy, which depends on their number, the mean over many draws).

Example: python scripts/level_simulation.py --draws 300
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from capbench.core.records import FloatArray, IntArray, SourceCoefficient, SystemCoefficient, WithinCoefficient
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap
from capbench.stats.significance import compare
from capbench.stats.system_agreement import Systems, system_agreement
from capbench.stats.within_images import WithinImages, within_images
from capbench.stats.within_sources import WithinSources

WITHIN: tuple[WithinCoefficient, ...] = ("tau-b", "spearman", "pearson", "acc-eq", "difference-pearson")
SOURCES: tuple[SourceCoefficient, ...] = ("tau-b", "tau-c", "pearson")
QUALITY = np.array([-0.6, -0.3, -0.1, 0.1, 0.3, 0.6])
BIAS = np.array([0.2, -0.3, 0.0, 0.3, -0.2, 0.0])
NOISE = 1.0


@dataclass(frozen=True, eq=False)
class Judged:
    """One draw: (systems · images) captions, their ratings, and two equally good metrics' scores."""

    human: FloatArray
    a: FloatArray
    b: FloatArray
    system: list[str]
    image: IntArray


def draw(rng: np.random.Generator, images: int, quality: FloatArray = QUALITY, bias: FloatArray = BIAS) -> Judged:
    """Draw judgements of so many images; ratings have half points from about 1 to 5."""
    systems = len(quality)
    hard = rng.normal(size=images)
    true = 3 + hard + quality[:, None] + 0.7 * rng.normal(size=(systems, images))
    human = np.round(2 * true) / 2
    scores = [
        true + 2 * hard + bias[:, None] + NOISE * rng.normal(size=(systems, images)) for _ in ("a", "b")
    ]  # a metric finds hard images harder than people do
    names = [f"s{system:02}" for system in range(systems) for _ in range(images)]
    return Judged(human.ravel(), scores[0].ravel(), scores[1].ravel(), names, np.tile(np.arange(images), systems))


def true_within(coefficient: WithinCoefficient, images: int = 40_000) -> float:
    """The statistic within images on a very large draw."""
    judged = draw(np.random.default_rng(1), images)
    return within_images(coefficient, judged.a, judged.human, judged.image).value


def true_system_pearson(images: int = 400_000) -> float:
    """Pearson's r of the systems' means on a very large draw."""
    judged = draw(np.random.default_rng(1), images)
    return system_agreement("pearson", judged.a, judged.human, judged.system, judged.image).value


def within_covered(coefficient: WithinCoefficient, truth: float, seed: int, images: int = 200) -> bool:
    """True if the interval of one draw contains the true value."""
    judged = draw(np.random.default_rng([2, seed]), images)
    data = WithinImages.of(coefficient, {"a": judged.a}, judged.human, judged.image)
    interval = bootstrap_intervals(data, draw_bootstrap(data, resamples=500, seed=seed))["a"]
    return interval.low <= truth <= interval.high


def within_rejected(coefficient: WithinCoefficient, seed: int, images: int = 200) -> bool:
    """True if two equally good metrics differ significantly at 5 % on one draw."""
    judged = draw(np.random.default_rng([3, seed]), images)
    data = WithinImages.of(coefficient, {"a": judged.a, "b": judged.b}, judged.human, judged.image)
    return compare(data, permutations=499, seed=seed).pairs[0].significant


def _of_sources(coefficient: SourceCoefficient, judged: Judged, scores: dict[str, FloatArray]) -> WithinSources:
    # The same levels in every draw, since tau-c depends on their number.
    human = np.clip(judged.human, 1, 5)
    return WithinSources.of(coefficient, scores, human, judged.system, judged.image)


def true_sources(coefficient: SourceCoefficient, images: int = 40_000) -> float:
    """The statistic within sources on a very large draw."""
    judged = draw(np.random.default_rng(1), images)
    data = _of_sources(coefficient, judged, {"a": judged.a})
    return float(data.statistic("a")(np.ones((1, data.units), dtype=np.int32))[0])


def sources_covered(coefficient: SourceCoefficient, truth: float, seed: int, images: int = 200) -> bool:
    """True if the interval of one draw contains the true value."""
    judged = draw(np.random.default_rng([8, seed]), images)
    data = _of_sources(coefficient, judged, {"a": judged.a})
    interval = bootstrap_intervals(data, draw_bootstrap(data, resamples=500, seed=seed))["a"]
    return interval.low <= truth <= interval.high


def sources_rejected(coefficient: SourceCoefficient, seed: int, images: int = 200) -> bool:
    """True if two metrics that differ only between sources differ significantly at 5 % on one draw."""
    judged = draw(np.random.default_rng([9, seed]), images)
    scores = {"a": judged.a, "b": judged.b - 10 * np.repeat(BIAS, images)}
    data = _of_sources(coefficient, judged, scores)
    return compare(data, permutations=499, seed=seed).pairs[0].significant


def systems_covered(coefficient: SystemCoefficient, truth: float, seed: int, images: int = 400) -> bool:
    """True if the interval of one draw contains the true value."""
    judged = draw(np.random.default_rng([4, seed]), images)
    data = Systems.of(coefficient, {"a": judged.a}, judged.human, judged.system, judged.image)
    interval = bootstrap_intervals(data, draw_bootstrap(data, resamples=500, seed=seed))["a"]
    return interval.low <= truth <= interval.high


def systems_rejected(coefficient: SystemCoefficient, seed: int, images: int = 400) -> bool:
    """True if two equally good metrics differ significantly at 5 % on one draw."""
    judged = draw(np.random.default_rng([5, seed]), images)
    metrics = {"a": judged.a, "b": judged.b}
    data = Systems.of(coefficient, metrics, judged.human, judged.system, judged.image)
    return compare(data, permutations=499, seed=seed).pairs[0].significant


def mean_soft_accuracy(
    draws: int, images: int, quality: FloatArray, noise: float, *, knows: bool = True, seed: int = 0
) -> float:
    """Mean soft pairwise accuracy of a metric that is the human score plus noise, or noise alone."""
    values = []
    for number in range(draws):
        rng = np.random.default_rng([6, seed, number])
        human = quality[:, None] + rng.normal(size=(len(quality), images))
        scores = knows * human + noise * rng.normal(size=human.shape)
        names = [f"s{system:02}" for system in range(len(quality)) for _ in range(images)]
        image = np.tile(np.arange(images), len(quality))
        values.append(system_agreement("soft-accuracy", scores.ravel(), human.ravel(), names, image).value)
    return float(np.mean(values))


def expected_soft_accuracy(noise: float, count: int = 2_000_000) -> float:
    """Expected value for equally good systems: ``1 - E|Φ(z₁) - Φ(z₂)|``, z correlated by ``1 / sqrt(1 + noise²)``."""
    from scipy.special import ndtr

    rng = np.random.default_rng(0)
    correlation = 1 / np.sqrt(1 + noise * noise)
    first = rng.normal(size=count)
    second = correlation * first + np.sqrt(1 - correlation**2) * rng.normal(size=count)
    return float(1 - np.abs(ndtr(first) - ndtr(second)).mean())


def main() -> None:
    """Print coverage and rejections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    draws = range(parser.parse_args().draws)
    for coefficient in WITHIN:
        truth = true_within(coefficient)
        coverage = np.mean([within_covered(coefficient, truth, seed) for seed in draws])
        rejections = np.mean([within_rejected(coefficient, seed) for seed in draws])
        shares = f"covered {coverage:.3f}, rejected {rejections:.3f}"
        print(f"within-image {coefficient}: true {truth:.4f}, {shares}", flush=True)
    for of_sources in SOURCES:
        truth = true_sources(of_sources)
        coverage = np.mean([sources_covered(of_sources, truth, seed) for seed in draws])
        rejections = np.mean([sources_rejected(of_sources, seed) for seed in draws])
        shares = f"covered {coverage:.3f}, rejected {rejections:.3f}"
        print(f"within-source {of_sources}: true {truth:.4f}, {shares}", flush=True)
    truth = true_system_pearson()
    coverage = np.mean([systems_covered("pearson", truth, seed) for seed in draws])
    rejections = np.mean([systems_rejected("pearson", seed) for seed in draws])
    print(f"system pearson: true {truth:.4f}, covered {coverage:.3f}, rejected {rejections:.3f}", flush=True)
    soft = []
    for seed in range(2000):
        judged = draw(np.random.default_rng([7, seed]), 400)
        agreed = system_agreement("soft-accuracy", judged.a, judged.human, judged.system, judged.image)
        soft.append(agreed.value)
    coverage = np.mean([systems_covered("soft-accuracy", float(np.mean(soft)), seed) for seed in draws])
    print(f"system soft-accuracy: mean {np.mean(soft):.4f}, covered {coverage:.3f}", flush=True)


if __name__ == "__main__":
    main()
