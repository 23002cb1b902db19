"""ViLBERTScore once more, from the paper and what is known of its release: padded tensors, one pair at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.text.word_pieces import WordPieces
from tests.metrics.vilbert.plain import forward

Array = NDArray[np.float64]
LENGTH = 37


class PlainScorer:
    """P, R and F of a candidate and one reference; ``seen`` keeps states of captions with the same weights."""

    def __init__(
        self,
        state: Mapping[str, Array],
        config: Mapping[str, Any],
        pieces: WordPieces,
        documents: Sequence[str] = (),
        seen: dict[Any, list[Array]] | None = None,
    ) -> None:
        self.state, self.config, self.pieces, self.documents = state, config, pieces, documents
        self._document_ids = [set(self._ids(document)) for document in documents]
        self._seen = {} if seen is None else seen

    def _ids(self, text: str) -> list[int]:
        places = self.pieces.places
        return [places["[CLS]"], *self.pieces.encode(text), places["[SEP]"]][:LENGTH]

    def _states(self, text: str, features: Array, boxes: Array, size: tuple[int, int], task: int | None) -> list[Array]:
        key = (text, features.tobytes(), task)
        if key not in self._seen:
            width, height = size
            rows = np.concatenate([features.mean(axis=0)[None], features])
            places = np.zeros((len(rows), 5))
            places[0] = [0, 0, 1, 1, 1]
            for row, (x1, y1, x2, y2) in enumerate(boxes, 1):
                area = (x2 - x1) * (y2 - y1) / (width * height)
                places[row] = [x1 / width, y1 / height, x2 / width, y2 / height, area]
            ids = self._ids(text)
            padded = [*ids, *[0] * (LENGTH - len(ids))]
            self._seen[key] = forward(self.state, self.config, padded, rows, places, task=task, real_tokens=len(ids))[
                "text"
            ]
        return self._seen[key]

    def _idf(self, number: int) -> float:
        count = sum(number in ids for ids in self._document_ids)
        return math.log((len(self.documents) + 1) / (count + 1))

    def _side(
        self, text: str, states: Array, task: int | None, special: str, idf: str
    ) -> tuple[Array, Array, Array, Array]:
        """States, which may be matched, weights in the mean, factors of similarities; all with their padding."""
        ids = self._ids(text)
        ends = {self.pieces.places["[CLS]"], self.pieces.places["[SEP]"]}
        kinds = ["end" if number in ends else "word" for number in ids] + ["padding"] * (LENGTH - len(ids))
        idfs = [0.0 if number in ends else self._idf(number) for number in ids] + [0.0] * (LENGTH - len(ids))
        shifted = list(idfs)
        if task is not None:
            kinds.insert(1, "task")
            idfs.insert(1, 0.0)
            shifted.append(0.0)
        if special == "released":
            # The first and the last place are dropped; [SEP] of a shorter text is dropped by the mask.
            kept = slice(1, -1)
            present = [kind in ("word", "task") for kind in kinds]
            plain = [float(kind in ("word", "task")) for kind in kinds]
        else:
            kept = slice(None)
            present = [kind != "padding" for kind in kinds]
            plain = [float(kind == "word") for kind in kinds]
        weights = {"none": plain, "released": shifted, "corrected": idfs}[idf]
        factors = shifted if idf == "released" else [1.0] * len(kinds)
        columns = [np.array(values, dtype=float)[kept] for values in (present, weights, factors)]
        return states[kept], columns[0], columns[1] * columns[0], columns[2]

    def score(
        self,
        candidate: str,
        reference: str,
        features: Array,
        boxes: Array,
        size: tuple[int, int],
        *,
        layer: int,
        task: int | None = None,
        special: str = "released",
        padding: str = "released",
        idf: str = "none",
    ) -> tuple[float, float, float]:
        sides = []
        for text in (candidate, reference):
            states = self._states(text, features, boxes, size, task)[layer - 1]
            sides.append(self._side(text, states, task, special, idf))
        (a, present_a, weights_a, factors_a), (b, present_b, weights_b, factors_b) = sides
        if not present_a.any() or not present_b.any():
            return 0.0, 0.0, 0.0
        cosines = a @ b.T / np.linalg.norm(a, axis=1)[:, None] / np.linalg.norm(b, axis=1)
        similar = cosines * np.outer(factors_a, factors_b)
        real = np.outer(present_a, present_b)
        if padding == "released":
            for_a = for_b = similar * real
        else:
            for_a = for_b = np.where(real > 0, similar, -np.inf)
        best_a, best_b = for_a.max(axis=1), for_b.max(axis=0)
        means = []
        for best, weights, present in ((best_a, weights_a, present_a), (best_b, weights_b, present_b)):
            weights = weights if weights.sum() > 0 else present
            means.append(float((np.where(present > 0, best, 0.0) * weights).sum() / weights.sum()))
        precision, recall = means
        return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0
