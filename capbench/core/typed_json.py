"""Typed JSON and YAML files: the base class of their models, and the error of a file that does not match."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from capbench.core.errors import CapbenchError, DataError
from capbench.core.files import read_json

if TYPE_CHECKING:
    import pandas as pd

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """Immutable; rejects unknown keys, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Tidy(Strict):
    """A result whose numbers are plain records, one for each row of a tidy table."""

    def rows(self) -> list[dict[str, Any]]:
        """The records."""
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        """The records as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def validated(
    model: type[M],
    raw: object,
    path: str | os.PathLike[str],
    *,
    error: type[CapbenchError] = DataError,
    code: str | None = None,
    hint: str | None = None,
) -> M:
    """The content of a file as a model. Raises ``error``, which names the first key with a wrong value."""
    try:
        return model.model_validate(raw)
    except ValidationError as invalid:
        first, number = invalid.errors()[0], invalid.error_count()
        place = ".".join(str(key) for key in first["loc"])
        message = first["msg"].removeprefix("Value error, ") + (f" ({number} problems)" if number > 1 else "")
        message = f"{place}: {message}" if place else message
        raise error(message, code=code, value=place, path=path, hint=hint) from invalid


def check_version(version: int, read: int, path: str | os.PathLike[str]) -> None:
    """Raise DataError if a file has another schema version than the one that this capbench reads."""
    if version != read:
        message = f"has schema {version}; this version reads schema {read}"
        hint = "Update capbench" if version > read else "Write the file again with the command that wrote it"
        raise DataError(message, code="wrong-version", value=version, path=path, hint=hint)


def read_versioned(model: type[M], path: str | os.PathLike[str], version: int, what: str, hint: str) -> M:
    """A JSON file with a ``schema_version`` as a model. Raises DataError for another format or version."""
    raw = read_json(path)
    found = raw.get("schema_version") if isinstance(raw, dict) else None
    if not isinstance(found, int) or found < 1:
        message = f"is not {what} ('schema_version' is missing)"
        raise DataError(message, code="wrong-format", path=path, hint=hint)
    check_version(found, version, path)
    return validated(model, raw, path, code="wrong-format", hint=hint)
