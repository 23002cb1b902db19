"""The option ``image`` of metrics that read region features: scores, caches and data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.datasets.composite import Composite
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.root import DataRoot, find_root
from capbench.features.store import open_store
from capbench.metrics.image_metric import ImageMetric, ImageOptions
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.studies.scoring import load_scorable
from tests.metrics.scan.models import write_features

HERE = __name__


class Level(ImageMetric):
    """Mean feature of the image that is shown."""

    name = "level"
    columns: ClassVar[tuple[str, ...]] = ("level",)
    titles: ClassVar[Mapping[str, str]] = {"level": "Level"}
    citation = "nobody"
    option_type = ImageOptions

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        progress(len(items))
        return np.array([[self.store[item.image].features.mean(dtype=np.float64)] for item in items])


@pytest.fixture
def root() -> DataRoot:
    return find_root("sample")


@pytest.fixture
def given(tmp_path: Path, root: DataRoot, monkeypatch: pytest.MonkeyPatch) -> Resources:
    """Features of all images of both data sets."""
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "cache"))
    images = {item.image for dataset in (Composite(root), Flickr8kExpert(root)) for item in _items(dataset)}
    write_features(tmp_path / "all.h5", sorted(images), 6)
    return Resources(features=str(tmp_path / "all.h5"))


def _items(dataset: Any) -> tuple[Item, ...]:
    return dataset.load(dataset.protocol().items)[0].items  # type: ignore[no-any-return]


def _levels(dataset: Any, given: Resources, **options: Any) -> dict[tuple[str, str], float]:
    """Score by image and caption, through the cache."""
    requests = resolve_metrics([f"{HERE}:Level"], {"level": options} if options else {})
    (table,) = load_scorable(dataset, dataset.protocol().items, requests, given).score().tables
    values = table.values[ScoreColumn("level", "level")]
    return {(item.image, item.candidate): value for item, value in zip(table.items, values.tolist(), strict=True)}


def test_cached_values_are_not_mixed_between_options(root: DataRoot, given: Resources, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(sorted({item.image for item in _items(Composite(root))})[:3]))
    choices: list[dict[str, Any]] = [
        {},
        {"image": "blank"},
        {"image": "mean", "training_images": str(listed)},
        {"image": "shuffled"},
        {"image": "shuffled", "image_seed": 2},
    ]
    first = [_levels(Composite(root), given, **options) for options in choices]
    again = [_levels(Composite(root), given, **options) for options in choices]
    assert first == again
    assert len({tuple(sorted(levels.items())) for levels in first}) == len(choices)
    assert set(first[1].values()) == {0.0}
    with open_store(str(given.features)) as store:
        mean = np.mean([store[image].features.mean() for image in listed.read_text().split()])
    assert list(set(first[2].values())) == [pytest.approx(mean, abs=1e-6)]


def test_data_sets_shuffle_their_own_images(root: DataRoot, given: Resources) -> None:
    expert, composite = Flickr8kExpert(root), Composite(root)
    own = {item.image for item in _items(expert)}
    levels = _levels(expert, given)
    shown = _levels(expert, given, image="shuffled")
    assert set(shown.values()) == set(levels.values())
    shared = [image for image in own if image in {item.image for item in _items(composite)}]
    of_expert = {image: value for (image, _), value in shown.items()}
    of_composite = {image: value for (image, _), value in _levels(composite, given, image="shuffled").items()}
    assert shared
    assert any(of_expert[image] != of_composite[image] for image in shared)
