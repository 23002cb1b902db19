"""Matching captions that are word numbers with images that are region features alone: batches, the task, and recall.

SCAN and the dual encoder are trained and measured so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.datasets.root import DataRoot
from capbench.errors import UsageError
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.training import recall
from capbench.training.captions import Pairs
from capbench.training.matching import MatchingTraining
from capbench.training.matching_task import MatchingTask, Readable, split_for
from capbench.training.prepare import Prepared, WordNumbers, caption_source
from capbench.training.regions import Regions
from capbench.training.task import M
from capbench.training.words import drop_words, pad

__all__ = [
    "Batch",
    "MeasuredModel",
    "WordNetwork",
    "WordTask",
    "batches",
    "evaluate_words",
    "recalls_of",
    "similarity_matrix",
]


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
        """Recalls on dev; ``pause`` as in :meth:`capbench.training.task.Task.validate`."""
        dev = self._dev
        return recalls_of(
            model, dev.pairs, dev.captions, dev.regions, self._device, progress=lambda _captions_done: pause()
        )


class WordNetwork(recall.Network, Protocol):
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


def similarity_matrix(
    network: WordNetwork,
    regions: Regions,
    captions: Sequence[Sequence[int]],
    device: torch.device | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> NDArray[np.float32]:
    """(images, captions) similarities (:func:`capbench.training.recall.similarity_matrix`).

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

    return recall.similarity_matrix(
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
    return retrieval(similarity_matrix(network, regions, captions, device, progress), pairs.image_of, folds)


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
