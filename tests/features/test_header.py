"""Files that are not valid stores: parts of other types and shapes."""

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


def attribute(name: str, value: Any) -> Edit:
    """An attribute of another type."""

    def edit(file: h5py.File) -> None:
        del file.attrs[name]
        file.attrs[name] = value

    return edit


def fingerprint(**changes: Any) -> str:
    return json.dumps(PRINT.to_dict() | changes)


@pytest.mark.parametrize(
    ("edit", "code", "value"),
    [
        (lambda file: file.move("boxes", "b") or file.create_group("boxes"), "wrong-type", "boxes"),
        (replaced("class_names", data=np.arange(3), dtype="<i4"), "wrong-type", "class_names"),
        (
            replaced("image_ids", data=np.array([["a"], ["b"]], dtype="S1"), shape=(2, 1), dtype="S1"),
            "wrong-shape",
            "features",
        ),
        (replaced("image_ids", data=np.array([b"\xff", b"\xff\xff"]), dtype="S2"), "damaged", None),
        (replaced("image_ids", data=np.array([b"a\nb", b"b"]), dtype="S3"), "damaged", None),
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
        (attribute("fingerprint", "[]"), "wrong-format", None),
        (attribute("fingerprint", fingerprint(mode="a\nb")), "wrong-format", None),
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


def test_a_fingerprint_is_words_of_one_line() -> None:
    with raises(FeatureError, "wrong-value", value="a\nb"):
        Fingerprint("a\nb", "none", "none", "none")
    with raises(FeatureError, "wrong-value", value="a\tb"):
        Fingerprint("a", "none", "none", "none", versions=(("a\tb", "1"),))
