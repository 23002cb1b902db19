"""Every kind of bad input gives a one-line error with file, row and remedy, and exit code 2.

Each case damages a copy of the embedded sample, or passes an invalid file to a command, and states the expected error.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

EXPERT = "flickr8k/ExpertAnnotations.txt"
CROWD = "flickr8k/CrowdFlowerAnnotations.txt"
TOKEN = "flickr8k/Flickr8k.token.txt"
COMPOSITE = "composite/composite_11985.tsv"
PASCAL = "pascal50s/pascal_50s.json"
VOTES = "pascal50s/pair_pascal.mat"
COCO = "coco/karpathy_test_captions.json"

Change = Callable[[bytes], bytes]


def line(number: int, pattern: str, text: str) -> Change:
    """Replace a pattern in one line, counted from 1."""

    def change(content: bytes) -> bytes:
        lines = content.decode().split("\n")
        lines[number - 1], replaced = re.subn(pattern, text, lines[number - 1], count=1)
        assert replaced
        return "\n".join(lines).encode()

    return change


DAMAGED: dict[str, tuple[str, Change | None, str, str, int | str | None, object]] = {
    "rating out of range": (EXPERT, line(5, r"\d$", "7"), "flickr8k-expert", "out-of-range", 5, "7"),
    "Latin-1": (EXPERT, lambda b: b.replace(b"f8k_005", b"f8k_\xe9", 1), "flickr8k-expert", "unreadable", 2, "0xe9"),
    "empty file": (EXPERT, lambda b: b"", "flickr8k-expert", "damaged", None, None),
    "missing file": (EXPERT, None, "flickr8k-expert", "missing-file", None, None),
    "share against its counts": (CROWD, line(2, r"\t[\d.]+\t", "\t0.1\t"), "flickr8k-crowdflower", "mismatch", 2, None),
    "no column": (COMPOSITE, line(1, "correctness", "rating"), "composite", "missing-column", 1, "correctness"),
    "cut off": (PASCAL, lambda b: b[: len(b) // 2], "pascal-50s", "wrong-format", 1211, None),
    "a category is missing": (PASCAL, lambda b: b.replace(b'"MM"', b'"XX"'), "pascal-50s", "wrong-format", None, None),
    "damaged .mat": (VOTES, lambda b: b[:100], "pascal-50s", "wrong-format", None, None),
    "NaN": (COCO, lambda b: b.replace(b"[", b"[NaN,", 1), "composite", "not-a-number", None, "NaN"),
}
"""File, its damage (None: it is deleted), the data set, and code, row and value of the error."""


@pytest.fixture
def root(sample: Path, tmp_path: Path) -> Path:
    """A copy of the sample without its pictures."""
    copy = tmp_path / "data"
    shutil.copytree(sample, copy, ignore=shutil.ignore_patterns("*.png"))
    return copy


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_data_set_is_rejected_with_file_and_row(name: str, root: Path, capbench: Callable[..., Ran]) -> None:
    file, change, dataset, *expected = DAMAGED[name]
    if file == COMPOSITE:
        for export in (root / "composite").glob("*.csv"):  # which are read first where they are
            export.unlink()
    if change is None:
        (root / file).unlink()
    else:
        (root / file).write_bytes(change((root / file).read_bytes()))
    ran = capbench("score", "--metric", "bleu", "--dataset", dataset, "--data", root)
    (problem,) = (text for text in ran.err.splitlines() if not text.startswith(("data: ", "items: ", "  ")))
    failure = ran.failure
    assert (ran.code, problem.startswith("error: "), Path(file).name in problem) == (2, True, True), ran.err
    assert [failure.code, failure.row, failure.value] == expected, failure
    assert failure.hint


@pytest.mark.parametrize(
    "change",
    [lambda b: b"\xef\xbb\xbf" + b, lambda b: b.replace(b"\n", b"\r\n"), lambda b: b.rstrip(b"\n")],
    ids=["byte-order mark", "CRLF", "no final newline"],
)
@pytest.mark.parametrize(
    ("file", "dataset"),
    [
        (EXPERT, "flickr8k-expert"),
        (TOKEN, "flickr8k-expert"),
        (CROWD, "flickr8k-crowdflower"),
        (COMPOSITE, "composite"),
        (PASCAL, "pascal-50s"),
    ],
)
def test_harmless_differences_of_text_files_change_nothing(
    file: str, dataset: str, change: Change, root: Path, capbench: Callable[..., Ran]
) -> None:
    arguments = ("score", "--metric", "bleu", "--dataset", dataset, "--data", root, "--json")
    before = capbench(*arguments)
    (root / file).write_bytes(change((root / file).read_bytes()))
    after = capbench(*arguments)
    assert after.code == 0, after.err
    assert after.out == before.out


def test_a_full_disk_keeps_the_old_scores(
    sample: Path, tmp_path: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out" / "scores.csv"
    out.parent.mkdir()
    out.write_text("old\n", encoding="utf-8")

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    ran = capbench("score", "--metric", "bleu", "--out", out, "--no-cache")
    assert ran.code == 2
    assert "No space left on device" in ran.err
    assert str(out) in ran.err
    assert out.read_text(encoding="utf-8") == "old\n"
    assert [p.name for p in out.parent.iterdir()] == ["scores.csv"]
