"""From the settings of a training on captions and images to what is in memory when its first step runs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from capbench.datasets.root import DataRoot
from capbench.errors import DataError
from capbench.features.store import open_store
from capbench.options import Options
from capbench.text.vocabulary import Vocabulary, read_vocabulary
from capbench.training.captions import ARRAYS, CaptionSource, Pairs, locate, open_array, open_captions
from capbench.training.matching import CaptionTraining, MatchingTraining
from capbench.training.regions import PlaceOf, Regions, open_regions
from capbench.training.task import Say
from capbench.training.words import WordStart, read_word_start

__all__ = [
    "Prepared",
    "Reading",
    "Split",
    "WordNumbers",
    "caption_source",
    "names_of",
    "prepare",
    "prepare_split",
    "say_features",
    "signature_of_features",
    "training_pairs",
]

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
