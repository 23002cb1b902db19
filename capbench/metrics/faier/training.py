"""Training of FAIEr (Wang et al., CVPR 2021, section 3.4): settings, batches, evaluation, and the training task."""

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
from capbench.metrics.faier.network import Faier, FaierModel, Union, load_faier, save_faier
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import UNKNOWN, Vocabulary
from capbench.training import matching_task
from capbench.training.captions import EvaluationOptions, LossOptions, MatchingTraining, Pairs
from capbench.training.loop import Running, Say, TrainingResult, train
from capbench.training.matching_task import MatchingTask, batch_loss, split_for
from capbench.training.prepare import PlaceOf, Prepared, Regions, Split, caption_source, prepare
from capbench.training.run_folder import check_memory, choose_device, count_weights
from capbench.training.settings import OptimiserOptions, Section
from capbench.training.trainable import Measuring, Trainable, recall_line, recall_table

# Settings of training files, each key with kind, default and meaning.
#
# Schema version 1; all keys except ``schema``, ``name``, ``captions`` and ``features`` are optional::
#
#     schema: 1
#     name: faier-flickr8k
#     captions: flickr8k
#     features: features/flickr8k-boxes.h5   # a store with boxes, which the relation level requires
#     network: {variant: faier, embed_dim: 512, similarity: dot}
#     references: {draw: random, most: 4}    # the paper's "r-ref"; {draw: all, most: 1} is its "1 ref"
#     loss: {hardest: true, hardest_after: 500}
#     evaluation: {references: [0, 4]}
#
# Keys that trainers share are in :mod:`capbench.training.captions` and :mod:`capbench.training.settings`. Defaults are
# those of the published training (Wang et al. 2021, section 4.2): Adam with learning rate 5e-4, 100 pairs per batch,
# hardest negatives with a margin of .2. The paper leaves open: ``order: rounds``, so that the images of a batch are
# distinct; the number of epochs; no decay of the learning rate.

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
"""Row of Table 4 → variant of the network, sampling of references, and their maximum number."""


def row_changes(row: str) -> list[str]:
    """The settings of a row of Table 4, as ``key=value``."""
    variant, draw, most = TABLE_4[row]
    changes = [f"network.variant={variant}", f"references.draw={draw}"]
    # FIEr reads no references, so their number keeps its default.
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
    """References of a training sample: other captions of its image, except those with the candidate's text."""

    draw: Literal["random", "all"] = option(
        "random", Choice("random", "all"), "random: from 0 to 'most', with equal probabilities; all: always 'most'"
    )
    most: int = option(4, Count(1), "maximum number; an image with fewer other captions uses all of them")


@dataclass(frozen=True, kw_only=True)
class FaierEvaluationOptions(EvaluationOptions):
    """Evaluation on the dev split: each image's first caption is the candidate, the next ones are its references."""

    references: tuple[int, ...] = option(
        (0, 4), _Counts(), "numbers of references; recall is measured with each, and the score is the mean"
    )


@dataclass(frozen=True, kw_only=True)
class FaierTraining(MatchingTraining):
    """Settings of a FAIEr training, unresolved.

    ``network`` contains all fields of :class:`FaierOptions` except the two sizes that follow from the data.
    """

    network: FaierOptions = option(
        FaierOptions(vocabulary_size=4),
        Section(decided=("vocabulary_size", "image_dim")),
        "sizes, variant, and choices that the paper leaves open",
    )
    references: ReferenceOptions = option(ReferenceOptions(), Section(), "references of a training sample")
    loss: LossOptions = option(LossOptions(hardest=True), Section(), "loss of a batch")
    optimiser: OptimiserOptions = option(OptimiserOptions(lr=5e-4, clip=None), Section(), "learning rate and clipping")
    evaluation: FaierEvaluationOptions = option(FaierEvaluationOptions(), Section(), "evaluations on the dev split")
    batch: int = option(100, Count(2), "caption-image pairs per step")
    order: Literal["captions", "rounds"] = option(
        "rounds",
        Choice("captions", "rounds"),
        "rounds: in rounds over the images, so that no batch has an image twice; captions: shuffle all captions",
    )

    def dev_captions(self) -> int | None:
        """Number of captions of each dev image: the candidate and its references."""
        return 1 + max(self.evaluation.references)

    def problems(self) -> list[str]:
        """Settings without effect, and conflicting settings."""
        problems = super().problems()
        if not self.network.reads_references and self.references != ReferenceOptions(draw=self.references.draw):
            problems.append(f"'references.most' does nothing with the variant {self.network.variant}")
        return problems


# Reading of captions with their triplets, and of regions with their boxes.


def parse_captions(
    texts: Sequence[str],
    say: Callable[[str], None] = lambda _text: None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    data: Path | None = None,
) -> int:
    """Parse all captions without a parse, into the cache that metrics also use.

    After an interruption, the same call resumes.

    Args:
        texts: captions.
        say: called before the start with the number of captions to parse and an estimate of the time; not called if
            there are none.
        progress: called with the numbers of parsed captions and of captions to parse.
        data: the data folder, whose parse files are read; None for no parse files.

    Returns:
        Number of captions that were parsed.

    Raises:
        ToolError: SPICE's parser is not set up, or failed.
        DataError: a caption is not valid Unicode, or a parse file in the data folder cannot be used.
    """
    tokens = ptb.tokenize(texts)
    missing = scene_graph.missing(tokens, data=data)
    if missing:
        minutes = round(len(missing) / scene_graph.per_second() / 60)
        time = "about a minute" if minutes < 2 else f"about {minutes} minutes"
        say(f"{len(missing):,} of {len(set(tokens)):,} captions have no parse: parsing takes {time}, once")
        done = 0

        def step(parsed: int) -> None:
            nonlocal done
            done += parsed
            progress(done, len(missing))

        scene_graph.ensure(missing, progress=step)
    return len(missing)


class GraphReading:
    """Reads captions as words and triplets, images as features and boxes.

    Args:
        options: of the network; its sizes are ignored.
        say: called with progress messages.
        pause: called during parsing; raises an exception if the user requested a stop.
        data: the data folder, whose parse files are read; None for no parse files.
    """

    def __init__(
        self,
        options: FaierOptions,
        say: Callable[[str], None] = lambda _text: None,
        pause: Callable[[], None] = lambda: None,
        data: Path | None = None,
    ) -> None:
        self._options, self._say, self._pause, self._data = options, say, pause, data
        self._triplets: dict[str, tuple[Triplet, ...]] = {}
        self.place: PlaceOf | None = None
        if options.relations and options.sees_images:
            self.place = lambda regions: region_boxes(regions.boxes, regions.width, regions.height, options)

    def more_words(self, texts: Sequence[str]) -> Iterable[str]:
        """The triplets' texts, whose words are base forms that captions may not contain."""
        self._parse(texts)
        return [triplet_text(triplet) for text in texts for triplet in self._triplets.get(text, ())]

    def encode(self, text: str, vocabulary: Vocabulary) -> CaptionCode:
        """Ids of words and triplets."""
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

        parse_captions(texts, self._say, progress, self._data)
        distinct = list(dict.fromkeys(texts))
        graphs = scene_graph.parse(distinct, data=self._data)
        self._triplets.update((text, graph.triplets) for text, graph in zip(distinct, graphs, strict=True))


# Batches of tensors from captions, images and settings.

_REFERENCE_STREAM = 4  # of random numbers: tasks use (seed, 1, ...) and (seed, 2, ...), the loop (seed, 3, ...)


@dataclass(frozen=True)
class References:
    """References of B images.

    Attributes:
        captions: the distinct ones.
        places: (B, J) int64 indices of each image's references in ``captions``; arbitrary for padding.
        counts: (B,) int64, on the CPU, each 1 or more.
    """

    captions: CaptionBatch
    places: torch.Tensor
    counts: torch.Tensor


@dataclass(frozen=True)
class Batch:
    """Data of one training step.

    Attributes:
        images: (b, n, d) float32 region features.
        boxes: (b, n, 4) float32, or None.
        candidates: one caption of each image.
        references: other captions of each image; None if the network reads none.
    """

    images: torch.Tensor
    boxes: torch.Tensor | None
    candidates: CaptionBatch
    references: References | None


def no_reference(vocabulary: Vocabulary, options: FaierOptions) -> CaptionCode:
    """The reference of an image without references."""
    return caption_code(NO_REFERENCE, (), vocabulary, options)


def collate_references(references: Sequence[Sequence[CaptionCode]], empty: CaptionCode) -> References:
    """References of images as tensors; an image without references gets ``empty``."""
    rows = [list(codes) or [empty] for codes in references]
    distinct = {code: None for codes in rows for code in codes}
    place = {code: number for number, code in enumerate(distinct)}
    counts = [len(codes) for codes in rows]
    places = np.zeros((len(rows), max(counts)), dtype=np.int64)
    for row, codes in enumerate(rows):
        places[row, : len(codes)] = [place[code] for code in codes]
    return References(collate(list(distinct)), torch.from_numpy(places), torch.tensor(counts))


class ReferenceDraw:
    """Samples references of training samples.

    Args:
        pairs: images and captions of the training split.
        captions: the encoded captions.
        options: number of references.
    """

    def __init__(self, pairs: Pairs, captions: Sequence[CaptionCode], options: ReferenceOptions) -> None:
        self._image_of, self._captions, self._options = pairs.image_of, captions, options
        order = np.argsort(pairs.image_of, kind="stable")
        ends = np.searchsorted(pairs.image_of[order], np.arange(len(pairs.images)), side="right")
        self._of_image = np.split(order, ends[:-1])

    def of(self, caption: int, rng: np.random.Generator) -> list[int]:
        """References of a candidate: captions of its image with other words, in random order."""
        most = self._options.most
        number = int(rng.integers(0, most + 1)) if self._options.draw == "random" else most
        words = self._captions[caption].words
        others = [
            other
            for other in self._of_image[int(self._image_of[caption])].tolist()
            if other != caption and self._captions[other].words != words
        ]
        return [others[place] for place in rng.permutation(len(others))[:number].tolist()]


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
    """Batches in order. Random numbers depend only on seed and step, so that training can resume anywhere.

    Args:
        orders: candidates of each batch.
        pairs: images and captions.
        captions: all encoded captions.
        regions: features and boxes of the images.
        draw: samples references; None for no references.
        empty: the reference of an image without references.
        word_dropout: probability that a word of candidates or references becomes ``<unk>``; does not apply to
            ``<start>``, ``<end>`` and words of triplets.
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
    """Replace random words by ``<unk>``; words have higher ids than special tokens."""
    drop = torch.from_numpy(rng.random(tuple(captions.ids.shape)) < rate)
    ids = torch.where(drop & (captions.ids > UNKNOWN), UNKNOWN, captions.ids)
    return dataclasses.replace(captions, ids=ids)


# Recall on a split: every image with its references is compared with the candidates of all images.


def union_of(
    network: Faier,
    images: torch.Tensor,
    boxes: torch.Tensor | None,
    references: References | None,
    *,
    region_dropout: float = 0.0,
    word_dropout: float = 0.0,
) -> Union:
    """The nodes that candidates are matched with, of B images with their references.

    Args:
        network: the network.
        images: (B, R, d) region features, on its device.
        boxes: (B, R, 4), on its device; None without a relation level.
        references: of each image; None if the network reads none.
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
    """Recalls with each image's first caption as its candidate, and the next captions as its references.

    Args:
        network: in evaluation mode during the call.
        split: images and captions.
        references: number of references per image; an image with fewer captions uses all of them.
        empty: the reference of an image without references.
        device: device of the network.
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
            message = f"image '{image}' has no caption"
            raise DataError(message, code="missing-caption", value=image, path=split.pairs.source)
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
    """:func:`evaluate` with several numbers of references, as JSON: ``recall_sum`` is the mean over these numbers.

    A network that reads no references is evaluated once.
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
    """Train FAIEr in a run folder, or resume its training.

    With a relation level, captions without a cached parse are parsed first.

    Args:
        config: the settings (:func:`capbench.training.settings.load_training`).
        run: the folder; see :mod:`capbench.training.run_folder`.
        root: the data folder, for relative paths.
        running: see :func:`capbench.training.loop.train`. If ``stop`` returns True during parsing, KeyboardInterrupt is
            raised; finished parses stay in the cache.

    Raises:
        CapbenchError: see :func:`capbench.training.loop.train`; captions, parses or features are missing or invalid.
    """
    stop = running.get("stop")

    def pause() -> None:
        if stop is not None and stop():
            raise KeyboardInterrupt

    def task(device: torch.device, say: Say) -> FaierTask:
        reading = GraphReading(config.network, say, pause, None if root is None else root.path)
        return FaierTask(config, prepare(config, reading, root, say), device)

    return train(config, task, run, **running, smaller="'batch' or 'network.embed_dim'")


class FaierTask(MatchingTask[Faier, Batch, CaptionCode]):
    """Retrieval of matching candidates and images with references within a batch.

    Args:
        config: the settings.
        data: the data.
        device: device of the network.

    Raises:
        UsageError: the network is too large for this machine, or its word vectors have another size than those of
            the settings' file.
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
        config: settings with the paths of captions and features.
        model: the model with its vocabulary.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: number of images, sampled as for dev in training; None for all.
        say: called with progress messages.
        progress: called with numbers of candidates done.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions, parses or features are missing or invalid.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, config.dev_captions(), config.evaluation.seed)
    reading = GraphReading(model.options, say, data=None if root is None else root.path)
    split = split_for(config, model, pairs, reading, root)
    if not split.pairs.images:
        raise UsageError(f"the split '{role}' has no images", code="too-few", value=role, path=pairs.source)
    empty = no_reference(model.vocabulary, model.options)
    device = torch.device(model.device)
    return evaluate_all(model.network, split, config.evaluation.references, empty, device, progress)


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
)
