"""The grounding model that comes with capbench: it is the one of its card, and it knows the sample's scenes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.features.detectors.base import load_detector
from capbench.features.writing import StoreWriter
from capbench.files import sha256_file
from capbench.metrics.base import Resources
from capbench.metrics.grounding.covariance import default_path, read_covariance
from capbench.metrics.requests import resolve_metrics
from capbench.models.registry import locate
from capbench.models.scan.files import load_scan
from capbench.records import Item
from capbench.scoring import score

IMAGES = 30


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """A store of held-out pictures."""
    path = tmp_path_factory.mktemp("store") / "a.h5"
    detector = load_detector("sample")
    with StoreWriter(path, detector.fingerprint()) as writer:
        for file in sorted((sample / "coco" / "images").glob("*"))[:IMAGES]:
            with Image.open(file) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            found = detector.detect([detector.preprocessor(pixels)])[0]
            writer.add(dataclasses.replace(found, image=file.stem))
        writer.finish()
    return path


def test_the_card_is_of_these_weights() -> None:
    path = locate("sample")
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["sha256"] == sha256_file(path)
    assert path.stat().st_size == card["bytes"] <= 2_000_000
    model = load_scan(path)
    assert len(model.vocabulary) == card["words"]
    assert read_covariance(default_path(path)).facts["model"] == model.sha256


def test_features_of_other_library_versions_are_of_the_same_kind() -> None:
    fingerprint = load_detector("sample").fingerprint()
    assert load_scan(locate("sample")).features == fingerprint.kind
    older = dataclasses.replace(fingerprint, versions=(("torch", "2.6.0"),))
    assert (older.kind, older.digest == fingerprint.digest) == (fingerprint.kind, False)
    assert dataclasses.replace(fingerprint, mode="other").kind != fingerprint.kind


def test_held_out_pictures_own_captions_score_above_others(features: Path, sample: Path) -> None:
    opened = open_dataset("composite", find_root(sample))
    references = {i.image: i.references for i in opened.load(opened.protocol(None).items)[0].items}
    names = sorted(name for name in references if name.startswith("coco"))
    own = [Item(name, references[name][0], references[name][1:]) for name in names]
    others = [Item(a, references[b][0], references[a][1:]) for a, b in zip(names, names[1:] + names[:1], strict=True)]
    resources = Resources(features=str(features), model="sample")
    table = score(own + others, resolve_metrics(["tiger", "reo"]), resources, dataset="sample", cache=False)
    for column in ("tiger", "wds", "grounding", "reo-relevance", "reo-omission"):
        (values,) = (v for key, v in table.values.items() if key.column == column)
        assert (values[: len(own)] > values[len(own) :]).mean() > 0.7, column
