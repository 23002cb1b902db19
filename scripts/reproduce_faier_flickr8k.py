"""From small grid features to correlations with people: train FAIEr on Flickr8k, score it, print the tables.

python scripts/reproduce_faier_flickr8k.py --data DIR --out DIR

DIR must hold ``flickr8k/`` (captions, splits, ExpertAnnotations.txt, mobilenetv2_grid49_pca256_int8.npz; for boxes
yolox_nano_boxes.npz too) and may hold ``composite/``. SPICE's parser must be set up ('capbench setup spice'). Steps:
import the features, pool them, parse captions that never were parsed, train one network a seed, join three as an
ensemble, score with all references, with one (five draws) and with none, tabulate. What a step has finished is kept in
--out: after an interruption the same command goes on. All models and rows are ours; none is the paper's.

``--config`` names another training file, whose rows are written apart; ``--set`` changes a setting; ``--variant`` takes
a row of the paper's Table 4. ``--grid DIR``, the ``--out`` of ``reproduce_flickr8k_grid.py``, adds TIGEr and REO to the
tests.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from capbench.core.errors import CapbenchError, MissingFileError  # noqa: E402
from capbench.core.records import FloatArray  # noqa: E402
from capbench.datasets.opening import open_dataset  # noqa: E402
from capbench.datasets.root import DataRoot  # noqa: E402
from capbench.features.pooling import BoxPooling, parse_pooling, pool_store, read_boxes  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.faier.files import load_faier  # noqa: E402
from capbench.metrics.faier.training import TABLE_4, FaierTraining, row_changes, train_faier  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.weights.ensembles import network_files  # noqa: E402
from scripts.checks import at_least  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_grid_tables import TITLES, spread  # noqa: E402
from scripts.flickr8k_steps import (  # noqa: E402
    GROUP,
    Networks,
    Rated,
    begin,
    finish,
    import_cells,
    join_networks,
    network_scores,
    options,
    read_options,
    recall_sum,
    row_of,
    say,
    tested,
    text_scores,
    train_kept,
)

BOXES = "flickr8k/yolox_nano_boxes.npz"
CONFIG = "faier-flickr8k"
COLUMNS = ("faier", "faier-object", "faier-relation")
SETS = (("expert", "flickr8k-expert", "expert"), ("composite-8k", "composite@8k", "correctness"))
WAYS = {"all": "all references", "one": "one reference", "none": "no references"}
COEFFICIENTS = ("tau-c", "tau-b", "spearman")


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """Items of a data set under the ways in which they are scored: all references, and draws of one."""

    all: Rated
    one: tuple[Rated, ...]


def make_store(root: DataRoot, out: Path, regions: str) -> Path:
    """The store of a kind of regions: ``pyr30``, ``boxes`` or ``both``."""
    pooled = out / f"{regions}.h5"
    if pooled.is_file():
        return pooled
    cells = import_cells(root, out)
    say(f"pool 7 x 7 cells into {regions}")
    windows = None if regions == "boxes" else parse_pooling("pyr30")
    boxes = None
    if regions != "pyr30":
        file = read_boxes(root.file(BOXES, what="boxes of Flickr8k's images"))
        boxes = BoxPooling(file, top=18 if regions == "both" else None)
    pool_store(cells, pooled, windows, boxes=boxes)
    return pooled


def rated(root: DataRoot) -> dict[str, Asked]:
    """Flickr8k Expert's items, and Composite's of Flickr8k images if its file is there, each under both protocols."""
    asked = {}
    for key, name, aspect in SETS:
        dataset = open_dataset(name, root)
        try:
            sets = []
            for protocol in (dataset.protocol(None), dataset.protocol(f"{dataset.name}/one-reference")):
                loaded = dataset.load(protocol.items)
                sets.append(
                    [Rated(j.items, j.ratings[aspect].item, j.ratings[aspect].value, str(protocol)) for j in loaded]
                )
        except MissingFileError as error:
            if key == "expert":
                raise
            say(f"without Composite: {error}")
            continue
        asked[key] = Asked(sets[0][0], tuple(sets[1]))
    return asked


def faier_scores(data: Rated, root: DataRoot, store: Path, model: Path, references: str) -> dict[str, FloatArray]:
    """FAIEr's columns, through the score cache. An ensemble's are means over its networks, as its own would be."""
    by_network = []
    for network in network_files(model):
        resources = Resources(features=str(store), model=str(network), data=str(root.path))
        requests = resolve_metrics(["faier"], {"faier": {"references": references}}, resources)
        made = score(data.items, requests, resources, dataset="flickr8k")
        by_network.append({key.column: values for key, values in made.values.items()})
    return {column: np.mean([scores[column] for scores in by_network], axis=0) for column in by_network[0]}


def correlations(asked: Asked, root: DataRoot, store: Path, model: Path, name: str) -> dict[str, Any]:
    """Everything about one model on one data set: by way of scoring and column, each coefficient; and its scores."""
    numbers: dict[str, Any] = {}
    kept: dict[str, dict[str, FloatArray]] = {}
    for way, references in (("all", "all"), ("none", "none")):
        say(
            f"score {len(asked.all.items):,} items of {name} with {WAYS[way]} under {model.stem} in {model.parent.name}"
        )
        scores = faier_scores(asked.all, root, store, model, references)
        # A level that reads nothing (AIEr's triplets of no reference) is 0 for all captions: no correlation is defined.
        scores = {column: values for column, values in scores.items() if np.ptp(values) > 0}
        kept[way] = scores
        numbers[way] = {
            column: {c: asked.all.tau_c(values, c) for c in COEFFICIENTS} for column, values in kept[way].items()
        }
    say(f"score {len(asked.one)} draws of one reference under {model.stem} in {model.parent.name}")
    drawn = [(draw, faier_scores(draw, root, store, model, "all")) for draw in asked.one]
    numbers["one"] = {
        column: {c: float(np.mean([draw.tau_c(s[column], c) for draw, s in drawn])) for c in COEFFICIENTS}
        for column in drawn[0][1]
    }
    return {"numbers": numbers, "scores": kept}


def report(
    asked: Asked,
    single: list[dict[str, Any]],
    joined: list[dict[str, Any]],
    others: Mapping[str, list[FloatArray]],
    resamples: int,
) -> dict[str, Any]:
    """All numbers of one data set.

    Args:
        asked: items and ratings.
        single: :func:`correlations` of each seed's network.
        joined: likewise of each ensemble.
        others: scores of other metrics, several where they come from several networks.
        resamples: of bootstrap and permutation test.
    """
    data = asked.all
    results: dict[str, Any] = {"protocol": data.protocol, "one": asked.one[0].protocol, "items": len(data.items)}
    results["ratings"] = len(data.value)
    results["faier"] = {
        suffix: [entry["numbers"] for entry in entries] for suffix, entries in (("", single), (", ensemble", joined))
    }
    results["others"] = {
        name: {c: [data.tau_c(scores, c) for scores in networks] for c in COEFFICIENTS}
        for name, networks in others.items()
    }
    rows: dict[str, FloatArray] = {}
    width = len(single[:GROUP])
    for suffix, entries in (("", single[:GROUP]), (", ensemble", joined[:1])):
        for way in ("all", "none"):
            for column in ("faier", "faier-object") if entries else ():
                if all(column in entry["scores"][way] for entry in entries):
                    stacked = [entry["scores"][way][column][data.item] for entry in entries]
                    rows[f"{column}, {WAYS[way]}{suffix}"] = np.stack(stacked * (width // len(stacked)))
    rows |= {name: row_of(data, networks, width) for name, networks in others.items()}
    results |= tested(data, rows, resamples)
    return results


def tables(results: Mapping[str, Any]) -> str:
    """The page's tables as Markdown."""
    parts = []
    for key, _, _ in SETS:
        if key not in results:
            continue
        found = results[key]
        rows: dict[str, list[str]] = {}
        for suffix, entries in found["faier"].items():
            for column in COLUMNS:
                if entries and all(column in entry["all"] for entry in entries):
                    cells = [
                        [entry[way][column][c] for entry in entries if column in entry[way]]
                        for c in ("tau-c", "spearman")
                        for way in WAYS
                    ]
                    rows[column + suffix] = [spread(values) if values else "" for values in cells]
        for name, by_coefficient in found["others"].items():
            tau_c, rho = (spread(by_coefficient[c]) for c in ("tau-c", "spearman"))
            rows[name] = [tau_c, "", "", rho, "", ""]
        head = [f"{c}, {text}" for c in ("τ-c", "ρ") for text in WAYS.values()]
        parts.append(f"{found['protocol']} and {found['one']}\n\n{table(rows, ('column', *head))}")
    return "\n\n".join(parts) + "\n"


def other_scores(asked: argparse.Namespace, data: Rated, root: DataRoot, name: str) -> dict[str, list[FloatArray]]:
    """Text metrics; and TIGEr and REO under the networks of ``--grid``, the folder of the other reproduction."""
    wanted = []
    if asked.grid is not None:
        folders = tuple(asked.grid / f"seed{seed}" for seed in asked.grid_seeds)
        wanted.append(Networks("tiger", ("tiger",), asked.grid, folders))
        wanted.append(Networks("reo", ("reo-relevance", "reo-omission"), asked.grid, folders))
    text = {TITLES[metric]: [values] for metric, values in text_scores(data, root).items()}
    return text | network_scores(data, root, name, wanted)


def main(arguments: list[str] | None = None) -> None:
    """Run all steps and print the tables."""
    parser = options(__doc__ or "", CONFIG, Path("results") / CONFIG)
    parser.add_argument("--regions", choices=("pyr30", "boxes", "both"), default="pyr30")
    parser.add_argument("--variant", choices=sorted(TABLE_4), help="a row of the paper's Table 4")
    parser.add_argument(
        "--grid", type=Path, metavar="DIR", help="--out of reproduce_flickr8k_grid.py, for TIGEr and REO"
    )
    parser.add_argument("--grid-seeds", type=at_least(0), nargs="+", default=[1, 2, 3])
    parser.add_argument("--train-only", action="store_true", help="score nothing")
    asked = read_options(parser, arguments)
    out: Path = asked.out
    name = Path(asked.config).stem + (f"-{asked.variant}" if asked.variant else "")
    began = time.monotonic()
    try:
        row = row_changes(asked.variant) if asked.variant else []
        root, settings = begin(asked, FaierTraining, out / f"{asked.regions}.h5", row)
        data_sets = {} if asked.train_only else rated(root)
        store = make_store(root, out, asked.regions)
        models = [train_kept(root, out / f"{name}-seed{one.seed}", one, train_faier, recall_sum) for one in settings]
        ensembles = join_networks(out, name, models, load_faier)
        results: dict[str, Any] = {"config": asked.config, "seeds": asked.seeds, "set": asked.set}
        results["variant"], results["steps"] = asked.variant, asked.steps
        results["dev"] = {path.parent.name: load_faier(path).training["dev"] for path in models}
        for key, data in data_sets.items():
            single = [correlations(data, root, store, model, key) for model in models]
            joined = [correlations(data, root, store, path, key) for path in ensembles]
            others = other_scores(asked, data.all, root, key)
            say(f"statistics of {key}")
            results[key] = report(data, single, joined, others, asked.resamples)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    finish(results, tables, out / f"{name}.json", out / f"{name}.md", began)


if __name__ == "__main__":
    main()
