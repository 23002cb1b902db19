"""METEOR of single captions and of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.tokens import TokenMetric
from capbench.text import ptb
from capbench.text.meteor import scores as meteor
from capbench.text.meteor.aligner import N_COUNTS


class Meteor(TokenMetric):
    """METEOR 1.5 (Denkowski and Lavie, 2014) for English, normalised, as pycocoevalcap calls it.

    An empty candidate or reference scores 0; of several references the best one counts.
    The computation uses the jar's data files, without Java.
    """

    name = "meteor"
    columns = ("meteor",)
    titles: ClassVar[Mapping[str, str]] = {"meteor": "METEOR"}
    citation = "Denkowski and Lavie, Meteor universal, WMT 2014"
    english_resources = "METEOR's stemmer, synonyms, paraphrases and function words are English"

    batch_size = 2048
    by_image = True  # captions of one image share references, whose units are related once

    def facts(self) -> Mapping[str, object]:
        return {"meteor": meteor.VERSION, "engine": "native-1", "lang": "en", "norm": "yes", "tok": ptb.VERSION}

    @classmethod
    def check_captions(cls, items: Sequence[Item]) -> None:
        """Reject captions with too many words to be aligned."""
        # A character is at most one word, or a sign that the normaliser replaces by a word of a few letters.
        texts = ((item, i, text) for item in items for i, text in enumerate((item.candidate, *item.references)))
        for item, i, text in texts:
            if len(text) <= meteor.LONGEST // 4 or len(tokens := ptb.tokenize([text])[0]) <= meteor.LONGEST:
                continue
            try:
                meteor.normalised_words(tokens)  # which may split tokens further
            except MetricError as error:
                name = f" '{item.candidate_id}'" if item.candidate_id else ""
                row = f"image '{item.image}', {f'reference {i}' if i else f'the candidate{name}'}"
                raise error.placed(MetricError, None, row) from error

    def open(self, items: Sequence[Item]) -> None:
        super().open(items)
        self.check_captions(items)

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 24): 23 counts of the best reference, in the jar's order, and the score.

        The counts: candidate and reference length, function words of both; for each of the stages exact, stem,
        synonym, paraphrase the matched content words of candidate and reference and the matched function words
        of both; chunks; matched words of candidate and reference.
        """
        candidates, references = self.tokenize(items)
        counts = meteor.meteor_statistics(candidates, references, progress=progress)
        return np.column_stack([counts, meteor.meteor_scores(counts)])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 24) for each draw; a pair of texts is aligned once for all draws."""
        candidates, references = self.tokenize(sweep.items)
        self.check_captions(sweep.items)
        # All draws are computed together, so progress of one candidate is progress of all its draws.
        draws = len(sweep.orders)
        return meteor.meteor_sweep(
            candidates, references, sweep.orders, sweep.counts, progress=lambda done: progress(draws * done)
        )

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        return {"meteor": np.ascontiguousarray(statistics[:, N_COUNTS])}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """The formula on the sums of all counts, as in the jar's ``EVAL``."""
        return {"meteor": meteor.meteor_corpus(statistics[:, :N_COUNTS])}

    def corpus_terms(self, statistics: FloatArray) -> FloatArray:
        """(n, 23): the counts, without the chunk of a candidate that matches completely in one chunk."""
        return meteor.corpus_counts(statistics[:, :N_COUNTS])

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        return {"meteor": meteor.meteor_scores(sums)}
