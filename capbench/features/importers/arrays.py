"""NumPy files of one array or one image: MILVLG (one ``.npz`` an image) and SCAN (one array and a list of ids)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import DataError
from capbench.features.importers.npy import Npz, open_npy
from capbench.features.importers.values import (
    ImportedImage,
    demand,
    flat_field,
    float_matrix,
    single_number,
    too_large,
    whole_number,
)
from capbench.features.records import RegionFeatures
from capbench.records import image_id

__all__ = ["read_milvlg", "read_scan"]

_INFO = {
    "class_ids": "objects_id",
    "class_scores": "objects_conf",
    "attribute_ids": "attrs_id",
    "attribute_scores": "attrs_conf",
}
_MILVLG = ("x", "bbox", "image_h", "image_w", "num_bbox", "info")


def read_milvlg(path: Path) -> Iterator[ImportedImage]:
    """One image, named as its file: ``x``, ``bbox``, ``num_bbox``, ``image_h``, ``image_w`` and perhaps ``info``.

    Raises:
        DataError: an array is missing or does not fit the number of boxes.
    """
    with Npz(path) as archive:
        demand(archive.names, _MILVLG[:4], path)
        names = [name for name in _MILVLG if name in archive]
        too_large(sum(map(archive.unpacked_bytes, names)), path)
        arrays = {name: archive.read(name) for name in names}
    try:
        regions = _milvlg_regions(arrays, path)
    except (ValueError, TypeError) as error:
        raise DataError(str(error), path=path, hint="Get the file again") from None
    yield ImportedImage(regions, path)


def _milvlg_regions(arrays: Mapping[str, Any], path: Path) -> RegionFeatures:
    bbox = np.asarray(arrays["bbox"])
    stated = arrays.get("num_bbox", len(bbox) if bbox.ndim else None)
    n = whole_number(single_number(stated), "num_bbox")
    x: NDArray[Any] = np.asarray(arrays["x"])
    if x.ndim == 2 and x.shape[0] != n and x.shape[1] == n:  # older files have a column a box
        x = x.T
    width, height = (whole_number(single_number(arrays[name]), name) for name in ("image_w", "image_h"))
    info = arrays.get("info")
    flat = {}
    if isinstance(info, Mapping):
        flat = {name: flat_field(info[key], n, name) for name, key in _INFO.items() if key in info}
    boxes, features = float_matrix(bbox, n, 4, "bbox"), float_matrix(x, n, None, "x")
    return RegionFeatures(image_id(path.name.removesuffix(".npz")), width, height, boxes, features, **flat)


def read_scan(path: Path, ids: Path) -> Iterator[ImportedImage]:
    """SCAN's array (N, R, d) float32 with a file of N ids, one a line. There are neither boxes nor image sizes.

    Raises:
        DataError: the array is of another shape or type, or the number of ids differs.
    """
    names = [line.strip() for line in files.read_lines(ids)]
    with open_npy(path) as array:
        if len(array.shape) != 3 or array.dtype.kind != "f":
            raise DataError(
                f"has shape {array.shape} of {array.dtype}, not (images, regions, columns) of float32", path=path
            )
        images, regions, columns = array.shape
        if len(names) != images:
            raise DataError(
                f"holds {len(names):,} ids for {images:,} images", path=ids, hint="Give one id for each image, in order"
            )
        for i, name in enumerate(names):
            if not name:
                raise DataError("is empty", path=ids, row=i + 1, hint="Give one id for each image, in order")
            features = array.take(regions * columns).reshape(regions, columns).astype(np.float32)
            yield ImportedImage(RegionFeatures(image_id(name), 0, 0, None, features), path, f"image {i}")
