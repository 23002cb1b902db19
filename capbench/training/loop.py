"""The training of any network: steps, learning rate, clipping, averaging, choice of weights, log and checkpoints.

A trainer writes a :class:`capbench.training.task.Task`, which knows the network and its data, and settings that extend
:class:`capbench.training.settings.Training`; :func:`train` does the rest in a run folder
(:mod:`capbench.training.run_folder`).

A run that is interrupted or killed goes on from its last checkpoint and ends with the same weights, bit for bit, as one
that was left alone (on a CPU, with the same machine, libraries and number of threads). So nothing random hangs on what
was drawn before: an epoch's batches are drawn from (seed, epoch), and all that a step draws from (seed, step). The
random state that a checkpoint needs is thus the seed and the step.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch

from capbench import __version__
from capbench.errors import ModelError, UsageError
from capbench.files import sha256_file
from capbench.machine import is_out_of_memory
from capbench.training.averaging import WeightAverage
from capbench.training.device import choose_device
from capbench.training.prefetch import prefetch
from capbench.training.run_folder import RunFolder
from capbench.training.settings import Training
from capbench.training.task import B, M, Say, Task, TrainingResult, Watcher

__all__ = ["learning_rate", "train"]

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
