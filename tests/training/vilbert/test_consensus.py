"""What captions share, against a plain computation from the definition."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from capbench.errors import DataError
from capbench.training.captions import Pairs
from capbench.training.vilbert.consensus import Consensus

CLS, SEP = 2, 3


def _made(images: int, seed: int = 0) -> tuple[Pairs, list[list[int]], np.ndarray]:
    """Images with 1 to 4 captions of 0 to 7 of nine words."""
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(images), rng.integers(1, 5, images))
    captions = [[CLS, *rng.integers(5, 14, rng.integers(0, 8)).tolist(), SEP] for _ in image_of]
    texts = [" ".join(map(str, caption)) for caption in captions]
    pairs = Pairs(tuple(f"i{k}" for k in range(images)), tuple(texts), image_of, Path("captions.json"))
    return pairs, captions, rng.normal(size=(images, 3))


def _vectors(pairs: Pairs, captions: list[list[int]], n: int) -> list[dict[tuple[int, ...], float]]:
    """Of each caption, its n-grams' counts times the logarithm of images by images with it (CIDEr's definition)."""
    grams = [[tuple(c[1:-1][k : k + n]) for k in range(len(c) - 1 - n)] for c in captions]
    in_images: Counter[tuple[int, ...]] = Counter()
    for image in range(len(pairs.images)):
        in_images.update({g for c in np.flatnonzero(pairs.image_of == image) for g in grams[c]})
    return [{g: k * math.log(len(pairs.images) / in_images[g]) for g, k in Counter(of).items()} for of in grams]


def _cosine(first: dict[tuple[int, ...], float], second: dict[tuple[int, ...], float]) -> float:
    norms = math.sqrt(sum(v * v for v in first.values()) * sum(v * v for v in second.values()))
    return sum(v * second.get(g, 0.0) for g, v in first.items()) / norms if norms else 0.0


def test_what_is_shared_is_the_mean_cosine_with_the_captions_that_are_asked() -> None:
    pairs, captions, looks = _made(12)
    consensus = Consensus(pairs, captions, looks)
    rng = np.random.default_rng(1)
    image_of = np.array([0, 3, 7, 11, 3])
    left_out = np.array([rng.permutation(np.flatnonzero(pairs.image_of == i))[[0, -1]] for i in image_of])
    candidates = rng.integers(0, len(captions), 9)
    shared = consensus.shared(image_of, left_out, candidates)
    assert shared.shape == (5, 9)
    assert (shared > 0.05).sum() > 10
    vectors = [_vectors(pairs, captions, n) for n in range(1, 5)]
    for row, image in enumerate(image_of):
        every = np.flatnonzero(pairs.image_of == image).tolist()
        asked = [c for c in every if c not in left_out[row]] or every
        for column, candidate in enumerate(candidates.tolist()):
            cosines = [_cosine(of[own], of[candidate]) for own in asked for of in vectors]
            assert shared[row, column] == pytest.approx(np.mean(cosines), abs=1e-6)


def test_candidates_are_captions_of_images_alike_by_text_and_by_look_in_turn() -> None:
    pairs, captions, looks = _made(200, seed=2)
    # Images come in two kinds: what they look like, and, otherwise parted, what is said of them.
    look, said = np.arange(200) % 2, np.arange(200) // 100
    looks = np.stack([look, 1 - look, np.zeros(200)], axis=1) + np.random.default_rng(3).normal(size=(200, 3)) / 50
    captions = [
        [CLS, *(word + 20 * said[i] for word in c[1:-1]), SEP] for i, c in zip(pairs.image_of, captions, strict=True)
    ]
    consensus = Consensus(pairs, captions, looks)
    image_of = np.repeat(np.flatnonzero(np.bincount(pairs.image_of[[len(c) > 2 for c in captions]], minlength=200)), 5)
    drawn = pairs.image_of[consensus.draw(image_of, 4, np.random.default_rng(4))]
    assert drawn.shape == (len(image_of), 4)
    assert (drawn != image_of[:, None]).all()
    assert (said[drawn[:, ::2]] == said[image_of][:, None]).mean() > 0.95
    assert (look[drawn[:, 1::2]] == look[image_of][:, None]).all()
    again = pairs.image_of[consensus.draw(image_of, 4, np.random.default_rng(4))]
    assert (again == drawn).all()


def test_one_image_alone_has_no_others() -> None:
    pairs, captions, looks = _made(1)
    with pytest.raises(DataError, match="two images"):
        Consensus(pairs, captions, looks)
