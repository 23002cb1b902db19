"""The training record of a trained file: in the facts of its training, or in a file next to it.

Networks and covariances store it among their facts. A file of word vectors has no place for it, so that
``vectors.bin.training.json`` contains it with the SHA-256 of the vectors; it is optional.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core import files
from capbench.core.errors import ModelError
from capbench.core.training_record import Digests, TrainingRecord
from capbench.weights.arrays import head_of, read_metadata

KEY = "trained_on"  # key of the record in the facts of a training

_KIND = "capbench.training/1"
_OLD_SIZE = 5


def record_path(path: str | os.PathLike[str]) -> Path:
    """Path of the record next to a file: ``vectors.bin.training.json``."""
    file = Path(path)
    return file.with_name(f"{file.name}.training.json")


def write_training_record(path: str | os.PathLike[str], record: TrainingRecord) -> None:
    """Write the record of a file next to it, atomically. Raises UsageError if it cannot be written."""
    content = {"kind": _KIND, "sha256": files.sha256_file(path), KEY: record.to_json()}
    files.write_text(record_path(path), json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def read_training_record(path: str | os.PathLike[str]) -> TrainingRecord:
    """The record of a network, a covariance or a file of word vectors; an empty one if the file has none."""
    file = Path(path)
    if file.is_dir():  # weights of others
        return TrainingRecord(file.name)
    files.check_readable(file)
    stored = record_path(file)
    states = [each.stat() for each in (file, stored) if each.is_file()]
    return _read(file, tuple((state.st_mtime_ns, state.st_size) for state in states))


@lru_cache(maxsize=64)
def _read(file: Path, state: tuple[tuple[int, int], ...]) -> TrainingRecord:
    stored = record_path(file)
    if stored.is_file():
        content = files.read_json(stored)
        known = isinstance(content, dict) and content.get("kind") == _KIND
        if not known or content.get("sha256") != files.sha256_file(file):
            problem = f"is not a training record ('{_KIND}')"
            problem = f"is the record of another file than {file.name}" if known else problem
            code, hint = "mismatch" if known else "wrong-format", "Remove it, or train the vectors again"
            raise ModelError(problem, code=code, path=stored, hint=hint)
        return _parsed(file, content.get(KEY), stored)
    metadata = read_metadata(file)
    if metadata is not None:
        return record_in_facts(_object(metadata.get("training", "{}")), file)
    if file.suffix == ".npz" and head_of(file).startswith(b"PK\x03\x04"):
        with np.load(file, allow_pickle=False) as arrays:
            if "facts" in arrays:
                return record_in_facts(_object(arrays["facts"].tobytes()), file)
    return TrainingRecord(file.name)


def _object(text: str | bytes) -> Mapping[str, Any]:
    """A JSON object; an empty one for anything else, which the reader of the weights reports."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def record_in_facts(facts: Mapping[str, Any], file: Path) -> TrainingRecord:
    """The record among the facts of a training; those of version 0.2 have digests of images (NNEval, LEIC), or none."""
    if KEY in facts:
        return _parsed(file, facts[KEY], file)
    images = facts.get("images")
    old = images if isinstance(images, dict) else {}
    try:
        trained, chosen = (
            Digests.of_hex(old[role], _OLD_SIZE) if isinstance(old.get(role), list) else None
            for role in ("trained", "chosen")
        )
    except (TypeError, ValueError):
        return TrainingRecord(file.name)
    by = f"judgements ({facts['chosen_by']})" if facts.get("chosen_by") else ""
    return TrainingRecord(file.name, trained, selected=chosen or None, selected_by=by)


def _parsed(file: Path, raw: Any, place: Path) -> TrainingRecord:
    try:
        return TrainingRecord.from_json(file.name, raw)
    except (AttributeError, TypeError, ValueError) as error:
        message = f"its record of the training data cannot be read ({error})"
        raise ModelError(message, code="damaged", path=place, hint="Get or train the file again") from error
