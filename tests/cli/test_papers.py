"""``capbench papers``: the list, the commands of a run in this process, and what is missing in the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench.cli import app as cli_app
from capbench.core.errors import MissingFileError
from tests.conftest import Ran

Run = Callable[..., Ran]
Calls = list[list[str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Notes the commands of a run, which do nothing; REO's fails, and NNEval's lacks something."""
    noted: Calls = []
    app = cli_app.app

    def call(*arguments: Any, **extra: Any) -> Any:
        if not arguments:  # the command of the test
            return app(**extra)
        noted.append(list(arguments[0]))
        print(f"printed by {arguments[0][0]}")
        if "reo-figure4" in arguments[0]:
            raise MissingFileError("no such thing")
        if "faier-figure5" in arguments[0]:
            return 130
        return int("nneval-figure4" in arguments[0])

    monkeypatch.setattr(cli_app, "app", call)
    return noted


def test_the_list_has_the_rows_of_every_item_and_is_80_columns_wide(capbench: Run, found: Callable[..., Any]) -> None:
    out = capbench("papers", "--data", "sample").out
    assert max(map(len, out.splitlines()[1:])) <= 80
    words = " ".join(out.split())
    entries = {entry["item"]: entry for entry in found("papers", "--data", "sample")}
    assert len(entries) == 28
    for name, entry in entries.items():
        available = f"{len(entry['rows'])} of {len(entry['rows']) + len(entry['waiting'])}"
        assert f"{name} {available} {entry['number']}: {entry['title']}" in words
    assert words.count("FAIEr, Table 2: HM-MSCOCO") == 1
    # One entry for all rows that require the same kind of model.
    assert words.count("a FAIEr model") == 1
    assert entries["tiger-figure7"]["stand_in"].startswith("ours, after the paper: ")
    assert entries["tiger-table3"]["rows"] == entries["tiger-table3"]["commands"] == []
    assert capbench("papers").code == 0  # without --data, the list alone is of the sample


def test_inputs_reach_the_commands_that_have_a_use_for_them(capbench: Run, calls: Calls) -> None:
    for name in ("a.h5", "n.npz"):
        Path(name).write_bytes(b"")
    given = ("--features", "faier=a.h5", "--model", "nneval=n.npz", "--option", "sigma=8", "--image-root", ".")
    ran = capbench("papers", "nneval-figure4", "faier-table4", *given, "--data", "sample", "--out", "o")
    assert ran.code == 1
    (nneval,) = calls  # FAIEr has no model
    assert nneval[:3] == ["explore", "examples", "nneval-figure4"]
    flags = dict(zip(nneval[3::2], nneval[4::2], strict=True))
    expected = {"--data": "sample", "--image-root": ".", "--model": "nneval=n.npz", "--option": "sigma=8"}
    assert flags == expected | {"--out": "o/nneval-figure4/captions.json"}


def test_one_that_fails_stops_no_other_and_everything_missing_is_listed(capbench: Run, calls: Calls) -> None:
    names = ("tiger-table3", "reo-figure4", "tiger-figure8", "nneval-figure4")
    ran = capbench("papers", *names, "--data", "sample", "--out", "o", "--json")
    assert ran.code == 1
    assert [words[0] for words in calls] == ["figure", "figure", "explore", "explore"]
    assert "printed by figure" in ran.err
    runs = {run["item"]: run for run in json.loads(ran.out)}
    codes = {"tiger-table3": [], "tiger-figure8": [0, 0], "nneval-figure4": [1], "reo-figure4": [2]}
    assert {key: run["codes"] for key, run in runs.items()} == codes
    assert runs["reo-figure4"]["missing"]["explore examples reo-figure4"] == "no such thing"
    assert runs["tiger-figure8"]["missing"].keys() == runs["tiger-table3"]["missing"].keys() == {"TIGEr"}
    assert "no such thing: explore examples reo-figure4" in " ".join(ran.err.split())


def test_a_metric_is_left_out_of_all_items_that_have_it(capbench: Run) -> None:
    names = ("tiger-table1", "tiger-figure8", "nneval-figure4", "tiger-table3", "tiger-figure6")
    without = ("--without", "spice", "--without", "meteor", "--without", "tiger.tiger")
    ran = capbench("papers", *names, *without, "--data", "sample", "--out", "o", "--dry-run")
    assert ran.code == 0, ran.err
    assert "tiger-table3 is left out" in ran.err
    lines = ran.out.splitlines()
    for begin, part in (
        ("capbench correlate tiger-table1", "--without spice --without meteor --without tiger.tiger"),
        ("capbench figure score-groups cider -d composite", ""),
        ("capbench explore examples nneval-figure4", "--without spice --without meteor --out"),
    ):
        assert [part in line for line in lines if line.startswith(begin)] == [True]


@pytest.mark.slow
def test_a_table_and_a_figure_are_made_on_the_sample(capbench: Run) -> None:
    command = ("papers", "tiger-table2", "--data", "sample", "--out", "o", "--without", "spice")
    ran = capbench(*command, "tiger-figure8")
    assert ran.code == 1, ran.err
    assert Path("o/tiger-figure8/composite.png").read_bytes().startswith(b"\x89PNG")
    cells = json.loads(Path("o/tiger-table2/results.json").read_text())["cells"]
    assert {cell["column"] for cell in cells} >= {"cider", "meteor"}
    assert "tiger-table2" in Path("o/report.html").read_text()
    again = capbench(*command, "--json")
    assert json.loads(again.out)[0]["codes"] == [1]
    assert "came from the cache" in again.err
    assert json.loads(Path("o/tiger-table2/results.json").read_text())["cells"] == cells
