"""Detected boxes without features, in an ``.npz`` file.

``image_names`` or ``image_ids``
    (N,) texts.
``boxes_normalised_xyxy``
    (N, n, 4) fractions of width and height.
``num_boxes``
    (N,) number of valid boxes of each image, the first of its n; optional.
``class_ids``, ``class_scores``
    (N, n) of each box; optional.
``class_names``
    (C,) names by class id; optional.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from capbench.core.errors import DataError, FeatureError
from capbench.core.records import image_id
from capbench.features.importers.arrays import array_names, load_arrays
from capbench.features.records import RegionFeatures, check_names, flat_dtype

_BOXES = "boxes_normalised_xyxy"


def read_boxes(file: Path) -> tuple[dict[str, RegionFeatures], tuple[str, ...] | None]:
    """Boxes by image id, as fractions, with features of no meaning; names by class id, or None."""
    ids = "image_ids" in array_names(file)
    optional = ("num_boxes", "class_ids", "class_scores", "class_names")
    loaded = load_arrays(file, ("image_ids" if ids else "image_names", _BOXES), optional)
    arrays = {name: np.asarray(array) for name, array in loaded.items()}
    names = [str(name) for name in arrays["image_ids" if ids else "image_names"].reshape(-1)]
    most = arrays[_BOXES].shape[1:2]
    shapes = {_BOXES: ((len(names), *most, 4), "f"), "num_boxes": ((len(names),), "iu")}
    shapes |= {"class_ids": ((len(names), *most), "iu"), "class_scores": ((len(names), *most), "f")}
    for name, (shape, kinds) in shapes.items():
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind not in kinds):
            message = f"has shape {arrays[name].shape} of {arrays[name].dtype}, but requires {shape}"
            raise DataError(message, code="wrong-shape", value=name, path=f"{file}[{name}]")
    counts = arrays.get("num_boxes", np.full(len(names), most[0]))
    class_names = tuple(str(name) for name in arrays["class_names"].reshape(-1)) if "class_names" in arrays else None
    flat = [name for name in ("class_ids", "class_scores") if name in arrays]
    images: dict[str, RegionFeatures] = {}
    for i, (name, count) in enumerate(zip(names, counts.tolist(), strict=True)):
        image = name if ids else image_id(name)
        bad = partial(DataError, path=file, row=f"image '{image}'")
        if image in images:
            raise bad("occurs twice", code="duplicate", value=image, hint="Remove one of the two")
        if not 1 <= count <= most[0]:
            raise bad(f"has {count} boxes of {most[0]}", code="out-of-range", value=count, hint="Remove the image")
        boxes = arrays[_BOXES][i, :count].astype(np.float32)
        fields = {name: arrays[name][i, :count].astype(flat_dtype(name)) for name in flat}
        images[image] = RegionFeatures(image, 1, 1, boxes, np.zeros((count, 1), dtype=np.float32), **fields)
        try:
            images[image].check()
            check_names(images[image], class_names, None)
        except FeatureError as error:
            raise error.placed(DataError, file, f"image '{image}'") from error
        boxes.clip(0, 1, out=boxes)
    return images, class_names
