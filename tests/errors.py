"""``raises``: the error that a test expects, by its class, code and place instead of by its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capbench.core.errors import ERROR_CODES, CapbenchError

_ANY = object()


@contextmanager
def raises(
    kind: type[CapbenchError],
    code: str,
    *,
    path: Path | str | object | None = _ANY,
    row: int | str | object | None = _ANY,
    value: object = _ANY,
) -> Iterator[pytest.ExceptionInfo[CapbenchError]]:
    """Assert that the block raises a ``kind`` with this ``code``, and with the path, row and value that are passed."""
    assert code in ERROR_CODES, f"capbench has no error code {code!r}"
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert error.code == code, f"code {error.code!r}: {error}"
    expected = {"path": str(path) if isinstance(path, Path) else path, "row": row, "value": value}
    for name, wanted in expected.items():
        if wanted is not _ANY:
            assert getattr(error, name) == wanted, f"{name} {getattr(error, name)!r}: {error}"
