"""``capbench train scan``: train the grounding model behind TIGEr and REO, or measure its recall."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli import train_shared as shared
from capbench.cli.train_progress import summary, train_shown
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.training.scan.config import ScanTraining

__all__ = ["scan"]


def scan(
    config: shared.ConfigArgument,
    out: shared.OutOption = None,
    data: common.DataOption = None,
    features: shared.FeaturesOption = None,
    captions: shared.CaptionsOption = None,
    seed: shared.SeedOption = None,
    change: shared.SetOption = None,
    restart: shared.RestartOption = False,
    evaluate: Annotated[
        str | None,
        typer.Option("--evaluate", metavar="SPLIT", help="Train nothing: recall of the model on train, dev or test."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FILE", help="With --evaluate: this model, ours or a released checkpoint."),
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option("--vocabulary", metavar="FILE", help="With --model: a released checkpoint's JSON.")
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", min=1, help="With --evaluate: only so many images, drawn at random.")
    ] = None,
    folds: Annotated[
        int, typer.Option("--folds", min=1, help="With --evaluate: mean over so many equal parts of the images.")
    ] = 1,
    json_output: common.JsonOption = False,
) -> None:
    """Train SCAN on captions and region features, or go on with a training that was interrupted.

    Ctrl-C saves a checkpoint; the same command goes on from there, also after a crash or kill -9, and ends with the
    same weights as an undisturbed run. The run folder holds log.jsonl, checkpoint.pt and, in the end,
    model.safetensors. Paths are looked for in the current folder, then in the data folder.

    Example: capbench train scan scan-flickr8k-grid --seed 2

    Example: capbench train scan scan-flickr8k-grid --seed 2 --evaluate test
    """
    from capbench.datasets.root import find_root
    from capbench.training.config_file import find_training, load_training
    from capbench.training.scan.config import ScanTraining

    evaluation_only = {
        "model": model,
        "vocabulary": vocabulary,
        "images": images,
        "folds": None if folds == 1 else folds,
    }
    for name, value in evaluation_only.items():
        if evaluate is None and value is not None:
            raise UsageError(f"--{name} goes with --evaluate", hint="Add --evaluate test, or leave it out")
    if evaluate is not None and restart:
        raise UsageError("--restart forgets the model that --evaluate would measure", hint="Give one of the two")
    training_file = find_training(config)
    settings = load_training(
        ScanTraining, training_file, shared.as_changes(change, features=features, captions=captions, seed=seed)
    )
    root = find_root(data)
    common.announce_root(root, json_output=json_output, used=not Path(settings.captions).expanduser().exists())
    run = shared.run_folder(settings, out, seed)
    with shared.telling_how_features_are_made(settings, training_file):
        if evaluate is not None:
            _evaluate(settings, run, model, vocabulary, evaluate, root, images, folds, json_output)
            return
        _train(settings, run, root, restart, json_output)


def _train(settings: ScanTraining, run: Path, root: DataRoot, restart: bool, json_output: bool) -> None:
    from capbench.training.scan.trainer import train_scan

    result = train_shown(
        run,
        lambda stop, watcher: train_scan(settings, run, root=root, restart=restart, stop=stop, watcher=watcher),
        _line,
    )
    if json_output:
        common.print_json(result.to_dict())
        return
    assert result.chosen is not None
    print(summary(result, "recall"))
    shared.print_recalls(result.chosen)
    print(f"{result.model}: sha256 {result.sha256}")


def _evaluate(
    settings: ScanTraining,
    run: Path,
    weights: Path | None,
    vocabulary: Path | None,
    split: str,
    root: DataRoot,
    images: int | None,
    folds: int,
    json_output: bool,
) -> None:
    from capbench.models.scan.files import load_scan
    from capbench.training.device import choose_device
    from capbench.training.word_matching import evaluate_words

    model = shared.model_to_measure(run, weights, split, settings.threads, "tiger")
    loaded = load_scan(model, vocabulary, device=str(choose_device(settings.device)))
    with contextlib.ExitStack() as stack:
        advance: list[Callable[[int], None]] = []
        begin = time.monotonic()
        recalls = evaluate_words(
            settings,
            loaded,
            split,
            root,
            images=images,
            folds=folds,
            total=lambda n: advance.append(stack.enter_context(common.progress("comparing captions", n))),
            progress=lambda done: advance[0](done),
        )
        seconds = time.monotonic() - begin
    sizes = f"{common.count(recalls.images, 'image')} x {common.count(recalls.captions, 'caption')}"
    common.note(f"{sizes} in {seconds:.1f} s, data included")
    entry = {"split": split, "folds": folds, **recalls.to_dict(), "model": str(model), "sha256": loaded.sha256}
    if json_output:
        common.print_json(entry)
        return
    sizes = f"{common.count(recalls.images, 'image')}, {common.count(recalls.captions, 'caption')}"
    print(f"{split}: {sizes}" + (f", {folds} folds" if folds > 1 else ""))
    shared.print_recalls(entry)
    print(f"{model}: sha256 {loaded.sha256}")


def _line(entry: dict[str, Any]) -> str:
    return f"dev {shared.recall_line(entry)}"
