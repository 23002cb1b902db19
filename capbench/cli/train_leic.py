"""``capbench train leic``: train the network that tells people's captions of an image from ruined ones or systems'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capbench.cli import common
from capbench.cli import train_shared as shared
from capbench.cli.train_progress import summary, train_shown

__all__ = ["leic"]


def leic(
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
    """Train LEIC on people's captions, ruined ones and those of systems, or go on with an interrupted training.

    Ctrl-C saves a checkpoint; the same command goes on from there and ends with the same weights as an undisturbed
    run. The run folder holds log.jsonl, with the numbers of every epoch, checkpoint.pt and, in the end,
    model.safetensors. Paths are looked for in the current folder, then in the data folder.

    Example: capbench train leic leic-flickr8k --seed 2

    Example: capbench train leic leic-flickr8k-systems --set folds.out=3 --out results/train/leic-part3
    """
    from capbench.datasets.root import find_root
    from capbench.training.config_file import find_training, load_training
    from capbench.training.leic.config import LeicTraining
    from capbench.training.leic.trainer import train_leic

    training_file = find_training(config)
    changes = shared.as_changes(change, features=features, captions=captions, seed=seed)
    settings = load_training(LeicTraining, training_file, changes)
    root = find_root(data)
    common.announce_root(root, json_output=json_output, used=not Path(settings.captions).expanduser().exists())
    run = shared.run_folder(settings, out, seed)
    with shared.telling_how_features_are_made(settings, training_file):
        result = train_shown(
            run,
            lambda stop, watcher: train_leic(settings, run, root=root, restart=restart, stop=stop, watcher=watcher),
            _line,
        )
    if json_output:
        common.print_json(result.to_dict())
        return
    assert result.chosen is not None
    print(f"{summary(result, 'score')} {_line(result.chosen)}")
    print(f"{result.model}: sha256 {result.sha256}")
    common.note(f"use it: capbench score --metric leic --features {settings.features} --model leic={result.model}")


def _line(entry: dict[str, Any]) -> str:
    kinds = ", ".join(f"{name.removeprefix('p ')} {value:.3f}" for name, value in entry.items() if name[:2] == "p ")
    likelihood = f"held-out log-likelihood {entry['log_likelihood']:.4f}, accuracy {entry['accuracy']:.1%}"
    return f"{likelihood}; p(human) of {kinds}"
