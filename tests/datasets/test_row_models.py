"""Rows of files as cells, and as models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from capbench.core.errors import DataError
from capbench.datasets.row_models import Image, Row, Text, read_rows, text_list, wrong
from capbench.datasets.tables import read_table
from tests.errors import raises


class Rated(Row):
    image: Image = Field(validation_alias=AliasChoices("img", "file"))
    text: Text
    rating: int = Field(ge=1, le=5)
    references: Annotated[tuple[Text, ...], BeforeValidator(text_list), Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _not_five(self) -> Rated:
        if self.rating == 5:
            raise wrong("mismatch", "nobody gives 5")
        return self


GOOD: dict[str, Any] = {"img": "a/1.jpg", "text": " a kite ", "rating": 4, "references": ["x", "y"]}


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "tsv", "parquet"])
def test_every_form_gives_the_same_rows(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"rows.{form}"
    if form == "json":
        path.write_text(json.dumps([GOOD]))
    elif form == "jsonl":
        path.write_text(f"\n{json.dumps(GOOD)}\n\n")
    elif form == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        image = {"bytes": b"\xff", "path": "x"}
        parquet.write_table(pyarrow.Table.from_pylist([GOOD | {"image": image}]), path)
    else:
        mark = "," if form == "csv" else "\t"
        cells = ["a/1.jpg", " a kite ", "4", "\"['x', 'y']\""]
        path.write_text("\n\n".join(mark.join(row) for row in (GOOD, cells)))
    (row,) = read_rows(path, Rated)
    assert (row.image, row.text, row.rating, row.references) == ("1", "a kite", 4, ("x", "y"))
    assert row.path == path
    assert row.row == {"json": "entry 1", "jsonl": 2, "csv": 3, "tsv": 3, "parquet": 1}[form]


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        ({"img": None}, "missing-value", "img"),
        ({"img": "a/.jpg"}, "missing-image", "a/.jpg"),
        ({"text": "  "}, "missing-value", "text"),
        ({"text": 5}, "wrong-type", 5),
        ({"text": "a\x1fb"}, "wrong-value", "a\x1fb"),
        ({"text": "\ud800"}, "wrong-value", "\ud800"),
        ({"rating": 6}, "out-of-range", 6),
        ({"rating": "high"}, "not-a-number", "high"),
        ({"rating": 1.5}, "not-a-number", 1.5),
        ({"rating": 5}, "mismatch", None),
        ({"references": []}, "missing-value", "references"),
        ({"references": ["x", ""]}, "missing-value", ""),
        ({"references": "x"}, "wrong-type", "x"),
    ],
)
def test_a_row_that_does_not_fit_is_named_with_its_column(
    tmp_path: Path, change: dict[str, Any], code: str, value: object
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD | change) + "\n")
    with raises(DataError, code, path=path, row=2, value=value) as caught:
        read_rows(path, Rated)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "text", "code", "row", "value"),
    [
        ("a.csv", "img,text\n1,x\n", "missing-column", 1, "rating"),
        ("a.csv", "img,text,rating\n1,x,\n", "missing-value", 2, "rating"),
        ("a.csv", "img,text,rating\n1,x\n", "wrong-format", 2, 2),
        ("a.csv", 'img,text,rating\n1,"x,2\n', "wrong-format", 2, None),
        ("a.csv", "img,text,text\n1,x,2\n", "duplicate", 1, "text"),
        ("a.csv", "img,text,rating\n", "missing-value", None, None),
        ("a.csv", "", "damaged", None, None),
        ("a.json", "5", "wrong-format", None, None),
        ("a.json", "[5]", "wrong-type", "entry 1", None),
        ("a.jsonl", "{", "wrong-format", 1, None),
        ("a.jsonl", '{"a": 1, "a": 2}', "wrong-format", 1, None),
        ("a.jsonl", '{"a": NaN}', "wrong-format", 1, None),
        ("a.jsonl", "[]", "wrong-type", 1, None),
        ("a.parquet", "PAR1", "wrong-format", None, None),
    ],
)
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, name: str, text: str, code: str, row: int | str | None, value: object
) -> None:
    (tmp_path / name).write_text(text)
    with raises(DataError, code, path=tmp_path / name, row=row, value=value):
        read_rows(tmp_path / name, Rated)


def test_equal_repetitions_count_once_and_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("img,text,rating\n1,x,2\n2,x,2\n1.jpg,x,2\n")
    assert [row.image for row in read_rows(path, Rated, ["image"])] == ["1", "2"]
    assert len(read_rows(path, Rated)) == 3
    path.write_text("img,text,rating\n1,x,2\n2,x,2\n1.jpg,x,3\n")
    with raises(DataError, "duplicate", path=path, row=4):
        read_rows(path, Rated, ["image"])


def test_rows_are_numbered_by_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('a;b\n"x\n\ny";1\n;\n\nz;2,5\n')
    table = read_table(path)
    assert (table.numbers, table.blank) == ([2, 7], 1)
    assert table.columns == {"a": ["x\n\ny", "z"], "b": ["1", "2,5"]}
    assert table.values("b", table.columns["b"]) == [1.0, 2.5]
    assert table.frame().index.tolist() == [2, 7]
