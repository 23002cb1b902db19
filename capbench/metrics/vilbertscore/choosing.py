"""Selection and weights of a caption's word states for the matching of ViLBERTScore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capbench.core.records import FloatArray
from capbench.text.greedy_matching import Frequencies, Tokens, unit
from capbench.text.word_pieces import BEGIN, END, WordPieces

LONGEST = 37
"""Maximum number of word pieces of a caption, including ``[CLS]`` and ``[SEP]``; longer captions are truncated."""
TASK = "[TASK]"


@dataclass(frozen=True, eq=False)
class Choosing:
    """Rule that selects the token states to be matched.

    The order of states is ``[CLS]``, the task's token if there is one, the word pieces, ``[SEP]`` unless truncated. The
    released rule drops the first one and has one place less than the padded length, so that the last piece of a caption
    truncated to 37 takes part in attention but is not matched.

    Attributes:
        pieces: the vocabulary.
        with_task: True if the states include a task's token.
        special_tokens: ``released`` or ``bertscore``.
        padding: ``released`` or ``masked``.
        idf: ``none``, ``released`` or ``corrected``.
        frequencies: of word pieces in references; required for idf.
    """

    pieces: WordPieces
    with_task: bool
    special_tokens: str = "released"
    padding: str = "released"
    idf: str = "none"
    frequencies: Frequencies | None = None

    def matched(self, ids: Sequence[int]) -> slice:
        """The states of a caption that are matched."""
        length = len(ids) + self.with_task
        if self.special_tokens == "bertscore":
            return slice(0, length)
        ended = ids[-1] == self.pieces.places[END]
        return slice(1, min(length - ended, self.width + 1))

    @property
    def width(self) -> int:
        """Number of matched states of a caption of maximum length."""
        longest = LONGEST + self.with_task
        return longest if self.special_tokens == "bertscore" else longest - 2

    def names(self, ids: Sequence[int]) -> list[str]:
        """Names of the matched tokens."""
        names = [self.pieces.pieces[number] for number in ids]
        if self.with_task:
            names.insert(1, TASK)
        return names[self.matched(ids)]

    def tokens(self, ids: Sequence[int], states: NDArray[np.float32]) -> Tokens:
        """The matched states of a caption, with their weights.

        Args:
            ids: its word pieces, ``[CLS]`` first, at most :data:`LONGEST`.
            states: (..., m, T) of all its tokens.
        """
        matched = self.matched(ids)
        weights = self._weights(ids)[matched]
        scale = weights if self.idf == "released" else None
        padded = self.padding == "released" and len(weights) < self.width
        return Tokens(unit(states[..., matched, :]), weights, scale, padded)

    def _weights(self, ids: Sequence[int]) -> FloatArray:
        """Weight of each state."""
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
            # The released code ignores the task's token here, so that each token has the weight of the next one.
            return np.array([*of_pieces, 0.0])
        return np.array([of_pieces[0], of_task, *of_pieces[1:]])
