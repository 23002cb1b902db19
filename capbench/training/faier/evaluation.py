"""Recall of FAIEr on a split: every image, with references, against every image's candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.errors import DataError
from capbench.models.faier.graphs import CaptionCode, collate
from capbench.models.faier.network import Faier, Union
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.training import recall
from capbench.training.faier.batches import References, collate_references
from capbench.training.prepare import Split

__all__ = ["evaluate", "evaluate_all", "union_of"]


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

    matrix = recall.similarity_matrix(
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
