"""Train FAIEr with some settings on Flickr8k and say how good it is on dev images, which nobody rated.

python scripts/select_faier_flickr8k.py --data DIR --features pyr30.h5 --looks pyr30.h5 --work DIR --log dev.json \
    --set network.similarity=dot ...

Two things are measured. *Recall*: each dev image, without references and with 1 and 4, against one caption of every dev
image. *Made-up judgements* (``scripts/pseudo_judgements.py``): candidates are captions of other dev images, and CIDEr,
METEOR and ROUGE-L say in four levels how near each comes to the image's own captions. A metric that reads the same
captions agrees with that by reading alone, so with references the levels come from the image's first three captions and
the references are the other two; without references they come from all five. Every run is added to the log with its
settings, in the order in which it was looked at. No judgement by people, and no test image, is read.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write, lock, read_json  # noqa: E402
from capbench.core.records import FloatArray, IntArray, Item  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.features.store import open_store  # noqa: E402
from capbench.metrics.faier.files import FaierModel, load_faier  # noqa: E402
from capbench.metrics.faier.graphs import collate  # noqa: E402
from capbench.metrics.faier.training import (  # noqa: E402
    FaierTraining,
    GraphReading,
    collate_references,
    no_reference,
    train_faier,
    union_of,
)
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.training.settings import find_training, load_training  # noqa: E402
from scripts.pseudo_judgements import pseudo_levels  # noqa: E402
from scripts.select_flickr8k_grid import TEXT_METRICS, criterion, pseudo_items  # noqa: E402

JUDGED = 3
"""An image's first so many captions rate candidates; the others are references."""
_IMAGES = 64


def shared_levels(items: tuple[Item, ...]) -> IntArray:
    """Made-up ratings by each image's first captions alone."""
    by_first = [dataclasses.replace(item, references=item.references[:JUDGED]) for item in items]
    rated = score(by_first, resolve_metrics(TEXT_METRICS), dataset="flickr8k-dev-first")
    return pseudo_levels(list(rated.values.values()))


@torch.inference_mode()
def scores_of(
    model: FaierModel, items: tuple[Item, ...], references: list[list[str]], features: Path
) -> dict[str, FloatArray]:
    """Scores of items under a network, each level apart: ``total``, ``objects`` and ``relations``.

    Args:
        model: the network.
        items: candidates, an image's beside each other.
        references: of each item.
        features: a store with the images.
    """
    network, reading = model.network, GraphReading(model.options)
    texts = {text for texts in references for text in texts} | {item.candidate for item in items}
    reading.more_words(sorted(texts))
    empty = no_reference(model.vocabulary, model.options)
    rows: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        rows.setdefault(item.image, []).append(i)
    images = list(rows)
    made = {name: np.zeros(len(items)) for name in ("total", "objects", "relations")}
    with open_store(features) as store:
        for first in range(0, len(images), _IMAGES):
            block = images[first : first + _IMAGES]
            regions = [store[image] for image in block]
            boxes = [reading.place(one) for one in regions] if reading.place is not None else None
            codes = [[reading.encode(t, model.vocabulary) for t in references[rows[image][0]]] for image in block]
            union = union_of(
                network,
                torch.from_numpy(np.stack([one.features for one in regions]).astype(np.float32)),
                None if boxes is None else torch.from_numpy(np.stack(boxes)),
                collate_references(codes, empty),
            )
            places = [i for image in block for i in rows[image]]
            candidates = collate([reading.encode(items[i].candidate, model.vocabulary) for i in places])
            owner = torch.tensor([number for number, image in enumerate(block) for _ in rows[image]])
            scored = network.paired_scores(union, network.encode_captions(candidates), owner)
            for name in made:
                values = getattr(scored, name)
                if values is not None:
                    made[name][places] = values.numpy()
    return made


def judge(model: FaierModel, features: Path, looks: Path, data: Path, seed: int = 0) -> dict[str, float]:
    """tau-c with the made-up judgements, without references and with two."""
    items, levels = pseudo_items(data, looks, seed)
    numbers = {}
    without = scores_of(model, items, [[] for _ in items], features)
    numbers["no references"] = criterion(without["total"], levels)
    if model.options.reads_references:
        two = scores_of(model, items, [list(item.references[JUDGED:]) for item in items], features)
        by_first = shared_levels(items)
        numbers["two references"] = criterion(two["total"], by_first)
        numbers["no references, same levels as two"] = criterion(without["total"], by_first)
    for name in ("objects", "relations"):
        if without[name].any():
            numbers[f"no references, {name}"] = criterion(without[name], levels)
    return {name: round(value, 4) for name, value in numbers.items()}


def look(asked: argparse.Namespace) -> dict[str, Any]:
    """Train, unless it is done, and measure."""
    begin = time.monotonic()
    changes = [f"features={str(asked.features)!r}", f"seed={asked.seed}", "threads=1", *asked.set]
    settings = load_training(FaierTraining, find_training(asked.config), changes)
    result = train_faier(settings, asked.work / asked.name, root=find_root(asked.data))
    if result.model is None or result.chosen is None:
        raise SystemExit(130)
    seconds = result.seconds
    sums = {n: round(entry["recall_sum"], 1) for n, entry in result.chosen["by_references"].items()}
    firsts = {
        n: [entry["image_to_text"]["r@1"], entry["text_to_image"]["r@1"]]
        for n, entry in result.chosen["by_references"].items()
    }
    entry = {
        "name": asked.name,
        "config": asked.config,
        "features": asked.features.name,
        "set": asked.set,
        "seed": asked.seed,
        "steps": result.step,
        "recall sum by references": sums,
        "R@1 (image to text, text to image) by references": firsts,
        "tau-c with made-up judgements": judge(load_faier(result.model), asked.features, asked.looks, asked.data),
        "training seconds": round(seconds),
    }
    print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
    return entry


def main(arguments: list[str] | None = None) -> None:
    """Print one look and add it to the log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument(
        "--looks", type=Path, required=True, help="features by which images look alike, always the same"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--log", type=Path, required=True, help="JSON list of all looks; this one is added")
    parser.add_argument("--config", default="faier-flickr8k")
    parser.add_argument("--name", required=True, help="of the run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        entry = look(asked)
        with lock(asked.work / asked.log.name):
            before = read_json(asked.log) if asked.log.is_file() else []
            with atomic_write(asked.log, "w") as file:
                json.dump([*before, {"look": len(before) + 1, **entry}], file, indent=1, ensure_ascii=False)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    print(json.dumps(entry, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
