"""Similarities of every image with every caption of a split, block by block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.errors import ModelError

__all__ = ["CAPTIONS", "IMAGES", "Network", "blocks", "similarity_matrix"]

IMAGES = 128
"""How many images are encoded at once."""
CAPTIONS = 256
"""How many captions are encoded at once."""

I = TypeVar("I")  # noqa: E741  # an encoded block of images
C = TypeVar("C")  # an encoded block of captions


class Network(Protocol):
    """A network, as far as it is set to evaluation mode and back."""

    training: bool

    def eval(self) -> Any:
        """Set it to evaluation mode."""

    def train(self, mode: bool = True) -> Any:
        """Set it to training mode, or not."""


def blocks(n: int, size: int) -> list[NDArray[np.int64]]:
    """The numbers from 0 to n - 1 in runs of a size."""
    return [np.arange(first, min(first + size, n)) for first in range(0, n, size)]


@torch.inference_mode()
def similarity_matrix(
    network: Network,
    images: int,
    lengths: Sequence[int],
    encode_images: Callable[[NDArray[np.int64]], I],
    encode_captions: Callable[[list[int]], C],
    compare: Callable[[I, C], torch.Tensor],
    progress: Callable[[int], None] = lambda _done: None,
) -> NDArray[np.float32]:
    """(images, captions) similarities.

    Each image and each caption is encoded once. Captions are done in the order of their lengths, whatever order they
    are given in, so that there is next to no padding.

    Args:
        network: is set to evaluation mode while this runs.
        images: their number.
        lengths: of each caption.
        encode_images: of a block of images, by their places.
        encode_captions: of a block of captions, by their places.
        compare: (block of images, block of captions) similarities of what these two give.
        progress: called with numbers of captions done; an exception from it leaves.

    Raises:
        ModelError: a similarity is NaN or infinite.
    """
    was_training = network.training
    network.eval()
    try:
        encoded_images = [encode_images(block) for block in blocks(images, IMAGES)]
        matrix = np.empty((images, len(lengths)), dtype=np.float32)
        order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        for block in blocks(len(order), CAPTIONS):
            chosen = [order[place] for place in block.tolist()]
            encoded = encode_captions(chosen)
            rows = [compare(image_block, encoded).float() for image_block in encoded_images]
            matrix[:, chosen] = torch.cat(rows).cpu().numpy()
            progress(len(chosen))
    finally:
        network.train(was_training)
    if not np.isfinite(matrix).all():
        raise ModelError("a similarity is NaN or infinite", hint="The model is damaged or has diverged")
    return matrix
