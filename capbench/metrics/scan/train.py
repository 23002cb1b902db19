"""Training of SCAN (Lee et al., ECCV 2018, arXiv:1803.08024), by default as published and as in the released code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import InstanceOf

from capbench.core.errors import ModelError
from capbench.metrics.scan.files import load_scan, save_scan
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
    precision: Literal["float32", "amp-bfloat16"] = "float32"  # of the encoders; amp-bfloat16 on a GPU only

    def dev_captions(self) -> int | None:
        return self.evaluation.captions


class ScanTask(WordTask[Scan]):
    """Matching of captions and images in a batch."""

    settings = ScanTraining
    metric = "tiger"
    load = staticmethod(load_scan)
    config: ScanTraining

    def network(self, options: ScanOptions, generator: torch.Generator) -> Scan:
        if self.config.precision == "amp-bfloat16" and self.device.type != "cuda":
            message, hint = "'precision: amp-bfloat16' requires a GPU", "Use float32"
            raise ModelError(message, code="unsupported", value=self.config.precision, hint=hint)
        return Scan(options, generator)

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        dropout, precision, network = self.config.dropout, self.config.precision, self.model
        images = batch.images.to(self.device, non_blocking=True)
        ids = batch.ids.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "amp-bfloat16"):
            regions = network.encode_images(images, dropout.regions)
            words = network.encode_captions(ids, batch.lengths, dropout.embedding)
        return self.config.loss(network.similarities(regions.float(), words.float(), batch.lengths), step)

    def save(self, path: Path, model: Scan, facts: Mapping[str, Any]) -> None:
        save_scan(path, model, self.vocabulary, facts)
