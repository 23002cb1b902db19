"""BERTScore: greedy matching of contextual word vectors (Zhang et al., ICLR 2020)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.metrics.base import Progress
from capbench.metrics.bert_metric import BertMetric, BertOptions
from capbench.options import Choice, Count, option
from capbench.records import FloatArray, Item
from capbench.text.matching import Tokens, greedy_matching, unit

__all__ = ["BERTScore"]

_SCORES = ("bertscore-p", "bertscore-r", "bertscore-f")


@dataclass(frozen=True)
class BERTScoreOptions(BertOptions):
    """Options of BERTScore; defaults are those of the package ``bert-score``, rescaling with a baseline left off."""

    layer: int | None = option(
        None,
        Count(),
        "after which layer word states are taken; by default the one that the authors chose for a network of this kind",
    )
    idf: str = option(
        "none",
        Choice("none", "references"),
        "weights of word pieces in the mean: all alike, or their inverse document frequency in all references",
    )
    reduce: str = option("max", Choice("max", "mean"), "what is taken of P, R and F over references", recombines=True)


class BERTScore(BertMetric):
    """Precision, recall and F of greedy matching between the word pieces of a candidate and a reference.

    Equal to the package ``bert-score`` without rescaling: any piece may be matched with any, also with those that begin
    and end a text, which themselves count for nothing in the mean; of several references each of P, R and F is the
    maximum. There the pieces of a short text may match the padding of its batch with similarity 0, which counts only
    where all similarities are negative; here nothing is padded.

    Values that the package leaves undefined: where all pieces of a text have an idf of 0, they count alike.
    """

    name: ClassVar[str] = "bertscore"
    columns: ClassVar[tuple[str, ...]] = ("bertscore-f", "bertscore-p", "bertscore-r")
    titles: ClassVar[Mapping[str, str]] = {
        "bertscore-f": "BERTScore-F",
        "bertscore-p": "BERTScore-P",
        "bertscore-r": "BERTScore-R",
    }
    citation: ClassVar[str] = "Zhang et al., BERTScore: evaluating text generation with BERT, ICLR 2020"
    order: ClassVar[int] = 70

    option_type = BERTScoreOptions
    options: BERTScoreOptions

    def layer(self) -> int | None:
        """As the options say."""
        return self.options.layer

    def documents(self, item: Item) -> Iterable[str]:
        """An item's references, with idf."""
        return item.references if self.options.idf == "references" else ()

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 6): the maxima over references of P, R and F, then their means.

        Raises:
            MetricError: an item has no references.
        """
        self.check(items)
        states = self.states(items, progress)
        tokens = {text: self._tokens(text, of_text) for text, of_text in states.items()}
        pairs = list(dict.fromkeys((item.candidate, text) for item in items for text in item.references))
        matched = greedy_matching([tokens[first] for first, _ in pairs], [tokens[second] for _, second in pairs])
        empty = np.array([self._is_empty(first) or self._is_empty(second) for first, second in pairs])
        scores = dict(zip(pairs, np.where(empty[:, None], 0.0, matched), strict=True))
        rows = np.empty((len(items), 6))
        for row, item in zip(rows, items, strict=True):
            of_references = np.array([scores[item.candidate, text] for text in item.references])
            row[:3], row[3:] = of_references.max(axis=0), of_references.mean(axis=0)
        return rows

    def _is_empty(self, text: str) -> bool:
        return len(self.bert.ids(text)) == len(self.bert.ids(""))

    def _tokens(self, text: str, states: NDArray[np.float32]) -> Tokens:
        ids = self.bert.ids(text)
        if self.options.idf == "none":
            weights = np.array([float(number not in self.bert.special) for number in ids])
        else:
            weights = np.array([self.frequencies.weight(number) for number in ids])
        return Tokens(unit(states), weights)

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """P, R and F by column."""
        first = 0 if self.options.reduce == "max" else 3
        return {column: np.ascontiguousarray(statistics[:, first + _SCORES.index(column)]) for column in self.columns}
