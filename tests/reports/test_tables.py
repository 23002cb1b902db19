"""Tables show ours, published and difference; what is missing stays as a row."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from capbench.reports.files import write_result
from capbench.reports.markup import to_csv, to_latex, to_markdown
from capbench.reports.tables import tables
from capbench.reports.terminal import print_result
from capbench.studies.results import Cell, Missing, ProtocolInfo, StudyResult, load_result

CORRELATION = "toy/all/tau-c"
ACCURACY = "pairs/five/direct-strict"


def _info(id_: str, kind: Literal["correlation", "accuracy"], groups: tuple[str, ...]) -> ProtocolInfo:
    return ProtocolInfo(
        id=id_,
        dataset=id_.split("/")[0],
        dataset_title=id_.split("/")[0].title(),
        statistic="τ-c" if kind == "correlation" else "accuracy",
        kind=kind,
        description="rules",
        groups=groups,
        notes=("2 pairs are left out",),
        n_items=12,
    )


def _cell(protocol: str, column: str, value: float, group: str = "", **more: object) -> Cell:
    return Cell.model_validate(
        {"protocol": protocol, "metric": column, "column": column, "title": column.upper(), "group": group}
        | {"value": value, "n": 36}
        | more
    )


@pytest.fixture
def result() -> StudyResult:
    return StudyResult(
        capbench="0.1.0",
        name="toy",
        title="A toy_study with 100 % & more",
        created="2020-01-01T00:00:00+00:00",
        sample=False,
        protocols=(_info(CORRELATION, "correlation", ()), _info(ACCURACY, "accuracy", ("HC", "HI"))),
        columns={"cider": "CIDER", "bleu": "BLEU", "tiger": "TIGEr"},
        signatures={"toy/all": {"cider": "cider|capbench:0.1.0|df:items", "bleu": "bleu|capbench:0.1.0"}},
        cells=(
            _cell(CORRELATION, "cider", 0.43894, published=0.439, published_digits=3, p_value=0.01, ties=3),
            _cell(
                CORRELATION, "bleu", 0.30781, published=0.138, published_digits=3, published_note="a likely misprint"
            ),
            _cell(ACCURACY, "cider", 0.76575, chance=0.5, published=0.7675, published_digits=2),
            _cell(ACCURACY, "cider", 0.542, "HC", chance=0.5, published=0.53, published_digits=2),
            _cell(ACCURACY, "cider", 0.9895, "HI", chance=0.5, published=0.98, published_digits=2),
            _cell(ACCURACY, "bleu", 0.7, chance=0.48, sd=0.0123),
            _cell(ACCURACY, "bleu", 0.6, "HC", chance=0.48),
            _cell(ACCURACY, "bleu", 0.8, "HI", chance=0.48),
        ),
        missing=(
            Missing(
                column="tiger",
                title="TIGEr",
                reason="region features",
                planned=True,
                published={f"{CORRELATION}|": "0.493"},
            ),
        ),
        published="A paper, Table 1",
        seconds={"toy/all": 1.5, "total": 2.0},
    )


def test_ours_published_and_difference_stand_side_by_side(result: StudyResult) -> None:
    first = tables(result)[0]
    cider, bleu, tiger = first.rows
    assert (cider.entries[0].ours, cider.entries[0].published) == ("0.4389", "0.439")
    assert cider.entries[0].difference == "-0.0001"
    assert bleu.entries[0].published == "0.138*"
    assert bleu.entries[0].difference == "+0.1698"
    assert tiger.missing == "region features"
    assert (tiger.entries[0].ours, tiger.entries[0].published) == ("", "0.493")
    assert any("misprint" in note for note in first.notes)
    assert any(CORRELATION in note and "36 ratings of 12 items" in note for note in first.notes)


def test_accuracies_are_percent_with_groups_and_mean(result: StudyResult) -> None:
    second = tables(result)[1]
    assert [column.head[1] for column in second.columns] == ["HC", "HI", "mean"]
    cider, bleu, _ = second.rows
    assert [entry.ours for entry in cider.entries] == ["54.20", "98.95", "76.58"]
    assert cider.entries[0].difference == "+1.20"
    assert bleu.entries[2].ours == "70.00 ±1.23"
    assert any("48.0 to 50.0 %" in note for note in second.notes)


@pytest.mark.parametrize("width", [60, 80, 160])
def test_the_terminal_table_fits_its_width_and_drops_nothing(result: StudyResult, width: int) -> None:
    stream = io.StringIO()
    print_result(result, Console(file=stream, width=width, no_color=True))
    text = stream.getvalue()
    for number in ("0.4389", "0.3078", "54.20", "98.95", "76.58", "70.00 ±1.23", "0.493"):
        assert number in text
    assert "TIGEr waits for region features" in text
    assert "cider|capbench:0.1.0|df:items" in text
    assert all(len(line.rstrip()) <= width for line in text.split("\n") if "─" in line or "0.4389" in line)


def test_markdown_tables_have_as_many_cells_in_every_row(result: StudyResult) -> None:
    for block in to_markdown(result).split("### ")[1:]:
        rows = [line.replace("\\|", "") for line in block.split("\n") if line.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1
    assert "**0.4389**" in to_markdown(result)
    assert "TIGEr: region features" in to_markdown(result)


def test_latex_escapes_and_counts_its_columns(result: StudyResult) -> None:
    text = to_latex(result)
    assert r"A toy\_study with 100 \% \& more" in text
    assert r"$\tau$-c" in text
    for block in text.split(r"\begin{tabular}")[1:]:
        columns = block.split("}")[0].count("r")
        body = block.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().split("\n")
        assert {line.replace(r"\&", "").count("&") for line in body} == {columns}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(result: StudyResult, tmp_path: Path) -> None:
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + to_latex(result) + r"\end{document}"
    (tmp_path / "t.tex").write_text(document, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()[-2000:]


def test_csv_has_full_precision_and_one_line_a_cell(result: StudyResult) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(result))))
    assert len(rows) == len(result.cells)
    assert float(rows[0]["value"]) == 0.43894
    assert float(rows[0]["difference"]) == pytest.approx(0.43894 - 0.439)
    assert rows[5]["published"] == ""


def test_a_written_result_is_read_back_equal(result: StudyResult, tmp_path: Path) -> None:
    paths = write_result(result, tmp_path / "toy")
    assert [path.name for path in paths] == ["results.json", "results.csv", "results.md", "results.tex"]
    assert load_result(paths[0]) == result


def test_a_result_without_any_number_still_prints(result: StudyResult) -> None:
    bare = result.model_copy(update={"cells": (), "protocols": ()})
    stream = io.StringIO()
    print_result(bare, Console(file=stream, width=100, no_color=True))
    assert "waits" in stream.getvalue()
    assert to_latex(bare)
    assert to_markdown(bare)
