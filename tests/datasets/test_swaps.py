from __future__ import annotations

import shutil
from pathlib import Path

from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Judgements
from capbench.datasets.swaps import Flickr8kSwaps
from tests.datasets.native_files import root
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
