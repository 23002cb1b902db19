from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.features.detectors.bottom_up_network import BottomUpConfig, load_bottom_up
from capbench.weights.checkpoints import read_checkpoint
from tests.errors import raises
from tests.features.networks import drawn

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
