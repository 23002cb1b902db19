"""The checked rows of a user's file as records."""

from __future__ import annotations

from typing import Any

from capbench.datasets.user.judgement_files import UserJudgements

_SIDED = [f"{name}_{side}" for name in ("candidate", "candidate_id", "system") for side in "ab"]
_NAMES = ("image", "candidate", "references", "rater", "candidate_id", "group", "system", "direction", "grade", *_SIDED)


def records(table: UserJudgements) -> list[dict[str, Any]]:
    """The fields of each row that are not empty, with its place as ``row`` and its ratings by aspect."""
    names = [*(f"={aspect}" for aspect in table.aspects), *_NAMES, "votes_a", "votes_b"]
    rows = zip(table.frame.index, table.frame.to_dict("records"), strict=True)
    return [{"row": place} | {n: row[n] for n in names if n in row and row[n] not in ("", ())} for place, row in rows]
