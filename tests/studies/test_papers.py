"""The list of the papers' tables and figures: nothing is forgotten, and every command is one that capbench has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer.main

from capbench.cli.app import app
from capbench.core.errors import UsageError
from capbench.datasets.root import DataRoot, find_root, sample_dir
from capbench.studies.papers import Prospect, choose_items, command_lines, item_study, papers, prospect
from tests.errors import raises

# What the five papers print, written down from their pages and not from the list.
PRINTED = {
    "tiger": ["Table 1", "Table 2", "Table 3", "Figure 4", "Figure 5", "Figure 6", "Figure 7", "Figure 8"],
    "nneval": ["Table 1", "Table 2", "Table 3", "Figure 4"],
    "reo": ["Table 1", "Figure 3", "Figure 4"],
    "faier": [
        *(f"Table {number}" for number in range(1, 7)),
        *(f"Figure {number}" for number in range(4, 7)),
        "Section 4.3",
    ],
    "vilbertscore": ["Table 1", "Table 2", "Figure 3"],
}


def looked_at(key: str, root: DataRoot | None = None) -> Prospect:
    item = papers().items[key]
    return prospect(key, item, item_study(key, item), root or find_root(sample_dir()))


def parse(words: list[str]) -> dict[str, Any]:
    """What typer makes of a command line, without running it."""
    command: Any = typer.main.get_group(app)
    name = "capbench"
    context = command.context_class(command, info_name=name)
    while hasattr(command, "list_commands"):
        name, command, words = command.resolve_command(context, words)
    with command.make_context(name, list(words)) as context:
        return dict(context.params)


def test_every_table_and_figure_is_there_once() -> None:
    listed: dict[str, list[str]] = {}
    for item in papers().items.values():
        listed.setdefault(item.paper, []).append(item.number)
    assert {paper: sorted(numbers) for paper, numbers in listed.items()} == {
        paper: sorted(numbers) for paper, numbers in PRINTED.items()
    }


@pytest.mark.parametrize("key", list(papers().items))
def test_every_command_is_one_that_capbench_has_with_metrics_that_it_knows(key: str) -> None:
    looked = looked_at(key)
    chosen = looked.item.metrics[:2]
    everything = replace(looked, rows=("one",), absent={}, scorable=dict.fromkeys(looked.item.protocols, chosen))
    lines = command_lines(everything, ["--data", "sample", "--features", "f.h5", "--model", "m.pt"], Path("out"))
    assert len(lines) == len(looked.item.commands)
    for words in lines:
        assert not [word for word in words if "{" in word]
        params = parse(words)
        assert str(params["data"]) == "sample"
        assert list(params["features"]) == ["f.h5"]
        if "kind" in params:  # of capbench figure
            assert list(params["inputs"]) == ([looked.item.study] if looked.item.study else list(chosen))
        elif looked.item.study:
            assert params["study"] == looked.item.study
        else:
            assert params["metric"] in chosen or list(params["metric"]) == list(chosen)


def test_names_are_papers_items_or_all() -> None:
    assert [*choose_items(["reo"])] == ["reo-table1", "reo-figure3", "reo-figure4"]
    assert [*choose_items(["tiger-figure8", "tiger-table1"])] == ["tiger-table1", "tiger-figure8"]
    assert choose_items(["all"]) == choose_items([]) == papers().items
    with raises(UsageError, "unknown-name", value="tiger-tabel1"):
        choose_items(["tiger-tabel1"])


def test_what_waits_is_asked_of_metrics_and_data_sets(tmp_path: Path) -> None:
    looked = looked_at("tiger-figure8")
    assert looked.rows == ("METEOR", "CIDEr")
    assert [*looked.scorable.values()] == [["meteor", "cider"], ["meteor", "cider"]]
    assert "--model tiger=FILE" in looked.waiting["TIGEr"]
    assert looked.is_computable
    assert not looked_at("tiger-table3").is_computable
    absent = looked_at("reo-table1", find_root(tmp_path)).absent
    assert "publicsys/publicsys.csv" in absent["publicsys/all-references/tau-c"]
    assert not looked_at("faier-table5").is_computable
