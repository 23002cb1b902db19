from __future__ import annotations

import math

import pytest
import torch

from capbench.core.errors import UsageError
from capbench.training.matching_task import hinge_loss, info_nce
from tests.errors import raises

SCORES = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.5, 0.6], [0.2, 0.7, 0.4]], dtype=torch.float64)


def test_all_negatives_within_the_margin_are_summed() -> None:
    # Rows: .1; 0 and .3; 0 and .5. Columns: 0 and 0; .5 and .4; 0 and .4.
    assert hinge_loss(SCORES, 0.2, hardest=False).item() == pytest.approx(0.9 + 1.3)
    assert hinge_loss(SCORES, 0.2, hardest=False, reduction="mean").item() == pytest.approx(2.2 / 6)


def test_the_hardest_negative_of_each_row_and_column_is_kept() -> None:
    assert hinge_loss(SCORES, 0.2, hardest=True).item() == pytest.approx(0.9 + 0.5 + 0.4)
    assert hinge_loss(SCORES, 0.2, hardest=True, reduction="mean").item() == pytest.approx(1.8 / 3)


def test_info_nce_is_the_mean_of_both_directions() -> None:
    logits = (SCORES / 0.1).tolist()
    rows = [math.log(sum(math.exp(x) for x in row)) - row[i] for i, row in enumerate(logits)]
    turned = [list(column) for column in zip(*logits, strict=True)]
    columns = [math.log(sum(math.exp(x) for x in row)) - row[i] for i, row in enumerate(turned)]
    assert info_nce(SCORES, 0.1).item() == pytest.approx((sum(rows) + sum(columns)) / 6)


def test_a_batch_of_one_has_no_negatives() -> None:
    one = torch.tensor([[0.5]])
    for hardest in (True, False):
        for reduction in ("sum", "mean"):
            assert hinge_loss(one, 0.2, hardest, reduction).item() == 0
    assert info_nce(one).item() == 0


def test_invalid_arguments_are_an_error() -> None:
    with raises(UsageError, "wrong-shape", value=(2, 3)):
        hinge_loss(SCORES[:2])
    with raises(UsageError, "wrong-shape", value=(0, 0)):
        info_nce(torch.zeros(0, 0))
    with raises(UsageError, "out-of-range", value=0):
        info_nce(SCORES, 0)
    with raises(UsageError, "wrong-value", value="none"):
        hinge_loss(SCORES, reduction="none")  # type: ignore[arg-type]
