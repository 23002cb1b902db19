"""Networks' metrics as a user types them, with small random models: explain, score, correlate, study files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from capbench.datasets import images
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root, sample_dir
from capbench.features.store import open_store
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.studies import explained
from capbench.studies.results import load_result
from capbench.text.vocabulary import Vocabulary
from capbench.weights.files import write_trained
from tests.conftest import Ran
from tests.metrics.scan.models import make_files

EXPLAIN = ("explore", "explain", "-i", "f8k_149")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that name features of two of the sample's images with real boxes, and a model with random weights."""
    from capbench.cli.app import app

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("explain")
    features, model = folder / "f.h5", folder / "scan.safetensors"
    pictures = [f"--images={sample_dir() / 'flickr8k' / 'images' / name}" for name in ("f8k_149.png", "f8k_005.png")]
    app(["extract-features", *pictures, "--threads", "1", "--out", str(features)], standalone_mode=False)
    judgements = Flickr8kExpert(find_root(sample_dir())).load(Flickr8kExpert.protocol().items)[0]
    words = Vocabulary.build([text for item in judgements.items for text in item.references])
    with open_store(features) as store:
        size, digest = store.feature_size, store.fingerprint.digest
    options = ScanOptions(vocabulary_size=len(words), word_dim=8, embed_dim=16, image_dim=size)
    write_trained(model, Scan(options, torch.Generator().manual_seed(1)), words, {"features": digest})
    return ["--features", str(features), "--model", str(model)]


def test_a_data_sets_image_is_explained_with_its_candidates(
    given: list[str], capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explained, "MOST_CANDIDATES", 2)  # every picture takes a second
    ran = capbench(*EXPLAIN, *given)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert [line[0] for line in lines if line[1:3] == ": "] == list("AB")
    assert "rating" in ran.out
    assert "the first 2 of" in ran.err
    assert lines[-2].startswith("tiger|capbench:")
    assert lines[-1] == ", ".join([*(f"f8k_149.tiger-{name}.png" for name in "AB"), "f8k_149.tiger.html"])
    with Image.open("f8k_149.tiger-A.png") as image:
        assert image.format == "PNG"
        image.load()
    assert "Attention of each region to a word" in Path("f8k_149.tiger.html").read_text(encoding="utf-8")


def test_json_has_the_scores_that_score_gives(given: list[str], capbench: Callable[..., Ran]) -> None:
    captions = ["-c", "a red boat", "-c", "something in the snow", "-r", "two red boats", "-r", "a boat <b> and more"]
    Path("empty").mkdir()
    drawn = ("--image-root", "empty", "--out", "deep/why.png", "--json")
    ran = capbench("explore", "explain", "-i", "f8k_005", *captions, *given, *drawn)
    assert "no picture found below empty: drawn without it" in ran.err
    printed = json.loads(ran.out)
    assert printed["files"] == ["deep/why-A.png", "deep/why-B.png", "deep/why.html"]
    assert all(Path(name).is_file() for name in printed["files"])
    assert (printed["metric"], printed["image"], len(printed["candidates"])) == ("tiger", "f8k_005", 2)
    Path("c.json").write_text(json.dumps([{"image_id": "f8k_005", "caption": text} for text in captions[1:4:2]]))
    Path("r.json").write_text(json.dumps({"f8k_005": captions[5::2]}))
    flags = ("--candidates", "c.json", "--references", "r.json", "--out", "s.jsonl")
    assert capbench("score", "-m", "tiger", *flags, *given).code == 0
    rows = [json.loads(line) for line in Path("s.jsonl").read_text().splitlines()]
    for candidate in printed["candidates"]:
        expected = {r["column"]: r["value"] for r in rows if r["candidate"] == candidate["text"]}
        assert {name: candidate["scores"][name] for name in expected} == pytest.approx(expected, abs=1e-9)
        assert len(candidate["panels"][0]["values"][1]) == len(printed["regions"])


def test_a_study_file_names_features_and_models(capbench: Callable[..., Ran], sample: Path, tmp_path: Path) -> None:
    opened = open_dataset("flickr8k-expert", find_root(sample))
    made = make_files(tmp_path, [item.image for item in opened.load(opened.protocol(None).items)[0].items])
    study = Path("study.yaml")
    head = "schema: 1\nname: grounded\nprotocols: [flickr8k-expert]\nmetrics: [grounding, reo-omission]\n"
    study.write_text(f"{head}features: {made.features}\nmodels: {{tiger: {made.model}, reo: {made.model}}}\n")
    ran = capbench("correlate", study, "--out", "out")
    assert ran.code == 1, ran.err  # a row is missing
    result = load_result(Path("out/results.json"))
    assert {cell.column for cell in result.cells} >= {"grounding"}
    (missing,) = result.missing
    assert missing.column == "reo-omission"
    assert f"capbench train reo-covariance --model {made.model} --features {made.features}" in missing.reason
    study.write_text(f"{head}features: {made.features}\nmodels: {{tigr: {made.model}}}\n")
    ran = capbench("correlate", study, "--out", "out")
    assert (ran.code, "'tigr'" in ran.err) == (2, True)


def test_the_sample_brings_features_and_model_when_nothing_is_given(
    capbench: Callable[..., Ran], found: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features are extracted once, said, and the scores are those of the flags spelled out."""
    root = find_root(sample_dir())
    judged = {item.image for item in Flickr8kExpert(root).load(Flickr8kExpert.protocol().items)[0].items}
    needed = [image for image in images.all_images(root) if image.image in judged]
    monkeypatch.setattr(images, "all_images", lambda _: needed)  # those of other data sets take seconds
    for name in ("tiger", "vilbertscore"):
        first = capbench("score", "--metric", name, "--json")
        assert first.code == 0, first.err
        assert ("into features/sample.h5" in first.err) == (name == "tiger")
        assert f"{name}: using the sample's features (features/sample.h5) and the model 'sample'" in first.err
        flags = ("--features", "features/sample.h5", "--model", f"{name}=sample")
        assert found("score", "-m", name, *flags) == json.loads(first.out)
        assert all(-1 < row["min"] < row["mean"] < row["max"] <= 1 for row in json.loads(first.out)["scores"])
    again = found("correlate", "-d", "flickr8k-expert", "-m", "vilbertscore")
    assert again["missing"] == []
