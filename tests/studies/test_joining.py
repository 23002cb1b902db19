"""A published table beside a study: every number that belongs there, and every word that its file says."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from capbench.api.resolve import MetricInputs, with_inputs
from capbench.core.records import ScoreColumn
from capbench.core.yaml import shipped_configs
from capbench.datasets.root import DataRoot, sample_dir
from capbench.metrics import metric_request
from capbench.reports.markup import to_csv
from capbench.reports.table import Row, Table
from capbench.reports.tables import tables
from capbench.studies.plan import changed_inputs, plan_study
from capbench.studies.published.differences import is_printed_as, join_published
from capbench.studies.published.tables import PublishedTable, load_published, names, parse_table, rescaled
from capbench.studies.results import Cell, Missing, ProtocolInfo, StudyResult
from capbench.studies.study_file import load_study
from capbench.weights.registry import Status
from tests.reports.toy import protocol_info, result
from tests.studies.toys import Toy, known

MADE_UP = """
schema: 1
paper: {authors: A and B, title: A title, venue: V, year: 2020}
where: Table 1
description: One sentence.
notes: ["A remark on the whole."]
columns:
  - {key: tau, head: τ of the paper, protocol: toy/all/mean-tau-b, basis: stated, unit: fraction, note: One column.}
  - {key: rho, head: ρ of the paper, protocol: toy/drawn/mean-spearman, basis: inferred, unit: fraction}
  - {key: acc, head: acc. of A, protocol: toy/all/votes-strict, basis: inferred, group: A, unit: percent}
  - {key: other, head: Other τ, protocol: toy/other/mean-tau-b, basis: stated, unit: fraction}
  - {key: private, head: Private τ, protocol: null, unit: fraction}
rows:
  - {key: a, title: Length, metric: length, values: ["0.500", "0.400 ± 0.050", "50.0", "0.111", "0.222"]}
  - key: b
    title: Length (long)
    metric: length
    variant: long
    cited: true
    values: ["0.510", "0.410", null, null, null]
  - {key: c, title: Sum, metric: null, values: [{value: "0.520", note: printed as .52O}, null, "51.0", null, "0.333"]}
  - {key: d, title: Nowhere, metric: null, values: [null, null, null, "0.999", null]}
  - {key: e, title: Waiting, metric: tiger, values: ["0.530", "0.430", null, null, null]}
"""
TAU, RHO, ACCURACY = "toy/all/mean-tau-b", "toy/drawn/mean-spearman", "toy/all/votes-strict"
ROWS = (
    metric_request.Row(ScoreColumn("length", "length"), "length", "length", "Length"),
    metric_request.Row(ScoreColumn("long", "length"), "length", "long", "Length, long"),
    metric_request.Row(ScoreColumn("tiger", "tiger"), "tiger", "tiger", "TIGEr"),
)


def info(protocol: str, groups: tuple[str, ...] = ()) -> ProtocolInfo:
    spec = Toy.statistics[protocol.rpartition("/")[2]]
    return protocol_info(protocol, statistic=spec.label, kind=spec.kind, groups=groups, n_items=6)


def cell(protocol: str, row: str, value: float, group: str = "", sd: float | None = None) -> Cell:
    return Cell(
        protocol=protocol, metric="length", column=row, title=row, label=row, group=group, value=value, sd=sd, n=6
    )


def result_of(*cells: Cell, protocols: tuple[ProtocolInfo, ...] | None = None, **more: object) -> StudyResult:
    infos = (info(TAU), info(RHO), info(ACCURACY, ("A",))) if protocols is None else protocols
    missing = (Missing(column="tiger", title="TIGEr", reason="a model", planned=True),)
    return result(infos, cells, {row.name: row.title for row in ROWS}, **{"missing": missing, **more})


def joined(*cells: Cell, text: str = MADE_UP, **more: object) -> StudyResult:
    return join_published(result_of(*cells, **more), parse_table("made-up", text), ROWS)  # type: ignore[arg-type]


@pytest.fixture
def study() -> StudyResult:
    return joined(
        cell(TAU, "length", 0.5004),
        cell(TAU, "long", 0.6),
        cell(RHO, "length", 0.42, sd=0.01),
        cell(ACCURACY, "length", 0.5, "A"),
        cell(ACCURACY, "length", 0.5),
    )


def papers(table: Table, part: str | None = None) -> dict[str, list[str]]:
    """The published numbers × 100 with their marks, by title of the row; those of one part, or of all."""
    heads = [column.head for column in table.columns]
    ours = "paper" in heads or "diff" in heads
    return {
        row.title: [cell.marked for cell, head in zip(row.cells, heads, strict=True) if head == "paper" or not ours]
        for row in table.rows
        if part is None or row.part == part
    }


def by_title(rows: tuple[Row, ...]) -> dict[str, Row]:
    return {row.title: row for row in rows}


def test_rows_join_by_column_and_label(study: StudyResult) -> None:
    table = tables(study)[0]
    assert papers(table) == {
        "Length": ["50.0", "40.0 ±5.0"],
        "Length, long": ["51.0?", "41.0"],
        "TIGEr": ["53.0", "43.0"],
        "Sum": ["52.0*", ""],
    }
    rows = by_title(table.rows)
    assert [cell.value for cell in rows["Length"].cells] == ["50.0", "50.0", "+0.0", "42.0 ±1.0", "40.0 ±5.0", "+2.0"]
    assert rows["TIGEr"].cells[0].value == "missing"


def test_what_a_command_changes_is_the_reason_of_a_difference() -> None:
    cells = (cell(TAU, "length", 0.4), cell(TAU, "long", 0.6))
    changed = {"long": "long.words=2 (the study: 1)"}
    result = join_published(result_of(*cells), parse_table("made-up", MADE_UP), ROWS, changed)
    assert [(found.unexplained, found.published_note) for found in result.cells] == [
        (True, None),
        (False, "computed with long.words=2 (the study: 1)"),
    ]


def test_options_features_and_weights_of_a_command_replace_those_of_the_study(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5", "tiger.bin"):
        (tmp_path / name).touch()
    file = tmp_path / "study.yaml"
    file.write_text(
        "schema: 1\nname: x\nprotocols: [composite]\npublished: tiger-table1\n"
        f"metrics: [cider, {{label: coco, metric: cider, df: coco-val}}, bleu-4, wds]\nfeatures: {tmp_path / 'a.h5'}\n"
    )

    def changed(**given: Any) -> dict[str, str]:
        study = with_inputs(load_study(file), cast(MetricInputs, given))
        return changed_inputs(plan_study(study, DataRoot(sample_dir(), False, "test")))

    assert changed() == changed(options={"cider.df": "items"}) == {}
    assert changed(options={"df": "images"}) == {"cider": "cider.df=images (the study: items)"}
    assert changed(options={"coco.df": "images"}) == {"coco": "coco.df=images (the study: coco-val)"}
    a, b = tmp_path / "a.h5", tmp_path / "b.h5"
    assert changed(features={"tiger": b}) == {"tiger": f"features={b} (the study: {a})"}
    # The file leaves the weights open.
    assert changed(model={"tiger": tmp_path / "tiger.bin"}) == {}


def test_numbers_of_a_part_of_the_items_are_not_compared_with_published_ones() -> None:
    cells = (cell(TAU, "length", 0.75), cell(RHO, "length", 0.42, sd=0.01))
    part = info(TAU).model_copy(update={"n_items": 2, "n_items_whole": 6})
    result = joined(*cells, protocols=(part, info(RHO)))
    assert [found.published for found in result.cells] == [None, 0.4]
    assert not result.cells[0].unexplained
    first, *others = tables(result)
    assert [column.head for column in first.columns] == ["τ-b", "ρ", "paper", "diff"]
    assert papers(first)["Length"] == ["40.0 ±5.0"]
    # The paper's column is printed, apart from ours.
    (alone,) = [table for table in others if "part of the items" in table.title]
    assert [*papers(alone).values()][:2] == [["50.0"], ["51.0"]]


@pytest.mark.parametrize(
    ("label", "variant", "same"),
    [
        ("length", "", True),
        ("length", "long", False),
        ("long", "long", True),
        ("length-long", "long", True),
        ("long", "", False),
        ("mine", "long", False),
    ],
)
def test_a_label_names_the_variant_and_no_label_the_default(label: str, variant: str, same: bool) -> None:
    printed = parse_table("made-up", MADE_UP).rows[0].model_copy(update={"variant": variant})
    assert is_printed_as(metric_request.Row(ScoreColumn(label, "length"), "length", "x", "X"), printed) is same
    assert not is_printed_as(metric_request.Row(ScoreColumn(label, "negative"), "length", "x", "X"), printed)


def test_published_numbers_of_data_that_is_not_here_are_printed() -> None:
    gone = Missing(protocol=RHO, reason="there is no such file")
    study = joined(cell(TAU, "length", 0.5), protocols=(info(TAU),), missing=(gone,))
    block = tables(study)[-2]
    assert block.title == "Published, data not available"
    assert [*papers(block).values()] == [["40.0 ±5.0"], ["41.0"], ["43.0"]]


@pytest.mark.parametrize(
    ("row", "value", "sd", "protocol", "unexplained"),
    [
        # Printed .500: what rounds to it agrees.
        ("length", 0.5004, None, TAU, False),
        ("length", 0.5005, None, TAU, False),
        ("length", 0.5006, None, TAU, True),
        ("length", 0.4994, None, TAU, True),
        # Five draws each, printed .400 ± .050: three standard errors of the difference are .068.
        ("length", 0.468, 0.01, RHO, False),
        ("length", 0.469, 0.01, RHO, True),
        # Printed .410 without a deviation: the paper's draws are taken to vary as ours do, so that it is .019.
        ("long", 0.4289, 0.01, RHO, False),
        ("long", 0.4291, 0.01, RHO, True),
        # All draws alike: the printed digits count.
        ("long", 0.4104, 0.0, RHO, False),
        ("long", 0.4106, 0.0, RHO, True),
    ],
)
def test_a_difference_beyond_rounding_and_draws_is_said_to_be_unexplained(
    row: str, value: float, sd: float | None, protocol: str, unexplained: bool
) -> None:
    drawn = info(RHO).model_copy(update={"draws": 5})
    text = MADE_UP.replace("notes:", "draws: 5\nnotes:")
    study = joined(cell(protocol, row, value, sd=sd), protocols=(info(TAU), drawn), text=text)
    assert [c.unexplained for c in study.cells] == [unexplained]
    assert sum("?" in line for line in tables(study)[0].legend) == unexplained
    assert sum("?" in text for texts in papers(tables(study)[0]).values() for text in texts) == unexplained


@pytest.mark.parametrize(("value", "unexplained"), [(0.4428, False), (0.4430, True)])
def test_a_paper_that_draws_once_is_given_the_deviation_of_a_single_draw(value: float, unexplained: bool) -> None:
    # Printed .410: three standard errors are 3 · .01 · √(1 + 1/5) = .0329.
    drawn = info(RHO).model_copy(update={"draws": 5})
    study = joined(cell(RHO, "long", value, sd=0.01), protocols=(drawn,))
    assert [c.unexplained for c in study.cells] == [unexplained]


def test_a_percentage_is_compared_in_its_printed_digits() -> None:
    for value, off in ((0.5005, False), (0.5006, True)):  # printed 50.0
        study = joined(cell(ACCURACY, "length", value, "A"), protocols=(info(ACCURACY, ("A",)),))
        assert study.cells[0].unexplained == off


def test_a_difference_with_a_reason_is_not_unexplained() -> None:
    text = MADE_UP.replace('values: ["0.500",', 'values: [{value: "0.500", note: "another tokeniser"},')
    study = joined(cell(TAU, "length", 0.9), text=text)
    assert not study.cells[0].unexplained
    assert "* Length on Toy, τ-b: another tokeniser" in tables(study)[0].footnotes


def test_a_remark_that_tells_only_what_was_tried_leaves_the_number_unexplained() -> None:
    text = MADE_UP.replace('values: ["0.500",', 'values: [{value: "0.500", note: "not explained; tried: x (.7)"},')
    study = joined(cell(TAU, "length", 0.9), text=text)
    assert study.cells[0].unexplained
    table = tables(study)[0]
    assert table.legend == ("? Length on Toy, τ-b: not explained; tried: x (.7)",)
    assert papers(table)["Length"][0] == "50.0?"


READ_TWICE = MADE_UP.replace(
    "rows:\n",
    "  - {key: read, head: τ of the paper, reading_of: tau, protocol: toy/drawn/mean-tau-b, basis: inferred, "
    "unit: fraction}\nrows:\n",
)


@pytest.mark.parametrize(
    ("first", "second", "unexplained"),
    [(0.6, 0.5003, False), (0.5003, 0.6, False), (0.6, 0.6, True), (0.5, 0.5, False)],
)
def test_a_number_is_unexplained_only_if_it_agrees_under_no_reading(
    first: float, second: float, unexplained: bool
) -> None:
    again = "toy/drawn/mean-tau-b"
    cells = (cell(TAU, "length", first), cell(again, "length", second), cell(TAU, "long", 0.9))
    study = joined(*cells, protocols=(info(TAU), info(again)), text=READ_TWICE)
    # What one row agrees with says nothing of another row's number.
    assert [c.unexplained for c in study.cells] == [unexplained, unexplained, True]


DIGITS = "0123456789abcdef" * 4
AUTHORS = MADE_UP.replace(
    "metric: length, values", "metric: length, weights: scan-tiger, detectors: [bottom-up-caffe], values"
)


def registered(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    weights = replace(Status("", "here", "model_best.pth.tar", DIGITS, None, False, None, True), **changes)  # type: ignore[arg-type]
    missing = replace(weights, state="missing", sha256=None, fits=None)
    monkeypatch.setattr(
        "capbench.weights.registry.status",
        lambda name: weights if name == "scan-tiger" else replace(missing, name=name),
    )


def computed_with(
    model: str, detector: str = "bottom-up-caffe", text: str = AUTHORS, label: str = "length"
) -> StudyResult:
    line = f"length|capbench:0.1.0|model:{model}|features:{detector}+weights:0+mode:x|tau:1.5"
    signatures = {"toy/all": {label: line}}
    return joined(cell(TAU, label, 0.0581), signatures=signatures, text=text)


@pytest.mark.parametrize(
    ("model", "detector", "status", "given"),
    [
        (f"scan-{DIGITS[:16]}", "bottom-up-caffe", {}, ""),
        (f"vilbert-{DIGITS[:16]}", "bottom-up-caffe", {}, ""),
        (DIGITS[:16], "bottom-up-caffe", {}, ""),
        ("scan-ffffffffffffffff", "bottom-up-caffe", {}, "computed with the model scan-ffffffffffffffff"),
        (
            f"mean-of-2+scan-{DIGITS[:16]}+scan-{DIGITS[:16]}",
            "bottom-up-caffe",
            {},
            "computed with the model mean-of-2+",
        ),
        (f"scan-{DIGITS[:16]}", "grid:resnet50", {}, "computed with the features grid:resnet50"),
        (f"scan-{DIGITS[:16]}", "bottom-up-caffe", {"fits": False, "remark": "x"}, "computed with the model scan-0123"),
        (f"scan-{DIGITS[:16]}", "bottom-up-caffe", {"fits": None}, "computed with the model scan-0123"),
        (f"scan-{DIGITS[:16]}", "bottom-up-caffe", {"state": "wrong"}, "computed with the model scan-0123"),
    ],
)
def test_weights_are_the_authors_by_entry_shapes_and_features(
    monkeypatch: pytest.MonkeyPatch, model: str, detector: str, status: dict[str, object], given: str
) -> None:
    registered(monkeypatch, **status)
    study = computed_with(model, detector)
    notes = [note for note in tables(study)[0].notes if note.startswith("length: ")]
    assert len(notes) == bool(given)
    assert all(note.startswith(f"length: {given}") for note in notes)
    (line, *_) = csv.DictReader(io.StringIO(to_csv(study)))
    assert line["own_model"] == str(bool(given))
    # .0581 beside .500: a reason stands below the table, or it is marked.
    assert study.cells[0].unexplained == (not given)


def test_weights_of_another_variant_are_not_the_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch)
    study = computed_with(f"scan-{DIGITS[:16]}", label="long")
    assert known(study.published_table).authors == {}
    of_the_variant = AUTHORS.replace("variant: long", "variant: long\n    weights: scan-tiger")
    other = computed_with(f"scan-{DIGITS[:16]}", text=of_the_variant, label="long")
    assert known(other.published_table).authors == {"long": ("model",)}


def test_every_named_registry_entry_and_detector_exists() -> None:
    from capbench.features.detectors.base import names as detectors
    from capbench.weights.registry import entries

    rows = [row for name in names() for row in load_published(name).rows]
    weights = {row.weights for row in rows if row.weights}
    assert weights == {"scan-tiger", "vilbert-pretrained", "vilbert-multi-task", "clip-vit-b32", "pac-s-vit-b32"}
    assert all(entries()[name].shapes for name in weights)
    assert {entries()[name].steps for name in weights} == {"docs/paper-weights.md"}
    assert {detector for row in rows for detector in row.detectors} <= set(detectors())


# -- the studies that come with capbench ------------------------------------------------------------------------------

SHIPPED = {path.stem: load_study(path) for path in sorted(shipped_configs().glob("*.yaml"))}
COMPARED = sorted(name for name, study in SHIPPED.items() if study.published and load_published(study.published).rows)


def shipped_result(name: str) -> tuple[StudyResult, PublishedTable]:
    """A shipped study as if every metric but those that wait had been computed."""
    plan = plan_study(SHIPPED[name], DataRoot(sample_dir(), False, "test"))
    published = known(plan.published)
    infos, cells = [], []
    waiting = {row.name for request in plan.requests if request.lacks(plan.resources) for row in request.rows}
    for dataset, protocol in plan.protocols:
        spec = protocol.statistic
        groups = ("", *(dataset.groups or ())) if spec.kind == "accuracy" else ("",)
        given = {"dataset_title": dataset.title, "statistic": spec.label, "kind": spec.kind, "groups": groups[1:]}
        infos.append(protocol_info(str(protocol), dataset=dataset.name, n_items=6, **given))
        cells += [
            cell(str(protocol), row.name, 0.7654, group)
            for row in plan.rows
            for group in groups
            if row.name not in waiting
        ]
    result = result_of(
        *cells,
        title=SHIPPED[name].title,
        protocols=tuple(infos),
        columns={row.name: row.title for row in plan.rows},
        missing=tuple(Missing(column=column, title=column, reason="a model") for column in waiting),
    )
    return join_published(result, published, plan.rows), published


def places(table: Table, ours: set[tuple[str, str]]) -> list[tuple[str, str, str, str, str]]:
    """Title of the row, protocol, group, head and published number of every cell with one."""
    found = []
    for at, column in enumerate(table.columns):
        compared = "paper" in [following.head for following in table.columns[at + 1 : at + 2]]
        if column.head == "paper":
            place = (*table.columns[at - 1].place, table.columns[at - 1].head)
        elif not compared and column.head != "diff" and column.place not in ours:  # a published column alone
            place = (*column.place, column.head)
        else:
            continue
        found += [(row.title, *place, row.cells[at].value) for row in table.rows if row.cells[at].value]
    return found


def expected_places(result: StudyResult, table: PublishedTable) -> list[tuple[str, str | None, str, str, str]]:
    asked = {info.id for info in result.protocols}
    expected = []
    rows, columns = {row.key: row for row in table.rows}, {column.key: column for column in table.columns}
    for (column_key, row_key), number in table.values.items():
        row, column = rows[row_key], columns[column_key]
        if column.protocol is None or column.protocol in asked:
            # A row of a metric that capbench did not have when it was written down joins by its label.
            name = row.metric or row.label or ""
            if row.variant:  # one of ours only where the study asks for it by this label
                name = f"{row.variant}.{name}" if f"{row.variant}.{name}" in result.columns else row.variant
            title = result.columns.get(name) if column.protocol else None
            printed = rescaled(number.printed, {"fraction": 2}.get(column.unit, 0)).replace("± ", "±")
            expected.append((title or row.title, column.protocol, column.group, column.head, printed))
    return expected


@pytest.mark.parametrize("name", COMPARED)
def test_every_number_of_a_shipped_studys_table_stands_in_its_place(name: str) -> None:
    result, table = shipped_result(name)
    ours = {(info.id, "") for info in result.protocols} | {(cell.protocol, cell.group) for cell in result.cells}
    shown = [place for made in tables(result) for place in places(made, ours)]
    expected = expected_places(result, table)
    assert len(shown) == len(expected) > 0
    # Columns of ours have heads of ours, those without a protocol the paper's.
    assert sorted(place[:3] + place[4:] for place in shown) == sorted(
        (title, protocol or "", group, printed) for title, protocol, group, _, printed in expected
    )
    assert {place[3] for place in shown if not place[1]} == {
        head for _, protocol, _, head, _ in expected if not protocol
    }


def test_the_shipped_studies_print_every_published_number() -> None:
    printed: set[tuple[str, str, str]] = set()
    for name in COMPARED:
        result, table = shipped_result(name)
        asked = {info.id for info in result.protocols}
        protocols = {column.key: column.protocol for column in table.columns}
        printed |= {(table.name, *key) for key in table.values if protocols[key[0]] in (None, *asked)}
    every = {
        (name, *key): column
        for name in names()
        for column in load_published(name).columns
        for key in load_published(name).values
        if key[0] == column.key
    }
    # Rows that a table includes from another one have keys with a colon, and are counted there.
    assert sum(not column.reading_of and ":" not in row for (_, _, row), column in every.items()) == 585
    assert printed == set(every)


def test_a_row_of_a_metric_that_is_not_ours_is_found_by_its_label() -> None:
    table = load_published("field-2025")
    (fleur,) = [row for row in table.rows if row.key == "fleur"]
    elsewhere = metric_request.Row(ScoreColumn("fleur", "our_score"), "scores", "fleur", "FLEUR")
    assert is_printed_as(elsewhere, fleur)
    assert is_printed_as(replace(elsewhere, key=ScoreColumn("FLEUR", "our_score")), fleur)
    assert not is_printed_as(ROWS[0], fleur)
    assert not is_printed_as(replace(elsewhere, name="reffleur"), fleur)
