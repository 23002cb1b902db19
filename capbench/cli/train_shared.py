"""What the commands that train networks share: options, the steps of a command, and what it prints."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from capbench import files
from capbench.cli import common
from capbench.cli.train_progress import summary, train_shown
from capbench.errors import MissingFileError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.training.leic.config import LeicTraining
    from capbench.training.matching import CaptionTraining
    from capbench.training.settings import Training
    from capbench.training.task import TrainingResult

__all__ = [
    "DIRECTIONS",
    "Asked",
    "CaptionsOption",
    "ConfigArgument",
    "EvaluateOption",
    "FeaturesOption",
    "ImagesOption",
    "MeasuredModelOption",
    "OutOption",
    "RestartOption",
    "SeedOption",
    "SetOption",
    "as_changes",
    "ask",
    "check_evaluate",
    "model_to_measure",
    "print_recalls",
    "recall_line",
    "run_folder",
    "tell_measured",
    "tell_result",
]

S = TypeVar("S", bound="CaptionTraining | LeicTraining")

ConfigArgument = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A training file (YAML), or the name of a shipped one.")
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="The run folder. Default: results/train/NAME.", show_default=False),
]
FeaturesOption = Annotated[
    str | None, typer.Option("--features", metavar="FILE", help="Region features, instead of the file's.")
]
CaptionsOption = Annotated[
    str | None, typer.Option("--captions", metavar="PATH", help="Captions with splits, instead of the file's.")
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, help="Instead of the file's; also names the folder NAME-seedN.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another setting instead of the file's; repeatable."),
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Forget what the run folder holds.")]
EvaluateOption = Annotated[
    str | None,
    typer.Option("--evaluate", metavar="SPLIT", help="Train nothing: recall of the model on train, dev or test."),
]
MeasuredModelOption = Annotated[
    Path | None, typer.Option("--model", metavar="FILE", help="With --evaluate: this model, not the run's.")
]
ImagesOption = Annotated[
    int | None, typer.Option("--images", min=1, help="With --evaluate: only so many images, drawn at random.")
]

DIRECTIONS = (("image to text", "image_to_text"), ("text to image", "text_to_image"))


def as_changes(change: list[str] | None, **given: str | int | None) -> list[str]:
    """Options as changes of a training file, ``key=value``; those that were not given (None) change nothing."""
    changes = [*(change or [])]
    for key, text in given.items():
        if text is not None:
            changes.append(f"{key}={json.dumps(text, ensure_ascii=False)}")  # JSON is YAML, quotes and all
    return changes


def run_folder(settings: Training, out: Path | None, seed: int | None) -> Path:
    """The folder of a run."""
    return out or Path("results") / "train" / (settings.name if seed is None else f"{settings.name}-seed{seed}")


@dataclass(frozen=True)
class Asked(Generic[S]):
    """A training on captions and features, as a command was asked for it.

    Attributes:
        settings: with the changes of the options.
        file: the training file.
        root: the data folder.
        run: the run folder.
    """

    settings: S
    file: Path
    root: DataRoot
    run: Path

    def announce(self, json_output: bool) -> None:
        """Say where the captions come from, if it is the data folder."""
        used = not Path(self.settings.captions).expanduser().exists()
        common.announce_root(self.root, json_output=json_output, used=used)

    def train(
        self, trainer: Callable[..., TrainingResult], describe: Callable[[dict[str, Any]], str], restart: bool
    ) -> TrainingResult:
        """Carry it out.

        Args:
            trainer: takes settings, run folder and what :class:`capbench.training.task.Running` names.
            describe: an evaluation's numbers in one line.
            restart: forget what the run folder holds.
        """
        with self.telling_how_features_are_made():
            return train_shown(
                self.run,
                lambda stop, watcher: trainer(
                    self.settings, self.run, root=self.root, restart=restart, stop=stop, watcher=watcher
                ),
                describe,
            )

    @contextlib.contextmanager
    def telling_how_features_are_made(self) -> Iterator[None]:
        """An error about features that are not there names the commands that the training file's head has for them."""
        try:
            yield
        except MissingFileError as error:
            commands = _commands_at_head(self.file)
            if error.path is None or Path(error.path) != Path(self.settings.features).expanduser() or not commands:
                raise
            hint = f"Make it first: {' && '.join(commands)}"
            raise MissingFileError(error.message, path=error.path, row=error.row, hint=hint) from error


def ask(
    kind: type[S],
    config: str,
    out: Path | None,
    data: Path | None,
    seed: int | None,
    change: list[str] | None,
    features: str | None,
    captions: str | None,
) -> Asked[S]:
    """A training from a command's options.

    Args:
        kind: the class of its settings.
        config: the training file, or the name of a shipped one.
        out: the run folder; None: the usual one.
        data: the data folder; None: the usual one.
        seed: instead of the file's, as are the next three.
        change: other settings, ``key=value``.
        features: region features.
        captions: captions with splits.

    Raises:
        CapbenchError: there is no such file, or a setting does not fit.
    """
    from capbench.datasets.root import find_root
    from capbench.training.config_file import find_training, load_training

    file = find_training(config)
    settings = load_training(kind, file, as_changes(change, features=features, captions=captions, seed=seed))
    return Asked(settings, file, find_root(data), run_folder(settings, out, seed))


def _commands_at_head(training_file: Path) -> list[str]:
    """The commands for features among a training file's first comments; a backslash joins a line to the next."""
    head = itertools.takewhile(lambda line: line.startswith("#"), files.read_lines(training_file))
    lines = "\n".join(line.lstrip("# ").rstrip() for line in head).replace("\\\n", "").splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith(("capbench import-", "capbench feature"))]


def print_recalls(entry: dict[str, Any]) -> None:
    """A table of both directions, and the sum of recalls."""
    print(f"{'':15}{'R@1':>7}{'R@5':>7}{'R@10':>7}{'median rank':>13}{'mean rank':>11}")
    for label, key in DIRECTIONS:
        row = entry[key]
        recalls = "".join(f"{row[f'r@{k}']:7.1f}" for k in (1, 5, 10))
        print(f"{label:15}{recalls}{row['median_rank']:13.1f}{row['mean_rank']:11.1f}")
    print(f"recall sum {entry['recall_sum']:.1f}")


def recall_line(entry: dict[str, Any]) -> str:
    """Both directions in one line."""
    parts = [f"{label} R@1 {entry[key]['r@1']:.1f} R@10 {entry[key]['r@10']:.1f}" for label, key in DIRECTIONS]
    return f"{', '.join(parts)}, recall sum {entry['recall_sum']:.1f}"


def model_to_measure(run: Path, weights: Path | None, split: str, threads: int | None, metric: str) -> Path:
    """The weights that ``--evaluate`` measures; the threads of the measuring are set.

    Args:
        run: the run folder, whose model is taken if no other is named.
        weights: the model that is named.
        split: what it is measured on.
        threads: of the network, if they are chosen.
        metric: the metric that the network is for.

    Raises:
        UsageError: there is no such split.
        MissingFileError: the run folder holds no trained model.
        ModelError: the named model is not here.
    """
    from capbench.models.registry import locate
    from capbench.training.captions import ROLES

    if split not in ROLES:
        raise UsageError(f"--evaluate {split}: there is no such split", hint=suggest(split, list(ROLES)))
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    model = run / "model.safetensors" if weights is None else locate(weights, metric)
    if weights is None and not model.is_file():
        raise MissingFileError(
            "there is no trained model", path=model, hint="Train it first, without --evaluate, or name one with --model"
        )
    return model


def check_evaluate(evaluate: str | None, restart: bool, **only: object) -> None:
    """Raise UsageError if an option that goes with ``--evaluate`` is given (not None) without it, or one that does not
    go with it is given beside it."""
    for name, value in only.items():
        if evaluate is None and value is not None:
            raise UsageError(f"--{name} goes with --evaluate", hint="Add --evaluate test, or leave it out")
    if evaluate is not None and restart:
        raise UsageError("--restart forgets the model that --evaluate would measure", hint="Give one of the two")


def tell_result(
    result: TrainingResult,
    score: str,
    json_output: bool,
    *,
    describe: Callable[[dict[str, Any]], str] | None = None,
    show: Callable[[dict[str, Any]], None] = lambda _chosen: None,
    use: str | None = None,
) -> None:
    """Print how a training ended.

    Args:
        result: of the training.
        score: what did not rise any more where patience ended it (``recall``).
        json_output: as JSON, and nothing else.
        describe: the chosen evaluation behind the summary, in the same line.
        show: prints it below.
        use: arguments of ``capbench score`` that use the model.
    """
    if json_output:
        common.print_json(result.to_dict())
        return
    assert result.chosen is not None
    line = summary(result, score)
    print(line if describe is None else f"{line} {describe(result.chosen)}")
    show(result.chosen)
    print(f"{result.model}: sha256 {result.sha256}")
    if use is not None:
        common.note(f"use it: capbench score {use}")


def tell_measured(entry: dict[str, Any], head: str, show: Callable[[dict[str, Any]], None], json_output: bool) -> None:
    """Print what ``--evaluate`` measured.

    Args:
        entry: the numbers, ``model`` and ``sha256``.
        head: the first line.
        show: prints the numbers below.
        json_output: as JSON, and nothing else.
    """
    if json_output:
        common.print_json(entry)
        return
    print(head)
    show(entry)
    print(f"{entry['model']}: sha256 {entry['sha256']}")
