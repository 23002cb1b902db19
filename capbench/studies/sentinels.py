"""Sentinel metrics: how much agreement with human ratings does not require comparing the caption with its image.

A metric that does not agree better with the raters than every sentinel may owe its agreement to the same cues.

``source`` and ``candidate-only`` are learned by cross-validation over photographs: no rating of a photograph enters the
scores of its captions. Both predict deviations from the mean rating of the training folds, so that all folds share one
constant. ``image-mean`` depends on ratings of the same photograph and is a diagnostic only.

References:
    Perrella, S., Proietti, L., Scirè, A., Barba, E. and Navigli, R. (2024). Guardians of the machine translation
    meta-evaluation: Sentinel metrics fall in! ACL.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from capbench.core.errors import StatisticError, count
from capbench.core.records import FloatArray, IntArray, Item, Judgements, Preferences
from capbench.datasets.protocol import Protocol, StatisticSpec
from capbench.stats.nested_cross_validation import deal
from capbench.stats.resampling import unit_codes
from capbench.studies.data_points import photograph_codes

FOLDS = 5  # of the learned sentinels
PENALTY = 36.0  # of ``candidate-only``: it minimises ``Σ (rating - prediction)² + PENALTY Σ weight²``
MAX_LENGTH = 40  # longer captions have the same length feature in ``candidate-only``

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_TOKEN = re.compile(rf"{_WORD.pattern}|[,.]")
_VERSION = 1
# Conjugate gradients end when the gradient has this length, relative to the one at 0. Each step reduces the error
# by a factor that depends on the penalty only; 100 steps are usual.
_CONVERGED, _MAX_STEPS = 1e-9, 2000


@dataclass(frozen=True, eq=False)
class SentinelScores:
    """Scores of one sentinel."""

    values: FloatArray  # (draws, items), in the order of the judgements' items
    inputs: str  # what the scores are computed from, in words
    signature: str  # everything that determines the scores


@dataclass(frozen=True, eq=False)
class _Data:
    """The judgements of a protocol as arrays over items."""

    draws: Sequence[Judgements]
    unit: IntArray  # (n,) number of each item's photograph
    fold: IntArray | None  # (n,) fold of each item; None if there are too few photographs
    total: FloatArray  # (n,) sum of each item's ratings
    number: IntArray  # (n,) number of its ratings
    pairs: Preferences | None  # with a preferred caption, if the judgements are preferences
    spec: StatisticSpec

    @property
    def items(self) -> Sequence[Item]:
        return self.draws[0].items

    @property
    def ranks(self) -> bool:
        """True if the statistic depends on the ranks of all captions' scores."""
        return self.spec.level == "captions" and self.spec.coefficient not in (None, "pearson")

    def folds(self) -> IntArray:
        if self.fold is None:
            images = len(np.unique(self.unit))
            message = f"it is learned from judgements of {FOLDS} images or more, and there are {images}"
            raise StatisticError(message, code="too-few", value=images)
        return self.fold


@dataclass(frozen=True)
class _Sentinel:
    inputs: str
    scores: Callable[[_Data], FloatArray]
    settings: str = ""
    learned: bool = True


def sentinel_scores(
    protocol: Protocol, draws: Sequence[Judgements], *, seed: int = 0
) -> dict[str, SentinelScores | str]:
    """Scores of all sentinels for a protocol's captions, or the reason why one is undefined, by name."""
    data = _data(protocol, draws, seed)
    digest = _checksum(protocol, draws[0])
    made: dict[str, SentinelScores | str] = {}
    for name, sentinel in _SENTINELS.items():
        try:
            values = np.atleast_2d(sentinel.scores(data))
        except StatisticError as error:
            made[name] = error.message
            continue
        parts = [name, f"capbench:{_VERSION}"]
        if sentinel.learned:
            parts += ["ranks"] if name == "source" and data.ranks else []
            parts += [sentinel.settings.format(seed=seed), f"human:{protocol.statistic.human}", f"judgements:{digest}"]
        signature = "|".join(filter(None, parts))
        made[name] = SentinelScores(np.tile(values, (len(draws) // len(values), 1)), sentinel.inputs, signature)
    return made


def word_count(text: str) -> int:
    """Number of words of a caption, without punctuation.

    >>> word_count("A man's dog, 3 years old.")
    6
    """
    return len(_WORD.findall(text))


def _data(protocol: Protocol, draws: Sequence[Judgements], seed: int) -> _Data:
    judgements, human = draws[0], protocol.statistic.human
    size = len(judgements.items)
    unit, units = photograph_codes(judgements.items)
    total: FloatArray = np.zeros(size)
    number: IntArray = np.zeros(size, dtype=np.int64)
    pairs = None
    if protocol.statistic.side == "preferences":
        pairs = judgements.preferences[human]
        kept = np.flatnonzero(np.asarray(pairs.preferred) != 0)
        groups = tuple(pairs.group[place] for place in kept.tolist())
        pairs = Preferences(pairs.first[kept], pairs.second[kept], pairs.preferred[kept], groups, pairs.votes[kept])
        rated = pairs.first
    else:
        ratings = judgements.ratings[human]
        total = np.asarray(np.bincount(ratings.item, ratings.value, size), dtype=np.float64)
        number = np.bincount(ratings.item, minlength=size)
        rated = np.flatnonzero(number)
    fold = None
    if len(np.unique(unit[rated])) >= FOLDS:
        # Captions of a photograph without judgements may be scored by any fold's model.
        fold = np.maximum(deal(unit[rated], FOLDS, units, seed), 0)[unit]
    return _Data(draws, unit, fold, total, number, pairs, protocol.statistic)


def _checksum(protocol: Protocol, judgements: Judgements) -> str:
    """Checksum of captions, sources and human judgements, 16 hex digits."""
    state = hashlib.blake2b(digest_size=8)
    for item in judgements.items:
        for text in (item.image, item.candidate, item.system):
            state.update(text.encode())
            state.update(b"\x1f")
    human = protocol.statistic.human
    if protocol.statistic.side == "preferences":
        pairs = judgements.preferences[human]
        arrays: list[Any] = [pairs.first, pairs.second, pairs.preferred]
    else:
        arrays = [judgements.ratings[human].item, judgements.ratings[human].value]
    for array in arrays:
        state.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return state.hexdigest()


def _length_ratio(data: _Data) -> FloatArray:
    words, rows = cache(word_count), []
    for judgements in data.draws:
        means = np.empty(len(judgements.items))
        for place, item in enumerate(judgements.items):
            references = item.references
            if not any(map(words, references)):
                what = "references without words" if references else "no references"
                raise StatisticError(f"a caption of image '{item.image}' has {what}", value=item.image)
            means[place] = sum(map(words, references)) / len(references)
        rows.append([words(item.candidate) for item in judgements.items] / means)
    return np.stack(rows)


def _source(data: _Data) -> FloatArray:
    """Deviation of the source's mean rating, or mean share of preferences, from the mean over all sources.

    For a rank statistic over all captions, sources are ranked by it (:func:`_source_ranks`): otherwise the captions of
    one source would have different scores in each fold, in the opposite order of the folds' ratings.
    """
    if data.spec.level == "sources":
        # The differences between the folds would order a source's captions against their ratings.
        raise StatisticError("within a source, all captions have its mean", code="unsupported", value="source")
    systems = np.array([item.system for item in data.items], dtype=np.str_)
    known = np.flatnonzero(data.number) if data.pairs is None else np.union1d(data.pairs.first, data.pairs.second)
    if unnamed := int(np.count_nonzero(systems[known] == "")):
        some = "captions" if unnamed == len(known) else count(unnamed, "caption")
        raise StatisticError(f"the data set does not name the sources of {some}")
    if len(np.unique(systems[known])) == 1:
        raise StatisticError("all captions are of one source", code="too-few", value=1)
    source, sources = unit_codes(systems)
    if len(np.unique(source[known])) == len(np.unique(np.stack([source[known], data.unit[known]]), axis=1).T):
        raise StatisticError("no source has judged captions of two images", code="too-few", value=1)
    fold = data.folds()
    if data.pairs is None:
        total, number = data.total, data.number.astype(np.float64)
    else:
        wins = (np.asarray(data.pairs.preferred) > 0).astype(np.float64)
        size = len(systems)
        captions = np.concatenate([data.pairs.first, data.pairs.second])
        total = np.asarray(np.bincount(captions, np.concatenate([wins, 1 - wins]), size), dtype=np.float64)
        number = np.bincount(captions, minlength=size).astype(np.float64)
    scores = np.zeros(len(systems))
    for held_out in range(FOLDS):
        training = fold != held_out
        sums, sizes = (np.bincount(source[training], each[training], sources) for each in (total, number))
        # A source without training ratings has the mean of all.
        deviation = np.where(sizes > 0, sums / np.maximum(sizes, 1) - sums.sum() / sizes.sum(), 0.0)
        if data.ranks:
            rated = training & (number > 0)
            deviation = _source_ranks(deviation, source[rated], total[rated] / number[rated])
        scores[~training] = deviation[source[~training]]
    return scores


def _source_ranks(deviation: FloatArray, source: IntArray, ratings: FloatArray) -> FloatArray:
    """(k,) average ranks of sources, from 0, where neighbours are tied if they differ by less than one standard error.

    ``deviation`` (k,) of the sources' means, ``source`` (n,) of rated captions, ``ratings`` (n,) their mean ratings.
    """
    sizes = np.bincount(source, minlength=len(deviation)).astype(np.float64)
    means = np.bincount(source, ratings, len(deviation)) / np.maximum(sizes, 1)
    squares = float(((ratings - means[source]) ** 2).sum())
    variance = squares / max(1, len(ratings) - int(np.count_nonzero(sizes)))
    order = np.argsort(deviation, kind="stable")
    of_mean = variance / np.maximum(sizes[order], 1)
    apart = np.diff(deviation[order]) > np.sqrt(of_mean[1:] + of_mean[:-1])
    tied = np.concatenate([[0], np.cumsum(apart)])
    ranks = np.empty(len(deviation))
    ranks[order] = (np.bincount(tied, np.arange(len(tied))) / np.bincount(tied))[tied]
    return ranks


def _image_mean(data: _Data) -> FloatArray:
    if data.pairs is not None:
        raise StatisticError("the judgements are preferences, so an image has no mean rating", code="unsupported")
    if data.spec.level in ("images", "systems"):
        # With all captions of an image, the order is the reverse of the ratings.
        message = "the statistic compares within images, where the better a caption is rated, the worse are the others"
        raise StatisticError(message, code="unsupported", value="image-mean")
    image_total = np.bincount(data.unit, data.total)
    image_number = np.bincount(data.unit, data.number).astype(np.int64)
    total, number = image_total[data.unit], image_number[data.unit]
    others = number - data.number
    alone = others == 0
    if bool(alone[data.number > 0].all()):
        raise StatisticError("no image has two rated captions", code="too-few", value=1)
    # The only rated caption of an image gets the mean rating of all other images.
    elsewhere = (data.total.sum() - total) / np.maximum(data.number.sum() - number, 1)
    return np.asarray(np.where(alone, elsewhere, (total - data.total) / np.maximum(others, 1)), dtype=np.float64)


def _candidate_only(data: _Data) -> FloatArray:
    """Ridge regression on binary features of the text; on preferences, least squares of ±1 on feature differences."""
    fold = data.folds()
    texts, text = np.unique(np.array([item.candidate for item in data.items], dtype=object), return_inverse=True)
    features = _features(texts.tolist())
    scores = np.empty(len(text))
    for held_out in range(FOLDS):
        training = fold != held_out
        if data.pairs is None:
            # Captions with one text are one row, scaled by the root of their number.
            rated = np.flatnonzero(training & (data.number > 0))
            mean = data.total[rated] / data.number[rated]
            sizes = np.bincount(text[rated], minlength=len(texts))
            rows = np.flatnonzero(sizes)
            target = np.bincount(text[rated], mean - mean.mean(), len(texts))[rows] / np.sqrt(sizes[rows])
            matrix = features[rows].multiply(np.sqrt(sizes[rows])[:, None]).tocsr()
        else:
            chosen = np.flatnonzero(training[data.pairs.first])
            matrix = features[text[data.pairs.first[chosen]]] - features[text[data.pairs.second[chosen]]]
            target = np.asarray(data.pairs.preferred)[chosen].astype(np.float64)
        scores[~training] = (features @ _ridge(matrix, target))[text[~training]]
    return scores


def _features(texts: Sequence[str]) -> Any:
    """(n, k) sparse binary features: words and bigrams, length, capital initial, final full stop."""
    import scipy.sparse

    csr_array: Any = scipy.sparse.csr_array  # its stubs do not declare (values, (rows, columns))
    columns: dict[tuple[str, ...] | str | int, int] = {}
    ends, places = [0], []
    found: dict[tuple[str, ...] | str | int, None]
    for original in texts:
        stripped = original.strip()
        tokens = _TOKEN.findall(stripped.lower())
        # Without repeats, in the order of the text: a set of strings has another order in every process.
        found = dict.fromkeys([*tokens, *itertools.pairwise(tokens), min(len(tokens), MAX_LENGTH)])
        if stripped[:1].isupper():
            found[("capital",)] = None
        if stripped.endswith("."):
            found[("full stop",)] = None
        places += [columns.setdefault(feature, len(columns)) for feature in found]
        ends.append(len(places))
    return csr_array((np.ones(len(places)), np.array(places), np.array(ends)), shape=(len(texts), len(columns)))


def _ridge(matrix: Any, target: FloatArray) -> FloatArray:
    """(k,) weights that minimise ``Σ (target - matrix @ weights)² + PENALTY Σ weights²``, by conjugate gradients."""
    transposed = matrix.T.tocsr()  # made once: a product with the transpose would copy it every time
    weights = np.zeros(matrix.shape[1])
    residual = np.asarray(transposed @ target, dtype=np.float64)
    direction = residual
    square = start = _dot(residual, residual)
    for _ in range(_MAX_STEPS):
        if square <= _CONVERGED**2 * start:
            break
        image = transposed @ (matrix @ direction) + PENALTY * direction
        step = square / _dot(direction, image)
        weights = weights + step * direction
        residual = residual - step * image
        before, square = square, _dot(residual, residual)
        direction = residual + square / before * direction
    return weights


def _dot(a: FloatArray, b: FloatArray) -> float:
    # Not a product of matrices, whose rounding may depend on the number of threads.
    return float(np.einsum("i,i->", a, b))


_FOLDS = f"folds:{FOLDS} by photograph, seed:{{seed}}"
_SENTINELS = {
    "length": _Sentinel(
        "the caption",
        lambda data: np.array([word_count(item.candidate) for item in data.items], dtype=np.float64),
        learned=False,
    ),
    "length-ratio": _Sentinel("the caption and its references", _length_ratio, learned=False),
    "source": _Sentinel("ratings of the same source's captions of other images", _source, _FOLDS),
    "candidate-only": _Sentinel(
        "the caption, and captions and ratings of other images",
        _candidate_only,
        f"ridge, penalty:{PENALTY:g}, n-grams:1-2, length:1-{MAX_LENGTH}|{_FOLDS}",
    ),
    "image-mean": _Sentinel("ratings of the image's other captions", _image_mean),
}
SENTINELS: tuple[str, ...] = tuple(_SENTINELS)
"""Names of the sentinels, in the order of tables."""
BOUNDS: tuple[str, ...] = ("image-mean",)
"""Sentinels that use ratings of the same image: they are printed, but no metric is compared with them."""
