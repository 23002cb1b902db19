"""From small grid features to correlations with people: train ViLBERT on Flickr8k, score ViLBERTScore, tabulate.

python scripts/reproduce_vilbert_flickr8k.py --data DIR --out DIR

DIR must hold ``flickr8k/`` (captions, splits, ExpertAnnotations.txt, mobilenetv2_grid49_pca256_int8.npz) and may hold
``composite/``. Steps: import the features, pool them, train one network a seed, join the networks as an ensemble, score
every layer with images seen and with blank ones, tabulate. What a step has finished is kept in --out: after an
interruption the same command goes on. All models and rows are ours; none is that of a paper.
"""

from __future__ import annotations

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
from capbench.metrics.vilbertscore.files import load_vilbert  # noqa: E402
from capbench.metrics.vilbertscore.training import train_vilbert  # noqa: E402
from capbench.metrics.vilbertscore.training_data import VilbertTraining  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from capbench.weights.ensembles import write_ensemble  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_grid_tables import HEADS, TITLES, spread  # noqa: E402
from scripts.flickr8k_steps import (  # noqa: E402
    Rated,
    begin,
    finish,
    make_features,
    options,
    rated,
    read_options,
    say,
    tested,
    text_scores,
    train_kept,
)
from scripts.select_vilbert_flickr8k import vilbertscores  # noqa: E402

CONFIG = "vilbert-flickr8k"
WINDOWS, STORE = "3x3/2+7x7/1", "windows10"
COMPARED = ("cider", "meteor", "spice")
Scores = Mapping[str, FloatArray]


def describe(entry: dict[str, Any]) -> str:
    """An evaluation in words."""
    return f"dev alignment {entry['alignment']:.1f} %, matching {entry['matching_near']:.1f} %"


def report(data: Rated, single: Sequence[Scores], together: Scores, text: Scores, resamples: int) -> dict[str, Any]:
    """All numbers of one set of ratings.

    Args:
        data: items and ratings.
        single: columns under each seed's network.
        together: columns under the ensemble; empty without one.
        text: scores of metrics that look at no image.
        resamples: of the bootstrap; a third of the permutation test's.
    """
    results: dict[str, Any] = {"protocol": data.protocol, "items": len(data.items), "ratings": len(data.value)}
    human = data.mean()

    def agreement(scores: FloatArray) -> dict[str, float]:
        mean_tau_b = correlation("tau-b", scores, human).value
        return {"tau-c": data.tau_c(scores), "tau-b": data.tau_c(scores, "tau-b"), "mean-tau-b": mean_tau_b}

    rows: dict[str, list[dict[str, float]]] = {}
    for column in single[0]:
        rows[column] = [agreement(scores[column]) for scores in single]
    rows |= {f"{column}, ensemble": [agreement(scores)] for column, scores in together.items()}
    rows |= {name: [agreement(scores)] for name, scores in text.items()}
    results["agreement"] = {
        name: {key: [one[key] for one in values] for key in values[0]} for name, values in rows.items()
    }
    # One row a network: the statistic is their mean.
    last = max(int(column.partition(",")[0].rpartition("-")[2]) for column in single[0])
    main = (f"vilbertscore-f-{last}", f"vilbertscore-f-{last}, blank")
    stacked = {column: np.stack([scores[column][data.item] for scores in single]) for column in main}
    for column in main if together else ():
        stacked[f"{column}, ensemble"] = np.stack([together[column][data.item]] * len(single))
    stacked |= {TITLES[n]: np.stack([text[n][data.item]] * len(single)) for n in COMPARED if n in text}
    return results | tested(data, stacked, resamples)


def tables(results: Mapping[str, Any]) -> str:
    """All tables as Markdown; numbers of our models are mean ± standard deviation over seeds."""
    parts = [f"Seeds {', '.join(map(str, results['seeds']))}."]
    for name in (name for name in HEADS if name in results):
        of_name = results[name]
        cells = {
            TITLES.get(column, column): [spread(values[key]) for key in ("tau-c", "tau-b", "mean-tau-b")]
            for column, values in of_name["agreement"].items()
        }
        parts += [
            f"### {HEADS[name]}: {of_name['ratings']:,} ratings",
            table(cells, ("column", "τ-c", "τ-b", "τ-b with the mean rating")),
        ]
        ranks = of_name["comparison"]["ranks"]
        intervals = {
            column: [f"{one['value']:.4f}", f"{one['low']:.4f} to {one['high']:.4f}", str(ranks[column])]
            for column, one in of_name["intervals"].items()
        }
        parts.append(table(intervals, ("τ-c, mean over seeds", "value", "95 % bootstrap interval (images)", "rank")))
        pairs = {
            f"{pair['better']} over {pair['worse']}": [
                f"{pair['difference']:.4f}",
                f"{pair['low']:.4f} to {pair['high']:.4f}",
                f"{pair['p_adjusted']:.3f}",
            ]
            for pair in of_name["comparison"]["pairs"]
        }
        parts.append(table(pairs, ("pair", "difference", "95 % interval", "p (permutation, Holm)")))
    dev = {seed: [f"{numbers[key]:.1f}" for key in results["dev columns"]] for seed, numbers in results["dev"].items()}
    parts += ["### Accuracy on dev, %", table(dev, ("", *results["dev columns"]))]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Carry out all steps."""
    asked = read_options(options(__doc__ or "", CONFIG, Path("results") / CONFIG), arguments)
    out: Path = asked.out
    began = time.monotonic()
    try:
        root, settings = begin(asked, VilbertTraining, out / f"{STORE}.h5")
        rated_by_name = rated(root)
        features = make_features(root, out, WINDOWS, STORE)
        models = [train_kept(root, out / f"seed{one.seed}", one, train_vilbert, describe) for one in settings]
        ensemble = out / "ensemble.json"
        loaded = [load_vilbert(path) for path in models]
        if len(models) > 1:
            write_ensemble(ensemble, loaded)
        results: dict[str, Any] = {"seeds": asked.seeds}
        results["dev"] = {path.parent.name: model.training["dev"] for path, model in zip(models, loaded, strict=True)}
        first = next(iter(results["dev"].values()))
        results["dev columns"] = [key for key in first if key not in ("step", "epoch")]
        for name, data in rated_by_name.items():
            say(f"text metrics on {name}")
            text = text_scores(data, root)
            single = []
            for path in models:
                say(f"ViLBERTScore of {path.parent.name} on {name}")
                single.append(vilbertscores(data.items, features, path, "flickr8k", root.path))
            # An ensemble's score is the mean of its networks' scores.
            together = {c: np.mean([scores[c] for scores in single], axis=0) for c in single[0] if len(single) > 1}
            say(f"statistics of {name}")
            results[name] = report(data, single, together, text, asked.resamples)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    finish(results, tables, out / "results.json", out / "tables.md", began)


if __name__ == "__main__":
    main()
