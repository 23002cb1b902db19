"""BERT-TBR: BERTScore against combined references (Yi, Deng and Hu, ACL 2020)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError
from capbench.core.files import read_lines
from capbench.core.options import Choice, Count, File, Number, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.bertscore.metric import BertMetric, BertOptions
from capbench.metrics.needs import Resources
from capbench.text import vocabulary
from capbench.text.greedy_matching import unit

_PUNCTUATION = "."


@dataclass(frozen=True)
class BertTBROptions(BertOptions):
    """Options of BERT-TBR."""

    variant: str = option(
        "repaired",
        Choice("repaired", "released"),
        "repaired: a merged token has its own state; released: as in the published code, states of merged tokens are "
        "off by one and the last one is dropped",
    )
    layer: int = option(8, Count(1), "layer of the word states")
    threshold: float = option(0.4, Number(0, 1), "similarity that a match must exceed")
    stop_words: str | None = option(
        None, File("stop words"), "file of stop words, one per line; by default NLTK's 179 and the full stop"
    )


@dataclass(frozen=True, eq=False)
class _Text:
    """A text: unit states of all its tokens, including start and end tokens, and the pieces between these."""

    states: NDArray[np.float32]
    ids: tuple[int, ...]
    pieces: tuple[str, ...]

    @property
    def inner(self) -> NDArray[np.float32]:
        return self.states[1:-1]


class BertTBR(BertMetric):
    """The product of two similarities with a candidate, averaged over base references.

    Each reference in turn is the base. Tokens of the other references that match no token of the base and none of an
    earlier reference are added to it. Each token of the combined reference has a best similarity with the candidate's
    tokens; only tokens above the threshold count, in numerator and denominator. The first similarity is the mean
    weighted by inverse document frequency, the second the unweighted mean without stop words on either side; each is 0
    if no token counts. Document frequencies are those of references and candidates of all items.

    ``variant=released`` reproduces the errors of the published code: a merged token has the state of the token before
    it, and merged states follow the base's end token, so that they, their weights and their words are off by one, the
    end token has the weight and word of the first merged token, and the last merged state is dropped. The published
    list of stop words is not included; pass it as ``stop_words``.

    Raises:
        SetupError, MissingFileError, ModelError: as :class:`BertMetric`.
        DataError: the file of stop words cannot be read.
        MetricError: the file of stop words is empty.
    """

    name: ClassVar[str] = "bert-tbr"
    columns: ClassVar[tuple[str, ...]] = ("bert-tbr",)
    titles: ClassVar[Mapping[str, str]] = {"bert-tbr": "BERT-TBR"}
    citation: ClassVar[str] = (
        "Yi et al., Improving image captioning evaluation by considering inter references variance, ACL 2020"
    )
    order: ClassVar[int] = 75

    option_type = BertTBROptions
    options: BertTBROptions

    def __init__(self, resources: Resources | None = None, **options: object) -> None:
        super().__init__(resources, **options)
        self.stop_words = self._read_stop_words()

    def layer(self) -> int | None:
        """The option ``layer``."""
        return self.options.layer

    def documents(self, item: Item) -> Iterable[str]:
        """An item's references and its candidate."""
        return (*item.references, item.candidate)

    def _read_stop_words(self) -> frozenset[str]:
        if self.options.stop_words is None:
            return vocabulary.ENGLISH | {_PUNCTUATION}
        words = frozenset(line.strip() for line in read_lines(self.options.stop_words)) - {""}
        if not words:
            raise MetricError("has no stop words", code="missing-value", path=self.options.stop_words)
        return words

    def facts(self) -> Mapping[str, object]:
        """Those of :class:`BertMetric`, and the stop words."""
        facts = dict(super().facts())
        if self.options.stop_words is None:
            facts["stop_words"] = "nltk-179+."
        return facts

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1) scores.

        Raises:
            MetricError: an item has no references.
        """
        self.check(items)
        states = self.states(items, progress)
        texts = {
            text: _Text(unit(of_text), self.bert.ids(text)[1:-1], tuple(self.bert.names(text)[1:-1]))
            for text, of_text in states.items()
        }
        combined: dict[tuple[str, ...], list[_Combined]] = {}
        rows = np.empty((len(items), 1))
        for row, item in zip(rows, items, strict=True):
            if item.references not in combined:
                combined[item.references] = self._combined([texts[text] for text in item.references])
            candidate = texts[item.candidate]
            row[0] = np.mean([self._score(reference, candidate) for reference in combined[item.references]])
        return rows

    def _combined(self, references: Sequence[_Text]) -> list[_Combined]:
        """Each reference as the base, with the added tokens of the others."""
        # matches[b][r]: True for tokens of reference r that match a token of reference b.
        matches = [
            [_best(other.inner, base.inner) > self.options.threshold for other in references] for base in references
        ]
        combined = []
        for b, base in enumerate(references):
            vectors, ids, pieces = [base.inner], list(base.ids), list(base.pieces)
            released = self.options.variant == "released"
            if released:
                vectors.append(base.states[-1:])
            for r, other in enumerate(references):
                if r == b:
                    continue
                added = ~matches[b][r]
                for earlier in range(r):
                    if earlier != b:
                        added &= ~matches[earlier][r]
                places = np.flatnonzero(added)
                # states[0] belongs to the start token, so the correct index is shifted by one.
                vectors.append(other.states[places if released else places + 1])
                ids += [other.ids[place] for place in places]
                pieces += [other.pieces[place] for place in places]
            stacked = np.concatenate(vectors)
            combined.append(
                _Combined(
                    stacked[:-1] if released else stacked,
                    np.array([self.frequencies.weight(number) for number in ids]),
                    np.array([piece in self.stop_words for piece in pieces], dtype=bool),
                )
            )
        return combined

    def _score(self, reference: _Combined, candidate: _Text) -> float:
        best = _best(reference.vectors, candidate.inner)
        matched = best > self.options.threshold
        total = float(reference.weights[matched].sum())
        full = float((best * reference.weights)[matched].sum()) / total if total else 0.0
        stop = np.array([piece in self.stop_words for piece in candidate.pieces], dtype=bool)
        best = _best(reference.vectors, candidate.inner[~stop])
        matched = (best > self.options.threshold) & ~reference.stop
        content = float(best[matched].mean()) if matched.any() else 0.0
        return full * content


@dataclass(frozen=True, eq=False)
class _Combined:
    """A base reference with added tokens: unit states (m, D), weights (m,), and True for stop words (m,)."""

    vectors: NDArray[np.float32]
    weights: FloatArray
    stop: NDArray[np.bool_]


def _best(vectors: NDArray[np.float32], others: NDArray[np.float32]) -> FloatArray:
    """(m,) maximum similarity of each of ``vectors`` with ``others``, at least 0."""
    if not len(others):
        return np.zeros(len(vectors))
    best: FloatArray = np.maximum((vectors @ others.T).max(axis=1), 0.0).astype(np.float64)
    return best
