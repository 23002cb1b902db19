"""COCO's names of an image: ``COCO_val2014_000000000042`` (2014), ``000000000042`` (2017) and the number 42 are one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from capbench.core.errors import DataError
from capbench.core.records import image_id

_NAME = re.compile(r"(?:COCO_(?:train|val|test)20\d\d_)?(\d{12})|(0|[1-9]\d{0,11})", re.ASCII)


def coco_number(image: str) -> int | None:
    """The number in a COCO name of an image; None for other names.

    >>> coco_number("COCO_val2014_000000000042"), coco_number("000000000042"), coco_number("42"), coco_number("0042")
    (42, 42, 42, None)
    """
    match = _NAME.fullmatch(image)
    return int(match[1] or match[2]) if match else None


class CocoNames:
    """Finds images by other COCO names than their own."""

    def __init__(self, images: Iterable[str]) -> None:
        self._images: dict[int, list[str]] = {}
        for image in images:
            if (number := coco_number(image)) is not None:
                self._images.setdefault(number, []).append(image)

    def find(self, name: str, path: str | os.PathLike[str] | None = None, row: int | str | None = None) -> str | None:
        """The image with the number of a name or file name, or None; ``path`` and ``row`` are the place of the name."""
        number = coco_number(image_id(name))
        found = self._images.get(number, []) if number is not None else []
        if len(found) > 1:
            message, hint = f"'{name}' may be {found[0]} or {found[1]}", "Write the image's file name"
            raise DataError(message, code="ambiguous", value=name, path=path, row=row, hint=hint)
        return found[0] if found else None
