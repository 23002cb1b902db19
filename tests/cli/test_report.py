"""``capbench figure report``, and ``--report`` of other commands, as a user types them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.reports.page.test_page import data_of

QUICK = ("correlate", "-d", "composite", "-m", "bleu-1", "-m", "bleu-4")


def test_a_run_writes_its_page_with_captions_and_pictures_and_says_where_it_is(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = capbench(*QUICK, "--report", tmp_path / "page.html", "--json")
    assert ran.code == 0, ran.err
    assert f"wrote {tmp_path / 'page.html'}" in ran.err
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    data, result = data_of(page), json.loads(ran.out)
    assert all(re.search(rf">{100 * cell['value']:.1f}[†‡]*<", page) for cell in result["cells"])
    (panel,) = data["panels"]
    assert panel["all"] == len(panel["caption"]) == 210
    assert data["pictures"]
    assert set(data["pictures"]) <= set(panel["images"])
    assert "these numbers say nothing about metrics" in page


def test_results_with_their_items_give_the_page_of_the_run_itself(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    first = capbench(*QUICK, "--report", tmp_path / "run.html", "--out", tmp_path / "out", "--items")
    assert first.code == 0, first.err
    ran = capbench("figure", "report", tmp_path / "out", "--out", tmp_path / "again.html")
    assert ran.code == 0, ran.err
    run, again = (data_of((tmp_path / name).read_text(encoding="utf-8")) for name in ("run.html", "again.html"))
    assert run == again
    # Without --items, those of the earlier run would belong to other numbers.
    assert capbench(*QUICK[:-2], "--out", tmp_path / "out").code == 0
    assert not (tmp_path / "out" / "items.json.gz").exists()
    assert capbench("figure", "report", tmp_path / "out", "--out", tmp_path / "bare.html").code == 0
    bare = (tmp_path / "bare.html").read_text(encoding="utf-8")
    assert data_of(bare)["panels"] == []
    assert f"--out {tmp_path / 'out'} --items" in bare


def test_several_results_stand_on_one_page(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert capbench(*QUICK, "--out", tmp_path / name).code == 0
    out = tmp_path / "both.html"
    named = (tmp_path / "a", tmp_path / "b" / "results.json")
    ran = capbench("figure", "report", *named, "--out", out, "--title", "Both & more")
    assert ran.code == 0, ran.err
    page = out.read_text(encoding="utf-8")
    assert "<title>Both &amp; more</title>" in page
    assert 'id="matrix-1-1"' in page


@pytest.mark.parametrize("protocol", ["composite", "pascal-50s"])
def test_a_comparison_writes_a_page_of_its_tests(capbench: Callable[..., Ran], tmp_path: Path, protocol: str) -> None:
    out = tmp_path / "page.html"
    draws = ("--bootstrap", "100", "--permutations", "100")
    ran = capbench("compare", "bleu-1", "bleu-4", "-d", protocol, *draws, "--report", out, "--json")
    assert ran.code == 0, ran.err
    compared, page = json.loads(ran.out), out.read_text(encoding="utf-8")
    for cell in (cell for cell in compared["cells"] if not cell["group"]):
        value, low, high = (f"{100 * cell[end]:z.1f}" for end in ("value", "low", "high"))
        assert re.search(rf">{value}[†‡]*</td><td class=\"n soft\">\[{low}, {high}\]</td>", page), cell["title"]
    assert "Differences between metrics" in page


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        ((*QUICK, "--items"), "missing-option", None),
        ((*QUICK, "--report", "{folder}"), "unwritable", "{folder}"),
        (("figure", "report", "{folder}/none.json"), None, "{folder}/none.json"),
        (("figure", "report", "{folder}/list.json"), None, "{folder}/list.json"),
        (("figure", "report", "{folder}/list.json", "--image-root", "{folder}/none"), "missing-file", "{folder}/none"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    capbench: Callable[..., Ran], tmp_path: Path, arguments: tuple[str, ...], code: str | None, path: str | None
) -> None:
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    ran = capbench(*(argument.format(folder=tmp_path) for argument in arguments))
    assert ran.code == 2
    assert len([text for text in ran.err.splitlines() if text.startswith("error: ")]) == 1
    assert code in (None, ran.failure.code)
    assert ran.failure.path == (path and path.format(folder=tmp_path))


def test_items_of_another_study_are_refused(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    for name, dataset in (("a", "composite"), ("b", "flickr8k-expert")):
        assert capbench("correlate", "-d", dataset, "-m", "bleu-1", "--out", tmp_path / name, "--items").code == 0
    (tmp_path / "b" / "items.json.gz").replace(tmp_path / "a" / "items.json.gz")
    ran = capbench("figure", "report", tmp_path / "a", "--out", tmp_path / "page.html")
    assert ran.code == 2
    assert "has items of flickr8k-expert/" in ran.err
