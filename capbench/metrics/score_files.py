"""Reading of score files. :mod:`capbench.metrics.score_joining` joins their scores to items.

Formats that are read:

- A table (``.csv``, ``.csv.gz``, ``.tsv``, ``.jsonl``, ``.parquet``, or a JSON list of objects) with a row for each
  caption: ``id``, or ``candidate_id``, or ``image`` and ``caption``; every other numeric column is a metric.
- The long schema of ``capbench score --out`` (:data:`COLUMNS`).
- JSON with ``per_item``: id → metric → value, the format of CaptionEvalKit.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core.errors import DataError, UsageError, require, suggest
from capbench.core.files import (
    check_readable,
    decode_text,
    read_json,
    read_lines,
    read_text,
    sha256_file,
    unpack_gzip,
)
from capbench.core.records import FloatArray

# Readers of CSV, TSV, JSONL, JSON and Parquet, each of which returns columns of cells.

ENDINGS = (".csv", ".csv.gz", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas"}
Cells = Mapping[str, Sequence[Any]]
Places = Sequence[int | str] | int
"""Positions of rows in the file: one for each, or the first row's number if they are consecutive."""


def read_cells(path: Path) -> tuple[Cells, Places]:
    """The columns of a file with one of the :data:`ENDINGS`, and the positions of its rows.

    Raises:
        MissingFileError: the file does not exist.
        DataError: the file is not in the format of its ending, or has no rows.
    """
    return _READERS[_ending(path)](path)


def _ending(path: Path) -> str:
    """The ending of a file in lower case, with that of the unpacked file."""
    return "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()


def _read_separated(path: Path) -> tuple[Cells, int]:
    """CSV or TSV. Quoted captions may contain line breaks, so a row may span several lines."""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    text = decode_text(unpack_gzip(path), path) if path.suffix.lower() == ".gz" else read_text(path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    try:
        header = next(reader, [])
        if not header:
            raise DataError("is empty", code="missing-value", path=path, hint="Write column names in the first row")
        header = [name.strip() for name in header]  # 'id, clipscore'
        _check_header(path, header)
        if len(header) == 1 and (wrong := next((mark for mark in ";\t," if mark in header[0]), None)):
            raise DataError(
                f"has one column, '{header[0][:60]}': its cells are separated by {_SEPARATORS[wrong]}",
                code="wrong-format",
                value=wrong,
                path=path,
                row=1,
                hint="Save it with commas (.csv), or with tabs (.tsv)",
            )
        rows = list(reader)
    except csv.Error as error:
        raise DataError(
            f"is not valid CSV ({error})",
            code="wrong-format",
            path=path,
            row=reader.line_num,
            hint="Check the quotes of this row",
        ) from error
    while rows and not rows[-1]:
        rows.pop()  # empty lines at the end of the file
    if not rows:
        raise DataError("has no scores", code="missing-scores", path=path, hint="Add rows below the header")
    if set(map(len, rows)) != {len(header)}:
        row, cells = next((row, cells) for row, cells in enumerate(rows) if len(cells) != len(header))
        raise DataError(
            f"has {len(cells)} fields instead of {len(header)}",
            code="wrong-format",
            value=len(cells),
            path=path,
            row=row + 2,
            hint="Quote captions that contain a separator",
        )
    return dict(zip(header, map(list, zip(*rows, strict=True)), strict=True)), 2


def _check_header(path: Path, header: Sequence[str]) -> None:
    repeated = [name for place, name in enumerate(header) if name in header[:place]]
    if repeated:
        message = f"there are two columns '{repeated[0]}'"
        raise DataError(
            message, code="duplicate", value=repeated[0], path=path, row=1, hint="Rename or remove one of them"
        )


def _records(path: Path, records: Iterator[tuple[int | str, Any]]) -> tuple[Cells, list[int | str]]:
    """Columns of objects; a missing key becomes an empty cell."""
    columns: dict[str, list[Any]] = {}
    places: list[int | str] = []
    for place, record in records:
        if not isinstance(record, dict):
            hint = 'Example: {"id": "…", "clipscore": 0.71}'
            raise DataError("is not an object", code="wrong-type", value=record, path=path, row=place, hint=hint)
        for name, value in record.items():
            column = columns.get(name)
            if column is None:
                columns[name] = column = [None] * len(places)
            column.append(value)
        places.append(place)
        for column in columns.values():
            if len(column) < len(places):
                column.append(None)
    if not places:
        raise DataError("has no scores", code="missing-scores", path=path, hint="Write one object per caption")
    return columns, places


def _read_jsonl(path: Path) -> tuple[Cells, Sequence[int | str]]:
    def records() -> Iterator[tuple[int, Any]]:
        decode = json.JSONDecoder(object_pairs_hook=_unique).decode
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            try:
                yield number, decode(line)
            except _RepeatedKeyError as error:
                message, hint = f"the key '{error}' occurs twice", "Remove one of the two"
                raise DataError(message, code="duplicate", value=str(error), path=path, row=number, hint=hint) from None
            except ValueError as error:
                hint = "Write one JSON object per line"
                raise DataError("is not JSON", code="wrong-format", path=path, row=number, hint=hint) from error

    return _records(path, records())


class _RepeatedKeyError(Exception):
    """A key occurs twice in an object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(next(name for place, name in enumerate(names) if name in names[:place]))
    return made


def _read_json(path: Path) -> tuple[Cells, Sequence[int | str]]:
    content = read_json(path, unique_keys=True)
    if isinstance(content, dict) and isinstance(content.get("per_item"), dict):
        return _records(path, _per_item(path, content["per_item"]))
    if isinstance(content, list):
        return _records(path, ((f"entry {number}", record) for number, record in enumerate(content, 1)))
    raise DataError(
        "is neither a list of objects nor an object with 'per_item'",
        code="wrong-format",
        path=path,
        hint='Example: {"per_item": {"ID": {"clipscore": 0.71}}}',
    )


def _per_item(path: Path, items: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, scores in items.items():
        if not isinstance(scores, dict):
            scores = {"score": scores}
        if "id" in scores:
            row = f"item '{name}'"
            raise DataError(
                "has a metric called 'id'", code="duplicate", value="id", path=path, row=row, hint="Rename the metric"
            )
        yield f"item '{name}'", {"id": name, **scores}


def _read_parquet(path: Path) -> tuple[Cells, int]:
    require("pyarrow", purpose=str(path))
    import pyarrow.parquet

    check_readable(path)
    try:
        # pandas would turn empty cells into NaN or NA, and hide a named index.
        with open(path, "rb") as stream:
            file = pyarrow.parquet.ParquetFile(stream)
            header = [str(name) for name in file.schema_arrow.names]
            _check_header(path, header)
            cells = _parquet_cells(file)
            n_rows = file.metadata.num_rows
    except DataError:
        raise
    except Exception as error:  # a damaged file may make pyarrow raise anything
        message = f"is not a valid Parquet file ({error})"
        raise DataError(message, code="wrong-format", path=path, hint="Write it again") from error
    if not n_rows:
        raise DataError("has no scores", code="missing-scores", path=path, hint="Write one row per caption")
    nothing = [None] * n_rows  # lists and structures are neither scores nor names of captions
    return {name: cells.get(name, nothing) for name in header}, 1


def _parquet_cells(file: Any) -> dict[str, list[Any]]:
    """The columns of a Parquet file, without lists and structures."""
    leaves = [file.metadata.schema.column(place) for place in range(len(file.metadata.schema))]
    flat = [leaf.name for leaf in leaves if leaf.path == leaf.name and not leaf.max_repetition_level]
    table = file.read(columns=flat)
    return {name: [_plain(value) for value in table.column(name).to_pylist()] for name in flat}


def _plain(value: Any) -> Any:
    """A decimal number as a float; other values, including None for an empty cell, unchanged."""
    return float(value) if isinstance(value, Decimal) else value


_READERS: Mapping[str, Callable[[Path], tuple[Cells, Places]]] = {
    ".csv": _read_separated,
    ".csv.gz": _read_separated,
    ".tsv": _read_separated,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".parquet": _read_parquet,
}


COLUMNS = ("dataset", "image", "candidate_id", "candidate", "references", "metric", "column", "value", "signature")
"""The long schema. ``references`` is the hash of the item's references; ``value`` is a number, the rest is text."""


_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "item_id"),
    "image": ("image", "image_id", "imgid", "image_path", "img", "filename"),
    "caption": ("caption", "candidate", "mt", "prediction", "hypothesis"),
    "candidate_id": ("candidate_id",),
    "references_hash": ("references_hash",),
}
"""Identifiers of a row, each with its accepted column names; the first that a file has is used."""
_NO_SCORES = (
    *("", "index", "Unnamed: 0", "__index_level_0__"),
    *("references", "system", "dataset", "group", "split", "label"),
)
"""Columns that are not metrics although they may be numeric: a data frame's index and descriptions of the row
(``label``: which caption of a pair is the wrong one). The option ``columns`` overrides this."""

_LARGEST = 1e150
"""Largest absolute score, whose square can be summed."""


@dataclass(frozen=True, eq=False)
class ScoreFile:
    """Content of a score file, read by :func:`read_score_file`.

    Attributes:
        path: the file.
        digest: the first sixteen digits of its SHA-256.
        names: identifiers of the n rows: lists under ``id``, ``image``, ``caption``, ``candidate_id`` and
            ``references_hash``, as far as the file has them.
        columns: (n) scores by column; NaN if a row has none.
        ignored: columns that are not numeric.
        places: position of each row (a number, or a few words); the first row's number if they are consecutive.
        datasets: names of data sets in the file, if any.
        signatures: by column, the signature in the file, if any.
        label: the owner of the file's options.
    """

    path: Path
    digest: str
    names: Mapping[str, Sequence[str]]
    columns: Mapping[str, FloatArray]
    ignored: tuple[str, ...]
    places: Places
    datasets: tuple[str, ...] = ()
    signatures: Mapping[str, str] | None = None
    label: str = "NAME"

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def option(self, name: str, value: str) -> str:
        """The flag that sets an option of the file: ``--option mine.columns=judge``."""
        return f"--option {shlex.quote(f'{self.label}.{name}={value}')}"

    def place(self, row: int) -> int | str:
        """Position in the file of a row (counted from 0), for messages."""
        return self.places + row if isinstance(self.places, int) else self.places[row]


def read_score_file(path: str | Path, columns: Sequence[str] = (), label: str = "NAME") -> ScoreFile:
    """Read a score file in one of the formats of this module.

    Args:
        path: the file.
        columns: the columns to use; default: every numeric column.
        label: the owner of the file's options, for messages.

    Raises:
        UsageError: an unsupported ending or an unknown column.
        MissingFileError: the file does not exist.
        DataError: another format, a row without identifier, or a score that is not a finite number.
    """
    path = Path(path)
    ending = _ending(path)
    if ending not in ENDINGS:
        message = f"'{path}': scores cannot be read from '{ending}' files"
        raise UsageError(message, code="wrong-format", value=ending, hint=f"Use {', '.join(ENDINGS)}")
    cells, places = read_cells(path)
    digest = sha256_file(path)[:16]
    if all(column in cells for column in COLUMNS):
        return replace(_from_long(path, digest, cells, places, columns), label=label)
    names = _row_names(path, cells, places)
    used = {used for aliases in _NAMES.values() for used in aliases if used in cells}
    file = ScoreFile(path, digest, names, {}, (), places, label=label)
    taken, ignored = _scores(file, {k: v for k, v in cells.items() if k not in used}, columns)
    return replace(file, columns=taken, ignored=ignored)


def _place(places: Places, row: int) -> int | str:
    return places + row if isinstance(places, int) else places[row]


def _row_names(path: Path, cells: Cells, places: Places) -> dict[str, list[str]]:
    """The columns with identifiers, as texts; checks that no cell is empty."""
    chosen = {kind: next((name for name in aliases if name in cells), None) for kind, aliases in _NAMES.items()}
    ids, image, caption, candidate_id = (chosen[kind] for kind in ("id", "image", "caption", "candidate_id"))
    if not (ids or candidate_id or (image and caption)):
        has = ", ".join(repr(name) for name in cells) or "none"
        raise DataError(
            f"has no columns that identify captions; its columns are {has}",
            code="missing-column",
            path=path,
            hint="Add 'id' (from 'capbench data items'), 'candidate_id', or 'image' and 'caption'",
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
                is_empty = value is None or isinstance(value, str)
                raise DataError(
                    f"'{name}' is empty" if is_empty else f"'{name}' is not a text ({value!r:.40})",
                    code="missing-value" if is_empty else "wrong-type",
                    value=name if is_empty else value,
                    path=path,
                    row=_place(places, row),
                    hint=f"Fill in '{name}' in every row",
                )
            texts.append(value)
        names[kind] = texts
    return names


def _are_texts(values: Sequence[Any]) -> bool:
    """True if all cells are non-empty texts; fast for a million cells."""
    try:
        return all(map(str.strip, values))
    except TypeError:
        return False


def _scores(file: ScoreFile, cells: Cells, wanted: Sequence[str]) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """The score columns of a file, and its other columns."""
    path = file.path
    for name in wanted:
        if name not in cells:
            raise _unknown_column(path, name, cells)
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
            ignored.append(name)  # all cells are texts
        else:
            row = 0 if wrong is None else wrong
            hint = f"Write a finite number of at most {_LARGEST:g} in every row, or leave the cell empty"
            others = [
                other for other in cells if other not in (name, *_NO_SCORES) and _numbers(cells[other])[1] is None
            ]
            if others and not wanted:
                hint += f"; if '{name}' is not a metric, select the metrics: {file.option('columns', ','.join(others))}"
            raise DataError(
                f"'{name}' is not a finite number: {values[row]!r:.40}",
                code="not-a-number",
                value=values[row],
                path=path,
                row=file.place(row),
                hint=hint,
            )
    if not taken:
        names = ", ".join(filter(None, ignored))
        raise DataError(
            "has no numeric column",
            code="missing-scores",
            path=path,
            hint="Add a column of numbers for each metric" + (f"; not numeric: {names}" if names else ""),
        )
    return taken, tuple(name for name in ignored if name)


def _unknown_column(path: Path, name: str, columns: Mapping[str, object]) -> UsageError:
    message, hint = f"{path} has no column '{name}'", suggest(name, list(columns))
    return UsageError(message, code="missing-column", value=name, hint=hint)


def _numbers(values: Sequence[Any]) -> tuple[FloatArray, int | None]:
    """Cells as numbers, NaN for empty ones; and the index of the first invalid or too large cell, if any."""
    try:
        # Most columns have a finite number in every row.
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
    """True if only Python reads a cell as a number: True, '1_000'."""
    return isinstance(value, bool) or (isinstance(value, str) and "_" in value)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        # Only Python reads '1_000' as a number.
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
    """Scores from a file in the long schema."""
    for name in COLUMNS:
        for row, value in enumerate(cells[name]):
            if name != "value" and not isinstance(value, str):
                message = f"'{name}' is not a text ({value!r:.40})"
                raise DataError(message, code="wrong-type", value=value, path=path, row=_place(places, row))
    values, wrong = _numbers(cells["value"])
    empty = np.flatnonzero(np.isnan(values))
    if wrong is not None or len(empty):
        row = int(empty[0]) if wrong is None else wrong
        value = cells["value"][row]
        raise DataError(
            f"the value {value!r:.40} is not a finite number",
            code="not-a-number",
            value=value,
            path=path,
            row=_place(places, row),
            hint="Score it again",
        )
    metrics_of: dict[str, set[str]] = {}
    for metric, column in zip(cells["metric"], cells["column"], strict=True):
        metrics_of.setdefault(column, set()).add(metric)
    rows: dict[tuple[str, ...], int] = {}
    first: list[int] = []
    columns: dict[str, dict[int, tuple[float, int]]] = {}
    signatures: dict[str, str] = {}
    # Row by row, so that a file of equal rows is rejected at its second row.
    identities = zip(
        *(cells[name] for name in ("dataset", "image", "candidate_id", "candidate", "references")), strict=True
    )
    labels = zip(cells["metric"], cells["column"], strict=True)
    for row, (identity, (metric, column)) in enumerate(zip(identities, labels, strict=True)):
        name = column if len(metrics_of[column]) == 1 else f"{metric}.{column}"
        place = rows.setdefault(identity, len(rows))
        if place == len(first):
            first.append(row)
        scores = columns.setdefault(name, {})
        if signatures.setdefault(name, cells["signature"][row]) != cells["signature"][row]:
            raise DataError(
                f"'{name}' has another signature than in earlier rows",
                code="mismatch",
                value=name,
                path=path,
                row=_place(places, row),
                hint="Write scores with different signatures to separate files",
            )
        if place in scores:
            raise DataError(
                f"a second score of {name} for the same caption ({cells['candidate'][row]!r:.60})",
                code="duplicate",
                value=cells["candidate"][row],
                path=path,
                row=_place(places, row),
                hint="Keep one of the two",
            )
        scores[place] = (float(values[row]), row)
    for name in wanted:
        if name not in columns:
            raise _unknown_column(path, name, columns)
    if not columns:
        message, hint = "has no scores", "Write it again with 'capbench score --out'"
        raise DataError(message, code="missing-scores", path=path, hint=hint)
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
