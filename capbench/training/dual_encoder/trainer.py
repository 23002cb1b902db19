"""Training of the dual encoder: the task that the general loop carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

import torch

from capbench.datasets.root import DataRoot
from capbench.models.dual_encoder.files import save_dual_encoder
from capbench.models.dual_encoder.network import DualEncoder
from capbench.training.device import check_memory
from capbench.training.dual_encoder.config import DualEncoderTraining
from capbench.training.loop import train
from capbench.training.losses import batch_loss, info_nce
from capbench.training.prepare import Prepared, WordNumbers, prepare
from capbench.training.task import Running, TrainingResult
from capbench.training.word_matching import Batch, WordTask

__all__ = ["DualEncoderTask", "train_dual_encoder"]


def train_dual_encoder(
    config: DualEncoderTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
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
