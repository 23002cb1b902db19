"""The folder of a training run: settings, log, checkpoint, model and lock; devices and memory for training.

========================  =============================================================================================
``run.json``              the settings with all defaults, and identifiers of the data; written first
``log.jsonl``             a line every ``log_every`` steps and for every evaluation
``checkpoint.pt``         the state for resuming; replaced atomically
``model.safetensors``     the trained model; written at the end
========================  =============================================================================================

The log of a killed run may be ahead of the checkpoint; resuming truncates it to its length at the checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import filelock
import torch
from torch import nn

from capbench.core import files
from capbench.core.errors import CapbenchError, ModelError, UsageError, unwritable
from capbench.core.machine import total_memory
from capbench.training.settings import OptimiserOptions
from capbench.weights.checkpoints import read_torch

_FORMAT = 1
_RUN, _LOG, _CHECKPOINT, _MODEL = "run.json", "log.jsonl", "checkpoint.pt", "model.safetensors"
_AGAIN = "Start again with --restart, or choose another folder with --out"


class RunFolder:
    """A run's folder, locked by :meth:`open`.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log: IO[bytes] | None = None

    @property
    def model(self) -> Path:
        """The trained model."""
        return self.path / _MODEL

    @property
    def log(self) -> Path:
        """The log."""
        return self.path / _LOG

    @contextlib.contextmanager
    def open(self, restart: bool = False) -> Iterator[RunFolder]:
        """Lock the folder; ``restart`` removes the files of an earlier run.

        Raises:
            UsageError: another run has locked it, or it cannot be written.
        """
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(files.lock(self.path / "run", timeout_s=0))
            except UsageError as error:
                if not isinstance(error.__cause__, filelock.Timeout):
                    raise
                raise UsageError(
                    "another run is training in this folder",
                    code="in-use",
                    path=self.path,
                    hint="Wait for it, or choose another folder with --out",
                ) from error
            for name in (_MODEL, _CHECKPOINT, _LOG, _RUN):
                if restart:
                    (self.path / name).unlink(missing_ok=True)
                for torn in self.path.glob(f".{name}.*.part"):  # of a run that was killed while it wrote
                    torn.unlink(missing_ok=True)
            try:
                yield self
            finally:
                if self._log is not None:
                    self._log.close()
                    self._log = None

    def check(self, deciding: Mapping[str, Any], data: Mapping[str, Any] | None = None) -> bool:
        """True if the folder belongs to this run, False if it does not belong to any run.

        Args:
            deciding: the settings that determine the result, with dotted keys.
            data: identifiers of the training data, such as a fingerprint of the captions; None if not known yet.

        Raises:
            UsageError: the folder belongs to another run; the error names the keys that differ.
            ModelError: it contains a model or checkpoint but no record of its run.
        """
        run_file = self.path / _RUN
        if not run_file.is_file():
            for name in (_CHECKPOINT, _MODEL):
                if (self.path / name).exists():
                    raise ModelError(
                        f"the folder holds '{name}' but no {_RUN}",
                        code="missing-file",
                        value=name,
                        path=self.path,
                        hint=_AGAIN,
                    )
            return False
        record = files.read_json(run_file)
        known = isinstance(record, dict) and record.get("format") == _FORMAT
        if not known or not all(isinstance(record.get(key), dict) for key in ("deciding", "data")):
            raise ModelError(
                "is damaged or was written by another version of capbench",
                code="wrong-format",
                path=run_file,
                hint=_AGAIN,
            )
        before, now = record["deciding"], json.loads(json.dumps(deciding))
        keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
        if keys:
            listed = ", ".join(f"{key} ({_brief(before.get(key))} there, {_brief(now.get(key))} now)" for key in keys)
            raise UsageError(
                f"the run in this folder has other settings: {listed}",
                code="conflict",
                value=keys[0],
                path=self.path,
                hint=_AGAIN,
            )
        keys = [key for key, name in (data or {}).items() if record["data"].get(key) != name]
        if keys:
            listed = ", ".join(keys)
            raise UsageError(
                f"the run in this folder has other data ({listed} differ)",
                code="conflict",
                value=keys[0],
                path=self.path,
                hint=_AGAIN,
            )
        return True

    def claim(self, config: Mapping[str, Any], deciding: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Call :meth:`check`, and record this run if the folder has none; ``config`` is for information only."""
        if not self.check(deciding, data):
            note = {"format": _FORMAT, "config": config, "deciding": deciding, "data": data}
            files.write_text(self.path / _RUN, json.dumps(note, ensure_ascii=False, indent=2) + "\n")

    def load(self) -> dict[str, Any] | None:
        """The checkpoint, or None if there is none. Raises ModelError if it is damaged."""
        path = self.path / _CHECKPOINT
        if not path.is_file():
            return None
        try:
            state = read_torch(path)
        except CapbenchError as error:
            raise ModelError(
                f"the checkpoint cannot be read ({error.message})", code="damaged", path=path, hint=_AGAIN
            ) from error
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise ModelError(
                "is not a checkpoint of this version of capbench", code="wrong-format", path=path, hint=_AGAIN
            )
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint, after flushing the log to disk. Raises UsageError if the disk is full."""
        length = 0
        if self._log is not None:
            self._log.flush()
            os.fsync(self._log.fileno())
            length = self._log.tell()
        path = self.path / _CHECKPOINT
        try:
            with files.atomic_write(path, "wb") as stream:
                torch.save({**state, "format": _FORMAT, "log_bytes": length}, stream)
        except RuntimeError as error:  # torch's error for a failed write
            raise UsageError(
                f"cannot be written ({str(error).splitlines()[0][:120]})",
                code="unwritable",
                path=path,
                hint="Free disk space and run the command again to resume from the previous checkpoint",
            ) from error

    def begin_log(self, log_bytes: int) -> None:
        """Open the log and remove lines that a killed run wrote after its last checkpoint."""
        try:
            self._log = open(self.log, "ab")  # noqa: SIM115  # closed in open()
            if self._log.tell() > log_bytes:
                self._log.truncate(log_bytes)
                self._log.seek(log_bytes)
        except OSError as error:
            raise UsageError(
                f"cannot be written ({error.strerror or error})", code="unwritable", path=self.log
            ) from error

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append a line to the log. Raises UsageError if the disk is full."""
        assert self._log is not None
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            self._log.write(line.encode())
            self._log.flush()
        except OSError as error:
            raise unwritable(error, self.log, "Free disk space and run the command again to resume") from error


def _brief(value: Any) -> str:
    return "null" if value is None else json.dumps(value)


# Devices and memory for training.

_BYTES_A_WEIGHT = 16  # a weight, its gradient and Adam's two means of it, in float32


def choose_device(name: str) -> torch.device:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N`` as a device. Raises UsageError if the GPU does not exist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:  # cuda:99999999999999
        raise UsageError(
            f"there is no device '{name}'", code="unsupported", value=name, hint="Set 'device' to auto or cpu"
        ) from error
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise UsageError(
            f"there is no device '{name}'", code="unsupported", value=name, hint="Set 'device' to auto or cpu"
        )
    return device


def is_slow_in_bfloat16(device: torch.device) -> bool:
    """True for a processor that emulates products in bfloat16, such as one without AVX-512."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # None: PyTorch was built without oneDNN
    return device.type == "cpu" and supported is not None and not supported()


def check_memory(weights: int, hint: str) -> None:
    """Reject a network that is too large to be trained on this machine, before it is created.

    Args:
        weights: number of weights.
        hint: the settings to lower.

    Raises:
        UsageError: weights, gradients and Adam's means exceed the machine's memory.
    """
    available, needed = total_memory(), weights * _BYTES_A_WEIGHT
    if available is not None and needed > available:
        raise UsageError(
            f"training a network of {weights:,} weights requires {needed / 1e9:,.1f} GB, but this machine has "
            f"{available / 1e9:,.1f} GB of memory",
            code="out-of-memory",
            value=weights,
            hint=hint,
        )


# Number of weights, and their optimiser.


def count_weights(make: Callable[[], nn.Module]) -> int:
    """Number of trainable weights of a network, counted without allocating them."""
    with torch.device("meta"):
        network = make()
    return sum(weight.numel() for weight in network.parameters())


def adam(model: nn.Module, options: OptimiserOptions) -> torch.optim.Adam:
    """Adam for the trainable weights; the loop sets its learning rate at each step."""
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.Adam(learned, lr=options.lr, weight_decay=options.weight_decay)
