from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from capbench.core.progress import Display, Tally, progress, words


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "about 10 seconds"),
        (41, "about 50 seconds"),
        (9000, "about 2.5 hours"),
    ],
)
def test_a_length_of_time_is_said_roughly(seconds: float, text: str) -> None:
    assert words(seconds) == text


def test_the_rest_is_estimated_from_what_was_done() -> None:
    clock = Clock()
    tally = Tally("cider", 400, "items", clock)
    assert tally.left() is None
    assert str(tally) == "cider 0 of 400 items"
    clock.now += 100
    tally.add(100)
    assert tally.left() == 300
    assert str(tally) == "cider 100 of 400 items, about 5 minutes left"
    tally.add(300)
    assert str(tally) == "cider 400 of 400 items"


def test_a_slow_first_step_is_not_part_of_the_speed() -> None:
    clock = Clock()
    tally = Tally("extracting", 300, "images", clock)
    clock.now += 20  # a network is loaded
    tally.add(1)
    assert tally.left() is None
    for _ in range(29):
        clock.now += 0.5
        tally.add(1)
    assert tally.left() == pytest.approx(270 * 0.5)


def test_long_work_says_so_early_and_then_every_half_minute(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Display("composite/same-text-out", 100, clock=clock)
    for _ in range(100):
        clock.now += 2
        lines(1)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "composite/same-text-out: 5 of 100, about 3 minutes left"
    assert said[1] == "composite/same-text-out: 20 of 100, about 3 minutes left"
    assert len(said) == 7


def test_lines_are_written_during_long_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("capbench.core.progress._CHECK_S", 0.001)
    monkeypatch.setattr("capbench.core.progress.LONG_S", 0.01)
    with progress("composite", 100) as lines:
        lines.part("tiger", 64, "items")  # type: ignore[attr-defined]
        said, until = "", time.monotonic() + 60
        while "composite: tiger 0 of 64 items\n" not in said and time.monotonic() < until:
            time.sleep(0.01)
            said += capsys.readouterr().err
    assert "composite: tiger 0 of 64 items" in said.splitlines()


def test_bars_name_what_is_worked_on() -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=150)
    columns = (TextColumn("{task.description}|{task.completed}|{task.total}|{task.fields[left]}"),)
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        bars = Display("flickr8k-expert/all", 1000, bar)
        bars(900)
        step = bars.part("spice", 2_000, "captions", 600)
        (task,) = bar.tasks
        assert (task.description, task.fields["left"]) == ("flickr8k-expert/all: spice, captions", "")
        step(500)
        assert task.fields["left"].endswith("left")
        assert (task.completed, task.total) == (500, 2000)
