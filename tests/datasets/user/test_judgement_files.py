"""The rows of a user's file as columns: read in blocks, and from the cache."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.datasets.user import judgement_files
from capbench.datasets.user.columns import PairRow, RatedRow, UserJudgements
from capbench.datasets.user.judgement_files import read_user_file
from capbench.datasets.user.judgements import import_file
from capbench.datasets.user.rows import ImportProblemsError
from tests.datasets.user.test_columns import FORMS, PAIRS, RATED, by_two_raters, renamed, written
from tests.errors import raises

REFERENCES = ["ein Hund läuft", "狗在跑"]
FILES: dict[str, list[dict[str, Any]]] = {
    "one rating": [
        {"image": "a.jpg", "candidate": "a dog", "references": REFERENCES, "rating": 4},
        {"image": "b.jpg", "candidate": "ein Hund 🐕", "references": ["a cat"], "rating": 0.1},
    ],
    "several raters": [
        {"image": f"{image}.jpg", "candidate": text, "references": REFERENCES, "rating": rating, "rater": rater}
        | {"candidate_id": f"{image}-{system}", "system": system, "group": "außen"}
        for image, text, system, rater, rating in [
            ("a", "a dog", "S", "zoë", 1),
            ("b", "a dog", "S", "ann", 2),
            ("a", "a dog", "S", "ann", 3),
            ("a", "a dog", "T", "zoë", 4.5),
        ]
    ],
    "lists of ratings without references": [
        {"image": "a.jpg", "candidate": "a dog", "ratings": [1, 2, 3]},
        {"image": "a.jpg", "candidate": "two dogs", "ratings": [5], "group": "g"},
        {"image": "b.jpg", "candidate": "a dog", "ratings": [0.1, 0.2]},
    ],
    "aspects": [
        {"image": "a.jpg", "candidate": "a dog", "references": ["x"], "rating_fluency": 3, "rating_adequacy": 1},
        {"image": "b.jpg", "candidate": "a dog", "references": ["x"], "ratings": {"adequacy": [2, 4], "fluency": 5}},
    ],
    "pairs": [
        {"image": "a.jpg", "candidate_a": "a dog", "candidate_b": "狗", "references": REFERENCES, "preferred": "tie"}
        | {"group": "HM"},
        {"image": "a.jpg", "candidate_a": "a dog", "candidate_b": "cats", "references": ["x"], "preferred": "b"}
        | {"candidate_id_b": "c"},
    ],
    "pairs with votes": [
        {"image": "a.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "votes_a": 2, "votes_b": 1}
        | {"system_a": "S", "system_b": "T"},
        {"image": "b.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "votes_a": 0, "votes_b": 7}
        | {"system_a": "T", "system_b": "Ü"},
    ],
    "graded pairs": [
        {"image": f"{image}.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "grade": grade, **more}
        for image, grade, more in [("a", 2, {}), ("b", -0.5, {"preferred": "b"}), ("c", 0, {"preferred": "tie"})]
    ],
}


def expected(number: int, record: Mapping[str, Any], aspects: Sequence[str]) -> RatedRow | PairRow:
    """The row of a valid record, made without capbench's readers."""
    image, references = record["image"].removesuffix(".jpg"), tuple(record.get("references", ()))
    names = {name: record.get(name, "") for name in ("rater", "candidate_id", "group", "system")}
    if "candidate" in record:
        ratings = record.get("ratings", {name: record.get(f"rating_{name}") for name in aspects})
        if "rating" in record:
            ratings = record["rating"]
        by_aspect = [ratings[name] for name in aspects] if isinstance(ratings, dict) else [ratings]
        listed = tuple(tuple(map(float, of if isinstance(of, list) else [of])) for of in by_aspect)
        return RatedRow(number, image, record["candidate"], references, listed, **names)
    votes = (record["votes_a"], record["votes_b"]) if "votes_a" in record else None
    if "preferred" in record:
        preferred = {"a": 1, "b": -1, "tie": 0}[record["preferred"]]
    else:
        preferred = np.sign(record["grade"] if votes is None else votes[0] - votes[1])
    sides = [
        tuple(record.get(f"{name}_{side}", "") for side in "ab") for name in ("candidate", "candidate_id", "system")
    ]
    return PairRow(
        number,
        image,
        sides[0],
        references,
        int(preferred),
        votes,
        sides[1],
        names["group"],
        sides[2],
        record.get("grade"),
    )


def write(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def tables() -> list[Path]:
    return [path for path in (Path(os.environ["CAPBENCH_CACHE"]) / "judgements").glob("*") if path.is_dir()]


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any size are cached."""
    monkeypatch.setattr(judgement_files, "_CACHED_FROM", 0)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, cached: None) -> list[Path]:
    """The files that were parsed, and not read from the cache."""
    paths: list[Path] = []
    parse = judgement_files._parsed

    def note(path: Path, *arguments: Any) -> UserJudgements:
        paths.append(path)
        return parse(path, *arguments)

    monkeypatch.setattr(judgement_files, "_parsed", note)
    return paths


@pytest.mark.parametrize("kind", FILES)
def test_cached_rows_are_those_of_the_file(tmp_path: Path, parsed: list[Path], kind: str) -> None:
    records = FILES[kind]
    file = write(tmp_path / "some.jsonl", records)
    first, again = read_user_file(file), read_user_file(file)
    assert parsed == [file]
    rows = tuple(expected(number, record, first.aspects) for number, record in enumerate(records, 1))
    for table in (first, again):
        assert table.rated + table.pairs == rows
        assert table.kind == ("preferences" if "candidate_a" in records[0] else "ratings")
        assert table.has_references == ("references" in records[0])
    values = [value for row in first.rated for of_aspect in row.ratings for value in of_aspect]
    assert again.scale == ((min(values), max(values)) if values else (0.0, 0.0))


@pytest.mark.parametrize("kind", FILES)
def test_judgements_from_the_cache_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file, root = write(tmp_path / "some.jsonl", FILES[kind]), DataRoot(tmp_path, False, "test")
    loaded = []
    for cached_from in (1 << 30, 0, 0):  # not cached, then stored, then from the cache
        monkeypatch.setattr(judgement_files, "_CACHED_FROM", cached_from)
        dataset = open_dataset(str(file), root)
        loaded.append((dataset, dataset.load(dataset.protocol().items)[0]))
    assert len(tables()) == 1
    dataset, plain = loaded[0]
    for other, judgements in loaded[1:]:
        assert (other.statistics, other.selections, other.groups) == (
            dataset.statistics,
            dataset.selections,
            dataset.groups,
        )
        assert (judgements.items, judgements.notes) == (plain.items, plain.notes)
        for aspect, ratings in plain.ratings.items():
            ours = judgements.ratings[aspect]
            assert ours.scale == ratings.scale
            for name in ("item", "value", "rater"):
                assert np.array_equal(getattr(ours, name), getattr(ratings, name))
        for label, pairs in plain.preferences.items():
            ours_pairs = judgements.preferences[label]
            assert ours_pairs.group == pairs.group
            for name in ("first", "second", "preferred", "votes", "grade"):
                assert np.array_equal(getattr(ours_pairs, name), getattr(pairs, name))


def test_raters_are_numbered_by_name_or_by_place(tmp_path: Path) -> None:
    def raters(kind: str) -> list[list[int]]:
        dataset = open_dataset(str(write(tmp_path / "some.jsonl", FILES[kind])), DataRoot(tmp_path, False, "test"))
        (judgements,) = dataset.load(dataset.protocol().items)
        ratings = judgements.ratings["rating"]
        return [ratings.item.tolist(), ratings.rater.tolist()]

    assert raters("several raters") == [[0, 1, 0, 2], [0, 1, 1, 0]]
    assert raters("lists of ratings without references") == [[0, 0, 0, 1, 2, 2], [0, 1, 2, 0, 0, 1]]


def test_each_content_and_each_way_of_reading_has_its_own_table(tmp_path: Path, parsed: list[Path]) -> None:
    records = FILES["one rating"]
    one = write(tmp_path / "one.jsonl", records)
    two = write(tmp_path / "two.jsonl", [record | {"rating": 2} for record in records])
    same = write(tmp_path / "same.jsonl", records)
    for _ in range(2):
        assert [row.ratings for row in read_user_file(one).rated] == [((4.0,),), ((0.1,),)]
        assert [row.ratings for row in read_user_file(two).rated] == [((2.0,),), ((2.0,),)]
        assert read_user_file(one, scale=(0, 5)).scale == (0, 5)
        assert not read_user_file(one, ignore=["references"]).has_references
        assert read_user_file(one, columns={"references": "references"}, rating_columns=["rating"]).has_references
        assert read_user_file(same).rated == read_user_file(one).rated
    assert parsed == [one, two, one, one, one]


KINDS: dict[str, list[dict[str, Any]]] = {
    "ratings": RATED,
    "several raters": by_two_raters(RATED),
    "aspects": [row | {"rating_detail": n} for n, row in enumerate(renamed(RATED, {"rating": "rating_fluency"}))],
    "pairs": PAIRS,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cached_file_has_the_rows_and_columns_of_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parsed: list[Path],
    form: str,
    assigned: bool,
    kind: str,
) -> None:
    rows = KINDS[kind]
    columns = {name: f"my {name}" for name in rows[0] if not name.startswith("reference_")} if assigned else {}
    fields = {columns.get(name, name): name for name in rows[0]} | ({} if form == "jsonl" else {"colour": ""})
    blank = {"colour": None if form == "jsonl" else ""}
    file = written(tmp_path / f"mine.{form}", [row | blank for row in renamed(rows, columns)])
    plain = read_user_file(written(tmp_path / f"plain.{form}", rows))
    opened = []
    for cached_from in (1 << 30, 0, 0):  # not cached, then stored, then from the cache
        monkeypatch.setattr(judgement_files, "_CACHED_FROM", cached_from)
        table = read_user_file(file, columns=columns)
        assert (table.rated, table.pairs, table.aspects) == (plain.rated, plain.pairs, plain.aspects)
        assert (table.kind, table.scale, table.scale_given) == (plain.kind, plain.scale, plain.scale_given)
        assert len(table.rated + table.pairs) == len(rows)
        assert table.columns == tuple((column, name) for name, column in columns.items())
        assert table.all_columns == tuple(fields.items())
        dataset = open_dataset(str(file), DataRoot(tmp_path, False, "test"), columns)
        assert dict(dataset.file_columns) == fields
        (judgements,) = dataset.load(dataset.protocol().items)
        opened.append((judgements.items, judgements.notes, list(dataset.statistics)))
    assert parsed.count(file) == 3
    assert opened[0] == opened[1] == opened[2]


@pytest.mark.parametrize("form", FORMS)
def test_a_cached_file_is_read_again_with_other_columns(tmp_path: Path, parsed: list[Path], form: str) -> None:
    pairs = written(tmp_path / f"pairs.{form}", renamed(PAIRS, {"candidate_a": "x", "candidate_b": "y"}))
    rated = written(tmp_path / f"rated.{form}", [{"p": "1", "q": "2", "candidate": "a kite", "rating": 3}])
    for _ in range(2):
        for a, b in ("xy", "yx"):
            table = read_user_file(pairs, columns={"candidate_a": a, "candidate_b": b})
            texts = [(row["candidate_a"], row["candidate_b"]) for row in PAIRS]
            assert [row.candidates for row in table.pairs] == (texts if a == "x" else [pair[::-1] for pair in texts])
            assert (dict(table.all_columns)[a], dict(table.all_columns)[b]) == ("candidate_a", "candidate_b")
        for image, group in ("pq", "qp"):
            table = read_user_file(rated, columns={"image": image, "group": group})
            assert [(row.image, row.group) for row in table.rated] == [("1", "2") if image == "p" else ("2", "1")]
            assert dict(table.columns) == {image: "image", group: "group"}
    assert parsed == [pairs, pairs, rated, rated]
    with raises(DataError, "unknown-key" if form == "jsonl" else "missing-column", path=rated):
        read_user_file(rated)


def test_a_changed_file_of_the_same_size_and_time_is_read_again(tmp_path: Path, parsed: list[Path]) -> None:
    records = FILES["one rating"]
    file = write(tmp_path / "some.jsonl", records)
    status = file.stat()
    read_user_file(file)
    write(file, [record | {"rating": 5} if record["rating"] == 4 else record for record in records])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert read_user_file(file).rated[0].ratings == ((5.0,),)
    assert parsed == [file, file]


def test_an_invalid_file_has_the_same_errors_every_time(tmp_path: Path, parsed: list[Path]) -> None:
    records = [*FILES["one rating"], {"image": "c.jpg", "candidate": "x", "references": ["y"], "rating": "high"}]
    file = write(tmp_path / "some.jsonl", records)
    for _ in range(2):
        with raises(ImportProblemsError, "not-a-number", path=file, row=3, value="rating"):
            read_user_file(file)
    assert parsed == [file, file]
    assert not tables()


def test_a_file_that_changes_while_it_is_read_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: None
) -> None:
    file, other = (write(tmp_path / name, FILES["one rating"]) for name in ("some.jsonl", "other.jsonl"))
    parse = judgement_files._parsed

    def parse_and_change(path: Path, *arguments: Any) -> UserJudgements:
        table = parse(path, *arguments)
        write(path, FILES["aspects"])
        return table

    with monkeypatch.context() as during:
        during.setattr(judgement_files, "_parsed", parse_and_change)
        with raises(DataError, "changed", path=file):
            read_user_file(file)
    assert not tables()
    assert read_user_file(file).aspects == ("fluency", "adequacy")
    assert read_user_file(other).aspects == ("rating",)


def test_rows_are_read_without_a_writable_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[Path]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "file" / "cache"))
    file = write(tmp_path / "some.jsonl", FILES["pairs"])
    assert [row.row for row in read_user_file(file).pairs] == [1, 2]
    assert parsed == [file]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("scale", [None, (0.0, 7.0)])
def test_an_import_is_cached_as_its_file_would_be(
    tmp_path: Path, parsed: list[Path], kind: str, scale: tuple[float, float] | None
) -> None:
    root = DataRoot(tmp_path / "data", False, "test")
    source = write(tmp_path / "some.jsonl", FILES[kind])
    made = import_file(source, "some", root, scale=scale)
    stored = open_dataset("some", root)
    assert parsed == [source]
    for table in tables():
        shutil.rmtree(table)
    read = open_dataset("some", root)
    assert parsed == [source, made.path]
    for name in ("rated", "pairs", "scale", "scale_given", "aspects", "columns", "all_columns", "kind"):
        assert getattr(stored.table, name) == getattr(read.table, name)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("c.jpg,a,b,high\n", "not-a-number"),
        ("c.jpg,a,b\n", "wrong-format"),
        ('c.jpg,a,b,"1\n', "wrong-format"),
        ("c.jpg,a,\0,1\n", "wrong-value"),
        ("c.jpg,a,b,\udcff\n", "unreadable"),
    ],
)
def test_errors_after_line_breaks_in_cells_name_the_row(tmp_path: Path, end: str, code: str) -> None:
    file = tmp_path / "table.csv"
    table = f'image,candidate,reference_1,rating\na.jpg,a dog,"line\nbreak",1\nd.jpg,a,b,1\n{end}'
    file.write_bytes(table.encode("utf-8", "surrogateescape"))
    lines = file.read_bytes().count(b"\n")
    with raises(DataError, code, path=file, row=lines):
        read_user_file(file)
