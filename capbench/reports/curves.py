"""Agreement against the number of references, and against the layer, as tables and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capbench.core.errors import check_choice
from capbench.core.files import csv_text, lock, write_json, write_text
from capbench.core.records import signature_lines
from capbench.datasets.protocol import with_version
from capbench.reports import methods
from capbench.reports.table import USUAL_TABLE, Cell, Column, Row, Table, number
from capbench.studies.layers import LayerCurves
from capbench.studies.references import CurvePoint, ReferenceCurves


def curves_table(curves: ReferenceCurves, group: str = "") -> Table:
    """A row for each number of references, for all items or one group."""
    if group:
        check_choice("group", group, curves.groups)
    points = [{p.count: p for p in curves.curve(*column, group)} for column in curves.columns]
    orders = f"{curves.draws} random order{'s' * (curves.draws != 1)} of the references, seed {curves.seed}"
    return Table.of(
        ["references", *curves.columns.values()],
        [[str(count), *(_point(of.get(count)) for of in points)] for count in curves.counts],
        f"{curves.dataset_title}, {curves.statistic}, {group or 'all'}",
        legend=(f"mean ± sd of {orders}",),
        notes=(
            f"{with_version(curves.protocol, curves.version)}: {curves.n_items:,} items",
            *curves.notes,
            *signature_lines(curves.signatures),
        ),
    )


def _point(point: CurvePoint | None) -> str:
    if point is None:
        return "–"
    return number(point.mean) + ("" if point.sd is None else f" ± {number(point.sd)}")


def curves_csv(curves: ReferenceCurves) -> str:
    """One line per point, full precision; ``values`` are separated by spaces."""
    columns = ["protocol", "metric", "column", "title", "group", "references", "mean", "sd", "n", "values"]
    rows = (
        {
            **{name: row.get(name) for name in columns},
            "references": row["count"],
            "values": " ".join(map(repr, row["values"])),
        }
        for row in curves.rows()
    )
    return csv_text(columns, rows)


def write_curves(curves: ReferenceCurves, folder: Path, groups: Sequence[str] = ("",)) -> list[Path]:
    """Write ``curves.{json,csv,png,svg}`` into a folder, with a panel for each group, and return their paths."""
    from capbench.reports.figures.curves import curves_figure
    from capbench.reports.figures.style import USUAL, save

    with lock(folder / ".curves"):
        write_json(folder / "curves.json", curves.model_dump(mode="json"))
        write_text(folder / "curves.csv", curves_csv(curves))
        figure = curves_figure(curves, groups, USUAL)
        pictures = [path for ending in ("png", "svg") for path in save(figure, folder / f"curves.{ending}", USUAL)]
    return list(dict.fromkeys([folder / "curves.json", folder / "curves.csv", *pictures]))


def layers_table(curves: LayerCurves) -> Table:
    """A row for each layer."""
    points = {(point.title, point.layer): point for point in curves.points}
    rows = []
    for layer in curves.layers:
        found = [points.get((title, layer)) for title in curves.curves]
        cells = [
            Cell("–") if point is None else Cell(number(point.value), below=USUAL_TABLE.interval(point.low, point.high))
            for point in found
        ]
        rows.append(Row(str(layer), tuple(cells)))
    made, what = curves.bootstrap, "pairs" if curves.kind == "accuracy" else "ratings"
    legend = () if made is None else (methods.intervals(made.level, made.method, made.unit, made.resamples, made.seed),)
    sizes = f"{curves.versioned_id}: {curves.n:,} {what} of {curves.n_items:,} items"
    return Table(
        f"{curves.dataset_title}, {curves.statistic}",
        tuple(map(Column, curves.curves)),
        tuple(rows),
        legend=legend,
        notes=(sizes, *curves.notes, *signature_lines(curves.signatures)),
        head="layer",
    )
