"""Choosing between trained grounding models, and between a metric's options, without human judgements.

Recall on held-out images rejects bad models and does not order good ones: a metric must tell a fair caption from a poor
one, not the right one from all others. So judgements are made up on images that nobody rated, in the way in which
Flickr8k's were collected (Hodosh et al. 2013): candidates are captions of *other* images, some of images that look
alike, some with similar texts, some from anywhere. What people would say is stood in for by what metrics say that
compare a candidate with the image's own captions and never see the picture: the mean of each metric's normal scores,
cut into equally many items a level. The criterion is tau-c between a metric and these levels, as for real ratings.

Text metrics are poor judges one by one, and all of one kind: differences of a few thousandths between good models mean
nothing, and a caption that is right in other words counts as poor. It is a way to choose, not a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, UsageError
from capbench.core.records import FloatArray, IntArray, Item, caption_key

__all__ = ["KINDS", "PseudoOptions", "draw_candidates", "normal_scores", "pseudo_levels"]

KINDS = ("looks-alike", "near-text", "mid-text", "anywhere")
"""Where candidates come from; :attr:`Item.group` says which."""


@dataclass(frozen=True)
class PseudoOptions:
    """How many candidates an image gets, and how they are rated.

    Attributes:
        each: candidates an image gets of each of :data:`KINDS`.
        look: from how many most similar images ``looks-alike`` is drawn.
        near: from how many captions with the most similar texts ``near-text`` is drawn.
        middle: ``mid-text`` is drawn from those behind ``near`` up to this rank.
        levels: of the rating.
        seed: of the draw.
    """

    each: int = 2
    look: int = 20
    near: int = 20
    middle: int = 500
    levels: int = 4
    seed: int = 0

    def check(self) -> None:
        """Raise UsageError if a number does not fit."""
        if not 1 <= self.each <= min(self.look, self.near, self.middle - self.near):
            raise UsageError(
                f"{self.each} candidates of each kind cannot be drawn from {self.look} images, {self.near} and "
                f"{self.middle - self.near} captions",
                hint="Draw fewer, or from more",
            )
        if self.levels < 2:
            raise UsageError(f"{self.levels} levels order nothing", hint="Choose 2 or more")


def draw_candidates(
    captions: Mapping[str, Sequence[str]], looks: NDArray[np.floating], options: PseudoOptions | None = None
) -> tuple[Item, ...]:
    """Candidates from other images' captions.

    Args:
        captions: each held-out image's own captions: references of its items, candidates of others'.
        looks: (images, d) one vector an image, in the order of ``captions`` (the mean of its region features).
        options: see :class:`PseudoOptions`.

    Returns:
        Items image by image, ``4 × each`` of them each, with their kind as group. No candidate has the text of one of
        the image's own captions, and none stands twice at an image.

    Raises:
        DataError: there are too few images, or vectors do not fit them.
        UsageError: an option does not fit.
    """
    options = options or PseudoOptions()
    options.check()
    images = list(captions)
    if looks.shape[:1] != (len(images),) or looks.ndim != 2 or not np.isfinite(looks).all():
        raise DataError(f"there are looks of shape {looks.shape} for {len(images)} images")
    texts = [text for image in images for text in captions[image]]
    owner = np.repeat(np.arange(len(images)), [len(captions[image]) for image in images])
    if len(images) <= options.look or len(texts) <= options.middle + len(texts) // len(images):
        raise DataError(
            f"{len(images)} images with {len(texts)} captions are too few to draw candidates from",
            hint=f"Give more, or look at fewer than {options.look} images and {options.middle} captions",
        )
    rng = np.random.default_rng(options.seed)
    alike = _by_similarity(looks)
    vectors = _text_vectors(texts)
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    near = vectors @ _unit(np.add.reduceat(vectors, starts)).T  # (captions, images): against all of an image's captions
    keys = [caption_key(text) for text in texts]
    items = []
    for i, image in enumerate(images):
        taken = {keys[j] for j in np.flatnonzero(owner == i)}
        ranked = np.argsort(-near[:, i], kind="stable")
        ranked = ranked[owner[ranked] != i]
        pools = (
            np.flatnonzero(np.isin(owner, alike[i, : options.look])),
            ranked[: options.near],
            ranked[options.near : options.middle],
            ranked,
        )
        for kind, pool in zip(KINDS, pools, strict=True):
            chosen: list[int] = []
            for j in rng.permutation(pool).tolist():
                if len(chosen) < options.each and keys[j] and keys[j] not in taken:
                    taken.add(keys[j])
                    chosen.append(j)
            if len(chosen) < options.each:
                raise DataError(f"image '{image}': there are not {options.each} other texts of the kind {kind}")
            references = tuple(captions[image])
            items += [Item(image, texts[j], references, f"{images[owner[j]]}#{j}", kind) for j in chosen]
    return tuple(items)


def _unit(vectors: NDArray[np.floating]) -> FloatArray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms > 0, norms, 1.0), dtype=np.float64)


def _by_similarity(looks: NDArray[np.floating]) -> IntArray:
    """(images, images - 1) other images of each, the most similar first: cosine after the mean is taken away."""
    unit = _unit(looks - looks.mean(axis=0))
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    return np.argsort(-similar, axis=1, kind="stable")[:, :-1]


def _text_vectors(texts: Sequence[str]) -> FloatArray:
    """(texts, words) unit vectors of log(1 + count) times the words' inverse document frequency."""
    split = ["".join(c if c.isalnum() else " " for c in text.lower()).split() for text in texts]
    place = {word: i for i, word in enumerate(sorted({word for words in split for word in words}))}
    counts = np.zeros((len(texts), len(place)), dtype=np.float32)
    for row, words in enumerate(split):
        for word in words:
            counts[row, place[word]] += 1
    rarity = np.log(len(texts) / np.maximum(1, (counts > 0).sum(axis=0)))
    return _unit(np.log1p(counts) * rarity)


def normal_scores(values: FloatArray) -> FloatArray:
    """Each value as the normal quantile of its rank (van der Waerden): metrics of different scales as one. (n,)"""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks: FloatArray = rankdata(values)
    scores: FloatArray = ndtri(ranks / (len(values) + 1))
    return scores


def pseudo_levels(scores: Sequence[FloatArray], levels: int = 4) -> IntArray:
    """Made-up ratings: the metrics' mean normal score, cut so that every level has equally many items.

    Args:
        scores: (n,) of each metric, higher is better.
        levels: from 1, the worst, upwards.

    Raises:
        DataError: there are no metrics or fewer items than levels.
    """
    if not scores or len(scores[0]) < levels:
        raise DataError(f"there is nothing to cut into {levels} levels")
    mixed = np.mean([normal_scores(values) for values in scores], axis=0)
    order = np.argsort(mixed, kind="stable")
    level_of = np.empty(len(mixed), dtype=np.int64)
    level_of[order] = 1 + np.arange(len(mixed)) * levels // len(mixed)
    return level_of
