"""The folder of a training run, whatever is trained: its settings, log, checkpoint, model, and the lock of the one run
that may use it.

========================  =============================================================================================
``run.json``              the settings with all defaults, and what names the data; written first
``log.jsonl``             a line for every so many steps and for every evaluation
``checkpoint.pt``         all that is needed to go on; replaced atomically
``model.safetensors``     the result; written when training has ended
========================  =============================================================================================

A run that is killed may leave a log that is ahead of the checkpoint: going on cuts the log back to where it was when
the checkpoint was written.
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
from capbench.core.errors import CapbenchError, ModelError, UsageError
from capbench.core.machine import total_memory
from capbench.training.settings import OptimiserOptions
from capbench.weights.checkpoints import read_torch

__all__ = ["RunFolder", "adam", "check_memory", "choose_device", "count_weights"]


_FORMAT = 1
_RUN, _LOG, _CHECKPOINT, _MODEL = "run.json", "log.jsonl", "checkpoint.pt", "model.safetensors"
_AGAIN = "Begin anew with --restart, or choose another folder with --out"


class RunFolder:
    """One run's folder, locked from :meth:`open` on.

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
        """Hold the folder; with ``restart`` what an earlier run left in it is removed.

        Raises:
            UsageError: another run holds it, or it cannot be written.
        """
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(files.lock(self.path / "run", timeout_s=0))
            except UsageError as error:
                if not isinstance(error.__cause__, filelock.Timeout):
                    raise
                raise UsageError(
                    "another run is training in this folder",
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
        """See whether the folder is of this run; False if it is of none yet.

        Args:
            deciding: the settings that decide the result, with dotted keys.
            data: names of what is learned from, such as a fingerprint of the captions; None where not known yet.

        Raises:
            UsageError: the folder is another run's; the keys that differ are named.
            ModelError: it holds a model or checkpoint but nothing that says of which run.
        """
        run_file = self.path / _RUN
        if not run_file.is_file():
            for name in (_CHECKPOINT, _MODEL):
                if (self.path / name).exists():
                    raise ModelError(f"the folder holds '{name}' but no {_RUN}", path=self.path, hint=_AGAIN)
            return False
        noted = files.read_json(run_file)
        known = isinstance(noted, dict) and noted.get("format") == _FORMAT
        if not known or not all(isinstance(noted.get(key), dict) for key in ("deciding", "data")):
            raise ModelError("is damaged or of another version of capbench", path=run_file, hint=_AGAIN)
        before, now = noted["deciding"], json.loads(json.dumps(deciding))
        keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
        if keys:
            listed = ", ".join(f"{key} ({_brief(before.get(key))} there, {_brief(now.get(key))} now)" for key in keys)
            raise UsageError(f"the run in this folder has other settings: {listed}", path=self.path, hint=_AGAIN)
        keys = [key for key, name in (data or {}).items() if noted["data"].get(key) != name]
        if keys:
            listed = ", ".join(keys)
            raise UsageError(
                f"the run in this folder was begun on other data ({listed} differ)", path=self.path, hint=_AGAIN
            )
        return True

    def claim(self, config: Mapping[str, Any], deciding: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """As :meth:`check`, and note what this run is if the folder is of none; ``config`` is for the reader."""
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
            raise ModelError(f"the checkpoint cannot be read ({error.message})", path=path, hint=_AGAIN) from error
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise ModelError("is no checkpoint of this version of capbench", path=path, hint=_AGAIN)
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint; the log is on disk before it. Raises UsageError if the disk is full."""
        length = 0
        if self._log is not None:
            self._log.flush()
            os.fsync(self._log.fileno())
            length = self._log.tell()
        path = self.path / _CHECKPOINT
        try:
            with files.atomic_write(path, "wb") as stream:
                torch.save({**state, "format": _FORMAT, "log_bytes": length}, stream)
        except RuntimeError as error:  # what torch makes of a stream that cannot be written to
            raise UsageError(
                f"cannot be written ({str(error).splitlines()[0][:120]})",
                path=path,
                hint="Make room and run again to go on from the checkpoint before",
            ) from error

    def begin_log(self, log_bytes: int) -> None:
        """Open the log and cut off what a killed run wrote after its last checkpoint."""
        try:
            self._log = open(self.log, "ab")  # noqa: SIM115  # closed in open()
            if self._log.tell() > log_bytes:
                self._log.truncate(log_bytes)
                self._log.seek(log_bytes)
        except OSError as error:
            raise UsageError(f"cannot be written ({error.strerror or error})", path=self.log) from error

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append a line to the log. Raises UsageError if the disk is full."""
        assert self._log is not None
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            self._log.write(line.encode())
            self._log.flush()
        except OSError as error:
            raise UsageError(
                f"cannot be written ({error.strerror or error})", path=self.log, hint="Make room and run again to go on"
            ) from error


def _brief(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


# Where a network is trained, and whether it can be.

_BYTES_A_WEIGHT = 16  # a weight, its gradient and Adam's two means of it, in float32


def choose_device(name: str) -> torch.device:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N`` as a device. Raises UsageError if there is no such GPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:  # cuda:99999999999999
        raise UsageError(f"there is no device '{name}'", hint="Set 'device' to auto or cpu") from error
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise UsageError(f"there is no device '{name}'", hint="Set 'device' to auto or cpu")
    return device


def check_memory(weights: int, hint: str) -> None:
    """Refuse a network that cannot be trained here, before it is made.

    Args:
        weights: how many numbers are learned.
        hint: which settings to lower.

    Raises:
        UsageError: weights, gradients and Adam's means are more than all memory.
    """
    available, needed = total_memory(), weights * _BYTES_A_WEIGHT
    if available is not None and needed > available:
        raise UsageError(
            f"a network of {weights:,} weights needs {needed / 1e9:,.1f} GB to be trained, and there are "
            f"{available / 1e9:,.1f} GB of memory",
            hint=hint,
        )


# A network's weights before its first step: how many there are, and what changes them.


def count_weights(make: Callable[[], nn.Module]) -> int:
    """How many numbers a network learns, counted without making them."""
    with torch.device("meta"):
        network = make()
    return sum(weight.numel() for weight in network.parameters())


def adam(model: nn.Module, options: OptimiserOptions) -> torch.optim.Adam:
    """Adam over the weights that are learned; the loop sets its learning rate at each step."""
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.Adam(learned, lr=options.lr, weight_decay=options.weight_decay)
