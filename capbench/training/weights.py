"""A network's weights before its first step: how many there are, and what changes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from capbench.training.settings import OptimiserOptions

__all__ = ["adam", "count_weights"]


def count_weights(make: Callable[[], nn.Module]) -> int:
    """How many numbers a network learns, counted without making them."""
    with torch.device("meta"):
        network = make()
    return sum(weight.numel() for weight in network.parameters())


def adam(model: nn.Module, options: OptimiserOptions) -> torch.optim.Adam:
    """Adam over the weights that are learned; the loop sets its learning rate at each step."""
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.Adam(learned, lr=options.lr, weight_decay=options.weight_decay)
