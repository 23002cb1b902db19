"""Errors: their codes, their line, and how they cross a process border."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import capbench
from capbench.core import errors
from capbench.core.errors import ERROR_CODES, CapbenchError

CLASSES = {name: value for name, value in vars(errors).items() if name.endswith("Error") and name[0].isalpha()}


def raised() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the package that makes an error, with its place."""
    folder = Path(capbench.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                yield f"{path.relative_to(folder)}:{node.lineno}", node


def test_codes_are_declared() -> None:
    codes = {
        (place, keyword.value.value)
        for place, call in raised()
        for keyword in call.keywords
        if keyword.arg == "code" and isinstance(keyword.value, ast.Constant)
    }
    assert {(place, code) for place, code in codes if code not in ERROR_CODES} == set()
    assert {kind.default_code for kind in CLASSES.values()} <= set(ERROR_CODES)


@pytest.mark.parametrize("kind", CLASSES.values(), ids=list(CLASSES))
def test_an_error_keeps_its_parts_when_pickled(kind: type[CapbenchError]) -> None:
    error = kind("bad", code="duplicate", value="x", path="f.csv", row=3, hint="Remove it")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert str(copy) == "f.csv, row 3: bad. Remove it."
