"""METEOR of single captions and of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.core.errors import MetricError
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Progress
from capbench.metrics.tokens import TokenMetric
from capbench.text import meteor, ptb

__all__ = ["Meteor"]


class Meteor(TokenMetric):
    """METEOR 1.5 (Denkowski and Lavie, 2014) for English, normalised, as pycocoevalcap calls it.

    An empty candidate or reference scores 0; of several references the best counts.
    Counts come from the jar's own data files, without Java.
    """

    name: ClassVar[str] = "meteor"
    columns: ClassVar[tuple[str, ...]] = ("meteor",)
    titles: ClassVar[Mapping[str, str]] = {"meteor": "METEOR"}
    citation: ClassVar[str] = "Denkowski and Lavie, Meteor universal, WMT 2014"
    order: ClassVar[int] = 30

    batch_size: int = 32_768  # work for all cores
    part_size = 2048  # a worker has one of them

    def facts(self) -> Mapping[str, object]:
        """Version of METEOR, engine, language, normalisation, tokeniser."""
        return {"meteor": meteor.VERSION, "engine": "native-1", "lang": "en", "norm": "yes", "tok": ptb.VERSION}

    def open(self, items: Sequence[Item]) -> None:
        """Refuse items without references, and captions that are too long, before time is spent on the others."""
        super().open(items)
        # A character is a word at most, or a sign that stands for a word of a few letters.
        long = [item for item in items if max(map(len, (item.candidate, *item.references))) > meteor.LONGEST // 4]
        if long:
            self._refuse_too_long(long, *self.tokenize(long))

    def _refuse_too_long(
        self, items: Sequence[Item], candidates: Sequence[str], references: Sequence[Sequence[str]]
    ) -> None:
        """Raise MetricError, with image and candidate, for a caption of more words than can be aligned."""
        for item, candidate, others in zip(items, candidates, references, strict=True):
            for place, text in enumerate((candidate, *others)):
                # Tokens are joined by spaces, and METEOR's normaliser may part them further.
                if len(text) <= meteor.LONGEST:
                    continue
                try:
                    meteor.normalised_words(text)
                except MetricError as error:
                    which = f"reference {place}" if place else "the candidate"
                    name = f" '{item.candidate_id}'" if item.candidate_id else ""
                    row = f"image '{item.image}', {which}{'' if place else name}"
                    raise MetricError(error.message, row=row, hint=error.hint) from error

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 24): 23 counts of the best reference, in the jar's order, and the score.

        The counts: candidate and reference length, function words of both; for each of the stages exact, stem,
        synonym, paraphrase the matched content words of candidate and reference and the matched function words
        of both; chunks; matched words of candidate and reference.

        Raises:
            MetricError: an item has no references.
            ToolError: METEOR's files are missing.
        """
        candidates, references = self.tokenize(items)
        counts = meteor.meteor_statistics(candidates, references, progress=progress)
        return np.column_stack([counts, meteor.meteor_scores(counts)])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 24) for each draw, a pair of texts is aligned once for all draws."""
        candidates, references = self.tokenize(sweep.items)
        self._refuse_too_long(sweep.items, candidates, references)
        # All draws are done together, so progress of one candidate is progress of all of its draws.
        draws = len(sweep.orders)
        return meteor.meteor_sweep(
            candidates, references, sweep.orders, sweep.counts, progress=lambda done: progress(draws * done)
        )

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """The score of each caption."""
        return {"meteor": np.ascontiguousarray(statistics[:, meteor.N_COUNTS])}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """METEOR of the whole corpus: its formula over the sums of all counts, as the jar's ``EVAL`` has it."""
        return {"meteor": meteor.meteor_corpus(statistics[:, : meteor.N_COUNTS])}

    def corpus_terms(self, statistics: FloatArray) -> FloatArray:
        """(n, 23): the counts, without the chunk of a candidate that matches whole and in one piece."""
        return meteor.corpus_counts(statistics[:, : meteor.N_COUNTS])

    def corpus_of_sums(self, sums: FloatArray) -> dict[str, FloatArray]:
        """METEOR of corpora from (r, 23) sums."""
        return {"meteor": meteor.meteor_scores(sums)}
