"""What settings of NNEval are chosen by: captions of held-out images of its training set, which nobody judged.

python scripts/select_nneval.py --data DIR --vectors vectors.bin [--out FILE] NAME=MODEL ...

Of each held-out image (a tenth of those of configs/train/nneval-coco-foreign.yaml) three captions of people, three of
machines and three of people about other images make pairs. Shares of pairs in which the first scores higher
(a tie is half): a person's above a machine's, a person's above a foreign one, a machine's above a foreign one; and τ-b
with made-up levels, foreign 0, machine 1, person 2. For the networks that are given and for each of their inputs.
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

from capbench.core.errors import CapbenchError, UsageError  # noqa: E402
from capbench.core.files import write_text  # noqa: E402
from capbench.core.records import FloatArray, Item  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.nneval.metric import input_matrix, input_requests  # noqa: E402
from capbench.metrics.nneval.network import INPUTS, read_nneval  # noqa: E402
from capbench.metrics.nneval.training import FOREIGN, HUMAN, NNEvalTraining, draw, held_out  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from capbench.training.settings import find_training, load_training  # noqa: E402

CONFIG = "nneval-coco-foreign"
LEVELS = ("foreign", "machine", "person")


def level(item: Item) -> int:
    """0 for a person's caption of another image, 1 for a machine's, 2 for a person's."""
    return 0 if item.system == FOREIGN else 2 if item.system == HUMAN else 1


def measures(scores: FloatArray, levels: FloatArray, images: list[str]) -> dict[str, float]:
    """Shares of pairs within images, and τ-b with the levels over all captions."""
    won: dict[str, list[FloatArray]] = {"person > machine": [], "person > foreign": [], "machine > foreign": []}
    places_by_image: dict[str, list[int]] = {}
    for place, image in enumerate(images):
        places_by_image.setdefault(image, []).append(place)
    for places in places_by_image.values():
        of_level = {name: scores[[p for p in places if levels[p] == n]] for n, name in enumerate(LEVELS)}
        for pair, values in won.items():
            first, second = (of_level[name] for name in pair.split(" > "))
            margin = np.sign(first[:, None] - second[None, :])
            values.append(((margin + 1) / 2).ravel())
    shares = {pair: round(100 * float(np.concatenate(values).mean()), 2) for pair, values in won.items()}
    return {**shares, "tau-b": round(correlation("tau-b", scores, levels).value, 4)}


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and keep what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--vectors", type=Path, required=True, help="word vectors of the training")
    parser.add_argument("--out", type=Path, help="a JSON file that takes the rows, beside those it holds")
    parser.add_argument("models", nargs="*", metavar="NAME=MODEL", help="networks that were trained on nneval-coco")
    asked = parser.parse_args(arguments)
    try:
        root = find_root(asked.data)
        config = load_training(NNEvalTraining, find_training(CONFIG), [f"vectors={str(asked.vectors.resolve())!r}"])
        drawn = draw(config, root, None, lambda line: print(line, file=sys.stderr))
        kept_back = held_out(config, drawn.items)
        items = [item for item, kept in zip(drawn.items, kept_back, strict=True) if kept]
        requests = input_requests(str(asked.vectors), config.df)
        print(f"scores of {len(items):,} captions; SPICE parses those it never saw", file=sys.stderr)
        table = score(items, requests, Resources(data=str(root.path)), dataset="held-out captions")
        inputs = input_matrix({key.column: values for key, values in table.values.items()})
        levels = np.array([float(level(item)) for item in items])
        images = [item.image for item in items]
        rows = {name: measures(column, levels, images) for name, column in zip(INPUTS, inputs.T, strict=True)}
        for given in asked.models:
            name, equals, path = given.partition("=")
            if not equals:
                raise UsageError(f"'{given}' names no row", hint="Write NAME=MODEL")
            rows[name] = measures(read_nneval(path).probabilities(inputs), levels, images)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    for name, row in rows.items():
        print(f"{name:34}" + "".join(f"{key} {value:8}  " for key, value in row.items()))
    if asked.out is not None:
        kept = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {}
        write_text(asked.out, json.dumps({**kept, **rows}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
