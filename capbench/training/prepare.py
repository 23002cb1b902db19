"""Preparation of the data of a training on captions and images: vocabulary, encoded captions, features, word
vectors.

The region features of a split's images are tensors with equally many regions, in memory or read on request.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from capbench.core.errors import DataError, FeatureError, UsageError
from capbench.core.options import Options
from capbench.core.training_record import TrainingRecord
from capbench.datasets.root import DataRoot
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.text.vocabulary import PAD, SPECIAL, UNKNOWN, Vocabulary, read_vocabulary
from capbench.text.word_vectors import WordVectors
from capbench.training.captions import (
    ARRAYS,
    CaptionSource,
    CaptionTraining,
    MatchingTraining,
    Pairs,
    locate,
    open_array,
    open_captions,
    training_record,
)
from capbench.training.loop import Say


def pad(captions: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Word numbers of captions as (b, longest) int64, padded at the end, with their (b,) lengths."""
    lengths = [len(one) for one in captions]
    ids = np.full((len(captions), max(lengths)), PAD, dtype=np.int64)
    for row, one in enumerate(captions):
        ids[row, : len(one)] = one
    return torch.from_numpy(ids), torch.tensor(lengths)


def drop_words(ids: torch.Tensor, lengths: torch.Tensor, rate: float, rng: np.random.Generator) -> torch.Tensor:
    """Replace each word by ``<unk>`` with a probability, except ``<start>``, ``<end>`` and padding.

    Args:
        ids: (b, m) word numbers, padded at the end.
        lengths: (b,) with ``<start>`` and ``<end>``.
        rate: the probability; for 0 no random numbers are drawn.
        rng: source of (b, m) uniform numbers.
    """
    if not rate:
        return ids
    place = torch.arange(ids.shape[1])[None, :]
    inner = (place > 0) & (place < lengths[:, None] - 1)
    drop = torch.from_numpy(rng.random(tuple(ids.shape)) < rate)
    return torch.where(inner & drop, UNKNOWN, ids)


@dataclass(frozen=True, eq=False)
class WordStart:
    """Initial word vectors of a network, for the words that have one.

    Attributes:
        path: the file.
        sha256: SHA-256 of the file.
        numbers: (k,) int64 numbers of these words.
        vectors: (k, d) float32, as in the file.
    """

    path: Path
    sha256: str
    numbers: NDArray[np.int64] = field(repr=False)
    vectors: NDArray[np.float32] = field(repr=False)

    @torch.no_grad()
    def begin(self, embedding: nn.Embedding) -> None:
        """Replace initial weights by the vectors: centred, and scaled to the mean length of these weights.

        The following layers thus receive values of the magnitude for which they were initialised.

        Raises:
            UsageError: the network's word vectors have another size.
        """
        if self.vectors.shape[1] != embedding.embedding_dim:
            raise UsageError(
                f"its vectors have {self.vectors.shape[1]} components, the network's {embedding.embedding_dim}",
                code="mismatch",
                value=self.vectors.shape[1],
                path=self.path,
                hint=f"Set 'network.word_dim: {self.vectors.shape[1]}'",
            )
        rows = torch.from_numpy(self.numbers).to(embedding.weight.device)
        random = embedding.weight[rows]
        centred = self.vectors - self.vectors.mean(axis=0)
        size = float(np.sqrt(np.square(centred).mean()))
        length = float(random.square().mean().sqrt())
        scaled = torch.from_numpy(centred * np.float32(length / max(size, 1e-12)))
        embedding.weight[rows] = scaled.to(embedding.weight)


def read_word_start(path: Path, vocabulary: Vocabulary) -> WordStart:
    """Vectors of a file for the words of a vocabulary, except ``<start>`` and other special words.

    Args:
        path: a file that :class:`capbench.text.word_vectors.WordVectors` can read.
        vocabulary: the network's words.

    Raises:
        MissingFileError, DataError: the file does not exist, is damaged, or has none of the words.
    """
    opened = WordVectors(path)
    numbers = {word: number for number, word in enumerate(vocabulary.words) if number >= len(SPECIAL)}
    vectors = opened.vectors(numbers)
    if not vectors:
        raise DataError(
            "has no word of the captions", code="mismatch", path=path, hint="Use vectors of the captions' language"
        )
    places = np.array([numbers[word] for word in vectors], dtype=np.int64)
    return WordStart(path, opened.sha256, places, np.stack(list(vectors.values())).astype(np.float32))


E = TypeVar("E")
O = TypeVar("O", bound=Options)  # noqa: E741
E_co = TypeVar("E_co", covariant=True)


class Reading(Protocol[E_co]):
    """A network's input format of captions and regions."""

    place: PlaceOf | None
    """Box features that the network reads; None: none."""

    def more_words(self, texts: Sequence[str]) -> Iterable[str]:
        """Additional texts whose words the vocabulary counts; called once, with all captions."""

    def encode(self, text: str, vocabulary: Vocabulary) -> E_co:
        """A caption in the network's input format."""


class WordNumbers:
    """Input format of networks that read captions as word numbers and images as features only."""

    place: PlaceOf | None = None

    def more_words(self, _texts: Sequence[str]) -> Iterable[str]:
        """No additional texts."""
        return ()

    def encode(self, text: str, vocabulary: Vocabulary) -> list[int]:
        """Word numbers, with ``<start>`` and ``<end>``."""
        return vocabulary.encode(text)


@dataclass(frozen=True)
class Split(Generic[E]):
    """A split with its features and its captions in the network's input format.

    Attributes:
        pairs: images and captions.
        captions: in the order of ``pairs.captions``.
        regions: features, in the order of ``pairs.images``.
    """

    pairs: Pairs
    captions: list[E]
    regions: Regions


@dataclass(frozen=True)
class Prepared(Generic[E]):
    """The data of a training.

    Attributes:
        train: training data.
        dev: data for recall evaluations; a sample if the settings request one.
        vocabulary: built from captions, or read.
        features: the features' fingerprint (sixteen hex digits), None for SCAN's arrays.
        names: identifiers of the data, for resuming and for the model's facts.
        word_start: initial word vectors, or None.
        record: photographs and captions of the training; None: those of ``train``.
    """

    train: Split[E]
    dev: Split[E]
    vocabulary: Vocabulary
    features: str | None
    names: dict[str, str]
    word_start: WordStart | None = None
    record: TrainingRecord | None = None

    def sized(self, options: O) -> O:
        """A network's options with the two sizes that depend on the data."""
        sizes = {"vocabulary_size": len(self.vocabulary), "image_dim": self.train.regions.shape[2]}
        return dataclasses.replace(options, **sizes)


def prepare(
    config: MatchingTraining,
    reading: Reading[E],
    root: DataRoot | None = None,
    say: Say = lambda _text: None,
) -> Prepared[E]:
    """Read captions and features, and build the vocabulary.

    Args:
        config: the settings.
        reading: the network's input format.
        root: the data folder, for relative paths that do not exist in the current folder.
        say: called with a one-line message for each long operation.

    Raises:
        CapbenchError: something is missing or does not match; the error names file and row.
    """
    source = caption_source(config, root)
    pairs = training_pairs(source, config.features, say)
    evaluation = config.evaluation
    dev_pairs = pairs["dev"].sample(evaluation.images, config.dev_captions(), evaluation.seed)
    texts = reading.more_words([*pairs["train"].captions, *dev_pairs.captions])
    vocabulary = _vocabulary(config, pairs, texts, root)
    say(f"vocabulary: {len(vocabulary):,} words")
    train = prepare_split(config, pairs["train"], reading, vocabulary, root)
    dev = prepare_split(config, dev_pairs, reading, vocabulary, root)
    if train.regions.shape[2] != dev.regions.shape[2]:
        raise DataError("the features of train and dev have different sizes", code="wrong-features", path=source.path)
    say_features(train.regions, say)
    features, named = signature_of_features(config, root, pairs["train"], dev_pairs)
    names = names_of(pairs["train"], dev_pairs, {"vocabulary": vocabulary.sha256}, named, train.regions)
    start = None
    if config.word_vectors is not None:
        start = read_word_start(locate(config.word_vectors, root, "word vectors"), vocabulary)
        say(f"word vectors: {start.path} has {len(start.numbers):,} of {len(vocabulary):,} words")
        names["word vectors"] = start.sha256
    record = training_record(pairs["train"], pairs["dev"], None if start is None else start.path)
    return Prepared(train, dev, vocabulary, features, names, start, record)


def training_pairs(source: CaptionSource, features: str, say: Say) -> dict[str, Pairs]:
    """Captions of ``train`` and ``dev``.

    Args:
        source: the captions.
        features: the setting; images of SCAN's arrays have no ids, so the roles are not compared.
        say: receives their numbers.

    Raises:
        DataError: an image has both roles.
        CapbenchError: see :meth:`capbench.training.captions.CaptionSource.pairs`.
    """
    pairs = {role: source.pairs(role) for role in ("train", "dev")}
    both = set(pairs["train"].images) & set(pairs["dev"].images)
    if both and features != ARRAYS:
        raise DataError(
            f"{len(both):,} images are for train and for dev, for example '{min(both)}'",
            code="duplicate",
            value=min(both),
            path=source.path,
            hint="Set other 'splits' in the training file",
        )
    counts = ", ".join(f"{role} {len(p.images):,} images, {len(p.captions):,} captions" for role, p in pairs.items())
    say(f"captions: {source.path}: {counts}")
    return pairs


def say_features(regions: Regions, say: Say) -> None:
    """Report the size of the training features, and if they are in memory."""
    n, each, columns = regions.shape
    where = "in memory" if regions.in_memory else "read batch by batch"
    say(f"features: {n:,} x {each} regions x {columns}, {where}")


def names_of(train: Pairs, dev: Pairs, words: Mapping[str, str], features: str, regions: Regions) -> dict[str, str]:
    """Identifiers of the training data, for resuming and for the model's facts.

    Args:
        train: training data.
        dev: dev data.
        words: identifiers of the vocabulary or word pieces.
        features: a line that identifies the features.
        regions: features of the training images.
    """
    _, each, columns = regions.shape
    return {
        "captions": train.fingerprint(),
        "dev captions": dev.fingerprint(),
        **words,
        "features": features,
        "regions": f"{each} x {columns}",
    }


def caption_source(config: CaptionTraining, root: DataRoot | None) -> CaptionSource:
    """The captions of the settings. Raises the errors of :func:`capbench.training.captions.open_captions`."""
    return open_captions(config.captions, config.splits, config.features, root)


def _vocabulary(
    config: MatchingTraining, pairs: dict[str, Pairs], more: Iterable[str], root: DataRoot | None
) -> Vocabulary:
    options = config.vocabulary
    if options.file is not None:
        return read_vocabulary(locate(options.file, root, "words"))
    texts = [text for role in dict.fromkeys(options.splits) for text in pairs[role].captions]
    vocabulary = Vocabulary.build([*texts, *more], options.min_count)
    if len(vocabulary) == 4:
        raise DataError(
            f"no word occurs {options.min_count} times in {len(texts):,} captions",
            code="too-few",
            value=options.min_count,
            path=pairs["train"].source,
            hint="Lower 'vocabulary.min_count' in the training file",
        )
    return vocabulary


def prepare_split(
    config: MatchingTraining, pairs: Pairs, reading: Reading[E], vocabulary: Vocabulary, root: DataRoot | None
) -> Split[E]:
    """A split with encoded captions and opened features. Raises FeatureError if they do not match."""
    regions = open_regions(pairs, _store(config, root), config.regions, config.memory_mb, reading.place)
    return Split(pairs, [reading.encode(text, vocabulary) for text in pairs.captions], regions)


def _store(config: CaptionTraining, root: DataRoot | None) -> Path | None:
    return None if config.features == ARRAYS else locate(config.features, root, "features")


def signature_of_features(config: CaptionTraining, root: DataRoot | None, *splits: Pairs) -> tuple[str | None, str]:
    """Kind of the features (:attr:`Fingerprint.kind`), and a line that identifies them."""
    store_path = _store(config, root)
    if store_path is not None:
        with open_store(store_path) as store:
            return store.fingerprint.kind, store.signature()
    digest = hashlib.blake2b(digest_size=8)
    for path, _ in (array_rows for pairs in splits for array_rows in pairs.arrays):
        array = open_array(path)
        digest.update(f"{array.shape} {array.dtype}\n".encode())
        # These arrays are large, so only some rows are hashed.
        for row in np.linspace(0, len(array) - 1, 16).astype(int).tolist():
            digest.update(np.ascontiguousarray(array[row]).tobytes())
    return None, f"ims:{digest.hexdigest()}"


PlaceOf = Callable[[RegionFeatures], NDArray[np.float32]]
"""Computes the box features that a network reads, (regions, 4), from an image's regions."""


class _Source(Protocol):
    """Source of the regions of a split's images."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None: ...


class _StoreSource:
    def __init__(
        self, store: FeatureStore, images: Sequence[str], regions: int | None, place: PlaceOf | None = None
    ) -> None:
        store.require(images)
        counts = [store.regions(image) for image in images]
        self._store, self._images, self._place = store, images, place
        self.shape = (len(images), _regions(counts, images, regions, store.paths[0]), store.feature_size)
        self.dtype = np.dtype(store.header.dtype)

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None:
        for row, image in enumerate(images):
            regions = self._store[self._images[image]]
            into[row] = regions.features[: self.shape[1]]
            if places is not None and self._place is not None:
                places[row] = self._place(regions)[: self.shape[1]]


class _ProbabilitySource:
    """The detector's probabilities of background and classes instead of features."""

    def __init__(self, store: FeatureStore, images: Sequence[str], regions: int) -> None:
        self._store, self._images = store, images
        self.shape = (len(images), regions, store.header.probabilities)
        self.dtype = np.dtype(store.header.dtype)

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None:
        for row, image in enumerate(images):
            probabilities = self._store[self._images[image]].class_probabilities
            assert probabilities is not None
            into[row] = probabilities[: self.shape[1]]


class _ArraySource:
    def __init__(self, pairs: Pairs, regions: int | None) -> None:
        self._arrays = [(open_array(path), path) for path, _ in pairs.arrays]
        self._place = [(number, row) for number, (_, rows) in enumerate(pairs.arrays) for row in rows.tolist()]
        first, path = self._arrays[0]
        sizes = {array.shape[1:] for array, _ in self._arrays}
        if len(sizes) > 1:
            raise DataError(f"the arrays have different shapes: {sorted(sizes)}", code="mismatch", path=path)
        n = _regions([first.shape[1]], ["all"], regions, path)
        self.shape = (len(self._place), n, first.shape[2])
        self.dtype = np.dtype(np.float16 if first.dtype == np.float16 else np.float32)

    def read(self, images: Sequence[int], into: NDArray[Any], places: NDArray[np.float32] | None = None) -> None:
        for row, image in enumerate(images):
            number, place = self._place[image]
            array, path = self._arrays[number]
            features = array[place, : self.shape[1]]
            if not np.isfinite(features).all():
                raise DataError("a feature is NaN or infinite", code="not-a-number", path=path, row=f"image {place}")
            into[row] = features


def _regions(counts: Sequence[int], images: Sequence[str], requested: int | None, path: Path) -> int:
    """Number of regions of each image."""
    low, high = min(counts), max(counts)
    if requested is not None:
        if low < requested:
            raise FeatureError(
                f"image '{images[counts.index(low)]}' has {low} regions, fewer than 'regions' ({requested})",
                code="too-few",
                value=images[counts.index(low)],
                path=path,
                hint="Lower 'regions', or extract the features again with a fixed number of boxes",
            )
        return requested
    if low < high:
        raise FeatureError(
            f"images have {low} to {high} regions; training requires equally many",
            code="mismatch",
            path=path,
            hint=f"Set 'regions: {low}' in the training file to use the first ones, or extract a fixed number",
        )
    return low


class Regions:
    """Region features of a split's images, by index; in memory if they fit.

    Attributes:
        shape: (images, regions, columns).
        in_memory: True if they are read once, False if they are read on request.
    """

    def __init__(self, source: _Source, memory_mb: float, places: bool = False) -> None:
        self.shape = source.shape
        self._with_places = places
        self._source = source
        # The prefetching thread and evaluations both use HDF5.
        self._lock = threading.Lock()
        needed = float(np.prod(source.shape, dtype=np.float64)) * source.dtype.itemsize
        self.in_memory = needed <= memory_mb * 2**20
        self._features: torch.Tensor | None = None
        self._places: torch.Tensor | None = None
        if self.in_memory:
            features = np.empty(source.shape, dtype=source.dtype)
            boxes = self._empty_places(source.shape[0])
            source.read(range(source.shape[0]), features, boxes)
            self._features = torch.from_numpy(features)
            self._places = None if boxes is None else torch.from_numpy(boxes)

    def mean(self) -> NDArray[np.float32]:
        """(columns,) the mean over images and regions."""
        total, block = np.zeros(self.shape[2]), max(1, (64 << 20) // (4 * self.shape[1] * self.shape[2]))
        for first in range(0, self.shape[0], block):
            features = self.take(np.arange(first, min(first + block, self.shape[0]))).numpy()
            total += features.sum(axis=(0, 1), dtype=np.float64)
        mean: NDArray[np.float32] = (total / (self.shape[0] * self.shape[1])).astype(np.float32)
        return mean

    def _empty_places(self, images: int) -> NDArray[np.float32] | None:
        return np.empty((images, self.shape[1], 4), dtype=np.float32) if self._with_places else None

    def take(self, images: Sequence[int] | NDArray[np.int64]) -> torch.Tensor:
        """(b, regions, columns) float32 features of some images."""
        return self.take_placed(images)[0]

    def take_placed(self, images: Sequence[int] | NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(b, regions, columns) float32 features of some images and their (b, regions, 4) float32 box features, None if
        not used.
        """
        # The result is always in memory allocated by torch, since the rounding of matrix products can depend on
        # alignment.
        if self._features is not None:
            chosen = torch.as_tensor(images)
            places = None if self._places is None else self._places.index_select(0, chosen)
            return self._features.index_select(0, chosen).float(), places
        distinct, inverse = np.unique(np.asarray(images), return_inverse=True)
        block = np.empty((len(distinct), *self.shape[1:]), dtype=np.float32)
        boxes = self._empty_places(len(distinct))
        with self._lock:
            self._source.read(distinct.tolist(), block, boxes)
        order = torch.from_numpy(inverse)
        places = None if boxes is None else torch.from_numpy(boxes).index_select(0, order)
        return torch.from_numpy(block).index_select(0, order), places


def open_regions(
    pairs: Pairs, features: Path | None, regions: int | None, memory_mb: float, place: PlaceOf | None = None
) -> Regions:
    """Open the features of a split's images.

    Args:
        pairs: the split.
        features: a feature store; None for the arrays of SCAN's folder.
        regions: number of regions of each image, the first ones; None: all.
        memory_mb: maximum size of features in memory.
        place: computes box features; None: none.

    Raises:
        UsageError: box features are required but not available in arrays.
        FeatureError: images are missing or damaged, or have different numbers of regions.
        DataError: an array is damaged.
    """
    if features is None:
        if place is not None:
            raise UsageError(
                "SCAN's arrays have no boxes, which this network requires",
                code="wrong-features",
                path=pairs.source,
                hint="Set 'features' to a feature store",
            )
        return Regions(_ArraySource(pairs, regions), memory_mb)
    source = _StoreSource(open_store(features), pairs.images, regions, place)
    return Regions(source, memory_mb, places=place is not None)


def open_probabilities(images: Sequence[str], features: Path, regions: int, memory_mb: float) -> Regions | None:
    """A detector's probabilities of background and classes, (images, regions, 1 + classes).

    Args:
        images: ids in the store (checked by :func:`open_regions`).
        features: the store.
        regions: number of regions of each image, the first ones.
        memory_mb: maximum size in memory.

    Returns:
        None if the store has no probabilities.

    Raises:
        FeatureError: an image is damaged.
    """
    store = open_store(features)
    if not store.header.probabilities:
        return None
    return Regions(_ProbabilitySource(store, images, regions), memory_mb)
