"""How a ViLBERT is trained: the settings of its training files, every key with its kind, default and meaning.

Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::

    schema: 1
    name: vilbert-flickr8k           # the run folder's name
    captions: flickr8k               # file or folder, in the current or the data folder
    features: features/flickr8k.h5   # a store with boxes
    pieces: {size: 4000}             # word pieces, learned from the captions
    network: {text_dim: 192, connections: 2}
    loss: {words: 1.0, regions: 1.0, alignment: 1.0}
    optimiser: {lr: 0.0005, warmup: 100}

Keys that trainers share are in :mod:`capbench.training.matching` and :mod:`capbench.training.settings`. Defaults are
the sizes and the three losses of the published pre-training (Lu et al., NeurIPS 2019, section 2.3): masked words,
masked regions, alignment, with equal weights. ``contrast``, ``fit`` and ``matching`` are no part of it; they are off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capbench.models.vilbert.options import VilbertOptions
from capbench.options import Choice, Count, Number, Options, Positive, Text, option
from capbench.training.matching import CaptionTraining, EvaluationOptions
from capbench.training.settings import Fraction, Names, OptimiserOptions, Section

__all__ = ["MaskingOptions", "PieceOptions", "VilbertEvaluation", "VilbertLoss", "VilbertTraining", "WordStart"]


@dataclass(frozen=True, kw_only=True)
class PieceOptions(Options):
    """Which word pieces the network knows."""

    size: int = option(30_522, Count(6), "how many are learned at most, special tokens included")
    splits: tuple[str, ...] = option(("train",), Names(("train", "dev")), "whose captions they are learned from")
    file: str | None = option(None, Text("vocab.txt"), "word pieces to take instead, one a line")
    longest: int = option(37, Count(3, 512), "tokens of a caption that are read, [CLS] and [SEP] included")


@dataclass(frozen=True, kw_only=True)
class WordStart(Options):
    """Embeddings of word pieces to begin with: skip-gram vectors of the training captions."""

    epochs: int = option(0, Count(), "passes of skip-gram over the captions; 0: embeddings begin at random")
    window: int = option(5, Count(1), "pieces on each side that are predicted")


@dataclass(frozen=True, kw_only=True)
class MaskingOptions(Options):
    """What is masked, each a probability."""

    words: float = option(0.15, Fraction(), "word pieces; of them 80 % become [MASK], 10 % another piece")
    regions: float = option(0.15, Fraction(), "regions; of them 90 % become zeros")


@dataclass(frozen=True, kw_only=True)
class VilbertLoss(Options):
    """What is learned: a weighted sum of losses (:mod:`capbench.training.vilbert.losses`)."""

    words: float = option(1.0, Number(0), "weight of masked words")
    regions: float = option(1.0, Number(0), "weight of masked regions")
    region_target: Literal["classes", "features"] = option(
        "features",
        Choice("classes", "features"),
        "what is told of a masked region: the detector's class, by Kullback-Leibler divergence from its probabilities "
        "of background and classes where the store holds them, else from a distribution that has the class's "
        "confidence there and shares the rest among all other classes; or the feature itself, by squared error as a "
        "share of the features' variance",
    )
    alignment: float = option(1.0, Number(0), "weight of whether caption and image belong together")
    negatives: Literal["random", "hard"] = option(
        "random",
        Choice("random", "hard"),
        "captions of other images of the batch: any, or more often the more similar ones by 'contrast'",
    )
    contrast: float = option(
        0.0, Number(0), "weight of InfoNCE between a batch's captions and images, as the first connection attends"
    )
    temperature: float = option(0.1, Positive(), "of 'contrast', and of the draw of hard negatives")
    fit: float = option(
        0.0,
        Number(0),
        "weight of alignment told from the word states themselves after the last connection: the mean of their cosines "
        "with one learned direction, so that a word that fits the image and one that does not become less alike",
    )
    fit_level: float = option(
        0.5,
        Number(-1, 1),
        "the mean cosine that parts fitting from unfitting; well above 0, as the metric multiplies a candidate's by a "
        "reference's",
    )
    fit_temperature: float = option(0.2, Positive(), "that the distance from this level is divided by")
    matching: float = option(
        0.0, Number(0), "weight of matching: another caption of an image must match one better than a foreign one does"
    )
    matching_temperature: float = option(0.05, Positive(), "of the differences of F-scores in 'matching'")


@dataclass(frozen=True, kw_only=True)
class VilbertEvaluation(EvaluationOptions):
    """When and on what a network is measured during training; the score is the accuracy of alignment."""

    captions: int | None = option(2, Count(2), "how many captions of each image, the first ones; null: all")


@dataclass(frozen=True, kw_only=True)
class VilbertTraining(CaptionTraining):
    """A training of ViLBERT as it was asked for; nothing is resolved yet.

    ``network`` holds all of :class:`VilbertOptions` but the sizes that the data decides.
    """

    network: VilbertOptions = option(
        VilbertOptions(),
        Section(decided=("vocabulary_size", "feature_dim", "region_outputs")),
        "sizes of the network",
    )
    pieces: PieceOptions = option(PieceOptions(), Section(), "which word pieces it knows")
    word_start: WordStart = option(WordStart(), Section(), "embeddings to begin with")
    initial: float = option(0.02, Positive(), "standard deviation of the first weights")
    masking: MaskingOptions = option(MaskingOptions(), Section(), "what is masked")
    loss: VilbertLoss = option(VilbertLoss(), Section(), "what is learned")
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=1e-4, warmup=1000), Section(), "how weights are changed")
    evaluation: VilbertEvaluation = option(VilbertEvaluation(), Section(), "when and on what it is measured")
    order: Literal["captions", "rounds"] = option(
        "rounds", Choice("captions", "rounds"), "shuffle all captions, or in rounds over the images"
    )
    precision: Literal["float32", "amp-bfloat16"] = option(
        "float32",
        Choice("float32", "amp-bfloat16"),
        "amp-bfloat16: the large products in bfloat16, on a GPU and on processors that have it; weights stay float32",
    )

    def problems(self) -> list[str]:
        """Settings that do nothing where they stand, or do not fit."""
        loss, pieces, problems = self.loss, self.pieces, []
        if self.features == "ims":
            problems.append("'features: ims' has no boxes; name a feature store that has them")
        if loss.negatives == "hard" and not loss.contrast:
            problems.append("'loss.negatives: hard' needs 'loss.contrast' above 0, which says what is similar")
        if not loss.contrast and loss.temperature != VilbertLoss().temperature:
            problems.append("'loss.temperature' does nothing without 'loss.contrast'")
        if not loss.matching and loss.matching_temperature != VilbertLoss().matching_temperature:
            problems.append("'loss.matching_temperature' does nothing without 'loss.matching'")
        for key in ("fit_level", "fit_temperature"):
            if not loss.fit and getattr(loss, key) != getattr(VilbertLoss(), key):
                problems.append(f"'loss.{key}' does nothing without 'loss.fit'")
        if not any((loss.words, loss.regions, loss.alignment, loss.contrast, loss.fit, loss.matching)):
            problems.append("all weights of 'loss' are 0, so that nothing is learned")
        if pieces.file and pieces.size != PieceOptions().size:
            problems.append("'pieces.size' does nothing where 'pieces.file' is given")
        if pieces.longest > self.network.positions:
            problems.append(
                f"'pieces.longest' is {pieces.longest}, and the network has {self.network.positions} 'positions'"
            )
        return problems
