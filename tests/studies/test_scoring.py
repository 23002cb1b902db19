"""Judgements get their scores in one place: what is covered is decided once, whichever command asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from capbench.core.errors import MetricError
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.datasets.composite import Composite
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.image_metric import ImageMetric
from capbench.metrics.needs import Image, Resources
from capbench.metrics.requests import resolve_metrics
from capbench.studies.plan import plan_study
from capbench.studies.run import run_plan
from capbench.studies.scoring import load_scorable, no_progress
from capbench.studies.study import Study
from tests.errors import raises
from tests.metrics.scan.models import write_features

HERE = __name__


class Brightness(ImageMetric):
    """Mean of the features' absolute values, times the caption's words; sees which images are asked for together."""

    name = "brightness"
    columns: ClassVar[tuple[str, ...]] = ("brightness",)
    titles: ClassVar[Mapping[str, str]] = {"brightness": "Brightness"}
    citation = "nobody"
    asked: ClassVar[list[str]] = []

    def image_statistics(self, image: str, items: Sequence[Item], encodings: Mapping[str, Any]) -> FloatArray:
        self.asked.append(image)
        level = float(np.abs(self.store[image].features).mean())
        return np.array([[level * len(item.candidate.split())] for item in items])


@pytest.fixture
def root() -> DataRoot:
    return find_root("sample")


@pytest.fixture
def third(tmp_path: Path, root: DataRoot) -> Resources:
    dataset = Composite(root)
    (judgements,) = dataset.load(dataset.protocol().items)
    images = sorted({item.image for item in judgements.items if item.group == "8k"})
    write_features(tmp_path / "third.h5", images, 6)
    return Resources(features=str(tmp_path / "third.h5"))


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Brightness, "asked", [])


def test_what_features_cover_is_scored_by_group_and_the_rest_is_told(root: DataRoot, third: Resources) -> None:
    dataset = Composite(root)
    requests = resolve_metrics([f"{HERE}:Brightness", "bleu-1"])
    judged = load_scorable(dataset, dataset.protocol().items, requests, third, cache=False)
    assert [request.label for request in judged.requests] == ["bleu"]
    (lacking,) = judged.unscored
    assert (lacking.request.label, lacking.input_missing, lacking.groups) == ("brightness", False, ("8k",))
    scored = judged.score(no_progress)
    assert list(scored.groups) == ["8k"]
    (of_group,) = scored.groups["8k"].tables
    whole = [item for item in scored.draws[0].items if item.group == "8k"]
    assert [item.key for item in of_group.items] == [item.key for item in whole]
    assert list(of_group.values) == [ScoreColumn("brightness", "brightness")]
    # Every image was worked on once, with all of its captions.
    assert len(Brightness.asked) == len(set(Brightness.asked))


def opened(image: Image, candidate: str) -> float:
    assert image.path is not None
    return float(image.path.stat().st_size + len(candidate))


def seen(images: Sequence[Image], candidates: Sequence[str]) -> list[float]:
    return [float(np.abs(image.features.features).mean()) if image.features else 0.0 for image in images]


def careful(image: Image, candidate: str) -> float:
    return float(len(candidate) + (image.path is None))


def of_one(candidate: str, reference: str) -> float:
    return float(len(candidate) + len(reference))


@pytest.mark.parametrize(
    ("metric", "code"),
    [
        ("opened", "missing-image"),
        ("seen", "missing-features"),
        ("Brightness", "missing-features"),
        ("of_one", "wrong-shape"),
        ("careful", ""),
    ],
)
def test_what_one_data_set_lacks_costs_no_number_of_the_other(
    root: DataRoot, tmp_path: Path, metric: str, code: str
) -> None:
    names = ("flickr8k-expert", "thumb")
    judgements, other = (open_dataset(n, root).load(open_dataset(n, root).protocol().items)[0] for n in names)
    images = sorted({item.image for item in judgements.items})
    assert not set(images) >= {item.image for item in other.items}
    (tmp_path / "pictures").mkdir()
    for number, image in enumerate(images):
        (tmp_path / "pictures" / f"{image}.png").write_bytes(bytes(number))
    write_features(tmp_path / "some.h5", images, 6)
    study = Study(
        "s",
        "S",
        tuple(names if metric != "of_one" else ("flickr8k-expert/one-reference/mean-tau-b", "thumb")),
        (f"{HERE}:{metric}",),
        features=str(tmp_path / "some.h5"),
        images=str(tmp_path / "pictures"),
    )
    plan = plan_study(study, root)
    Brightness.asked.clear()
    lacking = [
        load_scorable(dataset, protocol.items, plan.requests, plan.resources).unscored
        for dataset, protocol in plan.protocols
    ]
    assert Brightness.asked == []  # nothing is scored before needs are checked
    assert [[less.error.code for less in of_items] for of_items in lacking] == [[], [code] if code else []]
    result = run_plan(plan, no_progress)
    overall = {cell.protocol.partition("/")[0] for cell in result.cells if not cell.group and cell.value is not None}
    assert overall == set(names[:1] if code else names)
    assert {missing.protocol.partition("/")[0] for missing in result.missing} == set(names[1:] if code else ())


def test_a_metric_that_waits_is_told_and_the_others_are_scored(root: DataRoot) -> None:
    dataset = Composite(root)
    judged = load_scorable(dataset, dataset.protocol().items, resolve_metrics(["tiger", "bleu-1"]), cache=False)
    assert judged.unscored[0].input_missing
    assert len(judged.score().tables) == 1
    with raises(MetricError, "missing-features", value="tiger"):
        judged.require_all()
