from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from capbench.api import parses
from capbench.api.caller import PYTHON, Caller
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.text import ptb
from capbench.text.spice import parser, scene_graph


@pytest.mark.parametrize("name", ["pascal-50s", "composite@8k"])
def test_a_data_set_has_the_captions_of_all_its_selections(name: str) -> None:
    root = find_root("sample")
    opened = open_dataset(name, root)
    items = [item for selection in opened.selections.values() for d in opened.load(selection) for item in d.items]
    texts = {text for item in items for text in (item.candidate, *item.references)}
    found = parses.named_captions([name], root, PYTHON)
    assert (found.captions, set(found.tokens), found.skipped) == (len(texts), {name}, {})
    assert set(found.tokens[name]) == set(ptb.tokenize(list(texts)))


def test_processes_that_parse_the_same_captions_share_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    captions = tmp_path / "captions.json"
    captions.write_text(json.dumps({f"{i}.jpg": [f"caption {i}"] for i in range(3000)}))
    root = find_root("sample")
    named = parses.named_captions([str(captions)], root, PYTHON)
    caller = Caller(note=lambda _line: None)
    asked: list[str] = []
    is_second = False

    def parse(batch: list[str]) -> list[str]:
        nonlocal is_second
        asked.extend(batch)
        if not is_second and len(asked) > 1000:
            is_second = True
            scene_graph.forget()  # the other process
            parses.make_parses(named, root, caller, contextlib.nullcontext)
        return ["[]"] * len(batch)

    monkeypatch.setattr(parser, "parse_tuples", parse)
    scene_graph.forget()
    made = parses.make_parses(named, root, caller, contextlib.nullcontext)
    assert (made.distinct, made.parsed, made.left_out) == (3000, 3000, 0)
    scene_graph.forget()
    assert set(asked) == set(named.tokens[str(captions)])
    assert len(asked) <= 3000 + scene_graph._RUN  # the captions that the first process was parsing


def test_captions_are_parsed_in_a_random_order_the_long_ones_last() -> None:
    long = [" ".join(["word"] * n) for n in (300, 101, 200)]
    short = [str(i) for i in range(1000)]
    orders = [parses._ordered([*long, *short]) for _ in range(2)]
    assert all(order[-3:] == [long[1], long[2], long[0]] for order in orders)
    assert [sorted(order[:-3]) for order in orders] == [sorted(short)] * 2
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    ("name", "permitted"),
    [
        ("coco-test", True),
        ("distractions@coco", True),
        ("composite@coco", False),
        ("flickr8k", False),
        ("my/captions.json", False),
    ],
)
def test_parses_may_be_published_only_where_the_captions_licence_permits_it(
    tmp_path: Path, name: str, permitted: bool
) -> None:
    assert parses._terms(name, find_root(tmp_path)).derived is permitted


@pytest.mark.real_data
def test_flickr8k_expert_has_the_known_number_of_captions(real_data: Path) -> None:
    found = parses.named_captions(["flickr8k-expert"], find_root(real_data), PYTHON)
    assert found.captions == 4993
    assert len(found.tokens["flickr8k-expert"]) == 4992  # two differ in punctuation only
