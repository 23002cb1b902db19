"""Settings that trainers on captions and images share, beside those of any training.

All of them read captions with splits and region features, and draw batches of pairs that belong together. Some train
networks that match captions with images and are measured by recall: SCAN's (:mod:`capbench.training.scan.config`) does.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Literal

from capbench.options import Choice, Count, Flag, Number, Options, Positive, Text, option
from capbench.training.captions import SplitOptions
from capbench.training.settings import Fraction, Names, Section, Training, ValidationOptions

__all__ = [
    "CaptionTraining",
    "DropoutOptions",
    "EvaluationOptions",
    "LossOptions",
    "MatchingTraining",
    "VocabularyOptions",
]


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(Options):
    """Which words the network knows."""

    min_count: int = option(4, Count(1), "words that are rarer become <unk>")
    splits: tuple[str, ...] = option(("train", "dev"), Names(("train", "dev")), "whose captions are counted")
    file: str | None = option(
        None, Text("vocab.json"), "a vocabulary to take instead, in the JSON format of the original"
    )


@dataclass(frozen=True, kw_only=True)
class LossOptions(Options):
    """The loss of a batch (:mod:`capbench.training.losses`)."""

    kind: Literal["hinge", "info-nce"] = option(
        "hinge",
        Choice("hinge", "info-nce"),
        "triplets with a margin, or a softmax over the batch in both directions",
    )
    margin: float = option(0.2, Positive(), "of the hinge")
    hardest: bool = option(False, Flag(), "whether the hinge counts only the hardest negative of each row and column")
    hardest_after: int = option(
        0,
        Count(),
        "steps during which the hinge counts all negatives before 'hardest' sets in: with hardest negatives from the "
        "start training can collapse",
    )
    reduction: Literal["sum", "mean"] = option("sum", Choice("sum", "mean"), "of the hinge; the sum is as published")
    temperature: float = option(0.1, Positive(), "of the softmax")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ValidationOptions):
    """When and on what recall is measured during training; the score is the sum of recalls."""

    images: int | None = option(None, Count(1), "how many images of the dev split, drawn with 'seed'; null: all")
    seed: int = option(1, Count(), "of the draw")


@dataclass(frozen=True, kw_only=True)
class DropoutOptions(Options):
    """What is dropped at random in training; each a probability."""

    regions: float = option(0.0, Fraction(), "components of the region features")
    words: float = option(0.0, Fraction(), "words, which become <unk>; not <start> and <end>")
    embedding: float = option(0.0, Fraction(), "components of the word vectors that go into the GRU")


@dataclass(frozen=True, kw_only=True)
class CaptionTraining(Training):
    """A training on captions and images that belong together.

    ``captions`` is Karpathy's JSON, another caption file with splits, Flickr8k's folder (``Flickr8k.token.txt`` and
    ``Flickr_8k.*Images.txt``), Multi30k's folder, or the original SCAN's (``{split}_caps.txt``). ``features: ims``
    takes the arrays ``{split}_ims.npy`` beside the latter. ``order: rounds`` gives every image one caption before any
    has its second, so that no batch holds two captions of an image as each other's negatives.
    """

    # Paths are free: what lies there is compared.
    undeciding = (*Training.undeciding, "captions", "features", "memory_mb")

    captions: str = option(MISSING, Text("dataset_coco.json"), "captions with their splits")
    splits: SplitOptions = option(SplitOptions(), Section(), "names of the splits in the captions")
    features: str = option(MISSING, Text("features.h5"), "a store of region features, or 'ims'")
    regions: int | None = option(
        None, Count(1), "the first so many of each image; null: all, which must then be equally many"
    )
    evaluation: EvaluationOptions = option(EvaluationOptions(), Section(), "when and on what recall is measured")
    batch: int = option(128, Count(2), "caption-image pairs a step")
    order: Literal["captions", "rounds"] = option(
        "captions", Choice("captions", "rounds"), "shuffle all captions, as published, or in rounds over the images"
    )
    memory_mb: float = option(
        4096.0, Number(0), "features up to this size are kept in memory; larger ones are read batch by batch"
    )


@dataclass(frozen=True, kw_only=True)
class MatchingTraining(CaptionTraining):
    """A training of a network that matches captions of words with images."""

    vocabulary: VocabularyOptions = option(VocabularyOptions(), Section(), "which words the network knows")
    word_vectors: str | None = option(
        None, Text("glove.txt"), "vectors that the words begin with: GloVe, word2vec or KeyedVectors; null: drawn ones"
    )
    loss: LossOptions = option(LossOptions(), Section(), "of a batch")
    dropout: DropoutOptions = option(DropoutOptions(), Section(), "what is dropped at random in training")

    def problems(self) -> list[str]:
        """Settings that do nothing where they stand."""
        loss, vocabulary = self.loss, self.vocabulary
        idle = {"hinge": ("temperature",), "info-nce": ("margin", "hardest", "hardest_after", "reduction")}[loss.kind]
        # A default may stand there: a run's own record of its settings writes all of them out.
        default = next(declared.default for declared in self.declared() if declared.name == "loss")
        problems = [
            f"'loss.{key}' does nothing where 'loss.kind' is {loss.kind}"
            for key in idle
            if getattr(loss, key) != getattr(default, key)
        ]
        if vocabulary.file and vocabulary.min_count != VocabularyOptions().min_count:
            problems.append("'vocabulary.min_count' does nothing where 'vocabulary.file' is given")
        if loss.hardest_after and not loss.hardest:
            problems.append("'loss.hardest_after' does nothing without 'loss.hardest: true'")
        return problems

    def dev_captions(self) -> int | None:
        """How many captions of each dev image are read, the first ones; None: all."""
        return None
