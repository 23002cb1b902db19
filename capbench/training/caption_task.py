"""What training a network on captions and their images has in common, whatever the network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.training.captions import Pairs, epoch_order
from capbench.training.matching import CaptionTraining
from capbench.training.regions import Regions
from capbench.training.task import B, M, Task
from capbench.training.weights import adam

__all__ = ["CaptionTask"]


class CaptionTask(Task[M, B], Generic[M, B]):
    """A task whose batches are captions and their images, drawn for each epoch from the seed and the epoch.

    Args:
        config: the settings.
        pairs: captions and images that are learned from.
        regions: features of these images.
        model: the network, with its first weights drawn on the CPU, so that a seed means the same on every device.
        device: where the network is trained.
    """

    def __init__(self, config: CaptionTraining, pairs: Pairs, regions: Regions, model: M, device: torch.device) -> None:
        self._pairs, self._device = pairs, device
        self._drawn = (config.batch, config.order, config.seed)
        self.model = model.to(device)
        self.optimiser = adam(self.model, config.optimiser)
        self.steps_per_epoch = len(self.order(0))
        # It pays where features are read from disk, or a GPU computes meanwhile.
        self.prefetch = device.type == "cuda" or not regions.in_memory

    def order(self, epoch: int) -> list[NDArray[np.int64]]:
        """The captions of each batch of an epoch."""
        return epoch_order(self._pairs, *self._drawn, epoch)

    def batches(self, epoch: int, first: int) -> Iterator[B]:
        """The batches of an epoch from the ``first``-th on."""
        return self.make_batches(self.order(epoch)[first:], epoch * self.steps_per_epoch + first)

    @abstractmethod
    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[B]:
        """Batches of chosen captions; what is drawn for each follows from the seed and its step.

        Args:
            orders: captions of each batch.
            first_step: number of the first batch's step, from 0 over all epochs.
        """
