"""Ensembles as a user makes them and gives them to commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.scan import encode
from capbench.metrics.scan.encode import open_source
from capbench.metrics.scan.files import load_scan
from tests.conftest import Ran
from tests.metrics.scan.models import write_features
from tests.metrics.scan.plain import slow_grounding
from tests.metrics.scan.test_ensembles import network


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """Features of the sample's images under Flickr8k Expert."""
    opened = open_dataset("flickr8k-expert", find_root(sample))
    items = opened.load(opened.protocol(None).items)[0].items
    path = tmp_path_factory.mktemp("features") / "f.h5"
    write_features(path, [item.image for item in items])
    return path


@pytest.fixture(autouse=True)
def fresh() -> None:
    encode._open.clear()


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    return [network(tmp_path / f"{seed}.safetensors", seed) for seed in (1, 2, 3)]


@pytest.fixture
def made(capbench: Callable[..., Ran], models: list[Path], tmp_path: Path) -> Path:
    ran = capbench("models", "combine", *models, "--out", tmp_path / "e.json", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["kind"] == "ensemble"
    assert {entry["sha256"] for entry in found["networks"]} == {load_scan(model).sha256 for model in models}
    return tmp_path / "e.json"


def test_commands_and_studies_take_an_ensemble(
    capbench: Callable[..., Ran], made: Path, features: Path, tmp_path: Path
) -> None:
    given = ("--features", features, "--model", f"tiger={made}")
    scored = capbench("score", "-m", "tiger", *given, "--json")
    assert scored.code == 0, scored.err
    signature = json.loads(scored.out)["signatures"]["tiger"]
    assert "|model:mean-of-3+scan-" in signature
    curves = capbench(
        "correlate",
        "--references-curve",
        "-d",
        "flickr8k-expert",
        "-m",
        "rrs",
        "--counts",
        "1,2",
        "--draws",
        "2",
        *given,
    )
    assert curves.code == 0, curves.err
    examples = capbench("explore", "examples", "-d", "flickr8k-expert", "-m", "grounding", *given)
    assert examples.code == 0, examples.err
    study = tmp_path / "study.yaml"
    study.write_text(
        "schema: 1\nname: ensemble\nprotocols: [flickr8k-expert]\n"
        f"metrics: [tiger, {{reo: {{covariance: identity}}}}]\nfeatures: {features}\n"
        f"models: {{tiger: {made}, reo: {made}}}\n"
    )
    ran = capbench("correlate", study, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "reo-omission" in (tmp_path / "out" / "results.json").read_text()
    assert signature in (tmp_path / "out" / "results.json").read_text()


def test_tiger_of_an_ensemble_is_explained_and_reo_is_not(
    capbench: Callable[..., Ran], made: Path, features: Path, tmp_path: Path
) -> None:
    flags = ("-i", "f8k_003", "--features", features, "--model", made, "--out", tmp_path / "seen", "--json")
    ran = capbench("explore", "explain", *flags)
    assert ran.code == 0, ran.err
    assert (tmp_path / "seen.html").stat().st_size > 0
    assert all(path.stat().st_size for path in tmp_path.glob("seen*.png"))
    first = json.loads(ran.out)["candidates"][0]
    maps, _, attention = first["panels"]
    singles = []
    for path in sorted(made.parent.glob("*.safetensors")):
        model, store = load_scan(path), open_source(str(features), str(path)).store
        words = model.encode_captions([first["text"]])[first["text"]].astype(float)
        singles.append(slow_grounding(model.encode_image(store["f8k_003"].features).astype(float), words)[0])
    for region, value in enumerate(maps["values"][1]):
        assert value == pytest.approx(sum(single[region] for single in singles) / 3, abs=1e-6)
    assert all(sum(column) == pytest.approx(1) for column in zip(*attention["values"], strict=True))
    refused = capbench("explore", "explain", "-m", "reo", "--option", "reo.covariance=identity", *flags)
    assert refused.code == 2
    assert (refused.failure.code, refused.failure.value) == ("unsupported", 3)


def test_what_cannot_be_joined_is_one_line(capbench: Callable[..., Ran], models: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.x"
    strange = network(tmp_path / "strange.safetensors", 1, trained_on="0123456789abcdef")
    for given, message in (
        ([models[0]], " two "),
        ([models[0], strange], f"{strange}: was trained on"),
        ([models[0], tmp_path / "gone.safetensors"], "gone.safetensors: there is no such file of weights"),
    ):
        ran = capbench("models", "combine", *given, "--out", out)
        assert ran.code == 2
        assert message in ran.err
        assert ran.err.count("\n") == 1
        assert not out.exists()
