"""``capbench train leic``: train the network that tells people's captions of an image from ruined ones or systems'."""

from __future__ import annotations

from typing import Any

from capbench.cli import common
from capbench.cli import train_shared as shared

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
    from capbench.training.leic.config import LeicTraining
    from capbench.training.leic.trainer import train_leic

    asked = shared.ask(LeicTraining, config, out, data, seed, change, features, captions)
    asked.announce(json_output)
    result = asked.train(train_leic, _line, restart)
    use = f"--metric leic --features {asked.settings.features} --model leic={result.model}"
    shared.tell_result(result, "score", json_output, describe=_line, use=use)


def _line(entry: dict[str, Any]) -> str:
    kinds = ", ".join(f"{name.removeprefix('p ')} {value:.3f}" for name, value in entry.items() if name[:2] == "p ")
    likelihood = f"held-out log-likelihood {entry['log_likelihood']:.4f}, accuracy {entry['accuracy']:.1%}"
    return f"{likelihood}; p(human) of {kinds}"
