"""Tables in five formats: what stands in them is in golden files; choices, scales and heads are tested here."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import capbench
from capbench.core.errors import UsageError
from capbench.datasets.base import load_dataset
from capbench.reports.compare import sentence
from capbench.reports.markup import latex, markdown, markdown_text, tex_text, to_csv, write_result
from capbench.reports.methods import details, p_value_text
from capbench.reports.table import TableStyle
from capbench.reports.tables import study_document, tables
from capbench.reports.terminal import print_document
from capbench.stats.pairs import Pair, Tests
from capbench.studies.published.tables import rescaled
from capbench.studies.results import BootstrapInfo, Ceiling, Missing, ProtocolInfo, Ranked, StudyResult, load_result
from tests.errors import raises
from tests.reports.golden import assert_golden
from tests.reports.latex import assert_compiles, assert_well_formed, needs_pdflatex
from tests.reports.toy import pairs_tested, study

CORRELATION = "toy/all/tau-c"
ACCURACY = "pairs/five/direct-strict"


@pytest.fixture
def result() -> StudyResult:
    boot = BootstrapInfo(method="bca", level=0.9, unit="image", units=12, resamples=2000, seed=3)
    info: dict[str, object] = {"notes": ("2 of 14 pairs are left out: no image",), "bootstrap": boot}
    values = {CORRELATION: {"cider": 0.43894, "bleu": -0.30781}, ACCURACY: {"cider": 0.76575, "bleu": 0.7}}
    how: dict[str, Any] = {"level": 0.9, "seed": 3}
    drawn = {"units": 12, "resamples": 2638, "requested": 1000, **how}
    formula = {"test": "mcnemar", "unit": None, "units": 36, "resamples": None, "ranks": {"cider": 1, "bleu": 2}}
    tests = (
        pairs_tested(CORRELATION, {"cider": 0.3, "bleu": 0.2}, [0.2], **drawn),
        pairs_tested(ACCURACY, {"cider": 0.3, "bleu": 0.2}, [0.2], **how | formula | {"seed": None, "top": ("cider",)}),
    )
    made = study(values, n=36, intervals=(0.02004, 0.01), info=info, comparisons=tests)
    first, second = made.protocols
    cells = []
    for cell in made.cells:
        chance = {"cider": 0.5, "bleu": 0.48}[cell.column] if cell.protocol == ACCURACY else None
        sd = 0.0123 if chance == 0.48 else None
        cells.append(cell.model_copy(update={"chance": chance, "sd": sd}))
        groups = {0.5: (0.542, 0.9895), 0.48: (0.6, 0.8), None: ()}[chance]
        for group, value in zip(("HC", "HI"), groups, strict=False):
            ends = {"value": value, "low": value - 0.02004, "high": value + 0.01}
            cells.append(cells[-1].model_copy(update={"group": group, "sd": None, **ends}))
    accuracy = {"kind": "accuracy", "statistic": "accuracy", "groups": ("HC", "HI")}
    update: dict[str, object] = {
        "title": "A toy_study with 100 % & more",
        "protocols": tuple(p.model_copy(update={"n_items": 12}) for p in (first, second.model_copy(update=accuracy))),
        "columns": {"bleu": "*BLEU", "tiger": "<TIGEr> | x", "cider": "CIDER"},
        "signatures": {"toy/all": {"cider": "cider|capbench:0.1.0|df:items", "bleu": "bleu|capbench:0.1.0"}},
        "cells": tuple(cells),
        "missing": (Missing(column="tiger", title="TIGEr", reason="region features", planned=True),),
        "ceilings": (
            Ceiling(protocol=CORRELATION, value=0.55, low=0.53, high=0.58, n=36, method="leave-one-rater-out"),
            Ceiling(protocol=ACCURACY, group="HC", value=0.66, n=9, method="votes"),
        ),
    }
    return made.model_copy(update=update)


@pytest.fixture
def compared(result: StudyResult) -> StudyResult:
    """The same with published numbers: one that agrees, one with a remark, one that differs without a reason."""
    printed: dict[int, dict[str, object]] = {
        0: {"published": 0.439, "published_printed": "0.439"},
        1: {"published": 0.138, "published_printed": "0.138", "published_note": "inferred: rounded"},
        2: {"published": 0.7875, "published_printed": "78.75", "unexplained": True},
    }
    cells = tuple(cell.model_copy(update=printed.get(at, {})) for at, cell in enumerate(result.cells))
    return result.model_copy(update={"cells": cells, "published": "A paper, Table 1"})


def terminal(result: StudyResult, width: int, *, details: bool = False, by_source: bool = False) -> str:
    stream = io.StringIO()
    document = study_document(result, by_source=by_source)
    print_document(document, Console(file=stream, width=width, no_color=True), details=details)
    return "\n".join(map(str.rstrip, stream.getvalue().splitlines())) + "\n"


@pytest.mark.parametrize("name", ["result", "compared"])
def test_each_format_is_that_of_its_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    made = request.getfixturevalue(name)
    assert_golden(f"{name}.txt", terminal(made, 80) + "\n" + terminal(made, 120, details=True, by_source=True))
    assert_golden(f"{name}.md", made.to_markdown(by_source=True))
    assert_golden(f"{name}.tex", made.to_latex(by_source=True))
    assert_golden(f"{name}.html", made._repr_html_())
    assert_golden(f"{name}.csv", to_csv(made))


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_the_terminal_table_fits_its_width_and_drops_nothing(compared: StudyResult, width: int) -> None:
    text = terminal(compared, width, by_source=True)
    for part in ("43.9†", "[41.9, 44.9]", "76.6†", "54.2", "70.0  ±1.2", "human ceiling", "55.0"):
        assert part in text
    assert all(len(line) <= width for line in text.split("\n") if "─" in line or re.match("CIDER|human c", line))


@pytest.mark.parametrize("name", ["result", "compared"])
def test_latex_is_well_formed_and_compiles(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    text = request.getfixturevalue(name).to_latex(by_source=True)
    assert_well_formed(text)
    if not needs_pdflatex.args[0]:
        assert_compiles(text, tmp_path)


def test_special_characters() -> None:
    assert markdown_text("$a_1$ & *b* &lt;|") == r"\$a\_1\$ \& \*b\* \&lt;\|"
    assert tex_text("-0.5† ±1") == r"$-$0.5$^{\dagger}$ $\pm$1"
    assert tex_text("[a] 5_6") == r"{}[a] 5\_6"


def test_files_are_read_back_and_pairs_have_one_of_their_own(result: StudyResult, tmp_path: Path) -> None:
    paths = write_result(result, tmp_path)
    assert [path.name for path in paths] == [*(f"results.{e}" for e in ("json", "md", "tex", "csv")), "comparisons.csv"]
    assert load_result(paths[0]) == result
    first, second = csv.DictReader(io.StringIO(paths[-1].read_text(encoding="utf-8")))
    assert (first["better"], first["p_adjusted"], first["test"]) == ("cider", "0.2", "permutation")
    assert (second["test"], second["resamples"]) == ("mcnemar", "")
    write_result(result.model_copy(update={"comparisons": ()}), tmp_path)
    assert not paths[-1].exists()


def test_a_result_without_any_number_still_prints(result: StudyResult) -> None:
    bare = result.model_copy(update={"cells": (), "protocols": (), "ceilings": (), "comparisons": ()})
    assert "TIGEr: requires region features" in terminal(bare, 100)
    assert bare.to_latex()
    assert bare.to_markdown()


# The user's choices.


def shown(result: StudyResult, **style: Any) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for table in tables(result, style=TableStyle(**style)):
        for row in table.rows:
            made.setdefault(row.title, []).extend(f"{cell.marked} {cell.below}".strip() for cell in row.cells)
    return made


def test_digits_scale_marks_and_intervals(result: StudyResult) -> None:
    plain: dict[str, Any] = {"daggers": False, "intervals": False}
    assert shown(result, digits=3, percent=False, **plain)["CIDER"][0] == "0.439"
    assert shown(result, digits=2, **plain)["CIDER"][1] == "76.58"
    assert shown(result, digits=0)["CIDER"][0] == "44† [42, 45]"
    assert shown(result, percent=False)["CIDER"][0] == "0.4389† [0.4189, 0.4489]"
    low = TableStyle(digits=1).interval(-0.0004, 1.0)
    assert low == "[0.0, 100.0]"
    for table in tables(result, style=TableStyle(bold=False, **plain)):
        assert not any(cell.bold or set("†‡") & set(cell.marks) for row in table.rows for cell in row.cells)
        assert not any(line.startswith(("†", "[a, b]")) for line in table.lines)


def test_published_numbers_follow_the_scale() -> None:
    assert rescaled(".323", 2) == "32.3"
    assert rescaled("50.9 ±0.70", -2) == "0.509 ±0.0070"
    assert rescaled("7.08e-13", 2) == "0.0000000000708"


def test_choices_in_python_and_their_refusals() -> None:
    compared = capbench.compare("flickr8k-expert", ["bleu-4", "rouge-l"], resamples=100)
    text = compared.to_markdown(digits=3, percent=False, bold=False, daggers=False, intervals=False)
    assert all(f"| {value:.3f} |" in text for value in compared.to_frame()["value"])
    assert_well_formed(compared.to_latex())
    for digits in (-1, True, 2.5):
        with raises(UsageError, "out-of-range", value=digits):
            compared.to_latex(digits=digits)  # type: ignore[arg-type]


# The head of a number says which protocol it is wherever another one would have the same head.

SAME_TEXT = "composite/same-text-out/correctness-tau-c"
ANY = "composite/any-candidate-out/correctness-tau-c"
THOROUGH = "composite/same-text-out/thoroughness-tau-c"
SPEARMAN = "composite/same-text-out/correctness-spearman"


def info(protocol_id: str) -> ProtocolInfo:
    dataset = load_dataset(protocol_id.split("/")[0])
    spec = dataset.protocol(protocol_id).statistic
    more = {"statistic": spec.label, "kind": spec.kind, "description": "rules", "n_items": 6}
    return ProtocolInfo.model_validate(
        {"id": protocol_id, "dataset": dataset.name, "dataset_title": dataset.title} | more
    )


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        ([SAME_TEXT, SPEARMAN], ["", ""]),
        ([SAME_TEXT, SPEARMAN, ANY], ["same-text-out", "", "any-candidate-out"]),
        ([SAME_TEXT, THOROUGH], ["correctness-tau-c", "thoroughness-tau-c"]),
        ([ANY, THOROUGH], ["any-candidate-out, correctness-tau-c", "same-text-out, thoroughness-tau-c"]),
    ],
)
def test_equal_heads_get_what_tells_them_apart(protocols: list[str], expected: list[str]) -> None:
    made = details([info(name) for name in protocols])
    assert [made[name] for name in protocols] == expected


PROTOCOL = "toy/all/tau-c"
ABOVE = (0.01, 0.2)
AROUND = (-0.01, 0.2)


def sentences(p_values: list[float], intervals: list[tuple[float, float]], **how: Any) -> list[str]:
    """Those of the pairs of metrics A, B, … with these p-values and intervals."""
    values = {name: 0.5 - 0.1 * place for place, name in enumerate({1: "AB", 3: "ABC"}[len(p_values)])}
    tests = pairs_tested(PROTOCOL, values, p_values, intervals, **how)
    result = study({PROTOCOL: values}, comparisons=(tests,))
    return [sentence(pair, tests, result) for pair in tests.pairs]


@pytest.mark.parametrize(("units", "tested"), [(5, False), (6, True)])
def test_a_pair_has_a_p_value_only_if_some_difference_could_be_significant(units: int, tested: bool) -> None:
    (line,) = sentences([0.125], [(0.05, 0.2)], units=units)
    assert ("p = 0.1250" in line) is tested
    assert ("significant" in line) is tested


def test_an_interval_that_excludes_0_beside_an_insignificant_corrected_p_value_is_explained() -> None:
    first, second, third = sentences([0.03, 0.2, 0.001], [ABOVE, AROUND, ABOVE])
    # Holm: .03 is the second of three p-values, so it is doubled.
    assert "do not differ significantly" in first
    assert "corrected p = 0.0600" in first
    assert first.endswith("Without the correction for 3 pairs, the difference is significant.")
    # Where interval and corrected p-value agree, the interval is the end of the text.
    assert second.endswith("].")
    assert third.endswith("].")
    assert "agrees better" in third
    texts = sentences([0.03, 0.2, 0.001], [ABOVE, AROUND, ABOVE], correction="none")
    assert all("corrected" not in text for text in texts)
    assert "agrees better" in texts[0]


def test_p_values_at_the_floor_are_upper_bounds() -> None:
    first, _, third = sentences([0.001, 0.001, 0.5], [ABOVE, ABOVE, AROUND])
    assert "p ≤ 0.0030" in first
    assert "p = 0.5000" in third
    # A formula's p-values have no floor.
    assert "p = 0.0030" in sentences([0.001, 0.001, 0.5], [ABOVE, ABOVE, AROUND], resamples=None, test="williams")[0]


@pytest.mark.parametrize(
    ("value", "is_bound", "digits", "text"),
    [
        (0.0149850, False, 4, "= 0.0150"),
        (15 / 10001, True, 4, "≤ 0.0015"),
        (66 / 2639, True, 4, "≤ 0.0251"),  # .02501: rounded up, because .0250 would not be a bound
        (1 / 10001, True, 4, "≤ 0.0001"),
        (6e-9, False, 4, "< 0.0001"),
        (0.005994, True, 3, "≤ 0.006"),
        (1.0, False, 4, "= 1.0000"),
    ],
)
def test_p_values_are_rounded_so_that_they_stay_true(value: float, is_bound: bool, digits: int, text: str) -> None:
    assert p_value_text(value, is_bound=is_bound, digits=digits) == text


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
def found() -> StudyResult:
    missing = (
        Missing(protocol="toy/gone/mean-tau-b", reason="there is no such file"),
        Missing(column="tiger", title="TIGEr", reason="weights", planned=True),
    )
    values = {id_: dict(zip(NAMES, of_protocol, strict=True)) for id_, of_protocol in VALUES.items()}
    rankings = [
        Ranked(
            protocol=id_,
            default=id_ == "toy/all_pairs/mean-tau-b",
            column=name,
            value=value,
            rank=rank,
            move=base - rank,
            tau=tau,
            used_by=("paper-table1",) if id_.endswith("spearman") else (),
        )
        for (id_, of_id), of_protocol, tau in zip(VALUES.items(), RANKS, TAUS, strict=True)
        for name, value, base, rank in zip(NAMES, of_id, RANKS[0], of_protocol, strict=True)
    ]
    columns = {name: name.upper() for name in NAMES} | {"tiger": "TIGEr"}
    return study(values, missing=missing, columns=columns, rankings=tuple(rankings))


@pytest.fixture
def tested(found: StudyResult) -> StudyResult:
    tops = {"mean-tau-b": ("cider",), "mean-spearman": ("bleu_4", "cider"), "votes-strict": ("cider", "bleu_4")}
    pair = Pair(better="cider", worse="rouge", difference=0.2, p_value=0.01, p_adjusted=0.03, significant=True)
    how: dict[str, Any] = {"test": "permutation", "correction": "bh", "alpha": 0.05, "unit": "image", "units": 6}
    how |= {"resamples": 1000, "seed": 7, "level": None, "ranks": {}, "pairs": (pair,)}
    comparisons = tuple(
        Tests(protocol=id_, top=tops[id_.split("/")[2]], **how) for id_ in VALUES if "single" not in id_
    )
    note = {"notes": ("toy/all_pairs/single-tau-b: no tests between metrics: one image",)}
    infos = tuple(info.model_copy(update=note if "single" in info.id else {}) for info in found.protocols)
    return found.model_copy(update={"comparisons": comparisons, "protocols": infos})


def test_tables_are_those_of_the_golden_files(found: StudyResult, tested: StudyResult) -> None:
    for name, result in (("found", found), ("tested", tested)):
        document = study_document(result)
        stream = io.StringIO()
        print_document(document, Console(file=stream, width=80, no_color=True), details=True)
        lines = (line.rstrip() for line in stream.getvalue().splitlines())
        assert_golden(f"sensitivity-{name}.txt", "\n".join(lines) + "\n")
    assert_golden("sensitivity.md", markdown(study_document(tested)))
    assert_golden("sensitivity.tex", latex(study_document(tested)))
    assert_well_formed(latex(study_document(tested)))


def test_tests_are_written_and_removed_by_a_run_without_them(
    tested: StudyResult, found: StudyResult, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    paths = {path.name: path for path in tested.write(folder)}
    assert load_result(paths["results.json"]) == tested
    rows = list(csv.DictReader(io.StringIO(paths["rankings.csv"].read_text(encoding="utf-8"))))
    assert [row["top"] for row in rows[:9]] == ["True", "False", "False", "True", "True", "False", "", "", ""]
    assert (len(rows), rows[4]["move"], rows[3]["used_by"]) == (12, "1", "paper-table1")
    tests = list(csv.DictReader(io.StringIO(paths["comparisons.csv"].read_text(encoding="utf-8"))))
    assert [test["protocol"] for test in tests] == [id_ for id_ in VALUES if "single" not in id_]
    again = found.write(folder)
    assert {path.name for path in folder.glob("[!.]*")} == {path.name for path in again}
    assert "top" not in paths["rankings.csv"].read_text(encoding="utf-8").split("\n")[0]
