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
from capbench.features.detectors.bottom_up_network import BottomUpConfig, load_bottom_up
from capbench.weights.checkpoints import fit_state, read_checkpoint, read_torch
from tests.errors import raises
from tests.features.networks import drawn


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


CONFIG = BottomUpConfig(
    blocks=(3, 4, 5), stem=4, bottleneck=2, res2=8, rpn=6, objectness=2, outputs=6, box_outputs=6, embedding=3,
    attribute_hidden=4, attribute_outputs=5,
)  # fmt: skip


def varint(value: int) -> bytes:
    digits = b""
    while value > 127:
        digits += bytes([value & 127 | 128])
        value >>= 7
    return digits + bytes([value])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def blob(values: np.ndarray, *, old: bool = False) -> bytes:
    data = field(5, values.astype("<f4").tobytes())
    if old:
        shape = (1,) * (4 - values.ndim) + values.shape
        return b"".join(varint(i << 3) + varint(n) for i, n in enumerate(shape, 1)) + data
    return field(7, field(1, b"".join(varint(n) for n in values.shape))) + data


def net(layers: dict[str, list[np.ndarray]], *, old: bool = False) -> bytes:
    """A net as Caffe writes it, in the old or the new form."""
    content = field(1, b"ResNet-101")
    for name, blobs in layers.items():
        body = field(4 if old else 1, name.encode()) + b"".join(field(6 if old else 7, blob(b, old=old)) for b in blobs)
        content += field(2 if old else 100, body + varint(10 << 3) + varint(1))
    return content


def as_caffe(state: dict[str, torch.Tensor]) -> dict[str, list[np.ndarray]]:
    """The layers that the original net would keep these weights in."""
    layers: dict[str, list[np.ndarray]] = {}
    for name in [n for n in state if n.endswith("norm.weight")]:
        conv = name.removesuffix(".norm.weight")
        words = conv.split(".")
        if "stem" in words:
            label, end = "", "conv1"
            keys = ("conv1", "bn_conv1", "scale_conv1")
        else:
            stage, block, module = words[-3], int(words[-2]), words[-1]
            lettered = stage in ("res2", "res5")
            label = stage[-1] + ("abc"[block] if lettered or block == 0 else f"b{block}")
            end = "branch" + {"shortcut": "1", "conv1": "2a", "conv2": "2b", "conv3": "2c"}[module]
            keys = (f"res{label}_{end}", f"bn{label}_{end}", f"scale{label}_{end}")
        layers[keys[0]] = [state[f"{conv}.weight"].numpy()]
        mean, variance = (state[f"{conv}.norm.running_{s}"].numpy() * 0.5 for s in ("mean", "var"))
        layers[keys[1]] = [mean, variance, np.array([0.5])]
        layers[keys[2]] = [state[f"{conv}.norm.{s}"].numpy() for s in ("weight", "bias")]
    heads = {
        "rpn_conv/3x3": "proposal_generator.rpn_head.conv",
        "rpn_cls_score": "proposal_generator.rpn_head.objectness_logits",
        "rpn_bbox_pred": "proposal_generator.rpn_head.anchor_deltas",
    }
    predictor = ("cls_score", "bbox_pred", "fc_attr", "attr_score")
    heads |= {name: f"roi_heads.box_predictor.{name}" for name in predictor}
    for layer, place in heads.items():
        layers[layer] = [state[f"{place}.{s}"].numpy() for s in ("weight", "bias")]
    layers["cls_embedding"] = [state["roi_heads.box_predictor.cls_embedding.weight"].numpy()]
    return layers


@pytest.mark.parametrize("old", [False, True])
def test_the_original_net_gives_the_same_network(tmp_path: Path, old: bool) -> None:
    network = drawn(CONFIG, 2)
    for name, values in network.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            values.uniform_(0.5, 2.0, generator=torch.Generator().manual_seed(len(name)))
    path = tmp_path / "final.caffemodel"
    path.write_bytes(net(as_caffe(network.state_dict()), old=old))
    loaded = load_bottom_up(read_checkpoint(path).tensors, path)
    assert loaded.config == CONFIG
    assert loaded.config.background_first
    for name, tensor in network.state_dict().items():
        if "cell_anchors" not in name:
            assert torch.allclose(loaded.state_dict()[name].float(), tensor.float(), rtol=1e-6), name


@pytest.mark.parametrize("cut", [1, 40, 5000])
def test_a_truncated_net_gives_one_line(tmp_path: Path, cut: int) -> None:
    data = net(as_caffe(drawn(CONFIG, 2).state_dict()))
    path = tmp_path / "cut.caffemodel"
    path.write_bytes(data[:-cut])
    with raises(ModelError, "damaged", path=path):
        read_checkpoint(path)
