"""The results page about NNEval against the numbers behind it."""

from __future__ import annotations

from capbench.core.files import read_json, read_text
from scripts.result_tables import NNEVAL_MARK, ROOT


def test_every_look_on_held_out_images_stands_on_the_page() -> None:
    page = read_text(ROOT / "docs" / "results" / "nneval.md").partition(NNEVAL_MARK)[0]
    for name, row in read_json(ROOT / "results" / "nneval" / "dev.json").items():
        cells = " | ".join(f"{row[key]:.2f}" for key in ("person > machine", "person > foreign", "machine > foreign"))
        assert f"| {name} | {cells} | {row['tau-b']:.4f} |" in page
