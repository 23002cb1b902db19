"""PyTorch's files: what its own reader returns for sound ones, and one line for all others."""

from __future__ import annotations

import argparse
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.weights.checkpoints import read_checkpoint, read_torch


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
    ("zipped", "damage"), [(True, _one_bit), (True, lambda data: data[:-30]), (False, lambda data: data[:-1])]
)
def test_a_damaged_file_is_rejected_in_one_line(tmp_path: Path, zipped: bool, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "w.pth"
    torch.save({"ordered": torch.full((40,), 1.5)}, path, _use_new_zipfile_serialization=zipped)
    sound = path.read_bytes()
    path.write_bytes(damage(sound))
    assert path.read_bytes() != sound
    for read in (read_torch, read_checkpoint):
        with pytest.raises(ModelError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
