"""Every kind of bad input gives a one-line error with file, row and remedy, and exit code 2.

Each case damages a copy of the embedded sample, or passes an invalid file to a command, and states the expected error.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran

EXPERT = "flickr8k/ExpertAnnotations.txt"
CROWD = "flickr8k/CrowdFlowerAnnotations.txt"
TOKEN = "flickr8k/Flickr8k.token.txt"
COMPOSITE = "composite/composite_11985.tsv"
EXPORT = "composite/8k_correctness.csv"
PASCAL = "pascal50s/pascal_50s.json"
VOTES = "pascal50s/pair_pascal.mat"
NOCAPS = "nocaps/nocaps_corpus.json"
COCO = "coco/karpathy_test_captions.json"

Damage = Callable[[Path], None]


def line(number: int, change: Callable[[str], str]) -> Damage:
    """Change one line, counted from 1."""

    def damage(path: Path) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")
        lines[number - 1] = change(lines[number - 1])
        path.write_text("\n".join(lines), encoding="utf-8")

    return damage


def field(number: int, column: int, value: str) -> Damage:
    """Replace one tab-separated field of one line."""

    def change(text: str) -> str:
        fields = text.split("\t")
        fields[column] = value
        return "\t".join(fields)

    return line(number, change)


def data(change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of a file."""

    def damage(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return damage


def value(change: Callable[[Any], Any]) -> Damage:
    """Change what a JSON file holds; the change may be in place."""

    def damage(path: Path) -> None:
        loaded = json.loads(path.read_text(encoding="utf-8"))
        changed = change(loaded)
        path.write_text(json.dumps(loaded if changed is None else changed), encoding="utf-8")

    return damage


def set_at(*keys: Any, to: Any) -> Damage:
    """Set one value deep in a JSON file."""

    def change(loaded: Any) -> None:
        for key in keys[:-1]:
            loaded = loaded[key]
        loaded[keys[-1]] = to

    return value(change)


def without_mm(loaded: Any) -> None:
    del loaded["MM"]


def remove(path: Path) -> None:
    path.unlink()


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@dataclass(frozen=True)
class Bad:
    """A damaged file of a data set, and the expected error."""

    file: str
    damage: Damage
    dataset: str
    code: str
    row: int | str | None = None
    value: Any = None


DATASET_CASES = {
    "expert: rating out of range": Bad(EXPERT, field(5, 3, "7"), "flickr8k-expert", "out-of-range", row=5, value="7"),
    "expert: Latin-1 bytes": Bad(
        EXPERT,
        data(lambda b: b.replace(b"f8k_005", b"f8k_\xe9", 1)),
        "flickr8k-expert",
        "unreadable",
        row=2,
        value="0xe9",
    ),
    "expert: UTF-16": Bad(
        EXPERT, data(lambda b: b.decode().encode("utf-16")), "flickr8k-expert", "unreadable", row=1, value="0xff"
    ),
    "expert: gzipped": Bad(EXPERT, data(gzip.compress), "flickr8k-expert", "unreadable", row=1, value="0x8b"),
    "expert: empty file": Bad(EXPERT, data(lambda b: b""), "flickr8k-expert", "damaged"),
    "expert: missing file": Bad(EXPERT, remove, "flickr8k-expert", "missing-file"),
    "expert: a folder in its place": Bad(EXPERT, as_folder, "flickr8k-expert", "unreadable"),
    "token: contradicting repeat": Bad(
        TOKEN, line(2, lambda s: f"{s}\n{s} and more"), "flickr8k-expert", "duplicate", row=3, value=1
    ),
    "crowd: share against its counts": Bad(CROWD, field(2, 2, "0.1"), "flickr8k-crowdflower", "mismatch", row=2),
    "composite: unknown column": Bad(
        COMPOSITE,
        line(1, lambda s: s.replace("correctness", "rating")),
        "composite",
        "missing-column",
        row=1,
        value="correctness",
    ),
    "export: a column is missing": Bad(
        EXPORT,
        line(1, lambda s: s.replace("Answer.Q2Answer", "Q2")),
        "composite",
        "missing-column",
        row=1,
        value="Answer.Q2Answer",
    ),
    "export: rating is no number": Bad(
        EXPORT, line(2, lambda s: s.replace(";5;", ";five;")), "composite", "not-a-number", row=2, value="five"
    ),
    "pascal: cut off": Bad(PASCAL, data(lambda b: b[: len(b) // 2]), "pascal-50s", "wrong-format", row=1211),
    "pascal: no JSON": Bad(PASCAL, data(lambda b: b"<html>404</html>"), "pascal-50s", "wrong-format", row=1),
    "pascal: a category is missing": Bad(PASCAL, value(without_mm), "pascal-50s", "mismatch"),
    "pascal: a list in its place": Bad(PASCAL, value(lambda v: [v]), "pascal-50s", "wrong-format"),
    "pascal: damaged .mat": Bad(VOTES, data(lambda b: b[:100]), "pascal-50s", "wrong-format"),
    "nocaps: unknown domain": Bad(
        NOCAPS, set_at(2, "split", to="far"), "nocaps", "unknown-name", row="image 2", value="far"
    ),
    "nocaps: a caption is a number": Bad(
        NOCAPS, set_at(2, "caption", 0, to=5), "nocaps", "wrong-type", row="entry 3", value=5
    ),
    "coco: captions are no list": Bad(COCO, value(lambda v: dict.fromkeys(v, "text")), "composite", "wrong-format"),
    "coco: NaN": Bad(COCO, data(lambda b: b.replace(b"[", b"[NaN,", 1)), "composite", "not-a-number", value="NaN"),
}


@pytest.fixture
def root(sample: Path, tmp_path: Path) -> Path:
    """A copy of the sample without its pictures."""
    copy = tmp_path / "data"
    shutil.copytree(sample, copy, ignore=shutil.ignore_patterns("*.png"))
    return copy


def assert_one_clear_line(ran: Ran, *parts: str) -> None:
    problem = [text for text in ran.err.splitlines() if not text.startswith(("data: ", "items: ", "  "))]
    assert ran.code == 2, ran
    assert len(problem) == 1, ran.err
    assert problem[0].startswith("error: "), ran.err
    for part in parts:
        assert part in problem[0], problem[0]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("name", DATASET_CASES)
def test_a_damaged_data_set_is_rejected_with_file_and_row(name: str, root: Path, capbench: Callable[..., Ran]) -> None:
    case = DATASET_CASES[name]
    if case.file == COMPOSITE:
        for export in (root / "composite").glob("*.csv"):  # which are read first where they are
            export.unlink()
    case.damage(root / case.file)
    ran = capbench("score", "--metric", "bleu", "--dataset", case.dataset, "--data", root)
    assert_one_clear_line(ran)
    failure = ran.failure
    assert (failure.code, failure.row, failure.value) == (case.code, case.row, case.value), failure
    assert case.file.rsplit("/", 1)[-1] in str(failure)
    assert failure.hint


@pytest.mark.parametrize(
    "damage",
    [data(lambda b: b"\xef\xbb\xbf" + b), data(lambda b: b.replace(b"\n", b"\r\n")), data(lambda b: b.rstrip(b"\n"))],
    ids=["byte-order mark", "CRLF", "no final newline"],
)
@pytest.mark.parametrize("file", [EXPERT, TOKEN, CROWD, COMPOSITE, PASCAL])
def test_harmless_differences_of_text_files_change_nothing(
    file: str, damage: Damage, root: Path, capbench: Callable[..., Ran]
) -> None:
    dataset = {EXPERT: "flickr8k-expert", TOKEN: "flickr8k-expert", CROWD: "flickr8k-crowdflower"}.get(
        file, "composite" if file == COMPOSITE else "pascal-50s"
    )
    arguments = ("score", "--metric", "bleu", "--dataset", dataset, "--data", root, "--json")
    before = capbench(*arguments)
    damage(root / file)
    after = capbench(*arguments)
    assert after.code == 0, after.err
    assert after.out == before.out


ARGUMENT_CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown metric": (("score", "--metric", "cidr"), ("'cidr'", "'cider'")),
    "unknown column": (("score", "--metric", "bleu.bleu-9"), ("'bleu-9'", "bleu-1")),
    "unknown data set": (("score", "-m", "bleu", "-d", "flickr9k"), ("'flickr9k'", "flickr8k-expert")),
    "unknown protocol": (("score", "-m", "bleu", "-p", "flickr8k-expert/most"), ("'most'", "no-own-captions")),
    "unknown statistic": (
        ("correlate", "-m", "bleu", "-p", "composite/same-text-out/tau-d"),
        ("tau-d", "correctness-tau-b"),
    ),
    "unknown option": (("score", "-m", "bleu", "--option", "bleu.size=4"), ("'size'",)),
    "option of a metric that is not among the requested ones": (
        ("score", "-m", "bleu", "--option", "cider.df=x"),
        ("cider",),
    ),
    "option that is not of the form": (("score", "-m", "bleu", "--option", "df"), ("--option df",)),
    "unknown corpus": (("score", "-m", "cider", "--option", "cider.df=cocoo-val"), ("cocoo-val", "coco-val")),
    "unknown option of a metric": (
        ("score", "-m", "bleu", "--option", "bleu.engine=warp"),
        ("bleu", "'engine'"),
    ),
    "draw that does not exist": (("score", "-m", "bleu", "--draw", "2"), ("--draw 2",)),
    "candidates without references": (
        ("score", "-m", "bleu", "--candidates", "x.json"),
        ("bleu: references are required", "--references FILE"),
    ),
    "unknown ending": (("score", "-m", "bleu", "-o", "scores.xls"), ("scores.xls", ".csv")),
    "study and flags together": (("correlate", "demo", "-m", "bleu"), ("study", "--metric")),
    "protocol without a data set": (("correlate", "-p", "tau-b"), ("--protocol tau-b", "--dataset")),
    "no such study": (("correlate", "tiger-tabel1"), ("tiger-tabel1", "'tiger-table1'")),
    "no such data folder": (("correlate", "--data", "no/where"), ("no/where",)),
    "class that does not exist": (("score", "-m", "json:Nothing"), ("json:Nothing", "AttributeError")),
    "module that does not exist": (("score", "-m", "no_such_module:X"), ("no_such_module:X",)),
    "something that is no metric": (("score", "-m", "json:JSONDecoder"), ("json:JSONDecoder",)),
    "metric without its requirements": (("score", "-m", "nneval"), ("nneval requires",)),
}


@pytest.mark.parametrize("name", ARGUMENT_CASES)
def test_bad_arguments_are_refused(
    name: str, capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, parts = ARGUMENT_CASES[name]
    assert_one_clear_line(capbench(*arguments), *parts)
    assert [p.name for p in tmp_path.iterdir() if p.name != "cache"] == []


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
