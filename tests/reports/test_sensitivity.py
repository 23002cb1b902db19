"""The tables of all protocols show value, rank and change, in every format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from capbench.reports.markup import latex, markdown_table
from capbench.reports.sensitivity import reversals_table, sensitivity_document, summary, tables, write_sensitivity
from capbench.reports.table import Table
from capbench.reports.terminal import print_document
from capbench.stats.pairs import Pair, Tests
from capbench.studies.all_protocols import ProtocolRanking, Reversal, Sensitivity, SensitivityResult
from capbench.studies.results import (
    Cell,
    Missing,
    ProtocolInfo,
    StudyResult,
)
from tests.reports.latex import assert_compiles, assert_well_formed, needs_pdflatex

VALUES = {
    "toy/all_pairs/mean-tau-b": (0.5, 0.4, 0.3),
    "toy/all_pairs/mean-spearman": (0.6, 0.65, 0.1),
    "toy/all_pairs/single-tau-b": (0.1, 0.2, 0.3),
    "toy/few/votes-strict": (0.75, 0.75, 0.5),
}
NAMES = ("cider", "bleu_4", "rouge")
RANKS = ((1, 2, 3), (2, 1, 3), (3, 2, 1), (1, 1, 3))
TAUS = (1.0, 1 / 3, -1.0, 0.8165)


@pytest.fixture
def found() -> SensitivityResult:
    infos = [
        ProtocolInfo(
            id=id_,
            dataset="toy",
            dataset_title="Toy",
            statistic="x",
            kind="accuracy" if "votes" in id_ else "correlation",
            description="rules",
            n_items=6,
        )
        for id_ in VALUES
    ]
    cells = [
        Cell(protocol=id_, metric=name, column=name, title=name.upper(), value=value, n=12)
        for id_, values in VALUES.items()
        for name, value in zip(NAMES, values, strict=True)
    ]
    result = StudyResult(
        capbench="0.1.0",
        name="toy",
        title="Toy",
        created="2020-01-01T00:00:00+00:00",
        sample=False,
        protocols=tuple(infos),
        columns={name: name.upper() for name in NAMES} | {"tiger": "TIGEr"},
        signatures={},
        cells=tuple(cells),
        missing=(
            Missing(protocol="toy/gone/mean-tau-b", reason="there is no such file"),
            Missing(column="tiger", title="TIGEr", reason="weights", planned=True),
        ),
        seconds={"total": 1.0},
    )
    rankings = [
        ProtocolRanking(
            id=id_,
            items=id_.split("/")[1],
            statistic=id_.split("/")[2],
            used_by=("paper-table1",) if id_.endswith("spearman") else (),
            values=dict(zip(NAMES, values, strict=True)),
            ranks=dict(zip(NAMES, of_protocol, strict=True)),
            moves={name: base - rank for name, base, rank in zip(NAMES, RANKS[0], of_protocol, strict=True)},
            tau=tau,
        )
        for (id_, values), of_protocol, tau in zip(VALUES.items(), RANKS, TAUS, strict=True)
    ]
    toy = Sensitivity(
        dataset="toy",
        title="Toy",
        default="toy/all_pairs/mean-tau-b",
        protocols=tuple(rankings),
    )
    return SensitivityResult(result=result, datasets=(toy,))


@pytest.fixture
def tested(found: SensitivityResult) -> SensitivityResult:
    """Tests under all protocols but one; ROUGE over CIDEr is real under two of the other ones."""
    tops = {"mean-tau-b": ("cider",), "mean-spearman": ("bleu_4", "cider"), "votes-strict": ("cider", "bleu_4")}
    pair = Pair(better="cider", worse="rouge", difference=0.2, p_value=0.01, p_adjusted=0.03, significant=True)
    how: dict[str, Any] = {"test": "permutation", "correction": "bh", "alpha": 0.05, "unit": "image", "units": 6}
    how |= {"resamples": 1000, "seed": 7, "level": None, "ranks": {}, "pairs": (pair,)}
    comparisons = tuple(
        Tests(protocol=id_, top=tops[id_.split("/")[2]], **how) for id_ in VALUES if "single" not in id_
    )
    note = {"notes": ("toy/all_pairs/single-tau-b: no tests between metrics: one image",)}
    infos = tuple(info.model_copy(update=note if "single" in info.id else {}) for info in found.result.protocols)
    reversals = tuple(
        Reversal(
            protocol=f"toy/{protocol}",
            better=better,
            worse="cider",
            difference=difference,
            default_difference=-0.2 if better == "rouge" else -0.1,
            p_adjusted=0.01 if real else None,
            default_p_adjusted=0.03,
            real=real,
        )
        for protocol, better, difference, real in (
            ("all_pairs/mean-spearman", "bleu_4", 0.05, True),
            ("all_pairs/mean-spearman", "rouge", 0.04, True),
            ("all_pairs/single-tau-b", "rouge", 0.2, False),
            ("few/votes-strict", "rouge", 0.025, True),
        )
    )
    result = found.result.model_copy(update={"comparisons": comparisons, "protocols": infos})
    toy = found.datasets[0].model_copy(update={"reversals": reversals})
    return found.model_copy(update={"result": result, "datasets": (toy,)})


def cells(table: Table) -> dict[str, tuple[str, ...]]:
    return {row.title: tuple(cell.value for cell in row.cells) for row in table.rows}


def test_entries_are_value_mark_rank_and_change(found: SensitivityResult, tested: SensitivityResult) -> None:
    first, second = tables(found)
    assert [(column.group, column.head) for column in first.columns] == [
        ("mean", "τ-b *"),
        ("mean", "ρ"),
        ("single", "τ-b"),
    ]
    assert cells(first) == {
        "CIDER": ("50.0 1", "60.0 2▼1", "10.0 3▼2"),
        "BLEU_4": ("40.0 2", "65.0 1▲1", "20.0 2"),
        "ROUGE": ("30.0 3", "10.0 3", "30.0 1▲2"),
        "τ with *": ("1.00", "0.33", "-1.00"),
    }
    assert cells(second)["BLEU_4"] == ("75.0 1▲1",)
    assert "toy/all_pairs/mean-spearman is the protocol of paper-table1" in first.notes
    first, second, _ = tables(tested)
    assert cells(first)["CIDER"] == ("50.0† 1", "60.0† 2▼1", "10.0 3▼2")
    assert cells(first)["ROUGE"] == ("30.0  3", "10.0  3", "30.0 1▲2")
    assert cells(second)["ROUGE"] == ("50.0  3",)


def test_the_summary_counts_rankings_winners_and_real_reversals(
    tested: SensitivityResult, found: SensitivityResult
) -> None:
    untested = summary(found, found.datasets[0])
    assert untested == [
        "0 of 3 other protocols rank the metrics as * does",
        "first: CIDER under 2, BLEU_4 under 2, ROUGE under 1 of 4",
        "furthest from *: toy/all_pairs/single-tau-b (τ between the rankings -1.00)",
    ]
    assert summary(tested, tested.datasets[0]) == [
        *untested,
        "no tests under 1 of 4 protocols (toy/all_pairs/single-tau-b): one image",
        "of 4 pairs × protocols with another order than under *, 3 are significant in both (really reversed)",
        "CIDER, the best under *, is significantly worse than the best under 0 of 2 other protocols",
    ]
    reversals = reversals_table(tested, tested.datasets[0])
    assert reversals is not None
    assert cells(reversals) == {
        "ROUGE over CIDER": ("-20.0", "all_pairs/mean-spearman +4.0, few/votes-strict +2.5"),
        "BLEU_4 over CIDER": ("-10.0", "all_pairs/mean-spearman +5.0"),
    }
    assert reversals_table(found, found.datasets[0]) is None
    comparisons = tuple(replace(c, top=("bleu_4",)) for c in tested.result.comparisons[1:])
    result = tested.result.model_copy(update={"comparisons": (tested.result.comparisons[0], *comparisons)})
    lines = summary(tested.model_copy(update={"result": result}), tested.datasets[0])
    assert "CIDER, the best under *, is significantly worse than the best under 2 of 2 other protocols" in lines


def test_a_single_metric_has_nothing_to_test(tested: SensitivityResult) -> None:
    rankings = [
        p.model_copy(update={"values": {"cider": 0.5}, "ranks": {"cider": 1}}) for p in tested.datasets[0].protocols
    ]
    data = tested.datasets[0].model_copy(update={"protocols": tuple(rankings), "reversals": ()})
    assert summary(tested, data) == ["one metric: there is no pair to test"]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_terminal_drops_nothing(tested: SensitivityResult, width: int) -> None:
    stream = io.StringIO()
    print_document(sensitivity_document(tested), Console(file=stream, width=width, no_color=True))
    text = stream.getvalue()
    for part in ("65.0† 1▲1", "10.0 3▼2", "75.0† 1▲1", "TIGEr: requires weights", "1 protocols not computed", "+2.5"):
        assert part in text
    assert all(len(line.rstrip()) <= width for line in text.split("\n") if "▲" in line and "value, rank" not in line)


def test_markdown_and_latex_escape_names(tested: SensitivityResult) -> None:
    first = markdown_table(tables(tested)[0])
    assert "| BLEU\\_4 | 40.0 2 |" in first
    text = latex(sensitivity_document(tested))
    assert r"60.0$^{\dagger}$ 2$\downarrow$1" in text
    assert_well_formed(text)


@needs_pdflatex
def test_latex_compiles(tested: SensitivityResult, tmp_path: Path) -> None:
    assert_compiles(latex(sensitivity_document(tested)), tmp_path)


def test_tests_are_written_and_removed_by_a_run_without_them(
    tested: SensitivityResult, found: SensitivityResult, tmp_path: Path
) -> None:
    paths = write_sensitivity(tested, tmp_path)
    assert SensitivityResult.model_validate(json.loads(paths[0].read_text(encoding="utf-8"))) == tested
    rows = list(csv.DictReader(io.StringIO(paths[3].read_text(encoding="utf-8"))))
    assert [row["top"] for row in rows[:9]] == ["True", "False", "False", "True", "True", "False", "", "", ""]
    assert (len(rows), rows[4]["move"], rows[3]["used_by"]) == (12, "1", "paper-table1")
    assert [path.name for path in paths[4:]] == ["all-protocols-comparisons.csv", "all-protocols-reversals.csv"]
    tests, reversals = (list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))) for path in paths[4:])
    assert [test["protocol"] for test in tests] == [id_ for id_ in VALUES if "single" not in id_]
    assert [(row["better"], row["real"], row["p_adjusted"]) for row in reversals] == [
        ("bleu_4", "True", "0.01"),
        ("rouge", "True", "0.01"),
        ("rouge", "False", ""),
        ("rouge", "True", "0.01"),
    ]
    again = write_sensitivity(found, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("all")} == {path.name for path in again}
    assert "top" not in again[-1].read_text(encoding="utf-8").split("\n")[0]
