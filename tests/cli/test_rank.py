"""``capbench rank``, and commands that run a study file of another task than agreement."""

from __future__ import annotations

import csv
import json
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


Run = Callable[..., Ran]


def study(name: str, text: str) -> str:
    Path(f"{name}.yaml").write_text(f"schema: 1\nname: {name}\n{text}")
    return f"{name}.yaml"


def test_retrieval_runs_on_a_split_and_says_what_was_drawn(capbench: Run) -> None:
    metrics = ("-m", "bleu-1", "-m", "rouge-l")
    ran = capbench("explore", "retrieve", *metrics, "--split", "test", "--images", "20", "--json")
    assert ran.code == 0, ran.err
    entries = [(entry["metric"], entry["images"], entry["captions"]) for entry in json.loads(ran.out)]
    assert entries == [("bleu-1", 20, 20), ("rouge-l", 20, 20)]
    assert "flickr8k, test: 20 of 50 images, drawn with seed 0" in ran.err
    text = "retrieval: {captions: nocaps-val, images: 10, references: 9}\nmetrics: [bleu-1]\npublished: faier-table6\n"
    ran = capbench("explore", "retrieve", study("mine", text), "--gallery", "one")
    assert ran.code == 0, ran.err
    for part in ("BLEU-1", "FAIER-4 ref (paper)", "96.5", "10 of 30 images, drawn with seed 0; the first 9 captions"):
        assert part in ran.out


def test_correlate_prints_the_published_table_of_a_task_alone(capbench: Run) -> None:
    ran = capbench("correlate", "faier-table6", "--data", "sample", "--out", "out")
    assert ran.code == 0, ran.err
    assert "96.5" in ran.out
    assert "'capbench explore retrieve faier-table6' computes its rows" in ran.err


def test_a_study_of_curves_writes_a_folder_for_each_protocol(capbench: Run) -> None:
    text = (
        "curves: {counts: [0, 1, 2], draws: 2}\nmetrics: [bleu-1, {label: f, metric: nneval.nneval, title: NNEval f}]\n"
        "protocols: [composite/all-references/correctness-spearman, flickr8k-expert/no-own-captions/mean-spearman]\n"
    )
    ran = capbench("correlate", "--references-curve", study("curves", text), "--draws", "1")
    assert (ran.code, "NNEval f requires" in ran.err) == (1, True)
    for protocol in ("composite.all-references.correctness-spearman", "flickr8k-expert.no-own-captions.mean-spearman"):
        folder = Path("results/sample/curves") / protocol
        curves = json.loads((folder / "curves.json").read_text())
        assert (curves["counts"], curves["draws"]) == ([1, 2], 1)
        assert (folder / "curves.svg").exists()


def test_captions_of_one_image_come_from_the_data_set_and_scores_of_a_part_of_them_leave_others_alone(
    capbench: Run, found: Callable[..., Any]
) -> None:
    text = "image: {id: coco_001, dataset: hm-coco}\nmetrics: [rouge-l, mine]\ntitle: Captions\n"
    whole = found("explore", "examples", study("whole", text.replace(", mine", "")), "--out", "one.json")
    assert json.loads(Path("one.json").read_text()) == whole
    assert len(whole["references"]) == 4
    assert len(whole["scores"]["ROUGE-L"]) == len(whole["candidates"])
    Path("mine.csv").write_text(f'image,caption,mine\ncoco_001,"{whole["candidates"][0]}",1\n', encoding="utf-8")
    answer = found("explore", "examples", study("part", text), "--scores", "mine.csv", code=1)
    assert (answer["scores"], list(answer["lacking"])) == (whole["scores"], ["mine"])
    lacking = capbench("explore", "examples", study("none", text.replace(", mine", "").replace("coco_001", "gone")))
    assert "hm-coco does not contain the image 'gone'" in lacking.err
