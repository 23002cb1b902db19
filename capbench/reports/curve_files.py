"""Curves over the number of references as files: JSON, CSV and the picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.files import lock, write_text

if TYPE_CHECKING:
    from capbench.analyses.references import ReferenceCurves

__all__ = ["curves_csv", "write_curves"]


def write_curves(curves: ReferenceCurves, folder: Path, groups: Sequence[str] = ("",)) -> list[Path]:
    """Write ``curves.{json,csv,png,svg}`` into a folder and return their paths.

    Args:
        curves: the curves.
        folder: made if it is not there.
        groups: groups to draw, one panel each; ``""`` is all.

    Raises:
        UsageError: a file cannot be written.
    """
    from capbench.reports.figures.curves import curves_figure
    from capbench.reports.figures.style import save

    with lock(folder / ".curves"):
        write_text(folder / "curves.json", curves.model_dump_json(indent=2) + "\n")
        write_text(folder / "curves.csv", curves_csv(curves))
        figure = curves_figure(curves, groups)
        for ending in ("png", "svg"):
            save(figure, folder / f"curves.{ending}")
    return [folder / f"curves.{ending}" for ending in ("json", "csv", "png", "svg")]


def curves_csv(curves: ReferenceCurves) -> str:
    """One line a point, full precision; ``values`` are separated by spaces."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["protocol", "metric", "column", "title", "group", "references", "mean", "sd", "n", "values"])
    for p in curves.points:
        values = " ".join(map(repr, p.values))
        sd = "" if p.sd is None else p.sd
        writer.writerow([curves.protocol, p.metric, p.column, p.title, p.group, p.count, p.mean, sd, p.n, values])
    return stream.getvalue()
