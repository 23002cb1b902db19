"""Curves over the number of references as files: JSON, CSV and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.csv_text import csv_text
from capbench.files import lock, write_text

if TYPE_CHECKING:
    from capbench.analyses.references import ReferenceCurves
    from capbench.reports.figures.style import Look

__all__ = ["PICTURES", "curves_csv", "write_curves"]

PICTURES = ("png", "svg")
"""Types of the picture that are written if nobody chooses."""


def write_curves(
    curves: ReferenceCurves,
    folder: Path,
    groups: Sequence[str] = ("",),
    *,
    escape_formulas: bool = False,
    look: Look | None = None,
    endings: Sequence[str] = PICTURES,
) -> list[Path]:
    """Write ``curves.{json,csv,png,svg}`` into a folder and return their paths.

    Args:
        curves: the curves.
        folder: made if it is not there.
        groups: groups to draw, one panel each; ``""`` is all.
        escape_formulas: for the CSV file, see :func:`capbench.csv_text.csv_text`.
        look: title, size and font size of the picture.
        endings: types of the picture.

    Raises:
        UsageError: a file cannot be written.
    """
    from capbench.reports.figures.curves import curves_figure
    from capbench.reports.figures.style import USUAL, save

    look = look or USUAL
    with lock(folder / ".curves"):
        write_text(folder / "curves.json", curves.model_dump_json(indent=2) + "\n")
        write_text(folder / "curves.csv", curves_csv(curves, escape_formulas=escape_formulas))
        figure = curves_figure(curves, groups, look)
        for ending in endings:
            save(figure, folder / f"curves.{ending}", look)
    return [folder / f"curves.{ending}" for ending in ("json", "csv", *endings)]


def curves_csv(curves: ReferenceCurves, *, escape_formulas: bool = False) -> str:
    """One line a point, full precision; ``values`` are separated by spaces."""
    columns = ["protocol", "metric", "column", "title", "group", "references", "mean", "sd", "n", "values"]
    rows = (
        {
            "protocol": curves.protocol,
            "references": point.count,
            "values": " ".join(map(repr, point.values)),
            **{name: getattr(point, name) for name in ("metric", "column", "title", "group", "mean", "sd", "n")},
        }
        for point in curves.points
    )
    return csv_text(columns, rows, escape_formulas=escape_formulas)
