from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from capbench.core.errors import DataError
from capbench.core.records import Judgements
from capbench.datasets.opening import open_dataset
from capbench.text.spice import scene_graph
from tests.datasets.native_files import root, token_text, write
from tests.errors import raises

TOKEN = "flickr8k/Flickr8k.token.txt"


def load(folder: Path, name: str = "distractions", selection: str = "own-caption-out") -> Judgements:
    dataset = open_dataset(name, root(folder))
    (loaded,) = dataset.load(dataset.selections[selection])
    return loaded


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
    loaded = load(sample, selection="in-scene-graph")
    assert all(" sea" in item.candidate for item in loaded.items[::2])
    assert loaded.notes[-1].startswith(f"{55 - len(loaded.items) // 2} of 55 pairs ")
    assert 0 < len(loaded.items) < 110
