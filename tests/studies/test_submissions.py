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
from capbench.studies.submissions import (
    Submission,
    load_card,
    read_cards,
    score_entries,
    submission_entries,
    write_sums,
)
from scripts import leaderboard as script
from tests.conftest import Ran
from tests.errors import raises
from tests.studies.toys import known

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
    assert [one["items"] for one in shown["data"]] == [EXPERT]
    (row,) = shown["rows"]
    plain = cb.correlate(
        "flickr8k-expert", scores=[folder / "scores.csv"], bootstrap=1000, sentinels=True, data=sample_dir()
    )
    (cell,) = plain.cells
    assert [row[key] for key in ("value", "low", "high", "n")] == [cell.value, cell.low, cell.high, cell.n]
    sentinels = known(plain.sentinels_of(row["protocol"]))
    assert row["sentinels"] == {one.column: one.value for one in sentinels.cells if one.value is not None}
    assert len(row["sentinels"]) > 1
    assert "column:mine" in row["signature"]


def changed(change: Callable[[Rows], Sequence[tuple[str, str]]]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        submit(folder, list(change(rows_of("flickr8k-expert"))))

    return write


def _altered(folder: Path) -> None:
    path = submit(folder, rows_of("flickr8k-expert")) / "scores.csv"
    text = path.read_text("utf-8")
    path.write_text(f"{text[:-2]}{(int(text[-2]) + 1) % 10}\n", "utf-8")


def _twice(folder: Path) -> None:
    rows = rows_of("flickr8k-expert")
    scores = submit(folder, rows) / "scores.csv"
    shutil.copy(scores, folder / "again.csv")
    submit(folder, rows, files=dict.fromkeys(("scores.csv", "again.csv"), sha256_file(scores)))


@pytest.mark.parametrize(
    ("write", "code", "file"),
    [
        (_altered, "damaged", "scores.csv"),
        (_twice, "duplicate", "card.yaml"),
        (changed(lambda rows: rows[:-1]), "missing-scores", "scores.csv"),
        (changed(lambda rows: [*rows[:-1], (rows[-1][0], "")]), "missing-scores", "scores.csv"),
        (changed(lambda rows: [*rows, ("dog:00000000:00000000", "1")]), "unknown-item", "scores.csv"),
        (changed(lambda rows: [*rows[:-1], (rows[-1][0], "nan")]), "not-a-number", "scores.csv"),
        (changed(lambda rows: [(name, "1") for name, _ in rows]), "undefined", "scores.csv"),
        (lambda folder: submit(folder, rows_of("flickr8k-expert"), "CIDEr"), "duplicate", "card.yaml"),
        (lambda folder: submit(folder, [], files={}), "missing-key", "card.yaml"),
        (lambda folder: submit(folder, [("a", "1")], columns={"a": {}}), "missing-column", "card.yaml"),
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


def test_each_column_is_read_from_its_file(tmp_path: Path) -> None:
    card = load_card(submit(tmp_path, [], columns={"a": {}, "b": {}, "c": {"shown": False}}) / "card.yaml")
    submission = Submission(tmp_path, card, (), {Path("ab.csv"): ("a",), Path("c.csv"): ("b", "c")})
    entries = {(entry.file, entry.label) for entry in submission_entries(submission)}
    assert entries == {("ab.csv", "a"), ("c.csv", "b")}
    assert len(submission_entries(submission, shown=False)) == 3


def test_a_column_of_another_submission_is_rejected(tmp_path: Path) -> None:
    rows = rows_of("flickr8k-expert")
    submit(tmp_path / "submissions" / "first", rows)
    folder = submit(tmp_path / "submissions" / "second", rows)
    with pytest.raises(CapbenchError) as raised:
        check_submission(folder, data=sample_dir())
    assert (raised.value.code, raised.value.value) == ("duplicate", "mine")


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
    (overlap,) = checked.overlap
    photographs = {photograph(image) for image in judged}
    assert overlap.photographs == len(photographs)
    assert overlap.trained == len(photographs & {photograph(name) for name in listed}) == 3
    assert overlap.fitted == len(photographs & {photograph(image) for image in rated | judged})
    assert checked.judged_ratings == ("flickr8k-expert",)
    assert [note for note in checked.notes if "'unheard-of'" in note]


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
    (row,) = check_submission(folder, data=tmp_path / "data").rows
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
  net-mean: {seeds: [1], image: mean, twin_of: net, shown: false}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.yaml").write_text(CARD, "utf-8")
    (tmp_path / "net.csv.gz").write_bytes(b"")
    write_sums(tmp_path)
    return tmp_path


def test_cards_become_score_files(folder: Path) -> None:
    cards = read_cards(folder)
    assert [(path.name, card.name) for path, card in cards.items()] == [("net.csv.gz", "net")]
    shown = score_entries(cards)
    assert [(entry.label, entry.title, entry.options) for entry in shown] == [
        ("net", "A network", {"columns": "net", "references": "ignored"})
    ]
    assert [entry.label for entry in score_entries(cards, shown=False)] == ["net", "net-mean"]


def test_a_column_may_read_no_references_where_the_card_does_and_so_do_its_twins(folder: Path) -> None:
    text = CARD.replace("reads_references: false", "reads_references: true")
    (folder / "net.yaml").write_text(
        f"{text.replace('net: {', 'net: {reads_references: false, ', 1)}  other: {{}}\n", "utf-8"
    )
    write_sums(folder)
    found = {
        entry.label: (entry.reads_references, entry.options["references"])
        for entry in score_entries(read_cards(folder), shown=False)
    }
    assert found == {"net": (False, "ignored"), "net-mean": (False, "ignored"), "other": (True, "checked")}


@pytest.mark.parametrize(
    ("name", "content"),
    [("net.yaml", CARD + "\n"), ("net.csv.gz", "1"), ("net.csv.gz", None), ("other.yaml", CARD)],
)
def test_files_and_checksums_must_be_the_same(folder: Path, name: str, content: str | None) -> None:
    (folder / name).unlink() if content is None else (folder / name).write_text(content, "utf-8")
    with raises(DataError, "damaged", path=folder / "SHA256SUMS"):
        read_cards(folder)


def test_a_wrong_card_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(CARD.replace("twin_of: net,", "twin_of: other,", 1), "utf-8")
    with raises(DataError, "invalid"):
        load_card(path)


def test_a_repeated_row_has_a_remedy_that_a_submission_has(tmp_path: Path) -> None:
    rows = rows_of("flickr8k-expert")
    with pytest.raises(DataError, match=r"Keep one of them\.$"):
        check_submission(submit(tmp_path, [*rows, (rows[0][0], "9")]), data=sample_dir())
