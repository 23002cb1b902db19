"""Captions that FAIEr scores per second, compared with its equations in a plain loop.

Run: OMP_NUM_THREADS=1 python -m scripts.bench.faier [--data DIR] [--items N] [--one-by-one N] [--threads N]

Weights and features are random, of the published size: 36 boxes of 2,048 numbers, 512 components a node, both levels.
Items are those of Flickr8k Expert if its files are there and its captions were parsed, else invented ones of the same
structure: 1,000 images, five references each, 5.7 candidates an image, without triplets. "Nothing shared" gives each
item an image and references of its own. The plain loop is that of the tests: over regions, words, triplets and
references of one item at a time, float32; it is timed on part of the items, and its scores must equal the others.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from capbench import __version__
from capbench.core.records import FloatArray, Item
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.base import Resources
from capbench.metrics.faier import source as faier_source
from capbench.metrics.faier.graphs import VARIANTS, FaierOptions
from capbench.metrics.faier.metric import Faier
from capbench.metrics.faier.network import Faier as Network
from capbench.metrics.faier.network import save_faier
from capbench.metrics.needs import Parser
from capbench.text import ptb
from capbench.text.spice import scene_graph
from capbench.text.vocabulary import Vocabulary
from capbench.weights import encodings
from scripts.bench.tiger import _Clock, _items, _timed
from tests.metrics.faier.reference import PlainFaier, Text

_REGIONS, _COLUMNS, _SIDE = 36, 2048, 100


def main() -> None:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", help="folder of the data sets; default: CAPBENCH_DATA")
    arguments.add_argument("--items", type=int, help="only the first N distinct items")
    arguments.add_argument("--unshared", type=int, default=400, help="items of which nothing is shared")
    arguments.add_argument("--one-by-one", type=int, default=8, help="items that the plain loop scores")
    arguments.add_argument("--matrix", type=int, default=0, help="images and captions of a matrix, such as 1000")
    arguments.add_argument("--threads", type=int, default=1, help="threads of torch")
    arguments.add_argument("--variant", choices=VARIANTS, default="faier", help="of the network")
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)
    items = list(dict.fromkeys(_items(chosen.data)))[: chosen.items]
    texts = sorted({text for item in items for text in (item.candidate, *item.references)})
    variant = chosen.variant
    if scene_graph.missing(ptb.tokenize(texts)) and Parser().missing("faier", Resources(), Faier.option_type()):
        variant = variant.removesuffix("-object") + "-object"  # no parser
    unshared = _unshared(items, chosen.unshared)
    images = sorted({item.image for item in (*items, *unshared)})
    print(f"capbench {__version__}, torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores")
    print(
        f"{len(items):,} items, {len({i.image for i in items}):,} images, {len(texts):,} distinct captions; {variant}"
    )
    print(f"{chosen.threads} thread(s)")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        resources = _files(Path(folder), images, texts, variant)
        scene_graph.ensure(ptb.tokenize(texts))
        metric = Faier(resources)
        sample = items[:: max(1, len(items) // chosen.one_by_one)][: chosen.one_by_one]
        slow, seconds = _timed(lambda: _plain(metric, sample))
        rows.append(("plain loop", len(sample), seconds))
        print(f"plain loop: {len(sample)} items in {seconds[0]:.1f} s", flush=True)
        fast, seconds = _run(resources, items)
        rows.append(("FAIEr", len(items), seconds))
        place = {item.key: i for i, item in enumerate(items)}
        difference = float(np.abs(fast[[place[item.key] for item in sample], 0] - slow).max())
        _, seconds = _run(resources, unshared)
        rows.append(("nothing shared", len(unshared), seconds))
        if chosen.matrix:
            some = sorted({item.image for item in items})[: chosen.matrix]
            references = {item.image: item.references for item in items}
            metric = _fresh(resources)
            clock = _Clock()
            metric.matrix(some, texts[: chosen.matrix], {i: references[i] for i in some}, "faier", lambda _: None)
            rows.append((f"matrix, {len(some):,}²", len(some) * min(len(texts), chosen.matrix), clock.read()))
    print(f"{'':<18}{'items':>10}{'wall s':>10}{'cpu s':>10}{'items/s':>12}{'items/cpu s':>14}")
    for name, count, (wall, cpu) in rows:
        print(f"{name:<18}{count:>10,}{wall:>10.1f}{cpu:>10.1f}{count / wall:>12.1f}{count / cpu:>14.1f}")
    (_, number, plain_s), (_, all_items, fast_s) = rows[:2]
    wall_ratio, cpu_ratio = (all_items / fast / (number / slow) for fast, slow in zip(fast_s, plain_s, strict=True))
    print(f"FAIEr is {wall_ratio:.0f} times as fast as the plain loop on the wall, {cpu_ratio:.0f} times in CPU time")
    print(f"largest difference on {number} items: {difference:.1e}")
    assert difference < 1e-5


def _unshared(items: Sequence[Item], count: int) -> list[Item]:
    """Items with references of their own, drawn from all captions, and each with an image of its own."""
    generator = np.random.default_rng(3)
    texts = list(dict.fromkeys(text for item in items for text in item.references))
    drawn = generator.permutation(len(texts))
    count = min(count, len(texts) // 6)
    return [
        replace(items[0], image=f"own{i}", candidate=texts[six[0]], references=tuple(texts[place] for place in six[1:]))
        for i, six in enumerate(drawn[: 6 * count].reshape(count, 6).tolist())
    ]


def _files(folder: Path, images: Sequence[str], texts: Sequence[str], variant: str) -> Resources:
    """A model with random weights, and random features with boxes, half precision."""
    words = Vocabulary.build(texts, min_count=1)
    network = Network(FaierOptions(vocabulary_size=len(words), variant=variant), torch.Generator().manual_seed(0))
    save_faier(folder / "faier.safetensors", network, words, {})
    generator = np.random.default_rng(1)
    fingerprint = Fingerprint("invented", "random:1", "none", "36 boxes")
    with StoreWriter(folder / "features.h5", fingerprint, dtype="float16") as writer:
        for image in images:
            values = np.maximum(generator.normal(size=(_REGIONS, _COLUMNS)), 0).astype(np.float32)
            corners = np.sort(generator.uniform(0, _SIDE, (_REGIONS, 2, 2)), axis=1).reshape(_REGIONS, 4)
            writer.add(RegionFeatures(image, _SIDE, _SIDE, corners.astype(np.float32), values))
        writer.finish()
    return Resources(features=str(folder / "features.h5"), model=str(folder / "faier.safetensors"))


def _fresh(resources: Resources) -> Faier:
    """The metric, with nothing encoded yet."""
    faier_source._open.clear()
    encodings._PROCESS.arrays.clear()
    encodings._PROCESS.bytes = 0
    return Faier(resources)


def _run(resources: Resources, items: Sequence[Item]) -> tuple[FloatArray, tuple[float, float]]:
    """Statistics as the score command has them made: all items are announced, then come in batches by image."""
    metric = _fresh(resources)
    clock = _Clock()
    order = sorted(range(len(items)), key=lambda place: items[place].image)
    statistics = np.empty((len(items), 3))
    for start in range(0, len(items), metric.batch_size):
        places = order[start : start + metric.batch_size]
        statistics[places] = metric.statistics([items[place] for place in places], lambda _: None)
    return statistics, clock.read()


def _plain(metric: Faier, items: Sequence[Item]) -> FloatArray:
    """FAIEr of items, each on its own."""
    (model,) = metric.source.models
    weights = {name: weight.numpy() for name, weight in model.network.state_dict().items()}
    plain = PlainFaier(model.options, weights, np.float32)

    def text(caption: str) -> Text:
        code = model.code(caption, metric.triplets([caption]).get(caption, ()))
        return Text(code.words, code.triplets)

    scores = []
    for item in items:
        regions = metric.store[item.image]
        assert regions.boxes is not None
        features = regions.features.astype(np.float32)
        references = [text(reference) for reference in item.references]
        scores.append(plain.score(features, regions.boxes / np.float32(_SIDE), references, text(item.candidate)).total)
    return np.array(scores)


if __name__ == "__main__":
    main()
