"""From small grid features to correlations with people: train a dual encoder on Flickr8k, score it, print the tables.

python scripts/reproduce_dual_encoder_flickr8k.py --data DIR --out DIR

DIR must hold ``flickr8k/`` (captions, splits, ExpertAnnotations.txt, mobilenetv2_grid49_pca256_int8.npz) and may hold
``composite/``. Steps: import the features, pool them, train one network a seed, join three as an ensemble, score
Flickr8k Expert and Composite's Flickr8k third, tabulate. What a step has finished is kept in --out: after an
interruption the same command goes on. ``--grid DIR``, the ``--out`` of ``reproduce_flickr8k_grid.py``, adds TIGEr and
REO to the tests; ``--faier DIR``, that of ``reproduce_faier_flickr8k.py``, adds FAIEr. No row is a paper's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.errors import CapbenchError  # noqa: E402
from capbench.files import atomic_write  # noqa: E402
from capbench.machine import keep_freed_memory  # noqa: E402
from capbench.models.dual_encoder.files import load_dual_encoder  # noqa: E402
from capbench.models.ensembles import write_ensemble  # noqa: E402
from capbench.records import FloatArray  # noqa: E402
from capbench.stats.agreement import Correlations  # noqa: E402
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap  # noqa: E402
from capbench.stats.significance import compare, permutations_to_use  # noqa: E402
from capbench.training.config_file import find_training, load_training  # noqa: E402
from capbench.training.dual_encoder.config import DualEncoderTraining  # noqa: E402
from capbench.training.dual_encoder.trainer import train_dual_encoder  # noqa: E402
from scripts.checks import at_least, require_file, require_writable  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_grid_tables import TITLES  # noqa: E402
from scripts.reproduce_faier_flickr8k import spread  # noqa: E402
from scripts.reproduce_flickr8k_grid import (  # noqa: E402
    GROUP,
    INPUTS,
    Rated,
    groups,
    make_features,
    rated,
    say,
    scored,
    text_scores,
    train_kept,
)

CONFIG = "dual-encoder-flickr8k"
METRIC = "dual-encoder"
COLUMNS = (METRIC, f"ref-{METRIC}")
COEFFICIENTS = ("tau-c", "tau-b", "spearman")


def settings_of(asked: argparse.Namespace, store: Path, seed: int) -> DualEncoderTraining:
    """The settings of one seed's training. Raises CapbenchError where the file or a change does not fit."""
    steps = [f"max_steps={asked.steps}"] if asked.steps else []
    given = [f"features={str(store)!r}", f"seed={seed}", f"threads={asked.threads}"]
    return load_training(DualEncoderTraining, find_training(asked.config), [*given, *steps, *asked.set])


def train(root: DataRoot, run: Path, settings: DualEncoderTraining) -> Path:
    """The model of one seed; an interrupted training goes on."""
    return train_kept(
        root, run, settings, train_dual_encoder, lambda entry: f"dev recall sum {entry['recall_sum']:.1f}"
    )


def other_scores(asked: argparse.Namespace, data: Rated, root: DataRoot, name: str) -> dict[str, list[FloatArray]]:
    """Text metrics, and TIGEr, REO and FAIEr under the networks of ``--grid`` and ``--faier``, one array a network."""
    others = {TITLES[metric]: [values] for metric, values in text_scores(data, root).items()}
    wanted = []
    if asked.grid is not None:
        folders = [asked.grid / f"seed{seed}" for seed in asked.other_seeds]
        wanted += [("tiger", ("tiger",), asked.grid, folders), ("reo", ("reo-relevance",), asked.grid, folders)]
    if asked.faier is not None:
        folders = [asked.faier / f"faier-flickr8k-seed{seed}" for seed in asked.other_seeds]
        wanted.append(("faier", ("faier",), asked.faier, folders))
    for metric, columns, place, folders in wanted:
        made = []
        for folder in folders:
            for path in (place / "pyr30.h5", folder / "model.safetensors"):
                require_file(path)
            say(f"{metric} under {folder.name} on {name}")
            made.append(scored(data, root, metric, place / "pyr30.h5", folder / "model.safetensors"))
        for column in columns:
            others[column] = [scores[column] for scores in made]
            if len(made) >= GROUP:
                others[f"{column}, mean of {GROUP}"] = [np.mean(others[column][:GROUP], axis=0)]
    return others


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
    # One row a network: the statistic is their mean, as for several draws of references.
    rows = {
        row: np.stack([s[data.item] for s in (networks[:width] if len(networks) >= width else [networks[0]] * width)])
        for row, networks in by_row.items()
    }
    images = np.array([item.image for item in data.items])
    agreement = Correlations.of("tau-c", rows, data.value, unit=images[data.item])
    sample = draw_bootstrap(agreement, resamples=resamples, seed=0)
    results["intervals"] = {name: vars(one) for name, one in bootstrap_intervals(agreement, sample).items()}
    permutations = max(3 * resamples, permutations_to_use(None, len(rows)))
    results["comparison"] = dataclasses.asdict(compare(agreement, sample=sample, permutations=permutations))
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--config", default=CONFIG, help="training file, or the name of a shipped one")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting")
    parser.add_argument("--steps", type=at_least(1), help="fewer steps, to try this script")
    parser.add_argument("--threads", type=at_least(1), default=1)
    parser.add_argument("--resamples", type=at_least(100), default=1000)
    parser.add_argument("--grid", type=Path, metavar="DIR", help="--out of reproduce_flickr8k_grid.py")
    parser.add_argument("--faier", type=Path, metavar="DIR", help="--out of reproduce_faier_flickr8k.py")
    parser.add_argument("--other-seeds", type=at_least(0), nargs="+", default=[1, 2, 3])
    parser.add_argument("--train-only", action="store_true", help="score nothing")
    asked = parser.parse_args(arguments)
    begin = time.monotonic()
    out: Path = asked.out
    keep_freed_memory()
    torch.set_num_threads(asked.threads)
    try:
        require_writable(out)
        root = find_root(asked.data)
        for name in INPUTS:
            root.file(name, what="Flickr8k")
        settings = [settings_of(asked, out / "pyr30.h5", seed) for seed in asked.seeds]
        data_sets = {} if asked.train_only else rated(root)
        store = make_features(root, out)
        name = Path(asked.config).stem
        models = [train(root, out / f"{name}-seed{seed}", one) for seed, one in zip(asked.seeds, settings, strict=True)]
        ensembles = []
        for number, group in enumerate(groups(models), 1):
            ensembles.append(out / f"{name}-ensemble{number}.json")
            write_ensemble(ensembles[-1], [load_dual_encoder(path) for path in group])
        results: dict[str, Any] = {"config": asked.config, "seeds": asked.seeds, "set": asked.set}
        results["steps"] = asked.steps
        results["dev"] = {path.parent.name: load_dual_encoder(path).training["dev"] for path in models}
        for key, data in data_sets.items():
            say(f"score {len(data.items):,} captions of {key}")
            single = [scored(data, root, METRIC, store, model) for model in models]
            joined = [scored(data, root, METRIC, store, path) for path in ensembles]
            others = other_scores(asked, data, root, key)
            say(f"statistics of {key}")
            results[key] = report(data, single, joined, others, asked.resamples)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    results["minutes of this run"] = round((time.monotonic() - begin) / 60, 1)
    with atomic_write(out / f"{name}.json", "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)
    shown = tables(results)
    with atomic_write(out / f"{name}.md", "w") as file:
        file.write(shown)
    print(shown)
    say(f"{out / f'{name}.json'}: everything; {results['minutes of this run']} minutes")


if __name__ == "__main__":
    main()
