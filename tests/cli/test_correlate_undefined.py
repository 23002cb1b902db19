"""A statistic that is undefined costs its own cell, and no other number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import Ran

CONSTANT = """image,candidate,reference_1,reference_2,rating
a,a dog runs,a dog runs,a brown dog is running,3
b,a cat sits,a cat sits,a cat sits,1
c,some birds fly,some birds fly,birds in the sky,2
"""
REASON = "the correlation of BLEU-1 with the human ratings is not defined: all 3 values of BLEU-1"


def test_other_sets_and_rows_keep_their_numbers(capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    """BLEU-1 is the same for all captions of the imported set, and CIDEr is not."""
    Path("mine.csv").write_text(CONSTANT)
    assert capbench("data", "import", "mine.csv", "--name", "mine").code == 0
    both = ("-m", "bleu-1", "-m", "cider")
    expected = found("correlate", "-d", "flickr8k-expert", *both)
    result = found("correlate", "-d", "flickr8k-expert", "-d", "mine", *both, code=1)
    assert [cell for cell in result["cells"] if cell["protocol"].startswith("flickr8k")] == expected["cells"]
    (cell,) = [one for one in result["cells"] if one["column"] == "bleu-1" and one["protocol"] == "mine/as-given/tau-b"]
    assert (cell["value"], cell["n"], cell["p_value"]) == (None, 3, None)
    assert cell["undefined"].startswith(REASON)
    assert result["missing"] == []
    # Where nothing is defined there is one line and no result.
    ran = capbench("correlate", "-d", "mine", "-m", "bleu-1", "--out", "out")
    assert ran.code == 2
    assert "error: BLEU-1 under mine/as-given/tau-b: the correlation of BLEU-1" in ran.err
    assert not list(Path("out").glob("*"))
