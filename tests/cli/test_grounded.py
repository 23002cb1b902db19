"""TIGEr and REO as a user types them: score, correlate, compare and study files, with a small random model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.studies.results import load_result
from tests.conftest import Ran
from tests.metrics.scan.models import make_files


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
    capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    """Features are extracted once, said, and the scores are those of the flags spelled out."""
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
