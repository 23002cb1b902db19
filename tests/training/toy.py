from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.training.settings import AtLeast2, Count, OptimiserOptions, Training
from capbench.training.trainer import Task, adam
from capbench.weights.files import write_safetensors

Points = tuple[Tensor, Tensor]


class ToyTraining(Training):
    width: Count = 4  # of the hidden layer
    batch: AtLeast2 = 8
    points: Count = 40
    optimiser: OptimiserOptions = OptimiserOptions(lr=0.05)


class Toy(Task[nn.Sequential, Points]):
    settings = ToyTraining
    metric = "toy"
    score = "accuracy"

    def __init__(self, config: ToyTraining, root: object, device: object, watcher: object) -> None:
        self.config = config
        width = config.width
        layers = (nn.Linear(2, width), nn.BatchNorm1d(width), nn.Dropout(0.3), nn.Linear(width, 2))
        self.model = nn.Sequential(*layers)
        generator = torch.Generator().manual_seed(config.seed)
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.uniform_(-0.5, 0.5, generator=generator)
        self.optimiser = adam(self.model, config.optimiser)
        self.steps_per_epoch = -(-config.points // config.batch)
        self.data = {"points": str(config.points)}
        self.prefetch = width > 4
        self._train, self._dev = (self._cloud(config.points, seed) for seed in (1, 2))

    @staticmethod
    def _cloud(points: int, seed: int) -> Points:
        rng = np.random.default_rng(seed)
        labels = np.arange(points) % 2
        places = rng.normal(size=(points, 2)) + 1.5 * labels[:, None]
        return torch.from_numpy(places.astype(np.float32)), torch.from_numpy(labels)

    def batches(self, epoch: int, first: int) -> Iterator[Points]:
        size = self.config.batch
        order = np.random.default_rng((self.config.seed, 1, epoch)).permutation(self.config.points)
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

    def facts(self) -> dict[str, Any]:
        return {"kind": "toy"}

    def save(self, path: Path, model: nn.Sequential, facts: Mapping[str, Any]) -> None:
        metadata = {"format": "pt", "training": json.dumps(dict(facts), sort_keys=True)}
        write_safetensors(path, model.state_dict(), metadata)


def settings(**changes: Any) -> ToyTraining:
    raw = {"schema": 1, "name": "toy", "device": "cpu", "threads": 1, "epochs": 4, "log_every": 2, "ema": 0.8}
    return ToyTraining.model_validate({**raw, **changes})
