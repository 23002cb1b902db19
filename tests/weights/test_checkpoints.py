from __future__ import annotations

import argparse
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from capbench.core.errors import ModelError
from capbench.weights.checkpoints import fit_state, read_checkpoint, read_torch
from tests.errors import raises


def _same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return actual.keys() == expected.keys() and all(torch.equal(actual[k], expected[k]) for k in expected)


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    return {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([3, 4])}


def test_nested_wrappers_are_removed(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    for prefix in ("module._orig_mod.", "_orig_mod.module.", "module.module."):
        torch.save({prefix + key: value for key, value in tensors.items()}, tmp_path / "w.pth")
        assert _same(read_checkpoint(tmp_path / "w.pth").tensors, tensors)
    torch.save({"b": torch.ones(1), "module.b": torch.zeros(1)}, tmp_path / "two.pth")
    with raises(ModelError, "duplicate", path=tmp_path / "two.pth", value="b"):
        read_checkpoint(tmp_path / "two.pth")


def test_a_detectron2_pickle_is_read(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    arrays = {key: value.numpy() for key, value in tensors.items()}
    path = tmp_path / "w.pkl"
    path.write_bytes(pickle.dumps({"model": arrays, "__author__": "someone", "matching_heuristics": True}, protocol=2))
    checkpoint = read_checkpoint(path)
    assert _same(checkpoint.tensors, tensors)
    assert len(checkpoint.sha256) == 64


def test_npz_and_safetensors_are_read(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    arrays: dict[str, Any] = {key: value.numpy() for key, value in tensors.items()}
    np.savez(tmp_path / "w.npz", **arrays)
    assert _same(read_checkpoint(tmp_path / "w.npz").tensors, tensors)
    values = np.array([1.5, -2.0], dtype=np.float32)
    upper = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "half": {"dtype": "F16", "shape": [2, 1], "data_offsets": [0, 4]},
        "brain": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 8]},
    }).encode()  # fmt: skip
    body = values.astype(np.float16).tobytes() + upper
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
    loaded = read_checkpoint(tmp_path / "w.safetensors").tensors
    assert _same(loaded, {"half": torch.tensor([[1.5], [-2.0]]), "brain": torch.tensor([1.5, -2.0])})
    cut = (tmp_path / "w.safetensors").read_bytes()[:-2]
    (tmp_path / "cut.safetensors").write_bytes(cut)
    with raises(ModelError, "unreadable", path=tmp_path / "cut.safetensors"):
        read_checkpoint(tmp_path / "cut.safetensors")


class _Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("boom",))


@pytest.mark.parametrize("torch_file", [True, False])
def test_a_file_with_code_is_rejected_and_runs_nothing(
    tmp_path: Path, torch_file: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bomb.pth"
    if torch_file:
        torch.save({"model": _Bomb()}, path)
    else:
        path.write_bytes(pickle.dumps({"model": _Bomb()}))
    with raises(ModelError, "unsafe", path=path):
        read_checkpoint(path)
    assert "boom" not in capsys.readouterr().out


def test_tensors_that_do_not_match_the_network_are_named() -> None:
    layer = nn.Linear(2, 3)
    right = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}
    fit_state(layer, right, "w.pth")
    assert not layer.training
    assert torch.equal(layer.weight, torch.ones(3, 2))
    with raises(ModelError, "missing-key", path="w.pth", value="bias"):
        fit_state(layer, {"weight": torch.ones(3, 2)}, "w.pth")
    with raises(ModelError, "unknown-key", path="w.pth", value="extra"):
        fit_state(layer, right | {"extra": torch.ones(1)}, "w.pth")
    with raises(ModelError, "wrong-shape", path="w.pth", value="bias") as caught:
        fit_state(layer, right | {"bias": torch.zeros(4)}, "w.pth")
    assert "(4,)" in caught.value.message
    assert "(3,)" in caught.value.message
    with raises(ModelError, "duplicate", path="w.pth", value="bias"):
        fit_state(layer, right | {"old.bias": torch.zeros(3)}, "w.pth", rename=lambda n: n.removeprefix("old."))


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
