"""One thread, and held-out pictures of the embedded sample, which no model that comes with capbench has seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capbench.core.records import Item
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.features.detectors.base import load_detector
from capbench.features.writing import StoreWriter
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score

IMAGES = 30


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch in one thread: small networks gain nothing by more, and lose much beside other tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class HeldOut:
    """Features of held-out pictures, and for each a caption of its own and one of another picture, as candidates."""

    features: Path
    own: list[Item]
    others: list[Item]

    def wins(self, *metrics: str) -> dict[str, float]:
        """By column: how often sample models put a picture's own caption above another's."""
        resources = Resources(features=str(self.features), model="sample")
        items = self.own + self.others
        table = score(items, resolve_metrics(list(metrics)), resources, dataset="sample", cache=False)
        count = len(self.own)
        return {key.column: float((v[:count] > v[count:]).mean()) for key, v in table.values.items()}


@pytest.fixture(scope="session")
def held_out(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> HeldOut:
    path = tmp_path_factory.mktemp("store") / "a.h5"
    detector = load_detector("sample")
    with StoreWriter(path, detector.fingerprint()) as writer:
        for file in sorted((sample / "coco" / "images").glob("*"))[:IMAGES]:
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
    return HeldOut(path, own, others)
