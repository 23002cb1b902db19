"""``capbench rank``: printed table, JSON, files and exit codes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.studies.ranking import TaskRanking
from tests.conftest import Ran

TASKS = """schema: 1
name: two
tasks:
  - {name: expert, protocol: flickr8k-expert}
  - {name: mm, protocol: pascal-50s/json-5-refs/direct-strict, group: MM, weight: 0.5}
"""


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    path = tmp_path / "tasks.yaml"
    path.write_text(TASKS, encoding="utf-8")
    return str(path)


def test_all_formats_have_the_same_numbers(capbench: Callable[..., Ran], tasks: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ("rank", "bleu-4", "rouge-l", "--tasks", tasks, "--permutations", "200")
    ran = capbench(*arguments, "--json", "--out", str(out))
    assert (ran.code, ran.error) == (0, None)
    result = TaskRanking.model_validate(json.loads(ran.out))
    assert result.permutations == 200
    assert result.sample
    assert sorted(path.name for path in out.iterdir() if path.suffix != ".lock") == [
        "ranking.csv",
        "ranking.json",
        "ranking.md",
        "ranking.tex",
    ]
    assert TaskRanking.model_validate_json((out / "ranking.json").read_text("utf-8")).ranking == result.ranking
    with (out / "ranking.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["column"], row["task"]): float(row["value"]) for row in rows} == {
        (metric.column, task): value for metric in result.ranking.metrics for task, value in metric.values.items()
    }
    markdown, tex = ((out / f"ranking.{ending}").read_text("utf-8") for ending in ("md", "tex"))
    printed = capbench(*arguments, "--details")
    for metric in result.ranking.metrics:
        for text in (markdown, tex, printed.out):
            (line,) = [line for line in text.splitlines() if line.strip("| ").startswith(metric.title)]
            assert f"{100 * metric.overall:.1f}" in line
            assert f"{100 * metric.values['expert']:.1f}" in line
            assert f"{100 * metric.values['mm']:.1f}" in line
    # Pairs have no mean ratings: the overall value is adjusted.
    assert [name for name in ("length", "candidate-only", "image-mean\\*") if f"| {name} |" not in markdown] == []


def test_missing_values_and_tasks_give_exit_code_1(capbench: Callable[..., Ran], tasks: str, tmp_path: Path) -> None:
    path = tmp_path / "more.yaml"
    path.write_text(TASKS + "  - {name: gone, protocol: 'tests.studies.toys:Toy/gone/mean-tau-b'}\n", encoding="utf-8")
    assert capbench("rank", "bleu-4", "--tasks", tasks, "--no-sentinels").code == 0
    ran = capbench("rank", "bleu-4", "--tasks", str(path), "--no-sentinels", "--json")
    assert ran.code == 1
    assert list(json.loads(ran.out)["missing_tasks"]) == ["gone"]


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (("--tasks", "nowhere.yaml"), "missing-file", None),
        (("--escape-formulas",), "missing-option", None),
        (("--alpha", "2"), "out-of-range", 2.0),
        (("--out", "x.csv"), "wrong-value", "x.csv"),
    ],
)
def test_invalid_options_are_rejected(
    capbench: Callable[..., Ran], arguments: tuple[str, ...], code: str, value: object
) -> None:
    ran = capbench("rank", "-m", "bleu-4", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert (ran.failure.code, ran.failure.value) == (code, value)
