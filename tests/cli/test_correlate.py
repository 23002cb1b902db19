"""``capbench correlate`` as a user types it, on the embedded sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.studies.results import load_result
from tests.conftest import Ran

pytestmark = pytest.mark.java


def test_a_quick_look_prints_the_default_protocol(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("correlate", "--dataset", "flickr8k-expert", "--metric", "bleu-1", "--metric", "cider")
    assert ran.code == 0, ran.err
    assert "embedded synthetic sample" in ran.out.splitlines()[0]
    assert "flickr8k-expert/no-own-captions/unaggregated-tau-c: 900 ratings of 300 items" in ran.out
    assert "cider|capbench:" in ran.out
    assert "wrote" not in ran.err


def test_without_arguments_every_judged_data_set_is_measured(capbench: Callable[..., Ran]) -> None:
    ran = capbench("correlate", "--metric", "bleu", "--json")
    found = json.loads(ran.out)
    assert [p["dataset"] for p in found["protocols"]] == [
        "flickr8k-expert",
        "flickr8k-crowdflower",
        "composite",
        "pascal-50s",
    ]
    assert all(-1 <= cell["value"] <= 1 for cell in found["cells"])
    assert found["sample"] is True


def test_protocols_are_taken_in_full_or_in_part(capbench: Callable[..., Ran]) -> None:
    in_part = capbench(
        "correlate", "-d", "composite", "-p", "all-references/correctness-tau-b", "-m", "bleu-1", "--json"
    )
    in_full = capbench("correlate", "-p", "composite/all-references/correctness-tau-b", "-m", "bleu-1", "--json")
    cells = [json.loads(ran.out)["cells"] for ran in (in_part, in_full)]
    assert cells[0] == cells[1]
    assert cells[0][0]["protocol"] == "composite/all-references/correctness-tau-b"


def test_composite_is_shown_pooled_and_by_source(capbench: Callable[..., Ran]) -> None:
    ran = capbench("correlate", "-d", "composite", "-m", "bleu-1", "--json")
    assert [cell["group"] for cell in json.loads(ran.out)["cells"]] == ["", "8k", "30k", "coco"]


def test_pascal_is_shown_by_category_in_the_literatures_order(capbench: Callable[..., Ran]) -> None:
    ran = capbench("correlate", "-d", "pascal-50s", "-m", "bleu-1", "--json")
    assert json.loads(ran.out)["protocols"][0]["groups"] == ["HC", "HI", "HM", "MM"]


def test_nocaps_has_means_by_domain(capbench: Callable[..., Ran]) -> None:
    ran = capbench("correlate", "-d", "nocaps", "-m", "bleu-1", "--json")
    found = json.loads(ran.out)
    assert found["protocols"][0]["kind"] == "mean"
    assert {cell["group"] for cell in found["cells"]} == {"", "in-domain", "near-domain", "out-domain"}


def test_a_study_writes_four_files_that_agree(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench("correlate", "tiger-table1")
    assert ran.code == 0, ran.err
    folder = tmp_path / "results" / "tiger-table1"
    assert sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) == [
        "results.csv",
        "results.json",
        "results.md",
        "results.tex",
    ]
    result = load_result(folder / "results.json")
    cell = result.cell("flickr8k-expert/no-own-captions/unaggregated-tau-c", "cider")
    assert cell is not None
    for name in ("results.md", "results.tex"):
        assert f"{cell.value:.4f}" in (folder / name).read_text(encoding="utf-8")
    assert f"{cell.value:.4f}" in ran.out
    assert f"{cell.value!r}" in (folder / "results.csv").read_text(encoding="utf-8")


def test_published_numbers_are_not_set_beside_the_samples(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("correlate", "tiger-table1", "--out", tmp_path / "out")
    assert "published numbers are left out" in ran.out
    assert "0.493" not in ran.out
    assert "TIGEr waits for" in ran.out.replace("RRS, WDS, ", "")


def test_missing_files_are_listed_and_the_exit_code_is_1(
    capbench: Callable[..., Ran], sample: Path, tmp_path: Path
) -> None:
    import shutil

    root = tmp_path / "data"
    shutil.copytree(sample / "flickr8k", root / "flickr8k", ignore=shutil.ignore_patterns("*.png"))
    ran = capbench("correlate", "-d", "flickr8k-expert", "-d", "pascal-50s", "-m", "bleu-1", "--data", root)
    assert ran.code == 1
    assert "pascal-50s/json-5-refs/direct-strict" in ran.out
    assert "there is no such file" in ran.out
    assert "flickr8k-expert/no-own-captions/unaggregated-tau-c: 900 ratings" in ran.out


def test_nothing_at_hand_is_an_error(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = capbench("correlate", "-d", "pascal-50s", "-m", "bleu-1", "--data", tmp_path / "empty")
    assert ran.code == 2
    assert ran.err.count("\n") <= 2
    assert "there is no such file" in ran.err


def test_judgements_of_ones_own_in_a_file_are_measured(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "image,candidate,reference_1,ratings\na,a dog runs,a dog is running,4\nb,a cat,a dog is running,1\n"
        "c,the dog is running,a dog is running,5\n",
        encoding="utf-8",
    )
    ran = capbench("correlate", "-d", path, "-m", "rouge-l", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["sample"] is False
    assert found["cells"][0]["value"] == pytest.approx(1.0)
