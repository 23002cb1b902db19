from __future__ import annotations

import numpy as np
import pytest

from capbench.core.errors import StatisticError
from scripts.average_precision import average_precision, match_detections, mean_average_precision

BOX = np.array([[0.0, 0.0, 10.0, 10.0]])


def test_an_object_is_found_once_by_the_best_detection() -> None:
    found = np.array([[0, 0, 10, 9], [0, 0, 10, 10], [50, 50, 60, 60]])
    assert match_detections(found, np.array([0.5, 0.9, 0.8]), BOX).tolist() == [False, True, False]
    assert match_detections(found, np.array([0.9, 0.5, 0.8]), BOX).tolist() == [True, False, False]


def test_an_overlap_of_one_half_counts() -> None:
    assert match_detections(np.array([[0, 0, 10, 5]]), np.ones(1), BOX).tolist() == [True]
    assert match_detections(np.array([[0, 0, 10, 4.99]]), np.ones(1), BOX).tolist() == [False]
    assert match_detections(np.zeros((0, 4)), np.zeros(0), BOX).tolist() == []
    assert match_detections(BOX, np.ones(1), np.zeros((0, 4))).tolist() == [False]


def test_average_precision_of_a_worked_example() -> None:
    # Right, wrong, right, wrong, wrong of 3 objects: precision 1 up to recall 1/3, 2/3 up to 2/3, then nothing.
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
    right = np.array([True, False, True, False, False])
    assert average_precision(scores, right, 3) == pytest.approx(1 / 3 + 2 / 9)
    # The envelope: a late run of hits lifts the precision before it.
    late = np.array([False, True, True, True, True])
    assert average_precision(scores, late, 4) == pytest.approx(4 / 5)


def test_equal_scores_enter_together() -> None:
    for right in ([True, False], [False, True]):
        assert average_precision(np.array([0.5, 0.5]), np.array(right), 1) == pytest.approx(0.5)


def test_ends_are_zero_and_one() -> None:
    assert average_precision(np.zeros(0), np.zeros(0, dtype=bool), 4) == 0.0
    assert average_precision(np.array([0.1, 0.2]), np.array([True, True]), 2) == 1.0
    with pytest.raises(StatisticError, match="without objects"):
        average_precision(np.ones(1), np.array([True]), 0)
    with pytest.raises(StatisticError, match="not finite"):
        average_precision(np.array([np.nan]), np.array([True]), 1)


def test_the_mean_is_over_classes_that_have_objects() -> None:
    truth = [(np.vstack([BOX, BOX + 40]), np.array([0, 1])), (BOX, np.array([0]))]
    found = [
        (np.vstack([BOX, BOX + 40]), np.array([0, 0]), np.array([0.9, 0.8])),
        (BOX, np.array([2]), np.array([0.99])),
    ]
    mean, each = mean_average_precision(found, truth)
    assert each == {0: pytest.approx(0.5), 1: 0.0}
    assert mean == pytest.approx(0.25)
    with pytest.raises(StatisticError, match="2 images have detections, 1 have objects"):
        mean_average_precision(found, truth[:1])
    with pytest.raises(StatisticError, match="without objects"):
        mean_average_precision([], [])
