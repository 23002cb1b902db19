"""How FAIEr is trained: the settings of its training files, every key with its kind, default and meaning.

Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::

    schema: 1
    name: faier-flickr8k
    captions: flickr8k
    features: features/flickr8k-boxes.h5   # a store with boxes, which the relation level is made of
    network: {variant: faier, embed_dim: 512, similarity: dot}
    references: {draw: random, most: 4}    # the paper's "r-ref"; {draw: all, most: 1} is its "1 ref"
    loss: {hardest: true, hardest_after: 500}
    evaluation: {references: [0, 4]}

Keys that trainers share are in :mod:`capbench.training.matching` and :mod:`capbench.training.settings`. Defaults are
those of the published training (Wang et al. 2021, section 4.2): Adam at 5e-4, 100 pairs a batch, hardest negatives
with a margin of .2. What the paper leaves open: ``order: rounds``, so that batches hold distinct images; epochs; and no
decay of the learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capbench.models.faier.options import FaierOptions
from capbench.options import Choice, Count, Kind, Options, option
from capbench.training.matching import EvaluationOptions, LossOptions, MatchingTraining
from capbench.training.settings import OptimiserOptions, Section

__all__ = ["TABLE_4", "FaierEvaluationOptions", "FaierTraining", "ReferenceOptions", "row_changes"]

TABLE_4: dict[str, tuple[str, str, int]] = {
    "fier": ("fier", "all", 0),
    "aier-4-ref": ("aier", "all", 4),
    "fier-aier-4-ref": ("fier+aier", "all", 4),
    "faier-rel-4-ref": ("faier-object", "all", 4),
    "faier-4-ref": ("faier", "all", 4),
    "faier-rel-1-ref": ("faier-object", "all", 1),
    "faier-1-ref": ("faier", "all", 1),
    "faier-rel-r-ref": ("faier-object", "random", 4),
    "faier-r-ref": ("faier", "random", 4),
}
"""The rows of Table 4: variant of the network, how references are drawn, and their largest number."""


def row_changes(row: str) -> list[str]:
    """The settings of a row of Table 4, as ``key=value``."""
    variant, draw, most = TABLE_4[row]
    changes = [f"network.variant={variant}", f"references.draw={draw}"]
    # FIEr reads no references, and its number is left as it is.
    return [*changes, f"references.most={most}"] if most else changes


@dataclass(frozen=True)
class _Counts(Kind):
    """Numbers of references."""

    def describe(self) -> str:
        return "a list of whole numbers from 0, each once"

    def example(self) -> str:
        return "[0, 4]"

    def read(self, value: object) -> tuple[int, ...]:
        counts = value if isinstance(value, list | tuple) else [value]
        numbers = tuple(Count(0).read(count) for count in counts)
        if not numbers or len(set(numbers)) < len(numbers):
            raise ValueError
        return numbers


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions(Options):
    """The references of a training sample: other captions of its image, never the candidate nor one with its text."""

    draw: Literal["random", "all"] = option(
        "random", Choice("random", "all"), "random: from none to 'most', all equally often; all: always 'most'"
    )
    most: int = option(4, Count(1), "largest number; an image with fewer other captions gives what it has")


@dataclass(frozen=True, kw_only=True)
class FaierEvaluationOptions(EvaluationOptions):
    """What of the dev split is compared: each image's first caption, with the ones after it as references."""

    references: tuple[int, ...] = option(
        (0, 4), _Counts(), "recall is measured with each of these numbers of references; the score is the mean"
    )


@dataclass(frozen=True, kw_only=True)
class FaierTraining(MatchingTraining):
    """A training of FAIEr as it was asked for; nothing is resolved yet.

    ``network`` holds all of :class:`FaierOptions` but the two sizes that the data decides.
    """

    network: FaierOptions = option(
        FaierOptions(vocabulary_size=4),
        Section(decided=("vocabulary_size", "image_dim")),
        "sizes, variant, and the paper's open points",
    )
    references: ReferenceOptions = option(ReferenceOptions(), Section(), "of a training sample")
    loss: LossOptions = option(LossOptions(hardest=True), Section(), "of a batch")
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=5e-4, clip=None), Section(), "how weights are changed")
    evaluation: FaierEvaluationOptions = option(
        FaierEvaluationOptions(), Section(), "when and on what recall is measured"
    )
    batch: int = option(100, Count(2), "caption-image pairs a step")
    order: Literal["captions", "rounds"] = option(
        "rounds",
        Choice("captions", "rounds"),
        "in rounds over the images, so that no batch holds one twice, or all mixed",
    )

    def dev_captions(self) -> int | None:
        """The candidate and its references."""
        return 1 + max(self.evaluation.references)

    def problems(self) -> list[str]:
        """Settings that do nothing where they stand, or do not go together."""
        problems = super().problems()
        if not self.network.reads_references and self.references != ReferenceOptions(draw=self.references.draw):
            problems.append(f"'references.most' does nothing under the variant {self.network.variant}")
        return problems
