"""Training of SCAN (Lee et al., ECCV 2018, arXiv:1803.08024), by default as published and as in the released code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import InstanceOf
from torch import Tensor

from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.stats.retrieval import retrieval
from capbench.text.vocabulary import pad_rows
from capbench.training.matching import MatchingTask, MatchingTraining, Split, similarity_matrix
from capbench.training.settings import Count, EvaluationOptions, OptimiserOptions
from capbench.training.trainer import Bar


class ScanEvaluationOptions(EvaluationOptions):
    """Validation by recall on the dev split."""

    captions: Count | None = None  # number of captions per image, the first ones; null: all


class ScanTraining(MatchingTraining):
    """The settings of a training of SCAN."""

    network: InstanceOf[ScanOptions] = ScanOptions(vocabulary_size=4, image_dim=1)
    optimiser: OptimiserOptions = OptimiserOptions(lr=2e-4, lr_update=15)
    evaluation: ScanEvaluationOptions = ScanEvaluationOptions()

    def dev_captions(self) -> int | None:
        return self.evaluation.captions


class Batch(NamedTuple):
    """The input of one step: (b, n, d) region features, (b, m) word numbers, (b,) their numbers on the CPU."""

    images: Tensor
    ids: Tensor
    lengths: Tensor


class ScanTask(MatchingTask[Any, Batch]):
    """Matching of captions and images in a batch.

    Plug-ins extend it for networks with SCAN's methods ``encode_images``, ``encode_captions`` and ``similarities``.
    """

    settings: ClassVar[type[MatchingTraining]] = ScanTraining
    network: Any = Scan
    metric = "tiger"
    load: ClassVar[Callable[..., Any]] = staticmethod(load_scan)
    released = True
    config: MatchingTraining

    def batch(self, chosen: NDArray[np.int64], step: int) -> Batch:
        ids, lengths = pad_rows([self.captions[i] for i in chosen])
        ids = self.config.dropout.drop_words(ids, np.random.default_rng((self.config.seed, 2, step)))
        (images,) = self.regions.take(self.train.image_of[chosen])
        pin = self.device.type == "cuda"  # a GPU copies from page-locked memory while it computes
        return Batch(images.pin_memory(), ids.pin_memory(), lengths) if pin else Batch(images, ids, lengths)

    def similarities(self, batch: Batch) -> Tensor:
        """(b, b) similarities of the images (rows) and captions of a batch, with dropout."""
        dropout, network = self.config.dropout, self.model
        images, ids = (tensor.to(self.device, non_blocking=True) for tensor in (batch.images, batch.ids))
        regions = network.encode_images(images, dropout.regions)
        words = network.encode_captions(ids, batch.lengths, dropout.embedding)
        scores: Tensor = network.similarities(regions, words, batch.lengths)
        return scores

    def loss(self, batch: Batch, step: int) -> Tensor:
        return self.config.loss(self.similarities(batch), step)

    @classmethod
    def recalls(cls, network: Any, split: Split, config: Any, folds: int, bar: Bar) -> dict[str, Any]:
        device = next(network.parameters()).device

        def encode(chosen: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
            ids, lengths = pad_rows([split.captions[i] for i in chosen])
            return network.encode_captions(ids.to(device), lengths), lengths

        matrix = similarity_matrix(
            network,
            split.regions.shape[0],
            [len(caption) for caption in split.captions],
            lambda images: network.encode_images(split.regions.take(images)[0].to(device)),
            encode,
            lambda images, captions: network.similarities(images, *captions),
            bar,
        )
        return retrieval(matrix, split.pairs.image_of, folds)
