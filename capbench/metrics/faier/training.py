"""Training of FAIEr (Wang et al., CVPR 2021, section 3.4): the task that the general loop carries out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import DataError, UsageError, count
from capbench.core.options import Choice, Count, Kind, Options, option
from capbench.datasets.root import DataRoot
from capbench.metrics.faier.files import FaierModel, load_faier, save_faier
from capbench.metrics.faier.graphs import (
    NO_REFERENCE,
    CaptionBatch,
    CaptionCode,
    FaierOptions,
    caption_code,
    collate,
    region_boxes,
    triplet_text,
)
from capbench.metrics.faier.network import Faier, Union
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import UNKNOWN, Vocabulary
from capbench.training import matching_task
from capbench.training.captions import EvaluationOptions, LossOptions, MatchingTraining, Pairs
from capbench.training.loop import Running, Say, TrainingResult, train
from capbench.training.matching_task import MatchingTask, batch_loss, split_for
from capbench.training.prepare import Prepared, Split, caption_source, prepare
from capbench.training.regions import PlaceOf, Regions
from capbench.training.run_folder import check_memory, choose_device, count_weights
from capbench.training.settings import OptimiserOptions, Section
from capbench.training.trainable import Measuring, Trainable, recall_line, recall_table

__all__ = [
    "TABLE_4",
    "TRAINABLE",
    "Batch",
    "FaierEvaluationOptions",
    "FaierTask",
    "FaierTraining",
    "GraphReading",
    "ReferenceDraw",
    "ReferenceOptions",
    "References",
    "batches",
    "collate_references",
    "evaluate",
    "evaluate_all",
    "evaluate_faier",
    "no_reference",
    "parse_captions",
    "row_changes",
    "train_faier",
    "training_seconds",
    "union_of",
]


# How FAIEr is trained: the settings of its training files, every key with its kind, default and meaning.
#
# Schema version 1; everything but ``schema``, ``name``, ``captions`` and ``features`` may be left out::
#
#     schema: 1
#     name: faier-flickr8k
#     captions: flickr8k
#     features: features/flickr8k-boxes.h5   # a store with boxes, which the relation level is made of
#     network: {variant: faier, embed_dim: 512, similarity: dot}
#     references: {draw: random, most: 4}    # the paper's "r-ref"; {draw: all, most: 1} is its "1 ref"
#     loss: {hardest: true, hardest_after: 500}
#     evaluation: {references: [0, 4]}
#
# Keys that trainers share are in :mod:`capbench.training.captions` and :mod:`capbench.training.settings`. Defaults are
# those of the published training (Wang et al. 2021, section 4.2): Adam at 5e-4, 100 pairs a batch, hardest negatives
# with a margin of .2. What the paper leaves open: ``order: rounds``, so that batches hold distinct images; epochs; and
# no decay of the learning rate.

TABLE_4: dict[str, tuple[str, str, int]] = {
    "fier": ("fier", "all", 0),
    "aier-4-ref": ("aier", "all", 4),
    "fier-aier-4-ref": ("fier+aier", "all", 4),
    "faier-rel-4-ref": ("faier-object", "all", 4),
    "faier-4-ref": ("faier", "all", 4),
    "faier-rel-1-ref": ("faier-object", "all", 1),
    "faier-1-ref": ("faier", "all", 1),
    "faier-rel-r-ref": ("faier-object", "random", 4),
    "faier-r-ref": ("faier", "random", 4),
}
"""The rows of Table 4: variant of the network, how references are drawn, and their largest number."""


def row_changes(row: str) -> list[str]:
    """The settings of a row of Table 4, as ``key=value``."""
    variant, draw, most = TABLE_4[row]
    changes = [f"network.variant={variant}", f"references.draw={draw}"]
    # FIEr reads no references, and its number is left as it is.
    return [*changes, f"references.most={most}"] if most else changes


@dataclass(frozen=True)
class _Counts(Kind):
    """Numbers of references."""

    def describe(self) -> str:
        return "a list of whole numbers from 0, each once"

    def example(self) -> str:
        return "[0, 4]"

    def read(self, value: object) -> tuple[int, ...]:
        counts = value if isinstance(value, list | tuple) else [value]
        numbers = tuple(Count(0).read(count) for count in counts)
        if not numbers or len(set(numbers)) < len(numbers):
            raise ValueError
        return numbers


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions(Options):
    """The references of a training sample: other captions of its image, never the candidate nor one with its text."""

    draw: Literal["random", "all"] = option(
        "random", Choice("random", "all"), "random: from none to 'most', all equally often; all: always 'most'"
    )
    most: int = option(4, Count(1), "largest number; an image with fewer other captions gives what it has")


@dataclass(frozen=True, kw_only=True)
class FaierEvaluationOptions(EvaluationOptions):
    """What of the dev split is compared: each image's first caption, with the ones after it as references."""

    references: tuple[int, ...] = option(
        (0, 4), _Counts(), "recall is measured with each of these numbers of references; the score is the mean"
    )


@dataclass(frozen=True, kw_only=True)
class FaierTraining(MatchingTraining):
    """A training of FAIEr as it was asked for; nothing is resolved yet.

    ``network`` holds all of :class:`FaierOptions` but the two sizes that the data decides.
    """

    network: FaierOptions = option(
        FaierOptions(vocabulary_size=4),
        Section(decided=("vocabulary_size", "image_dim")),
        "sizes, variant, and the paper's open points",
    )
    references: ReferenceOptions = option(ReferenceOptions(), Section(), "of a training sample")
    loss: LossOptions = option(LossOptions(hardest=True), Section(), "of a batch")
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=5e-4, clip=None), Section(), "how weights are changed")
    evaluation: FaierEvaluationOptions = option(
        FaierEvaluationOptions(), Section(), "when and on what recall is measured"
    )
    batch: int = option(100, Count(2), "caption-image pairs a step")
    order: Literal["captions", "rounds"] = option(
        "rounds",
        Choice("captions", "rounds"),
        "in rounds over the images, so that no batch holds one twice, or all mixed",
    )

    def dev_captions(self) -> int | None:
        """The candidate and its references."""
        return 1 + max(self.evaluation.references)

    def problems(self) -> list[str]:
        """Settings that do nothing where they stand, or do not go together."""
        problems = super().problems()
        if not self.network.reads_references and self.references != ReferenceOptions(draw=self.references.draw):
            problems.append(f"'references.most' does nothing under the variant {self.network.variant}")
        return problems


# How FAIEr's training reads captions, with their triplets, and regions, with their boxes.


def parse_captions(
    texts: Sequence[str],
    say: Callable[[str], None] = lambda _text: None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> int:
    """Parse the captions that never were parsed, into the cache that metrics read too.

    What was parsed is kept if this is interrupted, and the same call goes on from there.

    Args:
        texts: captions.
        say: told, before it begins, how many there are and how long it should take; not if there are none.
        progress: called with the numbers of captions that are done and that were to be done.

    Returns:
        How many were parsed.

    Raises:
        ToolError: SPICE's parser is not set up, or failed.
        DataError: a caption is not valid Unicode.
    """
    tokens = ptb.tokenize(texts)
    missing = scene_graph.missing(tokens)
    if missing:
        minutes = round(len(missing) / scene_graph.per_second() / 60)
        time = "a minute" if minutes < 2 else f"some {minutes} minutes"
        say(f"{len(missing):,} of {len(set(tokens)):,} captions were never parsed: SPICE's parser takes {time}, once")
        done = 0

        def step(parsed: int) -> None:
            nonlocal done
            done += parsed
            progress(done, len(missing))

        scene_graph.ensure(missing, progress=step)
    return len(missing)


class GraphReading:
    """Captions are their words and triplets, images their features and boxes.

    Args:
        options: of the network, whose sizes do not matter.
        say: told what takes its time.
        pause: called while captions are parsed; it leaves by an exception if the user has asked to stop.
    """

    def __init__(
        self,
        options: FaierOptions,
        say: Callable[[str], None] = lambda _text: None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._options, self._say, self._pause = options, say, pause
        self._triplets: dict[str, tuple[Triplet, ...]] = {}
        self.place: PlaceOf | None = None
        if options.relations and options.sees_images:
            self.place = lambda regions: region_boxes(regions.boxes, regions.width, regions.height, options)

    def more_words(self, texts: Sequence[str]) -> Iterable[str]:
        """The triplets' texts: their words are base forms, which captions need not hold."""
        self._parse(texts)
        return [triplet_text(triplet) for text in texts for triplet in self._triplets.get(text, ())]

    def encode(self, text: str, vocabulary: Vocabulary) -> CaptionCode:
        """Numbers of words and triplets."""
        if text not in self._triplets:
            self._parse([text])
        return caption_code(text, self._triplets.get(text, ()), vocabulary, self._options)

    def _parse(self, texts: Sequence[str]) -> None:
        if not self._options.relations:
            return
        tenths = 0

        def progress(done: int, all_: int) -> None:
            nonlocal tenths
            if 10 * done // all_ > tenths:
                tenths = 10 * done // all_
                self._say(f"parsed {done:,} of {all_:,} captions")
            self._pause()

        parse_captions(texts, self._say, progress)
        distinct = list(dict.fromkeys(texts))
        graphs = scene_graph.parse(distinct)
        self._triplets.update((text, graph.triplets) for text, graph in zip(distinct, graphs, strict=True))


# From captions, their images and the settings to FAIEr's batches of tensors.

_REFERENCE_STREAM = 4  # of random numbers: tasks draw from (seed, 1, ...), (seed, 2, ...), the loop from (seed, 3, ...)


@dataclass(frozen=True)
class References:
    """References of B images.

    Attributes:
        captions: the distinct ones.
        places: (B, J) int64 places of each image's references among them; any where it has no more.
        counts: (B,) int64, on the CPU, each 1 or more.
    """

    captions: CaptionBatch
    places: torch.Tensor
    counts: torch.Tensor


@dataclass(frozen=True)
class Batch:
    """What one step sees.

    Attributes:
        images: (b, n, d) float32 region features.
        boxes: (b, n, 4) float32, or None.
        candidates: one caption of each image.
        references: other captions of each image, or None where the network reads none.
    """

    images: torch.Tensor
    boxes: torch.Tensor | None
    candidates: CaptionBatch
    references: References | None


def no_reference(vocabulary: Vocabulary, options: FaierOptions) -> CaptionCode:
    """The reference of an image that has none."""
    return caption_code(NO_REFERENCE, (), vocabulary, options)


def collate_references(references: Sequence[Sequence[CaptionCode]], empty: CaptionCode) -> References:
    """References of images as tensors; an image without any gets ``empty``."""
    rows = [list(codes) or [empty] for codes in references]
    distinct = {code: None for codes in rows for code in codes}
    place = {code: number for number, code in enumerate(distinct)}
    counts = [len(codes) for codes in rows]
    places = np.zeros((len(rows), max(counts)), dtype=np.int64)
    for row, codes in enumerate(rows):
        places[row, : len(codes)] = [place[code] for code in codes]
    return References(collate(list(distinct)), torch.from_numpy(places), torch.tensor(counts))


class ReferenceDraw:
    """Draws the references of training samples.

    Args:
        pairs: what is trained on.
        captions: as the network reads them.
        options: how many.
    """

    def __init__(self, pairs: Pairs, captions: Sequence[CaptionCode], options: ReferenceOptions) -> None:
        self._image_of, self._captions, self._options = pairs.image_of, captions, options
        order = np.argsort(pairs.image_of, kind="stable")
        ends = np.searchsorted(pairs.image_of[order], np.arange(len(pairs.images)), side="right")
        self._of_image = np.split(order, ends[:-1])

    def of(self, caption: int, rng: np.random.Generator) -> list[int]:
        """References of a candidate: captions of its image in random order, none of which reads like the candidate."""
        most = self._options.most
        wanted = int(rng.integers(0, most + 1)) if self._options.draw == "random" else most
        words = self._captions[caption].words
        others = [
            other
            for other in self._of_image[int(self._image_of[caption])].tolist()
            if other != caption and self._captions[other].words != words
        ]
        return [others[place] for place in rng.permutation(len(others))[:wanted].tolist()]


def batches(
    orders: Iterable[NDArray[np.int64]],
    pairs: Pairs,
    captions: Sequence[CaptionCode],
    regions: Regions,
    draw: ReferenceDraw | None,
    empty: CaptionCode,
    *,
    word_dropout: float,
    seed: int,
    first_step: int,
) -> Iterator[Batch]:
    """Batches in order. What is drawn follows from seed and step, so that nothing hangs on what came before.

    Args:
        orders: candidates of each batch.
        pairs: what they are captions of.
        captions: all captions, as the network reads them.
        regions: features and boxes of the images.
        draw: draws references; None: there are none.
        empty: the reference of an image without one.
        word_dropout: probability that a word of candidates or references becomes ``<unk>``; not ``<start>`` and
            ``<end>``, nor words of triplets.
        seed: of the training.
        first_step: number of the first batch's step, from 0.
    """
    for step, chosen in enumerate(orders, first_step):
        candidates = collate([captions[i] for i in chosen.tolist()])
        references = None
        if draw is not None:
            rng = np.random.default_rng((seed, _REFERENCE_STREAM, step))
            drawn = [[captions[j] for j in draw.of(i, rng)] for i in chosen.tolist()]
            references = collate_references(drawn, empty)
        if word_dropout:
            rng = np.random.default_rng((seed, 2, step))
            candidates = _drop(candidates, word_dropout, rng)
            if references is not None:
                references = dataclasses.replace(references, captions=_drop(references.captions, word_dropout, rng))
        images, boxes = regions.take_placed(pairs.image_of[chosen])
        yield Batch(images, boxes, candidates, references)


def _drop(captions: CaptionBatch, rate: float, rng: np.random.Generator) -> CaptionBatch:
    """Words, whose numbers lie above those of the special ones, become ``<unk>``."""
    drop = torch.from_numpy(rng.random(tuple(captions.ids.shape)) < rate)
    ids = torch.where(drop & (captions.ids > UNKNOWN), UNKNOWN, captions.ids)
    return dataclasses.replace(captions, ids=ids)


# Recall of FAIEr on a split: every image, with references, against every image's candidate.


def union_of(
    network: Faier,
    images: torch.Tensor,
    boxes: torch.Tensor | None,
    references: References | None,
    *,
    region_dropout: float = 0.0,
    word_dropout: float = 0.0,
) -> Union:
    """What candidates are matched with, of B images with their references.

    Args:
        network: says what of these it reads.
        images: (B, R, d) region features, on its device.
        boxes: (B, R, 4), on its device; None without a relation level.
        references: of each image; None where it reads none.
        region_dropout: of features, in training mode.
        word_dropout: of word vectors, in training mode.
    """
    device = images.device
    options = network.options
    graph = network.encode_images(images, boxes, dropout=region_dropout) if options.sees_images else None
    if references is None or not options.reads_references:
        return network.fuse(graph, None, None)
    texts = network.encode_captions(references.captions.to(device), word_dropout, references=True)
    return network.fuse(graph, texts[references.places.to(device)], references.counts)


def evaluate(
    network: Faier,
    split: Split[CaptionCode],
    references: int,
    empty: CaptionCode,
    device: torch.device | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Retrieval:
    """Recalls where each image's candidate is its first caption, and its references are the ones after that.

    Args:
        network: is set to evaluation mode while this runs.
        split: images and captions.
        references: how many an image has; an image with fewer captions has what there is.
        empty: the reference of an image that has none.
        device: where the network is.
        progress: called with numbers of candidates done.

    Raises:
        DataError: an image has no caption.
        ModelError: a similarity is NaN or infinite.
    """
    device = device or torch.device("cpu")
    of_image: list[list[CaptionCode]] = [[] for _ in split.pairs.images]
    for image, code in zip(split.pairs.image_of.tolist(), split.captions, strict=True):
        of_image[image].append(code)
    for image, codes in zip(split.pairs.images, of_image, strict=True):
        if not codes:
            raise DataError(f"image '{image}' has no caption", path=split.pairs.source)
    candidates = [codes[0] for codes in of_image]

    def encode_images(block: NDArray[np.int64]) -> Union:
        images, boxes = split.regions.take_placed(block)
        texts = collate_references([of_image[i][1 : 1 + references] for i in block.tolist()], empty)
        return union_of(network, images.to(device), None if boxes is None else boxes.to(device), texts)

    matrix = matching_task.similarity_matrix(
        network,
        len(candidates),
        [len(code.words) for code in candidates],
        encode_images,
        lambda chosen: network.encode_captions(collate([candidates[i] for i in chosen]).to(device)),
        lambda union, texts: network.scores(union, texts).total,
        progress,
    )
    return retrieval(matrix, np.arange(len(candidates)))


def evaluate_all(
    network: Faier,
    split: Split[CaptionCode],
    references: Sequence[int],
    empty: CaptionCode,
    device: torch.device | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> dict[str, Any]:
    """:func:`evaluate` with several numbers of references, as JSON: ``recall_sum`` is the mean of theirs.

    A network that reads no references is measured once.
    """
    counts = list(references) if network.options.reads_references else [0]
    by_count = {str(n): evaluate(network, split, n, empty, device, progress).to_dict() for n in counts}
    mean = sum(entry["recall_sum"] for entry in by_count.values()) / len(by_count)
    return {"recall_sum": round(mean, 6), "by_references": by_count}


def train_faier(
    config: FaierTraining,
    run: Path,
    *,
    root: DataRoot | None = None,
    **running: Unpack[Running],
) -> TrainingResult:
    """Train FAIEr, or go on training it, in a run folder.

    Captions that never were parsed are parsed first, where there is a relation level.

    Args:
        config: the settings (:func:`capbench.training.settings.load_training`).
        run: the folder; see :mod:`capbench.training.run_folder`.
        root: the data folder, for relative paths.
        running: as :func:`capbench.training.loop.train`. While captions are parsed a ``stop`` that says so raises
            KeyboardInterrupt, and what was parsed is kept.

    Raises:
        CapbenchError: as :func:`capbench.training.loop.train`; captions, parses or features are missing or do not fit.
    """
    stop = running.get("stop")

    def pause() -> None:
        if stop is not None and stop():
            raise KeyboardInterrupt

    def task(device: torch.device, say: Say) -> FaierTask:
        return FaierTask(config, prepare(config, GraphReading(config.network, say, pause), root, say), device)

    return train(config, task, run, **running, smaller="'batch' or 'network.embed_dim'")


class FaierTask(MatchingTask[Faier, Batch, CaptionCode]):
    """Candidates and images with references that find each other.

    Args:
        config: the settings.
        data: what is learned from, read.
        device: where the network is trained.

    Raises:
        UsageError: the network is too large for this machine, or its word vectors are of another size than those given.
    """

    def __init__(self, config: FaierTraining, data: Prepared[CaptionCode], device: torch.device) -> None:
        options = data.sized(config.network)
        check_memory(count_weights(lambda: Faier(options)), "Lower 'network.embed_dim' or 'network.word_dim'")
        model = Faier(options, torch.Generator().manual_seed(config.seed))
        super().__init__(config, data, device, model)
        self._config = config
        self._empty = no_reference(data.vocabulary, options)
        reads = options.reads_references
        self._draw = ReferenceDraw(data.train.pairs, data.train.captions, config.references) if reads else None

    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[Batch]:
        """Batches of chosen captions."""
        return batches(
            orders,
            self._split.pairs,
            self._split.captions,
            self._split.regions,
            self._draw,
            self._empty,
            word_dropout=self._config.dropout.words,
            seed=self._config.seed,
            first_step=first_step,
        )

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        """The loss of a batch's scores."""
        network, dropout = self.model, self._config.dropout
        union = union_of(
            network,
            batch.images.to(self._device),
            None if batch.boxes is None else batch.boxes.to(self._device),
            batch.references,
            region_dropout=dropout.regions,
            word_dropout=dropout.embedding,
        )
        candidates = network.encode_captions(batch.candidates.to(self._device), dropout.embedding)
        return batch_loss(network.scores(union, candidates).total, self._config.loss, step)

    def validate(self, model: Faier, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on dev."""
        counts = self._config.evaluation.references
        return evaluate_all(model, self._dev, counts, self._empty, self._device, lambda _candidates_done: pause())

    def save(self, path: Path, model: Faier, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_faier(path, model, self._vocabulary, facts)


def evaluate_faier(
    config: FaierTraining,
    model: FaierModel,
    role: str,
    root: DataRoot | None = None,
    *,
    images: int | None = None,
    say: Callable[[str], None] = lambda _text: None,
    progress: Callable[[int], None] = lambda _done: None,
) -> dict[str, Any]:
    """Recalls of a trained model on a split, with each number of references of ``evaluation.references``.

    Args:
        config: says where captions and features are.
        model: with its vocabulary.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: only so many images, drawn as for dev in training.
        say: told what takes its time.
        progress: called with numbers of candidates done.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions, parses or features are missing or do not fit.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, config.dev_captions(), config.evaluation.seed)
    split = split_for(config, model, pairs, GraphReading(model.options, say), root)
    if not split.pairs.images:
        raise UsageError(f"the split '{role}' has no images", path=pairs.source)
    empty = no_reference(model.vocabulary, model.options)
    device = torch.device(model.device)
    return evaluate_all(model.network, split, config.evaluation.references, empty, device, progress)


# How long a training of FAIEr should take, before it begins.

_RATE = 20e9  # multiplications and additions a second of one core
_WORDS, _TRIPLETS, _TRIPLET_WORDS = 11, 2.5, 3.5  # of a caption
_REGIONS = 36
_BACKWARD = 3  # both directions against the forward one
_CAPTIONS = 30_000  # of Flickr8k's training images: what an epoch has if no number of steps is set


def training_seconds(settings: FaierTraining) -> float:
    """Seconds on one core, from the network's products: GRUs over words, triplets and references, layers, matching.

    An epoch is taken to be Flickr8k's unless ``max_steps`` is set, for the captions are not read for this.
    """
    network, batch = settings.network, settings.batch
    d, word = network.embed_dim, network.word_dim
    regions = settings.regions or _REGIONS
    references = 0.0
    if network.reads_references:
        most = settings.references.most
        references = most / 2 if settings.references.draw == "random" else most
    levels = 2 if network.relations else 1
    gru = 2 * 3 * d * (word + d)  # a step, both directions
    captions = batch * (1 + references)
    work = captions * _WORDS * gru
    if network.relations:
        work += captions * _TRIPLETS * _TRIPLET_WORDS * gru
    if network.sees_images:
        work += batch * regions * d * (network.image_dim + d * levels)
    if network.parts == "faier":
        work += levels * batch * regions * (references * 3 * d * d * 2 + 2 * d * d)
    columns = batch * (_WORDS + (_TRIPLETS if network.relations else 0))
    rows = batch * regions if network.parts != "aier" else captions * _WORDS
    work += rows * columns * d
    steps = settings.max_steps or settings.epochs * (_CAPTIONS // batch)
    return 2 * work * _BACKWARD * steps / _RATE


def _measure(config: FaierTraining, model: Path, root: DataRoot, measuring: Measuring) -> dict[str, Any]:
    loaded = load_faier(model, str(choose_device(config.device)))
    recalls = evaluate_faier(config, loaded, measuring.split, root, images=measuring.images, say=measuring.say)
    return {**recalls, "sha256": loaded.sha256}


def _line(entry: Mapping[str, Any]) -> str:
    parts = [f"{n} references: {recall_line(recalls)}" for n, recalls in entry["by_references"].items()]
    return f"dev {'; '.join(parts)}"


def _table(entry: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for number, recalls in entry["by_references"].items():
        sizes = f"{count(recalls['images'], 'image')}, {count(recalls['captions'], 'candidate')}"
        lines += [f"with {count(int(number), 'reference')}: {sizes}", *recall_table(recalls)]
    return lines


TRAINABLE = Trainable(
    settings=FaierTraining,
    train=train_faier,
    line=_line,
    table=_table,
    metric="faier",
    measure=_measure,
    variants={row: row_changes(row) for row in TABLE_4},
    seconds=training_seconds,
)
