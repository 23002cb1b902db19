from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.features.detectors.x152_fpn import X152FPN, X152Config, load_x152
from tests.features.networks import drawn

SMALL = X152Config(
    blocks=(1, 2, 2, 1), stem=4, groups=2, inner=4, outer=8, pyramid=6, hidden=10, outputs=7, box_outputs=7, pooled=7
)

# Names that maskrcnn-benchmark's ResNeXt-152 FPN checkpoints have, with their shapes.
PUBLISHED = {
    "backbone.body.stem.conv1.weight": [64, 3, 7, 7],
    "backbone.body.stem.bn1.running_mean": [64],
    "backbone.body.layer1.0.conv1.weight": [256, 64, 1, 1],
    "backbone.body.layer1.0.downsample.0.weight": [256, 64, 1, 1],
    "backbone.body.layer1.0.downsample.1.running_var": [256],
    "backbone.body.layer2.7.conv2.weight": [512, 16, 3, 3],
    "backbone.body.layer3.35.bn3.weight": [1024],
    "backbone.body.layer4.2.conv3.weight": [2048, 2048, 1, 1],
    "backbone.fpn.fpn_inner4.weight": [512, 2048, 1, 1],
    "backbone.fpn.fpn_layer1.bias": [512],
    "rpn.head.conv.weight": [512, 512, 3, 3],
    "rpn.head.cls_logits.weight": [3, 512, 1, 1],
    "rpn.head.bbox_pred.bias": [12],
    "roi_heads.box.feature_extractor.fc6.weight": [2048, 25088],
    "roi_heads.box.feature_extractor.fc7.weight": [2048, 2048],
    "roi_heads.box.predictor.cls_score.weight": [1601, 2048],
    "roi_heads.box.predictor.bbox_pred.weight": [6404, 2048],
}


def to_detectron(name: str) -> str | None:
    if name.endswith(("running_mean", "running_var")):
        return None
    end = {"weight": "w", "bias": "b"}[name.rpartition(".")[2]]
    if match := re.match(r"backbone\.body\.stem\.(conv1|bn1)\.", name):
        return "conv1_w" if match[1] == "conv1" else f"res_conv1_bn_{'s' if end == 'w' else 'b'}"
    if match := re.match(r"backbone\.body\.layer(\d)\.(\d+)\.(downsample\.[01]|conv\d|bn\d)\.", name):
        layer = {"downsample.0": "1", "downsample.1": "1_bn"}.get(match[3])
        if layer is None:
            layer = "2" + "abc"[int(match[3][-1]) - 1] + ("_bn" if "bn" in match[3] else "")
        end = {"w": "s", "b": "b"}[end] if layer.endswith("_bn") else end
        return f"res{int(match[1]) + 1}_{match[2]}_branch{layer}_{end}"
    if match := re.match(r"backbone\.fpn\.fpn_(inner|layer)(\d)\.", name):
        last = SMALL.blocks[int(match[2]) - 1] - 1
        inner = "inner_" if match[1] == "inner" else ""
        lateral = "_lateral" if inner and match[2] != "4" else ""
        return f"fpn_{inner}res{int(match[2]) + 1}_{last}_sum{lateral}_{end}"
    heads = {"conv": "conv_rpn_fpn2", "cls_logits": "rpn_cls_logits_fpn2", "bbox_pred": "rpn_bbox_pred_fpn2"}
    layer = name.split(".")[-2]
    return f"{heads[layer] if name.startswith('rpn') else layer}_{end}"


def test_the_full_network_has_the_published_names_and_shapes() -> None:
    with torch.device("meta"):
        shapes = {name: list(tensor.shape) for name, tensor in X152FPN(X152Config()).state_dict().items()}
    assert {name: shapes.get(name) for name in PUBLISHED} == PUBLISHED
    # 3 + 8 + 36 + 3 blocks of 3 convolutions with 4 numbers a normalisation, 4 shortcuts, the stem, pyramid and heads.
    assert len(shapes) == (50 * 3 + 4 + 1) * 5 + 4 * 4 + 3 * 2 + 4 * 2


def test_maskrcnn_names_load_and_other_heads_are_left() -> None:
    state = dict(drawn(SMALL, 0).state_dict())
    state["rpn.anchor_generator.cell_anchors.0"] = torch.zeros(3, 4)
    state["roi_heads.attribute.predictor.attr_score.weight"] = torch.zeros(2, 2)
    loaded = load_x152(state)
    assert loaded.config == SMALL
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.state_dict().items())
    with pytest.raises(ModelError, match=r"'backbone\.fpn\.fpn_layer2\.bias'"):
        load_x152({name: t for name, t in state.items() if name != "backbone.fpn.fpn_layer2.bias"})
    with pytest.raises(ModelError, match="maskrcnn-benchmark or Detectron"):
        load_x152({"conv.weight": torch.zeros(1)})


def test_detectron_blobs_give_the_same_network() -> None:
    network = drawn(SMALL, 0)
    blobs = {new: tensor for name, tensor in network.state_dict().items() if (new := to_detectron(name)) is not None}
    assert "res5_0_branch2b_bn_s" in blobs
    assert "fpn_inner_res4_1_sum_lateral_w" in blobs
    loaded = load_x152(blobs | {"conv1_w_momentum": torch.zeros(1), "lr": torch.zeros(1)})
    assert all(torch.equal(tensor, network.state_dict()[name]) for name, tensor in loaded.state_dict().items())


def test_levels_halve_and_small_regions_come_from_fine_ones() -> None:
    network = drawn(SMALL, 0)
    with torch.inference_mode():
        levels = network.features(torch.full((1, 3, 128, 192), 100.0))
        assert [tuple(level.shape) for level in levels] == [
            (1, 6, 32, 48), (1, 6, 16, 24), (1, 6, 8, 12), (1, 6, 4, 6), (1, 6, 2, 3),
        ]  # fmt: skip
        marked = [torch.full_like(level, float(i)) for i, level in enumerate(levels)]
        sides = np.array([20, 111, 112, 223, 224, 447, 448, 500])
        boxes = torch.zeros(8, 4)
        boxes[:, 2:] = torch.from_numpy(sides - 1).float()[:, None]
        pooled = network.pool(marked, boxes)
        assert pooled[:, 0, 0, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        features, classes = network.describe(pooled)
    assert features.shape == (8, 10)
    assert features.min() >= 0
    assert classes.shape == (8, 7)


def test_normalisation_adds_nothing_to_the_variance() -> None:
    network = drawn(SMALL, 0)
    norm = network.get_submodule("backbone.body.stem.bn1")
    norm.get_buffer("running_var").fill_(1e-6)
    norm.get_buffer("weight").fill_(1.0)
    assert norm(torch.ones(1, 4, 1, 1))[0, 0, 0, 0].item() == pytest.approx(1000.0, rel=1e-4)
