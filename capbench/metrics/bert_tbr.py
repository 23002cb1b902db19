"""BERT-TBR: BERTScore against combined references (Yi, Deng and Hu, ACL 2020)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.options import Choice, Count, Number, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.bertscore import BertMetric, BertOptions
from capbench.metrics.tokens import require_references
from capbench.text import vocabulary
from capbench.text.greedy_matching import unit

_STOP_WORDS = vocabulary.ENGLISH | {"."}


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


@dataclass(frozen=True, eq=False)
class _Words:
    """Tokens: unit states, for a text (m + 2, D) with its start and end tokens, else (m, D); weights (m,); and True for
    stop words (m,)."""

    states: NDArray[np.float32]
    weights: FloatArray
    stop: NDArray[np.bool_]


class BertTBR(BertMetric):
    """The product of two similarities with a candidate, averaged over base references.

    Each reference in turn is the base. Tokens of the other references that match no token of the base and none of an
    earlier reference are added to it. Each token of the combined reference has a best similarity with the candidate's
    tokens; only tokens above the threshold count, in numerator and denominator. The first similarity is the mean
    weighted by inverse document frequency, the second the unweighted mean without stop words on either side; each is 0
    if no token counts. Document frequencies are those of references and candidates of all items.

    ``variant=released`` reproduces the errors of the published code: a merged token has the state of the token before
    it, merged states follow the base's end token, and the last one is dropped.
    """

    name = "bert-tbr"
    columns = ("bert-tbr",)
    titles: ClassVar[Mapping[str, str]] = {"bert-tbr": "BERT-TBR"}
    citation = "Yi et al., Improving image captioning evaluation by considering inter references variance, ACL 2020"

    option_type = BertTBROptions
    options: BertTBROptions

    def documents(self, item: Item) -> Iterable[str]:
        return (*item.references, item.candidate)

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 1) scores."""
        require_references(self.name, items)
        states = self.bert.states(text for item in items for text in (item.candidate, *item.references))
        texts = {text: self._words(text, of_text) for text, of_text in states.items()}
        combined: dict[tuple[str, ...], list[_Words]] = {}
        rows = np.empty((len(items), 1))
        for row, item in zip(rows, items, strict=True):
            if item.references not in combined:
                combined[item.references] = list(self._combined([texts[text] for text in item.references]))
            candidate = texts[item.candidate]
            row[0] = np.mean([self._score(reference, candidate) for reference in combined[item.references]])
            progress(1)
        return rows

    def _words(self, text: str, states: NDArray[np.float32]) -> _Words:
        weights = [self.frequencies.weight(number) for number in self.bert.ids(text)[1:-1]]
        stop = [piece in _STOP_WORDS for piece in self.bert.names(text)[1:-1]]
        return _Words(unit(states), np.array(weights, dtype=float), np.array(stop, dtype=bool))

    def _combined(self, references: Sequence[_Words]) -> Iterator[_Words]:
        """Each reference as the base, with the added tokens of the others."""
        released = self.options.variant == "released"
        # matches[b][r]: True for tokens of reference r that match a token of reference b.
        inner = [reference.states[1:-1] for reference in references]
        matches = [[_best(other, base) > self.options.threshold for other in inner] for base in inner]
        for b, base in enumerate(references):
            states, weights, stop = [base.states[1:] if released else inner[b]], [base.weights], [base.stop]
            for r, other in enumerate(references):
                if r != b:
                    places = np.flatnonzero(~np.any([matches[s][r] for s in {b, *range(r)}], axis=0))
                    # states[0] belongs to the start token, so the correct index is shifted by one.
                    states.append(other.states[places if released else places + 1])
                    weights.append(other.weights[places])
                    stop.append(other.stop[places])
            stacked = np.concatenate(states)
            yield _Words(stacked[:-1] if released else stacked, np.concatenate(weights), np.concatenate(stop))

    def _score(self, reference: _Words, candidate: _Words) -> float:
        inner, threshold = candidate.states[1:-1], self.options.threshold
        best = _best(reference.states, inner)
        matched = best > threshold
        total = float(reference.weights[matched].sum())
        full = float((best * reference.weights)[matched].sum()) / total if total else 0.0
        best = _best(reference.states, inner[~candidate.stop])
        matched = (best > threshold) & ~reference.stop
        return full * float(best[matched].mean()) if matched.any() else 0.0


def _best(vectors: NDArray[np.float32], others: NDArray[np.float32]) -> FloatArray:
    """(m,) maximum similarity of each of ``vectors`` with ``others``, at least 0."""
    if not len(others):
        return np.zeros(len(vectors))
    return np.asarray(np.maximum((vectors @ others.T).max(axis=1), 0.0), dtype=np.float64)
