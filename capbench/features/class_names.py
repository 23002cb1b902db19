"""What class numbers of detectors stand for, where a store does not say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from capbench import files
from capbench.errors import DataError

__all__ = ["COCO_80", "KNOWN", "class_names"]

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

KNOWN: Final = {"coco-80": COCO_80}
"""Lists by name."""


def class_names(known_or_file: str) -> tuple[str, ...]:
    """The names of classes in the order of their numbers, from 0.

    Args:
        known_or_file: a name of :data:`KNOWN`, or a file with a name a line.

    Raises:
        MissingFileError: there is no such list or file.
        DataError: the file is empty, or a line of it is blank.
    """
    if known_or_file in KNOWN:
        return KNOWN[known_or_file]
    path = Path(known_or_file).expanduser()
    names = [line.strip() for line in files.read_lines(path)]
    while names and not names[-1]:
        names.pop()
    for row, name in enumerate(names, 1):
        if not name:
            raise DataError("names no class", path=path, row=row, hint="Write one name a line, in the order of numbers")
    return tuple(names)
