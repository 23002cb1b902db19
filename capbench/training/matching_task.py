"""What training a network that matches captions with images has in common, whatever the network."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from capbench.core.errors import ModelError, UsageError
from capbench.datasets.root import DataRoot
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.training.captions import CaptionTraining, MatchingTraining, Pairs, epoch_order
from capbench.training.loop import B, M, Task
from capbench.training.prepare import (
    Prepared,
    Reading,
    Split,
    WordNumbers,
    caption_source,
    drop_words,
    pad,
    prepare_split,
    signature_of_features,
)
from capbench.training.regions import Regions
from capbench.training.run_folder import adam
from capbench.training.trainable import Measuring

if TYPE_CHECKING:
    from capbench.training.captions import LossOptions

__all__ = [
    "CAPTIONS",
    "IMAGES",
    "Batch",
    "CaptionTask",
    "MatchingTask",
    "MeasuredModel",
    "Network",
    "Readable",
    "WordNetwork",
    "WordTask",
    "batch_loss",
    "batches",
    "blocks",
    "evaluate_words",
    "hinge_loss",
    "info_nce",
    "measure_words",
    "recalls_of",
    "similarity_matrix",
    "similarity_matrix_of_words",
    "split_for",
]


# What training a network on captions and their images has in common, whatever the network.


class CaptionTask(Task[M, B], Generic[M, B]):
    """A task whose batches are captions and their images, drawn for each epoch from the seed and the epoch.

    Args:
        config: the settings.
        pairs: captions and images that are learned from.
        regions: features of these images.
        model: the network, with its first weights drawn on the CPU, so that a seed means the same on every device.
        device: where the network is trained.
    """

    def __init__(self, config: CaptionTraining, pairs: Pairs, regions: Regions, model: M, device: torch.device) -> None:
        self._pairs, self._device = pairs, device
        self._drawn = (config.batch, config.order, config.seed)
        self.model = model.to(device)
        self.optimiser = adam(self.model, config.optimiser)
        self.steps_per_epoch = len(self.order(0))
        # It pays where features are read from disk, or a GPU computes meanwhile.
        self.prefetch = device.type == "cuda" or not regions.in_memory

    def order(self, epoch: int) -> list[NDArray[np.int64]]:
        """The captions of each batch of an epoch."""
        return epoch_order(self._pairs, *self._drawn, epoch)

    def batches(self, epoch: int, first: int) -> Iterator[B]:
        """The batches of an epoch from the ``first``-th on."""
        return self.make_batches(self.order(epoch)[first:], epoch * self.steps_per_epoch + first)

    @abstractmethod
    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[B]:
        """Batches of chosen captions; what is drawn for each follows from the seed and its step.

        Args:
            orders: captions of each batch.
            first_step: number of the first batch's step, from 0 over all epochs.
        """


E = TypeVar("E")


class MatchingTask(CaptionTask[M, B], Generic[M, B, E]):
    """A task on captions of words, whose score is recall.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.
        model: the network, with its first weights drawn on the CPU; its embeddings are word vectors.

    Raises:
        UsageError: the vectors to begin with are of another size than the network's.
    """

    score = "recall_sum"

    def __init__(self, config: MatchingTraining, data: Prepared[E], device: torch.device, model: M) -> None:
        if data.word_start is not None:
            for layer in model.modules():
                if isinstance(layer, nn.Embedding):
                    data.word_start.begin(layer)
        super().__init__(config, data.train.pairs, data.train.regions, model, device)
        self._split, self._dev, self._vocabulary = data.train, data.dev, data.vocabulary
        self.data, self.facts = data.names, {"features": data.features}


class Readable(Protocol):
    """A trained model, as far as a split of images and captions has to fit it."""

    @property
    def path(self) -> Path | None:
        """Its file."""

    @property
    def features(self) -> str | None:
        """The kind of features that it was trained on, or None if unknown."""

    @property
    def vocabulary(self) -> Any:
        """Its words."""

    @property
    def options(self) -> Any:
        """Its shape, with ``image_dim``."""


def split_for(
    config: MatchingTraining, model: Readable, pairs: Pairs, reading: Reading[E], root: DataRoot | None
) -> Split[E]:
    """A split as a trained model reads it.

    Args:
        config: says where the features are.
        model: whose vocabulary encodes the captions.
        pairs: images and captions.
        reading: how it reads them.
        root: the data folder.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions or features are missing or do not fit.
    """
    kind, named = signature_of_features(config, root, pairs)
    if None not in (model.features, kind) and model.features != kind:
        raise ModelError(
            f"was trained on features of another kind ({model.features}, here {kind})",
            path=model.path,
            hint="Give the features that it was trained on with --features",
        )
    reading.more_words(pairs.captions)
    split = prepare_split(config, pairs, reading, model.vocabulary, root)
    if split.regions.shape[2] != model.options.image_dim:
        raise ModelError(
            f"reads features of {model.options.image_dim} columns; these ({named}) have {split.regions.shape[2]}",
            path=model.path,
        )
    return split


# Losses on a square matrix of similarities: row i is image i, column j caption j, pairs that belong together on the
# diagonal.


def batch_loss(scores: Tensor, options: LossOptions, step: int) -> Tensor:
    """The loss that the settings ask for.

    Args:
        scores: (b, b).
        options: which loss, and its numbers.
        step: from 0; ``hardest_after`` counts it.
    """
    if options.kind == "info-nce":
        return info_nce(scores, options.temperature)
    return hinge_loss(scores, options.margin, options.hardest and step >= options.hardest_after, options.reduction)


def hinge_loss(
    scores: Tensor, margin: float = 0.2, hardest: bool = True, reduction: Literal["sum", "mean"] = "sum"
) -> Tensor:
    """Triplet hinge loss in both directions (Lee et al. 2018, eq. 11 and 12; hardest negatives: Faghri et al. 2018).

    Args:
        scores: (b, b).
        margin: by how much a pair shall be above its negatives.
        hardest: only the worst negative of each row and of each column counts (``max_violation``), else all do.
        reduction: ``sum`` over the batch as released, or ``mean`` over the b·(b − 1) negatives of each direction
            (``hardest``: over its b), the two directions added.

    Raises:
        UsageError: the matrix is not square, or ``reduction`` is another.
    """
    size = _size(scores)
    if reduction not in ("sum", "mean"):
        raise UsageError(f"reduction is '{reduction}'", hint="Choices: sum, mean")
    pairs = scores.diagonal()  # of what belongs together
    same = torch.eye(size, dtype=torch.bool, device=scores.device)
    captions = (margin + scores - pairs[:, None]).clamp_min(0).masked_fill(same, 0)  # another caption of the image
    images = (margin + scores - pairs[None, :]).clamp_min(0).masked_fill(same, 0)  # another image of the caption
    if hardest:
        captions, images = captions.max(1).values, images.max(0).values
    total = captions.sum() + images.sum()
    return total if reduction == "sum" else total / (size if hardest else max(1, size * (size - 1)))


def info_nce(scores: Tensor, temperature: float = 0.1) -> Tensor:
    """Symmetric InfoNCE (van den Oord et al. 2018; both directions as in CLIP): mean of two mean cross entropies.

    Args:
        scores: (b, b).
        temperature: that the scores are divided by.

    Raises:
        UsageError: the matrix is not square, or the temperature is not above 0.
    """
    if not temperature > 0:
        raise UsageError(f"temperature is {temperature}", hint="Give a number above 0")
    partners = torch.arange(_size(scores), device=scores.device)
    logits = scores / temperature
    return (functional.cross_entropy(logits, partners) + functional.cross_entropy(logits.t(), partners)) / 2


def _size(scores: Tensor) -> int:
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or not len(scores):
        raise UsageError(f"the matrix of similarities has shape {tuple(scores.shape)}, which is not square")
    return len(scores)


# Similarities of every image with every caption of a split, block by block.

IMAGES = 128
"""How many images are encoded at once."""
CAPTIONS = 256
"""How many captions are encoded at once."""

I = TypeVar("I")  # noqa: E741  # an encoded block of images
C = TypeVar("C")  # an encoded block of captions


class Network(Protocol):
    """A network, as far as it is set to evaluation mode and back."""

    training: bool

    def eval(self) -> Any:
        """Set it to evaluation mode."""

    def train(self, mode: bool = True) -> Any:
        """Set it to training mode, or not."""


def blocks(n: int, size: int) -> list[NDArray[np.int64]]:
    """The numbers from 0 to n - 1 in runs of a size."""
    return [np.arange(first, min(first + size, n)) for first in range(0, n, size)]


@torch.inference_mode()
def similarity_matrix(
    network: Network,
    images: int,
    lengths: Sequence[int],
    encode_images: Callable[[NDArray[np.int64]], I],
    encode_captions: Callable[[list[int]], C],
    compare: Callable[[I, C], torch.Tensor],
    progress: Callable[[int], None] = lambda _done: None,
) -> NDArray[np.float32]:
    """(images, captions) similarities.

    Each image and each caption is encoded once. Captions are done in the order of their lengths, whatever order they
    are given in, so that there is next to no padding.

    Args:
        network: is set to evaluation mode while this runs.
        images: their number.
        lengths: of each caption.
        encode_images: of a block of images, by their places.
        encode_captions: of a block of captions, by their places.
        compare: (block of images, block of captions) similarities of what these two give.
        progress: called with numbers of captions done; an exception from it leaves.

    Raises:
        ModelError: a similarity is NaN or infinite.
    """
    was_training = network.training
    network.eval()
    try:
        encoded_images = [encode_images(block) for block in blocks(images, IMAGES)]
        matrix = np.empty((images, len(lengths)), dtype=np.float32)
        order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        for block in blocks(len(order), CAPTIONS):
            chosen = [order[place] for place in block.tolist()]
            encoded = encode_captions(chosen)
            rows = [compare(image_block, encoded).float() for image_block in encoded_images]
            matrix[:, chosen] = torch.cat(rows).cpu().numpy()
            progress(len(chosen))
    finally:
        network.train(was_training)
    if not np.isfinite(matrix).all():
        raise ModelError("a similarity is NaN or infinite", hint="The model is damaged or has diverged")
    return matrix


# Matching captions that are word numbers with images that are region features alone: batches, the task, and recall.
#
# SCAN, and the dual encoder of the plug-in in ``examples/``, are trained and measured so.


@dataclass(frozen=True)
class Batch:
    """What one step sees.

    Attributes:
        images: (b, n, d) float32 region features.
        ids: (b, m) int64 word numbers.
        lengths: (b,) int64, on the CPU.
    """

    images: torch.Tensor
    ids: torch.Tensor
    lengths: torch.Tensor


def batches(
    orders: Iterable[NDArray[np.int64]],
    pairs: Pairs,
    captions: Sequence[Sequence[int]],
    regions: Regions,
    *,
    word_dropout: float,
    seed: int,
    first_step: int,
    pin: bool,
) -> Iterator[Batch]:
    """Batches in order. Words are dropped by a generator of seed and step, so that nothing hangs on what came before.

    Args:
        orders: captions of each batch.
        pairs: what they are captions of.
        captions: word numbers of all captions, with ``<start>`` and ``<end>``, which are never dropped.
        regions: features of the images.
        word_dropout: probability that a word becomes ``<unk>``.
        seed: of the training.
        first_step: number of the first batch's step, from 0.
        pin: put features in page-locked memory, from which a GPU copies while it computes.
    """
    for step, chosen in enumerate(orders, first_step):
        ids, lengths = pad([captions[i] for i in chosen.tolist()])
        ids = drop_words(ids, lengths, word_dropout, np.random.default_rng((seed, 2, step)))
        images = regions.take(pairs.image_of[chosen])
        yield Batch(images.pin_memory(), ids.pin_memory(), lengths) if pin else Batch(images, ids, lengths)


class WordTask(MatchingTask[M, Batch, list[int]], Generic[M]):
    """A task on such batches; its arguments and errors are those of
    :class:`~capbench.training.matching_task.MatchingTask`."""

    def __init__(self, config: MatchingTraining, data: Prepared[list[int]], device: torch.device, model: M) -> None:
        super().__init__(config, data, device, model)
        self._word_dropout, self._seed = config.dropout.words, config.seed

    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[Batch]:
        """Batches of chosen captions."""
        return batches(
            orders,
            self._split.pairs,
            self._split.captions,
            self._split.regions,
            word_dropout=self._word_dropout,
            seed=self._seed,
            first_step=first_step,
            pin=self._device.type == "cuda",
        )

    def dev_recalls(self, model: WordNetwork, pause: Callable[[], None]) -> Retrieval:
        """Recalls on dev; ``pause`` as in :meth:`capbench.training.loop.Task.validate`."""
        dev = self._dev
        return recalls_of(
            model, dev.pairs, dev.captions, dev.regions, self._device, progress=lambda _captions_done: pause()
        )


class WordNetwork(Network, Protocol):
    """A network that compares images with captions, as far as recall asks it to."""

    def encode_images(self, regions: torch.Tensor, /) -> torch.Tensor:
        """Of region features (a, n, image_dim), a images first."""

    def encode_captions(self, ids: torch.Tensor, lengths: torch.Tensor, /) -> torch.Tensor:
        """Of word numbers (b, m) and (b,) lengths, b captions first."""

    def similarities(self, images: torch.Tensor, captions: torch.Tensor, lengths: torch.Tensor, /) -> torch.Tensor:
        """(a, b) of what these two give."""


class MeasuredModel(Readable, Protocol):
    """A trained model of such a network."""

    @property
    def network(self) -> WordNetwork:
        """The network."""

    @property
    def device(self) -> str:
        """Where it runs."""


def similarity_matrix_of_words(
    network: WordNetwork,
    regions: Regions,
    captions: Sequence[Sequence[int]],
    device: torch.device | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> NDArray[np.float32]:
    """(images, captions) similarities (:func:`capbench.training.matching_task.similarity_matrix`).

    Args:
        network: is set to evaluation mode while this runs.
        regions: features of the images.
        captions: word numbers of the captions, with ``<start>`` and ``<end>``.
        device: where the network is.
        progress: called with numbers of captions done; an exception from it leaves.

    Raises:
        ModelError: a similarity is NaN or infinite.
    """
    device = device or torch.device("cpu")

    def encode_captions(chosen: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, lengths = pad([captions[i] for i in chosen])
        return network.encode_captions(ids.to(device), lengths), lengths

    return similarity_matrix(
        network,
        regions.shape[0],
        [len(caption) for caption in captions],
        lambda images: network.encode_images(regions.take(images).to(device)),
        encode_captions,
        lambda images, encoded: network.similarities(images, *encoded),
        progress,
    )


def recalls_of(
    network: WordNetwork,
    pairs: Pairs,
    captions: Sequence[Sequence[int]],
    regions: Regions,
    device: torch.device | None = None,
    folds: int = 1,
    progress: Callable[[int], None] = lambda _done: None,
) -> Retrieval:
    """Recalls of a network on a split: :func:`similarity_matrix` and :func:`capbench.stats.retrieval.retrieval`."""
    return retrieval(similarity_matrix_of_words(network, regions, captions, device, progress), pairs.image_of, folds)


def evaluate_words(
    config: MatchingTraining,
    model: MeasuredModel,
    role: str,
    root: DataRoot | None = None,
    *,
    images: int | None = None,
    captions: int | None = None,
    folds: int = 1,
    total: Callable[[int], None] = lambda _captions: None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Retrieval:
    """Recalls of a trained model on a split.

    Args:
        config: says where captions and features are.
        model: capbench's own or a released one, with its vocabulary.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: only so many images, drawn as for dev in training.
        captions: only so many captions of each.
        folds: as :func:`capbench.stats.retrieval.retrieval`.
        total: called once with the number of captions.
        progress: called with numbers of captions done.

    Raises:
        ModelError: the model was trained on features of another fingerprint or size.
        CapbenchError: captions or features are missing or do not fit.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, captions, config.evaluation.seed)
    if len(pairs.images) % folds:
        raise UsageError(f"{len(pairs.images):,} images cannot be cut into {folds} equal parts", hint="Change --folds")
    split = split_for(config, model, pairs, WordNumbers(), root)
    total(len(pairs.captions))
    device = torch.device(model.device)
    return recalls_of(model.network, pairs, split.captions, split.regions, device, folds, progress)


def measure_words(config: MatchingTraining, model: MeasuredModel, root: DataRoot, measuring: Measuring) -> Retrieval:
    """As :func:`evaluate_words`, showing how far it is."""
    with contextlib.ExitStack() as stack:
        advance: list[Callable[[int], None]] = []
        return evaluate_words(
            config,
            model,
            measuring.split,
            root,
            images=measuring.images,
            folds=measuring.folds,
            total=lambda n: advance.append(stack.enter_context(measuring.bars("comparing captions", n))),
            progress=lambda done: advance[0](done),
        )
