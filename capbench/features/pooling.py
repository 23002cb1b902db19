"""Pooling of a grid of cells: means over windows, or means of the cells under detected boxes.

A pooling consists of levels joined by ``+``. A level ``3x3/1`` slides a window of 3 rows and 3 columns of cells by
1 cell in both directions within the grid, row by row from the upper left. The windows of the levels follow each other
in the written order. Two poolings have names, both on a grid of 7 x 7 cells:

``5x5``
    ``3x3/1``: 5 x 5 = 25 windows of 3 x 3 cells; neighbours share six cells.
``pyr30``
    ``3x3/1+5x5/2+7x7/1``: those 25, then 4 windows of 5 x 5 cells at the corners, then the whole grid: 30 windows.

The box of a window extends from the upper left corner of its first cell to the lower right corner of its last cell.

Pooling under boxes combines the boxes of a small detector, whose features are of little use, with the features of a
classification network, which has no boxes: the features of a box are the mean of the grid's cells, each weighted by
the area that the box covers of it. Boxes come from an ``.npz`` file with these arrays:

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

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, FeatureError, UsageError, suggest
from capbench.core.files import sha256_file
from capbench.core.records import image_id
from capbench.features.importers.arrays import Npz, demand
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.features.writing import StoreWriter

_BOXES = "boxes_normalised_xyxy"


@dataclass(frozen=True, eq=False)
class ImageBoxes:
    """The boxes of one image.

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
        sha256: its checksum, 64 hex digits.
        images: boxes by image id.
        class_names: names by class id, or None.
        classes: number of classes: that of the names, else the largest id plus one.
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
        DataError: an array is missing, or has a shape or type that does not match the others; a box exceeds its image
            or ends before it begins; an image occurs twice or has no box. The error names the image.
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
            code="wrong-shape",
            value=_BOXES,
            path=f"{file}[{_BOXES}]",
        )
    counts = arrays.get("num_boxes", np.full(len(names), boxes.shape[1]))
    shapes = {"num_boxes": (boxes.shape[:1], "iu"), "class_ids": (boxes.shape[:2], "iu")}
    shapes["class_scores"] = (boxes.shape[:2], "f")
    for name, (shape, kinds) in shapes.items():
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind not in kinds):
            raise DataError(
                f"has shape {arrays[name].shape} of {arrays[name].dtype}, which does not match boxes of {boxes.shape}",
                code="wrong-shape",
                value=name,
                path=f"{file}[{name}]",
            )
    images: dict[str, ImageBoxes] = {}
    for i, name in enumerate(names):
        image = name if names_array == "image_ids" else image_id(name)
        count = int(counts[i])
        row = f"image '{image}'"
        if image in images:
            raise DataError(
                "occurs twice", code="duplicate", value=image, path=file, row=row, hint="Remove one of the two"
            )
        if not 1 <= count <= boxes.shape[1]:
            raise DataError(
                f"has {count} boxes of {boxes.shape[1]}",
                code="out-of-range",
                value=count,
                path=file,
                row=row,
                hint="Remove the image",
            )
        images[image] = ImageBoxes(
            _checked(boxes[i, :count].astype(np.float32), file, row),
            arrays["class_ids"][i, :count].astype(np.int32) if "class_ids" in arrays else None,
            _scores(arrays["class_scores"][i, :count], file, row) if "class_scores" in arrays else None,
        )
    class_names = tuple(str(name) for name in arrays["class_names"].reshape(-1)) if "class_names" in arrays else None
    largest = max((int(one.class_ids.max()) for one in images.values() if one.class_ids is not None), default=-1)
    if class_names is not None and largest >= len(class_names):
        raise DataError(
            f"a box has the class {largest}, but there are {len(class_names)} names",
            code="out-of-range",
            value=largest,
            path=file,
        )
    return BoxFile(file, sha256_file(file), images, class_names, len(class_names or ()) or largest + 1)


def _arrays(archive: Npz) -> list[str]:
    known = (_BOXES, "num_boxes", "class_ids", "class_scores", "class_names")
    return [name for name in known if name in archive]


def _checked(boxes: NDArray[np.float32], file: Path, row: str) -> NDArray[np.float32]:
    if not np.isfinite(boxes).all():
        raise DataError("has a box that is NaN or infinite", code="not-a-number", path=file, row=row)
    if (boxes < -1e-3).any() or (boxes > 1 + 1e-3).any():
        raise DataError(
            "has a box that exceeds the image",
            code="out-of-range",
            path=file,
            row=row,
            hint="Write boxes as fractions from 0 to 1",
        )
    if (boxes[:, :2] > boxes[:, 2:]).any():
        raise DataError(
            "has a box that ends before it begins",
            code="wrong-value",
            path=file,
            row=row,
            hint="Write boxes as x1, y1, x2, y2",
        )
    return boxes.clip(0, 1)


def _scores(scores: NDArray[Any], file: Path, row: str) -> NDArray[np.float32]:
    if not (np.isfinite(scores) & (scores >= 0) & (scores <= 1)).all():
        raise DataError("has a class score that is not between 0 and 1", code="out-of-range", path=file, row=row)
    return scores.astype(np.float32)


@dataclass(frozen=True, eq=False)
class BoxPooling:
    """Mean features of the cells under boxes.

    Attributes:
        boxes: the boxes of all images.
        top: maximum number of boxes per image, the first ones; None for all.
        classes: append a column for each class to the features: the box's class score times ``scale`` in the column of
            its class, 0 in the others.
        scale: factor of these columns.
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
                "has no 'class_ids' and 'class_scores' for class columns",
                code="missing-key",
                value="class_ids",
                path=self.boxes.path,
                hint="Omit --class-columns",
            )

    def __str__(self) -> str:
        top = "" if self.top is None else f" top {self.top}"
        columns = f" class columns {self.boxes.classes} x {self.scale:g}" if self.classes else ""
        return f"{self.boxes.path.name} {self.boxes.sha256[:12]}{top}{columns}"

    def of(self, image: str) -> ImageBoxes:
        """The boxes of an image. Raises DataError if the file has none."""
        boxes = self.boxes.images.get(image)
        if boxes is None:
            raise DataError(
                f"has no boxes of image '{image}'",
                code="missing-image",
                value=image,
                path=self.boxes.path,
                hint="Pool a store of the file's images only",
            )
        top = slice(self.top)
        return dataclasses.replace(
            boxes,
            boxes=boxes.boxes[top],
            class_ids=None if boxes.class_ids is None else boxes.class_ids[top],
            class_scores=None if boxes.class_scores is None else boxes.class_scores[top],
        )

    def pool(self, cells: RegionFeatures, shape: tuple[int, int]) -> RegionFeatures:
        """The boxes of one image with their features, classes and scores.

        Args:
            cells: cells of a grid of that shape, row by row from the upper left, with or without boxes.
            shape: rows and columns of the grid.

        Raises:
            DataError: the file has no boxes of this image.
            FeatureError: a cell has no area.
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
        """Windows with class columns of 0, since they have no detected class."""
        if not self.classes:
            return windows
        zeros = np.zeros((len(windows), self.boxes.classes), dtype=windows.features.dtype)
        return dataclasses.replace(windows, features=np.concatenate([windows.features, zeros], axis=1))


def _edges(cells: RegionFeatures, shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Edges of the columns of cells (left, right) and rows (top, bottom): (columns, 2) and (rows, 2) fractions."""
    rows, columns = shape
    if cells.boxes is None:
        x, y = np.linspace(0, 1, columns + 1), np.linspace(0, 1, rows + 1)
        return np.stack([x[:-1], x[1:]], axis=1), np.stack([y[:-1], y[1:]], axis=1)
    corners = cells.boxes.reshape(rows, columns, 4).astype(np.float64)
    if not (corners[..., 2:] > corners[..., :2]).all():
        raise FeatureError(f"image '{cells.image}' has a cell without an area", code="wrong-value", value=cells.image)
    return corners[0][:, [0, 2]] / (cells.width or 1), corners[:, 0][:, [1, 3]] / (cells.height or 1)


def _cover(sides: NDArray[np.float64], cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """The fraction of each side in each cell, (n, cells).

    A side without a length, or outside all cells, counts as the cell with the nearest middle.
    """
    low = np.maximum(sides[:, None, 0], cells[None, :, 0])
    high = np.minimum(sides[:, None, 1], cells[None, :, 1])
    lengths = (high - low).clip(0)
    totals = lengths.sum(axis=1, keepdims=True)
    nearest = np.abs(sides.mean(axis=1)[:, None] - cells.mean(axis=1)[None, :]).argmin(axis=1)
    point = np.eye(len(cells))[nearest]
    return np.where(totals > 0, lengths / np.where(totals > 0, totals, 1.0), point)


NAMED = {"5x5": ("3x3/1", (7, 7)), "pyr30": ("3x3/1+5x5/2+7x7/1", (7, 7))}
"""Names of poolings: their levels, and the grid (rows, columns) for which the name is defined."""

_LEVEL = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})/([1-9]\d{0,3})")
# Boxes are float32 fractions or pixels: edges in one row of cells may differ in the last digits.
_SAME_EDGE = 1e-3


@dataclass(frozen=True)
class Level:
    """Windows of one size.

    Attributes:
        rows: height of a window in cells.
        columns: width of a window in cells.
        stride: distance between neighbouring windows in cells, in both directions.
    """

    rows: int
    columns: int
    stride: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}/{self.stride}"


@dataclass(frozen=True)
class Pooling:
    """Windows of one or more sizes.

    Attributes:
        levels: in the order of the windows.
        grid: rows and columns of the grid that the pooling requires; None for any.
    """

    levels: tuple[Level, ...]
    grid: tuple[int, int] | None = None

    def __str__(self) -> str:
        return "+".join(map(str, self.levels))

    def windows(self, rows: int, columns: int) -> NDArray[np.int64]:
        """(n, 4) first row, first column, last row, last column of each window, all inclusive.

        Raises:
            UsageError: the pooling requires another grid, or a window is larger than the grid.
        """
        if self.grid is not None and self.grid != (rows, columns):
            size = f"{self.grid[0]} x {self.grid[1]}"
            raise UsageError(
                f"this pooling requires {size} cells, but the grid has {rows} x {columns}",
                code="mismatch",
                hint=f"Write the levels explicitly, such as '{self}'",
            )
        corners = []
        for level in self.levels:
            if level.rows > rows or level.columns > columns:
                raise UsageError(
                    f"the windows '{level}' are larger than the grid of {rows} x {columns} cells",
                    code="out-of-range",
                    value=str(level),
                    hint="Choose smaller windows",
                )
            for top in range(0, rows - level.rows + 1, level.stride):
                for left in range(0, columns - level.columns + 1, level.stride):
                    corners.append((top, left, top + level.rows - 1, left + level.columns - 1))
        return np.array(corners, dtype=np.int64)


def parse_pooling(text: str) -> Pooling:
    """Read a pooling: one of :data:`NAMED`, or levels.

    >>> str(parse_pooling("pyr30"))
    '3x3/1+5x5/2+7x7/1'
    >>> len(parse_pooling("2x2/1").windows(7, 7))
    36

    Raises:
        UsageError: the text is neither.
    """
    written, grid = NAMED.get(text, (text, None))
    levels = []
    for level in written.split("+"):
        match = _LEVEL.fullmatch(level)
        if match is None:
            raise UsageError(
                f"unknown pooling '{text}'",
                code="unknown-name",
                value=text,
                hint=f"{suggest(text, list(NAMED))}. Or write levels ROWSxCOLUMNS/STRIDE, joined by '+': 3x3/1+7x7/1",
            )
        levels.append(Level(*(int(number) for number in match.groups())))
    if len(set(levels)) < len(levels):
        raise UsageError(
            f"the pooling '{text}' has a level twice", code="duplicate", value=text, hint="Write each level once"
        )
    return Pooling(tuple(levels), grid)


def pool_regions(cells: RegionFeatures, pooling: Pooling, shape: tuple[int, int] | None = None) -> RegionFeatures:
    """Windows over one image's cells.

    Args:
        cells: cells of a grid, row by row from the upper left.
        pooling: the windows.
        shape: rows and columns of the grid; None to infer them from the boxes, or a square without boxes.

    Returns:
        One region per window, with the mean of its cells' features (summed in float64) and their common box.

    Raises:
        FeatureError: the regions are not a grid of that shape, or have classes or attributes, which have no mean.
        UsageError: the pooling does not fit the grid.
    """
    rows, columns = _shape(cells, shape)
    windows = pooling.windows(rows, columns)
    first, last = windows[:, :2], windows[:, 2:] + 1
    # Sums over all rectangles from the upper left corner: the sum of a window combines four of them.
    sums = np.zeros((rows + 1, columns + 1, cells.features.shape[1]))
    sums[1:, 1:] = cells.features.astype(np.float64).reshape(rows, columns, -1).cumsum(0).cumsum(1)
    totals = (
        sums[last[:, 0], last[:, 1]]
        - sums[first[:, 0], last[:, 1]]
        - sums[last[:, 0], first[:, 1]]
        + sums[first[:, 0], first[:, 1]]
    )
    means = totals / (last - first).prod(axis=1)[:, None]
    boxes = None
    if cells.boxes is not None:
        corners = cells.boxes.reshape(rows, columns, 4)
        upper = corners[windows[:, 0], windows[:, 1], :2]
        lower = corners[windows[:, 2], windows[:, 3], 2:]
        boxes = np.concatenate([upper, lower], axis=1)
    return RegionFeatures(cells.image, cells.width, cells.height, boxes, means.astype(cells.features.dtype))


def _shape(cells: RegionFeatures, stated: tuple[int, int] | None) -> tuple[int, int]:
    """Rows and columns of a grid. Raises FeatureError if the regions are not a grid."""
    n = len(cells)
    fields = [*cells.flat(), *(["class_probabilities"] if cells.probability_columns else [])]
    if fields:
        raise FeatureError(
            f"image '{cells.image}': its regions have {', '.join(fields)}, which have no mean",
            code="unsupported",
            value=cells.image,
            hint="Pool the cells of a grid, which have features and boxes only",
        )
    if stated is not None and stated[0] * stated[1] != n:
        raise FeatureError(
            f"image '{cells.image}' has {n} regions, not {stated[0]} x {stated[1]}", code="mismatch", value=cells.image
        )
    if cells.boxes is None:
        side = round(n**0.5)
        if stated is None and side * side != n:
            raise FeatureError(
                f"image '{cells.image}': {n} regions without boxes are not a square grid",
                code="wrong-shape",
                value=cells.image,
                hint="Specify its rows and columns with --grid",
            )
        return stated or (side, side)
    size = float(max(cells.width, cells.height))
    if stated is None:
        # The first row ends at the first cell that begins below the first cell.
        below = np.flatnonzero(cells.boxes[:, 1] > cells.boxes[0, 1] + _SAME_EDGE * size)
        columns = int(below[0]) if len(below) else n
        stated = (n // columns, columns)
    rows, columns = stated
    if rows * columns != n or not _is_grid(cells.boxes.reshape(rows, columns, 4), _SAME_EDGE * size):
        raise FeatureError(
            f"image '{cells.image}': its {n} boxes are not the cells of a grid, row by row",
            code="wrong-shape",
            value=cells.image,
            hint="Pool a store of grid features (from a detector with 'grid' in its name in 'capbench models list')",
        )
    return rows, columns


def _is_grid(boxes: NDArray[np.float32], slack: float) -> bool:
    """True if (rows, columns, 4) boxes are aligned rows and columns of cells in ascending order."""
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    aligned = all(float(np.ptp(edge, axis=0).max()) <= slack for edge in (x1, x2)) and all(
        float(np.ptp(edge, axis=1).max()) <= slack for edge in (y1, y2)
    )
    return aligned and bool((np.diff(x1[0]) > 0).all() and (np.diff(y1[:, 0]) > 0).all())


def _pooled(
    cells: RegionFeatures, pooling: Pooling | None, boxes: BoxPooling | None, shape: tuple[int, int] | None
) -> RegionFeatures:
    if boxes is None:
        assert pooling is not None
        return pool_regions(cells, pooling, shape)
    detected = boxes.pool(cells, _shape(cells, shape))
    if pooling is None:
        return detected
    windows = boxes.without_classes(pool_regions(cells, pooling, shape))
    if windows.boxes is None or detected.boxes is None:
        raise FeatureError(
            f"image '{cells.image}': its cells have no boxes, so windows cannot be combined with detected boxes",
            code="missing-value",
            value=cells.image,
            hint="Pool either windows or boxes",
        )
    return RegionFeatures(
        cells.image,
        cells.width,
        cells.height,
        np.concatenate([windows.boxes, detected.boxes]),
        np.concatenate([windows.features, detected.features]),
    )


def pool_store(
    source: str | os.PathLike[str] | FeatureStore,
    target: str | os.PathLike[str],
    pooling: Pooling | None,
    *,
    boxes: BoxPooling | None = None,
    shape: tuple[int, int] | None = None,
    dtype: str | None = None,
    compression: str | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> FeatureStore:
    """Write a new store with the windows, or the boxes, of every image of a store of grid cells.

    The new fingerprint is the old one with ``windows PxQ/S+…`` or ``boxes FILE SHA-256`` appended to its mode, so that
    cells and windows, or two poolings, are never mixed. The file appears when it is complete. With both windows and
    boxes, an image's windows precede its boxes, and no region has a class, since windows have none.

    Args:
        source: the store of cells.
        target: the file to write.
        pooling: the windows, or None.
        boxes: the boxes, or None; at least one of the two is required.
        shape: rows and columns of the grid; None to infer them from each image's cells.
        dtype: of the new store; None for that of the source.
        compression: likewise.
        replace: replace an existing file.
        progress: called with 1 for each image done.

    Raises:
        FeatureError: the source is damaged, or an image's regions are not a grid.
        DataError: the file of boxes has none of an image.
        UsageError: the target exists or cannot be written, the pooling does not fit the grid, or there are neither
            windows nor boxes.
    """
    if pooling is None and boxes is None:
        raise UsageError("neither windows nor boxes were specified", code="missing-option")
    path = Path(target)
    if path.exists() and not replace:
        raise UsageError(
            "already exists", code="exists", path=path, hint="Write to another file, or replace it with --replace"
        )
    cells = source if isinstance(source, FeatureStore) else open_store(source)
    if files.real_path(path) in map(files.real_path, cells.paths):
        raise UsageError(
            "a store cannot be pooled into itself", code="conflict", path=path, hint="Write to another file"
        )
    mode = cells.fingerprint.mode
    if pooling is not None:
        mode += f" windows {pooling}"
    if boxes is not None:
        mode += f" boxes {boxes}"
    writer = StoreWriter(
        path,
        dataclasses.replace(cells.fingerprint, mode=mode),
        dtype=dtype or cells.header.dtype,
        compression=compression or cells.header.compression,
        class_names=boxes.boxes.class_names if boxes is not None and pooling is None else None,
        restart=True,
    )
    finished = False
    try:
        for regions in cells:
            try:
                writer.add(_pooled(regions, pooling, boxes, shape))
            except FeatureError as error:
                if error.path is not None:
                    raise
                raise FeatureError(
                    error.message, code=error.code, value=error.value, path=cells.paths[0], hint=error.hint
                ) from error
            if progress:
                progress(1)
        store = writer.finish()
        finished = True
    finally:
        # Pooling takes seconds, so a failed run keeps no journal.
        writer.close() if finished else writer.discard()
        if cells is not source:
            cells.close()
    return store
