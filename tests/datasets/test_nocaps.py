from __future__ import annotations

from pathlib import Path
from typing import Any

from capbench.core.records import Judgements
from capbench.datasets.nocaps import Nocaps
from tests.datasets.native_files import root, write_json

DOMAINS = ("in_domain", "near_domain", "out_domain")
TEN = [[f"caption {n} of image {i}" for n in range(10)] for i in range(3)]


def corpus() -> list[dict[str, Any]]:
    return [{"split": DOMAINS[i], "image_id": f"{i}.jpg", "caption": TEN[i]} for i in range(3)]


def images(domains: bool) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for i in range(3):
        entry = {"id": i, "file_name": f"00ab{i}.jpg", "open_images_id": f"00ab{i}", "coco_url": f"http://x/{i}"}
        found.append({**entry, "domain": DOMAINS[i].replace("_", "-")} if domains else entry)
    return found


def original(domains: bool = True) -> dict[str, Any]:
    annotations = [
        {"id": 10 * i + n, "image_id": i, "caption": text} for i in range(3) for n, text in enumerate(TEN[i])
    ]
    return {"images": images(domains), "annotations": annotations}


def load(folder: Path) -> Judgements:
    return Nocaps(root(folder)).load(Nocaps.selections["first-vs-rest"])[0]


def test_original_file_gives_the_same_items(tmp_path: Path) -> None:
    write_json(tmp_path / "a/nocaps/nocaps_corpus.json", corpus())
    write_json(tmp_path / "b/nocaps/nocaps_val_4500_captions.json", original())
    assert load(tmp_path / "b").items == load(tmp_path / "a").items
