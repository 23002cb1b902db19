"""Engines that count n-grams for BLEU, ROUGE-L and CIDEr: one contract, chosen by the option ``engine``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from capbench.errors import UsageError, suggest
from capbench.records import FloatArray, IntArray

__all__ = ["NgramEngine", "engine_names", "get_engine", "is_native"]


class NgramEngine(Protocol):
    """Counts over captions given as tokens joined by single spaces; all give the same numbers.

    ``references`` holds a list of at least one reference for every candidate.
    """

    version: str
    """Goes into signatures."""

    def bleu(self, candidates: Sequence[str], references: Sequence[Sequence[str]]) -> FloatArray:
        """(n, 10): clipped matches of 1- to 4-grams, the candidate's 1- to 4-grams, its and the closest length."""

    def rouge_l(self, candidates: Sequence[str], references: Sequence[Sequence[str]], beta: float) -> FloatArray:
        """(n,) F-measure of the best precision and the best recall of the longest common subsequence."""

    def document_frequencies(self, documents: Sequence[Sequence[str]], counts: IntArray) -> Any:
        """In how many documents (distinct ones, each ``counts`` times) each 1- to 4-gram stands; opaque to callers."""

    def cider(
        self,
        candidates: Sequence[str],
        references: Sequence[Sequence[str]],
        frequencies: Any,
        n_documents: int,
        sigma: float,
    ) -> FloatArray:
        """(n,) CIDEr-D with frequencies from :meth:`document_frequencies`."""


def engine_names() -> list[str]:
    """Names that the option ``engine`` takes, the default first."""
    return ["native", "reference"]


def get_engine(metric: str, name: object) -> NgramEngine:
    """The engine that a metric's option names. Raises UsageError with the choices."""
    if name not in engine_names():
        raise UsageError(f"{metric} has no engine {name!r}", hint=suggest(str(name), engine_names()))
    if name == "reference":
        from capbench.metrics.reference import ReferenceEngine

        return ReferenceEngine()
    from capbench.text.ngrams.engine import NativeEngine

    return NativeEngine()


def is_native(engine: NgramEngine) -> bool:
    """Whether an engine is this package's own, which can sweep over references."""
    from capbench.text.ngrams.engine import NativeEngine

    return isinstance(engine, NativeEngine)
