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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import DataError, FeatureError, UsageError, suggest
from capbench.core.files import sha256_file
from capbench.core.records import image_id
from capbench.features.importers.arrays import array_names, load_arrays
from capbench.features.records import RegionFeatures, check_names, flat_dtype
from capbench.features.store import FeatureStore
from capbench.features.writing import StoreWriter, check_new

_BOXES = "boxes_normalised_xyxy"


@dataclass(frozen=True, eq=False)
class BoxFile:
    """Boxes by image id, as fractions, with features of no meaning; names by class id, or None."""

    path: Path
    sha256: str
    images: Mapping[str, RegionFeatures]
    class_names: tuple[str, ...] | None


def read_boxes(path: str | os.PathLike[str]) -> BoxFile:
    """Read and check a file of boxes."""
    file = Path(path)
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
    return BoxFile(file, sha256_file(file), images, class_names)


@dataclass(frozen=True, eq=False)
class BoxPooling:
    """Mean features of the cells under boxes."""

    boxes: BoxFile  # the boxes of all images
    top: int | None = None  # maximum number of boxes per image, the first ones; None for all

    def __str__(self) -> str:
        top = "" if self.top is None else f" top {self.top}"
        return f"{self.boxes.path.name} {self.boxes.sha256[:12]}{top}"

    def of(self, image: str) -> RegionFeatures:
        """The boxes of an image. Raises DataError if the file has none."""
        regions = self.boxes.images.get(image)
        if regions is None:
            message, hint = f"has no boxes of image '{image}'", "Pool a store of the file's images only"
            raise DataError(message, code="missing-image", value=image, path=self.boxes.path, hint=hint)
        arrays = ((name, array) for name, array in vars(regions).items() if isinstance(array, np.ndarray))
        chosen: dict[str, Any] = {name: array[: self.top] for name, array in arrays}
        return dataclasses.replace(regions, **chosen)

    def pool(self, cells: RegionFeatures, shape: tuple[int, int]) -> RegionFeatures:
        """The boxes of one image with their features, classes and scores."""
        rows, columns = shape
        detected = self.of(cells.image)
        boxes = detected.boxes
        assert boxes is not None
        grid = cells.features.reshape(rows, columns, -1).astype(np.float64)
        x, y = _edges(cells, shape)
        across = _cover(boxes[:, [0, 2]].astype(np.float64), x)
        down = _cover(boxes[:, [1, 3]].astype(np.float64), y)
        means = np.einsum("ni,nj,ijd->nd", down, across, grid, optimize=True)
        features = means.astype(cells.features.dtype)
        width, height = cells.width or 1, cells.height or 1
        pixels = boxes * np.array([width, height, width, height], dtype=np.float32)
        return dataclasses.replace(detected, width=width, height=height, boxes=pixels, features=features)


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
    """The fraction of each side in each cell, (n, cells)."""
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
    """Windows of ``rows`` x ``columns`` cells, ``stride`` cells apart in both directions."""

    rows: int
    columns: int
    stride: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}/{self.stride}"


@dataclass(frozen=True)
class Pooling:
    """Windows of one or more sizes; ``grid`` are the rows and columns of cells that they require, None for any."""

    levels: tuple[Level, ...]
    grid: tuple[int, int] | None = None

    def __str__(self) -> str:
        return "+".join(map(str, self.levels))

    def windows(self, rows: int, columns: int) -> NDArray[np.int64]:
        """(n, 4) first row, first column, last row, last column of each window, all inclusive."""
        if self.grid is not None and self.grid != (rows, columns):
            message = (
                f"this pooling requires {self.grid[0]} x {self.grid[1]} cells, but the grid has {rows} x {columns}"
            )
            raise UsageError(message, code="mismatch", hint=f"Write the levels explicitly, such as '{self}'")
        corners = []
        for level in self.levels:
            if level.rows > rows or level.columns > columns:
                message = f"the windows '{level}' are larger than the grid of {rows} x {columns} cells"
                raise UsageError(message, code="out-of-range", value=str(level), hint="Choose smaller windows")
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
    """
    written, grid = NAMED.get(text, (text, None))
    levels = []
    for level in written.split("+"):
        match = _LEVEL.fullmatch(level)
        if match is None:
            hint = f"{suggest(text, list(NAMED))}. Or write levels ROWSxCOLUMNS/STRIDE, joined by '+': 3x3/1+7x7/1"
            raise UsageError(f"unknown pooling '{text}'", code="unknown-name", value=text, hint=hint)
        levels.append(Level(*(int(number) for number in match.groups())))
    if len(set(levels)) < len(levels):
        message = f"the pooling '{text}' has a level twice"
        raise UsageError(message, code="duplicate", value=text, hint="Write each level once")
    return Pooling(tuple(levels), grid)


def pool_regions(cells: RegionFeatures, pooling: Pooling, shape: tuple[int, int] | None = None) -> RegionFeatures:
    """Windows over one image's cells.

    ``cells``: cells of a grid, row by row from the upper left; ``shape``: rows and columns of the grid; None to infer
    them from the boxes, or a square without boxes.

    Returns one region per window, with the mean of its cells' features (summed in float64) and their common box.
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

    def bad(problem: str, code: str, hint: str | None = None) -> FeatureError:
        return FeatureError(f"image '{cells.image}': {problem}", code=code, value=cells.image, hint=hint)

    fields = [*cells.flat(), *(["class_probabilities"] if cells.probability_columns else [])]
    grids = "Pool a store of grid features (from a detector with 'grid' in its name in 'capbench models list')"
    if fields:
        raise bad(f"its regions have {', '.join(fields)}, which have no mean", "unsupported", grids)
    if stated is not None and stated[0] * stated[1] != n:
        raise bad(f"it has {n} regions, not {stated[0]} x {stated[1]}", "mismatch")
    if cells.boxes is None:
        side = round(n**0.5)
        if stated is None and side * side != n:
            hint = "Specify its rows and columns with --grid"
            raise bad(f"{n} regions without boxes are not a square grid", "wrong-shape", hint)
        return stated or (side, side)
    slack = _SAME_EDGE * float(max(cells.width, cells.height))
    if stated is None:
        # The first row ends at the first cell that begins below the first cell.
        below = np.flatnonzero(cells.boxes[:, 1] > cells.boxes[0, 1] + slack)
        columns = int(below[0]) if len(below) else n
        stated = (n // columns, columns)
    if stated[0] * stated[1] != n or not _is_grid(cells.boxes.reshape(*stated, 4), slack):
        raise bad(f"its {n} boxes are not the cells of a grid, row by row", "wrong-shape", grids)
    return stated


def _is_grid(boxes: NDArray[np.float32], slack: float) -> bool:
    """True if (rows, columns, 4) boxes are aligned rows and columns of cells in ascending order."""
    x1, y1, x2, y2 = (boxes[..., i] for i in range(4))
    aligned = all(float(np.ptp(edge, axis=0).max()) <= slack for edge in (x1, x2)) and all(
        float(np.ptp(edge, axis=1).max()) <= slack for edge in (y1, y2)
    )
    return aligned and bool((np.diff(x1[0]) > 0).all() and (np.diff(y1[:, 0]) > 0).all())


def pool_store(
    cells: FeatureStore,
    target: str | os.PathLike[str],
    pooling: Pooling | BoxPooling,
    *,
    shape: tuple[int, int] | None = None,  # rows and columns of the grid; None to infer them from each image's cells
    dtype: str | None = None,
    compression: str | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> FeatureStore:
    """Write a new store with the windows, or the boxes, of every image of a store of grid cells.

    The new fingerprint is the old one with ``windows PxQ/S+…`` or ``boxes FILE SHA-256`` appended to its mode, so that
    cells and windows, or two poolings, are never mixed. The file appears when it is complete.
    """
    path = Path(target)
    check_new(path, replace, cells.paths)
    mode = f"{cells.fingerprint.mode} {'windows' if isinstance(pooling, Pooling) else 'boxes'} {pooling}"
    with StoreWriter(
        path,
        dataclasses.replace(cells.fingerprint, mode=mode),
        dtype=dtype or cells.header.dtype,
        compression=compression or cells.header.compression,
        class_names=None if isinstance(pooling, Pooling) else pooling.boxes.class_names,
        restart=True,
        keep=False,
    ) as writer:
        for regions in cells:
            try:
                if isinstance(pooling, Pooling):
                    writer.add(pool_regions(regions, pooling, shape))
                else:
                    writer.add(pooling.pool(regions, _shape(regions, shape)))
            except FeatureError as error:
                raise error.placed(FeatureError, error.path or cells.paths[0]) from error
            if progress:
                progress(1)
        return writer.finish()
