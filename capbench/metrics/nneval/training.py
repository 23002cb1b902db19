"""Training of NNEval (Sharif et al., ECCV 2018): settings, data, and the task for the training loop."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from capbench.core.errors import DataError, StatisticError, UsageError
from capbench.core.options import Choice, Count, Flag, Options, Share, Text, option
from capbench.core.progress import LONG_S, Progress, part_of, together
from capbench.core.records import Coefficient, FloatArray, IntArray, Item, photograph
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.datasets.captions import load_captions, read_machine_captions
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.metrics.needs import Resources
from capbench.metrics.nneval.metric import input_matrix, input_requests
from capbench.metrics.nneval.network import INPUTS, SHAPES, map_inputs, write_nneval
from capbench.metrics.scoring import score, slow_work
from capbench.stats.correlation import correlation
from capbench.stats.pairwise_accuracy import aggregate
from capbench.text.word_vectors import WordVectors
from capbench.training.captions import locate
from capbench.training.loop import Running, Task, TrainingResult, train
from capbench.training.settings import Names, OptimiserOptions, OrNull, Section, Training
from capbench.training.trainable import Trainable

# Settings of training files, each key with kind, default and meaning.
#
# Schema version 1; ``schema``, ``name``, ``captions``, ``machine`` and ``vectors`` are required::
#
#     schema: 1
#     name: nneval-coco
#     captions: coco-test              # human captions: a known corpus or a file
#     machine:                         # captions by systems, see capbench.datasets.captions
#       - machine_captions/where_image2/imgs_mscoco.txt
#     exclude: [composite, thumb]      # data sets of judgements whose images are left out
#     vectors: vectors.bin             # for WMD
#     stopping: {protocol: flickr8k-expert/all-pairs/mode-tau-b}
#     optimiser: {lr: 0.0005}
#
# Keys that all trainers share are in :mod:`capbench.training.settings`. The paper's settings (Sharif et al., ECCV 2018,
# section 4) are ``batch: 75``, ``epochs: 500``, ``optimiser: {lr: 0.25}``, ``network: {weights: glorot-uniform}`` and
# stopping on Flickr8k Expert; its released code has ``batch: 6650``, ``epochs: 700``, ``network: {weights: he-
# normal}``.


@dataclass(frozen=True, kw_only=True)
class DrawOptions(Options):
    """Sampling of captions. The captions of an image depend only on its name and the seed."""

    images: int | None = option(None, Count(2), "number of images; a larger sample contains a smaller one; null: all")
    human: int = option(3, Count(1), "number of human captions per image")
    machine: int = option(3, Count(0), "number of captions per image by systems, each by another one")
    foreign: int = option(
        0, Count(0), "number of human captions of other images, labelled as machine; the paper has none"
    )
    references: int = option(4, Count(1), "number of references of a caption; those of a human caption exclude it")
    seed: int = option(1, Count(0, 2**32 - 1), "seed of the sampling, independent of the training's seed")


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(Options):
    """Initial weights of the network (biases are zero), and constraints."""

    weights: Literal["he-normal", "glorot-uniform"] = option(
        "he-normal",
        Choice("he-normal", "glorot-uniform"),
        "normal with variance 2 / inputs (released code), or uniform in ±sqrt(6 / (inputs + outputs)) (paper)",
    )
    monotone: bool = option(False, Flag(), "scores increase with every input; not in the paper")


@dataclass(frozen=True, kw_only=True)
class StoppingOptions(Options):
    """Validation after each epoch; the best weights are kept."""

    protocol: str | None = option(
        None,
        OrNull(Text("flickr8k-expert/all-pairs/mode-tau-b")),
        "agreement with these judgements, which are then not a test set; null: captions of held-out training images",
    )
    held_out: float = option(0.1, Share(), "share of images that are held out without a protocol")


@dataclass(frozen=True, kw_only=True)
class NNEvalTraining(Training):
    """The settings of a training of NNEval, not resolved."""

    # Paths may change: the content of the files is compared.
    undeciding = (*Training.undeciding, "captions", "machine", "vectors")

    captions: str = option(MISSING, Text("coco-test"), "human captions: a known corpus or a file")
    machine: tuple[str, ...] = option(MISSING, Names(), "files of captions by systems, in the current or data folder")
    vectors: str = option(MISSING, Text("vectors.bin"), "word vectors for WMD")
    domain: str | None = option(None, Text("COCO"), "source of the images, shown in tables")
    exclude: tuple[str, ...] | None = option(
        None, OrNull(Names()), "data sets of judgements whose images are left out; null: only that of 'stopping'"
    )
    df: str = option("coco-val", Text("coco-val"), "source of CIDEr's document frequencies")
    draw: DrawOptions = option(DrawOptions(), Section(), "sampling of captions")
    network: NetworkOptions = option(NetworkOptions(), Section(), "initial weights and constraints")
    stopping: StoppingOptions = option(StoppingOptions(), Section(), "validation")
    optimiser: OptimiserOptions = option(
        OptimiserOptions(lr=5e-4, clip=None, weight_decay=1e-4),
        Section(),
        "Adam; the penalty applies to weights only",
    )
    batch: int = option(75, Count(2), "number of captions per step")
    epochs: int = option(500, Count(1), "number of passes over the captions")
    log_every: int = option(200, Count(1), "number of steps between two lines of the log")


# Training captions: human and machine captions with their references (Sharif et al., section 4.2).
#
# An extension adds human captions of other images, labelled as machine: a network that only separates humans from
# systems does not learn if a caption matches its image.

HUMAN, FOREIGN = "human", "foreign"
"""System of an item with a human caption: of its image, or of another image."""


@dataclass(frozen=True)
class Drawn:
    """Sampled training captions.

    Attributes:
        items: captions with their references, grouped by image.
        human: for each item, True if it is a human caption of its image.
        counts: numbers of used and omitted images and captions by a short name, for the model's facts.
    """

    items: tuple[Item, ...]
    human: tuple[bool, ...]
    counts: Mapping[str, int]


def draw_captions(
    people: Mapping[str, Sequence[str]],
    systems: Mapping[str, Mapping[str, str]],
    judged: Collection[str],
    options: DrawOptions,
) -> Drawn:
    """Sample captions and references.

    Args:
        people: human captions by image.
        systems: captions by system and image.
        judged: images that are left out, under any name (:func:`photograph`).
        options: numbers of images and captions.

    Raises:
        DataError: fewer than two images remain.
    """
    left_out = {photograph(image) for image in judged}
    by_system = {image: [name for name in sorted(systems) if image in systems[name]] for image in people}
    described = [image for image in people if by_system[image]]
    free = [image for image in described if photograph(image) not in left_out]
    fit = [
        image
        for image in free
        if len(people[image]) > options.references
        and len(people[image]) >= options.human
        and len(by_system[image]) >= options.machine
    ]
    # Sorted by a hash of the name, so that a larger sample contains a smaller one and its cached scores.
    chosen = sorted(fit, key=lambda image: _number(image, options.seed))[: options.images]
    if len(chosen) < 2:
        raise DataError(
            f"there are too few images: {len(described):,} of {len(people):,} have captions by systems, {len(free):,} "
            f"of these are not judged, and {len(fit):,} have enough captions",
            code="too-few",
            value=len(fit),
            hint="Use other 'captions' or 'machine' files, or exclude fewer data sets",
        )
    items: list[Item] = []
    human: list[bool] = []
    # Foreign captions depend only on the image names; the next image replaces a missing one.
    ring = sorted((_number(image, options.seed), image) for image in fit)
    for image in sorted(chosen):
        rng = np.random.default_rng((_number(image, options.seed), 1))
        texts = people[image]
        for place in rng.choice(len(texts), options.human, replace=False).tolist():
            others = [text for other, text in enumerate(texts) if other != place]
            items.append(Item(image, texts[place], _some(others, options.references, rng), system=HUMAN))
            human.append(True)
        for place in rng.choice(len(by_system[image]), options.machine, replace=False).tolist():
            system = by_system[image][place]
            references = _some(texts, options.references, rng)
            items.append(Item(image, systems[system][image], references, system=system))
            human.append(False)
        for other in _others(ring, image, options):
            place = _number(f"{image}\0{other}", options.seed) % len(people[other])
            references = _some(texts, options.references, rng)
            items.append(Item(image, people[other][place], references, system=FOREIGN))
            human.append(False)
    counts = {
        "images": len(chosen),
        "captions": len(items),
        "systems": len({item.system for item in items} - {HUMAN, FOREIGN}),
        "images with captions of systems": len(described),
        "images left out as judged": len(described) - len(free),
        "images left out for too few captions": len(free) - len(fit),
    }
    if options.foreign:
        counts["captions of other images"] = sum(item.system == FOREIGN for item in items)
    return Drawn(tuple(items), tuple(human), counts)


def _others(ring: Sequence[tuple[int, str]], image: str, options: DrawOptions) -> list[str]:
    """Other images, one for each foreign caption; all other images if there are fewer."""
    chosen: list[str] = []
    for number in range(min(options.foreign, len(ring) - 1)):
        place = bisect_left(ring, (_number(f"{image}\0{number}", options.seed), ""))
        while ring[place % len(ring)][1] in (image, *chosen):
            place += 1
        chosen.append(ring[place % len(ring)][1])
    return chosen


def _some(texts: Sequence[str], number: int, rng: np.random.Generator) -> tuple[str, ...]:
    """A random sample of the texts, in their order."""
    return tuple(texts[place] for place in sorted(rng.choice(len(texts), number, replace=False).tolist()))


def _number(image: str, seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{image}".encode(), digest_size=8).digest(), "big")


# Preparation of the training data from the settings.

Bars = Callable[[str, int], AbstractContextManager[Progress]]
"""Creates a progress bar from a description and a number of steps."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Human and machine captions.

    Attributes:
        inputs: (n, 8) scores in the network's order.
        human: (n) True for human captions.
    """

    inputs: FloatArray
    human: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Judged:
    """Captions with ratings.

    Attributes:
        inputs: (n, 8) scores in the network's order.
        item: (m) index of each data point's caption.
        value: (m) ratings.
        coefficient: the correlation coefficient.
    """

    inputs: FloatArray
    item: IntArray
    value: FloatArray
    coefficient: Coefficient


@dataclass(frozen=True)
class Prepared:
    """The data of a training.

    Attributes:
        train: training data.
        dev: validation data.
        names: identifiers of the data, for resuming and for the model's facts.
        facts: other facts that are stored with the model.
        record: photographs and captions of the training, and of the judgements that select the weights; None
            if they are not known.
    """

    train: Examples
    dev: Examples | Judged
    names: dict[str, str]
    facts: dict[str, Any]
    record: TrainingRecord | None = None


def prepare(
    config: NNEvalTraining,
    root: DataRoot,
    bars: Bars,
    say: Callable[[str], None] = lambda _text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Prepared:
    """Sample captions and compute the network's inputs.

    Scores and SPICE's parses are cached immediately, so that an interrupted preparation resumes.

    Args:
        config: the settings.
        root: the data folder.
        bars: creates progress bars.
        say: called with one line for each slow step.
        stop: called while scores are computed; True raises KeyboardInterrupt.

    Raises:
        CapbenchError: missing or invalid data, with file and row.
    """
    protocol = _protocol(config, root)
    drawn = draw(config, root, protocol, say)
    vectors = locate(config.vectors, root, "word vectors")
    requests = input_requests(str(vectors), config.df)
    resources = Resources(data=str(root.path))
    judgements = None
    if protocol is not None:
        dataset = open_dataset(protocol.dataset, root)
        (judgements,) = dataset.load(protocol.items)
    judged_items = () if judgements is None else judgements.items
    works = together(
        work
        for items in filter(None, (drawn.items, judged_items))
        for of_label in slow_work(items, requests, resources).values()
        for work in of_label
    )
    for work in works:
        if work.seconds > LONG_S:
            say(
                f"{work.subject} {len(work.units):,} {work.unit} first; finished work is stored, and the same command "
                "resumes"
            )
    signatures: dict[str, str] = {}

    def scored(items: Sequence[Item], what: str) -> FloatArray:
        with bars(f"scores of {what}", len(items) * len(requests)) as step:
            table = score(items, requests, resources, dataset=what, progress=_Stoppable(step, stop))
        signatures.update(table.signatures)
        return input_matrix({key.column: values for key, values in table.values.items()})

    inputs = scored(drawn.items, "training captions")
    human = np.array(drawn.human)
    facts: dict[str, Any] = {
        "about": _about(config, drawn),
        "counts": dict(drawn.counts),
        "word_vectors": WordVectors(vectors).sha256,
        "chosen_by": None if protocol is None else protocol.versioned,
    }
    record = TrainingRecord(
        "",
        photographs_of(item.image for item in drawn.items),
        captions_of(text for item in drawn.items for text in (item.candidate, *item.references)),
        photographs_of(item.image for item in judged_items) if protocol is not None else None,
        "" if protocol is None else f"judgements ({protocol.versioned})",
    )
    names = {"captions": _fingerprint(drawn)}
    dev: Examples | Judged
    if protocol is None or judgements is None:
        kept_back = held_out(config, drawn.items)
        dev = Examples(inputs[kept_back], human[kept_back])
        inputs, human = inputs[~kept_back], human[~kept_back]
        say(f"held out: {int(kept_back.sum()):,} captions; training: {len(human):,}")
    else:
        ratings = judgements.ratings[protocol.statistic.human]
        item, value = aggregate(ratings.item, ratings.value, protocol.statistic.aggregation)
        assert protocol.statistic.coefficient is not None
        dev = Judged(scored(judged_items, protocol.dataset), item, value, protocol.statistic.coefficient)
        names["judgements"] = protocol.versioned
    facts["inputs"] = signatures
    names["inputs"] = hashlib.blake2b(repr(sorted(signatures.items())).encode(), digest_size=8).hexdigest()
    _check_varied(inputs, human)
    return Prepared(Examples(inputs, human), dev, names, facts, record)


class _Stoppable:
    """Progress that raises KeyboardInterrupt when the user stops the training."""

    def __init__(self, progress: Progress, stop: Callable[[], bool]) -> None:
        self._progress, self._stop = progress, stop

    def __call__(self, done: int) -> None:
        self._progress(done)
        if self._stop():
            raise KeyboardInterrupt

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """See :class:`capbench.core.progress.Parts`."""
        return _Stoppable(part_of(self._progress, name, total, unit, expected_s), self._stop)


def _protocol(config: NNEvalTraining, root: DataRoot) -> Protocol | None:
    """The protocol of the judgements that select the weights. Raises UsageError if it is of another kind."""
    if config.stopping.protocol is None:
        return None
    name, rest = split_protocol(config.stopping.protocol)
    dataset = open_dataset(name, root)
    protocol = dataset.protocol(rest)
    if protocol.statistic.coefficient is None or protocol.items.draws > 1:
        raise UsageError(
            f"'stopping.protocol' is {protocol}, which is not a correlation over captions with one set of references",
            code="unsupported",
            value=config.stopping.protocol,
            hint="Example: flickr8k-expert/all-pairs/mode-tau-b",
        )
    return protocol


def draw(config: NNEvalTraining, root: DataRoot, protocol: Protocol | None, say: Callable[[str], None]) -> Drawn:
    """Sample the captions of a training, without images of judgements; reports what is left out.

    Args:
        config: the settings.
        root: the data folder.
        protocol: the judgements that select the weights, whose images are left out, too; None for none.
        say: called with one line for each data set that is left out.

    Raises:
        UsageError: neither captions by systems nor of other images are sampled.
        CapbenchError: missing or invalid data, with file and row.
    """
    if not config.draw.machine and not config.draw.foreign:
        raise UsageError(
            "'draw.machine' and 'draw.foreign' are 0, but the network requires captions that are labelled as machine",
            code="out-of-range",
            value=0,
            hint="Set one of them",
        )
    people = load_captions(_corpus(config.captions, root), root)
    paths = [locate(name, root, "captions of systems") for name in config.machine]
    machine = read_machine_captions(paths, people)
    for note in machine.notes:
        say(note)
    judged: set[str] = set()
    excluded = [*(config.exclude or ()), *([] if protocol is None else [protocol.dataset])]
    for name in dict.fromkeys(excluded):
        dataset = open_dataset(name, root)
        images = {item.image for one in dataset.load(dataset.protocol().items) for item in one.items}
        say(f"{name}: its {len(images):,} images are left out")
        judged |= images
    drawn = draw_captions(people, machine.systems, judged, config.draw)
    counts = drawn.counts
    say(
        f"{config.captions}: {counts['images with captions of systems']:,} images with captions of "
        f"{len(machine.systems)} systems, {counts['images left out as judged']:,} left out as judged, "
        f"{counts['images left out for too few captions']:,} with too few captions; "
        f"sampled: {counts['captions']:,} captions of {counts['images']:,} images"
    )
    return drawn


def _corpus(name: str, root: DataRoot) -> str:
    """The name of a known corpus, or the path of captions in the current or the data folder."""
    from capbench.datasets.captions import CORPORA

    return name if name in CORPORA else str(locate(name, root, "captions"))


def _about(config: NNEvalTraining, drawn: Drawn) -> str:
    """Description of the weights in tables, to follow "weights". Weight files store it: do not change the wording."""
    counts = drawn.counts
    of, alike, foreign = "", "", ""
    if "captions of other images" in counts:
        foreign = (
            f"; {counts['captions of other images']:,} of them are people's of other images, which count as machines' "
            "(the paper has none)"
        )
    if config.domain is not None:
        of = f" ({config.domain})"
        alike = f"; captions of {config.domain} images that people judged are of the same domain"
    limit = "; no input of theirs may lower the score (the paper has no such limit)" if config.network.monotone else ""
    return (
        f"were trained on {counts['captions']:,} captions of {counts['images']:,} images{of}, "
        f"those of machines by {counts['systems']} systems (the paper's: three systems, Flickr30k)"
        f"{foreign}{alike}{limit}"
    )


def held_out(config: NNEvalTraining, items: Sequence[Item]) -> NDArray[np.bool_]:
    """(n) True for items of held-out images; independent of the training's seed."""
    images = sorted({item.image for item in items})
    number = min(len(images) - 1, max(1, round(config.stopping.held_out * len(images))))
    order = np.random.default_rng((config.draw.seed, 4)).permutation(len(images))
    chosen = {images[place] for place in order[:number].tolist()}
    return np.array([item.image in chosen for item in items])


def _check_varied(inputs: FloatArray, human: NDArray[np.bool_]) -> None:
    constant = [name for name, column in zip(INPUTS, inputs.T, strict=True) if column.min() == column.max()]
    if len(constant) == len(INPUTS) or human.all() or not human.any():
        raise DataError("all captions have the same scores", code="undefined", hint="Sample more images")


def _fingerprint(drawn: Drawn) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for item, human in zip(drawn.items, drawn.human, strict=True):
        digest.update(item.key + bytes([human]))
    return digest.hexdigest()


def train_nneval(
    config: NNEvalTraining,
    run: Path,
    root: DataRoot,
    bars: Bars,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train NNEval in a run folder, or resume its training.

    Args:
        config: the settings (:func:`capbench.training.settings.load_training`).
        run: the folder; see :mod:`capbench.training.run_folder`.
        root: the data folder, for relative paths.
        bars: creates progress bars for the computation of scores.
        running: as :func:`capbench.training.loop.train`.

    Raises:
        KeyboardInterrupt: ``stop`` returned True before the training began; computed scores are in the cache.
        CapbenchError: as :func:`capbench.training.loop.train`; captions or judgements are missing or invalid.
    """
    stop = running.get("stop", lambda: False)
    return train(
        config,
        lambda device, say: NNEvalTask(config, prepare(config, root, bars, say, stop), device),
        run,
        **running,
    )


class NNEvalModule(nn.Module):
    """The network (eq. 2 to 4), with its weights by the names of :data:`capbench.metrics.nneval.network.SHAPES`.

    Args:
        weights: distribution of the initial weights.
        generator: draws them.
        monotone: True makes the score increase with every input: absolute values of the weights are used, negated for
            class 0 of the last layer. Not in the paper.
    """

    def __init__(self, weights: str, generator: torch.Generator, monotone: bool = False) -> None:
        super().__init__()
        self._monotone = monotone
        for name, shape in SHAPES.items():
            values = torch.zeros(shape)
            if len(shape) == 2 and weights == "he-normal":
                values.normal_(0.0, math.sqrt(2 / shape[0]), generator=generator)
            elif len(shape) == 2:
                limit = math.sqrt(6 / sum(shape))
                values.uniform_(-limit, limit, generator=generator)
            self.register_parameter(name, nn.Parameter(values))

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, 8) inputs in [-1, 1] → (n, 2) class scores, in the inputs' precision."""
        weights = {name: tensor.to(inputs.dtype) for name, tensor in self.effective().items()}
        hidden = functional.relu(inputs @ weights["W1"] + weights["b1"])
        hidden = functional.relu(hidden @ weights["W2"] + weights["b2"])
        return hidden @ weights["W_out"] + weights["b_out"]

    def effective(self) -> dict[str, Tensor]:
        """The weights that multiply the inputs, by name, as stored in the network's file."""
        weights: dict[str, Tensor] = dict(self.named_parameters())
        if self._monotone:
            weights |= {name: weights[name].abs() for name in ("W1", "W2", "W_out")}
            weights["W_out"] = torch.stack([-weights["W_out"][:, 0], weights["W_out"][:, 1]], dim=1)
        return weights


class NNEvalTask(Task[NNEvalModule, tuple[Tensor, Tensor]]):
    """Classification of captions as human or machine.

    Args:
        config: the settings.
        data: the data.
        device: device of the network.
    """

    def __init__(self, config: NNEvalTraining, data: Prepared, device: torch.device) -> None:
        self._config, self._device, self._dev = config, device, data.dev
        self.score = "tau" if isinstance(data.dev, Judged) else "log_likelihood"
        # In the precision of the file, so that scoring uses identical values.
        self._minimum, self._maximum = (
            limit.astype(np.float32).astype(np.float64)
            for limit in (data.train.inputs.min(axis=0), data.train.inputs.max(axis=0))
        )
        self._inputs = self._mapped(data.train.inputs).float()
        self._labels = torch.from_numpy(data.train.human.astype(np.int64)).to(device)
        self._dev_inputs = self._mapped(data.dev.inputs)
        # Drawn on the CPU, so that a seed gives the same weights on every device.
        generator = torch.Generator().manual_seed(config.seed)
        self.model = NNEvalModule(config.network.weights, generator, config.network.monotone).to(device)
        matrices, biases = (
            [tensor for name, tensor in self.model.named_parameters() if len(SHAPES[name]) == dimensions]
            for dimensions in (2, 1)
        )
        # Adam's penalty adds weight_decay * W to the gradient, which is that of weight_decay * |W|² / 2.
        self.optimiser = torch.optim.Adam(
            [
                {"params": matrices, "weight_decay": config.optimiser.weight_decay},
                {"params": biases, "weight_decay": 0.0},
            ],
            lr=config.optimiser.lr,
        )
        self.steps_per_epoch = -(-len(self._labels) // config.batch)
        self.data, self.facts, self.trained_on = data.names, data.facts, data.record

    def _mapped(self, inputs: FloatArray) -> Tensor:
        return torch.from_numpy(map_inputs(inputs, self._minimum, self._maximum)).to(self._device)

    def batches(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, starting with number ``first``."""
        order = np.random.default_rng((self._config.seed, 1, epoch)).permutation(len(self._labels))
        places = torch.from_numpy(order).to(self._device)
        for begin in range(first * self._config.batch, len(order), self._config.batch):
            chosen = places[begin : begin + self._config.batch]
            yield self._inputs[chosen], self._labels[chosen]

    def loss(self, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        """The mean cross entropy (eq. 7); the optimiser adds the penalty."""
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    @torch.inference_mode()
    def validate(self, model: NNEvalModule, pause: Callable[[], None]) -> dict[str, Any]:
        """Agreement with the judgements, or likelihood and accuracy on held-out captions.

        The correlation of a network with equal scores for all captions counts as 0.
        """
        pause()
        scores = functional.log_softmax(model(self._dev_inputs), dim=1).cpu().numpy()
        if isinstance(self._dev, Judged):
            human = np.exp(scores[:, 1])
            try:
                tau = correlation(self._dev.coefficient, human[self._dev.item], self._dev.value).value
            except StatisticError:
                tau = 0.0
            return {"tau": round(tau, 6)}
        right = np.where(self._dev.human, scores[:, 1], scores[:, 0])
        accuracy = float(((scores[:, 1] > scores[:, 0]) == self._dev.human).mean())
        return {"log_likelihood": round(float(right.mean()), 6), "accuracy": round(accuracy, 6)}

    def save(self, path: Path, model: NNEvalModule, facts: Mapping[str, Any]) -> None:
        """Weights, the inputs' ranges and facts as one ``.safetensors``."""
        weights = {name: tensor.detach() for name, tensor in model.effective().items()}
        write_nneval(path, weights, self._minimum, self._maximum, facts)


def _line(entry: Mapping[str, Any]) -> str:
    if "tau" in entry:
        return f"τ {entry['tau']:.4f}"
    return f"held-out log-likelihood {entry['log_likelihood']:.4f}, accuracy {entry['accuracy']:.1%}"


TRAINABLE = Trainable(
    settings=NNEvalTraining,
    train=train_nneval,
    shows_work=True,
    more_data=True,
    line=_line,
    score="score",
    metric="nneval",
    use=lambda settings, model: f"--metric nneval --model nneval={model} --option nneval.vectors={settings.vectors}",
)
