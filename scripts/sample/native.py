"""Writes the published formats: text lines, MATLAB files, gzip, JSON. Nothing in them depends on the day or machine."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.sample.scenes import SIDE, Scene

__all__ = ["consensus_mat", "gzipped", "json_bytes", "lines", "pairs_mat", "references_mat", "scenes_json", "table"]

_MAT_HEADER = b"MATLAB 5.0 MAT-file, synthetic sample of capbench"


def lines(rows: Iterable[str]) -> bytes:
    """Text, one row a line."""
    return "".join(f"{row}\n" for row in rows).encode()


def table(rows: Iterable[Sequence[object]], separator: str = "\t") -> bytes:
    """Rows of columns. Raises ValueError if a value holds the separator or a line end."""
    result = []
    for row in rows:
        values = [str(value) for value in row]
        if any(separator in value or "\n" in value for value in values):
            raise ValueError(f"a value of {values} holds the separator")
        result.append(separator.join(values))
    return lines(result)


def json_bytes(value: Any, indent: int | None = 1) -> bytes:
    """JSON with a final newline."""
    return (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode()


def gzipped(data: bytes) -> bytes:
    """gzip without name and time."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as stream:
        stream.write(data)
    return buffer.getvalue()


def scenes_json(entries: Iterable[tuple[Scene, str, str, str]]) -> bytes:
    """The content of every picture: (scene, data set, file, split) to JSON, one picture a line."""
    rows = []
    for scene, dataset, file, split in entries:
        objects = [
            {"class": thing.kind, "colour": thing.colour, "size": thing.size, "box": list(thing.box)}
            for thing in scene.things
        ]
        rows.append(
            json.dumps(
                {
                    "id": scene.name,
                    "dataset": dataset,
                    "file": file,
                    "split": split,
                    "width": SIDE,
                    "height": SIDE,
                    "background": scene.plan.background,
                    "objects": objects,
                }
            )
        )
    return ('{"images": [\n' + ",\n".join(rows) + "\n]}\n").encode()


def _mat(variables: Mapping[str, NDArray[Any]]) -> bytes:
    import scipy.io

    buffer = io.BytesIO()
    scipy.io.savemat(buffer, dict(variables), do_compression=True)  # type: ignore[arg-type]  # files are taken too
    data = buffer.getvalue()
    # savemat writes platform and date into the 116 bytes of text that every file begins with.
    return _MAT_HEADER.ljust(116) + data[116:]


def _cells(texts: Sequence[str]) -> NDArray[np.object_]:
    """A 1 x n cell array of strings."""
    cells = np.empty((1, len(texts)), dtype=object)
    for at, text in enumerate(texts):
        cells[0, at] = text
    return cells


def _records(fields: Sequence[str], rows: Sequence[Sequence[Any]]) -> NDArray[np.void]:
    """A 1 x n struct array."""
    records = np.empty((1, len(rows)), dtype=[(name, object) for name in fields])
    for at, row in enumerate(rows):
        for name, value in zip(fields, row, strict=True):
            records[name][0, at] = value
    return records


def references_mat(variable: str, rows: Sequence[tuple[str, Sequence[str]]]) -> bytes:
    """``pascal50S.mat`` (``refs``) and ``pascal_cands.mat`` (``cands``): records of image and sentences."""
    return _mat({variable: _records(("image", "sent"), [(image, _cells(texts)) for image, texts in rows])})


def pairs_mat(
    pairs: Sequence[tuple[str, str, str]],
    systems: Sequence[tuple[int, int]],
    categories: Sequence[int],
    votes: Sequence[Sequence[int]],
) -> bytes:
    """``pair_pascal.mat``: pairs of captions, which system wrote them, their category, the votes (+1 or -1)."""
    results = [(np.array([v], dtype=np.uint8 if min(v) > 0 else np.int16),) for v in votes]
    return _mat(
        {
            "new_input": _records(("name", "sent1", "sent2"), pairs),
            "new_data": np.array(systems, dtype=np.uint8),
            "category": np.array([categories], dtype=np.uint8),
            "result": _records(("result",), results),
        }
    )


def consensus_mat(triplets: Sequence[tuple[str, str, str, int]]) -> bytes:
    """``consensus_pascal.mat``: (reference, B, C, winner), sentences in cells, winner 1 for B and -1 for C."""
    rows = [
        (_cells([a]), _cells([b]), _cells([c]), np.array([[winner]], dtype=np.int16)) for a, b, c, winner in triplets
    ]
    return _mat({"triplets": _records(("A", "B", "C", "winner"), rows)})
