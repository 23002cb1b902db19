"""FAIEr, compared with its equations in a plain loop over regions, words, triplets and references.

Weights and features are random, of the published size: 36 boxes of 2,048 numbers, 512 components a node. Both levels
are computed if SPICE's parses of all captions are cached; nothing is parsed here, so otherwise the object level only.
The peer is the float32 loop of the tests and scores a part of the items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from capbench.core.records import FloatArray, Item
from capbench.metrics.faier.metric import Faier
from capbench.metrics.faier.network import Faier as Network
from capbench.metrics.faier.network import FaierOptions, caption_code
from capbench.metrics.needs import Resources
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.vocabulary import Vocabulary
from capbench.weights.files import write_trained
from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import items, write_features
from tests.metrics.faier.reference import PlainFaier, Text


def ours(resources: Resources, chosen: Sequence[Item], part: Sequence[Item]) -> Work:
    """FAIEr of all items, in the batches of the score command; returns the scores of a part."""
    metric = Faier(resources)
    place = {item.key: i for i, item in enumerate(chosen)}

    def work() -> FloatArray:
        size = metric.batch_size
        batches = [metric.statistics(chosen[i : i + size], lambda _: None) for i in range(0, len(chosen), size)]
        return np.concatenate(batches)[[place[item.key] for item in part], 0]

    return work


def plain(resources: Resources, _: Sequence[Item], part: Sequence[Item]) -> Work:
    """FAIEr of a part of the items, each separately."""
    metric = Faier(resources)
    model = metric.encoders[0].model
    weights = {name: weight.numpy() for name, weight in model.network.state_dict().items()}
    network = PlainFaier(model.options, weights, np.float32)

    def text(caption: str) -> Text:
        triplets = metric.triplets([caption]).get(caption, ())
        code = caption_code(caption, triplets, model.vocabulary, model.options)
        return Text(code.words, code.triplets)

    def one(item: Item) -> float:
        regions = metric.store[item.image]
        assert regions.boxes is not None
        boxes = regions.boxes / np.float32(regions.width)
        references = [text(reference) for reference in item.references]
        return network.score(regions.features.astype(np.float32), boxes, references, text(item.candidate)).total

    return lambda: np.array([one(item) for item in part])


def files(folder: Path, chosen: Sequence[Item], variant: str) -> Resources:
    """A model with random weights, and random features."""
    words = Vocabulary.build(sorted({text for i in chosen for text in (i.candidate, *i.references)}), min_count=1)
    network = Network(FaierOptions(vocabulary_size=len(words), variant=variant), torch.Generator().manual_seed(0))
    write_trained(folder / "faier.safetensors", network, words, {})
    write_features(folder / "features.h5", sorted({item.image for item in chosen}), 36, 2048)
    return Resources(features=str(folder / "features.h5"), model=str(folder / "faier.safetensors"))


def measure(settings: Settings) -> Iterator[Row]:
    """FAIEr of the items of some images."""
    name, chosen = items(settings.data, settings.pick(50, 1_000))
    part = chosen[:: -(-len(chosen) // settings.pick(3, 8))]
    texts = sorted({text for item in chosen for text in (item.candidate, *item.references)})
    variant = "faier-object" if scene_graph.missing(ptb.tokenize(texts)) else "faier"
    yield between(
        f"FAIEr{', object level' * ('object' in variant)}; {name}, {len(chosen):,} items",
        f"plain loop, {len(part)} items × {len(chosen) / len(part):.0f}",
        ours,
        plain,
        files(settings.folder, chosen, variant),
        chosen,
        part,
        repeats=settings.repeats,
        tolerance=1e-5,
        times=len(chosen) / len(part),
    )
