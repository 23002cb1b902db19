"""Reads and validates a user's judgements from JSONL, CSV or TSV.

The schema is documented in ``docs/data.md``. A file contains either ratings (``rating`` or ``ratings``) or pairwise
preferences (``candidate_a``, ``candidate_b`` with ``preferred`` or votes). Invalid rows are never guessed or dropped;
all problems of a file are found in one pass.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from capbench.core.errors import DataError
from capbench.core.files import read_text
from capbench.core.machine import paused_collector
from capbench.datasets.user.columns import COMMON, PAIRED, RATED, RATING
from capbench.datasets.user.rows import (
    SUFFIXES,
    Check,
    ImportProblemsError,
    gather_aspects,
    jsonl_records,
    ratings_of,
    table_records,
)

__all__ = ["SUFFIXES", "PairRow", "RatedRow", "UserJudgements", "parse_scale", "read_user_file"]

_OF_RATED, _OF_PAIRED = COMMON | RATED, COMMON | PAIRED
_PAIR_FIELDS = ("candidate_a", "candidate_b", "preferred")
_GENERATED = re.compile(r"row-\d+(-[ab])?", re.ASCII)
_SCALE = re.compile(r"\s*\[?\s*([-+]?[\d.]+)\s*(?:,|\.\.|to|:|-)\s*([-+]?[\d.]+)\s*\]?\s*")


class RatedRow(NamedTuple):
    """One row with the ratings of a candidate: one or more for each aspect of the file."""

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
        """The identity of the candidate: image, system, candidate id and text."""
        return self.image, self.system, self.candidate_id, self.candidate


class PairRow(NamedTuple):
    """One row with a preference between two candidates: ``preferred`` is +1 for a, -1 for b, 0 for a tie."""

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
        kind: the kind of rows; the tuple of the other kind is empty.
        rated: rows with ratings, in file order.
        pairs: rows with preferences, in file order.
        scale: lowest and highest possible rating; by default the lowest and highest in the file.
        scale_given: True if the scale is specified.
        aspects: rated aspects, in the order of a row's ratings; ``rating`` if unnamed.
        columns: columns that were read under another name: the column and the field.
        all_columns: the field of each column of the file; ``""`` for columns that are not read.
    """

    kind: Literal["ratings", "preferences"]
    rated: tuple[RatedRow, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    scale: tuple[float, float] = (0.0, 0.0)
    scale_given: bool = False
    aspects: tuple[str, ...] = (RATING,)
    columns: tuple[tuple[str, str], ...] = ()
    all_columns: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def has_references(self) -> bool:
        """True if the rows have references (all or none)."""
        return any(row.references for row in self.rated) or any(row.references for row in self.pairs)


def parse_scale(text: str) -> tuple[float, float] | None:
    """``"1-5"``, ``"1..5"``, ``"1,5"`` or ``"[1, 5]"`` → (1.0, 5.0); None if it is not a scale."""
    match = _SCALE.fullmatch(text)
    if not match:
        return None
    try:
        low, high = float(match[1]), float(match[2])
    except ValueError:
        return None
    return (low, high) if low < high and math.isfinite(high - low) else None


@paused_collector()
def read_user_file(
    path: Path,
    *,
    ignore: Collection[str] = (),
    scale: tuple[float, float] | None = None,
    rating_columns: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> UserJudgements:
    """Read and check a file of judgements.

    Args:
        path: a ``.jsonl``, ``.csv`` or ``.tsv`` file in UTF-8.
        ignore: columns to ignore.
        scale: lowest and highest possible rating, unless specified in the file.
        rating_columns: columns with ratings; the name of the column is the aspect.
        columns: the column of a field, for columns with names that are not accepted: ``{"image": "file"}``.

    Raises:
        DataError: the format does not match the file's ending, or the name of the file is not UTF-8.
        ImportProblemsError: rows do not match the schema; ``problems`` lists all problems.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"has the ending '{suffix}'",
            code="wrong-format",
            value=suffix,
            path=path,
            hint="Use a .jsonl, .csv or .tsv file",
        )
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        # The name is part of protocol ids, which are written as UTF-8.
        hint = "Rename the file"
        raise DataError("has a name that is not UTF-8", code="unsupported", path=ascii(str(path)), hint=hint) from error
    check = Check(path)
    text = read_text(path)
    if not text.strip():
        raise DataError("is empty", code="damaged", path=path, hint="See 'capbench data import --help' for the columns")
    if suffix == ".jsonl":
        records = jsonl_records(text, check, ignore, rating_columns, columns)
    else:
        records = list(table_records(path, text, check, ignore, rating_columns, columns))
    if not records and not check.count:
        raise DataError("contains no judgements", code="missing-value", path=path, hint="Add rows below the header")
    paired = any(not record.keys().isdisjoint(_PAIR_FIELDS) for _, record in records)
    check.wants_references(any("references" in record for _, record in records))
    judgements = _preferences(records, check) if paired else _rated(path, records, check, scale, rating_columns)
    if check.count:
        raise ImportProblemsError.of(path, check.problems())
    reading = check.reading
    return replace(judgements, columns=tuple(reading.fields.items()), all_columns=tuple(reading.columns.items()))


def _rated(
    path: Path,
    records: list[tuple[int, dict[str, Any]]],
    check: Check,
    scale: tuple[float, float] | None,
    rating_columns: Sequence[str],
) -> UserJudgements:
    rows: list[RatedRow] = []
    aspects = gather_aspects(path, records, check, rating_columns)
    stated = _Scale(check, scale)
    repeats = _RatedRepeats(check)
    ids = _Ids(check)
    always = _Always(check, records, ("rater", "system"))
    for row, record in records:
        always.check(row, record)
        stated.check(row, record)
        rated = _rated_row(row, record, aspects, check)
        if rated is None:
            continue
        repeats.check(rated)
        ids.claim(row, rated.candidate_id, (rated.image, rated.system, rated.candidate))
        rows.append(rated)
    ids.check_generated()
    values = [value for rated in rows for of_aspect in rated.ratings for value in of_aspect]
    if stated.limits is not None:
        low, high = stated.limits
        for rated in rows:
            for value in itertools.chain.from_iterable(rated.ratings):
                if not low <= value <= high:
                    kind = f"is outside {low:g}-{high:g}"
                    check.add(
                        rated.row,
                        "out-of-range",
                        f"the rating {value:g} {kind}",
                        "Correct the rating or the scale",
                        kind,
                        value=f"{value:g}",
                    )
    observed = (min(values), max(values)) if values else (0.0, 0.0)
    return UserJudgements("ratings", (*rows,), (), stated.limits or observed, stated.limits is not None, aspects)


def _rated_row(row: int, record: dict[str, Any], aspects: tuple[str, ...], check: Check) -> RatedRow | None:
    """The checked row; adds problems and returns None if the row is invalid."""
    before = check.count
    check.fields(row, record, _OF_RATED, "ratings")
    image = check.image(row, record.get("image"))
    candidate = check.text(row, "candidate", record.get("candidate"), caption=True)
    references = check.references(row, record.get("references"))
    ratings = ratings_of(row, record, aspects, check)
    # Optional fields, absent from most rows.
    group = check.text(row, "group", record["group"], needed=False) if "group" in record else ""
    candidate_id = check.name(row, "candidate_id", record["candidate_id"]) if "candidate_id" in record else ""
    system = check.name(row, "system", record["system"]) if "system" in record else ""
    rater = check.name(row, "rater", record["rater"]) if "rater" in record else ""
    if rater and ratings is not None and any(len(of_aspect) > 1 for of_aspect in ratings):
        check.add(row, "conflict", "has one 'rater' but several ratings", "Write one row per rater", value="rater")
    if check.count > before:
        return None
    # A None would have added a problem.
    assert image is not None is not candidate
    assert references is not None is not ratings
    return RatedRow(
        row, image, candidate, references, ratings, rater or "", candidate_id or "", group or "", system or ""
    )


class _Always:
    """Checks that a field is in every row or in none."""

    def __init__(self, check: Check, records: list[tuple[int, dict[str, Any]]], names: tuple[str, ...]) -> None:
        self._check = check
        self._in_first = {name: bool(records) and name in records[0][1] for name in names}

    def check(self, row: int, record: dict[str, Any]) -> None:
        for name, wanted in self._in_first.items():
            if (name in record) != wanted:
                hint = "Fill it in in every row or in none"
                self._check.add(row, "missing-value", f"some rows have a '{name}' and others do not", hint, value=name)


class _Scale:
    """The scale of a file; checks that there is only one."""

    def __init__(self, check: Check, limits: tuple[float, float] | None) -> None:
        self._check = check
        self.limits = limits

    def check(self, row: int, record: dict[str, Any]) -> None:
        if "scale" not in record:
            return
        value = record["scale"]
        limits = parse_scale(value if isinstance(value, str) else json.dumps(value))
        if limits is None:
            self._check.add(
                row, "wrong-value", "'scale' is not a scale", "Write it as [1, 5], in a table as 1-5", value="scale"
            )
        elif self.limits is None:
            self.limits = limits
        elif limits != self.limits:
            (low, high), (first_low, first_high) = limits, self.limits
            message = f"the scale {low:g}-{high:g} differs from {first_low:g}-{first_high:g}"
            self._check.add(row, "mismatch", message, "Use one scale per file", "the scale differs", value="scale")


class _RatedRepeats:
    """Checks that rows with the same candidate are consistent, and that each rater rates it once."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._first: dict[tuple[str, str, str, str], RatedRow] = {}
        self._with_id: dict[tuple[str, str, str], RatedRow] = {}
        self._raters: dict[tuple[tuple[str, str, str, str], str], int] = {}

    def check(self, rated: RatedRow) -> None:
        add, row, key = self._check.add, rated.row, rated.key
        same_text = self._with_id.setdefault((rated.image, rated.system, rated.candidate), rated)
        if bool(same_text.candidate_id) != bool(rated.candidate_id):
            kind = "of two rows with the same caption one has a 'candidate_id' and the other does not"
            hint = "Fill it in in both or in neither"
            add(
                row,
                "mismatch",
                f"of this row and row {same_text.row}, which have the same caption, only one has a 'candidate_id'",
                hint,
                kind,
                value="candidate_id",
            )
        first = self._first.setdefault(key, rated)
        if first is rated:
            if rated.rater:
                self._raters[key, rated.rater] = row
            return
        if not rated.rater:
            hint = (
                "Write its ratings as one list, or add a 'rater' to every row; captions of two systems need a 'system'"
            )
            add(row, "duplicate", f"rates the same candidate as row {first.row}", hint, "rates the same candidate")
        elif self._raters.setdefault((key, rated.rater), row) != row:
            earlier = self._raters[key, rated.rater]
            hint = "Remove one; if two systems wrote the caption, add the 'system' to every row"
            add(
                row,
                "duplicate",
                f"rater '{rated.rater}' already rated this candidate in row {earlier}",
                hint,
                "rated already",
                value=rated.rater,
            )
        for what in ("references", "group"):
            if getattr(first, what) != getattr(rated, what):
                message = f"has the candidate of row {first.row} with other {what}"
                add(row, "mismatch", message, "Correct one of the two rows", f"other {what}", value=what)


def _preferences(records: list[tuple[int, dict[str, Any]]], check: Check) -> UserJudgements:
    rows: list[PairRow] = []
    first_rows: dict[tuple[str, frozenset[tuple[str, str, str]]], int] = {}
    ids = _Ids(check)
    always = _Always(check, records, ("system_a", "system_b"))
    with_votes = bool(records) and "votes_a" in records[0][1]
    for row, record in records:
        always.check(row, record)
        pair = _pair_row(row, record, with_votes, check)
        if pair is None:
            continue
        sides = list(zip(pair.systems, pair.candidate_ids, pair.candidates, strict=True))
        first_row = first_rows.setdefault((pair.image, frozenset(sides)), row)
        if first_row != row:
            hint = "Write one row per pair, with numbers of votes in votes_a and votes_b"
            check.add(row, "duplicate", f"contains the same pair as row {first_row}", hint, "contains the same pair")
        for system, name, candidate in sides:
            ids.claim(row, name, (pair.image, system, candidate))
        rows.append(pair)
    ids.check_generated()
    return UserJudgements("preferences", pairs=tuple(rows))


def _pair_row(row: int, record: dict[str, Any], with_votes: bool, check: Check) -> PairRow | None:
    """The checked row; adds problems and returns None if the row is invalid."""
    before = check.count
    check.fields(row, record, _OF_PAIRED, "preferences")
    image = check.image(row, record.get("image"))
    a = check.text(row, "candidate_a", record.get("candidate_a"), caption=True)
    b = check.text(row, "candidate_b", record.get("candidate_b"), caption=True)
    references = check.references(row, record.get("references"))
    group = check.text(row, "group", record.get("group"), needed=False)
    id_a, id_b, system_a, system_b = (
        check.name(row, name, record.get(name)) for name in ("candidate_id_a", "candidate_id_b", "system_a", "system_b")
    )
    votes = _votes(row, record, with_votes, check)
    preferred = _preferred(row, record, votes, check)
    if check.count == before and a == b:
        check.add(row, "duplicate", "the two candidates are the same text", "Remove the row")
    if check.count > before:
        return None
    # A None would have added a problem.
    assert image is not None is not references
    assert a is not None is not b
    assert preferred is not None
    return PairRow(
        row,
        image,
        (a, b),
        references,
        preferred,
        votes,
        (id_a or "", id_b or ""),
        group or "",
        (system_a or "", system_b or ""),
    )


def _votes(row: int, record: dict[str, Any], with_votes: bool, check: Check) -> tuple[int, int] | None:
    named = [name for name in ("votes_a", "votes_b") if name in record]
    if bool(named) != with_votes:
        check.add(
            row,
            "missing-value",
            "some rows have votes and others do not",
            "Give them in every row or in none",
            value="votes",
        )
    if not named:
        return None
    counts = [record.get("votes_a"), record.get("votes_b")]
    for name, count in zip(("votes_a", "votes_b"), counts, strict=True):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 1 << 53:
            kind = f"'{name}' is not a count"
            hint = "Give whole numbers from 0 in both columns"
            check.add(row, "wrong-type", f"{kind} ({json.dumps(count)[:40]})", hint, kind, value=name)
            return None
    if counts == [0, 0]:
        check.add(row, "missing-value", "has 0 votes", "Remove the row", value="votes")
        return None
    return int(counts[0] or 0), int(counts[1] or 0)


def _preferred(row: int, record: dict[str, Any], votes: tuple[int, int] | None, check: Check) -> int | None:
    majority = None if votes is None else (votes[0] > votes[1]) - (votes[0] < votes[1])
    value = record.get("preferred")
    if value is None:
        if votes is None and not {"votes_a", "votes_b"} & set(record):
            check.add(
                row,
                "missing-value",
                "has no 'preferred'",
                "Give a, b or tie, or votes_a and votes_b",
                value="preferred",
            )
        return majority
    choice = {"a": 1, "b": -1, "tie": 0}.get(value.strip().lower()) if isinstance(value, str) else None
    if choice is None:
        kind = "'preferred' is not a, b or tie"
        check.add(
            row, "wrong-value", f"'preferred' is {json.dumps(value)[:40]}", "Give a, b or tie", kind, value="preferred"
        )
    elif majority is not None and choice != majority:
        message = f"'preferred' is {value} but the votes are {votes}"
        check.add(
            row,
            "mismatch",
            message,
            "Correct or omit one of them",
            "'preferred' contradicts the votes",
            value="preferred",
        )
    return choice


class _Ids:
    """Checks that a candidate id belongs to one candidate, that is, to one caption by one system for one image.

    Candidates without an id get one from their row. If there are any, ids of the same form are rejected.
    """

    def __init__(self, check: Check) -> None:
        self._check = check
        self._owners: dict[str, tuple[tuple[str, str, str], int]] = {}
        self._unnamed = False

    def claim(self, row: int, name: str, candidate: tuple[str, str, str]) -> None:
        """Assign an id to a candidate (image, system, text); ``""`` if its id is to be generated from its row."""
        if not name:
            self._unnamed = True
            return
        owner, first_row = self._owners.setdefault(name, (candidate, row))
        if owner != candidate:
            hint = "Use a unique id for every caption, or omit the column"
            message = f"the candidate id '{name}' belongs to another candidate in row {first_row}"
            self._check.add(
                row, "duplicate", message, hint, "the candidate id belongs to another candidate", value=name
            )

    def check_generated(self) -> None:
        """Add a problem for ids that have the form of generated ones."""
        if not self._unnamed:
            return
        for name, (_, row) in self._owners.items():
            if _GENERATED.fullmatch(name):
                message = f"the candidate id '{name}' has the form of generated ids of captions without an id"
                self._check.add(
                    row,
                    "wrong-value",
                    message,
                    "Give every caption an id, or change this one",
                    "an id like a row's",
                    value=name,
                )
