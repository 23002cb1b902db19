"""Rows of published files as models: one declaration of fields, and one error for all of them."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    SkipValidation,
    StringConstraints,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from capbench.core.errors import ERROR_CODES, DataError
from capbench.core.records import image_id
from capbench.datasets.tables import Number, read_table

HINT = "Correct that row, or download the file again"


class Row(BaseModel):
    """One row; ``path`` and ``row`` are its file and its place there. Other columns are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, populate_by_name=True)
    path: SkipValidation[Path]
    row: SkipValidation[Number]

    def error(self, code: str, message: str, hint: str = HINT, *, value: object = None) -> DataError:
        """The error of this row."""
        return DataError(message, code=code, value=value, path=self.path, row=self.row, hint=hint)

    def references_in(
        self, captions: Mapping[str, tuple[str, ...]], image: str, where: str, hint: str = "Use files of one release"
    ) -> tuple[str, ...]:
        """The captions of an image in those of ``where``. Raises DataError if there are none."""
        if not (texts := captions.get(image)):
            raise self.error("missing-references", f"the image {image} has no captions in {where}", hint, value=image)
        return texts


def wrong(code: str, message: str) -> PydanticCustomError:
    """The error of a validator, with one of :data:`capbench.core.errors.ERROR_CODES`."""
    return PydanticCustomError(code, "{text}", {"text": message})


def _image(name: str) -> str:
    if not (image := image_id(name)):
        raise wrong("missing-image", f"'{name}' names no image")
    return image


def text_list(cell: object) -> object:
    """The list in a cell with JSON or, as pandas writes it, Python syntax; other cells unchanged."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # raised for a caption with a backslash
            return ast.literal_eval(cell.strip())
    except (ValueError, TypeError, SyntaxError):
        return cell


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, pattern="^[^\0\x1f]*$")]
"""A text without surrounding white space, otherwise unchanged."""
Image = Annotated[Text, AfterValidator(_image)]  # an image's id, from its id or file name
M = TypeVar("M", bound=Row)
_CODES = {
    "missing": "missing-key",
    "_short": "missing-value",
    "_equal": "out-of-range",
    "_parsing": "not-a-number",
    "int_type": "not-a-number",
    "from_float": "not-a-number",
    "float_type": "not-a-number",
    "finite_number": "not-a-number",
    "_type": "wrong-type",
    "": "wrong-value",
}  # Ends of pydantic's names of errors; the first that fits


def read_rows(path: Path, model: type[M], unique: Sequence[str] = (), **how: Any) -> list[M]:
    """All rows of a file; rows equal in the fields ``unique`` must be equal, and count once."""
    table = read_table(path, **how)
    for name, field in model.model_fields.items() if table.decimals else ():
        alias = field.validation_alias or name
        accepted = alias.choices if isinstance(alias, AliasChoices) else [alias]
        if (
            name not in Row.model_fields
            and field.is_required()
            and not any(column in table.columns for column in accepted)
        ):
            hint = f"Its columns are {', '.join(table.columns)[:200]}"
            problem = f"has no column '{accepted[0]}'"
            raise DataError(problem, code="missing-column", value=accepted[0], path=path, row=1, hint=hint)
    records = zip(table.numbers, table.records(), strict=True)
    rows = (parsed(model, record, path, number, table.columns) for number, record in records)
    return distinct(rows, unique, path)


def parsed(model: type[M], record: dict[str, Any], path: Path, number: Number, columns: Container[str] = ()) -> M:
    """One row as a model; other rows may have ``columns``. Raises DataError, which names the row and the column."""
    try:
        return model.model_validate({**record, "path": path, "row": number})
    except ValidationError as invalid:
        first = invalid.errors()[0]
        kind, column, cell = first["type"], ".".join(map(str, first["loc"])), first["input"]
        code = kind if kind in ERROR_CODES else next(_CODES[end] for end in _CODES if kind.endswith(end))
        if kind == "missing" and column in columns:
            code = "missing-value"
        message = f"'{column}': {first['msg']}" if column else first["msg"]
        value = cell if isinstance(cell, str | int | float) and kind != "missing" else column or None
        raise DataError(message, code=code, value=value, path=path, row=number, hint=HINT) from None


def distinct(rows: Iterable[M], unique: Sequence[str], path: Path) -> list[M]:
    """The rows without repetitions. Raises DataError for two rows that are equal in ``unique`` and differ otherwise."""
    if not unique:
        return list(rows)
    known: dict[tuple[object, ...], M] = {}
    for row in rows:
        first = known.setdefault(tuple(getattr(row, name) for name in unique), row)
        if first is not row and first.model_copy(update={"row": row.row}) != row:
            place = f"row {first.row}" if isinstance(first.row, int) else first.row
            message = f"{' and '.join(unique)} are those of {place}, with other values"
            raise DataError(message, code="duplicate", path=path, row=row.row, hint="Keep the correct one of the two")
    return list(known.values())
