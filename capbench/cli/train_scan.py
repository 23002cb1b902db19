"""``capbench train scan``: train the grounding model behind TIGEr and REO, or measure its recall."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.train_progress import summary, telling_how_features_are_made, train_shown
from capbench.errors import MissingFileError, UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.training.scan.config import ScanTraining

__all__ = ["scan"]


def scan(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A training file (YAML), or the name of a shipped one.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="The run folder. Default: results/train/NAME.", show_default=False
        ),
    ] = None,
    data: common.DataOption = None,
    features: Annotated[
        str | None, typer.Option("--features", metavar="FILE", help="Region features, instead of the file's.")
    ] = None,
    captions: Annotated[
        str | None, typer.Option("--captions", metavar="PATH", help="Captions with splits, instead of the file's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Instead of the file's; also names the folder NAME-seedN.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another setting instead of the file's; repeatable."),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Forget what the run folder holds.")] = False,
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
    changes = [*(change or [])]
    for key, text in (("features", features), ("captions", captions), ("seed", seed)):
        if text is not None:
            changes.append(f"{key}={json.dumps(text, ensure_ascii=False)}")  # JSON is YAML, quotes and all
    training_file = find_training(config)
    settings = load_training(ScanTraining, training_file, changes)
    root = find_root(data)
    common.announce_root(root, json_output=json_output, used=not Path(settings.captions).expanduser().exists())
    run = out or Path("results") / "train" / (settings.name if seed is None else f"{settings.name}-seed{seed}")
    with telling_how_features_are_made(settings.features, training_file):
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
    _print_recalls(result.chosen)
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
    import torch

    from capbench.models.registry import locate
    from capbench.models.scan.files import load_scan
    from capbench.training.captions import ROLES
    from capbench.training.device import choose_device
    from capbench.training.scan.prepare import evaluate_scan

    if split not in ROLES:
        raise UsageError(f"--evaluate {split}: there is no such split", hint=suggest(split, list(ROLES)))
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    model = run / "model.safetensors" if weights is None else locate(weights)
    if weights is None and not model.is_file():
        raise MissingFileError(
            "there is no trained model", path=model, hint="Train it first, without --evaluate, or name one with --model"
        )
    loaded = load_scan(model, vocabulary, device=str(choose_device(settings.device)))
    with contextlib.ExitStack() as stack:
        advance: list[Callable[[int], None]] = []
        begin = time.monotonic()
        recalls = evaluate_scan(
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
    _print_recalls(entry)
    print(f"{model}: sha256 {loaded.sha256}")


_DIRECTIONS = (("image to text", "image_to_text"), ("text to image", "text_to_image"))


def _print_recalls(entry: dict[str, Any]) -> None:
    print(f"{'':15}{'R@1':>7}{'R@5':>7}{'R@10':>7}{'median rank':>13}{'mean rank':>11}")
    for label, key in _DIRECTIONS:
        row = entry[key]
        recalls = "".join(f"{row[f'r@{k}']:7.1f}" for k in (1, 5, 10))
        print(f"{label:15}{recalls}{row['median_rank']:13.1f}{row['mean_rank']:11.1f}")
    print(f"recall sum {entry['recall_sum']:.1f}")


def _line(entry: dict[str, Any]) -> str:
    parts = [f"{label} R@1 {entry[key]['r@1']:.1f} R@10 {entry[key]['r@10']:.1f}" for label, key in _DIRECTIONS]
    return f"dev {', '.join(parts)}, recall sum {entry['recall_sum']:.1f}"
