"""Retrieval with a grounding model on a split: every image against every caption."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.models.scan.network import Scan
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.training import recall
from capbench.training.captions import Pairs
from capbench.training.regions import Regions
from capbench.training.words import pad

__all__ = ["evaluate", "similarity_matrix"]


def similarity_matrix(
    network: Scan,
    regions: Regions,
    captions: Sequence[Sequence[int]],
    device: torch.device | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> NDArray[np.float32]:
    """(images, captions) similarities (:func:`capbench.training.recall.similarity_matrix`).

    Args:
        network: is set to evaluation mode while this runs.
        regions: features of the images.
        captions: word numbers of the captions, with ``<start>`` and ``<end>``.
        device: where the network is.
        progress: called with numbers of captions done; an exception from it leaves.

    Raises:
        ModelError: a similarity is NaN or infinite.
    """
    device = device or torch.device("cpu")

    def encode_captions(chosen: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, lengths = pad([captions[i] for i in chosen])
        return network.encode_captions(ids.to(device), lengths), lengths

    return recall.similarity_matrix(
        network,
        regions.shape[0],
        [len(caption) for caption in captions],
        lambda images: network.encode_images(regions.take(images).to(device)),
        encode_captions,
        lambda images, encoded: network.similarities(images, *encoded),
        progress,
    )


def evaluate(
    network: Scan,
    pairs: Pairs,
    captions: Sequence[Sequence[int]],
    regions: Regions,
    device: torch.device | None = None,
    folds: int = 1,
    progress: Callable[[int], None] = lambda _done: None,
) -> Retrieval:
    """Recalls of a network on a split: :func:`similarity_matrix` and :func:`capbench.stats.retrieval.retrieval`."""
    return retrieval(similarity_matrix(network, regions, captions, device, progress), pairs.image_of, folds)
