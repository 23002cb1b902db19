"""SPICE's parser as the user has set it up, for tests that need the real one; each test has a cache of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pytest

from capbench.core.cache import Cache
from capbench.text.spice import parser as spice
from capbench.text.spice import scene_graph
from capbench.text.spice.parser import SPICE_FILES, spice_folder

# As it was when the tests were collected: every test gets another.
_GIVEN = os.environ.get("CAPBENCH_CACHE") or platformdirs.user_cache_dir("capbench", appauthor=False)


@contextmanager
def installed_parser() -> Iterator[Path]:
    """Make the user's parser available in the test's own cache folder; skip the test if there is none."""
    installed = Path(_GIVEN).expanduser().resolve() / "spice-parser"
    if not all(file.is_at(installed) for file in SPICE_FILES):
        pytest.skip("SPICE's parser is not there: run 'capbench doctor --install spice'")
    folder = spice_folder()
    for file in SPICE_FILES:
        (folder / file.name).symlink_to(installed / file.name)
    scene_graph.forget()
    try:
        yield folder
    finally:
        scene_graph.forget()


@contextmanager
def parsed(captions: Mapping[str, Sequence[Sequence[str]]]) -> Iterator[None]:
    """Fill the test's own cache with tokenised captions and their tuples, as if they had been parsed before."""
    scene_graph.forget()
    with Cache("scene-graphs") as store:
        entries = ((scene_graph.key(caption), json.dumps(tuples).encode()) for caption, tuples in captions.items())
        store.put(spice.SPICE_PARSER_VERSION, entries)
    try:
        yield
    finally:
        scene_graph.forget()
