"""Training of the dual encoder: the task that the general loop carries out, and recall of a finished one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.datasets.root import DataRoot
from capbench.errors import ModelError
from capbench.models.dual_encoder.files import DualEncoderModel, save_dual_encoder
from capbench.models.dual_encoder.network import DualEncoder
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.training import recall
from capbench.training.captions import Pairs, epoch_order
from capbench.training.device import check_memory
from capbench.training.dual_encoder.config import DualEncoderTraining
from capbench.training.loop import train
from capbench.training.losses import batch_loss, info_nce
from capbench.training.prepare import (
    Prepared,
    WordNumbers,
    caption_source,
    prepare,
    prepare_split,
    signature_of_features,
)
from capbench.training.regions import Regions
from capbench.training.word_matching import Batch, batches
from capbench.training.task import Task, TrainingResult, Watcher
from capbench.training.words import pad

__all__ = ["DualEncoderTask", "evaluate_dual_encoder", "recalls_of", "train_dual_encoder"]


def train_dual_encoder(
    config: DualEncoderTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    restart: bool = False,
    stop: Callable[[], bool] = lambda: False,
    watcher: Watcher | None = None,
) -> TrainingResult:
    """Train a dual encoder, or go on training it, in a run folder.

    Args:
        config: the settings (:func:`capbench.training.config_file.load_training`).
        run: the folder; see :mod:`capbench.training.run_folder`.
        root: the data folder, for relative paths.
        restart: forget what the folder holds.
        stop: asked after every step; True saves a checkpoint and leaves.
        watcher: is told what happens.

    Raises:
        CapbenchError: as :func:`capbench.training.loop.train`; captions or features are missing or do not fit.
    """
    watcher = watcher or Watcher()
    say = watcher.say
    return train(
        config,
        lambda device, _say: DualEncoderTask(config, prepare(config, WordNumbers(), root, say), device),
        run,
        restart=restart,
        stop=stop,
        watcher=watcher,
        smaller="'batch' or 'network.hidden_dim'",
    )


class DualEncoderTask(Task[DualEncoder, Batch]):
    """Images and captions of a batch that find each other by their cosines.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.

    Raises:
        UsageError: the network is too large for this machine.
    """

    score = "recall_sum"

    def __init__(self, config: DualEncoderTraining, data: Prepared[list[int]], device: torch.device) -> None:
        self._config, self._split, self._dev, self._device = config, data.train, data.dev, device
        self._vocabulary = data.vocabulary
        options = dataclasses.replace(
            config.network, vocabulary_size=len(data.vocabulary), image_dim=data.train.regions.shape[2]
        )
        check_memory(options.parameters, "Lower 'network.hidden_dim' or 'network.word_dim'")
        # Drawn on the CPU, so that a seed means the same weights on every device.
        generator = torch.Generator().manual_seed(config.seed)
        self.model = DualEncoder(options, generator, config.loss.temperature).to(device)
        if not self._learns_temperature:
            self.model.log_scale.requires_grad_(False)
        learnt = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimiser = torch.optim.Adam(learnt, lr=config.optimiser.lr, weight_decay=config.optimiser.weight_decay)
        self.steps_per_epoch = len(self._order(0))
        self.data, self.facts = data.names, {"features": data.features}
        self.prefetch = device.type == "cuda" or not data.train.regions.in_memory

    @property
    def _learns_temperature(self) -> bool:
        return self._config.loss.kind == "info-nce" and self._config.loss.learned

    def _order(self, epoch: int) -> list[Any]:
        config = self._config
        return epoch_order(self._split.pairs, config.batch, config.order, config.seed, epoch)

    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of an epoch from the ``first``-th on."""
        return batches(
            self._order(epoch)[first:],
            self._split.pairs,
            self._split.captions,
            self._split.regions,
            word_dropout=self._config.dropout.words,
            seed=self._config.seed,
            first_step=epoch * self.steps_per_epoch + first,
            pin=self._device.type == "cuda",
        )

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        """The loss of a batch's cosines."""
        config, network = self._config, self.model
        images = network.encode_images(batch.images.to(self._device, non_blocking=True), config.dropout.regions)
        ids = batch.ids.to(self._device, non_blocking=True)
        captions = network.encode_captions(ids, batch.lengths, config.dropout.embedding)
        cosines = images @ captions.t()
        if self._learns_temperature:
            return info_nce(cosines * network.scale(), 1.0)
        return batch_loss(cosines, config.loss, step)

    def validate(self, model: DualEncoder, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on dev, and the temperature."""
        dev = self._dev
        recalls = recalls_of(model, dev.pairs, dev.captions, dev.regions, self._device, lambda _done: pause())
        return {**recalls.to_dict(), "temperature": round(1 / float(model.scale().detach()), 5)}

    def save(self, path: Path, model: DualEncoder, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_dual_encoder(path, model, self._vocabulary, facts)


def recalls_of(
    network: DualEncoder,
    pairs: Pairs,
    captions: Sequence[Sequence[int]],
    regions: Regions,
    device: torch.device,
    progress: Callable[[int], None] = lambda _done: None,
    folds: int = 1,
) -> Retrieval:
    """Recalls of a network on a split: every image against every caption, by cosines."""

    def encode_captions(chosen: list[int]) -> torch.Tensor:
        ids, lengths = pad([captions[i] for i in chosen])
        return network.encode_captions(ids.to(device), lengths)

    def encode_images(images: NDArray[np.int64]) -> torch.Tensor:
        return network.encode_images(regions.take(images).to(device))

    matrix = recall.similarity_matrix(
        network,
        regions.shape[0],
        [len(caption) for caption in captions],
        encode_images,
        encode_captions,
        lambda images, encoded: images @ encoded.t(),
        progress,
    )
    return retrieval(matrix, pairs.image_of, folds)


def evaluate_dual_encoder(
    config: DualEncoderTraining,
    model: DualEncoderModel,
    role: str,
    root: DataRoot | None = None,
    *,
    images: int | None = None,
) -> Retrieval:
    """Recalls of a trained model on a split.

    Args:
        config: says where captions and features are.
        model: the model.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: only so many images, drawn as for dev in training.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions or features are missing or do not fit.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, None, config.evaluation.seed)
    digest, named = signature_of_features(config, root, pairs)
    if None not in (model.features, digest) and model.features != digest:
        raise ModelError(
            f"was trained on features of another kind ({model.features}, here {digest})",
            path=model.path,
            hint="Give the features that it was trained on with --features",
        )
    split = prepare_split(config, pairs, WordNumbers(), model.vocabulary, root)
    if split.regions.shape[2] != model.options.image_dim:
        raise ModelError(
            f"reads features of {model.options.image_dim} columns; these ({named}) have {split.regions.shape[2]}",
            path=model.path,
        )
    return recalls_of(model.network, pairs, split.captions, split.regions, torch.device(model.device))
