"""Training records in files and next to them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from capbench.core.errors import ModelError
from capbench.core.records import Item
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of, training_overlap
from capbench.weights.training_files import KEY, read_training_record, record_path, write_training_record
from tests.errors import raises

ITEMS = [Item("a", "a dog", ()), Item("b", "a cat", ())]


def test_a_record_next_to_a_file_belongs_to_its_content(tmp_path: Path) -> None:
    path = tmp_path / "v.bin"
    path.write_bytes(b"1 2\ndog 12345678")
    write_training_record(path, TrainingRecord("v.bin", photographs_of(["a"]), captions_of(["a dog"])))
    overlap = training_overlap("wmd", [read_training_record(path)], ITEMS)
    assert (overlap.trained, overlap.read_candidates, overlap.unrecorded) == (1, 1, ())
    path.write_bytes(b"1 2\ncat 12345678")
    with raises(ModelError, "mismatch", path=record_path(path)):
        read_training_record(path)
    record_path(path).unlink()
    assert read_training_record(path).missing == ("v.bin",)


def test_a_networks_record_is_in_its_facts_and_older_files_have_marks_or_none(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from capbench.weights.files import write_safetensors

    mark = hashlib.blake2b(b"a", digest_size=5).hexdigest()
    new = TrainingRecord("", photographs_of(["a"]), captions_of(["a dog"]), photographs_of(["b"]), "its dev split")
    found = {}
    for name, facts in {
        "new": {KEY: new.to_json()},
        "marks": {"images": {"trained": [mark], "chosen": []}, "chosen_by": None},
        "old": {"features": "ab"},
        "no facts": None,
    }.items():
        path = tmp_path / f"{name}.safetensors"
        metadata = {} if facts is None else {"training": json.dumps(facts)}
        write_safetensors(path, {"w": torch.zeros(2)}, metadata)
        overlap = training_overlap("m", [read_training_record(path)], ITEMS)
        found[name] = (overlap.trained, overlap.selected, overlap.read_candidates, bool(overlap.unrecorded))
    assert found == {
        "new": (1, 1, 1, False),
        "marks": (1, 0, None, False),
        "old": (0, 0, None, True),
        "no facts": (0, 0, None, True),
    }
