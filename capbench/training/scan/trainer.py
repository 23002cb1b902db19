"""Training of SCAN (Lee et al., ECCV 2018, arXiv:1803.08024): the task that the general loop carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

import torch

from capbench.datasets.root import DataRoot
from capbench.errors import ModelError
from capbench.models.scan.fast import FastScan
from capbench.models.scan.files import save_scan
from capbench.training.device import check_memory, choose_device
from capbench.training.loop import train
from capbench.training.losses import batch_loss
from capbench.training.prepare import Prepared, WordNumbers, prepare
from capbench.training.scan.config import ScanTraining
from capbench.training.task import Running, TrainingResult
from capbench.training.word_matching import Batch, WordTask

__all__ = ["ScanTask", "train_scan"]


def train_scan(
    config: ScanTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train SCAN, or go on training it, in a run folder.

    ``root`` is the data folder, for relative paths; all else is as :func:`capbench.training.loop.train` says, which
    raises CapbenchError also where captions or features are missing or do not fit.
    """
    if config.precision == "amp-bfloat16" and choose_device(config.device).type != "cuda":
        raise ModelError("'precision: amp-bfloat16' needs a GPU", hint="Use bfloat16 or float32")
    return train(
        config,
        lambda device, say: ScanTask(config, prepare(config, WordNumbers(), root, say), device),
        run,
        **running,
        smaller="'batch' or 'network.embed_dim'",
    )


class ScanTask(WordTask[FastScan]):
    """Captions and images of a batch that find each other.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.

    Raises:
        UsageError: the network is too large for this machine, or its word vectors are of another size than those given.
    """

    def __init__(self, config: ScanTraining, data: Prepared[list[int]], device: torch.device) -> None:
        options = data.sized(config.network)
        check_memory(options.parameters, "Lower 'network.embed_dim', 'network.word_dim' or 'network.layers'")
        model = FastScan(options, torch.Generator().manual_seed(config.seed))
        super().__init__(config, data, device, model)
        self._config = config

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        """The loss of a batch's similarities."""
        config, network = self._config, self.model
        images = batch.images.to(self._device, non_blocking=True)
        ids = batch.ids.to(self._device, non_blocking=True)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=config.precision == "amp-bfloat16"):
            regions = network.encode_images(images, config.dropout.regions)
            words = network.encode_captions(ids, batch.lengths, config.dropout.embedding)
        products: Literal["float32", "bfloat16"] = "float32" if config.precision == "float32" else "bfloat16"
        scores = network.similarities(regions.float(), words.float(), batch.lengths, products)
        return batch_loss(scores, config.loss, step)

    def validate(self, model: FastScan, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on dev."""
        return self.dev_recalls(model, pause).to_dict()

    def save(self, path: Path, model: FastScan, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_scan(path, model, self._vocabulary, facts)
