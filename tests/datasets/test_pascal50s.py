from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Judgements
from capbench.datasets.pascal50s import Pascal50S
from tests.datasets.native_files import cell, root, save_mat, struct_array, write_json
from tests.errors import raises

# Pairs in the order of pair_pascal.mat: image, first, second, category, votes.
PAIRS: list[tuple[str, str, str, str, list[int]]] = [
    ("2008_01.jpg", " A ferry at a quay.", "A man with a drum ", "HI", [1] * 11),
    ("2008_02.jpg", "A cow near hay", "Brown cow by a barn", "HC", [1, -1, -1, -1, 1, -1, -1, -1, -1, -1, -1]),
    ("2008_01.jpg", "a boat in water", "ferry boat docked", "MM", [1, -1] * 5),
    ("2008_02.jpg", "Two clocks", "A cow stands", "HI", [-1] * 10),
]
LABELS = [0, 1, 1, 1]
NUMBER = {"HC": 1, "HI": 2, "HM": 3, "MM": 4}
FIFTY = {image: [f"reference {n} of {image}" for n in range(50)] for image in ("2008_01.jpg", "2008_02.jpg")}
FIVE = {image: texts[10:15] for image, texts in FIFTY.items()}


def pair_mat(folder: Path, pairs: list[Any] | None = None, **changed: Any) -> None:
    rows = PAIRS if pairs is None else pairs
    variables = {
        "new_input": struct_array([{"name": p[0], "sent1": p[1], "sent2": p[2]} for p in rows]),
        "new_data": np.full((len(rows), 2), 6, dtype=np.uint8),
        "category": np.array([[NUMBER.get(p[3], p[3]) for p in rows]]),
        "result": struct_array([{"result": np.array([p[4]], dtype=np.int16)} for p in rows]),
        **changed,
    }
    save_mat(folder / "pascal50s/pair_pascal.mat", **{name: v for name, v in variables.items() if v is not None})


def json_data() -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = {}
    for (image, first, second, category, _), label in zip(PAIRS, LABELS, strict=True):
        entry = {
            "image": f"VOC2012/JPEGImages/{image}",
            "captions": [first.strip(), second.strip()],
            "label": label,
            "references": FIVE[image],
        }
        data.setdefault(category, []).append(entry)
    return data


def pair_json(folder: Path, data: Any = None) -> None:
    write_json(folder / "pascal50s/pascal_50s.json", json_data() if data is None else data)


def references_mat(folder: Path, **variables: Any) -> None:
    rows = [{"image": image, "sent": cell(texts, column=True)} for image, texts in FIFTY.items()]
    save_mat(folder / "pascal50s/pascal50S.mat", **(variables or {"refs": struct_array(rows)}))


def triplets_mat(
    folder: Path, first_votes: list[int], swap: bool = False, change: dict[int, Any] | None = None
) -> None:
    rows = []
    for (_, first, second, _, _), votes in zip(PAIRS, first_votes, strict=True):
        for n in range(48):
            b, c, winner = (second, first, -1) if swap else (first, second, 1)
            rows.append(
                {"A": cell(["a ref"]), "B": cell([b]), "C": cell([c]), "winner": winner if n < votes else -winner}
            )
    for index, fields in (change or {}).items():
        rows[index].update(fields)
    save_mat(folder / "pascal50s/consensus_pascal.mat", triplets=struct_array(rows))


def load(folder: Path, selection: str = "json-5-refs") -> Judgements:
    return Pascal50S(root(folder)).load(Pascal50S.selections[selection])[0]


def test_direct_preference_is_the_majority_of_the_votes(tmp_path: Path) -> None:
    pair_mat(tmp_path)
    pair_json(tmp_path)
    direct = load(tmp_path).preferences["direct"]
    assert direct.votes.tolist() == [[11, 0], [2, 9], [5, 5], [0, 10]]
    assert direct.preferred.tolist() == [1, -1, 0, -1]


def test_json_alone_gives_the_consensus_and_says_which_file_lacks_for_direct(tmp_path: Path) -> None:
    pair_json(tmp_path)
    judgements = load(tmp_path)
    assert [item.group for item in judgements.items] == ["HC"] * 2 + ["HI"] * 4 + ["MM"] * 2
    assert judgements.preferences["consensus"].preferred.tolist() == [-1, 1, -1, -1]
    assert "direct" not in judgements.preferences
    with raises(MissingFileError, "missing-file", path=tmp_path / "pascal50s/pair_pascal.mat"):
        judgements.preferences["direct"]
    with raises(MissingFileError, "missing-file", path=tmp_path / "pascal50s/consensus_pascal.mat"):
        judgements.preferences["triplets"]
    assert "there are no direct preferences: a file is missing" in judgements.notes


@pytest.mark.parametrize(("selection", "count"), [("random-5-refs", 5), ("random-1-ref", 1)])
def test_random_references_are_drawn_five_times_and_shared_by_an_image(
    tmp_path: Path, selection: str, count: int
) -> None:
    pair_mat(tmp_path)
    references_mat(tmp_path)
    draws = Pascal50S(root(tmp_path)).load(Pascal50S.selections[selection])
    assert [j.draw for j in draws] == [0, 1, 2, 3, 4]
    for judgements in draws:
        for item in judgements.items:
            fifty = FIFTY[f"{item.image}.jpg"]
            assert len(set(item.references)) == count
            assert list(item.references) == [text for text in fifty if text in item.references]
        assert len({(item.image, item.references) for item in judgements.items}) == 2
    assert len({j.items[0].references for j in draws}) > 1
    again = Pascal50S(root(tmp_path)).load(Pascal50S.selections[selection])
    assert [j.items for j in again] == [j.items for j in draws]


@pytest.mark.parametrize("swap", [False, True])
def test_triplets_give_the_majority_of_48_whatever_the_order_of_b_and_c(tmp_path: Path, swap: bool) -> None:
    pair_mat(tmp_path)
    pair_json(tmp_path)
    triplets_mat(tmp_path, [48, 20, 24, 0], swap)
    preferences = load(tmp_path).preferences
    assert preferences["triplets"].votes.tolist() == [[48, 0], [20, 28], [24, 24], [0, 48]]
    assert preferences["triplets"].preferred.tolist() == [1, -1, 0, -1]


@pytest.mark.parametrize(
    ("change", "code", "row"),
    [
        ({60: {"B": cell(["another text"])}}, "mismatch", "triplet 61"),
        ({5: {"winner": 0}}, "wrong-value", "triplet 6"),
    ],
)
def test_bad_triplets_are_refused(tmp_path: Path, change: dict[int, Any], code: str, row: str) -> None:
    pair_mat(tmp_path)
    pair_json(tmp_path)
    triplets_mat(tmp_path, [1, 2, 3, 4], change=change)
    with raises(DataError, code, path=tmp_path / "pascal50s/consensus_pascal.mat", row=row):
        load(tmp_path).preferences["triplets"]


@pytest.mark.parametrize(
    ("changed", "code", "row", "value"),
    [
        ({"category": np.array([[2, 1, 5, 2]])}, "out-of-range", "pair 3", 5),
        ({"category": np.array([[2, 1, 4]])}, "mismatch", None, None),
        ({"category": None}, "missing-key", None, "category"),
        ({"result": struct_array([{"result": np.array([[2, 1]])}] * 4)}, "wrong-value", "pair 1", 2),
        ({"result": struct_array([{"result": np.array([[]])}] * 4)}, "wrong-value", "pair 1", ""),
        ({"result": struct_array([{"other": np.array([[1]])}] * 4)}, "missing-key", "pair 1", "result"),
        ({"new_input": np.zeros((1, 4))}, "wrong-type", None, "new_input"),
    ],
)
def test_bad_pairs_are_refused(
    tmp_path: Path, changed: dict[str, Any], code: str, row: str | None, value: object
) -> None:
    pair_mat(tmp_path, None, **changed)
    pair_json(tmp_path)
    with raises(DataError, code, path=tmp_path / "pascal50s/pair_pascal.mat", row=row, value=value):
        load(tmp_path)
