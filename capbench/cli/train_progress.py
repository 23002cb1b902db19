"""How every ``capbench train`` shows a run: notes, a progress bar, Ctrl-C, and how it ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from capbench.cli import common

if TYPE_CHECKING:
    from capbench.training.task import TrainingResult, Watcher

__all__ = ["summary", "train_shown"]

_LINE_S = 60.0  # between two lines about the loss where no progress bar is drawn


def train_shown(
    run: Path,
    train: Callable[[Callable[[], bool], Watcher], TrainingResult],
    describe: Callable[[dict[str, Any]], str],
) -> TrainingResult:
    """Carry out a training; where Ctrl-C interrupts it, say how to go on and leave with exit code 130.

    Args:
        run: the run folder.
        train: the training, given what asks it to stop and who looks on.
        describe: an evaluation's numbers in one line.
    """
    from capbench.machine import keep_freed_memory
    from capbench.training.stopping import stop_on_signal
    from capbench.training.task import Watcher

    with contextlib.ExitStack() as stack:

        class Shown(Watcher):
            """Notes on stderr, and a bar on a terminal."""

            advance: Callable[[int], None]
            last_line = time.monotonic()

            def say(self, text: str) -> None:
                common.note(text)

            def start(self, steps: int, done: int) -> None:
                common.note(f"{common.count(steps, 'step')} into {run}" + (f", {done:,} done before" if done else ""))
                self.advance = stack.enter_context(common.progress("training", steps))
                self.advance(done)

            def step(self) -> None:
                self.advance(1)

            def log(self, entry: dict[str, Any]) -> None:
                now = time.monotonic()
                if entry["kind"] == "evaluation":
                    common.note(f"step {entry['step']:,} (epoch {entry['epoch']}): {describe(entry)}")
                elif entry["kind"] == "step" and now - self.last_line >= _LINE_S:
                    common.note(f"step {entry['step']:,} (epoch {entry['epoch']}): loss {entry['loss']:.4f}")
                    self.last_line = now

        stop = stack.enter_context(stop_on_signal(common.note))
        keep_freed_memory()
        result = train(stop, Shown())
    if result.model is None:
        common.note(
            f"interrupted at step {result.step:,}; {run} holds a checkpoint: run the same command again to go on"
        )
        raise typer.Exit(130)
    return result


def summary(result: TrainingResult, score: str) -> str:
    """One line: how long a finished training was, and at which step the saved weights were evaluated.

    Args:
        result: of the training.
        score: what did not rise any more where patience ended it (``recall``).
    """
    assert result.chosen is not None
    ended = {"epochs": "", "max_steps": " (max_steps)", "patience": f" (no better {score})"}[result.ended]
    took = f"{result.seconds / 60:.1f} min" if result.seconds >= 60 else f"{result.seconds:.0f} s"
    done = f"{common.count(result.step, 'step')}, {common.count(result.epoch, 'epoch')}{ended}"
    return f"{done}, {took}; dev at step {result.chosen['step']:,}:"
