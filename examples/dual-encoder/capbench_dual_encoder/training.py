"""Training of the dual encoder, ``capbench train clip``.

Only ``schema``, ``name``, ``captions`` and ``features`` are required::

    schema: 1
    name: dual-encoder-flickr8k      # name of the run folder
    captions: flickr8k               # file or folder, in the current or the data folder
    features: features/flickr8k.h5   # a store, or a folder of stores
    network: {embed_dim: 256, pooling: attention, text: gru}
    loss: {temperature: 0.07, learned: true}
    optimiser: {lr: 0.001, clip: 2.0}
    epochs: 5

The keys of all trainings are in :mod:`capbench.training.settings`, ``data`` and ``matching``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from pydantic import InstanceOf

from capbench.metrics.scan.train import Batch, ScanTask
from capbench.training.matching import LossOptions, MatchingTraining, info_nce
from capbench.training.settings import Count, EvaluationOptions, Positive
from capbench_dual_encoder.files import load_dual_encoder
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions


class DualLossOptions(LossOptions):
    """The loss of a batch: InfoNCE with a learned temperature as in CLIP, or a hinge."""

    kind: Literal["hinge", "info-nce"] = "info-nce"
    temperature: Positive = 0.07  # the first value if it is learned
    learned: bool = True  # the temperature stays above 0.01


class DualEvaluationOptions(EvaluationOptions):
    """Recall on the dev set."""

    captions: Count | None = None  # number of captions of each image, the first ones; null: all


class DualEncoderTraining(MatchingTraining):
    """Settings of a training of the dual encoder."""

    network: InstanceOf[DualEncoderOptions] = DualEncoderOptions(vocabulary_size=4, image_dim=1)
    loss: DualLossOptions = DualLossOptions()
    evaluation: DualEvaluationOptions = DualEvaluationOptions()

    def dev_captions(self) -> int | None:
        """Number of captions of each dev image."""
        return self.evaluation.captions


class DualEncoderTask(ScanTask):
    """Contrastive training by the cosines of images and captions of a batch."""

    settings = DualEncoderTraining
    metric = "dual-encoder"
    kind = DualEncoder.kind
    load = staticmethod(load_dual_encoder)
    released = False
    config: DualEncoderTraining

    def network(self, options: DualEncoderOptions, generator: torch.Generator) -> DualEncoder:
        """The network with first weights."""
        model = DualEncoder(options, generator, self.config.loss.temperature)
        self._learns_temperature = self.config.loss.kind == "info-nce" and self.config.loss.learned
        if not self._learns_temperature:
            model.log_scale.requires_grad_(False)
        return model

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        """The loss of a batch's cosines."""
        cosines = self.similarities(batch)
        if self._learns_temperature:
            return info_nce(cosines * self.model.scale(), 1.0)
        return self.config.loss(cosines, step)

    def validate(self, model: DualEncoder, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on the dev set, and the temperature."""
        return {**super().validate(model, pause), "temperature": round(1 / float(model.scale().detach()), 5)}

    @staticmethod
    def line(entry: Mapping[str, Any]) -> str:
        """Recalls, and the temperature of a training."""
        return ScanTask.line(entry) + (f", temperature {entry['temperature']:.4f}" if "temperature" in entry else "")
