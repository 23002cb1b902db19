"""The plug-in of ``examples/dual-encoder`` from its installation to a combination of metrics, and without it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import capbench as public
from capbench.datasets.captions import load_captions
from capbench.datasets.root import find_root, sample_dir
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from tests.conftest import Ran
from tests.examples.conftest import SOURCE

SETTINGS = {
    "epochs": "6", "batch": "25", "threads": "1", "device": "cpu", "vocabulary.min_count": "1",
    "network.embed_dim": "16", "network.hidden_dim": "16", "network.word_dim": "16", "optimiser.lr": "0.01",
}  # fmt: skip
COMBINED = ("-d", "flickr8k-expert", "-m", "dual-encoder", "-m", "bleu-4")
TRAIN = ("train", "clip", "dual-encoder-flickr8k", "--data", "sample", "--features", "drawn.h5", "--out", "run")


@pytest.fixture
def model(plugged: Path, tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network that is trained on the sample's captions and features that follow from them, in ``drawn.h5``."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    with StoreWriter(tmp_path / "drawn.h5", Fingerprint("drawn", "unknown", "unknown", "unknown")) as writer:
        for image, captions in load_captions("flickr8k", find_root(sample_dir())).items():
            words = sorted({word for caption in captions for word in re.findall(r"\w+", caption.lower())})
            looks = np.stack([np.random.default_rng(list(word.encode())).normal(size=24) for word in words])
            writer.add(RegionFeatures(image, 0, 0, None, np.stack([looks.mean(axis=0)] * 2).astype(np.float32)))
        writer.finish()
    ran = capbench(*TRAIN, *(part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")))
    assert ran.code == 0, ran.err
    assert "temperature 0.0" in ran.err
    assert "next: capbench score --metric dual-encoder --model dual-encoder=run/model.safetensors --features" in ran.err
    return tmp_path / "run/model.safetensors"


def test_it_trains_scores_correlates_and_combines_and_without_it_its_files_name_it(
    model: Path, capbench: Callable[..., Ran], request: pytest.FixtureRequest
) -> None:
    assert capbench("train", "--help").out.count("capbench-dual-encoder") == 1
    assert "--evaluate" in capbench("train", "clip", "--help").out
    measured = capbench(*TRAIN, "--evaluate", "test", "--json")
    assert measured.code == 0, measured.err
    assert json.loads(measured.out)["image_to_text"]["r@10"] > 40  # of 50 images; by chance 20
    given = ("--data", "sample", "--features", "drawn.h5", "--model", f"dual-encoder={model}")
    scored = capbench("score", "-m", "dual-encoder", "-d", "flickr8k-expert", *given, "--json")
    assert scored.code == 0, scored.err
    signature = json.loads(scored.out)["signatures"]["dual-encoder"]
    code = r"code:capbench_dual_encoder\.metric:DualEncoderMetric@[0-9a-f]{16}\|"
    assert re.match(rf"dual-encoder\|capbench:[^|]+\|{code}model:dual-encoder-[0-9a-f]{{16}}\|tok:", signature)
    correlated = capbench("correlate", *COMBINED, *given, "--json")
    assert correlated.code == 0, correlated.err
    cells = {cell["column"]: cell["value"] for cell in json.loads(correlated.out)["cells"]}
    assert set(cells) == {"dual-encoder", "ref-dual-encoder", "bleu-4"}
    assert cells["ref-dual-encoder"] > 0.1
    combined = capbench("train", "combination", *COMBINED, *given, "--save", "c.json")
    assert combined.code == 0, combined.err
    text = Path("c.json").read_text(encoding="utf-8")
    Path("other.json").write_text(text.replace("DualEncoderMetric@", "DualEncoderMetric@0"), encoding="utf-8")
    ran = capbench("score", "-m", "combination:other.json", "-d", "flickr8k-expert", *given)
    assert "was fitted with dual-encoder of code" in ran.err
    joined = ("models", "combine", model, model, "--out", "both.json", "--replace")
    assert capbench(*joined).code == 0
    request.getfixturevalue("unplugged")
    for command in (joined, ("score", "-m", "combination:c.json", "-d", "flickr8k-expert")):
        ran = capbench(*command)
        assert ran.code == 2
        assert "dual-encoder" in ran.err
        assert "Install the package that registers" in ran.err


def test_it_imports_what_is_public_or_named_as_stable() -> None:
    page = (SOURCE.parents[1] / "docs/extend.md").read_text(encoding="utf-8")
    section = page.partition("## A metric with a network and its training")[2].partition("\n## ")[0]
    stable = set(re.findall(r"`(capbench\.\w+(?:\.\w+)+)`", section))
    imported = set()
    for path in (SOURCE / "capbench_dual_encoder").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "capbench":
                assert {alias.name for alias in node.names} <= set(public.__all__)
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("capbench."):
                imported.add(str(node.module))
    assert imported == stable
