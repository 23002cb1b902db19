from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.features.records import RegionFeatures


def b64(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def butd_row(regions: RegionFeatures) -> str:
    cells = (regions.image, regions.width, regions.height, len(regions), b64(regions.boxes), b64(regions.features))
    return "\t".join(map(str, cells))


def lines(path: Path, rows: list[str]) -> Path:
    path.write_bytes("".join(f"{row}\r\n" for row in rows).encode())
    return path


def vilbert(regions: RegionFeatures, **changes: Any) -> dict[str, Any]:
    return {
        "image_id": regions.image,
        "bbox": regions.boxes,
        "features": regions.features,
        "num_boxes": len(regions),
        "image_width": regions.width,
        "image_height": regions.height,
    } | changes


def make_lmdb(path: Path, records: dict[bytes, bytes], *, subdir: bool = True) -> Path:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), subdir=subdir, map_size=1 << 24) as base, base.begin(write=True) as transaction:
        for key, value in records.items():
            transaction.put(key, value)
    return path
