from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from capbench.core.errors import DataError, UsageError
from capbench.core.yaml import read_yaml
from capbench.studies.published import tables
from capbench.studies.published.tables import PrintedNumber, PublishedTable, load_published, names, parse_table

FOLDER = Path(tables.__file__).parent


def value(table: str, column: str, row: str) -> PrintedNumber:
    return load_published(table).values[column, row]


def test_every_table_of_the_five_papers_is_there() -> None:
    papers = {"tiger": 2, "faier": 6, "vilbertscore": 2, "reo": 1, "nneval": 3}
    tables = [f"{paper}-table{i}" for paper, n in papers.items() for i in range(1, n + 1)]
    assert names() == tuple(sorted([*tables, "faier-figure5", "field-2025", "field-2026"]))


@pytest.mark.parametrize("name", ["tiger-table2", "vilbertscore-table2", "reo-table1"])
def test_the_printed_mean_is_that_of_the_four_groups(name: str) -> None:
    table = load_published(name)
    for row in table.rows:
        parts = [Decimal(value(name, group, row.key).printed) for group in ("hc", "hi", "hm", "mm")]
        mean = value(name, "all", row.key)
        # Half a unit of the last digit for the mean's rounding and as much for that of the parts.
        assert abs(sum(parts, Decimal(0)) / 4 - Decimal(mean.printed)) <= Decimal(1).scaleb(-mean.digits), row.key


@pytest.mark.parametrize(
    ("table", "column", "row", "printed"),
    [
        ("tiger-table1", "flickr8k-tau", "cider", "0.439"),
        ("tiger-table1", "composite-rho", "tiger", "0.553"),
        ("tiger-table2", "mm", "tiger", "74.20"),
        ("faier-table1", "flickr8k-tau", "spice", "0.478"),
        ("faier-table1", "flickr8k-tau", "learn-to-eval-cited", "0.466"),
        ("faier-table2", "accuracy", "faier-4-ref", "76.8"),
        ("faier-table3", "hc", "meteor", "58.1 ± 1.30"),
        ("faier-table4", "composite-spearman", "aier-4-ref", "0.169"),
        ("faier-table5", "candidate-gt", "4-references", "5.92"),
        ("faier-table6", "text-to-image-10", "tiger", "0.819"),
        ("faier-figure5", "third", "meteor", "0.188"),
        ("faier-figure5", "third", "spice", "0.167"),
        ("faier-figure5", "third", "bleu-4", "7.08e-13"),
        ("vilbertscore-table1", "flickr8k-tau", "vilbertscore-f", "0.542"),
        ("vilbertscore-table2", "hm", "vilbertscore-r-pretrained", "98.3"),
        ("reo-table1", "publicsys-tau", "extraness-both", "0.320"),
    ],
)
def test_numbers_are_those_of_the_papers(table: str, column: str, row: str, printed: str) -> None:
    assert value(table, column, row).printed == printed


def test_every_published_number_of_2026_names_its_source_and_second_hand_ones_are_marked() -> None:
    table = load_published("field-2026")
    assert {row.label for row in table.rows if row.second_hand} == {"discode", "pearl", "beitscore"}
    second_hand = {row.key for row in table.rows if row.second_hand}
    for (_, row), number in table.values.items():
        assert any(str(year) in number.source for year in range(2018, 2027)), number
        assert ("second-hand" in (number.note or "")) == ("wizwand" in number.source) == (row in second_hand)
    assert {row.label for row in table.rows if row.uses_ratings} == {"polos", "expert"}
    assert {row.label for row in table.rows if row.label and row.reads_references is False} == {
        "clipscore", "pac-s", "fleur", "expert", "discode", "beitscore",
    }  # fmt: skip


def numbers_of(name: str, row: str) -> set[tuple[object, ...]]:
    table = load_published(name)
    places = {column.key: (column.protocol, column.group) for column in table.columns}
    return {(*places[key], number.value, number.sd) for (key, of), number in table.values.items() if of == row}


def test_included_rows_have_the_numbers_of_their_tables_in_the_units_of_the_column() -> None:
    table = load_published("field-2026")
    for row in table.rows:
        name, _, key = row.key.rpartition(":")
        if not name:
            continue
        ours, theirs = numbers_of(name, key), numbers_of(table.name, row.key)
        assert theirs
        assert theirs <= ours, row.key
    tiger = value(table.name, "expert-tau-c", "tiger-table1:tiger")
    assert (tiger.printed, tiger.value, tiger.digits) == ("49.3", 0.493, 1)
    assert value(table.name, "pascal-hc", "field-2025:clipscore").printed == "0.551"
    columns = {column.key: column.protocol for column in table.columns}
    assert not any(columns[key] == "flickr8k-expert/no-own-captions/unaggregated-tau-c"
                   for key, of in table.values if of.startswith("vilbertscore"))  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        "{table: tiger-table1, rows: [tigre]}",
        "{table: tiger-table1, columns: tau}",
        "{table: tigr-table1}",
        "{table: tiger-table1, uses_ratings: 1}",
    ],
)
def test_an_include_that_does_not_fit_is_one_error(entry: str) -> None:
    with pytest.raises((DataError, UsageError)):
        parse_table("made-up", f"{GOOD}include:\n  - {entry}\n")


GOOD = """
schema: 1
paper: {authors: A and B, title: A title, venue: V, year: 2020}
where: Table 1
description: One sentence.
columns:
  - {key: tau, head: τ, protocol: data/items/tau-b, basis: stated, unit: fraction}
  - {key: acc, head: acc., protocol: null, unit: percent}
rows:
  - {key: one, title: One, metric: bleu-1, values: ["0.100", null]}
  - {key: two, title: Two, metric: null, values: ["-.2", {value: "50 ± 1.5", note: odd}]}
"""


def test_a_table_is_read_as_documented() -> None:
    table: PublishedTable = parse_table("made-up", GOOD)
    assert table.source == "A and B (2020). A title. V. Table 1"
    assert ("acc", "one") not in table.values
    odd, negative = table.values["acc", "two"], table.values["tau", "two"]
    assert (odd.value, odd.sd, odd.digits, odd.note) == (0.5, 0.015, 0, "odd")
    assert negative.value == -0.2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("year: 2020", "year: soon"),
        ("data/items/tau-b", "tau-b"),
        ('"0.100"', "0.100"),
        ('"0.100"', '"0.1oo"'),
        (GOOD, "[]"),
    ],
)
def test_a_file_that_does_not_hold_what_it_should_is_refused(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(DataError) as caught:
        parse_table("made-up", GOOD.replace(old, new))
    assert caught.value.path == "made-up.yaml"


@pytest.mark.parametrize("name", names())
def test_shipped_tables_are_consistent(name: str) -> None:
    table = PublishedTable.model_validate({"name": name, **read_yaml(FOLDER / f"{name}.yaml", "a table")})
    columns, rows = table.columns, table.rows
    with_numbers = [column.key for column in columns if not column.reading_of]
    for unique in (
        [column.key for column in columns],
        [row.key for row in rows],
        [column.place for column in columns if column.protocol],
        [(row.metric, row.variant) for row in rows if row.metric],
    ):
        assert len(set(unique)) == len(unique)
    assert all(column.basis for column in columns if column.protocol)
    assert {column.reading_of for column in columns} <= {"", *with_numbers}
    assert {len(row.values) for row in rows} <= {len(with_numbers)}
    assert bool(rows) != bool(table.missing)


def test_protocols_and_metrics_that_tables_name_exist() -> None:
    from capbench.datasets.base import load_dataset
    from capbench.metrics.registry import metric_columns

    known = set(metric_columns())
    for name in names():
        table = load_published(name)
        for column in table.columns:
            if column.protocol:
                dataset = load_dataset(column.protocol.split("/")[0])
                assert str(dataset.protocol(column.protocol)) == column.protocol
        for row in table.rows:
            assert row.metric is None or row.metric in known, (name, row.metric)
