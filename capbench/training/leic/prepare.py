"""From a training's settings to the captions and images that LEIC's network learns from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.datasets.machine_captions import read_machine_captions
from capbench.datasets.root import DataRoot
from capbench.errors import DataError, UsageError, suggest
from capbench.features.store import FeatureStore, open_store
from capbench.models.leic import encode_words, mean_vector
from capbench.models.nneval import image_mark
from capbench.text.embeddings.word_vectors import WordVectors
from capbench.text.vocabulary import SPECIAL, Vocabulary
from capbench.training.captions import locate, open_captions
from capbench.training.leic.captions import Images
from capbench.training.leic.config import LeicTraining

__all__ = ["Prepared", "fold_of", "prepare"]

Texts = dict[str, tuple[str, ...]]
"""Captions by image."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a training reads.

    Attributes:
        train: what is learned from.
        dev: what is measured: the dev split, or the fold that is left out.
        vocabulary: of the training captions.
        words: (n, word_dim) first vectors of words, where such are given, NaN where none is known.
        features: kind of the features (:attr:`Fingerprint.kind`).
        names: what names the data, for resuming.
        facts: what else to keep with the model.
    """

    train: Images
    dev: Images
    vocabulary: Vocabulary
    words: NDArray[np.float32] | None
    features: str
    names: dict[str, str]
    facts: dict[str, Any]


def fold_of(images: Sequence[str], of: int, seed: int) -> dict[str, int]:
    """The part, from 1, in which each image is; parts differ by one image at most, and hang on the names alone."""
    ordered = sorted(set(images))
    order = np.random.default_rng((seed, 6)).permutation(len(ordered))
    return {ordered[place]: 1 + rank % of for rank, place in enumerate(order.tolist())}


def prepare(
    config: LeicTraining, root: DataRoot | None = None, say: Callable[[str], None] = lambda _text: None
) -> Prepared:
    """Read captions and features, and build the vocabulary.

    Args:
        config: the settings.
        root: the data folder, for relative paths that are not in the current folder.
        say: called with one line for each thing that takes its time.

    Raises:
        CapbenchError: something is missing or does not fit; file and row are named.
    """
    train, dev = _captions(config, root, say)
    systems = _systems(config, root, {**train, **dev}, say)
    for role, captions in (("training", train), ("dev", dev)):
        few = [image for image, texts in captions.items() if len(texts) < 2]
        if few:
            raise DataError(
                f"{len(few):,} {role} images have one caption only, one of them '{few[0]}': a caption is read beside "
                "another one of its image",
                hint="Leave these images out",
            )
        if len(captions) < 2:
            raise DataError(f"there are {len(captions)} {role} images, and two are needed", hint="Take more")
    vocabulary = Vocabulary.build((text for texts in train.values() for text in texts), config.min_count)
    if len(vocabulary) == len(SPECIAL):
        raise DataError(f"no word occurs {config.min_count} times in the training captions", hint="Lower 'min_count'")
    say(f"vocabulary: {len(vocabulary):,} words")
    store_path = locate(config.features, root, "features")
    with open_store(store_path) as store:
        say(f"image vectors: means of the regions of {len(train) + len(dev):,} images in {store_path}")
        prepared = [_images(captions, systems, store, vocabulary, config.network.steps) for captions in (train, dev)]
        kind, named = store.fingerprint.kind, store.signature()
    words = _first_words(config, root, vocabulary, say)
    facts: dict[str, Any] = {
        "features": kind,
        "about": _about(config, train, systems),
        "images": {"trained": sorted({image_mark(image) for image in train})},
        "systems": sorted(systems),
    }
    names = {
        "captions": _fingerprint(train, systems),
        "dev captions": _fingerprint(dev, systems),
        "vocabulary": vocabulary.sha256,
        "features": named,
        "vectors": "none" if words is None else hashlib.blake2b(words.tobytes(), digest_size=8).hexdigest(),
    }
    return Prepared(prepared[0], prepared[1], vocabulary, words, kind, names, facts)


def _captions(config: LeicTraining, root: DataRoot | None, say: Callable[[str], None]) -> tuple[Texts, Texts]:
    """Captions of training and dev images."""
    source = open_captions(config.captions, config.splits, config.features, root)

    def of(role: str, images: int | None = None) -> Texts:
        pairs = source.pairs(role).sample(images, None, config.evaluation.seed)
        captions: dict[str, list[str]] = {image: [] for image in pairs.images}
        for place, text in zip(pairs.image_of.tolist(), pairs.captions, strict=True):
            captions[pairs.images[place]].append(text)
        return {image: tuple(texts) for image, texts in captions.items()}

    train, folds = of("train"), config.folds
    if folds.of is None:
        dev = of("dev", config.evaluation.images)
        both = set(train) & set(dev)
        if both:
            raise DataError(
                f"{len(both):,} images are for train and for dev, one of them '{min(both)}'",
                path=source.path,
                hint="Name other 'splits' in the training file",
            )
        say(f"captions: {source.path}: train {len(train):,} images, dev {len(dev):,}")
        return train, dev
    if folds.of > len(train):
        raise UsageError(f"'folds.of' is {folds.of}, and there are {len(train):,} images", hint="Cut into fewer parts")
    parts = fold_of(list(train), folds.of, folds.seed)
    kept = {image: texts for image, texts in train.items() if parts[image] != folds.out}
    dev = {image: texts for image, texts in train.items() if parts[image] == folds.out}
    say(f"captions: {source.path}: train {len(kept):,} images, part {folds.out} of {folds.of} left out: {len(dev):,}")
    return kept, dev


def _systems(
    config: LeicTraining, root: DataRoot | None, people: Texts, say: Callable[[str], None]
) -> dict[str, Mapping[str, str]]:
    """Captions by system and image; empty if none are asked for."""
    if config.machine is None:
        return {}
    paths = [locate(name, root, "captions of systems") for name in config.machine]
    machine = read_machine_captions(paths, people)
    for note in machine.notes:
        say(note)
    chosen = list(machine.systems) if config.systems is None else list(config.systems)
    systems: dict[str, Mapping[str, str]] = {}
    for name in chosen:
        if name not in machine.systems:
            raise UsageError(f"'systems': there is no '{name}'", hint=suggest(name, list(machine.systems)))
        missing = [image for image in people if image not in machine.systems[name]]
        if missing:
            raise DataError(
                f"the system '{name}' has no captions of {len(missing):,} of {len(people):,} images, one of them "
                f"'{missing[0]}'",
                hint="Name the split that its captions are of, with 'splits: {train: NAME}' and 'folds'",
            )
        systems[name] = machine.systems[name]
    say(f"systems: {len(systems)}, {', '.join(systems)}")
    return systems


def _images(
    captions: Texts,
    systems: Mapping[str, Mapping[str, str]],
    store: FeatureStore,
    vocabulary: Vocabulary,
    steps: int,
) -> Images:
    names = tuple(captions)
    store.require(names)
    vectors = np.stack([mean_vector(store[image].features) for image in names])
    human = tuple(tuple(encode_words(text, vocabulary, steps) for text in captions[image]) for image in names)
    machine: tuple[dict[str, list[int]], ...] = ()
    if systems:
        machine = tuple(
            {system: encode_words(texts[image], vocabulary, steps) for system, texts in systems.items()}
            for image in names
        )
    return Images(names, vectors, human, machine)


def _first_words(
    config: LeicTraining, root: DataRoot | None, vocabulary: Vocabulary, say: Callable[[str], None]
) -> NDArray[np.float32] | None:
    if config.vectors is None:
        return None
    vectors = WordVectors(locate(config.vectors, root, "word vectors"))
    if vectors.dimension != config.network.word_dim:
        raise UsageError(
            f"the vectors have {vectors.dimension} components, and 'network.word_dim' is {config.network.word_dim}",
            path=vectors.path,
            hint="Make the two equal",
        )
    known = vectors.vectors(vocabulary.words[len(SPECIAL) :])
    words = np.full((len(vocabulary), vectors.dimension), np.nan, dtype=np.float32)
    for place, word in enumerate(vocabulary.words):
        if word in known:
            words[place] = known[word]
    say(f"word vectors: {vectors.path}: {len(known):,} of {len(vocabulary):,} words")
    return words


def _about(config: LeicTraining, train: Texts, systems: Mapping[str, Mapping[str, str]]) -> str:
    """What tables say of the weights (it follows "weights")."""
    told = [*(config.negatives or ())]
    if systems:
        told.append(f"captions of {len(systems)} systems" if len(systems) > 1 else f"captions of {next(iter(systems))}")
    part = "" if config.folds.of is None else f" (all but part {config.folds.out} of {config.folds.of})"
    return f"were trained on people's captions of {len(train):,} images{part} against {', '.join(told)}"


def _fingerprint(captions: Texts, systems: Mapping[str, Mapping[str, str]]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for image, texts in captions.items():
        machine = [f"{name}\x1e{of_system[image]}" for name, of_system in sorted(systems.items())]
        digest.update(("\x1f".join([image, *texts, *machine]) + "\n").encode())
    return digest.hexdigest()
