"""What a store must not be: HDF5 can say more than a store needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from capbench.core.errors import FeatureError
from capbench.features.records import Fingerprint
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from tests.conftest import Ran
from tests.features.fakes import PRINT, made_up

Edit = Callable[[h5py.File], None]


@pytest.fixture
def right(tmp_path: Path) -> Path:
    path = tmp_path / "right.h5"
    with StoreWriter(path, PRINT, class_names=("a", "b", "c")) as writer:
        for image in ("one", "two"):
            writer.add(made_up(image))
        writer.finish()
    return path


def replaced(name: str, **created: Any) -> Edit:
    """A data set in the place of another."""

    def edit(file: h5py.File) -> None:
        values = {"shape": file[name].shape, "dtype": file[name].dtype} | created
        del file[name]
        file.create_dataset(name, **values)

    return edit


def linked(name: str, link: Any) -> Edit:
    """A link in the place of a data set."""

    def edit(file: h5py.File) -> None:
        del file[name]
        file[name] = link

    return edit


def attribute(name: str, value: Any) -> Edit:
    """An attribute of another type."""

    def edit(file: h5py.File) -> None:
        del file.attrs[name]
        file.attrs[name] = value

    return edit


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=file["checksums"].shape, dtype="uint32")
    layout[:] = h5py.VirtualSource("right.h5", "checksums", shape=file["checksums"].shape)
    del file["checksums"]
    file.create_virtual_dataset("checksums", layout)


def fingerprint(**changes: Any) -> str:
    return json.dumps(PRINT.to_dict() | changes)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (linked("features", h5py.ExternalLink("right.h5", "/features")), "'features' is a link and no data set"),
        (linked("boxes", h5py.SoftLink("/features")), "'boxes' is a link and no data set"),
        (lambda file: file.move("boxes", "b") or file.create_group("boxes"), "'boxes' is no data set"),
        (replaced("image_sizes", external=[("raw.bin", 0, 16)]), "'image_sizes' is kept in other files"),
        (virtual, "'checksums' is kept in other files"),
        (replaced("image_ids", shape=(1 << 40,), chunks=(1 << 10,)), "'image_ids' of shape .* is larger than what"),
        (replaced("features", shape=(1 << 40, 16), chunks=(64, 16)), "'features' of shape .* is larger than what"),
        (
            replaced("features", shape=(1 << 30, 1 << 10), chunks=(1 << 19, 1 << 10), compression="gzip"),
            "'features' of shape .* is larger than what",
        ),
        (replaced("offsets", chunks=(3,), compression="gzip"), "'offsets' is compressed in a way that stores are not"),
        (replaced("class_names", data=np.arange(3), dtype="<i4"), "'class_names' are no fixed-length texts"),
        (replaced("image_ids", data=np.array([["a"], ["b"]], dtype="S1"), shape=(2, 1), dtype="S1"), "0 images"),
        (replaced("image_ids", data=np.array([b"\xff", b"\xff\xff"]), dtype="S2"), "its ids are no texts"),
        (replaced("image_ids", data=np.array([b"a\nb", b"b"]), dtype="S3"), "its ids are no texts"),
        (attribute("format", np.array(["capbench-features"] * 2, dtype="S17")), "no feature store of capbench"),
        (attribute("version", "1"), "is of layout version 1, this capbench reads 1 and 2"),
        (attribute("version", 3), "is of layout version 3, this capbench reads 1 and 2"),
        (
            lambda file: file.create_dataset("class_probabilities", data=np.ones((3, 1), dtype="<f4")),
            r"'class_probabilities' is \(3, 1\) of .*, not",
        ),
        (
            lambda file: file.create_dataset("class_probabilities", data=np.ones(7, dtype="<f4")),
            r"'class_probabilities' is \(7,\) of .*, not",
        ),
        (attribute("version", np.array([1, 1])), "is of layout version"),
        (attribute("fingerprint", 7), "has no readable fingerprint"),
        (attribute("fingerprint", "[]"), "has no readable fingerprint"),
        (attribute("fingerprint", "[" * 40_000), "has no readable fingerprint"),
        (attribute("fingerprint", fingerprint(mode="a\nb")), "has no readable fingerprint"),
        (attribute("fingerprint", fingerprint(mode="\ud800")), "has no readable fingerprint"),
        (attribute("fingerprint_id", 1.5), "has a fingerprint that was changed by hand"),
    ],
)
def test_parts_of_other_kinds_are_named(right: Path, edit: Edit, message: str, capbench: Callable[..., Ran]) -> None:
    with h5py.File(right, "r+") as file:
        edit(file)
    with pytest.raises(FeatureError, match=message) as refused, open_store(right) as store:
        store.ids  # noqa: B018  read at the first question
    assert "\n" not in str(refused.value)
    ran = capbench("features", "verify", right)
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_an_image_of_any_size_is_refused(right: Path) -> None:
    rows = 1 << 26  # of 64 bytes
    with h5py.File(right, "r+") as file:
        for name in ("boxes", "class_ids", "class_scores", "features", "offsets"):
            del file[name]
        features = file.create_dataset("features", (rows, 16), "f4", chunks=(1 << 16, 16), compression="gzip")
        assert features.id.get_storage_size() == 0
        file["offsets"] = np.array([0, 1, rows])
    with (
        pytest.raises(FeatureError, match=r"has an image of 4\.3 GB|is larger than what the file holds of it"),
        open_store(right) as store,
    ):
        store["two"]


def test_a_damaged_heap_of_texts_does_not_stop_the_program(right: Path) -> None:
    data = bytearray(right.read_bytes())
    heap = data.index(b"GCOL")
    size = int.from_bytes(data[heap + 8 : heap + 16], "little")
    position = heap + 16
    while int.from_bytes(data[position : position + 2], "little"):  # to the free space behind the texts
        position += 16 + -(-int.from_bytes(data[position + 8 : position + 16], "little") // 8) * 8
    assert position < heap + size
    for length in (0, 1 << 40):
        data[position + 8 : position + 16] = length.to_bytes(8, "little")
        right.write_bytes(data)
        with pytest.raises(FeatureError, match=r"is damaged \(a heap of texts\)"):
            open_store(right)


def test_a_fingerprint_is_words_of_one_line() -> None:
    with pytest.raises(FeatureError, match=r"the fingerprint's 'a\\nb' is no line of text"):
        Fingerprint("a\nb", "none", "none", "none")
    with pytest.raises(FeatureError, match="is no line of text"):
        Fingerprint("a", "none", "none", "none", versions=(("a\tb", "1"),))
