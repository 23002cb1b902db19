"""Files that are not valid stores: links, external data, oversized data sets, wrong types."""

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
from tests.errors import raises
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
    ("edit", "code", "value"),
    [
        (linked("features", h5py.ExternalLink("right.h5", "/features")), "unsafe", "features"),
        (linked("boxes", h5py.SoftLink("/features")), "unsafe", "boxes"),
        (lambda file: file.move("boxes", "b") or file.create_group("boxes"), "wrong-type", "boxes"),
        (replaced("image_sizes", external=[("raw.bin", 0, 16)]), "unsafe", "image_sizes"),
        (virtual, "unsafe", "checksums"),
        (replaced("image_ids", shape=(1 << 40,), chunks=(1 << 10,)), "too-large", "image_ids"),
        (replaced("features", shape=(1 << 40, 16), chunks=(64, 16)), "too-large", "features"),
        (
            replaced("features", shape=(1 << 30, 1 << 10), chunks=(1 << 19, 1 << 10), compression="gzip"),
            "too-large",
            "features",
        ),
        (replaced("offsets", chunks=(3,), compression="gzip"), "wrong-format", "offsets"),
        (replaced("class_names", data=np.arange(3), dtype="<i4"), "wrong-type", "class_names"),
        (
            replaced("image_ids", data=np.array([["a"], ["b"]], dtype="S1"), shape=(2, 1), dtype="S1"),
            "wrong-shape",
            "features",
        ),
        (replaced("image_ids", data=np.array([b"\xff", b"\xff\xff"]), dtype="S2"), "damaged", None),
        (replaced("image_ids", data=np.array([b"a\nb", b"b"]), dtype="S3"), "damaged", None),
        (attribute("format", np.array(["capbench-features"] * 2, dtype="S17")), "wrong-format", None),
        (attribute("version", "1"), "wrong-version", "1"),
        (attribute("version", 3), "wrong-version", "3"),
        (
            lambda file: file.create_dataset("class_probabilities", data=np.ones((3, 1), dtype="<f4")),
            "wrong-shape",
            "class_probabilities",
        ),
        (
            lambda file: file.create_dataset("class_probabilities", data=np.ones(7, dtype="<f4")),
            "wrong-shape",
            "class_probabilities",
        ),
        (attribute("version", np.array([1, 1])), "wrong-version", "[1 1]"),
        (attribute("fingerprint", 7), "wrong-format", None),
        (attribute("fingerprint", "[]"), "wrong-format", None),
        (attribute("fingerprint", "[" * 40_000), "wrong-format", None),
        (attribute("fingerprint", fingerprint(mode="a\nb")), "wrong-format", None),
        (attribute("fingerprint", fingerprint(mode="\ud800")), "wrong-format", None),
        (attribute("fingerprint_id", 1.5), "changed", None),
    ],
)
def test_parts_of_other_kinds_are_named(
    right: Path, edit: Edit, code: str, value: object, capbench: Callable[..., Ran]
) -> None:
    with h5py.File(right, "r+") as file:
        edit(file)
    with raises(FeatureError, code, value=value) as refused, open_store(right) as store:
        store.ids  # noqa: B018  read at the first question
    assert "\n" not in str(refused.value)
    ran = capbench("features", "info", "--verify", right)
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
        raises(FeatureError, "too-large", value="features"),
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
        with raises(FeatureError, "damaged"):
            open_store(right)


def test_a_fingerprint_is_words_of_one_line() -> None:
    with raises(FeatureError, "wrong-value", value="a\nb"):
        Fingerprint("a\nb", "none", "none", "none")
    with raises(FeatureError, "wrong-value", value="a\tb"):
        Fingerprint("a", "none", "none", "none", versions=(("a\tb", "1"),))
