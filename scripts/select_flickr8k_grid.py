"""Choose a grounding model and TIGEr's options on Flickr8k's dev images, which nobody rated.

python scripts/select_flickr8k_grid.py --data DIR --features pyr30.h5 run1/model.safetensors run2/model.safetensors ...

Candidates and made-up ratings are those of ``scripts/pseudo_judgements.py``: text metrics (CIDEr, METEOR, ROUGE-L) say
how near a caption of another dev image comes to the image's own five captions, in four levels. Printed is tau-c with
these levels. No judgement by people, and no test image, is read.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write, read_text  # noqa: E402
from capbench.core.records import FloatArray, IntArray, Item, image_id  # noqa: E402
from capbench.datasets.captions import load_captions  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.features.store import open_store  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.metrics.tiger.metric import Tiger  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from scripts.checks import at_least, require_writable  # noqa: E402
from scripts.flickr8k_grid import columns, ground, mean_of, table  # noqa: E402
from scripts.pseudo_judgements import KINDS, PseudoOptions, draw_candidates, pseudo_levels  # noqa: E402

TEXT_METRICS = ("cider", "meteor", "rouge-l")
SHOWN = (
    *("rrs", "grounding", "tiger", "wds"),
    *("tiger half τ=1.5", "tiger half τ=0.5", "tiger released τ=0.5", "tiger clip τ=1.5", "tiger without D_rel"),
)


def pseudo_items(data: Path, features: Path, seed: int) -> tuple[tuple[Item, ...], IntArray]:
    """Dev items and their made-up ratings."""
    root = find_root(data)
    every = load_captions("flickr8k", root)
    names = read_text(root.path / "flickr8k" / "Flickr_8k.devImages.txt").split()
    captions = {image_id(name): every[image_id(name)] for name in names}
    with open_store(features) as store:
        looks = np.stack([store[image].features.astype(np.float64).mean(axis=0) for image in captions])
    items = draw_candidates(captions, looks, PseudoOptions(seed=seed))
    scored = score(items, resolve_metrics(TEXT_METRICS), dataset="flickr8k-dev")
    return items, pseudo_levels(list(scored.values.values()))


def criterion(scores: FloatArray, levels: IntArray) -> float:
    """tau-c with the made-up ratings."""
    return correlation("tau-c", scores, levels.astype(np.float64)).value


def main(arguments: list[str] | None = None) -> None:
    """Print a table and, with --out, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--seed", type=at_least(0), default=0, help="of the candidates")
    parser.add_argument("--ensemble", action="store_true", help="also the mean grounding of all models")
    parser.add_argument("--all", action="store_true", help="all columns, and by kind of candidate")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    try:
        # A model that cannot be read is refused before the first one is grounded.
        if asked.out is not None:
            require_writable(asked.out.parent)
        for path in asked.models:
            Tiger(Resources(features=str(asked.features), model=str(path)))
        criteria = select(asked)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    rows = {column: [f"{criteria[name][column]:.4f}" for name in criteria] for column in next(iter(criteria.values()))}
    print(table(rows, ("", *criteria)))
    if asked.out is not None:
        with atomic_write(asked.out, "w") as file:
            json.dump(criteria, file, indent=2, ensure_ascii=False)


def select(asked: argparse.Namespace) -> dict[str, dict[str, float]]:
    """tau-c with the made-up ratings, by model and column."""
    items, levels = pseudo_items(asked.data, asked.features, asked.seed)
    kinds = np.array([item.group for item in items])
    grounded_by_name = {}
    for path in asked.models:
        grounded_by_name["/".join(path.parts[-2:])] = ground(items, asked.features, path)
    if asked.ensemble and len(grounded_by_name) > 1:
        grounded_by_name["mean of all"] = mean_of(list(grounded_by_name.values()))
    criteria: dict[str, dict[str, float]] = {}
    for name, grounded in grounded_by_name.items():
        scored = columns(grounded)
        criteria[name] = {column: criterion(scored[column], levels) for column in (scored if asked.all else SHOWN)}
        if asked.all:
            for kind in KINDS:
                of = kinds == kind
                criteria[name] |= {f"{column}, {kind}": criterion(scored[column][of], levels[of]) for column in SHOWN}
    print(f"{len(items):,} candidates of dev images; tau-c with made-up ratings")
    return criteria


if __name__ == "__main__":
    main()
