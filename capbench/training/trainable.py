"""Declarations of trainable networks, which the command line and ``capbench.train`` use.

Each metric's folder defines a :class:`Trainable` in its training module; :mod:`capbench.metrics.registry` lists them by
name. A plug-in registers a subclass of :class:`Trainer`: the entry point group ``capbench.trainers`` maps the NAME of
``capbench train NAME`` to it. The module of the class is imported when the command runs; it should import PyTorch
within the methods. ``docs/extend.md`` has an example.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Unpack

from capbench.core import plugins
from capbench.core.errors import UsageError, suggest

if TYPE_CHECKING:
    from capbench.core.progress import Progress
    from capbench.datasets.root import DataRoot
    from capbench.stats.retrieval import Retrieval
    from capbench.training.captions import CaptionTraining
    from capbench.training.loop import Running, TrainingResult
    from capbench.training.settings import Training
    from capbench.weights.files import TrainedModel

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


class Trainer(abc.ABC):
    """Trains a network that matches captions with images, and measures its recall.

    The docstring of a subclass is the help of its command. The class is instantiated without arguments.
    """

    metric: ClassVar[str]
    """The metric that uses the network."""
    kind: ClassVar[str]
    """Kind of its weight files, with the version of their format (:class:`capbench.weights.files.Family`)."""

    @abc.abstractmethod
    def settings_type(self) -> type[CaptionTraining]:
        """Class of the settings in a training file."""

    @abc.abstractmethod
    def train(
        self, settings: Any, run: Path, *, root: DataRoot | None = None, **running: Unpack[Running]
    ) -> TrainingResult:
        """Train in a run folder, or resume an interrupted run.

        Args:
            settings: an instance of :meth:`settings_type`.
            run: the run folder.
            root: the data folder, for relative paths.
            running: arguments of :func:`capbench.training.loop.train`.

        Raises:
            CapbenchError: captions or features are missing or do not match.
        """

    @abc.abstractmethod
    def load(self, path: Path, device: str = "cpu") -> TrainedModel[Any, Any]:
        """Read a weight file. Raises ModelError if it has another kind or is damaged."""

    @abc.abstractmethod
    def evaluate(
        self, settings: Any, model: Any, split: str, root: DataRoot | None = None, *, images: int | None = None
    ) -> Retrieval:
        """Recalls of a loaded model on a split (``train``, ``dev`` or ``test``), or on ``images`` images of it."""

    def describe(self, entry: Mapping[str, Any]) -> str:
        """Numbers of a dev evaluation to print after its recalls, such as ``temperature 0.07``; by default none."""
        return ""


def find_trainer(name: str) -> Trainer:
    """The trainer that a plug-in registers under a name.

    Raises:
        UsageError: it does not exist, cannot be imported, or is not a valid trainer.
    """
    known = plugins.names("capbench.trainers")
    if name not in known:
        message = f"no installed trainer has the name '{name}'"
        raise UsageError(message, code="unknown-name", value=name, hint=suggest(name, known))
    cls = plugins.load("capbench.trainers", name)
    if not issubclass(cls, Trainer) or not all(hasattr(cls, fact) for fact in ("metric", "kind")):
        hint = "It must be a subclass of capbench.Trainer with 'metric' and 'kind'"
        raise UsageError(f"'{name}' is not a trainer", code="wrong-type", value=name, hint=hint)
    return cls()


def as_trainable(trainer: Trainer) -> Trainable[Any]:
    """The declaration of a plug-in's trainer, in the form of the built-in networks."""

    def line(entry: Mapping[str, Any]) -> str:
        more = trainer.describe(entry)
        return f"dev {recall_line(entry)}" + (f", {more}" if more else "")

    def measure(settings: CaptionTraining, model: Path, root: DataRoot, measuring: Measuring) -> dict[str, Any]:
        from capbench.training.run_folder import choose_device

        loaded = trainer.load(model, str(choose_device(settings.device)))
        recalls = trainer.evaluate(settings, loaded, measuring.split, root, images=measuring.images)
        return {**recalls.to_dict(), "sha256": loaded.sha256}

    return Trainable(
        settings=trainer.settings_type(),
        train=trainer.train,
        line=line,
        table=recall_table,
        metric=trainer.metric,
        use=lambda settings, model: f"-m {trainer.metric} --model {model} --features {settings.features}",
        measure=measure,
    )
