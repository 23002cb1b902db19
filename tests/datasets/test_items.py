"""All readers: digests of what they return, and truncated files, which are read or refused with one clear line."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import CapbenchError
from capbench.core.records import Item, Judgements
from capbench.datasets import pascal50s
from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.catalog import catalog
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, find_root, sample_dir

PSEUDO = "flickr8k-pseudo"
STORED = json.loads((Path(__file__).parent / "items.json").read_text(encoding="utf-8"))


def plain(value: Any) -> str:
    """Everything in a record, in a fixed order; arrays by type and bytes."""
    if isinstance(value, np.ndarray):
        return plain((f"{value.dtype}{value.shape}", hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()))
    if isinstance(value, Item):  # of texts only
        return repr(value)
    if isinstance(value, tuple):
        return "".join(map(plain, value))
    if isinstance(value, Mapping):
        return "".join(plain((name, _named(value, name))) for name in sorted({*value, *getattr(value, "later", ())}))
    if hasattr(value, "__dataclass_fields__"):
        return "".join(plain(getattr(value, name)) for name in value.__dataclass_fields__)
    return f"{value!r}\x1e"


def _named(values: Mapping[str, Any], name: str) -> Any:
    try:
        return values[name]
    except CapbenchError as error:
        return error.code


def digest(draws: tuple[Judgements, ...]) -> str:
    return hashlib.sha256(plain(draws).encode()).hexdigest()[:16]


def digests(root: DataRoot, names: Iterable[str], *, parts: bool = False) -> dict[str, str]:
    """Digest by data set and selection, or the code of the error; ``parts``: also of versions and groups."""
    found = {}
    for name in names:
        known = load_dataset(name)
        others = [
            *(f":{version}" for version in known.versions),
            *(f"@{g}" for g in (*(known.groups or ()), *known.variants)),
        ]
        for full in (name, *(f"{name}{other}" for other in others if parts)):
            dataset = open_dataset(full, root)
            for selection in dataset.selections.values():
                try:
                    found[f"{full}/{selection.name}"] = digest(dataset.load(selection))
                except CapbenchError as error:
                    found[f"{full}/{selection.name}"] = error.code
    return found


def test_the_items_of_the_sample_are_unchanged(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # SciPy reads the triplets for half a second, and each group of each version would read them anew.
    monkeypatch.setattr(pascal50s, "_load", functools.cache(pascal50s._load))
    assert digests(DataRoot(sample, True, "test"), dataset_names(), parts=True) == STORED["sample"]


@pytest.mark.real_data
@pytest.mark.parametrize("drawn", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_published_items_are_unchanged(drawn: bool, real_data: Path) -> None:
    names = [name for name in dataset_names() if (name == PSEUDO) is drawn]
    found = digests(find_root(real_data), names)
    expected = {name: value for name, value in STORED["published"].items() if (PSEUDO in name) is drawn}
    assert {name: value for name, value in found.items() if not value.startswith("missing")} == expected


@pytest.mark.real_data
def test_candidates_drawn_for_some_published_images_are_unchanged(real_data: Path, tmp_path: Path) -> None:
    images = "flickr8k/Flickr_8k.devImages.txt"
    (tmp_path / "flickr8k").mkdir()
    for path in (real_data / "flickr8k").iterdir():
        (tmp_path / "flickr8k" / path.name).symlink_to(path)
    (tmp_path / images).unlink()
    (tmp_path / images).write_text("\n".join((real_data / images).read_text().splitlines()[:110]))
    assert digests(DataRoot(tmp_path, False, "test"), [PSEUDO]) == STORED["drawn"]


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
    if SAMPLE.locate(file).is_file() and file != "composite/composite_11985.tsv" and name != PSEUDO
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
