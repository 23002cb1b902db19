"""A feature store that shows other features than an image's own, to measure what a metric takes from the image.

Three kinds: ``blank`` (zeros), ``mean`` (one vector for all regions of all images, the mean over training images) and
``shuffled`` (all of another image's regions, boxes included). Under the first two, an image keeps its number of
regions, its boxes and its classes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import FeatureError, UsageError
from capbench.core.records import image_id
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore


def derangement(images: Iterable[str], seed: int) -> dict[str, str]:
    """Each image's partner: a permutation in one cycle, so that no image is its own partner (Sattolo, 1986)."""
    ordered = sorted(set(images))
    if len(ordered) < 2:
        message = f"image=shuffled requires at least two images, but there {'is one' if ordered else 'are none'}"
        raise UsageError(message, code="too-few", value=len(ordered), hint="Score captions of several images")
    places, rng = list(range(len(ordered))), np.random.default_rng(seed)
    for last in range(len(places) - 1, 0, -1):
        other = int(rng.integers(last))
        places[last], places[other] = places[other], places[last]
    return {image: ordered[place] for image, place in zip(ordered, places, strict=True)}


def partners(groups: Mapping[str, Sequence[str]], seed: int) -> dict[str, str]:
    """Derangements of a data set's images, one for the images of each group.

    An image's partner is of the same groups, so that features of a single group suffice to score this group.

    ``groups``: image → groups of its items. If some combination of groups has only one image, groups are ignored.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    for image, of_image in groups.items():
        alike.setdefault(tuple(sorted(set(of_image))), []).append(image)
    if any(len(images) < 2 for images in alike.values()):
        return derangement(groups, seed)
    return {image: partner for images in alike.values() for image, partner in derangement(images, seed).items()}


class ShownStore(FeatureStore):
    """A store under one of the three kinds; ids, header and membership are those of the files."""

    def __init__(
        self,
        paths: Sequence[Path],
        kind: str,
        *,
        vector: NDArray[np.float32] | None = None,
        partner_of: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(paths)
        self._kind, self._vector, self._partner_of = kind, vector, partner_of
        self.shown = kind
        if vector is not None:
            if len(vector) != self.feature_size:
                raise FeatureError(
                    f"has features of {self.feature_size} columns, but the training images' mean has {len(vector)}",
                    code="wrong-features",
                    value=len(vector),
                    path=self.paths[0],
                    hint="Use the features that the network was trained on",
                )
            self.shown = f"mean:{hashlib.sha256(vector.tobytes()).hexdigest()[:16]}"
        if partner_of is not None:
            pairs = "\n".join(f"{image}\t{partner_of[image]}" for image in sorted(partner_of))
            digest = hashlib.sha256(pairs.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            self.shown = f"shuffled:seed{seed}:{len(partner_of)}-images:{digest}"

    def signature(self) -> str:
        """The files' signature, and what is shown instead; blank features are named by the metric's option alone."""
        return super().signature() if self._kind == "blank" else f"{super().signature()}+{self.shown}"

    def __getitem__(self, image: str) -> RegionFeatures:
        """The regions shown for an image. Errors are those of :class:`FeatureStore`."""
        regions = super().__getitem__(self._source(image))
        if self._kind == "shuffled":
            return replace(regions, image=image)
        features = np.zeros_like(regions.features)
        if self._vector is not None:
            features[:] = self._vector
        return replace(regions, features=features)

    def regions(self, image: str) -> int:
        """Number of regions shown for an image."""
        return super().regions(self._source(image))

    def checksum(self, image: str) -> int | None:
        """The checksum of the stored regions behind those shown."""
        return super().checksum(self._source(image))

    def require(self, images: Sequence[str]) -> None:
        """Raise one MissingFeaturesError for images, and images shown in their place, that are missing."""
        super().require([*images, *map(self._source, images)])

    def _source(self, image: str) -> str:
        """The image whose stored regions are read. Raises FeatureError for one without a partner."""
        if self._partner_of is None:
            return image
        if image not in self._partner_of:
            message = f"no other image is known for '{image}', which is not an image of the data set"
            hint = "Use image=seen, or score the data set's own images"
            raise FeatureError(message, code="unknown-name", value=image, hint=hint)
        return self._partner_of[image]


# The mean over training images.

MEAN_KEY = "feature mean"
"""Key of the mean features of the training images among the facts of the training in a network's file."""


def read_images(path: str | Path) -> list[str]:
    """Ids of the images in a list: a text file with one file name or id per line."""
    return list(dict.fromkeys(image_id(line.strip()) for line in files.read_lines(path) if line.strip()))


def mean_features(store: FeatureStore, images: Sequence[str]) -> NDArray[np.float32]:
    """(D,) the mean over images of the mean of an image's regions."""
    store.require(images)
    total = np.zeros(store.feature_size)
    for image in images:
        total += store[image].features.mean(axis=0, dtype=np.float64)
    mean: NDArray[np.float32] = (total / len(images)).astype(np.float32)
    return mean


def mean_to_text(mean: NDArray[np.float32]) -> str:
    """A mean as text for a trained file's facts: base64 of little-endian float32."""
    return base64.b64encode(mean.astype("<f4").tobytes()).decode("ascii")


def mean_from_text(text: str) -> NDArray[np.float32]:
    """The (D,) mean of :func:`mean_to_text`. Raises ValueError if it is not one."""
    mean = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float32)
    if not len(mean) or not np.isfinite(mean).all():
        raise ValueError
    return mean
