"""METEOR of single captions and of a corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from capbench.errors import UsageError, suggest
from capbench.metrics.base import Progress, ReferenceSweep, Resources
from capbench.metrics.tokens import TokenMetric
from capbench.records import FloatArray, Item
from capbench.text import meteor, ptb

__all__ = ["Meteor"]

_ENGINES = ["native", "reference"]


class Meteor(TokenMetric):
    """METEOR 1.5 (Denkowski and Lavie, 2014) for English, normalised, as pycocoevalcap calls it.

    An empty candidate or reference scores 0; of several references the best counts.

    Options:
        engine: ``native`` (this package's, from the jar's own data files, without Java), or ``reference`` (the jar
            itself, slower, the same numbers).
    """

    name: ClassVar[str] = "meteor"
    columns: ClassVar[tuple[str, ...]] = ("meteor",)
    titles: ClassVar[Mapping[str, str]] = {"meteor": "METEOR"}
    citation: ClassVar[str] = "Denkowski and Lavie, Meteor universal, WMT 2014"
    needs: ClassVar[frozenset[str]] = frozenset({"references"})
    order: ClassVar[int] = 30

    def __init__(self, resources: Resources | None = None, *, engine: str = "native") -> None:
        super().__init__(resources)
        if engine not in _ENGINES:
            raise UsageError(f"{self.name} has no engine {engine!r}", hint=suggest(str(engine), _ENGINES))
        self._engine = engine
        # The jar takes its time, so an interrupted run should lose little; the native engine wants work for all cores.
        self.batch_size = 32_768 if engine == "native" else 1024

    def signature_parts(self) -> Mapping[str, object]:
        """Version of METEOR, engine, language, normalisation, tokeniser."""
        engine = "native-1" if self._engine == "native" else f"jar-{meteor.VERSION}"
        return {"meteor": meteor.VERSION, "engine": engine, "lang": "en", "norm": "yes", "tok": ptb.VERSION}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 24): 23 counts of the best reference, in the jar's order, and the score.

        The counts: candidate and reference length, function words of both; for each of the stages exact, stem,
        synonym, paraphrase the matched content words of candidate and reference and the matched function words
        of both; chunks; matched words of candidate and reference.

        Raises:
            MetricError: an item has no references.
            ToolError: METEOR's files are missing, or (engine ``reference``) Java failed.
        """
        candidates, references = self.tokenize(items)
        if self._engine == "reference":
            from capbench.metrics.meteor_jar import jar_statistics

            return jar_statistics(candidates, references, progress)
        counts = meteor.meteor_statistics(candidates, references, progress=progress)
        return np.column_stack([counts, meteor.meteor_scores(counts)])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 24) for each draw, by the native engine: a pair of texts is aligned once for all draws."""
        return None if self._engine == "reference" else self._sweep(sweep, progress)

    def _sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
        candidates, references = self.tokenize(sweep.items)
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
