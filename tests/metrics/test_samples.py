"""The networks that come with capbench: they are those of their cards, and know the sample's scenes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capbench.core.files import sha256_file
from capbench.core.records import Item
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.features.detectors.base import load_detector
from capbench.features.writing import StoreWriter
from capbench.metrics.needs import Resources
from capbench.metrics.reo import default_path, read_covariance
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scoring import score
from capbench.metrics.vilbert.files import load_vilbert
from capbench.weights.registry import locate


@pytest.mark.parametrize(("metric", "most"), [("tiger", 2_000_000), ("vilbertscore", 500_000)])
def test_the_card_is_of_these_weights(metric: str, most: int) -> None:
    path = locate("sample", metric)
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["sha256"] == sha256_file(path)
    assert path.stat().st_size == card["bytes"] <= most
    if metric == "tiger":
        model = load_scan(path)
        assert len(model.vocabulary) == card["words"]
        assert read_covariance(default_path(path)).facts["model"] == model.sha256
    else:
        vilbert = load_vilbert(path)
        assert (len(vilbert.pieces), vilbert.training["steps"]) == (card["pieces"], card["steps"])
        assert vilbert.features == load_detector("sample").fingerprint().kind


def test_held_out_pictures_own_captions_score_above_others(tmp_path: Path, sample: Path) -> None:
    detector = load_detector("sample")
    with StoreWriter(tmp_path / "a.h5", detector.fingerprint()) as writer:
        for file in sorted((sample / "coco" / "images").glob("*"))[:30]:
            with Image.open(file) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            regions = detector.detect([detector.preprocessor(pixels)])[0]
            writer.add(dataclasses.replace(regions, image=file.stem))
        writer.finish()
    opened = open_dataset("composite", find_root(sample))
    references = {i.image: i.references for i in opened.load(opened.protocol(None).items)[0].items}
    names = sorted(name for name in references if name.startswith("coco"))
    own = [Item(name, references[name][0], references[name][1:]) for name in names]
    others = [Item(a, references[b][0], references[a][1:]) for a, b in zip(names, names[1:] + names[:1], strict=True)]
    resources = Resources(features=str(tmp_path / "a.h5"), model="sample")
    requests = resolve_metrics(["tiger", "reo", "vilbertscore"])
    table = score(own + others, requests, resources, dataset="sample", cache=False)
    wins = {key.column: float((v[: len(own)] > v[len(own) :]).mean()) for key, v in table.values.items()}
    columns = ["tiger", "wds", "grounding", "reo-relevance", "reo-omission"]
    for column in (*columns, *(f"vilbertscore-{part}" for part in "fpr")):
        assert wins[column] > 0.7, column
