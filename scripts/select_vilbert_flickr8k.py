"""Choose a ViLBERT on Flickr8k's dev images, which nobody rated.

python scripts/select_vilbert_flickr8k.py --data DIR --features pyr30.h5 --out dev.json run1/model.safetensors ...

For each model, with its images and with blank ones, and for each layer: tau-c of P, R and F with made-up judgements
(``scripts/pseudo_judgements.py``), and how often F puts an image's own caption, which is left out of the references,
above each candidate that is another image's: above those for the same references ("own first"), and above those for all
images ("own above all"), as a metric's scores are compared between images. Made-up judgements come from text metrics,
so that whatever looks at the image loses by them; whose caption it is does not hang on any metric. With
``--held-out 2`` they come from the last two captions of each image, and the metric reads the others ("held-out tau-c"):
the image then tells what the references do not say. No judgement by people, and no test image, is read.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from scipy.stats import rankdata  # noqa: E402

from capbench.core.errors import CapbenchError, DataError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.core.records import FloatArray, IntArray, Item  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.metrics.vilbertscore.files import load_vilbert  # noqa: E402
from capbench.weights.ensembles import read_ensemble  # noqa: E402
from scripts.checks import at_least, require_writable  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.pseudo_judgements import KINDS, pseudo_levels  # noqa: E402
from scripts.select_flickr8k_grid import TEXT_METRICS, criterion, pseudo_items  # noqa: E402

IMAGES = ("seen", "blank")


def layers_of(model: Path) -> int:
    """How many layers a model, or the first of an ensemble, has."""
    ensemble = read_ensemble(model)
    return load_vilbert(model if ensemble is None else ensemble.parts[0].path).options.connections


def vilbertscores(
    items: Sequence[Item], features: Path, model: Path, dataset: str, data: Path | None = None
) -> dict[str, FloatArray]:
    """P, R and F of every layer, with images seen and blank: ``vilbertscore-f-2``, ``vilbertscore-f-2, blank``."""
    layers, scores = layers_of(model), {}
    resources = Resources(features=str(features), model=str(model), data=None if data is None else str(data))
    for image in IMAGES:
        request = resolve_metrics(
            ["vilbertscore"], {"vilbertscore": {"layer": f"1-{layers}" if layers > 1 else 1, "image": image}}
        )
        made = score(items, request, resources, dataset=dataset)
        for key, values in made.values.items():
            column = key.column if layers > 1 else f"{key.column}-1"
            scores[column + (", blank" if image == "blank" else "")] = values
    return scores


def own_and_foreign(items: Sequence[Item]) -> tuple[list[Item], FloatArray]:
    """An image's last caption as a candidate for the others, then all candidates for the same references.

    Returns:
        The items; and for each, the place of the one with its image's own caption.
    """
    made: list[Item] = []
    own: dict[str, int] = {}
    owners = []
    for item in items:
        if item.image not in own:
            own[item.image] = len(made)
            made.append(dataclasses.replace(item, candidate=item.references[-1], references=item.references[:-1]))
            owners.append(own[item.image])
        owners.append(own[item.image])
        made.append(dataclasses.replace(item, references=item.references[:-1]))
    return made, np.array(owners)


def wins(scores: FloatArray, owners: FloatArray) -> FloatArray:
    """For each item but an image's own caption: 1 if that one's score is above, a half if it is the same. (n,)"""
    foreign = owners != np.arange(len(owners))
    own = scores[owners[foreign].astype(np.int64)]
    return np.asarray((own > scores[foreign]) + (own == scores[foreign]) / 2, dtype=np.float64)


def above_all(scores: FloatArray, owners: FloatArray) -> float:
    """Share of pairs of an own and a foreign caption, of the same image or not, with the own one's score above.

    A half for equal scores: the area under the ROC curve.
    """
    own = owners == np.arange(len(owners))
    ranks = rankdata(scores)
    return float((ranks[own].mean() - (own.sum() + 1) / 2) / (~own).sum())


def held_out(items: Sequence[Item], number: int) -> tuple[list[Item], IntArray]:
    """Items without the last ``number`` references, and what text metrics against these alone make of the candidates.

    Raises:
        DataError: an item has too few references.
    """
    for item in items:
        if len(item.references) <= number:
            raise DataError(f"image '{item.image}' has {len(item.references)} captions, of which {number} are held out")
    apart = [dataclasses.replace(item, references=item.references[-number:]) for item in items]
    scored = score(apart, resolve_metrics(TEXT_METRICS), dataset="flickr8k-dev-held-out")
    left = [dataclasses.replace(item, references=item.references[:-number]) for item in items]
    return left, pseudo_levels(list(scored.values.values()))


def select(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All numbers by model."""
    items, levels = pseudo_items(asked.data, asked.features, asked.seed)
    if asked.images is not None:
        kept = set(dict.fromkeys(item.image for item in items[:: len(items) // asked.images]))
        places = [place for place, item in enumerate(items) if item.image in kept]
        items, levels = tuple(items[place] for place in places), levels[places]
    contest, owners = own_and_foreign(items)
    left, unseen_levels = held_out(items, asked.held_out) if asked.held_out else ([], levels)
    kinds = np.array([item.group for item in items])
    numbers: dict[str, dict[str, Any]] = {}
    for path in asked.models:
        scores = vilbertscores(items, asked.features, path, "flickr8k-dev")
        contested = vilbertscores(contest, asked.features, path, "flickr8k-dev-contest")
        rows: dict[str, Any] = {f"tau-c {column}": criterion(values, levels) for column, values in scores.items()}
        if left:
            unseen = vilbertscores(left, asked.features, path, "flickr8k-dev-left")
            rows |= {f"held-out tau-c {column}": criterion(values, unseen_levels) for column, values in unseen.items()}
        for column, values in contested.items():
            if column.startswith("vilbertscore-f"):
                won = wins(values, owners)
                rows[f"own above all {column}"] = above_all(values, owners)
                rows[f"own first {column}"] = float(won.mean())
                rows |= {f"own first {column}, {kind}": float(won[kinds == kind].mean()) for kind in KINDS}
        numbers["/".join(path.parts[-2:])] = rows
    print(f"{len(items):,} candidates of dev images")
    return numbers


def main(arguments: list[str] | None = None) -> None:
    """Print a table and, with --out, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--seed", type=at_least(0), default=0, help="of the candidates")
    parser.add_argument("--images", type=at_least(10), help="only candidates of about so many images")
    parser.add_argument("--held-out", type=at_least(0), default=0, help="captions that only made-up judgements read")
    parser.add_argument("--threads", type=at_least(1), default=1, help="of PyTorch")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    try:
        if asked.out is not None:
            require_writable(asked.out.parent)
        numbers: Mapping[str, Mapping[str, Any]] = select(asked)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    columns = dict.fromkeys(name for rows in numbers.values() for name in rows)
    shown = {c: [f"{numbers[n][c]:.4f}" if c in numbers[n] else "" for n in numbers] for c in columns}
    print(table(shown, ("", *numbers)))
    if asked.out is not None:
        with atomic_write(asked.out, "w") as file:
            json.dump(numbers, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
