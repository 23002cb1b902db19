"""Random choices that are the same on every machine.

Only ``Generator.random()`` is used: it is PCG64's raw output divided by 2**53, while the streams of the other
methods may change between numpy versions.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

__all__ = ["SEED", "below", "chance", "normal", "pick", "shuffled", "stream", "weighted"]

SEED = 20253  # of the whole sample; of 16 tried, the one that spreads classes and backgrounds best over the splits

T = TypeVar("T")


def stream(*names: str) -> np.random.Generator:
    """A generator of its own for one purpose, so that one scene can be made again without the others."""
    return np.random.Generator(np.random.PCG64([SEED, *(zlib.crc32(name.encode()) for name in names)]))


def below(rng: np.random.Generator, n: int) -> int:
    """A whole number from 0 to n - 1."""
    return min(int(rng.random() * n), n - 1)


def chance(rng: np.random.Generator, probability: float) -> bool:
    """True with the given probability."""
    return bool(rng.random() < probability)


def pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    """One of some things, all equally likely."""
    return choices[below(rng, len(choices))]


def weighted(rng: np.random.Generator, weights: Mapping[T, float]) -> T:
    """One of some things, with probabilities in proportion to their weights."""
    at = rng.random() * sum(weights.values())
    for choice, weight in weights.items():
        at -= weight
        if at < 0:
            return choice
    return next(reversed(list(weights)))


def shuffled(rng: np.random.Generator, items: Sequence[T]) -> list[T]:
    """The items in random order (Fisher and Yates)."""
    result = list(items)
    for i in range(len(result) - 1, 0, -1):
        j = below(rng, i + 1)
        result[i], result[j] = result[j], result[i]
    return result


def normal(rng: np.random.Generator) -> float:
    """A number of mean 0 and standard deviation 1 (sum of twelve uniform ones: sums are exact everywhere)."""
    return float(sum(rng.random() for _ in range(12)) - 6.0)
