"""Dual encoders' files: sizes that do not fit are found before memory is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from capbench.text.vocabulary import Vocabulary
from capbench_dual_encoder.files import load_dual_encoder, save_dual_encoder
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions

WORDS = Vocabulary.build(["a dog runs", "a cat sits"], 1)
OPTIONS = DualEncoderOptions(vocabulary_size=len(WORDS), image_dim=5, word_dim=3, embed_dim=4, hidden_dim=6)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "m.safetensors"
    save_dual_encoder(path, DualEncoder(OPTIONS, torch.Generator().manual_seed(1)), WORDS, {})
    return path


def test_a_file_holds_the_network(saved: Path) -> None:
    model = load_dual_encoder(saved)
    for name, weight in DualEncoder(OPTIONS, torch.Generator().manual_seed(1)).state_dict().items():
        torch.testing.assert_close(model.network.state_dict()[name], weight, rtol=0, atol=0)
    assert not model.network.training
    assert not any(weight.requires_grad for weight in model.network.parameters())
