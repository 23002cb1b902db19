from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgement_files import ImportProblemsError, read_user_file, reading_note
from capbench.datasets.user.judgements import import_file, read_meta
from tests.datasets.user.frames import records
from tests.errors import raises

Row = dict[str, Any]
RATED: list[Row] = [
    {"image": "1.jpg", "candidate": "a red kite", "reference_1": "a kite", "reference_2": "a red toy", "rating": 4},
    {"image": "2.jpg", "candidate": "two boats", "reference_1": "boats", "reference_2": "a lake", "rating": 1},
]
FORMS = ["csv", "tsv", "jsonl"]
ALIASES = {"image": "image_id", "candidate": "caption", "reference_1": "ref1", "reference_2": "ref2", "rating": "score"}


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def root(tmp_path: Path) -> DataRoot:
    (tmp_path / "data").mkdir()
    return DataRoot(tmp_path / "data", False, "test")


def written(path: Path, rows: list[Row]) -> Path:
    """Rows in the form of the file's ending; in tables, lists are JSON."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t")
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer.writerow(names)
        for row in rows:
            cells = [row.get(name, "") for name in names]
            writer.writerow([json.dumps(cell) if isinstance(cell, list) else cell for cell in cells])
    return path


def renamed(rows: list[Row], names: dict[str, str]) -> list[Row]:
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def with_list(rows: list[Row]) -> list[Row]:
    """The rows with one column of references."""
    lists = [[value for name, value in row.items() if name.startswith("reference_")] for row in rows]
    return [
        {name: value for name, value in row.items() if not name.startswith("reference_")} | {"references": references}
        for row, references in zip(rows, lists, strict=True)
    ]


def by_two_raters(rows: list[Row]) -> list[Row]:
    return [row | {"rater": rater, "rating": row["rating"] + n} for row in rows for n, rater in enumerate("ab")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("raters", [1, 2])
@pytest.mark.parametrize("references", ["numbered", "list", "none"])
@pytest.mark.parametrize("aliases", [*([name] for name in ("image", "candidate", "rating")), list(ALIASES)])
def test_a_file_with_other_accepted_names_has_the_rows_of_one_with_the_fields_names(
    tmp_path: Path, form: str, raters: int, references: str, aliases: list[str]
) -> None:
    rows = RATED if raters == 1 else by_two_raters(RATED)
    if references != "numbered":
        rows = with_list(rows)
    if references == "none":
        rows = [{name: value for name, value in row.items() if name != "references"} for row in rows]
    names = {name: ALIASES[name] for name in aliases if name in rows[0]}
    plain = read_user_file(written(tmp_path / f"plain.{form}", rows))
    other = read_user_file(written(tmp_path / f"other.{form}", renamed(rows, names)))
    assert (records(other), other.aspects, other.scale) == (records(plain), plain.aspects, plain.scale)
    assert len(records(other)) == len(rows)
    assert plain.columns == {}
    assert dict(other.columns) == {alias: name for name, alias in names.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("names", "extra", "value"),
    [
        ({}, {"image_id": "7"}, "image_id"),
        ({}, {"caption": "a cat"}, "caption"),
        ({}, {"ref1": "a cat"}, "ref1"),
        ({"reference_2": "ref2"}, {"ref02": "a cat"}, "ref02"),
    ],
)
def test_two_columns_for_one_field_are_ambiguous(
    tmp_path: Path, form: str, names: dict[str, str], extra: Row, value: str
) -> None:
    file = written(tmp_path / f"a.{form}", [row | extra for row in renamed(RATED, names)])
    with raises(ImportProblemsError, "ambiguous", path=file, row=1, value=value) as caught:
        read_user_file(file)
    assert isinstance(caught.value, ImportProblemsError)
    assert [problem.value for problem in caught.value.problems] == [value]
    plain = read_user_file(written(tmp_path / f"plain.{form}", RATED))
    assert records(read_user_file(file, ignore=[value])) == records(plain)


def test_all_problems_of_a_header_are_in_one_error(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("image,image_id,text,ref1,reference_1,rating,score,colour\n1,2,a kite,a,b,4,1,red\n")
    with raises(ImportProblemsError, "ambiguous", path=file, row=1, value="image_id") as caught:
        read_user_file(file)
    assert isinstance(caught.value, ImportProblemsError)
    expected = [
        ("ambiguous", "image_id"),
        ("ambiguous", "ref1"),
        ("missing-column", "candidate"),
        ("unknown-column", "text"),
        ("unknown-column", "score"),
        ("unknown-column", "colour"),
    ]
    assert [(problem.code, problem.value) for problem in caught.value.problems] == expected
    assert all(problem.row == 1 and problem.hint for problem in caught.value.problems)
    line = str(caught.value)
    assert "\n" not in line
    assert all(f"'{value}'" in line for _, value in expected)


OTHER = {"image": "picture", "candidate": "text", "reference_1": "gold a", "reference_2": "gold b", "rating": "mos"}


@pytest.mark.parametrize("form", FORMS)
def test_any_column_can_be_named_for_a_field(tmp_path: Path, root: DataRoot, form: str) -> None:
    file = written(tmp_path / f"o.{form}", renamed(RATED, OTHER))
    made = import_file(file, "mine", root, columns=OTHER)
    plain = read_user_file(written(tmp_path / f"plain.{form}", RATED))
    assert records(made.table) == [row | {"row": place} for place, row in enumerate(records(plain), 1)]
    # The stored data set names the columns of its source, too.
    again = open_dataset("mine", root)
    note = reading_note({column: name for name, column in OTHER.items()})
    for dataset in (made, again):
        assert note in dataset.load(dataset.protocol().items)[0].notes
    assert read_meta(root.path / "imported" / "mine").source.columns == {v: k for k, v in OTHER.items()}


@pytest.mark.parametrize("form", FORMS)
def test_named_columns_may_exchange_names_but_not_share_a_field(tmp_path: Path, form: str) -> None:
    file = written(tmp_path / f"a.{form}", RATED)
    swapped = read_user_file(file, columns={"candidate": "reference_1", "reference_1": "candidate"})
    assert records(swapped)[0]["candidate"] == "a kite"
    assert records(swapped)[0]["references"] == ("a red kite", "a red toy")
    with raises(DataError, "missing-column", path=file, value="picture"):
        read_user_file(file, columns={"image": "picture"})
    file = written(tmp_path / f"b.{form}", [row | {"picture": "7"} for row in RATED])
    with raises(ImportProblemsError, "ambiguous", path=file, row=1, value="picture"):
        read_user_file(file, columns={"image": "picture"})
    assert records(read_user_file(file, columns={"image": "picture"}, ignore=["image"]))[0]["image"] == "7"
