"""Digests of all items and judgements of every data set: a reader that returns anything else is a new version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import CapbenchError
from capbench.core.records import Judgements
from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, find_root

STORED = json.loads((Path(__file__).parent / "items.json").read_text(encoding="utf-8"))


def plain(value: Any) -> str:
    """Everything in a record, in a fixed order; arrays by type and bytes."""
    if isinstance(value, np.ndarray):
        return plain((f"{value.dtype}{value.shape}", hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()))
    if isinstance(value, tuple):
        return "".join(map(plain, value))
    if isinstance(value, Mapping):
        return "".join(plain((name, _named(value, name))) for name in sorted({*value, *getattr(value, "later", ())}))
    if hasattr(value, "__dataclass_fields__"):
        return "".join(plain(getattr(value, name)) for name in value.__dataclass_fields__)
    return f"{value!r}\x1e"


def _named(values: Mapping[str, Any], name: str) -> Any:
    try:
        return values[name]
    except CapbenchError as error:
        return error.code


def digest(draws: tuple[Judgements, ...]) -> str:
    return hashlib.sha256(plain(draws).encode()).hexdigest()[:16]


def digests(root: DataRoot, *, parts: bool) -> dict[str, str]:
    """Digest by data set and selection, or the code of the error; ``parts``: also of versions and groups."""
    found = {}
    for name in dataset_names():
        known = load_dataset(name)
        others = [
            *(f":{version}" for version in known.versions),
            *(f"@{g}" for g in (*(known.groups or ()), *known.beside)),
        ]
        for full in (name, *(f"{name}{other}" for other in others if parts)):
            dataset = open_dataset(full, root)
            for selection in dataset.selections.values():
                try:
                    found[f"{full}/{selection.name}"] = digest(dataset.load(selection))
                except CapbenchError as error:
                    found[f"{full}/{selection.name}"] = error.code
    return found


def test_the_items_of_the_sample_are_unchanged(sample: Path) -> None:
    assert digests(DataRoot(sample, True, "test"), parts=True) == STORED["sample"]


@pytest.mark.real_data
def test_the_published_items_are_unchanged(real_data: Path) -> None:
    found = digests(find_root(real_data), parts=False)
    assert {name: value for name, value in found.items() if not value.startswith("missing")} == STORED["published"]
