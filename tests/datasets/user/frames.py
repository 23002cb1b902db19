"""The checked rows of a user's file as tuples."""

from __future__ import annotations

from typing import NamedTuple

from capbench.datasets.user.judgement_files import UserJudgements


class Rated(NamedTuple):
    row: int
    image: str
    candidate: str
    references: tuple[str, ...]
    ratings: tuple[tuple[float, ...], ...]
    rater: str = ""
    candidate_id: str = ""
    group: str = ""
    system: str = ""


class Pair(NamedTuple):
    row: int
    image: str
    candidates: tuple[str, str]
    references: tuple[str, ...]
    preferred: int
    votes: tuple[int, int] | None = None
    candidate_ids: tuple[str, str] = ("", "")
    group: str = ""
    systems: tuple[str, str] = ("", "")
    grade: float | None = None


def rated(table: UserJudgements) -> tuple[Rated, ...]:
    """Rows with ratings."""
    if table.kind != "ratings":
        return ()
    names = ["image", "candidate", "references", "rater", "candidate_id", "group", "system"]
    ratings = zip(*(table.frame[f"={aspect}"] for aspect in table.aspects), strict=True)
    rows = table.frame[names].itertuples(name=None)
    return tuple(Rated._make((*row[:4], of_row, *row[4:])) for row, of_row in zip(rows, ratings, strict=True))


def pairs(table: UserJudgements) -> tuple[Pair, ...]:
    """Rows with preferences."""
    if table.kind != "preferences":
        return ()
    return tuple(
        Pair(
            number,
            row["image"],
            (row["candidate_a"], row["candidate_b"]),
            row["references"],
            row["direction"],
            (row["votes_a"], row["votes_b"]) if "votes_a" in row else None,
            (row["candidate_id_a"], row["candidate_id_b"]),
            row["group"],
            (row["system_a"], row["system_b"]),
            row.get("grade"),
        )
        for number, row in zip(table.frame.index, table.frame.to_dict("records"), strict=True)
    )
