"""Checks the fields of a user's file of judgements, and collects what is wrong by kind.

How a file becomes rows is the business of :mod:`capbench.datasets.user.tables`, what the fields of a row mean together
that of :mod:`capbench.datasets.user.files`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capbench.errors import DataError, suggest
from capbench.records import image_id

__all__ = ["COMMON", "PAIRED", "RATED", "Check", "ImportProblemsError", "Problem", "plain_text"]

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
            told.append(f"{more} more problem{'s' if more > 1 else ''}: 'capbench data import --json' lists all")
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
        count: how many problems were added.
    """

    count: int = 0
    _with_references: bool = True
    _kinds: dict[str, _Kind] = field(default_factory=dict)
    _file_names: dict[str, str] = field(default_factory=dict)
    _images: dict[str, str] = field(default_factory=dict)
    _references: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

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
                self.add(row, f"lacks '{name}'", "Every row needs it")
            return None if needed else ""
        kind = kind or name
        if not isinstance(value, str):
            self.add(row, f"'{name}' is no text ({_shown(value)})", "Put it in quotes", f"'{kind}' is no text")
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
            self.add(row, "lacks 'references'", hint)
            return None
        if not isinstance(value, list):
            self.add(row, "'references' is no list", 'Write it as ["first caption", "second caption"]')
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
        """A finite number that is no boolean."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # The bound keeps out integers that no float can hold.
        if not number or not abs(value) <= sys.float_info.max:
            kind = f"'{name}' is no finite number"
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
            taken = (
                f"take it for ratings with --rating {key}, " if kind == "ratings" and _is_number(record[key]) else ""
            )
            self.add(row, message, f"{near} Mend the name, {taken}or leave it out with --ignore {key}".strip())


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
