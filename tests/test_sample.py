"""The embedded sample: frozen, readable by the loaders, and small."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import pytest

from capbench.core.errors import MissingFileError
from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.images import all_images
from capbench.datasets.root import DataRoot


def test_size_and_number_of_files_stay_small_and_no_byte_of_the_data_changes(sample: Path) -> None:
    files = sorted(p for p in sample.rglob("*") if p.is_file() and p.name != "README.md")
    assert len(files) == 385
    assert sum(path.stat().st_size for path in files) <= 4_000_000
    lines = [f"{path.relative_to(sample).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert digest == "4dfd54c114a11e8035628c5a31c24e0e4acad1a6c65b091ea3b67ce774c1aa17"


def test_every_judged_image_has_a_picture(sample: Path) -> None:
    root = DataRoot(sample, True, "embedded sample")
    pictured = {image.image for image in all_images(root)}
    for name in dataset_names():
        dataset = load_dataset(name)
        with contextlib.suppress(MissingFileError):  # of data sets that the sample does not have
            judged = dataset(root).load(dataset.protocol().items)[0]
            assert {item.image for item in judged.items if item.image} <= pictured, name


@pytest.mark.parametrize(
    ("name", "items", "judgements"),
    [
        ("flickr8k-expert", 300, 900),
        ("flickr8k-crowdflower", 513, 513),
        ("composite", 210, 210),
        ("pascal-50s", 320, 160),
        ("nocaps", 30, 0),
        ("foil", 60, 30),
        ("foil-full", 386, 193),
        ("thumb", 150, 150),
        ("cxc-sits", 200, 200),
        ("cxc-sts", 200, 200),
        ("longcap-arena", 30, 30),
        ("publicsys", 150, 150),
        ("nebula", 60, 60),
        ("polaris", 100, 100),
        ("flickr8k-swaps", 234, 117),
        ("distractions", 110, 55),
        ("hm-coco", 120, 90),
        ("hm-flickr8k", 650, 600),
    ],
)
def test_registered_loaders_read_the_sample(sample: Path, name: str, items: int, judgements: int) -> None:
    dataset = load_dataset(name)
    judged = dataset(DataRoot(sample, True, "embedded sample")).load(dataset.protocol().items)[0]
    assert len(judged.items) == items
    sizes = {len(part) for part in judged.ratings.values()} | {len(part) for part in judged.preferences.values()}
    assert judgements in sizes or not judgements
    assert all(item.references for item in judged.items)
