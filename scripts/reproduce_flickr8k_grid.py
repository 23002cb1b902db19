"""From small grid features to correlations with people: train SCAN on Flickr8k, score TIGEr and REO, print the tables.

python scripts/reproduce_flickr8k_grid.py --data DIR --out DIR

DIR must hold ``flickr8k/`` (captions, splits, ExpertAnnotations.txt, mobilenetv2_grid49_pca256_int8.npz) and may hold
``composite/``. Steps: import the features, pool them, train one network a seed, join each three of them (as an
ensemble, and merged into one network), fit REO's covariance on the training captions, score, tabulate. What a step has
finished is kept in --out: after an interruption the same command goes on. All models and rows are ours; none is that
of a paper.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write, read_json, read_text  # noqa: E402
from capbench.core.records import FloatArray, image_id  # noqa: E402
from capbench.datasets.root import DataRoot  # noqa: E402
from capbench.metrics.grounding.training import ScanTraining, train_scan  # noqa: E402
from capbench.training.settings import find_training, load_training  # noqa: E402
from scripts.flickr8k_grid import MAIN, Grounded, columns, ground, mean_of  # noqa: E402
from scripts.flickr8k_grid_analysis import by_image, by_rating, parts_of_distance, residuals  # noqa: E402
from scripts.flickr8k_grid_tables import TITLES, tables  # noqa: E402
from scripts.flickr8k_steps import (  # noqa: E402
    GROUP,
    TEXT,
    WINDOWS,
    Rated,
    begin,
    finish,
    groups,
    make_features,
    options,
    rated,
    read_options,
    recall_sum,
    say,
    scored,
    tested,
    text_scores,
    train_kept,
)

CONFIG = "scan-flickr8k-grid"
CHOSEN = "tiger half τ=1.5"


def fit_reo(root: DataRoot, model: Path, features: Path) -> None:
    """REO's covariance on the captions of the training images, beside the model."""
    from capbench.datasets.captions import load_captions
    from capbench.metrics.grounding.grounding import Attention, open_source
    from capbench.metrics.reo.metric import default_path, write_covariance
    from capbench.metrics.reo.training import fit_covariance

    if default_path(model).is_file():
        return
    say(f"fit REO's covariance of {model.parent.name}")
    listed = read_text(root.file("flickr8k/Flickr_8k.trainImages.txt", what="Flickr8k's training images")).split()
    every = load_captions("flickr8k", root)
    captions = {image_id(name): every[image_id(name)] for name in listed}
    source = open_source(str(features), str(model))
    options = source.model.options
    attention = Attention(options.lambda_softmax, options.feature_norm)
    covariance = fit_covariance(source, captions, attention, corpus="flickr8k/Flickr_8k.trainImages.txt")
    write_covariance(default_path(model), covariance)


def recall(root: DataRoot, model: Path, features: Path, config: str, split: str) -> dict[str, Any]:
    """Recall on a split, kept beside the model."""
    from capbench.metrics.grounding.scan_files import load_scan
    from capbench.training.matching_task import evaluate_words

    kept = model.parent / f"recall-{split}.json"
    if not kept.is_file():
        say(f"recall of {model.parent.name} on {split}")
        settings = load_training(ScanTraining, find_training(config), [f"features={str(features)!r}"])
        recalls = evaluate_words(settings, load_scan(model), split, root).to_dict()
        with atomic_write(kept, "w") as file:
            json.dump(recalls, file)
    loaded: dict[str, Any] = read_json(kept)
    return loaded


def grounded(out: Path, name: str, data: Rated, features: Path, model: Path) -> Grounded:
    """Grounding vectors of one model, kept beside it."""
    kept = model.parent / f"grounding-{name}.npz"
    keys = np.frombuffer(b"".join(item.key for item in data.items), dtype=np.uint8)
    if kept.is_file():
        with np.load(kept, allow_pickle=False) as stored:
            if np.array_equal(stored["keys"], keys):
                return Grounded(stored["candidate"], stored["references"], stored["counts"])
    say(f"ground {len(data.items):,} candidates of {name} under {model.parent.name}")
    made = ground(data.items, features, model)
    with atomic_write(kept, "wb") as file:
        np.savez(file, keys=keys, **vars(made))
    return made


def report(
    data: Rated,
    single: list[Grounded],
    merged: list[Grounded],
    reo: dict[str, list[dict[str, FloatArray]]],
    text: dict[str, FloatArray],
    resamples: int,
) -> dict[str, Any]:
    """All numbers of one set of ratings.

    Args:
        data: items and ratings.
        single: grounding vectors under each seed's network.
        merged: under each merged network.
        reo: REO's columns under each of the networks ``""`` (single), ``", ensemble"`` and ``", merged"``; or none.
        text: scores of metrics that look at no image.
        resamples: of bootstrap and permutation test.
    """
    named = [columns(vectors) for vectors in single]
    kinds = {"": named, ", ensemble": [columns(mean_of(group)) for group in groups(single)]}
    kinds[", merged"] = [columns(vectors) for vectors in merged]
    results: dict[str, Any] = {"protocol": data.protocol, "items": len(data.items), "ratings": len(data.value)}
    for coefficient in ("tau-c", "tau-b", "spearman"):
        values: dict[str, list[float]] = {}
        for suffix, networks in [*kinds.items(), *reo.items()]:
            for name in networks[0] if networks else ():
                values[name + suffix] = [data.tau_c(scores[name], coefficient) for scores in networks]
        results[coefficient] = values | {name: [data.tau_c(scores, coefficient)] for name, scores in text.items()}
    # One row a network: the statistic is their mean, as for several draws of references.
    few = named[:GROUP]
    rows = {name: np.stack([scores[name][data.item] for scores in few]) for name in (*MAIN, CHOSEN)}
    # All of REO's columns: which of them agrees best is seen in these judgements, so the correction counts them all.
    for column in reo[""][0] if reo else ():
        rows[column] = np.stack([scores[column][data.item] for scores in reo[""][:GROUP]])
    if len(kinds[", ensemble"]) == len(few):
        for name in ("tiger", "grounding", CHOSEN):
            rows[f"{name}, ensemble"] = np.stack([scores[name][data.item] for scores in kinds[", ensemble"]])
        for column in reo[""][0] if reo else ():
            rows[f"{column}, ensemble"] = np.stack([scores[column][data.item] for scores in reo[", ensemble"]])
    rows |= {TITLES[n]: np.stack([values[data.item]] * len(few)) for n, values in text.items() if n in TEXT[:3]}
    results |= tested(data, rows, resamples)
    images = np.array([item.image for item in data.items])
    human = data.mean()
    shown = {name: named[0][name] for name in (*MAIN, CHOSEN)}
    shown |= {name: scores for name, scores in (reo[""][0] if reo.get("") else {}).items() if "image" not in name}
    shown |= {TITLES[name]: scores for name, scores in text.items()}
    results["by image"] = [
        by_image({name: scores[name] for name in (*MAIN, CHOSEN)}, vectors, images.tolist(), human)
        for scores, vectors in zip(few, single, strict=False)
    ]
    others = {name: scores for name, scores in shown.items() if name not in (*MAIN, CHOSEN)}
    results["by image, others"] = by_image(others, single[0], images.tolist(), human)["columns"]
    results["by rating"] = by_rating(shown, data.item, data.value)
    results["parts of the distance"] = [parts_of_distance(vectors, human) for vectors in single[:GROUP]]
    words = np.array([len(item.candidate.split()) for item in data.items], dtype=np.float64)
    results["overrated with length"] = {n: residuals(v, human, {"words": words})["words"] for n, v in shown.items()}
    return results


def join(out: Path, models: Sequence[Path], number: int) -> Path:
    """Networks of several seeds as an ensemble, and as one network; the latter's path."""
    from capbench.metrics.grounding.scan_files import load_scan, merge_scan, merged_facts, save_scan
    from capbench.weights.ensembles import write_ensemble

    target = out / f"merged{number}" / "model.safetensors"
    loaded = [load_scan(path) for path in models]
    write_ensemble(out / f"ensemble{number}.json", loaded)
    if not target.is_file() or load_scan(target).training.get("merged") != merged_facts(loaded)["merged"]:
        say(f"merge {', '.join(path.parent.name for path in models)}")
        save_scan(target, merge_scan(loaded), loaded[0].vocabulary, merged_facts(loaded))
    return target


def reo_scores(
    data: Rated, root: DataRoot, features: Path, models: Sequence[Path], merged: Sequence[Path]
) -> dict[str, list[dict[str, FloatArray]]]:
    """REO's columns under the single networks, the ensembles (which give the mean) and the merged networks."""
    scores_by_kind: dict[str, list[dict[str, FloatArray]]] = {}
    for key, paths in (("", models), (", merged", merged)):
        for path in paths:
            fit_reo(root, path, features)
            say(f"REO under {path.parent.name}")
            scores_by_kind.setdefault(key, []).append(scored(data, root, "reo", features, path))
    scores_by_kind[", ensemble"] = [
        {column: np.mean([scores[column] for scores in group], axis=0) for column in group[0]}
        for group in groups(scores_by_kind[""])
    ]
    return {key: scores_by_kind[key] for key in ("", ", ensemble", ", merged") if scores_by_kind.get(key)}


def main(arguments: list[str] | None = None) -> None:
    """Carry out all steps."""
    parser = options(
        __doc__ or "", CONFIG, Path("results") / "flickr8k-grid", seeds=9, threads=min(2, os.cpu_count() or 1)
    )
    parser.add_argument("--without-reo", action="store_true", help="leave REO out")
    asked = read_options(parser, arguments)
    out: Path = asked.out
    began = time.monotonic()
    try:
        root, settings = begin(asked, ScanTraining, out / f"{WINDOWS}.h5")
        rated_by_name = rated(root)
        features = make_features(root, out)
        models = [train_kept(root, out / f"seed{one.seed}", one, train_scan, recall_sum) for one in settings]
        merged = [join(out, group, i) for i, group in enumerate(groups(models), 1)]
        results: dict[str, Any] = {"seeds": asked.seeds}
        results["recall"] = {p.parent.name: recall(root, p, features, asked.config, "test") for p in models[:GROUP]}
        for name, data in rated_by_name.items():
            single = [grounded(out, name, data, features, model) for model in models]
            together = [grounded(out, name, data, features, model) for model in merged]
            say(f"text metrics on {name}")
            text = text_scores(data, root)
            reo = {} if asked.without_reo else reo_scores(data, root, features, models, merged)
            say(f"statistics of {name}")
            results[name] = report(data, single, together, reo, text, asked.resamples)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    finish(results, tables, out / "results.json", out / "tables.md", began)


if __name__ == "__main__":
    main()
