"""The tables of all protocols show value, rank and change, in every format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from capbench.reports.sensitivity import (
    blocks,
    print_sensitivity,
    real_reversals,
    summary,
    to_latex,
    to_markdown,
    write_sensitivity,
)
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
        taus=tuple((None,) * 4 for _ in rankings),
    )
    return SensitivityResult(result=result, datasets=(toy,))


@pytest.fixture
def tested(found: SensitivityResult) -> SensitivityResult:
    """Tests under all protocols but one; ROUGE over CIDEr is real under two of the other ones."""
    tops = {"mean-tau-b": ("cider",), "mean-spearman": ("bleu_4", "cider"), "votes-strict": ("cider", "bleu_4")}
    pair = Pair(better="cider", worse="rouge", difference=0.2, p_value=0.01, p_adjusted=0.03, significant=True)
    comparisons = tuple(
        Tests(
            protocol=id_,
            test="permutation",
            correction="bh",
            alpha=0.05,
            unit="image",
            units=6,
            resamples=1000,
            seed=7,
            level=None,
            top=tops[id_.split("/")[2]],
            ranks={},
            pairs=(pair,),
        )
        for id_ in VALUES
        if "single" not in id_
    )
    infos = [
        info.model_copy(update={"notes": (f"{info.id}: no tests between metrics: one image",)})
        if "single" in info.id
        else info
        for info in found.result.protocols
    ]

    def reversal(protocol: str, better: str, difference: float, real: bool) -> Reversal:
        return Reversal(
            protocol=f"toy/{protocol}",
            better=better,
            worse="cider",
            difference=difference,
            default_difference=-0.2 if better == "rouge" else -0.1,
            p_adjusted=0.01 if real else None,
            default_p_adjusted=0.03,
            real=real,
        )

    reversals = (
        reversal("all_pairs/mean-spearman", "bleu_4", 0.05, True),
        reversal("all_pairs/mean-spearman", "rouge", 0.04, True),
        reversal("all_pairs/single-tau-b", "rouge", 0.2, False),
        reversal("few/votes-strict", "rouge", 0.025, True),
    )
    result = found.result.model_copy(update={"comparisons": comparisons, "protocols": tuple(infos)})
    toy = found.datasets[0].model_copy(update={"reversals": reversals})
    return found.model_copy(update={"result": result, "datasets": (toy,)})


def test_what_is_not_significantly_worse_than_the_best_is_marked(tested: SensitivityResult) -> None:
    first, second = blocks(tested, tested.datasets[0])
    assert dict(first.rows) == {
        "CIDER": ("0.500† 1", "0.600† 2▼1", "0.100 3▼2"),
        "BLEU_4": ("0.400  2", "0.650† 1▲1", "0.200 2"),
        "ROUGE": ("0.300  3", "0.100  3", "0.300 1▲2"),
    }
    assert dict(second.rows)["ROUGE"] == ("50.0  3",)
    assert "0.500† 1 | 0.600† 2▼1" in to_markdown(tested)
    assert "| 0.400 2 |" in to_markdown(tested)
    assert r"0.600$^{\dagger}$ 2$\downarrow$1" in to_latex(tested)


def test_the_summary_says_which_reversals_are_real(tested: SensitivityResult, found: SensitivityResult) -> None:
    lines = summary(tested, tested.datasets[0])
    for line in (
        "† the best of its column, or not significantly worse: permutation test (PERM-BOTH) over images, 1,000 "
        "permutations, seed 7; Benjamini and Hochberg's correction over 1 pair per column, α = 0.05",
        "no tests under 1 of 4 protocols (toy/all_pairs/single-tau-b): one image",
        "of 4 pairs × protocols with another order than under *, 3 are significant in both (really reversed)",
        "CIDER, the best under *, is significantly worse than the best under 0 of 2 other protocols",
    ):
        assert line in lines
    assert real_reversals(tested, tested.datasets[0]) == [
        ("ROUGE over CIDER", "-0.200", [("all_pairs/mean-spearman", "+0.040"), ("few/votes-strict", "+2.5")]),
        ("BLEU_4 over CIDER", "-0.100", [("all_pairs/mean-spearman", "+0.050")]),
    ]
    untested = summary(found, found.datasets[0])
    assert set(untested) < set(lines)
    assert not any("†" in line or "revers" in line for line in untested)
    assert real_reversals(found, found.datasets[0]) == []


def test_the_best_of_the_default_is_counted_where_it_is_significantly_worse(tested: SensitivityResult) -> None:
    comparisons = tuple(replace(c, top=("bleu_4",)) for c in tested.result.comparisons[1:])
    result = tested.result.model_copy(update={"comparisons": (tested.result.comparisons[0], *comparisons)})
    lines = summary(tested.model_copy(update={"result": result}), tested.datasets[0])
    assert "CIDER, the best under *, is significantly worse than the best under 2 of 2 other protocols" in lines


def test_every_format_lists_the_real_reversals(tested: SensitivityResult) -> None:
    stream = io.StringIO()
    print_sensitivity(tested, Console(file=stream, width=80, no_color=True))
    listed = "ROUGE over CIDER (-0.200 under *): all_pairs/mean-spearman +0.040, few/votes-strict +2.5"
    assert listed in stream.getvalue()
    assert f"  - {listed}".replace("_", r"\_").replace("*", r"\*") in to_markdown(tested)
    table = to_latex(tested).split(r"\begin{table}")[-1]
    assert r"ROUGE over CIDER & $-$0.200 & all\_pairs/\allowbreak mean-spearman +0.040, few/" in table


def test_latex_with_reversals_is_well_formed(tested: SensitivityResult) -> None:
    assert_well_formed(to_latex(tested))


@needs_pdflatex
def test_latex_with_reversals_compiles(tested: SensitivityResult, tmp_path: Path) -> None:
    assert_compiles(to_latex(tested), tmp_path)


def test_a_single_metric_has_nothing_to_test(tested: SensitivityResult) -> None:
    rankings = [
        p.model_copy(update={"values": {"cider": 0.5}, "ranks": {"cider": 1}}) for p in tested.datasets[0].protocols
    ]
    data = tested.datasets[0].model_copy(update={"protocols": tuple(rankings), "reversals": ()})
    assert summary(tested, data)[1:] == ("one metric: there is no pair to test",)


def test_tests_are_written_and_removed_by_a_run_without_them(
    tested: SensitivityResult, found: SensitivityResult, tmp_path: Path
) -> None:
    paths = write_sensitivity(tested, tmp_path)
    assert SensitivityResult.model_validate(json.loads(paths[0].read_text(encoding="utf-8"))) == tested
    rows = list(csv.DictReader(io.StringIO(paths[1].read_text(encoding="utf-8"))))
    assert [row["top"] for row in rows[:9]] == ["True", "False", "False", "True", "True", "False", "", "", ""]
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
    assert "top" not in again[1].read_text(encoding="utf-8").split("\n")[0]


def test_entries_are_value_rank_and_change(found: SensitivityResult) -> None:
    first, second = blocks(found, found.datasets[0])
    assert first.heads == (("mean", "τ-b *"), ("mean", "ρ"), ("single", "τ-b"))
    assert dict(first.rows) == {
        "CIDER": ("0.500 1", "0.600 2▼1", "0.100 3▼2"),
        "BLEU_4": ("0.400 2", "0.650 1▲1", "0.200 2"),
        "ROUGE": ("0.300 3", "0.100 3", "0.300 1▲2"),
    }
    assert first.taus == ("1.00", "0.33", "-1.00")
    assert dict(second.rows)["BLEU_4"] == ("75.0 1▲1",)
    assert first.notes == ("toy/all_pairs/mean-spearman is the protocol of paper-table1",)


def test_protocols_that_share_a_head_stay_together_if_they_fit(found: SensitivityResult) -> None:
    widths = [len(block.heads) for block in blocks(found, found.datasets[0], 2)]
    assert widths == [2, 1, 1]
    assert [len(block.heads) for block in blocks(found, found.datasets[0], 1)] == [1, 1, 1, 1]


def test_the_summary_counts_rankings_and_winners(found: SensitivityResult) -> None:
    lines = summary(found, found.datasets[0])
    assert "0 of 3 other protocols rank the metrics as * does" in lines
    assert "first: CIDER under 2, BLEU_4 under 2, ROUGE under 1 of 4" in lines
    assert any("furthest from *: toy/all_pairs/single-tau-b" in line and "-1.00" in line for line in lines)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_terminal_drops_nothing(found: SensitivityResult, width: int) -> None:
    stream = io.StringIO()
    print_sensitivity(found, Console(file=stream, width=width, no_color=True))
    text = stream.getvalue()
    for part in ("0.650 1▲1", "0.100 3▼2", "75.0 1▲1", "TIGEr: requires weights", "1 protocols not computed"):
        assert part in text
    assert all(len(line.rstrip()) <= width for line in text.split("\n") if "▲" in line and "entries" not in line)


def test_markdown_rows_have_as_many_cells(found: SensitivityResult) -> None:
    text = to_markdown(found)
    for block in text.split("### ")[1:]:
        rows = [line for line in block.split("\n") if line.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1
    assert "BLEU\\_4" in text
    assert "there is no such file" in text


def test_latex_has_as_many_cells_and_escapes(found: SensitivityResult) -> None:
    text = to_latex(found)
    assert r"0.650 1$\uparrow$1" in text
    assert r"all\_pairs" in text
    for block in text.split(r"\begin{tabular}")[1:]:
        columns = block.split("}")[0].count("l") - 1
        body = block.split(r"\midrule")[1].strip().split("\n")
        assert {line.count("&") for line in body} == {columns}


def test_latex_is_well_formed(found: SensitivityResult) -> None:
    assert_well_formed(to_latex(found))


@needs_pdflatex
def test_latex_compiles(found: SensitivityResult, tmp_path: Path) -> None:
    assert_compiles(to_latex(found), tmp_path)


def test_written_files_hold_everything(found: SensitivityResult, tmp_path: Path) -> None:
    paths = write_sensitivity(found, tmp_path / "out")
    assert [path.suffix for path in paths] == [".json", ".csv", ".md", ".tex"]
    assert SensitivityResult.model_validate(json.loads(paths[0].read_text(encoding="utf-8"))) == found
    rows = list(csv.DictReader(io.StringIO(paths[1].read_text(encoding="utf-8"))))
    assert len(rows) == 12
    assert rows[4]["move"] == "1"
    assert rows[3]["used_by"] == "paper-table1"
