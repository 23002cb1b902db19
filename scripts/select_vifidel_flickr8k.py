"""Choose VIFIDEL's threshold of detected labels on Flickr8k's dev images, which nobody rated.

python scripts/select_vifidel_flickr8k.py --data DIR --features pyr30.h5 --vectors vectors.bin --out dev.json

Labels are those of ``flickr8k/yolox_nano_boxes.npz``. For each threshold, and with repeated labels counted or not:
tau-c of both columns with made-up judgements (``scripts/pseudo_judgements.py``), and how often an image's own caption,
which is left out of the references, comes before another image's. No judgement by people, and no test image, is read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.metrics.vifidel import Vifidel  # noqa: E402
from scripts.checks import at_least, require_writable  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.select_flickr8k_grid import criterion, pseudo_items  # noqa: E402
from scripts.select_vilbert_flickr8k import own_and_foreign, wins  # noqa: E402

BOXES = "flickr8k/yolox_nano_boxes.npz"
THRESHOLDS = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
REPEATS = ("counted", "once")


def select(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All numbers by setting."""
    items, levels = pseudo_items(asked.data, asked.features, asked.seed)
    contest, owners = own_and_foreign(items)
    images = list(dict.fromkeys(item.image for item in items))
    numbers: dict[str, dict[str, Any]] = {}
    for repeats in REPEATS:
        for threshold in THRESHOLDS:
            options = {
                "vectors": str(asked.vectors),
                "labels": str(asked.data / BOXES),
                "classes": "coco-80",
                "threshold": threshold,
                "repeats": repeats,
            }
            requests = resolve_metrics(["vifidel"], {"vifidel": options})
            metric = requests[0].make(Resources())
            assert isinstance(metric, Vifidel)
            rows: dict[str, Any] = {
                "labels an image": sum(len(metric.used_labels(image)) for image in images) / len(images)
            }
            made = score(items, requests, dataset="flickr8k-dev")
            contested = score(contest, requests, dataset="flickr8k-dev-contest")
            for key, values in made.values.items():
                rows[f"tau-c {key.column}"] = criterion(values, levels)
            for key, values in contested.values.items():
                rows[f"own first {key.column}"] = float(wins(values, owners).mean())
            numbers[f"{threshold:g} {repeats}"] = rows
            print(f"threshold {threshold:g}, {repeats}: done", file=sys.stderr, flush=True)
    print(f"{len(items):,} candidates of {len(images):,} dev images")
    return numbers


def main(arguments: list[str] | None = None) -> None:
    """Print a table and, with --out, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True, help="that say which images look alike")
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--seed", type=at_least(0), default=0, help="of the candidates")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    try:
        if asked.out is not None:
            require_writable(asked.out.parent)
        numbers = select(asked)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    columns = dict.fromkeys(name for rows in numbers.values() for name in rows)
    shown = {name: [f"{rows[column]:.4f}" for column in columns] for name, rows in numbers.items()}
    print(table(shown, ("threshold", *columns)))
    if asked.out is not None:
        with atomic_write(asked.out, "w") as file:
            json.dump(numbers, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
