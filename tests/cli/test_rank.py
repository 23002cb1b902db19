"""``capbench rank`` and ``leaderboard``, and commands that run a study file of another task than agreement."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

import capbench as capbench_of_python
from capbench.metrics.from_file import ScoresEntry
from capbench.studies.leaderboard import Leaderboard, load_leaderboard, published_numbers
from capbench.studies.ranking import TaskRanking
from scripts.readme import ROOT
from tests.conftest import Ran
from tests.reports.latex import assert_well_formed

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
    ran = capbench("explore", "retrieve", study("mine", text))
    assert ran.code == 0, ran.err
    for part in ("BLEU-1", "FAIER-4 ref (paper)", "96.5", "10 of 30 images, drawn with seed 0; the first 9 captions"):
        assert part in ran.out


def test_correlate_prints_the_published_table_of_a_task_alone(capbench: Run) -> None:
    ran = capbench("correlate", "faier-table6", "--data", "sample", "--out", "out")
    assert ran.code == 0, ran.err
    assert "96.5" in ran.out
    assert "'capbench explore retrieve faier-table6' computes its rows" in ran.err


def test_a_study_of_curves_writes_them_next_to_its_numbers(capbench: Run) -> None:
    text = (
        "curves: {counts: [0, 1, 2], draws: 2}\nmetrics: [bleu-1, {label: f, metric: nneval.nneval, title: NNEval f}]\n"
        "protocols: [composite/all-references/correctness-spearman, flickr8k-expert/no-own-captions/mean-spearman]\n"
    )
    ran = capbench("correlate", study("curves", text), "--draws", "1")
    assert (ran.code, "NNEval f: requires" in ran.out) == (1, True)
    folder = Path("results/sample/curves")
    result = json.loads((folder / "results.json").read_text())
    assert (result["curves"]["counts"], result["curves"]["draws"]) == ([0, 1, 2], 1)
    assert [point["at"] for point in result["points"] if not point["group"]] == [1, 2, 1, 2]
    assert (folder / "curves.svg").exists()


def test_captions_of_one_image_come_from_the_data_set_and_scores_of_a_part_of_them_leave_others_alone(
    capbench: Run, found: Callable[..., Any]
) -> None:
    text = "image: {id: coco_001, dataset: hm-coco}\nmetrics: [rouge-l, mine]\ntitle: Captions\n"
    complete = found("explore", "examples", study("whole", text.replace(", mine", "")), "--out", "one.json")
    assert json.loads(Path("one.json").read_text()) == complete
    assert len(complete["references"]) == 4
    assert len(complete["scores"]["ROUGE-L"]) == len(complete["candidates"])
    Path("mine.csv").write_text(f'image,caption,mine\ncoco_001,"{complete["candidates"][0]}",1\n', encoding="utf-8")
    answer = found("explore", "examples", study("part", text), "--scores", "mine.csv", code=1)
    assert (answer["scores"], list(answer["missing"])) == (complete["scores"], ["mine"])
    ran = capbench("explore", "examples", study("none", text.replace(", mine", "").replace("coco_001", "gone")))
    assert "hm-coco does not contain the image 'gone'" in ran.err


QUICK = ("--bootstrap", "100", "--permutations", "100")
EXPERT = ("leaderboard", "-d", "flickr8k-expert", *QUICK)


@pytest.fixture
def made(capbench: Callable[..., Ran]) -> Callable[..., Leaderboard]:
    """The board that a command computes; it is saved as ``board.json``."""

    def call(*arguments: str | Path, code: int = 0) -> Leaderboard:
        ran = capbench(*arguments, "--json")
        assert ran.code == code, ran.err
        Path("board.json").write_text(ran.out, "utf-8")
        return load_leaderboard(Path("board.json"))

    return call


def test_computed_numbers_are_those_of_correlate_and_rank(
    made: Callable[..., Leaderboard], found: Callable[..., Any], scores: Path
) -> None:
    board = made(*EXPERT, "bleu-4", "rouge-l", "--scores", scores)
    assert board.sample
    metrics = ("-m", "bleu-4", "-m", "rouge-l", "-m", "scores", "--scores", scores)
    study = found("correlate", "-d", "flickr8k-expert", *metrics, *QUICK, "--compare", "permutation")
    (tests,) = study["comparisons"]
    assert board.columns[0].protocol == "flickr8k-expert/no-own-captions/unaggregated-tau-c"
    for cell in study["cells"]:
        ours = board.row(cell["column"]).ours["flickr8k-expert"]
        assert (ours.value, ours.low, ours.high, ours.n) == tuple(cell[key] for key in ("value", "low", "high", "n"))
        assert (ours.top, ours.rank) == (cell["column"] in tests["top"], tests["ranks"][cell["column"]])
    assert [board.row(name).origin for name in ("bleu-4", "words")] == ["computed", "scores"]
    ranked = [row.name for row in board.rows if row.rank is not None]
    assert ranked == [metric.column for metric in board.ranking.ranking.metrics]


def test_a_published_number_is_only_in_the_column_of_its_protocol(made: Callable[..., Leaderboard]) -> None:
    board = made(*EXPERT, "cider", "-d", "pascal-50s")
    places = {(column.protocol, column.group): column.name for column in board.columns}
    assert list(places.values()) == ["flickr8k-expert", "pascal-hc", "pascal-hi", "pascal-hm", "pascal-mm"]
    expected: dict[str, set[float]] = {name: set() for name in places.values()}
    for _, column, number in published_numbers():
        if (column.protocol, column.group) in places:
            expected[places[column.protocol or "", column.group]].add(number.value)
    shown = {name: {row.printed[name].value for row in board.rows if name in row.printed} for name in places.values()}
    assert shown == expected
    assert len(expected["flickr8k-expert"]) > 10
    # With -d, the second table has no numbers of other data sets.
    headings = {heading for row in board.rows for heading in row.others}
    assert {re.split("[ /]", heading)[0] for heading in headings} == {"PASCAL-50S", "pascal-50s", "flickr8k-expert"}
    clip = board.row("clipscore")
    assert (clip.origin, clip.ours, clip.rank) == ("printed", {}, None)
    assert (clip.printed["flickr8k-expert"].printed, clip.others["PASCAL-50S HC"].value) == ("51.2", 0.551)


def test_scores_with_the_title_of_a_published_metric_are_its_row_and_others_are_as_given(scores: Path) -> None:
    def entry(name: str, **more: Any) -> ScoresEntry:
        path = scores.with_name(f"{name}.csv")
        path.write_text(re.sub(r"(?m),[^,]*$", "", scores.read_text("utf-8")).replace("overlap", name), "utf-8")
        return ScoresEntry(str(path), label=name, **more)

    named = entry("mine", title="SPICE")
    other = entry("other", title="Other", reads_references=False, uses_ratings=True)
    quick: dict[str, Any] = {"bootstrap": 100, "permutations": 100, "data": "sample"}
    board = capbench_of_python.leaderboard("flickr8k-expert", "bleu-1", scores=[named, other], **quick)
    (row,) = (row for row in board.rows if row.title == "Other")
    assert (row.reads_references, row.uses_ratings) == (False, True)
    (row,) = (row for row in board.rows if row.title == "SPICE")
    assert (row.name, row.origin, row.printed["flickr8k-expert"].value) == ("mine", "scores", 0.449)
    assert row.value("flickr8k-expert") == row.ours["flickr8k-expert"].value


def test_the_reason_for_a_missing_number_of_a_score_file_is_printed(
    capbench: Callable[..., Ran], made: Callable[..., Leaderboard], scores: Path
) -> None:
    arguments = (*EXPERT, "cider", "--scores", scores, "-d", "foil")
    words = made(*arguments, code=1).row("words")
    assert (set(words.ours), set(words.missing)) == ({"flickr8k-expert"}, {"foil"})
    assert "scores.csv" in words.missing["foil"]
    assert words.missing["foil"] in " ".join(capbench(*arguments).out.split())


def test_the_committed_board_is_shown_at_once(
    made: Callable[..., Leaderboard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capbench.api.ranking.leaderboard", lambda *_, **__: pytest.fail("it is computed"))
    board = made("leaderboard", "--sort", "foil")
    assert board == load_leaderboard(ROOT / "results" / "leaderboard" / "leaderboard.json")


def test_the_files_show_every_number_with_second_hand_ones_last(
    capbench: Callable[..., Ran], made: Callable[..., Leaderboard], scores: Path
) -> None:
    board = made(*EXPERT, "cider", "--scores", scores, "--html", "board.html", "--latex", "board.tex")
    page, table = Path("board.html").read_text("utf-8"), Path("board.tex").read_text("utf-8")
    known = [row for row in board.sorted("flickr8k-expert") if row.value("flickr8k-expert") is not None]
    assert (known[0].name, {row.name for row in known[-2:]}) == ("expert", {"pearl", "discode"})
    by_value = [row.value("flickr8k-expert") for row in known[:-2]]
    assert by_value == sorted(by_value, key=lambda value: -(value or 0))
    for text in (capbench("leaderboard", "--from", "board.json").out, table, page):
        places = [text.index(number) for number in ("56.7", "56.4", "58.6")]
        assert places == sorted(places)
        assert "sorted by Flickr8k Expert" in text
    assert "textbf" not in table
    assert r"58.6\textsuperscript{h}" in table
    rows = [line for line in table.splitlines() if line.endswith(r"\\") and "&" in line]
    assert len(rows) == len(known) + 4  # two lines of heads, human ceiling and a sentinel
    assert re.search(r"^words & -?\$?-?\$?\d+\.\d\\textsuperscript\{s\}", table, re.MULTILINE)
    assert re.search(r"% .*synthetic", table)
    assert_well_formed(table)
    lines = dict(re.findall(r'<tr><th scope="row" data-copy="([^"]*)">(.*?)</tr>', page, re.DOTALL))
    shown = {row.title: row.value("flickr8k-expert") for row in known}
    assert {unescape(title) for title in lines} == {*shown, "human ceiling", "candidate-only"}
    assert all(f">{100 * (value or 0):.1f}" in lines[escape(title)] for title, value in shown.items())
    printed = capbench("leaderboard", "--from", "board.json", "--column", "flickr8k-expert", "--digits", "2").out
    assert f"{100 * board.row('cider').ours['flickr8k-expert'].value:.2f}" in printed
    assert "56.4ᵖ" in printed  # not 56.40: the paper printed one digit
    assert "[" not in printed.partition("ᵖ as printed")[0]
    assert "[" in capbench("leaderboard", "--from", "board.json", "--intervals").out.partition("ᵖ as printed")[0]
