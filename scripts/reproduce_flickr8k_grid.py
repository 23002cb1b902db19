"""From small grid features to correlations with people: train SCAN on Flickr8k, score TIGEr and REO, print the tables.

python scripts/reproduce_flickr8k_grid.py --data DIR --out DIR

DIR must hold ``flickr8k/`` (captions, splits, ExpertAnnotations.txt, mobilenetv2_grid49_pca256_int8.npz) and may hold
``composite/``. Steps: import the features, pool them, train one network a seed, join each three of them (as an
ensemble, and merged into one network), fit REO's covariance on the training captions, score, tabulate. What a step has
finished is kept in --out: after an interruption the same command goes on. All models and rows are ours; none is that
of a paper.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.datasets.opening import open_dataset  # noqa: E402
from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.errors import CapbenchError, MissingFileError  # noqa: E402
from capbench.features.importers import import_features  # noqa: E402
from capbench.features.pooling import parse_pooling, pool_store  # noqa: E402
from capbench.files import atomic_write, read_json, read_text  # noqa: E402
from capbench.machine import keep_freed_memory  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.records import FloatArray, IntArray, Item, ScoreColumn, image_id  # noqa: E402
from capbench.scoring import score  # noqa: E402
from capbench.stats.agreement import Correlations  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap  # noqa: E402
from capbench.stats.significance import compare, permutations_to_use  # noqa: E402
from capbench.training.config_file import find_training, load_training  # noqa: E402
from capbench.training.scan.config import ScanTraining  # noqa: E402
from capbench.training.settings import Training  # noqa: E402
from capbench.training.task import TrainingResult  # noqa: E402
from scripts.checks import at_least, require_writable  # noqa: E402
from scripts.flickr8k_grid import MAIN, Grounded, columns, ground, mean_of  # noqa: E402
from scripts.flickr8k_grid_analysis import by_image, by_rating, parts_of_distance, residuals  # noqa: E402
from scripts.flickr8k_grid_tables import TITLES, tables  # noqa: E402

FEATURES = "flickr8k/mobilenetv2_grid49_pca256_int8.npz"
INPUTS = (FEATURES, *(f"flickr8k/Flickr_8k.{split}Images.txt" for split in ("train", "dev", "test")))
DETECTOR = "mobilenetv2-grid-pca256"
WINDOWS = "pyr30"
CONFIG = "scan-flickr8k-grid"
TEXT = ("cider", "meteor", "spice", "rouge-l", "bleu-1", "bleu-4")
GROUP = 3
CHOSEN = "tiger half τ=1.5"
T = TypeVar("T")
S = TypeVar("S", bound=Training)


@dataclasses.dataclass(frozen=True, eq=False)
class Rated:
    """Items that people rated.

    Attributes:
        items: the items.
        item: (n,) item of each rating.
        value: (n,) the rating.
        protocol: what was asked.
    """

    items: tuple[Item, ...]
    item: IntArray
    value: FloatArray
    protocol: str

    def mean(self) -> FloatArray:
        """(items,) mean rating."""
        return np.asarray(np.bincount(self.item, self.value) / np.bincount(self.item), dtype=np.float64)

    def tau_c(self, scores: FloatArray, coefficient: Any = "tau-c") -> float:
        """Correlation of items' scores with single ratings."""
        return correlation(coefficient, scores[self.item], self.value).value


def say(text: str) -> None:
    """One line of progress on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def make_features(root: DataRoot, out: Path, windows: str = WINDOWS, name: str = WINDOWS) -> Path:
    """The store that is pooled by windows, under a name in a folder."""
    pooled = out / f"{name}.h5"
    if not pooled.is_file():
        cells = import_cells(root, out)
        say(f"pool 7 x 7 cells into {windows}")
        pool_store(cells, pooled, parse_pooling(windows))
    return pooled


def import_cells(root: DataRoot, out: Path) -> Path:
    """The store of the grid's cells in a folder, imported if it is not there."""
    cells = out / "cells.h5"
    if not cells.is_file():
        say("import features")
        import_features([root.file(FEATURES, what="Flickr8k's grid features")], cells, detector=DETECTOR)
    return cells


def training_settings(asked: argparse.Namespace, seed: int) -> ScanTraining:
    """The settings of one seed's training. Raises CapbenchError where the file or a change does not fit."""
    features = asked.out / f"{WINDOWS}.h5"
    changes = [f"features={str(features)!r}", f"seed={seed}", f"threads={asked.threads}", *asked.set]
    return load_training(ScanTraining, find_training(asked.config), changes)


def train(root: DataRoot, out: Path, settings: ScanTraining) -> Path:
    """The SCAN of one seed; an interrupted training goes on."""
    from capbench.training.scan.trainer import train_scan

    run = out / f"seed{settings.seed}"
    return train_kept(root, run, settings, train_scan, lambda entry: f"dev recall sum {entry['recall_sum']:.1f}")


def train_kept(
    root: DataRoot,
    run: Path,
    settings: S,
    carry_out: Callable[..., TrainingResult],
    describe: Callable[[dict[str, Any]], str],
) -> Path:
    """The model of one seed, in a folder of its own; an interrupted training goes on.

    Args:
        root: the data folder.
        run: the folder.
        settings: of the training.
        carry_out: the training: takes settings, folder, root and watcher.
        describe: an evaluation in words.
    """
    from capbench.training.task import Watcher

    # Looking whether a training is finished would read all features again, and parses.
    done, model, wanted = run / "done.json", run / "model.safetensors", settings.deciding()
    if done.is_file() and model.is_file() and read_json(done) == json.loads(json.dumps(wanted)):
        return model

    class Lines(Watcher):
        def say(self, text: str) -> None:
            say(text)

        def log(self, entry: dict[str, Any]) -> None:
            if entry["kind"] == "evaluation":
                say(f"{run.name}, step {entry['step']}: {describe(entry)}")
            elif entry["kind"] == "step" and entry["step"] % 60 == 0:
                say(f"{run.name}, step {entry['step']}: loss {entry['loss']:.3f}")

    result = carry_out(settings, run, root=root, watcher=Lines())
    if result.model is None:
        raise SystemExit(130)
    with atomic_write(done, "w") as file:
        json.dump(wanted, file)
    return result.model


def fit_reo(root: DataRoot, model: Path, features: Path) -> None:
    """REO's covariance on the captions of the training images, beside the model."""
    from capbench.datasets.captions import load_captions
    from capbench.metrics.grounding.covariance import default_path, write_covariance
    from capbench.metrics.grounding.source import open_source
    from capbench.metrics.grounding.vectors import Attention
    from capbench.training.reo_covariance import fit_covariance

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
    from capbench.models.scan.files import load_scan
    from capbench.training.word_matching import evaluate_words

    kept = model.parent / f"recall-{split}.json"
    if not kept.is_file():
        say(f"recall of {model.parent.name} on {split}")
        settings = load_training(ScanTraining, find_training(config), [f"features={str(features)!r}"])
        recalls = evaluate_words(settings, load_scan(model), split, root).to_dict()
        with atomic_write(kept, "w") as file:
            json.dump(recalls, file)
    loaded: dict[str, Any] = read_json(kept)
    return loaded


def rated(root: DataRoot) -> dict[str, Rated]:
    """Flickr8k Expert's items, and Composite's of Flickr8k images if its file is there."""
    rated_by_name = {}
    for key, name, aspect in (("expert", "flickr8k-expert", "expert"), ("composite-8k", "composite@8k", "correctness")):
        dataset = open_dataset(name, root)
        protocol = dataset.protocol(None)
        try:
            judgements = dataset.load(protocol.items)[0]
        except MissingFileError as error:
            if key == "expert":
                raise
            say(f"without Composite: {error}")
            continue
        ratings = judgements.ratings[aspect]
        rated_by_name[key] = Rated(judgements.items, ratings.item, ratings.value, str(protocol))
    return rated_by_name


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


def scored(data: Rated, root: DataRoot, metric: str, features: Path, model: Path) -> dict[str, FloatArray]:
    """All columns of a metric that reads features, through the score cache."""
    resources = Resources(features=str(features), model=str(model), data=str(root.path))
    made = score(data.items, resolve_metrics([metric]), resources, dataset="flickr8k")
    return {key.column: values for key, values in made.values.items()}


def text_scores(data: Rated, root: DataRoot) -> dict[str, FloatArray]:
    """Metrics that look at no image; SPICE only where it is set up."""
    scores = {}
    for name in TEXT:
        request = resolve_metrics([name])
        if request[0].lacking(Resources()):
            say(f"without {name}: 'capbench setup' was not run for it")
            continue
        made = score(data.items, request, Resources(data=str(root.path)), dataset="flickr8k")
        scores[name] = made.values[ScoreColumn(request[0].metric.name, request[0].columns[0])]
    return scores


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
    images = np.array([item.image for item in data.items])
    agreement = Correlations.of("tau-c", rows, data.value, unit=images[data.item])
    sample = draw_bootstrap(agreement, resamples=resamples, seed=0)
    results["intervals"] = {name: vars(one) for name, one in bootstrap_intervals(agreement, sample).items()}
    # Few resamples ask for few permutations, with which no difference could be significant.
    permutations = max(3 * resamples, permutations_to_use(None, len(rows)))
    results["comparison"] = dataclasses.asdict(compare(agreement, sample=sample, permutations=permutations))
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


def groups(models: Sequence[T]) -> list[Sequence[T]]:
    """Seeds in groups of three, in their order; what is left over goes into none."""
    return [models[start : start + GROUP] for start in range(0, len(models) - GROUP + 1, GROUP)]


def join(out: Path, models: Sequence[Path], number: int) -> Path:
    """Networks of several seeds as an ensemble, and as one network; the latter's path."""
    from capbench.models.ensembles import write_ensemble
    from capbench.models.scan.files import load_scan, save_scan
    from capbench.models.scan.merge import merge_scan, merged_facts

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--out", type=Path, default=Path("results") / "flickr8k-grid", help="where everything is kept")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=list(range(1, 10)))
    parser.add_argument("--config", default=CONFIG, help="the training file, or the name of a shipped one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of the training"
    )
    parser.add_argument("--threads", type=at_least(1), default=min(2, os.cpu_count() or 1), help="of PyTorch")
    parser.add_argument(
        "--resamples", type=at_least(100), default=1000, help="of the bootstrap; a third of the permutation test's"
    )
    parser.add_argument("--without-reo", action="store_true", help="leave REO out")
    asked = parser.parse_args(arguments)
    if len(set(asked.seeds)) < len(asked.seeds):
        parser.error("a seed stands twice in --seeds")
    out: Path = asked.out
    torch.set_num_threads(asked.threads)
    keep_freed_memory()
    begin = time.monotonic()
    try:
        # All that can be refused is refused before the training, which takes most of an hour.
        require_writable(out)
        root = find_root(asked.data)
        settings = [training_settings(asked, seed) for seed in asked.seeds]
        for name in INPUTS:
            root.file(name)
        rated_by_name = rated(root)
        features = make_features(root, out)
        models = [train(root, out, one) for one in settings]
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
    results["minutes of this run"] = round((time.monotonic() - begin) / 60, 1)
    with atomic_write(out / "results.json", "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)
    shown = tables(results)
    with atomic_write(out / "tables.md", "w") as file:
        file.write(shown)
    print(shown)
    say(f"{out / 'results.json'}: everything; {results['minutes of this run']} minutes")


if __name__ == "__main__":
    main()
