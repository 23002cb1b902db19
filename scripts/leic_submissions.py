"""LEIC as its paper uses it: a network for each of twelve systems, and the score of the system's captions as a whole.

python scripts/leic_submissions.py --data DIR --features cells.h5 --out DIR

Systems and images are those of ``machine_captions/where_image2`` (Flickr8k's 1,000 test images). For each system and
each fold of the images a network learns to tell people's captions from the system's on the other images; a system's
score is the mean probability that a person wrote its captions, over the images that the networks did not see and over
the last ten epochs. Beside it stand the scores that CIDEr, METEOR, SPICE and others give the systems. No judgement by
people is read: there is none of these captions. What is trained is kept in --out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write, read_lines  # noqa: E402
from capbench.core.records import Item  # noqa: E402
from capbench.datasets.captions import load_captions, read_machine_captions  # noqa: E402
from capbench.datasets.human_machine import MACHINES  # noqa: E402
from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.metrics.leic.training import LeicTraining, train_leic  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from capbench.training.settings import find_training, load_training  # noqa: E402
from scripts.checks import at_least, require_writable  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402

CONFIG = "leic-flickr8k-systems"
LIST = "machine_captions/where_image2/imgs_flickr8k.txt"
TEXT = ("bleu-4", "rouge-l", "meteor", "cider")
LAST = 10
"""Epochs over which the paper takes the mean."""


def held_out(run: Path) -> dict[str, float]:
    """Means over the last epochs of a run: ``p machine``, ``p human``, ``accuracy``."""
    lines = [json.loads(line) for line in read_lines(run / "log.jsonl") if line.strip()]
    evaluations = [line for line in lines if line["kind"] == "evaluation"][-LAST:]
    return {key: float(np.mean([line[key] for line in evaluations])) for key in ("p machine", "p human", "accuracy")}


def of_system(root: DataRoot, asked: argparse.Namespace, system: str, seed: int) -> dict[str, float]:
    """A system's numbers: means over folds."""
    numbers = []
    for part in range(1, asked.folds + 1):
        changes = [
            f"features={str(asked.features)!r}",
            f"systems=[flickr8k_{system}]",
            f"folds={{of: {asked.folds}, out: {part}}}",
            f"seed={seed}",
            f"threads={asked.threads}",
            "device=cpu",
            *asked.set,
        ]
        settings = load_training(LeicTraining, find_training(CONFIG), changes)
        run = asked.out / f"seed{seed}" / f"{system}-part{part}"
        if not (run / "model.safetensors").is_file():
            result = train_leic(settings, run, root=root)
            if result.model is None:
                raise SystemExit(130)
        numbers.append(held_out(run))
    print(f"[{time.strftime('%H:%M:%S')}] seed {seed}, {system}: {numbers}", file=sys.stderr, flush=True)
    return {key: float(np.mean([one[key] for one in numbers])) for key in numbers[0]}


def text_scores(root: DataRoot) -> dict[str, dict[str, float]]:
    """Corpus scores of the systems, metric by metric."""
    captions = load_captions("flickr8k", root)
    machine = read_machine_captions([root.file(LIST, what="the list of images")], captions)
    scores: dict[str, dict[str, float]] = {}
    for system in MACHINES:
        written = machine.systems[f"flickr8k_{system}"]
        items = [Item(image, text, tuple(captions[image])) for image, text in written.items()]
        made = score(items, resolve_metrics(TEXT), dataset=f"flickr8k-{system}")
        for key, value in made.corpus.items():
            scores.setdefault(key.column, {})[system] = value
    return scores


def taus(leic: Mapping[str, float], text: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Kendall's tau-b of the systems' order with that of each metric."""
    ours = np.array([leic[system] for system in MACHINES])
    return {
        name: correlation("tau-b", ours, np.array([of[system] for system in MACHINES])).value
        for name, of in text.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Train, print tables and write results.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folds", type=at_least(2), default=2)
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=[1])
    parser.add_argument("--threads", type=at_least(1), default=1, help="of PyTorch")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    try:
        require_writable(asked.out)
        root = find_root(asked.data)
        leic: dict[str, list[dict[str, float]]] = {system: [] for system in MACHINES}
        for seed in asked.seeds:
            for system in MACHINES:
                leic[system].append(of_system(root, asked, system, seed))
        text = text_scores(root)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    means = {system: {key: float(np.mean([one[key] for one in of])) for key in of[0]} for system, of in leic.items()}
    order = taus({system: of["p machine"] for system, of in means.items()}, text)
    rows = {
        system: [
            *(f"{of[key]:.3f}" for key in ("p machine", "p human", "accuracy")),
            *(f"{text[name][system]:.3f}" for name in text),
        ]
        for system, of in means.items()
    }
    print(table(rows, ("system", "LEIC", "of people's captions", "accuracy", *text)))
    print(
        table({name: [f"{tau:.3f}"] for name, tau in order.items()}, ("order of the systems by", "tau-b with LEIC's"))
    )
    results: dict[str, Any] = {"folds": asked.folds, "seeds": asked.seeds, "leic": leic, "text": text, "tau-b": order}
    with atomic_write(asked.out / "results.json", "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
