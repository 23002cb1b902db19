"""A statistic that is not defined costs the row it belongs to, and no other number."""

from __future__ import annotations

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
REASON = "undefined under mine/as-given/tau-b: the correlation of BLEU-1 with the human ratings is not defined: all 3"


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
    (missing,) = [one for one in found["missing"] if one["column"] == "bleu-1"]
    assert missing["protocol"] == "mine/as-given/tau-b"
    assert missing["reason"].startswith(REASON)


@pytest.mark.usefixtures("mine")
def test_tables_say_undefined_in_the_cell_and_why_below(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench(
        "correlate", "-d", "flickr8k-expert", "-d", "mine", "-m", "bleu-1", "-m", "cider", "--out", tmp_path / "out"
    )
    assert ran.code == 1
    assert "undefined" in ran.out
    assert f"BLEU-1 not computed: {REASON}" in " ".join(ran.out.split())
    for ending in ("md", "tex"):
        assert "undefined" in (tmp_path / "out" / f"results.{ending}").read_text()


@pytest.mark.usefixtures("mine")
def test_where_nothing_is_defined_there_is_one_line_and_no_result(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("correlate", "-d", "mine", "-m", "bleu-1", "--out", tmp_path / "out")
    assert ran.code == 2
    assert "error: BLEU-1 under mine/as-given/tau-b: the correlation of BLEU-1" in ran.err
    assert not list((tmp_path / "out").glob("*"))
