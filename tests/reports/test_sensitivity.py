"""The tables of all protocols show value, rank and change, in every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from capbench.reports.sensitivity import (
    blocks,
    print_sensitivity,
    summary,
    to_latex,
    to_markdown,
    write_sensitivity,
)
from capbench.studies.results import (
    Cell,
    Missing,
    ProtocolInfo,
    ProtocolRanking,
    Sensitivity,
    SensitivityResult,
    StudyResult,
)
from tests.reports.latex import assert_compiles, needs_pdflatex

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
    assert "0 of 3 other protocols rank the metrics as it does" in lines
    assert "first: CIDER under 2, BLEU_4 under 2, ROUGE under 1 of 4" in lines
    assert any("furthest from it: toy/all_pairs/single-tau-b" in line and "-1.00" in line for line in lines)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_terminal_drops_nothing(found: SensitivityResult, width: int) -> None:
    stream = io.StringIO()
    print_sensitivity(found, Console(file=stream, width=width, no_color=True))
    text = stream.getvalue()
    for part in ("0.650 1▲1", "0.100 3▼2", "75.0 1▲1", "TIGEr waits for weights", "1 protocols not computed"):
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
