"""``capbench explore explain`` as a user types it, on the embedded sample's images and with a small random model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image

from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.root import find_root, sample_dir
from capbench.features.store import open_store
from capbench.metrics.scan.files import save_scan
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.text.vocabulary import Vocabulary
from tests.conftest import Ran

Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Features of two of the sample's images with real boxes, and a model with random weights."""
    from capbench.cli.app import app

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("explain")
    features, model = folder / "f.h5", folder / "scan.safetensors"
    pictures = [f"--images={sample_dir() / 'flickr8k' / 'images' / name}" for name in ("f8k_003.png", "f8k_005.png")]
    app(["extract-features", *pictures, "--threads", "1", "--out", str(features)], standalone_mode=False)
    judgements = Flickr8kExpert(find_root(sample_dir())).load(Flickr8kExpert.protocol().items)[0]
    words = Vocabulary.build([text for item in judgements.items for text in item.references])
    with open_store(features) as store:
        size, digest = store.feature_size, store.fingerprint.digest
    options = ScanOptions(vocabulary_size=len(words), word_dim=8, embed_dim=16, image_dim=size)
    save_scan(model, Scan(options, torch.Generator().manual_seed(1)), words, {"features": digest})
    return features, model


@pytest.fixture
def given(made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name them; results go to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return ["--features", str(made[0]), "--model", str(made[1])]


def test_a_data_sets_image_is_explained_with_its_candidates(given: list[str], capbench: Run) -> None:
    ran = capbench("explore", "explain", "--image", "f8k_003", *given)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("data: embedded synthetic sample")
    assert [line[0] for line in lines if line[1:3] == ": "] == list("ABCDE")
    assert "human rating" in lines[1]
    assert "the first 5 of" in ran.err
    assert lines[-2].startswith("tiger|capbench:")
    assert lines[-1] == ", ".join([*(f"f8k_003.tiger-{name}.png" for name in "ABCDE"), "f8k_003.tiger.html"])
    with Image.open("f8k_003.tiger-A.png") as image:
        assert image.format == "PNG"
        image.load()
    assert "Attention of each region to a word" in Path("f8k_003.tiger.html").read_text(encoding="utf-8")


def test_json_has_the_scores_that_score_gives(given: list[str], capbench: Run) -> None:
    captions = ["-c", "a red boat", "-c", "something in the snow", "-r", "two red boats", "-r", "a boat <b> and more"]
    ran = capbench("explore", "explain", "-i", "f8k_005", *captions, *given, "--out", "deep/why.png", "--json")
    assert ran.code == 0, ran.err
    printed = json.loads(ran.out)
    assert printed["files"] == ["deep/why-A.png", "deep/why-B.png", "deep/why.html"]
    assert all(Path(name).is_file() for name in printed["files"])
    assert (printed["metric"], printed["image"], len(printed["candidates"])) == ("tiger", "f8k_005", 2)
    assert printed["picture"].endswith("f8k_005.png")

    items = [{"image_id": "f8k_005", "caption": text} for text in captions[1:4:2]]
    Path("c.json").write_text(json.dumps(items))
    Path("r.json").write_text(json.dumps({"f8k_005": captions[5::2]}))
    scored = capbench(
        "score", "-m", "tiger", "--candidates", "c.json", "--references", "r.json", *given, "--out", "s.jsonl"
    )
    assert scored.code == 0, scored.err
    rows = [json.loads(line) for line in Path("s.jsonl").read_text().splitlines()]
    for candidate in printed["candidates"]:
        expected = {r["column"]: r["value"] for r in rows if r["candidate"] == candidate["text"]}
        assert {name: candidate["scores"][name] for name in expected} == pytest.approx(expected, abs=1e-9)
        assert len(candidate["panels"][0]["values"][1]) == len(printed["regions"])


def test_without_the_picture_it_says_so_and_goes_on(given: list[str], capbench: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = capbench("explore", "explain", "-i", "f8k_003", "-c", "a boat", "--image-root", "empty", *given)
    assert ran.code == 0, ran.err
    assert "no picture found below empty: drawn without it" in ran.err
    assert "drawn without it" in Path("f8k_003.tiger.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-i", "f8k_004"], "'f8k_004'"),
        (["-i", "f8k_003", "-m", "cider"], "--metric cider"),
        (["-i", "f8k_003", "-m", "tigre"], "'tigre'"),
        (
            ["-i", "f8k_003", "-m", "tests.reports.explain.overlap:Silent", "-c", "a", "-r", "b"],
            "silent",
        ),
        (["-i", "f8k_003", "-d", "pascal-50s"], "'f8k_003'"),
        (["-i", "f8k_003", "-d", "nothing"], "'nothing'"),
        (["-i", "f8k_003", "-c", " "], "empty"),
        (["-i", "f8k_003", "--option", "tiger.tau=0"], "tau"),
        (["-i", "f8k_003", "--option", "cider.df=x"], "cider"),
        (["-i", "f8k_003", "-m", "reo"], "covariance"),
        (["-i", "f8k_003", "-c", "a", "-r", "b", "-o", "/dev/null/x"], "/dev/null"),
    ],
)
def test_what_does_not_fit_is_one_line_and_exit_code_2(
    arguments: list[str], named: str, given: list[str], capbench: Run
) -> None:
    ran = capbench("explore", "explain", *arguments, *given)
    assert ran.code == 2
    assert named in ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("error: ")]) == 1
    assert "Traceback" not in ran.err


def test_a_metric_of_ones_own_explains_itself_without_features(
    capbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    captions = ["-c", "a boat", "-c", "the snow", "-r", "a red boat"]
    ran = capbench("explore", "explain", "-m", "tests.reports.explain.overlap:Overlap", "-i", "f8k_003", *captions)
    assert ran.code == 0, ran.err
    assert "a note of the metric's" in ran.err
    with Image.open("f8k_003.overlap-all.png") as image:
        image.load()
    page = Path("f8k_003.overlap.html").read_text(encoding="utf-8")
    assert "Same words" in page
    assert "data:image/webp" in page  # the sample's picture
    ran = capbench(
        "explore", "explain", "-m", "tests.reports.explain.overlap:Overlap", "-i", "f8k_003", *captions, "--json"
    )
    printed = json.loads(ran.out)
    assert printed["candidates"][0]["scores"] == {"overlap": 1.0, "shared": 2.0}
    assert [panel["title"] for panel in printed["candidates"][0]["panels"]][2:4] == ["Same words", "shares"]
    assert printed["regions"] == ["left half", "right half"]


def test_the_picture_has_the_options_of_figures(given: list[str], capbench: Run) -> None:
    captions = ["-c", "a boat", "-r", "two boats"]
    ran = capbench(
        "explore", "explain", "-i", "f8k_003", *captions, *given, "--title", "Why & how", "--size", "8x6", "-o", "sized"
    )
    assert ran.code == 0, ran.err
    with Image.open("sized.png") as image:
        assert image.size == (8 * 160, 6 * 160)
    assert "<title>Why &amp; how</title>" in Path("sized.html").read_text(encoding="utf-8")
    for kind, begins in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        ran = capbench(
            "explore", "explain", "-i", "f8k_003", *captions, *given, "--format", kind, "-o", "other", "--title", "Why"
        )
        assert ran.code == 0, ran.err
        assert Path(f"other.{kind}").read_bytes().startswith(begins)
    assert "Why. A: a boat" in Path("other.svg").read_text(encoding="utf-8")
    # A file's own ending says its type, too; letters have the size that is wanted.
    widths = []
    for points in ("9", "18"):
        assert (
            capbench(
                "explore", "explain", "-i", "f8k_003", *captions, *given, "-o", "a.svg", "--font-size", points
            ).code
            == 0
        )
        widths.append(float(re.search(r'width="([\d.]+)pt"', Path("a.svg").read_text(encoding="utf-8"))[1]))  # type: ignore[index]
    assert widths[1] == pytest.approx(2 * widths[0])


def test_errors_that_people_name_stand_beside_reos(given: list[str], capbench: Run, tmp_path: Path) -> None:
    def explain(errors: str, metric: str, *more: str) -> Ran:
        image = f"{{id: f8k_003, candidates: [a boat on snow], errors: [{errors}]}}"
        path = tmp_path / "errors.yaml"
        path.write_text(f"schema: 1\nname: errors\nimage: {image}\nmetrics: [{metric}]\n", encoding="utf-8")
        return capbench("explore", "explain", path, *given, *more)

    marked, identity = "{extra: [on snow], missing: [red]}", ("--option", "reo.covariance=identity")
    ran = explain(marked, "reo", *identity, "--json")
    assert ran.code == 0, ran.err
    panels = {panel["title"]: panel for panel in json.loads(ran.out)["candidates"][0]["panels"]}
    for truth in ("image", "image + references"):
        extra = panels[f"Extra phrases: sim(x, y) with a⊥ against {truth}"]
        assert extra["rows"] == ["“on snow”"]
        assert all(-1 <= value <= 1 for value in extra["values"])
        assert panels[f"Missing phrases: sim(x, y) with g⊥ against {truth}"]["rows"][0] == "“red”"
    assert "Extra phrases: sim(x, y) with a⊥ against image: “on snow”" in explain(marked, "reo", *identity).out
    ran = explain(f"{marked}, {marked}", "reo", *identity)
    assert (ran.code, ran.failure.code) == (2, "mismatch")
    ran = explain(marked, "tiger")
    assert (ran.code, ran.failure.value) == (2, "tiger")
