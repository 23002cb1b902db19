"""The rows of FAIEr's Table 4 on Flickr8k's images, from the networks that ``reproduce_faier_flickr8k.py`` trained.

python scripts/faier_flickr8k_table4.py --data DIR --out DIR --json table4.json

``--out`` is that of ``python scripts/reproduce_faier_flickr8k.py --variant ROW --seeds 1 --train-only``, once for each
row. A row with several seeds is the mean over its networks. Rows that are not trained yet are named and left out; what
was scored stays in the score cache. Prints the page's table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.core.errors import CapbenchError, MissingFileError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.core.records import Coefficient, FloatArray  # noqa: E402
from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.metrics.faier.training import TABLE_4  # noqa: E402
from capbench.stats.agreement import Correlations  # noqa: E402
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap  # noqa: E402
from scripts.checks import at_least  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_steps import say  # noqa: E402
from scripts.reproduce_faier_flickr8k import CONFIG, SETS, WAYS, Asked, faier_scores, rated  # noqa: E402

TITLES = {
    "fier": "FIEr",
    "aier-4-ref": "AIEr-4 ref",
    "fier-aier-4-ref": "FIEr+AIEr-4 ref",
    "faier-rel-4-ref": r"FAIEr\rel-4 ref",
    "faier-4-ref": "FAIEr-4 ref",
    "faier-rel-1-ref": r"FAIEr\rel-1 ref",
    "faier-1-ref": "FAIEr-1 ref",
    "faier-rel-r-ref": r"FAIEr\rel-r ref",
    "faier-r-ref": "FAIEr-r ref",
}
SHOWN: tuple[Coefficient, ...] = ("tau-c", "spearman")


def networks_of(out: Path, row: str) -> list[Path]:
    """The networks of a row, by seed. ``faier-r-ref`` is what the training file says without a row."""
    names = [f"{CONFIG}-{row}", *([CONFIG] if row == "faier-r-ref" else [])]
    return next((models for name in names if (models := sorted(out.glob(f"{name}-seed[0-9]*/model.safetensors")))), [])


def draws_of(asked: Asked, root: DataRoot, store: Path, models: list[Path]) -> dict[str, list[FloatArray]]:
    """Main scores of each rating under each network, by way of scoring; with one reference for each draw of it too."""
    by_way: dict[str, list[FloatArray]] = {way: [] for way in WAYS}
    for model in models:
        for way, sets, references in (
            ("all", (asked.all,), "all"),
            ("none", (asked.all,), "none"),
            ("one", asked.one, "all"),
        ):
            by_way[way] += [faier_scores(one, root, store, model, references)["faier"][one.item] for one in sets]
    return by_way


def measured(asked: Asked, by_row: Mapping[str, Mapping[str, list[FloatArray]]], resamples: int) -> dict[str, Any]:
    """Means over networks and draws, with intervals over images, by row, way and coefficient."""
    images = np.array([item.image for item in asked.all.items])[asked.all.item]
    results: dict[str, Any] = {row: {way: {} for way in WAYS} for row in by_row}
    for way in WAYS:
        stacked = {row: np.stack(ways[way]) for row, ways in by_row.items()}
        # Without references a network that reads nothing else gives all captions one score.
        rows = {row: scores for row, scores in stacked.items() if np.ptp(scores, axis=1).min() > 0}
        for coefficient in SHOWN:
            say(f"{WAYS[way]}: {coefficient} of {len(rows)} rows, {resamples:,} resamples")
            # Draws are as many for all rows of one agreement, so each row is one for itself.
            for row, scores in rows.items():
                agreement = Correlations.of(coefficient, {row: scores}, asked.all.value, unit=images)
                sample = draw_bootstrap(agreement, resamples=resamples, seed=0)
                (interval,) = bootstrap_intervals(agreement, sample).values()
                numbers = (interval.value, interval.low, interval.high)
                results[row][way][coefficient] = dict(zip(("value", "low", "high"), map(float, numbers), strict=True))
    return results


def tables(results: Mapping[str, Any]) -> str:
    """The page's tables as Markdown, one for each data set."""
    parts = []
    for key, _, _ in SETS:
        if key not in results:
            continue
        rows = {}
        for row, ways in results[key]["rows"].items():
            seeds = results["seeds"][row]
            name = f"{TITLES[row]} ({'one seed' if len(seeds) == 1 else f'mean of {len(seeds)} seeds'})"
            cells = [ways[way].get(coefficient) for way in ("one", "all", "none") for coefficient in SHOWN]
            rows[name] = ["" if c is None else f"{c['value']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" for c in cells]
        head = [f"{c}, {WAYS[way]}" for way in ("one", "all", "none") for c in ("τ-c", "ρ")]
        parts.append(f"{results[key]['protocol']}\n\n{table(rows, ('row', *head))}")
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Score all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--resamples", type=at_least(100), default=1000)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    out: Path = asked.out
    try:
        root, store = find_root(asked.data), out / "pyr30.h5"
        networks = {row: networks_of(out, row) for row in TABLE_4}
        for row in [row for row, models in networks.items() if not models]:
            say(f"{row} is not trained yet: python scripts/reproduce_faier_flickr8k.py --variant {row} --train-only")
        networks = {row: models for row, models in networks.items() if models}
        if not networks:
            raise MissingFileError("holds no network", path=out, hint="Train some with reproduce_faier_flickr8k.py")
        results: dict[str, Any] = {
            "config": CONFIG,
            "resamples": asked.resamples,
            "seeds": {
                row: [int(model.parent.name.rpartition("seed")[2]) for model in of_row]
                for row, of_row in networks.items()
            },
        }
        for key, data in rated(root).items():
            by_row = {}
            for row, models in networks.items():
                say(f"{row} on {key}, {len(models)} networks")
                by_row[row] = draws_of(data, root, store, models)
            results[key] = {"protocol": f"{data.all.protocol} and {data.one[0].protocol}"}
            results[key]["rows"] = measured(data, by_row, asked.resamples)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    with atomic_write(asked.json, "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)
    print(tables(results))


if __name__ == "__main__":
    main()
