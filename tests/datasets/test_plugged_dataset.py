"""A data set of another package whose files are not here: hints name commands that know it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.plugged import install, on_path

MODULE = '''
from capbench.datasets import judgement_files as judging
from capbench.datasets.tables import read_table
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import ItemSelection, correlations
from capbench.core.records import Item, Judgements


class Stars(Dataset):
    """Captions with stars, and with hearts where hearts.tsv is there."""

    name = "stars"
    title = "Stars"
    citation = "an example"
    selections = {"all": ItemSelection("all", "all captions")}
    statistics = correlations("stars") | correlations("hearts", prefix="hearts")
    default = ("all", "tau-c")
    groups = ()

    def load(self, selection):
        path = self.root.file("starry/stars.tsv", what="the stars")
        items, stars = [], []
        table = read_table(path, header=("image", "caption", "stars"))
        for row, cells in zip(table.numbers, table.records()):
            items.append(Item(cells["image"], cells["caption"], ("a dog in the snow",), f"{cells['image']}#{row}"))
            stars.append(float(cells["stars"]))
        ratings = {"stars": judging.ratings(range(len(items)), stars, (1.0, 5.0))}
        return (Judgements(self.name, selection.name, tuple(items), ratings),)
'''


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package is installed; the data folder is empty."""
    install(tmp_path / "packages", "starry", "[capbench.datasets]\nstars = starry:Stars\n", {"starry": MODULE})
    root = tmp_path / "data"
    root.mkdir()
    with on_path(tmp_path / "packages", monkeypatch):
        yield root


def _command(error: str) -> list[str]:
    """The command that an error's hint names."""
    named = re.findall(r"'capbench ([^']+)'", error)
    assert len(named) == 1, error
    return str(named[0]).split()


def test_a_missing_file_of_a_plug_in_names_a_command_that_lists_it(plugged: Path, capbench: Callable[..., Ran]) -> None:
    refused = capbench("compare", "bleu-1", "bleu-2", "-d", "stars", "--data", plugged)
    assert refused.code == 2
    assert "stars.tsv: there is no such file" in refused.err
    known = capbench(*_command(refused.err), "--data", plugged)
    assert re.search(r"stars +absent", known.out), known.out
    assert "starry/stars.tsv: there is no such file" in known.err
