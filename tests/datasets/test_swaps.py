from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Judgements
from capbench.datasets.swaps import Flickr8kSwaps
from tests.datasets.native_files import digest, root
from tests.errors import raises

TOKEN = "flickr8k/Flickr8k.token.txt"


def load(folder: Path, selection: str = "changed-reference-out") -> Judgements:
    found = Flickr8kSwaps(root(folder)).load(Flickr8kSwaps.selections[selection])
    assert len(found) == 1
    return found[0]


def test_other_captions_are_refused_and_a_missing_file_is_named(sample: Path, tmp_path: Path) -> None:
    path = tmp_path / TOKEN
    with raises(MissingFileError, "missing-data", path=path):
        load(tmp_path)
    path.parent.mkdir()
    shutil.copy(sample / TOKEN, path)
    assert load(tmp_path).items == load(sample).items
    lines = path.read_text(encoding="utf-8").splitlines()
    for changed in (lines[:-5], [f"{line} x" for line in lines]):
        path.write_text("\n".join(changed) + "\n", encoding="utf-8")
        with raises(DataError, "wrong-version", path=path):
            load(tmp_path)


HASHES = {
    ("sample", "changed-reference-out"): "e45604c50bc02449877d2af6b3c70d6521e4af355618c2eb32accc33f392407a",
    ("sample", "all-references"): "4a785535275470b34f8a747ef5f325225195c480da58ec7d359ddb90a0f7c2e5",
    ("real_data", "changed-reference-out"): "de2a8be886f9eb32c144e332565b84d951ccc6aee36ba3d9c4d8aec4dd04e791",
    ("real_data", "all-references"): "3b5b306e3bdfa5e800b16012305da784a9689d5a1b201a9bad809e5cc4abedf0",
}


@pytest.mark.parametrize(
    ("folder", "selection"),
    [pytest.param(*key, marks=[pytest.mark.real_data] * (key[0] == "real_data")) for key in HASHES],
)
def test_all_items_are_those_that_the_rules_made(folder: str, selection: str, request: pytest.FixtureRequest) -> None:
    assert digest(load(request.getfixturevalue(folder), selection)) == HASHES[folder, selection]
