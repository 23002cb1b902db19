from __future__ import annotations

from pathlib import Path

import pytest

from capbench.datasets.images import all_images, dataset_images
from capbench.datasets.root import DataRoot, find_root
from capbench.errors import DataError, MissingFileError


def test_all_images_of_the_sample_have_ids_of_their_own(sample: Path) -> None:
    found = all_images(find_root("sample"))
    assert len({entry.image for entry in found}) == len(found) == 300
    numbers = {entry.image: entry.path.name for entry in found if entry.path.parent.parent.name == "nocaps"}
    assert numbers["0"] == "noc_000.png"
    assert len(numbers) == 30


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("flickr8k-expert", 50),
        ("flickr8k-crowdflower", 50),
        ("composite", 70),
        ("pascal-50s", 40),
        ("nocaps", 30),
        ("foil", 30),
        ("flickr8k-swaps", 50),
    ],
)
def test_every_judged_image_of_the_sample_is_found(name: str, count: int) -> None:
    found, missing = dataset_images(name, find_root("sample"))
    assert (len(found), missing) == (count, [])
    assert all(entry.path.is_file() for entry in found)


def test_images_that_are_not_there_are_named(tmp_path: Path, sample: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for name in ("f8k_003.png", "f8k_007.png"):
        (folder / name).write_bytes((sample / "flickr8k" / "images" / name).read_bytes())
    found, missing = dataset_images("flickr8k-expert", find_root("sample"), folder)
    assert [entry.image for entry in found] == ["f8k_003", "f8k_007"]
    assert len(missing) == 48
    with pytest.raises(MissingFileError, match="none of the 30 images of nocaps"):
        dataset_images("nocaps", find_root("sample"), folder)


def test_a_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="there are no images below it"):
        all_images(DataRoot(tmp_path, False, "test"))


def test_a_broken_list_of_nocaps_is_named(tmp_path: Path) -> None:
    (tmp_path / "nocaps" / "images").mkdir(parents=True)
    (tmp_path / "nocaps" / "images" / "a.png").touch()
    (tmp_path / "nocaps" / "nocaps_val_image_info.json").write_text('{"images": [{"id": 1}]}')
    with pytest.raises(DataError, match="without 'id' and 'file_name'"):
        all_images(DataRoot(tmp_path, False, "test"))


@pytest.mark.real_data
def test_the_published_images_are_found(real_data: Path) -> None:
    found, missing = dataset_images("flickr8k-expert", find_root(real_data))
    assert (len(found), len(missing)) == (1000, 0)
