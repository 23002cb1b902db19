from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.metrics.faier.metric import Faier as Metric
from capbench.metrics.faier.network import (
    VARIANTS,
    CaptionCode,
    Faier,
    FaierModel,
    FaierOptions,
    Union,
    collate,
)
from capbench.metrics.needs import Resources
from capbench.text.vocabulary import END, START, Vocabulary
from capbench.weights.arrays import read_metadata
from capbench.weights.checkpoints import read_checkpoint
from capbench.weights.ensembles import check_together, write_ensemble
from capbench.weights.files import write_safetensors, write_trained
from tests.errors import raises
from tests.metrics.faier.reference import PlainFaier, Text

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES: dict[str, Any] = {"vocabulary_size": 30, "word_dim": 6, "embed_dim": 8, "image_dim": 7}


class Case:
    def __init__(self, seed: int, options: FaierOptions, regions: int = 3) -> None:
        rng = np.random.default_rng(seed)
        self.features = rng.normal(size=(4, regions, options.image_dim))
        self.boxes = rng.uniform(size=(4, regions, 4))

        def numbers(low: int, high: int) -> tuple[int, ...]:
            return tuple(rng.integers(4, options.vocabulary_size, rng.integers(low, high)).tolist())

        def text(words: tuple[int, ...], triplets: int) -> Text:
            return Text((START, *words, END), tuple(numbers(1, 5) for _ in range(triplets)))

        full = [text(numbers(1, 9), int(rng.integers(1, 4))) for _ in range(5)]
        rare = [text(numbers(1, 2), 2), text(numbers(2, 9), 0), text((), 0)]
        self.texts = [*rare, *full, text((5,), 0), text(numbers(2, 9), 0)]
        self.references = [[3, 4, 5], [8], [9, 3], [2, 6, 7, 4]]
        self.network = Faier(options, torch.Generator().manual_seed(seed)).double().eval()
        with torch.no_grad():
            for name, weight in self.network.named_parameters():  # biases begin at 0: move them
                if "bias" in name or name.startswith(("merge", "offset")):
                    weight.copy_(torch.from_numpy(rng.normal(size=tuple(weight.shape))))

    def scores(self, counts: list[list[int]] | None = None) -> torch.Tensor:
        options = self.network.options
        captions = self.network.encode_captions(collate([CaptionCode(t.words, t.triplets) for t in self.texts]))
        boxes = torch.from_numpy(self.boxes) if options.relations else None
        images = self.network.encode_images(torch.from_numpy(self.features), boxes) if options.sees_images else None
        places = torch.tensor([[*of_image, *[0] * (4 - len(of_image))] for of_image in self.references])
        numbers = torch.tensor(counts or [[len(of_image) for of_image in self.references]])
        references = captions if options.reads_references else None
        union: list[Union] = self.network.fuse(images, references, places, numbers)
        return self.network.scores(union, captions)

    def expected(self, counts: list[int]) -> np.ndarray:
        plain = PlainFaier(self.network.options, {k: v.numpy() for k, v in self.network.state_dict().items()})
        rows = []
        for features, boxes, of_image, number in zip(self.features, self.boxes, self.references, counts, strict=True):
            read = [self.texts[place] for place in of_image[:number]]
            answers = [plain.score(features, boxes, read, text) for text in self.texts]
            rows.append([[answer.total, answer.objects, answer.relations] for answer in answers])
        return np.array(rows)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_networks_score_what_the_equations_give_for_every_number_of_references(variant: str, similarity: str) -> None:
    for seed in (1, 2):
        rng = np.random.default_rng((seed, VARIANTS.index(variant)))
        names = ("vocabulary_size", "word_dim", "embed_dim", "image_dim")
        sizes: dict[str, Any] = {name: int(rng.integers(1, 14)) + 10 * (name == "vocabulary_size") for name in names}
        options: dict[str, Any] = {"variant": variant, "similarity": similarity, "image_scale": (1.0, 0.3)[seed % 2]}
        case = Case(seed, FaierOptions(**sizes, **options), regions=seed + 1)
        # Of each image the first reference, the first two (if there are so many), and all.
        counts = [[min(most, len(of_image)) for of_image in case.references] for most in (1, 2, 9)]
        with torch.no_grad():
            scores = case.scores(counts)
        expected = np.stack([case.expected(numbers) for numbers in counts])
        np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-9, atol=1e-11)


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
    model = FaierModel.load(path)
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
        assert FaierModel.load(path).options == OPTIONS
        return
    with raises(ModelError, code, path=path):
        FaierModel.load(path)


def test_an_ensemble_is_of_one_variant(tmp_path: Path) -> None:
    one, two = (FaierModel.load(_saved(tmp_path / f"{seed}.safetensors", seed)) for seed in (1, 2))
    write_ensemble(tmp_path / "both.json", [one, two])
    assert offered(tmp_path / "both.json") == Metric.columns
    with raises(ModelError, "unsupported", path=tmp_path / "both.json", value=2):
        FaierModel.load(tmp_path / "both.json")
    changes: tuple[dict[str, Any], ...] = ({"variant": "fier"}, {"similarity": "cosine"})
    for change in changes:
        other = FaierModel.load(_saved(tmp_path / "other.safetensors", **change))
        with raises(ModelError, "mismatch", path=other.path):
            check_together([one, other])
