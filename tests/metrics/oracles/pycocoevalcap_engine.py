"""The reference engine: pycocoevalcap's own counting, from which the field's published numbers come.

Only its scorer classes are used. Its front ends print to stdout, score dictionaries instead of items
and start Java themselves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from capbench.core.records import FloatArray, IntArray

__all__ = ["ReferenceEngine"]

_ORDERS = 4


class ReferenceEngine:
    """pycocoevalcap 1.2 behind :class:`capbench.metrics.engines.NgramEngine`."""

    version = "pycocoevalcap-1.2"

    def bleu(self, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> FloatArray:
        """(n, 10) statistics, see :meth:`capbench.metrics.engines.NgramEngine.bleu`."""
        from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test

        rows = np.empty((len(candidates), 2 * _ORDERS + 2))
        for row, candidate, group in zip(rows, candidates, references, strict=True):
            counts = cook_test(candidate, cook_refs(group, n=_ORDERS), eff="closest", n=_ORDERS)
            row[:] = [*counts["correct"], *counts["guess"], counts["testlen"], counts["reflen"]]
        return rows

    def rouge_l(self, candidates: Sequence[str], references: Sequence[Sequence[str]], beta: float) -> FloatArray:
        """(n,) scores."""
        from pycocoevalcap.rouge.rouge import Rouge

        scorer = Rouge()
        scorer.beta = beta
        pairs = zip(candidates, references, strict=True)
        return np.array([scorer.calc_score([candidate], group) for candidate, group in pairs], dtype=np.float64)

    def document_frequencies(self, documents: Sequence[Sequence[str]], counts: IntArray) -> Any:
        """1- to 4-gram (tuple of words) → number of documents."""
        from pycocoevalcap.cider.cider_scorer import cook_refs

        frequencies: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for document, count in zip(documents, counts.tolist(), strict=True):
            for ngram in {ngram for counted in cook_refs(document, n=_ORDERS) for ngram in counted}:
                frequencies[ngram] += count
        return frequencies

    def cider(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        frequencies: Any,
        n_documents: int,
        sigma: float,
    ) -> FloatArray:
        """(n,) scores."""
        from pycocoevalcap.cider.cider_scorer import CiderScorer

        class Scorer(CiderScorer):  # type: ignore[misc]
            # The original counts its own captions as the documents; here they are given.
            @property
            def ref_len(self) -> float:
                return math.log(n_documents)

            @ref_len.setter
            def ref_len(self, _: object) -> None:
                pass

        if not candidates:
            return np.empty(0)
        scorer = Scorer(n=_ORDERS, sigma=sigma)
        scorer.document_frequency = frequencies
        for candidate, group in zip(candidates, references, strict=True):
            scorer += (candidate, group)
        return np.array(scorer.compute_cider(), dtype=np.float64)
