"""How LEIC is trained: the settings of its training files, every key with its kind, default and meaning.

Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::

    schema: 1
    name: leic-flickr8k
    captions: flickr8k
    features: features/flickr8k-grid.h5    # an image's vector is the mean of its regions
    negatives: [other-image, replaced-words, permuted]
    optimiser: {lr: 0.001, lr_decay: 0.9}

and, for a network that knows the captions of systems, tested on the images that a fold leaves out::

    splits: {train: test}
    machine: [machine_captions/where_image2/imgs_flickr8k.txt]
    systems: [flickr8k_merge_1]            # default: all of these files
    folds: {of: 5, out: 1}

Keys that all trainers share are in :mod:`capbench.training.settings`. Defaults are those of the published training (Cui
et al. 2018, and the options of its released code): batches of 100 captions, half of them people's; Adam at 1e-3, times
.9 after each epoch; gradients cut at 1; half of the words' components, states and hidden units dropped; 30 epochs.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from capbench.models.leic import LeicOptions
from capbench.options import Count, Number, Options, Text, option
from capbench.training.captions import SplitOptions
from capbench.training.settings import Fraction, Names, OptimiserOptions, OrNull, Section, Training, ValidationOptions

__all__ = ["NEGATIVES", "FoldOptions", "LeicEvaluationOptions", "LeicOptimiser", "LeicTraining"]

NEGATIVES = ("other-image", "replaced-words", "permuted")
"""Captions of people that are none of the image's: another image's, or the image's own with words replaced by random
ones, or with words in another order."""


@dataclass(frozen=True, kw_only=True)
class LeicOptimiser(OptimiserOptions):
    """Adam, with a rate that falls from epoch to epoch."""

    lr_decay: float = option(0.9, Number(0, 1), "the learning rate is multiplied by it after each epoch")

    def share(self, epoch: int) -> float:
        """What is left of the learning rate in an epoch, counted from 0."""
        return super().share(epoch) * self.lr_decay**epoch


@dataclass(frozen=True, kw_only=True)
class FoldOptions(Options):
    """Which images are left out of the training, and measured in place of the dev split."""

    of: int | None = option(None, Count(2), "the training images are cut into so many parts; null: none is left out")
    out: int = option(1, Count(1), "the part that is left out, from 1")
    seed: int = option(1, Count(), "of the cut")


@dataclass(frozen=True, kw_only=True)
class LeicEvaluationOptions(ValidationOptions):
    """When and on what the network is measured."""

    images: int | None = option(None, Count(1), "how many images of the dev split, drawn with 'seed'; null: all")
    seed: int = option(1, Count(), "of that draw, and of the ruined captions")


@dataclass(frozen=True, kw_only=True)
class LeicTraining(Training):
    """A training of LEIC as it was asked for; nothing is resolved yet.

    ``network`` holds all of :class:`LeicOptions` but the two sizes that the data decides. Where ``machine`` is given, a
    system's caption and one of ``negatives`` are equally often what is told from a person's caption.
    """

    # Paths are free: what lies there is compared.
    undeciding = (*Training.undeciding, "captions", "features", "machine", "vectors")

    captions: str = option(MISSING, Text("flickr8k"), "captions with their splits")
    splits: SplitOptions = option(SplitOptions(), Section(), "names of the splits in the captions")
    features: str = option(MISSING, Text("features.h5"), "a store of region features")
    negatives: tuple[str, ...] | None = option(
        NEGATIVES, OrNull(Names(NEGATIVES)), "which ruined captions of people are learned from; null: none"
    )
    machine: tuple[str, ...] | None = option(
        None, OrNull(Names()), "files of systems' captions of the training images, in the current or the data folder"
    )
    systems: tuple[str, ...] | None = option(None, OrNull(Names()), "which of these systems; null: all")
    folds: FoldOptions = option(FoldOptions(), Section(), "which images are left out")
    vectors: str | None = option(None, Text("vectors.bin"), "word vectors that the network's words begin with")
    min_count: int = option(4, Count(1), "words that are rarer in the training captions become <unk>")
    network: LeicOptions = option(
        LeicOptions(vocabulary_size=4), Section(decided=("vocabulary_size", "image_dim")), "sizes of the network"
    )
    dropout: float = option(0.5, Fraction(), "of the words' components, the states and the hidden units")
    optimiser: LeicOptimiser = option(LeicOptimiser(lr=1e-3, clip=1.0), Section(), "how weights are changed")
    evaluation: LeicEvaluationOptions = option(
        LeicEvaluationOptions(), Section(), "when and on what it is measured; the score is the likelihood"
    )
    batch: int = option(100, Count(2), "captions a step: as many right ones as wrong ones, so an even number")
    epochs: int = option(30, Count(1), "passes over the images")

    def problems(self) -> list[str]:
        """Settings that do nothing where they stand, or do not go together."""
        problems = []
        if self.batch % 2:
            problems.append(f"'batch' is {self.batch}, no even number")
        if self.negatives is None and self.machine is None:
            problems.append("neither 'negatives' nor 'machine' says what is told from people's captions")
        if self.systems is not None and self.machine is None:
            problems.append("'systems' does nothing without 'machine'")
        if self.folds.of is None and self.folds != FoldOptions():
            problems.append("'folds.out' and 'folds.seed' do nothing without 'folds.of'")
        if self.folds.of is not None and self.folds.out > self.folds.of:
            problems.append(f"'folds.out' is {self.folds.out}, and there are {self.folds.of} parts")
        return problems
