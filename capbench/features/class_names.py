"""Class names that a store does not contain, and an image's regions under the names that explanations show."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError
from capbench.core.explanations import Regions
from capbench.features.store import FeatureStore

COCO_80: Final[tuple[str, ...]] = (
    *("person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light"),
    *("fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow"),
    *("elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee"),
    *("skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard"),
    *("tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple"),
    *("sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch"),
    *("potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard", "cell phone"),
    *("microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors", "teddy bear"),
    *("hair drier", "toothbrush"),
)
"""The 80 classes of COCO's detection annotations in their usual order (Lin et al. 2014)."""

KNOWN: Final = {"coco-80": COCO_80}  # lists of class names by name


def class_names(known_or_file: str) -> tuple[str, ...]:
    """Class names by class id, from 0.

    ``known_or_file``: a name in :data:`KNOWN`, or a file with one name per line.
    """
    if known_or_file in KNOWN:
        return KNOWN[known_or_file]
    path = Path(known_or_file).expanduser()
    names = [line.strip() for line in files.read_lines(path)]
    while names and not names[-1]:
        names.pop()
    for row, name in enumerate(names, 1):
        if not name:
            message, hint = (
                "is empty; a class name is required",
                "Write one name per line, in the order of the class ids",
            )
            raise DataError(message, code="missing-value", path=path, row=row, hint=hint)
    return tuple(names)


def regions_of(store: FeatureStore, image: str) -> Regions:
    """An image's regions, each named by its number, counted from 0, and its class if it has one."""
    features, class_names = store[image], store.header.class_names or ()
    names = [str(i) for i in range(len(features))]
    if features.class_ids is not None:
        classes = [class_names[c] if c < len(class_names) else f"class {c}" for c in features.class_ids.tolist()]
        names = [f"{number} {name}" for number, name in zip(names, classes, strict=True)]
    boxes = None if features.boxes is None else features.boxes.astype(np.float64)
    return Regions(tuple(names), boxes, (features.width, features.height))
