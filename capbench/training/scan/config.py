"""How SCAN is trained: the settings of its training files, every key with its kind, default and meaning.

Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::

    schema: 1
    name: scan-flickr8k              # the run folder's name
    captions: flickr8k               # file or folder, in the current or the data folder
    splits: {train: train, dev: dev, test: test}
    features: features/flickr8k.h5   # a store, a folder of stores, or 'ims' for SCAN's own {split}_ims.npy
    regions: 36                      # the first so many of each image; default: all
    network: {embed_dim: 512, cross_attention: t2i}
    loss: {kind: info-nce, temperature: 0.1}
    optimiser: {lr: 0.001, lr_update: 10, clip: 2.0}
    epochs: 2
    ema: 0.995

Keys that trainers share are in :mod:`capbench.training.matching` and :mod:`capbench.training.settings`. Defaults are
those of the published training of SCAN (Lee et al. 2018, "Stacked Cross Attention for Image-Text Matching", and the
options of its released code).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capbench.models.scan.network import ScanOptions
from capbench.options import Choice, Count, option
from capbench.training.matching import EvaluationOptions, MatchingTraining
from capbench.training.settings import OptimiserOptions, Section

__all__ = ["ScanEvaluationOptions", "ScanTraining"]


@dataclass(frozen=True, kw_only=True)
class ScanEvaluationOptions(EvaluationOptions):
    """What of the dev split is compared."""

    captions: int | None = option(None, Count(1), "how many captions of each, the first ones; null: all")


@dataclass(frozen=True, kw_only=True)
class ScanTraining(MatchingTraining):
    """A training of SCAN as it was asked for; nothing is resolved yet.

    ``network`` holds all of :class:`ScanOptions` but the two sizes that the data decides.
    """

    network: ScanOptions = option(
        ScanOptions(vocabulary_size=4, image_dim=1),
        Section(decided=("vocabulary_size", "image_dim")),
        "sizes and attention",
    )
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=2e-4, lr_update=15), Section(), "how weights are changed")
    evaluation: ScanEvaluationOptions = option(
        ScanEvaluationOptions(), Section(), "when and on what recall is measured"
    )
    precision: Literal["float32", "bfloat16", "amp-bfloat16"] = option(
        "float32",
        Choice("float32", "bfloat16", "amp-bfloat16"),
        "bfloat16 is for the large products of the attention, amp-bfloat16 for the encoders too, on a GPU only",
    )

    def dev_captions(self) -> int | None:
        """As many captions of each dev image as ``evaluation.captions`` says."""
        return self.evaluation.captions
