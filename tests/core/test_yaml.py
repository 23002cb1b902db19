from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import capbench
from capbench.core.errors import DataError, StudyError
from capbench.core.yaml import parse_own, parse_value, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 0.0005),
        ("1E+3", 1000.0),
        ("-2.e1", -20.0),
        ("1.5", 1.5),
        ("12", 12),
        ("true", True),
        ("null", None),
        ("1e", "1e"),
        ("e5", "e5"),
        ("2020-13-45", "2020-13-45"),
        ("2024-01-31", "2024-01-31"),
        ('"a \\\\ b \\" ü"', 'a \\ b " ü'),
    ],
)
def test_values_are_what_they_look_like(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["[1", "a: b: c", "[" * 5000, "!!python/object/apply:os.getcwd []", '!!int ""', "!!bool z"]
)
def test_a_value_that_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # PyYAML's own words
        parse_value(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nb: 2\na: 3\n", "row 3: the key 'a' stands twice in one mapping. Keep one of the two"),
        ("a:\n  b: 1\n  b: 2\n", "row 3: the key 'b' stands twice"),
        ("a: {b: 1, b: 2}\n", "row 1: the key 'b' stands twice"),
        ("a:\n\tb: 1\n", r"row 2: .*Indent with spaces"),
        ("a: 1\n---\na: 2\n", "row 2: a second document begins here"),
        ("a: [1\n", "is not YAML"),
        ("a: !!python/object/apply:os.getcwd []\n", "row 1: is not YAML"),
        ("? [a, b]\n: 1\n", "row 1: is not YAML"),
        ("a: " + "9" * 5000, "row 1: is not YAML: '9+' is no !!int"),
        ("a: 1\nb: " + "1:" * 3000 + "1", "row 2: is not YAML: .* is too large a number"),
        ('a: 1\nb: !!int ""\n', "row 2: is not YAML: '' is no !!int"),
        ("a: !!bool z\n", "row 1: is not YAML: 'z' is no !!bool"),
        ("a: !!float x\n", "row 1: is not YAML: 'x' is no !!float"),
        ("a: !!set {b}\n", "row 1: is not YAML: could not determine a constructor"),
        ("a: !!timestamp 2001-01-01\n", "row 1: is not YAML: could not determine a constructor"),
        ('{!!int "": 1}\n', "row 1: is not YAML: '' is no !!int"),
        ("a: 1\nb: &own [*own]\n", "row 2: is not YAML: found unconstructable recursive node"),
        ('a: "composite/\\ud800"\n', r"row 1: is not YAML: 'composite/\\ud800' holds half of a surrogate pair"),
        ('a: "\\U00110000"\n', "is not YAML"),
        ("a: " + "[" * 5000, "is nested too deeply"),
        ("- a\n", "holds no study: a mapping is wanted"),
        ("", "holds no study: a mapping is wanted"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_row(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError, match=why):
        read_yaml(path, "study: a mapping")


def test_a_key_may_replace_what_was_merged_in(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\n", encoding="utf-8")
    assert read_yaml(path, "study")["b"] == {"x": 1, "y": 3}


def test_data_in_place_of_settings_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text('{"images": [' + "1, " * 500_000 + "1]}", encoding="utf-8")
    with pytest.raises(StudyError, match=r"holds no study: a mapping is wanted, not 1\.5 MB"):
        read_yaml(path, "study: a mapping")


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_yaml(tmp_path / "no.yaml", "study: a mapping")


def test_files_that_come_with_capbench_read_the_same_with_and_without_libyaml() -> None:
    package = Path(capbench.__file__).parent
    files = [
        *package.rglob("datasets/catalog.yaml"),
        *package.rglob("published/*.yaml"),
        *package.rglob("registry.yaml"),
    ]
    assert len(files) > 5
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert parse_own(text) == yaml.load(text, yaml.SafeLoader), path.name
