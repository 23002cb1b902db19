"""Which of a caption's word states ViLBERTScore matches, and what each of them weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray
from capbench.text.greedy_matching import Frequencies, Tokens, unit
from capbench.text.word_pieces import BEGIN, END, WordPieces

__all__ = ["LONGEST", "TASK", "Choosing"]

LONGEST = 37
"""Word pieces of a caption, ``[CLS]`` and ``[SEP]`` among them, that are read; what is more is cut off."""
TASK = "[TASK]"


@dataclass(frozen=True, eq=False)
class Choosing:
    """The rule by which states of tokens become what is matched.

    States stand in the order ``[CLS]``, the task's token if there is one, the word pieces, ``[SEP]`` unless it was cut
    off. The released rule drops the first and leaves room for one less than were padded to, so that of a caption cut to
    37 the last piece is attended to and not matched.

    Attributes:
        pieces: the vocabulary.
        with_task: whether a task's token is among the states.
        special_tokens: ``released`` or ``bertscore``.
        padding: ``released`` or ``masked``.
        idf: ``none``, ``released`` or ``corrected``.
        frequencies: of word pieces in references; needed for idf.
    """

    pieces: WordPieces
    with_task: bool
    special_tokens: str = "released"
    padding: str = "released"
    idf: str = "none"
    frequencies: Frequencies | None = None

    def kept(self, ids: Sequence[int]) -> slice:
        """Which states of a caption are matched."""
        length = len(ids) + self.with_task
        if self.special_tokens == "bertscore":
            return slice(0, length)
        ended = ids[-1] == self.pieces.places[END]
        return slice(1, min(length - ended, self.width + 1))

    @property
    def width(self) -> int:
        """How many states are matched of a caption that fills all places."""
        longest = LONGEST + self.with_task
        return longest if self.special_tokens == "bertscore" else longest - 2

    def names(self, ids: Sequence[int]) -> list[str]:
        """What the states that are matched are of."""
        names = [self.pieces.pieces[number] for number in ids]
        if self.with_task:
            names.insert(1, TASK)
        return names[self.kept(ids)]

    def tokens(self, ids: Sequence[int], states: NDArray[np.float32]) -> Tokens:
        """What is matched of a caption.

        Args:
            ids: its word pieces, ``[CLS]`` first, at most :data:`LONGEST`.
            states: (..., m, T) of all its tokens.
        """
        kept = self.kept(ids)
        weights = self._weights(ids)[kept]
        scale = weights if self.idf == "released" else None
        padded = self.padding == "released" and len(weights) < self.width
        return Tokens(unit(states[..., kept, :]), weights, scale, padded)

    def _weights(self, ids: Sequence[int]) -> FloatArray:
        """What each state weighs."""
        special = (self.pieces.places[BEGIN], self.pieces.places[END])
        if self.idf == "none":
            of_pieces = [float(self.special_tokens == "released" or number not in special) for number in ids]
            of_task = float(self.special_tokens == "released")
        else:
            assert self.frequencies is not None
            of_pieces = [0.0 if number in special else self.frequencies.weight(number) for number in ids]
            of_task = 0.0
        if not self.with_task:
            return np.array(of_pieces)
        if self.idf == "released":
            # The released code weighs the tokens as if the task's were not among them: each has the next one's weight.
            return np.array([*of_pieces, 0.0])
        return np.array([of_pieces[0], of_task, *of_pieces[1:]])
