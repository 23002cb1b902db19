"""NNEval: a small network that tells people's captions from machines' by the scores of other metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.options import Choice, File, Flag, Options, Text, option
from capbench.core.records import FloatArray, Item
from capbench.metrics.base import CombinedMetric, Metric, Resources
from capbench.metrics.bleu import Bleu
from capbench.metrics.cider import Cider
from capbench.metrics.meteor import Meteor
from capbench.metrics.needs import Columns, Need, References, Weights
from capbench.metrics.nneval.network import INPUTS, Mapped, image_mark, read_nneval
from capbench.metrics.requests import MetricRequest
from capbench.metrics.spice import Spice
from capbench.metrics.wmd import Wmd

__all__ = ["NNEval", "NNEvalOptions", "input_matrix", "input_requests"]

_GOOGLE_NEWS = (3_000_000, 300)
"""Words and components of the vectors that the paper takes (word2vec, GoogleNews-vectors-negative300)."""
_CIDER_SCALE = 10.0
_PAPER_CHOSEN_ON = ("flickr8k-expert",)
"""Judgements by which the paper chose its weights (section 4.4)."""


@dataclass(frozen=True)
class NNEvalOptions(Options):
    """Options of NNEval. Vectors and documents stand in the signature by way of the inputs."""

    vectors: str | None = option(
        None,
        File("word vectors"),
        "word vectors for WMD: word2vec .bin, GloVe text or gensim KeyedVectors; the paper takes GoogleNews's",
        sign_as="",
    )
    df: str = option(
        "coco-val", Text("coco-val"), "where CIDEr's document frequencies come from, as for cider.df", sign_as=""
    )
    mapping: str = option(
        "as-trained",
        Choice("as-trained", "min-max", "unit"),
        "how scores come to lie in [-1, 1]: by their range in training (min-max), by 2x - 1 (unit), or as the weights "
        "were trained, which for released ones, that hold no range, is unit",
    )
    any_vectors: bool = option(
        False, Flag(), "take word vectors other than those that the weights were trained with", sign_as=""
    )


def input_requests(vectors: str | None, df: str) -> tuple[MetricRequest, ...]:
    """The metrics whose columns NNEval reads, with their options."""
    wmd, cider = {"vectors": vectors}, {"df": df}
    return (
        MetricRequest(Meteor, Meteor.columns),
        MetricRequest(Wmd, ("wmd",), wmd),
        MetricRequest(Bleu, Bleu.columns),
        MetricRequest(Spice, Spice.columns),
        MetricRequest(Cider, Cider.columns, cider),
    )


def input_matrix(columns: Mapping[str, FloatArray]) -> FloatArray:
    """(n, 8) inputs in the network's order from these metrics' columns (n), with CIDEr divided by ten."""
    return np.column_stack([columns[name] / (_CIDER_SCALE if name == "cider" else 1.0) for name in INPUTS])


class NNEval(CombinedMetric):
    """NNEval (Sharif et al., 2018): the probability that a person wrote the caption.

    A network of two hidden layers reads METEOR, WMD similarity, BLEU-1 to BLEU-4, SPICE and CIDEr, each mapped to
    [-1, 1]. Its inputs are these metrics' columns, which are computed and cached once whoever asks for them.

    Raises:
        UsageError: an option's value does not fit.
        MetricError: weights or word vectors are not given, or the vectors are others than in training.
        ModelError: the weights cannot be read.
        DataError: the vectors cannot be read.
    """

    name: ClassVar[str] = "nneval"
    columns: ClassVar[tuple[str, ...]] = ("nneval",)
    titles: ClassVar[Mapping[str, str]] = {"nneval": "NNEval"}
    citation: ClassVar[str] = "Sharif et al., NNEval: neural network based evaluation metric, ECCV 2018"
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Weights("an NNEval network", "capbench train nneval"),
        Columns("meteor", "wmd", "bleu", "spice", "cider"),
    )
    order: ClassVar[int] = 120
    option_type = NNEvalOptions
    options: NNEvalOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._network = read_nneval(str(self.resources.model))
        self._mapped: Mapped | None = None
        if self.options.mapping == "min-max":
            self._mapped = "min-max"
        elif self.options.mapping == "unit":
            self._mapped = "unit"
        if self._mapped == "min-max" and self._network.minimum is None:
            raise MetricError(
                "nneval.mapping=min-max: the weights do not hold the range of the scores in their training",
                path=self._network.path,
                hint="Leave the option out: released weights rank captions rightly on 2x - 1",
            )
        requests = input_requests(self.options.vectors, self.options.df)
        self._inputs = tuple(request.make(self.resources) for request in requests)
        wmd = self._inputs[1]
        assert isinstance(wmd, Wmd)
        self._vectors = wmd.vectors
        trained = self._network.training.get("word_vectors")
        if isinstance(trained, str) and trained != self._vectors.sha256 and not self.options.any_vectors:
            raise MetricError(
                f"was trained with word vectors of SHA-256 {trained[:16]}…, and {self._vectors.path} has "
                f"{self._vectors.sha256[:16]}…",
                path=self._network.path,
                hint="Give the vectors of the training, or --option nneval.any_vectors=true",
            )

    def inputs(self) -> Sequence[Metric]:
        """METEOR, WMD, BLEU, SPICE and CIDEr."""
        return self._inputs

    def combine(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """(n, 1): p(human)."""
        return self._network.probabilities(input_matrix(columns), self._mapped)[:, None]

    def facts(self) -> Mapping[str, object]:
        """The weights, how inputs are mapped, and the inputs' signatures."""
        facts = dict(super().facts())
        inputs = facts.pop("of")
        return {**facts, "mapping": self._mapped or self._network.mapped, "of": inputs}

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Other word vectors than the paper's, what the weights were trained on, and whether they know these images."""
        training = self._network.training
        lines = []
        if (len(self._vectors), self._vectors.dimension) != _GOOGLE_NEWS:
            lines.append(
                f"WMD takes {len(self._vectors):,} word vectors of {self._vectors.dimension} components "
                f"({self._vectors.path.name}), not the paper's of GoogleNews"
            )
        if not training:
            base = dataset.partition("/")[0].partition("@")[0].partition(":")[0]
            if base in _PAPER_CHOSEN_ON:
                lines.append(
                    f"its weights say nothing of their training; the paper chose its own by their agreement with "
                    f"{base}, which is no test set for them"
                )
            return lines
        if isinstance(training.get("about"), str):
            lines.append(f"weights {training['about']}")
        images = training.get("images")
        known = images if isinstance(images, dict) else {}
        for role, what in (
            ("trained", "that its weights were trained on"),
            ("chosen", f"whose judgements ({training.get('chosen_by')}) its weights were chosen by"),
        ):
            marks = {mark for mark in known.get(role, ()) if isinstance(mark, str)}
            shared = sum(image_mark(item.image) in marks for item in items) if marks else 0
            if shared:
                lines.append(f"{shared:,} of {len(items):,} captions are of images {what}: these are no test of it")
        return lines
