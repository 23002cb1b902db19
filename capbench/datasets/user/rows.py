"""The checked rows of a user's file of judgements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from capbench.datasets.user.aspects import RATING

__all__ = ["PairRow", "RatedRow", "UserJudgements"]


class RatedRow(NamedTuple):
    """One row with ratings of one candidate: for each aspect of the file, one or more."""

    row: int
    image: str
    candidate: str
    references: tuple[str, ...]
    ratings: tuple[tuple[float, ...], ...]
    rater: str = ""
    candidate_id: str = ""
    group: str = ""
    system: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes two rows ratings of one candidate: image, system, candidate id and text."""
        return self.image, self.system, self.candidate_id, self.candidate


class PairRow(NamedTuple):
    """One row with a choice between two candidates: ``preferred`` is +1 for a, -1 for b, 0 for a tie."""

    row: int
    image: str
    candidates: tuple[str, str]
    references: tuple[str, ...]
    preferred: int
    votes: tuple[int, int] | None = None
    candidate_ids: tuple[str, str] = ("", "")
    group: str = ""
    systems: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class UserJudgements:
    """The checked rows of one file.

    Attributes:
        kind: what the rows hold; one of the two tuples is empty.
        rated: rows with ratings, in file order.
        pairs: rows with preferences, in file order.
        scale: lowest and highest possible rating; the lowest and highest seen if the file gives none.
        scale_given: whether the scale was given.
        aspects: what candidates are rated for, in the order of a row's ratings; ``rating`` where it has no name.
    """

    kind: Literal["ratings", "preferences"]
    rated: tuple[RatedRow, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    scale: tuple[float, float] = (0.0, 0.0)
    scale_given: bool = False
    aspects: tuple[str, ...] = (RATING,)

    @property
    def has_references(self) -> bool:
        """Whether rows give references; all do or none."""
        return any(row.references for row in self.rated) or any(row.references for row in self.pairs)
