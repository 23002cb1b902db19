"""Training of SCAN (Lee et al., ECCV 2018, arXiv:1803.08024): settings, and the task for the training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import torch

from capbench.core.errors import ModelError, count
from capbench.core.options import Choice, Count, option
from capbench.datasets.root import DataRoot
from capbench.metrics.scan.files import load_scan, save_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.training.captions import EvaluationOptions, MatchingTraining
from capbench.training.loop import Running, TrainingResult, train
from capbench.training.matching_task import Batch, WordTask, batch_loss, measure_words
from capbench.training.prepare import Prepared, WordNumbers, prepare
from capbench.training.run_folder import check_memory, choose_device
from capbench.training.settings import OptimiserOptions, Section
from capbench.training.trainable import Measuring, Trainable, recall_line, recall_table

# Settings of training files, each key with kind, default and meaning.
#
# Schema version 1; all keys except ``schema``, ``name``, ``captions`` and ``features`` are optional::
#
#     schema: 1
#     name: scan-flickr8k              # the run folder's name
#     captions: flickr8k               # file or folder, in the current or the data folder
#     splits: {train: train, dev: dev, test: test}
#     features: features/flickr8k.h5   # a store, a folder of stores, or 'ims' for SCAN's {split}_ims.npy
#     regions: 36                      # number of regions per image, the first ones; default: all
#     network: {embed_dim: 512, cross_attention: t2i}
#     loss: {kind: info-nce, temperature: 0.1}
#     optimiser: {lr: 0.001, lr_update: 10, clip: 2.0}
#     epochs: 2
#     ema: 0.995
#
# Keys that trainers share are in :mod:`capbench.training.captions` and :mod:`capbench.training.settings`. Defaults are
# those of the published training of SCAN (Lee et al. 2018, "Stacked Cross Attention for Image-Text Matching", and the
# options of its released code).


@dataclass(frozen=True, kw_only=True)
class ScanEvaluationOptions(EvaluationOptions):
    """Validation on the dev split."""

    captions: int | None = option(None, Count(1), "number of captions per image, the first ones; null: all")


@dataclass(frozen=True, kw_only=True)
class ScanTraining(MatchingTraining):
    """The settings of a training of SCAN, not resolved.

    ``network`` contains all :class:`ScanOptions` except the two sizes that the data determines.
    """

    network: ScanOptions = option(
        ScanOptions(vocabulary_size=4, image_dim=1),
        Section(decided=("vocabulary_size", "image_dim")),
        "sizes and attention",
    )
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=2e-4, lr_update=15), Section(), "the optimiser")
    evaluation: ScanEvaluationOptions = option(ScanEvaluationOptions(), Section(), "validation by recall")
    precision: Literal["float32", "amp-bfloat16"] = option(
        "float32", Choice("float32", "amp-bfloat16"), "of the encoders; amp-bfloat16 on a GPU only"
    )

    def dev_captions(self) -> int | None:
        """Number of captions per dev image, from ``evaluation.captions``."""
        return self.evaluation.captions


def train_scan(
    config: ScanTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train SCAN in a run folder, or resume its training.

    ``root`` is the data folder, for relative paths; other arguments and errors are those of
    :func:`capbench.training.loop.train`.

    Raises:
        CapbenchError: captions or features are missing or invalid.
    """
    if config.precision == "amp-bfloat16" and choose_device(config.device).type != "cuda":
        message, hint = "'precision: amp-bfloat16' requires a GPU", "Use float32"
        raise ModelError(message, code="unsupported", value=config.precision, hint=hint)
    return train(
        config,
        lambda device, say: ScanTask(config, prepare(config, WordNumbers(), root, say), device),
        run,
        **running,
        smaller="'batch' or 'network.embed_dim'",
    )


class ScanTask(WordTask[Scan]):
    """Matching of captions and images in a batch.

    Args:
        config: the settings.
        data: the data.
        device: device of the network.

    Raises:
        UsageError: the network is too large for this machine, or the given word vectors have another size.
    """

    def __init__(self, config: ScanTraining, data: Prepared[list[int]], device: torch.device) -> None:
        options = data.sized(config.network)
        check_memory(options.parameters, "Lower 'network.embed_dim', 'network.word_dim' or 'network.layers'")
        model = Scan(options, torch.Generator().manual_seed(config.seed))
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
        scores = network.similarities(regions.float(), words.float(), batch.lengths)
        return batch_loss(scores, config.loss, step)

    def validate(self, model: Scan, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on dev."""
        return self.dev_recalls(model, pause).to_dict()

    def save(self, path: Path, model: Scan, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_scan(path, model, self._vocabulary, facts)


def _measure(config: ScanTraining, model: Path, root: DataRoot, measuring: Measuring) -> dict[str, Any]:
    begin = time.monotonic()
    loaded = load_scan(model, measuring.vocabulary, device=str(choose_device(config.device)))
    recalls = measure_words(config, loaded, root, measuring)
    sizes = f"{count(recalls.images, 'image')} x {count(recalls.captions, 'caption')}"
    measuring.say(f"{sizes} in {time.monotonic() - begin:.1f} s, data included")
    return {"folds": measuring.folds, **recalls.to_dict(), "sha256": loaded.sha256}


TRAINABLE = Trainable(
    settings=ScanTraining,
    train=train_scan,
    line=lambda entry: f"dev {recall_line(entry)}",
    table=recall_table,
    metric="tiger",
    measure=_measure,
)
