"""Small files that expand to very large ones or point elsewhere: rejected in one line, in little time and memory."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from capbench.core import files
from capbench.core.download import unpack
from capbench.core.errors import CapbenchError, DataError, StudyError, UsageError
from capbench.core.yaml import parse_value, read_yaml
from capbench.datasets.pascal50s import read_pairs
from capbench.datasets.user.captions import user_items
from capbench.datasets.user.judgement_files import read_user_file
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.score_files import COLUMNS, read_score_file
from tests.errors import raises
from tests.features.fakes import PRINT, made_up

MEMORY = 400_000_000  # bytes; what the files stand for is a multiple of it


def refused(read: Callable[[], object], code: str | None = None) -> CapbenchError:
    """The error for a rejected file, in one line and in bounded memory."""
    tracemalloc.start()
    try:
        with pytest.raises(CapbenchError) as caught:
            read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    assert peak < MEMORY
    assert code is None or caught.value.code == code, f"code {caught.value.code!r}: {line}"
    return caught.value


# -- HDF5 -------------------------------------------------------------------------------------------------------------


def _unpacks_to_much(file: h5py.File) -> None:
    file.create_dataset("features", shape=(1_100_000, 16), dtype="<f4", chunks=(1_100_000, 16), compression="gzip")
    file["features"][:1] = 0


def _holds_nothing(file: h5py.File) -> None:
    file.create_dataset("features", shape=(1 << 30, 16), dtype="<f4", chunks=(1000, 16), compression="gzip")


def _two_filters(file: h5py.File) -> None:
    file.create_dataset("features", data=np.zeros((9, 16), "<f4"), compression="gzip", shuffle=True)


def _external_link(file: h5py.File) -> None:
    file["features"] = h5py.ExternalLink("right.h5", "/features")


def _external_bytes(file: h5py.File) -> None:
    file.create_dataset("features", shape=(4, 16), dtype="<f4", external=[("/etc/passwd", 0, 256)])


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(4, 16), dtype="<f4")
    layout[:] = h5py.VirtualSource("right.h5", "features", shape=(4, 16))
    file.create_virtual_dataset("features", layout)


def _soft_loop(file: h5py.File) -> None:
    file["features"] = h5py.SoftLink("/again")
    file["again"] = h5py.SoftLink("/features")


def _group_loop(file: h5py.File) -> None:
    file["features"] = file["/"]


STORES = (
    _unpacks_to_much, _holds_nothing, _two_filters, _external_link, _external_bytes, _virtual, _soft_loop, _group_loop,
)  # fmt: skip


@pytest.mark.parametrize("damage", STORES)
def test_a_store_that_is_larger_or_elsewhere_is_refused(damage: Callable[[h5py.File], None], tmp_path: Path) -> None:
    for name in ("right.h5", "a.h5"):
        with StoreWriter(tmp_path / name, PRINT) as writer:
            for image in ("one", "two"):
                writer.add(made_up(image, regions=2))
            writer.finish()
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        del file["features"]
        damage(file)
    assert (tmp_path / "a.h5").stat().st_size < 2_000_000
    assert refused(lambda: list(open_store(tmp_path / "a.h5"))).path == str(tmp_path / "a.h5")


# -- gzip, zip, MATLAB, Parquet --------------------------------------------------------------------------------------


def test_gzip_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_UNPACKED", 8_000_000)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(9_000_000)))
    assert refused(lambda: files.unpack_gzip(path), "too-large").path == str(path)
    path.write_bytes(gzip.compress(bytes(7_000_000)))
    assert len(files.unpack_gzip(path)) == 7_000_000


def test_gzip_of_captions_and_parses_goes_through_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capbench.datasets.user import caption_readers
    from capbench.text.spice import parse_file
    from capbench.text.spice.parser import SPICE_PARSER_VERSION
    from capbench.text.spice.scene_graph import import_parses

    monkeypatch.setattr(files, "_MAX_UNPACKED", 1_000_000)
    monkeypatch.setattr(parse_file, "_LARGEST_BLOCK", 1_000_000)
    bomb = gzip.compress(b"a dog\n" * 1_000_000)
    path = tmp_path / "bomb.parses"
    parse_file.write_parses(path, {bytes(16): b'[["a"]]' + b" " * 1_000_000}, (), SPICE_PARSER_VERSION)
    refused(lambda: import_parses(path))
    for folder in ("raw", "image_splits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "image_splits" / "val_images.txt").write_text("1.jpg\n")
    for number in range(1, 6):
        (tmp_path / "raw" / f"val.{number}.en.gz").write_bytes(bomb)
    refused(lambda: caption_readers.read_multi30k(tmp_path), "too-large")


def test_a_matlab_file_that_unpacks_to_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.io

    monkeypatch.setattr("capbench.datasets.pascal50s._MAT_MAX_UNPACKED", 20_000_000)
    scipy.io.savemat(tmp_path / "a.mat", {"x": np.zeros((1, 3_000_000))}, do_compression=True)
    assert (tmp_path / "a.mat").stat().st_size < 100_000
    assert "20 MB" in str(refused(lambda: read_pairs(tmp_path / "a.mat")))


def test_weights_that_unpack_to_much_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from capbench.weights.checkpoints import read_checkpoint

    np.savez_compressed(tmp_path / "a.npz", weight=np.zeros(9_000_000))
    assert "72,000" in str(refused(lambda: read_checkpoint(tmp_path / "a.npz"), "too-large"))


def test_a_covariance_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    from capbench.metrics.reo.metric import read_covariance

    np.savez_compressed(tmp_path / "a.npz", matrix=np.zeros((3000, 3000)))
    assert "72,000" in str(refused(lambda: read_covariance(tmp_path / "a.npz")))
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (1 << 20, 1 << 20)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("matrix.npy", stream.getvalue())
    assert "8,796,093,022,208" in str(refused(lambda: read_covariance(tmp_path / "a.npz")))


def _equal_rows(path: Path, n_rows: int, values: dict[str, Any], **how: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    zeros = pa.array(np.zeros(n_rows, np.int32))
    columns = {name: pa.DictionaryArray.from_arrays(zeros, pa.array([value])) for name, value in values.items()}
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False, **how)
    assert path.stat().st_size < 700_000
    return path


def test_a_parquet_file_of_too_many_rows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = _equal_rows(tmp_path / "a.parquet", 30_000_000, {"id": "a", "x": 1.0})
    assert "30,000,000" in str(refused(lambda: read_score_file(path)))


def test_equal_rows_of_a_parquet_file_are_refused_in_little_memory(tmp_path: Path) -> None:
    texts = {name: name * 10 for name in COLUMNS if name != "value"}
    path = _equal_rows(tmp_path / "a.parquet", 1_000_000, {**texts, "value": 1.0})
    assert refused(lambda: read_score_file(path)).row == 2


def test_long_texts_of_a_parquet_file_are_counted_however_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"id": "a" * 100_000, "x": 1.0}
    path = _equal_rows(tmp_path / "a.parquet", 2000, values)
    assert len(read_score_file(path)) == 2000  # one text
    monkeypatch.setattr("capbench.metrics.score_files._MOST_BYTES", 20_000_000)
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"):
        path = _equal_rows(tmp_path / "a.parquet", 2000, values, use_dictionary=False, column_encoding={"id": encoding})
        assert "0.02 GB" in str(refused(functools.partial(read_score_file, path)))


def _archive(path: Path, *members: tuple[str, int]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, "/etc/passwd")
    return path


@pytest.mark.parametrize(
    "name", ["../a.json", "a/../../a.json", "/tmp/a.json", "\\a.json", "C:\\a.json", "c:a.json", "..\\a.json"]
)
def test_an_archive_with_names_that_lead_out_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = _archive(tmp_path / "a.zip", ("good/a.json", 0o644), (name, 0o644))
    assert refused(lambda: unpack(path, {"a.json": None}, tmp_path / "in")).path == str(path)
    assert sorted(p.name for p in tmp_path.rglob("*.json")) == []


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    path = _archive(tmp_path / "a.zip", ("a.json", stat.S_IFLNK | 0o777))
    assert unpack(path, {"a.json": None}, tmp_path / "in") == ([], ["a.json"])
    assert not (tmp_path / "in" / "a.json").exists()


def test_names_in_an_npz_are_no_paths(tmp_path: Path) -> None:
    from capbench.features.importers import import_features

    stream = io.BytesIO()
    np.save(stream, np.ones((1, 2, 3), np.float32))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("../features.npy", "/tmp/features.npy"):
            archive.writestr(name, stream.getvalue())
    refused(lambda: import_features([tmp_path / "a.npz"], tmp_path / "a.h5", format="npz"))


# -- YAML, JSON, CSV --------------------------------------------------------------------------------------------------

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_yaml_whose_aliases_stand_for_billions_is_refused(tmp_path: Path, capbench: Any) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"schema: 1\nname: &n [a]\n{LAUGHS}metrics: *i\n")
    assert "aliases" in str(refused(lambda: read_yaml(path, "study"), "wrong-format"))
    ran = capbench("correlate", path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    with pytest.raises(ValueError, match="aliases"):
        parse_value("{" + LAUGHS.replace("\n", ", ").rstrip(", ") + "}")
    path.write_text("a: &a [1, 2]\nb: {c: *a, d: *a}\n")
    assert read_yaml(path, "study") == {"a": [1, 2], "b": {"c": [1, 2], "d": [1, 2]}}


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, "[[" * 50_000])
def test_deeply_nested_files_are_refused(text: str, tmp_path: Path) -> None:
    for name, read in (
        ("a.json", lambda path: user_items(path, path)),
        ("a.jsonl", lambda path: user_items(path, path)),
        ("b.jsonl", read_user_file),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(CapbenchError) as caught:
            read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_deeply_nested_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: " + "[" * 2_000 + "]" * 2_000)
    with raises(StudyError, "too-large", path=tmp_path / "a.yaml"):
        read_yaml(tmp_path / "a.yaml", "study")


def test_nul_bytes_in_a_table_are_refused_with_their_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"image,candidate,reference_1,rating\na,a dog,the dog,2\nb,a\0cat,the cat,4\n")
    assert refused(lambda: read_user_file(tmp_path / "a.csv"), "damaged").row == 3


# -- what is no file --------------------------------------------------------------------------------------------------


def _no_file(folder: Path, kind: str) -> Path:
    path = folder / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "device"])
def test_what_is_no_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = _no_file(tmp_path, kind)
    for read in (files.read_text, files.read_bytes, files.sha256_file, files.check_readable, files.unpack_gzip):
        refused(functools.partial(read, path))
    if kind != "loop":
        with raises(UsageError, "unwritable", path=path), files.atomic_write(path) as stream:
            stream.write("a")
        with raises(UsageError, "unwritable", path=path):
            files.check_writable(path)
    assert path.is_symlink() or not path.is_file()


def test_devices_are_not_replaced_by_files() -> None:
    for name in ("/dev/null", "/dev/stdout"):
        with raises(UsageError, "unwritable", path=name), files.atomic_write(name) as stream:
            stream.write("a")
    assert Path("/dev/null").is_char_device()


def test_a_pipe_that_something_writes_to_is_read(tmp_path: Path) -> None:
    """As a shell's <(command) gives it."""
    (tmp_path / "r.json").write_text(json.dumps({"a": ["a dog"]}))
    code = (
        "import os, sys\n"
        "from capbench.datasets.user.captions import user_items\n"
        "read, write = os.pipe()\n"
        'os.write(write, b\'[{"image_id": "a", "caption": "a cat"}]\')\n'
        "os.close(write)\n"
        "print(user_items(f'/dev/fd/{read}', sys.argv[1])[0].candidate)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r.json")], capture_output=True, text=True)
    if "/dev/fd" in ran.stderr and "ending" in ran.stderr:
        pytest.skip("the kind of a pipe cannot be told from its name")
    assert ran.stdout == "a cat\n", ran.stderr


def test_a_missing_file_is_still_missing(tmp_path: Path) -> None:
    for name in ("missing", "a\0b"):
        with raises(DataError, "missing-file", path=tmp_path / name):
            files.read_text(tmp_path / name)
