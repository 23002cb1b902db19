"""Display of progress: lines on a pipe, bars on a terminal."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from capbench.core.progress import Bars, Lines
from tests.core.test_progress import Clock


def _lines(total: int | None = 100) -> tuple[Lines, list[str], Clock]:
    clock = Clock()
    said: list[str] = []
    return Lines("composite/same-text-out", total, said.append, clock), said, clock


def test_short_work_says_nothing() -> None:
    lines, said, clock = _lines()
    for _ in range(10):
        clock.now += 2
        lines(10)
    assert said == []


def test_long_work_says_so_early_and_then_every_half_minute() -> None:
    lines, said, clock = _lines()
    for _ in range(100):
        clock.now += 2
        lines(1)
    assert said[0] == "composite/same-text-out: 5 of 100, about 3 minutes left"
    assert said[1] == "composite/same-text-out: 20 of 100, about 3 minutes left"
    assert len(said) == 7


def test_what_came_from_the_cache_is_no_part_of_the_estimate() -> None:
    lines, said, clock = _lines(10_000)
    lines(9_900)
    step = lines.part("meteor", 100, "items")
    for _ in range(20):
        clock.now += 2
        step(1)
        lines(1)
    assert said[0] == "composite/same-text-out: meteor 5 of 100 items, about 3 minutes left"
    assert all("9," not in line for line in said)


def test_lines_are_written_during_long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capbench.core.progress._CHECK_S", 0.001)
    lines, said, clock = _lines()
    with lines.watched():
        lines.part("tiger", 64, "items")
        clock.now += 31
        deadline = time.monotonic() + 10
        while not said and time.monotonic() < deadline:
            time.sleep(0.001)
    assert said == ["composite/same-text-out: tiger 0 of 64 items"]


def test_bars_name_what_is_worked_on() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=150)
    columns = (TextColumn("{task.description}|{task.completed}|{task.total}|{task.fields[left]}"),)
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        bars = Bars("flickr8k-expert/all", 1000, bar)
        bars(900)
        step = bars.part("spice", 2_000, "captions", 600)
        (task,) = bar.tasks
        assert (task.description, task.fields["left"]) == ("flickr8k-expert/all: spice, captions", "")
        step(500)
        assert task.fields["left"].endswith("left")
        assert (task.completed, task.total) == (500, 2000)
