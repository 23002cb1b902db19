"""``raises``: the error that a test expects, by its class, code and place instead of by its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capbench.core.errors import ERROR_CODES, CapbenchError

_ANY = object()


class Caught:
    """The error of a block, after its end."""

    value: CapbenchError


@contextmanager
def raises(
    kind: type[CapbenchError],
    code: str,
    *,
    path: Path | str | object | None = _ANY,
    row: int | str | object | None = _ANY,
    value: object = _ANY,
) -> Iterator[Caught]:
    """Assert that the block raises a ``kind`` with this ``code``, and with the path, row and value that are passed."""
    assert code in ERROR_CODES, f"capbench has no error code {code!r}"
    caught = Caught()
    try:
        yield caught
    except kind as error:
        # Without its traceback, which would keep the block's open files alive until the next garbage collection.
        caught.value = error.with_traceback(None)
    else:
        pytest.fail(f"the block raised no {kind.__name__}")
    raised = caught.value
    assert raised.code == code, f"code {raised.code!r}: {raised}"
    expected = {"path": str(path) if isinstance(path, Path) else path, "row": row, "value": value}
    for name, wanted in expected.items():
        if wanted is not _ANY:
            assert getattr(raised, name) == wanted, f"{name} {getattr(raised, name)!r}: {raised}"
