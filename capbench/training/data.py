"""Captions with images and splits as training data: reading, sampling, features, vocabulary, identity."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capbench.core.errors import DataError, FeatureError, MissingFileError, check_choice
from capbench.core.training_record import DEV, TrainingRecord, captions_of, photographs_of
from capbench.datasets.root import DataRoot
from capbench.datasets.user.caption_readers import read_captions_file
from capbench.features.records import RegionFeatures
from capbench.features.store import open_store
from capbench.text.vocabulary import SPECIAL, Vocabulary
from capbench.training.settings import AtLeast2, Count, Names, Number, Section, Text, Training

# Role → usual names of its splits.
ROLES = {"train": ("train", "restval"), "dev": ("dev", "val", "valid", "validation"), "test": ("test", "test_2016")}
Say = Callable[[str], None]
T = TypeVar("T")


class SplitOptions(Section):
    """The splits for each role; null: the usual names of the format."""

    train: Names | None = None
    dev: Names | None = None
    test: Names | None = None


class CaptionTraining(Training):
    """Settings of a training on pairs of captions and images with region features."""

    # Paths may change within a run, since their contents are compared.
    unchecked = (*Training.unchecked, "captions", "features", "memory_mb")

    captions: Text  # captions with splits: a file or folder, in the current folder or the data folder
    splits: SplitOptions = SplitOptions()
    features: Text  # a store of region features
    regions: Count | None = None  # number of regions of each image, the first ones; null: all
    batch: AtLeast2 = 128  # pairs per step
    order: Literal["captions", "rounds"] = "captions"
    """``captions`` shuffles all captions; ``rounds`` uses one caption of every image before the second of any, so that
    no batch has two captions of an image as each other's negatives."""
    memory_mb: Number = 4096.0  # maximum size of features in memory; larger ones are read batch by batch

    def dev_captions(self) -> int | None:
        """Number of captions of each dev image, the first ones; None: all."""
        return None


@dataclass(frozen=True)
class Pairs:
    """Captions of a role with their images."""

    images: tuple[str, ...]  # distinct ids
    captions: tuple[str, ...]  # texts; the captions of an image are adjacent
    image_of: NDArray[np.int64]  # (captions,) index in ``images`` of each caption's image
    source: Path  # the captions' file or folder, for messages

    def sample(self, images: int | None, captions: int | None = None) -> Pairs:
        """A random sample of images in their order, the same in all trainings, with the first captions of each."""
        return self.only(np.sort(np.random.default_rng(1).permutation(len(self.images))[:images]), captions)

    def only(self, chosen: NDArray[np.int64], captions: int | None = None) -> Pairs:
        """Some images, by ascending indices, with the first captions of each."""
        place = np.full(len(self.images), -1)
        place[chosen] = np.arange(len(chosen))
        kept = np.flatnonzero(place[self.image_of] >= 0)
        if captions is not None:
            kept = kept[kept - self.firsts()[self.image_of[kept]] < captions]
        return replace(
            self,
            images=tuple(self.images[i] for i in chosen),
            captions=tuple(self.captions[i] for i in kept),
            image_of=place[self.image_of[kept]],
        )

    def of_images(self, of_captions: Sequence[T]) -> list[list[T]]:
        """Group what belongs to captions by their images."""
        ends = [*self.firsts()[1:], len(self.captions)]
        return [list(of_captions[first:end]) for first, end in zip(self.firsts(), ends, strict=True)]

    def firsts(self) -> NDArray[np.int64]:
        """(images,) index of the first caption of each image."""
        return np.searchsorted(self.image_of, np.arange(len(self.images)))

    def fingerprint(self) -> str:
        """Sixteen hex digits that identify images and captions in their order."""
        return fingerprint(f"{self.images[i]}\x1f{t}" for i, t in zip(self.image_of, self.captions, strict=True))

    def batches(self, batch: int, order: str, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """The captions of each batch of an epoch (from 0), each caption once, by :attr:`CaptionTraining.order`."""
        rng, n = np.random.default_rng((seed, 1, epoch)), len(self.captions)
        if order == "captions":
            rounds = [rng.permutation(n)]
        else:
            shuffled = np.lexsort((rng.random(n), self.image_of))
            rank = np.arange(n) - self.firsts()[self.image_of]  # within the image
            rounds = [rng.permutation(shuffled[rank == number]) for number in range(int(rank.max()) + 1)]
        return [part[first : first + batch] for part in rounds for first in range(0, len(part), batch)]


def fingerprint(lines: Iterable[str]) -> str:
    """Sixteen hex digits that identify lines of text."""
    digest = hashlib.blake2b(digest_size=8)
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def locate(name: str, root: DataRoot | None, what: str) -> Path:
    """An existing path, or one below the data folder."""
    path = Path(name).expanduser()
    below = path if root is None else root.path / path
    found = next((place for place in (path, below) if place.exists()), None)
    if found is None:
        nor = f", nor {below}" if below != path else ""
        hint = "Correct the training file, whose first lines may make the features, or set the data folder with --data"
        raise MissingFileError(f"there is no such file or folder of {what}{nor}", value=name, path=path, hint=hint)
    return found


def read_pairs(config: Any, root: DataRoot | None, *roles: str) -> list[Pairs]:
    """The captions of roles (``train``, ``dev``, ``test``), by the settings captions, splits and features."""
    path = locate(config.captions, root, "captions")
    captions = read_captions_file(path)
    known = sorted(set(captions.groups.values()))
    found = []
    for role in roles:
        named = getattr(config.splits, role)
        for name in named or ():
            check_choice("split", name, known, DataError, path=path)
        splits = named or [name for name in ROLES[role] if name in known]
        if not splits:
            message = f"has no split with a usual name for {role} (splits: {', '.join(known)})"
            hint = f"Name it in the training file, as 'splits: {{{role}: NAME}}'"
            raise DataError(message, code="missing-option", value=role, path=path, hint=hint)
        of_role = captions.of_groups(*(splits if role == "train" or named else splits[:1]))
        numbers = [len(texts) for texts in of_role.values()]
        texts = tuple(text for of_image in of_role.values() for text in of_image)
        found.append(Pairs(tuple(of_role), texts, np.repeat(np.arange(len(numbers)), numbers), path))
    return found


def training_pairs(config: Any, root: DataRoot | None, say: Say) -> list[Pairs]:
    """The captions for train and dev, of different images."""
    pairs = read_pairs(config, root, "train", "dev")
    both = set(pairs[0].images) & set(pairs[1].images)
    if both:
        message = f"{len(both):,} images are for train and for dev, for example '{min(both)}'"
        hint = "Set other 'splits' in the training file"
        raise DataError(message, code="duplicate", value=min(both), path=pairs[0].source, hint=hint)
    sizes = [f"{len(p.images):,} images, {len(p.captions):,} captions" for p in pairs]
    say(f"captions: {pairs[0].source}: train {sizes[0]}, dev {sizes[1]}")
    return pairs


def training_record(train: Pairs, dev: Pairs, more: Iterable[str] = ()) -> TrainingRecord:
    """The record of a training: its images and captions (and ``more`` of these), and the dev images."""
    texts = captions_of([*train.captions, *more])
    return TrainingRecord("", photographs_of(train.images), texts, photographs_of(dev.images), DEV)


# Features.

More = Callable[[RegionFeatures], Sequence[NDArray[Any]]]
"""What a network reads of an image besides features, such as boxes: arrays of equal shapes for all images."""


class Regions:
    """Arrays of a split's images by index, features first, in memory if they fit, otherwise read on request."""

    def __init__(self, config: CaptionTraining, root: DataRoot | None, pairs: Pairs, more: More | None = None) -> None:
        store = open_store(locate(config.features, root, "features"))
        store.require(pairs.images)
        counts = [store.regions(image) for image in pairs.images]
        low, n, dtype = min(counts), config.regions or max(counts), np.dtype(store.header.dtype)
        if low < n:
            image = pairs.images[counts.index(low)]
            message = f"image '{image}' has {low} regions, but training requires {n} of every image"
            hint = f"Set 'regions: {low}' in the training file to use the first ones, or extract a fixed number"
            raise FeatureError(message, code="too-few", value=image, path=store.paths[0], hint=hint)

        def read(image: int) -> list[NDArray[Any]]:
            regions = store[pairs.images[image]]
            return [regions.features[:n].astype(dtype), *(part[:n] for part in (more(regions) if more else ()))]

        self._read = read
        self._lock = threading.Lock()  # the prefetching thread and evaluations both use HDF5
        self.kind, self.signature = store.fingerprint.kind, store.signature()
        first, images = read(0), len(counts)
        self.shape = (images, *first[0].shape)  # (images, regions, columns)
        self.in_memory = images * sum(array.nbytes for array in first) <= config.memory_mb * 2**20
        self._held: list[Tensor] = []
        if self.in_memory:
            self._held = [torch.from_numpy(np.empty((images, *array.shape), array.dtype)) for array in first]
            for place in range(images):
                for held, array in zip(self._held, read(place), strict=True):
                    held[place] = torch.from_numpy(array)

    def take(self, images: Sequence[int] | NDArray[np.int64]) -> list[Tensor]:
        """(b, regions, columns) float32 features of some images, and what else the network reads of them."""
        if self.in_memory:
            return [held.index_select(0, torch.as_tensor(images)).float() for held in self._held]
        distinct, places = np.unique(np.asarray(images), return_inverse=True)
        with self._lock:
            read = list(zip(*(self._read(image) for image in distinct.tolist()), strict=True))
        # A copy by torch, since the rounding of matrix products can depend on alignment.
        return [torch.from_numpy(np.stack(part)).float().index_select(0, torch.from_numpy(places)) for part in read]

    def mean(self) -> NDArray[np.float32]:
        """(columns,) the mean over images and regions."""
        blocks = np.array_split(np.arange(self.shape[0]), -(-self.shape[0] // 256))
        total = sum(self.take(block)[0].numpy().sum(axis=(0, 1), dtype=np.float64) for block in blocks)
        return np.asarray(total / (self.shape[0] * self.shape[1]), dtype=np.float32)


def build_vocabulary(texts: Iterable[str], min_count: int, say: Say) -> Vocabulary:
    """The words that occur so often."""
    vocabulary = Vocabulary.build(texts, min_count)
    if len(vocabulary) == len(SPECIAL):
        message, hint = f"no word of the captions occurs {min_count} times", "Lower 'min_count' in the training file"
        raise DataError(message, code="too-few", value=min_count, hint=hint)
    say(f"vocabulary: {len(vocabulary):,} words")
    return vocabulary
