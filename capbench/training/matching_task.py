"""What training a network that matches captions with images has in common, whatever the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from capbench.datasets.root import DataRoot
from capbench.errors import ModelError
from capbench.training.caption_task import CaptionTask
from capbench.training.captions import Pairs
from capbench.training.matching import MatchingTraining
from capbench.training.prepare import Prepared, Reading, Split, prepare_split, signature_of_features
from capbench.training.task import B, M

__all__ = ["MatchingTask", "Readable", "split_for"]

E = TypeVar("E")


class MatchingTask(CaptionTask[M, B], Generic[M, B, E]):
    """A task on captions of words, whose score is recall.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.
        model: the network, with its first weights drawn on the CPU; its embeddings are word vectors.

    Raises:
        UsageError: the vectors to begin with are of another size than the network's.
    """

    score = "recall_sum"

    def __init__(self, config: MatchingTraining, data: Prepared[E], device: torch.device, model: M) -> None:
        if data.word_start is not None:
            for layer in model.modules():
                if isinstance(layer, nn.Embedding):
                    data.word_start.begin(layer)
        super().__init__(config, data.train.pairs, data.train.regions, model, device)
        self._split, self._dev, self._vocabulary = data.train, data.dev, data.vocabulary
        self.data, self.facts = data.names, {"features": data.features}


class Readable(Protocol):
    """A trained model, as far as a split of images and captions has to fit it."""

    @property
    def path(self) -> Path | None:
        """Its file."""

    @property
    def features(self) -> str | None:
        """The kind of features that it was trained on, or None if unknown."""

    @property
    def vocabulary(self) -> Any:
        """Its words."""

    @property
    def options(self) -> Any:
        """Its shape, with ``image_dim``."""


def split_for(
    config: MatchingTraining, model: Readable, pairs: Pairs, reading: Reading[E], root: DataRoot | None
) -> Split[E]:
    """A split as a trained model reads it.

    Args:
        config: says where the features are.
        model: whose vocabulary encodes the captions.
        pairs: images and captions.
        reading: how it reads them.
        root: the data folder.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions or features are missing or do not fit.
    """
    kind, named = signature_of_features(config, root, pairs)
    if None not in (model.features, kind) and model.features != kind:
        raise ModelError(
            f"was trained on features of another kind ({model.features}, here {kind})",
            path=model.path,
            hint="Give the features that it was trained on with --features",
        )
    reading.more_words(pairs.captions)
    split = prepare_split(config, pairs, reading, model.vocabulary, root)
    if split.regions.shape[2] != model.options.image_dim:
        raise ModelError(
            f"reads features of {model.options.image_dim} columns; these ({named}) have {split.regions.shape[2]}",
            path=model.path,
        )
    return split
