"""What LEIC tells apart: people's captions of an image from ruined ones, another image's, and systems'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.text.vocabulary import SPECIAL

__all__ = ["Images", "Pair", "draw_negative", "permuted", "replaced"]

Numbers = Sequence[int]
"""Word numbers of a caption, with ``<end>``."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images with what was written about them.

    Attributes:
        names: ids.
        vectors: (n, D) float32, one an image.
        human: captions of each, as word numbers; two at least.
        machine: captions of each by system, as word numbers; of no image, or of all.
    """

    names: tuple[str, ...]
    vectors: NDArray[np.float32]
    human: tuple[tuple[Numbers, ...], ...]
    machine: tuple[Mapping[str, Numbers], ...] = ()

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Pair:
    """A caption beside a reference.

    Attributes:
        image: place of the image.
        reference: word numbers.
        candidate: word numbers.
        human: whether the candidate is a person's caption of the image.
        kind: ``human``, one of :data:`capbench.training.leic.config.NEGATIVES`, or ``machine``.
    """

    image: int
    reference: Numbers
    candidate: Numbers
    human: bool
    kind: str


def draw_negative(images: Images, image: int, kind: str, words: int, rng: np.random.Generator) -> Numbers:
    """A caption that is none of a person's of an image.

    Args:
        images: all.
        image: place of the image.
        kind: one of :data:`capbench.training.leic.config.NEGATIVES`, or ``machine``.
        words: size of the vocabulary.
        rng: draws image, caption, places and words.
    """
    if kind == "machine":
        of_image = images.machine[image]
        return of_image[sorted(of_image)[int(rng.integers(len(of_image)))]]
    if kind == "other-image":
        other = (image + 1 + int(rng.integers(len(images) - 1))) % len(images)
        captions = images.human[other]
        return captions[int(rng.integers(len(captions)))]
    captions = images.human[image]
    caption = captions[int(rng.integers(len(captions)))]
    return replaced(caption, words, rng) if kind == "replaced-words" else permuted(caption, rng)


def _places(caption: Numbers, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places of two to all but one of a caption's words, as the released code draws them; of a caption of one or two
    words all."""
    length = len(caption) - 1
    number = length if length <= 2 else int(rng.integers(2, length))
    return rng.choice(length, number, replace=False)


def replaced(caption: Numbers, words: int, rng: np.random.Generator) -> Numbers:
    """The caption with some of its words replaced by ones drawn from the vocabulary, but for the special ones."""
    ruined = list(caption)
    if len(caption) < 2 or words <= len(SPECIAL):  # nothing but <end>, or nothing to replace words with
        return ruined
    for place in _places(caption, rng).tolist():
        ruined[place] = int(rng.integers(len(SPECIAL), words))
    return ruined


def permuted(caption: Numbers, rng: np.random.Generator) -> Numbers:
    """The caption with some of its words in another order; drawn again once if that is the same order."""
    ruined = list(caption)
    if len(caption) < 3:
        return ruined
    places = _places(caption, rng)
    order = rng.permutation(places)
    if (order == places).all():
        order = rng.permutation(places)
    for place, source in zip(places.tolist(), order.tolist(), strict=True):
        ruined[place] = caption[source]
    return ruined
