"""Tasks, losses and recall evaluation of networks that match captions with images."""

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

from capbench.core.errors import ModelError, UsageError, check_choice
from capbench.datasets.root import DataRoot
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.training.captions import CaptionTraining, MatchingTraining, Pairs, epoch_order, training_record
from capbench.training.loop import B, M, Task
from capbench.training.prepare import (
    Prepared,
    Reading,
    Regions,
    Split,
    WordNumbers,
    caption_source,
    drop_words,
    pad,
    prepare_split,
    signature_of_features,
)
from capbench.training.run_folder import adam
from capbench.training.trainable import Measuring

if TYPE_CHECKING:
    from capbench.training.captions import LossOptions


class CaptionTask(Task[M, B], Generic[M, B]):
    """A task whose batches are captions with their images, determined by seed and epoch.

    Args:
        config: the settings.
        pairs: captions and images for training.
        regions: features of these images.
        model: the network, initialised on the CPU, so that a seed has the same effect on every device.
        device: the device for training.
    """

    def __init__(self, config: CaptionTraining, pairs: Pairs, regions: Regions, model: M, device: torch.device) -> None:
        self._pairs, self._device = pairs, device
        self.image_mean = regions.mean
        self.trained_on = training_record(pairs)
        self._sampling = (config.batch, config.order, config.seed)
        self.model = model.to(device)
        self.optimiser = adam(self.model, config.optimiser)
        self.steps_per_epoch = len(self.order(0))
        # Useful if features are read from disk, or if a GPU computes at the same time.
        self.prefetch = device.type == "cuda" or not regions.in_memory

    def order(self, epoch: int) -> list[NDArray[np.int64]]:
        """Captions of each batch of an epoch."""
        return epoch_order(self._pairs, *self._sampling, epoch)

    def batches(self, epoch: int, first: int) -> Iterator[B]:
        """Batches of an epoch, starting with the ``first``-th."""
        return self.make_batches(self.order(epoch)[first:], epoch * self.steps_per_epoch + first)

    @abstractmethod
    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[B]:
        """Make batches of selected captions; random numbers are determined by the seed and the step.

        Args:
            orders: captions of each batch.
            first_step: number of the first batch's step, from 0 over all epochs.
        """


E = TypeVar("E")


class MatchingTask(CaptionTask[M, B], Generic[M, B, E]):
    """A task with tokenised captions, whose score is recall.

    Args:
        config: the settings.
        data: the prepared data.
        device: the device for training.
        model: the network, initialised on the CPU; its embeddings are word vectors.

    Raises:
        UsageError: the initial word vectors and the network have different sizes.
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
        self.trained_on = data.record or self.trained_on


class Readable(Protocol):
    """A trained model, with the properties that its data must match."""

    @property
    def path(self) -> Path | None:
        """Its file."""

    @property
    def features(self) -> str | None:
        """Kind of the features that it was trained on, or None if unknown."""

    @property
    def vocabulary(self) -> Any:
        """Its vocabulary."""

    @property
    def options(self) -> Any:
        """Its sizes, including ``image_dim``."""


def split_for(
    config: MatchingTraining, model: Readable, pairs: Pairs, reading: Reading[E], root: DataRoot | None
) -> Split[E]:
    """A split, prepared for a trained model.

    Args:
        config: names the features.
        model: its vocabulary encodes the captions.
        pairs: images and captions.
        reading: how the network reads captions and regions.
        root: the data folder.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions or features are missing or do not match.
    """
    kind, named = signature_of_features(config, root, pairs)
    if None not in (model.features, kind) and model.features != kind:
        raise ModelError(
            f"was trained on features of another kind: {model.features}, not {kind}",
            code="wrong-features",
            value=kind,
            path=model.path,
            hint="Pass the features that it was trained on with --features",
        )
    reading.more_words(pairs.captions)
    split = prepare_split(config, pairs, reading, model.vocabulary, root)
    if split.regions.shape[2] != model.options.image_dim:
        raise ModelError(
            f"requires features of {model.options.image_dim} columns; these ({named}) have {split.regions.shape[2]}",
            code="wrong-features",
            value=split.regions.shape[2],
            path=model.path,
        )
    return split


# Losses on a square matrix of similarities: row i is image i, column j is caption j, matching pairs are on the
# diagonal.


def batch_loss(scores: Tensor, options: LossOptions, step: int) -> Tensor:
    """The loss that the settings select.

    Args:
        scores: (b, b).
        options: kind and parameters of the loss.
        step: from 0; compared with ``hardest_after``.
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
        margin: required difference between a pair and its negatives.
        hardest: True to use only the hardest negative of each row and column (``max_violation``), else all.
        reduction: ``sum`` over the batch as released, or ``mean`` over the b·(b − 1) negatives of each direction
            (``hardest``: over its b), the two directions added.

    Raises:
        UsageError: the matrix is not square, or ``reduction`` is unknown.
    """
    size = _size(scores)
    check_choice("reduction", reduction, ("sum", "mean"), code="wrong-value")
    pairs = scores.diagonal()  # matching pairs
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
        temperature: divisor of the scores.

    Raises:
        UsageError: the matrix is not square, or the temperature is not above 0.
    """
    if not temperature > 0:
        raise UsageError(
            f"temperature is {temperature}", code="out-of-range", value=temperature, hint="Choose a number above 0"
        )
    partners = torch.arange(_size(scores), device=scores.device)
    logits = scores / temperature
    return (functional.cross_entropy(logits, partners) + functional.cross_entropy(logits.t(), partners)) / 2


def _size(scores: Tensor) -> int:
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1] or not len(scores):
        raise UsageError(
            f"the matrix of similarities has shape {tuple(scores.shape)}, which is not square",
            code="wrong-shape",
            value=tuple(scores.shape),
        )
    return len(scores)


# Similarities of every image with every caption of a split, block by block.

IMAGES = 128
"""Images that are encoded at once."""
CAPTIONS = 256
"""Captions that are encoded at once."""

I = TypeVar("I")  # noqa: E741  # an encoded block of images
C = TypeVar("C")  # an encoded block of captions


class Network(Protocol):
    """A network with evaluation and training mode."""

    training: bool

    def eval(self) -> Any:
        """Set evaluation mode."""

    def train(self, mode: bool = True) -> Any:
        """Set training mode, or evaluation mode."""


def blocks(n: int, size: int) -> list[NDArray[np.int64]]:
    """The numbers from 0 to n - 1 in blocks of ``size``."""
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

    Each image and each caption is encoded once. Captions are processed in the order of their lengths, which minimises
    padding.

    Args:
        network: in evaluation mode during this function.
        images: number of images.
        lengths: length of each caption.
        encode_images: encodes a block of images, by their indices.
        encode_captions: encodes a block of captions, by their indices.
        compare: (block of images, block of captions) similarities of two encoded blocks.
        progress: called with numbers of captions done; may raise an exception to stop.

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
        raise ModelError(
            "a similarity is NaN or infinite", code="not-a-number", hint="The model is damaged or has diverged"
        )
    return matrix


# Networks that read captions as word numbers and images as region features only: batches, task and recall. SCAN and the
# dual encoder in ``examples/`` are of this kind.


@dataclass(frozen=True)
class Batch:
    """The input of one step.

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
    """Batches in order. Word dropout is determined by seed and step and does not depend on earlier batches.

    Args:
        orders: captions of each batch.
        pairs: captions and their images.
        captions: word numbers of all captions, with ``<start>`` and ``<end>``, which are never dropped.
        regions: features of the images.
        word_dropout: probability that a word becomes ``<unk>``.
        seed: seed of the training.
        first_step: number of the first batch's step, from 0.
        pin: True to use page-locked memory, from which a GPU copies while it computes.
    """
    for step, chosen in enumerate(orders, first_step):
        ids, lengths = pad([captions[i] for i in chosen.tolist()])
        ids = drop_words(ids, lengths, word_dropout, np.random.default_rng((seed, 2, step)))
        images = regions.take(pairs.image_of[chosen])
        yield Batch(images.pin_memory(), ids.pin_memory(), lengths) if pin else Batch(images, ids, lengths)


class WordTask(MatchingTask[M, Batch, list[int]], Generic[M]):
    """A task on :func:`batches`; arguments and errors are those of :class:`MatchingTask`."""

    def __init__(self, config: MatchingTraining, data: Prepared[list[int]], device: torch.device, model: M) -> None:
        super().__init__(config, data, device, model)
        self._word_dropout, self._seed = config.dropout.words, config.seed

    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[Batch]:
        """Batches of selected captions."""
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
        """Recalls on the dev set; ``pause`` as in :meth:`capbench.training.loop.Task.validate`."""
        dev = self._dev
        return recalls_of(
            model, dev.pairs, dev.captions, dev.regions, self._device, progress=lambda _captions_done: pause()
        )


class WordNetwork(Network, Protocol):
    """A network that compares images with captions, with the methods required for recall."""

    def encode_images(self, regions: torch.Tensor, /) -> torch.Tensor:
        """Encode region features (a, n, image_dim); the first axis of the result is images."""

    def encode_captions(self, ids: torch.Tensor, lengths: torch.Tensor, /) -> torch.Tensor:
        """Encode word numbers (b, m) of (b,) lengths; the first axis of the result is captions."""

    def similarities(self, images: torch.Tensor, captions: torch.Tensor, lengths: torch.Tensor, /) -> torch.Tensor:
        """(a, b) similarities of encoded images and captions."""


class MeasuredModel(Readable, Protocol):
    """A trained model with a :class:`WordNetwork`."""

    @property
    def network(self) -> WordNetwork:
        """The network."""

    @property
    def device(self) -> str:
        """Its device."""


def similarity_matrix_of_words(
    network: WordNetwork,
    regions: Regions,
    captions: Sequence[Sequence[int]],
    device: torch.device | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> NDArray[np.float32]:
    """(images, captions) similarities, see :func:`similarity_matrix`.

    Args:
        network: in evaluation mode during this function.
        regions: features of the images.
        captions: word numbers of the captions, with ``<start>`` and ``<end>``.
        device: device of the network.
        progress: called with numbers of captions done; may raise an exception to stop.

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
        config: names captions and features.
        model: a model trained with capbench or a released one, with its vocabulary.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: number of images, sampled as for dev in training; None: all.
        captions: number of captions of each image; None: all.
        folds: see :func:`capbench.stats.retrieval.retrieval`.
        total: called once with the number of captions.
        progress: called with numbers of captions done.

    Raises:
        ModelError: the model was trained on features of another fingerprint or size.
        CapbenchError: captions or features are missing or do not match.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, captions, config.evaluation.seed)
    if len(pairs.images) % folds:
        raise UsageError(
            f"{len(pairs.images):,} images cannot be divided into {folds} equal parts",
            code="wrong-value",
            value=folds,
            hint="Change --folds",
        )
    split = split_for(config, model, pairs, WordNumbers(), root)
    total(len(pairs.captions))
    device = torch.device(model.device)
    return recalls_of(model.network, pairs, split.captions, split.regions, device, folds, progress)


def measure_words(config: MatchingTraining, model: MeasuredModel, root: DataRoot, measuring: Measuring) -> Retrieval:
    """:func:`evaluate_words` with progress bars."""
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
