"""Reads the records of a user's JSONL, CSV or TSV file, and collects what is wrong in them.

What the fields mean is the business of :mod:`capbench.datasets.user.files`; here a file becomes rows of typed fields.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capbench.errors import DataError, suggest
from capbench.records import image_id

__all__ = [
    "COMMON",
    "PAIRED",
    "RATED",
    "SUFFIXES",
    "Check",
    "ImportProblemsError",
    "Problem",
    "jsonl_records",
    "table_records",
]

SUFFIXES = (".jsonl", ".csv", ".tsv")
COMMON = {"image", "references", "group"}
RATED = {"candidate", "candidate_id", "rating", "ratings", "rater", "scale"}
PAIRED = {"candidate_a", "candidate_b", "candidate_id_a", "candidate_id_b", "preferred", "votes_a", "votes_b"}
_FIELDS: list[str] = sorted(COMMON | RATED | PAIRED)
_NUMBERED = re.compile(r"(reference|rating)_(\d+)")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a file: its row (line, counted from 1), what is wrong, what to do."""

    row: int
    message: str
    hint: str = ""


class ImportProblemsError(DataError):
    """A user's file with one or more wrong rows; ``problems`` holds all of them."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, path: Path, problems: list[Problem]) -> ImportProblemsError:
        """The error for a file: the first problem, and how many more there are."""
        first, more = problems[0], len(problems) - 1
        rest = (
            f" ({more} more problem{'s' if more > 1 else ''}: 'capbench data import --json' lists all)" if more else ""
        )
        error = cls(first.message + rest, path=path, row=first.row, hint=first.hint or None)
        error.problems = tuple(problems)
        return error


@dataclass
class Check:
    """Collects problems, and knows the few checks that every field needs.

    A check returns the clean value, or None after it added a problem.
    """

    problems: list[Problem] = field(default_factory=list)
    file_names: dict[str, str] = field(default_factory=dict)

    def add(self, row: int, message: str, hint: str = "") -> None:
        """Note one problem."""
        self.problems.append(Problem(row, message, hint))

    def text(self, row: int, name: str, value: Any, *, needed: bool = True) -> str | None:
        """A caption or a name: stripped, without control characters; ``""`` where it is absent and not needed."""
        if value is None:
            if needed:
                self.add(row, f"lacks '{name}'", "Every row needs it")
            return None if needed else ""
        if not isinstance(value, str):
            self.add(row, f"'{name}' is no text ({json.dumps(value)[:40]})", "Put it in quotes")
            return None
        text: str = value.strip()
        if not text and needed:
            self.add(row, f"'{name}' is empty", "Fill it in or remove the row")
            return None
        if any("\ud800" <= c <= "\udfff" for c in text):
            self.add(row, f"'{name}' holds half of a surrogate pair", "Write the character itself, in UTF-8")
            return None
        if any(ord(c) < 32 or ord(c) == 127 for c in text):
            self.add(row, f"'{name}' holds a line break or another control character", "Replace it by a space")
            return None
        return text

    def image(self, row: int, value: Any) -> str | None:
        """The image's id; two file names with one id are a problem."""
        name = self.text(row, "image", value)
        if name is None:
            return None
        image = image_id(name)
        other = self.file_names.setdefault(image, name)
        if other != name:
            self.add(row, f"the images '{other}' and '{name}' have the same id '{image}'", "Rename one of them")
        return image

    def references(self, row: int, value: Any) -> tuple[str, ...] | None:
        """One or more reference captions."""
        if value is None:
            self.add(row, "lacks 'references'", "Give at least one reference caption of the image")
            return None
        if not isinstance(value, list):
            self.add(row, "'references' is no list", 'Write it as ["first caption", "second caption"]')
            return None
        if not value:
            self.add(row, "'references' is empty", "Give at least one reference caption of the image")
            return None
        texts = [self.text(row, f"references[{i}]", text) for i, text in enumerate(value)]
        return tuple(text for text in texts if text is not None) if None not in texts else None

    def number(self, row: int, name: str, value: Any) -> float | None:
        """A finite number that is no boolean."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # The bound keeps out integers that no float can hold.
        if not number or not abs(value) <= sys.float_info.max:
            self.add(row, f"'{name}' is no finite number ({json.dumps(value, default=str)[:40]})", "Give a number")
            return None
        return float(value)

    def fields(self, row: int, record: dict[str, Any], allowed: set[str], kind: str) -> None:
        """Every field is one that a file of this kind may have."""
        for key in record:
            if key in allowed:
                continue
            if key in _FIELDS:
                self.add(
                    row, f"'{key}' does not belong into a file of {kind}", "Put ratings and preferences into two files"
                )
            else:
                near = suggest(key, _FIELDS).split(" Choices")[0] if suggest(key, _FIELDS).startswith("Did") else ""
                self.add(
                    row, f"unknown field '{key}'", f"{near} Mend the name, or leave it out with --ignore {key}".strip()
                )


def jsonl_records(text: str, check: Check) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; null counts as absent, what is no object is a problem."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            raise ValueError("a field is given twice")
        return record

    for row, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        if not line.strip():
            check.add(row, "is blank", "Remove the line")
            continue
        try:
            record = json.loads(line, parse_constant=refuse, object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            check.add(row, f"is not JSON ({error})", "Every line is one JSON object: {…}")
            continue
        if isinstance(record, dict):
            yield row, {key: value for key, value in record.items() if value is not None}
        else:
            check.add(row, "is no JSON object", "Every line is one JSON object: {…}")


def table_records(path: Path, text: str, check: Check) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a table with a header, with the types that JSON would have. Raises DataError if it is no table."""
    head = text.split("\n", 1)[0]
    # Column names hold no delimiters, so the header alone tells which one the file uses.
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        if "image" not in header:
            raise DataError(
                f"the header has no column 'image' ({', '.join(header)[:60]})",
                path=path,
                row=1,
                hint="The first line names the columns; see 'capbench data import --help'",
            )
        for name in header:
            if header.count(name) > 1:
                raise DataError(f"the column '{name}' is there twice", path=path, row=1, hint="Rename one of them")
        for cells in reader:
            row = reader.line_num
            if not cells:
                check.add(row, "is blank", "Remove the line")
            elif len(cells) != len(header):
                hint = "Put text that holds the delimiter into double quotes"
                check.add(row, f"has {len(cells)} cells, the header has {len(header)}", hint)
            else:
                yield row, _typed(row, dict(zip(header, cells, strict=True)), check)
    except csv.Error as error:
        raise DataError(
            f"is no well-formed table ({error})", path=path, row=reader.line_num, hint="Check its quotes"
        ) from error


def _typed(row: int, cells: dict[str, str], check: Check) -> dict[str, Any]:
    """Give a table's cells the types that JSON would have; empty cells count as absent."""
    record: dict[str, Any] = {}
    numbered: dict[str, dict[int, str]] = {"reference": {}, "rating": {}}
    for name, cell in cells.items():
        match = _NUMBERED.fullmatch(name)
        if match:
            numbered[match[1]][int(match[2])] = cell
        elif not cell.strip():
            continue
        elif name in ("references", "ratings"):
            try:
                record[name] = json.loads(cell)
            except (ValueError, RecursionError):
                check.add(
                    row, f"'{name}' is no JSON list", 'Write ["…", "…"], or use the columns reference_1, reference_2, …'
                )
                record[name] = []
        elif name in ("rating", "votes_a", "votes_b"):
            record[name] = _number(cell)
        else:
            record[name] = cell
    for stem, plural in (("reference", "references"), ("rating", "ratings")):
        if not numbered[stem]:
            continue
        values = [numbered[stem][k] for k in sorted(numbered[stem])]
        while values and not values[-1].strip():
            values.pop()
        if plural in record or stem in record:
            check.add(row, f"gives both '{plural}' and '{stem}_1'", "Use one of the two forms")
        if any(not value.strip() for value in values):
            check.add(row, f"a '{stem}_…' cell is empty before a filled one", "Fill the cells from the left")
        elif values:
            record[plural] = values if stem == "reference" else [_number(value) for value in values]
    return record


def _number(cell: str) -> Any:
    """The number in a cell, or the cell itself if it is none."""
    text = cell.strip()
    if re.fullmatch(r"[-+]?\d{1,15}", text, re.ASCII):
        return int(text)
    return float(text) if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text, re.ASCII) else cell
