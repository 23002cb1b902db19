"""Train dual encoders on Flickr8k with some settings and say how good they are on dev images, which nobody rated.

python scripts/select_dual_encoder_flickr8k.py --data DIR --features pyr30.h5 --looks pyr30.h5 --work DIR \
    --log dev.json --look bag:network.text=bag --look gru:network.text=gru ...

Each ``--look NAME:KEY=VALUE,…`` is one training, in the folder NAME of ``--work``; one that is done is not done anew.
Measured are recall, each dev image against one caption of every dev image, and the made-up judgements of
``scripts/pseudo_judgements.py``: without references by levels from all five captions of an image, and with two
references by levels from its other three. Every look is added to the log, in the order in which it was taken. No
judgement by people, and no test image, is read. The plug-in must be installed: ``pip install ./examples/dual-encoder``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from capbench.core.errors import CapbenchError, UsageError  # noqa: E402
from capbench.core.files import atomic_write, lock, read_json  # noqa: E402
from capbench.core.records import FloatArray, Item  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.training.settings import find_training, load_training  # noqa: E402
from capbench.training.trainer import find_trainer  # noqa: E402
from scripts.select_faier_flickr8k import JUDGED, shared_levels  # noqa: E402
from scripts.select_flickr8k_grid import criterion, pseudo_items  # noqa: E402

METRIC = "dual-encoder"


def columns_of(items: tuple[Item, ...], model: Path, features: Path) -> dict[str, FloatArray]:
    """Both columns of items under a network."""
    resources = Resources(features=str(features), model=str(model))
    made = score(items, resolve_metrics([METRIC], resources=resources), resources, dataset="flickr8k-dev")
    return {key.column: values for key, values in made.values.items()}


def judge(model: Path, features: Path, looks: Path, data: Path) -> dict[str, float]:
    """tau-c with the made-up judgements, without references and with two."""
    items, levels = pseudo_items(data, looks, 0)
    two = tuple(dataclasses.replace(item, references=item.references[JUDGED:]) for item in items)
    columns, by_first = columns_of(two, model, features), shared_levels(items)
    numbers = {
        "no references": criterion(columns[METRIC], levels),
        "no references, same levels as two": criterion(columns[METRIC], by_first),
        "two references": criterion(columns[f"ref-{METRIC}"], by_first),
    }
    return {name: round(value, 4) for name, value in numbers.items()}


def look(asked: argparse.Namespace, name: str, changes: list[str]) -> dict[str, Any]:
    """Train, unless it is done, and measure."""
    given = [f"features={str(asked.features)!r}", f"seed={asked.seed}", "threads=1", *changes]
    trainer = find_trainer("clip")
    settings = load_training(trainer.settings_type(), find_training(asked.config), given)
    result = trainer.train(settings, asked.work / name, root=find_root(asked.data))
    if result.model is None or result.chosen is None:
        raise SystemExit(130)
    chosen = result.chosen
    return {
        "name": name,
        "config": asked.config,
        "features": asked.features.name,
        "set": changes,
        "seed": asked.seed,
        "steps": result.step,
        "recall sum": round(chosen["recall_sum"], 1),
        "R@1 (image to text, text to image)": [chosen["image_to_text"]["r@1"], chosen["text_to_image"]["r@1"]],
        "temperature": chosen["temperature"],
        "tau-c with made-up judgements": judge(result.model, asked.features, asked.looks, asked.data),
        "training seconds": round(result.seconds),
    }


def parse_look(text: str) -> tuple[str, list[str]]:
    """``name:key=value,key=value`` → name and changes. Raises UsageError if there is no name."""
    name, _, changes = text.partition(":")
    if not name:
        raise UsageError(f"--look {text}: names no run", hint="Write NAME:KEY=VALUE,KEY=VALUE")
    return name, [change for change in changes.split(",") if change]


def main(arguments: list[str] | None = None) -> None:
    """Print every look and add it to the log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument(
        "--looks", type=Path, required=True, help="features by which images look alike, always the same"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--log", type=Path, required=True, help="JSON list of all looks; these are added")
    parser.add_argument("--config", default="dual-encoder-flickr8k")
    parser.add_argument("--look", action="append", required=True, metavar="NAME:KEY=VALUE,…", help="repeatable")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        for text in asked.look:
            entry = look(asked, *parse_look(text))
            with lock(asked.work / asked.log.name):
                before = read_json(asked.log) if asked.log.is_file() else []
                with atomic_write(asked.log, "w") as file:
                    json.dump([*before, {"look": len(before) + 1, **entry}], file, indent=1, ensure_ascii=False)
            print(json.dumps(entry, indent=1, ensure_ascii=False), flush=True)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
