"""Columns of a user's file of judgements: the fields of the schema, other names that are read as a field, and the rows.

The schema's names always denote their field. A column with another accepted name (``image_id``, ``caption``, ``ref1``,
``score``) is read as a field only if no other column holds that field; ``--columns`` assigns any column to a field.
:class:`UserJudgements` contains the checked rows.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.cache import packed_texts, unpacked_texts
from capbench.core.errors import DataError, UsageError, count, suggest

COMMON = {"image", "references", "group"}
RATED = {"candidate", "candidate_id", "system", "rating", "ratings", "rater", "scale"}
PAIRED = {
    "candidate_a",
    "candidate_b",
    "candidate_id_a",
    "candidate_id_b",
    "system_a",
    "system_b",
    "preferred",
    "votes_a",
    "votes_b",
    "grade",
}
_FIELDS: list[str] = sorted(COMMON | RATED | PAIRED)
_OF_KIND = {"ratings": COMMON | RATED, "preferences": COMMON | PAIRED}
_PAIR_FIELDS = {"candidate_a", "candidate_b", "preferred"}
RATING = "rating"  # name of the unnamed aspect
NUMBERED = re.compile(r"(reference|rating)_(\d{1,9})", re.ASCII)
PLURAL = {"reference": "references", "rating": "ratings"}
_NAMED = re.compile(r"rating_(?!\d+$)(.+)")
_ALIASES = {"image_id": "image", "caption": "candidate", "score": RATING}
_ASPECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_REF = re.compile(r"ref(\d{1,9})", re.ASCII)
_MAX_SHOWN = 8  # problems of a header in one message


def aspect_of(column: str, rating_columns: Collection[str] = ()) -> str | None:
    """The aspect of a column: its name if it is in ``rating_columns``, NAME for a column ``rating_NAME``.

    None for other columns, and for ``rating`` and ``rating_1``, which belong to the unnamed aspect.
    """
    if column in rating_columns:
        return column
    named = _NAMED.fullmatch(column)
    return None if named is None else named[1]


def _field(name: str) -> str | None:
    """The field that a name of the schema denotes (``reference_01`` is ``reference_1``); None for other names."""
    match = NUMBERED.fullmatch(name)
    if match:
        return f"{match[1]}_{int(match[2])}"
    return name if name in _FIELDS or _NAMED.fullmatch(name) else None


def _alias(name: str) -> str | None:
    """The field for which a column has another accepted name, or None."""
    match = _REF.fullmatch(name)
    return f"reference_{int(match[1])}" if match else _ALIASES.get(name)


def _is_rating(denoted: str) -> bool:
    return denoted in (RATING, "ratings") or denoted.startswith("rating_")


class Overview:
    """Fields and aspects of a file's records, from one pass over them.

    Attributes:
        shapes: fields of a record → its columns of ratings with their aspects. A column that conflicts with the fields
            of the unnamed aspect is not among them.
        conflicts: fields of a record with such a conflict → the field of the unnamed aspect, and the column.
        aspects: names of the aspects.
    """

    def __init__(self, records: Iterable[tuple[int, dict[str, Any]]], rating_columns: Collection[str]) -> None:
        self.shapes: dict[tuple[str, ...], dict[str, str]] = {}
        self.conflicts: dict[tuple[str, ...], tuple[str, str]] = {}
        self.aspects: dict[str, None] = {}
        for _, record in records:
            shape = tuple(record)
            if shape not in self.shapes:
                self._add(shape, rating_columns)
            if "ratings" in record and isinstance(record["ratings"], dict) and shape not in self.conflicts:
                self.aspects |= dict.fromkeys(record["ratings"])

    def _add(self, shape: tuple[str, ...], rating_columns: Collection[str]) -> None:
        columns = {key: aspect for key in shape if (aspect := aspect_of(key, rating_columns)) is not None}
        other = next((key for key in (RATING, "ratings") if key in shape and key not in columns), None)
        if columns and other is not None:
            self.conflicts[shape] = other, next(iter(columns))
            columns = {}
        self.shapes[shape] = columns
        self.aspects |= dict.fromkeys(columns.values())

    @property
    def names(self) -> dict[str, None]:
        """The fields of all records, in the order of their first occurrence."""
        return dict.fromkeys(name for shape in self.shapes for name in shape)

    @property
    def first(self) -> list[str]:
        """The fields of the first record, without columns of ratings."""
        shape, columns = next(iter(self.shapes.items()), ((), {}))
        return [name for name in shape if name not in columns]


def gather_aspects(path: Path, overview: Overview, rating_columns: Sequence[str]) -> tuple[str, ...]:
    """The names of the aspects of a file of ratings.

    Raises:
        DataError: the file does not have a column in ``rating_columns``, or a name is invalid.
    """
    names = overview.aspects
    is_rated = any(columns or RATING in shape or "ratings" in shape for shape, columns in overview.shapes.items())
    for name in rating_columns:
        if name not in names and not is_rated:
            raise DataError(
                f"has no column '{name}'",
                code="missing-column",
                value=name,
                path=path,
                hint="Name a column of the file in --rating",
            )
    for name in names:
        if not _ASPECT.fullmatch(name):
            hint = "Use letters, digits, dots, hyphens and underscores, as in protocol ids"
            raise DataError(
                f"'{name}' is not a name for a kind of rating", code="wrong-value", value=name, path=path, hint=hint
            )
    return tuple(names) or (RATING,)


class Fault(NamedTuple):
    """A problem with the columns of a file.

    Attributes:
        code: one of :data:`capbench.core.errors.ERROR_CODES`.
        message: description of the problem.
        hint: the remedy.
        value: the column, or the missing field.
        numeric: True for an unknown column with numbers.
    """

    code: str
    message: str
    hint: str
    value: str
    numeric: bool = False


@dataclass(frozen=True)
class Reading:
    """The interpretation of a file's columns.

    Attributes:
        fields: the field of each column that is read under another name.
        ambiguous: columns that denote the field of another column: this column, the other one, the field.
        absent: columns of ``--columns`` that the file does not have.
        paired: True for a file of preferences.
        taken: the column of each field.
        names: the columns, without ignored ones, in the order of the file.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    ambiguous: tuple[tuple[str, str, str], ...] = ()
    absent: tuple[str, ...] = ()
    paired: bool = False
    taken: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, str]:
        """The field of each column; ``""`` for columns that are not read."""
        fields = {column: denoted for denoted, column in self.taken.items()}
        return {name: fields.get(name, "") for name in self.names}

    @property
    def kind(self) -> str:
        """The kind of rows: ``ratings`` or ``preferences``."""
        return "preferences" if self.paired else "ratings"


def interpret(
    names: Sequence[str],
    filled: Collection[str],
    *,
    rating_columns: Collection[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Reading:
    """Assign columns to fields.

    Args:
        names: the columns, without ignored ones, in the order of the file.
        filled: those that have a value in some row. An empty column with another accepted name is not read.
        rating_columns: columns with ratings, which keep their names.
        columns: the column of a field (``{"image": "file"}``), from ``--columns``.
    """
    fields = {column: _field(name) or name for name, column in (columns or {}).items()}
    taken: dict[str, str] = {}
    ambiguous: list[tuple[str, str, str]] = []
    others: list[str] = []
    for name in names:
        denoted = fields.get(name) or (name if name in rating_columns else _field(name))
        if denoted is None:
            others.append(name)
        elif denoted in taken:
            ambiguous.append((name, taken[denoted], denoted))
        else:
            taken[denoted] = name
    absent = tuple(column for column in fields if column not in names)
    taken |= {fields[column]: column for column in absent if fields[column] not in taken}
    paired = any(taken.get(denoted) in filled for denoted in _PAIR_FIELDS)
    # Any kind of rating takes precedence over 'score'.
    rated = any(_is_rating(denoted) or column in rating_columns for denoted, column in taken.items())
    for name in others:
        denoted = _alias(name)
        if denoted is None or (denoted in RATED and paired) or (denoted == RATING and rated):
            continue
        if name not in filled and NUMBERED.fullmatch(denoted):
            continue
        other = taken.get(denoted)
        if other is None and denoted not in COMMON | RATED and taken.get("references") in filled:
            other = taken["references"]
        if other is None:
            fields[name] = denoted
            taken[denoted] = name
        elif name in filled:
            ambiguous.append((name, other, denoted))
    renamed = {name: fields[name] for name in names if fields.get(name, name) != name}
    return Reading(renamed, tuple(ambiguous), absent, paired, taken, tuple(names))


def header_faults(
    path: Path,
    header: Sequence[str],
    reading: Reading,
    samples: Mapping[str, str],
    rating_columns: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> list[Fault]:
    """The ambiguous, missing and unknown columns of a table.

    Args:
        path: the file.
        header: the columns, without ignored ones.
        reading: their interpretation.
        samples: a value of each column that is not empty.
        rating_columns: columns with ratings.
        columns: the columns of ``--columns``, which hints repeat.
    """
    faults = [ambiguous_fault(path, *names) for names in reading.ambiguous]
    faults += [_missing(name, "Name a column of the file in --columns") for name in reading.absent]
    rated = any(_is_rating(denoted) or name in rating_columns for denoted, name in reading.taken.items())
    needed = ["image", *(("candidate_a", "candidate_b") if reading.paired else ("candidate",))]
    if reading.paired and reading.taken.keys().isdisjoint(("preferred", "votes_a", "votes_b", "grade")):
        needed.append("preferred")
    if (unrated := not reading.paired and not rated) and not rating_columns:
        needed.append(RATING)
    form = "Ratings need image, candidate and rating"
    if reading.paired:
        form = "Preferences need image, candidate_a, candidate_b and preferred (or votes_a and votes_b, or grade)"
    for name in needed:
        if name not in reading.taken:
            faults.append(_missing(name, f"{form}. {_assigning(_mapping(columns or {}, {name: 'COLUMN'}))}"))
    if unrated:
        faults += [_missing(name, "Name a column of the file in --rating") for name in rating_columns]
    unclear = {name for name, _, _ in reading.ambiguous}
    for name in header:
        denoted = reading.fields.get(name, name)
        known = denoted in _OF_KIND[reading.kind] or NUMBERED.fullmatch(denoted) is not None
        if not reading.paired:
            known = known or aspect_of(denoted, rating_columns) is not None
        if name in samples and name not in unclear and not known:
            shown = denoted if denoted in _FIELDS else name
            faults.append(unread(path, shown, reading.kind, samples[name], "column"))
    return faults


def _missing(name: str, hint: str) -> Fault:
    return Fault("missing-column", f"no column '{name}'", hint, name)


def ambiguous_fault(path: Path, column: str, other: str, denoted: str) -> Fault:
    """The problem of two columns for one field."""
    meaning = "references" if denoted.startswith("reference") else f"'{denoted}'"
    hint = f"Remove one of them, or import the file: {importing(path, f'--ignore {shlex.quote(column)}')}"
    return Fault("ambiguous", f"'{other}' and '{column}' both mean {meaning}", hint, column)


def unread(path: Path, name: str, kind: str, value: Any, noun: str = "field") -> Fault:
    """The problem of a column that nothing reads.

    Args:
        path: the file.
        name: the column.
        kind: the kind of rows in the file.
        value: a value of the column.
        noun: ``field``, or ``column`` in a table.
    """
    if name in _FIELDS:
        hint = "Put ratings and preferences into two files"
        return Fault("conflict", f"'{name}' does not belong in a file of {kind}", hint, name)
    choices = suggest(name, _FIELDS)
    near = choices.split(" Choices")[0] if choices.startswith("Did") else ""
    if _alias(name) is not None:
        near = f"A file with ratings in another column does not read '{name}'." if _alias(name) == RATING else ""
    quoted = shlex.quote(name)
    how = f"{importing(path, f'--ignore {quoted}')} ignores it"
    numeric = _is_number(value)
    if kind == "ratings" and numeric and name and _alias(name) != RATING:
        how = f"{importing(path, f'--rating {quoted}')} reads it as ratings, --ignore {quoted} ignores it"
    hint = f"{near} Correct the name, or import the file: {how}".strip()
    return Fault(
        "unknown-column" if noun == "column" else "unknown-key", f"unknown {noun} '{name}'", hint, name, numeric
    )


def summary(
    path: Path, faults: Sequence[Fault], header: Sequence[str], columns: Mapping[str, str], *, with_references: bool
) -> tuple[str, str]:
    """The message and the hint of the one error that reports all problems of a header; the hint repeats ``columns``."""
    names = ", ".join(header)[:200] + ("…" if len(", ".join(header)) > 200 else "")
    shown = f" (its columns: {names})" if any(fault.code == "missing-column" for fault in faults) else ""
    first = faults[0]
    perhaps_reference = first.code == "unknown-column" and not (with_references or first.numeric)
    if len(faults) == 1 and not perhaps_reference and not (columns and first.code in ("unknown-column", "ambiguous")):
        return f"the header: {first.message}{shown}", first.hint
    listed = "; ".join(fault.message for fault in faults[:_MAX_SHOWN])
    listed += f"; and {len(faults) - _MAX_SHOWN} more" if len(faults) > _MAX_SHOWN else ""
    hint = "Correct the header"
    if options := _remedies(faults, columns, with_references):
        hint = (
            f"{hint}, or import the file: {importing(path, options)}" if "--ignore" in options else _assigning(options)
        )
    return f"the header has {count(len(faults), 'problem')}: {listed}{shown}", hint


def _remedies(faults: Sequence[Fault], columns: Mapping[str, str], with_references: bool) -> str:
    """Options that assign columns to all fields, as far as only one column fits, and ignore the others.

    While no column is read as references, the remaining columns of texts get placeholders instead.
    """
    # A missing column of --columns or --rating has a name of the user's.
    missing = [fault.value for fault in faults if fault.code == "missing-column" and fault.value in _FIELDS]
    if len(missing) < sum(fault.code == "missing-column" for fault in faults):
        return ""
    unknown = [fault for fault in faults if fault.code == "unknown-column"]
    found: dict[str, str] = {}
    if RATING in missing and len(numbers := [fault.value for fault in unknown if fault.numeric]) == 1:
        found[RATING] = numbers[0]
    texts = [fault.value for fault in unknown if not fault.numeric]
    without = [name for name in missing if name != RATING]
    if len(without) == len(texts) == 1:
        found[without[0]] = texts[0]
    assigned = {name: found.get(name, "COLUMN") for name in missing}
    others = [name for name in texts if name not in found.values()]
    if not with_references and (remaining := len(others) - sum(name not in found for name in without)) > 0:
        assigned |= {f"reference_{place}": "COLUMN" for place in range(1, remaining + 1)}
    options = _mapping(columns, assigned) if assigned or columns else ""
    surplus = [fault.value for fault in faults if fault.code == "ambiguous"]
    # A column that may hold a missing field is not ignored.
    if "COLUMN" not in assigned.values():
        surplus += [fault.value for fault in unknown if fault.value not in found.values()]
    return " ".join([*([options] if options else []), *(f"--ignore {shlex.quote(name)}" for name in surplus)])


def _mapping(columns: Mapping[str, str], more: Mapping[str, str]) -> str:
    """The ``--columns`` option that assigns all columns."""
    return "--columns " + shlex.quote(",".join(f"{name}={column}" for name, column in {**columns, **more}.items()))


def _assigning(options: str) -> str:
    """The remedies for a header whose columns have other names."""
    placeholder = "" if "COLUMN" not in options else ", with a column of the file for each COLUMN"
    ignored = (
        " ('data import' has --ignore for columns that are not references)" if "reference_1=COLUMN" in options else ""
    )
    return f"Correct the header, or run the command again with {options}{placeholder}{ignored}"


def importing(path: Path, options: str) -> str:
    """The command that imports a file with some options."""
    return f"'capbench data import {shlex.quote(str(path))} --name NAME {options}'"


def reading_note(fields: Mapping[str, str]) -> str:
    """The line that names columns and the fields they are read as: ``{"ref1": "reference_1"}``; ``""`` for none."""
    by_field: dict[str, list[str]] = {}
    for column, denoted in fields.items():
        if not denoted:
            by_field.setdefault("", []).append(f"'{column}'")
            continue
        match = NUMBERED.fullmatch(denoted)
        by_field.setdefault(PLURAL[match[1]] if match else denoted, []).append(f"'{column}'")
    unread_columns = by_field.pop("", [])
    parts = [f"{_listed(columns)} read as {name}" for name, columns in by_field.items()]
    return "columns: " + ", ".join([*parts, *([f"{_listed(unread_columns)} not read"] if unread_columns else [])])


def _listed(columns: list[str]) -> str:
    return columns[0] if len(columns) == 1 else f"{', '.join(columns[:-1])} and {columns[-1]}"


def check_columns(flag: str, columns: Mapping[str, str], others: Iterable[str] = ()) -> None:
    """Check the assignment of columns to fields.

    Args:
        flag: the argument, for messages.
        columns: the column of each field.
        others: columns that are ignored or read as ratings.

    Raises:
        UsageError: a field is unknown, or a column has two meanings.
    """
    for name in columns:
        if _field(name) is None:
            raise UsageError(
                f"{flag} {name}={columns[name]}: '{name}' is not a field of judgements",
                code="unknown-name",
                value=name,
                hint=suggest(name, [*_FIELDS, "reference_1", "rating_1"]),
            )
    used = [*columns.values(), *others]
    for column in columns.values():
        if used.count(column) > 1:
            raise UsageError(
                f"{flag}: the column '{column}' is named twice",
                code="conflict",
                value=column,
                hint="Give each column one meaning",
            )


def _is_number(value: Any) -> bool:
    """True if a field is a number, or a number's text in a table."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


# The checked rows of a file, as columns.

ITEM_FIELDS = ("image", "candidate", "candidate_id", "group", "system")
"""Fields of an item in a file of ratings."""
PAIR_FIELDS = (
    "image",
    "candidate_a",
    "candidate_b",
    "candidate_id_a",
    "candidate_id_b",
    "group",
    "system_a",
    "system_b",
)
"""Fields of a pair."""


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
    """One row with a preference between two candidates: ``preferred`` is +1 for a, -1 for b, 0 for a tie.

    ``grade`` is its strength with the same sign, None for preferences without grades.
    """

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


class UserJudgements:
    """The checked rows of one file, as columns.

    Texts and lists of references have numbers: ``""`` and the empty list have 0. A candidate (see
    :attr:`RatedRow.key`) is an item. Only the arrays take memory until texts, rows or items are requested.

    Attributes:
        arrays: read-only arrays by name:
            ``fields`` (items or pairs, fields), numbers of the texts of :data:`ITEM_FIELDS` or :data:`PAIR_FIELDS`;
            ``references`` (items or pairs,), numbers of the lists of references;
            ``listed`` and ``list_ends``, the texts of all lists, and the end of each list;
            ``row`` (rows,), row numbers in the file;
            for ratings, ``item`` (rows,), ``rater`` (rows,) with -1 for unnamed raters, ``raters``, the texts of their
            names, ``first`` (items,), the index of an item's first row, and for each aspect ``values-0`` and
            ``counts-0`` (rows,), the number of values of each row;
            for preferences, ``preferred`` (rows,), ``votes`` (rows, 2) or (rows, 0), and ``grade`` (rows, 1) or
            (rows, 0);
            ``texts`` and ``ends`` (:func:`capbench.core.cache.packed_texts`);
            ``facts``, the other attributes as JSON.
        kind: the kind of rows.
        scale: lowest and highest possible rating; by default the lowest and highest in the file.
        scale_given: True if the scale is specified.
        aspects: rated aspects, in the order of a row's ratings; ``rating`` if unnamed.
        columns: columns that were read under another name: the column and the field.
        all_columns: the field of each column of the file; ``""`` for columns that are not read.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        facts = json.loads(self.arrays["facts"].tobytes())
        self.kind: Literal["ratings", "preferences"] = facts["kind"]
        self.scale: tuple[float, float] = tuple(facts["scale"])
        self.scale_given: bool = facts["scale_given"]
        self.aspects: tuple[str, ...] = tuple(facts["aspects"])
        self.columns: tuple[tuple[str, str], ...] = tuple((column, name) for column, name in facts["columns"])
        self.all_columns: tuple[tuple[str, str], ...] = tuple((column, name) for column, name in facts["all_columns"])

    def __len__(self) -> int:
        return len(self.arrays["row"])

    @cached_property
    def texts(self) -> list[str]:
        """The distinct texts by their numbers."""
        return unpacked_texts(self.arrays)

    @cached_property
    def references(self) -> list[tuple[str, ...]]:
        """The distinct lists of references by their numbers."""
        texts, ends = map(self.texts.__getitem__, self.arrays["listed"].tolist()), self.arrays["list_ends"]
        return [tuple(itertools.islice(texts, size)) for size in np.diff(ends, prepend=0).tolist()]

    @property
    def most_references(self) -> int:
        """Largest number of references of an item."""
        return int(np.diff(self.arrays["list_ends"], prepend=0).max(initial=0))

    @property
    def has_references(self) -> bool:
        """True if the rows have references (all or none)."""
        return self.most_references > 0

    @property
    def rated(self) -> tuple[RatedRow, ...]:
        """Rows with ratings, in file order; empty for preferences."""
        return tuple(self.rated_rows())

    @property
    def pairs(self) -> tuple[PairRow, ...]:
        """Rows with preferences, in file order; empty for ratings."""
        return tuple(self.pair_rows())

    def rated_rows(self) -> Iterator[RatedRow]:
        """The rows of :attr:`rated`, one after the other."""
        if self.kind != "ratings":
            return
        arrays, texts = self.arrays, self.texts
        fields, lists = arrays["fields"].tolist(), arrays["references"].tolist()
        raters = ["", *(texts[number] for number in arrays["raters"].tolist())]
        values = [iter(arrays[f"values-{place}"].tolist()) for place in range(len(self.aspects))]
        counts = zip(*(arrays[f"counts-{place}"].tolist() for place in range(len(self.aspects))), strict=True)
        rows = (arrays[name].tolist() for name in ("row", "item", "rater"))
        for row, item, rater, sizes in zip(*rows, counts, strict=True):
            image, candidate, candidate_id, group, system = map(texts.__getitem__, fields[item])
            ratings = tuple(tuple(itertools.islice(of, size)) for of, size in zip(values, sizes, strict=True))
            references = self.references[lists[item]]
            yield RatedRow(row, image, candidate, references, ratings, raters[rater + 1], candidate_id, group, system)

    def pair_rows(self) -> Iterator[PairRow]:
        """The rows of :attr:`pairs`, one after the other."""
        if self.kind != "preferences":
            return
        names = ("row", "references", "preferred", "votes", "grade", "fields")
        for row, references, preferred, votes, grade, fields in zip(
            *(self.arrays[name].tolist() for name in names), strict=True
        ):
            image, a, b, id_a, id_b, group, system_a, system_b = map(self.texts.__getitem__, fields)
            of_references = self.references[references]
            counted = (votes[0], votes[1]) if votes else None
            yield PairRow(
                row,
                image,
                (a, b),
                of_references,
                preferred,
                counted,
                (id_a, id_b),
                group,
                (system_a, system_b),
                grade[0] if grade else None,
            )

    def with_columns(self, columns: Mapping[str, str], all_columns: Mapping[str, str] | None = None) -> UserJudgements:
        """A copy with other :attr:`columns` and, if specified, other :attr:`all_columns`."""
        facts = json.loads(self.arrays["facts"].tobytes()) | {"columns": list(columns.items())}
        if all_columns is not None:
            facts["all_columns"] = list(all_columns.items())
        return UserJudgements(self.arrays | {"facts": _facts(facts)})

    def numbered_from_one(self) -> UserJudgements:
        """A copy whose rows have the numbers 1, 2, 3, …"""
        return UserJudgements(self.arrays | {"row": np.arange(1, len(self) + 1, dtype=np.int32)})


def _facts(facts: Mapping[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(facts).encode(), np.uint8)


Key = TypeVar("Key")


class _Numbers(dict[Key, int]):
    """Distinct values → number, in the order of their first occurrence."""

    def __missing__(self, value: Key) -> int:
        number = self[value] = len(self)
        return number


class ColumnBuilder:
    """Columns of :class:`UserJudgements` while rows are added.

    Attributes:
        texts: numbers of the texts.
        lists: numbers of the lists of references.
        fields: numbers of the texts of each item or pair.
        references: number of the list of references of each item or pair.
        rows: numbers of the rows in the file.
    """

    def __init__(self) -> None:
        self.texts = _Numbers[str]({"": 0})
        self.lists = _Numbers[tuple[str, ...]]({(): 0})
        self.fields, self.references, self.rows = array("i"), array("i"), array("i")

    def made(self, width: int, columns: Mapping[str, NDArray[Any]], **facts: Any) -> UserJudgements:
        """The columns.

        Args:
            width: number of fields.
            columns: further arrays.
            facts: attributes of :class:`UserJudgements`; others have their defaults.
        """
        listed = np.array([self.texts[text] for texts in self.lists for text in texts], dtype=np.int32)
        defaults = {"scale": (0.0, 0.0), "scale_given": False, "aspects": (RATING,)}
        common: dict[str, NDArray[Any]] = {
            "fields": np.array(self.fields, dtype=np.int32).reshape(-1, width),
            "references": np.array(self.references, dtype=np.int32),
            "row": np.array(self.rows, dtype=np.int32),
            "listed": listed,
            "list_ends": np.cumsum([len(texts) for texts in self.lists], dtype=np.int64),
            "facts": _facts({**defaults, "columns": (), "all_columns": (), **facts}),
        }
        return UserJudgements(common | dict(columns) | packed_texts(list(self.texts)))
