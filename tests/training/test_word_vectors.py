from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import capbench as cb
from capbench.cli.app import app
from capbench.core.records import Item
from capbench.core.training_record import training_overlap
from capbench.text.word_vectors import WordVectors
from capbench.weights.training_files import read_training_record

CAPTIONS = ["A dog runs on the grass.", "A cat sits on the grass.", "The dog sits by a red ball.", "A cat runs."] * 5


@pytest.mark.java
def test_captions_of_judged_images_are_left_out_unless_they_are_requested(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    corpus, ratings, data = (tmp_path / name for name in ("captions.json", "ratings.csv", "data"))
    corpus.write_text(json.dumps({"first.jpg": CAPTIONS[:2], "second.jpg": CAPTIONS[2:4]}), "utf-8")
    rows = "".join(f"first.jpg,{text},{number}\n" for number, text in enumerate(CAPTIONS[:2], 1))
    ratings.write_text(f"image,candidate,rating\n{rows}", "utf-8")
    data.mkdir()
    cb.import_data(ratings, "mine", data=data)
    items = [Item("first", text, ()) for text in CAPTIONS[:2]]
    found = {}
    for name, flags in {"without": [], "with": ["--include-judged"]}.items():
        out = tmp_path / f"{name}.bin"
        options = ["-c", str(corpus), "-o", str(out), "--data", str(data), "--dimension", "4", "--min-count", "1"]
        result = CliRunner().invoke(app, ["train", "word-vectors", *options, "--epochs", "1", *flags])
        assert result.exit_code == 0, result.output
        record = read_training_record(out)
        made = training_overlap("wmd", [record], items)
        found[name] = made.trained, made.read_candidates, made.has_read, record.treatment, len(WordVectors(out))
    assert found == {
        "without": (0, 0, False, {"left_out": ["mine"], "images": 1}, 9),
        "with": (1, 2, True, {"included": True}, 11),
    }
