"""Every reader of a trained network reads its own file, and refuses a truncated or another one with one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.metrics.faier.network import Faier, FaierOptions, load_faier, save_faier, stored_options
from capbench.metrics.leic.network import Leic, LeicOptions, load_leic, save_leic
from capbench.metrics.nneval.network import SHAPES, read_nneval
from capbench.metrics.scan.files import load_scan, save_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.metrics.vilbert.files import load_vilbert, save_vilbert
from capbench.metrics.vilbert.network import Vilbert, VilbertOptions
from capbench.text.vocabulary import Vocabulary
from capbench.text.word_pieces import WordPieces
from capbench_dual_encoder.files import load_dual_encoder, save_dual_encoder
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions

WORDS = Vocabulary.build(["a dog runs", "a cat sits"], 1)
PIECES = WordPieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "##s"))
SIZE: dict[str, Any] = {"vocabulary_size": len(WORDS), "image_dim": 5, "word_dim": 3}
VILBERT = VilbertOptions(
    vocabulary_size=len(PIECES.pieces), positions=12, tasks=0, text_dim=4, text_layers=2, text_heads=2, text_inner=4,
    feature_dim=4, image_dim=4, image_layers=1, image_heads=2, image_inner=4, common_dim=4, common_heads=2,
    connections=1, region_outputs=4,
)  # fmt: skip


def _faier(path: Path) -> None:
    options = FaierOptions(**SIZE, embed_dim=4, variant="fier+aier")
    save_faier(path, Faier(options, torch.Generator().manual_seed(1)), WORDS, {"features": "ab" * 8})


def _leic(path: Path) -> None:
    save_leic(path, Leic(LeicOptions(**SIZE, state_dim=4, hidden_dim=4)), WORDS, {"features": "ab" * 8})


def _dual_encoder(path: Path) -> None:
    save_dual_encoder(path, DualEncoder(DualEncoderOptions(**SIZE, embed_dim=4, hidden_dim=4)), WORDS, {})


def _scan(path: Path) -> None:
    save_scan(path, Scan(ScanOptions(**SIZE, embed_dim=4), torch.Generator().manual_seed(1)), WORDS, {})


def _vilbert(path: Path) -> None:
    save_vilbert(path, Vilbert(VILBERT, torch.Generator().manual_seed(1)), PIECES, {})


def _nneval(path: Path) -> None:
    with open(path, "wb") as stream:
        np.savez(stream, **{name: np.full(shape, 0.1, np.float32) for name, shape in SHAPES.items()})  # type: ignore[arg-type]


NETWORKS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "faier": (_faier, load_faier),
    "leic": (_leic, load_leic),
    "dual encoder": (_dual_encoder, load_dual_encoder),
    "scan": (_scan, load_scan),
    "vilbert": (_vilbert, load_vilbert),
    "nneval": (_nneval, read_nneval),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_is_read_and_a_truncated_or_other_file_refused(kind: str, tmp_path: Path) -> None:
    save, load = NETWORKS[kind]
    path = tmp_path / "m.safetensors"
    save(path)
    sound = path.read_bytes()
    model = load(path)
    if kind != "nneval":
        stored_options(path)
        for told in ("summary", "signature_parts"):
            if hasattr(model, told):
                json.dumps(getattr(model, told)())
    for damaged in (sound[:-4], sound[: len(sound) // 2], b"", b"hello"):
        path.write_bytes(damaged)
        with pytest.raises(ModelError) as caught:
            load(path)
        assert caught.value.path == str(path)
        assert "\n" not in str(caught.value)
