from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.records import Judgements
from capbench.datasets.human_machine import MACHINES, HmCoco
from capbench.datasets.opening import open_dataset
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.studies.evaluate import evaluate
from tests.datasets.native_files import root, write, write_json

SMURF = "machine_captions/smurf_karpathy_cand.json"
WHERE = "machine_captions/where_image2"
CAPTIONS = {
    "one.jpg": ["A red kite flies.", "a kite in the wind", "Somebody flies a kite", "kite", "one more", "the sixth"],
    "two.jpg": ["Two boats .", "Boats near the shore .", "a lake with boats", "two  boats", "boats on water"],
}


WRITTEN = {
    "one.jpg": ["a red kite flies", "a kite in the WIND .", "a red kite flies ."],
    "two.jpg": ["Two boats . ", "a boat", "a boat ."],
}
SMURF_ENTRIES = [{"image_id": image, "caption": text} for image, texts in WRITTEN.items() for text in texts]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_json(tmp_path / "coco/karpathy_test_captions.json", CAPTIONS)
    write_json(tmp_path / SMURF, SMURF_ENTRIES)
    write_where_image(tmp_path, "mscoco")
    return tmp_path


def write_where_image(folder: Path, kind: str) -> None:
    write(folder / WHERE / f"imgs_{kind}.txt", "two.jpg\none.jpg\n")
    for number, system in enumerate(("human_1", *MACHINES)):
        texts = ["two boats", "a red kite flies"] if not number else [f"{number} boats", f"{number} kites"]
        write(folder / WHERE / f"{kind}_{system}/generated_captions.txt", "\n".join(texts) + "\n")


def load(folder: Path, name: str = "hm-coco") -> Judgements:
    dataset = open_dataset(name, root(folder))
    return dataset.load(dataset.protocol().items)[0]


def test_each_machine_caption_is_paired_with_the_human_caption_of_its_image(folder: Path) -> None:
    loaded = load(folder)
    pairs = loaded.preferences["human"]
    texts = [item.candidate for item in loaded.items]
    assert [(texts[a], texts[b]) for a, b in zip(pairs.first, pairs.second, strict=True)] == [
        ("a red kite flies", "a kite in the WIND ."),
        ("a red kite flies", "a red kite flies ."),
        ("Two boats .", "a boat"),
        ("Two boats .", "a boat ."),
    ]
    assert pairs.preferred.tolist() == [1, 1, 1, 1]
    assert [item.group for item in loaded.items] == ["human", "machine", "machine"] * 2
    assert [item.system for item in loaded.items[:3]] == ["human", "machine 1", "machine 2"]


@pytest.mark.real_data
def test_human_columns_of_table_2_are_the_papers_within_a_hundredth(real_data: Path) -> None:
    """The paper took other human captions of the same images: theirs are .629, .195 and .466."""
    loaded = load(real_data)
    requests = resolve_metrics(["bleu-1", "bleu-4", "rouge-l"])
    protocol = HmCoco(root(real_data)).protocol("mean")
    rows = [row for request in requests for row in request.rows]
    table = score(loaded.items, requests, dataset="x", cache=False, by_group=True)
    cells, _ = evaluate(protocol, [loaded], [table], rows)
    values = {cell.column: cell.value for cell in cells if cell.group == "human"}
    assert values == pytest.approx({"bleu-1": 0.629, "bleu-4": 0.195, "rouge-l": 0.466}, abs=0.01)
