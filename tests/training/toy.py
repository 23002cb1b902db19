"""A network that is trained in a fraction of a second; it classifies points of two clouds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.core.options import Count, option
from capbench.training.loop import Task, TrainingResult, Watcher, train
from capbench.training.settings import OptimiserOptions, Section, Training, parse_training
from capbench.weights.files import write_safetensors

Points = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class ToyTraining(Training):
    width: int = option(4, Count(1), "size of the hidden layer")
    batch: int = option(8, Count(2), "points per step")
    points: int = option(40, Count(8), "training points")
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=0.05), Section(), "Adam")


class Toy(Task[nn.Sequential, Points]):
    """Batch norm has buffers, and dropout draws random numbers: both must survive an interruption."""

    score = "accuracy"

    def __init__(self, settings: ToyTraining) -> None:
        self._settings = settings
        generator = torch.Generator().manual_seed(settings.seed)
        width = settings.width
        layers = (nn.Linear(2, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 2))
        self.model = nn.Sequential(*layers)
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.uniform_(-0.5, 0.5, generator=generator)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=settings.optimiser.lr)
        self.steps_per_epoch = -(-settings.points // settings.batch)
        self.data = {"points": str(settings.points)}
        self.facts = {"kind": "toy"}
        self.prefetch = settings.width > 4
        self._train, self._dev = (self._cloud(settings.points, seed) for seed in (1, 2))

    @staticmethod
    def _cloud(points: int, seed: int) -> Points:
        rng = np.random.default_rng(seed)
        labels = np.arange(points) % 2
        places = rng.normal(size=(points, 2)) + 1.5 * labels[:, None]
        return torch.from_numpy(places.astype(np.float32)), torch.from_numpy(labels)

    def batches(self, epoch: int, first: int) -> Iterator[Points]:
        size = self._settings.batch
        order = np.random.default_rng((self._settings.seed, 1, epoch)).permutation(self._settings.points)
        for begin in range(first * size, len(order), size):
            chosen = torch.from_numpy(order[begin : begin + size])
            yield self._train[0][chosen], self._train[1][chosen]

    def loss(self, batch: Points, step: int) -> Tensor:
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    def validate(self, model: nn.Sequential, pause: Callable[[], None]) -> dict[str, Any]:
        pause()
        model.eval()
        with torch.inference_mode():
            right = model(self._dev[0]).argmax(1) == self._dev[1]
        return {"accuracy": float(right.float().mean()), "points": len(right)}

    def save(self, path: Path, model: nn.Sequential, facts: Mapping[str, Any]) -> None:
        import json

        metadata = {"format": "pt", "training": json.dumps(dict(facts), sort_keys=True)}
        write_safetensors(path, model.state_dict(), metadata)


def settings(**changes: Any) -> ToyTraining:
    raw = {"schema": 1, "name": "toy", "device": "cpu", "threads": 1, "epochs": 4, "log_every": 2, "ema": 0.8}
    return parse_training(ToyTraining, {**raw, **changes})


def train_toy(
    chosen: ToyTraining,
    run: Path,
    *,
    task: Callable[[ToyTraining], Toy] = Toy,
    restart: bool = False,
    stop: Callable[[], bool] = lambda: False,
    watcher: Watcher | None = None,
) -> TrainingResult:
    return train(chosen, lambda _device, _say: task(chosen), run, restart=restart, stop=stop, watcher=watcher)
