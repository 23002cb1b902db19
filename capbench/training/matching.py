"""Networks that match captions with images: settings, losses, batches, and recall on a split."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from capbench.core.errors import ModelError, UsageError
from capbench.core.machine import choose_device
from capbench.datasets.root import DataRoot
from capbench.features.shown import MEAN_KEY, mean_to_text
from capbench.stats.retrieval import RECALLS
from capbench.text.vocabulary import UNKNOWN, Vocabulary
from capbench.training import data, settings
from capbench.training.data import More, Regions
from capbench.training.trainer import B, Bar, M, Measurement, Task, Watcher, adam
from capbench.weights.training_files import KEY


class VocabularyOptions(settings.Section):
    """The words that a network knows, of the captions for train and dev."""

    min_count: settings.Count = 4  # minimum frequency; rarer words become <unk>


class LossOptions(settings.Section):
    """The loss of a batch."""

    kind: Literal["hinge", "info-nce"] = "hinge"
    margin: settings.Positive = 0.2
    hardest: bool = False  # true: use only the hardest negative of each row and column
    hardest_after: settings.Whole = 0  # first steps that use all negatives; without them training can collapse
    temperature: settings.Positive = 0.1

    def __call__(self, scores: Tensor, step: int) -> Tensor:
        """The loss of (b, b) similarities of images (rows) and captions at a step, counted from 0."""
        if self.kind == "info-nce":
            return info_nce(scores, self.temperature)
        return hinge_loss(scores, self.margin, self.hardest and step >= self.hardest_after)


class DropoutOptions(settings.Section):
    """Dropout rates in training."""

    regions: settings.Fraction = 0.0  # components of the region features
    words: settings.Fraction = 0.0  # words, which become <unk>; not <start> and <end>
    embedding: settings.Fraction = 0.0  # components of the word vectors that go into the GRU

    def drop_words(self, ids: Tensor, rng: np.random.Generator) -> Tensor:
        """Replace words of (b, m) ids by ``<unk>`` at random; special words have lower numbers and stay."""
        if not self.words:  # draws nothing
            return ids
        dropped = torch.from_numpy(rng.random(tuple(ids.shape)) < self.words)
        return torch.where((ids > UNKNOWN) & dropped, UNKNOWN, ids)


class MatchingTraining(data.CaptionTraining):
    """Settings of a training of a network that matches captions with images."""

    measured = ("vocabulary_size", "image_dim")

    vocabulary: VocabularyOptions = VocabularyOptions()
    loss: LossOptions = LossOptions()
    dropout: DropoutOptions = DropoutOptions()

    def contradictions(self) -> Iterable[str]:
        idle = ("temperature",) if self.loss.kind == "hinge" else ("margin", "hardest", "hardest_after")
        for key in idle:
            if getattr(self.loss, key) != getattr(type(self).model_fields["loss"].default, key):
                yield f"'loss.{key}' does nothing if 'loss.kind' is {self.loss.kind}"
        if self.loss.hardest_after and not self.loss.hardest:
            yield "'loss.hardest_after' does nothing without 'loss.hardest: true'"


# Losses on (b, b) similarities: row i is image i, column j is caption j, matching pairs are on the diagonal.


def hinge_loss(scores: Tensor, margin: float = 0.2, hardest: bool = True) -> Tensor:
    """Sum of triplets with a margin in both directions (Lee et al. 2018, eq. 11 and 12).

    With ``hardest``, only the hardest negative of each row and column counts (Faghri et al. 2018).
    """
    pairs = scores.diagonal()
    same = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    captions = (margin + scores - pairs[:, None]).clamp_min(0).masked_fill(same, 0)  # another caption of the image
    images = (margin + scores - pairs[None, :]).clamp_min(0).masked_fill(same, 0)  # another image of the caption
    if hardest:
        captions, images = captions.max(1).values, images.max(0).values
    return captions.sum() + images.sum()


def info_nce(scores: Tensor, temperature: float = 0.1) -> Tensor:
    """Symmetric InfoNCE of (b, b) scores (van den Oord et al. 2018; CLIP): mean of two mean cross entropies."""
    partners, logits = torch.arange(len(scores), device=scores.device), scores / temperature
    return (cross_entropy(logits, partners) + cross_entropy(logits.t(), partners)) / 2


# Tasks.


class CaptionTask(Task[M, B]):
    """A task whose batches are captions with their images: reads both, with ``more`` of the images besides features."""

    def __init__(
        self, config: Any, root: DataRoot | None, device: torch.device, watcher: Watcher, more: More | None = None
    ) -> None:
        self.config, self.device = config, device
        self.train, self.dev_pairs = data.training_pairs(config, root, watcher.say)
        self.sample = self.dev_pairs.sample(config.evaluation.images, config.dev_captions())
        self.regions, self.dev_regions = (Regions(config, root, pairs, more) for pairs in (self.train, self.sample))
        where = "in memory" if self.regions.in_memory else "read batch by batch"
        n, each, columns = self.regions.shape
        watcher.say(f"features: {n:,} x {each} regions x {columns}, {where}")
        self.data = {"captions": self.train.fingerprint(), "dev captions": self.sample.fingerprint()}
        self.data |= {"features": self.regions.signature, "regions": f"{each} x {columns}"}
        record = data.training_record(self.train, self.dev_pairs)
        self._facts: dict[str, Any] = {"features": self.regions.kind, KEY: record.to_json()}
        # A batch of 128 images takes 16 ms in memory and more from disk; SCAN's step takes 27 ms on a GPU.
        self.prefetch = device.type == "cuda" or not self.regions.in_memory

    def start(self, model: M) -> None:
        """Make the optimiser of the network."""
        self.model = model.to(self.device)
        self.optimiser = adam(self.model, self.config.optimiser)
        self.steps_per_epoch = len(self._order(0))

    def _order(self, epoch: int) -> list[NDArray[np.int64]]:
        return self.train.batches(self.config.batch, self.config.order, self.config.seed, epoch)

    def batches(self, epoch: int, first: int) -> Iterator[B]:
        for number, chosen in enumerate(self._order(epoch)[first:], epoch * self.steps_per_epoch + first):
            yield self.batch(chosen, number)

    @abstractmethod
    def batch(self, chosen: NDArray[np.int64], step: int) -> B:
        """The batch of some captions; its random numbers are determined by seed and step."""

    def facts(self) -> dict[str, Any]:
        """With the features' mean, for ``image=mean``."""
        return {MEAN_KEY: mean_to_text(self.regions.mean()), **self._facts}


class Reader:
    """Reads captions as word numbers with ``<start>`` and ``<end>``, and images as features, unless overridden."""

    more: More | None = None  # What it reads of an image besides features

    def __init__(self, options: Any, root: DataRoot | None, watcher: Watcher) -> None:
        self.options, self.root, self.watcher = options, root, watcher

    def texts(self, captions: Sequence[str]) -> Iterable[str]:
        """Further texts whose words the vocabulary counts."""
        return ()

    def encode(self, captions: Sequence[str], vocabulary: Vocabulary) -> list[Any]:
        """Captions in the network's input format."""
        return [vocabulary.encode(text) for text in captions]


class Split(NamedTuple):
    """A role's captions and images, its captions in the network's input format, and features of the images."""

    pairs: data.Pairs
    captions: list[Any]
    regions: Regions
    vocabulary: Any  # the network's words or word pieces


class MatchingTask(CaptionTask[M, B]):
    """A task whose score is recall."""

    settings: ClassVar[type[MatchingTraining]]
    reader: ClassVar[type[Reader]] = Reader
    network: Any  # makes the network of some sizes, with first weights drawn by a generator: its class, or a method
    load: ClassVar[Callable[..., Any]]  # reads a weight file: path, device=
    released: ClassVar[bool] = False  # True if it also reads released checkpoints: vocabulary=
    score = "recall_sum"

    def __init__(self, config: Any, root: DataRoot | None, device: torch.device, watcher: Watcher) -> None:
        reader = self.reader(config.network, root, watcher)
        super().__init__(config, root, device, watcher, reader.more)
        captions = self.train.captions, self.sample.captions
        texts = [*captions[0], *self.dev_pairs.captions, *reader.texts([text for part in captions for text in part])]
        self.vocabulary = data.build_vocabulary(texts, config.vocabulary.min_count, watcher.say)
        self.captions, dev = (reader.encode(part, self.vocabulary) for part in captions)
        self.dev = Split(self.sample, dev, self.dev_regions, self.vocabulary)
        self.data["vocabulary"] = self.vocabulary.sha256
        sizes = {"vocabulary_size": len(self.vocabulary), "image_dim": self.regions.shape[2]}
        self.options = replace(config.network, **sizes)
        self.start(self.network(self.options, torch.Generator().manual_seed(config.seed)))

    @classmethod
    @abstractmethod
    def recalls(cls, network: Any, split: Split, config: Any, folds: int, bar: Bar) -> dict[str, Any]:
        """Recalls on a split, means over equal parts of the images."""

    def validate(self, model: M, pause: Callable[[], None]) -> dict[str, Any]:
        return self.recalls(model, self.dev, self.config, 1, lambda *_: nullcontext(lambda _done: pause()))

    @classmethod
    def measure(cls, config: Any, model: Path, asked: Measurement) -> dict[str, Any]:
        if asked.vocabulary is not None and not cls.released:
            message, hint = "the network's file has its vocabulary", "Omit --vocabulary"
            raise UsageError(message, code="unsupported", value="vocabulary", hint=hint)
        words = {"vocabulary": asked.vocabulary} if cls.released else {}
        loaded = cls.load(model, device=choose_device(config.device), **words)
        reader = cls.reader(loaded.options, asked.root, asked.watcher)
        (pairs,) = data.read_pairs(config, asked.root, asked.split)
        pairs = pairs.sample(asked.images, config.dev_captions())
        if (images := len(pairs.images)) % asked.folds:
            message = f"{images:,} images cannot be divided into {asked.folds} equal parts"
            raise UsageError(message, code="wrong-value", value=asked.folds, hint="Change --folds")
        regions = Regions(config, asked.root, pairs, reader.more)
        differs = None not in (loaded.features, regions.kind) and loaded.features != regions.kind
        if differs or regions.shape[2] != loaded.options.image_dim:
            message = f"was trained on features of another kind ({loaded.features}) than these ({regions.signature})"
            hint = "Pass the features that it was trained on with --features"
            raise ModelError(message, code="wrong-features", value=regions.kind, path=loaded.path, hint=hint)
        split = Split(pairs, reader.encode(pairs.captions, loaded.vocabulary), regions, loaded.vocabulary)
        numbers = cls.recalls(loaded.network, split, config, asked.folds, asked.watcher.bar)
        return {"folds": asked.folds, **numbers, "sha256": loaded.sha256}

    @staticmethod
    def line(entry: Mapping[str, Any]) -> str:
        """Recalls and median ranks in both directions."""
        parts = []
        for direction in ("image_to_text", "text_to_image"):
            recalls = ", ".join(f"R@{k} {entry[direction][f'r@{k}']:.1f}" for k in RECALLS)
            parts.append(f"{direction.replace('_', ' ')} {recalls}, median rank {entry[direction]['median_rank']:.1f}")
        return f"{'; '.join(parts)}; recall sum {entry['recall_sum']:.1f}"


# Similarities of every image with every caption of a split, block by block.

IMAGES, CAPTIONS = 128, 256  # Images and captions that are encoded at once


@torch.inference_mode()
def similarity_matrix(
    network: nn.Module,
    images: int,  # number of images
    lengths: Sequence[int],  # of the captions; those of similar lengths are encoded together
    encode_images: Callable[[NDArray[np.int64]], Any],  # a block, by indices
    encode_captions: Callable[[NDArray[np.int64]], Any],
    compare: Callable[[Any, Any], Tensor],  # similarities of two encoded blocks
    bar: Bar,
) -> NDArray[np.float32]:
    """(images, captions) similarities; each image and each caption is encoded once."""
    network.eval()
    encoded = [encode_images(np.arange(i, min(i + IMAGES, images))) for i in range(0, images, IMAGES)]
    matrix = np.empty((images, len(lengths)), dtype=np.float32)
    order = np.argsort(lengths, kind="stable")
    with bar("comparing captions", len(order)) as step:
        for first in range(0, len(order), CAPTIONS):
            chosen = order[first : first + CAPTIONS]
            step(len(chosen))
            captions = encode_captions(chosen)
            matrix[:, chosen] = torch.cat([compare(block, captions).float() for block in encoded]).cpu().numpy()
    return matrix
