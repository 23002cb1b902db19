"""Training of FAIEr (Wang et al., CVPR 2021, section 3.4): settings, batches, evaluation, and the training task.

Settings of a training file, schema version 1; all keys except ``schema``, ``name``, ``captions`` and ``features`` are
optional::

    schema: 1
    name: faier-flickr8k
    captions: flickr8k
    features: features/flickr8k-boxes.h5   # a store with boxes, which the relation level requires
    network: {variant: faier, embed_dim: 512, similarity: dot}
    references: {draw: random, most: 4}    # the paper's "r-ref"; {draw: all, most: 1} is its "1 ref"
    loss: {hardest: true, hardest_after: 500}
    evaluation: {references: [0, 4]}

Keys that trainers share are in :mod:`capbench.training.captions` and :mod:`capbench.training.settings`. Defaults are
those of the published training (section 4.2): Adam with learning rate 5e-4, 100 pairs per batch, hardest negatives with
a margin of .2. The paper leaves open: ``order: rounds``, so that the images of a batch are distinct; the number of
epochs; no decay of the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import count
from capbench.core.options import Choice, Count, Kind, Options, option
from capbench.datasets.root import DataRoot
from capbench.metrics.faier.network import (
    NO_REFERENCE,
    CaptionBatch,
    CaptionCode,
    Faier,
    FaierModel,
    FaierOptions,
    Union,
    caption_code,
    collate,
    load_faier,
    region_boxes,
    save_faier,
)
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import UNKNOWN, Vocabulary
from capbench.training import matching_task
from capbench.training.captions import DropoutOptions, EvaluationOptions, LossOptions, MatchingTraining, Pairs
from capbench.training.loop import Running, Say, TrainingResult, train
from capbench.training.matching_task import MatchingTask, batch_loss, split_for
from capbench.training.prepare import PlaceOf, Prepared, Split, caption_source, prepare
from capbench.training.run_folder import check_memory, choose_device, count_weights
from capbench.training.settings import OptimiserOptions, Section
from capbench.training.trainable import Measuring, Trainable, recall_line, recall_table

TABLE_4: dict[str, tuple[str, str, int]] = {
    "fier": ("fier", "all", 4),
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


@dataclass(frozen=True)
class _Counts(Kind):
    """Numbers of references."""

    def describe(self) -> str:
        return "a list of whole numbers from 0, each once"

    def example(self) -> str:
        return "[0, 4]"

    def read(self, value: object) -> tuple[int, ...]:
        numbers = tuple(map(Count(0).read, value if isinstance(value, list | tuple) else [value]))
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
    """Settings of a FAIEr training; ``network`` lacks the two sizes that follow from the data."""

    network: FaierOptions = option(
        FaierOptions(vocabulary_size=4), Section(decided=("vocabulary_size", "image_dim")), "sizes and variant"
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
        self.place: PlaceOf | None = region_boxes if options.relations and options.sees_images else None

    def more_words(self, texts: Sequence[str]) -> list[str]:
        """The triplets' words: base forms that captions may not contain.

        Captions without a cached parse are parsed first; after an interruption, the same call resumes.

        Raises:
            ToolError: SPICE's parser is not set up, or failed.
            DataError: a caption is not valid Unicode, or a parse file in the data folder cannot be used.
        """
        if not self._options.relations:
            return []
        distinct = list(dict.fromkeys(texts))
        missing = scene_graph.missing(ptb.tokenize(distinct), data=self._data)
        if missing:
            self._say(f"parsing {len(missing):,} captions, once")
        scene_graph.ensure(missing, progress=lambda _: self._pause())
        graphs = scene_graph.parse(distinct, data=self._data)
        self._triplets.update((text, graph.triplets) for text, graph in zip(distinct, graphs, strict=True))
        return [" ".join(triplet) for text in texts for triplet in self._triplets[text]]

    def encode(self, text: str, vocabulary: Vocabulary) -> CaptionCode:
        """Ids of words and triplets."""
        if text not in self._triplets:
            self.more_words([text])
        return caption_code(text, self._triplets.get(text, ()), vocabulary, self._options)


class References(NamedTuple):
    """References of B images: the distinct captions, each image's places (B, J) among them, arbitrary for padding, and
    their numbers (B,), from 1."""

    captions: CaptionBatch
    places: torch.Tensor
    counts: torch.Tensor


class Batch(NamedTuple):
    """Features (b, R, image_dim) of images, their boxes (b, R, 4), a caption of each, and other captions of each; boxes
    and references are None if the network reads none."""

    images: torch.Tensor
    boxes: torch.Tensor | None
    candidates: CaptionBatch
    references: References | None


def collate_references(references: Sequence[Sequence[CaptionCode]], empty: CaptionCode) -> References:
    """References of images as tensors; an image without references gets ``empty``."""
    rows = [codes or [empty] for codes in references]
    place = {code: number for number, code in enumerate(dict.fromkeys(code for codes in rows for code in codes))}
    counts = [len(codes) for codes in rows]
    places = np.zeros((len(rows), max(counts)), dtype=np.int64)
    for row, codes in enumerate(rows):
        places[row, : len(codes)] = [place[code] for code in codes]
    return References(collate(list(place)), torch.from_numpy(places), torch.tensor(counts))


class ReferenceDraw:
    """Samples references of training samples: captions of the same image with other words, in random order."""

    def __init__(self, pairs: Pairs, captions: Sequence[CaptionCode], options: ReferenceOptions) -> None:
        self._image_of, self._captions, self._options = pairs.image_of.tolist(), captions, options
        self._of_image: list[list[int]] = [[] for _ in pairs.images]
        for caption, image in enumerate(self._image_of):
            self._of_image[image].append(caption)

    def of(self, caption: int, rng: np.random.Generator) -> list[int]:
        """References of a candidate."""
        most = self._options.most
        number = int(rng.integers(0, most + 1)) if self._options.draw == "random" else most
        words = self._captions[caption].words
        others = [c for c in self._of_image[self._image_of[caption]] if self._captions[c].words != words]
        return [others[place] for place in rng.permutation(len(others))[:number].tolist()]


def _drop(captions: CaptionBatch, rate: float, rng: np.random.Generator) -> CaptionBatch:
    """Replace random words by ``<unk>``; words have higher ids than special tokens."""
    drop = torch.from_numpy(rng.random(tuple(captions.ids.shape)) < rate)
    return captions._replace(ids=torch.where(drop & (captions.ids > UNKNOWN), UNKNOWN, captions.ids))


def union_of(
    network: Faier,
    images: torch.Tensor,
    boxes: torch.Tensor | None,
    references: References | None,
    dropout: DropoutOptions | None = None,
) -> list[Union]:
    """What candidates are matched with, of B images (B, R, image_dim) with their boxes (B, R, 4) and references."""
    dropout, device = dropout or DropoutOptions(), network.embed.weight.device
    of_images = None
    if network.options.sees_images:
        places = None if boxes is None else boxes.to(device)
        of_images = network.encode_images(images.to(device), places, dropout.regions)
    if references is None:
        none = torch.ones(1, len(images), dtype=torch.int64)
        return network.fuse(of_images, None, none, none)
    captions = network.encode_captions(references.captions, dropout.embedding)
    return network.fuse(of_images, captions, references.places.to(device), references.counts[None])


def evaluate(
    network: Faier,
    split: Split[CaptionCode],
    references: int,
    empty: CaptionCode,
    progress: Callable[[int], None] = lambda _done: None,
) -> Retrieval:
    """Recalls with each image's first caption as its candidate, and the next captions as its references.

    Args:
        network: in evaluation mode during the call.
        split: images and captions.
        references: number of references per image; an image with fewer captions uses all of them.
        empty: the reference of an image without references.
        progress: called with numbers of candidates done.

    Raises:
        ModelError: a similarity is NaN or infinite.
    """
    of_image: list[list[CaptionCode]] = [[] for _ in split.pairs.images]
    for image, code in zip(split.pairs.image_of.tolist(), split.captions, strict=True):
        of_image[image].append(code)
    candidates = [codes[0] for codes in of_image]

    def encode_images(block: NDArray[np.int64]) -> list[Union]:
        texts = collate_references([of_image[i][1 : 1 + references] for i in block.tolist()], empty)
        reads = network.options.reads_references
        return union_of(network, *split.regions.take_placed(block), texts if reads else None)

    matrix = matching_task.similarity_matrix(
        network,
        len(candidates),
        [len(code.words) for code in candidates],
        encode_images,
        lambda chosen: network.encode_captions(collate([candidates[i] for i in chosen])),
        lambda union, texts: network.scores(union, texts)[0, ..., 0],
        progress,
    )
    return retrieval(matrix, np.arange(len(candidates)))


def evaluate_all(
    network: Faier,
    split: Split[CaptionCode],
    references: Sequence[int],
    empty: CaptionCode,
    progress: Callable[[int], None] = lambda _done: None,
) -> dict[str, Any]:
    """:func:`evaluate` with several numbers of references, as JSON: ``recall_sum`` is the mean over these numbers.

    A network that reads no references is evaluated once.
    """
    counts = list(references) if network.options.reads_references else [0]
    by_count = {str(n): evaluate(network, split, n, empty, progress).to_dict() for n in counts}
    mean = sum(entry["recall_sum"] for entry in by_count.values()) / len(by_count)
    return {"recall_sum": round(mean, 6), "by_references": by_count}


class FaierTask(MatchingTask[Faier, Batch, CaptionCode]):
    """Retrieval of matching candidates and images with references within a batch."""

    def __init__(self, config: FaierTraining, data: Prepared[CaptionCode], device: torch.device) -> None:
        options = data.sized(config.network)
        check_memory(count_weights(lambda: Faier(options)), "Lower 'network.embed_dim' or 'network.word_dim'")
        super().__init__(config, data, device, Faier(options, torch.Generator().manual_seed(config.seed)))
        self._config = config
        self._empty = caption_code(NO_REFERENCE, (), data.vocabulary, options)
        self._draw = ReferenceDraw(data.train.pairs, data.train.captions, config.references)

    def make_batches(self, orders: list[NDArray[np.int64]], first_step: int) -> Iterator[Batch]:
        """Batches of chosen captions. Random numbers depend only on seed and step, so that training can resume
        anywhere."""
        captions, seed, rate = self._split.captions, self._config.seed, self._config.dropout.words
        for step, chosen in enumerate(orders, first_step):
            candidates, references = collate([captions[i] for i in chosen.tolist()]), None
            if self.model.options.reads_references:
                rng = np.random.default_rng((seed, 4, step))
                drawn = [[captions[j] for j in self._draw.of(i, rng)] for i in chosen.tolist()]
                references = collate_references(drawn, self._empty)
            if rate:
                rng = np.random.default_rng((seed, 2, step))
                candidates = _drop(candidates, rate, rng)
                if references is not None:
                    references = references._replace(captions=_drop(references.captions, rate, rng))
            images, boxes = self._split.regions.take_placed(self._split.pairs.image_of[chosen])
            yield Batch(images, boxes, candidates, references)

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        """The loss of a batch's scores."""
        union = union_of(self.model, batch.images, batch.boxes, batch.references, self._config.dropout)
        candidates = self.model.encode_captions(batch.candidates, self._config.dropout.embedding)
        return batch_loss(self.model.scores(union, candidates)[0, ..., 0], self._config.loss, step)

    def validate(self, model: Faier, pause: Callable[[], None]) -> dict[str, Any]:
        """Recalls on dev."""
        return evaluate_all(model, self._dev, self._config.evaluation.references, self._empty, lambda _done: pause())

    def save(self, path: Path, model: Faier, facts: Mapping[str, Any]) -> None:
        """Weights, options, vocabulary and facts as one ``.safetensors``."""
        save_faier(path, model, self._vocabulary, facts)


def train_faier(
    config: FaierTraining, run: Path, *, root: DataRoot | None = None, **running: Unpack[Running]
) -> TrainingResult:
    """Train FAIEr in a run folder, or resume its training.

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


def evaluate_faier(
    config: FaierTraining,
    model: FaierModel,
    role: str,
    root: DataRoot | None = None,
    *,
    images: int | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Recalls of a trained model on a split, with each number of references of ``evaluation.references``.

    Args:
        config: settings with the paths of captions and features.
        model: the model with its vocabulary.
        role: ``train``, ``dev`` or ``test``.
        root: the data folder.
        images: number of images, sampled as for dev in training; None for all.
        say: called with progress messages.

    Raises:
        ModelError: the model was trained on features of another kind or size.
        CapbenchError: captions, parses or features are missing or invalid.
    """
    pairs = caption_source(config, root).pairs(role).sample(images, config.dev_captions(), config.evaluation.seed)
    reading = GraphReading(model.options, say, data=None if root is None else root.path)
    split = split_for(config, model, pairs, reading, root)
    empty = caption_code(NO_REFERENCE, (), model.vocabulary, model.options)
    return evaluate_all(model.network, split, config.evaluation.references, empty)


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
    variants={
        row: [f"network.variant={variant}", f"references.draw={draw}", f"references.most={most}"]
        for row, (variant, draw, most) in TABLE_4.items()
    },
)
