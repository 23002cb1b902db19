from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import capbench as cb
from capbench.core.errors import DataError, UsageError
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.datasets.user.judgement_files import ImportProblemsError, read_user_file, reading_note
from capbench.datasets.user.judgements import import_file, read_meta
from tests.conftest import Ran
from tests.datasets.user.frames import pairs, rated
from tests.errors import raises

Row = dict[str, Any]
RATED: list[Row] = [
    {"image": "1.jpg", "candidate": "a red kite", "reference_1": "a kite", "reference_2": "a red toy", "rating": 4},
    {"image": "2.jpg", "candidate": "two boats", "reference_1": "boats", "reference_2": "a lake", "rating": 1},
]
PAIRS: list[Row] = [
    {"image": "1.jpg", "candidate_a": "a kite", "candidate_b": "a cat", "reference_1": "a toy", "preferred": "a"},
    {"image": "2.jpg", "candidate_a": "a dog", "candidate_b": "boats", "reference_1": "a lake", "preferred": "b"},
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
    assert (rated(other), other.aspects, other.scale) == (rated(plain), plain.aspects, plain.scale)
    assert len(rated(other)) == len(rows)
    assert plain.columns == {}
    assert dict(other.columns) == {alias: name for name, alias in names.items()}


@pytest.mark.parametrize("form", FORMS)
def test_preferences_have_images_and_references_under_other_names(tmp_path: Path, form: str) -> None:
    plain = read_user_file(written(tmp_path / f"plain.{form}", PAIRS))
    names = {"image": "image_id", "reference_1": "ref1"}
    other = read_user_file(written(tmp_path / f"other.{form}", renamed(PAIRS, names)))
    assert other.kind == "preferences"
    assert (pairs(other), dict(other.columns)) == (pairs(plain), {"image_id": "image", "ref1": "reference_1"})


@pytest.mark.parametrize("name", ["caption", "score"])
def test_preferences_have_no_single_caption_or_score(tmp_path: Path, name: str) -> None:
    file = written(tmp_path / "p.csv", [row | {name: 3} for row in PAIRS])
    with raises(ImportProblemsError, "unknown-column", path=file, row=1, value=name):
        read_user_file(file)
    file = written(tmp_path / "p.jsonl", [row | {name: 3} for row in PAIRS])
    with raises(ImportProblemsError, "unknown-column", path=file, row=1, value=name):
        read_user_file(file)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("extra", [{"rating": 4}, {"ratings": [4, 5]}, {"rating_P": 4}, {"rating_1": 4}])
def test_score_is_the_rating_only_without_another_rating(tmp_path: Path, form: str, extra: Row) -> None:
    rows = [{"image": "1", "candidate": "a kite", **extra, "score": 2}]
    file = written(tmp_path / f"s.{form}", rows)
    with raises(ImportProblemsError, "unknown-column", row=1, value="score"):
        read_user_file(file)
    assert 2 not in rated(read_user_file(file, ignore=["score"]))[0].ratings[0]
    (row,) = rated(read_user_file(file, ignore=list(extra)))
    assert row.ratings == ((2.0,),)


def test_a_score_that_is_named_as_a_kind_of_rating_stays_one(tmp_path: Path) -> None:
    file = written(tmp_path / "s.csv", [{"image": "1", "candidate": "a kite", "score": 2, "ref1": "a toy"}])
    read = read_user_file(file, rating_columns=["score"])
    assert (read.aspects, dict(read.columns)) == (("score",), {"ref1": "reference_1"})


def test_references_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    row = {"image": "1", "ref10": "j", "ref2": "b", "reference_1": "a", "candidate": "a kite", "rating": 2}
    for form in FORMS:
        file = written(tmp_path / f"r.{form}", [row])
        assert rated(read_user_file(file))[0].references == ("a", "b", "j")
        assert rated(read_user_file(file, ignore=["ref2"]))[0].references == ("a", "j")
        assert rated(read_user_file(file, ignore=["references"]))[0].references == ()


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
    assert rated(read_user_file(file, ignore=[value])) == rated(plain)


@pytest.mark.parametrize("form", FORMS)
def test_a_list_and_columns_of_references_are_ambiguous(tmp_path: Path, form: str) -> None:
    file = written(tmp_path / f"a.{form}", [row | {"ref1": "a cat"} for row in with_list(RATED)])
    with raises(ImportProblemsError, "ambiguous", path=file, row=1, value="ref1"):
        read_user_file(file)


def test_a_field_under_two_names_in_different_rows_is_ambiguous(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [RATED[0], *renamed(RATED[1:], {"image": "image_id"})])
    with pytest.raises(ImportProblemsError) as caught:
        read_user_file(file)
    assert (2, "ambiguous", "image_id") in {(p.row, p.code, p.value) for p in caught.value.problems}


def test_an_empty_column_with_another_accepted_name_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        "image,image_id,candidate,caption,reference_1,ref1,ref2,rating,score,note\n1,,a kite,,a toy,,,4,,\n"
    )
    read = read_user_file(file)
    assert (rated(read)[0][1:5], read.columns) == (("1", "a kite", ("a toy",), ((4.0,),)), {})


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


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        ("image,reference_1", ["candidate", "rating"]),
        ("picture,text,note", ["image", "candidate", "rating"]),
        ("image_id,caption,group", ["rating"]),
        ("candidate_a,reference_1,group", ["image", "candidate_b", "preferred"]),
        ("image,candidate_a,candidate_b,votes_b", []),
    ],
)
def test_missing_columns_are_named_together(tmp_path: Path, header: str, missing: list[str]) -> None:
    file = tmp_path / "a.tsv"
    file.write_text(header.replace(",", "\t") + "\n" + "\t".join(["x"] * len(header.split(","))) + "\n")
    with pytest.raises(ImportProblemsError) as caught:
        read_user_file(file)
    assert [p.value for p in caught.value.problems if p.code == "missing-column"] == missing


def test_columns_of_the_other_kind_are_named_with_the_header(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", [row | {"votes_a": 3} for row in RATED])
    with raises(ImportProblemsError, "conflict", path=file, row=1, value="votes_a"):
        read_user_file(file)


def test_a_problem_of_a_row_names_the_column_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", renamed([RATED[0] | {"rating": "good"}], ALIASES))
    with raises(ImportProblemsError, "not-a-number", path=file, row=2, value="rating") as caught:
        read_user_file(file)
    assert "'score'" in str(caught.value)


OTHER = {"image": "picture", "candidate": "text", "reference_1": "gold a", "reference_2": "gold b", "rating": "mos"}


@pytest.mark.parametrize("form", FORMS)
def test_any_column_can_be_named_for_a_field(tmp_path: Path, root: DataRoot, form: str) -> None:
    file = written(tmp_path / f"o.{form}", renamed(RATED, OTHER))
    made = import_file(file, "mine", root, columns=OTHER)
    plain = read_user_file(written(tmp_path / f"plain.{form}", RATED))
    assert [row[1:] for row in rated(made.table)] == [row[1:] for row in rated(plain)]
    # The stored data set names the columns of its source, too.
    again = open_dataset("mine", root)
    note = reading_note({column: name for name, column in OTHER.items()})
    for dataset in (made, again):
        assert note in dataset.load(dataset.protocol().items)[0].notes
    assert read_meta(root.path / "imported" / "mine")["source"]["columns"] == {v: k for k, v in OTHER.items()}


def test_the_metadata_of_a_file_with_the_fields_names_is_unchanged(tmp_path: Path, root: DataRoot) -> None:
    made = import_file(written(tmp_path / "a.csv", RATED), "mine", root, scale=(1, 5))
    assert read_meta(root.path / "imported" / "mine")["source"].keys() == {"file", "sha256"}
    assert made.load(made.protocol().items)[0].notes == ()


@pytest.mark.parametrize("form", FORMS)
def test_named_columns_may_exchange_names_but_not_share_a_field(tmp_path: Path, form: str) -> None:
    file = written(tmp_path / f"a.{form}", RATED)
    swapped = read_user_file(file, columns={"candidate": "reference_1", "reference_1": "candidate"})
    assert (rated(swapped)[0].candidate, rated(swapped)[0].references) == ("a kite", ("a red kite", "a red toy"))
    with raises(DataError, "missing-column", path=file, value="picture"):
        read_user_file(file, columns={"image": "picture"})
    file = written(tmp_path / f"b.{form}", [row | {"picture": "7"} for row in RATED])
    with raises(ImportProblemsError, "ambiguous", path=file, row=1, value="picture"):
        read_user_file(file, columns={"image": "picture"})
    assert rated(read_user_file(file, columns={"image": "picture"}, ignore=["image"]))[0].image == "7"


@pytest.mark.parametrize(
    ("columns", "rating", "code", "value"),
    [
        ({"imag": "picture"}, [], "unknown-name", "imag"),
        ({"image": "x", "candidate": "x"}, [], "conflict", "x"),
        ({"rating": "mos"}, ["mos"], "conflict", "mos"),
    ],
)
def test_columns_that_cannot_be_assigned_are_an_error(
    tmp_path: Path, columns: dict[str, str], rating: list[str], code: str, value: str
) -> None:
    file = written(tmp_path / "a.csv", RATED)
    with raises(UsageError, code, value=value):
        cb.import_data(file, "mine", columns=columns, rating=rating, data="sample")


def test_python_names_the_columns(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", renamed(RATED, OTHER | {"rating": "score"}))
    columns = {name: column for name, column in OTHER.items() if name != "rating"}
    made = cb.import_data(file, "mine", columns=columns, data="sample")
    expected = {column: name for name, column in columns.items()} | {"score": "rating"}
    assert made.columns == expected
    assert made.to_dict()["columns"] == expected
    plain = cb.import_data(written(tmp_path / "b.csv", RATED), "plain", data="sample")
    assert "columns" not in plain.to_dict()


def test_the_command_line_reads_and_names_them(tmp_path: Path, capbench: Callable[..., Ran]) -> None:
    file = written(tmp_path / "a.csv", renamed(RATED, {"image": "image_id", "candidate": "text, final"}))
    ran = capbench("correlate", "-d", file, "-m", "bleu-1")
    assert (ran.code, ran.failure.code, ran.failure.value) == (2, "missing-column", "candidate")
    assert "--columns 'candidate=text, final'" in ran.err
    words = ["data", "import", str(file), "--name", "mine", "--columns", "candidate=text, final"]
    ran = capbench(*words)
    assert ran.code == 0, ran.err
    note = reading_note({"image_id": "image", "text, final": "candidate"})
    assert note in ran.err
    told = json.loads(capbench("correlate", "-d", "mine", "-m", "bleu-1", "--json").out)
    assert note in json.dumps(told, ensure_ascii=False)


@pytest.mark.parametrize(
    ("texts", "code", "value"),
    [
        (["image"], "wrong-format", "image"),
        (["image=a,candidate="], "wrong-format", "candidate="),
        (["image=a", "image=b"], "duplicate", "image"),
    ],
)
def test_columns_in_another_form_are_an_error(
    tmp_path: Path, capbench: Callable[..., Ran], texts: list[str], code: str, value: str
) -> None:
    flags = [word for text in texts for word in ("--columns", text)]
    ran = capbench("data", "import", written(tmp_path / "a.csv", RATED), "--name", "mine", *flags)
    assert (ran.code, ran.failure.code, ran.failure.value) == (2, code, value)


@pytest.mark.parametrize("form", FORMS)
def test_correlate_prints_the_same_number_and_names_the_columns(
    tmp_path: Path, capbench: Callable[..., Ran], form: str
) -> None:
    rows = [
        {"image": f"{i}.jpg", "candidate": text, "reference_1": "a red kite flies", "rating": 4 - i}
        for i, text in enumerate(("a red kite flies", "a red kite", "a kite", "two boats"))
    ]
    plain = capbench("correlate", "-d", written(tmp_path / f"plain.{form}", rows), "-m", "bleu-1")
    other = capbench("correlate", "-d", written(tmp_path / f"other.{form}", renamed(rows, ALIASES)), "-m", "bleu-1")
    assert (plain.code, other.code) == (0, 0)
    (value,) = [line for line in plain.out.splitlines() if line.startswith(" BLEU-1")]
    assert value in other.out.splitlines()
    note = reading_note({"image_id": "image", "caption": "candidate", "ref1": "reference_1", "score": "rating"})
    assert note in other.err.splitlines()
    assert note in other.out
    # Every column is named on stderr, those with the fields' own names, too; results name the others.
    assert reading_note({name: name for name in rows[0]}) in plain.err.splitlines()
    assert "read as" not in plain.out


SEVERAL: list[Row] = [
    {"image": f"{i}.jpg", "candidate": text, "reference_1": "a red kite flies", "rating": 5 - i - j}
    for i in range(3)
    for j, text in enumerate(("a red kite flies high", f"{'a kite ' * i}is red", "two boats"))
]
FOREIGN = {"image": "picture", "candidate": "text", "rating": "mos"}
FLAG = ("--columns", ",".join(f"{name}={column}" for name, column in FOREIGN.items()))


@pytest.mark.parametrize("form", FORMS)
def test_a_file_with_other_columns_is_measured_with_columns(
    tmp_path: Path, capbench: Callable[..., Ran], form: str
) -> None:
    plain = str(written(tmp_path / f"plain.{form}", SEVERAL))
    rows = [row | {"colour": None if form == "jsonl" else ""} for row in renamed(SEVERAL, FOREIGN)]
    other = str(written(tmp_path / f"other.{form}", rows))
    fields = {"picture": "image", "text": "candidate", "reference_1": "reference_1", "mos": "rating"}
    fields |= {} if form == "jsonl" else {"colour": ""}
    for command, path in (
        (("correlate", "-m", "bleu-1", "-m", "rouge-l"), ("cells", "protocols")),
        (("compare", "bleu-1", "rouge-l"), ("intervals", "table")),
        (("score", "-m", "bleu-1"), ("scores",)),
    ):
        expected, ran = (
            capbench(*command, "-d", file, *flags, "--json") for file, flags in ((plain, ()), (other, FLAG))
        )
        assert (expected.code, ran.code) == (0, 0), ran.err
        assert reading_note(fields) in ran.err.splitlines()
        found, known = json.loads(ran.out), json.loads(expected.out)
        if command[0] == "correlate":
            ((info,), (plain_info,)) = found.pop("protocols"), known.pop("protocols")
            assert (info["file_columns"], plain_info["file_columns"]) == (fields, {n: n for n in SEVERAL[0]})
            assert [cell["value"] for cell in found["cells"]] == [cell["value"] for cell in known["cells"]]
        else:
            assert [found[key] for key in path] == [known[key] for key in path]
            assert found["file_columns"] == fields
    scored = cb.score(dataset=other, metrics="bleu-1", columns=FOREIGN)
    assert scored["bleu-1"].tolist() == cb.score(dataset=plain, metrics="bleu-1")["bleu-1"].tolist()
    assert scored.file_columns == fields


def test_columns_need_a_file_of_judgements(tmp_path: Path, capbench: Callable[..., Ran]) -> None:
    file = written(tmp_path / "a.csv", renamed(SEVERAL, FOREIGN))
    ran = capbench("correlate", "-d", file, "-d", "composite", "-m", "bleu-1", *FLAG)
    assert (ran.code, ran.failure.code, ran.failure.value) == (2, "conflict", "composite")
    with raises(UsageError, "conflict", value="composite"):
        cb.compare("composite", ["bleu-1", "cider"], columns=FOREIGN)
    with raises(UsageError, "unknown-name", value="picture"):
        cb.correlate(file, "bleu-1", columns={"picture": "image"})
    with raises(UsageError, "missing-option", value="columns"):
        cb.score(["a"], [["b"]], "bleu-1", columns=FOREIGN)
    with raises(cb.CapbenchError, "missing-column", path=file, value="rating"):
        cb.score(dataset=file, metrics="bleu-1", columns={name: FOREIGN[name] for name in ("image", "candidate")})
