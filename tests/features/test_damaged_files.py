"""Whatever a file holds, reading it ends well or with one line that says what is wrong."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capbench.core.errors import CapbenchError
from capbench.features.importers import import_features
from capbench.features.maintenance import describe, verify_store
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from tests.features.fakes import PRINT, made_up
from tests.features.foreign_files import butd_row, lxmert_row, make_lmdb, vilbert

Draw = Any
NORMAL, NIGHTLY = 30, 1000
HEALTH = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SIZES = [
    pytest.param(settings(max_examples=NORMAL, deadline=None, derandomize=True, suppress_health_check=HEALTH)),
    pytest.param(settings(max_examples=NIGHTLY, deadline=None, suppress_health_check=HEALTH), marks=pytest.mark.slow),
]
NUMBERS = (0, 1, -1, 2, 3, 7, 255, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
DTYPES = ("<f4", ">f4", "<f2", "<f8", "<i8", "<u8", "i1", "?", "S4", "<U3", "<c8", "<M8[s]", "V4", "O")


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def npz(arrays: dict[str, Any], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """``bytes`` are members as they are; anything else is saved as an array."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, value in arrays.items():
            archive.writestr(f"{name}.npy", value if isinstance(value, bytes) else npy(value))
    return stream.getvalue()


def reads(read: Callable[[], object]) -> str:
    """Run it: ``ok``, or ``refused`` with one line; every other error is a failure of the test."""
    message = ""
    try:
        read()
    except CapbenchError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 2000
    return "refused" if message else "ok"


def imports(source: Path, format: str, ids: Path | None = None) -> str:
    target = source.parent / "made.h5"
    outcome = reads(lambda: import_features([source], target, format=format, ids=ids, replace=True))
    assert not target.with_name("made.h5.partial").exists()
    if outcome == "ok":
        assert verify_store(open_store(target)).bad == 0
    return outcome


# -- damage ----------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: Draw, data: bytes) -> bytes:
    """Bytes with some of them changed, cut off, repeated or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(changed) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "set", "cut", "drop", "repeat", "number")))
        if kind == "flip" and changed:
            changed[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and changed:
            changed[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del changed[place:]
        elif kind == "drop":
            del changed[place : place + draw(st.integers(1, 64))]
        elif kind == "repeat":
            changed[place:place] = changed[place : place + draw(st.integers(1, 64))]
        elif kind == "number":
            width = draw(st.sampled_from((2, 4, 8)))
            number = draw(st.sampled_from(NUMBERS)) % (1 << 8 * width)
            changed[place : place + width] = number.to_bytes(width, "little")
    return bytes(changed)


@st.composite
def headers(draw: Draw) -> bytes:
    """``.npy`` files whose header says anything."""
    shape = tuple(draw(st.lists(st.sampled_from((0, 1, 2, 3, 4, -1, 1 << 20, 1 << 62)), max_size=4)))
    right = {"descr": draw(st.sampled_from(DTYPES)), "fortran_order": draw(st.booleans()), "shape": shape}
    wrong = ("{", "{}", "{'descr': [('a', '<f4')], 'fortran_order': 0, 'shape': ()}", "(" * 300, "-" * 99)
    texts = st.one_of(st.just(repr(right)), st.text(max_size=40), st.sampled_from(wrong))
    text: bytes = draw(texts).encode("utf-8", "replace")
    version = draw(st.sampled_from(((1, 0), (2, 0), (3, 0), (9, 9))))
    length = draw(st.one_of(st.just(len(text)), st.integers(0, 60_000)))
    size = length.to_bytes(2 if version == (1, 0) else 4, "little")
    data: bytes = b"\x93NUMPY" + bytes(version) + size + text + draw(st.binary(max_size=64))
    return data


@st.composite
def arrays(draw: Draw, right: Any = None) -> Any:
    """An array that fits, one of another shape or type, or an array file that is none."""
    if right is not None and draw(st.integers(0, 9)):
        return right
    if draw(st.integers(0, 4)) == 0:
        return draw(headers())
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    order = draw(st.sampled_from("CF"))
    if dtype.hasobject:
        value = draw(st.sampled_from((None, {}, [1], "text", {"objects_id": [1], "image_id": b"\xff"})))
        return np.array(value, dtype=object)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(draw(st.binary(min_size=count, max_size=count)), dtype=dtype).reshape(shape, order=order)


@st.composite
def archives(draw: Draw, right: dict[str, Any], more: tuple[str, ...] = ()) -> bytes:
    """``.npz`` files of the right names, with arrays that may not fit."""
    names = [name for name in right if draw(st.integers(0, 29))]
    members = {name: draw(arrays(right[name])) for name in names}
    members |= {name: draw(arrays()) for name in more if not draw(st.integers(0, 9))}
    data = npz(members, draw(st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))))
    changed: bytes = data if draw(st.integers(0, 2)) else draw(damaged(data))
    return changed


# -- importers -------------------------------------------------------------------------------------------------------

ONE, TWO = made_up("one", regions=2, size=4), made_up("two", regions=3, size=4)
MILVLG = {
    "x": ONE.features,
    "bbox": ONE.boxes,
    "image_h": ONE.height,
    "image_w": ONE.width,
    "num_bbox": 2,
    "info": {"objects_id": ONE.class_ids, "objects_conf": ONE.class_scores},
}
PLAIN = {
    "image_names": np.array(["a.jpg", "b.jpg"]),
    "features": np.ones((2, 2, 3), np.float32),
    "image_sizes": np.array([[9, 8], [7, 6]]),
    "boxes": np.tile(np.array([0, 0, 2, 2], np.float32), (2, 2, 1)),
    "class_ids": np.zeros((2, 2), np.int64),
}
PLAIN_MORE = (
    "offsets",
    "features_int8",
    "scale",
    "boxes_normalised_xyxy",
    "image_ids",
    "class_scores",
    "attribute_ids",
)


ODD = st.one_of(st.none(), st.text(max_size=5), st.binary(max_size=9), st.floats(), st.just([[1], 2]))
FIELDS = st.sampled_from(("features", "bbox", "num_boxes", "image_id", "objects", "cls_prob", "image_width"))
CHANGES = st.dictionaries(FIELDS, ODD, max_size=2)


def tsv(*rows: str) -> bytes:
    return "".join(f"{row}\r\n" for row in rows).encode()


IMPORTERS: dict[str, tuple[str, str, st.SearchStrategy[bytes]]] = {
    "butd-tsv": ("a.tsv", "butd-tsv", damaged(tsv(butd_row(ONE), butd_row(TWO)))),
    "lxmert-tsv": ("a.tsv", "lxmert-tsv", damaged(tsv(lxmert_row(ONE), lxmert_row(TWO)))),
    "milvlg": ("a.npz", "milvlg", archives(MILVLG)),
    "npz": ("a.npz", "npz", archives(PLAIN, PLAIN_MORE)),
    "scan": (
        "a.npy",
        "scan",
        st.one_of(damaged(npy(np.ones((3, 2, 4), np.float32))), headers(), archives(PLAIN), arrays().map(npy)),
    ),
    "vilbert": (
        "a.npy",
        "vilbert",
        st.one_of(
            damaged(npy(np.array(vilbert(ONE), dtype=object))),
            CHANGES.map(lambda change: npy(np.array(vilbert(ONE) | change, dtype=object))),
            headers(),
            archives(MILVLG),
        ),
    ),
    "seen": ("a.bin", "", st.one_of(st.binary(max_size=99), headers(), archives(MILVLG), archives(PLAIN))),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reader", IMPORTERS)
def test_importers_take_any_file(reader: str, size: settings, tmp_path: Path) -> None:
    name, format, contents = IMPORTERS[reader]
    ids = tmp_path / "ids.txt"
    ids.write_text("a\nb\nc\n")
    outcomes: dict[str, int] = {"ok": 0, "refused": 0}

    @size
    @given(contents)
    def check(data: bytes) -> None:
        (tmp_path / name).write_bytes(data)
        outcomes[imports(tmp_path / name, format or None, ids if format == "scan" else None)] += 1  # type: ignore[arg-type]

    check()
    print(reader, outcomes)
    assert outcomes["refused"]


@pytest.mark.parametrize("size", SIZES)
def test_lmdb_records_may_be_anything(size: settings, tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    outcomes: dict[str, int] = {"ok": 0, "refused": 0}
    values = st.one_of(
        damaged(pickle.dumps(vilbert(ONE))),
        st.binary(max_size=99),
        CHANGES.map(lambda change: pickle.dumps(vilbert(ONE) | change)),
    )

    @size
    @given(st.binary(min_size=1, max_size=30), values)
    def check(key: bytes, value: bytes) -> None:
        shutil.rmtree(tmp_path / "base", ignore_errors=True)
        make_lmdb(tmp_path / "base", {key: value})
        outcomes[imports(tmp_path / "base", "lmdb")] += 1

    check()
    print("lmdb", outcomes)
    assert outcomes["refused"]


# -- the store --------------------------------------------------------------------------------------------------------


def read_all(path: Path) -> None:
    with open_store(path) as store:
        store.signature().encode()
        json.dumps(describe(store))
        verify_store(store)
        for regions in store:
            regions.flat()


@cache
def store_bytes(folder: Path, compression: str) -> bytes:
    with StoreWriter(folder / "right.h5", PRINT, compression=compression, class_names=("a", "b", "c")) as writer:
        for image in ("one", "two", "three"):
            writer.add(made_up(image, size=4))
        writer.finish()
    data = (folder / "right.h5").read_bytes()
    (folder / "right.h5").unlink()
    return data


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_damaged_store_is_refused(compression: str, size: settings, tmp_path: Path) -> None:
    right = store_bytes(tmp_path, compression)
    outcomes: dict[str, int] = {"ok": 0, "refused": 0}

    @size
    @given(damaged(right))
    def check(data: bytes) -> None:
        (tmp_path / "a.h5").write_bytes(data)
        outcomes[reads(lambda: read_all(tmp_path / "a.h5"))] += 1

    check()
    print("store", compression, outcomes)
    assert outcomes["refused"]


@st.composite
def edits(draw: Draw) -> Callable[[h5py.File], None]:
    """A change to one name of a store: another type, another shape, a link, nothing behind it."""
    attribute = draw(st.booleans())
    names = ("format", "version", "fingerprint", "fingerprint_id")
    datasets = ("features", "image_ids", "image_sizes", "offsets", "checksums", "boxes", "class_ids", "class_names")
    name = draw(st.sampled_from(names if attribute else datasets))
    values: list[Any] = [1, "text", "", b"raw\xff", np.arange(3), np.float64("nan"), h5py.Empty("f4")]
    values += ["[]", "[" * 999, "{}", "null", PRINT.json(), np.array([b"\xff", b"a"]), np.zeros((2, 2), "<i8")]
    values += [np.array(["a", "b"], dtype=h5py.string_dtype())]
    value = draw(st.sampled_from(values))
    kind = draw(st.sampled_from(("value", "remove", "group", "soft", "external", "huge", "deep", "other")))

    def edit(file: h5py.File) -> None:
        place = file.attrs if attribute else file
        shape, dtype = ((), "i1") if attribute else (file[name].shape, file[name].dtype)
        del place[name]
        if kind == "value":
            place[name] = value
        elif attribute and kind != "remove":
            place.create(name, 1, dtype="i1")
        elif kind == "group":
            file.create_group(name)
        elif kind == "soft":
            file[name] = h5py.SoftLink("/offsets")
        elif kind == "external":
            file[name] = h5py.ExternalLink("right.h5", f"/{name}")
        elif kind == "huge":
            file.create_dataset(name, shape=(1 << 40, *shape[1:]), dtype=dtype, chunks=(1, *shape[1:]))
        elif kind == "deep":
            file.create_dataset(name, shape=shape, dtype=dtype, chunks=shape, compression="gzip")
        elif kind == "other":
            file.create_dataset(name, data=np.zeros((*shape, 1), dtype=dtype))

    return edit


@pytest.mark.parametrize("size", SIZES)
def test_a_store_with_parts_of_other_types_is_refused(size: settings, tmp_path: Path) -> None:
    right = store_bytes(tmp_path, "none")
    (tmp_path / "right.h5").write_bytes(right)
    outcomes: dict[str, int] = {"ok": 0, "refused": 0}

    @size
    @given(edits())
    def check(edit: Callable[[h5py.File], None]) -> None:
        (tmp_path / "a.h5").write_bytes(right)
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            edit(file)
        outcomes[reads(lambda: read_all(tmp_path / "a.h5"))] += 1

    check()
    print("store's parts", outcomes)
    assert outcomes["refused"]


def test_a_name_of_numbers_that_are_no_characters_is_refused(tmp_path: Path) -> None:
    names = np.frombuffer(np.array([1 << 24, 1 << 24, 0, 97, 0, 0], dtype="<u4").tobytes(), dtype="<U3")
    content = npz({"image_names": names, "features": np.ones((2, 2, 3), dtype=np.float32)})
    (tmp_path / "made.npz").write_bytes(content)
    assert imports(tmp_path / "made.npz", None) == "refused"  # type: ignore[arg-type]
    assert not (tmp_path / "made.h5").exists()
