"""The training of any network: steps, learning rate, clipping, averaging, choice of weights, log and checkpoints.

A trainer writes a :class:`capbench.training.loop.Task`, which knows the network and its data, and settings that extend
:class:`capbench.training.settings.Training`; :func:`train` does the rest in a run folder
(:mod:`capbench.training.run_folder`).

A run that is interrupted or killed goes on from its last checkpoint and ends with the same weights, bit for bit, as one
that was left alone (on a CPU, with the same machine, libraries and number of threads). So nothing random hangs on what
was drawn before: an epoch's batches are drawn from (seed, epoch), and all that a step draws from (seed, step). The
random state that a checkpoint needs is thus the seed and the step.
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
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from capbench import __version__
from capbench.core.errors import ModelError, UsageError
from capbench.core.files import sha256_file
from capbench.core.machine import is_out_of_memory
from capbench.training.run_folder import RunFolder, choose_device
from capbench.training.settings import Training

__all__ = [
    "B",
    "M",
    "Running",
    "Say",
    "Task",
    "TrainingResult",
    "Watcher",
    "WeightAverage",
    "learning_rate",
    "prefetch",
    "stop_on_signal",
    "train",
]


# What the training loop and its users say to each other: the task, the result, and who looks on.

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


# A running average of a network's weights (Polyak and Juditsky 1992, in its exponential form).


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
        # average += (1 - decay) (weights - average)
        get_ema_multi_avg_fn(decay)(averages, weights, 0)  # type: ignore[no-untyped-call]
        for kept, buffer in zip(self.network.buffers(), network.buffers(), strict=True):
            kept.copy_(buffer)


# Batches made ahead of their use, by a thread.

_T = TypeVar("_T")


def prefetch(items: Iterator[_T]) -> Iterator[_T]:
    """The same items, made by a thread ahead of their use. An error in it is raised where the item would have come.

    Args:
        items: none of them is None.
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


_STEP_STREAM = 3  # of random numbers within a step; tasks draw from (seed, 1, ...) and (seed, 2, ...)


class _Interrupted(Exception):  # noqa: N818  # no error
    """Leaves the loop, or an evaluation, when the user has asked to stop."""


def learning_rate(settings: Training, steps_per_epoch: int, step: int) -> float:
    """The learning rate at a step, counted from 0: a linear rise, then a tenth every ``lr_update`` epochs, or what
    else the optimiser's settings leave of it."""
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
    """Train, or go on training, in a run folder.

    Args:
        settings: how; the folder is refused if it holds a run with other ones.
        prepare: reads the data and makes the task, on the device it is given, and says what it reads; called once the
            folder is held.
        run: the folder.
        restart: forget what the folder holds.
        stop: asked after every step, and during evaluations; True saves a checkpoint and leaves.
        watcher: is told what happens.
        smaller: the settings to lower where memory runs out, in quotes.

    Raises:
        UsageError: the folder is in use or of a run with other settings or data, or there is not enough memory.
        ModelError: the loss is NaN or infinite, or the checkpoint is damaged.
        CapbenchError: what ``prepare`` raises.
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
                path=run,
                hint=f"Lower {smaller}; the checkpoint of an earlier step is kept",
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
        self._seconds_before = 0.0  # of earlier parts of the run
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
            self._check_losses()  # costs nothing here; a GPU would have to wait
        optimiser.step()
        if self._average is not None:
            self._average.update(self._task.model, self._step)
        self._step += 1

    def _rate(self, step: int) -> float:
        return learning_rate(self._settings, self._task.steps_per_epoch, step)

    def _check_losses(self) -> None:
        """Read the losses of the last steps. Raises ModelError at one that is no number."""
        for step, loss, norm in self._unchecked:
            for value, what in ((float(loss), "loss"), (float(norm), "gradient's norm")):
                if not math.isfinite(value):
                    raise ModelError(
                        f"the {what} is {value} at step {step}: training has diverged",
                        path=self._folder.path,
                        hint="Lower 'optimiser.lr' or 'optimiser.clip', or check the loss's numbers and the features; "
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
            raise ModelError(f"the score '{self._task.score}' is {score} at step {self._step}", path=self._folder.path)
        self._evaluated = self._step
        self._last = {"step": self._step, "epoch": self._epoch(), **numbers}
        self._stale += 1
        if self._best is None or score > self._best[self._task.score]:
            self._best, self._stale = self._last, 0
            # What is saved in the end; a copy, as training goes on in the same memory.
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
        """What is evaluated and saved."""
        return self._task.model if self._average is None else self._average.network

    def _write_model(self) -> None:
        """The chosen weights with the facts of their training; no times, so that equal trainings give equal files."""
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
        }
        self._task.save(self._folder.model, model.cpu(), facts)

    def _epoch(self) -> int:
        """Epochs begun."""
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


# Ctrl-C while a network is trained: the step is finished, a checkpoint is written, and the run can go on.


@contextlib.contextmanager
def stop_on_signal(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Yields a function that is true once Ctrl-C or SIGTERM has come; a second Ctrl-C interrupts at once.

    It is the ``stop`` of :func:`capbench.training.loop.train`. Outside of the main thread no signal is caught.

    Args:
        say: is told, once, that training stops and how to stop it at once.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, _frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        say("stopping after this step (once more to stop at once)")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
