"""Commands that run a study file of another task than agreement: retrieve, references, examples, explain, words."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.conftest import Ran

Run = Callable[..., Ran]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def study(name: str, text: str) -> str:
    path = Path(f"{name}.yaml")
    path.write_text(f"schema: 1\nname: {name}\n{text}")
    return str(path)


def test_retrieve_runs_on_a_split_and_says_what_was_drawn(capbench: Run) -> None:
    ran = capbench(
        "explore", "retrieve", "-m", "bleu-1", "-m", "rouge-l", "--split", "test", "--images", "20", "--json"
    )
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [entry["metric"] for entry in found] == ["bleu-1", "rouge-l"]
    assert {(entry["images"], entry["captions"]) for entry in found} == {(20, 20)}
    assert "flickr8k, test: 20 of 50 images, drawn with seed 0" in ran.err


def test_a_study_of_retrieval_shows_the_papers_rows_and_what_waits(capbench: Run) -> None:
    text = "retrieval: {captions: nocaps-val, images: 10, references: 9}\nmetrics: [bleu-1]\npublished: faier-table6\n"
    ran = capbench("explore", "retrieve", study("mine", text), "--gallery", "one")
    assert ran.code == 0, ran.err
    assert "BLEU-1" in ran.out
    assert "FAIER-4 ref (paper)" in ran.out
    assert "96.5" in ran.out
    assert "10 of 30 images, drawn with seed 0; the first 9 captions" in ran.out


def test_each_command_refuses_a_study_of_another_task_and_names_its_command(capbench: Run) -> None:
    for command, name, other in (
        (("explore", "retrieve"), "faier-table1", "correlate"),
        (("correlate", "--references-curve"), "faier-table6", "explore retrieve"),
        (("explore", "examples"), "faier-figure4", "correlate --references-curve"),
        (("explore", "explain"), "faier-table5", "explore words"),
        (("explore", "words"), "faier-figure5", "explore examples"),
        (("correlate",), "faier-figure4", "correlate --references-curve"),
    ):
        ran = capbench(*command, name)
        assert ran.code == 2, (command, ran.err)
        assert f"'capbench {other} {name}'" in ran.err


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
    assert ran.code == 1, ran.err
    assert "NNEval f requires" in ran.err
    for protocol in ("composite.all-references.correctness-spearman", "flickr8k-expert.no-own-captions.mean-spearman"):
        curves = json.loads(Path(f"results/sample/curves/{protocol}/curves.json").read_text())
        assert curves["counts"] == [1, 2]
        assert curves["draws"] == 1
        assert Path(f"results/sample/curves/{protocol}/curves.svg").exists()


def test_published_scores_of_one_image_stand_below_ours_with_comparable_digits(capbench: Run) -> None:
    rows = {}
    for line in capbench("explore", "examples", "faier-figure5").out.splitlines():
        title, _, numbers = line.strip().partition("  ")
        rows[title] = numbers.split()
    assert rows["BLEU-4"] == ["0.8409", "3.907e-9", "7.089e-13", "4.939e-5"]
    for title in ("BLEU-4", "METEOR", "ROUGE-L"):
        ours, printed = [float(text) for text in rows[title]], [Decimal(text) for text in rows[f"{title} (paper)"]]
        for number, text in zip(ours, printed, strict=True):
            assert number == pytest.approx(float(text), abs=float(Decimal(1).scaleb(int(text.as_tuple().exponent))))


def test_captions_come_from_the_data_set_where_none_are_given(capbench: Run) -> None:
    text = "image: {id: coco_001, dataset: hm-coco}\nmetrics: [rouge-l]\n"
    ran = capbench("explore", "examples", study("one", text), "--out", "one.json")
    assert ran.code == 0, ran.err
    written = json.loads(Path("one.json").read_text())
    assert len(written["references"]) == 4
    assert len(written["scores"]["ROUGE-L"]) == len(written["candidates"])
    lacking = capbench("explore", "examples", study("none", text.replace("coco_001", "nowhere")))
    assert lacking.code == 2
    assert "hm-coco does not contain the image 'nowhere'" in lacking.err


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("retrieval: {images: 1}\nmetrics: [cider]\n", "retrieval.images=1"),
        ("retrieval: {picture: x}\nmetrics: [cider]\n", "'picture'"),
        ("retrieval: {}\ncurves: {}\nmetrics: [cider]\n", "'curves'"),
        ("retrieval: {}\nprotocols: [composite]\nmetrics: [cider]\n", "'protocols'"),
        ("retrieval: {}\n", "'metrics'"),
        ("curves: {}\nmetrics: [cider]\n", "'protocols'"),
        ("image: {id: a, candidates: []}\nmetrics: [cider]\n", "image.candidates"),
    ],
)
def test_a_task_that_does_not_fit_is_refused_in_one_line(capbench: Run, text: str, named: str) -> None:
    ran = capbench("explore", "retrieve", study("wrong", text))
    assert ran.code == 2
    assert named in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_flags_that_define_a_study_do_not_go_with_a_file(capbench: Run) -> None:
    for arguments in (
        ("explore", "retrieve", "faier-table6", "-m", "cider"),
        ("explore", "retrieve"),
        ("correlate", "--references-curve", "faier-figure4", "-m", "cider"),
        ("explore", "examples", "faier-figure5", "-d", "composite"),
        ("explore", "explain", "faier-figure6", "-m", "tiger"),
        ("explore", "explain"),
        ("explore", "words"),
    ):
        assert capbench(*arguments).code == 2, arguments


def test_scores_of_a_part_of_an_images_captions_leave_the_other_metrics_alone(capbench: Run) -> None:
    text = "image: {id: coco_001, dataset: hm-coco}\nmetrics: [rouge-l, mine]\ntitle: Captions\n"
    whole = json.loads(capbench("explore", "examples", study("whole", text.replace(", mine", "")), "--json").out)
    Path("mine.csv").write_text(f'image,caption,mine\ncoco_001,"{whole["candidates"][0]}",1\n', encoding="utf-8")
    ran = capbench("explore", "examples", study("part", text), "--scores", "mine.csv", "--json")
    assert ran.code == 1, ran.err
    found = json.loads(ran.out)
    assert found["scores"] == whole["scores"]
    assert list(found["lacking"]) == ["mine"]
