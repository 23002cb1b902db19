"""From the settings of a training on captions and images to what is in memory when its first step runs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from capbench.core.errors import DataError, UsageError
from capbench.core.options import Options
from capbench.datasets.root import DataRoot
from capbench.features.store import open_store
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
)
from capbench.training.loop import Say
from capbench.training.regions import PlaceOf, Regions, open_regions

__all__ = [
    "Prepared",
    "Reading",
    "Split",
    "WordNumbers",
    "WordStart",
    "caption_source",
    "drop_words",
    "names_of",
    "pad",
    "prepare",
    "prepare_split",
    "read_word_start",
    "say_features",
    "signature_of_features",
    "training_pairs",
]


# Captions as padded word numbers, with some words dropped at random, and vectors that words begin with.


def pad(captions: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Word numbers of captions as (b, longest) int64, padded at the end, with their (b,) lengths."""
    lengths = [len(one) for one in captions]
    ids = np.full((len(captions), max(lengths)), PAD, dtype=np.int64)
    for row, one in enumerate(captions):
        ids[row, : len(one)] = one
    return torch.from_numpy(ids), torch.tensor(lengths)


def drop_words(ids: torch.Tensor, lengths: torch.Tensor, rate: float, rng: np.random.Generator) -> torch.Tensor:
    """Each word becomes ``<unk>`` with a probability; not ``<start>``, ``<end>`` and padding.

    Args:
        ids: (b, m) word numbers, padded at the end.
        lengths: (b,) with ``<start>`` and ``<end>``.
        rate: the probability; with 0 nothing is drawn.
        rng: draws (b, m) uniform numbers.
    """
    if not rate:
        return ids
    place = torch.arange(ids.shape[1])[None, :]
    inner = (place > 0) & (place < lengths[:, None] - 1)
    drop = torch.from_numpy(rng.random(tuple(ids.shape)) < rate)
    return torch.where(inner & drop, UNKNOWN, ids)


@dataclass(frozen=True, eq=False)
class WordStart:
    """Word vectors that a network begins with, for the words that have one.

    Attributes:
        path: the file.
        sha256: of it.
        numbers: (k,) int64 numbers of these words.
        vectors: (k, d) float32, as in the file.
    """

    path: Path
    sha256: str
    numbers: NDArray[np.int64] = field(repr=False)
    vectors: NDArray[np.float32] = field(repr=False)

    @torch.no_grad()
    def begin(self, embedding: nn.Embedding) -> None:
        """Put them in the place of first weights: centred, and as long on average as those were.

        So the layers behind see numbers of the size that they were initialised for, whatever the file's.

        Raises:
            UsageError: the network's word vectors are of another size.
        """
        if self.vectors.shape[1] != embedding.embedding_dim:
            raise UsageError(
                f"its vectors have {self.vectors.shape[1]} components, the network's {embedding.embedding_dim}",
                path=self.path,
                hint=f"Set 'network.word_dim: {self.vectors.shape[1]}'",
            )
        rows = torch.from_numpy(self.numbers).to(embedding.weight.device)
        drawn = embedding.weight[rows]
        centred = self.vectors - self.vectors.mean(axis=0)
        size = float(np.sqrt(np.square(centred).mean()))
        length = float(drawn.square().mean().sqrt())
        given = torch.from_numpy(centred * np.float32(length / max(size, 1e-12)))
        embedding.weight[rows] = given.to(embedding.weight)


def read_word_start(path: Path, vocabulary: Vocabulary) -> WordStart:
    """The vectors of a file for the words of a vocabulary; ``<start>`` and the like have none.

    Args:
        path: as :class:`capbench.text.word_vectors.WordVectors` reads it.
        vocabulary: the network's words.

    Raises:
        MissingFileError, DataError: there is no such file, it is damaged, or it has none of the words.
    """
    opened = WordVectors(path)
    numbers = {word: number for number, word in enumerate(vocabulary.words) if number >= len(SPECIAL)}
    vectors = opened.vectors(numbers)
    if not vectors:
        raise DataError("has no word of the captions", path=path, hint="Give vectors of the captions' language")
    places = np.array([numbers[word] for word in vectors], dtype=np.int64)
    return WordStart(path, opened.sha256, places, np.stack(list(vectors.values())).astype(np.float32))


E = TypeVar("E")
O = TypeVar("O", bound=Options)  # noqa: E741
E_co = TypeVar("E_co", covariant=True)


class Reading(Protocol[E_co]):
    """How a network reads captions and regions."""

    place: PlaceOf | None
    """What of an image's boxes the network reads; None: nothing."""

    def more_words(self, texts: Sequence[str]) -> Iterable[str]:
        """Texts whose words the vocabulary counts beside those of the captions; called once, with all captions."""

    def encode(self, text: str, vocabulary: Vocabulary) -> E_co:
        """A caption as the network reads it."""


class WordNumbers:
    """Captions are their words, and images are features alone."""

    place: PlaceOf | None = None

    def more_words(self, _texts: Sequence[str]) -> Iterable[str]:
        """None."""
        return ()

    def encode(self, text: str, vocabulary: Vocabulary) -> list[int]:
        """Word numbers, with ``<start>`` and ``<end>``."""
        return vocabulary.encode(text)


@dataclass(frozen=True)
class Split(Generic[E]):
    """A split with its captions as a network reads them and its features.

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
    """What a training reads.

    Attributes:
        train: what is learned from.
        dev: what recall is measured on; a sample if the settings ask for one.
        vocabulary: built, or read.
        features: the features' fingerprint (sixteen hex digits), None for SCAN's own arrays.
        names: what names the data, for resuming and for the model's facts.
        word_start: vectors that the words begin with, or None.
    """

    train: Split[E]
    dev: Split[E]
    vocabulary: Vocabulary
    features: str | None
    names: dict[str, str]
    word_start: WordStart | None = None

    def sized(self, options: O) -> O:
        """A network's options with the two sizes that the data decides."""
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
        reading: how the network reads them.
        root: the data folder, for relative paths that are not in the current folder.
        say: called with one line for each thing that takes its time.

    Raises:
        CapbenchError: something is missing or does not fit; file and row are named.
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
        raise DataError("the features of train and dev have different sizes", path=source.path)
    say_features(train.regions, say)
    features, named = signature_of_features(config, root, pairs["train"], dev_pairs)
    names = names_of(pairs["train"], dev_pairs, {"vocabulary": vocabulary.sha256}, named, train.regions)
    start = None
    if config.word_vectors is not None:
        start = read_word_start(locate(config.word_vectors, root, "word vectors"), vocabulary)
        say(f"word vectors: {start.path} has {len(start.numbers):,} of {len(vocabulary):,} words")
        names["word vectors"] = start.sha256
    return Prepared(train, dev, vocabulary, features, names, start)


def training_pairs(source: CaptionSource, features: str, say: Say) -> dict[str, Pairs]:
    """The captions of ``train`` and ``dev``.

    Args:
        source: the captions.
        features: as the settings name them; arrays in SCAN's form have no names of images, so that none are compared.
        say: told how many there are.

    Raises:
        DataError: an image is for both.
        CapbenchError: as :meth:`capbench.training.captions.CaptionSource.pairs`.
    """
    pairs = {role: source.pairs(role) for role in ("train", "dev")}
    both = set(pairs["train"].images) & set(pairs["dev"].images)
    if both and features != ARRAYS:
        raise DataError(
            f"{len(both):,} images are for train and for dev, one of them '{min(both)}'",
            path=source.path,
            hint="Name other 'splits' in the training file",
        )
    counts = ", ".join(f"{role} {len(p.images):,} images, {len(p.captions):,} captions" for role, p in pairs.items())
    say(f"captions: {source.path}: {counts}")
    return pairs


def say_features(regions: Regions, say: Say) -> None:
    """Say how large the features are that are learned from, and where they are."""
    n, each, columns = regions.shape
    where = "in memory" if regions.in_memory else "read batch by batch"
    say(f"features: {n:,} x {each} regions x {columns}, {where}")


def names_of(train: Pairs, dev: Pairs, words: Mapping[str, str], features: str, regions: Regions) -> dict[str, str]:
    """What names the data of a training, for resuming and for the model's facts.

    Args:
        train: what is learned from.
        dev: what is measured.
        words: the name of what captions are made of.
        features: a line that names the features.
        regions: of the images that are learned from.
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
    """The captions that the settings name. Raises as :func:`capbench.training.captions.open_captions`."""
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
            path=pairs["train"].source,
            hint="Lower 'vocabulary.min_count' in the training file",
        )
    return vocabulary


def prepare_split(
    config: MatchingTraining, pairs: Pairs, reading: Reading[E], vocabulary: Vocabulary, root: DataRoot | None
) -> Split[E]:
    """A split with its captions encoded and its features opened. Raises FeatureError where they do not fit."""
    regions = open_regions(pairs, _store(config, root), config.regions, config.memory_mb, reading.place)
    return Split(pairs, [reading.encode(text, vocabulary) for text in pairs.captions], regions)


def _store(config: CaptionTraining, root: DataRoot | None) -> Path | None:
    return None if config.features == ARRAYS else locate(config.features, root, "features")


def signature_of_features(config: CaptionTraining, root: DataRoot | None, *splits: Pairs) -> tuple[str | None, str]:
    """The kind of the features (:attr:`Fingerprint.kind`), and a line that names them."""
    store_path = _store(config, root)
    if store_path is not None:
        with open_store(store_path) as store:
            return store.fingerprint.kind, store.signature()
    digest = hashlib.blake2b(digest_size=8)
    for path, _ in (array_rows for pairs in splits for array_rows in pairs.arrays):
        array = open_array(path)
        digest.update(f"{array.shape} {array.dtype}\n".encode())
        # These arrays are large: some rows must do.
        for row in np.linspace(0, len(array) - 1, 16).astype(int).tolist():
            digest.update(np.ascontiguousarray(array[row]).tobytes())
    return None, f"ims:{digest.hexdigest()}"
