"""The one way in for rows: tables, spreadsheets, Parquet, JSON and JSON Lines as rows of cells.

A blank cell counts as missing, and a row without any cell is nothing. Cells of tables are texts; those of other files
keep their types. Numbers of tables separated by semicolons or tabs may have decimal commas.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from capbench.core import files
from capbench.core.errors import DataError, require

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
"""Endings of the files that :func:`read_table` reads; others (``.txt``) are read as tables separated by tabs."""
OTHER_SPREADSHEETS = (".xls", ".ods")
_WORDS = {"\t": "tabs", ",": "commas", ";": "semicolons"}
_NUMBER = re.compile(r"[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?", re.ASCII)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_UNFIT = re.compile("[\x00-\x1f\ud800-\udfff]")
_BLANKS = str.maketrans("\t\n\r", "   ")
Number = int | str  # the place of a row in its file: the number of its first line, from 1, or a few words


@dataclass(frozen=True)
class Table:
    """The rows of a file."""

    path: Path
    numbers: list[Number]  # the place of each row
    columns: dict[str, list[Any]]  # the cells of each column, in the order of the file; None where one is missing
    decimals: str = ""  # the decimal marks of numbers written as text; ``""`` if the cells have types
    blank: int = 0  # number of rows with delimiters only, which are left out

    def frame(self) -> pd.DataFrame:
        """All cells; the index has the places of the rows."""
        import pandas as pd

        return pd.DataFrame(self.columns, index=pd.Index(self.numbers, dtype=object), dtype=object)

    def records(self) -> Iterator[dict[str, Any]]:
        """The cells of each row by column, without missing ones."""
        for cells in zip(*self.columns.values(), strict=True) if self.columns else [()] * len(self.numbers):
            yield {name: cell for name, cell in zip(self.columns, cells, strict=True) if cell is not None}

    def parsed(self, cell: Any) -> Any:
        """The JSON in a cell of a table of texts; other cells unchanged."""
        if isinstance(cell, str) and self.decimals:
            with contextlib.suppress(ValueError):
                return json.loads(cell)
        return cell

    def values(self, name: str, cells: Iterable[Any]) -> list[float | None]:
        """Cells of a column as numbers, None where a cell is not a finite number."""
        cells = list(cells)
        if not self.decimals:
            return [_finite(cell) for cell in cells]
        with contextlib.suppress(TypeError, ValueError):  # fast path: a finite number in every row
            numbers = [float(cell) for cell in cells]
            if all(map(math.isfinite, numbers)) and not any(
                cell is True or (isinstance(cell, str) and "_" in cell) for cell in cells
            ):
                return list(numbers)
        given = [text if isinstance(cell, str) and _NUMBER.fullmatch(text := cell.strip()) else "" for cell in cells]
        if "," in self.decimals and any("," in text for text in given):
            if any("." in text for text in given):
                problem, hint = f"'{name}' has decimal commas and decimal points", "Write all its numbers in one form"
                raise DataError(problem, code="ambiguous", value=name, path=self.path, hint=hint)
            given = [text.replace(",", ".") for text in given]
        given = ["" if "," in text else text for text in given]
        return [_finite(float(text) if text else cell) for text, cell in zip(given, cells, strict=True)]


def _finite(cell: object) -> float | None:
    if isinstance(cell, bool) or not isinstance(cell, int | float) or not abs(cell) < 1e300:
        return None
    return float(cell)


def plain_text(text: str) -> tuple[str, str]:
    """A user's caption without surrounding white space, and the name of its invalid characters (``""`` for none).

    Line breaks and tabs become spaces; other control characters and unpaired surrogates are invalid.
    """
    text = text.strip()
    if text.isprintable() or not _UNFIT.search(text):
        return text, ""
    text = text.translate(_BLANKS)
    unfit = _UNFIT.search(text)
    if unfit is None:
        return text, ""
    return text, "an unpaired surrogate" if unfit[0] >= "\ud800" else "a control character"


def read_table(path: Path, *, header: Sequence[str] = (), form: str = "", quotes: bool = True, at: str = "") -> Table:
    """Read the rows of a file.

    ``header``: the columns of a table whose first line does not name them; ``form``: the ending of files of this form,
    for a file with another ending; ``quotes``: False for a table in which quotation marks are part of the text; ``at``:
    key of the list or object of rows in a JSON file; default: the whole file, or ``per_item`` (the format of
    CaptionEvalKit). Rows of an object have its keys as ``id``.
    """
    form = form or "".join(path.suffixes[-2:] if path.suffix.lower() == ".gz" else path.suffixes[-1:]).lower()
    if form in (".jsonl", ".ndjson"):
        rows = list(json_lines(path))
    elif form == ".json":
        rows = list(_json_rows(path, at))
    elif form == ".parquet":
        rows = list(_parquet_rows(path))
    else:
        cells, mark = _sheet_cells(path) if form == ".xlsx" else _separated_cells(path, form, quotes)
        given = [row for row in cells if _is_filled(row[1])]
        blank = sum(len(of_row) > 1 for _, of_row in cells) - sum(len(of_row) > 1 for _, of_row in given)
        return Table(path, *_named(path, given, header, mark), "." if mark == "," else ".,", blank)
    if not rows:
        raise _no_rows(path)
    # a column of nulls is none, except in a schema
    named = (name for _, record in rows for name, cell in record.items() if cell is not None or form == ".parquet")
    columns = {name: [filled(record.get(name)) for _, record in rows] for name in dict.fromkeys(named)}
    return Table(path, [number for number, _ in rows], columns)


def _no_rows(path: Path) -> DataError:
    return DataError("contains no rows", code="missing-value", path=path, hint="Add rows, or get the file again")


_Row = tuple[Number, dict[str, Any]]


def _separated_cells(path: Path, form: str, quotes: bool) -> tuple[list[tuple[int, Sequence[str]]], str]:
    """The first line and the cells of each row, and the delimiter."""
    text = files.read_text(path)
    if not text.strip():
        raise DataError("is empty", code="damaged", path=path, hint="Write or download the file again")
    head = text.lstrip().partition("\n")[0]
    mark = max(",;\t", key=head.count) if form.startswith(".csv") else "\t"
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    lines = (match[0] for match in _LINE.finditer(text))  # io.StringIO holds four bytes a character
    reader = csv.reader(lines, delimiter=mark, strict=True, quoting=quoting)
    rows: list[tuple[int, Sequence[str]]] = []
    last = 0
    try:
        for cells in reader:
            # A quoted cell may contain line breaks. The collector of garbage visits lists again and again.
            rows.append((last + 1, tuple(cells)))
            last = reader.line_num
    except csv.Error as error:
        problem = f"is not a well-formed table ({error})"
        raise DataError(
            problem, code="wrong-format", path=path, row=reader.line_num, hint="Check its quotation marks"
        ) from None
    return rows, mark


def _sheet_cells(path: Path) -> tuple[list[tuple[int, Sequence[str]]], str]:
    """The number and the cells of each row of a workbook's first sheet, as texts."""
    require("openpyxl", purpose=str(path))
    import openpyxl

    files.check_readable(path)
    try:
        with open(path, "rb") as stream:
            sheet = openpyxl.load_workbook(stream, read_only=True, data_only=True).worksheets[0]
            cells = sheet.iter_rows(values_only=True)
            rows = [tuple("" if cell is None else str(cell) for cell in of_row) for of_row in cells]
    except Exception as error:  # a damaged file may make openpyxl raise anything
        problem = f"is not a workbook of Excel ({type(error).__name__})"
        raise DataError(problem, code="wrong-format", path=path, hint="Save it again as .xlsx or .csv") from error
    return list(enumerate(rows, 1)), ","


def filled(cell: Any) -> Any:
    """The cell, None for a blank text."""
    return None if isinstance(cell, str) and (not cell or cell.isspace()) else cell


def _is_filled(cells: Sequence[str]) -> bool:
    """True if a cell is not blank; mostly the first one."""
    return bool(cells) and (bool(cells[0].strip()) or any(map(str.strip, cells)))


def _named(
    path: Path, rows: list[tuple[int, Sequence[str]]], header: Sequence[str], mark: str
) -> tuple[list[Number], dict[str, list[Any]]]:
    """The place of each row, and the cells by column."""
    if len(rows) < (1 if header else 2):
        raise _no_rows(path)
    names = list(header) or [name.strip() for name in rows.pop(0)[1]]
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        problem = f"the column '{twice[0]}' occurs twice"
        raise DataError(problem, code="duplicate", value=twice[0], path=path, row=1, hint="Rename or remove one")
    for number, cells in rows:
        if len(cells) != len(names):
            hint = f"Its columns are {', '.join(names)}, separated by {_WORDS[mark]}; quote text with that mark"
            problem = f"has {len(cells)} cells, not {len(names)}"
            raise DataError(problem, code="wrong-format", value=len(cells), path=path, row=number, hint=hint)
    columns = zip(*(cells for _, cells in rows), strict=True)
    filled = ([None if not cell or cell.isspace() else cell for cell in column] for column in columns)
    return [number for number, _ in rows], dict(zip(names, filled, strict=True))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key '{next(key for key in keys if keys.count(key) > 1)}' occurs twice")
    return record


def json_lines(path: Path) -> Iterator[tuple[Number, dict[str, Any]]]:
    """The place and the cells of each line of JSON."""
    decode = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_unique).decode
    hint = "Every line must be one JSON object: {…}"
    for number, line in enumerate(files.read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = decode(line)
        except ValueError as error:
            problem = f"is not JSON ({error})"
            raise DataError(problem, code="wrong-format", path=path, row=number, hint=hint) from None
        if not isinstance(record, dict):
            raise DataError("is not a JSON object", code="wrong-type", path=path, row=number, hint=hint)
        yield number, record


def _json_rows(path: Path, at: str) -> Iterator[_Row]:
    """Entries of a list, or of an object, whose keys become the cell ``id``."""
    data = files.read_json(path, unique_keys=True)
    scores = isinstance(data, dict) and isinstance(data.get("per_item"), dict)
    if scores:
        data = {key: v if isinstance(v, dict) else {"score": v} for key, v in data["per_item"].items()}
    elif at:
        data = data.get(at) if isinstance(data, dict) else None
    if not isinstance(data, dict | list):
        problem = f"contains no list '{at}'" if at else "is neither a list nor an object of rows"
        raise DataError(problem, code="missing-key" if at else "wrong-format", value=at or None, path=path,
                        hint="Download the file again, or check that it is the right one")  # fmt: skip
    if isinstance(data, list):
        entries: Iterable[tuple[str, dict[str, str], Any]] = (
            (f"{at.removesuffix('s') or 'entry'} {number}", {}, entry) for number, entry in enumerate(data, 1)
        )
    else:
        entries = ((f"entry '{key}'", {"id": key}, entry) for key, entry in data.items())
    for place, key, entry in entries:
        if not isinstance(entry, dict) or (key and "id" in entry):
            problem = "has a field 'id' beside its name" if isinstance(entry, dict) else "is not a JSON object"
            raise DataError(problem, code="wrong-type", path=path, row=place, hint="Every entry must be an object: {…}")
        yield place, key | entry


def _parquet_rows(path: Path) -> Iterator[_Row]:
    """Rows of a Parquet file without its columns of bytes, such as images; ``image.path`` is a field of ``image``."""
    require("pyarrow", purpose=str(path))
    import pyarrow.parquet as pq

    files.check_readable(path)
    try:
        with pq.ParquetFile(path) as file:
            leaves = [file.schema.column(place) for place in range(len(file.schema))]
            read = [it.path for it in leaves if (it.physical_type, it.logical_type.type) != ("BYTE_ARRAY", "NONE")]
            number = 0
            for batch in file.iter_batches(columns=read):
                for record in batch.to_pylist():
                    number += 1
                    yield number, dict(_flat(record))
    except DataError:
        raise
    except Exception as error:  # a damaged file may make pyarrow raise anything
        problem = f"is not a Parquet file ({error})"
        raise DataError(problem, code="wrong-format", path=path, hint="Write or download it again") from error


def _flat(record: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", float(value) if isinstance(value, Decimal) else value
