"""The tables of all protocols show value, rank and change, in every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from capbench.reports.markup import latex, markdown
from capbench.reports.sensitivity import sensitivity_document, write_sensitivity
from capbench.reports.terminal import print_document
from capbench.stats.pairs import Pair, Tests
from capbench.studies.all_protocols import ProtocolRanking, Sensitivity, SensitivityResult
from capbench.studies.results import Missing
from tests.reports.golden import assert_golden
from tests.reports.latex import assert_well_formed
from tests.reports.toy import study

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
    missing = (
        Missing(protocol="toy/gone/mean-tau-b", reason="there is no such file"),
        Missing(column="tiger", title="TIGEr", reason="weights", planned=True),
    )
    values = {id_: dict(zip(NAMES, of_protocol, strict=True)) for id_, of_protocol in VALUES.items()}
    result = study(values, missing=missing, columns={name: name.upper() for name in NAMES} | {"tiger": "TIGEr"})
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
    tops = {"mean-tau-b": ("cider",), "mean-spearman": ("bleu_4", "cider"), "votes-strict": ("cider", "bleu_4")}
    pair = Pair(better="cider", worse="rouge", difference=0.2, p_value=0.01, p_adjusted=0.03, significant=True)
    how: dict[str, Any] = {"test": "permutation", "correction": "bh", "alpha": 0.05, "unit": "image", "units": 6}
    how |= {"resamples": 1000, "seed": 7, "level": None, "ranks": {}, "pairs": (pair,)}
    comparisons = tuple(
        Tests(protocol=id_, top=tops[id_.split("/")[2]], **how) for id_ in VALUES if "single" not in id_
    )
    note = {"notes": ("toy/all_pairs/single-tau-b: no tests between metrics: one image",)}
    infos = tuple(info.model_copy(update=note if "single" in info.id else {}) for info in found.result.protocols)
    result = found.result.model_copy(update={"comparisons": comparisons, "protocols": infos})
    return found.model_copy(update={"result": result})


def test_tables_are_those_of_the_golden_files(found: SensitivityResult, tested: SensitivityResult) -> None:
    for name, result in (("found", found), ("tested", tested)):
        document = sensitivity_document(result)
        stream = io.StringIO()
        print_document(document, Console(file=stream, width=80, no_color=True), details=True)
        lines = (line.rstrip() for line in stream.getvalue().splitlines())
        assert_golden(f"sensitivity-{name}.txt", "\n".join(lines) + "\n")
    assert_golden("sensitivity.md", markdown(sensitivity_document(tested)))
    assert_golden("sensitivity.tex", latex(sensitivity_document(tested)))
    assert_well_formed(latex(sensitivity_document(tested)))


def test_tests_are_written_and_removed_by_a_run_without_them(
    tested: SensitivityResult, found: SensitivityResult, tmp_path: Path
) -> None:
    paths = write_sensitivity(tested, tmp_path)
    assert SensitivityResult.model_validate(json.loads(paths[0].read_text(encoding="utf-8"))) == tested
    rows = list(csv.DictReader(io.StringIO(paths[3].read_text(encoding="utf-8"))))
    assert [row["top"] for row in rows[:9]] == ["True", "False", "False", "True", "True", "False", "", "", ""]
    assert (len(rows), rows[4]["move"], rows[3]["used_by"]) == (12, "1", "paper-table1")
    assert [path.name for path in paths[4:]] == ["all-protocols-comparisons.csv"]
    tests = list(csv.DictReader(io.StringIO(paths[4].read_text(encoding="utf-8"))))
    assert [test["protocol"] for test in tests] == [id_ for id_ in VALUES if "single" not in id_]
    again = write_sensitivity(found, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.name.startswith("all")} == {path.name for path in again}
    assert "top" not in again[-1].read_text(encoding="utf-8").split("\n")[0]
