from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import Judgements
from capbench.datasets.flickr8k import Flickr8kCrowdFlower, Flickr8kExpert
from tests.datasets.native_files import five, root, token_text, write
from tests.errors import raises

CAPTIONS = {"1_a.jpg": five("A goat"), "2_b.jpg": five("Two boats"), "3_c.jpg": five("A clown")}
EXPERT = [
    "1_a.jpg\t2_b.jpg#2\t1\t2\t1",
    "1_a.jpg\t1_a.jpg#4\t4\t4\t3",
    "2_b.jpg\t3_c.jpg#0\t2\t3\t1",
    "3_c.jpg\t1_a.jpg#1\t1\t1\t1",
]
CROWD = [
    "1_a.jpg\t1_a.jpg#4\t1\t3\t0",
    "1_a.jpg\t2_b.jpg#2\t0.333333333333333\t1\t2",
    "2_b.jpg\t3_c.jpg#0\t0\t0\t3",
]


def expert(tmp_path: Path, rows: list[str], selection: str = "no-own-captions") -> tuple[Judgements, ...]:
    write(tmp_path / "flickr8k/Flickr8k.token.txt", token_text(CAPTIONS))
    write(tmp_path / "flickr8k/ExpertAnnotations.txt", "\n".join(rows) + "\n")
    return Flickr8kExpert(root(tmp_path)).load(Flickr8kExpert.selections[selection])


def crowd(tmp_path: Path, rows: list[str], selection: str = "own-reference-out") -> Judgements:
    write(tmp_path / "flickr8k/Flickr8k.token.txt", token_text(CAPTIONS))
    write(tmp_path / "flickr8k/CrowdFlowerAnnotations.txt", "\n".join(rows) + "\n")
    return Flickr8kCrowdFlower(root(tmp_path)).load(Flickr8kCrowdFlower.selections[selection])[0]


def test_own_captions_are_left_out(tmp_path: Path) -> None:
    (judgements,) = expert(tmp_path, EXPERT)
    assert [item.candidate_id for item in judgements.items] == ["2_b.jpg#2", "3_c.jpg#0", "1_a.jpg#1"]
    assert judgements.notes == ("1 pairs whose caption belongs to the image are left out",)


def test_three_ratings_an_item_stand_in_row_major_order(tmp_path: Path) -> None:
    ratings = expert(tmp_path, EXPERT)[0].ratings["expert"]
    assert ratings.item.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert ratings.rater.tolist() == [0, 1, 2] * 3
    assert ratings.value.tolist() == [1, 2, 1, 2, 3, 1, 1, 1, 1]
    assert ratings.scale == (1, 4)


def test_draw_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    straight = {i.candidate_id: i.references for i in expert(tmp_path, EXPERT, "one-reference")[2].items}
    reversed_ = {i.candidate_id: i.references for i in expert(tmp_path, EXPERT[::-1], "one-reference")[2].items}
    assert straight == reversed_


def test_candidates_of_an_image_share_the_drawn_reference(tmp_path: Path) -> None:
    rows = [f"1_a.jpg\t{image}#{n}\t1\t1\t1" for image in ("2_b.jpg", "3_c.jpg") for n in range(5)]
    for judgements in expert(tmp_path, rows, "one-reference"):
        assert len({item.references for item in judgements.items}) == 1


def test_rated_own_caption_is_no_reference_of_any_candidate_of_its_image(tmp_path: Path) -> None:
    judgements = crowd(tmp_path, CROWD)
    kept = tuple(CAPTIONS["1_a.jpg"][:4])
    assert [item.references for item in judgements.items] == [kept, kept, tuple(CAPTIONS["2_b.jpg"])]
    assert judgements.ratings["share-of-yes"].value == pytest.approx(np.array([1, 1 / 3, 0]))


@pytest.mark.parametrize(
    ("row", "code", "value"),
    [
        ("1_a.jpg\t2_b.jpg#3\t1\t2\t5", "out-of-range", "5"),
        ("1_a.jpg\t2_b.jpg#3\t0\t2\t1", "out-of-range", "0"),
        ("1_a.jpg\t2_b.jpg#3\t1\t2.5\t1", "not-a-number", "2.5"),
        ("1_a.jpg\t9_z.jpg#3\t1\t2\t1", "unknown-item", "9_z.jpg#3"),
        ("1_a.jpg\t2_b.jpg#5\t1\t2\t1", "unknown-item", "2_b.jpg#5"),
        ("1_a.jpg\t2_b.jpg\t1\t2\t1", "wrong-value", "2_b.jpg"),
        ("1_a.jpg\t2_b.jpg#2\t1\t2\t2", "duplicate", None),
    ],
)
def test_bad_expert_rows_are_refused(tmp_path: Path, row: str, code: str, value: object) -> None:
    with raises(DataError, code, path=tmp_path / "flickr8k/ExpertAnnotations.txt", row=5, value=value):
        expert(tmp_path, [*EXPERT, row])


@pytest.mark.parametrize(
    ("row", "code", "value"),
    [
        ("2_b.jpg\t1_a.jpg#0\t1.5\t3\t0", "out-of-range", "1.5"),
        ("2_b.jpg\t1_a.jpg#0\t0\t0\t0", "missing-value", None),
        ("2_b.jpg\t1_a.jpg#0\t1\t-3\t0", "out-of-range", "-3"),
        ("2_b.jpg\t1_a.jpg#0\t.5\t3\t0", "mismatch", None),
        ("2_b.jpg\t3_c.jpg#0\t1\t3\t0", "duplicate", None),
    ],
)
def test_bad_crowdflower_rows_are_refused(tmp_path: Path, row: str, code: str, value: object) -> None:
    with raises(DataError, code, path=tmp_path / "flickr8k/CrowdFlowerAnnotations.txt", row=4, value=value):
        crowd(tmp_path, [*CROWD, row])
