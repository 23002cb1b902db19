"""On the published judgements, every protocol gives the literature's numbers to the printed precision.

The expected numbers were measured with pycocoevalcap's scorers and tokeniser; where TIGEr's Table 1 prints a number
for the protocol, it agrees with it (but for two cells of BLEU-4, which fit rounded scores).
"""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from capbench.core.yaml import find_config
from capbench.datasets.root import DataRoot
from capbench.studies.plan import plan_study
from capbench.studies.results import Cell, StudyResult
from capbench.studies.run import run_plan
from capbench.studies.scoring import no_progress
from capbench.studies.study import Study
from capbench.studies.study_file import load_study
from tests.conftest import share_paraphrases

pytestmark = [pytest.mark.real_data, pytest.mark.java]

# protocol → what is printed for some columns; percent for accuracies
HEADS, *LINES = [
    line.split()
    for line in """\
protocol                                                bleu-1   bleu-4  rouge-l   meteor    cider
flickr8k-expert/no-own-captions/unaggregated-tau-c       .3232    .3078    .3231    .4182    .4389
flickr8k-expert/no-own-captions/unaggregated-tau-b       .3217    .3060    .3214    .4154    .4360
flickr8k-expert/no-own-captions/unaggregated-spearman    .4035    .3867    .4043    .5187    .5425
flickr8k-expert/no-own-captions/mean-tau-c                   -        -        -        -     .454
flickr8k-crowdflower/own-reference-out/tau-b                 -    .1689    .1991        -    .2462
composite/same-text-out/correctness-tau-c                .2805    .2811    .3066    .3786    .3794
composite/same-text-out/correctness-spearman             .3528    .3514    .3828    .4686    .4722
composite/any-candidate-out/correctness-tau-c            .3131    .3055    .3244    .3891    .3769
composite/all-references/correctness-tau-c                .487     .495     .490     .501     .519
pascal-50s/json-5-refs/direct-strict                         -    73.42        -    77.45    76.58
pascal-50s/json-5-refs/consensus-strict                      -    74.55        -    79.88    79.78
""".splitlines()
]
PRINTED = {
    protocol: {column: number for column, number in zip(HEADS[1:], numbers, strict=True) if number != "-"}
    for protocol, *numbers in LINES
}
PAIRS = {
    ("direct-strict", "meteor"): ("56.4", "97.6", "93.4", "62.4"),
    ("direct-strict", "cider"): ("54.2", "98.5", "90.3", "63.3"),
    ("direct-strict", "bleu-4"): ("52.7", "93.7", "86.0", "61.3"),
    ("consensus-strict", "meteor"): ("63.3", "97.5", "93.2", "65.5"),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    share_paraphrases(folder)
    return folder


@pytest.fixture(autouse=True)
def _one_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", str(cache))


def run(study: Study, data: Path) -> StudyResult:
    return run_plan(plan_study(study, DataRoot(data, False, "test")), no_progress)


def agrees(value: float, printed: str) -> bool:
    """True if a value rounds to what is printed; half a unit of float noise at the edge is allowed."""
    digits = len(printed.partition(".")[2])
    # Printed accuracies are themselves means of rounded or exact shares: 77.45 may stand for 77.450 or 77.449.
    return abs(value - float(printed)) <= 0.5 * float(f"1e-{digits}") + 1e-9


@functools.cache
def published_cells(name: str, without: tuple[str, ...], data: Path) -> list[Cell]:
    """The cells of a study that a paper prints, too."""
    result = run(replace(load_study(find_config(name)), without=without), data)
    return [cell for cell in result.cells if cell.published is not None]


ITEMS = [*dict.fromkeys(protocol.rpartition("/")[0] for protocol in PRINTED)]
# METEOR, which takes most of the time, is compared on other references of the same candidates.
WITHOUT_METEOR = ["composite/any-candidate-out", "composite/all-references"]


@pytest.mark.parametrize(
    ("items", "without"),
    [
        *((items, ["meteor"] if items in WITHOUT_METEOR else []) for items in ITEMS),
        *(pytest.param(items, [], marks=pytest.mark.slow) for items in WITHOUT_METEOR),
    ],
)
def test_every_protocol_gives_the_printed_numbers(items: str, without: list[str], real_data: Path) -> None:
    wanted = {
        protocol: {column: text for column, text in printed.items() if column not in without}
        for protocol, printed in PRINTED.items()
        if protocol.startswith(f"{items}/")
    }
    metrics = tuple(dict.fromkeys(column for printed in wanted.values() for column in printed))
    result = run(Study("t", "t", tuple(wanted), metrics), real_data)
    wrong = []
    for protocol, printed in wanted.items():
        scale = 100 if protocol.startswith("pascal") else 1
        places = {(column, ""): text for column, text in printed.items()}
        for (statistic, column), groups in PAIRS.items():
            if protocol.endswith(f"/{statistic}"):
                places |= {(column, group): text for group, text in zip(("HC", "HI", "HM", "MM"), groups, strict=True)}
        for (column, group), text in places.items():
            value = result.value(column, protocol, group)
            if not agrees(scale * value, text):
                wrong.append((protocol, group, column, value, text))
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "without"),
    [("tiger-table1", ()), ("tiger-table2", ("meteor",)), pytest.param("tiger-table2", (), marks=pytest.mark.slow)],
)
def test_the_published_tables_agree_with_the_papers(name: str, without: tuple[str, ...], real_data: Path) -> None:
    compared = published_cells(name, without, real_data)
    # Random draws of references differ by a point or two on PASCAL-50S; correlations hardly at all.
    tolerance = 0.0015 if name == "tiger-table1" else 0.025
    off = {cell.title for cell in compared if abs(cell.number - (cell.published or 0)) > tolerance}
    assert len(compared) >= 20
    assert off == ({"BLEU-4"} if name == "tiger-table1" else set())
    assert all(cell.published_note for cell in compared if abs(cell.number - (cell.published or 0)) > tolerance)


@pytest.mark.parametrize(
    ("name", "marked", "expected_notes"),
    [
        (
            "tiger-table1",
            set(),
            {
                ("bleu-1", "composite/same-text-out/correctness-tau-c"),
                ("bleu-4", "composite/same-text-out/correctness-tau-c"),
                ("bleu-4", "composite/same-text-out/correctness-spearman"),
                ("cider", "composite/same-text-out/correctness-tau-c"),
                ("bleu-4", "flickr8k-expert/no-own-captions/unaggregated-tau-c"),
            },
        ),
        pytest.param(
            "faier-table1",
            {
                ("meteor", "flickr8k-expert/one-reference/mean-spearman"),
                ("meteor", "flickr8k-expert/one-reference/mean-tau-b"),
            },
            set(),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_differences_beyond_rounding_and_three_standard_errors_are_marked_or_noted(
    name: str, marked: set[tuple[str, str]], expected_notes: set[tuple[str, str]], real_data: Path
) -> None:
    cells = published_cells(name, (), real_data)
    noted = {(cell.column, cell.protocol) for cell in cells if cell.published_note}
    assert noted == expected_notes
    assert {(cell.column, cell.protocol) for cell in cells if cell.unexplained} - noted == marked
