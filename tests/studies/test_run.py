"""A study runs from names to numbers, scored in one place; what cannot be computed stays as an entry that says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.stats

from capbench.core.errors import CapbenchError, MetricError, MissingFileError, StatisticError, StudyError
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.datasets.composite import Composite
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.image_metric import ImageMetric
from capbench.metrics.needs import Image, Resources
from capbench.metrics.requests import resolve_metrics
from capbench.studies.item_scores import Collector
from capbench.studies.plan import plan_study
from capbench.studies.results import LEFT_OUT
from capbench.studies.run import SlowPart, run_plan
from capbench.studies.scoring import load_scorable, no_progress
from capbench.studies.study import Study
from tests.errors import raises
from tests.metrics.scan.models import write_features
from tests.studies.toys import HUMAN, LENGTH, LENGTHS, STUDY, TOY, Slow, run


def test_correlations_equal_scipys(root: DataRoot) -> None:
    ids = tuple(f"{TOY}/all/{s}" for s in ("unaggregated-tau-c", "unaggregated-tau-b", "mean-spearman", "mean-pearson"))
    result = run(root, protocols=ids)
    x, y = np.repeat(LENGTHS, 2), np.array(HUMAN).ravel()
    means = np.array(HUMAN).mean(axis=1)
    expected = [
        scipy.stats.kendalltau(x, y, variant="c").statistic,
        scipy.stats.kendalltau(x, y, variant="b").statistic,
        scipy.stats.spearmanr(LENGTHS, means).statistic,
        scipy.stats.pearsonr(LENGTHS, means).statistic,
    ]
    overall = [cell for cell in result.cells if cell.column == "length" and cell.group == ""]
    assert [cell.value for cell in overall] == pytest.approx(expected, abs=1e-12)
    assert [cell.n for cell in overall] == [12, 12, 6, 6]
    assert [info.id for info in result.protocols] == [i.replace(TOY, "toy") for i in ids]


def test_a_metric_that_is_not_here_stays_with_its_reason(root: DataRoot) -> None:
    result = run(root, metrics=(LENGTH, "tiger", "spice"))
    waiting = {missing.column: missing for missing in result.missing}
    assert waiting["tiger"].planned
    assert "region features (--features STORE" in waiting["tiger"].reason
    assert "a grounding model (--model tiger=FILE" in waiting["tiger"].reason
    assert "require SPICE's parser" in waiting["spice"].reason
    assert result.cell("toy/all/unaggregated-tau-c", "length")
    (signature,) = result.signatures["toy/all"].values()
    assert "scale:1" in signature


def test_missing_files_become_an_entry_beside_what_could_be_computed(root: DataRoot) -> None:
    result = run(root, protocols=(f"{TOY}/gone/mean-tau-b", f"{TOY}/all/mean-tau-b"))
    assert [(m.protocol, m.planned) for m in result.missing] == [("toy/gone/mean-tau-b", False)]
    assert "toy/gone.txt" in result.missing[0].reason
    assert result.cell("toy/all/mean-tau-b", "length")


@pytest.mark.parametrize(
    ("changes", "kind", "named"),
    [
        ({"protocols": (f"{TOY}/gone/mean-tau-b",)}, MissingFileError, "toy/gone.txt"),
        ({"metrics": ("tests.studies.toys:Constant",)}, StatisticError, "Constant"),
        ({"metrics": ("tests.studies.toys:NotANumber",)}, MetricError, "image2"),
    ],
)
def test_nothing_computable_is_an_error(
    root: DataRoot, changes: dict[str, Any], kind: type[CapbenchError], named: str
) -> None:
    with pytest.raises(kind) as caught:
        run(root, **changes)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"protocols": ("flikr8k-expert",)}, ["flikr8k-expert", "Did you mean 'flickr8k-expert'"]),
        ({"protocols": (f"{TOY}/most/mean-tau-b",)}, ["unknown items 'most'", "all, drawn, gone"]),
        ({"protocols": (f"{TOY}/all/mean-tau-d",)}, ["unknown statistic 'mean-tau-d'", "Did you mean"]),
        ({"protocols": (TOY, f"{TOY}/all/unaggregated-tau-c")}, ["is listed twice"]),
        ({"metrics": ("cidr", "blue")}, ["2 problems", "Did you mean 'cider'", "'blue'"]),
        ({"options": {LENGTH: {"size": 1}}}, ["has no option 'size'", "scale"]),
        ({"options": {"cider": {"df": "x"}}}, ["option for 'cider', which is not a requested metric"]),
        ({"features": "no/such.h5"}, ["features: there is no such file: no/such.h5"]),
        ({"published": "tiger-table9"}, ["tiger-table9", "tiger-table1"]),
    ],
)
def test_a_study_that_does_not_fit_says_so_before_anything_runs(
    root: DataRoot, changes: dict[str, object], parts: list[str]
) -> None:
    with pytest.raises(CapbenchError) as caught:
        plan_study(replace(STUDY, **changes), root)  # type: ignore[arg-type]
    for part in parts:
        assert part in str(caught.value)


SLOW = "tests.studies.toys:Slow"


@pytest.fixture
def unlearnt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    learnt: list[int] = []
    monkeypatch.setattr(Slow, "learnt", learnt)
    return learnt


def test_slow_work_is_announced_before_anything(root: DataRoot, unlearnt: list[int]) -> None:
    seen: list[str] = []

    def announce(slow: SlowPart) -> None:
        assert unlearnt == []
        (work,) = slow.works
        seen.append(f"{work.subject} {len(work.units)} {work.unit} in {work.seconds:.0f} s for {slow.labels}")

    study = replace(
        STUDY, metrics=(SLOW, LENGTH), protocols=(f"{TOY}/all/unaggregated-tau-c", f"{TOY}/drawn/mean-spearman")
    )
    result = run_plan(plan_study(study, root), no_progress, announce=announce)
    # The draws of the second one share lengths with the first: 7 is new.
    assert seen == ["Slow learns 7 lengths in 420 s for ('slow',)"]
    assert len(unlearnt) == 7
    assert list(result.columns) == ["slow", "length", "negative"]
    assert result.missing == ()


@pytest.mark.parametrize("name", ["slow", "Slow"])
def test_a_metric_that_is_left_out_is_a_row_that_says_so(root: DataRoot, unlearnt: list[int], name: str) -> None:
    result = run(root, metrics=(LENGTH, SLOW), without=(name,))
    assert unlearnt == []
    assert list(result.columns) == ["length", "negative", "slow"]
    assert {cell.column for cell in result.cells} == {"length", "negative"}
    (missing,) = result.missing
    assert (missing.column, missing.title, missing.reason) == ("slow", "Slow", LEFT_OUT)


def test_a_study_of_which_nothing_is_left_is_refused(root: DataRoot) -> None:
    with raises(StudyError, "too-few"):
        run(root, without=("length",))
    with raises(StudyError, "too-few"):
        run(root, metrics=("spider",), without=("spice",))


@pytest.mark.parametrize(
    ("metrics", "without", "left"),
    [
        (("spice", "spider", "nneval", "faier", "cider"), ("spice",), ["cider"]),
        (("a=spice", "spider", "cider"), ("a",), ["cider"]),
        (("a=spice", "b=spice", "spider"), ("a",), ["b", "spider"]),
        (("spice", "spider", "cider"), ("cider",), ["spice", "spider"]),
    ],
)
def test_with_spice_all_that_requires_its_parses_is_left_out(
    root: DataRoot, metrics: tuple[str, ...], without: tuple[str, ...], left: list[str]
) -> None:
    if "faier" in metrics:
        pytest.importorskip("torch")  # its weights are opened
    plan = plan_study(replace(STUDY, metrics=metrics, without=without), root)
    assert [request.label for request in plan.requests] == left
    assert plan.notes == ()
    kept = {row.key.label for row in plan.rows} - {row.key.label for row in plan.left_out}
    assert kept == set(left)


HERE = __name__


class Brightness(ImageMetric):
    """Mean of the features' absolute values, times the caption's words; sees which images are asked for together."""

    name = "brightness"
    columns: ClassVar[tuple[str, ...]] = ("brightness",)
    titles: ClassVar[Mapping[str, str]] = {"brightness": "Brightness"}
    citation = "nobody"
    asked: ClassVar[list[str]] = []

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        self.asked.extend(dict.fromkeys(item.image for item in items))
        progress(len(items))
        levels = [np.abs(self.store[item.image].features).mean(dtype=np.float64) for item in items]
        return np.array([[level * len(item.candidate.split())] for level, item in zip(levels, items, strict=True)])


@pytest.fixture
def embedded() -> DataRoot:
    return find_root("sample")


@pytest.fixture
def third(tmp_path: Path, embedded: DataRoot) -> Resources:
    dataset = Composite(embedded)
    (judgements,) = dataset.load(dataset.protocol().items)
    images = sorted({item.image for item in judgements.items if item.group == "8k"})
    write_features(tmp_path / "third.h5", images, 6)
    return Resources(features=str(tmp_path / "third.h5"))


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Brightness, "asked", [])


def test_what_features_cover_is_scored_by_group_and_the_rest_is_told(embedded: DataRoot, third: Resources) -> None:
    dataset = Composite(embedded)
    requests = resolve_metrics([f"{HERE}:Brightness", "bleu-1"])
    judged = load_scorable(dataset, dataset.protocol().items, requests, third, cache=False)
    assert [request.label for request in judged.requests] == ["bleu"]
    (lacking,) = judged.unscored
    assert (lacking.request.label, lacking.input_missing, lacking.groups) == ("brightness", False, ("8k",))
    assert str(lacking.error).endswith("group 8k lacks nothing: request composite@8k.")
    scored = judged.score(no_progress)
    assert list(scored.groups) == ["8k"]
    (of_group,) = scored.groups["8k"].tables
    whole = [item for item in scored.draws[0].items if item.group == "8k"]
    assert [item.key for item in of_group.items] == [item.key for item in whole]
    assert list(of_group.values) == [ScoreColumn("brightness", "brightness")]
    # Every image was worked on once, with all of its captions.
    assert len(Brightness.asked) == len(set(Brightness.asked))
    items = Collector()
    items(dataset.protocol(), scored, [row for request in requests for row in request.rows])
    (table,) = items.tables
    assert [group == "8k" for group in table.groups] == [score is not None for score in table.scores["brightness"]]
    assert None not in table.scores["bleu-1"]


def opened(image: Image, candidate: str) -> float:
    assert image.path is not None
    return float(image.path.stat().st_size + len(candidate))


def seen(images: Sequence[Image], candidates: Sequence[str]) -> list[float]:
    return [float(np.abs(image.features.features).mean()) if image.features else 0.0 for image in images]


def careful(image: Image, candidate: str) -> float:
    return float(len(candidate) + (image.path is None))


@pytest.mark.parametrize(
    ("metric", "code"),
    [
        ("opened", "missing-image"),
        ("seen", "missing-features"),
        ("Brightness", "missing-features"),
        ("careful", ""),
    ],
)
def test_what_one_data_set_lacks_costs_no_number_of_the_other(
    embedded: DataRoot, tmp_path: Path, metric: str, code: str
) -> None:
    names = ("flickr8k-expert", "thumb")
    judgements, other = (open_dataset(n, embedded).load(open_dataset(n, embedded).protocol().items)[0] for n in names)
    images = sorted({item.image for item in judgements.items})
    assert not set(images) >= {item.image for item in other.items}
    (tmp_path / "pictures").mkdir()
    for number, image in enumerate(images):
        (tmp_path / "pictures" / f"{image}.png").write_bytes(bytes(number))
    write_features(tmp_path / "some.h5", images, 6)
    study = Study(
        "s",
        "S",
        names,
        (f"{HERE}:{metric}",),
        features=str(tmp_path / "some.h5"),
        images=str(tmp_path / "pictures"),
    )
    plan = plan_study(study, embedded)
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


def test_a_metric_that_waits_is_told_and_the_others_are_scored(embedded: DataRoot) -> None:
    dataset = Composite(embedded)
    judged = load_scorable(dataset, dataset.protocol().items, resolve_metrics(["tiger", "bleu-1"]), cache=False)
    assert judged.unscored[0].input_missing
    assert len(judged.score().tables) == 1
    with raises(MetricError, "missing-features", value="tiger"):
        judged.require_all()
