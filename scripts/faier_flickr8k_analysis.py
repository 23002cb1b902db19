"""Where FAIEr and people part on Flickr8k: which part of S, which ratings, which images.

python scripts/faier_flickr8k_analysis.py --data DIR --features pyr30.h5 --model faier=FILE --model fier=FILE \
    [--model LABEL=FILE ...] [--grid DIR] --out analysis.json

The first model is taken apart: its levels with all references and without any, its object level over content words and
over words that hardly name anything, its relation level by whether the caption has triplets. Other models, text metrics
and, with ``--grid`` (``--out`` of ``reproduce_flickr8k_grid.py``), TIGEr and REO stand beside. It prints the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.core.records import FloatArray  # noqa: E402
from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.faier.explain import words_of  # noqa: E402
from capbench.metrics.faier.metric import Faier  # noqa: E402
from capbench.metrics.faier.source import Group  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_grid_analysis import by_rating, columns_by_image, residuals  # noqa: E402
from scripts.flickr8k_grid_tables import TITLES  # noqa: E402
from scripts.flickr8k_steps import Rated, say, scored, text_scores  # noqa: E402
from scripts.reproduce_faier_flickr8k import faier_scores, rated  # noqa: E402

_HARDLY_NAMING = """a an the and or of in on at to by with from for over through into onto up down out off near around
behind front is are was be being been has have as it its his her their he she they this that there while who
which . ,"""
EMPTY = frozenset(_HARDLY_NAMING.split())
"""Words that hardly name anything one could see."""
KINDS = {
    "dog": {"dog", "dogs", "puppy", "puppies"},
    "people": {"man", "men", "woman", "women", "boy", "boys", "girl", "girls", "child", "children", "person", "people"},
}
"""What an image shows if most of its own captions have one of these words, the first kind that fits."""
SHOWN = (*KINDS, "other")


def kind_of_image(references: tuple[str, ...]) -> str:
    """``dog``, ``people`` or ``other``."""
    texts = [set(text.lower().replace(".", " ").split()) for text in references]
    for kind, words in KINDS.items():
        if 2 * sum(bool(words & text) for text in texts) > len(texts):
            return kind
    return "other"


def parts_of_objects(data: Rated, root: DataRoot, store: Path, model: Path) -> dict[str, FloatArray]:
    """S^o of each item over its content words alone and over the others, with all references, and its triplets.

    0 where a caption has no such word. Also the lowest product of a content word: the word that fits worst.
    """
    metric = Faier(Resources(features=str(store), model=str(model), data=str(root.path)))
    groups: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    for item in data.items:
        groups.setdefault((item.image, metric.chosen(item.references)), {})[item.candidate] = None
    triplets = metric.triplets(
        {t for (_, references), candidates in groups.items() for t in (*references, *candidates)}
    )
    made: dict[tuple[str, tuple[str, ...], str], tuple[float, float, float]] = {}
    for (image, references), candidates in groups.items():
        group = Group(image, references, (len(references),), tuple(candidates))
        for text, levels in zip(candidates, metric.source.products(group, triplets), strict=True):
            best = np.mean([products.max(axis=1) for products in levels[0]], axis=0)
            empty = np.array([word in EMPTY for word in words_of(metric.source, text)], dtype=bool)
            content, others = best[~empty], best[empty]
            made[image, references, text] = (
                float(content.mean()) if len(content) else 0.0,
                float(others.mean()) if len(others) else 0.0,
                float(content.min()) if len(content) else 0.0,
            )
    keys = [(item.image, metric.chosen(item.references), item.candidate) for item in data.items]
    columns = np.array([made[key] for key in keys]).T
    names = ("objects, content words", "objects, other words", "objects, the worst content word")
    number = np.array([len(triplets.get(item.candidate, ())) for item in data.items], dtype=np.float64)
    return {**dict(zip(names, columns, strict=True)), "number of triplets": number}


def columns_of(
    asked: argparse.Namespace, data: Rated, root: DataRoot, models: Mapping[str, Path]
) -> dict[str, FloatArray]:
    """Scores of everything that is compared."""
    columns: dict[str, FloatArray] = {}
    for place, (label, model) in enumerate(models.items()):
        say(f"{label} on {data.protocol}")
        with_all = faier_scores(data, root, asked.features, model, "all")
        columns[label] = with_all["faier"]
        if place == 0:
            without = faier_scores(data, root, asked.features, model, "none")
            columns |= {"objects": with_all["faier-object"], "relations": with_all["faier-relation"]}
            columns |= {f"{label}, no references": without["faier"]}
            columns |= {"objects, no references": without["faier-object"]}
            columns |= {"relations, no references": without["faier-relation"]}
            say("content words and others")
            columns |= parts_of_objects(data, root, asked.features, model)
    if asked.grid is not None:
        grid_store, network = asked.grid / "pyr30.h5", asked.grid / "seed1" / "model.safetensors"
        columns["REO relevance"] = scored(data, root, "reo", grid_store, network)["reo-relevance"]
        columns["mean grounding"] = scored(data, root, "tiger", grid_store, network)["grounding"]
    text = text_scores(data, root)
    return columns | {TITLES[name]: text[name] for name in ("cider", "spice") if name in text}


def analyse(data: Rated, columns: Mapping[str, FloatArray]) -> dict[str, Any]:
    """All numbers of one data set."""
    human = data.mean()
    _, codes = np.unique(np.array([item.image for item in data.items]), return_inverse=True)
    words = np.array([len(item.candidate.split()) for item in data.items], dtype=np.float64)
    triplets = columns["number of triplets"]
    shown = {name: values for name, values in columns.items() if name != "number of triplets"}
    kinds = np.array([kind_of_image(item.references) for item in data.items])

    def tau_c_among(chosen: NDArray[np.bool_]) -> dict[str, float]:
        """tau-c with the ratings of some items; without the columns that are the same for all of them."""
        few = chosen[data.item]
        among = Rated(data.items, data.item[few], data.value[few], data.protocol)
        return {name: among.tau_c(values) for name, values in shown.items() if np.ptp(values[among.item]) > 0}

    return {
        "protocol": data.protocol,
        "tau-c": {name: data.tau_c(values) for name, values in shown.items()},
        "by image": columns_by_image(shown, codes, human),
        "by rating": by_rating(shown, data.item, data.value),
        "overrated with length": {n: residuals(v, human, {"words": words})["words"] for n, v in shown.items()},
        "captions": {"no triplet": int((triplets == 0).sum()), "triplets": int((triplets > 0).sum())},
        "tau-c by triplets": {"no triplet": tau_c_among(triplets == 0), "triplets": tau_c_among(triplets > 0)},
        "images": {kind: len({i.image for i, k in zip(data.items, kinds, strict=True) if k == kind}) for kind in SHOWN},
        "tau-c by image": {kind: tau_c_among(kinds == kind) for kind in SHOWN},
    }


def tables(results: Mapping[str, Any]) -> str:
    """The page's tables as Markdown."""
    parts = []
    for found in results.values():
        if not isinstance(found, Mapping) or "by rating" not in found:
            continue
        of_image, of_rating = found["by image"], found["by rating"]
        rows = {
            name: [
                f"{found['tau-c'][name]:.3f}",
                *(f"{of_image[name][key]:.2f}" for key in ("share between images", "tau-b between images")),
                f"{of_image[name]['tau-b within images']:.2f}",
                *(decimals(found["tau-c by triplets"][which].get(name)) for which in ("triplets", "no triplet")),
                *(decimals(found["tau-c by image"][kind].get(name)) for kind in SHOWN),
            ]
            for name in found["tau-c"]
        }
        counted = [f"{found['captions'][which]:,} captions with {which}" for which in ("triplets", "no triplet")]
        kinds = [f"{found['images'][kind]:,} images: {kind}" for kind in SHOWN]
        head = ("column", "τ-c", "share between images", "τ-b between", "τ-b within", *counted, *kinds)
        parts.append(f"{found['protocol']}\n\n{table(rows, head)}")
        ratings = [key for key in next(iter(of_rating.values())) if not key.startswith("step")]
        steps = [key for key in next(iter(of_rating.values())) if key.startswith("step")]
        means = {
            name: [
                *(f"{values[key]:.3f}" for key in ratings),
                ", ".join(f"{values[key]:.2f}" for key in steps),
                f"{found['overrated with length'][name]:.2f}",
            ]
            for name, values in of_rating.items()
        }
        head = ("mean score at rating", *ratings, "steps, in standard deviations", "ρ of words and overrating")
        parts.append(table(means, head))
    return "\n\n".join(parts) + "\n"


def decimals(value: float | None) -> str:
    """Three of them; nothing where there is no number."""
    return "" if value is None else f"{value:.3f}"


def labelled(text: str) -> tuple[str, Path]:
    """``LABEL=FILE``."""
    label, _, path = text.partition("=")
    if not path or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text}: not of the form LABEL=FILE, or there is no such file")
    return label, Path(path)


def main(arguments: list[str] | None = None) -> None:
    """Score, analyse and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    path: Callable[[str], Path] = Path
    parser.add_argument("--data", type=path, required=True)
    parser.add_argument("--features", type=path, required=True)
    parser.add_argument("--model", type=labelled, action="append", required=True, metavar="LABEL=FILE")
    parser.add_argument(
        "--grid", type=path, metavar="DIR", help="--out of reproduce_flickr8k_grid.py, for TIGEr and REO"
    )
    parser.add_argument("--out", type=path, required=True)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        root = find_root(asked.data)
        models = dict(asked.model)
        results: dict[str, Any] = {"models": list(models)}
        for name, data in rated(root).items():
            results[name] = analyse(data.all, columns_of(asked, data.all, root, models))
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    with atomic_write(asked.out, "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)
    print(tables(results))


if __name__ == "__main__":
    main()
