"""One group of a data set's items is a data set of its own, with all that people said of them and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capbench.core.errors import MissingFileError, UsageError
from capbench.core.records import Judgements
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.root import DataRoot, find_root
from tests.errors import raises

TOY = "tests.studies.toys:Toy"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataRoot:
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))
    return find_root("sample")


def load(name: str, root: DataRoot) -> Judgements:
    opened = open_dataset(name, root)
    return opened.load(opened.protocol().items)[0]


def test_only_the_groups_items_and_ratings_stay_and_they_belong_together(root: DataRoot) -> None:
    every = load("composite", root)
    for group in every.groups:
        part = load(f"composite@{group}", root)
        at = [i for i, item in enumerate(every.items) if item.group == group]
        assert [item.candidate_id for item in part.items] == [every.items[i].candidate_id for i in at]
        assert [item.references for item in part.items] == [every.items[i].references for i in at]
        for aspect in ("correctness", "thoroughness", "both"):
            ratings, all_ratings = part.ratings[aspect], every.ratings[aspect]
            said = [
                (every.items[i].candidate_id, value, rater)
                for i, value, rater in zip(
                    all_ratings.item.tolist(), all_ratings.value.tolist(), all_ratings.rater.tolist(), strict=True
                )
                if every.items[i].group == group
            ]
            found = zip(ratings.item.tolist(), ratings.value.tolist(), ratings.rater.tolist(), strict=True)
            assert [(part.items[i].candidate_id, value, rater) for i, value, rater in found] == said
            assert ratings.scale == all_ratings.scale
    assert sum(len(load(f"composite@{g}", root).items) for g in every.groups) == len(every.items)


@pytest.mark.parametrize(
    ("name", "code", "value", "hint"),
    [
        ("composite@30", "unknown-name", "30", "Did you mean '30k'? Choices: 8k, 30k, coco"),
        ("composite@", "unknown-name", "", "Choices: 8k, 30k, coco"),
        ("composite@8k@8k", "unknown-name", "8k@8k", "Choices: 8k, 30k, coco"),
        ("flickr8k-expert@8k", "unknown-name", "8k", "'flickr8k-expert'"),
        (f"{TOY}@", "missing-value", None, "'@'"),
        ("composit@8k", "unknown-name", "composit", "Did you mean 'composite'?"),
    ],
)
def test_a_group_that_is_not_there_is_refused_before_files_are_read(
    name: str, code: str, value: str | None, hint: str, tmp_path: Path
) -> None:
    with raises(UsageError, code, value=value) as caught:
        open_dataset(name, DataRoot(tmp_path, False, "test"))
    assert hint in str(caught.value.hint)


def test_pairs_of_a_group_keep_votes_and_order(root: DataRoot) -> None:
    every, part = load("pascal-50s", root), load("pascal-50s@HM", root)
    for label in ("direct", "consensus"):
        pairs, all_pairs = part.preferences[label], every.preferences[label]
        at = [i for i, group in enumerate(all_pairs.group) if group == "HM"]
        assert pairs.preferred.tolist() == all_pairs.preferred[at].tolist()
        assert pairs.votes.tolist() == all_pairs.votes[at].tolist()
        assert set(pairs.group) == {""}
        for side in ("first", "second"):
            names = [part.items[i].candidate_id for i in getattr(pairs, side)]
            assert names == [every.items[i].candidate_id for i in getattr(all_pairs, side)[at]]


def test_a_group_of_pairs_is_taken_where_no_item_has_it(root: DataRoot) -> None:
    colour = load("flickr8k-swaps@colour", root)
    every = load("flickr8k-swaps", root)
    n = every.preferences["attribute"].group.count("colour")
    assert len(colour.items) == 2 * n
    assert len(colour.preferences["attribute"]) == len(colour.preferences["component"]) == n
    assert set(colour.preferences["component"].group) == {""}


def test_pairs_across_groups_are_left_out_and_counted(root: DataRoot) -> None:
    odd = load(f"{TOY}@odd", root)
    assert len(odd.items) == 3
    assert any(note.startswith("3 votes pairs") for note in odd.notes)
    with raises(MissingFileError, "missing-data", value="votes"):
        odd.preferences["votes"]
    pairs = load(f"{TOY}@A", root)
    assert [item.candidate_id for item in pairs.items] == ["c0", "c1", "c2", "c3"]
    assert pairs.preferences["votes"].preferred.tolist() == [-1, 1]
    assert len(pairs.ratings["rating"]) == 8


ROWS = [
    ("one", "a red kite", 4, "out/door"),
    ("one", "two boats", 1, "out/door"),
    ("two", "a lake", 5, "out/door"),
    ("two", "one boat", 2, "8k@night"),
    ("three", "a boat", 3, ""),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ra@2" / "mine.jsonl"
    path.parent.mkdir()
    rows = [
        {"image": f"{i}.jpg", "candidate": c, "references": ["a kite", "a boat"], "rating": r}
        | ({"group": g} if g else {})
        for i, c, r, g in ROWS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("group", ["out/door", "out%2Fdoor"])
def test_groups_of_a_users_file_are_named_so_that_ids_can_be_read_again(group: str, file: Path, root: DataRoot) -> None:
    opened = open_dataset(f"{file}@{group}", root)
    assert str(opened.protocol()) == "mine.jsonl@out%2Fdoor/as-given/tau-b"
    assert opened.title == "mine.jsonl, out/door"
    assert not opened.under_root
    (part,) = opened.load(opened.protocol("one-reference").items)
    assert [item.candidate for item in part.items] == ["a red kite", "two boats", "a lake"]
    assert part.ratings["rating"].value.tolist() == [4.0, 1.0, 5.0]
    assert part.items[0].references == ("a kite",)
    assert str(open_dataset(f"{file}@8k@night", root).protocol()) == "mine.jsonl@8k@night/as-given/tau-b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("composite", ("composite", None)),
        ("composite@8k", ("composite@8k", None)),
        ("composite@8k/same-text-out/correctness-tau-c", ("composite@8k", "same-text-out/correctness-tau-c")),
        ("a.b:C@g/x", ("a.b:C@g", "x")),
        ("my/ratings.csv", ("my/ratings.csv", None)),
        ("my@2/ratings.CSV", ("my@2/ratings.CSV", None)),
        ("my/ratings.csv/as-given/tau-b", ("my/ratings.csv", "as-given/tau-b")),
        ("my@2/ratings.jsonl@g/tau-b", ("my@2/ratings.jsonl@g", "tau-b")),
        ("ratings.tsv@g", ("ratings.tsv@g", None)),
        ("my/ratings.ods", ("my/ratings.ods", None)),
        ("/my/folder/", ("/my/folder/", None)),
    ],
)
def test_ids_come_apart_behind_the_data_set(text: str, expected: tuple[str, str | None]) -> None:
    assert split_protocol(text) == expected
