"""``capbench train clip``: train the dual encoder, or measure its recall."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli import train_shared as shared
from capbench.cli.train_progress import summary, train_shown
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.training.dual_encoder.config import DualEncoderTraining

__all__ = ["clip"]


def clip(
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
        Path | None, typer.Option("--model", metavar="FILE", help="With --evaluate: this model, not the run's.")
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", min=1, help="With --evaluate: only so many images, drawn at random.")
    ] = None,
    json_output: common.JsonOption = False,
) -> None:
    """Train a small dual encoder in CLIP's form on captions and region features, or go on with an interrupted training.

    It is no CLIP: the metric 'dual-encoder' scores with it by CLIPScore's formulas under a name of its own. Ctrl-C
    saves a checkpoint; the same command goes on from there, also after a crash or kill -9, and ends with the same
    weights as an undisturbed run. Paths are looked for in the current folder, then in the data folder.

    Example: capbench train clip dual-encoder-flickr8k --seed 2

    Example: capbench train clip dual-encoder-flickr8k --seed 2 --evaluate test
    """
    from capbench.datasets.root import find_root
    from capbench.training.config_file import find_training, load_training
    from capbench.training.dual_encoder.config import DualEncoderTraining
    from capbench.training.dual_encoder.trainer import train_dual_encoder

    for name, value in (("model", model), ("images", images)):
        if evaluate is None and value is not None:
            raise UsageError(f"--{name} goes with --evaluate", hint="Add --evaluate test, or leave it out")
    if evaluate is not None and restart:
        raise UsageError("--restart forgets the model that --evaluate would measure", hint="Give one of the two")
    training_file = find_training(config)
    settings = load_training(
        DualEncoderTraining, training_file, shared.as_changes(change, features=features, captions=captions, seed=seed)
    )
    root = find_root(data)
    common.announce_root(root, json_output=json_output, used=not Path(settings.captions).expanduser().exists())
    run = shared.run_folder(settings, out, seed)
    with shared.telling_how_features_are_made(settings, training_file):
        if evaluate is not None:
            _evaluate(settings, run, model, evaluate, root, images, json_output)
            return
        result = train_shown(
            run,
            lambda stop, watcher: train_dual_encoder(
                settings, run, root=root, restart=restart, stop=stop, watcher=watcher
            ),
            _line,
        )
    if json_output:
        common.print_json(result.to_dict())
        return
    assert result.chosen is not None
    print(summary(result, "recall"))
    shared.print_recalls(result.chosen)
    print(f"{result.model}: sha256 {result.sha256}")
    common.note(f"use it: capbench score -m dual-encoder --model {result.model} --features {settings.features}")


def _evaluate(
    settings: DualEncoderTraining,
    run: Path,
    weights: Path | None,
    split: str,
    root: DataRoot,
    images: int | None,
    json_output: bool,
) -> None:
    from capbench.models.dual_encoder.files import load_dual_encoder
    from capbench.training.device import choose_device
    from capbench.training.word_matching import evaluate_words

    model = shared.model_to_measure(run, weights, split, settings.threads, "dual-encoder")
    loaded = load_dual_encoder(model, str(choose_device(settings.device)))
    recalls = evaluate_words(settings, loaded, split, root, images=images)
    entry = {"split": split, **recalls.to_dict(), "model": str(model), "sha256": loaded.sha256}
    if json_output:
        common.print_json(entry)
        return
    print(f"{split}: {common.count(recalls.images, 'image')}, {common.count(recalls.captions, 'caption')}")
    shared.print_recalls(entry)
    print(f"{model}: sha256 {loaded.sha256}")


def _line(entry: dict[str, Any]) -> str:
    return f"dev {shared.recall_line(entry)}, temperature {entry['temperature']:.4f}"
