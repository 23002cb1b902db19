"""Parses a user's JSONL, CSV or TSV file of judgements into rows with typed fields, and checks each field.

Problems are collected by kind. :mod:`capbench.datasets.user.judgement_files` checks the fields of a row in combination.
A file has either one unnamed aspect of ratings or several named ones.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capbench.core.errors import DataError, count
from capbench.core.records import image_id
from capbench.datasets.user.columns import (
    NUMBERED,
    PLURAL,
    RATING,
    Fault,
    Overview,
    Reading,
    ambiguous_fault,
    aspect_of,
    header_faults,
    importing,
    interpret,
    summary,
    unread,
)

_BLANKS = str.maketrans("\t\n\r", "   ")
_UNFIT = re.compile("[\x00-\x1f\ud800-\udfff]")


def plain_text(text: str) -> tuple[str, str]:
    """A caption without surrounding white space, and the name of its invalid characters (``""`` for none).

    Line breaks and tabs become spaces, because they do not matter to metrics and would break tables. Other control
    characters and unpaired surrogates, which UTF-8 cannot encode, are invalid.
    """
    text = text.strip()
    if text.isprintable() or _UNFIT.search(text) is None:
        return text, ""
    text = text.translate(_BLANKS)
    unfit = _UNFIT.search(text)
    if unfit is None:
        return text, ""
    return text, "an unpaired surrogate" if unfit[0] >= "\ud800" else "a control character"


@dataclass(frozen=True)
class Problem:
    """One kind of problem in a file.

    Attributes:
        row: the first affected row (its line, counted from 1).
        code: one of :data:`capbench.core.errors.ERROR_CODES`.
        message: description of the problem in the first row.
        hint: the remedy.
        count: number of affected rows.
        rows: all affected rows, as in ``2-7, 9``.
        value: the invalid field, id or number.
    """

    row: int
    code: str
    message: str
    hint: str = ""
    count: int = 1
    rows: str = ""
    value: str | None = None


class ImportProblemsError(DataError):
    """A user's file with one or more invalid rows; ``problems`` has one entry per kind of problem."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, path: Path, problems: list[Problem]) -> ImportProblemsError:
        """The error for a file: the first problem, the number of affected rows, and the number of further problems."""
        first, more = problems[0], len(problems) - 1
        remarks = []
        if first.count > 1:
            remarks.append(f"{first.count:,} such rows")
        if more:
            command = f"'capbench data import {shlex.quote(str(path))} --name NAME --json'"
            remarks.append(f"{count(more, 'more problem')}: {command} lists all")
        rest = f" ({'; '.join(remarks)})" if remarks else ""
        hint = first.hint or None
        error = cls(first.message + rest, code=first.code, value=first.value, path=path, row=first.row, hint=hint)
        error.problems = tuple(problems)
        return error

    @classmethod
    def of_header(
        cls, path: Path, faults: list[Fault], header: Sequence[str], reading: Reading, columns: Mapping[str, str]
    ) -> ImportProblemsError:
        """The error for the header of a table, with all its problems in one message."""
        with_references = any(name.startswith("reference") for name in reading.taken)
        message, hint = summary(path, faults, header, columns, with_references=with_references)
        error = cls(message, code=faults[0].code, value=faults[0].value, path=path, row=1, hint=hint)
        error.problems = tuple(
            Problem(1, fault.code, f"the header: {fault.message}", fault.hint, 1, "1", fault.value) for fault in faults
        )
        return error


@dataclass
class _Kind:
    code: str
    message: str
    hint: str
    value: str | None
    rows: list[int]


@dataclass
class Check:
    """Collects the problems of a file, with the checks of single fields.

    A check returns the cleaned value, or adds a problem and returns None.

    Attributes:
        path: the file.
        count: number of problems.
        reading: the interpretation of the columns.
    """

    path: Path
    count: int = 0
    reading: Reading = field(default_factory=Reading)
    _with_references: bool = True
    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _file_names: dict[str, str] = field(default_factory=dict)
    _images: dict[str, str] = field(default_factory=dict)
    _references: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    def importing(self, options: str) -> str:
        """The command that imports the file with some options."""
        return importing(self.path, options)

    def add(
        self, row: int, code: str, message: str, hint: str = "", kind: str = "", *, value: str | None = None
    ) -> None:
        """Add one problem.

        Args:
            row: the row.
            code: one of :data:`capbench.core.errors.ERROR_CODES`.
            message: description of the problem.
            hint: the remedy.
            kind: key under which problems are counted together; default: the message.
            value: the invalid field, id or number.
        """
        self.count += 1
        column = next((column for column, name in self.reading.fields.items() if name == value), None)
        if column is not None:
            message += f" ('{value}' is the column '{column}')"
        message = message.encode("utf-8", "backslashreplace").decode()  # an unpaired surrogate cannot be printed
        rows = self._kinds.setdefault(kind or message, _Kind(code, message, hint, value, [])).rows
        if not rows or rows[-1] != row:
            rows.append(row)

    def problems(self) -> list[Problem]:
        """One problem per kind, in the order of the first affected rows."""
        kinds = sorted(self._kinds.values(), key=lambda kind: min(kind.rows))
        problems = []
        for kind in kinds:
            rows = sorted(set(kind.rows))
            problems.append(Problem(rows[0], kind.code, kind.message, kind.hint, len(rows), _spans(rows), kind.value))
        return problems

    def text(
        self, row: int, name: str, value: Any, *, needed: bool = True, caption: bool = False, kind: str = ""
    ) -> str | None:
        """A caption or name, stripped; ``""`` if it is absent and not required.

        Args:
            row: the row.
            name: the field.
            value: the field's value.
            needed: True if the field is required.
            caption: True to replace line breaks and tabs by spaces (in captions, not in names).
            kind: field name under which problems are counted; default: ``name``.
        """
        if value is None:
            if needed:
                self.add(row, "missing-value", f"has no '{name}'", "Every row needs it", value=name)
            return None if needed else ""
        kind = kind or name
        if not isinstance(value, str):
            self.add(
                row,
                "wrong-type",
                f"'{name}' is not a string ({_shown(value)})",
                "Put it in quotes",
                f"'{kind}' is not a string",
                value=name,
            )
            return None
        text, unfit = plain_text(value)
        if not text and needed:
            self.add(
                row,
                "missing-value",
                f"'{name}' is empty",
                "Fill it in or remove the row",
                f"'{kind}' is empty",
                value=name,
            )
            return None
        if not unfit and not caption and text != value.strip():
            unfit = "a line break or a tab"
        if unfit:
            hint = "Write the character itself, in UTF-8" if "surrogate" in unfit else "Replace it by a space"
            self.add(row, "wrong-value", f"'{name}' contains {unfit}", hint, f"'{kind}' contains {unfit}", value=name)
            return None
        return text

    def name(self, row: int, name: str, value: Any) -> str | None:
        """An optional name, which may be a whole number in JSON."""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(row, name, value, needed=False)

    def image(self, row: int, value: Any) -> str | None:
        """The image id; two file names with the same id are a problem."""
        known = self._images.get(value) if isinstance(value, str) else None
        if known is not None:
            return known
        name = self.text(row, "image", value)
        if name is None:
            return None
        image = image_id(name)
        if not image:
            hint = "Write the image's file name, such as kite.jpg"
            self.add(
                row,
                "missing-image",
                f"'image' is '{name}', which names no image",
                hint,
                "'image' names no image",
                value=name,
            )
            return None
        other = self._file_names.setdefault(image, name)
        if other == name:
            self._images[value] = image
        else:
            self.add(
                row,
                "duplicate",
                f"the images '{other}' and '{name}' have the same id '{image}'",
                "Rename one of them",
                value=image,
            )
        return image

    def wants_references(self, wanted: bool) -> None:
        """Set whether rows must have references (if any row of the file has)."""
        self._with_references = wanted

    def references(self, row: int, value: Any) -> tuple[str, ...] | None:
        """One or more references; empty if no row of the file has any."""
        if value is None:
            if not self._with_references:
                return ()
            hint = "Give at least one reference caption of the image, or none in all rows"
            self.add(row, "missing-references", "has no 'references'", hint)
            return None
        if not isinstance(value, list):
            self.add(
                row,
                "wrong-type",
                "'references' is not a list",
                'Write it as ["first caption", "second caption"]',
                value="references",
            )
            return None
        if not value:
            self.add(
                row, "missing-references", "'references' is empty", "Give at least one reference caption of the image"
            )
            return None
        key = tuple(value)
        try:
            return self._references[key]  # most lists occur in several rows
        except (KeyError, TypeError):  # a nested list is not hashable
            pass
        texts = [
            self.text(row, f"references[{i}]", text, caption=True, kind="references[…]") for i, text in enumerate(value)
        ]
        clean = tuple(text for text in texts if text is not None)
        if len(clean) < len(texts):
            return None
        self._references[key] = clean
        return clean

    def number(self, row: int, name: str, value: Any) -> float | None:
        """A finite number that is not a boolean."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # The bound excludes integers that exceed the range of a float.
        if not number or not abs(value) <= sys.float_info.max:
            kind = f"'{name}' is not a finite number"
            self.add(row, "not-a-number", f"{kind} ({_shown(value)})", "Give a number", kind, value=name)
            return None
        return float(value)

    def fields(self, row: int, record: dict[str, Any], allowed: set[str], kind: str) -> None:
        """Check that all fields are allowed in a file of this kind."""
        if record.keys() <= allowed:
            return
        for key in [key for key in record if key not in allowed]:  # in the order of the file
            fault = unread(self.path, key, kind, record[key])
            self.add(row, fault.code, fault.message, fault.hint, value=key)


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:40]


def _spans(rows: list[int]) -> str:
    """Ascending rows in the form ``2-7, 9``."""
    spans: list[list[int]] = []
    for row in rows:
        if spans and spans[-1][1] == row - 1:
            spans[-1][1] = row
        else:
            spans.append([row, row])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


SUFFIXES = (".jsonl", ".csv", ".tsv")
SPREADSHEETS = (".xlsx", ".xls", ".ods")
_INTEGER = re.compile(r"[-+]?\d{1,15}", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


Lines = Callable[[], Iterable[str]]
"""Reads the lines of a file, without line ends, from its start."""
Records = Callable[[], Iterator[tuple[int, dict[str, Any]]]]
"""Reads row numbers and records of a file from its start; problems that were already added may be added again."""


def jsonl_records(
    lines: Lines,
    check: Check,
    ignore: Collection[str] = (),
    rating_columns: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> tuple[Records, Overview]:
    """Line numbers and objects of a JSONL file under the names of the schema, and their overview.

    Null counts as absent; other values than objects are a problem.

    Raises:
        DataError: the file has no column that ``columns`` names.
    """
    overview = Overview(_objects(lines(), check, ignore), rating_columns)
    names = overview.names
    reading = interpret(list(names), names, rating_columns=rating_columns, columns=columns)
    for name in reading.absent:
        hint = "Name a column of the file in --columns"
        raise DataError(f"has no column '{name}'", code="missing-column", value=name, path=check.path, hint=hint)
    check.reading = reading
    denoted = [(name, reading.fields.get(name, name)) for name in names]
    numbered = [(name, match) for name, shown in denoted if (match := NUMBERED.fullmatch(shown))]
    if not (reading.fields or reading.ambiguous or numbered):
        return lambda: _objects(lines(), check, ignore), overview

    def renamed() -> Iterator[tuple[int, dict[str, Any]]]:
        for row, record in _objects(lines(), check, ignore):
            for column, other, shown in reading.ambiguous:
                if column in record:
                    fault = ambiguous_fault(check.path, column, other, shown)
                    check.add(row, fault.code, fault.message, fault.hint, value=column)
                    del record[column]
            values: dict[str, dict[int, Any]] = {}
            for name, match in numbered:
                stem, value = match[1], record.pop(name, None)
                if PLURAL[stem] not in ignore:
                    values.setdefault(stem, {})[int(match[2])] = value
            if not record.keys().isdisjoint(reading.fields):
                record = {reading.fields.get(name, name): value for name, value in record.items()}
            for stem, by_number in values.items():
                _add_numbered(row, record, stem, [by_number[number] for number in sorted(by_number)], check)
            yield row, record

    return renamed, Overview(renamed(), rating_columns)


def _objects(lines: Iterable[str], check: Check, ignore: Collection[str]) -> Iterator[tuple[int, dict[str, Any]]]:

    def reject(constant: str) -> Any:
        raise ValueError(f"{constant} is not a JSON number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            raise ValueError("a field occurs twice")
        return record

    decode = json.JSONDecoder(parse_constant=reject, object_pairs_hook=unique).decode
    blank: list[int] = []
    for row, line in enumerate(lines, start=1):
        if not line.strip():
            blank.append(row)
        if not line:  # not a problem at the end of the file
            continue
        for blank_row in blank:
            check.add(blank_row, "missing-value", "is blank", "Remove the line")
        blank.clear()
        if not line.strip():
            continue
        try:
            record = decode(line)
        except ValueError as error:
            check.add(
                row, "wrong-format", f"is not JSON ({error})", "Every line is one JSON object: {…}", "is not JSON"
            )
            continue
        if isinstance(record, dict):
            yield row, {key: value for key, value in record.items() if value is not None and key not in ignore}
        else:
            check.add(row, "wrong-type", "is not a JSON object", "Every line is one JSON object: {…}")


def table_records(
    path: Path,
    lines: Lines,
    check: Check,
    ignore: Collection[str] = (),
    rating_columns: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> Records:
    """Row numbers (of the first line) and records of a table under the names and with the types of the schema.

    Columns in ``rating_columns`` are numbers, like ``rating``.

    Raises:
        ImportProblemsError: columns are missing, unknown or ambiguous.
        DataError: the file is not a table; raised by the result, too.
    """
    head = next(iter(lines()), "")
    # Column names contain no delimiters, so the header is sufficient to detect the delimiter.
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)

    def cells_by_row() -> Iterator[tuple[int, list[str]]]:
        """Row number and cells of the header, with the row number 0, and of all rows."""
        reader = csv.reader((f"{line}\n" for line in lines()), delimiter=delimiter, strict=True)
        try:
            yield 0, [name.strip() for name in next(reader)]
            last_line = reader.line_num
            for cells in reader:
                row, last_line = last_line + 1, reader.line_num  # a quoted cell may contain line breaks
                yield row, cells
        except csv.Error as error:
            raise DataError(
                f"is not a well-formed table ({error})",
                code="wrong-format",
                path=path,
                row=reader.line_num,
                hint="Check its quotes",
            ) from error

    rows = cells_by_row()
    _, header = next(rows)
    reading = _read_header(path, header, rows, ignore, rating_columns, columns)
    check.reading = reading
    of_type = _Columns(header, reading.fields, ignore, rating_columns)

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        rows = cells_by_row()
        next(rows)
        for row, cells in rows:
            if not cells:
                check.add(row, "missing-value", "is blank", "Remove the line")
            elif len(cells) != len(header):
                hint = "Put text with the delimiter into double quotes"
                check.add(row, "wrong-format", f"has {len(cells)} cells, the header has {len(header)}", hint)
            else:
                yield row, of_type.record(row, cells, check)

    return records


def _read_header(
    path: Path,
    header: Sequence[str],
    rows: Iterator[tuple[int, list[str]]],
    ignore: Collection[str],
    rating_columns: Sequence[str],
    columns: Mapping[str, str] | None,
) -> Reading:
    """The interpretation of a header, from the rows up to the last one that fills an empty column.

    Raises:
        ImportProblemsError: the header has problems.
    """
    faults: list[Fault] = []
    places: dict[str, int] = {}
    known: set[str] = set()
    for place, name in enumerate(header):
        match = NUMBERED.fullmatch(name)
        same = f"{match[1]}_{int(match[2])}" if match else name  # reference_1 and reference_01 are the same column
        if same in known:
            faults.append(Fault("duplicate", f"the column '{name}' occurs twice", "Rename one of them", name))
        elif name not in ignore:
            places[name] = place
        known.add(same)
    found: dict[str, str] = {}
    has_rows = False
    with contextlib.suppress(DataError):  # a malformed row, which reading the records raises after the header's faults
        for _, cells in rows:
            if len(cells) == len(header):
                has_rows = True
                empty = [name for name in places if name not in found]
                found |= {name: cells[places[name]] for name in empty if cells[places[name]].strip()}
                if len(found) == len(places):
                    break
    samples = {name: found[name] for name in places if name in found}
    filled = samples if has_rows else places
    reading = interpret(list(places), filled, rating_columns=rating_columns, columns=columns)
    faults += header_faults(path, list(places), reading, samples, rating_columns, columns)
    if faults:
        raise ImportProblemsError.of_header(path, faults, header, reading, columns or {})
    return reading


class _Columns:
    """The columns of a table by type, from its header."""

    def __init__(
        self,
        header: Sequence[str],
        fields: Mapping[str, str],
        ignore: Collection[str],
        rating_columns: Collection[str],
    ) -> None:
        self._plain: list[tuple[int, str]] = []
        self._numbers: list[tuple[int, str]] = []
        self._lists: list[tuple[int, str]] = []
        numbered: dict[str, dict[int, int]] = {"reference": {}, "rating": {}}
        for place, column in enumerate(header):
            name = fields.get(column, column)
            match = NUMBERED.fullmatch(name)
            if column in ignore or (match and PLURAL[match[1]] in ignore):
                continue
            if aspect_of(name, rating_columns) is not None:
                self._numbers.append((place, name))
            elif match:
                numbered[match[1]][int(match[2])] = place
            elif name in ("references", "ratings"):
                self._lists.append((place, name))
            elif name in ("rating", "votes_a", "votes_b", "grade"):
                self._numbers.append((place, name))
            else:
                self._plain.append((place, name))
        self._numbered = {
            stem: [places[number] for number in sorted(places)] for stem, places in numbered.items() if places
        }

    def record(self, row: int, cells: Sequence[str], check: Check) -> dict[str, Any]:
        """The record of a row, with the types that JSON would have; empty cells count as absent."""
        record: dict[str, Any] = {name: cell for place, name in self._plain if (cell := cells[place]).strip()}
        for place, name in self._numbers:
            if cells[place].strip():
                record[name] = _number(cells[place])
        for place, name in self._lists:
            if not cells[place].strip():
                continue
            try:
                record[name] = json.loads(cells[place])
            except ValueError:
                stem, form = name[:-1], '["…", "…"]' if name == "references" else "[4, 5]"
                hint = f"Write {form}, or use the columns {stem}_1, {stem}_2, …"
                check.add(row, "wrong-type", f"'{name}' is not a JSON list", hint, value=name)
                record[name] = []
        for stem, places in self._numbered.items():
            values = [cells[place] for place in places]
            if all(map(str.strip, values)) and record.keys().isdisjoint((stem, PLURAL[stem])):
                record[PLURAL[stem]] = values if stem == "reference" else [_number(value) for value in values]
            else:
                _add_numbered(row, record, stem, values, check)
        return record


def _add_numbered(row: int, record: dict[str, Any], stem: str, values: list[Any], check: Check) -> None:
    """Add the values of ``reference_1``, ``reference_2``, … (or ``rating_1``, …) to a record as a list."""
    plural = PLURAL[stem]
    filled = [value is not None and (not isinstance(value, str) or bool(value.strip())) for value in values]
    while filled and not filled[-1]:
        filled.pop()
    values = values[: len(filled)]
    if plural in record or stem in record:
        check.add(row, "conflict", f"has both '{plural}' and '{stem}_1'", "Use one of the two forms", value=plural)
    if not all(filled):
        check.add(
            row,
            "missing-value",
            f"a '{stem}_…' cell is empty before a filled one",
            "Fill the cells from the left",
            value=stem,
        )
    elif values:
        record[plural] = values if stem == "reference" else [_number(v) if isinstance(v, str) else v for v in values]


def _number(cell: str) -> Any:
    """The number in a cell, or the cell's text if it is not a number."""
    text = cell.strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else cell


def ratings_of(
    row: int, record: dict[str, Any], aspects: tuple[str, ...], check: Check
) -> tuple[tuple[float, ...], ...] | None:
    """One or more ratings for each aspect; adds a problem and returns None if there are none."""
    by_aspect = record.get("ratings")
    if aspects == (RATING,) and not isinstance(by_aspect, dict):
        single = _one_aspect(row, record, check)
        return None if single is None else (single,)
    if not isinstance(by_aspect, dict):
        check.add(row, "missing-value", f"has no {_named(aspects)}", "Give a rating of each kind in every row")
        return None
    values: list[tuple[float, ...] | None] = []
    for aspect in aspects:
        if by_aspect.get(aspect) is None:
            kind = f"has no rating '{aspect}'"
            command = check.importing("--ignore COLUMN")
            check.add(
                row,
                "missing-value",
                kind,
                f"Give a rating of each kind in every row, or leave the column out: {command}",
                value=aspect,
            )
            values.append(None)
        else:
            values.append(_numbers(row, by_aspect[aspect], check))
    return tuple(of_aspect for of_aspect in values if of_aspect is not None) if None not in values else None


def _named(aspects: tuple[str, ...]) -> str:
    return " and ".join(f"rating_{aspect}" for aspect in aspects[:2]) + (" …" if aspects[2:] else "")


def _one_aspect(row: int, record: dict[str, Any], check: Check) -> tuple[float, ...] | None:
    if ("rating" in record) == ("ratings" in record):
        code, problem = (
            ("conflict", "has both 'rating' and 'ratings'")
            if "rating" in record
            else ("missing-value", "has no 'rating'")
        )
        check.add(row, code, problem, "Give 'rating' (a number) or 'ratings' (a list of numbers)", value="rating")
        return None
    return _numbers(row, record["ratings"] if "ratings" in record else record["rating"], check)


def _numbers(row: int, value: Any, check: Check) -> tuple[float, ...] | None:
    if not isinstance(value, list):
        number = check.number(row, "rating", value)
        return None if number is None else (number,)
    if not value:
        check.add(row, "missing-value", "'ratings' is empty", "Give at least one rating", value="ratings")
        return None
    values = [check.number(row, "rating", entry) for entry in value]
    return tuple(number for number in values if number is not None) if None not in values else None
