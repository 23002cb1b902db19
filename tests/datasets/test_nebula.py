"""Nebula and Polaris, and the rows of candidate, references and score that they are read from."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench.datasets.opening import open_dataset
from tests.conftest import Ran
from tests.datasets.native_files import root, write, write_json

ROWS: list[dict[str, Any]] = [
    {"imgid": "aa11", "mt": "a red kite .", "refs": ["a kite", 'it\'s a "kite"', "up"], "score": 0.75},
    {"imgid": "bb22", "mt": "two boats", "refs": ["boats\n", "a lake\nwith boats"], "score": 1},
    {"imgid": "aa11", "mt": "a red kite .", "refs": ["a kite", "d", "e", "f", "g", "h"], "score": 0.0},
]


def as_csv(rows: list[dict[str, Any]], dump: Callable[[Any], str] = repr) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(["id", *rows[0]])
    for number, row in enumerate(rows):
        writer.writerow([number, *(dump(v) if isinstance(v, list) else v for v in row.values())])
    return stream.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_json(tmp_path / "nebula/nebula_test.json", ROWS)
    return tmp_path


def add_spica(folder: Path, leave_out: str = "") -> None:
    rows = {
        "train": [{"imgid": "aa11.jpg", "mt": "a red kite  .", "score": 0.5}],
        "val": [{"imgid": "aa11", "mt": "a red kite .", "score": 0.25}],
        "test": [{"imgid": "cc33", "mt": "two boats", "score": 0.1}],
    }
    for split, of_split in rows.items():
        if split != leave_out:
            write(folder / f"nebula/spica_{split}.csv", as_csv(of_split))


def test_the_corrected_scores_are_another_version(folder: Path) -> None:
    add_spica(folder)
    newest, first = (open_dataset(name, root(folder)) for name in ("nebula", "nebula:1"))
    assert (newest.name, newest.version) == ("nebula", "spica")
    assert (first.name, first.version, first.title) == ("nebula:1", "1", "Nebula, version 1")
    corrected, published = (d.load(d.protocol().items)[0] for d in (newest, first))
    # The mean of all rows with that image and text; a caption that is not there keeps its score.
    assert corrected.ratings["score"].value.tolist() == [0.375, 1.0, 0.375]
    assert published.ratings["score"].value.tolist() == [0.75, 1.0, 0.0]
    assert corrected.items == published.items
    assert corrected.notes[0].startswith("2 of 3 scores are from spica_train.csv, spica_val.csv, spica_test.csv")


@pytest.mark.real_data
def test_text_metrics_give_the_known_numbers(real_data: Path, capbench: Callable[..., Ran]) -> None:
    flags = ["-p", "tau-c", "-p", "first-5-references/tau-c", "-p", "last-5-references/tau-c"]
    metrics = ["-m", "bleu-4", "-m", "rouge-l", "-m", "meteor", "-m", "cider"]
    ran = capbench("correlate", "-d", "nebula", *flags, *metrics, "--data", real_data, "--json")
    found = json.loads(ran.out)
    by_items: dict[str, dict[str, float]] = {}
    for cell in found["cells"]:
        by_items.setdefault(cell["protocol"].split("/")[1], {})[cell["column"]] = cell["value"]
    expected = {"bleu-4": 0.4347, "rouge-l": 0.4258, "meteor": 0.4679, "cider": 0.4807}
    assert by_items["all-references"] == {column: pytest.approx(v, abs=5e-5) for column, v in expected.items()}
    # Whichever five references are taken, the printed .441 / .434 / .476 / .488 do not come out.
    for items in ("first-5-references", "last-5-references"):
        for column, value in expected.items():
            assert by_items[items][column] == pytest.approx(value, abs=0.003)
    assert {info["version"] for info in found["protocols"]} == {"1"}
