"""The embedded sample: frozen, readable by the loaders, and small."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

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
