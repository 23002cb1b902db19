"""From a training's settings to the scores that NNEval's network learns from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.datasets.captions import load_captions
from capbench.datasets.machine_captions import read_machine_captions
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.protocol import Protocol
from capbench.datasets.root import DataRoot
from capbench.errors import DataError, UsageError
from capbench.metrics.base import Resources
from capbench.metrics.nneval import input_matrix, input_requests
from capbench.models.nneval import INPUTS, image_mark
from capbench.progress import LONG_S, Progress, part_of, together, words
from capbench.records import Coefficient, FloatArray, IntArray, Item
from capbench.scoring import score, slow_work
from capbench.stats.aggregate import aggregate
from capbench.text.embeddings.word_vectors import WordVectors
from capbench.training.captions import locate
from capbench.training.nneval.captions import Drawn, draw_captions
from capbench.training.nneval.config import NNEvalTraining

__all__ = ["Examples", "Judged", "Prepared", "draw", "held_out", "prepare"]

Bars = Callable[[str, int], AbstractContextManager[Progress]]
"""Makes a progress bar from a description and a number of steps."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Captions by people and by systems.

    Attributes:
        inputs: (n, 8) scores, in the network's order.
        human: (n) whether a person wrote it.
    """

    inputs: FloatArray
    human: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Judged:
    """Captions with ratings.

    Attributes:
        inputs: (n, 8) scores, in the network's order.
        item: (m) place of each data point's caption.
        value: (m) rating.
        coefficient: which correlation.
    """

    inputs: FloatArray
    item: IntArray
    value: FloatArray
    coefficient: Coefficient


@dataclass(frozen=True)
class Prepared:
    """What a training reads.

    Attributes:
        train: what is learned from.
        dev: what says how good weights are.
        names: what names the data, for resuming and for the model's facts.
        facts: what else to keep with the model.
    """

    train: Examples
    dev: Examples | Judged
    names: dict[str, str]
    facts: dict[str, Any]


def prepare(
    config: NNEvalTraining,
    root: DataRoot,
    bars: Bars,
    say: Callable[[str], None] = lambda _text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Prepared:
    """Draw captions and compute the scores that the network reads.

    Scores and SPICE's parses go to the cache as they are computed, so that an interrupted preparation goes on.

    Args:
        config: the settings.
        root: the data folder.
        bars: makes progress bars.
        say: called with one line for each thing that takes its time.
        stop: asked while scores are computed; True leaves by KeyboardInterrupt.

    Raises:
        CapbenchError: something is missing or does not fit; file and row are named.
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
                f"{work.subject} {len(work.units):,} {work.unit} first, {words(work.seconds)}; what is done is kept, "
                "and the same command goes on"
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
        "images": {"trained": _marks(drawn.items), "chosen": _marks(judged_items)},
    }
    names = {"captions": _fingerprint(drawn)}
    dev: Examples | Judged
    if protocol is None or judgements is None:
        kept_back = held_out(config, drawn.items)
        dev = Examples(inputs[kept_back], human[kept_back])
        inputs, human = inputs[~kept_back], human[~kept_back]
        say(f"held out: {int(kept_back.sum()):,} captions; learned from: {len(human):,}")
    else:
        ratings = judgements.ratings[protocol.statistic.human]
        item, value = aggregate(ratings.item, ratings.value, protocol.statistic.aggregation)
        assert protocol.statistic.coefficient is not None
        dev = Judged(scored(judged_items, protocol.dataset), item, value, protocol.statistic.coefficient)
        names["judgements"] = protocol.versioned
    facts["inputs"] = signatures
    names["inputs"] = hashlib.blake2b(repr(sorted(signatures.items())).encode(), digest_size=8).hexdigest()
    _check_varied(inputs, human)
    return Prepared(Examples(inputs, human), dev, names, facts)


class _Stoppable:
    """A progress that leaves by KeyboardInterrupt once the user has asked to stop."""

    def __init__(self, progress: Progress, stop: Callable[[], bool]) -> None:
        self._progress, self._stop = progress, stop

    def __call__(self, done: int) -> None:
        self._progress(done)
        if self._stop():
            raise KeyboardInterrupt

    def part(self, name: str, total: int, unit: str, expected_s: float | None = None) -> Progress:
        """See :class:`capbench.progress.Parts`."""
        return _Stoppable(part_of(self._progress, name, total, unit, expected_s), self._stop)


def _protocol(config: NNEvalTraining, root: DataRoot) -> Protocol | None:
    """The protocol of the judgements that weights are chosen by. Raises UsageError if it is of another kind."""
    if config.stopping.protocol is None:
        return None
    name, rest = split_protocol(config.stopping.protocol)
    dataset = open_dataset(name, root)
    protocol = dataset.protocol(rest)
    if protocol.statistic.coefficient is None or protocol.items.draws > 1:
        raise UsageError(
            f"'stopping.protocol' is {protocol}, which is no correlation over captions with one set of references",
            hint="Example: flickr8k-expert/all-pairs/mode-tau-b",
        )
    return protocol


def draw(config: NNEvalTraining, root: DataRoot, protocol: Protocol | None, say: Callable[[str], None]) -> Drawn:
    """The captions of a training, without those of images that are judged; what is left out is said.

    Args:
        config: the settings.
        root: the data folder.
        protocol: the judgements that weights are chosen by, whose images are left out, too; None for none.
        say: called with a line for each thing that is left out.

    Raises:
        CapbenchError: something is missing or does not fit; file and row are named.
    """
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
        f"{counts['images left out for too few captions']:,} for too few captions; "
        f"drawn: {counts['captions']:,} captions of {counts['images']:,} images"
    )
    return drawn


def _corpus(name: str, root: DataRoot) -> str:
    """The name of a known corpus, or the path of captions in the current or the data folder."""
    from capbench.datasets.captions import CORPORA

    return name if name in CORPORA else str(locate(name, root, "captions"))


def _about(config: NNEvalTraining, drawn: Drawn) -> str:
    """What tables say of the weights (it follows "weights")."""
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
    """(n) whether an item is of a held-out image; the same for every seed of the training."""
    images = sorted({item.image for item in items})
    number = min(len(images) - 1, max(1, round(config.stopping.held_out * len(images))))
    order = np.random.default_rng((config.draw.seed, 4)).permutation(len(images))
    chosen = {images[place] for place in order[:number].tolist()}
    return np.array([item.image in chosen for item in items])


def _check_varied(inputs: FloatArray, human: NDArray[np.bool_]) -> None:
    constant = [name for name, column in zip(INPUTS, inputs.T, strict=True) if column.min() == column.max()]
    if len(constant) == len(INPUTS) or human.all() or not human.any():
        raise DataError("the captions all have the same scores", hint="Draw more images")


def _marks(items: Sequence[Item]) -> list[str]:
    return sorted({image_mark(item.image) for item in items})


def _fingerprint(drawn: Drawn) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for item, human in zip(drawn.items, drawn.human, strict=True):
        digest.update(item.key + bytes([human]))
    return digest.hexdigest()
