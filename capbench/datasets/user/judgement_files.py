"""Reads and validates a user's judgements from JSONL, CSV or TSV.

The schema is documented in ``docs/data.md``. A file contains either ratings (``rating`` or ``ratings``) or pairwise
preferences (``candidate_a``, ``candidate_b`` with ``preferred``, votes or ``grade``). Invalid rows are never guessed or
dropped; all problems of a file are found in one pass.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from array import array
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.cache import kept_table
from capbench.core.errors import DataError
from capbench.core.files import check_readable, read_text, sha256_file
from capbench.core.machine import paused_collector
from capbench.core.records import FloatArray
from capbench.datasets.user.columns import (
    COMMON,
    ITEM_FIELDS,
    PAIR_FIELDS,
    PAIRED,
    RATED,
    RATING,
    ColumnBuilder,
    Overview,
    PairRow,
    RatedRow,
    UserJudgements,
    gather_aspects,
)
from capbench.datasets.user.rows import (
    SPREADSHEETS,
    SUFFIXES,
    Check,
    ImportProblemsError,
    Lines,
    Records,
    jsonl_records,
    ratings_of,
    table_records,
)

_CACHED_FROM = 1 << 16  # bytes; reading a smaller file takes a few milliseconds
_CACHE_FOLDER, _CACHE_VERSION = "judgements", 3  # to increase when the reader, its checks or the columns change

_OF_RATED, _OF_PAIRED = COMMON | RATED, COMMON | PAIRED
_PAIR_FIELDS = ("candidate_a", "candidate_b", "preferred")
_GENERATED = re.compile(r"row-\d+(-[ab])?", re.ASCII)
_LARGEST_GRADE = 1e6
_SCALE = re.compile(r"\s*\[?\s*([-+]?[\d.]+)\s*(?:,|\.\.|to|:|-)\s*([-+]?[\d.]+)\s*\]?\s*")


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

    The rows of a file of 64 KB or more are cached under its SHA-256 and the other arguments.

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
        problem, hint = f"has the ending '{suffix}'", "Use a .jsonl, .csv or .tsv file"
        if path.is_dir():
            problem = "is a folder, not a file of judgements"
            hint = "Name a .jsonl, .csv or .tsv file; pass a folder of published data sets with --data"
        else:
            check_readable(path)
        if suffix in SPREADSHEETS:
            hint = "Export the table as CSV (UTF-8)"
        raise DataError(problem, code="wrong-format", value=suffix, path=path, hint=hint)
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        # The name is part of protocol ids, which are written as UTF-8.
        hint = "Rename the file"
        raise DataError("has a name that is not UTF-8", code="unsupported", path=ascii(str(path)), hint=hint) from error

    def parsed() -> UserJudgements:
        return _parsed(path, ignore, scale, rating_columns, columns)

    if not _is_cached(path):
        return parsed()
    content = sha256_file(path)

    def build() -> Mapping[str, NDArray[Any]]:
        table = parsed()
        if sha256_file(path) != content:
            raise DataError(
                "changed while it was read", code="changed", path=path, hint="Try again when no program writes to it"
            )
        return table.arrays

    options = [suffix, sorted(ignore), scale, list(rating_columns), list((columns or {}).items())]
    return UserJudgements(kept_table(_CACHE_FOLDER, _cache_name(content, *options), _CACHE_VERSION, build))


def keep_stored(
    path: Path, content: str, scale: Sequence[float] | None, table: UserJudgements, fields: Iterable[str]
) -> None:
    """Cache the rows of a stored ``.jsonl`` file that was just written, so that it is never read.

    Args:
        path: the file.
        content: its SHA-256 in hex digits.
        scale: the scale with which it will be read.
        table: its rows.
        fields: its fields, in the order of their first occurrence.
    """
    if _is_cached(path):
        name = _cache_name(content, ".jsonl", [], scale, [], [])
        stored = table.with_columns({}, {field: field for field in fields})
        kept_table(_CACHE_FOLDER, name, _CACHE_VERSION, lambda: stored.arrays)


def _is_cached(path: Path) -> bool:
    return path.is_file() and path.stat().st_size >= _CACHED_FROM


def _cache_name(content: str, *options: Any) -> str:
    """Name of a cached table: a SHA-256 of that of the file's content and of the options of reading it."""
    return hashlib.sha256(json.dumps([content, *options]).encode()).hexdigest()


def _parsed(
    path: Path,
    ignore: Collection[str],
    scale: tuple[float, float] | None,
    rating_columns: Sequence[str],
    columns: Mapping[str, str] | None,
) -> UserJudgements:
    check = Check(path)
    lines = _lines_of(path)
    if path.suffix.lower() == ".jsonl":
        records, overview = jsonl_records(lines, check, ignore, rating_columns, columns)
    else:
        records = table_records(path, lines, check, ignore, rating_columns, columns)
        overview = Overview(records(), rating_columns)
    if not overview.shapes and not check.count:
        raise DataError("contains no judgements", code="missing-value", path=path, hint="Add rows below the header")
    names = overview.names
    check.wants_references("references" in names)
    if not names.keys().isdisjoint(_PAIR_FIELDS):
        table = _preferences(records, overview, check)
    else:
        table = _rated(path, records, overview, check, scale, rating_columns)
    if check.count:
        raise ImportProblemsError.of(path, check.problems())
    return table.with_columns(check.reading.fields, check.reading.columns)


def _lines_of(path: Path) -> Lines:
    """The lines of a file.

    Raises:
        MissingFileError, DataError: the file cannot be read, or is not text.
    """
    text = read_text(path)
    if not text.strip():
        raise DataError("is empty", code="damaged", path=path, hint="See 'capbench data import --help' for the columns")
    return text.removesuffix("\n").split("\n").__iter__


def _rated(
    path: Path,
    records: Records,
    overview: Overview,
    check: Check,
    scale: tuple[float, float] | None,
    rating_columns: Sequence[str],
) -> UserJudgements:
    aspects = gather_aspects(path, overview, rating_columns)
    stated = _Scale(check, scale)
    rows = _RatedRows(check, len(aspects))
    ids = _Ids(check)
    always = _Always(check, overview, ("rater", "system"))
    for row, record in _with_aspects(records(), overview, check):
        always.check(row, record)
        stated.check(row, record)
        rated = _rated_row(row, record, aspects, check)
        if rated is not None:
            ids.claim(row, rated.candidate_id, rows.add(rated))
    ids.check_generated()
    table = rows.table(aspects, stated.limits)
    low, high = table.scale
    if any(((values < low) | (values > high)).any() for values in rows.values_by_aspect()):
        for rated in table.rated_rows():
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
    return table


def _with_aspects(
    records: Iterable[tuple[int, dict[str, Any]]], overview: Overview, check: Check
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records with the columns of several aspects moved into the field ``ratings``.

    This field is then ``{aspect: number or list}``, a form that JSONL may also use directly.
    """
    for row, record in records:
        shape = tuple(record)
        columns = overview.shapes.get(shape)
        if columns:
            record["ratings"] = {aspect: record.pop(key) for key, aspect in columns.items()}
        elif shape in overview.conflicts:
            other, first = overview.conflicts[shape]
            command = check.importing(f"--ignore {other}")
            hint = f"Name each kind of rating, such as rating_{RATING}, or ignore one: {command}"
            check.add(row, "conflict", f"has both '{other}' and '{first}'", hint, value=other)
        yield row, record


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

    def __init__(self, check: Check, overview: Overview, names: tuple[str, ...]) -> None:
        self._check = check
        self._in_first = {name: name in overview.first for name in names}

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


class _RatedRows(ColumnBuilder):
    """Collects rows with ratings.

    Checks that rows with the same candidate are consistent, and that each rater rates it once.
    """

    def __init__(self, check: Check, n_aspects: int) -> None:
        super().__init__()
        self._check = check
        self._items, self._raters, self._first = array("i"), array("i"), array("i")
        self._values = [(array("d"), array("i")) for _ in range(n_aspects)]
        self._of_text: dict[tuple[int, int, int], int] = {}  # image, system and candidate → the first item with them
        self._of_other_id: dict[tuple[int, int], int] = {}  # such an item and another candidate id → item
        self._rater_numbers: dict[int, int] = {}
        self._rated: set[int] = set()  # pairs of item and rater
        self._first_row: dict[int, int] = {}  # of these pairs; complete up to a row
        self._covered = 0

    def add(self, rated: RatedRow) -> int:
        """Add a row, and the problems of the row and an earlier one. Returns a number for image, system and text."""
        number, n_items = self.texts, len(self._first)
        image, candidate, system = number[rated.image], number[rated.candidate], number[rated.system]
        candidate_id, group, references = number[rated.candidate_id], number[rated.group], self.lists[rated.references]
        same_text = item = self._of_text.setdefault((image, system, candidate), n_items)
        if same_text < n_items:
            first_id = self.fields[len(ITEM_FIELDS) * same_text + 2]
            if bool(first_id) != bool(candidate_id):
                self._one_id(rated, same_text)
            if first_id != candidate_id:
                item = self._of_other_id.setdefault((same_text, candidate_id), n_items)
        if item == n_items:
            self.fields.extend((image, candidate, candidate_id, group, system))
            self.references.append(references)
            self._first.append(len(self.rows))
        rater = -1
        if rated.rater:
            rater = self._rater_numbers.setdefault(number[rated.rater], len(self._rater_numbers))
        if item < n_items:
            differs = (
                ("references", references != self.references[item]),
                ("group", group != self.fields[len(ITEM_FIELDS) * item + 3]),
            )
            self._compare(rated, item, rater, differs)
        self.rows.append(rated.row)
        self._items.append(item)
        self._raters.append(rater)
        if rater >= 0:
            self._rated.add(item << 32 | rater)
        for (values, counts), of_aspect in zip(self._values, rated.ratings, strict=True):
            values.extend(of_aspect)
            counts.append(len(of_aspect))
        return same_text

    def _one_id(self, rated: RatedRow, same_text: int) -> None:
        first_row = self.rows[self._first[same_text]]
        self._check.add(
            rated.row,
            "mismatch",
            f"of this row and row {first_row}, which have the same caption, only one has a 'candidate_id'",
            "Fill it in in both or in neither",
            "of two rows with the same caption one has a 'candidate_id' and the other does not",
            value="candidate_id",
        )

    def _compare(self, rated: RatedRow, item: int, rater: int, differs: Iterable[tuple[str, bool]]) -> None:
        """Add the problems of a row and the first one with the same candidate."""
        add, row, first_row = self._check.add, rated.row, self.rows[self._first[item]]
        if not rated.rater:
            hint = (
                "Write its ratings as one list, or add a 'rater' to every row; captions of two systems need a 'system'"
            )
            add(row, "duplicate", f"rates the same candidate as row {first_row}", hint, "rates the same candidate")
        elif item << 32 | rater in self._rated:
            hint = "Remove one; if two systems wrote the caption, add the 'system' to every row"
            add(
                row,
                "duplicate",
                f"rater '{rated.rater}' already rated this candidate in row {self._earlier(item << 32 | rater)}",
                hint,
                "rated already",
                value=rated.rater,
            )
        for what, is_other in differs:
            if is_other:
                message = f"has the candidate of row {first_row} with other {what}"
                add(row, "mismatch", message, "Correct one of the two rows", f"other {what}", value=what)

    def _earlier(self, pair: int) -> int:
        """The first row with an item and a rater."""
        for place in range(self._covered, len(self.rows)):
            self._first_row.setdefault(self._items[place] << 32 | self._raters[place], self.rows[place])
        self._covered = len(self.rows)
        return self._first_row[pair]

    def values_by_aspect(self) -> list[FloatArray]:
        """The ratings of each aspect, in file order."""
        return [np.array(values, dtype=np.float64) for values, _ in self._values]

    def table(self, aspects: tuple[str, ...], limits: tuple[float, float] | None) -> UserJudgements:
        """The columns.

        Args:
            aspects: names of the aspects.
            limits: the scale; None for the observed one.
        """
        self._rated.clear()
        self._of_text.clear()
        observed = [
            value for values in self.values_by_aspect() if len(values) for value in (values.min(), values.max())
        ]
        scale = limits or (float(min(observed, default=0.0)), float(max(observed, default=0.0)))
        columns: dict[str, NDArray[Any]] = {
            "item": np.array(self._items, dtype=np.int32),
            "rater": np.array(self._raters, dtype=np.int32),
            "raters": np.array(list(self._rater_numbers), dtype=np.int32),
            "first": np.array(self._first, dtype=np.int32),
        }
        for place, (values, counts) in enumerate(self._values):
            columns[f"values-{place}"] = np.array(values, dtype=np.float64)
            columns[f"counts-{place}"] = np.array(counts, dtype=np.int32)
        facts = {"kind": "ratings", "aspects": aspects, "scale": scale, "scale_given": limits is not None}
        return self.made(len(ITEM_FIELDS), columns, **facts)


def _preferences(records: Records, overview: Overview, check: Check) -> UserJudgements:
    rows = ColumnBuilder()
    preferred: list[int] = []
    votes: list[tuple[int, int]] = []
    grades: list[float] = []
    first_rows: dict[tuple[str, frozenset[tuple[str, str, str]]], int] = {}
    ids = _Ids(check)
    always = _Always(check, overview, ("system_a", "system_b", "grade"))
    with_votes = "votes_a" in overview.first
    for row, record in records():
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
        texts = (pair.image, *pair.candidates, *pair.candidate_ids, pair.group, *pair.systems)
        rows.fields.extend(map(rows.texts.__getitem__, texts))
        rows.references.append(rows.lists[pair.references])
        rows.rows.append(row)
        preferred.append(pair.preferred)
        if pair.votes is not None:
            votes.append(pair.votes)
        if pair.grade is not None:
            grades.append(pair.grade)
    ids.check_generated()
    counted = (
        np.array(votes, dtype=np.int64).reshape(len(votes), 2) if votes else np.zeros((len(preferred), 0), np.int64)
    )
    columns: dict[str, NDArray[Any]] = {
        "preferred": np.array(preferred, dtype=np.int8),
        "votes": counted,
        # If only some rows have a grade, that is a problem of the file.
        "grade": np.array([grades], dtype=np.float64).T
        if len(grades) == len(preferred)
        else np.zeros((len(preferred), 0)),
    }
    return rows.made(len(PAIR_FIELDS), columns, kind="preferences")


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
    grade = _grade(row, record, check)
    preferred = _preferred(row, record, votes, grade, check)
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
        grade,
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


def _grade(row: int, record: dict[str, Any], check: Check) -> float | None:
    if "grade" not in record:
        return None
    value = record["grade"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _LARGEST_GRADE:
        kind = "'grade' is not a number"
        hint = "Give a positive number if a is better, a negative one if b is better, or 0"
        check.add(row, "not-a-number", f"{kind} ({json.dumps(value)[:40]})", hint, kind, value="grade")
        return None
    return float(value)


def _preferred(
    row: int, record: dict[str, Any], votes: tuple[int, int] | None, grade: float | None, check: Check
) -> int | None:
    majority = None if votes is None else (votes[0] > votes[1]) - (votes[0] < votes[1])
    direction = None if grade is None else (grade > 0) - (grade < 0)
    if majority is not None and direction is not None and majority != direction:
        check.add(
            row,
            "mismatch",
            f"'grade' is {grade:g} but the votes are {votes}",
            "Correct or omit one of them",
            "'grade' contradicts the votes",
            value="grade",
        )
    value = record.get("preferred")
    if value is None:
        if votes is None and not {"votes_a", "votes_b", "grade"} & set(record):
            check.add(
                row,
                "missing-value",
                "has no 'preferred'",
                "Give a, b or tie, or votes_a and votes_b, or a grade",
                value="preferred",
            )
        return majority if direction is None else direction
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
    elif direction is not None and choice != direction:
        check.add(
            row,
            "mismatch",
            f"'preferred' is {value} but 'grade' is {grade:g}",
            "Correct or omit one of them",
            "'preferred' contradicts the grade",
            value="preferred",
        )
    return choice


class _Ids:
    """Checks that a candidate id belongs to one candidate, that is, to one caption by one system for one image.

    Candidates without an id get one from their row. If there are any, ids of the same form are rejected.
    """

    def __init__(self, check: Check) -> None:
        self._check = check
        self._owners: dict[str, tuple[Hashable, int]] = {}
        self._unnamed = False

    def claim(self, row: int, name: str, candidate: Hashable) -> None:
        """Assign an id to a candidate, or a number of it; ``""`` if its id is to be generated from its row."""
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
