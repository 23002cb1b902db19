"""The folder of a training run: its settings, log, checkpoint and model, and the lock that one run holds at a time.

========================  =============================================================================================
``run.json``              the settings with all defaults, and what names the data; written first
``log.jsonl``             a line for every so many steps and for every evaluation
``checkpoint.pt``         all that is needed to go on; replaced atomically
``model.safetensors``     the result; written when training has ended
========================  =============================================================================================

The log may be ahead of the checkpoint when a run is killed: going on cuts it back to where the checkpoint was written.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import filelock
import torch

from capbench import files
from capbench.errors import ModelError, UsageError

__all__ = ["RunFolder", "TrainingResult", "Watcher"]

_FORMAT = 1
_RUN, _LOG, _CHECKPOINT, _MODEL = "run.json", "log.jsonl", "checkpoint.pt", "model.safetensors"
_AGAIN = "Begin anew with --restart, or choose another folder with --out"


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended.

    Attributes:
        ended: ``epochs``, ``max_steps`` or ``patience``; ``interrupted`` if it can go on.
        step: steps done.
        epoch: epochs begun.
        model: the file, None if the training was interrupted.
        sha256: of the file.
        chosen: the evaluation of the saved weights: step, epoch, recall_sum and both directions' recalls; while
            interrupted, the best so far or None.
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
            data: what names captions, features and vocabulary; None where it is not known yet.

        Raises:
            UsageError: the folder is another run's; the keys that differ are named.
            ModelError: it holds a model or checkpoint but nothing that says of which run.
        """
        noted = self.path / _RUN
        if not noted.is_file():
            for name in (_CHECKPOINT, _MODEL):
                if (self.path / name).exists():
                    raise ModelError(f"the folder holds '{name}' but no {_RUN}", path=self.path, hint=_AGAIN)
            return False
        found = files.read_json(noted)
        known = isinstance(found, dict) and found.get("format") == _FORMAT
        if not known or not all(isinstance(found.get(key), dict) for key in ("deciding", "data")):
            raise ModelError("is damaged or of another version of capbench", path=noted, hint=_AGAIN)
        before, now = found["deciding"], json.loads(json.dumps(deciding))
        keys = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
        if keys:
            told = ", ".join(f"{key} ({_brief(before.get(key))} there, {_brief(now.get(key))} now)" for key in keys)
            raise UsageError(f"the run in this folder has other settings: {told}", path=self.path, hint=_AGAIN)
        keys = [key for key in data or {} if found["data"].get(key) != (data or {})[key]]
        if keys:
            told = ", ".join(keys)
            raise UsageError(
                f"the run in this folder was begun on other data ({told} differ)", path=self.path, hint=_AGAIN
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
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # zip, pickle and torch raise many kinds on a damaged file
            line = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
            raise ModelError(f"the checkpoint cannot be read ({line})", path=path, hint=_AGAIN) from error
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise ModelError("is no checkpoint of this version of capbench", path=path, hint=_AGAIN)
        return found

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
