"""``capbench train vilbert``: train the network behind ViLBERTScore."""

from __future__ import annotations

from typing import Any

from capbench.cli import common
from capbench.cli import train_shared as shared

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
    from capbench.training.vilbert.config import VilbertTraining
    from capbench.training.vilbert.trainer import train_vilbert

    asked = shared.ask(VilbertTraining, config, out, data, seed, change, features, captions)
    asked.announce(json_output)
    result = asked.train(train_vilbert, _line, restart)
    shared.tell_result(result, "alignment", json_output, show=_show)


_ACCURACIES = (
    *("attention", "attention_near", "alignment", "alignment_near", "matching", "matching_near"),
    *("matching_blank", "matching_near_blank"),
)


def _show(entry: dict[str, Any]) -> None:
    for name in _ACCURACIES:
        print(f"{name:21}{entry[name]:6.1f} %")


def _line(entry: dict[str, Any]) -> str:
    return "dev " + ", ".join(f"{name} {entry[name]:.1f}" for name in _ACCURACIES)
