"""``capbench leaderboard``: numbers, published numbers in columns of their protocol, score files, order and files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path

import pytest

import capbench as capbench_of_python
from capbench.core.errors import CapbenchWarning
from capbench.core.files import read_text
from capbench.datasets.root import sample_dir
from capbench.metrics.from_file import ScoresEntry
from capbench.studies.leaderboard import Leaderboard, load_leaderboard, published_numbers
from scripts.readme import COLUMNS, MARKS, ROOT
from tests.conftest import Ran
from tests.reports.latex import assert_well_formed

Capbench = Callable[..., Ran]
QUICK = ("--bootstrap", "100", "--permutations", "100")
EXPERT = "flickr8k-expert/no-own-captions/unaggregated-tau-c"


@pytest.fixture
def scores(capbench: Capbench, tmp_path: Path) -> Path:
    """Number of words of every caption of the sample's Flickr8k Expert, by id."""
    capbench("data", "items", "flickr8k-expert", "--out", str(tmp_path / "items"))
    path = tmp_path / "mine.csv"
    lines = (tmp_path / "items" / "predictions.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    path.write_text("id,mine\n" + "".join(f"{row['id']},{len(row['caption'].split())}\n" for row in rows), "utf-8")
    return path


def board_of(ran: Ran) -> Leaderboard:
    assert ran.error is None
    return Leaderboard.model_validate(json.loads(ran.out))


def test_computed_numbers_are_those_of_correlate_and_rank(capbench: Capbench, scores: Path) -> None:
    names = ("bleu-4", "rouge-l", "--scores", str(scores))
    ran = capbench("leaderboard", *names, "-d", "flickr8k-expert", *QUICK, "--json")
    board = board_of(ran)
    assert (ran.code, board.sample) == (0, True)
    options = ("--bootstrap", "100", "--compare", "permutation", "--permutations", "100")
    metrics = ("-m", "bleu-4", "-m", "rouge-l", "-m", "mine", "--scores", str(scores))
    study = json.loads(capbench("correlate", "-d", "flickr8k-expert", *metrics, *options, "--json").out)
    (tests,) = study["comparisons"]
    assert board.columns[0].protocol == EXPERT
    for cell in study["cells"]:
        ours = board.row(cell["column"]).ours["flickr8k-expert"]
        assert (ours.value, ours.low, ours.high, ours.n) == tuple(cell[key] for key in ("value", "low", "high", "n"))
        assert ours.top == (cell["column"] in tests["top"])
        assert ours.rank == tests["ranks"][cell["column"]]
    assert [board.row(name).origin for name in ("bleu-4", "mine")] == ["computed", "scores"]
    ranked = [row.name for row in board.rows if row.rank is not None]
    assert ranked == [metric.column for metric in board.ranking.ranking.metrics]
    assert {board.row(name).signatures["flickr8k-expert/no-own-captions"].split("|")[0] for name in ranked} == {
        "bleu",
        "rouge-l",
        "file:mine.csv",
    }


def test_a_published_number_is_only_in_the_column_of_its_protocol(capbench: Capbench) -> None:
    board = board_of(capbench("leaderboard", "cider", "-d", "flickr8k-expert", "-d", "pascal-50s", *QUICK, "--json"))
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
    assert not headings & {column.protocol for column in board.columns if not column.group}
    clip = board.row("clipscore")
    assert (clip.origin, clip.ours, clip.rank) == ("printed", {}, None)
    assert (clip.printed["flickr8k-expert"].printed, clip.others["PASCAL-50S HC"].value) == ("51.2", 0.551)


def test_scores_with_the_title_of_a_published_metric_are_its_row_and_others_are_as_given(scores: Path) -> None:
    entry = ScoresEntry(str(scores), label="mine", title="SPICE")
    other = ScoresEntry(str(scores), label="other", title="Other", reads_references=False, uses_ratings=True)
    made = capbench_of_python.leaderboard
    board = made("flickr8k-expert", "bleu-1", bootstrap=100, permutations=100, scores=[entry, other], data="sample")
    (row,) = (row for row in board.rows if row.title == "Other")
    assert (row.reads_references, row.uses_ratings) == (False, True)
    (row,) = (row for row in board.rows if row.title == "SPICE")
    assert (row.name, row.origin, row.printed["flickr8k-expert"].value) == ("mine", "scores", 0.449)
    assert row.value("flickr8k-expert") == row.ours["flickr8k-expert"].value


@pytest.mark.parametrize("fault", ["other references", "a second score", "no items"])
def test_the_reason_for_a_missing_number_of_a_score_file_is_printed(
    capbench: Capbench, scores: Path, tmp_path: Path, fault: str
) -> None:
    capbench("data", "items", "foil", "--out", str(tmp_path / "foil"))
    lines = (tmp_path / "foil" / "predictions.jsonl").read_text("utf-8").splitlines()
    ids = [json.loads(line)["id"] for line in lines]
    rows = {
        "other references": [f"{name[:-8]}00000000,{place}" for place, name in enumerate(ids)],
        "a second score": [f"{name},{place}" for place, name in enumerate([*ids, ids[0]])],
        "no items": [],
    }[fault]
    scores.write_text(scores.read_text("utf-8") + "".join(f"{row}\n" for row in rows), "utf-8")
    arguments = ("leaderboard", "cider", "--scores", scores, "-d", "flickr8k-expert", "-d", "foil", *QUICK)
    ran = capbench(*arguments, "--json")
    mine = board_of(ran).row("mine")
    assert (ran.code, set(mine.ours), set(mine.missing)) == (1, {"flickr8k-expert"}, {"foil"})
    assert "mine.csv" in mine.missing["foil"]
    printed = capbench(*arguments)
    assert (printed.code, mine.missing["foil"] in " ".join(printed.out.split())) == (1, True)
    with pytest.warns(CapbenchWarning, match="mine.csv"):
        board = capbench_of_python.leaderboard(
            ["flickr8k-expert", "foil"], ["cider"], scores=[scores], bootstrap=100, permutations=100, data=sample_dir()
        )
    assert board.is_incomplete


def test_the_overall_value_is_the_mean_of_the_shown_columns(capbench: Capbench, tmp_path: Path) -> None:
    saved = tmp_path / "board.json"
    saved.write_text(capbench("leaderboard", "cider", "rouge-l", *QUICK, "--json").out, "utf-8")
    board = load_leaderboard(saved)
    weights = {task.name: task.weight for task in board.ranking.tasks}
    assert {column.name for column in board.columns} == set(weights)
    of_set: dict[str, float] = {}
    for column in board.columns:
        of_set[column.dataset] = of_set.get(column.dataset, 0) + weights[column.name]
    assert set(of_set.values()) == {1}
    for name in ("cider", "rouge-l"):
        row, total = board.row(name), 0.0
        for column in board.columns:
            value = row.ours[column.name].value
            total += weights[column.name] * (value if column.statistic == "accuracy" else (1 + value) / 2)
        assert row.overall == pytest.approx(total / len(of_set))
    ranked = json.loads(capbench("rank", "-m", "cider,rouge-l", "--tasks", "leaderboard", "--json").out)
    overall = {metric["column"]: metric["overall"] for metric in ranked["ranking"]["metrics"]}
    assert overall == {name: board.row(name).overall for name in overall}


def test_rows_are_sorted_by_one_column_with_second_hand_numbers_last_and_nothing_bold(
    capbench: Capbench, tmp_path: Path
) -> None:
    html, tex, saved = tmp_path / "board.html", tmp_path / "board.tex", tmp_path / "board.json"
    files = ("--html", html, "--latex", tex)
    saved.write_text(capbench("leaderboard", "cider", "-d", "flickr8k-expert", *QUICK, *files, "--json").out, "utf-8")
    board = load_leaderboard(saved)
    assert board.row("pearl").printed["flickr8k-expert"].value > board.row("expert").printed["flickr8k-expert"].value
    known = [row for row in board.sorted("flickr8k-expert") if row.value("flickr8k-expert") is not None]
    assert (known[0].name, {row.name for row in known[-2:]}) == ("expert", {"pearl", "discode"})
    for text in (capbench("leaderboard", "--from", saved).out, tex.read_text("utf-8"), html.read_text("utf-8")):
        places = [text.index(number) for number in ("56.7", "56.4", "58.6")]
        assert places == sorted(places)
        assert "sorted by Flickr8k Expert" in text
    assert "textbf" not in tex.read_text("utf-8")
    assert r"58.6\textsuperscript{h}" in tex.read_text("utf-8")


def test_the_committed_board_is_shown_at_once(capbench: Capbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capbench.api.leaderboard.leaderboard", lambda *_, **__: pytest.fail("it is computed"))
    ran = capbench("leaderboard", "--sort", "foil", "--json")
    assert ran.code == 0
    board = board_of(ran)
    assert board == load_leaderboard(ROOT / "results" / "leaderboard" / "leaderboard.json")
    assert not board.sample


def test_order_columns_digits_and_a_saved_board(capbench: Capbench, scores: Path, tmp_path: Path) -> None:
    saved = tmp_path / "board.json"
    names = ("cider", "--scores", str(scores), "-d", "flickr8k-expert", "-d", "foil")
    saved.write_text(capbench("leaderboard", *names, *QUICK, "--json").out, "utf-8")
    board = load_leaderboard(saved)
    first_hand = [row for row in board.sorted("flickr8k-expert") if not row.is_second_hand("flickr8k-expert")]
    by_value = [row.value("flickr8k-expert") for row in first_hand]
    known = [value for value in by_value if value is not None]
    assert known == sorted(known, reverse=True)
    assert by_value[: len(known)] == known
    printed = capbench("leaderboard", "--from", saved, "--column", "flickr8k-expert", "--digits", "2")
    assert "FOIL" not in printed.out
    assert "[" not in printed.out.partition("ᵖ as printed")[0]
    assert "[" in capbench("leaderboard", "--from", saved, "--intervals").out.partition("ᵖ as printed")[0]
    ours = board.row("cider").ours["flickr8k-expert"].value
    assert f"{100 * ours:.2f}" in printed.out
    assert "56.4ᵖ" in printed.out  # not 56.40: the paper printed one digit
    assert board.to_frame().query("metric == 'cider'")["value"].tolist() == [
        row.value for row in board.row("cider").ours.values()
    ]
    assert capbench("leaderboard", "--from", saved, "--sort", "wrong").failure.code == "unknown-name"
    assert capbench("leaderboard", "--from", saved, "--column", "wrong").failure.code == "unknown-name"
    assert capbench("leaderboard", "--from", saved, "-d", "foil").failure.code == "conflict"
    assert capbench("leaderboard", "--from", scores).failure.code == "wrong-format"
    assert capbench("leaderboard", "--from", tmp_path / "none.json").code == 2


def test_the_files_show_every_number(capbench: Capbench, scores: Path, tmp_path: Path) -> None:
    html, tex, saved = tmp_path / "board.html", tmp_path / "board.tex", tmp_path / "board.json"
    files = ("--html", html, "--latex", tex)
    ran = capbench("leaderboard", "cider", "--scores", scores, "-d", "flickr8k-expert", *QUICK, *files, "--json")
    saved.write_text(ran.out, "utf-8")
    board, page, table = board_of(ran), html.read_text("utf-8"), tex.read_text("utf-8")
    rows = [line for line in table.splitlines() if line.endswith(r"\\") and "&" in line]
    known = [row for row in board.rows if row.value("flickr8k-expert") is not None]
    assert len(rows) == len(known) + 4  # two lines of heads, human ceiling and a sentinel
    assert re.search(r"^mine & -?\$?-?\$?\d+\.\d\\textsuperscript\{s\}", table, re.MULTILINE)
    assert r"Polos & 56.4\textsuperscript{p} \\" in table
    assert re.search(r"% .*synthetic", table)
    assert_well_formed(table)
    lines = dict(re.findall(r'<tr><th scope="row" data-copy="([^"]*)">(.*?)</tr>', page, re.DOTALL))
    shown = {row.title: row.value("flickr8k-expert") for row in known}
    assert {unescape(title) for title in lines} == {*shown, "human ceiling", "candidate-only"}
    assert all(f">{100 * (value or 0):.1f}" in lines[escape(title)] for title, value in shown.items())
    assert "Content-Security-Policy" in page
    with pytest.raises(Exception, match="unknown column 'foil'"):
        board.to_latex(["foil"])


def test_readmes_table_is_what_the_named_command_prints(capbench: Capbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    before, _, rest = read_text("README.md").partition(MARKS[0])
    (command,) = re.findall(r"`capbench (leaderboard.*?)`", before)
    (_, _, *lines) = rest.partition(MARKS[1])[0].strip().splitlines()
    printed = capbench(*command.split(), "--column", ",".join(COLUMNS)).out
    for line in lines:
        title, *numbers = line.strip("| ").split(" | ")
        (found,) = re.findall(rf"^ ?{re.escape(title)}  .*$", printed, re.MULTILINE)
        assert re.findall(r"\d+\.\d[ˢᵖʰ]?", found) == numbers
