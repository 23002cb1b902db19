"""Every reader of judgements, captions and references reads a truncated file or refuses it with one clear line.

Any exception that is not a CapbenchError is a bug, and so is a caption that cannot be scored or a row that is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import CapbenchError
from capbench.core.records import Item
from capbench.datasets.base import dataset_names
from capbench.datasets.catalog import catalog
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, sample_dir
from capbench.datasets.user.captions import captions_in_memory
from capbench.datasets.user.judgement_files import read_user_file
from tests.datasets.user.frames import pairs, rated

RATED = [
    {"image": f"{i // 2}.jpg", "candidate": f"caption {i}", "references": ["a dog", "a cat"], "rating": i % 5 + 1,
     "rater": "ann", "system": f"s{i % 2}", "group": "g", "scale": [1, 5], "candidate_id": f"c{i}"}
    for i in range(6)
]  # fmt: skip
PAIRS = [
    {"image": f"{i}.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "references": ["a cow"], "votes_a": i,
     "votes_b": 2, "system_a": "x", "system_b": "y", "group": "g"}
    for i in range(4)
]  # fmt: skip
CANDIDATES = [{"image_id": i, "caption": f"caption {i}", "id": f"c{i}", "system": "s"} for i in range(4)]
BY_IMAGE = {str(i): ["a dog", "a cat"] for i in range(4)}
COCO = {
    "images": [{"id": i, "file_name": f"{i}.jpg", "domain": "in-domain"} for i in range(4)],
    "annotations": [{"id": i, "image_id": i % 4, "caption": f"a dog {i}"} for i in range(8)],
}
KARPATHY = {"images": [{"filename": f"{i}.jpg", "split": "test", "sentences": [{"raw": "a dog"}]} for i in range(4)]}


def lines(records: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def table(records: list[dict[str, Any]], delimiter: str) -> bytes:
    def cell(value: Any) -> str:
        text = json.dumps(value) if isinstance(value, list) else str(value)
        return '"' + text.replace('"', '""') + '"'

    rows = [delimiter.join(records[0]), *(delimiter.join(map(cell, record.values())) for record in records)]
    return ("\n".join(rows) + "\n").encode()


def check(sound: bytes, name: str, folder: Path, read: Callable[[Path], Iterable[Item | str]]) -> None:
    damage = {
        "sound": sound,
        "half": sound[: len(sound) // 2],
        "end": sound[:-3],
        "empty": b"",
        "binary": b"\x89\0\xff",
    }
    for kind, content in damage.items():
        path = folder / kind / name
        path.parent.mkdir()
        path.write_bytes(content)
        try:
            records = list(read(path))
        except CapbenchError as error:
            assert kind != "sound"
            assert "\n" not in str(error)  # noqa: PT017  # the other outcome is that it is read
            continue
        assert records
        assert kind not in ("empty", "binary")
        for record in records:
            texts = (record.candidate, record.image) if isinstance(record, Item) else (record,)
            assert all(text.strip() and text.encode() for text in texts)


SAMPLE = DataRoot(sample_dir(), True, "test")
FILES = [
    (name, file)
    for name in dataset_names()
    for need in catalog().datasets[name].needs
    for file in (need.needed and need.met(SAMPLE.locate)) or ()
    # the exports take the place of Composite's table, and pseudo-judgements need more images than the sample has
    if SAMPLE.locate(file).is_file() and file != "composite/composite_11985.tsv" and name != "flickr8k-pseudo"
]


@pytest.mark.parametrize(("name", "relative"), FILES)
def test_a_damaged_file_of_a_data_set_is_read_or_refused(name: str, relative: str, tmp_path: Path) -> None:
    def read(path: Path) -> Iterable[Item]:
        root, folder = path.parent / "root", Path(relative).parent
        (root / folder).mkdir(parents=True)
        for level in (folder, *folder.parents):
            for source in (SAMPLE.path / level).iterdir():
                target = root / source.relative_to(SAMPLE.path)
                if not target.exists():
                    target.symlink_to(source)
        (root / relative).unlink()
        (root / relative).symlink_to(path)
        dataset = open_dataset(name, DataRoot(root, False, "test"))
        return [item for draw in dataset.load(dataset.protocol().items) for item in draw.items]

    check(SAMPLE.locate(relative).read_bytes(), Path(relative).name, tmp_path, read)


@pytest.mark.parametrize(
    ("sound", "name"),
    [
        (lines(RATED), "j.jsonl"),
        (lines(PAIRS), "j.jsonl"),
        (table(RATED, ","), "j.csv"),
        (table(PAIRS, ";"), "j.csv"),
        (table(RATED, "\t"), "j.tsv"),
    ],
)
def test_a_damaged_file_of_judgements_is_read_or_refused(sound: bytes, name: str, tmp_path: Path) -> None:
    def read(path: Path) -> Iterable[str]:
        rows = read_user_file(path)
        if path.suffix == ".jsonl":  # every line is a row, and none is dropped
            assert len(rows) == len(path.read_text("utf-8-sig").rstrip("\n").split("\n"))
        for row in rated(rows):
            yield from (row.image, row.candidate, *row.references)
        for pair in pairs(rows):
            yield from (pair.image, *pair.candidates, *pair.references)

    check(sound, name, tmp_path, read)


@pytest.mark.parametrize(
    ("sound", "name", "other"),
    [
        (json.dumps(CANDIDATES).encode(), "c.json", BY_IMAGE),
        (lines(CANDIDATES), "c.jsonl", BY_IMAGE),
        (b"one\ntwo\n", "c.txt", [["a"], ["b", "c"]]),
        (json.dumps(BY_IMAGE).encode(), "r.json", CANDIDATES),
        (json.dumps(COCO).encode(), "r.json", CANDIDATES),
        (json.dumps(KARPATHY).encode(), "r.json", CANDIDATES),
        (lines({"image": k, "references": v} for k, v in BY_IMAGE.items()), "r.jsonl", CANDIDATES),
        (b'[["a", "b"], ["c"]]', "r.json", ["one", "two"]),
        (b"one\ntwo\n", "r.txt", ["one", "two"]),
    ],
)
def test_a_damaged_file_of_captions_is_read_or_refused(sound: bytes, name: str, other: Any, tmp_path: Path) -> None:
    def read(path: Path) -> Iterable[Item]:
        return captions_in_memory(*((path, other) if name.startswith("c") else (other, path))).items

    check(sound, name, tmp_path, read)
