from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capbench.core.errors import ModelError
from capbench.features.detectors.bottom_up_network import BottomUp, BottomUpConfig, load_bottom_up
from tests.features.networks import SMALL, drawn


def relative(actual: Tensor | np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    actual = np.asarray(actual)
    assert actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


@pytest.fixture(scope="session")
def tiny(parity: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(parity / "frcnn" / "hf_lxmert_tiny_frcnn.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="session")
def network(tiny: dict[str, np.ndarray[Any, Any]]) -> BottomUp:
    state = {name[4:]: torch.from_numpy(tiny[name]) for name in tiny if name.startswith("sd__")}
    return load_bottom_up(state)


def test_every_stage_agrees_with_the_original(network: BottomUp, tiny: dict[str, np.ndarray[Any, Any]]) -> None:
    with torch.inference_mode():
        res4 = network.features(torch.from_numpy(tiny["input_normalised"]))
        assert relative(res4, tiny["res4"]) < 1e-5
        logits, deltas = network.propose(res4)
        assert relative(logits, tiny["rpn_objectness"]) < 1e-5
        assert relative(deltas, tiny["rpn_deltas"]) < 1e-5
        pooled = network.pool(res4, [torch.from_numpy(tiny["proposals"])])
        assert relative(pooled[:4], tiny["roi_pooled_first4"]) < 1e-5
        outputs = network.describe(pooled)
    assert relative(outputs.features, tiny["feature_pooled"]) < 1e-5
    assert relative(outputs.classes, tiny["obj_logits"]) < 1e-5
    assert relative(outputs.boxes, tiny["box_deltas"]) < 1e-5
    assert outputs.attributes is not None
    assert relative(outputs.attributes, tiny["attr_logits"]) < 1e-5


def test_the_full_network_has_the_published_names_and_shapes(parity: Path) -> None:
    published = json.loads((parity / "frcnn" / "full_size_state_dict_shapes_hf.json").read_text())
    with torch.device("meta"):
        state = BottomUp(BottomUpConfig()).state_dict()
    assert {name: list(tensor.shape) for name, tensor in state.items()} == published


def test_sizes_are_read_off_the_weights() -> None:
    wide = dataclasses.replace(SMALL, groups=2, objectness=2, box_outputs=6, embedding=0)
    wide = dataclasses.replace(wide, attribute_hidden=0, attribute_outputs=0)
    for config in (SMALL, wide, dataclasses.replace(SMALL, box_outputs=1)):
        loaded = load_bottom_up(BottomUp(config).state_dict())
        assert loaded.config == config
    assert wide.background_first
    assert not SMALL.background_first


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("box_predictor.cls_embedding.", "box_predictor.cls_embed."),
        ("box_predictor.fc_attr.", "box_predictor.attr_linear1."),
        ("box_predictor.attr_score.", "box_predictor.attr_linear2."),
        ("backbone.", ""),
        ("roi_heads.res5.", "res5."),
        ("proposal_generator.rpn_head.", "rpn_head."),
        (".norm.weight", ".norm.gamma"),
    ],
)
def test_other_published_names_load_too(ours: str, theirs: str) -> None:
    state = drawn(SMALL, 1).state_dict()
    renamed = {name.replace(ours, theirs): tensor for name, tensor in state.items()}
    assert renamed.keys() != state.keys()
    loaded = load_bottom_up(renamed).state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_anchors_and_counters_may_be_missing_but_nothing_else() -> None:
    state = BottomUp(SMALL).state_dict()
    short = {n: t for n, t in state.items() if not n.endswith(("num_batches_tracked", "cell_anchors.0"))}
    assert not bool(load_bottom_up(short | {"pixel_mean": torch.zeros(3)}).cell_anchors.any())
    for name in ("roi_heads.res5.1.conv2.norm.running_var", "roi_heads.box_predictor.cls_score.weight"):
        with pytest.raises(ModelError, match=re.escape(f"'{name}'")):
            load_bottom_up({n: t for n, t in short.items() if n != name}, "w.pth")
    with pytest.raises(ModelError, match="'surplus'"):
        load_bottom_up(short | {"surplus": torch.ones(1)})


def test_pooling_puts_half_pixels_away_from_zero() -> None:
    network = BottomUp(SMALL)
    res4 = torch.arange(36.0).reshape(1, 1, 6, 6)
    # 8/16 and 24/16 are halves: to 1 and 2; rounding half to even would begin at 0.
    pooled = network.pool(res4, [torch.tensor([[8.0, 8.0, 24.0, 24.0]])])
    assert pooled.min() == 7.0
    assert pooled.max() == 14.0
