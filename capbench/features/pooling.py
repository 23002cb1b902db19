"""Pooling of a grid of cells: means over windows.

A pooling consists of levels joined by ``+``. A level ``3x3/1`` slides a window of 3 rows and 3 columns of cells by
1 cell in both directions within the grid, row by row from the upper left. The windows of the levels follow each other
in the written order. Two poolings have names, both on a grid of 7 x 7 cells:

``5x5``
    ``3x3/1``: 5 x 5 = 25 windows of 3 x 3 cells; neighbours share six cells.
``pyr30``
    ``3x3/1+5x5/2+7x7/1``: those 25, then 4 windows of 5 x 5 cells at the corners, then the whole grid: 30 windows.

The box of a window extends from the upper left corner of its first cell to the lower right corner of its last cell.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import FeatureError, UsageError, suggest
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore
from capbench.features.writing import StoreWriter, check_new

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
    pooling: Pooling,
    *,
    shape: tuple[int, int] | None = None,  # rows and columns of the grid; None to infer them from each image's cells
    dtype: str | None = None,
    compression: str | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> FeatureStore:
    """Write a new store with the windows of every image of a store of grid cells.

    The new fingerprint is the old one with ``windows PxQ/S+…`` appended to its mode, so that cells and windows, or two
    poolings, are never mixed. The file appears when it is complete.
    """
    path = Path(target)
    check_new(path, replace, cells.paths)
    mode = f"{cells.fingerprint.mode} windows {pooling}"
    with StoreWriter(
        path,
        dataclasses.replace(cells.fingerprint, mode=mode),
        dtype=dtype or cells.header.dtype,
        compression=compression or cells.header.compression,
        restart=True,
        keep=False,
    ) as writer:
        for regions in cells:
            try:
                writer.add(pool_regions(regions, pooling, shape))
            except FeatureError as error:
                raise error.placed(FeatureError, error.path or cells.paths[0]) from error
            if progress:
                progress(1)
        return writer.finish()
