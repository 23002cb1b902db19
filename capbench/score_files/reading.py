"""Reads scores that were computed elsewhere: a number for a caption, in the forms in which people keep them.

- A table (``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``, or a JSON list of objects) with a row for each caption: ``id``,
  or ``candidate_id``, or ``image`` and ``caption``; every further column of numbers is a metric.
- The long schema in which ``capbench score --out`` writes (:data:`capbench.score_files.writing.COLUMNS`).
- JSON with ``per_item``: id → metric → value, as CaptionEvalKit writes it.

Nothing is joined here; :mod:`capbench.score_files.joining` does that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capbench.errors import DataError, UsageError, suggest
from capbench.files import sha256_file
from capbench.records import FloatArray
from capbench.score_files.forms import ENDINGS, Cells, Places, read_cells
from capbench.score_files.writing import COLUMNS

__all__ = ["ENDINGS", "ScoreFile", "read_score_file"]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "item_id"),
    "image": ("image", "image_id", "imgid", "image_path", "img", "filename"),
    "caption": ("caption", "candidate", "mt", "prediction", "hypothesis"),
    "candidate_id": ("candidate_id",),
    "references_hash": ("references_hash",),
}
"""What names a row, under the names that such columns go by; the first that a file has counts."""
_NO_SCORES = ("", "index", "Unnamed: 0", "__index_level_0__", "references", "system", "dataset", "group", "split")
"""Columns that are no metric though they may hold numbers: a data frame's index, and what describes the row."""

_LARGEST = 1e150
"""What can be squared and added up; a larger number is no score."""


@dataclass(frozen=True, eq=False)
class ScoreFile:
    """Scores of one file, not joined to anything yet. Made by :func:`read_score_file`.

    Attributes:
        path: the file.
        digest: the first sixteen digits of its SHA-256.
        names: what names the n rows: lists under ``id``, ``image``, ``caption``, ``candidate_id`` and
            ``references_hash``, as far as the file has them.
        columns: (n) scores by column; NaN where a row has none.
        ignored: columns that hold no numbers.
        places: where each row stands (a number, or a few words); a number for the first row if they stand in order.
        datasets: the data sets that the file names, if it does.
        signatures: by column, the signature that the file names, if it does.
    """

    path: Path
    digest: str
    names: Mapping[str, Sequence[str]]
    columns: Mapping[str, FloatArray]
    ignored: tuple[str, ...]
    places: Places
    datasets: tuple[str, ...] = ()
    signatures: Mapping[str, str] | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int) -> int | str:
        """Where a row (counted from 0) stands in the file, for messages."""
        return self.places + row if isinstance(self.places, int) else self.places[row]


def read_score_file(path: str | Path, columns: Sequence[str] = ()) -> ScoreFile:
    """Read a file of scores in one of the forms above.

    Args:
        path: the file.
        columns: the columns to take; default: every column of numbers.

    Raises:
        UsageError: another ending, or there is no such column.
        MissingFileError: there is no such file.
        DataError: it is not of these forms, a row is not named, or a cell of a column of scores is no finite number.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        hint = f"Scores are read from {', '.join(ENDINGS)}"
        raise UsageError(f"'{path}': no file of scores by its ending '{ending}'", hint=hint)
    cells, places = read_cells(path)
    digest = sha256_file(path)[:16]
    if all(column in cells for column in COLUMNS):
        return _from_long(path, digest, cells, places, columns)
    names = _row_names(path, cells, places)
    used = {used for aliases in _NAMES.values() for used in aliases if used in cells}
    taken, ignored = _scores(path, {k: v for k, v in cells.items() if k not in used}, places, columns)
    return ScoreFile(path, digest, names, taken, ignored, places)


def _place(places: Places, row: int) -> int | str:
    return places + row if isinstance(places, int) else places[row]


def _row_names(path: Path, cells: Cells, places: Places) -> dict[str, list[str]]:
    """The columns that name rows, as texts, each checked to name every row."""
    chosen = {kind: next((name for name in aliases if name in cells), None) for kind, aliases in _NAMES.items()}
    ids, image, caption, candidate_id = (chosen[kind] for kind in ("id", "image", "caption", "candidate_id"))
    if not (ids or candidate_id or (image and caption)):
        has = ", ".join(repr(name) for name in cells) or "none"
        raise DataError(
            f"does not say which captions its scores are of: it has the columns {has}",
            path=path,
            hint="Give 'id' (as 'capbench items' writes it), 'candidate_id', or 'image' and 'caption'",
        )
    names: dict[str, list[str]] = {}
    for kind, name in chosen.items():
        if name is None:
            continue
        if _are_texts(cells[name]):
            names[kind] = list(cells[name])
            continue
        texts: list[str] = []
        for row, value in enumerate(cells[name]):
            if isinstance(value, int) and not isinstance(value, bool) and kind != "caption":
                value = str(value)  # ids and images are often numbers
            if not isinstance(value, str) or not value.strip():
                what = "is empty" if value in (None, "") or isinstance(value, str) else f"is no text ({value!r:.40})"
                raise DataError(
                    f"'{name}' {what}",
                    path=path,
                    row=_place(places, row),
                    hint=f"Every row names its caption: fill in '{name}'",
                )
            texts.append(value)
        names[kind] = texts
    return names


def _are_texts(values: Sequence[Any]) -> bool:
    """Whether all cells are texts that hold something; a million of them are looked through in no time."""
    try:
        return all(map(str.strip, values))
    except TypeError:
        return False


def _scores(
    path: Path, cells: Cells, places: Places, wanted: Sequence[str]
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """The columns of scores, and those that are none."""
    for name in wanted:
        if name not in cells:
            raise UsageError(f"{path} has no column '{name}'", hint=suggest(name, list(cells)))
    taken: dict[str, FloatArray] = {}
    ignored: list[str] = []
    for name, values in cells.items():
        if (wanted and name not in wanted) or (not wanted and name in _NO_SCORES):
            ignored.append(name)
            continue
        numbers, wrong = _numbers(values)
        if wrong is None and not np.isnan(numbers).all():
            taken[name] = numbers
        elif not wanted and (np.isnan(numbers).all()):
            ignored.append(name)  # texts, every one of them
        else:
            row = 0 if wrong is None else wrong
            others = [other for other in cells if other != name]
            hint = f"Give a finite number of at most {_LARGEST:g} in every row, or leave the cell empty"
            if others and not wanted:
                hint += f"; if '{name}' is no metric, choose those that are with the option 'columns'"
            raise DataError(
                f"'{name}' is no finite number: {values[row]!r:.40}", path=path, row=_place(places, row), hint=hint
            )
    if not taken:
        raise DataError(
            "holds no column of numbers",
            path=path,
            hint="Beside what names the caption a row has a number for each metric"
            + (f"; these columns hold none: {', '.join(ignored)}" if ignored else ""),
        )
    return taken, tuple(name for name in ignored if name)


def _numbers(values: Sequence[Any]) -> tuple[FloatArray, int | None]:
    """Cells as numbers, NaN for empty ones; and the first cell that is none, or is too large, if there is one."""
    try:
        # What most columns are: finite numbers in every row.
        numbers = np.fromiter(map(float, values), dtype=np.float64, count=len(values))
        if (np.abs(numbers) <= _LARGEST).all() and not any(map(_is_odd, values)):
            return numbers, None
    except (TypeError, ValueError, OverflowError):
        pass
    numbers = np.full(len(values), np.nan)
    wrong = None
    for row, value in enumerate(values):
        if value is None or value == "":
            continue
        number = _number(value)
        if number is None or abs(number) > _LARGEST:
            wrong = row if wrong is None else wrong
        if number is not None:
            numbers[row] = number
    return numbers, wrong


def _is_odd(value: Any) -> bool:
    """Whether a cell is a number to Python alone: True, '1_000'."""
    return isinstance(value, bool) or (isinstance(value, str) and "_" in value)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        # '1_000' is a number to Python alone.
        if "_" in value:
            return None
        try:
            number = float(value)
        except ValueError:
            return None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
    else:
        return None
    return number if math.isfinite(number) else None


def _from_long(path: Path, digest: str, cells: Cells, places: Places, wanted: Sequence[str]) -> ScoreFile:
    """capbench's own schema, a row for each caption and column, as a table with a row for each caption."""
    for name in COLUMNS:
        for row, value in enumerate(cells[name]):
            if name != "value" and not isinstance(value, str):
                raise DataError(f"'{name}' is no text ({value!r:.40})", path=path, row=_place(places, row))
    values, wrong = _numbers(cells["value"])
    empty = np.flatnonzero(np.isnan(values))
    if wrong is not None or len(empty):
        row = int(empty[0]) if wrong is None else wrong
        value = cells["value"][row]
        raise DataError(
            f"the value {value!r:.40} is no finite number", path=path, row=_place(places, row), hint="Score it again"
        )
    labels = list(zip(cells["metric"], cells["column"], strict=True))
    metrics_of: dict[str, set[str]] = {}
    for metric, column in labels:
        metrics_of.setdefault(column, set()).add(metric)
    rows: dict[tuple[str, ...], int] = {}
    first: list[int] = []
    columns: dict[str, dict[int, tuple[float, int]]] = {}
    signatures: dict[str, str] = {}
    identity = list(
        zip(*(cells[name] for name in ("dataset", "image", "candidate_id", "candidate", "references")), strict=True)
    )
    for row, (metric, column) in enumerate(labels):
        name = column if len(metrics_of[column]) == 1 else f"{metric}.{column}"
        place = rows.setdefault(identity[row], len(rows))
        if place == len(first):
            first.append(row)
        scores = columns.setdefault(name, {})
        if signatures.setdefault(name, cells["signature"][row]) != cells["signature"][row]:
            raise DataError(
                f"the signature of '{name}' changes",
                path=path,
                row=_place(places, row),
                hint="Scores of one column are computed in one way: keep one file for each",
            )
        if place in scores:
            raise DataError(
                f"a second score of {name} for the same caption ({cells['candidate'][row]!r:.60})",
                path=path,
                row=_place(places, row),
                hint="Keep one of the two",
            )
        scores[place] = (float(values[row]), row)
    for name in wanted:
        if name not in columns:
            raise UsageError(f"{path} has no column '{name}'", hint=suggest(name, list(columns)))
    if not columns:
        raise DataError("holds no scores", path=path, hint="Write it again with 'capbench score --out'")
    taken = {}
    for name, scores in columns.items():
        if wanted and name not in wanted:
            continue
        taken[name] = np.full(len(first), np.nan)
        taken[name][list(scores)] = [value for value, _ in scores.values()]
    return ScoreFile(
        path,
        digest,
        {
            "image": [cells["image"][row] for row in first],
            "caption": [cells["candidate"][row] for row in first],
            "references_hash": [cells["references"][row] for row in first],
        },
        taken,
        tuple(name for name in columns if name not in taken),
        [_place(places, row) for row in first],
        tuple(dict.fromkeys(cells["dataset"])),
        signatures,
    )
