from __future__ import annotations

from pathlib import Path

import pytest

from capbench.features.extract import Plan, measure
from tests.features.fakes import FakeDetector, pictures


def test_a_plan_measures_some_images_and_counts_all(tmp_path: Path) -> None:
    images = pictures(tmp_path, 40)
    detector = FakeDetector(pause_s=0.02)
    steps: list[int] = []
    plan = measure(images, lambda: detector, count=5, progress=steps.append)
    assert (plan.images, plan.parts, plan.measured) == (40, 3, 5)
    assert len(detector.seen) == sum(steps) == 6
    assert plan.image_s > 0.02


def test_hours_are_those_of_the_longest_row_of_parts() -> None:
    plan = Plan(images=160, parts=10, measured=1, opening_s=36.0, image_s=3.6, regions=1.0, disk_bytes=0)
    assert plan.hours(1) == pytest.approx(0.01 + 0.16)
    assert plan.hours(4) == pytest.approx(0.01 + 3 * 0.016)  # one worker has three parts
    assert plan.hours(10) == plan.hours(64) == pytest.approx(0.01 + 0.016)
