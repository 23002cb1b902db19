"""VALSE and SugarCrepe: parts, votes, references where the image is COCO's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import MetricError
from capbench.datasets.foil_sets import SugarCrepe, Valse
from capbench.metrics.requests import resolve_metrics
from capbench.studies.scoring import load_scorable
from tests.datasets.native_files import root, write_json
from tests.errors import raises

CAPTIONS = {
    "COCO_val2014_000000000007.jpg": ["A red kite over a hill.", "a kite in the wind", "Somebody flies a kite"],
    "COCO_val2014_000000000008.jpg": ["two boats on the lake", "Boats near the shore ."],
}


def vote(image: str, caption: str, foil: str, votes: int = 3, **more: str) -> dict[str, Any]:
    mturk = {"foil": 3 - votes, "caption": votes, "other": 0}
    return {"image_file": image, "caption": caption, "foil": foil, "mturk": mturk, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    valse: dict[str, dict[str, Any]] = {part: {part: vote("v7w_1.jpg", f"one {part}", "two")} for part in Valse.parts}
    valse["plurals"] = {
        "p1": vote(
            "000000000007.jpg",
            "exactly one red kite over a hill",
            "a number of red kites over a hill",
            orig_caption="A red kite over a hill",
        ),
        "p2": vote("000000000008.jpg", "two boats on the lake", "a boat on the lake", votes=1),
    }
    # The same number in another collection of images is another image.
    valse["coreference-hard"] = {"c1": vote("VisualDialog_val2018_000000000007.jpg", "a kite. red? yes.", "red? no.")}
    valse["actant-swap"]["same"] = vote("swig_1.jpg", "a man teaches a man", "a man teaches a man")
    for part, entries in valse.items():
        write_json(tmp_path / f"valse/{part}.json", entries)
    for part in SugarCrepe.parts:
        entry = {"filename": "000000000008.jpg", "caption": "Boats near the shore.", "negative_caption": f"no {part}"}
        write_json(tmp_path / f"open/sugarcrepe/{part}.json", {"0": entry})
    write_json(tmp_path / "coco/karpathy_val_captions.json", CAPTIONS)
    return tmp_path


def test_a_metric_with_references_names_the_items_that_have_them(folder: Path) -> None:
    dataset = SugarCrepe(root(folder))
    judged = load_scorable(dataset, SugarCrepe.selections["all-pairs"], resolve_metrics(["cider"]))
    with raises(MetricError, "missing-references", value="cider") as caught:
        judged.require_all()
    assert "-d sugarcrepe -p own-caption-out" in str(caught.value.hint)
    assert load_scorable(dataset, SugarCrepe.selections["own-caption-out"], resolve_metrics(["cider"])).unscored == ()
