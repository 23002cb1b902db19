"""A user's JSONL, CSV or TSV file of judgements as rows of typed fields, and the checked rows.

Problems are collected by kind. :mod:`capbench.datasets.user.judgement_files` decides what the fields of a row mean
together. Candidates have one kind of ratings without a name, or several aspects with names.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from capbench.core.errors import DataError, suggest
from capbench.core.records import image_id

__all__ = [
    "COMMON",
    "PAIRED",
    "RATED",
    "RATING",
    "SUFFIXES",
    "Check",
    "ImportProblemsError",
    "PairRow",
    "Problem",
    "RatedRow",
    "UserJudgements",
    "aspect_of",
    "gather_aspects",
    "jsonl_records",
    "plain_text",
    "ratings_of",
    "table_records",
]


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
}
_FIELDS: list[str] = sorted(COMMON | RATED | PAIRED)
_BLANKS = str.maketrans("\t\n\r", "   ")
_UNFIT = re.compile("[\x00-\x1f\ud800-\udfff]")


def plain_text(text: str) -> tuple[str, str]:
    """A caption without the white space around it, and what keeps it from being one (``""`` for nothing).

    Line breaks and tabs mean nothing to a metric and would break tables: each becomes a space. Other control
    characters and halves of surrogate pairs, which UTF-8 cannot hold, are what keeps a text from being a caption.
    """
    text = text.strip()
    if text.isprintable() or _UNFIT.search(text) is None:
        return text, ""
    text = text.translate(_BLANKS)
    unfit = _UNFIT.search(text)
    if unfit is None:
        return text, ""
    return text, "half of a surrogate pair" if unfit[0] >= "\ud800" else "a control character"


@dataclass(frozen=True)
class Problem:
    """One kind of thing that is wrong in a file.

    Attributes:
        row: the first row that has it (its line, counted from 1).
        message: what is wrong there.
        hint: what to do.
        count: how many rows have it.
        rows: all of them, as in ``2-7, 9``.
    """

    row: int
    message: str
    hint: str = ""
    count: int = 1
    rows: str = ""


class ImportProblemsError(DataError):
    """A user's file with one or more wrong rows; ``problems`` holds every kind of problem once."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, path: Path, problems: list[Problem]) -> ImportProblemsError:
        """The error for a file: the first problem, how many rows have it, and how many more kinds there are."""
        first, more = problems[0], len(problems) - 1
        told = []
        if first.count > 1:
            told.append(f"so in {first.count:,} rows")
        if more:
            command = f"'capbench data import {shlex.quote(str(path))} --name NAME --json'"
            told.append(f"{more} more problem{'s' if more > 1 else ''}: {command} lists all")
        rest = f" ({'; '.join(told)})" if told else ""
        error = cls(first.message + rest, path=path, row=first.row, hint=first.hint or None)
        error.problems = tuple(problems)
        return error


@dataclass
class _Kind:
    message: str
    hint: str
    rows: list[int]


@dataclass
class Check:
    """Collects problems, and knows the few checks that every field needs.

    A check returns the clean value, or None after it added a problem.

    Attributes:
        path: the file; ``capbench data import`` reads it under options that no other command has.
        count: how many problems were added.
    """

    path: Path
    count: int = 0
    _with_references: bool = True
    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _file_names: dict[str, str] = field(default_factory=dict)
    _images: dict[str, str] = field(default_factory=dict)
    _references: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    def importing(self, options: str) -> str:
        """The command that imports the file under options."""
        return f"'capbench data import {shlex.quote(str(self.path))} --name NAME {options}'"

    def add(self, row: int, message: str, hint: str = "", kind: str = "") -> None:
        """Note one problem.

        Args:
            row: where.
            message: what is wrong.
            hint: what to do.
            kind: what it has in common with the problems that it is counted with; its message if left out.
        """
        self.count += 1
        message = message.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair cannot be printed
        rows = self._kinds.setdefault(kind or message, _Kind(message, hint, [])).rows
        if not rows or rows[-1] != row:
            rows.append(row)

    def problems(self) -> list[Problem]:
        """Every kind of problem once, by the first row that has it."""
        kinds = sorted(self._kinds.values(), key=lambda kind: min(kind.rows))
        problems = []
        for kind in kinds:
            rows = sorted(set(kind.rows))
            problems.append(Problem(rows[0], kind.message, kind.hint, len(rows), _spans(rows)))
        return problems

    def text(
        self, row: int, name: str, value: Any, *, needed: bool = True, caption: bool = False, kind: str = ""
    ) -> str | None:
        """A caption or a name: stripped, without control characters; ``""`` where it is absent and not needed.

        Args:
            row: its row.
            name: its field.
            value: what stands there.
            needed: whether every row must have it.
            caption: whether line breaks and tabs become spaces, as they do in captions and not in names.
            kind: the field that its problems are counted under, if that is not ``name``.
        """
        if value is None:
            if needed:
                self.add(row, f"has no '{name}'", "Every row needs it")
            return None if needed else ""
        kind = kind or name
        if not isinstance(value, str):
            self.add(
                row, f"'{name}' is not a string ({_shown(value)})", "Put it in quotes", f"'{kind}' is not a string"
            )
            return None
        text, unfit = plain_text(value)
        if not text and needed:
            self.add(row, f"'{name}' is empty", "Fill it in or remove the row", f"'{kind}' is empty")
            return None
        if not unfit and not caption and text != value.strip():
            unfit = "a line break or a tab"
        if unfit:
            hint = "Write the character itself, in UTF-8" if "surrogate" in unfit else "Replace it by a space"
            self.add(row, f"'{name}' holds {unfit}", hint, f"'{kind}' holds {unfit}")
            return None
        return text

    def name(self, row: int, name: str, value: Any) -> str | None:
        """A name that is not needed, and that JSON may give as a whole number."""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(row, name, value, needed=False)

    def image(self, row: int, value: Any) -> str | None:
        """The image's id; two file names with one id are a problem."""
        known = self._images.get(value) if isinstance(value, str) else None
        if known is not None:
            return known
        name = self.text(row, "image", value)
        if name is None:
            return None
        image = image_id(name)
        if not image:
            hint = "Write the image's file name, such as kite.jpg"
            self.add(row, f"'image' is '{name}', which names no image", hint, "'image' names no image")
            return None
        other = self._file_names.setdefault(image, name)
        if other == name:
            self._images[value] = image
        else:
            self.add(row, f"the images '{other}' and '{name}' have the same id '{image}'", "Rename one of them")
        return image

    def wants_references(self, wanted: bool) -> None:
        """Say whether rows of the file give references: then all have to."""
        self._with_references = wanted

    def references(self, row: int, value: Any) -> tuple[str, ...] | None:
        """One or more reference captions; none where no row of the file gives any."""
        if value is None:
            if not self._with_references:
                return ()
            hint = "Give at least one reference caption of the image; a file without any gives none in all rows"
            self.add(row, "has no 'references'", hint)
            return None
        if not isinstance(value, list):
            self.add(row, "'references' is not a list", 'Write it as ["first caption", "second caption"]')
            return None
        if not value:
            self.add(row, "'references' is empty", "Give at least one reference caption of the image")
            return None
        given = tuple(value)
        try:
            return self._references[given]  # most lists stand in several rows
        except (KeyError, TypeError):  # a list in the list has no hash
            pass
        texts = [
            self.text(row, f"references[{i}]", text, caption=True, kind="references[…]") for i, text in enumerate(value)
        ]
        clean = tuple(text for text in texts if text is not None)
        if len(clean) < len(texts):
            return None
        self._references[given] = clean
        return clean

    def number(self, row: int, name: str, value: Any) -> float | None:
        """A finite number that is not a boolean."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # The bound keeps out integers that no float can hold.
        if not number or not abs(value) <= sys.float_info.max:
            kind = f"'{name}' is not a finite number"
            self.add(row, f"{kind} ({_shown(value)})", "Give a number", kind)
            return None
        return float(value)

    def fields(self, row: int, record: dict[str, Any], allowed: set[str], kind: str) -> None:
        """Every field is one that a file of this kind may have."""
        if record.keys() <= allowed:
            return
        for key in [key for key in record if key not in allowed]:  # in the order of the file
            if key in _FIELDS:
                self.add(
                    row, f"'{key}' does not belong into a file of {kind}", "Put ratings and preferences into two files"
                )
                continue
            message = f"unknown field '{key}'"
            if message in self._kinds:
                self.add(row, message)  # its hint is known
                continue
            choices = suggest(key, _FIELDS)
            near = choices.split(" Choices")[0] if choices.startswith("Did") else ""
            name = shlex.quote(key)
            how = f"{self.importing(f'--ignore {name}')} leaves it out"
            if kind == "ratings" and _is_number(record[key]):
                how = f"{self.importing(f'--rating {name}')} takes it for ratings, --ignore {name} leaves it out"
            self.add(row, message, f"{near} Correct the name, or import the file: {how}".strip())


def _is_number(value: Any) -> bool:
    """Whether a field holds a number, which in a table is a text."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:40]


def _spans(rows: list[int]) -> str:
    """Ascending rows as ``2-7, 9``."""
    spans: list[list[int]] = []
    for row in rows:
        if spans and spans[-1][1] == row - 1:
            spans[-1][1] = row
        else:
            spans.append([row, row])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


SUFFIXES = (".jsonl", ".csv", ".tsv")
_NAMED = re.compile(r"rating_(?!\d+$)(.+)")
_NUMBERED = re.compile(r"(reference|rating)_(\d{1,9})", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_PLURAL = {"reference": "references", "rating": "ratings"}


def aspect_of(column: str, rating_columns: Collection[str] = ()) -> str | None:
    """The aspect that a column of ratings is of: its name if it is one of ``rating_columns``, NAME of ``rating_NAME``.

    None for other columns, ``rating`` itself and ``rating_1``, which are of the one aspect that needs no name.
    """
    if column in rating_columns:
        return column
    named = _NAMED.fullmatch(column)
    return None if named is None else named[1]


def jsonl_records(text: str, check: Check, ignore: Collection[str] = ()) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; null counts as absent, what is not an object is a problem."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a JSON number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            raise ValueError("a field is given twice")
        return record

    decode = json.JSONDecoder(parse_constant=refuse, object_pairs_hook=unique).decode
    for row, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        if not line.strip():
            check.add(row, "is blank", "Remove the line")
            continue
        try:
            record = decode(line)
        except (ValueError, RecursionError) as error:
            check.add(row, f"is not JSON ({error})", "Every line is one JSON object: {…}", "is not JSON")
            continue
        if isinstance(record, dict):
            yield row, {key: value for key, value in record.items() if value is not None and key not in ignore}
        else:
            check.add(row, "is not a JSON object", "Every line is one JSON object: {…}")


def table_records(
    path: Path, text: str, check: Check, ignore: Collection[str] = (), rating_columns: Collection[str] = ()
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table with a header, with the types that JSON would have; a row is numbered by its first line.

    Columns of ``rating_columns`` hold numbers, like ``rating``.

    Raises DataError if it is not a table.
    """
    head = text.split("\n", 1)[0]
    # Column names hold no delimiters, so the header alone tells which one the file uses.
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        columns = _Columns(header, path, ignore, rating_columns)
        last_line = reader.line_num
        for cells in reader:
            row, last_line = last_line + 1, reader.line_num  # a quoted cell may hold line breaks
            if not cells:
                check.add(row, "is blank", "Remove the line")
            elif len(cells) != len(header):
                hint = "Put text that holds the delimiter into double quotes"
                check.add(row, f"has {len(cells)} cells, the header has {len(header)}", hint)
            else:
                yield row, columns.record(row, cells, check)
    except csv.Error as error:
        raise DataError(
            f"is not a well-formed table ({error})",
            code="wrong-format",
            path=path,
            row=reader.line_num,
            hint="Check its quotes",
        ) from error


class _Columns:
    """What the columns of a table hold, read once from its header."""

    def __init__(
        self, header: Sequence[str], path: Path, ignore: Collection[str], rating_columns: Collection[str]
    ) -> None:
        if "image" not in header:
            raise DataError(
                f"the header has no column 'image' ({', '.join(header)[:60]})",
                code="missing-column",
                value="image",
                path=path,
                row=1,
                hint="The first line names the columns; see 'capbench data import --help'",
            )
        self._plain: list[tuple[int, str]] = []
        self._numbers: list[tuple[int, str]] = []
        self._lists: list[tuple[int, str]] = []
        numbered: dict[str, dict[int, int]] = {"reference": {}, "rating": {}}
        names: set[str] = set()
        for place, name in enumerate(header):
            match = _NUMBERED.fullmatch(name)
            # reference_1 and reference_01 are one column.
            same = f"{match[1]}_{int(match[2])}" if match else name
            if same in names:
                raise DataError(
                    f"the column '{name}' is there twice",
                    code="duplicate",
                    value=name,
                    path=path,
                    row=1,
                    hint="Rename one of them",
                )
            names.add(same)
            if name in ignore or (match and _PLURAL[match[1]] in ignore):
                continue
            if aspect_of(name, rating_columns) is not None:
                self._numbers.append((place, name))
            elif match:
                numbered[match[1]][int(match[2])] = place
            elif name in ("references", "ratings"):
                self._lists.append((place, name))
            elif name in ("rating", "votes_a", "votes_b"):
                self._numbers.append((place, name))
            else:
                self._plain.append((place, name))
        self._numbered = {
            stem: [places[number] for number in sorted(places)] for stem, places in numbered.items() if places
        }

    def record(self, row: int, cells: Sequence[str], check: Check) -> dict[str, Any]:
        """Give a row's cells the types that JSON would have; empty cells count as absent."""
        record: dict[str, Any] = {name: cell for place, name in self._plain if (cell := cells[place]).strip()}
        for place, name in self._numbers:
            if cells[place].strip():
                record[name] = _number(cells[place])
        for place, name in self._lists:
            if not cells[place].strip():
                continue
            try:
                record[name] = json.loads(cells[place])
            except (ValueError, RecursionError):
                stem, form = name[:-1], '["…", "…"]' if name == "references" else "[4, 5]"
                hint = f"Write {form}, or use the columns {stem}_1, {stem}_2, …"
                check.add(row, f"'{name}' is not a JSON list", hint)
                record[name] = []
        for stem, places in self._numbered.items():
            values = [cells[place] for place in places]
            if all(map(str.strip, values)) and record.keys().isdisjoint((stem, _PLURAL[stem])):
                record[_PLURAL[stem]] = values if stem == "reference" else [_number(value) for value in values]
            else:
                self._add_numbered(row, record, stem, values, check)
        return record

    def _add_numbered(self, row: int, record: dict[str, Any], stem: str, values: list[str], check: Check) -> None:
        plural = _PLURAL[stem]
        while values and not values[-1].strip():
            values.pop()
        if plural in record or stem in record:
            check.add(row, f"gives both '{plural}' and '{stem}_1'", "Use one of the two forms")
        if not all(value.strip() for value in values):
            check.add(row, f"a '{stem}_…' cell is empty before a filled one", "Fill the cells from the left")
        elif values:
            record[plural] = values if stem == "reference" else [_number(value) for value in values]


def _number(cell: str) -> Any:
    """The number in a cell, or the cell itself if it is none."""
    text = cell.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else cell


#: The aspect that needs no name.
RATING = "rating"
_ASPECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def gather_aspects(
    path: Path, records: list[tuple[int, dict[str, Any]]], check: Check, rating_columns: Sequence[str]
) -> tuple[str, ...]:
    """Put the columns of several aspects into one field, and tell which aspects there are.

    A row of several aspects has ``{aspect: number or list}`` as its ``ratings`` then, which JSONL may give as it is.
    """
    names: dict[str, None] = {}
    for row, record in records:
        columns = {key: aspect for key in record if (aspect := aspect_of(key, rating_columns)) is not None}
        if columns:
            other = next((key for key in (RATING, "ratings") if key in record and key not in columns), None)
            if other is not None:
                first = next(iter(columns))
                command = check.importing(f"--ignore {other}")
                hint = f"Name each kind of rating, such as rating_{RATING}, or leave one out: {command}"
                check.add(row, f"gives both '{other}' and '{first}'", hint)
                continue
            record["ratings"] = {aspect: record.pop(key) for key, aspect in columns.items()}
        if isinstance(record.get("ratings"), dict):
            names |= dict.fromkeys(record["ratings"])
    for name in rating_columns:
        if name not in names and not any(RATING in record or "ratings" in record for _, record in records):
            raise DataError(
                f"has no column '{name}'",
                code="missing-column",
                value=name,
                path=path,
                hint="Name a column of the file in --rating",
            )
    for name in names:
        if not _ASPECT.fullmatch(name):
            hint = "It stands in protocol ids: use letters, digits, dots, hyphens and underscores"
            raise DataError(
                f"'{name}' is not a name for a kind of rating", code="wrong-value", value=name, path=path, hint=hint
            )
    return tuple(names) or (RATING,)


def ratings_of(
    row: int, record: dict[str, Any], aspects: tuple[str, ...], check: Check
) -> tuple[tuple[float, ...], ...] | None:
    """One or more ratings for each aspect, or None after a problem was added."""
    stated = record.get("ratings")
    if aspects == (RATING,) and not isinstance(stated, dict):
        single = _one_aspect(row, record, check)
        return None if single is None else (single,)
    if not isinstance(stated, dict):
        check.add(row, f"has no {_named(aspects)}", "Give a rating of each kind in every row")
        return None
    values: list[tuple[float, ...] | None] = []
    for aspect in aspects:
        if stated.get(aspect) is None:
            kind = f"lacks the rating '{aspect}'"
            command = check.importing("--ignore COLUMN")
            check.add(row, kind, f"Give a rating of each kind in every row, or leave the column out: {command}")
            values.append(None)
        else:
            values.append(_numbers(row, stated[aspect], check))
    return tuple(of_aspect for of_aspect in values if of_aspect is not None) if None not in values else None


def _named(aspects: tuple[str, ...]) -> str:
    return " and ".join(f"rating_{aspect}" for aspect in aspects[:2]) + (" …" if aspects[2:] else "")


def _one_aspect(row: int, record: dict[str, Any], check: Check) -> tuple[float, ...] | None:
    if ("rating" in record) == ("ratings" in record):
        both = "gives both 'rating' and 'ratings'" if "rating" in record else "has no 'rating'"
        check.add(row, both, "Give 'rating' (a number) or 'ratings' (a list of numbers)")
        return None
    return _numbers(row, record["ratings"] if "ratings" in record else record["rating"], check)


def _numbers(row: int, stated: Any, check: Check) -> tuple[float, ...] | None:
    if not isinstance(stated, list):
        number = check.number(row, "rating", stated)
        return None if number is None else (number,)
    if not stated:
        check.add(row, "'ratings' is empty", "Give at least one rating")
        return None
    values = [check.number(row, "rating", value) for value in stated]
    return tuple(value for value in values if value is not None) if None not in values else None


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
