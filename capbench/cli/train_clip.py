"""``capbench train clip``: train the dual encoder, or measure its recall."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from capbench.cli import common
from capbench.cli import train_shared as shared

if TYPE_CHECKING:
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
    evaluate: shared.EvaluateOption = None,
    model: shared.MeasuredModelOption = None,
    images: shared.ImagesOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Train a small dual encoder in CLIP's form on captions and region features, or go on with an interrupted training.

    It is no CLIP: the metric 'dual-encoder' scores with it by CLIPScore's formulas under a name of its own. Ctrl-C
    saves a checkpoint; the same command goes on from there, also after a crash or kill -9, and ends with the same
    weights as an undisturbed run. Paths are looked for in the current folder, then in the data folder.

    Example: capbench train clip dual-encoder-flickr8k --seed 2

    Example: capbench train clip dual-encoder-flickr8k --seed 2 --evaluate test
    """
    from capbench.training.dual_encoder.config import DualEncoderTraining
    from capbench.training.dual_encoder.trainer import train_dual_encoder

    shared.check_evaluate(evaluate, restart, model=model, images=images)
    asked = shared.ask(DualEncoderTraining, config, out, data, seed, change, features, captions)
    asked.announce(json_output)
    if evaluate is not None:
        with asked.telling_how_features_are_made():
            _evaluate(asked, model, evaluate, images, json_output)
        return
    result = asked.train(train_dual_encoder, _line, restart)
    use = f"-m dual-encoder --model {result.model} --features {asked.settings.features}"
    shared.tell_result(result, "recall", json_output, show=shared.print_recalls, use=use)


def _evaluate(
    asked: shared.Asked[DualEncoderTraining], weights: Path | None, split: str, images: int | None, json_output: bool
) -> None:
    from capbench.models.dual_encoder.files import load_dual_encoder
    from capbench.training.device import choose_device
    from capbench.training.word_matching import evaluate_words

    settings = asked.settings
    model = shared.model_to_measure(asked.run, weights, split, settings.threads, "dual-encoder")
    loaded = load_dual_encoder(model, str(choose_device(settings.device)))
    recalls = evaluate_words(settings, loaded, split, asked.root, images=images)
    entry = {"split": split, **recalls.to_dict(), "model": str(model), "sha256": loaded.sha256}
    sizes = f"{common.count(recalls.images, 'image')}, {common.count(recalls.captions, 'caption')}"
    shared.tell_measured(entry, f"{split}: {sizes}", shared.print_recalls, json_output)


def _line(entry: dict[str, Any]) -> str:
    return f"dev {shared.recall_line(entry)}, temperature {entry['temperature']:.4f}"
