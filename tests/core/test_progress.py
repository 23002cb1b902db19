from __future__ import annotations

import pytest

from capbench.core.progress import Tally, words


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
        (90, "about 2 minutes"),
        (721, "about 12 minutes"),
        (7300, "about 2 hours"),
        (9000, "about 2.5 hours"),
    ],
)
def test_a_length_of_time_is_said_roughly(seconds: float, text: str) -> None:
    assert words(seconds) == text


def test_the_rest_is_estimated_from_what_was_done() -> None:
    clock = Clock()
    tally = Tally("cider", 400, "items", clock=clock)
    assert tally.left() is None
    assert str(tally) == "cider 0 of 400 items"
    clock.now += 100
    tally.add(100)
    assert tally.left() == 300
    assert str(tally) == "cider 100 of 400 items, about 5 minutes left"
    tally.add(300)
    assert str(tally) == "cider 400 of 400 items"


@pytest.mark.parametrize(("steps", "seconds", "known"), [(4, 9.0, False), (5, 1.0, True), (2, 10.0, True)])
def test_there_is_no_estimate_before_five_percent_or_ten_seconds(steps: int, seconds: float, known: bool) -> None:
    clock = Clock()
    tally = Tally("tiger", 100, "captions", clock)
    for _ in range(steps):
        clock.now += seconds / steps
        tally.add(1)
    left = tally.left()
    assert (left is not None) == known
    assert left is None or left == pytest.approx((100 - steps) * seconds / steps)


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
