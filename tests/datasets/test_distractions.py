from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.core.records import Judgements
from capbench.datasets.opening import open_dataset
from capbench.text.spice import scene_graph
from tests.datasets.native_files import root, token_text, write
from tests.errors import raises

PAIRS = "distractions/pairs.jsonl"
TOKEN = "flickr8k/Flickr8k.token.txt"


def load(folder: Path, name: str = "distractions", selection: str = "own-caption-out") -> Judgements:
    dataset = open_dataset(name, root(folder))
    (judged,) = dataset.load(dataset.selections[selection])
    return judged


def test_other_captions_than_those_of_the_pairs_are_refused(sample: Path, tmp_path: Path) -> None:
    (tmp_path / "flickr8k").mkdir()
    text = (sample / TOKEN).read_text(encoding="utf-8")
    for changed in (text.replace("the sea", "a sea"), token_text({"two.jpg": ["Rouge et noir .", "Un chat"]})):
        write(tmp_path / TOKEN, changed)
        with raises(DataError, "wrong-version", path=tmp_path / TOKEN):
            load(tmp_path)


def test_scene_graphs_that_are_not_there_are_asked_for(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "flickr8k").mkdir()
    shutil.copy(sample / TOKEN, tmp_path / TOKEN)
    monkeypatch.setattr(scene_graph, "missing", lambda tokens, **_: tokens[:5])
    with raises(DataError, "missing-data", path=tmp_path / TOKEN, value=5) as caught:
        load(tmp_path, selection="in-scene-graph")
    assert "capbench data parses make distractions" in str(caught.value)


def test_only_pairs_whose_noun_is_an_object_of_the_scene_graph_stay(
    sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene_graph, "missing", lambda tokens, **_: [])
    monkeypatch.setattr(
        scene_graph, "tuples", lambda tokens, **_: iter([(("sea",), ("sea", "boat", "in")) for _ in tokens])
    )
    judged = load(sample, selection="in-scene-graph")
    assert all(" sea" in item.candidate for item in judged.items[::2])
    assert judged.notes[-1].startswith(f"{55 - len(judged.items) // 2} of 55 pairs ")
    assert 0 < len(judged.items) < 110


# Pairs of the user

GIVEN: list[dict[str, Any]] = [
    {"task": "replace-person", "image": "1.jpg", "correct": "A man runs .", "distractor": "A girl runs ."},
    {"task": "just-scene", "image": "1.jpg", "correct": "A man at sea .", "distractor": "the sea", "references": ["b"]},
]


def write_given(folder: Path, pairs: list[dict[str, Any]]) -> None:
    write(folder / PAIRS, "".join(json.dumps(pair) + "\n" for pair in pairs))


def write_flickr30k(folder: Path) -> None:
    texts = ["a man runs", "A runner .", "Somebody in a race"]
    write(folder / "flickr30k/results_20130124.token", token_text({"1.jpg": texts}))


def test_given_pairs_take_their_references_or_those_of_flickr30k(tmp_path: Path) -> None:
    write_given(tmp_path, GIVEN)
    write_flickr30k(tmp_path)
    judged = load(tmp_path, "distractions@given")
    assert [item.candidate for item in judged.items] == ["A man runs .", "A girl runs .", "A man at sea .", "the sea"]
    assert [item.references for item in judged.items[::2]] == [("A runner .", "Somebody in a race"), ("b",)]
    assert judged.preferences["right"].group == ("replace-person", "just-scene")
    assert judged.notes == ("1 replace-person, 1 just-scene pairs of 1 images",)
