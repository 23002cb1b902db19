"""The training loop: steps, learning rate, clipping, averaging, selection of weights, log and checkpoints.

A trainer implements a :class:`capbench.training.loop.Task`, which contains the network and its data, and settings that
extend :class:`capbench.training.settings.Training`; :func:`train` does the rest in a run folder
(:mod:`capbench.training.run_folder`).

An interrupted or killed run resumes from its last checkpoint and ends with the same weights, bit for bit, as an
uninterrupted run (on a CPU, with the same machine, libraries and number of threads). Random numbers therefore never
depend on earlier ones: an epoch's batches are drawn from (seed, epoch), and all random numbers of a step from (seed,
step), so a checkpoint requires no random state.
"""

from __future__ import annotations

import contextlib
import copy
import math
import queue
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from capbench import __version__
from capbench.core.errors import ModelError, UsageError
from capbench.core.files import sha256_file
from capbench.core.machine import is_out_of_memory
from capbench.core.training_record import TrainingRecord
from capbench.features.shown import MEAN_KEY, mean_to_text
from capbench.training.run_folder import RunFolder, choose_device
from capbench.training.settings import Training
from capbench.weights.training_files import KEY

# The interface of the loop: task, result and watcher.

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")

Say: TypeAlias = Callable[[str], None]
"""Receives one-line messages about long operations."""


class Task(ABC, Generic[M, B]):
    """A network with its training data: the interface that a trainer implements.

    Attributes:
        model: the network, on its device, initialised from the seed.
        optimiser: optimiser of ``model``'s weights; the loop sets its learning rate.
        steps_per_epoch: batches of an epoch.
        data: identifiers of the training data (for example a fingerprint of the captions); a run resumes only with the
            same data.
        score: key of :meth:`validate`'s result that measures the quality of weights; higher is better.
        prefetch: True to produce batches ahead in a thread. They must not use torch's random numbers.
        facts: further facts to save with the model, as JSON values.
        image_mean: computes the mean features (D,) of the training images, to save with the model for ``image=mean``;
            None if the network reads none.
        trained_on: the photographs and captions of the training, to save with the model; None if they are not known.
    """

    model: M
    optimiser: torch.optim.Optimizer
    steps_per_epoch: int
    data: Mapping[str, str]
    score: str
    prefetch: bool = False
    facts: Mapping[str, Any] = {}
    image_mean: Callable[[], NDArray[np.float32]] | None = None
    trained_on: TrainingRecord | None = None

    @abstractmethod
    def batches(self, epoch: int, first: int) -> Iterator[B]:
        """The batches of an epoch (from 0), starting with the ``first``-th, determined by seed and epoch."""

    @abstractmethod
    def loss(self, batch: B, step: int) -> torch.Tensor:
        """Loss of a batch, a scalar with its gradient; ``step`` counts from 0 over all epochs.

        Torch's random numbers in it are determined by seed and step.
        """

    @abstractmethod
    def validate(self, model: M, pause: Callable[[], None]) -> dict[str, Any]:
        """Evaluate a network on held-out data; returns JSON values including ``score``.

        Args:
            model: the network in training, or the average of its weights; its mode must not change.
            pause: to be called regularly; raises an exception if the user requested to stop.
        """

    @abstractmethod
    def save(self, path: Path, model: M, facts: Mapping[str, Any]) -> None:
        """Write the trained model, on the CPU, with facts of its training (JSON values), atomically."""


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training.

    Attributes:
        ended: ``epochs``, ``max_steps`` or ``patience``; ``interrupted`` if it can be resumed.
        step: steps done.
        epoch: epochs begun.
        model: the file, None if the training was interrupted.
        sha256: SHA-256 of the file.
        chosen: the evaluation of the saved weights: step, epoch and the result of :meth:`Task.validate`; if
            interrupted, the best evaluation so far or None.
        seconds: training time, over all parts of an interrupted run.
    """

    ended: str
    step: int
    epoch: int
    model: Path | None
    sha256: str | None
    chosen: dict[str, Any] | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            **vars(self),
            "model": None if self.model is None else str(self.model),
            "seconds": round(self.seconds, 1),
        }


class Watcher:
    """Observer of a training; its methods do nothing unless overridden."""

    def say(self, text: str) -> None:
        """One line about the data."""

    def start(self, steps: int, done: int) -> None:
        """Training begins, with the total number of steps and the number done before."""

    def step(self) -> None:
        """A step was completed."""

    def log(self, entry: dict[str, Any]) -> None:
        """A line was written to the log."""


class Running(TypedDict, total=False):
    """Keyword arguments that every trainer passes on to :func:`capbench.training.loop.train`, where they are
    documented.
    """

    restart: bool
    stop: Callable[[], bool]
    watcher: Watcher | None


# A running average of a network's weights (Polyak and Juditsky 1992, in its exponential form).


class WeightAverage(Generic[M]):
    """The exponentially weighted average of a network's weights over its steps.

    Args:
        network: the network in training; the average begins as a copy of it.
        decay: decay of a step's weight in the average.
        warmup: True uses min(decay, (1 + step) / (10 + step)), so that the average forgets the initial weights;
            ``unbiased`` weights all steps so far by decay^age and ignores the initial weights.

    Attributes:
        network: the average, a separate network.
    """

    def __init__(self, network: M, decay: float, warmup: bool | Literal["unbiased"]) -> None:
        self.network: M = copy.deepcopy(network).requires_grad_(False)
        for layer in self.network.modules():
            if isinstance(layer, nn.RNNBase):
                layer.flatten_parameters()  # cuDNN reads the weights as one block, which a copy does not preserve
        self._decay, self._warmup = decay, warmup

    @torch.no_grad()
    def update(self, network: M, step: int) -> None:
        """Add the weights after a step, counted from 0; buffers (a batch norm's state) are copied."""
        decay = self._decay
        if self._warmup == "unbiased":
            # A plain average that began at zero, divided by 1 - decay^step (Kingma and Ba 2015, section 3).
            decay *= (1 - self._decay**step) / (1 - self._decay ** (step + 1))
        elif self._warmup:
            decay = min(decay, (1 + step) / (10 + step))
        averages: list[torch.Tensor] = list(self.network.parameters())
        weights: list[torch.Tensor] = list(network.parameters())
        # average += (1 - decay) (weights - average)
        get_ema_multi_avg_fn(decay)(averages, weights, 0)  # type: ignore[no-untyped-call]
        for average, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            average.copy_(buffer)


# Batches produced ahead in a thread.

_T = TypeVar("_T")


def prefetch(items: Iterator[_T]) -> Iterator[_T]:
    """The same items, produced ahead in a thread. Its errors are raised in place of the next item.

    Args:
        items: an iterator without None.
    """
    ready: queue.Queue[tuple[_T | None, BaseException | None]] = queue.Queue(maxsize=2)
    leave = threading.Event()

    def put(item: _T | None, error: BaseException | None) -> None:
        while not leave.is_set():
            try:
                ready.put((item, error), timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item, None)
                if leave.is_set():
                    return
        except BaseException as error:
            put(None, error)
            return
        put(None, None)

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        leave.set()
        thread.join()


_STEP_STREAM = 3  # random stream of a step; tasks use (seed, 1, ...) and (seed, 2, ...)


class _Interrupted(Exception):  # noqa: N818  # not an error
    """Leaves the loop, or an evaluation, if the user requested to stop."""


def learning_rate(settings: Training, steps_per_epoch: int, step: int) -> float:
    """The learning rate at a step, counted from 0: linear warm-up times :meth:`OptimiserOptions.share` of the epoch."""
    optimiser = settings.optimiser
    rate = optimiser.lr * optimiser.share(step // steps_per_epoch)
    return rate * min(1.0, (step + 1) / optimiser.warmup) if optimiser.warmup else rate


def train(
    settings: Training,
    prepare: Callable[[torch.device, Say], Task[Any, Any]],
    run: Path,
    *,
    restart: bool = False,
    stop: Callable[[], bool] = lambda: False,
    watcher: Watcher | None = None,
    smaller: str = "'batch'",
) -> TrainingResult:
    """Train, or resume a training, in a run folder.

    Args:
        settings: the settings; a folder with a run of other settings is rejected.
        prepare: reads the data and returns the task on the given device, with messages about the data; called once the
            folder is locked.
        run: the folder.
        restart: True to remove an earlier run in the folder.
        stop: called after every step, and during evaluations; True saves a checkpoint and stops.
        watcher: receives the progress.
        smaller: the settings to lower if memory is insufficient, in quotes.

    Raises:
        UsageError: the folder is in use, has a run with other settings or data, or there is not enough memory.
        ModelError: the loss is NaN or infinite, or the checkpoint is damaged.
        CapbenchError: any error of ``prepare``.
    """
    watcher = watcher or Watcher()
    device = choose_device(settings.device)
    threads = torch.get_num_threads()
    gpus = [device] if device.type == "cuda" else []
    with RunFolder(run).open(restart) as folder, torch.random.fork_rng(devices=gpus):
        try:
            if settings.threads is not None:
                torch.set_num_threads(settings.threads)
            folder.check(settings.deciding())  # before minutes of reading
            task = prepare(device, watcher.say)
            folder.claim(settings.to_dict(), settings.deciding(), task.data)
            return _Loop(settings, task, folder, device, stop, watcher).run()
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise UsageError(
                "there is not enough memory for this training",
                code="out-of-memory",
                path=run,
                hint=f"Lower {smaller}; the last checkpoint remains",
            ) from error
        finally:
            torch.set_num_threads(threads)


class _Loop(Generic[M, B]):
    def __init__(
        self,
        settings: Training,
        task: Task[M, B],
        folder: RunFolder,
        device: torch.device,
        stop: Callable[[], bool],
        watcher: Watcher,
    ) -> None:
        self._settings, self._task, self._folder, self._device = settings, task, folder, device
        self._stop, self._watcher = stop, watcher
        self._parameters: list[torch.Tensor] = list(task.model.parameters())
        self._average = None if settings.ema is None else WeightAverage(task.model, settings.ema, settings.ema_warmup)
        self._whole = settings.epochs * task.steps_per_epoch
        self._steps = min(self._whole, settings.max_steps or self._whole)
        self._step = 0
        self._evaluated = 0  # the last step that was evaluated
        self._stale = 0  # evaluations since the best
        self._best: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        self._best_weights: dict[str, torch.Tensor] | None = None
        self._ended: str | None = None
        self._seconds_before = 0.0  # time of earlier parts of the run
        self._begin = self._saved = time.monotonic()
        self._unchecked: list[tuple[int, torch.Tensor, torch.Tensor]] = []  # step, loss, gradient's norm
        self._losses: list[float] = []  # since the last line of the log

    def run(self) -> TrainingResult:
        state = self._folder.load()
        if state is not None:
            self._restore(state)
        self._folder.begin_log(0 if state is None else int(state["log_bytes"]))
        self._watcher.start(self._steps, self._step)
        if self._ended is None:
            self._save()
            try:
                self._train()
            except _Interrupted:
                self._save()
                return self._result("interrupted")
        assert self._ended is not None
        if not self._folder.model.is_file():
            self._write_model()
        return self._result(self._ended)

    def _train(self) -> None:
        settings = self._settings
        batches = self._batches()
        feed = prefetch(batches) if self._task.prefetch else batches
        try:
            while True:
                if self._due_evaluation():
                    self._evaluate()
                    if self._ended is not None:
                        break
                if self._stop():
                    self._check_losses()
                    raise _Interrupted
                self._learn(next(feed))
                self._watcher.step()
                if self._step % settings.log_every == 0:
                    self._log_step()
                due = settings.checkpoint_every is not None and self._step % settings.checkpoint_every == 0
                if due or time.monotonic() - self._saved >= settings.checkpoint_seconds:
                    self._save()
        finally:
            feed.close()  # type: ignore[attr-defined]  # both are generators
        self._write_model()
        self._write({"kind": "end", "reason": self._ended, "step": self._step})
        self._save()

    def _batches(self) -> Iterator[B]:
        """All batches from the current step on."""
        first_epoch, first = divmod(self._step, self._task.steps_per_epoch)
        for epoch in range(first_epoch, self._settings.epochs):
            yield from self._task.batches(epoch, first if epoch == first_epoch else 0)

    def _learn(self, batch: B) -> None:
        settings, optimiser = self._settings, self._task.optimiser
        state = np.random.SeedSequence((settings.seed, _STEP_STREAM, self._step)).generate_state(1, np.uint64)
        torch.manual_seed(int(state[0] >> np.uint64(1)))
        for group in optimiser.param_groups:
            group["lr"] = self._rate(self._step)
        self._task.model.train()
        loss = self._task.loss(batch, self._step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, settings.optimiser.clip or math.inf)
        self._unchecked.append((self._step + 1, loss.detach(), norm.detach()))
        if self._device.type == "cpu":
            self._check_losses()  # free on a CPU; a GPU would have to synchronise
        optimiser.step()
        if self._average is not None:
            self._average.update(self._task.model, self._step)
        self._step += 1

    def _rate(self, step: int) -> float:
        return learning_rate(self._settings, self._task.steps_per_epoch, step)

    def _check_losses(self) -> None:
        """Read the losses of the last steps. Raises ModelError for NaN or infinity."""
        for step, loss, norm in self._unchecked:
            for value, what in ((float(loss), "loss"), (float(norm), "gradient's norm")):
                if not math.isfinite(value):
                    raise ModelError(
                        f"the {what} is {value} at step {step}: training has diverged",
                        code="not-converged",
                        value=value,
                        path=self._folder.path,
                        hint="Lower 'optimiser.lr' or 'optimiser.clip', or check the loss settings and the features; "
                        "no model was written",
                    )
            self._losses.append(float(loss))
        self._unchecked.clear()

    def _log_step(self) -> None:
        self._check_losses()
        loss = sum(self._losses) / len(self._losses)
        self._losses.clear()
        self._write({"kind": "step", **self._place(), "loss": round(loss, 6), "lr": self._rate(self._step - 1)})

    def _due_evaluation(self) -> bool:
        if self._step == 0 or self._step == self._evaluated:
            return False
        every = self._settings.evaluation.every or self._task.steps_per_epoch
        return self._step % every == 0 or self._step == self._steps

    def _evaluate(self) -> None:
        self._check_losses()
        model = self._network()
        numbers = self._task.validate(model, self._pause)
        score = numbers[self._task.score]
        if not math.isfinite(score):
            raise ModelError(
                f"the score '{self._task.score}' is {score} at step {self._step}",
                code="not-converged",
                value=score,
                path=self._folder.path,
            )
        self._evaluated = self._step
        self._last = {"step": self._step, "epoch": self._epoch(), **numbers}
        self._stale += 1
        if self._best is None or score > self._best[self._task.score]:
            self._best, self._stale = self._last, 0
            # A copy to save in the end, since training continues in the same memory.
            self._best_weights = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
        patience = self._settings.evaluation.patience
        if self._step >= self._steps:
            self._ended = "max_steps" if self._steps < self._whole else "epochs"
        elif patience is not None and self._stale >= patience:
            self._ended = "patience"
        self._write({"kind": "evaluation", **self._place(), **numbers})
        if self._ended is None:
            self._save()

    def _pause(self) -> None:
        if self._stop():
            raise _Interrupted

    def _network(self) -> M:
        """The network to evaluate and save."""
        return self._task.model if self._average is None else self._average.network

    def _write_model(self) -> None:
        """Write the selected weights with the facts of their training; without times, so that equal trainings give
        equal files.
        """
        best = self._settings.select == "best"
        model = copy.deepcopy(self._network())
        if best and self._best_weights is not None:
            model.load_state_dict(self._best_weights)
        facts = {
            "config": self._settings.deciding(),
            "data": self._task.data,
            "dev": self._best if best else self._last,
            "steps": self._step,
            "ended": self._ended,
            "versions": {"capbench": __version__, "torch": torch.__version__},
            **self._task.facts,
            **({} if self._task.trained_on is None else {KEY: self._task.trained_on.to_json()}),
        }
        if self._task.image_mean is not None:
            facts[MEAN_KEY] = mean_to_text(self._task.image_mean())
        self._task.save(self._folder.model, model.cpu(), facts)

    def _epoch(self) -> int:
        return -(-self._step // self._task.steps_per_epoch)

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._begin

    def _place(self) -> dict[str, Any]:
        return {"step": self._step, "epoch": self._epoch(), "seconds": round(self._seconds(), 2)}

    def _write(self, entry: dict[str, Any]) -> None:
        self._folder.write(entry)
        self._watcher.log(entry)

    def _save(self) -> None:
        self._check_losses()
        self._saved = time.monotonic()
        self._folder.save(
            {
                "step": self._step,
                "evaluated": self._evaluated,
                "stale": self._stale,
                "best": self._best,
                "last": self._last,
                "weights": self._best_weights,
                "ended": self._ended,
                "seconds": self._seconds(),
                "losses": self._losses,
                "network": self._task.model.state_dict(),
                "averaged": None if self._average is None else self._average.network.state_dict(),
                "optimiser": self._task.optimiser.state_dict(),
            }
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self._step, self._evaluated, self._stale = state["step"], state["evaluated"], state["stale"]
        self._best, self._last, self._best_weights = state["best"], state["last"], state["weights"]
        self._ended, self._seconds_before, self._losses = state["ended"], state["seconds"], list(state["losses"])
        self._task.model.load_state_dict(state["network"])
        if self._average is not None:
            self._average.network.load_state_dict(state["averaged"])
        self._task.optimiser.load_state_dict(state["optimiser"])

    def _result(self, ended: str) -> TrainingResult:
        interrupted = ended == "interrupted"
        model = None if interrupted else self._folder.model
        return TrainingResult(
            ended=ended,
            step=self._step,
            epoch=self._epoch(),
            model=model,
            sha256=None if model is None else sha256_file(model),
            chosen=self._best if self._settings.select == "best" or interrupted else self._last,
            seconds=self._seconds(),
        )


# Ctrl-C during training: the loop finishes the step and writes a checkpoint, so that the run can be resumed.


@contextlib.contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns True after Ctrl-C or SIGTERM; a second signal interrupts immediately.

    It is the ``stop`` of :func:`capbench.training.loop.train`. Signals are handled in the main thread only.

    Args:
        say: receives one message when training stops, with the way to stop immediately.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def request(number: int, _frame: object) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        say("stopping after this step (interrupt again to stop immediately)")

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
