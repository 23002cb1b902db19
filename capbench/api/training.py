"""``capbench.train``: train what metrics need, and measure it, as ``capbench train`` does."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.api.checking import check_arguments
from capbench.core import files
from capbench.core.errors import MissingFileError, UsageError, suggest
from capbench.metrics.registry import trainable

if TYPE_CHECKING:
    from capbench.api.resolve import PathGiven
    from capbench.datasets.root import DataRoot
    from capbench.studies.judged import ProgressFactory
    from capbench.training.loop import TrainingResult, Watcher
    from capbench.training.settings import Training
    from capbench.training.trainable import Bars, Trainable

__all__ = ["Measured", "PlannedTraining", "Trained", "as_changes", "plan_training", "train"]


@dataclass(frozen=True)
class Trained:
    """A training that has ended.

    Attributes:
        network: what was trained.
        run: the run folder, with log and checkpoint.
        model: the file of weights, which ``model=`` takes.
        sha256: of the file.
        ended: ``epochs``, ``max_steps`` or ``patience``.
        step: steps done.
        chosen: the evaluation of the saved weights.
        seconds: of training, over all parts of an interrupted one.
    """

    network: str
    run: Path
    model: Path
    sha256: str
    ended: str
    step: int
    chosen: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True)
class Measured:
    """What a trained network reaches on a split.

    Attributes:
        split: ``train``, ``dev`` or ``test``.
        numbers: as JSON values.
        model: the file.
        sha256: of the file.
    """

    split: str
    numbers: Mapping[str, Any]
    model: Path
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"split": self.split, **self.numbers, "model": str(self.model), "sha256": self.sha256}


def train(
    network: str,
    config: PathGiven,
    *,
    out: PathGiven | None = None,
    data: PathGiven | None = None,
    features: PathGiven | None = None,
    captions: PathGiven | None = None,
    vectors: PathGiven | None = None,
    seed: int | None = None,
    variant: str | None = None,
    settings: Mapping[str, Any] | None = None,
    restart: bool = False,
    progress: bool | ProgressFactory = False,
) -> Trained:
    """Train a network, or go on with a training that was interrupted, as ``capbench train`` does.

    Args:
        network: ``scan``, ``faier``, ``vilbert``, ``nneval`` or ``leic``, or the name of a plug-in's trainer.
        config: a training file (YAML), or the name of a shipped one.
        out: the run folder; by default ``results/train/NAME``.
        data: the data folder; by default ``CAPBENCH_DATA``, else the embedded sample.
        features: region features, instead of the file's.
        captions: captions with splits, instead of the file's.
        vectors: word vectors, instead of the file's.
        seed: instead of the file's; also names the folder ``NAME-seedN``.
        variant: a published variant, such as a row of FAIEr's Table 4; also names the folder ``NAME-VARIANT``.
        settings: others instead of the file's, by dotted key (``{"optimiser.lr": 0.001}``).
        restart: forget what the run folder holds.
        progress: whether progress is shown on stderr, or a function that shows it.

    Raises:
        UsageError: there is no such network or variant.
        StudyError: the training file does not fit.
        CapbenchError: captions, features or words are missing or do not fit.
    """
    from capbench.api.resolve import python_caller

    check_arguments({"data": data, "seed": seed, "progress": progress})
    bars = python_caller(progress).progress
    plan = plan_training(
        network,
        os.fspath(config),
        out=None if out is None else Path(out),
        data=None if data is None else Path(data),
        variant=variant,
        seed=seed,
        changes=as_changes(settings or {}),
        features=features,
        captions=captions,
        vectors=vectors,
    )
    with contextlib.ExitStack() as stack:
        watcher = _steps_watcher(lambda steps: stack.enter_context(bars("training", steps)))
        result = plan.train(bars, restart=restart, watcher=watcher)
    assert result.model is not None  # nobody asked it to stop
    assert result.sha256 is not None
    chosen = result.chosen or {}
    return Trained(
        network, plan.run, result.model, result.sha256, result.ended, result.step, chosen, round(result.seconds, 1)
    )


def as_changes(given: Mapping[str, Any]) -> list[str]:
    """Values as changes of a training file, ``key=value``; those that are None change nothing."""
    texts = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in given.items()}
    # JSON is YAML, quotes and all
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in texts.items() if value is not None]


@dataclass(frozen=True)
class PlannedTraining:
    """A training as it was asked for; nothing is done yet.

    Attributes:
        network: what is trained.
        settings: with all changes.
        file: the training file.
        root: the data folder.
        run: the run folder.
    """

    network: Trainable[Any]
    settings: Training
    file: Path
    root: DataRoot
    run: Path

    @property
    def reads_root(self) -> bool:
        """Whether captions come from the data folder."""
        captions = getattr(self.settings, "captions", "")
        return self.network.more_data or not Path(captions).expanduser().exists()

    @property
    def done(self) -> bool:
        """Whether the run folder holds a trained model."""
        return self._model.is_file()

    @property
    def _model(self) -> Path:
        return self.run / "model.safetensors"

    def train(
        self,
        bars: Bars,
        *,
        restart: bool = False,
        stop: Callable[[], bool] = lambda: False,
        watcher: Watcher | None = None,
    ) -> TrainingResult:
        """Carry it out.

        Args:
            bars: shows work before the first step.
            restart: forget what the run folder holds.
            stop: whether to stop after this step.
            watcher: looks on.
        """
        work = {"bars": bars} if self.network.shows_work else {}
        with self._telling_how_features_are_made():
            return self.network.train(
                self.settings, self.run, root=self.root, restart=restart, stop=stop, watcher=watcher, **work
            )

    def measure(
        self,
        split: str,
        bars: Bars,
        say: Callable[[str], None],
        *,
        model: Path | None = None,
        vocabulary: Path | None = None,
        images: int | None = None,
        folds: int = 1,
    ) -> Measured:
        """Measure the run's model, or another one, on a split.

        Args:
            split: ``train``, ``dev`` or ``test``.
            bars: shows how far it is.
            say: is told what takes its time.
            model: instead of the run's.
            vocabulary: of a released checkpoint.
            images: only so many, drawn at random.
            folds: mean over so many equal parts of the images.

        Raises:
            UsageError: there is no such split, or this network is not measured so.
            MissingFileError: the run folder holds no trained model.
            ModelError: the named model is not here.
        """
        from capbench.training.captions import ROLES
        from capbench.training.trainable import Measuring
        from capbench.weights.registry import locate

        assert self.network.measure is not None
        with self._telling_how_features_are_made():
            if split not in ROLES:
                raise UsageError(f"--evaluate {split}: there is no such split", hint=suggest(split, list(ROLES)))
            if self.settings.threads is not None:
                import torch

                torch.set_num_threads(self.settings.threads)
            file = self._model if model is None else locate(model, self.network.metric)
            if model is None and not file.is_file():
                hint = "Train it first, without --evaluate, or name one with --model"
                raise MissingFileError("there is no trained model", path=file, hint=hint)
            measuring = Measuring(split, bars, say, images, vocabulary, folds)
            numbers = self.network.measure(self.settings, file, self.root, measuring)
        digest = numbers.pop("sha256")
        return Measured(split, numbers, file, digest)

    @contextlib.contextmanager
    def _telling_how_features_are_made(self) -> Iterator[None]:
        """An error about features that are not there names the commands that the training file's head has for them."""
        try:
            yield
        except MissingFileError as error:
            features = getattr(self.settings, "features", None)
            commands = _commands_at_head(self.file)
            if None in (features, error.path) or not commands:
                raise
            if Path(str(error.path)) != Path(str(features)).expanduser():
                raise
            hint = f"Make it first: {' && '.join(commands)}"
            raise MissingFileError(error.message, path=error.path, row=error.row, hint=hint) from error


def plan_training(
    network: str,
    config: str,
    *,
    out: Path | None = None,
    data: Path | None = None,
    seed: int | None = None,
    variant: str | None = None,
    changes: Sequence[str] = (),
    **given: Any,
) -> PlannedTraining:
    """A training from what is asked for.

    Args:
        network: its name.
        config: the training file, or the name of a shipped one.
        out: the run folder; None: the usual one.
        data: the data folder; None: the usual one.
        seed: instead of the file's.
        variant: a published variant.
        changes: other settings, ``key=value``, which go over the variant's.
        given: settings that are given (not None), before ``seed``: features, captions, vectors.

    Raises:
        UsageError: there is no such network or variant.
        CapbenchError: there is no such file, or a setting does not fit.
    """
    from capbench.datasets.root import find_root
    from capbench.training.settings import find_training, load_training

    found = trainable(network)
    if variant is not None and variant not in found.variants:
        hint = suggest(variant, list(found.variants)) if found.variants else "Leave it out"
        raise UsageError(f"--variant {variant}: there is no such row", hint=hint)
    file = find_training(config)
    changed = [*found.variants.get(variant or "", ()), *changes, *as_changes({**given, "seed": seed})]
    settings = load_training(found.settings, file, changed)
    named = [settings.name, *([] if seed is None else [f"seed{seed}"]), *([] if variant is None else [variant])]
    return PlannedTraining(found, settings, file, find_root(data), out or Path("results/train") / "-".join(named))


def _commands_at_head(training_file: Path) -> list[str]:
    """The commands for features among a training file's first comments; a backslash joins a line to the next."""
    head = itertools.takewhile(lambda line: line.startswith("#"), files.read_lines(training_file))
    lines = "\n".join(line.lstrip("# ").rstrip() for line in head).replace("\\\n", "").splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith(("capbench import-", "capbench feature"))]


def _steps_watcher(start: Callable[[int], Callable[[int], None]]) -> Watcher:
    """Tells what is opened at the start of each step."""
    from capbench.training.loop import Watcher

    class Steps(Watcher):
        tell: Callable[[int], None]

        def start(self, steps: int, done: int) -> None:
            self.tell = start(steps)
            self.tell(done)

        def step(self) -> None:
            self.tell(1)

    return Steps()
