"""Training of the dual encoder: the settings of its training files, and the task of the training loop.

Schema version 1; only ``schema``, ``name``, ``captions`` and ``features`` are required::

    schema: 1
    name: dual-encoder-flickr8k      # name of the run folder
    captions: flickr8k               # file or folder, in the current or the data folder
    features: features/flickr8k.h5   # a store, or a folder of stores
    network: {embed_dim: 256, pooling: attention, text: gru}
    loss: {temperature: 0.07, learned: true}
    optimiser: {lr: 0.001, clip: 2.0}
    epochs: 5

The keys of all trainers are in :mod:`capbench.training.captions` and :mod:`capbench.training.settings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import torch

from capbench import Choice, Count, Flag, Positive, option
from capbench.training.captions import EvaluationOptions, LossOptions, MatchingTraining
from capbench.training.loop import Running, TrainingResult, train
from capbench.training.matching_task import Batch, WordTask, batch_loss, info_nce
from capbench.training.prepare import Prepared, WordNumbers, prepare
from capbench.training.run_folder import check_memory
from capbench.training.settings import Section
from capbench_dual_encoder.files import save_dual_encoder
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions

__all__ = ["DualEncoderTask", "DualEncoderTraining", "DualEvaluationOptions", "DualLossOptions", "train_dual_encoder"]


@dataclass(frozen=True, kw_only=True)
class DualLossOptions(LossOptions):
    """The loss of a batch: InfoNCE with a learned temperature as in CLIP, or a hinge."""

    kind: Literal["hinge", "info-nce"] = option(
        "info-nce",
        Choice("hinge", "info-nce"),
        "triplets with a margin, or softmax over the batch in both directions",
    )
    temperature: float = option(0.07, Positive(), "temperature of the softmax; the initial value if it is learned")
    learned: bool = option(True, Flag(), "true: learn the temperature; it stays above 0.01")


@dataclass(frozen=True, kw_only=True)
class DualEvaluationOptions(EvaluationOptions):
    """Frequency and sample of recall evaluations."""

    captions: int | None = option(None, Count(1), "number of captions of each image, the first ones; null: all")


@dataclass(frozen=True, kw_only=True)
class DualEncoderTraining(MatchingTraining):
    """Settings of a training of the dual encoder.

    ``network`` contains all of :class:`DualEncoderOptions` except the two sizes that depend on the data.
    """

    network: DualEncoderOptions = option(
        DualEncoderOptions(vocabulary_size=4, image_dim=1),
        Section(decided=("vocabulary_size", "image_dim")),
        "sizes, pooling and text network",
    )
    loss: DualLossOptions = option(DualLossOptions(), Section(), "loss of a batch")
    evaluation: DualEvaluationOptions = option(DualEvaluationOptions(), Section(), "evaluations of recall")

    def dev_captions(self) -> int | None:
        """Number of captions of each dev image."""
        return self.evaluation.captions


def train_dual_encoder(
    config: DualEncoderTraining,
    run: Path,
    *,
    root: Any = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train a dual encoder in a run folder, or resume an interrupted training.

    ``root`` is the data folder, for relative paths; see :func:`capbench.training.loop.train` for the other arguments.
    Also raises CapbenchError if captions or features are missing or do not match.
    """
    return train(
        config,
        lambda device, say: DualEncoderTask(config, prepare(config, WordNumbers(), root, say), device),
        run,
        **running,
        smaller="'batch' or 'network.hidden_dim'",
    )


class DualEncoderTask(WordTask[DualEncoder]):
    """Contrastive training by the cosines of images and captions of a batch.

    Args:
        config: the settings.
        data: the prepared data.
        device: the device for training.

    Raises:
        UsageError: the network is too large for this machine, or the initial word vectors have another size.
    """

    def __init__(self, config: DualEncoderTraining, data: Prepared[list[int]], device: torch.device) -> None:
        options = data.sized(config.network)
        check_memory(options.parameters, "Lower 'network.hidden_dim' or 'network.word_dim'")
        model = DualEncoder(options, torch.Generator().manual_seed(config.seed), config.loss.temperature)
        self._learns_temperature = config.loss.kind == "info-nce" and config.loss.learned
        if not self._learns_temperature:
            model.log_scale.requires_grad_(False)
        super().__init__(config, data, device, model)
        self._config = config

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        """The loss of a batch's cosines."""
        config, network = self._config, self.model
        images = network.encode_images(batch.images.to(self._device, non_blocking=True), config.dropout.regions)
        ids = batch.ids.to(self._device, non_blocking=True)
        captions = network.encode_captions(ids, batch.lengths, config.dropout.embedding)
        cosines = network.similarities(images, captions)
        if self._learns_temperature:
            return info_nce(cosines * network.scale(), 1.0)
        return batch_loss(cosines, config.loss, step)

    def validate(self, model: DualEncoder, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on the dev set, and the temperature."""
        recalls = self.dev_recalls(model, pause)
        return {**recalls.to_dict(), "temperature": round(1 / float(model.scale().detach()), 5)}

    def save(self, path: Path, model: DualEncoder, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_dual_encoder(path, model, self._vocabulary, facts)
