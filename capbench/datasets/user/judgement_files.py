"""Reads and checks a user's file of judgements: columns to fields, then the rows.

The schema is documented in ``docs/data.md``. A file has either ratings (``rating``, ``ratings``, ``rating_1``, … or
``rating_NAME``) or pairwise preferences (``candidate_a``, ``candidate_b`` with ``preferred``, votes or ``grade``). The
schema's names always denote their field. A column with another accepted name (``image_id``, ``caption``, ``ref1``,
``score``) is read as a field only if no other column holds that field; ``--columns`` assigns any column to a field.
Invalid rows are never guessed or dropped; all problems of a file are found in one pass.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from capbench.core.errors import DataError, UsageError, count, suggest
from capbench.core.files import check_readable
from capbench.core.records import image_id
from capbench.datasets.tables import OTHER_SPREADSHEETS, SUFFIXES, Table, plain_text, read_table

if TYPE_CHECKING:
    import pandas as pd

COMMON = ["image", "references", "group"]
RATED = ["candidate", "candidate_id", "system", "rating", "ratings", "rater", "scale"]
SIDED = ["candidate", "candidate_id", "system"]
PAIRED = [f"{name}_{side}" for name in SIDED for side in "ab"] + ["preferred", "votes_a", "votes_b", "grade"]
_FIELDS = sorted(COMMON + RATED + PAIRED)
_ALIASES = {"image_id": "image", "caption": "candidate", "score": "rating"}
RATING = "rating"  # name of the unnamed aspect
_NUMBERED = re.compile(r"(reference|rating)_(\d{1,9})", re.ASCII)
_REF = re.compile(r"ref(\d{1,9})", re.ASCII)
_ASPECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_SCALE = re.compile(r"\s*\[?\s*([-+]?[\d.]+)\s*(?:,|\.\.|to|:|-)\s*([-+]?[\d.]+)\s*\]?\s*")
_LARGEST_GRADE = 1e6
_CHOICES = {"a": 1, "b": -1, "tie": 0}
_MOST_ROWS = 20
_HEADER, _NO_TEXT = "the header: ", "is not a text"
Kind = Literal["ratings", "preferences"]


@dataclass(frozen=True)
class Problem:
    """One kind of problem: the first affected row, its code, description and remedy, the number of rows, the rows."""

    row: int | str
    code: str
    message: str
    hint: str = ""
    count: int = 1
    rows: str = ""
    value: str | None = None


class ImportProblemsError(DataError):
    """A user's file with one or more problems; ``problems`` has all of them, one of each kind."""

    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class UserJudgements:
    """The checked rows of a file."""

    # one row per row of the file, whose index is its place, and one column per field; ``""`` for absent texts.
    # Ratings also have ``item``, the number of the candidate, and ``=ASPECT``, a tuple of numbers, for each
    # aspect; preferences have ``direction``: 1 for a, -1 for b, 0 for a tie
    frame: pd.DataFrame
    kind: Kind  # the kind of rows
    aspects: tuple[str, ...] = (RATING,)  # rated aspects; ``rating`` if unnamed
    scale: tuple[float, float] | None = None  # lowest and highest possible rating; None for the observed ones
    # the field of each column; ``""`` for columns that are not read
    all_columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, str]:
        """Columns that were read under another name, and their fields."""
        return {column: name for column, name in self.all_columns.items() if name and column != name}

    @property
    def most_references(self) -> int:
        """Largest number of references of a row; 0 if the file has none."""
        return max(map(len, self.frame["references"]))


def parse_scale(text: str) -> tuple[float, float] | None:
    """``"1-5"``, ``"1..5"``, ``"1,5"`` or ``"[1, 5]"`` → (1.0, 5.0); None if it is not a scale."""
    match = _SCALE.fullmatch(text)
    try:
        low, high = (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    except ValueError:
        return None
    return (low, high) if low < high and math.isfinite(high - low) else None


def reading_note(fields: Mapping[str, str]) -> str:
    """The line that names columns and the fields they are read as: ``{"ref1": "reference_1"}``."""
    return "columns: " + ", ".join(f"'{name}' {f'read as {of}' if of else 'not read'}" for name, of in fields.items())


def check_columns(flag: str, columns: Mapping[str, str], others: Iterable[str] = ()) -> None:
    """Raise UsageError if an assigned field is unknown, or a column has two meanings."""
    used = [*columns.values(), *others]
    for name, column in columns.items():
        if _field(name) is None:
            problem = f"{flag} {name}={column}: '{name}' is not a field of judgements"
            hint = suggest(name, [*_FIELDS, "reference_1", "rating_1"])
            raise UsageError(problem, code="unknown-name", value=name, hint=hint)
        if used.count(column) > 1:
            problem = f"{flag}: the column '{column}' is named twice"
            raise UsageError(problem, code="conflict", value=column, hint="Give each column one meaning")


def read_user_file(
    path: Path,
    *,
    ignore: Collection[str] = (),
    scale: tuple[float, float] | None = None,
    rating_columns: Sequence[str] = (),  # columns with ratings; the name of the column is the aspect
    # the column of a field, for columns with names that are not accepted: ``{"image": "file"}``
    columns: Mapping[str, str] | None = None,
) -> UserJudgements:
    """Read and check a file of judgements."""
    if not path.name.lower().endswith(SUFFIXES):
        check_readable(path)
        hint = "Export the table as .xlsx or CSV (UTF-8)" if path.suffix.lower() in OTHER_SPREADSHEETS else ""
        hint = hint or f"Use one of {', '.join(SUFFIXES)}"
        raise DataError(f"has the ending '{path.suffix}'", code="wrong-format", value=path.suffix, path=path, hint=hint)
    table = read_table(path)
    frame = table.frame()
    frame = frame.drop(columns=[name for name in frame if name in ignore])
    reading = _Header(table, frame).fields(rating_columns, columns or {})
    unread = [c for c, name in reading.items() if not (_NUMBERED.fullmatch(name) or (name and frame[c].notna().any()))]
    unread += [c for c, name in reading.items() if (m := _NUMBERED.fullmatch(name)) and f"{m[1]}s" in ignore]
    frame = frame.drop(columns=unread).rename(columns=reading)
    rows = _Rows(table, frame, {name: column for column, name in reading.items()})
    paired = not {"candidate_a", "candidate_b", "preferred"}.isdisjoint(frame)
    kind, aspects, scale = rows.pairs() if paired else rows.rated(scale, rating_columns)
    return UserJudgements(rows.frame, kind, aspects, scale, reading)


class _Problems:
    """The rows of a file, and its problems by kind."""

    def __init__(self, table: Table, frame: pd.DataFrame, columns: Mapping[str, str] | None = None) -> None:
        self.table, self.frame = table, frame
        self.columns = columns or {}  # the column of each field
        self.numbers, self.problems = table.numbers, list[Problem]()

    def add(self, bad: Any, code: str, message: str, hint: str, value: str | None = None) -> None:
        """Add a problem of the rows where ``bad`` is true; the message names the column if it has another name."""
        if not (places := np.flatnonzero(np.asarray(bad, dtype=bool)).tolist()):
            return
        column = self.columns.get(value or "", value)
        message += f" (column '{column}')" if column != value else ""
        message = message.encode("utf-8", "backslashreplace").decode()  # an unpaired surrogate cannot be printed
        more = f", and {len(places) - _MOST_ROWS:,} more" if len(places) > _MOST_ROWS else ""
        listed = ", ".join(str(self.numbers[place]) for place in places[:_MOST_ROWS]) + more
        self.problems.append(Problem(self.numbers[places[0]], code, message, hint, len(places), listed, value))

    def stop(self) -> None:
        """Raise one error for all problems, if there are any."""
        if not self.problems:
            return
        order = {number: place for place, number in enumerate(self.numbers)}
        problems = sorted(self.problems, key=lambda problem: order.get(problem.row, -1))
        first, *others = problems
        message = first.message + (f" ({first.count:,} such rows)" if first.count > 1 else "")
        if message.startswith(_HEADER):
            more = [problem.message.removeprefix(_HEADER) for problem in others[:7] if problem.row == 1]
            message = "; ".join([message, *more])
        elif others:
            command = f"'capbench data import {shlex.quote(str(self.table.path))} --name NAME --json'"
            message += f"; {count(len(others), 'more problem')}: {command} lists all"
        where: dict[str, Any] = {"path": self.table.path, "row": first.row, "hint": first.hint}
        error = ImportProblemsError(message, code=first.code, value=first.value, **where)
        error.problems = tuple(problems)
        raise error


def _field(name: str) -> str | None:
    """The field that a name of the schema denotes (``reference_01`` is ``reference_1``); None for other names."""
    if match := _NUMBERED.fullmatch(name):
        return f"{match[1]}_{int(match[2])}"
    return name if name in _FIELDS or (name.startswith("rating_") and len(name) > 7) else None


class _Header(_Problems):
    """The columns of a file, while their fields are found."""

    def fields(self, rating_columns: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
        """The field of each column, ``""`` for empty columns that denote none."""
        frame = self.frame
        names = list(map(str, frame))
        filled = [name for name in names if frame[name].notna().any()] if len(frame) else names
        assigned = {column: _field(name) or name for name, column in columns.items()}
        taken: dict[str, str] = {}  # column by field
        for name in names:
            denoted = assigned.get(name) or (name if name in rating_columns else _field(name))
            if denoted is not None and taken.setdefault(denoted, name) != name:
                self.ambiguous(taken[denoted], name, denoted)
        for column, denoted in assigned.items():
            if column not in names:
                self.wrong("missing-column", f"no column '{column}'", "Name a column of the file in --columns", column)
                taken.setdefault(denoted, column)
        paired = any(taken.get(name) in filled for name in ("candidate_a", "candidate_b", "preferred"))
        rated = any(name.startswith(RATING) for name in taken) or any(name in names for name in rating_columns)
        for name in filled:
            match = _REF.fullmatch(name)
            alias = f"reference_{int(match[1])}" if match else _ALIASES.get(name, "")
            if name in taken.values() or not alias or (alias in RATED and paired) or (alias == RATING and rated):
                continue
            listed = taken.get("references") if match else None
            if other := taken.get(alias) or (listed if listed in filled else None):
                self.ambiguous(other, name, alias)
            else:
                taken[alias] = name
        self.taken, self.filled, self.rating_columns, self.paired = taken, filled, rating_columns, paired
        self.check_missing(columns)
        self.check_known()
        self.stop()
        by_column = {column: denoted for denoted, column in taken.items()}
        return {name: by_column.get(name, "") for name in names}

    def wrong(self, code: str, message: str, hint: str, value: str) -> None:
        """Add a problem of the columns: of the rows that have it, in a file without a header."""
        if not self.table.decimals and value in self.frame:
            self.add(self.frame[value].notna(), code, message, hint, value)
        else:
            self.problems.append(Problem(1, code, _HEADER + message, hint, 1, "1", value))

    def ambiguous(self, other: str, column: str, denoted: str) -> None:
        meaning = "references" if denoted.startswith("reference") else f"'{denoted}'"
        hint = f"Remove one of them, or import the file with --ignore {shlex.quote(column)}"
        self.wrong("ambiguous", f"'{other}' and '{column}' both mean {meaning}", hint, column)

    def check_missing(self, columns: Mapping[str, str]) -> None:
        taken, paired = self.taken, self.paired
        needed = ["image", *(("candidate_a", "candidate_b") if paired else ("candidate",))]
        if paired and taken.keys().isdisjoint(("preferred", "votes_a", "votes_b", "grade")):
            needed.append("preferred")
        if not paired and not self.rating_columns and not any(name.startswith(RATING) for name in taken):
            needed.append(RATING)
        missing = [name for name in needed if name not in taken]
        others = [name for name in self.filled if name not in taken.values()]
        column = others[0] if len(others) == len(missing) == 1 else "COLUMN"
        assigned = {**columns, **dict.fromkeys(missing, column)}
        option = shlex.quote(",".join(f"{name}={of}" for name, of in assigned.items()))
        hint = f"Its columns are {', '.join(self.table.columns)[:200]}; assign them: --columns {option}"
        for name in missing:
            self.wrong("missing-column", f"no column '{name}'", hint, name)
        for name in self.rating_columns:
            if name not in self.frame:
                self.wrong("missing-column", f"no column '{name}'", "Name a column of the file in --rating", name)

    def check_known(self) -> None:
        paired, fields = self.paired, COMMON + (PAIRED if self.paired else RATED)
        used = {column: denoted for denoted, column in self.taken.items()}
        unclear = {problem.value for problem in self.problems if problem.code == "ambiguous"}
        for name in self.filled:
            denoted, quoted = used.get(name, ""), shlex.quote(name)
            known = denoted in fields or _NUMBERED.fullmatch(denoted) or (denoted.startswith(RATING) and not paired)
            if known or name in unclear or denoted in self.rating_columns:
                continue
            if denoted:
                kind, hint = "preferences" if paired else "ratings", "Put ratings and preferences into two files"
                self.wrong("conflict", f"'{name}' does not belong in a file of {kind}", hint, name)
            else:
                ways = [f"--columns FIELD={quoted}", *([] if paired else [f"--rating {quoted} reads it as ratings"])]
                hint = f"Correct the name, or import the file: {', '.join(ways)}, --ignore {quoted} ignores it"
                self.wrong("unknown-column", f"unknown column '{name}'", hint, name)


class _Rows(_Problems):
    """The rows under the names of the schema, while they are checked and completed in place."""

    def has(self, name: str) -> Any:
        """(rows) True where a field has a value."""
        return self.frame[name].notna().to_numpy() if name in self.frame else np.zeros(len(self.frame), dtype=bool)

    def set(self, name: str, cells: Sequence[Any]) -> None:
        """Replace a column."""
        import pandas as pd

        self.frame[name] = pd.Series(cells, index=self.frame.index, dtype=object)

    def text(self, name: str, *, needed: bool = False, caption: bool = False, always: bool = False) -> None:
        """Check and clean a column of texts; an absent one becomes ``""``."""
        if name not in self.frame:
            self.frame[name] = None
        has = self.has(name)
        if needed:
            self.add(~has, "missing-value", f"has no '{name}'", "Every row needs it", name)
        if always and has.any():
            problem, hint = f"some rows have a '{name}' and others do not", "Fill it in in every row or in none"
            self.add(has != has[0], "missing-value", problem, hint, name)
        cells = _hashable(self.frame[name].tolist())
        known = {cell: _cleaned(cell, caption=caption) for cell in set(cells)}
        for kind in sorted({wrong for _, wrong in known.values()} - {""}):
            of_type, of_value = ("wrong-type", "Put it in quotes"), ("wrong-value", "Replace it by a space")
            code, hint = of_type if kind == _NO_TEXT else of_value
            self.add([known[cell][1] == kind for cell in cells], code, f"'{name}' {kind}", hint, name)
        self.set(name, [known[cell][0] for cell in cells])

    def common(self) -> None:
        """Check images and references."""
        self.text("image", needed=True)
        names = self.frame["image"]
        ids = names.map({name: image_id(name) for name in names.unique()})
        nameless = (names != "") & (ids == "")
        name = next(iter(names[nameless]), "")
        hint = "Write the image's file name, such as kite.jpg"
        self.add(nameless, "missing-image", f"'image' names no image: '{name}'", hint, name)
        first = names.groupby(ids, sort=False).transform("first")
        twice = (ids != "") & (names != first)
        earlier, other = next(zip(first[twice], names[twice], strict=True), ("", ""))
        problem = f"the images '{earlier}' and '{other}' have the same id '{image_id(other)}'"
        self.add(twice, "duplicate", problem, "Rename one of them", image_id(other))
        self.set("image", ids.tolist())
        self.text("group")
        self.references()

    def references(self) -> None:
        """Check and clean the lists of references."""
        listed = self.lists("reference")
        missing = np.array([not cells for cells in listed])
        if not missing.all() or any(cells == () for cells in listed):
            hint = "Give at least one reference caption of the image, or none in all rows"
            self.add(missing, "missing-references", "has no 'references'", hint)
        lists = [cells or () for cells in listed]
        known = {cells: [_cleaned(cell, caption=True) for cell in cells] for cells in set(lists)}
        wrong = {
            of: next((bad or "is empty" for text, bad in texts if bad or not text), "") for of, texts in known.items()
        }
        for problem in sorted(set(wrong.values()) - {""}):
            code = "missing-value" if "empty" in problem else "wrong-value"
            bad = [wrong[cells] == problem for cells in lists]
            self.add(bad, code, f"a reference {problem}", "Correct or remove it", "references")
        clean = {cells: tuple(text for text, _ in texts) for cells, texts in known.items()}
        self.set("references", [clean[cells] for cells in lists])

    def lists(self, stem: str) -> list[tuple[Any, ...] | None]:
        """The numbered columns of a row from left to right, or its list; None without either, ``()`` if empty."""
        plural = f"{stem}s"
        places = sorted(
            (int(m[2]), str(name)) for name in self.frame if (m := _NUMBERED.fullmatch(str(name))) and m[1] == stem
        )
        lists: list[tuple[Any, ...] | None] = [None] * len(self.frame)
        gaps = wrong = both = [False] * len(self.frame)
        if places:
            rows = list(zip(*(_hashable(self.frame[name].tolist()) for _, name in places), strict=True))
            lists = [of if None not in of else tuple(cell for cell in of if cell is not None) or None for of in rows]
            if stem == "reference":
                gaps = [of is not None and of != row[: len(of)] for of, row in zip(lists, rows, strict=True)]
        if plural in self.frame:
            cells = self.frame[plural].tolist()
            parsed = [self.table.parsed(cell) for cell in cells]
            if stem == RATING:  # a single rating
                parsed = [[value] if isinstance(value, int | float) else value for value in parsed]
            wrong = [not isinstance(value, list | None) for value in parsed]
            both = [cell is not None and given is not None for cell, given in zip(cells, lists, strict=True)]
            lists = [
                tuple(_hashable(value)) if isinstance(value, list) else given
                for value, given in zip(parsed, lists, strict=True)
            ]
        form = '["…", "…"]' if stem == "reference" else "[4, 5]"
        hint = f"Write {form}, or use the columns {stem}_1, {stem}_2, …"
        self.add(wrong, "wrong-type", f"'{plural}' is not a JSON list", hint, plural)
        self.add(both, "conflict", f"has both '{plural}' and '{stem}_1'", "Use one of the two forms", plural)
        gap, hint = f"a '{stem}_…' cell is empty before a filled one", "Fill the cells from the left"
        self.add(gaps, "missing-value", gap, hint, stem)
        return lists

    def numbers_of(self, name: str, kind: str = "number", limit: float = math.inf) -> Any:
        """(rows) A column as numbers, NaN for a missing cell or one with another value, which is a problem."""
        cells = self.frame[name].tolist()
        values = self.table.values(self.columns.get(name, name), cells)
        if kind == "count":
            values = [value if value is not None and value >= 0 and value % 1 == 0 else None for value in values]
        bad = [cell is not None and (v is None or abs(v) > limit) for cell, v in zip(cells, values, strict=True)]
        if any(bad):
            cell = cells[bad.index(True)]
            code = "wrong-type" if kind == "count" else "not-a-number"
            self.add(bad, code, f"'{name}' is not a finite {kind} ({cell!r:.40})", f"Write a {kind}", name)
        return np.array(values, dtype=np.float64)

    def rated(
        self, scale: tuple[float, float] | None, rating_columns: Sequence[str]
    ) -> tuple[Kind, tuple[str, ...], tuple[float, float] | None]:
        """Check rows with ratings."""
        self.text("candidate", needed=True, caption=True)
        self.common()
        for name in ("candidate_id", "system", "rater"):
            self.text(name, always=True)
        ratings = self.aspects(rating_columns)
        for aspect, values in ratings.items():
            self.set(f"={aspect}", values)
        by_row = list(zip(*ratings.values(), strict=True))
        several = np.array([any(len(of) > 1 for of in row) for row in by_row])
        problem, hint = "has one 'rater' but several ratings", "Write one row per rater"
        self.add(several & (self.frame["rater"] != ""), "conflict", problem, hint, "rater")
        scale = self.scale(scale)
        if scale is not None:
            low, high = scale
            outside = [next((v for of in row for v in of if not low <= v <= high), None) for row in by_row]
            first = f"{next((v for v in outside if v is not None), 0.0):g}"
            problem, hint = f"the rating {first} is outside {low:g}-{high:g}", "Correct the rating or the scale"
            self.add([value is not None for value in outside], "out-of-range", problem, hint, first)
        self.same_candidates()
        self.ids([""])
        self.stop()
        return "ratings", tuple(ratings), scale

    def aspects(self, rating_columns: Sequence[str]) -> dict[str, list[tuple[float, ...]]]:
        """The ratings of each row by aspect; empty with a problem."""
        given: dict[str, list[Any]] = {}
        for name in map(str, self.frame):
            if name in rating_columns or (name.startswith("rating_") and not _NUMBERED.fullmatch(name)):
                given[name if name in rating_columns else name[7:]] = self.frame[name].tolist()
        if "ratings" in self.frame:  # objects of aspects
            cells = [self.table.parsed(cell) for cell in self.frame["ratings"]]
            objects: list[dict[str, Any]] = [cell if isinstance(cell, dict) else {} for cell in cells]
            if any(objects):
                self.set("ratings", [None if row else cell for row, cell in zip(objects, cells, strict=True)])
            for name in dict.fromkeys(name for row in objects for name in row):
                column = given.get(name, [None] * len(objects))
                given[name] = [row.get(name, cell) for row, cell in zip(objects, column, strict=True)]
        plain: list[Any] = list(self.lists(RATING))
        if RATING in self.frame and RATING not in rating_columns:
            single = self.frame[RATING].tolist()
            both = [rating is not None and of is not None for rating, of in zip(single, plain, strict=True)]
            hint = "Give 'rating' (a number) or 'ratings' (a list of numbers)"
            self.add(both, "conflict", "has both 'rating' and 'ratings'", hint, RATING)
            plain = [of if rating is None else rating for rating, of in zip(single, plain, strict=True)]
        mixed = [
            cell is not None and any(of[row] is not None for of in given.values()) for row, cell in enumerate(plain)
        ]
        hint = f"Name each kind of rating, such as rating_{RATING}, or ignore one with --ignore {RATING}"
        self.add(mixed, "conflict", "has a rating of no kind and ratings of several kinds", hint, RATING)
        for name in given:
            if not _ASPECT.fullmatch(name):
                hint = "Use letters, digits, dots, hyphens and underscores, as in protocol ids"
                self.add(np.ones(len(plain)), "wrong-value", f"'{name}' is not a name for a kind of rating", hint, name)
        return {name: self.of_aspect(name, cells) for name, cells in (given or {RATING: plain}).items()}

    def of_aspect(self, name: str, cells: Sequence[Any]) -> list[tuple[float, ...]]:
        """One or more numbers of each row."""
        lists = [() if cell is None else tuple(cell) if isinstance(cell, list | tuple) else (cell,) for cell in cells]
        kind = "rating" if name == RATING else f"rating '{name}'"
        hint = "Give a rating of each kind in every row"
        self.add([not values for values in lists], "missing-value", f"has no {kind}", hint, name)
        column = self.columns.get(f"rating_{name}", self.columns.get(name, name))
        flat = [value for values in lists for value in values]
        numbers = self.table.values(column, flat)
        left = iter(numbers)
        made = [tuple(itertools.islice(left, len(values))) for values in lists]
        if None in numbers:
            cell = flat[numbers.index(None)]
            problem = f"'{name}' is not a finite number ({cell!r:.40})"
            self.add([None in values for values in made], "not-a-number", problem, "Write a number", RATING)
        return [tuple(v for v in values if v is not None) for values in made]

    def scale(self, scale: tuple[float, float] | None) -> tuple[float, float] | None:
        """The scale in the file, if it is not given."""
        if "scale" not in self.frame:
            return scale
        texts = [cell if isinstance(cell, str | None) else json.dumps(cell) for cell in self.frame["scale"]]
        known = {text: parse_scale(text) for text in dict.fromkeys(texts) if text is not None}
        wrong = [text is not None and known[text] is None for text in texts]
        self.add(wrong, "wrong-value", "'scale' is not a scale", "Write it as [1, 5], in a table as 1-5", "scale")
        found = scale or next((limits for limits in known.values() if limits), None)
        other = [text is not None and known[text] not in (None, found) for text in texts]
        self.add(other, "mismatch", "the scale differs from that of other rows", "Use one scale per file", "scale")
        return found

    def same_candidates(self) -> None:
        """Number the candidates, and check that their rows agree and that each rater rates them once."""
        frame = self.frame
        text = frame.groupby(["image", "system", "candidate"], sort=False).ngroup().to_numpy()
        item = frame.groupby([text, frame["candidate_id"].factorize()[0]], sort=False).ngroup().to_numpy()
        frame["item"] = item
        of_first = np.unique(item, return_index=True)[1][item]
        for name in ("references", "group"):
            cells = frame[name].to_numpy()
            differs = [a is not b and a != b for a, b in zip(cells, cells[of_first], strict=True)]
            problem = f"has the candidate of an earlier row with other {name}"
            self.add(differs, "mismatch", problem, "Correct one of the two rows", name)
        again = frame.duplicated(["item", "rater"]).to_numpy()
        rater = next(iter(frame["rater"][again]), "")
        problem = f"rates the same candidate as an earlier row{f' of the rater {rater!r}' if rater else ''}"
        hint = "Write its ratings as one list, or add a 'rater' to every row; captions of two systems need a 'system'"
        self.add(again, "duplicate", problem, hint, rater or None)

    def ids(self, sides: Sequence[str]) -> None:
        """Check that an id belongs to one caption of one system and image."""
        owners: dict[str, list[str]] = {}
        again = [False] * len(self.frame)
        names = [[f"candidate_id{side}", "image", f"system{side}", f"candidate{side}"] for side in sides]
        for of_side in names:
            for row, (name, *owner) in enumerate(zip(*(self.frame[of].tolist() for of in of_side), strict=True)):
                again[row] |= bool(name) and owners.setdefault(name, owner) != owner
        if any(again):
            name = next(filter(None, (self.frame[of[0]].iloc[again.index(True)] for of in names)))
            problem = f"the candidate id '{name}' belongs to another candidate in an earlier row"
            self.add(again, "duplicate", problem, "Use a unique id for every caption, or omit the column", name)

    def pairs(self) -> tuple[Kind, tuple[str, ...], None]:
        """Check rows with preferences."""
        frame = self.frame
        one = self.has("candidate_id_a") != self.has("candidate_id_b")
        self.add(one, "missing-value", "only one caption has a 'candidate_id'", "Fill it in for both, or for none")
        for side in "ab":
            self.text(f"candidate_{side}", needed=True, caption=True)
            self.text(f"candidate_id_{side}", always=True)
            self.text(f"system_{side}", always=True)
        self.common()
        frame["direction"] = self.direction()
        same = (frame["candidate_a"] == frame["candidate_b"]) & (frame["candidate_a"] != "")
        self.add(same, "duplicate", "the two candidates are the same text", "Remove the row")
        sides = [
            frame[[f"system_{s}", f"candidate_id_{s}", f"candidate_{s}"]].itertuples(index=False, name=None)
            for s in "ab"
        ]
        both: list[Any] = [frozenset(pair) for pair in zip(*sides, strict=True)]
        pairs = frame["image"].to_frame().assign(pair=both)
        hint = "Write one row per pair, with numbers of votes in votes_a and votes_b"
        self.add(pairs.duplicated(), "duplicate", "contains the pair of an earlier row", hint)
        self.ids(["_a", "_b"])
        self.stop()
        return "preferences", (), None

    def direction(self) -> Any:
        """(rows) 1 where a is preferred, -1 where b is, 0 for a tie; ``preferred``, ``grade`` and votes must agree."""
        import pandas as pd

        frame = self.frame
        has = {"votes": self.has("votes_a") | self.has("votes_b"), "grade": self.has("grade")}
        for name, given in has.items():
            problem, hint = f"some rows have '{name}' and others do not", "Give them in every row or in none"
            self.add(given != given[0], "missing-value", problem, hint, name)
        has["preferred"] = self.has("preferred")
        chosen = frame["preferred"] if has["preferred"].any() else [None] * len(frame)
        choices = [_CHOICES.get(cell.strip().lower()) if isinstance(cell, str) else None for cell in chosen]
        said = {"preferred": np.array(choices, dtype=np.float64)}  # direction by each of the three, NaN for none
        wrong = np.isnan(said["preferred"]) & has["preferred"]
        self.add(wrong, "wrong-value", "'preferred' is not a, b or tie", "Give a, b or tie", "preferred")
        if has["grade"].any():
            grade = self.numbers_of("grade", limit=_LARGEST_GRADE)
            frame["grade"], said["grade"] = np.nan_to_num(grade), np.sign(grade)
        if has["votes"].any():
            for name in ("votes_a", "votes_b"):
                problem = f"'{name}' is missing beside the other votes"
                self.add(has["votes"] & ~self.has(name), "wrong-type", problem, "Write a count", name)
                frame[name] = np.nan_to_num(self.numbers_of(name, "count", 2**53)) if name in frame else 0.0
            votes_a, votes_b = frame["votes_a"].to_numpy(float), frame["votes_b"].to_numpy(float)
            said["votes"] = np.where(has["votes"], np.sign(votes_a - votes_b), np.nan)
            zero = has["votes"] & (votes_a + votes_b == 0)
            self.add(zero, "missing-value", "has 0 votes", "Remove the row", "votes")
        for first, other in itertools.combinations(said, 2):
            against = np.isfinite(said[first]) & np.isfinite(said[other]) & (said[first] != said[other])
            self.add(against, "mismatch", f"'{first}' contradicts '{other}'", "Correct or omit one of them", first)
        none = ~np.any(list(has.values()), axis=0)
        hint = "Give a, b or tie, or votes_a and votes_b, or a grade"
        self.add(none, "missing-value", "has no 'preferred'", hint, "preferred")
        return pd.DataFrame(said, index=frame.index).bfill(axis=1).iloc[:, 0].fillna(0).astype(np.int64)


def _cleaned(cell: Any, *, caption: bool) -> tuple[str, str]:
    """The text of a cell, and what is wrong with it; other texts than captions may be whole numbers, of one line."""
    if cell is None or (isinstance(cell, int) and not isinstance(cell, bool) and not caption):
        return "" if cell is None else str(cell), ""
    if not isinstance(cell, str):
        return "", _NO_TEXT
    text, unfit = plain_text(cell)
    unfit = unfit or ("" if caption or text == cell.strip() else "a line break or a tab")
    return ("", f"contains {unfit}") if unfit else (text, "")


def _hashable(cells: list[Any]) -> list[Any]:
    """The cells, with the JSON of each list or object instead of it."""
    try:
        set(cells)
    except TypeError:
        return [(json.dumps(cell),) if isinstance(cell, list | dict) else cell for cell in cells]
    return cells
