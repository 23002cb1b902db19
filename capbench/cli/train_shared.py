"""What the commands that train networks share: options, settings from options, and hints about features."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench import files
from capbench.errors import MissingFileError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.training.leic.config import LeicTraining
    from capbench.training.matching import CaptionTraining
    from capbench.training.settings import Training

__all__ = [
    "DIRECTIONS",
    "CaptionsOption",
    "ConfigArgument",
    "FeaturesOption",
    "OutOption",
    "RestartOption",
    "SeedOption",
    "SetOption",
    "as_changes",
    "model_to_measure",
    "print_recalls",
    "recall_line",
    "run_folder",
    "telling_how_features_are_made",
]

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


@contextlib.contextmanager
def telling_how_features_are_made(settings: CaptionTraining | LeicTraining, training_file: Path) -> Iterator[None]:
    """An error about features that are not there names the commands that the head of the training file has for them."""
    try:
        yield
    except MissingFileError as error:
        commands = _commands_at_head(training_file)
        if error.path is None or Path(error.path) != Path(settings.features).expanduser() or not commands:
            raise
        hint = f"Make it first: {' && '.join(commands)}"
        raise MissingFileError(error.message, path=error.path, row=error.row, hint=hint) from error


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
