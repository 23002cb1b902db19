"""Train the networks of results/leaderboard again, score its data sets with them, and store their score files.

python scripts/retrain.py                          # all of it (make leaderboard-all)
python scripts/retrain.py --plan                   # what it would run, and how long that takes
python scripts/retrain.py --out FOLDER --board FOLDER/board --set max_steps=5 --seed 1 --seed 2     # a short trial

The networks are those of the recipes in ``NETWORKS``, which write to ``OUT/RECIPE``. Left out are FAIEr without SPICE's
parser, and ViLBERT with BERT's text stream without the folder ``bert-base-uncased`` in the current or data folder. An
ensemble of all seeds is a metric, and is scored three times: with the image, with the mean features of the training
images, and with another image of the data set (on CrowdFlower with the image only). Then ``scripts/committee.py``
chooses the committee on the dev images, among these networks and the rule-based metrics; WMD and VIFIDEL are candidates
only with word vectors (``--vectors``).

An interrupted run resumes: recipes skip finished tasks and continue trainings, and scores are in the score cache.
Score files are stored with their cards, whose other entries stay as they are, when all networks are scored.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

import capbench  # noqa: E402
from capbench.api.recipe import RecipeRun, list_recipes  # noqa: E402
from capbench.core.errors import MissingFileError, UsageError, count  # noqa: E402
from capbench.core.files import read_json, sha256_file, write_text  # noqa: E402
from capbench.core.yaml import read_yaml  # noqa: E402
from capbench.datasets.root import find_root  # noqa: E402
from capbench.metrics.needs import Resources  # noqa: E402
from capbench.metrics.registry import load_network  # noqa: E402
from capbench.metrics.requests import resolve_metrics, split_label  # noqa: E402
from capbench.metrics.score_joining import item_id  # noqa: E402
from capbench.training.captions import locate  # noqa: E402
from capbench.weights.ensembles import write_ensemble  # noqa: E402
from scripts.committee import Arguments, saved, select  # noqa: E402
from scripts.leaderboard import FOLDER, add, cost, exit_codes, processor  # noqa: E402

__all__ = ["NETWORKS", "Network", "network_card", "retrain"]

IMAGES = {"own": "seen", "mean": "mean", "shuffled": "shuffled"}
"""Value of a metric's option ``image`` by the image on a card."""
SETS: dict[str, Sequence[str]] = {
    "flickr8k-expert": tuple(IMAGES),
    "composite@8k": tuple(IMAGES),
    "flickr8k-crowdflower": ("own",),  # ten times the captions
}
"""Images that the networks see by data set."""
ITEMS = {"composite@8k": "same-text-out"}
"""Items of data sets that are not their default ones."""
TRAINING_IMAGES = "flickr8k/Flickr_8k.trainImages.txt"
TEXT = ("bleu-1", "bleu-4", "rouge-l", "meteor", "cider", "spice", "wmd.wmd", "vifidel.vifidel-ref")
OPTIONS: dict[str, dict[str, Any]] = {"cider": {"df": "coco-val"}}
"""Rule-based candidates of the committee, and their options."""
LABELS = "flickr8k/yolox_nano_boxes.npz"
OF_LABELS = {"classes": "coco-80", "threshold": 0.03, "repeats": "once"}
"""Objects that VIFIDEL reads, and the setting of its results (docs/results/vifidel-leic.md)."""


@dataclass(frozen=True)
class Network:
    """A card of results/leaderboard whose scores a recipe's networks compute.

    Attributes:
        card: name of the card.
        recipe: name of the recipe.
        metrics: columns by metric, or by ``LABEL=METRIC``.
        features: name of the file of features in the recipe's folder.
        weights: name of the file of a seed's network there.
        step: last step of the recipe that is run.
        seeds: seeds of the networks; by default those of the run.
        suffix: ending of the stored columns: a column must not have the name of a metric.
        reads: a folder in the current or data folder that training requires.
        about: the card of networks that have none yet.
    """

    card: str
    recipe: str
    metrics: Mapping[str, Sequence[str]]
    features: str = "pyr30.h5"
    weights: str = "seed{seed}/model.safetensors"
    step: str = "networks"
    seeds: tuple[int, ...] = ()
    suffix: str = "-8k"
    reads: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)


NETWORKS = (
    Network(
        "dual-encoder-flickr8k",
        "dual-encoder-flickr8k",
        {"dual-encoder": ("ref-dual-encoder", "dual-encoder")},
        weights="dual-encoder-flickr8k-seed{seed}/model.safetensors",
    ),
    Network(
        "scan-flickr8k-grid",
        "flickr8k-grid",
        {"tiger": ("tiger",), "reo": ("reo-relevance", "reo-extraness", "reo-omission")},
        step="covariances",
    ),
    Network("vilbert-flickr8k", "vilbert-flickr8k", {"vilbertscore": ("vilbertscore-f",)}, features="windows10.h5"),
    Network(
        "vilbert-flickr8k-bert",
        "vilbert-flickr8k-bert",
        {"vilbert-bert=vilbertscore": ("vilbertscore-f",)},
        features="windows10.h5",
        seeds=(2,),
        suffix="-8k-bert",
        reads="bert-base-uncased",
    ),
    Network("leic-flickr8k", "leic-flickr8k", {"leic": ("leic",)}, features="cells.h5"),
    Network(
        "faier-flickr8k",
        "faier-flickr8k",
        {"faier": ("faier",)},
        weights="faier-flickr8k-seed{seed}/model.safetensors",
        about={
            "schema": 1,
            "name": "faier-flickr8k",
            "title": "FAIEr, 3 networks trained here",
            "kind": "network",
            "training_data": "Flickr8k's 6,000 training images",
            "uses_ratings": False,
            "reads_references": True,
            "features": "7 x 7 grid features of a MobileNetV2, pooled in 30 windows",
            "command": "capbench train recipe faier-flickr8k",
            "columns": {"faier-8k": {}},
        },
    ),
)


@dataclass(frozen=True)
class Place:
    """Folders and settings of a run.

    Attributes:
        data: the data folder.
        out: folder of the recipes' folders.
        board: folder with ``scores/``.
        seeds: seeds of the networks.
        settings: changes of all trainings.
        without: recipes and rule-based metrics that are left out.
    """

    data: Path
    out: Path
    board: Path
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    without: tuple[str, ...] = ()

    def recipe(self, network: Network, *, dry_run: bool = False) -> RecipeRun:
        """Run a network's recipe up to its last step, or only plan it."""
        return capbench.run_recipe(
            network.recipe,
            out=self.out / network.recipe,
            data=self.data,
            seeds=self.seeds_of(network),
            settings=dict(self.settings),
            only=network.step,
            dry_run=dry_run,
            progress=not dry_run,
        )

    def seeds_of(self, network: Network) -> tuple[int, ...]:
        """Seeds of a recipe's networks."""
        return network.seeds or self.seeds

    def networks(self, network: Network) -> list[Path]:
        """Files of the trained networks."""
        folder = self.out / network.recipe
        return [folder / network.weights.replace("{seed}", str(seed)) for seed in self.seeds_of(network)]


def retrain(place: Place, vectors: Path | None, *, plan_only: bool = False) -> None:
    """Train, score and store the networks of the leaderboard, and choose and store the committee.

    Raises:
        CapbenchError: a requirement of a recipe is missing, which is found before anything is trained; or the run
            failed.
    """
    chosen = [network for network in NETWORKS if network.recipe not in place.without]
    if lacks := _lacks("spice", place, {}):
        print(f"left out: faier-flickr8k and SPICE, which require {lacks}")
        chosen = [network for network in chosen if network.recipe != "faier-flickr8k"]
    for network in [one for one in chosen if one.reads]:
        try:
            locate(network.reads, find_root(place.data), network.reads)
        except MissingFileError as error:
            print(f"left out: {network.recipe}: {error.message}")
            chosen.remove(network)
    takes = {recipe["name"]: recipe["takes"] for recipe in list_recipes()}
    for network in chosen:
        tasks = place.recipe(network, dry_run=True).tasks
        left = sum(task["state"] == "planned" for task in tasks)
        whole = takes[network.recipe]
        print(f"{network.recipe}: {count(left, 'task')} of {len(tasks)} to do (the whole recipe: {whole})")
    print(f"then scores on {', '.join(SETS)} with up to {len(IMAGES)} kinds of images, and the committee", flush=True)
    if plan_only:
        return
    scored = []
    for network in chosen:
        place.recipe(network)
        scored.append((network, _score_files(place, network)))
    for network, files in scored:
        card = network_card(network, place, FOLDER / "scores")
        _store(place, card, files, cost([*network.metrics], place.data, **_given(place, [network])))
    _committee(place, chosen, vectors)


def _lacks(metric: str, place: Place, options: Mapping[str, Any]) -> str:
    """The requirement of a rule-based metric that is not installed, or ``""``."""
    name = metric.partition(".")[0]
    (request,) = resolve_metrics([metric], {name: dict(options[name])} if options.get(name) else {})
    return request.lacks(Resources(data=str(place.data))) or ""


# Scores of the networks.


def _given(place: Place, networks: Sequence[Network]) -> dict[str, Any]:
    """Features and ensembles of the networks' metrics."""
    given: dict[str, Any] = {"features": {}, "model": {}}
    for network in networks:
        folder = place.out / network.recipe
        labels = [_label(metric) for metric in network.metrics]
        given["features"] |= dict.fromkeys(labels, str(folder / network.features))
        given["model"] |= dict.fromkeys(labels, str(_model(place, network)))
    return given


def _model(place: Place, network: Network) -> Path:
    """The ensemble of a recipe's networks, or its only network."""
    networks = place.networks(network)
    return place.out / network.recipe / "leaderboard-ensemble.json" if len(networks) > 1 else networks[0]


def _score_files(place: Place, network: Network) -> list[Path]:
    """Score files of the ensemble: one for each data set, with a column for each column and kind of image."""
    if len(networks := place.networks(network)) > 1:
        write_ensemble(_model(place, network), [load_network(path) for path in networks])
    files = []
    for name, images in SETS.items():
        columns: dict[str, Iterable[float]] = {}
        items: Sequence[Any] = ()
        for metric, wanted in network.metrics.items():
            for image in images:
                options: dict[str, Any] = {"image": IMAGES[image]}
                if image == "mean":
                    options["training_images"] = str(place.data / TRAINING_IMAGES)
                made = capbench.score(
                    dataset=name,
                    protocol=ITEMS.get(name),
                    metrics=[metric],
                    options={_label(metric): options},
                    data=place.data,
                    progress=True,
                    **_given(place, [network]),
                )
                items = made.items
                named = {column: _label(metric) if "=" in metric else column for column in wanted}
                columns |= {_column(network, column, image): made[name] for column, name in named.items()}
        files.append(place.out / network.recipe / f"leaderboard-{name.replace('@', '-')}.csv")
        _write_scores(files[-1], items, columns)
    return files


def _label(metric: str) -> str:
    label, name = split_label(metric)
    return label or name


def _column(network: Network, column: str, image: str = "own") -> str:
    """Name of a stored column."""
    return f"{column}{network.suffix}{'' if image == 'own' else f'-{image}'}"


def _write_scores(path: Path, items: Sequence[Any], columns: Mapping[str, Iterable[float]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["id", *columns])
        writer.writerows(
            dict.fromkeys(zip(map(item_id, items), *(map(repr, map(float, c)) for c in columns.values()), strict=True))
        )


def network_card(network: Network, place: Place, cards: Path) -> dict[str, Any]:
    """The card of the trained networks: the committed one with other checksums, seeds and twins, without its cost."""
    path = cards / f"{network.card}.yaml"
    card = dict(read_yaml(path, "a card") if path.exists() else network.about)
    shown = card["columns"]
    networks = [sha256_file(path)[:16] for path in place.networks(network)]
    facts = {"seeds": list(place.seeds_of(network)), "networks": networks}
    columns: dict[str, Any] = {}
    for column in (column for wanted in network.metrics.values() for column in wanted):
        own = _column(network, column)
        columns[own] = {**shown.get(own, {}), **facts}
        for image in IMAGES:
            if image != "own":
                columns[_column(network, column, image)] = {**facts, "image": image, "twin_of": own, "shown": False}
    return {key: value for key, value in card.items() if key not in ("columns", "cost")} | {"columns": columns}


def _store(place: Place, card: Mapping[str, Any], files: Sequence[Path], spent: Mapping[str, Any]) -> None:
    path = place.out / f"{card['name']}-card.yaml"
    columns = [f"  {name}: {json.dumps(column, ensure_ascii=False)}\n" for name, column in card["columns"].items()]
    about = {key: value for key, value in card.items() if key != "columns"}
    about["cost"] = {**spent, "machine": processor()}
    text = yaml.safe_dump(about, sort_keys=False, allow_unicode=True, width=1000)
    write_text(path, f"{text}columns:\n{''.join(columns)}")
    add(path, files, place.data, place.board)


# The committee.


def _committee(place: Place, networks: Sequence[Network], vectors: Path | None) -> None:
    """Choose the committee on the dev images and store its scores, and those of its rule-based members."""
    of_vectors = {} if vectors is None else {"vectors": str(vectors)}
    labels = place.data / LABELS
    of_labels = {"labels": str(labels), **OF_LABELS} if labels.exists() else {}
    options = {**OPTIONS, "wmd": of_vectors, "vifidel": of_vectors | of_labels}
    text = [
        metric
        for metric in TEXT
        if not {*metric.split(".")} & {*place.without}
        and (not (lacks := _lacks(metric, place, options)) or _omit(metric, lacks))
    ]
    given = _given(place, networks)
    candidates = list(text)
    for network in networks:
        for metric, wanted in network.metrics.items():
            candidates += [f"{metric}.{column}" for column in wanted]
    options = {name: options[name] for name in (metric.partition(".")[0] for metric in text) if options.get(name)}
    arguments = Arguments(candidates, given["features"], given["model"], options)
    out = place.out / "committee"
    files = [path for network in networks for path in place.networks(network)]
    now = {"arguments": vars(arguments), "networks": [sha256_file(path) for path in files]}
    stamp = out / "run" / "inputs.json"
    if not stamp.exists() or read_json(stamp) != now:
        shutil.rmtree(out / "run", ignore_errors=True)
        (out / "run").mkdir(parents=True)
        select(arguments, out)
        write_text(out / "arguments.yaml", yaml.safe_dump(vars(arguments)))
        write_text(stamp, json.dumps(now))
    members = read_json(out / "members.json")
    committees = {
        "all-candidates": saved(arguments, candidates, out, "all-candidates"),
        "committee": saved(arguments, members, out, "committee"),
    }
    columns = [metric.rpartition(".")[2] for metric in text]
    scores = []
    for name in SETS:
        made = capbench.score(
            dataset=name,
            protocol=ITEMS.get(name),
            metrics=[*text, *(f"combination:{path}" for path in committees.values())],
            options=options,
            **given,
            data=place.data,
            progress=True,
        )
        values = {f"{column}-member": made[column] for column in columns}
        values |= {label: made[path.stem] for label, path in committees.items()}
        scores.append(out / "run" / f"leaderboard-{name.replace('@', '-')}.csv")
        _write_scores(scores[-1], made.items, values)
    card = dict(read_yaml(FOLDER / "scores" / "committee.yaml", "a card"))
    card["columns"] = {
        "all-candidates": {"title": f"Committee of {count(len(candidates), 'metric')}"},
        "committee": {"title": f"Committee of {count(len(members), 'metric')}, chosen on dev"},
        **{f"{column}-member": {"shown": False, "image": "none"} for column in columns},
    }
    _store(place, card, scores, cost([f"combination:{committees['committee']}"], place.data, **given))


def _omit(metric: str, lacks: str) -> bool:
    print(f"the committee is chosen without {metric}, which requires {lacks}")
    return False


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the recipes' folders")
    parser.add_argument("--board", type=Path, default=FOLDER, help="folder of the leaderboard")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change of all trainings")
    parser.add_argument("--seed", action="append", type=int, default=[], help="seeds; by default 1, 2 and 3")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="omit a recipe or a text metric")
    parser.add_argument("--vectors", type=Path, help="word vectors of WMD and VIFIDEL")
    parser.add_argument("--plan", action="store_true", help="show what would be run")
    given = parser.parse_args(arguments)
    with exit_codes():
        if not os.environ.get("CAPBENCH_DATA"):
            message = "the networks are trained on Flickr8k, and CAPBENCH_DATA is not set"
            raise UsageError(message, code="missing-option", hint="See docs/data.md")
        settings = {key: yaml.safe_load(value) for key, _, value in (text.partition("=") for text in given.set)}
        seeds = tuple(given.seed) or (1, 2, 3)
        place = Place(Path(os.environ["CAPBENCH_DATA"]), given.out, given.board, seeds, settings, tuple(given.without))
        retrain(place, given.vectors, plan_only=given.plan)


if __name__ == "__main__":
    main()
