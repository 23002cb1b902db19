"""Difference between ViLBERTScore in bfloat16 and in float32, on the items of a data set with ratings.

Scores by caption (greatest and mean difference of P, R and F of each layer) and tau-c of the data set's main protocol.

Example: python -m scripts.vilbert_precision --features windows10.h5 --model model.safetensors --out bfloat16.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capbench.core.errors import CapbenchError
from capbench.core.files import sha256_file
from capbench.core.records import FloatArray
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.metrics.vilbertscore.files import load_vilbert
from capbench.studies.recipe_scores import Rated, write_json


def rated(root: DataRoot, name: str) -> Rated:
    """The items of a data set, with their ratings."""
    dataset = open_dataset({"expert": "flickr8k-expert", "composite-8k": "composite@8k"}[name], root)
    protocol = dataset.protocol(
        {"expert": "unaggregated-tau-c", "composite-8k": "same-text-out/correctness-tau-c"}[name]
    )
    (judged,) = dataset.load(protocol.items)
    ratings = judged.ratings[protocol.statistic.human]
    return Rated(judged.items, ratings.item, ratings.value, str(protocol))


@dataclass(frozen=True)
class Scored:
    """Scores of a data set's items.

    Attributes:
        columns: (n,) scores by column: P, R and F of every layer.
        signature: of the metric.
    """

    columns: dict[str, FloatArray]
    signature: str


def scores_of(data: Rated, asked: argparse.Namespace, **options: Any) -> Scored:
    """ViLBERTScore with every layer and these options."""
    layers = load_vilbert(asked.model).options.connections
    options["layer"] = f"1-{layers}" if layers > 1 else 1
    (request,) = resolve_metrics(["vilbertscore"], {"vilbertscore": options})
    resources = Resources(features=str(asked.features), model=str(asked.model))
    made = score(data.items, [request], resources, dataset="flickr8k")
    (signature,) = made.signatures.values()
    return Scored({key.column: values for key, values in made.values.items()}, signature)


def facts_of(data: Rated, asked: argparse.Namespace, tables: Iterable[Scored]) -> dict[str, Any]:
    """The protocol, and what the scores were computed with."""
    return {
        "protocol": data.protocol,
        "items": len(data.items),
        "sha256": {"model": sha256_file(asked.model), "features": sha256_file(asked.features)},
        "signatures": [table.signature for table in tables],
    }


def deviations(data: Rated, exact: dict[str, FloatArray], rough: dict[str, FloatArray]) -> dict[str, dict[str, float]]:
    """By column: differences of scores, and tau-c of both."""
    rows = {}
    for column, values in exact.items():
        apart = np.abs(values - rough[column])
        taus = {
            name: data.correlation("tau-c", scores)
            for name, scores in (("float32", values), ("bfloat16", rough[column]))
        }
        rows[column] = {
            "greatest": float(apart.max()),
            "mean": float(apart.mean()),
            "standard deviation of scores": float(values.std()),
            "tau-c float32": taus["float32"],
            "tau-c bfloat16": taus["bfloat16"],
        }
    return rows


def main() -> None:
    """Print the numbers and, with --out, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--ratings", default="expert", choices=("expert", "composite-8k"))
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    try:
        data = rated(find_root(asked.data), asked.ratings)
        exact, rough = (scores_of(data, asked, precision=precision) for precision in ("float32", "bfloat16"))
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    rows = deviations(data, exact.columns, rough.columns)
    for column, row in rows.items():
        print(column, " ".join(f"{name} {value:.5f}" for name, value in row.items()))
    if asked.out is not None:
        facts = {**facts_of(data, asked, (exact, rough)), "columns": rows}
        write_json(asked.out, facts)


if __name__ == "__main__":
    main()
