"""METEOR's beam search compared with a plain transcription of the jar's algorithm."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from capbench.text.meteor import aligner
from capbench.text.meteor.aligner import EXACT, PARAPHRASE

Match = tuple[int, int, int, int, int, int, int, int, int, int, int]
_WEIGHT = (1.0, 0.5, 0.5, 0.5)


@dataclass
class Partial:
    """A partial alignment with the complete state of the jar."""

    candidate_used: list[bool]
    reference_used: list[bool]
    matches: list[Match | None]
    covered: list[int] = field(default_factory=lambda: [0, 0])
    chunks: int = 0
    distance: int = 0
    next_word: int = 0
    last_end: int = -1

    def key(self) -> tuple[int, int, int]:
        return (-sum(self.covered), self.chunks, self.distance)

    def is_free(self, match: Match) -> bool:
        _, _, _, _, start, length, place, width, *_ = match
        return not any(self.reference_used[start : start + length]) and not any(
            self.candidate_used[place : place + width]
        )

    def occupy(self, match: Match) -> None:
        _, _, _, _, start, length, place, width, *_ = match
        self.reference_used[start : start + length] = [True] * length
        self.candidate_used[place : place + width] = [True] * width
        self.matches[start] = match

    def take(self, match: Match) -> None:
        _, _, _, _, start, length, place, width, stage, *_ = match
        self.covered = [int(self.covered[0] + width * _WEIGHT[stage]), int(self.covered[1] + length * _WEIGHT[stage])]
        if self.last_end not in (-1, place):
            self.chunks += 1
        self.next_word, self.last_end = start + length, place + width

    def close(self) -> None:
        if self.last_end != -1:
            self.chunks += 1
            self.last_end = -1


def plain_search(found: list[list[Match]], n_candidate: int, n_reference: int) -> list[Match]:
    in_reference, in_candidate = [0] * n_reference, [0] * n_candidate
    for match in (match for matches in found for match in matches):
        for i in range(match[4], match[4] + match[5]):
            in_reference[i] += 1
        for j in range(match[6], match[6] + match[7]):
            in_candidate[j] += 1
    first = Partial([False] * n_candidate, [False] * n_reference, [None] * n_reference)
    for matches in found:
        if len(matches) == 1:
            (match,) = matches
            once = in_reference[match[4] : match[4] + match[5]] + in_candidate[match[6] : match[6] + match[7]]
            if set(once) == {1}:
                first.occupy(match)
    partials = [first]
    for i in range(n_reference + 1):
        partials.sort(key=Partial.key)
        now, partials = partials[:40], []
        for partial in now:
            if i == n_reference:
                partial.close()
                partials.append(partial)
            elif partial.reference_used[i]:
                if i >= partial.next_word:
                    given_match = partial.matches[i]
                    assert given_match is not None
                    partial.take(given_match)
                    partial.distance += abs(i - given_match[6])
                partials.append(partial)
            else:
                for match in found[i]:
                    if partial.is_free(match):
                        extended = deepcopy(partial)
                        extended.occupy(match)
                        extended.take(match)
                        partial.distance += abs(i - match[6])
                        partials.append(extended)
                partial.close()
                partial.next_word += 1
                partials.append(partial)
    partials.sort(key=Partial.key)
    return [match for match in partials[0].matches if match is not None]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[Match]], int, int]:
    n_reference, n_candidate = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    found: list[list[Match]] = [[] for _ in range(n_reference)]
    size = st.sampled_from([1, 1, 1, 1, 2, 3])
    for _ in range(draw(st.integers(0, 18))):
        start, place = draw(st.integers(0, n_reference - 1)), draw(st.integers(0, n_candidate - 1))
        length, width = min(draw(size), n_reference - start), min(draw(size), n_candidate - place)
        stage = draw(st.sampled_from([0, 0, 1, 2, 3])) if length == width == 1 else PARAPHRASE
        gain = length + width if stage == EXACT else length // 2 + width // 2
        mask = (((1 << length) - 1) << start) | (((1 << width) - 1) << (n_reference + place))
        here = found[start]
        here.append((len(here), 0, 0, 0, start, length, place, width, stage, gain, mask))
    return found, n_candidate, n_reference


# Six times the same word against six of them: thousands of partial alignments.
_REPEATS: list[list[Match]] = [
    [(EXACT, j, 0, 0, i, 1, j, 1, EXACT, 2, (1 << i) | (1 << (6 + j))) for j in range(6)] for i in range(6)
]


@settings(max_examples=400, deadline=None)
@given(problem=problems())
@example(problem=(_REPEATS, 6, 6))
def test_picks_the_alignment_that_the_plain_search_picks(problem: tuple[list[list[Match]], int, int]) -> None:
    found, n_candidate, n_reference = problem
    chosen = aligner._resolve(found)
    assert chosen == plain_search(found, n_candidate, n_reference)
