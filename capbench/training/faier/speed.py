"""How long a training of FAIEr should take, before it begins."""

from __future__ import annotations

from capbench.training.faier.config import FaierTraining

__all__ = ["training_seconds"]

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
