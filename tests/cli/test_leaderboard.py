"""``capbench leaderboard``: numbers, published numbers in columns of their protocol, score files, order and files."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

import capbench as capbench_of_python
from capbench.metrics.from_file import ScoresEntry
from capbench.studies.leaderboard import Leaderboard, load_leaderboard, published_numbers
from scripts.readme import ROOT
from tests.conftest import Ran
from tests.reports.latex import assert_well_formed

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
    monkeypatch.setattr("capbench.api.leaderboard.leaderboard", lambda *_, **__: pytest.fail("it is computed"))
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
