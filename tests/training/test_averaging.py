"""The running average of a network's weights, compared bitwise."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn

from capbench.training.loop import WeightAverage


@pytest.mark.parametrize("warmup", [False, True, "unbiased"])
def test_the_average_is_that_of_each_weight_to_the_last_bit(warmup: bool | Literal["unbiased"]) -> None:
    generator = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Linear(33, 17), nn.BatchNorm1d(17), nn.Linear(17, 1))
    average = WeightAverage(network, 0.97, warmup)
    expected = [parameter.detach().clone() for parameter in network.parameters()]
    for step in range(5):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator))
        decay = {
            False: 0.97,
            True: min(0.97, (1 + step) / (10 + step)),
            "unbiased": 0.97 * (1 - 0.97**step) / (1 - 0.97 ** (step + 1)),
        }[warmup]
        for kept, parameter in zip(expected, network.parameters(), strict=True):
            kept.lerp_(parameter.detach(), 1 - decay)
        average.update(network, step)
    for found, wanted in zip(average.network.parameters(), expected, strict=True):
        assert torch.equal(found, wanted)
