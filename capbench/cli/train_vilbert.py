"""``capbench train vilbert``: train the network behind ViLBERTScore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from capbench.cli import common
from capbench.cli import train_matching as shared
from capbench.cli.train_progress import summary, train_shown

__all__ = ["vilbert"]


def vilbert(
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
    settings = load_training(VilbertTraining, training_file, shared.as_changes(change, features, captions, seed))
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
