"""``capbench train vilbert``: train the network behind ViLBERTScore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capbench.cli import common
from capbench.cli import train_shared as shared
from capbench.cli.train_progress import summary, train_shown

__all__ = ["vilbert"]


def vilbert(
    config: shared.ConfigArgument,
    out: shared.OutOption = None,
    data: common.DataOption = None,
    features: shared.FeaturesOption = None,
    captions: shared.CaptionsOption = None,
    seed: shared.SeedOption = None,
    change: shared.SetOption = None,
    restart: shared.RestartOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Train ViLBERT on captions and region features, or go on with a training that was interrupted.

    Ctrl-C saves a checkpoint; the same command goes on from there, also after a crash or kill -9, and ends with the
    same weights as an undisturbed run. The run folder holds log.jsonl, checkpoint.pt and, in the end,
    model.safetensors, with the word pieces in it. Paths are looked for in the current folder, then in the data folder.

    Example: capbench train vilbert vilbert-flickr8k --seed 2
    """
    from capbench.datasets.root import find_root
    from capbench.training.config_file import find_training, load_training
    from capbench.training.vilbert.config import VilbertTraining
    from capbench.training.vilbert.trainer import train_vilbert

    training_file = find_training(config)
    settings = load_training(
        VilbertTraining, training_file, shared.as_changes(change, features=features, captions=captions, seed=seed)
    )
    root = find_root(data)
    common.announce_root(root, json_output=json_output, used=not Path(settings.captions).expanduser().exists())
    run = shared.run_folder(settings, out, seed)
    with shared.telling_how_features_are_made(settings, training_file):
        result = train_shown(
            run,
            lambda stop, watcher: train_vilbert(settings, run, root=root, restart=restart, stop=stop, watcher=watcher),
            _line,
        )
    if json_output:
        common.print_json(result.to_dict())
        return
    assert result.chosen is not None
    print(summary(result, "alignment"))
    for name in _ACCURACIES:
        print(f"{name:21}{result.chosen[name]:6.1f} %")
    print(f"{result.model}: sha256 {result.sha256}")


_ACCURACIES = (
    *("attention", "attention_near", "alignment", "alignment_near", "matching", "matching_near"),
    *("matching_blank", "matching_near_blank"),
)


def _line(entry: dict[str, Any]) -> str:
    return "dev " + ", ".join(f"{name} {entry[name]:.1f}" for name in _ACCURACIES)
