"""TIGEr and REO as a user types them: score, correlate, compare and study files, with a small random model."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.reo import Reo
from capbench.metrics.scan import encode
from capbench.metrics.scan.files import load_scan
from capbench.metrics.scan.network import Scan
from capbench.studies.results import load_result
from tests.conftest import Ran
from tests.metrics.scan.models import Files, make_files
from tests.text.vocabulary_files import write_vocabulary

COLUMNS = ["tiger", "rrs", "wds", "grounding"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Files:
    """Features of the sample's images under Flickr8k Expert."""
    opened = open_dataset("flickr8k-expert", find_root(sample))
    items = opened.load(opened.protocol(None).items)[0].items
    return make_files(tmp_path_factory.mktemp("grounded"), [item.image for item in items])


@pytest.fixture(autouse=True)
def fresh() -> None:
    encode._open.clear()


def given(made: Files) -> list[str]:
    return ["--features", str(made.features), "--model", f"tiger={made.model}"]


def test_own_captions_under_a_released_checkpoint(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    """Rows stand in the file's order, a second run repeats the first's bytes, and other weights are scored anew."""
    images = ["10", "9", "b"]
    made = make_files(tmp_path, images)
    texts = ["a dog .", "zzz qqq", "!!!", "\u0130 \U0001f436 e\u0301", "dog " * 1200]
    rows = [(image, text) for text in texts for image in images]
    lines = [json.dumps({"image_id": image, "caption": text}) for image, text in rows]
    Path("own.jsonl").write_text("\n".join(lines), encoding="utf-8")
    Path("references.json").write_text(json.dumps({"10": ["a dog ."], "9": ["a", "a cat", "a"], "b": ["..."]}))

    def released(seed: int) -> None:
        network = Scan(load_scan(made.model).options, torch.Generator().manual_seed(seed))
        sides: list[dict[str, torch.Tensor]] = [{}, {}]
        for name, tensor in network.state_dict().items():
            sides[name.startswith("text.")][name.partition(".")[2]] = tensor
        options = argparse.Namespace(data_name="x_precomp", cross_attn="t2i", lambda_softmax=9.0)
        torch.save({"model": sides, "opt": options, "epoch": 1}, "model_best.pth.tar")

    write_vocabulary("x_precomp_vocab.json", load_scan(made.model).vocabulary)
    released(1)
    files = ("--candidates", "own.jsonl", "--references", "references.json", "--features", made.features)
    flags = ("--model", "model_best.pth.tar", "--option", "reo.covariance=identity", "--json", "--out")
    command = ("score", "-m", "tiger", "-m", "reo", *files, *flags)
    first = capbench(*command, "1.csv")
    assert first.code == 0, first.err
    with open("1.csv", encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    wanted = [(column, image, text.strip()) for column in (*COLUMNS, *Reo.columns) for image, text in rows]
    assert [(row["column"], row["image"], row["candidate"]) for row in written] == wanted
    values = {(row["column"], row["image"], row["candidate"]): float(row["value"]) for row in written}
    assert values["tiger", "10", "a dog ."] == pytest.approx(0.75, abs=1e-12)
    assert "30 scores came from the cache" in capbench(*command, "2.csv").err.splitlines()
    encode._open.clear()
    assert capbench(*command, "3.csv", "--no-cache").code == 0
    assert Path("1.csv").read_bytes() == Path("2.csv").read_bytes() == Path("3.csv").read_bytes()
    released(2)
    other = capbench(*command, "4.csv")
    assert (other.code, "came from the cache" in other.err) == (0, False)
    assert json.loads(other.out)["signatures"] != json.loads(first.out)["signatures"]
    assert Path("4.csv").read_bytes() != Path("1.csv").read_bytes()


def test_a_study_file_names_features_and_models(capbench: Callable[..., Ran], made: Files) -> None:
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


@pytest.mark.parametrize("name", ["tiger", "vilbertscore"])
def test_the_sample_brings_features_and_model_when_nothing_is_given(
    name: str, capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    """Features are extracted once, said, and the scores are those of the flags spelled out."""
    first = capbench("score", "--metric", name, "--json")
    assert first.code == 0, first.err
    assert "into features/sample.h5" in first.err
    assert f"{name}: using the sample's features (features/sample.h5) and the model 'sample'" in first.err
    flags = ("--features", "features/sample.h5", "--model", f"{name}=sample")
    assert found("score", "-m", name, *flags) == json.loads(first.out)
    assert all(-1 < row["min"] < row["mean"] < row["max"] <= 1 for row in json.loads(first.out)["scores"])
    again = capbench("correlate", "-d", "flickr8k-expert", "-m", name, "--json")
    assert (again.code, "extracting" in again.err) == (0, False)
    assert json.loads(again.out)["missing"] == []
