"""Training of FAIEr (Wang et al., CVPR 2021, section 3.4): settings, batches, evaluation, and the training task.

Defaults are those of the published training (section 4.2): Adam with learning rate 5e-4, 100 pairs per batch, hardest
negatives with a margin of .2. The paper leaves open: ``order: rounds``, so that the images of a batch are distinct; the
number of epochs; no decay of the learning rate. Features need boxes, which the relation level reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, InstanceOf

from capbench.core.errors import count
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
    region_boxes,
)
from capbench.stats.retrieval import retrieval
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.spice.scene_graph import Triplet
from capbench.text.vocabulary import Vocabulary, pad_rows
from capbench.training import settings
from capbench.training.matching import (
    DropoutOptions,
    LossOptions,
    MatchingTask,
    MatchingTraining,
    Reader,
    Split,
    similarity_matrix,
)
from capbench.training.trainer import Bar, Watcher


class ReferenceOptions(settings.Section):
    """References of a training sample: other captions of its image, except those with the candidate's text."""

    draw: Literal["random", "all"] = "random"  # from 0 to ``most``, with equal probabilities, or always ``most``
    most: settings.Count = 4  # maximum number; an image with fewer other captions uses all of them


class FaierEvaluationOptions(settings.EvaluationOptions):
    """Evaluation on the dev split: each image's first caption is the candidate, the next ones are its references."""

    references: Annotated[tuple[settings.Whole, ...], settings.as_tuple, Field(min_length=1)] = (0, 4)
    """Numbers of references; recall is measured with each, and the score is the mean."""


class FaierTraining(MatchingTraining):
    """Settings of a training of FAIEr."""

    network: InstanceOf[FaierOptions] = FaierOptions(vocabulary_size=4)
    references: ReferenceOptions = ReferenceOptions()
    loss: LossOptions = LossOptions(hardest=True)
    optimiser: settings.OptimiserOptions = settings.OptimiserOptions(lr=5e-4, clip=None)
    evaluation: FaierEvaluationOptions = FaierEvaluationOptions()
    batch: settings.AtLeast2 = 100
    order: Literal["captions", "rounds"] = "rounds"

    def dev_captions(self) -> int | None:
        return 1 + max(self.evaluation.references)  # the candidate and its references


class GraphReader(Reader):
    """Reads captions as words and triplets, images as features and boxes; the data folder has files of parses."""

    def __init__(self, options: FaierOptions, root: DataRoot | None, watcher: Watcher) -> None:
        super().__init__(options, root, watcher)
        self._data = None if root is None else root.path
        self._triplets: dict[str, tuple[Triplet, ...]] = {}
        if options.relations and options.sees_images:
            self.more = lambda regions: [region_boxes(regions)]

    def texts(self, captions: Sequence[str]) -> list[str]:
        """The triplets' words: base forms that captions may not contain."""
        if not self.options.relations:
            return []
        distinct = list(dict.fromkeys(captions))
        missing = scene_graph.missing(ptb.tokenize(distinct), data=self._data)
        if missing:
            with self.watcher.bar("parsing captions, once", len(missing)) as step:
                scene_graph.ensure(missing, progress=step)
        self._triplets.update(zip(distinct, scene_graph.triplets(distinct, data=self._data), strict=True))
        return [" ".join(triplet) for text in captions for triplet in self._triplets[text]]

    def encode(self, captions: Sequence[str], vocabulary: Vocabulary) -> list[CaptionCode]:
        self.texts([text for text in captions if text not in self._triplets])
        return [caption_code(text, self._triplets.get(text, ()), vocabulary, self.options) for text in captions]


class References(NamedTuple):
    """References of B images."""

    captions: CaptionBatch  # distinct
    places: torch.Tensor  # (B, J) of each image among them, arbitrary for padding
    counts: torch.Tensor  # (B,) from 1


class Batch(NamedTuple):
    """Images, a caption of each, and other captions of each."""

    seen: list[torch.Tensor]  # features (b, R, image_dim), and boxes (b, R, 4) if the network reads them
    candidates: CaptionBatch
    references: References | None


def collate_references(
    references: Sequence[Sequence[CaptionCode]],
    empty: CaptionCode,
    drop: Callable[[torch.Tensor], torch.Tensor] = lambda ids: ids,
) -> References:
    """References of images as tensors; an image without references gets ``empty``."""
    rows = [codes or [empty] for codes in references]
    place = {code: number for number, code in enumerate(dict.fromkeys(code for codes in rows for code in codes))}
    return References(collate(list(place), drop), *pad_rows([[place[code] for code in codes] for codes in rows]))


def draw_references(
    candidate: CaptionCode, of_image: Sequence[CaptionCode], options: ReferenceOptions, rng: np.random.Generator
) -> list[CaptionCode]:
    """Captions of the candidate's image with other words, in random order."""
    number = int(rng.integers(0, options.most + 1)) if options.draw == "random" else options.most
    others = [code for code in of_image if code.words != candidate.words]
    return [others[place] for place in rng.permutation(len(others))[:number].tolist()]


def union_of(
    network: Faier, seen: Sequence[torch.Tensor], references: References | None, dropout: DropoutOptions | None = None
) -> list[Union]:
    """The graphs that candidates are matched with; ``seen``: features (B, R, image_dim) and boxes (B, R, 4)."""
    dropout, device = dropout or DropoutOptions(), network.embed.weight.device
    images, captions = None, None
    if network.options.sees_images:
        features, *boxes = (part.to(device) for part in seen)
        images = network.encode_images(features, boxes[0] if boxes else None, dropout.regions)
    places = counts = torch.ones(1, len(seen[0]), dtype=torch.int64)
    if references is not None:
        captions = network.encode_captions(references.captions, dropout.embedding)
        places, counts = references.places.to(device), references.counts[None]
    return network.fuse(images, captions, places, counts)


class FaierTask(MatchingTask[Faier, Batch]):
    """Retrieval of matching candidates and images with references within a batch."""

    settings = FaierTraining
    reader = GraphReader
    network = Faier
    load = FaierModel.load
    metric = "faier"
    config: FaierTraining

    def __init__(self, config: FaierTraining, root: DataRoot | None, device: torch.device, watcher: Watcher) -> None:
        super().__init__(config, root, device, watcher)
        self._empty = caption_code(NO_REFERENCE, (), self.vocabulary, self.options)
        self._of_image = self.train.of_images(self.captions)

    def batch(self, chosen: NDArray[np.int64], step: int) -> Batch:
        captions, config, references = self.captions, self.config, None
        draws, drops = (np.random.default_rng((config.seed, stream, step)) for stream in (4, 2))

        def drop(ids: torch.Tensor) -> torch.Tensor:
            return config.dropout.drop_words(ids, drops)

        candidates = collate([captions[i] for i in chosen.tolist()], drop)
        if self.model.options.reads_references:
            drawn = [
                draw_references(captions[i], self._of_image[self.train.image_of[i]], config.references, draws)
                for i in chosen.tolist()
            ]
            references = collate_references(drawn, self._empty, drop)
        return Batch(self.regions.take(self.train.image_of[chosen]), candidates, references)

    def loss(self, batch: Batch, step: int) -> torch.Tensor:
        union = union_of(self.model, batch.seen, batch.references, self.config.dropout)
        candidates = self.model.encode_captions(batch.candidates, self.config.dropout.embedding)
        return self.config.loss(self.model.scores(union, candidates)[0, ..., 0], step)

    @classmethod
    def recalls(cls, network: Faier, split: Split, config: FaierTraining, folds: int, bar: Bar) -> dict[str, Any]:
        """Recalls of each image's first caption, the candidate, with so many of the next captions as references (or all
        if there are fewer); ``recall_sum`` is the mean over the numbers of references."""
        of_image, options = split.pairs.of_images(split.captions), network.options
        candidates = [codes[0] for codes in of_image]
        empty = caption_code(NO_REFERENCE, (), split.vocabulary, options)

        def encode_images(number: int, block: NDArray[np.int64]) -> list[Union]:
            rows = [of_image[i][1 : 1 + number] for i in block.tolist()]
            texts = collate_references(rows, empty) if options.reads_references else None
            return union_of(network, split.regions.take(block), texts)

        by_number = {}
        for number in config.evaluation.references if options.reads_references else (0,):
            matrix = similarity_matrix(
                network,
                len(candidates),
                [len(code.words) for code in candidates],
                partial(encode_images, number),
                lambda chosen: network.encode_captions(collate([candidates[i] for i in chosen])),
                lambda union, texts: network.scores(union, texts)[0, ..., 0],
                bar,
            )
            by_number[str(number)] = retrieval(matrix, np.arange(len(candidates)), folds)
        mean = sum(entry["recall_sum"] for entry in by_number.values()) / len(by_number)
        return {"recall_sum": round(mean, 6), "by_references": by_number}

    @staticmethod
    def line(entry: Mapping[str, Any]) -> str:
        return "; ".join(
            f"with {count(int(number), 'reference')}, {count(of['images'], 'image')}: {MatchingTask.line(of)}"
            for number, of in entry["by_references"].items()
        )
