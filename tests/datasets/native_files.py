"""Writes small data folders in the native formats, with invented captions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capbench.datasets.root import DataRoot


def root(path: Path) -> DataRoot:
    return DataRoot(path, False, "test")


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def write_json(path: Path, value: Any) -> Path:
    return write(path, json.dumps(value))


def write_gz(path: Path, text: str) -> Path:
    return write(path, gzip.compress(text.encode()))


def token_text(captions: Mapping[str, Sequence[str]]) -> str:
    return "".join(f"{name}#{n}\t{text}\n" for name, texts in captions.items() for n, text in enumerate(texts))


def five(what: str) -> list[str]:
    """Five different captions of one invented scene."""
    return [f"{what} {place} ." for place in ("by the gate", "near a wall", "at noon", "in the rain", "on a hill")]


def struct_array(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A MATLAB structure array (1, n)."""
    array = np.empty((1, len(rows)), dtype=[(name, object) for name in rows[0]])
    for i, row in enumerate(rows):
        for name, value in row.items():
            array[0, i][name] = value
    return array


def cell(texts: Sequence[str], column: bool = False) -> Any:
    """A MATLAB cell array of strings."""
    array = np.empty((len(texts), 1) if column else (1, len(texts)), dtype=object)
    array.ravel()[:] = list(texts)
    return array


def save_mat(path: Path, **variables: Any) -> Path:
    import scipy.io

    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, variables)
    return path
