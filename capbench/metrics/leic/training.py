"""Training of LEIC (Cui et al., CVPR 2018): settings, data, and the task for the training loop."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from capbench.core.errors import DataError, UsageError, check_choice
from capbench.core.options import Count, Number, Options, Text, option
from capbench.core.training_record import DEV, TrainingRecord, captions_of, photographs_of
from capbench.datasets.captions import read_machine_captions
from capbench.datasets.root import DataRoot
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.leic.network import HUMAN, Leic, LeicOptions, encode_words, mean_vector, save_leic
from capbench.text.vocabulary import PAD, SPECIAL, Vocabulary
from capbench.text.word_vectors import WordVectors
from capbench.training.captions import SplitOptions, locate, open_captions
from capbench.training.loop import Running, Task, TrainingResult, train
from capbench.training.prepare import pad
from capbench.training.run_folder import adam, check_memory, count_weights
from capbench.training.settings import Fraction, Names, OptimiserOptions, OrNull, Section, Training, ValidationOptions
from capbench.training.trainable import Trainable
from capbench.weights.training_files import read_training_record

# Settings of training files, each key with kind, default and meaning.
#
# Schema version 1; all keys except ``schema``, ``name``, ``captions`` and ``features`` are optional::
#
#     schema: 1
#     name: leic-flickr8k
#     captions: flickr8k
#     features: features/flickr8k-grid.h5    # an image's vector is the mean of its regions
#     negatives: [other-image, replaced-words, permuted]
#     optimiser: {lr: 0.001, lr_decay: 0.9}
#
# A network that is trained on captions of systems and tested on the images of one fold::
#
#     splits: {train: test}
#     machine: [machine_captions/where_image2/imgs_flickr8k.txt]
#     systems: [flickr8k_merge_1]            # default: all of these files
#     folds: {of: 5, out: 1}
#
# Keys that all trainers share are in :mod:`capbench.training.settings`. Defaults are those of the published training
# (Cui et al. 2018, and the options of its released code): batches of 100 captions, half of them human; Adam with
# learning rate 1e-3, times .9 after each epoch; gradients clipped at 1; dropout .5; 30 epochs.

NEGATIVES = ("other-image", "replaced-words", "permuted")
"""Kinds of corrupted human captions: a caption of another image, or a caption of the image with some words replaced by
random ones or permuted."""


@dataclass(frozen=True, kw_only=True)
class LeicOptimiser(OptimiserOptions):
    """Adam with exponential decay of the learning rate."""

    lr_decay: float = option(0.9, Number(0, 1), "factor of the learning rate after each epoch")

    def share(self, epoch: int) -> float:
        """The share of the learning rate in an epoch, counted from 0."""
        return super().share(epoch) * self.lr_decay**epoch


@dataclass(frozen=True, kw_only=True)
class FoldOptions(Options):
    """Images that are left out of the training and replace the dev split."""

    of: int | None = option(None, Count(2), "number of parts of the training images; null: none is left out")
    out: int = option(1, Count(1), "number of the part that is left out, from 1")
    seed: int = option(1, Count(), "seed of the split into parts")


@dataclass(frozen=True, kw_only=True)
class LeicEvaluationOptions(ValidationOptions):
    """Validation of the network."""

    images: int | None = option(None, Count(1), "number of images of the dev split, drawn with 'seed'; null: all")
    seed: int = option(1, Count(), "seed of this draw and of the corrupted captions")


@dataclass(frozen=True, kw_only=True)
class LeicTraining(Training):
    """The settings of a training of LEIC, not resolved.

    ``network`` contains all :class:`LeicOptions` except the two sizes that the data determines. With ``machine``, half
    of the negative captions are by systems and half are ``negatives``.
    """

    # Paths may change: the content of the files is compared.
    undeciding = (*Training.undeciding, "captions", "features", "machine", "vectors")

    captions: str = option(MISSING, Text("flickr8k"), "captions with their splits")
    splits: SplitOptions = option(SplitOptions(), Section(), "names of the splits in the captions")
    features: str = option(MISSING, Text("features.h5"), "a store of region features")
    negatives: tuple[str, ...] | None = option(
        NEGATIVES, OrNull(Names(NEGATIVES)), "kinds of corrupted human captions; null: none"
    )
    machine: tuple[str, ...] | None = option(
        None, OrNull(Names()), "files with captions of the training images by systems, in the current or data folder"
    )
    systems: tuple[str, ...] | None = option(None, OrNull(Names()), "names of the systems; null: all")
    folds: FoldOptions = option(FoldOptions(), Section(), "images that are left out")
    vectors: str | None = option(None, Text("vectors.bin"), "initial word vectors")
    min_count: int = option(
        4, Count(1), "minimum frequency of a word in the training captions; rarer ones become <unk>"
    )
    network: LeicOptions = option(
        LeicOptions(vocabulary_size=4), Section(decided=("vocabulary_size", "image_dim")), "sizes of the network"
    )
    dropout: float = option(0.5, Fraction(), "dropout rate of word vectors, states and hidden units")
    optimiser: LeicOptimiser = option(LeicOptimiser(lr=1e-3, clip=1.0), Section(), "the optimiser")
    evaluation: LeicEvaluationOptions = option(
        LeicEvaluationOptions(), Section(), "validation; the score is the log-likelihood"
    )
    batch: int = option(100, Count(2), "number of captions per step, half of them human; an even number")
    epochs: int = option(30, Count(1), "number of passes over the images")

    def problems(self) -> list[str]:
        """Settings that have no effect or are in conflict."""
        problems = []
        if self.batch % 2:
            problems.append(f"'batch' is {self.batch}, not an even number")
        if self.negatives is None and self.machine is None:
            problems.append("there are no negative captions: set 'negatives' or 'machine'")
        if self.systems is not None and self.machine is None:
            problems.append("'systems' has no effect without 'machine'")
        if self.folds.of is None and self.folds != FoldOptions():
            problems.append("'folds.out' and 'folds.seed' have no effect without 'folds.of'")
        if self.folds.of is not None and self.folds.out > self.folds.of:
            problems.append(f"'folds.out' is {self.folds.out}, but there are {self.folds.of} parts")
        return problems


# Training examples: human captions of an image, and corrupted, foreign or machine-generated ones.

Numbers = Sequence[int]
"""Word ids of a caption, with ``<end>``."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their captions.

    Attributes:
        names: ids.
        vectors: (n, D) float32, one per image.
        human: human captions of each image as word ids; at least two.
        machine: captions of each image by system as word ids; for no image, or for all.
    """

    names: tuple[str, ...]
    vectors: NDArray[np.float32]
    human: tuple[tuple[Numbers, ...], ...]
    machine: tuple[Mapping[str, Numbers], ...] = ()

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Pair:
    """A caption and a reference.

    Attributes:
        image: index of the image.
        reference: word ids.
        candidate: word ids.
        human: True if the candidate is a human caption of the image.
        kind: ``human``, one of :data:`capbench.metrics.leic.training.NEGATIVES`, or ``machine``.
    """

    image: int
    reference: Numbers
    candidate: Numbers
    human: bool
    kind: str


def draw_negative(images: Images, image: int, kind: str, words: int, rng: np.random.Generator) -> Numbers:
    """A negative caption of an image.

    Args:
        images: all images.
        image: index of the image.
        kind: one of :data:`capbench.metrics.leic.training.NEGATIVES`, or ``machine``.
        words: size of the vocabulary.
        rng: draws image, caption, positions and words.
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
    """Positions of two to all but one of a caption's words, drawn as in the released code; all of up to two words."""
    length = len(caption) - 1
    number = length if length <= 2 else int(rng.integers(2, length))
    return rng.choice(length, number, replace=False)


def replaced(caption: Numbers, words: int, rng: np.random.Generator) -> Numbers:
    """The caption with some of its words replaced by random words of the vocabulary, except special ones."""
    corrupted = list(caption)
    if len(caption) < 2 or words <= len(SPECIAL):  # only <end>, or no words to draw
        return corrupted
    for place in _places(caption, rng).tolist():
        corrupted[place] = int(rng.integers(len(SPECIAL), words))
    return corrupted


def permuted(caption: Numbers, rng: np.random.Generator) -> Numbers:
    """The caption with some of its words permuted; drawn again once if the order is unchanged."""
    corrupted = list(caption)
    if len(caption) < 3:
        return corrupted
    places = _places(caption, rng)
    order = rng.permutation(places)
    if (order == places).all():
        order = rng.permutation(places)
    for place, source in zip(places.tolist(), order.tolist(), strict=True):
        corrupted[place] = caption[source]
    return corrupted


# Preparation of the training data from the settings.

Texts = dict[str, tuple[str, ...]]
"""Captions by image."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The data of a training.

    Attributes:
        train: training data.
        dev: validation data: the dev split, or the fold that is left out.
        vocabulary: vocabulary of the training captions.
        words: (n, word_dim) initial vectors of words, NaN for unknown ones; None without word vectors.
        features: kind of the features (:attr:`Fingerprint.kind`).
        names: identifiers of the data, for resuming.
        facts: other facts that are stored with the model.
        record: photographs and captions of the training.
    """

    train: Images
    dev: Images
    vocabulary: Vocabulary
    words: NDArray[np.float32] | None
    features: str
    names: dict[str, str]
    facts: dict[str, Any]
    record: TrainingRecord


def fold_of(images: Sequence[str], of: int, seed: int) -> dict[str, int]:
    """The part of each image, from 1. Sizes of parts differ by at most one; parts depend only on the image names."""
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
        say: called with one line for each slow step.

    Raises:
        CapbenchError: missing or invalid data, with file and row.
    """
    train, dev = _captions(config, root, say)
    systems = _systems(config, root, {**train, **dev}, say)
    for role, captions in (("training", train), ("dev", dev)):
        few = [image for image, texts in captions.items() if len(texts) < 2]
        if few:
            raise DataError(
                f"{len(few):,} {role} images have fewer than two captions (first: '{few[0]}')",
                code="too-few",
                value=few[0],
                hint="Remove these images: a caption is read together with another one of its image",
            )
        if len(captions) < 2:
            message = f"there are {len(captions)} {role} images; at least two are required"
            raise DataError(message, code="too-few", value=len(captions), hint="Use more images")
    vocabulary = Vocabulary.build((text for texts in train.values() for text in texts), config.min_count)
    if len(vocabulary) == len(SPECIAL):
        message = f"no word occurs {config.min_count} times in the training captions"
        hint = "Lower 'min_count'"
        raise DataError(message, code="too-few", value=config.min_count, hint=hint)
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
        "systems": sorted(systems),
    }
    machine = (text for of_system in systems.values() for image, text in of_system.items() if image in train)
    record = TrainingRecord(
        "",
        photographs_of(train),
        captions_of([*(text for texts in train.values() for text in texts), *machine]),
        photographs_of(dev),
        DEV if config.folds.of is None else "the part of the images that is left out",
    )
    if config.vectors is not None:
        record = record.including(read_training_record(locate(config.vectors, root, "word vectors")))
    names = {
        "captions": _fingerprint(train, systems),
        "dev captions": _fingerprint(dev, systems),
        "vocabulary": vocabulary.sha256,
        "features": named,
        "vectors": "none" if words is None else hashlib.blake2b(words.tobytes(), digest_size=8).hexdigest(),
    }
    return Prepared(prepared[0], prepared[1], vocabulary, words, kind, names, facts, record)


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
                f"{len(both):,} images are in both train and dev (first: '{min(both)}')",
                code="duplicate",
                value=min(both),
                path=source.path,
                hint="Name other 'splits' in the training file",
            )
        say(f"captions: {source.path}: train {len(train):,} images, dev {len(dev):,}")
        return train, dev
    if folds.of > len(train):
        message = f"'folds.of' is {folds.of}, but there are {len(train):,} images"
        raise UsageError(message, code="out-of-range", value=folds.of, hint="Use fewer parts")
    parts = fold_of(list(train), folds.of, folds.seed)
    remaining = {image: texts for image, texts in train.items() if parts[image] != folds.out}
    dev = {image: texts for image, texts in train.items() if parts[image] == folds.out}
    counts = f"train {len(remaining):,} images, dev {len(dev):,} images (part {folds.out} of {folds.of})"
    say(f"captions: {source.path}: {counts}")
    return remaining, dev


def _systems(
    config: LeicTraining, root: DataRoot | None, people: Texts, say: Callable[[str], None]
) -> dict[str, Mapping[str, str]]:
    """Captions by system and image; empty if none are requested."""
    if config.machine is None:
        return {}
    paths = [locate(name, root, "captions of systems") for name in config.machine]
    machine = read_machine_captions(paths, people)
    for note in machine.notes:
        say(note)
    chosen = list(machine.systems) if config.systems is None else list(config.systems)
    systems: dict[str, Mapping[str, str]] = {}
    for name in chosen:
        check_choice("system", name, machine.systems)
        missing = [image for image in people if image not in machine.systems[name]]
        if missing:
            raise DataError(
                f"the system '{name}' has no captions of {len(missing):,} of {len(people):,} images (first: "
                f"'{missing[0]}')",
                code="missing-caption",
                value=missing[0],
                hint="Set the split of its captions with 'splits: {train: NAME}' and 'folds'",
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
            f"the vectors have {vectors.dimension} components, but 'network.word_dim' is {config.network.word_dim}",
            code="mismatch",
            value=vectors.dimension,
            path=vectors.path,
            hint="Set 'network.word_dim' to the size of the vectors",
        )
    known = vectors.vectors(vocabulary.words[len(SPECIAL) :])
    words = np.full((len(vocabulary), vectors.dimension), np.nan, dtype=np.float32)
    for place, word in enumerate(vocabulary.words):
        if word in known:
            words[place] = known[word]
    say(f"word vectors: {vectors.path}: {len(known):,} of {len(vocabulary):,} words")
    return words


def _about(config: LeicTraining, train: Texts, systems: Mapping[str, Mapping[str, str]]) -> str:
    """Description of the weights in tables, to follow "weights". Weight files store it: do not change the wording."""
    kinds = [*(config.negatives or ())]
    if systems:
        kinds.append(
            f"captions of {len(systems)} systems" if len(systems) > 1 else f"captions of {next(iter(systems))}"
        )
    part = "" if config.folds.of is None else f" (all but part {config.folds.out} of {config.folds.of})"
    trained = f"captions of {len(train):,} images{part}"
    return f"were trained on people's {trained} against {', '.join(kinds)}"


def _fingerprint(captions: Texts, systems: Mapping[str, Mapping[str, str]]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for image, texts in captions.items():
        machine = [f"{name}\x1e{of_system[image]}" for name, of_system in sorted(systems.items())]
        digest.update(("\x1f".join([image, *texts, *machine]) + "\n").encode())
    return digest.hexdigest()


_AT_ONCE = 500  # pairs per evaluation step


def train_leic(
    config: LeicTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train LEIC in a run folder, or resume its training.

    ``root`` is the data folder, for relative paths; other arguments and errors are those of
    :func:`capbench.training.loop.train`.

    Raises:
        CapbenchError: captions or features are missing or invalid.
    """
    return train(
        config,
        lambda device, say: LeicTask(config, prepare(config, root, say), device),
        run,
        **running,
        smaller="'batch' or 'network.state_dim'",
    )


class LeicTask(Task[Leic, Sequence[Pair]]):
    """Classification of captions as human or not.

    An epoch contains every image once, with one of its captions as the reference, another one, and a negative caption.

    Args:
        config: the settings.
        data: the data.
        device: device of the network.

    Raises:
        UsageError: the network is too large for this machine.
    """

    score = "log_likelihood"

    def __init__(self, config: LeicTraining, data: Prepared, device: torch.device) -> None:
        self._config, self._train, self._dev, self._device = config, data.train, data.dev, device
        self._vocabulary = data.vocabulary
        options = dataclasses.replace(
            config.network, vocabulary_size=len(data.vocabulary), image_dim=data.train.vectors.shape[1]
        )
        check_memory(count_weights(lambda: Leic(options)), "Lower 'network.state_dim' or 'network.word_dim'")
        # Drawn on the CPU, so that a seed gives the same weights on every device.
        self.model = Leic(options, torch.Generator().manual_seed(config.seed))
        if data.words is not None:
            known = torch.from_numpy(~np.isnan(data.words).any(axis=1))
            with torch.no_grad():
                self.model.words.weight[known] = torch.from_numpy(data.words)[known]
        self.model.to(device)
        self.optimiser = adam(self.model, config.optimiser)
        self._half = config.batch // 2
        self.steps_per_epoch = -(-len(data.train) // self._half)
        self.data, self.facts, self.trained_on = data.names, data.facts, data.record
        self.image_mean = lambda: data.train.vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._negatives, self._machine = list(config.negatives or ()), bool(data.train.machine)
        self._dev_pairs = self._fixed_pairs(data.dev)

    def _kind(self, rng: np.random.Generator) -> str:
        """A kind of negative caption: machine-generated and corrupted ones with equal probability."""
        if self._machine and (not self._negatives or rng.integers(2) == 0):
            return "machine"
        return self._negatives[int(rng.integers(len(self._negatives)))]

    def _fixed_pairs(self, images: Images) -> list[Pair]:
        """Validation pairs: for each image, its first caption as the reference of the second and of negative captions.

        There is one corrupted caption of each kind in the training, and the caption of each system.
        """
        pairs = []
        rng = np.random.default_rng((self._config.evaluation.seed, 2))
        for image, captions in enumerate(images.human):
            reference = captions[0]
            pairs.append(Pair(image, reference, captions[1], True, "human"))
            for kind in self._negatives:
                wrong = draw_negative(images, image, kind, len(self._vocabulary), rng)
                pairs.append(Pair(image, reference, wrong, False, kind))
            for system in sorted(images.machine[image]) if images.machine else ():
                pairs.append(Pair(image, reference, images.machine[image][system], False, "machine"))
        return pairs

    def batches(self, epoch: int, first: int) -> Iterator[Sequence[Pair]]:
        """The batches of an epoch, starting with number ``first``."""
        images = self._train
        order = np.random.default_rng((self._config.seed, 1, epoch)).permutation(len(images)).tolist()
        for number in range(first, self.steps_per_epoch):
            rng = np.random.default_rng((self._config.seed, 2, epoch * self.steps_per_epoch + number))
            pairs = []
            for image in order[number * self._half : (number + 1) * self._half]:
                captions = images.human[image]
                reference, right = rng.choice(len(captions), 2, replace=False).tolist()
                wrong = draw_negative(images, image, kind := self._kind(rng), len(self._vocabulary), rng)
                pairs.append(Pair(image, captions[reference], captions[right], True, "human"))
                pairs.append(Pair(image, captions[reference], wrong, False, kind))
            yield pairs

    def _logits(self, model: Leic, images: Images, pairs: Sequence[Pair], dropout: float) -> Tensor:
        # A reference of a human and a negative caption is read once.
        place: dict[tuple[int, ...], int] = {}
        rows = [
            [place.setdefault(tuple(caption), len(place)) for caption in (pair.reference, pair.candidate)]
            for pair in pairs
        ]
        ids, lengths = pad(list(place))
        # Padded to full length, so that a caption's states do not depend on the others in the batch.
        ids = functional.pad(ids, (0, model.options.steps - ids.shape[1]), value=PAD)
        states = model.states(ids.to(self._device), lengths, dropout)
        references, candidates = torch.tensor(rows, device=self._device).T
        vectors = torch.from_numpy(images.vectors[[pair.image for pair in pairs]]).to(self._device)
        return model.logits(vectors, states[references], states[candidates], dropout)

    def loss(self, batch: Sequence[Pair], step: int) -> Tensor:
        """The mean cross entropy."""
        labels = torch.tensor([HUMAN if pair.human else 1 - HUMAN for pair in batch], device=self._device)
        return functional.cross_entropy(self._logits(self.model, self._train, batch, self._config.dropout), labels)

    @torch.inference_mode()
    def validate(self, model: Leic, pause: Callable[[], None]) -> dict[str, Any]:
        """Mean log-likelihood and accuracy, with equal weight of human and negative captions, and the mean probability
        of the class human for each kind of caption."""
        model.eval()
        pairs, human = self._dev_pairs, []
        for begin in range(0, len(pairs), _AT_ONCE):
            pause()
            logits = self._logits(model, self._dev, pairs[begin : begin + _AT_ONCE], 0.0)
            human.append(functional.log_softmax(logits.double(), dim=1).cpu())
        scores = torch.cat(human).numpy()
        right = np.array([pair.human for pair in pairs])
        likelihood = np.where(right, scores[:, HUMAN], scores[:, 1 - HUMAN])
        correct = (scores[:, HUMAN] > scores[:, 1 - HUMAN]) == right
        kinds = np.array([pair.kind for pair in pairs])
        numbers = {
            "log_likelihood": float(likelihood[right].mean() + likelihood[~right].mean()) / 2,
            "accuracy": float(correct[right].mean() + correct[~right].mean()) / 2,
            **{
                f"p {kind}": float(np.exp(scores[kinds == kind, HUMAN]).mean())
                for kind in dict.fromkeys(kinds.tolist())
            },
        }
        return {name: round(value, 6) for name, value in numbers.items()}

    def save(self, path: Path, model: Leic, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_leic(path, model, self._vocabulary, facts)


def _line(entry: Mapping[str, Any]) -> str:
    kinds = ", ".join(f"{name.removeprefix('p ')} {value:.3f}" for name, value in entry.items() if name[:2] == "p ")
    likelihood = f"held-out log-likelihood {entry['log_likelihood']:.4f}, accuracy {entry['accuracy']:.1%}"
    return f"{likelihood}; p(human) of {kinds}"


TRAINABLE = Trainable(
    settings=LeicTraining,
    train=train_leic,
    line=_line,
    score="score",
    metric="leic",
    use=lambda settings, model: f"--metric leic --features {settings.features} --model leic={model}",
)
