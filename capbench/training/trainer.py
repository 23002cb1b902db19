"""Base class of trainers that plug-ins register: ``capbench train NAME``.

The entry point group ``capbench.trainers`` maps NAME to a subclass of :class:`Trainer`. The module of the class is
imported when the command runs; it should import PyTorch within the methods. ``docs/extend.md`` has an example.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from capbench.core import plugins
from capbench.core.errors import UsageError, install_plug_in, suggest

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.stats.retrieval import Retrieval
    from capbench.training.captions import CaptionTraining
    from capbench.training.loop import Running, TrainingResult
    from capbench.training.trainable import Measuring, Trainable
    from capbench.weights.files import TrainedModel

__all__ = ["Trainer", "as_trainable", "find_trainer"]


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
        hint = install_plug_in(f"train {name}") or suggest(name, known)
        raise UsageError(f"no installed trainer has the name '{name}'", code="unknown-name", value=name, hint=hint)
    cls = plugins.load("capbench.trainers", name)
    if not issubclass(cls, Trainer) or not all(hasattr(cls, fact) for fact in ("metric", "kind")):
        hint = "It must be a subclass of capbench.Trainer with 'metric' and 'kind'"
        raise UsageError(f"'{name}' is not a trainer", code="wrong-type", value=name, hint=hint)
    return cls()


def as_trainable(trainer: Trainer) -> Trainable[Any]:
    """The declaration of a plug-in's trainer, in the form of the built-in networks."""
    from capbench.training.trainable import Trainable, recall_line, recall_table

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
