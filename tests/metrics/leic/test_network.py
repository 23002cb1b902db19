"""LEIC's files: an invalid network is rejected in one line, before memory is allocated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from capbench.core.errors import ModelError
from capbench.metrics.leic.network import Leic, LeicOptions, load_leic, save_leic
from capbench.text.vocabulary import Vocabulary
from capbench.weights.arrays import read_metadata
from capbench.weights.files import write_safetensors

WORDS = Vocabulary.build(["a dog runs", "a cat sits"], 1)
OPTIONS = LeicOptions(vocabulary_size=len(WORDS), image_dim=5, word_dim=3, state_dim=4, hidden_dim=6)


def saved(path: Path, **options: Any) -> Path:
    """A network whose file says something else of its options."""
    save_leic(path, Leic(OPTIONS, torch.Generator().manual_seed(1)), WORDS, {})
    metadata = read_metadata(path)
    assert metadata is not None
    changed = json.dumps({**json.loads(metadata["options"]), **options})
    tensors = load_leic(path).network.state_dict()
    write_safetensors(path, tensors, {**metadata, "options": changed})
    return path


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    assert load_leic(saved(tmp_path / "m.safetensors")).options == OPTIONS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"word_dim": "300"}, "leic.word_dim=300"),
        ({"word_dim": 0}, "leic.word_dim=0"),
        ({"state_dim": 4.5}, "leic.state_dim=4.5"),
        ({"hidden_dim": None}, "leic.hidden_dim"),
        ({"image_dim": -1}, "leic.image_dim=-1"),
        ({"image_scale": 0}, "leic.image_scale=0"),
        ({"steps": 1}, "leic.steps=1"),
        ({"state_dim": 1 << 20}, "has shape"),
    ],
)
def test_options_that_no_network_has_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = saved(tmp_path / "m.safetensors", **options)
    with pytest.raises(ModelError, match=r"m\.safetensors") as refused:
        load_leic(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
