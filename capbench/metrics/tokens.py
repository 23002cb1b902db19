"""Base class of metrics on tokenised captions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from capbench.core.errors import MetricError
from capbench.core.records import Item
from capbench.metrics.base import Metric
from capbench.metrics.score_cache import item_name
from capbench.text import language, ptb


def require_references(metric: str, items: Sequence[Item]) -> None:
    """Reject items without references. Raises MetricError."""
    bare = next((item for item in items if not item.references), None)
    if bare is not None:
        message = f"{metric} requires references, but {item_name(bare)} has none"
        hint = "Add references, or remove the item"
        raise MetricError(message, code="missing-references", value=bare.image, hint=hint)


class TokenMetric(Metric):
    """A metric that compares a candidate's PTB tokens with those of its references."""

    batch_size: int = 8192  # counting is vectorised: few large batches
    english_resources: ClassVar[str] = ""
    """English resources besides the tokeniser, for the warning about captions in other languages; ``""`` if none."""

    @classmethod
    def check_captions(cls, items: Sequence[Item]) -> None:
        """Nothing: an empty candidate scores 0."""

    def open(self, items: Sequence[Item]) -> None:
        """Reject items without references. Raises MetricError."""
        require_references(self.name, items)

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Captions without spaces between words, and captions that are not English."""
        texts = [text for item in items for text in (item.candidate, *item.references)]
        lines = []
        if unspaced := language.without_spaces(texts):
            lines.append(
                f"{unspaced:,} of {len(texts):,} candidates and references are in a script without spaces between "
                "words, and the tokeniser takes what is between two spaces as one word: insert spaces between the words"
            )
        if self.english_resources and not language.is_english(texts):
            lines.append(f"the captions do not seem to be English, and {self.english_resources}")
        return lines

    def tokenize(self, items: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
        """Candidates (n) and their references (n lists), each as tokens joined by single spaces."""
        require_references(self.name, items)
        texts = [text for item in items for text in (item.candidate, *item.references)]
        tokens = iter(ptb.tokenize(texts))
        pairs = [(next(tokens), [next(tokens) for _ in item.references]) for item in items]
        return [candidate for candidate, _ in pairs], [references for _, references in pairs]
