"""Training of NNEval (Sharif et al., ECCV 2018).

Three sources disagree. ``nneval-coco-paper`` has the paper's settings (section 4): batches of 75, 500 epochs, learning
rate .25, uniform first weights, weights chosen by Flickr8k Expert. ``nneval-coco-released`` has those of the released
code: batches of 6,650, 700 epochs, normal first weights (He et al.), penalty 1e-4. The defaults are the paper's batches
and epochs, the released first weights and penalty, and the learning rate of sibling work (5e-4).
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from capbench.core.errors import DataError, StatisticError, UsageError
from capbench.core.records import Coefficient, FloatArray, IntArray, Item, photograph
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.datasets.captions import CORPORA, load_captions, read_machine_captions
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot, find_root
from capbench.metrics.needs import Resources
from capbench.metrics.nneval.metric import input_matrix, input_requests
from capbench.metrics.nneval.network import SHAPES, class_scores, map_inputs, write_nneval
from capbench.metrics.scoring import score
from capbench.stats.correlation import correlation
from capbench.stats.pairwise_accuracy import aggregate
from capbench.text.word_vectors import WordVectors
from capbench.training.data import fingerprint, locate
from capbench.training.settings import AtLeast2, Count, Names, OptimiserOptions, Section, Text, Training, Whole
from capbench.training.trainer import Task, Watcher
from capbench.weights.training_files import KEY


class DrawOptions(Section):
    """Sampling of captions. The captions of an image depend only on its name."""

    images: AtLeast2 | None = None  # number of images; a larger sample contains a smaller one; null: all
    human: Count = 3  # human captions per image
    machine: Whole = 3  # captions per image by systems, each by another one
    foreign: Whole = 0  # human captions of other images, labelled as machine; the paper has none
    references: Count = 4  # references of a caption; those of a human caption exclude it


class NetworkOptions(Section):
    """First weights of the network, whose biases are zero, and its limit."""

    weights: Literal["he-normal", "glorot-uniform"] = "he-normal"
    """Normal with variance 2 / inputs (released code), or uniform in ±sqrt(6 / (inputs + outputs)) (paper)."""
    monotone: bool = False  # scores increase with every input; not in the paper


class StoppingOptions(Section):
    """Validation after each epoch; the best weights are kept."""

    protocol: Text | None = None
    """Agreement with these judgements, which are then not a test set; null: captions of a tenth of the images."""


class NNEvalTraining(Training):
    """The settings of a training of NNEval."""

    unchecked = (*Training.unchecked, "captions", "machine", "vectors")

    captions: Text  # human captions: a known corpus or a file
    machine: Names  # files of captions by systems
    vectors: Text  # word vectors for WMD
    domain: Text | None = None  # source of the images, shown in tables
    exclude: Names | None = None  # data sets of judgements whose images are left out, in addition to 'stopping'
    df: Text = "coco-val"  # source of CIDEr's document frequencies
    draw: DrawOptions = DrawOptions()
    network: NetworkOptions = NetworkOptions()
    stopping: StoppingOptions = StoppingOptions()
    optimiser: OptimiserOptions = OptimiserOptions(lr=5e-4, clip=None, weight_decay=1e-4)  # penalty: of weights only
    batch: AtLeast2 = 75  # captions per step
    epochs: Count = 500
    log_every: Count = 200

    def contradictions(self) -> Iterable[str]:
        if not self.draw.machine and not self.draw.foreign:
            yield "'draw.machine' and 'draw.foreign' are 0: set one of them"


# Training captions: human and machine captions with their references (Sharif et al., section 4.2), and, not in the
# paper, human captions of other images, labelled as machine.

HUMAN, FOREIGN = "human", "foreign"  # System of an item with a human caption: of its image, or of another image


def draw_captions(
    human: Mapping[str, Sequence[str]],  # human captions by image
    systems: Mapping[str, Mapping[str, str]],  # captions by system and image
    excluded: Collection[str],  # images that are left out, under any name (:func:`photograph`)
    options: DrawOptions,  # numbers of images and captions
) -> tuple[list[Item], dict[str, int]]:
    """Captions with their references, grouped by image, and numbers of used and omitted images and captions."""
    left_out = {photograph(image) for image in excluded}
    by_system = {image: [name for name in sorted(systems) if image in systems[name]] for image in human}
    described = [image for image in human if by_system[image]]
    free = [image for image in described if photograph(image) not in left_out]
    least = max(options.human, options.references + 1)
    fit = [image for image in free if len(human[image]) >= least and len(by_system[image]) >= options.machine]
    # Sorted by a hash of the name, so that a larger sample contains a smaller one and its cached scores.
    ring = sorted((_number(image), image) for image in fit)
    chosen = [image for _, image in ring[: options.images]]
    counts = {
        "images with captions of systems": len(described),
        "images left out as judged": len(described) - len(free),
        "images left out for too few captions": len(free) - len(fit),
    }
    if len(chosen) < 2:
        listed = ", ".join(f"{number:,} {what}" for what, number in counts.items())
        message, hint = f"there are too few images: {listed}", "Use other 'captions' or 'machine' files"
        raise DataError(message, code="too-few", value=len(fit), hint=hint)

    def some(texts: Sequence[str], number: int, rng: np.random.Generator) -> tuple[str, ...]:
        """A random sample, in the order of the texts."""
        return tuple(texts[place] for place in np.sort(rng.choice(len(texts), number, replace=False)))

    items: list[Item] = []
    for image in sorted(chosen):
        rng, texts, names = np.random.default_rng((_number(image), 1)), human[image], by_system[image]
        for place in rng.choice(len(texts), options.human, replace=False):
            others = [*texts[:place], *texts[place + 1 :]]
            items.append(Item(image, texts[place], some(others, options.references, rng), system=HUMAN))
        systems_of = [names[place] for place in rng.choice(len(names), options.machine, replace=False)]
        wrong = [(name, systems[name][image]) for name in systems_of]
        for other in _others(ring, image, options.foreign):
            wrong.append((FOREIGN, human[other][_number(f"{image}\0{other}") % len(human[other])]))
        items += [Item(image, text, some(texts, options.references, rng), system=name) for name, text in wrong]
    counts = {"images": len(chosen), "captions": len(items), **counts}
    counts["systems"] = len({item.system for item in items} - {HUMAN, FOREIGN})
    if options.foreign:
        counts["captions of other images"] = sum(item.system == FOREIGN for item in items)
    return items, counts


def _others(ring: Sequence[tuple[int, str]], image: str, number: int) -> list[str]:
    """Other images of the ring of all, by the image names only; the next image replaces a missing one."""
    chosen: list[str] = []
    for each in range(min(number, len(ring) - 1)):
        place = bisect_left(ring, (_number(f"{image}\0{each}"), ""))
        while ring[place % len(ring)][1] in (image, *chosen):
            place += 1
        chosen.append(ring[place % len(ring)][1])
    return chosen


def _number(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"1\0{name}".encode(), digest_size=8).digest(), "big")


def held_out(items: Sequence[Item]) -> NDArray[np.bool_]:
    """(n,) True for the captions of a tenth of the images; independent of the training's seed."""
    images = sorted({item.image for item in items})
    number = min(len(images) - 1, max(1, round(0.1 * len(images))))
    chosen = {images[place] for place in np.random.default_rng((1, 4)).permutation(len(images))[:number]}
    return np.array([item.image in chosen for item in items])


class NNEvalModule(nn.Module):
    """The network (eq. 2 to 4), with its weights by the names of :data:`capbench.metrics.nneval.network.SHAPES`.

    With ``monotone``, absolute values of the weights are used, negated for class 0 of the last layer.
    """

    def __init__(self, options: NetworkOptions, generator: torch.Generator) -> None:
        super().__init__()
        self._monotone = options.monotone
        for name, shape in SHAPES.items():
            values, limit = torch.zeros(shape), math.sqrt(6 / sum(shape))
            if len(shape) == 2 and options.weights == "he-normal":
                values.normal_(0.0, math.sqrt(2 / shape[0]), generator=generator)
            elif len(shape) == 2:
                values.uniform_(-limit, limit, generator=generator)
            self.register_parameter(name, nn.Parameter(values))

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 8) inputs in [-1, 1] → (n, 2) class scores, in the inputs' precision."""
        return class_scores(inputs, {name: tensor.to(inputs.dtype) for name, tensor in self.effective().items()})

    def effective(self) -> dict[str, Tensor]:
        """The weights that multiply the inputs, by name, as stored in the network's file."""
        weights: dict[str, Tensor] = dict(self.named_parameters())
        if self._monotone:
            weights |= {name: weights[name].abs() for name in ("W1", "W2", "W_out")}
            weights["W_out"] = weights["W_out"] * torch.tensor([-1.0, 1.0]).to(weights["W_out"])
        return weights


class Examples(NamedTuple):
    """Human and machine captions; or captions with ratings, which then have a coefficient of agreement."""

    inputs: FloatArray  # (n, 8) scores in the network's order
    value: IntArray | FloatArray  # (n,) 1 for human, 0 for machine captions; or (m,) ratings
    item: IntArray | slice = slice(None)  # (m,) caption of each rating
    coefficient: Coefficient | None = None


def judged_protocol(name: str, root: DataRoot) -> Protocol:
    """The protocol of the judgements that select the weights."""
    dataset, rest = split_protocol(name)
    protocol = open_dataset(dataset, root).protocol(rest)
    statistic = protocol.statistic
    if statistic.level != "captions" or statistic.coefficient is None or protocol.items.draws > 1:
        message = f"'stopping.protocol' is {protocol}, which is not a correlation over captions with one reference set"
        hint = "Example: flickr8k-expert/all-pairs/mode-tau-b"
        raise UsageError(message, code="unsupported", value=name, hint=hint)
    return protocol


def draw(
    config: NNEvalTraining, root: DataRoot, excluded: Iterable[str], say: Callable[[str], None]
) -> tuple[list[Item], dict[str, int]]:
    """Sample the captions of a training, without images of the ``excluded`` data sets."""
    corpus = config.captions if config.captions in CORPORA else str(locate(config.captions, root, "captions"))
    human, left_out = load_captions(corpus, root), set[str]()
    for name in excluded:
        dataset = open_dataset(name, root)
        images = {item.image for drawn in dataset.load(dataset.protocol().items) for item in drawn.items}
        say(f"{name}: its {len(images):,} images are left out")
        left_out |= images
    machine = [locate(name, root, "captions of systems") for name in config.machine]
    items, counts = draw_captions(human, read_machine_captions(machine, human, say), left_out, config.draw)
    say(f"{config.captions}: {', '.join(f'{number:,} {what}' for what, number in counts.items())}")
    return items, counts


class NNEvalTask(Task[NNEvalModule, tuple[Tensor, Tensor]]):
    """Classification of captions as human or machine by their scores, which are cached."""

    settings = NNEvalTraining
    metric = "nneval"

    def __init__(self, config: NNEvalTraining, root: DataRoot | None, device: torch.device, watcher: Watcher) -> None:
        self.config, root = config, root or find_root(None)
        protocol = None if config.stopping.protocol is None else judged_protocol(config.stopping.protocol, root)
        selecting = [] if protocol is None else [protocol.dataset]
        items, counts = draw(config, root, dict.fromkeys([*(config.exclude or ()), *selecting]), watcher.say)
        vectors, signatures = str(locate(config.vectors, root, "word vectors")), dict[str, str]()
        requests = input_requests(vectors, config.df)

        def scored(items: Sequence[Item], what: str) -> FloatArray:
            with watcher.bar(f"scores of {what}", len(items) * len(requests)) as step:
                table = score(items, requests, Resources(data=str(root.path)), dataset=what, progress=step)
            signatures.update(table.signatures)
            return input_matrix({key.column: values for key, values in table.values.items()})

        human = np.array([int(item.system == HUMAN) for item in items])
        train = Examples(scored(items, "training captions"), human)
        texts = captions_of(text for item in items for text in (item.candidate, *item.references))
        record = TrainingRecord("", photographs_of(item.image for item in items), texts)
        self.data = {"captions": fingerprint(f"{item.key.hex()} {item.system == HUMAN}" for item in items)}
        if protocol is None:
            out = held_out(items)
            watcher.say(f"held out: {out.sum():,} captions; training: {(~out).sum():,}")
            dev = Examples(train.inputs[out], human[out])
            train = Examples(train.inputs[~out], human[~out])
        else:
            (judgements,) = open_dataset(protocol.dataset, root).load(protocol.items)
            ratings, statistic = judgements.ratings[protocol.statistic.human], protocol.statistic
            item, value = aggregate(ratings.item, ratings.value, statistic.aggregation)
            dev = Examples(scored(judgements.items, protocol.dataset), value, item, statistic.coefficient)
            chosen = photographs_of(item.image for item in judgements.items)
            record = replace(record, selected=chosen, selected_by=f"judgements ({protocol.versioned})")
            self.data["judgements"] = protocol.versioned
        self.data["inputs"] = fingerprint([repr(sorted(signatures.items()))])
        self._facts: dict[str, Any] = {"about": about(config, counts), "counts": counts, "inputs": signatures}
        self._facts |= {"word_vectors": WordVectors(vectors).sha256, KEY: record.to_json()}
        self._facts["chosen_by"] = None if protocol is None else protocol.versioned
        self.learn(train, dev, device)

    def learn(self, train: Examples, dev: Examples, device: torch.device) -> None:
        """Make the network and its optimiser for some data."""
        inputs, config = train.inputs, self.config
        if (inputs.min(axis=0) == inputs.max(axis=0)).all() or train.value.min() == train.value.max():
            raise DataError("all captions have the same scores", code="undefined", hint="Sample more images")
        self.dev, self.score = dev, "log_likelihood" if dev.coefficient is None else "tau"
        # In the precision of the file, so that scoring uses identical values.
        self._range = (inputs.min(0).astype(np.float32), inputs.max(0).astype(np.float32))
        low, high = (limit.astype(np.float64) for limit in self._range)
        mapped = [torch.from_numpy(map_inputs(each, low, high)).to(device) for each in (inputs, dev.inputs)]
        self._inputs, self._dev_inputs = mapped[0].float(), mapped[1]
        self._labels = torch.from_numpy(train.value).to(device)
        generator = torch.Generator().manual_seed(config.seed)
        self.model = NNEvalModule(config.network, generator).to(device)
        # Adam's penalty adds weight_decay * W to the gradient, which is that of weight_decay * |W|² / 2.
        groups = [
            {"params": [weight for weight in self.model.parameters() if weight.ndim == n], "weight_decay": penalty}
            for n, penalty in ((2, config.optimiser.weight_decay), (1, 0.0))
        ]
        self.optimiser = torch.optim.Adam(groups, lr=config.optimiser.lr)
        self.steps_per_epoch = -(-len(inputs) // config.batch)

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = np.random.default_rng((self.config.seed, 1, epoch)).permutation(len(self._labels))
        places = torch.from_numpy(order).to(self._labels.device)
        for begin in range(first * self.config.batch, len(order), self.config.batch):
            chosen = places[begin : begin + self.config.batch]
            yield self._inputs[chosen], self._labels[chosen]

    def loss(self, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        """The mean cross entropy (eq. 7); the optimiser adds the penalty."""
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    @torch.inference_mode()
    def validate(self, model: NNEvalModule, pause: Callable[[], None]) -> dict[str, Any]:
        """Agreement with the judgements (0 if all scores are equal), or likelihood and accuracy on held-out images."""
        scores = functional.log_softmax(model(self._dev_inputs), dim=1).cpu().numpy()
        _, value, item, coefficient = self.dev
        if coefficient is not None:
            try:
                return {"tau": round(correlation(coefficient, np.exp(scores[:, 1])[item], value).value, 6)}
            except StatisticError:
                return {"tau": 0.0}
        right = scores[np.arange(len(scores)), value.astype(np.int64)]
        accuracy = float(((scores[:, 1] > scores[:, 0]) == value).mean())
        return {"log_likelihood": round(float(right.mean()), 6), "accuracy": round(accuracy, 6)}

    def facts(self) -> dict[str, Any]:
        return self._facts

    def save(self, path: Path, model: NNEvalModule, facts: Mapping[str, Any]) -> None:
        low, high = self._range
        write_nneval(path, {name: tensor.detach() for name, tensor in model.effective().items()}, low, high, facts)

    @classmethod
    def use(cls, config: NNEvalTraining, model: Path) -> str:
        return f"--metric nneval --model nneval={model} --option nneval.vectors={config.vectors}"


def about(config: NNEvalTraining, counts: Mapping[str, int]) -> str:
    """Description of the weights in tables, after "weights". Files store it: do not change the wording."""
    domain, foreign = config.domain, counts.get("captions of other images")
    said = f"were trained on {counts['captions']:,} captions of {counts['images']:,} images"
    said += "" if domain is None else f" ({domain})"
    said += f", those of machines by {counts['systems']} systems (the paper's: three systems, Flickr30k)"
    if foreign is not None:
        said += f"; {foreign:,} of them are people's of other images, which count as machines' (the paper has none)"
    if domain is not None:
        said += f"; captions of {domain} images that people judged are of the same domain"
    if config.network.monotone:
        said += "; no input of theirs may lower the score (the paper has no such limit)"
    return said
