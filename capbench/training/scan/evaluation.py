"""Retrieval with a grounding model on a split: every image against every caption, block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.errors import ModelError
from capbench.models.scan.network import Scan
from capbench.stats.retrieval import Retrieval, retrieval
from capbench.training.captions import Pairs
from capbench.training.regions import Regions
from capbench.training.scan.batches import pad

__all__ = ["evaluate", "similarity_matrix"]

_IMAGES = 128
_CAPTIONS = 256


@torch.inference_mode()
def similarity_matrix(
    network: Scan,
    regions: Regions,
    captions: Sequence[Sequence[int]],
    device: torch.device | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> NDArray[np.float32]:
    """(images, captions) similarities.

    Each image and each caption is encoded once. Captions are done in the order of their lengths, whatever order they
    are given in, so that there is next to no padding.

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
    was_training = network.training
    network.eval()
    try:
        images = [
            network.encode_images(regions.take(np.arange(first, min(first + _IMAGES, regions.shape[0]))).to(device))
            for first in range(0, regions.shape[0], _IMAGES)
        ]
        matrix = np.empty((regions.shape[0], len(captions)), dtype=np.float32)
        order = sorted(range(len(captions)), key=lambda i: len(captions[i]))
        for begin in range(0, len(order), _CAPTIONS):
            chosen = order[begin : begin + _CAPTIONS]
            ids, lengths = pad([captions[i] for i in chosen])
            encoded = network.encode_captions(ids.to(device), lengths)
            rows = [network.similarities(block, encoded, lengths).float() for block in images]
            matrix[:, chosen] = torch.cat(rows).cpu().numpy()
            progress(len(chosen))
    finally:
        network.train(was_training)
    if not np.isfinite(matrix).all():
        raise ModelError("a similarity is NaN or infinite", hint="The model is damaged or has diverged")
    return matrix


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
