from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from capbench.core.errors import DataError, UsageError
from capbench.datasets.images import all_images, image_finder
from capbench.datasets.nocaps import Nocaps
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, find_root
from capbench.datasets.user.judgements import import_file
from capbench.metrics.needs import Resources
from capbench.studies.scoring import with_pictures_of
from tests.errors import raises


def test_all_images_of_the_sample_have_ids_of_their_own(sample: Path) -> None:
    found = all_images(find_root("sample"))
    assert len({entry.image for entry in found}) == len(found) == 300
    numbers = {entry.image: entry.path.name for entry in found if entry.path.parent.parent.name == "nocaps"}
    assert numbers["0"] == "noc_000.png"
    assert len(numbers) == 30


@pytest.mark.parametrize("present", ["COCO_val2014_000000000042.jpg", "000000000042.jpg", "42.jpg"])
def test_an_image_is_found_by_any_of_its_coco_names(tmp_path: Path, present: str) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / present)
    for name in ("COCO_val2014_000000000042", "000000000042", "42"):
        assert image_finder(find_root("sample"), tmp_path)([name, "43", "x"]) == {name: tmp_path / present}


def _imported(folder: Path) -> Path:
    """A data folder with nocaps' picture 1 and a file of judgements about another image called 1.jpg."""
    (folder / "nocaps" / "images").mkdir(parents=True)
    Image.new("RGB", (8, 8), "red").save(folder / "nocaps" / "images" / "0a1b2c.jpg")
    (folder / "nocaps" / "images" / "2.jpg").write_bytes(b"nocaps")
    info = {"images": [{"id": 1, "file_name": "0a1b2c.jpg"}]}
    (folder / "nocaps" / "nocaps_val_image_info.json").write_text(json.dumps(info))
    judgements = folder / "mine.csv"
    judgements.write_text(
        "image,candidate,reference_1,rating\n1.jpg,a dog,a cat,1\n2.jpg,a cat,a cat,3\n3.jpg,a,a b,2\n"
    )
    return judgements


def test_an_imported_set_gets_no_picture_of_another_data_set(tmp_path: Path) -> None:
    judgements = _imported(tmp_path)
    root = DataRoot(tmp_path, False, "test")
    dataset = import_file(judgements, "mine", root)
    assert image_finder(root, dataset=dataset)(["1", "2"]) == {}
    assert image_finder(root, dataset=open_dataset(str(judgements), root))(["1", "2"]) == {}
    mine = tmp_path / "imported" / "mine" / "images"
    mine.mkdir()
    (mine / "1.jpg").write_bytes(b"mine")
    assert image_finder(root, dataset=dataset)(["1", "2"]) == {"1": mine / "1.jpg"}
    assert image_finder(root, mine, dataset)(["1", "2"]) == {"1": mine / "1.jpg"}
    nocaps = tmp_path / "nocaps" / "images"
    assert image_finder(root, dataset=Nocaps(root))(["1", "2"]) == {"1": nocaps / "0a1b2c.jpg", "2": nocaps / "2.jpg"}


def test_captions_of_no_data_set_are_not_given_one_of_two_different_pictures(tmp_path: Path) -> None:
    root = DataRoot(tmp_path, False, "test")
    for name in ("a", "b"):
        (tmp_path / name / "images").mkdir(parents=True)
        (tmp_path / name / "images" / "x.jpg").write_bytes(b"same")
        (tmp_path / name / "images" / "y.jpg").write_bytes(name.encode())
    assert list(image_finder(root)(["x"])) == ["x"]
    with raises(DataError, "duplicate", path=tmp_path / "b/images/y.jpg", value="y"):
        image_finder(root)(["x", "y"])


def test_metrics_get_pictures_of_the_imported_set_alone(tmp_path: Path) -> None:
    judgements = _imported(tmp_path)
    root = DataRoot(tmp_path, False, "test")
    dataset = open_dataset(str(judgements), root)
    assert with_pictures_of(dataset, Resources(data=str(tmp_path))).pictures(["1", "2"]) == {}  # type: ignore[misc]
    folder = tmp_path / "nocaps" / "images"
    given = with_pictures_of(dataset, Resources(data=str(tmp_path), images=str(folder))).pictures
    assert given is not None
    assert given(["2"]) == {"2": folder / "2.jpg"}


def test_an_empty_name_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(UsageError, "missing-value"):
        find_root("")
    assert find_root(".").path == Path()
    assert find_root("sample").is_sample


def test_a_file_is_also_found_in_the_folder_of_open_sets(tmp_path: Path) -> None:
    root = DataRoot(tmp_path, False, "test")
    direct, collected = tmp_path / "set/a.csv", tmp_path / "open/set/a.csv"
    assert root.locate("set/a.csv") == direct
    for place in (collected, direct):
        place.parent.mkdir(parents=True)
        place.touch()
        assert root.locate("set/a.csv") == root.file("set/b.csv", "set/a.csv") == place
