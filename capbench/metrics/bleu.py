"""BLEU-1 to BLEU-4 of single captions and of a corpus."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.tokens import TokenMetric, ngram_engine, ngram_sweep
from capbench.text import ptb

# pycocoevalcap's constants against division by zero. They give a caption without any 4-gram match a tiny positive
# score instead of 0 and thus decide ties.
_TINY, _SMALL = 1e-15, 1e-9


class Bleu(TokenMetric):
    """BLEU (Papineni et al., 2002) as in pycocoevalcap, with the reference length closest to the candidate's.

    As in pycocoevalcap, an empty candidate scores 0 and a candidate whose references are empty after tokenisation
    scores less than 1e-3 (there is no brevity penalty).
    """

    name: ClassVar[str] = "bleu"
    columns: ClassVar[tuple[str, ...]] = ("bleu-1", "bleu-2", "bleu-3", "bleu-4")
    titles: ClassVar[Mapping[str, str]] = {f"bleu-{n}": f"BLEU-{n}" for n in (1, 2, 3, 4)}
    citation: ClassVar[str] = (
        "Papineni et al., BLEU: a method for automatic evaluation of machine translation, ACL 2002"
    )
    order: ClassVar[int] = 10

    def facts(self) -> Mapping[str, object]:
        """Engine, tokeniser, n-gram orders and rule for the reference length."""
        return {"engine": ngram_engine().version, "tok": ptb.VERSION, "n": 4, "length": "closest"}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 10): clipped matches of 1- to 4-grams, numbers of 1- to 4-grams, candidate length, reference length."""
        counts = ngram_engine().bleu(self.encode(items))
        progress(len(items))
        return counts

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 10) for each draw; every n-gram is counted once."""
        from capbench.text.ngrams.statistics import bleu_sweep

        return ngram_sweep(self, sweep, bleu_sweep, progress)

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Sentence-level BLEU: geometric mean of the precisions up to order n, times the brevity penalty."""
        return dict(zip(self.columns, _bleu(statistics), strict=True))

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """Corpus BLEU: the same formula on the sums of the statistics."""
        total = _bleu(statistics.sum(axis=0, keepdims=True))
        return {column: float(values[0]) for column, values in zip(self.columns, total, strict=True)}

    def corpus_terms(self, statistics: FloatArray) -> FloatArray:
        """(n, 10): the statistics themselves."""
        return statistics

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        """Corpus BLEU from (r, 10) sums."""
        return dict(zip(self.columns, _bleu(sums), strict=True))


def _bleu(statistics: FloatArray) -> list[FloatArray]:
    """BLEU-1..4 of every row of (n, 10) statistics."""
    matches, guesses, length, reference_length = np.split(statistics, [4, 8, 9], axis=1)
    ratio = ((length + _TINY) / (reference_length + _SMALL))[:, 0]
    # Python's power and exponential: numpy's differ in the last bit on some machines, and equal counts must give
    # equal scores everywhere.
    penalty = np.array([math.exp(1 - 1 / r) if r < 1 else 1.0 for r in ratio.tolist()])
    product = np.ones(len(statistics))
    columns = []
    for order in range(4):
        product = product * ((matches[:, order] + _TINY) / (guesses[:, order] + _SMALL))
        columns.append(np.array([p ** (1.0 / (order + 1)) for p in product.tolist()]) * penalty)
    return columns
