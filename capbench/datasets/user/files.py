"""Reads a user's own judgements from JSONL, CSV or TSV and checks every row.

The schema is documented in ``docs/data.md``. A file holds ratings (``rating`` or ``ratings``) or pairwise preferences
(``candidate_a``, ``candidate_b`` with ``preferred`` or votes), not both. Nothing is guessed and nothing is dropped: a
row that does not fit is a problem, and all problems of a file are found in one pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from capbench.datasets.user.records import (
    COMMON,
    PAIRED,
    RATED,
    SUFFIXES,
    Check,
    ImportProblemsError,
    jsonl_records,
    table_records,
)
from capbench.errors import DataError
from capbench.files import read_text

__all__ = ["SUFFIXES", "PairRow", "RatedRow", "UserJudgements", "parse_scale", "read_user_file"]

_SCALE = re.compile(r"\s*\[?\s*([-+]?[\d.]+)\s*(?:,|\.\.|to|:|-)\s*([-+]?[\d.]+)\s*\]?\s*")


@dataclass(frozen=True)
class RatedRow:
    """One row with ratings of one candidate."""

    row: int
    image: str
    candidate: str
    references: tuple[str, ...]
    ratings: tuple[float, ...]
    rater: str = ""
    candidate_id: str = ""
    group: str = ""


@dataclass(frozen=True)
class PairRow:
    """One row with a choice between two candidates: ``preferred`` is +1 for a, -1 for b, 0 for a tie."""

    row: int
    image: str
    candidates: tuple[str, str]
    references: tuple[str, ...]
    preferred: int
    votes: tuple[int, int] | None = None
    candidate_ids: tuple[str, str] = ("", "")
    group: str = ""


@dataclass(frozen=True)
class UserJudgements:
    """The checked rows of one file.

    Attributes:
        kind: what the rows hold; one of the two tuples is empty.
        rated: rows with ratings, in file order.
        pairs: rows with preferences, in file order.
        scale: lowest and highest possible rating; the lowest and highest seen if the file gives none.
        scale_given: whether the scale was given.
    """

    kind: Literal["ratings", "preferences"]
    rated: tuple[RatedRow, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    scale: tuple[float, float] = (0.0, 0.0)
    scale_given: bool = False


def parse_scale(text: str) -> tuple[float, float] | None:
    """``"1-5"``, ``"1..5"``, ``"1,5"`` or ``"[1, 5]"`` → (1.0, 5.0); None if it is no scale."""
    match = _SCALE.fullmatch(text)
    if not match:
        return None
    try:
        low, high = float(match[1]), float(match[2])
    except ValueError:
        return None
    return (low, high) if low < high else None


def read_user_file(
    path: Path, *, ignore: Collection[str] = (), scale: tuple[float, float] | None = None
) -> UserJudgements:
    """Read and check a file of judgements.

    Args:
        path: a ``.jsonl``, ``.csv`` or ``.tsv`` file in UTF-8.
        ignore: columns to leave out of consideration.
        scale: lowest and highest possible rating, if the file does not say.

    Raises:
        DataError: the file cannot be read as its ending says.
        ImportProblemsError: rows do not fit the schema; all of them are in ``problems``.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"has the ending '{suffix}'", path=path, hint="Judgements are read from .jsonl, .csv and .tsv files"
        )
    check = Check()
    text = read_text(path)
    if not text.strip():
        raise DataError("is empty", path=path, hint="See 'capbench data import --help' for the columns")
    records = list(jsonl_records(text, check) if suffix == ".jsonl" else table_records(path, text, check))
    records = [(row, {key: value for key, value in record.items() if key not in ignore}) for row, record in records]
    if not records and not check.problems:
        raise DataError("holds no judgements", path=path, hint="A header alone is not enough: add rows")
    paired = any(key in record for _, record in records for key in ("candidate_a", "candidate_b", "preferred"))
    found = (
        UserJudgements("preferences", pairs=tuple(_pairs(records, check))) if paired else _rated(records, check, scale)
    )
    if check.problems:
        raise ImportProblemsError.of(path, sorted(check.problems, key=lambda problem: problem.row))
    return found


def _rated(
    records: list[tuple[int, dict[str, Any]]], check: Check, scale: tuple[float, float] | None
) -> UserJudgements:
    rows: list[RatedRow] = []
    stated: tuple[float, float] | None = scale
    seen: dict[tuple[str, str], RatedRow] = {}
    raters: dict[tuple[str, str, str], int] = {}
    ids = _Ids(check)
    with_rater = bool(records) and "rater" in records[0][1]
    for row, record in records:
        before = len(check.problems)
        check.fields(row, record, COMMON | RATED, "ratings")
        image = check.image(row, record.get("image"))
        candidate = check.text(row, "candidate", record.get("candidate"))
        references = check.references(row, record.get("references"))
        ratings = _ratings(row, record, check)
        group = check.text(row, "group", record.get("group"), needed=False)
        candidate_id = check.text(row, "candidate_id", record.get("candidate_id"), needed=False)
        rater = record.get("rater", "")
        rater = (
            str(rater)
            if isinstance(rater, int) and not isinstance(rater, bool)
            else check.text(row, "rater", rater, needed=False)
        )
        if ("rater" in record) != with_rater:
            check.add(row, "some rows name a 'rater' and others do not", "Name it in every row or in none")
        if rater and ratings is not None and len(ratings) > 1:
            check.add(row, "names one 'rater' but gives several ratings", "Give one row for each rater")
        if "scale" in record:
            found = _scale(record["scale"])
            if found is None:
                check.add(row, "'scale' is no scale", "Write it as [1, 5], in a table as 1-5")
            elif stated is not None and found != stated:
                check.add(
                    row,
                    f"the scale {found[0]:g}-{found[1]:g} differs from {stated[0]:g}-{stated[1]:g}",
                    "A file has one scale",
                )
            else:
                stated = found
        if len(check.problems) > before or not (image and candidate and references and ratings):
            continue
        new = RatedRow(row, image, candidate, references, ratings, rater or "", candidate_id or "", group or "")
        first = seen.setdefault((image, candidate), new)
        if first is not new and not rater:
            check.add(
                row,
                f"rates the same candidate as row {first.row}",
                "Give its ratings as one list, or name a 'rater' in every row",
            )
        elif raters.setdefault((image, candidate, new.rater), row) != row:
            check.add(
                row,
                f"rater '{rater}' rated this candidate in row {raters[image, candidate, new.rater]} already",
                "Remove one",
            )
        for what in ("references", "group", "candidate_id"):
            if getattr(first, what) != getattr(new, what):
                check.add(row, f"gives the candidate of row {first.row} other {what}", "Make the two rows agree")
        ids.claim(row, new.candidate_id, image, candidate)
        rows.append(new)
    values = [value for one in rows for value in one.ratings]
    if stated is not None:
        for one in rows:
            for value in one.ratings:
                if not stated[0] <= value <= stated[1]:
                    check.add(
                        one.row,
                        f"the rating {value:g} is outside of {stated[0]:g}-{stated[1]:g}",
                        "Mend the rating or the scale",
                    )
    seen_scale = (min(values), max(values)) if values else (0.0, 0.0)
    return UserJudgements("ratings", rated=tuple(rows), scale=stated or seen_scale, scale_given=stated is not None)


def _ratings(row: int, record: dict[str, Any], check: Check) -> tuple[float, ...] | None:
    if ("rating" in record) == ("ratings" in record):
        both = "gives both 'rating' and 'ratings'" if "rating" in record else "lacks 'rating'"
        check.add(row, both, "Give 'rating' (a number) or 'ratings' (a list of numbers)")
        return None
    given = record["ratings"] if "ratings" in record else record["rating"]
    if isinstance(given, list) and not given:
        check.add(row, "'ratings' is empty", "Give at least one rating")
        return None
    values = [check.number(row, "rating", value) for value in (given if isinstance(given, list) else [given])]
    return tuple(value for value in values if value is not None) if None not in values else None


def _scale(value: Any) -> tuple[float, float] | None:
    return parse_scale(value if isinstance(value, str) else json.dumps(value))


def _pairs(records: list[tuple[int, dict[str, Any]]], check: Check) -> Iterator[PairRow]:
    seen: dict[tuple[str, frozenset[str]], int] = {}
    ids = _Ids(check)
    with_votes = bool(records) and "votes_a" in records[0][1]
    for row, record in records:
        before = len(check.problems)
        check.fields(row, record, COMMON | PAIRED, "preferences")
        image = check.image(row, record.get("image"))
        a = check.text(row, "candidate_a", record.get("candidate_a"))
        b = check.text(row, "candidate_b", record.get("candidate_b"))
        references = check.references(row, record.get("references"))
        group = check.text(row, "group", record.get("group"), needed=False)
        id_a = check.text(row, "candidate_id_a", record.get("candidate_id_a"), needed=False)
        id_b = check.text(row, "candidate_id_b", record.get("candidate_id_b"), needed=False)
        votes = _votes(row, record, with_votes, check)
        preferred = _preferred(row, record, votes, check)
        if len(check.problems) > before or not (image and a and b and references) or preferred is None:
            continue
        if a == b:
            check.add(row, "the two candidates are the same text", "Remove the row")
        other = seen.setdefault((image, frozenset((a, b))), row)
        if other != row:
            check.add(
                row, f"holds the same pair as row {other}", "Give one row a pair and count votes in votes_a and votes_b"
            )
        ids.claim(row, id_a or "", image, a)
        ids.claim(row, id_b or "", image, b)
        yield PairRow(row, image, (a, b), references, preferred, votes, (id_a or "", id_b or ""), group or "")


def _votes(row: int, record: dict[str, Any], with_votes: bool, check: Check) -> tuple[int, int] | None:
    given = [name for name in ("votes_a", "votes_b") if name in record]
    if bool(given) != with_votes:
        check.add(row, "some rows give votes and others do not", "Give them in every row or in none")
    if not given:
        return None
    counts = [record.get("votes_a"), record.get("votes_b")]
    for name, count in zip(("votes_a", "votes_b"), counts, strict=True):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 53:
            check.add(row, f"'{name}' is no count ({json.dumps(count)})", "Give whole numbers from 0 in both columns")
            return None
    if counts == [0, 0]:
        check.add(row, "has no votes at all", "Remove the row")
        return None
    return int(counts[0] or 0), int(counts[1] or 0)


def _preferred(row: int, record: dict[str, Any], votes: tuple[int, int] | None, check: Check) -> int | None:
    majority = None if votes is None else (votes[0] > votes[1]) - (votes[0] < votes[1])
    given = record.get("preferred")
    if given is None:
        if votes is None and not {"votes_a", "votes_b"} & set(record):
            check.add(row, "lacks 'preferred'", "Give a, b or tie, or votes_a and votes_b")
        return majority
    choice = {"a": 1, "b": -1, "tie": 0}.get(given.strip().lower()) if isinstance(given, str) else None
    if choice is None:
        check.add(row, f"'preferred' is {json.dumps(given)}", "Give a, b or tie")
    elif majority is not None and choice != majority:
        check.add(row, f"'preferred' is {given} but the votes are {votes}", "Make them agree, or leave one out")
    return choice


class _Ids:
    """Makes sure that a candidate id names one candidate of one image."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.owner: dict[str, tuple[str, str, int]] = {}

    def claim(self, row: int, name: str, image: str, candidate: str) -> None:
        if not name:
            return
        owner = self.owner.setdefault(name, (image, candidate, row))
        if owner[:2] != (image, candidate):
            hint = "Give every caption an id of its own, or leave the column out"
            self.check.add(row, f"the candidate id '{name}' names another candidate in row {owner[2]}", hint)
