"""Training of LEIC (Cui et al., CVPR 2018).

Defaults are those of the published training and of the options of its released code: batches of 100 captions, half of
them human; Adam with learning rate 1e-3, times .9 after each epoch; gradients clipped at 1; dropout .5; 30 epochs. An
image's vector is the mean of its regions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, InstanceOf
from torch import Tensor
from torch.nn import functional

from capbench.core.errors import DataError
from capbench.datasets.captions import read_machine_captions
from capbench.datasets.root import DataRoot
from capbench.features.shown import MEAN_KEY, mean_to_text
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.leic.network import HUMAN, Leic, LeicOptions, encode_words, mean_vector
from capbench.text.vocabulary import PAD, SPECIAL, pad_rows
from capbench.training import data, settings
from capbench.training.trainer import Task, Watcher, adam
from capbench.weights.training_files import KEY

Negative = Literal["other-image", "replaced-words", "permuted"]
NEGATIVES: tuple[Negative, ...] = get_args(Negative)
"""A caption of another image, or a caption of the image with some words replaced by random ones or permuted."""


class LeicOptimiser(settings.OptimiserOptions):
    """Adam with exponential decay of the learning rate."""

    lr_decay: Annotated[float, Field(ge=0, le=1)] = 0.9  # factor of the learning rate after each epoch

    def share(self, epoch: int) -> float:
        return super().share(epoch) * self.lr_decay**epoch


class FoldOptions(settings.Section):
    """Images that are left out of the training and replace the dev split."""

    of: settings.AtLeast2 | None = None  # number of parts of the training images; null: none is left out
    out: settings.Count = 1  # number of the part that is left out, from 1


class LeicTraining(settings.Training):
    """The settings of a training of LEIC; with ``machine``, half of the negative captions are by systems."""

    unchecked = (*settings.Training.unchecked, "captions", "features", "machine")
    measured = ("vocabulary_size", "image_dim")

    captions: settings.Text
    splits: data.SplitOptions = data.SplitOptions()
    features: settings.Text
    negatives: Annotated[tuple[Negative, ...], settings.as_tuple] | None = NEGATIVES
    machine: settings.Names | None = None  # files with captions of the training images by systems
    folds: FoldOptions = FoldOptions()
    min_count: settings.Count = 4  # minimum frequency of a word in the training captions; rarer ones become <unk>
    network: InstanceOf[LeicOptions] = LeicOptions(vocabulary_size=4)
    dropout: settings.Fraction = 0.5  # of word vectors, states and hidden units
    optimiser: LeicOptimiser = LeicOptimiser(lr=1e-3, clip=1.0)
    evaluation: settings.EvaluationOptions = settings.EvaluationOptions()
    batch: Annotated[int, Field(ge=2, multiple_of=2)] = 100  # captions per step, half of them human

    def contradictions(self) -> Iterable[str]:
        if not self.negatives and not self.machine:
            yield "there are no negative captions: set 'negatives' or 'machine'"
        if self.folds.out > (self.folds.of or 1):
            yield f"'folds.out' is {self.folds.out}, but there are {self.folds.of or 1} parts"


# Training examples: human captions of an image, and corrupted, foreign or machine-generated ones.

Numbers = Sequence[int]  # Word ids of a caption, with ``<end>``


class Images(NamedTuple):
    """Images: (n, D) float32 vectors, at least two human captions of each, and a caption by each system."""

    vectors: NDArray[np.float32]
    human: Sequence[Sequence[Numbers]]
    machine: Sequence[Sequence[Numbers]] = ()


class Pair(NamedTuple):
    """A reference and a candidate of an image: a human caption of it, or one of :data:`NEGATIVES` or ``machine``."""

    image: int
    reference: Numbers
    candidate: Numbers
    kind: str


def draw_negative(images: Images, image: int, kind: str, words: int, rng: np.random.Generator) -> Numbers:
    """A negative caption of an image: of a kind of :data:`NEGATIVES`, or ``machine``; ``words`` in the vocabulary."""
    if kind == "machine":
        return images.machine[image][int(rng.integers(len(images.machine[image])))]
    if kind == "other-image":
        image = (image + 1 + int(rng.integers(len(images.human) - 1))) % len(images.human)
    caption = images.human[image][int(rng.integers(len(images.human[image])))]
    return caption if kind == "other-image" else corrupted(caption, kind, words, rng)


def corrupted(caption: Numbers, kind: str, words: int, rng: np.random.Generator) -> Numbers:
    """The caption with some of its words replaced by random ones of the vocabulary (not special ones), or permuted,
    once again if their order is unchanged: two to all but one, as in the released code; all of up to two words."""
    changed, length = list(caption), len(caption) - 1
    if kind == "permuted" and length < 2:
        return changed
    places = rng.choice(length, length if length <= 2 else int(rng.integers(2, length)), replace=False)
    if kind == "replaced-words":
        for place in places:
            changed[place] = int(rng.integers(len(SPECIAL), words))
        return changed
    order = rng.permutation(places)
    if (order == places).all():
        order = rng.permutation(places)
    for place, source in zip(places, order, strict=True):
        changed[place] = caption[source]
    return changed


def parts_of(images: Sequence[str], of: int) -> NDArray[np.int64]:
    """(images,) the part of each image, from 1; it depends on the set of their names only."""
    parts = np.empty(len(images), dtype=np.int64)
    parts[np.argsort(images)[np.random.default_rng((1, 6)).permutation(len(images))]] = 1 + np.arange(len(images)) % of
    return parts


def read_images(config: LeicTraining, root: DataRoot | None, watcher: Watcher) -> tuple[data.Pairs, data.Pairs]:
    """Captions of the training images, and of the dev split or the part that is left out."""
    if config.folds.of is None:
        train, dev = data.training_pairs(config, root, watcher.say)
        dev = dev.sample(config.evaluation.images)
    else:
        (pairs,) = data.read_pairs(config, root, "train")
        out = parts_of(pairs.images, config.folds.of) == config.folds.out
        train, dev = pairs.only(np.flatnonzero(~out)), pairs.only(np.flatnonzero(out))
        watcher.say(f"captions: {pairs.source}: train {len(train.images):,} images, dev {len(dev.images):,}")
    for pairs in (train, dev):
        few = np.flatnonzero(np.bincount(pairs.image_of) < 2)
        if len(few) or len(pairs.images) < 2:
            message = "two images or more are required, with two captions or more each"
            value = pairs.images[few[0]] if len(few) else len(pairs.images)
            raise DataError(message, code="too-few", value=value, path=pairs.source)
    return train, dev


class LeicTask(Task[Leic, Sequence[Pair]]):
    """Classification of captions as human or not.

    An epoch has every image once, with one of its captions as the reference, another one, and a negative caption.
    """

    settings = LeicTraining
    metric = "leic"
    score = "log_likelihood"

    def __init__(self, config: LeicTraining, root: DataRoot | None, device: torch.device, watcher: Watcher) -> None:
        self.config, self.device = config, device
        train, dev = roles = read_images(config, root, watcher)
        of_roles = (zip(pairs.images, pairs.of_images(pairs.captions), strict=True) for pairs in roles)
        human = {image: texts for of_role in of_roles for image, texts in of_role}
        machine = [data.locate(name, root, "captions of systems") for name in config.machine or ()]
        systems = read_machine_captions(machine, human, watcher.say) if machine else {}
        self.systems = dict(sorted(systems.items()))
        for name, captions in self.systems.items():
            if missing := [image for image in human if image not in captions]:
                message = f"the system '{name}' has no captions of {len(missing):,} of {len(human):,} images"
                raise DataError(message, code="missing-caption", value=missing[0], hint="Set 'splits' and 'folds'")
        self.vocabulary = data.build_vocabulary(train.captions, config.min_count, watcher.say)
        with open_store(data.locate(config.features, root, "features")) as store:
            watcher.say(f"image vectors: means of the regions of {len(human):,} images in {store.paths[0]}")
            self.images = [self._images(pairs, store) for pairs in roles]
            self._features, identity = store.fingerprint.kind, store.signature()
        sizes = {"vocabulary_size": len(self.vocabulary), "image_dim": self.images[0].vectors.shape[1]}
        self.model = Leic(replace(config.network, **sizes), torch.Generator().manual_seed(config.seed))
        self.model.to(device)
        self.optimiser = adam(self.model, config.optimiser)
        self.steps_per_epoch = -(-len(train.images) // (config.batch // 2))
        self.data = {"captions": train.fingerprint(), "dev captions": dev.fingerprint(), "features": identity}
        self.data |= {name: data.fingerprint(texts[image] for image in human) for name, texts in self.systems.items()}
        self.data |= {"vocabulary": self.vocabulary.sha256}
        texts = [texts[image] for texts in self.systems.values() for image in train.images]
        self.record = data.training_record(train, dev, texts)
        if config.folds.of is not None:
            self.record = replace(self.record, selected_by="the part of the images that is left out")
        self._dev_pairs = self._fixed_pairs()

    def _images(self, pairs: data.Pairs, store: FeatureStore) -> Images:
        def encode(text: str) -> list[int]:
            return encode_words(text, self.vocabulary, self.config.network.steps)

        store.require(pairs.images)
        vectors = np.stack([mean_vector(store[image].features) for image in pairs.images])
        machine = [[encode(texts[image]) for texts in self.systems.values()] for image in pairs.images]
        return Images(vectors, pairs.of_images([encode(text) for text in pairs.captions]), machine)

    def _fixed_pairs(self) -> list[Pair]:
        """Validation pairs: each image's first caption with the second, a corrupted one of each kind, and systems'."""
        pairs, images, rng = [], self.images[1], np.random.default_rng((1, 2))
        for image, (reference, right, *_) in enumerate(images.human):
            pairs.append(Pair(image, reference, right, "human"))
            for kind in self.config.negatives or ():
                wrong = draw_negative(images, image, kind, len(self.vocabulary), rng)
                pairs.append(Pair(image, reference, wrong, kind))
            pairs += [Pair(image, reference, caption, "machine") for caption in images.machine[image]]
        return pairs

    def batches(self, epoch: int, first: int) -> Iterator[Sequence[Pair]]:
        """The batches of an epoch, starting with number ``first``; half of the negatives are by systems, if any."""
        images, half, kinds = self.images[0], self.config.batch // 2, self.config.negatives or ()
        order = np.random.default_rng((self.config.seed, 1, epoch)).permutation(len(images.human)).tolist()
        for number in range(first, self.steps_per_epoch):
            rng = np.random.default_rng((self.config.seed, 2, epoch * self.steps_per_epoch + number))
            pairs = []
            for image in order[number * half : (number + 1) * half]:
                captions = images.human[image]
                reference, right = rng.choice(len(captions), 2, replace=False).tolist()
                by_system = self.systems and (not kinds or rng.integers(2) == 0)
                kind = "machine" if by_system else kinds[int(rng.integers(len(kinds)))]
                wrong = draw_negative(images, image, kind, len(self.vocabulary), rng)
                pairs.append(Pair(image, captions[reference], captions[right], "human"))
                pairs.append(Pair(image, captions[reference], wrong, kind))
            yield pairs

    def _logits(self, model: Leic, images: Images, pairs: Sequence[Pair], dropout: float) -> Tensor:
        place: dict[tuple[int, ...], int] = {}  # a reference of several captions is read once
        rows = [
            [place.setdefault(tuple(text), len(place)) for text in (pair.reference, pair.candidate)] for pair in pairs
        ]
        ids, lengths = pad_rows(list(place))
        # Padded to full length, so that a caption's states do not depend on the others in the batch.
        ids = functional.pad(ids, (0, model.options.steps - ids.shape[1]), value=PAD)
        states = model.states(ids.to(self.device), lengths, dropout)
        references, candidates = torch.tensor(rows, device=self.device).T
        vectors = torch.from_numpy(images.vectors[[pair.image for pair in pairs]]).to(self.device)
        return model.logits(vectors, states[references], states[candidates], dropout)

    def loss(self, batch: Sequence[Pair], step: int) -> Tensor:
        labels = torch.tensor([HUMAN if pair.kind == "human" else 1 - HUMAN for pair in batch], device=self.device)
        return functional.cross_entropy(self._logits(self.model, self.images[0], batch, self.config.dropout), labels)

    @torch.inference_mode()
    def validate(self, model: Leic, pause: Callable[[], None]) -> dict[str, Any]:
        """Log-likelihood and accuracy, with equal weight of human and negative captions, and p(human) of each kind."""
        model.eval()
        pairs, found = self._dev_pairs, []
        for begin in range(0, len(pairs), 500):
            pause()
            logits = self._logits(model, self.images[1], pairs[begin : begin + 500], 0.0)
            found.append(functional.log_softmax(logits.double(), dim=1).cpu())
        scores, kinds = torch.cat(found).numpy(), np.array([pair.kind for pair in pairs])
        right = kinds == "human"
        likelihood = np.where(right, scores[:, HUMAN], scores[:, 1 - HUMAN])
        correct = (scores[:, HUMAN] > scores[:, 1 - HUMAN]) == right
        numbers = {"log_likelihood": likelihood, "accuracy": correct}
        means = {name: float(of[right].mean() + of[~right].mean()) / 2 for name, of in numbers.items()}
        for kind in dict.fromkeys(kinds.tolist()):
            means[f"p {kind}"] = float(np.exp(scores[kinds == kind, HUMAN]).mean())
        return {name: round(value, 6) for name, value in means.items()}

    def facts(self) -> dict[str, Any]:
        """Facts; the metric shows ``about`` in tables after "weights". Its wording is stored: do not change it."""
        n, folds, systems = len(self.images[0].human), self.config.folds, [*self.systems]
        kinds: list[str] = [*(self.config.negatives or ())]
        if systems:
            kinds.append(f"captions of {len(systems)} systems" if len(systems) > 1 else f"captions of {systems[0]}")
        part = "" if folds.of is None else f" (all but part {folds.out} of {folds.of})"
        trained = f"captions of {n:,} images{part} against {', '.join(kinds)}"
        mean = self.images[0].vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        facts = {"features": self._features, "about": f"were trained on people's {trained}", "systems": systems}
        return {**facts, KEY: self.record.to_json(), MEAN_KEY: mean_to_text(mean)}
