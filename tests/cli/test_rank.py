"""``capbench rank``: printed table, JSON, files and exit codes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capbench.studies.ranking import TaskRanking
from tests.conftest import Ran

TASKS = """schema: 1
name: two
tasks:
  - {name: expert, protocol: flickr8k-expert}
  - {name: mm, protocol: pascal-50s/json-5-refs/direct-strict, group: MM, weight: 0.5}
"""


def test_all_formats_have_the_same_numbers(capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    Path("tasks.yaml").write_text(TASKS, encoding="utf-8")
    arguments = ("rank", "bleu-4", "rouge-l", "--tasks", "tasks.yaml", "--permutations", "200")
    result = TaskRanking.model_validate(found(*arguments, "--out", "out"))
    assert (result.permutations, result.sample) == (200, True)
    out = Path("out")
    assert TaskRanking.model_validate_json((out / "ranking.json").read_text("utf-8")).ranking == result.ranking
    with (out / "ranking.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    metrics = result.ranking.metrics
    expected = {(metric.column, task): value for metric in metrics for task, value in metric.values.items()}
    assert {(row["column"], row["task"]): float(row["value"]) for row in rows} == expected
    markdown, tex = ((out / f"ranking.{ending}").read_text("utf-8") for ending in ("md", "tex"))
    for text in (markdown, tex, capbench(*arguments, "--details").out):
        for metric in metrics:
            (line,) = [line for line in text.splitlines() if line.strip("| ").startswith(metric.title)]
            for value in (metric.overall, metric.values["expert"], metric.values["mm"]):
                assert f"{100 * value:.1f}" in line
    # Pairs have no mean ratings: the overall value is adjusted.
    assert [name for name in ("length", "candidate-only", "image-mean\\*") if f"| {name} |" not in markdown] == []


def test_missing_tasks_give_exit_code_1(found: Callable[..., Any]) -> None:
    gone = "  - {name: gone, protocol: 'tests.studies.toys:Toy/gone/mean-tau-b'}\n"
    Path("more.yaml").write_text(TASKS + gone, encoding="utf-8")
    answer = found("rank", "bleu-4", "--tasks", "more.yaml", "--no-sentinels", code=1)
    assert list(answer["missing_tasks"]) == ["gone"]
