from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from capbench.core.errors import ModelError
from capbench.metrics.faier.metric import Faier as Metric
from capbench.metrics.faier.network import VARIANTS, Faier, FaierOptions, load_faier
from capbench.metrics.needs import Resources
from capbench.text.vocabulary import Vocabulary
from capbench.weights.arrays import read_metadata
from capbench.weights.checkpoints import read_checkpoint
from capbench.weights.ensembles import check_together, write_ensemble
from capbench.weights.files import write_safetensors, write_trained
from tests.errors import raises

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY = Vocabulary.build(["a dog runs on green grass"], 1)
OPTIONS = FaierOptions(vocabulary_size=len(VOCABULARY), word_dim=5, embed_dim=6, image_dim=7)


def _saved(path: Path, seed: int = 0, **changes: Any) -> Path:
    options = FaierOptions(**{**vars(OPTIONS), **changes})
    write_trained(path, Faier(options, torch.Generator().manual_seed(seed)), VOCABULARY, {"features": "ab" * 8})
    return path


def offered(path: Path) -> tuple[str, ...]:
    return Metric.offered(Resources(model=str(path)))


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_file_holds_weights_options_vocabulary_and_training(tmp_path: Path, variant: str) -> None:
    path = _saved(tmp_path / "m.safetensors", variant=variant, similarity="cosine")
    model = load_faier(path)
    network = Faier(model.options, torch.Generator().manual_seed(0))
    assert (model.options.variant, model.options.similarity) == (variant, "cosine")
    assert model.vocabulary == VOCABULARY
    assert (model.features, model.path) == ("ab" * 8, path)
    for name, weight in network.state_dict().items():
        torch.testing.assert_close(model.network.state_dict()[name], weight, rtol=0, atol=0)
    assert not any(weight.requires_grad for weight in model.network.parameters())
    assert not model.network.training
    assert offered(path) == Metric.columns[: 3 if model.options.relations else 1]
    parts = model.signature_parts()
    assert (parts["model"], parts["variant"]) == (f"faier-{model.sha256[:16]}", variant)
    assert parts["vocabulary"].startswith(VOCABULARY.sha256[:16])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (FaierOptions.removed, None),
        ({"z": "tanh"}, "unsupported"),
        ({"union_bias": True}, "unsupported"),
        ({"variant": "x"}, "wrong-value"),
        ({"variant": "fier"}, "unknown-key"),
    ],
)
def test_a_removed_option_is_read_at_the_value_that_remains(
    tmp_path: Path, changes: dict[str, Any], code: str | None
) -> None:
    path = _saved(tmp_path / "m.safetensors")
    metadata = {**(read_metadata(path) or {}), "options": json.dumps({**vars(OPTIONS), **changes})}
    write_safetensors(path, read_checkpoint(path).tensors, metadata)
    if code is None:
        assert load_faier(path).options == OPTIONS
        return
    with raises(ModelError, code, path=path):
        load_faier(path)


def test_an_ensemble_is_of_one_variant(tmp_path: Path) -> None:
    one, two = (load_faier(_saved(tmp_path / f"{seed}.safetensors", seed)) for seed in (1, 2))
    write_ensemble(tmp_path / "both.json", [one, two])
    assert offered(tmp_path / "both.json") == Metric.columns
    with raises(ModelError, "unsupported", path=tmp_path / "both.json", value=2):
        load_faier(tmp_path / "both.json")
    changes: tuple[dict[str, Any], ...] = ({"variant": "fier"}, {"similarity": "cosine"})
    for change in changes:
        other = load_faier(_saved(tmp_path / "other.safetensors", **change))
        with raises(ModelError, "mismatch", path=other.path):
            check_together([one, other])
