"""What ViLBERT's attention knows of an image, against a plain computation for one caption at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from capbench.core.records import Item
from capbench.features.store import open_store
from capbench.metrics.vilbertscore.files import save_vilbert
from capbench.metrics.vilbertscore.network import Connection, Vilbert
from capbench.metrics.vilbertscore.source import image_rows
from scripts.vilbert_diagnosis import attention
from tests.metrics.vilbertscore.models import OPTIONS, PIECES, write_store


def test_attention_is_that_of_each_caption_alone(tmp_path: Path) -> None:
    network = Vilbert(OPTIONS, torch.Generator().manual_seed(3)).eval()
    first = network.connections[0]
    assert isinstance(first, Connection)
    save_vilbert(tmp_path / "model.safetensors", network, PIECES, {})
    write_store(tmp_path / "s.h5", ["a", "b"])
    texts = ("a dog runs", "two man sits on the red grass", "cat")
    items = tuple(Item(image, text, ()) for image in ("a", "b") for text in texts)
    found = attention(items, tmp_path / "s.h5", tmp_path / "model.safetensors")
    with open_store(tmp_path / "s.h5") as store, torch.inference_mode():
        for place, item in enumerate(items):
            ids = torch.tensor([PIECES.sequence(item.candidate, 37)])
            rows = image_rows(store[item.image])
            image = network.read_image(torch.from_numpy(rows.features)[None], torch.from_numpy(rows.places)[None])
            text = network.read_text(ids)
            words, regions = first.text_query(text)[0, 1:-1], first.image_key(image)[0]
            cosines = [
                [functional.cosine_similarity(word, region, dim=0).item() for region in regions] for word in words
            ]
            assert found[place] == pytest.approx(np.mean([max(row) for row in cosines]), abs=1e-5)
    assert len(set(np.round(found, 6))) == len(items)
