"""Training of FAIEr (Wang et al., CVPR 2021, section 3.4): the task that the general loop carries out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.datasets.root import DataRoot
from capbench.errors import UsageError
from capbench.models.faier.files import FaierModel, save_faier
from capbench.models.faier.graphs import CaptionCode
from capbench.models.faier.network import Faier
from capbench.training.device import check_memory
from capbench.training.faier.batches import Batch, ReferenceDraw, batches, no_reference
from capbench.training.faier.config import FaierTraining
from capbench.training.faier.evaluation import evaluate_all, union_of
from capbench.training.faier.prepare import GraphReading
from capbench.training.loop import train
from capbench.training.losses import batch_loss
from capbench.training.matching_task import MatchingTask, split_for
from capbench.training.prepare import Prepared, caption_source, prepare
from capbench.training.task import Running, Say, TrainingResult
from capbench.training.weights import count_weights

__all__ = ["FaierTask", "evaluate_faier", "train_faier"]


def train_faier(
    config: FaierTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train FAIEr, or go on training it, in a run folder.

    Captions that never were parsed are parsed first, where there is a relation level.

    Args:
        config: the settings (:func:`capbench.training.config_file.load_training`).
        run: the folder; see :mod:`capbench.training.run_folder`.
        root: the data folder, for relative paths.
        running: as :func:`capbench.training.loop.train`. While captions are parsed a ``stop`` that says so raises
            KeyboardInterrupt, and what was parsed is kept.

    Raises:
        CapbenchError: as :func:`capbench.training.loop.train`; captions, parses or features are missing or do not fit.
    """
    stop = running.get("stop")

    def pause() -> None:
        if stop is not None and stop():
            raise KeyboardInterrupt

    def task(device: torch.device, say: Say) -> FaierTask:
        return FaierTask(config, prepare(config, GraphReading(config.network, say, pause), root, say), device)

    return train(config, task, run, **running, smaller="'batch' or 'network.embed_dim'")


class FaierTask(MatchingTask[Faier, Batch, CaptionCode]):
    """Candidates and images with references that find each other.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.

    Raises:
        UsageError: the network is too large for this machine, or its word vectors are of another size than those given.
    """

    def __init__(self, config: FaierTraining, data: Prepared[CaptionCode], device: torch.device) -> None:
        options = data.sized(config.network)
        check_memory(count_weights(lambda: Faier(options)), "Lower 'network.embed_dim' or 'network.word_dim'")
        model = Faier(options, torch.Generator().manual_seed(config.seed))
        super().__init__(config, data, device, model)
        self._config = config
        self._empty = no_reference(data.vocabulary, options)
        reads = options.reads_references
        self._draw = ReferenceDraw(data.train.pairs, data.train.captions, config.references) if reads else None

    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[Batch]:
        """Batches of chosen captions."""
        return batches(
            orders,
            self._split.pairs,
            self._split.captions,
            self._split.regions,
            self._draw,
            self._empty,
            word_dropout=self._config.dropout.words,
            seed=self._config.seed,
            first_step=first_step,
        )

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        """The loss of a batch's scores."""
        network, dropout = self.model, self._config.dropout
        union = union_of(
            network,
            batch.images.to(self._device),
            None if batch.boxes is None else batch.boxes.to(self._device),
            batch.references,
            region_dropout=dropout.regions,
            word_dropout=dropout.embedding,
        )
        candidates = network.encode_captions(batch.candidates.to(self._device), dropout.embedding)
        return batch_loss(network.scores(union, candidates).total, self._config.loss, step)

    def validate(self, model: Faier, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on dev."""
        counts = self._config.evaluation.references
        return evaluate_all(model, self._dev, counts, self._empty, self._device, lambda _candidates_done: pause())

    def save(self, path: Path, model: Faier, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_faier(path, model, self._vocabulary, facts)


def evaluate_faier(
    config: FaierTraining,
    model: FaierModel,
    role: str,
    root: DataRoot | None = None,
    *,
    images: int | None = None,
    say: Callable[[str], None] = lambda _text: None,
    progress: Callable[[int], None] = lambda _done: None,
) -> dict[str, Any]:
    """Recalls of a trained model on a split, with each number of references of ``evaluation.references``.

    Args:
        config: says where captions and features are.
        model: with its vocabulary.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: only so many images, drawn as for dev in training.
        say: told what takes its time.
        progress: called with numbers of candidates done.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions, parses or features are missing or do not fit.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, config.dev_captions(), config.evaluation.seed)
    split = split_for(config, model, pairs, GraphReading(model.options, say), root)
    if not split.pairs.images:
        raise UsageError(f"the split '{role}' has no images", path=pairs.source)
    empty = no_reference(model.vocabulary, model.options)
    device = torch.device(model.device)
    return evaluate_all(model.network, split, config.evaluation.references, empty, device, progress)
