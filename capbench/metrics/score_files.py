"""Reading of score files. :mod:`capbench.metrics.score_joining` joins their scores to items.

Formats that are read:

- Rows of any form that :mod:`capbench.datasets.tables` reads, one for each caption: ``id``, or ``candidate_id``, or
  ``image`` and ``caption``; every other numeric column is a metric.
- The long schema of ``capbench score --out`` (:data:`COLUMNS`).
- JSON with ``per_item``: id → metric → value, the format of CaptionEvalKit.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core.errors import DataError, UsageError, check_choice
from capbench.core.files import sha256_file
from capbench.core.records import FloatArray
from capbench.datasets.tables import SUFFIXES, Table, read_table

COLUMNS = ("dataset", "image", "candidate_id", "candidate", "references", "metric", "column", "value", "signature")
"""The long schema. ``references`` is the hash of the item's references; ``value`` is a number, the rest is text."""


_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "item_id"),
    "image": ("image", "image_id", "imgid", "image_path", "img", "filename"),
    "caption": ("caption", "candidate", "mt", "prediction", "hypothesis"),
    "candidate_id": ("candidate_id",),
    "references_hash": ("references_hash",),
}  # Identifiers of a row, each with its accepted column names; the first that a file has is used
_NO_SCORES = (
    *("", "index", "Unnamed: 0", "__index_level_0__"),
    *("references", "system", "dataset", "group", "split", "label"),
)
"""Columns that are not metrics although they may be numeric: a data frame's index and descriptions of the row
(``label``: which caption of a pair is the wrong one). The option ``columns`` overrides this."""

_LARGEST = 1e150  # Largest absolute score, whose square can be summed


@dataclass(frozen=True, eq=False)
class ScoreFile:
    """Content of a score file, read by :func:`read_score_file`."""

    path: Path  # the file
    digest: str  # the first sixteen digits of its SHA-256
    # identifiers of the n rows: lists under ``id``, ``image``, ``caption``, ``candidate_id`` and ``references_hash``,
    # as far as the file has them
    names: Mapping[str, Sequence[str]]
    columns: Mapping[str, FloatArray]  # (n) scores by column; NaN if a row has none
    ignored: tuple[str, ...]  # columns that are not numeric
    # position of each row, a number or a few words; the first row's number if they are consecutive
    places: Sequence[int | str] | int
    datasets: tuple[str, ...] = ()  # names of data sets in the file, if any
    signatures: Mapping[str, str] | None = None  # by column, the signature in the file, if any
    label: str = "NAME"  # the owner of the file's options; ``""`` if the user cannot set any

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def option(self, name: str, value: str) -> str:
        """The flag that sets an option of the file: ``--option mine.columns=judge``."""
        return f"--option {shlex.quote(f'{self.label}.{name}={value}')}"

    def place(self, row: int) -> int | str:
        """Position in the file of a row (counted from 0), for messages."""
        return self.places + row if isinstance(self.places, int) else self.places[row]

    def error(self, code: str, row: int, message: str, hint: str, value: object = None) -> DataError:
        """The error of a row (counted from 0)."""
        return DataError(message, code=code, value=value, path=self.path, row=self.place(row), hint=hint)


def read_score_file(path: str | Path, columns: Sequence[str] = (), label: str = "NAME") -> ScoreFile:
    """Read a score file; ``columns``: those to use, default: every numeric one; ``label``: for messages."""
    path = Path(path)
    ending = "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
    if ending not in SUFFIXES:
        message = f"'{path}': scores cannot be read from '{ending}' files"
        raise UsageError(message, code="wrong-format", value=ending, hint=f"Use {', '.join(SUFFIXES)}")
    table = read_table(path)
    file = ScoreFile(path, sha256_file(path)[:16], {}, {}, (), table.numbers, label=label)
    read = _of_long if all(column in table.columns for column in COLUMNS) else _of_captions
    return read(file, table, columns)


def _of_captions(file: ScoreFile, table: Table, wanted: Sequence[str]) -> ScoreFile:
    """Scores from a file with a row for each caption."""
    cells = table.columns
    chosen = {kind: next((name for name in aliases if name in cells), None) for kind, aliases in _NAMES.items()}
    if not (chosen["id"] or chosen["candidate_id"] or (chosen["image"] and chosen["caption"])):
        problem = f"has no columns that identify captions; its columns are {', '.join(map(repr, cells)) or 'none'}"
        hint = "Add 'id' (from 'capbench data items'), 'candidate_id', or 'image' and 'caption'"
        raise DataError(problem, code="missing-column", path=file.path, hint=hint)
    names = {kind: _texts(file, name, cells[name], kind) for kind, name in chosen.items() if name is not None}
    used = {name for aliases in _NAMES.values() for name in aliases}
    others = {name: values for name, values in cells.items() if name not in used}
    for name in wanted:
        check_choice("column", name, others, code="missing-column", path=file.path)
    candidates = wanted or [name for name in others if name not in _NO_SCORES]
    read = {name: _numbers(table, name, others[name]) for name in candidates}
    numeric = {name: (values, wrong) for name, (values, wrong) in read.items() if wanted or not np.isnan(values).all()}
    sound = [name for name, (_, wrong) in numeric.items() if wrong is None]
    for name, (_, wrong) in numeric.items():
        if wrong is not None:
            hint = f"Write a finite number of at most {_LARGEST:g} in every row, or leave the cell empty"
            if sound and not wanted and file.label:
                hint += f"; if '{name}' is not a metric, select the metrics: {file.option('columns', ','.join(sound))}"
            value = others[name][wrong]
            raise file.error("not-a-number", wrong, f"'{name}' is not a finite number: {value!r:.40}", hint, value)
    ignored = tuple(name for name in others if name and name not in numeric)
    if not numeric or all(np.isnan(values).all() for values, _ in numeric.values()):
        hint = "Add a column of numbers for each metric"
        hint += f"; not numeric: {', '.join(ignored)}" if ignored else ""
        raise DataError("has no numeric column", code="missing-scores", path=file.path, hint=hint)
    columns = {name: values for name, (values, _) in numeric.items()}
    return replace(file, names=names, columns=columns, ignored=ignored)


def _texts(file: ScoreFile, name: str, cells: Sequence[Any], kind: str) -> list[str]:
    """The identifiers in a column; ids and images are often numbers."""
    texts = []
    for row, value in enumerate(cells):
        if isinstance(value, int) and not isinstance(value, bool) and kind != "caption":
            value = str(value)
        if not isinstance(value, str):
            hint = f"Fill in '{name}' in every row"
            if value is None:
                raise file.error("missing-value", row, f"'{name}' is empty", hint, name)
            raise file.error("wrong-type", row, f"'{name}' is not a text ({value!r:.40})", hint, value)
        texts.append(value)
    return texts


def _numbers(table: Table, name: str, cells: Sequence[Any]) -> tuple[FloatArray, int | None]:
    """Cells as numbers, NaN for empty and invalid ones; and the index of the first invalid or too large one, if any."""
    read = replace(table, decimals=table.decimals or ".").values(name, cells)  # numbers in JSON may be texts
    numbers = np.array(read, dtype=np.float64)
    suspects = np.flatnonzero(~(np.abs(numbers) <= _LARGEST)).tolist()
    return numbers, next((row for row in suspects if cells[row] is not None), None)


def _of_long(file: ScoreFile, table: Table, wanted: Sequence[str]) -> ScoreFile:
    """Scores from a file in the long schema."""
    values, _ = _numbers(table, "value", table.columns["value"])
    texts = {name: ["" if cell is None else str(cell) for cell in table.columns[name]] for name in COLUMNS}
    metrics_of: dict[str, set[str]] = {}
    for metric, column in zip(texts["metric"], texts["column"], strict=True):
        metrics_of.setdefault(column, set()).add(metric)
    identities = list(zip(*(texts[name] for name in COLUMNS[:5]), strict=True))
    first = {identity: row for row, identity in reversed(list(enumerate(identities)))}
    places = {identity: place for place, identity in enumerate(dict.fromkeys(identities))}
    columns: dict[str, FloatArray] = {}
    signatures: dict[str, str] = {}
    hint = "Write one score of a caption under one signature to a file; score it again"
    for row, identity in enumerate(identities):
        column, place = texts["column"][row], places[identity]
        name = column if len(metrics_of[column]) == 1 else f"{texts['metric'][row]}.{column}"
        scores = columns.setdefault(name, np.full(len(places), np.nan))
        signature, caption, value = texts["signature"][row], texts["candidate"][row], table.columns["value"][row]
        if not abs(values[row]) <= _LARGEST:
            raise file.error("not-a-number", row, f"the value {value!r:.40} is not a finite number", hint, value)
        if signatures.setdefault(name, signature) != signature:
            raise file.error("mismatch", row, f"'{name}' has another signature than in earlier rows", hint, name)
        if not np.isnan(scores[place]):
            raise file.error("duplicate", row, f"a second score of {name} for the same caption", hint, caption)
        scores[place] = values[row]
    for name in wanted:
        check_choice("column", name, columns, code="missing-column", path=file.path)
    taken = {name: scores for name, scores in columns.items() if not wanted or name in wanted}
    rows = [first[identity] for identity in places]
    return replace(
        file,
        names={
            "image": [texts["image"][row] for row in rows],
            "caption": [texts["candidate"][row] for row in rows],
            "references_hash": [texts["references"][row] for row in rows],
        },
        columns=taken,
        ignored=tuple(name for name in columns if name not in taken),
        places=[file.place(row) for row in rows],
        datasets=tuple(dict.fromkeys(texts["dataset"])),
        signatures=signatures,
    )
