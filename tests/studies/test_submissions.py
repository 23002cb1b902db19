"""Submissions to the leaderboard: what is accepted, its row, shared photographs, and the reasons for rejection."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

import capbench as cb
from capbench.api.submitting import check_submission
from capbench.core.errors import CapbenchError, DataError
from capbench.core.files import sha256_file
from capbench.core.records import photograph
from capbench.datasets.root import sample_dir
from capbench.metrics.score_joining import item_id
from capbench.studies.submissions import load_card, read_cards, score_entries
from scripts import leaderboard as script
from tests.conftest import Ran
from tests.errors import raises

Rows = list[tuple[str, str]]
EXPERT = "flickr8k-expert/no-own-captions"


def rows_of(*datasets: str) -> Rows:
    items = {item_id(item): item for name in datasets for item in cb.load(name, data=sample_dir()).items}
    return [(name, str(len(item.candidate) / 7)) for name, item in items.items()]


def submit(folder: Path, rows: Rows, column: str = "mine", **keys: Any) -> Path:
    """Write a submission."""
    folder.mkdir(parents=True, exist_ok=True)
    scores = folder / "scores.csv"
    scores.write_text(f"id,{column}\n" + "".join(f"{name},{score}\n" for name, score in rows), "utf-8")
    card = {
        "schema": 1,
        "name": "mine",
        "title": "Mine",
        "kind": "metric",
        "training_data": "none",
        "uses_ratings": False,
        "reads_references": True,
        "paper": "A paper",
        "link": "https://example.org",
        "licence": "MIT",
        "cost": {"seconds_per_caption": 0.1},
        "columns": {column: {}},
        "files": {"scores.csv": sha256_file(scores)},
        "training_images": [],
    }
    (folder / "card.yaml").write_text(yaml.safe_dump(card | keys), "utf-8")
    return folder


def test_the_row_has_the_numbers_of_correlate(tmp_path: Path, capbench: Callable[..., Ran]) -> None:
    folder = submit(tmp_path / "mine", rows_of("flickr8k-expert"))
    shown = json.loads(capbench("submit", "check", str(folder), "--data", str(sample_dir()), "--json").out)
    assert [info["id"].rpartition("/")[0] for info in shown["protocols"]] == [EXPERT]
    plain = cb.correlate(
        "flickr8k-expert", scores=[folder / "scores.csv"], bootstrap=1000, sentinels=True, data=sample_dir()
    )
    same = ("value", "low", "high", "n")
    ((found, cell),) = zip(shown["cells"], plain.cells, strict=True)
    assert [found[key] for key in same] == [getattr(cell, key) for key in same]
    assert len(plain.sentinels) == 1
    assert shown["sentinels"] == [json.loads(one.model_dump_json()) for one in plain.sentinels]
    assert "column:mine" in shown["signatures"][EXPERT]["mine"]


def changed(change: Callable[[Rows], Sequence[tuple[str, str]]]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        submit(folder, list(change(rows_of("flickr8k-expert"))))

    return write


def _altered(folder: Path) -> None:
    path = submit(folder, rows_of("flickr8k-expert")) / "scores.csv"
    text = path.read_text("utf-8")
    path.write_text(f"{text[:-2]}{(int(text[-2]) + 1) % 10}\n", "utf-8")


@pytest.mark.parametrize(
    ("write", "code", "file"),
    [
        (_altered, "damaged", "scores.csv"),
        (changed(lambda rows: rows[:-1]), "missing-scores", "scores.csv"),
        (changed(lambda rows: [*rows[:-1], (rows[-1][0], "")]), "missing-scores", "scores.csv"),
        (changed(lambda rows: [*rows, ("dog:00000000:00000000", "1")]), "unknown-item", "scores.csv"),
        (changed(lambda rows: [*rows[:-1], (rows[-1][0], "nan")]), "not-a-number", "scores.csv"),
        (changed(lambda rows: [(name, "1") for name, _ in rows]), "undefined", "None"),
        (lambda folder: submit(folder, rows_of("flickr8k-expert"), "CIDEr"), "duplicate", "None"),
        (lambda folder: submit(folder, [("a", "1")], columns={"mine": {}, "b": {}}), "missing-column", "scores.csv"),
        (lambda folder: submit(folder, [], files={}), "missing-key", "card.yaml"),
        (lambda folder: submit(folder, rows_of("flickr8k-expert"), uses_ratings=True), "invalid", "card.yaml"),
        (
            lambda folder: submit(folder, rows_of("flickr8k-expert"), training_images=["no-corpus"]),
            "unknown-name",
            "card.yaml",
        ),
    ],
)
def test_invalid_submissions_are_rejected(
    tmp_path: Path, write: Callable[[Path], object], code: str, file: str
) -> None:
    write(tmp_path / "mine")
    with pytest.raises(CapbenchError) as raised:
        check_submission(tmp_path / "mine", data=sample_dir(), bootstrap=100)
    assert (raised.value.code, Path(str(raised.value.path)).name) == (code, file)


def test_a_part_of_another_data_set_is_rejected_unless_it_belongs_to_the_submitted_one(tmp_path: Path) -> None:
    rows, others = rows_of("flickr8k-expert"), rows_of("composite")
    assert set(rows_of("flickr8k-crowdflower")) & set(rows)  # flickr8k-expert alone covers a part of it
    checked = check_submission(submit(tmp_path, rows), data=sample_dir(), bootstrap=100)
    assert [info.dataset for info in checked.protocols] == ["flickr8k-expert"]
    with raises(DataError, "missing-scores") as raised:
        check_submission(submit(tmp_path, [*rows, *others[:-1]]), data=sample_dir())
    assert "composite" in raised.value.message
    assert "--allow-missing" not in str(raised.value)


def test_shared_photographs_are_counted(tmp_path: Path) -> None:
    judged = {item.image for item in cb.load("flickr8k-expert", data=sample_dir()).items}
    listed = [*sorted(judged)[:3], "another"]
    rated = {item.image for item in cb.load("flickr8k-crowdflower", data=sample_dir()).items}
    folder = submit(
        tmp_path / "mine",
        rows_of("flickr8k-expert"),
        training_images=["photographs.txt"],
        uses_ratings=True,
        ratings=["flickr8k-crowdflower", "flickr8k-expert", "unheard-of"],
    )
    (folder / "photographs.txt").write_text("".join(f"{name}.jpg\n" for name in listed), "utf-8")
    checked = check_submission(folder, data=sample_dir(), bootstrap=100)
    (overlap,) = checked.training[EXPERT]
    photographs = {photograph(image) for image in judged}
    assert overlap.photographs == len(photographs)
    assert overlap.trained == len(photographs & {photograph(name) for name in listed}) == 3
    assert overlap.fitted == len(photographs & {photograph(image) for image in rated | judged})
    assert overlap.unrecorded == ("unheard-of",)
    assert [note for note in checked.protocols[0].notes if "fitted to human judgements of" in note]


def test_unknown_training_images_are_reported(tmp_path: Path) -> None:
    folder = submit(tmp_path, rows_of("flickr8k-expert"), training_images=None)
    (overlap,) = check_submission(folder, data=sample_dir(), bootstrap=100).training[EXPERT]
    assert (overlap.unrecorded, overlap.trained) == (("mine",), 0)


@pytest.mark.real_data
def test_a_published_file_passes_unedited(real_data: Path, tmp_path: Path) -> None:
    folder = submit(tmp_path / "fleur", [], "fleur", reads_references=False, training_images=["flickr8k@train"])
    (folder / "scores.csv").unlink()
    published = real_data / "external_scores" / "fleur_flickr8k_expert.csv"
    shutil.copy(published, folder)
    card = yaml.safe_load((folder / "card.yaml").read_text("utf-8"))
    card["files"] = {published.name: sha256_file(published)}
    (folder / "card.yaml").write_text(yaml.safe_dump(card), "utf-8")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "flickr8k").symlink_to(real_data / "flickr8k")  # the other sets take seconds to read
    (row,) = check_submission(folder, data=tmp_path / "data").cells
    stored = json.loads((script.FOLDER / "leaderboard.json").read_text("utf-8"))
    (fleur,) = (one["ours"]["flickr8k-expert"] for one in stored["rows"] if one["name"] == "fleur")
    assert {key: round(getattr(row, key), 6) for key in ("value", "low", "high", "n")} == {
        key: fleur[key] for key in ("value", "low", "high", "n")
    }


CARD = """schema: 1
name: net
title: A network
kind: network
training_data: Flickr8k
uses_ratings: false
reads_references: false
columns:
  net: {seeds: [1], networks: [abcd]}
  net-mean: {seeds: [1], image: mean, twin_of: net}
"""


def stored(folder: Path, card: str = CARD) -> list[Path]:
    """Store an empty score file with a card."""
    (folder / "net.csv.gz").write_bytes(b"")
    (folder / "net.yaml").write_text(f"{card}files: {{net.csv.gz: {sha256_file(folder / 'net.csv.gz')}}}\n", "utf-8")
    return [folder / "net.yaml"]


def test_cards_become_score_files(tmp_path: Path) -> None:
    cards = read_cards(stored(tmp_path))
    assert [(path.name, card.name) for path, card in cards.items()] == [("net.csv.gz", "net")]
    shown = score_entries(cards)
    assert [(entry.label, entry.title, entry.options) for entry in shown] == [
        ("net", "A network", {"columns": "net", "references": "ignored"})
    ]
    assert [entry.label for entry in score_entries(cards, twins=True)] == ["net", "net-mean"]


def test_a_column_may_read_no_references_where_the_card_does_and_so_do_its_twins(tmp_path: Path) -> None:
    text = CARD.replace("reads_references: false", "reads_references: true")
    text = f"{text.replace('net: {', 'net: {reads_references: false, ', 1)}  other: {{}}\n"
    found = {
        entry.label: (entry.reads_references, entry.options["references"])
        for entry in score_entries(read_cards(stored(tmp_path, text)), twins=True)
    }
    assert found == {"net": (False, "ignored"), "net-mean": (False, "ignored"), "other": (True, "checked")}


@pytest.mark.parametrize(("content", "code"), [("1", "damaged"), (None, "missing-file")])
def test_a_score_file_must_be_that_of_its_card(tmp_path: Path, content: str | None, code: str) -> None:
    cards, file = stored(tmp_path), tmp_path / "net.csv.gz"
    file.unlink() if content is None else file.write_text(content, "utf-8")
    with raises(CapbenchError, code, path=file):
        read_cards(cards)


def test_a_wrong_card_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(CARD.replace("twin_of: net", "twin_of: other"), "utf-8")
    with raises(DataError, "invalid"):
        load_card(path)


def test_a_repeated_row_has_a_remedy_that_a_submission_has(tmp_path: Path) -> None:
    rows = rows_of("flickr8k-expert")
    with pytest.raises(DataError, match=r"Keep one of them\.$"):
        check_submission(submit(tmp_path, [*rows, (rows[0][0], "9")]), data=sample_dir())
