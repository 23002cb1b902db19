"""``capbench train nneval``: train the network that tells people's captions from machines'."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capbench.cli import common
from capbench.cli import train_shared as shared
from capbench.cli.train_progress import train_shown

__all__ = ["nneval"]


def nneval(
    config: shared.ConfigArgument,
    out: shared.OutOption = None,
    data: common.DataOption = None,
    vectors: Annotated[
        str | None, typer.Option("--vectors", metavar="FILE", help="Word vectors for WMD, instead of the file's.")
    ] = None,
    seed: shared.SeedOption = None,
    change: shared.SetOption = None,
    restart: shared.RestartOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Train NNEval on captions of people and of systems, or go on with a training that was interrupted.

    First the scores that it reads are computed: SPICE parses every caption that it never saw, 20 to 50 a second. They
    are kept, so that other seeds and settings begin at once. Ctrl-C saves what is done; the same command goes on
    from there. The run folder holds log.jsonl, checkpoint.pt and, in the end, model.safetensors.

    Example: capbench train nneval nneval-coco --vectors vectors.bin --seed 2

    Example: capbench train nneval nneval-coco --vectors vectors.bin --set draw.images=500 --out results/train/small
    """
    from capbench.datasets.root import find_root
    from capbench.training.config_file import find_training, load_training
    from capbench.training.nneval.config import NNEvalTraining
    from capbench.training.nneval.trainer import train_nneval

    changes = shared.as_changes(change, vectors=vectors, seed=seed)
    settings = load_training(NNEvalTraining, find_training(config), changes)
    root = find_root(data)
    common.announce_root(root, json_output=json_output)
    run = shared.run_folder(settings, out, seed)
    result = train_shown(
        run,
        lambda stop, watcher: train_nneval(
            settings, run, root, common.progress, restart=restart, stop=stop, watcher=watcher
        ),
        _line,
    )
    use = f"--metric nneval --model nneval={result.model} --option nneval.vectors={settings.vectors}"
    shared.tell_result(result, "score", json_output, describe=_line, use=use)


def _line(entry: dict[str, Any]) -> str:
    if "tau" in entry:
        return f"τ {entry['tau']:.4f}"
    return f"held-out log-likelihood {entry['log_likelihood']:.4f}, accuracy {entry['accuracy']:.1%}"
