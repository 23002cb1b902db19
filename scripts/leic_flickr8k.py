"""Agreement of trained LEICs with people on Flickr8k Expert and Composite's Flickr8k third.

python scripts/leic_flickr8k.py --data DIR --features cells.h5 --out leic.json \
    --models seed1/model.safetensors seed2/model.safetensors seed3/model.safetensors --parts part?/model.safetensors

``--models`` are networks of several seeds, by sentence; ``--parts`` are those of the folds of the test images, which
are one metric for all of these images. Printed: tau-c of each network, their mean and spread, and of the networks as
one, with bootstrap intervals over images.
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

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.core.records import FloatArray  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.leic.network import load_leic  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.stats.agreement import Correlations  # noqa: E402
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap  # noqa: E402
from capbench.weights.ensembles import write_ensemble  # noqa: E402
from scripts.checks import at_least, require_writable  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_grid_tables import HEADS, spread  # noqa: E402
from scripts.flickr8k_steps import Rated, rated, say  # noqa: E402

TOGETHER, PARTS = "as one", "systems, five parts"


def leic_scores(data: Rated, features: Path, model: Path) -> FloatArray:
    """(items) scores of a network or an ensemble."""
    resources = Resources(features=str(features), model=str(model))
    (scores,) = score(data.items, resolve_metrics(["leic"]), resources, dataset="flickr8k").values.values()
    return scores


def report(data: Rated, scores: dict[str, FloatArray], resamples: int) -> dict[str, Any]:
    """tau-c of each row with its interval."""
    images = np.array([item.image for item in data.items])
    stacked = {name: values[data.item] for name, values in scores.items()}
    correlations = Correlations.of("tau-c", stacked, data.value, unit=images[data.item])
    sample = draw_bootstrap(correlations, resamples=resamples, seed=0)
    intervals = {name: vars(one) for name, one in bootstrap_intervals(correlations, sample).items()}
    return {"protocol": data.protocol, "items": len(data.items), "ratings": len(data.value), "intervals": intervals}


def main(arguments: list[str] | None = None) -> None:
    """Print tables and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--models", type=Path, nargs="+", required=True)
    parser.add_argument("--parts", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--threads", type=at_least(1), default=1, help="of PyTorch")
    parser.add_argument("--resamples", type=at_least(100), default=1000, help="of the bootstrap")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    results: dict[str, Any] = {}
    try:
        require_writable(asked.out.parent)
        models = {f"network {place}": path for place, path in enumerate(asked.models, 1)}
        if asked.parts:
            models[PARTS] = asked.out.parent / "leic-parts.json"
            write_ensemble(models[PARTS], [load_leic(path) for path in asked.parts])
        results["trained"] = {str(n): load_leic(path).training["dev"] for n, path in enumerate(asked.models, 1)}
        for set_name, data in rated(find_root(asked.data)).items():
            scores = {}
            for name, path in models.items():
                say(f"{set_name}: {name}")
                scores[name] = leic_scores(data, asked.features, path)
            alone = [values for name, values in scores.items() if name != PARTS]
            if len(alone) > 1:
                # None of them was trained on these images, so an ensemble's score is the mean of theirs.
                scores[TOGETHER] = np.mean(alone, axis=0)
            say(f"{set_name}: statistics")
            results[set_name] = report(data, scores, asked.resamples)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    for set_name, head in HEADS.items():
        if set_name in results:
            intervals = results[set_name]["intervals"]
            taus = [one["value"] for name, one in intervals.items() if name.startswith("network ")]
            rows = {
                name: [f"{one['value']:.3f}", f"{one['low']:.3f} to {one['high']:.3f}"]
                for name, one in intervals.items()
            }
            print(f"{head}: mean of the networks {spread(taus, 3)}")
            print(table(rows, ("tau-c", "value", "95 % interval")))
    with atomic_write(asked.out, "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
