"""ROUGE-L of single captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from capbench.core.options import Options, Positive, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.tokens import TokenMetric, ngram_engine, ngram_sweep
from capbench.text import ptb


@dataclass(frozen=True)
class RougeOptions(Options):
    """Options of ROUGE-L."""

    beta: float = option(1.2, Positive(), "weight of recall")


class RougeL(TokenMetric):
    """ROUGE-L (Lin, 2004) as pycocoevalcap computes it.

    F-measure of the best precision and the best recall over all references, which may come from different references.
    As in pycocoevalcap, an empty candidate counts as one empty word and scores 1 against an empty reference.
    """

    name: ClassVar[str] = "rouge-l"
    columns: ClassVar[tuple[str, ...]] = ("rouge-l",)
    titles: ClassVar[Mapping[str, str]] = {"rouge-l": "ROUGE-L"}
    citation: ClassVar[str] = "Lin, ROUGE: a package for automatic evaluation of summaries, ACL workshop 2004"
    order: ClassVar[int] = 20
    option_type = RougeOptions
    options: RougeOptions

    def facts(self) -> Mapping[str, object]:
        """Engine and tokeniser."""
        return {"engine": ngram_engine().version, "tok": ptb.VERSION}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1): the scores."""
        scores = ngram_engine().rouge_l(self.encode(items), self.options.beta)
        progress(len(items))
        return scores[:, None]

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, 1) for each draw; every pair is compared once."""
        from capbench.text.ngrams.statistics import rouge_l_sweep

        beta = self.options.beta
        return ngram_sweep(self, sweep, lambda c, order: rouge_l_sweep(c, order, beta)[..., None], progress)
