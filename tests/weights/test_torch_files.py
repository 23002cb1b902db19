"""PyTorch's files: what its own reader returns for sound ones, and one line for all others."""

from __future__ import annotations

import argparse
import collections
import io
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from capbench.core.errors import ModelError
from capbench.weights.checkpoints import read_checkpoint, read_torch
from capbench.weights.torch_files import LEGACY_MAGIC
from tests.errors import raises

FORMS = [pytest.param(True, id="zip"), pytest.param(False, id="before-1.6")]
KINDS = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
)  # fmt: skip


def _training() -> dict[str, Any]:
    """What a training script may keep."""
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.1)
    network(torch.ones(2, 3)).sum().backward()
    optimiser.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2, 2, 5])
    return {
        "model": network.state_dict(),
        "optimizer": optimiser.state_dict(),
        "schedule": schedule.state_dict(),
        "opt": argparse.Namespace(margin=0.2, names=["a", "é"]),
        "epoch": np.int64(7),
        "best": np.float64(0.5),
        "history": np.arange(6.0).reshape(2, 3),
        "big": np.arange(3, dtype=">i2"),
        "shape": torch.Size([2, 3]),
        "kind": torch.float16,
        "nested": [(1, "x", None, 2.5, True, b"\x00\xff"), {1, 2}, 1 + 2j, 10**30],
    }


def _save(path: Path, value: Any, zipped: bool) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.stride() == other.stride() and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, argparse.Namespace):
        return _equal(vars(one), vars(other))
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize("zipped", FORMS)
def test_a_training_checkpoint_is_read_as_pytorch_reads_it(tmp_path: Path, zipped: bool) -> None:
    path = _save(tmp_path / "w.pth", _training(), zipped)
    found = read_torch(path)
    assert _equal(found, torch.load(path, weights_only=False))
    assert type(found["schedule"]["milestones"]) is collections.Counter
    assert type(found["epoch"]) is np.int64


@pytest.mark.parametrize("zipped", FORMS)
def test_tensors_of_all_kinds_and_layouts_keep_every_bit(tmp_path: Path, zipped: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    base = torch.randn(6, 5, generator=generator)
    tensors = {str(kind): (10 * base).to(kind) for kind in KINDS}
    tensors |= {
        "transposed": base.t(),
        "part": base[1:4, ::2],
        "row": base[2],
        "one for all": torch.tensor([1.5]).expand(3, 4),
        "single": torch.tensor(2.5),
        "none": torch.empty(0, 3),
        "parameter": nn.Parameter(base[:2]),
    }
    found = read_torch(_save(tmp_path / "w.pth", tensors, zipped))
    assert list(found) == list(tensors)
    assert all(_equal(found[name], tensors[name].detach()) for name in tensors)
    assert found["row"].untyped_storage().data_ptr() == found["transposed"].untyped_storage().data_ptr()
    assert not any(tensor.requires_grad for tensor in found.values())


def test_newer_kinds_and_tensors_with_attributes_are_read(tmp_path: Path) -> None:
    tensor, parameter = torch.arange(6.0), nn.Parameter(torch.ones(2))
    tensor.note = parameter.note = "x"  # type: ignore[attr-defined]
    value = {
        "short": torch.arange(5).to(torch.uint16),
        "eight": torch.arange(4.0).to(torch.float8_e5m2),
        "tensor": tensor,
        "parameter": parameter,
    }
    found = read_torch(_save(tmp_path / "w.pth", value, True))
    assert found["short"].tolist() == [0, 1, 2, 3, 4]
    assert found["eight"].dtype == torch.float8_e5m2
    assert found["eight"].float().tolist() == [0, 1, 2, 3]
    assert found["tensor"].tolist() == tensor.tolist()
    assert found["parameter"].tolist() == [1, 1]


def test_files_of_the_original_code_are_read(parity: Path) -> None:
    path = parity / "scan" / "model_best.pth.tar"
    found = read_torch(path)
    images, texts = found["model"]
    assert (found["epoch"], found["best_rsum"], found["Eiters"]) == (7, 123.4, 4321)
    assert isinstance(found["opt"], argparse.Namespace)
    expected = np.load(parity / "scan" / "scan_vectors.npz")
    for kind, state in (("img", images), ("txt", texts)):
        for name, tensor in state.items():
            np.testing.assert_array_equal(tensor.numpy(), expected[f"bi__{kind}__{name}"])


# -- hostile files ----------------------------------------------------------------------------------------------------


def _archive(path: Path, pickled: bytes, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", pickled)
        archive.writestr("a/version", "3\n")
        for name, content in members.items():
            archive.writestr(f"a/data/{name[1:]}", content)
    return path


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<i", len(text)) + text.encode()


def _number(number: int) -> bytes:
    return b"\x8a\x10" + number.to_bytes(16, "little", signed=True)


def _numbers(numbers: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def _tensor(shape: tuple[int, ...], strides: tuple[int, ...], begin: int = 0, count: int = 4) -> bytes:
    """The pickle of ``{"x": tensor}`` whose four numbers lie in ``data/0``."""
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + _number(count) + b"tQ"
    arguments = storage + _number(begin) + _numbers(shape) + _numbers(strides) + b"\x89N"
    return b"\x80\x02}" + _text("x") + b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tRs."


_DTYPE = b"cnumpy\ndtype\n(" + _text("f8") + b"K\x00K\x01tR"
HOSTILE = {
    "a key of nested tuples": b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
    "an array of any size": b"\x80\x02}" + _text("x") + b"cnumpy\nndarray\n" + _number(1 << 30) + b"\x85" + _text("O")
    + b"\x86Rs.",
    "fields beyond the data": b"\x80\x02}" + _text("x") + _DTYPE + b"(K\x03" + _text("<") + b"N" + _text("a") + b"\x85}"
    + _text("a") + _DTYPE + b"M\xff\x7f\x86sK\x08K\x01K\x00tbs.",
    "another state for a tensor": _tensor((4,), (1,))[:-2] + b"}" + _text("a") + b"K\x01sbs.",
    "beyond its storage": _tensor((2, 4), (4, 1)),
    "behind its storage": _tensor((2,), (1,), begin=3),
    "far strides": _tensor((2,), (1 << 40,)),
    "negative": _tensor((4,), (-1,), begin=3),
    "negative shape": _tensor((-4,), (1,)),
    "immense": _tensor((1 << 40, 1 << 40), (0, 0)),
    "many axes": _tensor((1,) * 100, (0,) * 100),
    "a storage of another size": _tensor((4,), (1,), count=1 << 40),
    "a storage alone": b"\x80\x02(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu")
    + b"K\x04tQ.",
    "no storage": b"\x80\x02}" + _text("x") + b"ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x00))\x89NtRs.",
}  # fmt: skip


def test_hostile_files_are_rejected_in_one_line_each(tmp_path: Path) -> None:
    four = struct.pack("<4f", 1, 2, 3, 4)
    paths = [_archive(tmp_path / f"{what}.pth", pickled, _0=four) for what, pickled in HOSTILE.items()]
    # In a process of its own: PyTorch's reader crashes on some of these.
    code = (
        "import sys\n"
        "from capbench.core.errors import ModelError\n"
        "from capbench.weights.checkpoints import read_torch\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        read_torch(path)\n"
        "    except ModelError as error:\n"
        "        print(error, flush=True)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran
    for path, line in zip(paths, ran.stdout.splitlines(), strict=True):
        assert line.startswith(f"{path}: ")


def test_the_same_forms_are_read_where_they_are_sound(tmp_path: Path) -> None:
    four = struct.pack("<4f", 1, 2, 3, 4)
    assert read_torch(_archive(tmp_path / "w.pth", _tensor((4,), (1,)), _0=four))["x"].tolist() == [1, 2, 3, 4]
    found = read_torch(_archive(tmp_path / "w.pth", _tensor((2, 2), (1, 2)), _0=four))["x"]
    assert found.tolist() == [[1, 3], [2, 4]]


def _packed(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    return stream.getvalue()


def _without_pickle(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(stream, "w") as archive:
        for name in source.namelist():
            if not name.endswith("data.pkl"):
                archive.writestr(name, source.read(name))
    return stream.getvalue()


def _one_bit(data: bytes) -> bytes:
    place = data.index(struct.pack("<f", 1.5))
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("zipped", "damage"),
    [
        (True, _packed),
        (True, _without_pickle),
        (True, _one_bit),
        (True, lambda data: data[:-30]),
        (False, lambda data: data[:-1]),
        (False, lambda data: data[: data.index(b"ordered") - 5]),
        (False, lambda data: data.replace(LEGACY_MAGIC, b"\x8a\x0a0123456789")),
        (False, lambda data: data.replace(struct.pack("<q", 40), struct.pack("<q", 1 << 50))),
    ],
)
def test_a_damaged_file_is_rejected_in_one_line(tmp_path: Path, zipped: bool, damage: Callable[[bytes], bytes]) -> None:
    path = _save(tmp_path / "w.pth", {"ordered": torch.full((40,), 1.5)}, zipped)
    sound = path.read_bytes()
    path.write_bytes(damage(sound))
    assert path.read_bytes() != sound
    for read in (read_torch, read_checkpoint):
        with pytest.raises(ModelError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


def test_truth_values_are_zero_or_one_whatever_the_file_holds(tmp_path: Path) -> None:
    path = _save(tmp_path / "w.pth", {"x": torch.ones(64, dtype=torch.bool)}, False)
    path.write_bytes(path.read_bytes().replace(b"\1" * 64, b"\xfe" * 64))
    found = read_torch(path)["x"]
    assert found.sum() == 64
    assert found.view(torch.uint8).max() == 1


def test_tensors_that_are_not_dense_are_named_in_their_place(tmp_path: Path) -> None:
    for tensor in (
        torch.eye(3).to_sparse(),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.empty(3, device="meta"),
    ):
        path = _save(tmp_path / "w.pth", {"a": torch.ones(2), "odd": tensor}, True)
        with raises(ModelError, "wrong-type", path=path, value="odd"):
            read_checkpoint(path)


# -- damage at random -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.slow)])
def test_no_damaged_file_crashes_the_interpreter(tmp_path: Path, count: int) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.GRU(4, 2, bidirectional=True))
    mixed = {"flags": torch.ones(9, dtype=torch.bool), "wide": torch.ones(2, 3).t(), "half": torch.ones(3).half()}
    for zipped in (True, False):
        _save(tmp_path / f"training-{zipped}.pth", _training(), zipped)
        _save(tmp_path / f"mixed-{zipped}.pth", {**mixed, "model": network.state_dict()}, zipped)
    place = os.environ.get("CAPBENCH_PARITY")
    real = Path(place) / "scan" / "model_best.pth.tar" if place else None
    if real is not None and real.is_file():
        (tmp_path / "real.pth").write_bytes(real.read_bytes())
    command = [sys.executable, "-m", "tests.weights.torch_fuzz", str(tmp_path), "0", str(count)]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    assert ran.returncode == 0, f"{(tmp_path / 'case').read_text()}: {ran.stderr[-2000:]}"
