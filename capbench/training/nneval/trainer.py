"""Training of NNEval (Sharif et al., ECCV 2018): the task that the general loop carries out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from capbench.datasets.root import DataRoot
from capbench.errors import StatisticError
from capbench.models.nneval import SHAPES, map_inputs, write_nneval
from capbench.records import FloatArray
from capbench.stats.correlation import correlation
from capbench.training.loop import train
from capbench.training.nneval.config import NNEvalTraining
from capbench.training.nneval.prepare import Bars, Judged, Prepared, prepare
from capbench.training.task import Running, Task, TrainingResult

__all__ = ["NNEvalModule", "NNEvalTask", "train_nneval"]


def train_nneval(
    config: NNEvalTraining,
    run: Path,
    root: DataRoot,
    bars: Bars,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train NNEval, or go on training it, in a run folder.

    Args:
        config: the settings (:func:`capbench.training.config_file.load_training`).
        run: the folder; see :mod:`capbench.training.run_folder`.
        root: the data folder, for relative paths.
        bars: makes progress bars for the scores that are learned from.
        running: as :func:`capbench.training.loop.train`.

    Raises:
        KeyboardInterrupt: ``stop`` said so before the training began; what was scored is in the cache.
        CapbenchError: as :func:`capbench.training.loop.train`; captions or judgements are missing or do not fit.
    """
    stop = running.get("stop", lambda: False)
    return train(
        config,
        lambda device, say: NNEvalTask(config, prepare(config, root, bars, say, stop), device),
        run,
        **running,
    )


class NNEvalModule(nn.Module):
    """The network (eq. 2 to 4), with its weights by the names of :data:`capbench.models.nneval.SHAPES`.

    Args:
        weights: how they begin.
        generator: draws them.
        monotone: no input may lower the score: weights count without their signs, those of the last layer against class
            0 and for class 1. The paper has no such limit.
    """

    def __init__(self, weights: str, generator: torch.Generator, monotone: bool = False) -> None:
        super().__init__()
        self._monotone = monotone
        for name, shape in SHAPES.items():
            values = torch.zeros(shape)
            if len(shape) == 2 and weights == "he-normal":
                values.normal_(0.0, math.sqrt(2 / shape[0]), generator=generator)
            elif len(shape) == 2:
                limit = math.sqrt(6 / sum(shape))
                values.uniform_(-limit, limit, generator=generator)
            self.register_parameter(name, nn.Parameter(values))

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 8) inputs in [-1, 1] → (n, 2) class scores, in the inputs' precision."""
        weights = {name: tensor.to(inputs.dtype) for name, tensor in self.effective().items()}
        hidden = functional.relu(inputs @ weights["W1"] + weights["b1"])
        hidden = functional.relu(hidden @ weights["W2"] + weights["b2"])
        return hidden @ weights["W_out"] + weights["b_out"]

    def effective(self) -> dict[str, Tensor]:
        """The weights that inputs are multiplied by, by name: what a file of the network holds."""
        weights: dict[str, Tensor] = dict(self.named_parameters())
        if self._monotone:
            weights |= {name: weights[name].abs() for name in ("W1", "W2", "W_out")}
            weights["W_out"] = torch.stack([-weights["W_out"][:, 0], weights["W_out"][:, 1]], dim=1)
        return weights


class NNEvalTask(Task[NNEvalModule, tuple[Tensor, Tensor]]):
    """Is a caption a person's or a machine's?

    Args:
        config: the settings.
        data: what is learned from.
        device: where the network is trained.
    """

    def __init__(self, config: NNEvalTraining, data: Prepared, device: torch.device) -> None:
        self._config, self._device, self._dev = config, device, data.dev
        self.score = "tau" if isinstance(data.dev, Judged) else "log_likelihood"
        # As the file keeps them, so that scoring maps by the very same numbers.
        self._minimum, self._maximum = (
            limit.astype(np.float32).astype(np.float64)
            for limit in (data.train.inputs.min(axis=0), data.train.inputs.max(axis=0))
        )
        self._inputs = self._mapped(data.train.inputs).float()
        self._labels = torch.from_numpy(data.train.human.astype(np.int64)).to(device)
        self._dev_inputs = self._mapped(data.dev.inputs)
        # Drawn on the CPU, so that a seed means the same weights on every device.
        generator = torch.Generator().manual_seed(config.seed)
        self.model = NNEvalModule(config.network.weights, generator, config.network.monotone).to(device)
        matrices, biases = (
            [tensor for name, tensor in self.model.named_parameters() if len(SHAPES[name]) == dimensions]
            for dimensions in (2, 1)
        )
        # Adam's penalty adds weight_decay * W to the gradient, which is that of weight_decay * |W|² / 2.
        self.optimiser = torch.optim.Adam(
            [
                {"params": matrices, "weight_decay": config.optimiser.weight_decay},
                {"params": biases, "weight_decay": 0.0},
            ],
            lr=config.optimiser.lr,
        )
        self.steps_per_epoch = -(-len(self._labels) // config.batch)
        self.data, self.facts = data.names, data.facts

    def _mapped(self, inputs: FloatArray) -> Tensor:
        return torch.from_numpy(map_inputs(inputs, self._minimum, self._maximum)).to(self._device)

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch from the ``first``-th on."""
        order = np.random.default_rng((self._config.seed, 1, epoch)).permutation(len(self._labels))
        places = torch.from_numpy(order).to(self._device)
        for begin in range(first * self._config.batch, len(order), self._config.batch):
            chosen = places[begin : begin + self._config.batch]
            yield self._inputs[chosen], self._labels[chosen]

    def loss(self, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        """The mean cross entropy (eq. 7); the penalty is the optimiser's."""
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    @torch.inference_mode()
    def validate(self, model: NNEvalModule, pause: Callable[[], None]) -> dict[str, Any]:
        """Agreement with the judgements, or likelihood and accuracy on held-out captions.

        A network that gives all captions one score agrees with nobody: its correlation counts as 0.
        """
        pause()
        scores = functional.log_softmax(model(self._dev_inputs), dim=1).cpu().numpy()
        if isinstance(self._dev, Judged):
            human = np.exp(scores[:, 1])
            try:
                tau = correlation(self._dev.coefficient, human[self._dev.item], self._dev.value).value
            except StatisticError:
                tau = 0.0
            return {"tau": round(tau, 6)}
        right = np.where(self._dev.human, scores[:, 1], scores[:, 0])
        accuracy = float(((scores[:, 1] > scores[:, 0]) == self._dev.human).mean())
        return {"log_likelihood": round(float(right.mean()), 6), "accuracy": round(accuracy, 6)}

    def save(self, path: Path, model: NNEvalModule, facts: Mapping[str, Any]) -> None:
        """Weights, the inputs' ranges and facts as one ``.safetensors``."""
        weights = {name: tensor.detach() for name, tensor in model.effective().items()}
        write_nneval(path, weights, self._minimum, self._maximum, facts)
