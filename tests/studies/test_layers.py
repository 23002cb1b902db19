"""Agreement against the layer, on the embedded sample with tiny networks of random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, sample_dir
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.reports.figures.curves import curves_figure
from capbench.studies.layers import plan_layers, with_layers
from capbench.studies.plan import plan_study
from capbench.studies.results import StudyResult
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.study import Study
from tests.conftest import Ran
from tests.metrics.vilbert.models import write_model, write_store
from tests.studies.toys import known

Run = Callable[..., Ran]
EXPERT = "flickr8k-expert/no-own-captions/mean-tau-b"
ROOT = DataRoot(sample_dir(), True, "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers")
    dataset = open_dataset("flickr8k-expert", ROOT)
    items = dataset.load(dataset.protocol(EXPERT).items)[0].items
    write_store(folder / "features.h5", sorted({item.image for item in items}))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    write_model(folder / "three.safetensors")
    torch.set_num_threads(threads)
    return folder


@pytest.fixture(autouse=True)
def shared_cache(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", str(files / "cache"))
    monkeypatch.delenv("CAPBENCH_DATA", raising=False)


def given(files: Path) -> Resources:
    return Resources(features=str(files / "features.h5"), model=str(files / "three.safetensors"))


def requested(files: Path, *names: str, **options: object) -> MetricRequest:
    (request,) = resolve_metrics(names, {"vilbertscore": options}, given(files))
    return request


def curves_of(
    files: Path, metrics: tuple[str, ...], protocols: tuple[str, ...], options: dict[str, dict[str, object]]
) -> StudyResult:
    study = Study(
        name="layers",
        title="layers",
        protocols=protocols,
        metrics=metrics,
        options=options,
        features=given(files).features,
        model=given(files).model,
    )
    plan, places = plan_layers(plan_study(study, ROOT), 100, 0)
    return with_layers(run_plan(plan, no_progress, test_groups=False), places)


def test_every_value_is_what_the_layer_alone_gives(files: Path) -> None:
    dataset = open_dataset("flickr8k-expert", ROOT)
    protocol = dataset.protocol(EXPERT)
    points = curves_of(files, ("vilbertscore",), (EXPERT,), {}).points
    judgements = dataset.load(protocol.items)[0]
    ratings = judgements.ratings[protocol.statistic.human]
    means = [np.mean(ratings.value[ratings.item == i]) for i in range(len(judgements.items))]
    columns = ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r")
    assert sorted((p.column, p.at) for p in points) == [(column, layer) for column in columns for layer in (1, 2, 3)]
    assert len({point.value for point in points}) > 3
    for layer in (1, 3):
        alone = requested(files, "vilbertscore", layer=layer)
        table = score(judgements.items, [alone], given(files), dataset="flickr8k-expert")
        for key in alone.score_columns:
            (point,) = [p for p in points if (p.column, p.at) == (key.column, layer)]
            assert point.value == pytest.approx(stats.kendalltau(table.values[key], means).statistic, abs=1e-6)
            assert known(point.low) < point.number < known(point.high)


def test_two_metrics_and_two_protocols_share_a_figure(files: Path) -> None:
    protocols = (EXPERT, "flickr8k-expert/no-own-captions/unaggregated-tau-c")
    result = curves_of(files, ("vilbertscore", "blank=vilbertscore"), protocols, {"blank": {"image": "blank"}})
    result = result.model_copy(update={"protocols": (*result.protocols, result.protocols[0])})
    figure = curves_figure(result)
    assert len(figure.axes) == 4  # the last one is empty
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_ylabel().split()[0] for axes in shown] == ["τ-b", "τ-c", "τ-b"]
    values: dict[str, list[float]] = {}
    for point in result.curve(EXPERT):
        values.setdefault(point.title, []).append(point.number)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(values)
    assert "ViLBERTScore-F (blank)" in values
    for line, of_title in zip(shown[0].lines, values.values(), strict=True):
        assert list(line.get_ydata()) == of_title  # type: ignore[arg-type]
        assert np.allclose(line.get_xdata(), [1, 2, 3], atol=0.2)


def test_the_command_prints_what_it_draws(capbench: Run, files: Path, tmp_path: Path) -> None:
    arguments = ("--features", files / "features.h5", "--model", files / "three.safetensors", "--data", "sample")
    out = tmp_path / "layers.svg"
    common = ("figure", "layers", *arguments, "--bootstrap", "100", "--option", "vilbertscore.device=cpu", "-o", out)
    ran = capbench(*common, "-p", EXPERT)
    assert ran.code == 0, ran.err
    assert out.read_bytes().startswith(b"<?xml")
    read = json.loads(capbench(*common, "-p", EXPERT, "--json").out)
    assert [info["id"] for info in read["protocols"]] == [EXPERT]
    for point in read["points"]:
        value, low, high = (f"{100 * point[key]:z.1f}" for key in ("value", "low", "high"))
        assert f"{value} [{low}, {high}]" in " ".join(ran.out.split())
    assert len(read["points"]) == 9
