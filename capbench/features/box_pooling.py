"""Boxes over a grid: the features of cells become those of detected boxes, the mean of what lies under each.

A small detector finds boxes and has no features worth the name; a classification network has features and no boxes. Put
on each other, a box's features are the mean of the grid's cells, each weighed by the area that the box covers of it.
Boxes come from an ``.npz`` file with these arrays:

``image_names`` or ``image_ids``
    (N,) texts.
``boxes_normalised_xyxy``
    (N, n, 4) fractions of width and height.
``num_boxes``
    (N,) how many of an image's n boxes count, the first ones; may be left out.
``class_ids``, ``class_scores``
    (N, n) of each box; may be left out.
``class_names``
    (C,) what class ids stand for; may be left out.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.errors import DataError, FeatureError
from capbench.features.importers.npy import Npz
from capbench.features.importers.values import demand
from capbench.features.records import RegionFeatures
from capbench.files import sha256_file
from capbench.records import image_id

__all__ = ["BoxFile", "BoxPooling", "ImageBoxes", "read_boxes"]

_BOXES = "boxes_normalised_xyxy"


@dataclass(frozen=True, eq=False)
class ImageBoxes:
    """The boxes of one image, as the file has them.

    Attributes:
        boxes: (n, 4) float32, x1, y1, x2, y2 as fractions.
        class_ids: (n,) int32, or None.
        class_scores: (n,) float32, or None.
    """

    boxes: NDArray[np.float32]
    class_ids: NDArray[np.int32] | None
    class_scores: NDArray[np.float32] | None


@dataclass(frozen=True, eq=False)
class BoxFile:
    """Boxes of many images.

    Attributes:
        path: the file.
        sha256: of it, 64 hex digits.
        images: by image id.
        class_names: what class ids stand for, or None.
        classes: how many classes there are: the names, else the largest id and one.
    """

    path: Path
    sha256: str
    images: Mapping[str, ImageBoxes]
    class_names: tuple[str, ...] | None
    classes: int


def read_boxes(path: str | os.PathLike[str]) -> BoxFile:
    """Read and check a file of boxes.

    Raises:
        MissingFileError: there is no such file.
        DataError: an array is missing, or of a shape or type that does not fit the others; a box leaves its image or
            ends before it begins; an image stands twice or has no box. The image is named.
    """
    file = Path(path)
    with Npz(file) as archive:
        names_array = "image_ids" if "image_ids" in archive else "image_names"
        demand(archive.names, (names_array, _BOXES), file)
        names = [str(name) for name in np.asarray(archive.read(names_array)).reshape(-1)]
        arrays = {name: np.asarray(archive.read(name)) for name in _arrays(archive)}
    boxes = arrays[_BOXES]
    if boxes.ndim != 3 or boxes.shape[0] != len(names) or boxes.shape[2] != 4 or boxes.dtype.kind != "f":
        raise DataError(
            f"has shape {boxes.shape} of {boxes.dtype} for {len(names):,} images, not (images, boxes, 4) of fractions",
            path=f"{file}[{_BOXES}]",
        )
    counts = arrays.get("num_boxes", np.full(len(names), boxes.shape[1]))
    shapes = {"num_boxes": (boxes.shape[:1], "iu"), "class_ids": (boxes.shape[:2], "iu")}
    shapes["class_scores"] = (boxes.shape[:2], "f")
    for name, (shape, kinds) in shapes.items():
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind not in kinds):
            raise DataError(
                f"has shape {arrays[name].shape} of {arrays[name].dtype}, which does not go with {boxes.shape}",
                path=f"{file}[{name}]",
            )
    images: dict[str, ImageBoxes] = {}
    for i, name in enumerate(names):
        image = name if names_array == "image_ids" else image_id(name)
        count = int(counts[i])
        row = f"image '{image}'"
        if image in images:
            raise DataError("stands twice", path=file, row=row, hint="Keep one of the two")
        if not 1 <= count <= boxes.shape[1]:
            raise DataError(f"has {count} boxes of {boxes.shape[1]}", path=file, row=row, hint="Leave it out")
        images[image] = ImageBoxes(
            _checked(boxes[i, :count].astype(np.float32), file, row),
            arrays["class_ids"][i, :count].astype(np.int32) if "class_ids" in arrays else None,
            _scores(arrays["class_scores"][i, :count], file, row) if "class_scores" in arrays else None,
        )
    class_names = tuple(str(name) for name in arrays["class_names"].reshape(-1)) if "class_names" in arrays else None
    largest = max((int(one.class_ids.max()) for one in images.values() if one.class_ids is not None), default=-1)
    if class_names is not None and largest >= len(class_names):
        raise DataError(f"a box has class {largest}, and there are {len(class_names)} names", path=file)
    return BoxFile(file, sha256_file(file), images, class_names, len(class_names or ()) or largest + 1)


def _arrays(archive: Npz) -> list[str]:
    known = (_BOXES, "num_boxes", "class_ids", "class_scores", "class_names")
    return [name for name in known if name in archive]


def _checked(boxes: NDArray[np.float32], file: Path, row: str) -> NDArray[np.float32]:
    if not np.isfinite(boxes).all():
        raise DataError("has a box that is NaN or infinite", path=file, row=row)
    if (boxes < -1e-3).any() or (boxes > 1 + 1e-3).any():
        raise DataError("has a box that leaves the image", path=file, row=row, hint="Boxes are fractions from 0 to 1")
    if (boxes[:, :2] > boxes[:, 2:]).any():
        raise DataError("has a box that ends before it begins", path=file, row=row, hint="Boxes are x1, y1, x2, y2")
    return boxes.clip(0, 1)


def _scores(scores: NDArray[Any], file: Path, row: str) -> NDArray[np.float32]:
    if not (np.isfinite(scores) & (scores >= 0) & (scores <= 1)).all():
        raise DataError("has a class score that is not between 0 and 1", path=file, row=row)
    return scores.astype(np.float32)


@dataclass(frozen=True, eq=False)
class BoxPooling:
    """Means under boxes.

    Attributes:
        boxes: of all images.
        top: how many of an image's boxes are taken, the first ones; None: all.
        classes: put a column for each class behind the features, which holds the box's class score in the column of
            its class and 0 elsewhere; times ``scale``.
        scale: of these columns.
    """

    boxes: BoxFile
    top: int | None = None
    classes: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.classes and any(
            one.class_ids is None or one.class_scores is None for one in self.boxes.images.values()
        ):
            raise DataError(
                "holds no 'class_ids' and 'class_scores' for columns of classes",
                path=self.boxes.path,
                hint="Leave --class-columns out",
            )

    def __str__(self) -> str:
        top = "" if self.top is None else f" top {self.top}"
        columns = f" class columns {self.boxes.classes} x {self.scale:g}" if self.classes else ""
        return f"{self.boxes.path.name} {self.boxes.sha256[:12]}{top}{columns}"

    def of(self, image: str) -> ImageBoxes:
        """An image's boxes. Raises DataError if the file has none."""
        boxes = self.boxes.images.get(image)
        if boxes is None:
            raise DataError(
                f"has no boxes of image '{image}'", path=self.boxes.path, hint="Pool a store of these images only"
            )
        top = slice(self.top)
        return dataclasses.replace(
            boxes,
            boxes=boxes.boxes[top],
            class_ids=None if boxes.class_ids is None else boxes.class_ids[top],
            class_scores=None if boxes.class_scores is None else boxes.class_scores[top],
        )

    def pool(self, cells: RegionFeatures, shape: tuple[int, int]) -> RegionFeatures:
        """One image's boxes with their features, classes and scores.

        Args:
            cells: of a grid of that shape, row by row from the upper left, with or without boxes of the cells.
            shape: rows and columns of the grid.

        Raises:
            DataError: the file has no boxes of this image.
            FeatureError: the grid's cells have no size.
        """
        rows, columns = shape
        boxes = self.of(cells.image)
        grid = cells.features.reshape(rows, columns, -1).astype(np.float64)
        x, y = _edges(cells, shape)
        across = _cover(boxes.boxes[:, [0, 2]].astype(np.float64), x)
        down = _cover(boxes.boxes[:, [1, 3]].astype(np.float64), y)
        means = np.einsum("ni,nj,ijd->nd", down, across, grid, optimize=True)
        features = means.astype(cells.features.dtype)
        if self.classes:
            assert boxes.class_ids is not None
            assert boxes.class_scores is not None
            named = np.zeros((len(features), self.boxes.classes), dtype=features.dtype)
            named[np.arange(len(features)), boxes.class_ids] = boxes.class_scores * self.scale
            features = np.concatenate([features, named], axis=1)
        width, height = cells.width or 1, cells.height or 1
        pixels = boxes.boxes * np.array([width, height, width, height], dtype=np.float32)
        return RegionFeatures(cells.image, width, height, pixels, features, boxes.class_ids, boxes.class_scores)

    def without_classes(self, windows: RegionFeatures) -> RegionFeatures:
        """Windows with columns of classes, all 0: nobody detected them."""
        if not self.classes:
            return windows
        zeros = np.zeros((len(windows), self.boxes.classes), dtype=windows.features.dtype)
        return dataclasses.replace(windows, features=np.concatenate([windows.features, zeros], axis=1))


def _edges(cells: RegionFeatures, shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Left and right edge of each column of cells, top and bottom of each row: (columns, 2) and (rows, 2) fractions."""
    rows, columns = shape
    if cells.boxes is None:
        x, y = np.linspace(0, 1, columns + 1), np.linspace(0, 1, rows + 1)
        return np.stack([x[:-1], x[1:]], axis=1), np.stack([y[:-1], y[1:]], axis=1)
    corners = cells.boxes.reshape(rows, columns, 4).astype(np.float64)
    if not (corners[..., 2:] > corners[..., :2]).all():
        raise FeatureError(f"image '{cells.image}' has a cell without an area")
    return corners[0][:, [0, 2]] / (cells.width or 1), corners[:, 0][:, [1, 3]] / (cells.height or 1)


def _cover(sides: NDArray[np.float64], cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """What share of each side lies in each cell, (n, cells); a side without a length, or beside all cells, counts as
    the cell whose middle is nearest."""
    low = np.maximum(sides[:, None, 0], cells[None, :, 0])
    high = np.minimum(sides[:, None, 1], cells[None, :, 1])
    lengths = (high - low).clip(0)
    totals = lengths.sum(axis=1, keepdims=True)
    nearest = np.abs(sides.mean(axis=1)[:, None] - cells.mean(axis=1)[None, :]).argmin(axis=1)
    point = np.eye(len(cells))[nearest]
    return np.where(totals > 0, lengths / np.where(totals > 0, totals, 1.0), point)
