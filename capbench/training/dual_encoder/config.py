"""How a dual encoder is trained: the settings of its training files, every key with its kind, default and meaning.

Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::

    schema: 1
    name: dual-encoder-flickr8k      # the run folder's name
    captions: flickr8k               # file or folder, in the current or the data folder
    features: features/flickr8k.h5   # a store, or a folder of stores
    network: {embed_dim: 256, pooling: attention, text: gru}
    loss: {temperature: 0.07, learned: true}
    optimiser: {lr: 0.001, clip: 2.0}
    epochs: 5

Keys that trainers share are in :mod:`capbench.training.matching` and :mod:`capbench.training.settings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capbench.models.dual_encoder.network import DualEncoderOptions
from capbench.options import Choice, Count, Flag, Positive, option
from capbench.training.matching import EvaluationOptions, LossOptions, MatchingTraining
from capbench.training.settings import Section

__all__ = ["DualEncoderTraining", "DualEvaluationOptions", "DualLossOptions"]


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
