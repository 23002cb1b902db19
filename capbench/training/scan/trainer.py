"""Training of SCAN (Lee et al., ECCV 2018, arXiv:1803.08024): batches, steps, averaging, selection, resuming.

A run that is interrupted or killed goes on from its last checkpoint and ends with the same weights, bit for bit, as one
that was left alone (on a CPU, with the same machine, libraries and number of threads). So nothing random hangs on what
was drawn before: an epoch's order is drawn from (seed, epoch), and all that a step draws from (seed, step). The random
state that a checkpoint needs is thus the seed and the step.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from capbench import __version__
from capbench.datasets.root import DataRoot
from capbench.errors import ModelError, UsageError
from capbench.files import sha256_file
from capbench.machine import is_out_of_memory
from capbench.models.scan.files import save_scan
from capbench.models.scan.network import Scan, ScanOptions
from capbench.training.scan.batches import Batch, batches, epoch_order, feeding
from capbench.training.scan.config import ScanTraining
from capbench.training.scan.evaluation import evaluate
from capbench.training.scan.losses import hinge_loss, info_nce
from capbench.training.scan.prepare import Prepared, check_size, choose_device, prepare
from capbench.training.scan.run import RunFolder, TrainingResult, Watcher

__all__ = ["TrainingResult", "Watcher", "train_scan"]


class _Interrupted(Exception):  # noqa: N818  # no error
    """Leaves an evaluation that was asked to stop."""


def train_scan(
    config: ScanTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    restart: bool = False,
    stop: Callable[[], bool] = lambda: False,
    watcher: Watcher | None = None,
) -> TrainingResult:
    """Train, or go on training, in a run folder.

    Args:
        config: the settings (:func:`capbench.training.scan.config_file.load_training`).
        run: the folder; see :mod:`capbench.training.scan.run`.
        root: the data folder, for relative paths.
        restart: forget what the folder holds.
        stop: asked after every step; True saves a checkpoint and leaves.
        watcher: is told what happens.

    Raises:
        UsageError: the folder is in use or of a run with other settings or data.
        ModelError: the loss is NaN or infinite, or the checkpoint is damaged.
        UsageError: there is not enough memory.
        CapbenchError: captions or features are missing or do not fit.
    """
    watcher = watcher or Watcher()
    device = choose_device(config.device)
    if config.precision == "amp-bfloat16" and device.type != "cuda":
        raise ModelError("'precision: amp-bfloat16' needs a GPU", hint="Use bfloat16 or float32")
    threads = torch.get_num_threads()
    devices = [device] if device.type == "cuda" else []
    with RunFolder(run).open(restart) as folder, torch.random.fork_rng(devices=devices):
        try:
            if config.threads is not None:
                torch.set_num_threads(config.threads)
            folder.check(config.deciding())  # before minutes of reading
            prepared = prepare(config, root, watcher.say)
            folder.claim(config.to_dict(), config.deciding(), prepared.names)
            return _Trainer(config, prepared, folder, device, stop, watcher).run()
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise UsageError(
                "there is not enough memory for this training",
                path=run,
                hint="Lower 'batch' or 'network.embed_dim'; the checkpoint of an earlier step is kept",
            ) from error
        finally:
            torch.set_num_threads(threads)


class _Trainer:
    def __init__(
        self,
        config: ScanTraining,
        data: Prepared,
        folder: RunFolder,
        device: torch.device,
        stop: Callable[[], bool],
        watcher: Watcher,
    ) -> None:
        self._config, self._data, self._folder, self._device = config, data, folder, device
        self._stop, self._watcher = stop, watcher
        options = ScanOptions(
            **{**config.network, "vocabulary_size": len(data.vocabulary), "image_dim": data.train.regions.shape[2]}
        )
        check_size(options)
        # Drawn on the CPU, so that a seed means the same weights on every device.
        self._network = Scan(options, torch.Generator().manual_seed(config.seed)).to(device)
        self._averaged = copy.deepcopy(self._network).requires_grad_(False) if config.ema is not None else None
        chosen = config.optimiser
        self._parameters: list[torch.Tensor] = list(self._network.parameters())
        self._optimiser = torch.optim.Adam(self._parameters, lr=chosen.lr, weight_decay=chosen.weight_decay)
        self._per_epoch = len(epoch_order(data.train.pairs, config.batch, config.order, config.seed, 0))
        whole = config.epochs * self._per_epoch
        self._steps = min(whole, config.max_steps or whole)
        self._step = 0
        self._evaluated = 0  # the last step that was evaluated
        self._stale = 0  # evaluations since the best
        self._best: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        self._weights: dict[str, torch.Tensor] | None = None  # of the best
        self._ended: str | None = None
        self._before = 0.0  # seconds of earlier parts
        self._begin = time.monotonic()
        self._saved = self._begin
        self._recent: list[tuple[int, torch.Tensor, torch.Tensor]] = []  # not yet looked at: step, loss, norm
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
        config = self._config
        feed = self._feed()
        try:
            while True:
                if self._due_evaluation():
                    self._evaluate()
                    if self._ended is not None:
                        break
                if self._stop():
                    self._look()
                    raise _Interrupted
                self._learn(next(feed))
                self._watcher.step()
                if self._step % config.log_every == 0:
                    self._log_step()
                due = config.checkpoint_every is not None and self._step % config.checkpoint_every == 0
                if due or time.monotonic() - self._saved >= config.checkpoint_seconds:
                    self._save()
        finally:
            feed.close()
        self._write_model()
        self._write({"kind": "end", "reason": self._ended, "step": self._step})
        self._save()

    def _feed(self) -> Any:
        """Batches from the current step on."""
        config, split = self._config, self._data.train

        def orders() -> Iterator[Any]:
            first, inside = divmod(self._step, self._per_epoch)
            for epoch in range(first, config.epochs):
                order = epoch_order(split.pairs, config.batch, config.order, config.seed, epoch)
                yield from order[inside if epoch == first else 0 :]

        made = batches(
            orders(),
            split.pairs,
            split.captions,
            split.regions,
            word_dropout=config.dropout.words,
            seed=config.seed,
            first_step=self._step,
            pin=self._device.type == "cuda",
        )
        return feeding(split.regions, self._device)(made)

    def _learn(self, batch: Batch) -> None:
        config = self._config
        state = np.random.SeedSequence((config.seed, 3, self._step)).generate_state(1, np.uint64)
        torch.manual_seed(int(state[0] >> np.uint64(1)))
        for group in self._optimiser.param_groups:
            group["lr"] = self._lr(self._step)
        self._network.train()
        images = batch.images.to(self._device, non_blocking=True)
        ids = batch.ids.to(self._device, non_blocking=True)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=config.precision == "amp-bfloat16"):
            regions = self._network.encode_images(images, config.dropout.regions)
            words = self._network.encode_captions(ids, batch.lengths, config.dropout.embedding)
        products: Literal["float32", "bfloat16"] = "float32" if config.precision == "float32" else "bfloat16"
        scores = self._network.similarities(regions.float(), words.float(), batch.lengths, products)
        loss = self._loss(scores)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, config.optimiser.clip or math.inf)
        self._recent.append((self._step + 1, loss.detach(), norm.detach()))
        if self._device.type == "cpu":
            self._look()  # costs nothing here; a GPU would have to wait
        self._optimiser.step()
        self._average()
        self._step += 1

    def _loss(self, scores: torch.Tensor) -> torch.Tensor:
        chosen = self._config.loss
        if chosen.kind == "info-nce":
            return info_nce(scores, chosen.temperature)
        hardest = chosen.hardest and self._step >= chosen.hardest_after
        return hinge_loss(scores, chosen.margin, hardest, chosen.reduction)

    def _lr(self, step: int) -> float:
        chosen = self._config.optimiser
        lr = chosen.lr
        if chosen.lr_update is not None:
            lr *= 0.1 ** (step // self._per_epoch // chosen.lr_update)
        return lr * min(1.0, (step + 1) / chosen.warmup) if chosen.warmup else lr

    @torch.no_grad()
    def _average(self) -> None:
        config = self._config
        if self._averaged is None or config.ema is None:
            return
        decay = config.ema
        if config.ema_warmup == "unbiased":
            # What dividing by 1 - ema^step does to a plain average that began at zero (Kingma and Ba 2015, section 3).
            decay *= (1 - config.ema**self._step) / (1 - config.ema ** (self._step + 1))
        elif config.ema_warmup:
            decay = min(config.ema, (1 + self._step) / (10 + self._step))
        averaged: list[torch.Tensor] = list(self._averaged.parameters())
        torch._foreach_lerp_(averaged, self._parameters, 1 - decay)

    def _look(self) -> None:
        """Read the losses of the last steps. Raises ModelError at one that is no number."""
        for step, loss, norm in self._recent:
            for value, what in ((float(loss), "loss"), (float(norm), "gradient's norm")):
                if not math.isfinite(value):
                    raise ModelError(
                        f"the {what} is {value} at step {step}: training has diverged",
                        path=self._folder.path,
                        hint="Lower 'optimiser.lr' or 'optimiser.clip', or check the loss's numbers and the features; "
                        "no model was written",
                    )
            self._losses.append(float(loss))
        self._recent.clear()

    def _log_step(self) -> None:
        self._look()
        loss = sum(self._losses) / len(self._losses)
        self._losses.clear()
        self._write({"kind": "step", **self._place(), "loss": round(loss, 6), "lr": self._lr(self._step - 1)})

    def _due_evaluation(self) -> bool:
        if self._step == 0 or self._step == self._evaluated:
            return False
        every = self._config.evaluation.every or self._per_epoch
        return self._step % every == 0 or self._step == self._steps

    def _evaluate(self) -> None:
        self._look()
        config, dev = self._config, self._data.dev
        network = self._averaged or self._network

        def progress(_done: int) -> None:
            if self._stop():
                raise _Interrupted

        found = evaluate(network, dev.pairs, dev.captions, dev.regions, self._device, progress=progress)
        self._evaluated = self._step
        self._last = {"step": self._step, "epoch": self._epoch(), **found.to_dict()}
        self._stale += 1
        if self._best is None or self._last["recall_sum"] > self._best["recall_sum"]:
            self._best, self._stale = self._last, 0
            # What is saved in the end; a copy, as training goes on in the same memory.
            self._weights = {name: tensor.detach().cpu().clone() for name, tensor in network.state_dict().items()}
        patience = config.evaluation.patience
        if self._step >= self._steps:
            self._ended = "max_steps" if self._steps < config.epochs * self._per_epoch else "epochs"
        elif patience is not None and self._stale >= patience:
            self._ended = "patience"
        self._write({"kind": "evaluation", **self._place(), **found.to_dict()})
        if self._ended is None:
            self._save()

    def _write_model(self) -> None:
        """The chosen weights with the facts of their training; no times, so that equal trainings give equal files."""
        best = self._config.select == "best"
        chosen = self._best if best else self._last
        network = copy.deepcopy(self._averaged or self._network)
        if best and self._weights is not None:
            network.load_state_dict(self._weights)
        facts = {
            "config": self._config.deciding(),
            "data": self._data.names,
            "features": self._data.features,
            "dev": chosen,
            "steps": self._step,
            "ended": self._ended,
            "versions": {"capbench": __version__, "torch": torch.__version__},
        }
        save_scan(self._folder.model, network.cpu(), self._data.vocabulary, facts)

    def _epoch(self) -> int:
        """Epochs begun."""
        return -(-self._step // self._per_epoch)

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._begin

    def _place(self) -> dict[str, Any]:
        return {"step": self._step, "epoch": self._epoch(), "seconds": round(self._seconds(), 2)}

    def _write(self, entry: dict[str, Any]) -> None:
        self._folder.write(entry)
        self._watcher.log(entry)

    def _save(self) -> None:
        self._look()
        self._saved = time.monotonic()
        self._folder.save(
            {
                "step": self._step,
                "evaluated": self._evaluated,
                "stale": self._stale,
                "best": self._best,
                "last": self._last,
                "weights": self._weights,
                "ended": self._ended,
                "seconds": self._seconds(),
                "losses": self._losses,
                "network": self._network.state_dict(),
                "averaged": None if self._averaged is None else self._averaged.state_dict(),
                "optimiser": self._optimiser.state_dict(),
            }
        )

    def _restore(self, state: dict[str, Any]) -> None:
        self._step, self._evaluated, self._stale = state["step"], state["evaluated"], state["stale"]
        self._best, self._last, self._weights = state["best"], state["last"], state["weights"]
        self._ended, self._before, self._losses = state["ended"], state["seconds"], list(state["losses"])
        self._network.load_state_dict(state["network"])
        if self._averaged is not None:
            self._averaged.load_state_dict(state["averaged"])
        self._optimiser.load_state_dict(state["optimiser"])

    def _result(self, ended: str) -> TrainingResult:
        best = self._config.select == "best" or ended == "interrupted"
        model = None if ended == "interrupted" else self._folder.model
        return TrainingResult(
            ended=ended,
            step=self._step,
            epoch=self._epoch(),
            model=model,
            sha256=None if model is None else sha256_file(model),
            chosen=self._best if best else self._last,
            seconds=self._seconds(),
        )
