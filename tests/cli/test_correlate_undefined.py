"""A statistic that is undefined costs its own cell, and no other number."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

CONSTANT = """image,candidate,reference_1,reference_2,rating
a,a dog runs,a dog runs,a brown dog is running,3
b,a cat sits,a cat sits,a cat sits,1
c,some birds fly,some birds fly,birds in the sky,2
"""
REASON = "the correlation of BLEU-1 with the human ratings is not defined: all 3 values of BLEU-1"


@pytest.fixture
def mine(capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set on which BLEU-1 is the same for all captions, and CIDEr is not."""
    (tmp_path / "mine.csv").write_text(CONSTANT)
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))
    ran = capbench("data", "import", tmp_path / "mine.csv", "--name", "mine")
    assert ran.code == 0, ran.err


@pytest.mark.usefixtures("mine")
def test_other_sets_and_rows_keep_their_numbers(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    alone = capbench("correlate", "-d", "flickr8k-expert", "-m", "bleu-1", "-m", "cider", "--json")
    ran = capbench("correlate", "-d", "flickr8k-expert", "-d", "mine", "-m", "bleu-1", "-m", "cider", "--json")
    assert (alone.code, ran.code) == (0, 1), ran.err
    found, expected = json.loads(ran.out), json.loads(alone.out)
    assert [cell for cell in found["cells"] if cell["protocol"].startswith("flickr8k")] == expected["cells"]
    (cell,) = [one for one in found["cells"] if one["column"] == "bleu-1" and one["protocol"] == "mine/as-given/tau-b"]
    assert (cell["value"], cell["n"], cell["p_value"]) == (None, 3, None)
    assert cell["undefined"].startswith(REASON)
    assert found["missing"] == []


@pytest.mark.usefixtures("mine")
def test_where_nothing_is_defined_there_is_one_line_and_no_result(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("correlate", "-d", "mine", "-m", "bleu-1", "--out", tmp_path / "out")
    assert ran.code == 2
    assert "error: BLEU-1 under mine/as-given/tau-b: the correlation of BLEU-1" in ran.err
    assert not list((tmp_path / "out").glob("*"))


def _grouped(folder: Path) -> Path:
    """40 rated captions; the two of group B have equal ratings."""
    words = ("dog", "cat", "bird", "boat", "tree")
    lines = ["image,candidate,reference_1,rating,group"]
    for i in range(40):
        candidate = " ".join(["a", *(words[(i + k) % 5] for k in range(1 + i % 4))])
        group, rating = ("B", 2) if i < 2 else ("A", 1 + (i * i + i // 3) % 5)
        lines.append(f"i{i}.jpg,{candidate},a {words[i % 5]} on a {words[(i + 1) % 5]},{rating},{group}")
    (folder / "j.csv").write_text("\n".join(lines) + "\n")
    return folder / "j.csv"


def test_a_group_with_equal_ratings_is_undefined_in_its_own_cells_alone(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    file = _grouped(tmp_path)
    flags = ("-m", "bleu-1", "-m", "rouge-l", "--bootstrap", "100", "--compare", "permutation")
    ran = capbench("correlate", "-d", file, *flags, "--json")
    assert ran.code == 1, ran.err
    result = json.loads(ran.out)
    cells = {(cell["column"], cell["group"]): cell for cell in result["cells"]}
    assert set(cells) == {(column, group) for column in ("bleu-1", "rouge-l") for group in ("", "A", "B")}
    for column in ("bleu-1", "rouge-l"):
        for group in ("", "A"):
            cell = cells[column, group]
            assert cell["undefined"] == ""
            assert cell["low"] < cell["value"] < cell["high"]
        without = cells[column, "B"]
        assert (without["value"], without["low"], without["n"]) == (None, None, 2)
        assert without["undefined"] == (
            "no correlation is defined: all 2 values of the human ratings of B are equal to 2"
        )
    assert result["protocols"][0]["groups"] == ["B", "A"]
    assert [tests["group"] for tests in result["comparisons"]] == ["", "A"]


def test_every_form_prints_the_other_numbers_next_to_an_undefined_cell(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran = capbench("correlate", "-d", _grouped(tmp_path), "-m", "bleu-1", "-m", "rouge-l", "--out", out, "--by-source")
    assert ran.code == 1, ran.err
    for text in (ran.out, (out / "results.md").read_text(), (out / "results.tex").read_text()):
        assert text.count("undefined") >= 3  # two cells and the note
    lines = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    for line in lines:
        assert (line["value"] == "", line["undefined"] != "") == ((line["group"] == "B"),) * 2
    page = capbench("figure", "report", out / "results.json", "--out", tmp_path / "page.html")
    assert page.code == 0, page.err
    assert "all 2 values of the human ratings of B are equal to 2" in (tmp_path / "page.html").read_text()


def test_pairs_on_which_people_are_even_leave_their_group_out_of_the_mean(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    rows = ["image,candidate_a,candidate_b,reference_1,preferred,group"]
    for i, judged in enumerate(["a A", "b A", "a B", "a B", "tie C", "tie C"]):
        preferred, group = judged.split()
        rows.append(f"i{i}.jpg,a dog runs,a cat,a dog runs here,{preferred},{group}")
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n")
    ran = capbench("correlate", "-d", tmp_path / "pairs.csv", "-m", "bleu-1", "-m", "rouge-l", "--json")
    assert ran.code == 1, ran.err
    cells = {(cell["column"], cell["group"]): cell for cell in json.loads(ran.out)["cells"]}
    assert [cells["bleu-1", group]["value"] for group in ("", "A", "B", "C")] == [0.75, 0.5, 1.0, None]
    assert cells["bleu-1", ""]["n"] == 4
    assert (
        cells["bleu-1", "C"]["undefined"] == "the votes are even on all 2 pairs of C; the mean over groups excludes it"
    )
