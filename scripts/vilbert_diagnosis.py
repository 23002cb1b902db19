"""What a ViLBERT knows of the image without references, and what of it F has, on the items of a data set with ratings.

tau-c of the similarity that trains the attention of the first connection, of the alignment head, and of F of the last
layer with images and with blank ones, alone and with a part of the attention (standard scores); and by mean rating what

Example: python -m scripts.vilbert_diagnosis --features windows10.h5 --model model.safetensors --out diagnosis.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from capbench.core.errors import CapbenchError
from capbench.core.files import atomic_write
from capbench.core.records import FloatArray, Item
from capbench.datasets.root import find_root
from capbench.features.store import open_store
from capbench.metrics.vilbertscore.choosing import LONGEST
from capbench.metrics.vilbertscore.files import load_vilbert
from capbench.metrics.vilbertscore.source import image_rows
from capbench.metrics.vilbertscore.training import VilbertLearner
from capbench.metrics.vilbertscore.training_data import Specials, padded
from scripts.vilbert_precision import facts_of, rated, scores_of

PART = 0.4
"""Weight of the attention in a sum, in standard deviations."""
LEVELS = {"1 to 1.5": (1.0, 1.5), "1.5 to 2.5": (1.5, 2.5), "2.5 to 4": (2.5, 4.1)}
"""Mean ratings from the first to below the second."""


@torch.inference_mode()
def knowledge(items: tuple[Item, ...], features: Path, model: Path) -> dict[str, FloatArray]:
    """(n,) ``attention``, the similarity of caption and image in the first connection, and ``alignment``, the logit."""
    loaded = load_vilbert(model, heads=True)
    learner = VilbertLearner(loaded.options, None, 0.0)
    learner.network = loaded.network
    learner.eval()
    specials = Specials.of(loaded.pieces)
    places_by_image: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        places_by_image.setdefault(item.image, []).append(place)
    found = {name: np.empty(len(items)) for name in ("attention", "alignment")}
    with open_store(features) as store:
        for image, places in places_by_image.items():
            numbers, mask = padded([loaded.pieces.sequence(items[p].candidate, LONGEST) for p in places], specials.pad)
            ids, present = torch.from_numpy(numbers), torch.from_numpy(mask)
            rows = image_rows(store[image])
            regions = (torch.from_numpy(array)[None] for array in (rows.features, rows.places))
            text, _ = learner.read(ids, present, *regions)
            words = present & torch.from_numpy(np.isin(numbers, specials.ordinary))
            found["attention"][places] = learner.similarities(text.text, words, text.image)[0].numpy()
            _, streams = learner.connect(text.text, text.image.expand(len(places), -1, -1), present)
            logits = learner.aligned(streams)
            found["alignment"][places] = (logits[:, 0] - logits[:, 1]).numpy()
    return found


def _standard(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.mean()) / values.std())


def main() -> None:
    """Print the numbers and, with --out, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    try:
        data = rated(find_root(asked.data), "expert")
        tables = {image: scores_of(data, asked, image=image) for image in ("seen", "blank")}
        known = knowledge(data.items, asked.features, asked.model)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    column = max(name for name in tables["seen"].columns if name.startswith("vilbertscore-f"))
    f = {image: table.columns[column] for image, table in tables.items()}
    scores = {"F": f["seen"], "F, blank": f["blank"], **known}
    for name in ("F", "F, blank"):
        scores[f"{name} + {PART} attention"] = _standard(scores[name]) + PART * _standard(known["attention"])
    moved, ratings = _standard(f["seen"]) - _standard(f["blank"]), data.mean()
    report = {
        **facts_of(data, asked, tables.values()),
        "tau-c": {name: data.correlation("tau-c", values) for name, values in scores.items()},
        "what the image moves F by, in standard scores, by mean rating": {
            level: {"items": int(chosen.sum()), "mean": float(moved[chosen].mean())}
            for level, (low, high) in LEVELS.items()
            for chosen in ((ratings >= low) & (ratings < high),)
        },
    }
    print(json.dumps(report, indent=1))
    if asked.out is not None:
        with atomic_write(asked.out, "w") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
