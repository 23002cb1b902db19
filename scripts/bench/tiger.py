"""TIGEr, compared with one caption at a time, as the released scripts do it.

Weights and features are random, of the published size: 36 regions of 2,048 numbers, a common space of 1,024. The peer
encodes every item's image and references anew, captions in batches of one, and computes each region's context and
cosine in a loop; it scores a part of the items.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from capbench.core.records import FloatArray, Item
from capbench.metrics.needs import Resources
from capbench.metrics.scan.network import Scan, ScanOptions
from capbench.metrics.tiger import Tiger
from capbench.text.vocabulary import Vocabulary
from capbench.weights.files import write_trained
from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import items, write_features


def ours(resources: Resources, chosen: Sequence[Item], part: Sequence[Item]) -> Work:
    """TIGEr of all items, in the batches of the score command; returns the scores of a part."""
    metric = Tiger(resources)
    assert metric.source.model is not None  # loads it
    place = {item.key: i for i, item in enumerate(chosen)}

    def work() -> FloatArray:
        size = metric.batch_size
        batches = [metric.statistics(chosen[i : i + size], lambda _: None) for i in range(0, len(chosen), size)]
        return metric.scores(np.concatenate(batches))["tiger"][[place[item.key] for item in part]]

    return work


def one_by_one(resources: Resources, _: Sequence[Item], part: Sequence[Item]) -> Work:
    """TIGEr of a part of the items, each separately."""
    metric = Tiger(resources)
    assert metric.source.model is not None
    return lambda: np.array([_one(metric, item) for item in part])


def _one(metric: Tiger, item: Item) -> float:
    model, store = metric.source.model, metric.source.store
    vectors = []
    for text in (item.candidate, *item.references):
        regions = torch.from_numpy(model.encode_image(store[item.image].features)).double()
        words = torch.from_numpy(model.encode_captions([text])[text]).double()
        vectors.append(_grounding(regions, words, metric.attention.smoothing))
    candidate, reference = vectors[0], np.mean(vectors[1:], axis=0)
    low, high = reference.min(), reference.max()
    gains = [(value - low) / (high - low) for value in reference.tolist()]
    order = sorted(range(len(gains)), key=lambda i: -candidate[i])
    dcg = sum(gains[i] / math.log2(k + 2) for k, i in enumerate(order))
    ideal = sum(gain / math.log2(k + 2) for k, gain in enumerate(sorted(gains, reverse=True)))
    p, q = (np.exp(values) / np.exp(values).sum() for values in (reference, candidate))
    distance = (p * np.log(p / q)).sum() + math.log(np.linalg.norm(reference) / np.linalg.norm(candidate))
    return float((dcg / ideal + 1 - 1 / (1 + math.exp(-1.5 * distance))) / 2)


def _grounding(regions: torch.Tensor, words: torch.Tensor, smoothing: float) -> FloatArray:
    similar = torch.nn.functional.leaky_relu(words @ regions.T, 0.1)
    similar = similar / (similar.norm(dim=1, keepdim=True) + 1e-8)
    attention = torch.softmax(smoothing * similar, dim=0)
    cosines = []
    for i, region in enumerate(regions):
        context = (attention[:, i, None] * words).sum(0)
        cosines.append(float(region @ context / (region.norm() * context.norm()).clamp(min=1e-8)))
    return np.array(cosines)


def files(folder: Path, chosen: Sequence[Item]) -> Resources:
    """A model with random weights, and random features."""
    words = Vocabulary.build(sorted({text for i in chosen for text in (i.candidate, *i.references)}), min_count=1)
    network = Scan(ScanOptions(vocabulary_size=len(words), embed_dim=1024), torch.Generator().manual_seed(0))
    write_trained(folder / "scan.safetensors", network, words, {})
    write_features(folder / "features.h5", sorted({item.image for item in chosen}), 36, 2048)
    return Resources(features=str(folder / "features.h5"), model=str(folder / "scan.safetensors"))


def measure(settings: Settings) -> Iterator[Row]:
    """TIGEr of the items of some images."""
    name, chosen = items(settings.data, settings.pick(100, 1_000))
    part = chosen[:: -(-len(chosen) // settings.pick(10, 40))]
    yield between(
        f"TIGEr; {name}, {len(chosen):,} items",
        f"one caption at a time, {len(part)} items × {len(chosen) / len(part):.0f}",
        ours,
        one_by_one,
        files(settings.folder, chosen),
        chosen,
        part,
        repeats=settings.repeats,
        tolerance=1e-5,
        times=len(chosen) / len(part),
    )
