"""From small grid features to correlations with people: train a dual encoder on Flickr8k, score it, print the tables.

python scripts/reproduce_dual_encoder_flickr8k.py --data DIR --out DIR

DIR must hold ``flickr8k/`` (captions, splits, ExpertAnnotations.txt, mobilenetv2_grid49_pca256_int8.npz) and may hold
``composite/``. Steps: import the features, pool them, train one network a seed, join three as an ensemble, score
Flickr8k Expert and Composite's Flickr8k third, tabulate. What a step has finished is kept in --out: after an
interruption the same command goes on. ``--grid DIR``, the ``--out`` of ``reproduce_flickr8k_grid.py``, adds TIGEr and
REO to the tests; ``--faier DIR``, that of ``reproduce_faier_flickr8k.py``, adds FAIEr. No row is a paper's.
The plug-in must be installed: ``pip install ./examples/dual-encoder``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.records import FloatArray  # noqa: E402
from capbench.datasets.root import DataRoot  # noqa: E402
from capbench.training.trainer import find_trainer  # noqa: E402
from scripts.checks import at_least  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_grid_tables import TITLES, spread  # noqa: E402
from scripts.flickr8k_steps import (  # noqa: E402
    GROUP,
    WINDOWS,
    Networks,
    Rated,
    begin,
    finish,
    join_networks,
    make_features,
    network_scores,
    options,
    rated,
    read_options,
    recall_sum,
    row_of,
    say,
    scored,
    tested,
    text_scores,
    train_kept,
)

CONFIG = "dual-encoder-flickr8k"
TRAINER = "clip"
METRIC = "dual-encoder"
COLUMNS = (METRIC, f"ref-{METRIC}")
COEFFICIENTS = ("tau-c", "tau-b", "spearman")


def other_scores(asked: argparse.Namespace, data: Rated, root: DataRoot, name: str) -> dict[str, list[FloatArray]]:
    """Text metrics, and TIGEr, REO and FAIEr under the networks of ``--grid`` and ``--faier``, one array a network."""
    wanted = []
    if asked.grid is not None:
        folders = tuple(asked.grid / f"seed{seed}" for seed in asked.other_seeds)
        wanted.append(Networks("tiger", ("tiger",), asked.grid, folders))
        wanted.append(Networks("reo", ("reo-relevance",), asked.grid, folders))
    if asked.faier is not None:
        folders = tuple(asked.faier / f"faier-flickr8k-seed{seed}" for seed in asked.other_seeds)
        wanted.append(Networks("faier", ("faier",), asked.faier, folders))
    text = {TITLES[metric]: [values] for metric, values in text_scores(data, root).items()}
    return text | network_scores(data, root, name, wanted)


def report(
    data: Rated,
    single: Sequence[dict[str, FloatArray]],
    joined: Sequence[dict[str, FloatArray]],
    others: Mapping[str, list[FloatArray]],
    resamples: int,
) -> dict[str, Any]:
    """All numbers of one data set.

    Args:
        data: items and ratings.
        single: columns of each seed's network.
        joined: likewise of each ensemble.
        others: scores of other metrics, several where they come from several networks.
        resamples: of bootstrap and permutation test.
    """
    by_row = {
        f"{column}{suffix}": [scores[column] for scores in networks]
        for column in COLUMNS
        for suffix, networks in (("", single), (", ensemble", joined))
        if networks
    }
    by_row |= dict(others)
    results: dict[str, Any] = {"protocol": data.protocol, "items": len(data.items), "ratings": len(data.value)}
    results["rows"] = {
        row: {c: [data.tau_c(scores, c) for scores in networks] for c in COEFFICIENTS}
        for row, networks in by_row.items()
    }
    width = len(single[:GROUP])
    rows = {row: row_of(data, networks, width) for row, networks in by_row.items()}
    results |= tested(data, rows, resamples)
    return results


def tables(results: Mapping[str, Any]) -> str:
    """The page's tables as Markdown."""
    parts = []
    for key in ("expert", "composite-8k"):
        if key not in results:
            continue
        numbers = results[key]
        rows = {}
        for row, by_coefficient in numbers["rows"].items():
            interval = numbers["intervals"][row]
            rows[row] = [
                spread(by_coefficient["tau-c"]),
                f"{interval['low']:.4f} – {interval['high']:.4f}",
                spread(by_coefficient["spearman"]),
            ]
        ordered = dict(sorted(rows.items(), key=lambda pair: -np.mean(numbers["rows"][pair[0]]["tau-c"])))
        head = f"`{numbers['protocol']}`: {numbers['ratings']:,} ratings of {numbers['items']:,} captions"
        parts.append(f"{head}\n\n{table(ordered, ('row', 'τ-c', '95 % interval', 'ρ'))}")
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Run all steps and print the tables."""
    parser = options(__doc__ or "", CONFIG, Path("results") / CONFIG)
    parser.add_argument("--grid", type=Path, metavar="DIR", help="--out of reproduce_flickr8k_grid.py")
    parser.add_argument("--faier", type=Path, metavar="DIR", help="--out of reproduce_faier_flickr8k.py")
    parser.add_argument("--other-seeds", type=at_least(0), nargs="+", default=[1, 2, 3])
    parser.add_argument("--train-only", action="store_true", help="score nothing")
    asked = read_options(parser, arguments)
    out, name = asked.out, Path(asked.config).stem
    began = time.monotonic()
    try:
        trainer = find_trainer(TRAINER)
        root, settings = begin(asked, trainer.settings_type(), out / f"{WINDOWS}.h5")
        data_sets = {} if asked.train_only else rated(root)
        store = make_features(root, out)
        models = [train_kept(root, out / f"{name}-seed{one.seed}", one, trainer.train, recall_sum) for one in settings]
        ensembles = join_networks(out, name, models, trainer.load)
        results: dict[str, Any] = {"config": asked.config, "seeds": asked.seeds, "set": asked.set}
        results["steps"] = asked.steps
        results["dev"] = {path.parent.name: trainer.load(path).training["dev"] for path in models}
        for key, data in data_sets.items():
            say(f"score {len(data.items):,} captions of {key}")
            single = [scored(data, root, METRIC, store, model) for model in models]
            joined = [scored(data, root, METRIC, store, path) for path in ensembles]
            others = other_scores(asked, data, root, key)
            say(f"statistics of {key}")
            results[key] = report(data, single, joined, others, asked.resamples)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    finish(results, tables, out / f"{name}.json", out / f"{name}.md", began)


if __name__ == "__main__":
    main()
