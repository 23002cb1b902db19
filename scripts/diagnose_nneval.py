"""Why NNEval trained on COCO's systems is below its best input: the same network, with one thing changed at a time.

python scripts/diagnose_nneval.py --data DIR --vectors vectors.bin --work DIR [--released weights.npz]

Captions are those of configs/train/nneval-coco-foreign.yaml, and beside them, for the same images: one caption of
ViECap trained on COCO and one of ViECap trained on Flickr30k (machine_captions/viecap); the three of the 15 systems'
captions with the lowest CIDEr; and people's captions of the three images whose captions are most alike. Steps: score
them all (some 5,000 captions are parsed once); train each variant with the seeds 1, 2 and 3; measure on held-out images
of the training set, which nobody judged; only then read the judgements. What is done is kept, in --work and the cache.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from capbench.core.errors import CapbenchError  # noqa: E402
from capbench.core.files import atomic_write, read_json, write_text  # noqa: E402
from capbench.core.progress import words  # noqa: E402
from capbench.core.records import FloatArray, Item, Judgements  # noqa: E402
from capbench.datasets.captions import load_captions, read_machine_captions  # noqa: E402
from capbench.datasets.opening import open_dataset, split_protocol  # noqa: E402
from capbench.datasets.protocol import Protocol  # noqa: E402
from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.nneval.metric import input_matrix, input_requests  # noqa: E402
from capbench.metrics.nneval.network import INPUTS, map_inputs, read_nneval  # noqa: E402
from capbench.metrics.nneval.training import FOREIGN, HUMAN, NNEvalModule, NNEvalTraining, draw, held_out  # noqa: E402
from capbench.metrics.scoring import score, slow_work  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from capbench.stats.intervals import draw_bootstrap  # noqa: E402
from capbench.stats.significance import compare  # noqa: E402
from capbench.training.settings import find_training, load_training  # noqa: E402
from scripts.checks import at_least, require_file, require_writable  # noqa: E402
from scripts.flickr8k_grid import table  # noqa: E402
from scripts.flickr8k_grid_tables import spread  # noqa: E402
from scripts.flickr8k_steps import say  # noqa: E402
from scripts.reproduce_nneval import PROTOCOLS, agreement_of, input_scores, without_long  # noqa: E402

CONFIG = "nneval-coco-foreign"
ABROAD = {name: f"machine_captions/viecap/train_{name}/coco_generated_captions.json" for name in ("coco", "flickr30k")}
"""Captions of COCO's test images by one system that was trained on COCO, and on Flickr30k."""
PATIENCE, EPOCHS = 20, 500
ALIKE = 3
TESTED = PROTOCOLS[:4]
COMPARED = ("viecap-flickr30k", "foreign", "foreign alone", "foreign, rising")
"""Variants that are tested against the best input. They were chosen after the agreement of all variants was known."""
RESAMPLES = 1000
KINDS = ("person", "machine", "foreign", "alike", "lowest", "viecap-coco", "viecap-flickr30k")
"""What a caption can be: a person's of the image, a system's, a person's of another image drawn at random, or of one
with similar captions; of the systems' those with the lowest CIDEr; and ViECap's, by what it was trained on."""


@dataclass(frozen=True)
class Variant:
    """What a network learns from.

    Attributes:
        title: what the page calls it.
        people: kinds of captions that count as a person's.
        machines: kinds of captions that count as a machine's.
        without: inputs that the network does not see: they are 0.
        rising: no input may lower the score.
        share: of the training images.
    """

    title: str
    people: tuple[str, ...] = ("person",)
    machines: tuple[str, ...] = ("machine", "foreign")
    without: tuple[str, ...] = ()
    rising: bool = False
    share: float = 1.0


BLEU = tuple(name for name in INPUTS if name.startswith("bleu"))
VARIANTS = {
    "systems": Variant("15 systems, as the paper does it", machines=("machine",)),
    "lowest": Variant("of each image the three systems' captions with the lowest CIDEr", machines=("lowest",)),
    "viecap-coco": Variant("ViECap trained on COCO", machines=("viecap-coco",)),
    "viecap-flickr30k": Variant("ViECap trained on Flickr30k", machines=("viecap-flickr30k",)),
    "foreign": Variant("15 systems and captions of other images (`nneval-coco-foreign`)"),
    "viecap-coco+foreign": Variant(
        "ViECap trained on COCO, and captions of other images", machines=("viecap-coco", "foreign")
    ),
    "viecap-flickr30k+foreign": Variant(
        "ViECap trained on Flickr30k, and captions of other images", machines=("viecap-flickr30k", "foreign")
    ),
    "foreign alone": Variant("captions of other images alone", machines=("foreign",)),
    "foreign and alike": Variant("captions of other images, at random and alike", machines=("foreign", "alike")),
    "systems are right": Variant(
        "captions of other images, at random and alike; systems' count as people's",
        people=("person", "machine"),
        machines=("foreign", "alike"),
    ),
    "foreign, no BLEU": Variant("`nneval-coco-foreign` without BLEU", without=BLEU),
    "foreign, rising": Variant("`nneval-coco-foreign`, no input may lower the score", rising=True),
    "foreign, a quarter": Variant("`nneval-coco-foreign`, a quarter of the images", share=0.25),
}
PAIRS = (
    ("person", "machine"),
    ("person", "foreign"),
    ("machine", "foreign"),
    ("person", "alike"),
    ("machine", "alike"),
    ("person", "viecap-coco"),
    ("person", "viecap-flickr30k"),
)
"""Pairs of captions of which the first should score higher, measured on held-out images."""
FITS = (("person", "foreign"), ("machine", "foreign"), ("person", "alike"), ("machine", "alike"))
"""Those which ask whether a caption fits its image, whoever wrote it: their mean is what dev says of a variant."""
FIT_NAMES = tuple(" > ".join(pair) for pair in FITS)
Scorer = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Captions:
    """Scored captions of the training's images.

    Attributes:
        inputs: (n, 8) what the networks read.
        kinds: (n) of :data:`KINDS`.
        images: (n) names.
        dev: (n) whether the image is held out.
    """

    inputs: FloatArray
    kinds: NDArray[np.str_]
    images: NDArray[np.str_]
    dev: NDArray[np.bool_]

    def of(self, kinds: Sequence[str]) -> NDArray[np.bool_]:
        """(n) whether a caption is of one of these kinds."""
        return np.isin(self.kinds, kinds)


class Networks(nn.Module):
    """The network once a seed, side by side: each learns as it would alone, and together they take little longer."""

    W1: Tensor
    W2: Tensor
    W_out: Tensor
    b1: Tensor
    b2: Tensor
    b_out: Tensor

    def __init__(self, seeds: Sequence[int], rising: bool) -> None:
        super().__init__()
        alone = [NNEvalModule("he-normal", torch.Generator().manual_seed(seed)) for seed in seeds]
        self.rising = rising
        self.weights = nn.ParameterDict()
        for name, _ in alone[0].named_parameters():
            values = torch.stack([dict(one.named_parameters())[name].detach() for one in alone])
            self.weights[name] = nn.Parameter(values if values.ndim == 3 else values[:, None, :])

    def forward(self, inputs: Tensor) -> Tensor:
        """(seeds, n, 2) from (seeds, n, 8). With ``rising`` no input lowers a score: weights count as positive."""
        of = self.weights
        first, second, last = of["W1"], of["W2"], of["W_out"]
        if self.rising:
            first, second, last = first.abs(), second.abs(), last.abs() * torch.tensor([-1.0, 1.0])
        hidden = functional.relu(torch.baddbmm(of["b1"], inputs, first))
        hidden = functional.relu(torch.baddbmm(of["b2"], hidden, second))
        return torch.baddbmm(of["b_out"], hidden, last)


def most_alike(people: Mapping[str, Sequence[str]], images: Sequence[str]) -> dict[str, list[str]]:
    """For each image the others whose captions share most words with its own (cosine of tf-idf), best first."""
    words = [[word for text in people[image] for word in text.lower().split()] for image in images]
    places = {word: place for place, word in enumerate(sorted({word for of_image in words for word in of_image}))}
    counts = np.zeros((len(images), len(places)), dtype=np.float32)
    for row, of_image in enumerate(words):
        for word in of_image:
            counts[row, places[word]] += 1
    counts *= np.log(len(images) / (counts > 0).sum(axis=0, keepdims=True))
    counts /= np.linalg.norm(counts, axis=1, keepdims=True)
    likeness = counts @ counts.T
    np.fill_diagonal(likeness, -1.0)
    order = np.argsort(-likeness, axis=1, kind="stable")[:, :ALIKE]
    return {image: [images[place] for place in order[row].tolist()] for row, image in enumerate(images)}


def scored(items: Sequence[Item], vectors: Path, root: DataRoot, df: str) -> FloatArray:
    """(n, 8) inputs by way of the cache."""
    requests, resources = input_requests(str(vectors), df), Resources(data=str(root.path))
    for of_label in slow_work(items, requests, resources).values():
        for work in of_label:
            say(f"{work.subject} {len(work.units):,} {work.unit} first, {words(work.seconds)}; what is done is kept")
    table = score(items, requests, resources, dataset="captions of the diagnosis")
    return input_matrix({key.column: values for key, values in table.values.items()})


def captions_of(root: DataRoot, vectors: Path) -> Captions:
    """Draw and score all kinds of captions."""
    config = load_training(NNEvalTraining, find_training(CONFIG), [f"vectors={str(vectors.resolve())!r}"])
    drawn = draw(config, root, None, say)
    people = load_captions(config.captions, root)
    systems = read_machine_captions([root.file(name, what="captions") for name in config.machine], people).systems
    abroad = {
        name: next(iter(read_machine_captions([root.file(path, what="captions")], people).systems.values()))
        for name, path in ABROAD.items()
    }
    images = sorted({item.image for item in drawn.items})
    alike = most_alike(people, images)
    items = list(drawn.items)
    kinds = ["person" if item.system == HUMAN else "foreign" if item.system == FOREIGN else "machine" for item in items]
    for image in images:
        # As the training draws: four references; which of the five is left out hangs on the image alone.
        references = tuple(people[image][: config.draw.references])
        of_image = {"alike": [people[other][0] for other in alike[image]]}
        of_image |= {f"viecap-{name}": [captions[image]] for name, captions in abroad.items() if image in captions}
        of_image["every system"] = sorted({captions[image] for captions in systems.values() if image in captions})
        for kind, texts in of_image.items():
            items += [Item(image, text, references) for text in texts]
            kinds += [kind] * len(texts)
    every = [place for place, kind in enumerate(kinds) if kind == "every system"]
    (cider,) = [request for request in input_requests(str(vectors), config.df) if request.columns == ("cider",)]
    table = score([items[place] for place in every], [cider], Resources(data=str(root.path)), dataset="all systems")
    (value,) = table.values.values()
    by_image: dict[str, list[tuple[float, int]]] = {}
    for place, one in zip(every, value.tolist(), strict=True):
        by_image.setdefault(items[place].image, []).append((one, place))
    lowest = {place for of in by_image.values() for _, place in sorted(of)[: config.draw.machine]}
    kept = [place for place, kind in enumerate(kinds) if kind != "every system" or place in lowest]
    items = [items[place] for place in kept]
    names = ["lowest" if kinds[place] == "every system" else kinds[place] for place in kept]
    say(f"scores of {len(items):,} captions; SPICE parses those it never saw")
    inputs = scored(items, vectors, root, config.df)
    return Captions(
        inputs, np.array(names), np.array([item.image for item in items]), held_out_images(config, drawn.items, items)
    )


def held_out_images(config: NNEvalTraining, drawn: Sequence[Item], items: Sequence[Item]) -> NDArray[np.bool_]:
    """(n) whether an item's image is one that the training holds out."""
    back = {item.image for item, out in zip(drawn, held_out(config, drawn), strict=True) if out}
    return np.array([item.image in back for item in items])


def train_variant(
    captions: Captions,
    variant: Variant,
    seeds: Sequence[int],
    kept: Path,
    watch: Callable[[Scorer], Any] | None = None,
) -> tuple[list[Scorer], dict[str, Any]]:
    """Train one network a seed as configs/train/nneval-coco-foreign.yaml does.

    Args:
        captions: all kinds.
        variant: what to learn from.
        seeds: of weights and order.
        kept: where trained weights are kept; what is there is taken, unless there is something to watch.
        watch: called after each epoch with the first seed's network; what it returns is kept.

    Returns:
        What scores inputs, one a seed, and facts.
    """
    images = np.unique(captions.images[~captions.dev])
    chosen = np.random.default_rng(7).permutation(images)[: round(variant.share * len(images))]
    wanted = captions.of([*variant.people, *variant.machines])
    train = wanted & ~captions.dev & np.isin(captions.images, chosen)
    dev = wanted & captions.dev
    minimum, maximum = captions.inputs[train].min(axis=0), captions.inputs[train].max(axis=0)
    shown = np.array([name not in variant.without for name in INPUTS])

    def mapped(inputs: FloatArray) -> Tensor:
        return torch.from_numpy(np.where(shown, map_inputs(inputs, minimum, maximum), 0.0).astype(np.float32))

    model = Networks(seeds, variant.rising)

    def scores_of(place: int) -> Scorer:
        def scores(of: FloatArray) -> FloatArray:
            with torch.inference_mode():
                logits = model(mapped(of).expand(len(seeds), -1, -1))[place].double().numpy()
            margin: FloatArray = logits[:, 1] - logits[:, 0]
            return margin

        return scores

    scorers = [scores_of(place) for place in range(len(seeds))]
    if kept.is_file() and watch is None:
        held = torch.load(kept, weights_only=True)
        model.load_state_dict(held["state"])
        return scorers, held["facts"]
    matrices = [model.weights[name] for name in ("W1", "W2", "W_out")]
    biases = [model.weights[name] for name in ("b1", "b2", "b_out")]
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": 1e-4}, {"params": biases}]
    optimiser = torch.optim.Adam(groups, lr=5e-4)
    human = torch.from_numpy(captions.of(variant.people).astype(np.int64))
    inputs, labels = mapped(captions.inputs[train]), human[torch.from_numpy(train)]
    dev_inputs, dev_labels = mapped(captions.inputs[dev]), human[torch.from_numpy(dev)]
    best = [-np.inf] * len(seeds)
    epochs = [0] * len(seeds)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    watched = []
    for epoch in range(1, EPOCHS + 1):
        orders = [np.random.default_rng((seed, 1, epoch)).permutation(len(labels)) for seed in seeds]
        order = torch.from_numpy(np.stack(orders))
        for begin in range(0, len(labels), 75):
            places = order[:, begin : begin + 75]
            optimiser.zero_grad(set_to_none=True)
            logits = model(inputs[places])
            # The sum over seeds of their means: no seed's gradient hangs on another's.
            loss = functional.cross_entropy(logits.flatten(0, 1), labels[places].flatten()) * len(seeds)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if watch is not None:
            watched.append(watch(scorers[0]))
        with torch.inference_mode():
            logits = model(dev_inputs.expand(len(seeds), -1, -1))
        for place, of_seed in enumerate(logits):
            likelihood = -float(functional.cross_entropy(of_seed, dev_labels))
            if epoch - epochs[place] <= PATIENCE and likelihood > best[place]:
                best[place], epochs[place] = likelihood, epoch
                for name, value in model.state_dict().items():
                    state[name][place] = value[place]
        if all(epoch - last >= PATIENCE for last in epochs):
            break
    model.load_state_dict(state)
    facts = {"captions": int(train.sum()), "epoch": epochs, "log_likelihood": [round(one, 6) for one in best]}
    if watch is None:
        with atomic_write(kept, "wb") as file:
            torch.save({"state": model.state_dict(), "facts": facts}, file)
    return scorers, {**facts, **({"epochs": watched} if watch is not None else {})}


def share_won(first: FloatArray, second: FloatArray, images: tuple[NDArray[np.str_], NDArray[np.str_]]) -> float:
    """Percent of pairs of captions of one image in which the first is higher; a tie is half."""
    by_image: dict[str, tuple[list[float], list[float]]] = {}
    for side, (values, names) in enumerate(zip((first, second), images, strict=True)):
        for value, name in zip(values.tolist(), names.tolist(), strict=True):
            by_image.setdefault(name, ([], []))[side].append(value)
    margins = [np.sign(np.subtract.outer(of, other)).ravel() for of, other in by_image.values() if of and other]
    return round(100 * float((np.concatenate(margins).mean() + 1) / 2), 2)


def on_dev(captions: Captions, scores: FloatArray) -> dict[str, float]:
    """Shares of pairs on held-out images, and the mean of those which ask whether a caption fits."""
    told = {}
    for pair in PAIRS:
        sides = [captions.of([kind]) & captions.dev for kind in pair]
        first, second = (scores[side] for side in sides)
        told[" > ".join(pair)] = share_won(first, second, (captions.images[sides[0]], captions.images[sides[1]]))
    return {**told, "fits": round(float(np.mean([told[" > ".join(pair)] for pair in FITS])), 2)}


def falls(captions: Captions, scorer: Scorer) -> dict[str, float]:
    """For each input: percent of held-out captions whose score falls when that input alone rises by .01."""
    inputs = captions.inputs[captions.dev & captions.of(["person", "machine", "foreign"])]
    before = scorer(inputs)
    told = {}
    for place, name in enumerate(INPUTS):
        raised = inputs.copy()
        raised[:, place] += 0.01
        told[name] = round(100 * float((scorer(raised) < before).mean()), 1)
    return told


def writers(judged: Judgements, inputs: FloatArray, person: str, others: Sequence[str]) -> dict[str, Any]:
    """For each input: percent of pairs of an image in which the person's caption scores above a machine's.

    No judgement is read, only who wrote what.

    Args:
        judged: captions whose systems are named.
        inputs: (n, 8).
        person: the system that is people.
        others: the systems that are machines.
    """
    names = np.array([item.image for item in judged.items])
    systems = np.array([item.system for item in judged.items])
    groups = np.array([item.group for item in judged.items])
    told: dict[str, Any] = {}
    for group in dict.fromkeys(groups.tolist()):
        for system in others:
            sides = [(groups == group) & (systems == who) for who in (person, system)]
            told[f"{system}, {group}"] = {
                name: share_won(column[sides[0]], column[sides[1]], (names[sides[0]], names[sides[1]]))
                for name, column in zip(INPUTS, inputs.T, strict=True)
            }
    return told


def main(arguments: list[str] | None = None) -> None:
    """Carry out all steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--vectors", type=Path, required=True, help="word vectors of the trainings")
    parser.add_argument("--released", type=Path, help="the authors' weights as .npz, a row of their own")
    parser.add_argument("--out", type=Path, default=Path("results/nneval/diagnosis.json"))
    parser.add_argument("--work", type=Path, required=True, help="a folder for trained networks")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=[1, 2, 3])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME")
    parser.add_argument("--dev-only", action="store_true", help="stop before the judgements are read")
    parser.add_argument("--no-epochs", action="store_true", help="without the agreement after every epoch")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        require_writable(asked.out.resolve().parent)
        require_writable(asked.work)
        require_file(asked.vectors)
        root = find_root(asked.data)
        captions = captions_of(root, asked.vectors)
        told: dict[str, Any] = read_json(asked.out) if asked.out.is_file() else {}
        told["captions"] = {kind: int(captions.of([kind]).sum()) for kind in KINDS}
        told["held out"] = len(np.unique(captions.images[captions.dev]))
        scorers: dict[str, list[Scorer]] = {name: [_column(place)] for place, name in enumerate(INPUTS)}
        if asked.released is not None:
            require_file(asked.released)
            scorers["released"] = [_margin(asked.released)]
        rows: dict[str, Any] = told.setdefault("rows", {})
        for name in asked.variants:
            say(f"train: {name}")
            scorers[name], facts = train_variant(captions, VARIANTS[name], asked.seeds, asked.work / f"{name}.pt")
            rows.setdefault(name, {})["training"] = facts
        for name, of_row in scorers.items():
            row = rows.setdefault(name, {})
            row["dev"] = [on_dev(captions, scorer(captions.inputs)) for scorer in of_row]
            row["falls"] = [falls(captions, scorer) for scorer in of_row]
            say(f"{name}: {row['dev'][0]}")
        _keep(asked.out, told)
        if asked.dev_only:
            return
        judged_by_name = {}
        for protocol_name in TESTED:
            dataset_name, rest = split_protocol(protocol_name)
            dataset = open_dataset(dataset_name, root)
            protocol = dataset.protocol(rest)
            (judged,) = dataset.load(protocol.items)
            judged = without_long(judged)
            inputs = input_scores(judged, root, asked.vectors)
            judged_by_name[protocol_name] = (judged, inputs)
            for name, of_row in scorers.items():
                values = []
                for scorer in of_row:
                    agreement = agreement_of(judged, protocol, {name: [scorer(inputs)]})
                    values.append(float(agreement.statistic(name)(np.ones((1, agreement.units), dtype=np.int32))[0]))
                rows[name].setdefault("test", {})[protocol_name] = values
            say(protocol_name)
            _keep(asked.out, told)
            best = max(INPUTS, key=lambda name: rows[name]["test"][protocol_name][0])
            for name in (name for name in COMPARED if name in scorers):
                told.setdefault("against the best input", {}).setdefault(protocol_name, {})[name] = against(
                    judged, protocol, name, [scorer(inputs) for scorer in scorers[name]], best, inputs
                )
            _keep(asked.out, told)
        judged, inputs = judged_by_name[TESTED[0]]
        told["writers"] = writers(judged, inputs, "human reference", ("neural captioner", "scene description"))
        ratings = judged.ratings["correctness"]

        def tau(scorer: Scorer) -> float:
            return round(correlation("tau-c", scorer(inputs)[ratings.item], ratings.value).value, 4)

        for name in () if asked.no_epochs else ("systems", "foreign"):
            say(f"every epoch of {name}")
            alone = asked.seeds[:1]
            rows[name]["epochs"] = train_variant(captions, VARIANTS[name], alone, asked.work / "none", tau)[1]["epochs"]
            _keep(asked.out, told)
    except CapbenchError as error:
        raise SystemExit(f"error: {error}") from error
    print(rendered(told))


def against(
    judged: Judgements, protocol: Protocol, name: str, scores: list[FloatArray], best: str, inputs: FloatArray
) -> dict[str, Any]:
    """The mean over a variant's seeds minus the best input, with the interval over images and the permutation test."""
    pair = agreement_of(judged, protocol, {name: scores, best: [inputs[:, INPUTS.index(best)]]})
    sample = draw_bootstrap(pair, resamples=RESAMPLES, seed=0)
    (one,) = compare(pair, sample=sample, permutations=RESAMPLES).pairs
    assert one.low is not None
    assert one.high is not None
    sign = 1 if one.better == name else -1
    low, high = sorted((sign * one.low, sign * one.high))
    return {"input": best, "difference": sign * one.difference, "low": low, "high": high, "p": one.p_value}


def rendered(told: Mapping[str, Any]) -> str:
    """The rows as Markdown: means over seeds on held-out images, and agreement with people."""

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    rows = {}
    for name, row in told["rows"].items():
        dev = [f"{mean([of[key] for of in row['dev']]):.1f}" for key in ("person > machine", *FIT_NAMES, "fits")]
        test = [
            spread([100 * one for one in of], 2) if key == TESTED[-1] else spread(of) for key, of in row["test"].items()
        ]
        rows[VARIANTS[name].title if name in VARIANTS else name] = [*dev, *test]
    test_names = ("Composite", "Composite, the literature's", "Expert", "PASCAL-50S")
    heads = ("", "person > machine", *FIT_NAMES, "fits", *test_names)
    return table(rows, heads)


def _column(place: int) -> Scorer:
    return lambda inputs: inputs[:, place]


def _margin(path: Path) -> Scorer:
    network = read_nneval(path)

    def logit(inputs: FloatArray) -> FloatArray:
        share = np.clip(network.probabilities(inputs), 1e-300, 1 - 1e-16)
        margin: FloatArray = np.log(share) - np.log1p(-share)
        return margin

    return logit


def _keep(path: Path, told: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
