"""Agreement of a ViLBERT's attention to the image, and of F, with the ratings of Flickr8k Expert's captions.

tau-c of the similarity of caption and image that trains the attention of the first connection, and of F of the last
layer with images and with blank ones, alone and with a part of the attention (standard scores); and by mean rating what
the image changes in F.

Example: python -m scripts.vilbert_diagnosis --features windows10.h5 --model model.safetensors --out diagnosis.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch

from capbench.core.errors import CapbenchError
from capbench.core.records import FloatArray, Item
from capbench.datasets.root import find_root
from capbench.features.store import open_store
from capbench.metrics.vilbertscore.choosing import LONGEST
from capbench.metrics.vilbertscore.files import load_vilbert
from capbench.metrics.vilbertscore.network import Connection, mask_of
from capbench.metrics.vilbertscore.source import image_rows
from capbench.metrics.vilbertscore.training import late_similarities
from capbench.metrics.vilbertscore.training_data import Specials, padded
from capbench.studies.recipe_scores import write_json
from scripts.vilbert_precision import facts_of, rated, scores_of

PART = 0.4
"""Weight of the attention in a sum, in standard deviations."""
LEVELS = {"1 to 1.5": (1.0, 1.5), "1.5 to 2.5": (1.5, 2.5), "2.5 to 4": (2.5, 4.1)}
"""Mean ratings from the first to below the second."""


@torch.inference_mode()
def attention(items: Sequence[Item], features: Path, model: Path) -> FloatArray:
    """(n,) similarity of caption and image in the first connection (:func:`late_similarities`)."""
    loaded = load_vilbert(model)
    network, specials = loaded.network, Specials.of(loaded.pieces)
    first = cast(Connection, network.connections[0])
    places_by_image: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        places_by_image.setdefault(item.image, []).append(place)
    found = np.empty(len(items))
    with open_store(features) as store:
        for image, places in places_by_image.items():
            numbers, mask = padded([loaded.pieces.sequence(items[p].candidate, LONGEST) for p in places], specials.pad)
            present = torch.from_numpy(mask)
            rows = image_rows(store[image])
            regions = network.read_image(*(torch.from_numpy(array)[None] for array in (rows.features, rows.places)))
            words = first.text_query(network.read_text(torch.from_numpy(numbers), mask_of(present)))
            counted = present & torch.from_numpy(np.isin(numbers, specials.ordinary))
            found[places] = late_similarities(words, counted, first.image_key(regions))[0].numpy()
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
        known = attention(data.items, asked.features, asked.model)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    column = max(name for name in tables["seen"].columns if name.startswith("vilbertscore-f"))
    f = {image: table.columns[column] for image, table in tables.items()}
    scores = {"F": f["seen"], "F, blank": f["blank"], "attention": known}
    for name in ("F", "F, blank"):
        scores[f"{name} + {PART} attention"] = _standard(scores[name]) + PART * _standard(known)
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
        write_json(asked.out, report)


if __name__ == "__main__":
    main()
