"""Choose LEIC's settings on Flickr8k's dev images, which nobody rated.

python scripts/select_leic_flickr8k.py --data DIR --features cells.h5 --out dev.json run1/model.safetensors ...

For each model: tau-c with made-up judgements (``scripts/pseudo_judgements.py``), and how often an image's own caption,
which is left out of the references, comes before another image's. No judgement by people, and no test image, is read.
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

import torch  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from scripts.checks import at_least, require_writable  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.select_flickr8k_grid import criterion, pseudo_items  # noqa: E402
from scripts.select_vilbert_flickr8k import own_and_foreign, wins  # noqa: E402


def select(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All numbers by model."""
    items, levels = pseudo_items(asked.data, asked.features, asked.seed)
    contest, owners = own_and_foreign(items)
    requests = resolve_metrics(["leic"])
    numbers: dict[str, dict[str, Any]] = {}
    for path in asked.models:
        resources = Resources(features=str(asked.features), model=str(path))
        (scores,) = score(items, requests, resources, dataset="flickr8k-dev").values.values()
        (contested,) = score(contest, requests, resources, dataset="flickr8k-dev-contest").values.values()
        numbers["/".join(path.parts[-2:])] = {
            "tau-c": criterion(scores, levels),
            "own first": float(wins(contested, owners).mean()),
        }
        print(f"{path}: {numbers['/'.join(path.parts[-2:])]}", file=sys.stderr, flush=True)
    print(f"{len(items):,} candidates of dev images")
    return numbers


def main(arguments: list[str] | None = None) -> None:
    """Print a table and, with --out, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--seed", type=at_least(0), default=0, help="of the candidates")
    parser.add_argument("--threads", type=at_least(1), default=1, help="of PyTorch")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    try:
        if asked.out is not None:
            require_writable(asked.out.parent)
        numbers = select(asked)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    print(
        table(
            {name: [f"{value:.4f}" for value in of.values()] for name, of in numbers.items()},
            ("", "tau-c", "own first"),
        )
    )
    if asked.out is not None:
        with atomic_write(asked.out, "w") as file:
            json.dump(numbers, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
