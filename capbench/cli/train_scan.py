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

if TYPE_CHECKING:
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
    evaluate: shared.EvaluateOption = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FILE", help="With --evaluate: this model, ours or a released checkpoint."),
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option("--vocabulary", metavar="FILE", help="With --model: a released checkpoint's JSON.")
    ] = None,
    images: shared.ImagesOption = None,
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
    from capbench.training.scan.config import ScanTraining
    from capbench.training.scan.trainer import train_scan

    several = None if folds == 1 else folds
    shared.check_evaluate(evaluate, restart, model=model, vocabulary=vocabulary, images=images, folds=several)
    asked = shared.ask(ScanTraining, config, out, data, seed, change, features, captions)
    asked.announce(json_output)
    if evaluate is not None:
        with asked.telling_how_features_are_made():
            _evaluate(asked, model, vocabulary, evaluate, images, folds, json_output)
        return
    result = asked.train(train_scan, _line, restart)
    shared.tell_result(result, "recall", json_output, show=shared.print_recalls)


def _evaluate(
    asked: shared.Asked[ScanTraining],
    weights: Path | None,
    vocabulary: Path | None,
    split: str,
    images: int | None,
    folds: int,
    json_output: bool,
) -> None:
    from capbench.models.scan.files import load_scan
    from capbench.training.device import choose_device
    from capbench.training.word_matching import evaluate_words

    settings = asked.settings
    model = shared.model_to_measure(asked.run, weights, split, settings.threads, "tiger")
    loaded = load_scan(model, vocabulary, device=str(choose_device(settings.device)))
    with contextlib.ExitStack() as stack:
        advance: list[Callable[[int], None]] = []
        begin = time.monotonic()
        recalls = evaluate_words(
            settings,
            loaded,
            split,
            asked.root,
            images=images,
            folds=folds,
            total=lambda n: advance.append(stack.enter_context(common.progress("comparing captions", n))),
            progress=lambda done: advance[0](done),
        )
        seconds = time.monotonic() - begin
    sizes = f"{common.count(recalls.images, 'image')} x {common.count(recalls.captions, 'caption')}"
    common.note(f"{sizes} in {seconds:.1f} s, data included")
    entry = {"split": split, "folds": folds, **recalls.to_dict(), "model": str(model), "sha256": loaded.sha256}
    sizes = f"{common.count(recalls.images, 'image')}, {common.count(recalls.captions, 'caption')}"
    head = f"{split}: {sizes}" + (f", {folds} folds" if folds > 1 else "")
    shared.tell_measured(entry, head, shared.print_recalls, json_output)


def _line(entry: dict[str, Any]) -> str:
    return f"dev {shared.recall_line(entry)}"
