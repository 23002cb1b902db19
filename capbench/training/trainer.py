"""The trainer of every network: the interface of a network, the loop over its batches, and the folder of a run.

An interrupted or killed run resumes from its checkpoint and ends with the same weights, bit for bit (on a CPU): the
batches of an epoch are drawn from (seed, epoch) and all random numbers of a step from (seed, step).
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn

from capbench import __version__
from capbench.core import files
from capbench.core.errors import CapbenchError, ModelError, UsageError
from capbench.core.machine import choose_device, is_out_of_memory
from capbench.datasets.root import DataRoot
from capbench.text.vocabulary import Vocabulary
from capbench.training.settings import OptimiserOptions, Training
from capbench.weights.checkpoints import read_torch
from capbench.weights.files import write_trained

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")
T = TypeVar("T")

Bar = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""Makes a progress bar of a description and a number of steps: a context with a function of the steps done."""


class Watcher:
    """The user of a training: sees messages and progress, and can stop it. The methods do nothing unless overridden."""

    def __init__(self, bar: Bar = lambda _description, _steps: contextlib.nullcontext(lambda _done: None)) -> None:
        self.bar = bar

    def say(self, text: str) -> None:
        """One line about the data."""

    def step(self, steps: int, done: int) -> None:
        """Training begins, or a step is done, of so many."""

    def log(self, entry: dict[str, Any]) -> None:
        """A line was written to the log."""

    def stopped(self) -> bool:
        """True to save a checkpoint and stop."""
        return False


class Measurement(NamedTuple):
    """An evaluation of a trained model."""

    split: str  # ``train``, ``dev`` or ``test``
    root: DataRoot | None = None  # the data folder
    images: int | None = None  # number of images, sampled as for dev in training; None: all
    folds: int = 1  # number of equal parts of the images over which the mean is computed
    vocabulary: Path | None = None  # vocabulary of a released checkpoint
    watcher: Watcher = Watcher()  # receives messages


class Task(ABC, Generic[M, B]):
    """A network with its training data. The docstring of a plug-in's class is the help of its command."""

    settings: ClassVar[type[Training]]
    metric: ClassVar[str]  # that uses the weights
    score: str  # number of an evaluation that selects the weights; higher is better

    model: M  # on its device; first weights are drawn on the CPU, so that a seed gives the same ones on every device
    optimiser: torch.optim.Optimizer  # the loop sets its learning rate
    steps_per_epoch: int
    vocabulary: Vocabulary  # of the network, unless :meth:`save` is overridden
    data: dict[str, str]  # identifiers of the training data; a run resumes only with the same data
    prefetch: bool = False  # True to produce batches ahead in a thread, without torch's random numbers

    @abstractmethod
    def __init__(self, config: Any, root: DataRoot | None, device: torch.device, watcher: Watcher) -> None:
        """Read the data; ``root`` is the data folder, for paths that do not exist in the current folder."""

    @abstractmethod
    def batches(self, epoch: int, first: int) -> Iterator[B]:
        """The batches of an epoch (from 0), starting with the ``first``-th, determined by seed and epoch."""

    @abstractmethod
    def loss(self, batch: B, step: int) -> torch.Tensor:
        """Loss of a batch, a scalar with its gradient; ``step`` counts from 0 over all epochs."""

    @abstractmethod
    def validate(self, model: M, pause: Callable[[], None]) -> dict[str, Any]:
        """Evaluate a network on held-out data; returns JSON values including :attr:`score`. Calls ``pause`` often."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Facts of the training to save with the model, as JSON values."""

    def save(self, path: Path, model: M, facts: Mapping[str, Any]) -> None:
        """Write the trained model, on the CPU, atomically."""
        write_trained(path, model, self.vocabulary, facts)

    @staticmethod
    def line(entry: Mapping[str, Any]) -> str:
        """The numbers of an evaluation."""
        place = ("kind", "step", "epoch", "seconds")
        return ", ".join(f"{key} {value}" for key, value in entry.items() if key not in place)

    @classmethod
    def use(cls, config: Any, model: Path) -> str:
        """Arguments of ``capbench score`` that use a trained model."""
        return f"--metric {cls.metric} --model {cls.metric}={model} --features {config.features}"

    @classmethod
    def measure(cls, config: Any, model: Path, asked: Measurement) -> dict[str, Any]:
        """Numbers of a trained model on a split, with ``sha256`` of the model; ``config`` names captions, features."""
        raise UsageError("this network cannot be evaluated", code="unsupported", hint="Evaluate scan or faier")


@dataclass(frozen=True)
class Trained:
    """Result of a training."""

    run: Path  # the run folder, with log and checkpoint
    ended: str  # ``epochs``, ``max_steps`` or ``patience``; ``interrupted`` if it can be resumed
    step: int
    epoch: int  # begun
    model: Path | None  # the weight file, for ``model=``; None after an interruption
    sha256: str | None  # of the file
    chosen: Mapping[str, Any]  # the evaluation of the saved weights
    seconds: float  # over all parts of an interrupted run

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        values = {key: value for key, value in vars(self).items() if key != "run"}
        return {**values, "model": self.model and str(self.model), "seconds": round(self.seconds, 1)}


def train(
    task: type[Task[Any, Any]],
    config: Training,
    run: Path,
    root: DataRoot | None = None,
    *,
    restart: bool = False,
    watcher: Watcher | None = None,
) -> Trained:
    """Train a network in a folder, or resume its training; ``restart`` removes an earlier run."""
    watcher, device, threads = watcher or Watcher(), torch.device(choose_device(config.device)), torch.get_num_threads()
    with files.lock(run / "run", timeout_s=0), torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            torch.set_num_threads(config.threads or threads)
            for name in (MODEL, CHECKPOINT, LOG) if restart else ():
                (run / name).unlink(missing_ok=True)
            for torn in run.glob(".*.part"):  # of a run that was killed while it wrote
                torn.unlink()
            state = _read(run)
            _check(run, state, "settings", config.deciding())  # before minutes of reading
            made = task(config, root, device, watcher)
            _check(run, state, "data", made.data)
            return _Loop(config, made, run, watcher).run(state)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            message, hint = "there is not enough memory for this training", "Lower 'batch' or the sizes in 'network'"
            raise UsageError(message, code="out-of-memory", path=run, hint=hint) from error
        finally:
            torch.set_num_threads(threads)


# The folder of a run.

FORMAT = 2
LOG, CHECKPOINT, MODEL = "log.jsonl", "checkpoint.pt", "model.safetensors"
_AGAIN = "Start again with --restart, or choose another folder with --out"


def _read(run: Path) -> dict[str, Any]:
    """The checkpoint, empty if there is none."""
    path = run / CHECKPOINT
    if not path.is_file() and not (run / MODEL).exists():
        return {}
    try:
        state: dict[str, Any] = read_torch(path)
        if state["format"] != FORMAT:
            raise ModelError("written by another version of capbench")
    except (CapbenchError, TypeError, KeyError) as error:
        message = f"the checkpoint cannot be read ({error})"
        raise ModelError(message, code="damaged", path=path, hint=_AGAIN) from error
    return state


def _check(run: Path, state: Mapping[str, Any], what: str, now: Mapping[str, Any]) -> None:
    """Raise UsageError if the checkpoint has other settings or data."""
    before = state.get(what, now)
    if keys := [key for key in {**before, **now} if before.get(key) != now.get(key)]:
        values = ((key, *(json.dumps(of[key]) if key in of else "absent" for of in (before, now))) for key in keys)
        shown = ", ".join(f"{key} ({there} there, {here} now)" for key, there, here in values)
        message = f"the run in this folder has other {what}: {shown}"
        raise UsageError(message, code="conflict", value=keys[0], path=run, hint=_AGAIN)


# The loop.


class _InterruptedError(Exception):
    """Leaves the loop, or an evaluation, if the user requested to stop."""


class _Loop(Generic[M, B]):
    KEPT = ("step", "evaluated", "stale", "best", "last", "weights", "ended", "losses")

    def __init__(self, config: Training, task: Task[M, B], run: Path, watcher: Watcher) -> None:
        self.config, self.task, self.folder, self.watcher = config, task, run, watcher
        self.network = task.model if config.ema is None else average_of(task.model)  # to evaluate and save
        self.parts: list[Any] = [task.model, task.optimiser, self.network]
        self.planned = config.epochs * task.steps_per_epoch
        self.steps = min(self.planned, config.max_steps or self.planned)
        self.losses: list[float] = []  # since the last line of the log
        self.step, self.evaluated, self.stale = 0, 0, 0  # steps; the last evaluated one; evaluations since the best
        self.best: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self.weights: dict[str, torch.Tensor] = {}  # of the best evaluation
        self.ended, self.begin, self.saved = "", time.monotonic(), time.monotonic()

    def run(self, state: Mapping[str, Any]) -> Trained:
        if state:
            for part, kept in zip(self.parts, state["parts"], strict=True):
                part.load_state_dict(kept)
            vars(self).update((key, state[key]) for key in self.KEPT)
            self.begin -= state["seconds"]
        with open(self.folder / LOG, "ab") as log:  # a killed run wrote lines after its last checkpoint
            log.truncate(min(state.get("log_bytes", 0), log.tell()))
        self.watcher.step(self.steps, self.step)
        with self.watcher.bar("training", self.steps) as advance:
            advance(self.step)
            try:
                if not self.ended:
                    self._save()
                    self._train(advance)
            except _InterruptedError:
                self._save()
        model = self.folder / MODEL if self.ended else None
        if model is not None and not model.is_file():
            self._write_model()
        digest = None if model is None else files.sha256_file(model)
        ended, seconds = self.ended or "interrupted", time.monotonic() - self.begin
        return Trained(self.folder, ended, self.step, self._epoch(), model, digest, self._chosen(), seconds)

    def _chosen(self) -> dict[str, Any]:
        return self.best if self.config.select == "best" else self.last

    def _train(self, advance: Callable[[int], None]) -> None:
        config, task = self.config, self.task
        every = config.evaluation.every or task.steps_per_epoch
        now, first = divmod(self.step, task.steps_per_epoch)
        epochs = range(now, config.epochs)
        batches = (batch for epoch in epochs for batch in task.batches(epoch, first if epoch == now else 0))
        with contextlib.closing(prefetch(batches) if task.prefetch else batches) as feed:
            while True:
                if self.step != self.evaluated and (self.step % every == 0 or self.step == self.steps):
                    self._evaluate()
                    if self.ended:
                        break
                self._pause()
                self._learn(next(feed))
                advance(1)
                self.watcher.step(self.steps, self.step)
                if self.step % config.log_every == 0:
                    rate = task.optimiser.param_groups[0]["lr"]
                    self._log("step", loss=round(sum(self.losses) / len(self.losses), 6), lr=rate)
                    self.losses = []
                if time.monotonic() - self.saved >= config.checkpoint_seconds:
                    self._save()
        self._write_model()
        self._log("end", reason=self.ended)
        self._save()

    def _learn(self, batch: B) -> None:
        task, optimiser = self.task, self.config.optimiser
        state = np.random.SeedSequence((self.config.seed, 3, self.step)).generate_state(1, np.uint64)
        torch.manual_seed(int(state[0] >> np.uint64(1)))
        # A linear warm-up times the share of the epoch.
        share = optimiser.share(self.step // task.steps_per_epoch)
        for group in task.optimiser.param_groups:
            group["lr"] = optimiser.lr * share * min(1.0, (self.step + 1) / max(1, optimiser.warmup))
        task.model.train()
        loss = task.loss(batch, self.step)
        task.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(task.model.parameters(), optimiser.clip or math.inf)
        value, gradient = loss.item(), norm.item()
        if not math.isfinite(value + gradient):
            message = f"the loss is {value}, its gradient {gradient} at step {self.step + 1}: training has diverged"
            hint = "Lower 'optimiser.lr' or 'optimiser.clip', or check the loss settings and the features"
            raise ModelError(message, code="not-converged", value=value, path=self.folder, hint=hint)
        self.losses.append(value)
        task.optimiser.step()
        if self.config.ema is not None:
            update_average(self.network, task.model, self.config.ema, self.step)
        self.step += 1

    def _evaluate(self) -> None:
        key, numbers = self.task.score, self.task.validate(self.network, self._pause)
        if not math.isfinite(numbers[key]):
            message = f"the score '{key}' is {numbers[key]} at step {self.step}"
            raise ModelError(message, code="not-converged", value=numbers[key], path=self.folder)
        self.evaluated, self.stale = self.step, self.stale + 1
        self.last = {"step": self.step, "epoch": self._epoch(), **numbers}
        if not self.best or numbers[key] > self.best[key]:
            self.best, self.stale = self.last, 0
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in self.network.state_dict().items()}
        if self.step >= self.steps:
            self.ended = "max_steps" if self.steps < self.planned else "epochs"
        elif self.stale == self.config.evaluation.patience:
            self.ended = "patience"
        self._log("evaluation", **numbers)
        if not self.ended:
            self._save()

    def _pause(self) -> None:
        if self.watcher.stopped():
            raise _InterruptedError

    def _epoch(self) -> int:
        return -(-self.step // self.task.steps_per_epoch)

    def _log(self, kind: str, **numbers: Any) -> None:
        seconds = round(time.monotonic() - self.begin, 2)
        place = {"step": self.step, "epoch": self._epoch(), "seconds": seconds}
        with open(self.folder / LOG, "a", encoding="utf-8") as stream:
            stream.write(json.dumps({"kind": kind, **place, **numbers}, ensure_ascii=False, allow_nan=False) + "\n")
        self.watcher.log({"kind": kind, **place, **numbers})

    def _write_model(self) -> None:
        """Write the selected weights with facts, without times, so that equal trainings give equal files."""
        model = copy.deepcopy(self.network)
        if self.config.select == "best":
            model.load_state_dict(self.weights)
        facts = {
            "config": self.config.deciding(),
            "data": self.task.data,
            "dev": self._chosen(),
            "steps": self.step,
            "ended": self.ended,
            "versions": {"capbench": __version__, "torch": torch.__version__},
        }
        self.task.save(self.folder / MODEL, model.cpu(), facts | self.task.facts())

    def _save(self) -> None:
        state = {"format": FORMAT, "settings": self.config.deciding(), "data": self.task.data}
        state |= {"seconds": time.monotonic() - self.begin, "log_bytes": (self.folder / LOG).stat().st_size}
        state |= {key: getattr(self, key) for key in self.KEPT}
        state["parts"] = [part.state_dict() for part in self.parts]
        path = self.folder / CHECKPOINT
        try:
            with files.atomic_write(path, "wb") as stream:
                torch.save(state, stream)
        except RuntimeError as error:  # torch's error for a failed write
            message, hint = f"cannot be written ({str(error).splitlines()[0]})", "Free disk space and resume"
            raise UsageError(message, code="unwritable", path=path, hint=hint) from error
        self.saved = time.monotonic()


# The exponential average of a network's weights over its steps (Polyak and Juditsky 1992).


def average_of(network: M) -> M:
    """A copy of a network in training, as the beginning of the average."""
    average = copy.deepcopy(network).requires_grad_(False)
    for layer in average.modules():
        if isinstance(layer, nn.RNNBase):
            layer.flatten_parameters()  # cuDNN reads the weights as one block, which a copy does not preserve
    return average


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, ema: float, step: int) -> None:
    """Add the weights after a step, counted from 0; buffers are copied.

    The weights of a step count ema^age, divided by the sum over all steps so far (Kingma and Ba 2015, section 3).
    """
    decay = ema * (1 - ema**step) / (1 - ema ** (step + 1))
    torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), 1 - decay)
    for mean, buffer in zip(average.buffers(), network.buffers(), strict=True):
        mean.copy_(buffer)


def prefetch(items: Iterator[T]) -> Generator[T]:
    """The same items, produced ahead in a thread."""
    with ThreadPoolExecutor(1) as pool:
        ahead = deque(pool.submit(next, items, None) for _ in range(2))
        while (item := ahead.popleft().result()) is not None:
            ahead.append(pool.submit(next, items, None))
            yield item


def adam(model: nn.Module, options: OptimiserOptions) -> torch.optim.Adam:
    """Adam for the trainable weights."""
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.Adam(learned, lr=options.lr, weight_decay=options.weight_decay)
