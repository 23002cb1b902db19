"""The n-gram engine behind BLEU, ROUGE-L and CIDEr-D, called with encoded captions.

Metrics hand over the same captions one after the other; they are encoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import is_

from capbench.records import FloatArray, IntArray, Item
from capbench.text.ngrams.counting import DocumentWords, count_documents
from capbench.text.ngrams.statistics import DocumentFrequencies, EncodedCorpus, bleu_statistics, cider_d, rouge_l
from capbench.text.ptb.encoding import CaptionEncoder

__all__ = ["NativeEngine", "encoded_items"]

_last: list[tuple[tuple[Item, ...], EncodedCorpus]] = []


def encoded_items(items: Sequence[Item], encoder: CaptionEncoder) -> EncodedCorpus:
    """Items' captions as numbers; the last ones are kept, so that metrics on the same items encode them once."""
    if _last:
        known, corpus = _last[0]
        if corpus.vocabulary is encoder.vocabulary and len(known) == len(items) and all(map(is_, known, items)):
            return corpus
        _last.clear()
    corpus = EncodedCorpus.of_captions([item.candidate for item in items], [i.references for i in items], encoder)
    _last.append((tuple(items), corpus))
    return corpus


class NativeEngine:
    """Counts over captions as numbers: pycocoevalcap's scores, vectorised."""

    version = "native-1"
    """Goes into signatures."""

    def bleu(self, corpus: EncodedCorpus) -> FloatArray:
        """Give (n, 10): clipped matches of 1- to 4-grams, the candidate's 1- to 4-grams, its and the closest length."""
        return bleu_statistics(corpus)

    def rouge_l(self, corpus: EncodedCorpus, beta: float) -> FloatArray:
        """(n,) F-measure of the best precision and the best recall of the longest common subsequence."""
        return rouge_l(corpus, beta=beta)

    def document_frequencies(self, documents: DocumentWords, counts: IntArray) -> DocumentFrequencies:
        """In how many documents (distinct ones, each ``counts`` times) each 1- to 4-gram stands."""
        return count_documents(documents, times=counts)

    def cider(
        self, corpus: EncodedCorpus, frequencies: DocumentFrequencies, n_documents: int, sigma: float
    ) -> FloatArray:
        """(n,) CIDEr-D with frequencies from :meth:`document_frequencies`."""
        return cider_d(corpus, replace(frequencies, documents=n_documents), sigma=sigma)
