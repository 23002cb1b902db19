"""PyTorch's files: what its own reader returns for sound ones, and one line for all others."""

from __future__ import annotations

import argparse
import collections
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from capbench.core.errors import ModelError
from capbench.weights.checkpoints import read_checkpoint, read_torch

FORMS = [pytest.param(True, id="zip"), pytest.param(False, id="before-1.6")]


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


def _one_bit(data: bytes) -> bytes:
    place = data.index(struct.pack("<f", 1.5))
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("zipped", "damage"),
    [
        (True, _one_bit),
        (True, lambda data: data[:-30]),
        (False, lambda data: data[:-1]),
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
