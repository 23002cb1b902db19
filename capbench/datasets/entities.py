"""COCO Entities (Cornia, Baraldi and Cucchiara, "Show, Control and Tell", CVPR 2019): alignment of words and regions.

The file ``coco_entities_release.json`` is an object of images, each an object of captions. The fields of a caption are
``det_sequences`` (for each word of the caption, split at spaces, the class of a detection; null for a word outside of
noun chunks, ``"_"`` for a chunk without a detection), ``noun_chunks``, ``detections`` (by class, a list of the
detection's number and its box ``[x1, y1, x2, y2]`` in pixels) and ``split``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core import files
from capbench.core.records import FloatArray
from capbench.datasets import judgement_files

__all__ = ["EntityCaption", "read_entities"]

_NO_DETECTION = "_"


@dataclass(frozen=True, eq=False)
class EntityCaption:
    """A caption with the detections of its words.

    Attributes:
        text: the caption.
        classes: for each word, split at spaces, the class of its detection; None for no detection.
        boxes: class → boxes (n, 4) x1, y1, x2, y2 in pixels.
        split: ``train``, ``val`` or ``test``.
    """

    text: str
    classes: tuple[str | None, ...]
    boxes: Mapping[str, FloatArray]
    split: str


def read_entities(path: Path) -> dict[str, tuple[EntityCaption, ...]]:
    """Read the captions of each image; ids are those of the file.

    Raises:
        MissingFileError: the file does not exist.
        DataError: the file is not an object of images with captions, a list does not have one entry per word, a class
            has no detections, or a box is invalid.
    """
    data = files.read_json(path)
    if not isinstance(data, dict) or not data:
        raise judgement_files.file_error("is not a JSON object of images", "wrong-format", path)
    entities = {}
    for image, captions in data.items():
        if not isinstance(captions, dict):
            raise judgement_files.file_error("is not an object of captions", "wrong-type", path, f"image {image}")
        entities[image] = tuple(_caption(text, entry, path, image) for text, entry in captions.items())
    return entities


def _caption(text: str, entry: Any, path: Path, image: str) -> EntityCaption:
    row = f"image {image}, '{text[:40]}'"
    text = judgement_files.parse_caption(text, "caption", path=path, row=row)
    sequence = entry.get("det_sequences") if isinstance(entry, dict) else None
    detections = entry.get("detections") if isinstance(entry, dict) else None
    if not isinstance(sequence, list) or not isinstance(detections, dict):
        problem = "has no list 'det_sequences' or no object 'detections'"
        raise judgement_files.file_error(problem, "missing-key", path, row)
    if len(sequence) != len(text.split(" ")):
        problem = f"'det_sequences' has {len(sequence)} entries for {len(text.split(' '))} words"
        raise judgement_files.file_error(problem, "mismatch", path, row, value=len(sequence))
    if not all(name is None or isinstance(name, str) for name in sequence):
        problem = "'det_sequences' contains values other than names and null"
        raise judgement_files.file_error(problem, "wrong-type", path, row)
    boxes = {name: _boxes(listed, path, row) for name, listed in detections.items()}
    classes = tuple(None if name in (None, _NO_DETECTION) else name for name in sequence)
    unknown = next((name for name in classes if name is not None and name not in boxes), None)
    if unknown is not None:
        raise judgement_files.file_error(
            f"has no detection of the class '{unknown}'", "unknown-name", path, row, value=unknown
        )
    return EntityCaption(text, classes, boxes, str(entry.get("split") or ""))


def _boxes(listed: Any, path: Path, row: str) -> FloatArray:
    try:
        boxes = np.array([box for _, box in listed], dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise judgement_files.file_error(
            "a detection is not a pair of number and box", "wrong-type", path, row
        ) from error
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not np.isfinite(boxes).all():
        raise judgement_files.file_error("a box is not four numbers", "not-a-number", path, row)
    return boxes
