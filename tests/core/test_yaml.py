from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import StudyError
from capbench.core.yaml import parse_value, read_yaml
from tests.errors import raises


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 0.0005),
        ("-2.e1", -20.0),
        ("12", 12),
        ("1e", "1e"),
        ("e5", "e5"),
        ("2024-01-31", "2024-01-31"),
        ('"a \\\\ b \\" ü"', 'a \\ b " ü'),
    ],
)
def test_values_are_what_they_look_like(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "code", "row"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate", 3),
        ("a:\n\tb: 1\n", "wrong-format", 2),
        ("a: 1\n---\na: 2\n", "wrong-format", 2),
        ("a: !!python/object/apply:os.getcwd []\n", "wrong-format", 1),
        ("a: !!bool z\n", "wrong-format", None),
        ("", "wrong-type", None),
    ],
)
def test_ambiguous_or_invalid_settings_are_rejected_with_their_row(
    tmp_path: Path, text: str, code: str, row: int | None
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with raises(StudyError, code, path=path, row=row):
        read_yaml(path, "a study (a mapping)")
