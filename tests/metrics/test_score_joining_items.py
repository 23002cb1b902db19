from __future__ import annotations

import json
from pathlib import Path

from capbench.metrics.score_joining import item_id, write_items
from tests.metrics.score_tables import ITEMS


def test_every_distinct_item_is_written_once_in_both_files(tmp_path: Path) -> None:
    assert write_items(ITEMS, tmp_path / "new", {"i2": Path("/images/i2.jpg")}) == 2
    rows, references = (
        [json.loads(line) for line in (tmp_path / "new" / name).read_text(encoding="utf-8").splitlines()]
        for name in ("predictions.jsonl", "references.jsonl")
    )
    assert rows == [
        {"id": item_id(ITEMS[0]), "caption": ITEMS[0].candidate, "image": "i1"},
        {"id": item_id(ITEMS[1]), "caption": "ein Café; 猫", "image": "/images/i2.jpg"},
    ]
    assert references == [
        {"id": item_id(ITEMS[0]), "references": ["a", "b"]},
        {"id": item_id(ITEMS[1]), "references": ["c"]},
    ]
