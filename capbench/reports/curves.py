"""Agreement against the number of references or the layer, as tables and in a file."""

from __future__ import annotations

from capbench.core.files import csv_text
from capbench.reports import methods
from capbench.reports.table import USUAL_TABLE, Cell, Column, Row, Table, number
from capbench.studies.results import Point, ProtocolInfo, StudyResult


def curve_tables(result: StudyResult, *, by_source: bool = False) -> list[Table]:
    """A table for each protocol, and with ``by_source`` each group; a row for each number of references or layer."""
    made, detail = [], methods.details(result.protocols)
    for info in result.protocols:
        for group in ("", *(info.groups if by_source else ())):
            points = result.curve(info.id, group)
            titles = {point.column: point.title for point in points}
            cells = {(point.at, point.column): _cell(point) for point in points}
            rows = [
                Row(str(at), tuple(cells.get((at, column), Cell("–")) for column in titles))
                for at in sorted({point.at for point in points})
            ]
            if rows:
                title = ", ".join(filter(None, (info.dataset_title, detail[info.id], info.statistic, group)))
                undefined = dict.fromkeys(f"{p.title}, {p.at}: {p.undefined}" for p in points if p.undefined)
                notes = (f"{info.versioned_id}: {points[0].n:,} data points of {info.n_items:,} items",)
                columns, head = tuple(map(Column, titles.values())), "references" if result.curves else "layer"
                legend = spread(result, info)
                made.append(Table(title, columns, tuple(rows), (), tuple(undefined), legend, notes=notes, head=head))
    return made


def _cell(point: Point) -> Cell:
    if point.value is None:
        return Cell(point.shown_instead)
    sd = "" if point.sd is None else f" ± {number(point.sd)}"
    return Cell(number(point.value) + sd, below=USUAL_TABLE.interval(point.low, point.high))


def spread(result: StudyResult, info: ProtocolInfo) -> tuple[str, ...]:
    """The meaning of the standard deviations or intervals of the points of a protocol, one line or none."""
    if (made := result.curves) is not None:
        orders = f"{made.draws} random order{'s' * (made.draws != 1)}"
        return (f"mean ± sd of {orders} of the references, seed {made.seed}",)
    of = info.bootstrap
    return () if of is None else (methods.intervals(of.level, of.method, of.unit, of.resamples, of.seed),)


def curves_csv(result: StudyResult) -> str:
    """One line per point, full precision; ``values`` are separated by spaces."""
    columns = ["protocol", "metric", "column", "title", "group", "at", "value", "sd", "low", "high", "n", "values"]
    rows = (
        {**point.model_dump(include={*columns}), "values": " ".join(map(repr, point.values))} for point in result.points
    )
    return csv_text(columns, rows)
