"""Training of the dual encoder: the task that the general loop carries out."""

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


# How a dual encoder is trained: the settings of its training files, every key with its kind, default and meaning.
#
# Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::
#
#     schema: 1
#     name: dual-encoder-flickr8k      # the run folder's name
#     captions: flickr8k               # file or folder, in the current or the data folder
#     features: features/flickr8k.h5   # a store, or a folder of stores
#     network: {embed_dim: 256, pooling: attention, text: gru}
#     loss: {temperature: 0.07, learned: true}
#     optimiser: {lr: 0.001, clip: 2.0}
#     epochs: 5
#
# Keys that trainers share are in :mod:`capbench.training.captions` and :mod:`capbench.training.settings`.


@dataclass(frozen=True, kw_only=True)
class DualLossOptions(LossOptions):
    """The loss of a batch: InfoNCE, whose temperature is learned as CLIP's is; or a hinge."""

    kind: Literal["hinge", "info-nce"] = option(
        "info-nce",
        Choice("hinge", "info-nce"),
        "triplets with a margin, or a softmax over the batch in both directions",
    )
    temperature: float = option(0.07, Positive(), "of the softmax, at the start if it is learned")
    learned: bool = option(True, Flag(), "whether the temperature is learned; it stays above 0.01")


@dataclass(frozen=True, kw_only=True)
class DualEvaluationOptions(EvaluationOptions):
    """What of the dev split is compared."""

    captions: int | None = option(None, Count(1), "how many captions of each, the first ones; null: all")


@dataclass(frozen=True, kw_only=True)
class DualEncoderTraining(MatchingTraining):
    """A training of the dual encoder as it was asked for; nothing is resolved yet.

    ``network`` holds all of :class:`DualEncoderOptions` but the two sizes that the data decides.
    """

    network: DualEncoderOptions = option(
        DualEncoderOptions(vocabulary_size=4, image_dim=1),
        Section(decided=("vocabulary_size", "image_dim")),
        "sizes, pooling and text network",
    )
    loss: DualLossOptions = option(DualLossOptions(), Section(), "of a batch")
    evaluation: DualEvaluationOptions = option(
        DualEvaluationOptions(), Section(), "when and on what recall is measured"
    )

    def dev_captions(self) -> int | None:
        """As many captions of each dev image as ``evaluation.captions`` says."""
        return self.evaluation.captions


def train_dual_encoder(
    config: DualEncoderTraining,
    run: Path,
    *,
    root: Any = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train a dual encoder, or go on training it, in a run folder.

    ``root`` is the data folder, for relative paths; all else is as :func:`capbench.training.loop.train` says, which
    raises CapbenchError also where captions or features are missing or do not fit.
    """
    return train(
        config,
        lambda device, say: DualEncoderTask(config, prepare(config, WordNumbers(), root, say), device),
        run,
        **running,
        smaller="'batch' or 'network.hidden_dim'",
    )


class DualEncoderTask(WordTask[DualEncoder]):
    """Images and captions of a batch that find each other by their cosines.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.

    Raises:
        UsageError: the network is too large for this machine, or its word vectors are of another size than those given.
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
        """Recalls on dev, and the temperature."""
        recalls = self.dev_recalls(model, pause)
        return {**recalls.to_dict(), "temperature": round(1 / float(model.scale().detach()), 5)}

    def save(self, path: Path, model: DualEncoder, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_dual_encoder(path, model, self._vocabulary, facts)
