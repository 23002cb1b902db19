"""Base class and n-gram engine of metrics on tokenised captions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from capbench.core.errors import MetricError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.text import language, ptb

if TYPE_CHECKING:
    from capbench.text.ngrams.corpus import EncodedCorpus, ReferenceOrder
    from capbench.text.ngrams.statistics import NativeEngine

_LOOKED_AT = 1000  # items whose captions are tested for their language


class TokenMetric(Metric):
    """A metric that compares a candidate's PTB tokens with those of its references."""

    batch_size: int = 8192  # counting is vectorised: few large batches
    english_resources: ClassVar[str] = ""
    """English resources besides the tokeniser, for the warning about captions in other languages; ``""`` if none."""

    def open(self, items: Sequence[Item]) -> None:
        """Reject items without references. Raises MetricError."""
        for item in items:
            if not item.references:
                raise MetricError(
                    f"{self.name} requires references, but the item '{item.candidate_id or item.candidate[:60]}' of "
                    f"image '{item.image}' has none",
                    code="missing-references",
                    value=item.image,
                    hint="Add references, or remove the item",
                )

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Captions without spaces between words, and captions that are not English."""
        lines = []
        unspaced = language.without_spaces(_texts(items))
        if unspaced:
            total = sum(1 + len(item.references) for item in items)
            lines.append(
                f"{unspaced:,} of {total:,} candidates and references are in a script without spaces between words, "
                "and the tokeniser takes what is between two spaces as one word: insert spaces between the words"
            )
        if self.english_resources and not language.is_english(list(_texts(items[:: max(1, len(items) // _LOOKED_AT)]))):
            lines.append(f"the captions do not seem to be English, and {self.english_resources}")
        return lines

    def tokenize(self, items: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
        """Candidates (n) and their references (n lists), each as tokens joined by single spaces.

        Raises:
            MetricError: an item has no references.
            DataError, ToolError: a caption could not be tokenised.
        """
        TokenMetric.open(self, items)
        texts = [text for item in items for text in (item.candidate, *item.references)]
        tokens = iter(ptb.tokenize(texts, cache=self.resources.cache))
        candidates, references = [], []
        for item in items:
            candidates.append(next(tokens))
            references.append([next(tokens) for _ in item.references])
        return candidates, references

    def encode(self, items: Sequence[Item]) -> EncodedCorpus:
        """Items' tokens as numbers, for the n-gram engine; metrics with the same batches share them.

        Raises:
            MetricError: an item has no references.
            DataError, ToolError: a caption could not be tokenised.
        """
        from capbench.text.ngrams.statistics import encoded_items

        TokenMetric.open(self, items)
        return encoded_items(items, ptb.caption_encoder(cache=self.resources.cache))


def _texts(items: Iterable[Item]) -> Iterator[str]:
    """All captions of items, which may be on disk."""
    return (text for item in items for text in (item.candidate, *item.references))


def ngram_sweep(
    metric: TokenMetric,
    sweep: ReferenceSweep,
    statistics: Callable[[EncodedCorpus, ReferenceOrder], FloatArray],
    progress: Progress,
) -> Iterator[FloatArray]:
    """A sweep by the native n-gram engine, which counts matches with references once for all draws.

    Args:
        metric: the metric, for its tokenisation.
        sweep: items, orders of their references, and numbers of references.
        statistics: returns (counts, n, k) of one draw.
        progress: see :meth:`capbench.metrics.abilities.Sweeps.sweep`.
    """
    from capbench.text.ngrams.corpus import reference_order

    corpus = metric.encode(sweep.items)
    for order in sweep.orders:
        yield statistics(corpus, reference_order(corpus, sweep.counts, order))
        progress(len(sweep.items))


@cache
def ngram_engine() -> NativeEngine:
    """The n-gram engine that all metrics share."""
    from capbench.text.ngrams.statistics import NativeEngine

    return NativeEngine()
