"""What makes the tables about FAIEr's rows and about where it parts from people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from capbench.core.records import Item
from scripts import faier_flickr8k_table4 as table4
from scripts.faier_flickr8k_analysis import analyse, kind_of_image
from scripts.faier_flickr8k_analysis import tables as analysis_tables
from scripts.flickr8k_steps import Rated
from scripts.reproduce_faier_flickr8k import Asked


def rated(seed: int = 0) -> Rated:
    rng = np.random.default_rng(seed)
    own = {0: ("a dog runs", "the dog jumps"), 1: ("two men sit", "a man waits"), 2: ("a red hill", "some grass")}
    items = tuple(Item(f"image-{n % 12}", f"a thing {'here ' * (n % 3)}", own[n % 12 % 3], f"c{n}") for n in range(60))
    of_rating = np.repeat(np.arange(60), 2)
    return Rated(items, of_rating, rng.integers(1, 5, len(of_rating)).astype(float), "toy/all/tau-c")


def test_rows_of_one_and_of_several_networks_get_their_means_and_intervals(tmp_path: Path) -> None:
    data, rng = rated(), np.random.default_rng(1)
    truth = data.mean()[data.item]
    close, far = (truth + noise * rng.normal(size=(2, len(truth))) for noise in (0.3, 5))
    ways = {"all": list(close), "none": [np.zeros(len(truth))], "one": list(far)}
    rows = table4.measured(Asked(data, (data,)), {"fier": ways, "aier-4-ref": {**ways, "all": [close[0]]}}, 100)
    tau_c = [Rated(data.items, np.arange(len(truth)), data.value, "").tau_c(scores) for scores in close]
    entry = rows["fier"]["all"]["tau-c"]
    assert entry["value"] == pytest.approx(np.mean(tau_c), abs=1e-12)
    assert entry["low"] < entry["value"] < entry["high"]
    assert rows["aier-4-ref"]["all"]["tau-c"]["value"] == pytest.approx(tau_c[0], abs=1e-12)
    assert rows["fier"]["one"]["spearman"]["value"] < rows["fier"]["all"]["spearman"]["value"]
    assert rows["fier"]["none"] == {}  # one score for all captions orders nothing
    seeds = {"fier": [1, 2], "aier-4-ref": [1]}
    shown = table4.tables({"seeds": seeds, "expert": {"protocol": "toy", "rows": rows}})
    assert "| FIEr (mean of 2 seeds) |" in shown
    assert "| AIEr-4 ref (one seed) |" in shown


def test_a_row_s_networks_are_those_of_its_folders(tmp_path: Path) -> None:
    for name in ("faier-flickr8k-seed2", "faier-flickr8k-seed1", "faier-flickr8k-fier-seed1", "faier-flickr8k-aier-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    names = [path.parent.name for path in table4.networks_of(tmp_path, "faier-r-ref")]
    assert names == ["faier-flickr8k-seed1", "faier-flickr8k-seed2"]
    assert [path.parent.name for path in table4.networks_of(tmp_path, "fier")] == ["faier-flickr8k-fier-seed1"]
    assert table4.networks_of(tmp_path, "faier-4-ref") == []


def test_scores_are_taken_apart_by_rating_image_and_triplets() -> None:
    data = rated(2)
    human = data.mean()
    noise = np.random.default_rng(3).normal(size=60) * 0.01
    good = human + noise  # of equal ratings one is above the other
    columns = {"good": good, "bad": -good, "number of triplets": (np.arange(60) % 4).astype(float)}
    found = analyse(data, columns)
    assert found["tau-c"]["good"] == pytest.approx(-found["tau-c"]["bad"])
    within, between = (found["by image"][n][f"tau-b {w} images"] for n, w in (("good", "within"), ("bad", "between")))
    assert within > 0.9
    assert between < -0.9
    assert found["captions"] == {"no triplet": 15, "triplets": 45}
    assert found["images"] == {"dog": 4, "people": 4, "other": 4}
    dogs = [place for place, item in enumerate(data.items) if "dog" in item.references[0]]
    few = np.isin(data.item, dogs)
    expected = Rated(data.items, data.item[few], data.value[few], "").tau_c(good)
    assert found["tau-c by image"]["dog"]["good"] == pytest.approx(expected)
    shown = analysis_tables({"toy": found, "models": ["good"]})
    assert "| good |" in shown
    assert "45 captions with triplets" in shown
    assert "number of triplets" not in shown


def test_an_image_is_of_the_kind_that_most_of_its_captions_name() -> None:
    assert kind_of_image(("a dog", "a man with a dog", "a man")) == "dog"
    assert kind_of_image(("a dog.", "a man", "two women")) == "people"
    assert kind_of_image(("a hill", "the sea")) == "other"
