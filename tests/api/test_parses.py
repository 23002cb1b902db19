from __future__ import annotations

from pathlib import Path

import pytest

from capbench.api import parses
from capbench.api.caller import PYTHON
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.text import ptb


@pytest.mark.parametrize("name", ["pascal-50s", "composite@8k"])
def test_a_data_set_has_the_captions_of_all_its_selections(name: str) -> None:
    root = find_root("sample")
    opened = open_dataset(name, root)
    items = [item for selection in opened.selections.values() for d in opened.load(selection) for item in d.items]
    texts = {text for item in items for text in (item.candidate, *item.references)}
    found = parses.named_captions([name], root, PYTHON)
    assert (found.captions, set(found.tokens), found.skipped) == (len(texts), {name}, {})
    assert set(found.tokens[name]) == set(ptb.tokenize(list(texts)))


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
