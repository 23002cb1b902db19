"""From captions to agreement with people: train word vectors and NNEval, score its inputs, test it against each.

python scripts/reproduce_nneval.py --data DIR --out DIR

DIR must hold ``coco/`` (Karpathy's test and validation captions), ``machine_captions/``, ``flickr8k/`` (captions,
splits, ExpertAnnotations.txt), ``composite/``, ``flickr30k/``, ``thumb/``, and may hold ``pascal50s/``; SPICE must
be set up ('capbench setup spice'). Steps: train word vectors, train each kind of network once a seed, score the
inputs on every set, compute all statistics. Some 45,000 captions are parsed once. What a step has finished is kept in
--out: after an interruption the same command goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.core.errors import CapbenchError, MissingFileError, ToolError  # noqa: E402
from capbench.core.files import atomic_write, read_json  # noqa: E402
from capbench.core.records import FloatArray, Judgements, photograph  # noqa: E402
from capbench.datasets.captions import load_captions  # noqa: E402
from capbench.datasets.opening import keep_items, open_dataset, split_protocol  # noqa: E402
from capbench.datasets.protocol import Protocol  # noqa: E402
from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.nneval.metric import input_matrix, input_requests  # noqa: E402
from capbench.metrics.nneval.network import INPUTS, read_nneval  # noqa: E402
from capbench.metrics.nneval.training import NNEvalTraining, train_nneval  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.stats.agreement import Accuracies, Agreement, Correlations  # noqa: E402
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap  # noqa: E402
from capbench.stats.significance import adjust, compare  # noqa: E402
from capbench.text.word_vectors import write_word2vec  # noqa: E402
from capbench.training.settings import find_training, load_training  # noqa: E402
from capbench.training.word_vectors import train_word_vectors  # noqa: E402
from scripts.checks import at_least, require_file, require_writable  # noqa: E402
from scripts.flickr8k_steps import say, train_kept  # noqa: E402
from scripts.nneval_tables import RELEASED, tables  # noqa: E402

WORDS = ("flickr8k", "coco-val", "coco-test")
PATIENCE_OF_PAPERS = 20
"""Epochs without a better one after which a training with the paper's settings ends, of its 500: networks that have
died at Adam's rate of 0.25 do not come back."""
EXPERT = "flickr8k-expert/all-pairs/mode-tau-b"
SETTINGS = {
    "coco": ("nneval-coco", ()),
    "coco, τ": ("nneval-coco", (f"stopping.protocol={EXPERT}",)),
    "paper": ("nneval-coco-paper", (f"evaluation.patience={PATIENCE_OF_PAPERS}",)),
    "foreign": ("nneval-coco-foreign", ()),
    "monotone": ("nneval-coco-monotone", ()),
}
"""Training file and changes by kind of network."""
TESTED = ("coco", "foreign", "monotone", RELEASED)
"""Kinds whose difference from each input is tested: those that saw no judgement, and the authors' weights."""
PERMUTATIONS = 1000
LONGEST = 150
"""Words of a caption that is parsed."""
PROTOCOLS = (
    "composite/same-text-out/correctness-tau-c",
    "composite/any-candidate-out/correctness-tau-c",
    "flickr8k-expert/no-own-captions/unaggregated-tau-c",
    "pascal-50s/json-5-refs/direct-strict",
    "distractions/own-caption-out/right-strict",
)
"""What is tested on; the first is also shown by source and under other coefficients."""
COEFFICIENTS = ("pearson", "spearman", "tau-b", "tau-c")
Scores = Mapping[str, FloatArray]


def word_vectors(root: DataRoot, out: Path) -> Path:
    """The vectors that ``capbench train word-vectors`` makes of the same captions."""
    path = out / "vectors.bin"
    if not path.is_file():
        texts = [text for name in WORDS for of_image in load_captions(name, root).values() for text in of_image]
        say(f"train word vectors on {len(texts):,} captions, some two minutes")
        words, matrix = train_word_vectors(texts)
        write_word2vec(path, words, matrix)
    return path


def training_settings(kind: str, seed: int, vectors: Path, more: Sequence[str]) -> NNEvalTraining:
    """The settings of one training. Raises CapbenchError where a change does not fit."""
    config, changes = SETTINGS[kind]
    return load_training(
        NNEvalTraining, find_training(config), [*changes, f"vectors={str(vectors)!r}", f"seed={seed}", *more]
    )


def trained(root: DataRoot, run: Path, settings: NNEvalTraining) -> Path:
    """The network of one training, kept in a folder of its own."""
    bars = lambda _what, _total: nullcontext(lambda _done: None)  # noqa: E731
    describe = partial(_describe, "tau" if settings.stopping.protocol else "log_likelihood")
    return train_kept(root, run, settings, partial(train_nneval, bars=bars), describe)


def _describe(key: str, entry: Mapping[str, Any]) -> str:
    return f"{key} {entry[key]:.4f}"


def input_scores(judged: Judgements, root: DataRoot, vectors: Path) -> FloatArray:
    """(n, 8) what the networks read of the items, through the score cache."""
    requests = input_requests(str(vectors), "coco-val")
    table = score(judged.items, requests, Resources(data=str(root.path)), dataset=judged.dataset)
    return input_matrix({key.column: values for key, values in table.values.items()})


def rows_of(inputs: FloatArray, models: Mapping[str, Sequence[Path]]) -> dict[str, list[FloatArray]]:
    """Scores by row: one for an input, one a seed for a network."""
    rows = {name: [column] for name, column in zip(INPUTS, inputs.T, strict=True)}
    for kind, paths in models.items():
        rows[kind] = [read_nneval(path).probabilities(inputs) for path in paths]
    return rows


def agreement_of(
    judged: Judgements, protocol: Protocol, rows: Mapping[str, Sequence[FloatArray]], kept: Sequence[bool] | None = None
) -> Agreement:
    """The statistic of a protocol for some rows; a network's is the mean over its seeds.

    Args:
        judged: the judgements.
        protocol: of a correlation with single ratings, or of an accuracy.
        rows: scores by row.
        kept: which items count; None for all.
    """
    seeds = max(len(scores) for scores in rows.values())
    stacked = {
        name: np.stack([*scores] if len(scores) == seeds else [scores[0]] * seeds) for name, scores in rows.items()
    }
    images = np.array([item.image for item in judged.items])
    within = np.ones(len(images), dtype=bool) if kept is None else np.asarray(kept)
    if protocol.statistic.kind == "correlation":
        ratings = judged.ratings[protocol.statistic.human]
        places = within[ratings.item]
        item = ratings.item[places]
        assert protocol.statistic.coefficient is not None
        return Correlations.of(
            protocol.statistic.coefficient,
            {name: scores[:, item] for name, scores in stacked.items()},
            ratings.value[places],
            unit=images[item],
        )
    pairs = judged.preferences[protocol.statistic.human]
    assert protocol.statistic.ties is not None
    return Accuracies.of(
        protocol.statistic.ties,
        {name: scores[:, pairs.first] for name, scores in stacked.items()},
        {name: scores[:, pairs.second] for name, scores in stacked.items()},
        pairs.preferred,
        groups=pairs.group if any(pairs.group) else None,
        unit=images[pairs.first],
    )


def by_seed(
    judged: Judgements,
    protocol: Protocol,
    rows: Mapping[str, Sequence[FloatArray]],
    kept: Sequence[bool] | None = None,
) -> dict[str, list[float]]:
    """The statistic of every seed of every row; a correlation of a network that gives all captions one score is 0."""

    def value(name: str, scores: FloatArray) -> float:
        counted = scores if kept is None else scores[np.asarray(kept)]
        if protocol.statistic.kind == "correlation" and np.ptp(counted) == 0:
            return 0.0
        of_seed = agreement_of(judged, protocol, {name: [scores]}, kept)
        return float(of_seed.statistic(name)(np.ones((1, of_seed.units), dtype=np.int32))[0])

    return {name: [value(name, scores) for scores in of_row] for name, of_row in rows.items()}


def by_group(
    judged: Judgements, protocol: Protocol, rows: Mapping[str, Sequence[FloatArray]]
) -> dict[str, dict[str, list[float]]]:
    """The accuracy of every seed of every row, by group of the pairs."""
    pairs = judged.preferences[protocol.statistic.human]
    values: dict[str, dict[str, list[float]]] = {}
    for group in dict.fromkeys(pairs.group):
        mask = np.array([one == group for one in pairs.group])
        part = dataclasses.replace(
            pairs,
            first=pairs.first[mask],
            second=pairs.second[mask],
            preferred=pairs.preferred[mask],
            group=("",) * int(mask.sum()),
            votes=pairs.votes[mask],
        )
        alone = dataclasses.replace(judged, preferences={protocol.statistic.human: part})
        values[group] = by_seed(alone, protocol, rows)
    return values


def compared(
    judged: Judgements, protocol: Protocol, rows: Mapping[str, Sequence[FloatArray]], resamples: int
) -> dict[str, Any]:
    """Intervals of the tested networks and of all inputs, and a test of each of these networks against each input.

    The correction is for these pairs alone. They were chosen after results of networks were known: see the page.
    """
    shown = {name: rows[name] for name in (*TESTED, *INPUTS) if name in rows}
    data = agreement_of(judged, protocol, shown)
    sample = draw_bootstrap(data, resamples=resamples, seed=0)
    tests: list[dict[str, Any]] = []
    for kind in TESTED:
        for name in INPUTS if kind in shown else ():
            pair = agreement_of(judged, protocol, {kind: rows[kind], name: rows[name]})
            (one,) = compare(pair, sample=sample, permutations=PERMUTATIONS).pairs
            sign = 1 if one.better == kind else -1
            assert one.low is not None
            assert one.high is not None
            low, high = sorted((sign * one.low, sign * one.high))
            difference = {"difference": sign * one.difference, "low": low, "high": high, "p": one.p_value}
            tests.append({"row": kind, "input": name, **difference})
    adjusted = adjust(np.array([test["p"] for test in tests]), "holm")
    return {
        "statistic": data.label,
        "units": data.units,
        "intervals": {name: vars(one) for name, one in bootstrap_intervals(data, sample).items()},
        "tests": [{**test, "p_adjusted": p} for test, p in zip(tests, adjusted.tolist(), strict=True)],
        "permutations": PERMUTATIONS,
    }


def without_long(judged: Judgements) -> Judgements:
    """Judgements without captions that SPICE's parser needs more than 8 GB of memory for: one of PASCAL-50S."""
    places = [
        place
        for place, item in enumerate(judged.items)
        if max(len(text.split()) for text in (item.candidate, *item.references)) <= LONGEST
    ]
    left_out = len(judged.items) - len(places)
    if not left_out:
        return judged
    note = f"{left_out} captions of more than {LONGEST} words are left out, with their pairs"
    say(f"{judged.dataset}: {note}")
    return keep_items(judged, np.array(places, dtype=np.int64), judged.dataset, [note])


def report(
    name: str, root: DataRoot, vectors: Path, models: Mapping[str, Sequence[Path]], resamples: int, expert: set[str]
) -> dict[str, Any]:
    """All numbers of one protocol.

    Args:
        name: its id.
        root: the data folder.
        vectors: word vectors of the trainings.
        models: networks by kind, one a seed.
        resamples: of the bootstrap.
        expert: photographs of Flickr8k Expert, by which some networks were chosen.
    """
    dataset_name, rest = split_protocol(name)
    dataset = open_dataset(dataset_name, root)
    protocol = dataset.protocol(rest)
    (judged,) = dataset.load(protocol.items)
    judged = without_long(judged)
    say(f"{name}: scores of {len(judged.items):,} captions; SPICE parses those it never saw")
    rows = rows_of(input_scores(judged, root, vectors), models)
    say(f"{name}: statistics")
    told: dict[str, Any] = {"protocol": protocol.versioned, "items": len(judged.items), "notes": list(judged.notes)}
    told["values"] = by_seed(judged, protocol, rows)
    if protocol.statistic.kind == "accuracy":
        told["by group"] = by_group(judged, protocol, rows)
        half = dataset.protocol(f"{protocol.items.name}/{protocol.statistic.name.replace('strict', 'ties-half')}")
        told["ties half"] = by_seed(judged, half, rows)
    elif dataset_name == "composite":
        free = [photograph(item.image) not in expert for item in judged.items]
        told["items of other images than Expert's"] = int(sum(free))
        told["without Expert's images"] = by_seed(judged, protocol, rows, kept=free)
        groups = [item.group for item in judged.items]
        told["by group"] = {
            group: by_seed(judged, protocol, rows, kept=[one == group for one in groups])
            for group in dict.fromkeys(groups)
        }
        if name == PROTOCOLS[0]:
            told["by coefficient"] = {
                coefficient: by_seed(judged, dataset.protocol(f"{protocol.items.name}/correctness-{coefficient}"), rows)
                for coefficient in COEFFICIENTS
            }
    return {**told, **compared(judged, protocol, rows, resamples)}


def main(arguments: list[str] | None = None) -> None:
    """Carry out all steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--out", type=Path, default=Path("results/nneval"), help="where everything is kept")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="of networks")
    parser.add_argument("--released", type=Path, help="the authors' weights as .npz, a row of their own")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of all trainings"
    )
    parser.add_argument(
        "--resamples",
        type=at_least(100),
        default=1000,
        help="of the bootstrap",
    )
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS), metavar="ID")
    asked = parser.parse_args(arguments)
    if len(set(asked.seeds)) < len(asked.seeds):
        parser.error("a seed stands twice in --seeds")
    torch.set_num_threads(1)
    out: Path = asked.out
    kept = out / "results.json"
    try:
        # All that can be refused is refused before the training.
        require_writable(out)
        root = find_root(asked.data)
        if asked.released is not None:
            require_file(asked.released)
        for kind in asked.kinds:
            training_settings(kind, asked.seeds[0], out / "vectors.bin", asked.set)
        vectors = word_vectors(root, out)
        models: dict[str, list[Path]] = {
            kind: [
                trained(
                    root,
                    out / f"{kind.replace(', τ', '-tau')}-seed{seed}",
                    training_settings(kind, seed, vectors, asked.set),
                )
                for seed in asked.seeds
            ]
            for kind in asked.kinds
        }
        if asked.released is not None:
            models[RELEASED] = [asked.released]
        networks = {
            kind: [dict(read_nneval(path).training.get("dev", {})) for path in paths] for kind, paths in models.items()
        }
        marks = {kind: [read_nneval(path).sha256[:16] for path in paths] for kind, paths in models.items()}
        results: dict[str, Any] = read_json(kept) if kept.is_file() else {}
        if results.get("weights") != marks:
            results = {"seeds": asked.seeds, "weights": marks, "networks": networks}
        expert_set = open_dataset("flickr8k-expert", root)
        (rated,) = expert_set.load(expert_set.protocol("all-pairs").items)
        expert = {photograph(item.image) for item in rated.items}
        for name in asked.protocols:
            if name in results:
                continue
            try:
                results[name] = report(name, root, vectors, models, asked.resamples, expert)
            except (MissingFileError, ToolError) as error:
                say(f"without {name}: {error}")
                continue
            with atomic_write(kept, "w") as file:
                json.dump(results, file, indent=1, ensure_ascii=False)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    shown = tables(results)
    with atomic_write(out / "tables.md", "w") as file:
        file.write(shown)
    print(shown)


if __name__ == "__main__":
    main()
