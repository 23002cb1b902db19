"""Judgements get their scores in one place: what is covered is decided once, whichever command asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import capbench
from capbench.core.errors import MetricError, MissingFeaturesError
from capbench.core.options import Options
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.datasets.composite import Composite
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.base import CombinedMetric, Metric
from capbench.metrics.image_metric import ImageMetric
from capbench.metrics.needs import Image, Need, Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.studies.examples import rated_scores
from capbench.studies.plan import plan_study
from capbench.studies.power import metric_power
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


class Words(Metric):
    """Number of words; counts what it extracts."""

    name = "words"
    columns: ClassVar[tuple[str, ...]] = ("words",)
    titles: ClassVar[Mapping[str, str]] = {"words": "Words"}
    citation = "nobody"
    extracted: ClassVar[list[int]] = []

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        self.extracted.append(len(items))
        progress(len(items))
        return np.array([[float(len(item.candidate.split()))] for item in items])


class Twice(CombinedMetric):
    """Twice the number of words, made of the other metric's column."""

    name = "twice"
    columns: ClassVar[tuple[str, ...]] = ("twice",)
    titles: ClassVar[Mapping[str, str]] = {"twice": "Twice"}
    citation = "nobody"

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._inputs = (Words(resources),)

    def inputs(self) -> Sequence[Metric]:
        return self._inputs

    def combine(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        return 2 * columns["words"][:, None]


class Tool(Need):
    """A tool that is not installed, and that items of the first draws do without."""

    may_be_spared = True

    def name(self) -> str:
        return "tool"

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        return "the tool"


class Tooled(Words):
    """Number of words, with work that requires the tool for all but the references of the first draws."""

    name = "tooled"
    columns: ClassVar[tuple[str, ...]] = ("tooled",)
    titles: ClassVar[Mapping[str, str]] = {"tooled": "Tooled"}
    needs: ClassVar[tuple[Need, ...]] = (Tool(),)
    known_draws: ClassVar[int] = 1
    asked: ClassVar[list[int]] = []

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        self.asked.append(len(items))
        if len(self.asked) <= self.known_draws:
            return None
        return SlowWork("the tool reads", "captions", frozenset({"one"}), 1.0, lambda _: None)


@pytest.fixture
def root() -> DataRoot:
    return find_root("sample")


@pytest.fixture
def third(tmp_path: Path, root: DataRoot) -> Resources:
    """Features of the images of one of Composite's three sources."""
    dataset = Composite(root)
    (judgements,) = dataset.load(dataset.protocol().items)
    images = sorted({item.image for item in judgements.items if item.group == "8k"})
    write_features(tmp_path / "third.h5", images, 6)
    return Resources(features=str(tmp_path / "third.h5"))


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Brightness, "asked", [])
    monkeypatch.setattr(Words, "extracted", [])


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
        ("vifidel", "missing-image"),
        ("combination:saved.json", "missing-image"),
        ("of_one", "wrong-shape"),
        ("careful", ""),
    ],
)
def test_what_one_data_set_lacks_costs_no_number_of_the_other(
    root: DataRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("flickr8k-expert", "thumb")
    judgements, other = (open_dataset(n, root).load(open_dataset(n, root).protocol().items)[0] for n in names)
    images = sorted({item.image for item in judgements.items})
    assert not set(images) >= {item.image for item in other.items}
    (tmp_path / "pictures").mkdir()
    for number, image in enumerate(images):
        (tmp_path / "pictures" / f"{image}.png").write_bytes(bytes(number))
    write_features(tmp_path / "some.h5", images, 6)
    (tmp_path / "labels.json").write_text(json.dumps({image: ["dog"] for image in images}))
    words = {word for item in judgements.items for word in item.candidate.lower().split() if word.isalpha()} | {"dog"}
    lines = [f"{word} {place % 5} {place % 7} 1" for place, word in enumerate(sorted(words))]
    (tmp_path / "vectors.txt").write_text("\n".join(lines))
    options = {"vectors": str(tmp_path / "vectors.txt"), "labels": str(tmp_path / "labels.json")}
    if metric.startswith("combination"):
        capbench.combine(
            names[0], ["vifidel", "bleu-1"], options={"vifidel": options}, data="sample", save="saved.json"
        )
    study = Study(
        "s",
        "S",
        tuple(names if metric != "of_one" else ("flickr8k-expert/one-reference/mean-tau-b", "thumb")),
        (f"{HERE}:{metric}" if metric in globals() else metric,),
        options={"vifidel": options} if metric == "vifidel" else {},
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


def test_all_commands_refuse_what_is_not_covered_in_the_same_words(root: DataRoot, third: Resources) -> None:
    dataset = Composite(root)
    protocol = dataset.protocol()
    one = resolve_metrics([f"{HERE}:Brightness"])
    two = resolve_metrics([f"{HERE}:Brightness", "bleu-1"])
    said = set()
    for refused in (
        lambda: metric_power(dataset, protocol, two, resources=third, cache=False),
        lambda: rated_scores(load_scorable(dataset, protocol.items, one, third, cache=False), protocol),
    ):
        with pytest.raises(MissingFeaturesError) as caught:
            refused()
        said.add(str(caught.value))
    (line,) = said
    assert "composite@8k" in line


def test_a_group_asked_for_alone_gives_the_studys_number(root: DataRoot, third: Resources) -> None:
    names = (f"{HERE}:Brightness", "bleu-1")
    study = Study("s", "S", ("composite",), names, features=third.features)
    result = run_plan(plan_study(study, root), no_progress, cache=False)
    (cell,) = [cell for cell in result.cells if cell.column == "brightness"]
    assert cell.group == "8k"
    study = Study("s", "S", ("composite@8k",), names, features=third.features)
    alone = run_plan(plan_study(study, root), no_progress, cache=False)
    assert [one.value for one in alone.cells if one.column == "brightness" and not one.group] == [cell.value]


def test_a_metric_that_waits_is_told_and_the_others_are_scored(root: DataRoot) -> None:
    dataset = Composite(root)
    judged = load_scorable(dataset, dataset.protocol().items, resolve_metrics(["tiger", "bleu-1"]), cache=False)
    assert judged.unscored[0].input_missing
    assert len(judged.score().tables) == 1
    with raises(MetricError, "missing-features", value="tiger"):
        judged.require_all()


def test_each_label_has_features_of_its_own(root: DataRoot, third: Resources, tmp_path: Path) -> None:
    dataset = Composite(root)
    (judgements,) = dataset.load(dataset.protocol().items)
    write_features(tmp_path / "all.h5", sorted({item.image for item in judgements.items}), 4)
    resources = Resources(features=third.features, features_of={"whole": str(tmp_path / "all.h5")})
    requests = resolve_metrics([f"{HERE}:Brightness", f"whole={HERE}:Brightness"])
    judged = load_scorable(dataset, dataset.protocol().items, requests, resources, cache=False)
    assert [request.label for request in judged.requests] == ["whole"]
    assert [lacking.request.label for lacking in judged.unscored] == ["brightness"]


def test_columns_of_other_metrics_are_extracted_once(root: DataRoot) -> None:
    items = [Item(f"i{n}", "a dog " * (n % 3 + 1), ("a cat",)) for n in range(6)]
    requests = resolve_metrics([f"{HERE}:Words", f"{HERE}:Twice", f"again={HERE}:Twice"])
    steps: list[int] = []
    table = score(items, requests, dataset="x", progress=steps.append)
    assert Words.extracted == [6]
    assert sum(steps) == len(items) * len(requests)
    words = table.values[ScoreColumn("words", "words")]
    for label in ("twice", "again"):
        assert np.array_equal(table.values[ScoreColumn(label, "twice")], 2 * words)
    assert score(items, requests[1:2], dataset="x").cached == {"twice": 6}
    assert "words,capbench:" in table.signatures["twice"]


def test_items_of_an_image_come_together_whatever_their_order_and_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_features(tmp_path / "x.h5", ["a", "b", "c"], 4)
    monkeypatch.setattr(Brightness, "batch_size", 4)
    items = [Item("abc"[n % 3], f"caption {n}" + " x" * n, ("r",)) for n in range(9)]
    (request,) = resolve_metrics([f"{HERE}:Brightness"])
    resources = Resources(features=str(tmp_path / "x.h5"))
    table = score(items, [request], resources, dataset="x", cache=False)
    assert Brightness.asked == ["a", "b", "c"]
    alone = [score([item], [request], resources, dataset="x", cache=False) for item in items]
    key = ScoreColumn("brightness", "brightness")
    assert table.values[key].tolist() == [one.values[key][0] for one in alone]


@pytest.mark.parametrize("known", [0, 1, 2, 5])
def test_a_metric_that_misses_a_draw_has_no_number_and_the_others_have_all_draws(
    root: DataRoot, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    monkeypatch.setattr(Tooled, "known_draws", known)
    monkeypatch.setattr(Tooled, "asked", [])
    protocol = "composite/one-reference/correctness-tau-c"
    study = Study("s", "S", (protocol,), (f"{HERE}:Tooled", "bleu-1", "rouge-l"))
    plan = plan_study(study, root)
    ((dataset, one_reference),) = plan.protocols
    lacking = load_scorable(dataset, one_reference.items, plan.requests, plan.resources, cache=False).unscored
    assert Words.extracted == []
    assert [(less.request.label, less.input_missing) for less in lacking] == ([("tooled", True)] if known < 5 else [])
    if known < 5:
        Tooled.asked.clear()
        result = run_plan(plan, no_progress, cache=False)
        assert result.protocols[0].draws == 5
        assert {cell.column for cell in result.cells} == {"bleu-1", "rouge-l"}
        assert all(cell.sd is not None for cell in result.cells)
        assert [(missing.column, missing.reason) for missing in result.missing] == [
            ("tooled", "captions require the tool")
        ]
