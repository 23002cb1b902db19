from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from capbench.core.errors import ModelError
from capbench.metrics.grounding.scan import Scan, ScanOptions
from capbench.metrics.grounding.scan_files import GroundingModel, load_scan, merge_scan, merged_facts, save_scan
from capbench.text.vocabulary import Vocabulary
from capbench.weights.training_files import read_training_record
from tests.errors import raises

WORDS = ("a dog runs on grass", "two cats sleep", "a bird sits on a red roof")
VOCABULARY = Vocabulary.build([*WORDS, *WORDS], min_count=1)


def saved(
    path: Path, seed: int, words: Vocabulary = VOCABULARY, features: str = "f", **options: object
) -> GroundingModel:
    torch.set_num_threads(1)
    sizes = {"vocabulary_size": len(words), "word_dim": 5, "embed_dim": 6, "image_dim": 7}
    network = Scan(ScanOptions(**{**sizes, **options}), torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    save_scan(path, network, words, {"features": features})
    return load_scan(path)


def test_merged_vectors_are_the_single_ones_side_by_side(tmp_path: Path) -> None:
    models = [saved(tmp_path / "a.safetensors", 1), saved(tmp_path / "b.safetensors", 2, word_dim=4, embed_dim=8)]
    merged = merge_scan(models)
    assert (merged.options.embed_dim, merged.options.word_dim) == (14, 9)
    ids = [VOCABULARY.encode(text) for text in WORDS]
    lengths = torch.tensor([len(row) for row in ids])
    padded = torch.zeros(len(ids), int(lengths.max()), dtype=torch.int64)
    for row, own in zip(padded, ids, strict=True):
        row[: len(own)] = torch.tensor(own)
    regions = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        words = merged.encode_captions(padded, lengths)
        images = merged.encode_images(regions)
        for model, part in zip(models, (slice(0, 6), slice(6, 14)), strict=True):
            for mine, theirs in (
                (words[..., part], model.network.encode_captions(padded, lengths)),
                (images[..., part], model.network.encode_images(regions)),
            ):
                # Each part points where the single network's vector points; their lengths share the whole of 1.
                norms = mine.norm(dim=-1, keepdim=True)
                torch.testing.assert_close(mine / norms.clamp_min(1e-9), theirs, rtol=1e-4, atol=1e-5)
    present = (torch.arange(padded.shape[1]) < lengths[:, None]).float()
    torch.testing.assert_close(words.norm(dim=-1), present, rtol=1e-4, atol=1e-5)


def test_a_network_merged_with_itself_is_itself(tmp_path: Path) -> None:
    model = saved(tmp_path / "a.safetensors", 1)
    path = tmp_path / "twice.safetensors"
    save_scan(path, merge_scan([model, model]), model.vocabulary, merged_facts([model, model]))
    twice = load_scan(path)
    assert twice.features == "f"
    assert twice.training["merged"] == [model.sha256] * 2
    assert read_training_record(path).missing == ("twice.safetensors", "a.safetensors")
    regions = [np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)]
    for text in WORDS:
        single = model.encode_images(regions)[0] @ model.encode_captions([text])[0].T
        double = twice.encode_images(regions)[0] @ twice.encode_captions([text])[0].T
        np.testing.assert_allclose(double, single, rtol=1e-4, atol=1e-5)


def test_different_networks_cannot_be_merged(tmp_path: Path) -> None:
    model = saved(tmp_path / "a.safetensors", 1)
    with raises(ModelError, "too-few", value=1):
        merge_scan([model])
    other = Vocabulary.build(["another set of words here"], min_count=1)
    for changed, code, value in (
        (saved(tmp_path / "w.safetensors", 1, other), "mismatch", "vocabulary"),
        (saved(tmp_path / "f.safetensors", 1, features="g"), "mismatch", "features"),
        (saved(tmp_path / "o.safetensors", 1, lambda_softmax=4.0), "mismatch", "lambda_softmax"),
        (saved(tmp_path / "n.safetensors", 1, normalise_images=False), "unsupported", None),
    ):
        with raises(ModelError, code, path=changed.path, value=value):
            merge_scan([model, changed])
