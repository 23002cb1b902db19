"""Captions that TIGEr and REO score per second, compared with one caption at a time.

Run: OPENBLAS_NUM_THREADS=1 python -m scripts.bench.tiger [--data DIR] [--items N] [--one-by-one N] [--threads N]

Without OPENBLAS_NUM_THREADS, NumPy's threads wait for each other where other programs take the cores: that took up to
ten times as long for the small products of one image.

Weights and features are random, of the published size: 36 regions of 2,048 numbers, a common space of 1,024. Items
are those of Flickr8k Expert if its files are there, else invented ones of the same structure: 1,000 images, five
references each, candidates taken from other images' references. "One at a time" works in the way that the released
scripts do: every item's image and references are encoded anew, captions in batches of one, and each region's context
and cosine is computed in a loop; it is timed on part of the items, and its scores must equal the others. Everything
runs ``--repeats`` times, in turn, and the run with the least processor time counts.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from capbench import __version__
from capbench.core.errors import CapbenchError
from capbench.core.records import FloatArray, Item
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.datasets.root import find_root
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.base import Resources
from capbench.metrics.grounding import grounding
from capbench.metrics.grounding.grounding import GroundedMetric
from capbench.metrics.grounding.scan import Scan, ScanOptions
from capbench.metrics.grounding.scan_files import save_scan
from capbench.metrics.reo.metric import Reo
from capbench.metrics.tiger.metric import Tiger
from capbench.text.vocabulary import Vocabulary

_REGIONS, _COLUMNS = 36, 2048


def main() -> None:
    """Measure, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", help="folder of the data sets; default: CAPBENCH_DATA")
    arguments.add_argument("--items", type=int, help="only the first N distinct items")
    arguments.add_argument("--one-by-one", type=int, default=40, help="items that are scored one caption at a time")
    arguments.add_argument("--repeats", type=int, default=2)
    arguments.add_argument("--threads", type=int, default=1, help="threads of torch")
    arguments.add_argument("--embed", type=int, default=1024, help="size of the common space")
    chosen = arguments.parse_args()
    torch.set_num_threads(chosen.threads)
    items = list(dict.fromkeys(_items(chosen.data)))[: chosen.items]
    texts = {text for item in items for text in (item.candidate, *item.references)}
    images = {item.image for item in items}
    print(f"capbench {__version__}, torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores")
    print(f"{len(items):,} items, {len(images):,} images, {len(texts):,} distinct captions; {chosen.threads} thread(s)")
    with tempfile.TemporaryDirectory() as folder:
        resources = _files(Path(folder), sorted(images), sorted(texts), chosen.embed)
        tiger = Tiger(resources)
        sample = items[:: max(1, len(items) // chosen.one_by_one)][: chosen.one_by_one]
        slow_runs, fast_runs, reo_runs = [], [], []
        for _ in range(chosen.repeats):
            slow_runs.append(_timed(lambda: one_by_one(tiger, sample)))
            grounding._open.clear()  # with all that was encoded before
            fast_runs.append(_run(Tiger(resources), items))
            reo_runs.append(_run(Reo(resources, covariance="identity"), items))
        (slow, slow_s), (fast, fast_s), (_, reo_s) = (min(runs, key=_cpu) for runs in (slow_runs, fast_runs, reo_runs))
        place = {item.key: i for i, item in enumerate(items)}
        ours = tiger.scores(fast[[place[item.key] for item in sample]])["tiger"]
        difference = float(np.abs(ours - slow).max())
    print(f"{'':<16}{'items':>8}{'wall s':>10}{'cpu s':>10}{'items/s':>10}{'items/cpu s':>14}")
    for name, count, (wall, cpu) in (
        ("one at a time", len(sample), slow_s),
        ("TIGEr", len(items), fast_s),
        ("REO after TIGEr", len(items), reo_s),
    ):
        print(f"{name:<16}{count:>8,}{wall:>10.1f}{cpu:>10.1f}{count / wall:>10.1f}{count / cpu:>14.1f}")
    wall_ratio, cpu_ratio = (
        len(items) / fast / (len(sample) / slow) for fast, slow in zip(fast_s, slow_s, strict=True)
    )
    print(f"TIGEr is {wall_ratio:.1f} times as fast as one at a time on the wall, {cpu_ratio:.1f} times in CPU time")
    print(f"largest difference of TIGEr on {len(sample)} items: {difference:.1e}")
    assert difference < 1e-5


def _items(data: str | None) -> Sequence[Item]:
    try:
        dataset = Flickr8kExpert(find_root(data))
        items = dataset.load(dataset.selections[dataset.default[0]])[0].items
        if len(items) > 5000:
            return items
    except CapbenchError:
        pass
    generator = np.random.default_rng(0)
    words = [f"word{i}" for i in range(3000)]

    def caption() -> str:
        ranks = np.minimum(generator.zipf(1.3, size=max(4, int(generator.normal(11, 3)))), len(words)) - 1
        return " ".join(words[rank] for rank in ranks.tolist()) + " ."

    references = [tuple(caption() for _ in range(5)) for _ in range(1000)]
    invented: list[Item] = []
    for i in range(5664):
        other = references[int(generator.integers(1000))][int(generator.integers(5))]
        invented.append(Item(f"image{i % 1000:04}", other, references[i % 1000]))
    return tuple(invented)


def _files(folder: Path, images: Sequence[str], texts: Sequence[str], embed: int) -> Resources:
    """A model with random weights, and random features, half precision."""
    words = Vocabulary.build(texts, min_count=1)
    network = Scan(ScanOptions(vocabulary_size=len(words), embed_dim=embed), torch.Generator().manual_seed(0))
    save_scan(folder / "scan.safetensors", network, words, {})
    generator = np.random.default_rng(1)
    fingerprint = Fingerprint("invented", "random:1", "none", "36 regions")
    with StoreWriter(folder / "features.h5", fingerprint, dtype="float16") as writer:
        for image in images:
            values = np.maximum(generator.normal(size=(_REGIONS, _COLUMNS)), 0).astype(np.float32)
            writer.add(RegionFeatures(image, 0, 0, None, values))
        writer.finish()
    return Resources(features=str(folder / "features.h5"), model=str(folder / "scan.safetensors"))


class _Clock:
    """Seconds on the wall, and of the processor, which other programs on the machine disturb less."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._processor


def _cpu(run: tuple[FloatArray, tuple[float, float]]) -> float:
    return run[1][1]


def _timed(work: Callable[[], FloatArray]) -> tuple[FloatArray, tuple[float, float]]:
    clock = _Clock()
    return work(), clock.read()


def _run(metric: GroundedMetric, items: Sequence[Item]) -> tuple[FloatArray, tuple[float, float]]:
    """Statistics as the score command has them made: all items are announced, then come in batches."""
    clock = _Clock()
    batches = [
        metric.statistics(items[start : start + metric.batch_size], lambda _: None)
        for start in range(0, len(items), metric.batch_size)
    ]
    return np.concatenate(batches), clock.read()


def one_by_one(metric: Tiger, items: Sequence[Item]) -> FloatArray:
    """TIGEr of items, each on its own."""
    return np.array([_one(metric, item) for item in items])


def _one(metric: Tiger, item: Item) -> float:
    model, store = metric.source.model, metric.source.store
    vectors = []
    for text in (item.candidate, *item.references):
        regions = torch.from_numpy(model.encode_images([store[item.image].features])[0]).double()
        words = torch.from_numpy(model.encode_captions([text])[0]).double()
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


if __name__ == "__main__":
    main()
