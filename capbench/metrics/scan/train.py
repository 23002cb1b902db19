"""Training of SCAN (Lee et al., ECCV 2018, arXiv:1803.08024), by default as published and as in the released code."""

from __future__ import annotations

import torch
from pydantic import InstanceOf

from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.training.matching import Batch, MatchingTraining, WordTask
from capbench.training.settings import Count, EvaluationOptions, OptimiserOptions


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


class ScanTask(WordTask[Scan]):
    """Matching of captions and images in a batch."""

    settings = ScanTraining
    network = Scan
    metric = "tiger"
    load = staticmethod(load_scan)
    released = True
    config: ScanTraining

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        dropout, network = self.config.dropout, self.model
        images, ids = (tensor.to(self.device, non_blocking=True) for tensor in (batch.images, batch.ids))
        regions = network.encode_images(images, dropout.regions)
        words = network.encode_captions(ids, batch.lengths, dropout.embedding)
        return self.config.loss(network.similarities(regions, words, batch.lengths), step)
