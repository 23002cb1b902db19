from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.core.records import Judgements
from capbench.datasets.opening import open_dataset
from capbench.datasets.thumb import Thumb
from tests.datasets.native_files import root, write
from tests.errors import raises

RATINGS = "thumb/mscoco_THumB-1.0.jsonl"
REFERENCES = "thumb/mscoco_references.json"


def row(system: str, segment: str, text: str, p: float, r: float, fluency: float = -0.0) -> dict[str, Any]:
    names = {"SYS": system, "seg_id": segment, "set_id": 5, "image": f"COCO_val2014_{segment:0>12}.jpg"}
    ratings = {"P": p, "R": r, "Fl": fluency, "Inc": -0.0, "Con": -0.0, "human_score": (p + r) / 2 + fluency}
    return names | {"hyp": text} | ratings


def rated() -> list[dict[str, Any]]:
    return [
        row("Small", "7", "a red kite .", 4.0, 3.0),
        row("Large", "7", "a red kite .", 5.0, 3.0),
        row("Human", "7", "a kite in the wind", 5.0, 5.0, -0.3),
        row("Small", "8", "two boats .", 2.0, 2.0),
        row("Large", "8", "boats on a lake .", 5.0, 4.0),
        row("Human", "8", "three boats", 4.0, 4.0),
    ]


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / RATINGS, lines(rated()))
    references = [{"seg_id": s, "set_id": 5, "refs": [f"one {s}", f"two {s}"]} for s in ("7", "8")]
    write(tmp_path / REFERENCES, lines(references))
    write_captions(tmp_path, ["A kite in the wind", "three boats"])
    return tmp_path


def load(folder: Path, selection: str = "all-systems", name: str = "thumb") -> Judgements:
    (loaded,) = open_dataset(name, root(folder)).load(Thumb.selections[selection])
    return loaded


def write_captions(folder: Path, human: list[str]) -> None:
    """COCO's captions of the two images: the human captions, each with another one."""
    texts = {f"COCO_val2014_{n:012}.jpg": [text, f"{n} things"] for n, text in zip((7, 8), human, strict=True)}
    write(folder / "coco/karpathy_test_captions.json", json.dumps(texts))


@pytest.mark.parametrize(
    ("human", "version", "notes"),
    [
        (["a kite in the wind.", "three boats"], "1", 1),
        (["three boats", "a kite in the wind"], "misaligned", 2),
        (["a kite in the wind", "two dogs"], "unknown", 2),  # one of two is right
        (None, "unknown", 2),
    ],
)
def test_the_version_is_read_off_the_human_captions(
    human: list[str] | None, version: str, notes: int, folder: Path
) -> None:
    if human is None:
        (folder / "coco/karpathy_test_captions.json").unlink()
    else:
        write_captions(folder, human)
    opened = open_dataset("thumb", root(folder))
    assert opened.protocol().versioned == f"thumb:{version}/all-systems/total-pearson"
    assert len(load(folder).notes) == notes
    other = "misaligned" if version == "1" else "1"
    with raises(DataError, "wrong-version", path=folder / RATINGS, value=version):
        load(folder, name=f"thumb:{other}")
    assert load(folder, name=f"thumb:{version}").items == load(folder).items


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        ({"P": 6.0}, "out-of-range", 6.0),
        ({"Fl": 0.5}, "out-of-range", 0.5),
        ({"SYS": 3}, "wrong-type", 3),
        ({"SYS": "Small"}, "duplicate", None),
        ({"seg_id": "9"}, "missing-references", "9"),
        ({"image": "other.jpg"}, "mismatch", "7"),
    ],
)
def test_a_wrong_row_is_named(change: dict[str, Any], code: str, value: object, folder: Path) -> None:
    records = rated()
    records[1].update(change)
    write(folder / RATINGS, lines(records))
    with raises(DataError, code, path=folder / "thumb/mscoco_THumB-1.0.jsonl", row=2, value=value):
        load(folder)
