"""What the training loop and its users say to each other: the task, the result, and who looks on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar

import torch
from torch import nn

__all__ = ["B", "M", "Running", "Say", "Task", "TrainingResult", "Watcher"]

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")

Say: TypeAlias = Callable[[str], None]
"""Is told, in one line, what takes its time."""


class Task(ABC, Generic[M, B]):
    """What is trained, on what: all that a new trainer has to write.

    Attributes:
        model: the network, on its device, with its first weights drawn from the seed.
        optimiser: over ``model``'s weights; the loop sets its learning rate.
        steps_per_epoch: batches of an epoch.
        data: names of what is learned from (a fingerprint of the captions, say): a run goes on with the same data only.
        score: which of :meth:`validate`'s numbers says how good weights are; higher is better.
        prefetch: whether batches are made by a thread ahead of their use. They must not draw from torch's own random
            numbers.
        facts: what else to keep with the model, as JSON values.
    """

    model: M
    optimiser: torch.optim.Optimizer
    steps_per_epoch: int
    data: Mapping[str, str]
    score: str
    prefetch: bool = False
    facts: Mapping[str, Any] = {}

    @abstractmethod
    def batches(self, epoch: int, first: int) -> Iterator[B]:
        """The batches of an epoch (from 0) from its ``first``-th on, drawn from the seed and the epoch alone."""

    @abstractmethod
    def loss(self, batch: B, step: int) -> torch.Tensor:
        """The loss of a batch, a scalar with its gradient; ``step`` counts from 0 over all epochs.

        What it draws by torch's random numbers follows from the seed and the step.
        """

    @abstractmethod
    def validate(self, model: M, pause: Callable[[], None]) -> dict[str, Any]:
        """Numbers of a network on held-out data, as JSON values; among them ``score``.

        Args:
            model: the network being trained, or the average of its weights; left in the mode it is in.
            pause: called now and then; it leaves by an exception if the user has asked to stop.
        """

    @abstractmethod
    def save(self, path: Path, model: M, facts: Mapping[str, Any]) -> None:
        """Write the trained model, on the CPU, with facts of its training (JSON values), atomically."""


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended.

    Attributes:
        ended: ``epochs``, ``max_steps`` or ``patience``; ``interrupted`` if it can go on.
        step: steps done.
        epoch: epochs begun.
        model: the file, None if the training was interrupted.
        sha256: of the file.
        chosen: the evaluation of the saved weights: step, epoch and :meth:`Task.validate`'s numbers; while interrupted,
            the best so far or None.
        seconds: of training, over all parts of an interrupted one.
    """

    ended: str
    step: int
    epoch: int
    model: Path | None
    sha256: str | None
    chosen: dict[str, Any] | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            **vars(self),
            "model": None if self.model is None else str(self.model),
            "seconds": round(self.seconds, 1),
        }


class Watcher:
    """Looks on; does nothing unless overridden."""

    def say(self, text: str) -> None:
        """One line about what was read."""

    def start(self, steps: int, done: int) -> None:
        """Training begins, of so many steps in all, some of them done before."""

    def step(self) -> None:
        """A step is done."""

    def log(self, entry: dict[str, Any]) -> None:
        """A line was written to the log."""


class Running(TypedDict, total=False):
    """How a training is carried out in its run folder, whatever is trained: keywords that every trainer hands on to
    :func:`capbench.training.loop.train`, which says what they mean and what holds without them."""

    restart: bool
    stop: Callable[[], bool]
    watcher: Watcher | None
