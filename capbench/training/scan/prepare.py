"""Recall of a finished SCAN."""

from __future__ import annotations

from collections.abc import Callable

import torch

from capbench.datasets.root import DataRoot
from capbench.errors import UsageError
from capbench.models.scan.files import GroundingModel
from capbench.stats.retrieval import Retrieval
from capbench.training.matching_task import split_for
from capbench.training.prepare import WordNumbers, caption_source
from capbench.training.scan.config import ScanTraining
from capbench.training.scan.evaluation import evaluate

__all__ = ["evaluate_scan"]


def evaluate_scan(
    config: ScanTraining,
    model: GroundingModel,
    role: str,
    root: DataRoot | None = None,
    *,
    images: int | None = None,
    captions: int | None = None,
    folds: int = 1,
    total: Callable[[int], None] = lambda _captions: None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Retrieval:
    """Recalls of a trained model on a split.

    Args:
        config: says where captions and features are.
        model: capbench's own or a released one, with its vocabulary.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: only so many images, drawn as for dev in training.
        captions: only so many captions of each.
        folds: as :func:`capbench.stats.retrieval.retrieval`.
        total: called once with the number of captions.
        progress: called with numbers of captions done.

    Raises:
        ModelError: the model was trained on features of another fingerprint or size.
        CapbenchError: captions or features are missing or do not fit.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, captions, config.evaluation.seed)
    if len(pairs.images) % folds:
        raise UsageError(f"{len(pairs.images):,} images cannot be cut into {folds} equal parts", hint="Change --folds")
    split = split_for(config, model, pairs, WordNumbers(), root)
    total(len(pairs.captions))
    device = torch.device(model.device)
    return evaluate(model.network, pairs, split.captions, split.regions, device, folds, progress)
