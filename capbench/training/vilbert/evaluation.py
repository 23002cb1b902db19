"""How well a ViLBERT knows a caption of an image from a foreign one, on images that it has not learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.errors import DataError
from capbench.models.vilbert.layers import mask_of
from capbench.training.captions import Pairs
from capbench.training.vilbert.batches import Specials, padded
from capbench.training.vilbert.data import ImageData
from capbench.training.vilbert.learner import VilbertLearner
from capbench.training.vilbert.losses import f_scores

__all__ = ["Trial", "draw_trials", "evaluate"]

_AT_ONCE = 64
_LOOKED_AT = 20


@dataclass(frozen=True, eq=False)
class Trial:
    """Questions to a network: which of two captions is of the image?

    Attributes:
        image: (q,) places of images.
        reference: (q,) places of captions of the image.
        own: (q,) others of its captions.
        foreign: (q,) captions of other images, drawn at random.
        near: (q,) captions of other images: of some drawn at random, the one that has most word pieces in common with
            ``own``.
    """

    image: NDArray[np.int64]
    reference: NDArray[np.int64]
    own: NDArray[np.int64]
    foreign: NDArray[np.int64]
    near: NDArray[np.int64]


def draw_trials(pairs: Pairs, captions: Sequence[Sequence[int]], seed: int) -> Trial:
    """One question for each image that has two captions or more.

    Raises:
        DataError: there is no such image, or only one image.
    """
    rng = np.random.default_rng((seed, 4))
    counts = np.bincount(pairs.image_of, minlength=len(pairs.images))
    images = np.flatnonzero(counts > 1)
    if not len(images) or len(pairs.images) < 2:
        raise DataError("needs two images with two captions or more to measure on", path=pairs.source)
    sets = [frozenset(caption) for caption in captions]
    firsts = np.cumsum(counts) - counts
    rows = []
    for image in images.tolist():
        reference, own = firsts[image] + rng.choice(counts[image], 2, replace=False)
        others = rng.permutation(np.flatnonzero(pairs.image_of != image))[:_LOOKED_AT]
        common = [len(sets[own] & sets[other]) / len(sets[own] | sets[other]) for other in others.tolist()]
        rows.append((image, reference, own, others[0], others[int(np.argmax(common))]))
    return Trial(*np.array(rows, dtype=np.int64).T)


@torch.inference_mode()
def evaluate(
    model: VilbertLearner,
    trial: Trial,
    captions: Sequence[Sequence[int]],
    images: ImageData,
    specials: Specials,
    device: torch.device,
    pause: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Accuracies in %, ties counting half; nothing is masked.

    ``alignment`` asks the alignment's head, ``attention`` the first connection's similarity of caption and image,
    ``matching`` the F-score between the reference and each of the two after
    the last connection, ``matching_blank`` the same where all images are replaced by zeros. ``_near`` is against the
    near captions.

    Args:
        model: set to evaluation mode while this runs.
        trial: the questions.
        captions: word pieces of the captions.
        images: of the same split.
        specials: of the word pieces.
        device: where the network is.
        pause: called between blocks; an exception from it leaves.
    """
    was_training = model.training
    model.eval()
    wins: dict[str, list[torch.Tensor]] = {}
    try:
        for start in range(0, len(trial.image), _AT_ONCE):
            pause()
            part = slice(start, start + _AT_ONCE)
            features, places, _ = (tensor.to(device) for tensor in images.take(trial.image[part]))
            asked = (trial.reference[part], trial.own[part], trial.foreign[part], trial.near[part])
            numbers, here = padded([captions[i] for places_ in asked for i in places_.tolist()], specials.pad)
            ids, present = torch.from_numpy(numbers).to(device), torch.from_numpy(here).to(device)
            scored = present & torch.from_numpy(np.isin(numbers, specials.ordinary)).to(device)
            text = model.network.read_text(ids, mask_of(present))
            fits = _attended(model, text, scored, model.network.read_image(features, places))
            wins.setdefault("attention", []).append(_won(fits[1], fits[2]))
            wins.setdefault("attention_near", []).append(_won(fits[1], fits[3]))
            for suffix, shown in (("", features), ("_blank", torch.zeros_like(features))):
                image = model.network.read_image(shown, places).repeat(len(asked), 1, 1)
                last, streams = model.connect(text, image, present)
                states, counted = (array.reshape(len(asked), -1, *array.shape[1:]) for array in (last, scored))
                f = [f_scores(states[k], counted[k], states[0], counted[0]) for k in (1, 2, 3)]
                for name, other in (("matching", f[1]), ("matching_near", f[2])):
                    wins.setdefault(name + suffix, []).append(_won(f[0], other))
                if not suffix:
                    logits = model.aligned(streams)
                    fits = (logits[:, 0] - logits[:, 1]).reshape(len(asked), -1)
                    wins.setdefault("alignment", []).append(_won(fits[1], fits[2]))
                    wins.setdefault("alignment_near", []).append(_won(fits[1], fits[3]))
    finally:
        model.train(was_training)
    return {name: round(float(torch.cat(values).mean()) * 100, 4) for name, values in wins.items()}


def _attended(model: VilbertLearner, text: torch.Tensor, scored: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    """(k, q) similarity of q images with k captions each, as the first connection attends; texts (k·q, m, T)."""
    questions = len(image)
    matrix = model.similarities(text, scored, image)  # (q, k·q)
    own = torch.arange(questions, device=matrix.device)
    return torch.stack([part[own, own] for part in torch.split(matrix, questions, dim=1)])


def _won(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (own > other).double() + (own == other).double() / 2
