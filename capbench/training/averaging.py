"""A running average of a network's weights (Polyak and Juditsky 1992, in its exponential form)."""

from __future__ import annotations

import copy
from typing import Generic, Literal, TypeVar

import torch
from torch import nn

__all__ = ["WeightAverage"]

M = TypeVar("M", bound=nn.Module)


class WeightAverage(Generic[M]):
    """The exponentially weighted average of a network's weights over its steps.

    Args:
        network: what is trained; the average begins as a copy of it.
        decay: of a step's share in the average.
        warmup: True uses min(decay, (1 + step) / (10 + step)), so that the average forgets the first weights;
            ``unbiased`` weighs all steps so far by decay^age, and the weights before the first not at all.

    Attributes:
        network: the average, a network of its own.
    """

    def __init__(self, network: M, decay: float, warmup: bool | Literal["unbiased"]) -> None:
        self.network: M = copy.deepcopy(network).requires_grad_(False)
        self._decay, self._warmup = decay, warmup

    @torch.no_grad()
    def update(self, network: M, step: int) -> None:
        """Take in the weights after a step, counted from 0; what is no weight (a batch norm's state) is copied."""
        decay = self._decay
        if self._warmup == "unbiased":
            # A plain average that began at zero, divided by 1 - decay^step (Kingma and Ba 2015, section 3).
            decay *= (1 - self._decay**step) / (1 - self._decay ** (step + 1))
        elif self._warmup:
            decay = min(decay, (1 + step) / (10 + step))
        averages: list[torch.Tensor] = list(self.network.parameters())
        weights: list[torch.Tensor] = list(network.parameters())
        torch._foreach_lerp_(averages, weights, 1 - decay)
        for kept, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            kept.copy_(buffer)
