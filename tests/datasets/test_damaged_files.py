"""Every reader of judgements, captions and references reads a truncated file or refuses it with one clear line.

Any exception that is not a CapbenchError is a bug, and so is a caption that cannot be scored or a row that is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from capbench.core.errors import CapbenchError
from capbench.core.records import Item
from capbench.datasets.base import dataset_names
from capbench.datasets.catalog import catalog
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, sample_dir


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
