"""TIGEr and REO as a user types them: score, correlate, compare and study files, with a small random model."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from pathlib import Path

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


def given(made: Files, *metrics: str) -> list[str]:
    models = [part for metric in metrics for part in ("--model", f"{metric}={made.model}")]
    return ["--features", str(made.features), *models]


def test_own_captions_under_a_released_checkpoint(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows stand in the file's order, a second run repeats the first's bytes, and other weights are scored anew."""
    monkeypatch.chdir(tmp_path)
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
    assert [row["column"] for row in json.loads(first.out)["scores"]] == [*COLUMNS, *Reo.columns]
    with open("1.csv", encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    wanted = [(column, image, text.strip()) for column in (*COLUMNS, *Reo.columns) for image, text in rows]
    assert [(row["column"], row["image"], row["candidate"]) for row in written] == wanted
    for row in written:
        if (row["column"], row["image"], row["candidate"]) == ("tiger", "10", "a dog ."):
            assert float(row["value"]) == pytest.approx(0.75, abs=1e-12)
    again = capbench(*command, "2.csv")
    assert "30 scores came from the cache" in again.err.splitlines()
    encode._open.clear()
    assert capbench(*command, "3.csv", "--no-cache").code == 0
    assert Path("1.csv").read_bytes() == Path("2.csv").read_bytes() == Path("3.csv").read_bytes()
    released(2)
    other = capbench(*command, "4.csv")
    assert other.code == 0, other.err
    assert "came from the cache" not in other.err
    assert json.loads(other.out)["signatures"] != json.loads(first.out)["signatures"]
    assert Path("4.csv").read_bytes() != Path("1.csv").read_bytes()


def test_a_study_file_names_features_and_models(capbench: Callable[..., Ran], made: Files, tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    head = "schema: 1\nname: grounded\nprotocols: [flickr8k-expert]\nmetrics: [grounding, reo-omission]\n"
    study.write_text(f"{head}features: {made.features}\nmodels: {{tiger: {made.model}, reo: {made.model}}}\n")
    ran = capbench("correlate", study, "--out", tmp_path / "out")
    assert ran.code == 1, ran.err  # a row is missing
    result = load_result(tmp_path / "out" / "results.json")
    assert {cell.column for cell in result.cells} >= {"grounding"}
    (missing,) = result.missing
    assert missing.column == "reo-omission"
    assert f"capbench train reo-covariance --model {made.model} --features {made.features}" in missing.reason
    study.write_text(f"{head}features: {made.features}\nmodels: {{tigr: {made.model}}}\n")
    ran = capbench("correlate", study, "--out", tmp_path / "out")
    assert ran.code == 2
    assert "'tigr'" in ran.err
    assert "'tiger'" in ran.err


@pytest.mark.parametrize("command", [("score", "-m"), ("compare", "rrs")])
def test_real_data_without_features_and_model_is_one_line(
    command: tuple[str, ...], capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = capbench(*command, "tiger", "--data", tmp_path)
    assert ran.code == 2
    assert ran.err.startswith("error: tiger ")
    assert "--features STORE" in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_the_sample_brings_features_and_model_when_nothing_is_given(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features are extracted once, said, and the scores are those of the flags spelled out."""
    monkeypatch.chdir(tmp_path)
    first = capbench("score", "--metric", "tiger", "--json")
    assert first.code == 0, first.err
    assert "into features/sample.h5" in first.err
    assert "tiger: using the sample's features (features/sample.h5) and the model 'sample'" in first.err
    flags = ("--features", "features/sample.h5")
    spelled_out = capbench("score", "-m", "tiger", *flags, "--model", "tiger=sample", "--json")
    assert "the sample's features" not in spelled_out.err
    assert json.loads(spelled_out.out) == json.loads(first.out)
    again = capbench("correlate", "-d", "flickr8k-expert", "-m", "rrs", "--json")
    assert again.code == 0, again.err
    assert "extracting" not in again.err
    assert json.loads(again.out)["missing"] == []
    assert capbench("compare", "rrs", "wds", "--bootstrap", "100", "--permutations", "100").code == 0
    vilbert = capbench("score", "-m", "vilbertscore", "--json")
    assert vilbert.code == 0, vilbert.err
    assert "vilbertscore: using the sample's features (features/sample.h5) and the model 'sample'" in vilbert.err
    spelled_out = capbench("score", "-m", "vilbertscore", *flags, "--model", "vilbertscore=sample", "--json")
    assert json.loads(spelled_out.out) == json.loads(vilbert.out)
    scores = {row["column"]: row for row in json.loads(vilbert.out)["scores"]}
    assert scores.keys() == {"vilbertscore-f", "vilbertscore-p", "vilbertscore-r"}
    assert all(-1 < row["min"] < row["mean"] < row["max"] < 1 for row in scores.values())
    correlated = capbench("correlate", "-d", "flickr8k-expert", "-m", "vilbertscore", "--json")
    assert correlated.code == 0, correlated.err
    assert json.loads(correlated.out)["missing"] == []


def test_curves_begin_without_references_where_a_column_can(capbench: Callable[..., Ran], made: Files) -> None:
    flags = ("--counts", "0,1,5", "--draws", "2", "--json", *given(made, "tiger"))
    ran = capbench(
        "correlate", "--references-curve", "-d", "flickr8k-expert", "-m", "tiger.tiger", "-m", "grounding", *flags
    )
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    points = {(p["column"], p["count"]): p["mean"] for p in found["points"]}
    assert ("tiger", 0) not in points
    assert points["grounding", 0] == pytest.approx(points["grounding", 5])
    scored = capbench("correlate", "-d", "flickr8k-expert", "-m", "tiger.tiger", *given(made, "tiger"), "--json")
    (cell,) = (c for c in json.loads(scored.out)["cells"] if c["column"] == "tiger" and not c["group"])
    assert points["tiger", 5] == pytest.approx(cell["value"], abs=1e-9)
    refused = capbench(
        "correlate", "--references-curve", "-d", "flickr8k-expert", "-m", "rrs", "--counts", "0", *given(made, "tiger")
    )
    assert refused.code == 2
    assert "requires references" in refused.err


def test_a_study_whose_features_cover_some_of_its_data_prints_the_rest(
    capbench: Callable[..., Ran], made: Files, tmp_path: Path
) -> None:
    study = tmp_path / "half.yaml"
    study.write_text(
        "schema: 1\nname: half\nprotocols: [flickr8k-expert, composite/same-text-out/correctness-tau-c]\n"
        "metrics: [bleu-1, tiger.tiger]\n"
        "published: tiger-table1\n"
    )
    ran = capbench("correlate", study, "--data", "sample", *given(made, "tiger"), "--out", tmp_path / "out")
    assert ran.code == 1, ran.err
    assert "composite/same-text-out" in ran.out
    result = load_result(tmp_path / "out" / "results.json")
    cells = {(cell.protocol.partition("/")[0], cell.group) for cell in result.cells if cell.column == "tiger"}
    assert cells == {("flickr8k-expert", ""), ("composite", "8k")}  # the sample's files name the same images
    gone = capbench("correlate", study, "--data", "sample", "--features", "nowhere.h5")
    assert gone.code == 2
    assert "nowhere.h5: " in gone.err
