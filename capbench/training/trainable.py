"""Declarations of trainable networks, which the command line and ``capbench.train`` use.

Each metric's folder defines a :class:`Trainable` in its training module; :mod:`capbench.metrics.registry` lists them by
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from capbench.core.progress import Progress
    from capbench.datasets.root import DataRoot
    from capbench.training.loop import TrainingResult
    from capbench.training.settings import Training

__all__ = ["Bars", "Measuring", "Trainable", "recall_line", "recall_table"]

S = TypeVar("S", bound="Training")

Bars = Callable[[str, "int | None"], AbstractContextManager["Progress"]]
"""Opens a progress bar: description and number of steps → a function that takes the steps done."""

DIRECTIONS = (("image to text", "image_to_text"), ("text to image", "text_to_image"))


def recall_line(entry: Mapping[str, Any]) -> str:
    """Recalls in both directions in one line."""
    parts = [f"{label} R@1 {entry[key]['r@1']:.1f} R@10 {entry[key]['r@10']:.1f}" for label, key in DIRECTIONS]
    return f"{', '.join(parts)}, recall sum {entry['recall_sum']:.1f}"


def recall_table(entry: Mapping[str, Any]) -> list[str]:
    """Recalls in both directions as a table, with their sum."""
    lines = [f"{'':15}{'R@1':>7}{'R@5':>7}{'R@10':>7}{'median rank':>13}{'mean rank':>11}"]
    for label, key in DIRECTIONS:
        row = entry[key]
        recalls = "".join(f"{row[f'r@{k}']:7.1f}" for k in (1, 5, 10))
        lines.append(f"{label:15}{recalls}{row['median_rank']:13.1f}{row['mean_rank']:11.1f}")
    return [*lines, f"recall sum {entry['recall_sum']:.1f}"]


@dataclass(frozen=True)
class Measuring:
    """Settings of an evaluation of a trained network.

    Attributes:
        split: ``train``, ``dev`` or ``test``.
        bars: opens progress bars.
        say: receives messages about long operations.
        images: number of images, sampled at random; None: all.
        vocabulary: vocabulary of a released checkpoint.
        folds: number of equal parts of the images over which the mean is computed.
    """

    split: str
    bars: Bars
    say: Callable[[str], None]
    images: int | None = None
    vocabulary: Path | None = None
    folds: int = 1


@dataclass(frozen=True, kw_only=True)
class Trainable(Generic[S]):
    """A network that can be trained.

    Attributes:
        settings: class of its training files.
        train: takes settings, run folder, ``root`` and the arguments of :class:`capbench.training.loop.Running`.
        shows_work: True if ``train`` also takes ``bars``, for work before the first step.
        more_data: True if it reads more of the data folder than captions.
        line: formats the numbers of an evaluation in one line.
        table: formats those of the selected weights as lines of a table.
        score: name of the score that patience observes.
        metric: the metric that uses its weights.
        use: returns arguments of ``capbench score`` that use the model; None: no example is printed.
        measure: takes settings, the model's file, the data folder and :class:`Measuring`; returns the numbers on a
            split, as JSON values, with ``sha256`` of the model. None: trained networks cannot be evaluated.
        variants: names of published variants → the settings that they change, ``key=value``.
        seconds: estimated duration of a training, on one core at 20 GFLOP/s.
    """

    settings: type[S]
    train: Callable[..., TrainingResult]
    line: Callable[[Mapping[str, Any]], str]
    metric: str
    shows_work: bool = False
    more_data: bool = False
    table: Callable[[Mapping[str, Any]], list[str]] = lambda _chosen: []
    score: str = "recall"
    use: Callable[[S, Path], str] | None = None
    measure: Callable[[S, Path, DataRoot, Measuring], dict[str, Any]] | None = None
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seconds: Callable[[S], float] | None = None
