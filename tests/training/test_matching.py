from __future__ import annotations

import math

import pytest
import torch

from capbench.training.matching import LossOptions, hinge_loss, info_nce

SCORES = torch.tensor([[0.9, 0.8, 0.1], [0.3, 0.5, 0.6], [0.2, 0.7, 0.4]], dtype=torch.float64)


def test_all_negatives_within_the_margin_are_summed_or_the_hardest_of_each_row_and_column() -> None:
    # Rows: .1; 0 and .3; 0 and .5. Columns: 0 and 0; .5 and .4; 0 and .4.
    assert hinge_loss(SCORES, 0.2, hardest=False).item() == pytest.approx(0.9 + 1.3)
    assert hinge_loss(SCORES, 0.2, hardest=True).item() == pytest.approx(0.9 + 0.5 + 0.4)


def test_info_nce_is_the_mean_of_both_directions() -> None:
    logits = (SCORES / 0.1).tolist()
    rows = [math.log(sum(math.exp(x) for x in row)) - row[i] for i, row in enumerate(logits)]
    turned = [list(column) for column in zip(*logits, strict=True)]
    columns = [math.log(sum(math.exp(x) for x in row)) - row[i] for i, row in enumerate(turned)]
    assert info_nce(SCORES, 0.1).item() == pytest.approx((sum(rows) + sum(columns)) / 6)


@pytest.mark.parametrize("step", [1, 2])
def test_the_settings_select_the_loss_of_a_step(step: int) -> None:
    options = LossOptions(margin=0.3, hardest=True, hardest_after=2)
    assert options(SCORES, step) == hinge_loss(SCORES, 0.3, step >= 2)
    assert LossOptions(kind="info-nce", temperature=0.2)(SCORES, step) == info_nce(SCORES, 0.2)
