"""The committed numbers of the leaderboard: stored files, comparison with computed ones, and adding score files."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

import capbench
from capbench.api.agreement import plan_agreement, study_of
from capbench.api.caller import PYTHON
from capbench.api.resolve import MetricInputs
from capbench.core.files import unpack_gzip
from capbench.datasets.root import sample_dir
from capbench.metrics.score_joining import item_id
from capbench.studies.leaderboard import Leaderboard, load_leaderboard, published_numbers
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.submissions import read_cards, score_entries
from scripts import leaderboard as script

EXPERT = "flickr8k-expert/no-own-captions/unaggregated-tau-c"
STORED = script.FOLDER / "leaderboard.json"
CARD = """schema: 1
name: words
title: Number of words
kind: metric
training_data: ""
uses_ratings: false
reads_references: true
columns:
  words: {image: none}
"""


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    return load_leaderboard(STORED)


def changed(board: Leaderboard, change: Callable[[dict[str, object]], None]) -> Leaderboard:
    raw = json.loads(board.model_dump_json())
    change(raw)
    return Leaderboard.model_validate(raw)


def test_stored_files_are_complete_with_six_digits_and_no_local_path(board: Leaderboard) -> None:
    assert script.stored_problems() == []
    text = STORED.read_text("utf-8")
    assert not re.search(r'\d\.\d{7,}|"[^"]*(?:/home/|/work/|/tmp/|/root/)', text)
    assert not board.sample


def numbers(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Places of the stored numbers of rows and columns."""
    if isinstance(value, float):
        yield place
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from numbers(one, (*place, key))
    elif isinstance(value, list):
        for key, one in enumerate(value):
            yield from numbers(one, (*place, key))


def test_a_wrong_digit_anywhere_is_found(board: Leaderboard) -> None:
    assert list(script.differences(board, board)) == []
    raw = json.loads(board.model_dump_json())
    places = [place for key in ("rows", "columns") for place in numbers(raw[key], (key,)) if "bootstrap" not in place]
    assert len(places) > 200
    for place in places[:: len(places) // 40]:

        def change(raw: dict[str, object], place: tuple[str | int, ...] = place) -> None:
            inner: object = raw
            for key in place[:-1]:
                inner = inner[key]  # type: ignore[index]
            inner[place[-1]] += 1e-6  # type: ignore[index]

        assert len(list(script.differences(changed(board, change), board))) == 1, place


def test_scores_are_stored_by_id_without_captions(tmp_path: Path) -> None:
    judgements = capbench.load("flickr8k-expert", data=sample_dir())
    items = list(dict.fromkeys(judgements.items))
    rows = [f'{item.image},"{item.candidate}",{len(item.candidate) / 7}' for item in items]
    (tmp_path / "scores.csv").write_text("\n".join(["image,caption,words", *rows]) + "\n", "utf-8")
    (tmp_path / "card.yaml").write_text(CARD, "utf-8")
    folder = tmp_path / "results"
    path = script.add(tmp_path / "card.yaml", [tmp_path / "scores.csv"], sample_dir(), folder)
    stored = dict(line.split(",") for line in unpack_gzip(path).decode().splitlines())
    expected = {item_id(item): f"{len(item.candidate) / 7:.6g}" for item in items}
    assert stored.items() >= expected.items()
    assert not any(item.candidate in unpack_gzip(path).decode() for item in items)
    entries, written = score_entries(read_cards((folder / "scores").glob("*.yaml"))), [tmp_path / "scores.csv"]
    results = [capbench.correlate("flickr8k-expert", scores=s, data=sample_dir()) for s in (entries, written)]
    assert results[0].value("words") == results[1].value("words")
    assert results[0].columns == {"words": "Number of words"}


def test_every_stored_published_number_is_printed_under_its_protocol(board: Leaderboard) -> None:
    known = {(column.protocol, column.group, n.printed, n.source) for _, column, n in published_numbers()}
    columns = {column.name: (column.protocol, column.group) for column in board.columns}
    shown = [(*columns[name], number) for row in board.rows for name, number in row.printed.items()]
    assert len(shown) > 100
    assert all((protocol, group, number.printed, number.source) in known for protocol, group, number in shown)
    for number in (number for row in board.rows for number in row.others.values()):
        assert any((number.printed, number.source) == place[2:] for place in known)


@pytest.mark.real_data
def test_committed_numbers_hold(real_data: Path, board: Leaderboard) -> None:
    again = capbench.leaderboard(["nebula", "foil"], metrics=["bleu-4", "rouge-l", "cider"], data=real_data)
    assert list(script.differences(board, again)) == []
    assert sum(len(row.ours) for row in again.rows) == 6


TWINS = CARD.replace("{image: none}", "{}\n  words-mean: {image: mean, twin_of: words}").replace(
    "kind: metric", "kind: network"
)


def test_the_difference_from_a_substitute_image_is_that_of_the_values(tmp_path: Path) -> None:
    judgements = capbench.load("flickr8k-expert", data=sample_dir())
    items = list(dict.fromkeys(judgements.items))
    generator = np.random.default_rng(5)
    noise = {item_id(item): generator.normal(scale=2) for item in items}
    scores = {
        item_id(item): (len(item.candidate) / 7, len(item.candidate) / 7 + noise[item_id(item)]) for item in items
    }
    rows = [f"{name},{own!r},{float(twin)!r}" for name, (own, twin) in scores.items()]
    (tmp_path / "scores.csv").write_text("\n".join(["id,words,words-mean", *rows]) + "\n", "utf-8")
    (tmp_path / "card.yaml").write_text(TWINS, "utf-8")
    script.add(tmp_path / "card.yaml", [tmp_path / "scores.csv"], sample_dir(), tmp_path / "results")
    cards = read_cards((tmp_path / "results" / "scores").glob("*.yaml"))
    inputs = MetricInputs(scores=score_entries(cards, twins=True), data=sample_dir())
    plan = plan_agreement(study_of(None, (), [EXPERT], inputs, PYTHON), inputs, PYTHON, script._PAIRED)
    columns = run_plan(plan, no_progress)
    plain = capbench.leaderboard(
        "flickr8k-expert", metrics=["bleu-1"], scores=[tmp_path / "scores.csv"], data=sample_dir(), bootstrap=100
    )
    made = script.with_images(plain, cards.values(), columns).row("words").image
    assert {name: list(kinds) for name, kinds in made.items()} == {"flickr8k-expert": ["mean"]}
    found = made["flickr8k-expert"]["mean"]
    ratings = next(iter(judgements.ratings.values()))
    pairs = np.array([scores[item_id(judgements.items[place])] for place in ratings.item])

    def difference(chosen: np.ndarray) -> float:
        own, twin = (kendalltau(pairs[chosen, one], ratings.value[chosen], variant="c").statistic for one in (0, 1))
        return float(own - twin)

    assert found.value == pytest.approx(difference(np.arange(len(pairs))), abs=1e-4)
    images = np.array([judgements.items[place].image for place in ratings.item])
    of_image = [np.flatnonzero(images == image) for image in dict.fromkeys(images)]
    drawn = [
        difference(np.concatenate([of_image[one] for one in generator.integers(0, len(of_image), len(of_image))]))
        for _ in range(300)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.25 * (high - low))


def test_a_wrong_digit_in_a_committed_score_file_fails_without_data(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(script.FOLDER, tmp_path / "leaderboard"))
    path = folder / "scores" / "leic-flickr8k.csv.gz"
    text = unpack_gzip(path).decode()
    row = next(line for line in text.splitlines() if line[-1].isdigit())  # those of CrowdFlower end with empty cells
    path.write_bytes(gzip.compress(text.replace(row, row[:-1] + str((int(row[-1]) + 1) % 10), 1).encode(), mtime=0))
    (problem,) = script.check(None, folder)
    assert "leic-flickr8k.csv.gz" in problem
