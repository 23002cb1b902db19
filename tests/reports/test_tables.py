"""Tables show ours, published and difference; what is missing stays as a row."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from capbench.reports.markup import markdown_text, tex_text, to_csv, to_latex, to_markdown, write_result
from capbench.reports.tables import tables
from capbench.reports.terminal import print_result
from capbench.stats.pairs import Pair, Tests
from capbench.studies.results import (
    BootstrapInfo,
    Ceiling,
    Cell,
    Missing,
    ProtocolInfo,
    StudyResult,
    load_result,
)
from tests.reports.latex import assert_compiles, assert_well_formed, needs_pdflatex

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
            _cell(
                CORRELATION,
                "cider",
                0.43894,
                published=0.439,
                published_digits=3,
                published_printed="0.439",
                p_value=0.01,
                ties=3,
            ),
            _cell(
                CORRELATION,
                "bleu",
                0.30781,
                published=0.138,
                published_digits=3,
                published_printed="0.138",
                published_note="inferred: rounded",
            ),
            _cell(
                ACCURACY, "cider", 0.76575, chance=0.5, published=0.7675, published_digits=2, published_printed="76.75"
            ),
            _cell(
                ACCURACY,
                "cider",
                0.542,
                "HC",
                chance=0.5,
                published=0.53,
                published_digits=2,
                published_printed="53.00",
            ),
            _cell(
                ACCURACY,
                "cider",
                0.9895,
                "HI",
                chance=0.5,
                published=0.98,
                published_digits=2,
                published_printed="98.00",
            ),
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
    assert (tiger.entries[0].ours, tiger.entries[0].published) == ("", "")
    assert any("inferred: rounded" in note for note in first.notes)
    assert any(CORRELATION in note and "36 ratings of 12 items" in note for note in first.notes)


def test_beside_published_numbers_a_trained_metrics_model_is_named(result: StudyResult) -> None:
    assert not any("authors' model" in note for table in tables(result) for note in table.notes)
    signatures = {"toy/all": result.signatures["toy/all"] | {"bleu": "bleu|capbench:0.1.0|model:scan-0123|tau:1.5"}}
    notes = tables(result.model_copy(update={"signatures": signatures}))[0].notes
    expected = "BLEU: computed with the model scan-0123 (one network, one seed)"
    assert f"{expected}, which is not the paper's; the published numbers are those of the authors' model" in notes


def test_rows_that_share_a_model_are_told_apart_by_a_remark(result: StudyResult) -> None:
    model = "|capbench:0.1.0|model:scan-0123"
    for metrics, shared in ((["bleu"], False), (["bleu", "cider"], True)):
        signed = result.signatures["toy/all"] | {name: f"{name}{model}" for name in metrics}
        notes = tables(result.model_copy(update={"signatures": {"toy/all": signed}}))[0].notes
        (note,) = [note for note in notes if "model scan-0123" in note]
        assert ("--model LABEL=FILE" in note) == shared


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
    for number in ("0.4389", "0.3078", "54.20", "98.95", "76.58", "70.00 ±1.23"):
        assert number in text
    assert "TIGEr: requires region features" in text
    assert "cider|capbench:0.1.0|df:items" in text
    assert all(len(line.rstrip()) <= width for line in text.split("\n") if "─" in line or "0.4389" in line)


def test_markdown_escapes_what_would_be_formulas_or_entities() -> None:
    assert markdown_text("$a_1$ & *b* &lt;|") == r"\$a\_1\$ \& \*b\* \&lt;\|"


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


def test_latex_is_well_formed(result: StudyResult) -> None:
    assert_well_formed(to_latex(result))


@pytest.fixture
def starred(result: StudyResult) -> StudyResult:
    """A result with titles and notes that LaTeX would read as arguments of the row or the item before."""
    infos = tuple(info.model_copy(update={"notes": ("[a] note", "* another")}) for info in result.protocols)
    titles = {"cider": "[C]IDER", "bleu": "*BLEU", "tiger": "<TIGEr> | x"}
    return result.model_copy(update={"columns": titles, "protocols": infos, "published": None})


def test_latex_escapes_what_would_be_an_argument(starred: StudyResult) -> None:
    text = to_latex(starred)
    assert_well_formed(text)
    assert "\n{}[C]IDER & " in text
    assert "\n{}*BLEU & " in text
    assert "\n$<$TIGEr$>$ \\textbar{} x & " in text
    assert tex_text("-0.5† ±1") == r"$-$0.5$^{\dagger}$ $\pm$1"


@needs_pdflatex
@pytest.mark.parametrize("name", ["result", "starred"])
def test_latex_compiles(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert_compiles(to_latex(request.getfixturevalue(name)), tmp_path)


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


def test_titles_that_look_like_formulas_are_escaped_in_csv_alone(result: StudyResult, tmp_path: Path) -> None:
    first = result.cells[0].column
    cells = tuple(c.model_copy(update={"title": "=1+1"}) if c.column == first else c for c in result.cells)
    titled = result.model_copy(update={"cells": cells})
    write_result(titled, tmp_path / "plain")
    write_result(titled, tmp_path / "escaped", escape_formulas=True)
    plain, escaped = (
        list(csv.DictReader(io.StringIO((tmp_path / name / "results.csv").read_text(encoding="utf-8"))))
        for name in ("plain", "escaped")
    )
    assert plain[0]["title"] == "=1+1"
    assert [row | {"title": row["title"].removeprefix("'")} for row in escaped] == plain
    assert {row["title"] for row in escaped if row["column"] == first} == {"'=1+1"}
    for name in ("results.json", "results.md"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "escaped" / name).read_bytes()


@pytest.fixture
def tested(result: StudyResult) -> StudyResult:
    """The same with intervals, tests and the human ceiling."""

    def widened(cell: Cell) -> Cell:
        return cell.model_copy(update={"low": cell.number - 0.02004, "high": cell.number + 0.01004})

    info = BootstrapInfo(method="bca", level=0.9, unit="image", units=12, resamples=2000, seed=3)
    pair = Pair(better="cider", worse="bleu", difference=0.1, p_value=0.2, p_adjusted=0.2, significant=False)
    how = {"correction": "holm", "alpha": 0.05, "level": 0.9}
    drawn = {"test": "permutation", "unit": "image", "units": 12, "resamples": 2638, "requested": 1000, "seed": 3}
    both = Tests(
        **{"protocol": CORRELATION, "top": ("cider", "bleu"), "ranks": {"cider": 1, "bleu": 1}, "pairs": (pair,)}
        | how
        | drawn
    )
    formula = {"test": "mcnemar", "unit": None, "units": 36, "resamples": None, "requested": None, "seed": None}
    one = Tests(
        **{"protocol": ACCURACY, "top": ("cider",), "ranks": {"cider": 1, "bleu": 2}, "pairs": (pair,)} | how | formula
    )
    return result.model_copy(
        update={
            "cells": tuple(widened(cell) for cell in result.cells),
            "protocols": tuple(p.model_copy(update={"bootstrap": info}) for p in result.protocols),
            "comparisons": (both, one),
            "ceilings": (
                Ceiling(protocol=CORRELATION, value=0.55, low=0.53, high=0.58, n=36, method="leave-one-rater-out"),
                Ceiling(protocol=ACCURACY, group="HC", value=0.66, n=9, method="votes"),
            ),
        }
    )


def test_marks_stand_at_the_best_and_at_what_is_not_significantly_worse(tested: StudyResult) -> None:
    first, second = tables(tested)
    assert [row.entries[0].marked for row in first.rows] == ["0.4389†", "0.3078†", ""]
    assert [row.entries[2].marked for row in second.rows] == ["76.58†", "70.00 ±1.23", ""]
    assert [row.entries[0].marked for row in second.rows] == ["54.20", "60.00", ""]  # no tests in that group
    (note,) = [note for note in first.notes if note.startswith("†")]
    assert "permutation test (PERM-BOTH) over images, 2,638 permutations (1,000 are too few for 1 pair), seed 3" in note
    assert "Holm's correction over 1 pair per column, α = 0.05" in note
    (note,) = [note for note in second.notes if note.startswith("†")]
    assert "McNemar's test" in note
    assert first.ranks == ("Toy τ-c: 1 CIDER, BLEU",)
    assert second.ranks == ("Pairs mean: 1 CIDER; 2 BLEU",)


def test_intervals_are_shown_with_how_they_were_made(tested: StudyResult) -> None:
    first, second = tables(tested)
    assert first.rows[0].entries[0].interval == "[0.419, 0.449]"
    assert second.rows[0].entries[2].interval == "[74.6, 77.6]"
    note = "[low, high]: 90 % bootstrap intervals (BCa) over images, 2,000 resamples, seed 3"
    assert note in first.notes
    assert note in second.notes
    assert any("36 ratings of 12 items, 12 images resampled" in line for line in first.notes)


def test_the_human_ceiling_is_a_row_of_its_own_and_never_the_best(tested: StudyResult) -> None:
    first, second = tables(tested)
    assert "human ceiling" not in [row.title for row in first.rows]
    assert first.ceiling is not None
    assert (first.ceiling.entries[0].ours, first.ceiling.entries[0].interval) == ("0.5500", "[0.530, 0.580]")
    assert first.columns[0].best == "0.4389"
    assert second.ceiling is not None
    assert [entry.ours for entry in second.ceiling.entries] == ["66.00", "", ""]
    assert any("leave one rater out" in note for note in first.notes)
    assert any("one voter against the majority" in note for note in second.notes)
    assert "**0.5500**" not in to_markdown(tested)
    assert r"\textbf{0.5500}" not in to_latex(tested)


@pytest.mark.parametrize("width", [50, 80, 100, 200])
def test_the_terminal_shows_marks_and_intervals_at_any_width(tested: StudyResult, width: int) -> None:
    stream = io.StringIO()
    print_result(tested, Console(file=stream, width=width, no_color=True))
    lines = stream.getvalue().split("\n")
    text = "\n".join(lines)
    for part in ("0.4389†", "[0.419, 0.449]", "76.58†", "[74.6, 77.6]", "human ceiling", "[0.530, 0.580]"):
        assert part in text
    assert "ranks, Toy τ-c: 1 CIDER, BLEU" in text.replace("\n", " ")
    shown = [line.rstrip() for line in lines if ("†" in line and "worse" not in line) or "[7" in line]
    assert all(len(line) <= width for line in shown)


def test_values_with_and_without_a_mark_stand_below_each_other(tested: StudyResult) -> None:
    stream = io.StringIO()
    print_result(tested, Console(file=stream, width=200, no_color=True))
    marked = next(line for line in stream.getvalue().split("\n") if "76.58†" in line)
    without = next(line for line in stream.getvalue().split("\n") if "70.00" in line)
    assert marked.index("[74.6") == without.index("[68.0")


def test_markdown_and_latex_show_what_the_terminal_shows(tested: StudyResult) -> None:
    text = to_markdown(tested)
    assert "| **0.4389†** [0.419, 0.449] |" in text
    assert "| human ceiling | 0.5500 [0.530, 0.580] |" in text
    assert "- ranks, Toy τ-c: 1 CIDER, BLEU" in text
    tex = to_latex(tested)
    assert r"\textbf{0.4389$^{\dagger}$}" in tex
    assert r"{\scriptsize [0.419, 0.449]}" in tex
    assert r"$\alpha$ = 0.05" in tex
    assert "% ranks, Toy τ-c: 1 CIDER, BLEU" in tex
    for block in tex.split(r"\begin{tabular}")[1:]:
        columns = block.split("}")[0].count("r")
        body = block.split(r"\midrule", 1)[1].split(r"\bottomrule")[0].strip().split("\n")
        assert {line.replace(r"\&", "").count("&") for line in body if line != r"\midrule"} == {columns}


def test_latex_sets_real_minus_signs_in_intervals(tested: StudyResult) -> None:
    cell = tested.cells[0].model_copy(update={"low": -0.25, "high": 0.5})
    text = to_latex(tested.model_copy(update={"cells": (cell, *tested.cells[1:])}))
    assert r"{\scriptsize [$-$0.250, 0.500]}" in text


def test_latex_with_intervals_and_marks_is_well_formed(tested: StudyResult) -> None:
    assert_well_formed(to_latex(tested))


@needs_pdflatex
def test_latex_with_intervals_and_marks_compiles(tested: StudyResult, tmp_path: Path) -> None:
    assert_compiles(to_latex(tested), tmp_path)


def test_csv_holds_intervals_ranks_and_the_ceiling(tested: StudyResult) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(tested))))
    assert float(rows[0]["low"]) == tested.cells[0].low
    assert [(row["rank"], row["top"]) for row in rows[:2]] == [("1", "True"), ("1", "True")]
    assert (rows[5]["rank"], rows[5]["top"]) == ("2", "False")
    assert rows[3]["rank"] == ""
    assert [row["group"] for row in rows if row["metric"] == "human-ceiling"] == ["", "HC"]


def test_pairs_have_a_file_of_their_own_that_goes_with_them(
    result: StudyResult, tested: StudyResult, tmp_path: Path
) -> None:
    paths = write_result(tested, tmp_path)
    assert load_result(paths[0]) == tested
    assert paths[-1].name == "comparisons.csv"
    first, second = csv.DictReader(io.StringIO(paths[-1].read_text(encoding="utf-8")))
    assert (first["better"], first["worse"], first["p_adjusted"], first["test"]) == (
        "cider",
        "bleu",
        "0.2",
        "permutation",
    )
    assert (second["test"], second["resamples"]) == ("mcnemar", "")
    assert write_result(result, tmp_path)[-1].name == "results.tex"
    assert not paths[-1].exists()


def test_a_result_without_any_number_still_prints(result: StudyResult) -> None:
    bare = result.model_copy(update={"cells": (), "protocols": ()})
    stream = io.StringIO()
    print_result(bare, Console(file=stream, width=100, no_color=True))
    assert "requires region features" in stream.getvalue()
    assert to_latex(bare)
    assert to_markdown(bare)
