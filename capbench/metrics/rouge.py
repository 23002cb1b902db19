"""ROUGE-L of single captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from capbench.metrics.base import Progress, ReferenceSweep, Resources
from capbench.metrics.engines import get_engine, is_native
from capbench.metrics.tokens import TokenMetric, ngram_sweep, positive_number
from capbench.records import FloatArray, Item
from capbench.text import ptb

__all__ = ["RougeL"]


class RougeL(TokenMetric):
    """ROUGE-L (Lin, 2004) as pycocoevalcap computes it.

    F-measure of the best precision and the best recall over references, which may come from different ones.
    As there, an empty candidate counts as one empty word, so against an empty reference it scores 1.

    Options:
        beta: weight of recall; the reference's is 1.2.
        engine: ``native`` (this package's), or ``reference`` (pycocoevalcap's counting, slower, the same numbers).
    """

    name: ClassVar[str] = "rouge-l"
    columns: ClassVar[tuple[str, ...]] = ("rouge-l",)
    titles: ClassVar[Mapping[str, str]] = {"rouge-l": "ROUGE-L"}
    citation: ClassVar[str] = "Lin, ROUGE: a package for automatic evaluation of summaries, ACL workshop 2004"
    needs: ClassVar[frozenset[str]] = frozenset({"references"})
    order: ClassVar[int] = 20

    def __init__(self, resources: Resources | None = None, *, beta: float = 1.2, engine: str = "native") -> None:
        super().__init__(resources)
        self._beta = positive_number(self.name, "beta", beta)
        self._engine = get_engine(self.name, engine)

    def signature_parts(self) -> Mapping[str, object]:
        """Engine, tokeniser and β."""
        return {"engine": self._engine.version, "tok": ptb.VERSION, "beta": f"{self._beta:g}"}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1): the scores."""
        found = self._engine.rouge_l(*self.tokenize(items), self._beta)
        progress(len(items))
        return found[:, None]

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 1) for each draw, by the native engine."""
        if not is_native(self._engine):
            return None
        from capbench.text.ngrams.sweep import rouge_l_sweep

        return ngram_sweep(self, sweep, lambda c, order: rouge_l_sweep(c, order, self._beta)[..., None], progress)
