"""Files that users of 0.2 have open as they did, with the same numbers.

``fixtures/0.2`` is a data folder of invented content. Commands of 0.2 wrote all of it but ``values.json``, the scores
that 0.2 gave. Never write these files again: a change of a format needs a reader of the old one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capbench
from capbench.studies.results import load_result
from tests.conftest import Ran

FILES = Path(__file__).parent / "fixtures" / "0.2"
VALUES = json.loads((FILES / "values.json").read_text(encoding="utf-8"))
RESULTS = json.loads((FILES / "results.json").read_text(encoding="utf-8"))
PROTOCOL = "rated/as-given/unaggregated-tau-b"
SCORED: dict[str, dict[str, Any]] = {
    "spice": {},
    "wmd": {"options": {"wmd.vectors": str(FILES / "vectors.bin")}},
    "vifidel": {"options": {"vifidel.vectors": str(FILES / "vectors.bin")}},
    "tiger": {"model": FILES / "both.json"},  # an ensemble of two
    "reo": {"model": FILES / "scan.safetensors"},  # with the covariance next to it
    "faier": {"model": FILES / "faier.safetensors"},
    "vilbertscore": {"model": FILES / "vilbert.safetensors"},
    "leic": {"model": FILES / "leic.safetensors"},
    "nneval": {
        "model": FILES / "nneval.safetensors",
        "options": {"nneval.vectors": str(FILES / "vectors.bin"), "nneval.df": "items"},
    },
    "combination:combination.json": {},
    "combination:logistic.json": {},
    "combination:mean-rank.json": {},
}
"""Metrics with their files, on the imported judgements. Their captions are in the parse file: Java is not there."""


@pytest.fixture(autouse=True)
def _data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_DATA", str(FILES))
    monkeypatch.setenv("CAPBENCH_JAVA", "/nonexistent")
    monkeypatch.chdir(FILES)


def scores(metric: str) -> dict[str, list[float]]:
    table = capbench.score(dataset="rated", metrics=[metric], features=FILES / "regions.h5", **SCORED[metric])
    return {key.column: values.tolist() for key, values in table.values.items()}


@pytest.mark.filterwarnings("ignore:.* was fitted with .* of capbench 0.2.0")
@pytest.mark.parametrize("metric", SCORED)
def test_scores(metric: str) -> None:
    found = scores(metric)
    assert found.keys() == VALUES[metric].keys()
    for column, values in found.items():
        assert values == pytest.approx(VALUES[metric][column], rel=1e-5, abs=1e-7), column


def test_imported_ratings() -> None:
    judgements = capbench.load("rated")
    ratings = judgements.ratings["rating"]
    assert (len(judgements.items), len(ratings), ratings.scale) == (12, 24, (1.0, 5.0))
    assert ratings.item.tolist() == np.repeat(np.arange(12), 2).tolist()
    assert ratings.value.tolist() == [5, 4, 1, 2, 4, 3, 1, 2, 5, 4, 2, 3, 4, 3, 1, 2, 5, 4, 1, 2, 4, 3, 2, 3]
    first = judgements.items[0]
    assert (first.image, first.candidate_id, first.system, first.group) == ("test00", "test00.jpg#0", "one", "even")
    assert first.references == ("a green drum and a blue kite", "there is a blue kite beside a drum")


def test_results_are_read() -> None:
    result = load_result(FILES / "results.json")
    assert [cell.value for cell in result.cells] == [cell["value"] for cell in RESULTS["cells"]]
    assert [pair.p_value for test in result.comparisons for pair in test.pairs] == [
        pair["p_value"] for test in RESULTS["comparisons"] for pair in test["pairs"]
    ]
    assert [missing.column for missing in result.missing] == ["nneval"]


def test_results_are_computed_again(capbench: Callable[..., Ran]) -> None:
    line = "correlate -d rated -d voted -m cider -m bleu-4 -m spice --bootstrap 100 --compare permutation"
    ran = capbench(*line.split(), "--permutations", "100", "--json")
    assert ran.code == 0, ran.err
    now = json.loads(ran.out)
    for then, cell in zip(RESULTS["cells"], now["cells"], strict=True):
        assert all(cell[key] == then[key] for key in ("protocol", "column", "group", "n", "ties"))
        for key in ("value", "low", "high"):
            assert cell[key] == pytest.approx(then[key], rel=1e-12)
    tests = [
        [(pair["better"], pair["p_value"]) for test in of["comparisons"] for pair in test["pairs"]]
        for of in (RESULTS, now)
    ]
    assert tests[0] == tests[1]


def test_regions() -> None:
    with capbench.open_store(FILES / "regions.h5") as store:
        assert sorted(store.ids) == [f"test{number:02d}" for number in range(6)]
        regions = store["test00"]
        names = store.header.class_names
    assert names == ("kite", "lamp", "boat", "drum", "fern", "sofa")
    assert regions.boxes is not None
    assert regions.boxes[:, 2].tolist() == pytest.approx([100 / 3, 200 / 3, 100])
    assert (regions.width, regions.height) == (100, 50)
    assert regions.class_ids is not None
    assert regions.class_scores is not None
    assert (regions.class_ids.tolist(), regions.class_scores.tolist()) == ([3, 0, 3], [0.5, 0.75, 1.0])
    assert regions.features.shape == (3, 8)
    assert regions.features[0, :2].tolist() == pytest.approx([1.7006532, 0.3046843])
