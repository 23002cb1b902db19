from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.errors import ModelError
from capbench.core.records import FloatArray
from capbench.features.store import open_store
from capbench.metrics.needs import Resources
from capbench.metrics.reo import Reo, default_path, fit_covariance, write_covariance
from capbench.metrics.scan import encode
from capbench.metrics.scan.encode import GroundingOptions
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.metrics.tiger import Tiger, rrs, wds
from capbench.text.vocabulary import Vocabulary
from capbench.weights.ensembles import write_ensemble
from capbench.weights.files import write_trained
from tests.errors import raises
from tests.metrics.scan.models import DIMENSION, FINGERPRINT, make_items, write_features

ITEMS = make_items(30, 5)
CAPTIONS = {item.image: (item.candidate, *item.references) for item in ITEMS}
# The second network knows other words than the first, and has other sizes.
TEXTS = {"a": "a the red blue small dog cat ball man", "b": "a dog woman house runs sits on under near with two"}


def network(
    path: Path, seed: int, text: str = TEXTS["a"], trained_on: str = FINGERPRINT.kind, **options: object
) -> Path:
    torch.set_num_threads(1)
    words = Vocabulary.build([text] * 4)
    sizes = {"vocabulary_size": len(words), "word_dim": 10, "embed_dim": 16, "image_dim": DIMENSION}
    shape = ScanOptions(**{**sizes, **options})  # type: ignore[arg-type]
    write_trained(path, Scan(shape, torch.Generator().manual_seed(seed)), words, {"features": trained_on})
    return path


def joined(path: Path, *models: Path) -> Path:
    write_ensemble(path, [load_scan(model) for model in models])
    return path


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.features = path / "features.h5"
        write_features(self.features, list(CAPTIONS))
        self.a = network(path / "a.safetensors", 1)
        self.b = network(path / "b.safetensors", 2, TEXTS["b"], embed_dim=20, word_dim=7)
        for model in (self.a, self.b):
            source = encode.open_source(open_store(self.features), str(model))
            write_covariance(
                default_path(model), fit_covariance(source, CAPTIONS, GroundingOptions(), corpus="invented")
            )
        self.both = joined(path / "both.json", self.a, self.b)

    def given(self, model: Path) -> Resources:
        return Resources(features=str(self.features), model=str(model))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("ensembles"))


def columns(metric: Tiger | Reo) -> dict[str, FloatArray]:
    return metric.scores(metric.statistics(ITEMS, lambda _: None))


def test_every_tiger_column_follows_from_the_mean_vectors(folder: Folder) -> None:
    parts = [Tiger(folder.given(model)) for model in (folder.a, folder.b)]
    found = columns(Tiger(folder.given(folder.both)))
    assert not np.allclose(found["tiger"], columns(parts[0])["tiger"], atol=1e-3)
    for i in (0, 7, 13, 29):
        item = ITEMS[i]
        texts = [item.candidate, *item.references]
        single = [part.grounding(item.image, texts, part.encode(texts)) for part in parts]
        mean = {text: (single[0][text] + single[1][text]) / 2 for text in texts}
        candidate, reference = mean[item.candidate], np.mean([mean[text] for text in item.references], axis=0)
        wanted = {"rrs": rrs(candidate, reference), "wds": wds(candidate, reference), "grounding": candidate.mean()}
        for column, value in wanted.items():
            assert found[column][i] == pytest.approx(value, abs=1e-6), column


@pytest.mark.parametrize("options", [{}, {"covariance": "identity", "count_ends": False}])
def test_reo_is_the_mean_of_the_networks_scores(options: dict[str, object], folder: Folder) -> None:
    models = (folder.a, folder.b, folder.both)
    a, b, both = (columns(Reo(folder.given(model), **options)) for model in models)
    for column, values in both.items():
        np.testing.assert_allclose(values, (a[column] + b[column]) / 2, rtol=1e-12, err_msg=column)


def test_attention_that_differs_must_be_given(folder: Folder) -> None:
    other = network(folder.path / "other.safetensors", 3, lambda_softmax=4.0)
    mixed = folder.given(joined(folder.path / "mixed.json", folder.a, other))
    with raises(ModelError, "mismatch"):
        Tiger(mixed)
    assert "|lambda:9|" in Tiger(mixed, lambda_softmax=9).signature()
