"""Large inputs on one machine: processor time and peak memory of whole commands on generated data.

``merge``: stores of 36 regions x 2,048 features that are merged from shards, a small one and a large one; the merged
file must hold the very features, and memory may not grow with it. ``captions``: BLEU, CIDEr and METEOR over many
captions, document frequencies over all of them. ``ratings``: an imported data set of many ratings under one metric.
``arrays``: Kendall, Spearman and Pearson of many pairs of numbers in this process, beside scipy's on the first of them.
``metrics``: ``compare`` and ``combine`` of 20 metrics whose scores are in a file. ``within``: tie calibration within
four images of many captions.

Example: python -m scripts.bench.scale --only merge --images 12300

Example: python -m scripts.bench.scale --only captions --captions 1000000
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from scripts.bench.data_import import write_table
from scripts.bench.goals import Run, run, write_captions

_REGIONS, _SIZE, _SHARDS = 36, 2048, 4
_MERGE = """
import sys
from capbench.features.maintenance import merge_stores
merge_stores(sys.argv[1], sys.argv[2:])
"""

_CORRELATE = """
import sys, time, numpy as np, scipy.stats
from capbench.stats.correlation import correlation
count = int(sys.argv[1])
rng = np.random.default_rng(0)
ratings = rng.integers(1, 5, count)
scores = ratings + rng.normal(size=count) * 3
few = slice(0, 200_000)
peers = {"tau-b": scipy.stats.kendalltau, "spearman": scipy.stats.spearmanr, "pearson": scipy.stats.pearsonr}
for name in ("tau-b", "tau-c", "spearman", "pearson"):
    begin = time.process_time()
    value = correlation(name, scores, ratings).value
    print(f"  {name}: {value:.6f} in {time.process_time() - begin:.1f} s")
    if name in peers:
        wanted = peers[name](scores[few], ratings[few]).statistic
        assert abs(correlation(name, scores[few], ratings[few]).value - wanted) < 1e-9, name
"""


def regions_of(place: int) -> RegionFeatures:
    """Made-up regions of an image, decided by its place."""
    rng = np.random.default_rng(place)
    corners = np.sort(rng.random((_REGIONS, 2, 2), dtype=np.float32) * 400, axis=1)
    features = rng.random((_REGIONS, _SIZE), dtype=np.float32)
    return RegionFeatures(f"{place:08}", 500, 500, corners.reshape(_REGIONS, 4), features)


def merge(folder: Path, images: int) -> Run:
    """Write shards, merge them in a process of its own, and compare some images."""
    shards = []
    fingerprint = Fingerprint("made-up", "random:0", "none", "none")
    for shard in range(_SHARDS):
        shards.append(folder / f"{images}.shard{shard}.h5")
        with StoreWriter(shards[-1], fingerprint) as writer:
            for place in range(shard, images, _SHARDS):
                writer.add(regions_of(place))
            writer.finish()
    target = folder / f"{images}.h5"
    merged = run([sys.executable, "-c", _MERGE, str(target), *map(str, shards)], folder)
    with open_store(target) as store:
        if len(store) != images:
            raise SystemExit(f"{len(store)} images were merged, not {images}")
        for place in range(0, images, max(1, images // 50)):
            expected = regions_of(place)
            if not np.array_equal(store[expected.image].features, expected.features):
                raise SystemExit(f"image {expected.image} holds other features")
    gigabytes = target.stat().st_size / 1e9
    print(
        f"merge of {_SHARDS} shards, {images:,} images x {_REGIONS} x {_SIZE}: {merged.seconds:.1f} s, "
        f"{gigabytes:.2f} GB on disk, peak {merged.megabytes:.0f} MB",
        flush=True,
    )
    for path in (*shards, target):
        path.unlink()
    return merged


def merges(folder: Path, images: int) -> None:
    """A tenth and all; ten times by calculation."""
    small, large = merge(folder, images // 10), merge(folder, images)
    growth = large.megabytes / small.megabytes
    if growth > 1.25:
        raise SystemExit(f"memory grows with the store: {growth:.2f} times for ten times the images")
    seconds = large.seconds + 9 * (large.seconds - small.seconds) / 0.9
    print(f"ten times of it, by calculation: {seconds / 60:.0f} min, memory as here (x {growth:.2f} for ten times)")


def captions(folder: Path, count: int) -> None:
    """``capbench score`` over generated captions; nothing is cached."""
    candidates, references = write_captions(folder, count)
    command = [sys.executable, "-m", "capbench", "score", "--candidates", str(candidates), "--references"]
    command += [str(references), "--no-cache", "--json"]
    metrics = ("bleu", "cider", "meteor")
    scored = run([*command, *(word for name in metrics for word in ("-m", name))], folder)
    print(
        f"score {', '.join(metrics)}, {count:,} x 5: {scored.seconds:.0f} s, peak {scored.megabytes:,.0f} MB",
        flush=True,
    )


def ratings(folder: Path, count: int) -> None:
    """Import a table and correlate it."""
    table, data = folder / "ratings.csv", folder / "data"
    write_table(table, count)
    data.mkdir()
    capbench = [sys.executable, "-m", "capbench"]
    importing = [*capbench, "data", "import", str(table), "--name", "bench", "--scale", "1-5", "--data", str(data)]
    imported = run(importing, folder)
    print(f"data import, {count:,} ratings: {imported.seconds:.0f} s, peak {imported.megabytes:,.0f} MB", flush=True)
    correlating = [*capbench, "correlate", "-d", "bench", "-m", "bleu-4", "--data", str(data), "--json"]
    correlated = run(correlating, folder, CAPBENCH_CACHE=str(folder / "cache"))
    print(f"correlate bleu-4 with them: {correlated.seconds:.0f} s, peak {correlated.megabytes:,.0f} MB", flush=True)


def arrays(folder: Path, count: int) -> None:
    """Correlations of numbers, in a process of their own so that the peak is theirs."""
    measured = run([sys.executable, "-c", _CORRELATE, str(count)], folder)
    print(f"{count:,} pairs as arrays, peak {measured.megabytes:,.0f} MB:\n{measured.out.rstrip()}", flush=True)


def metrics(folder: Path, count: int, columns: int = 20) -> None:
    """Write ratings of ten captions per image and a file of scores, compare the columns and combine them."""
    rng = np.random.default_rng(0)
    names = [f"m{place:02}" for place in range(columns)]
    quality = rng.normal(size=count)
    ratings = np.clip(np.floor(quality + rng.normal(size=count) * 0.8 + 3.5), 1, 5)
    scores = quality[:, None] + rng.normal(size=(count, columns)) * (1 + 0.08 * np.arange(columns))
    table, scored, data = folder / "judged.csv", folder / "scored.csv", folder / "data"
    with table.open("w") as judged, scored.open("w") as given:
        print("image,candidate,candidate_id,rating", file=judged)
        print("image,candidate_id", *names, sep=",", file=given)
        for row, (rating, values) in enumerate(zip(ratings, scores, strict=True)):
            print(f"{row // 10}.jpg,caption {row},{row},{rating:g}", file=judged)
            print(f"{row // 10}.jpg,{row}", *(f"{value:.6f}" for value in values), sep=",", file=given)
    data.mkdir()
    capbench = [sys.executable, "-m", "capbench"]
    run([*capbench, "data", "import", str(table), "--name", "bench", "--scale", "1-5", "--data", str(data)], folder)
    more = ["-d", "bench", "--data", str(data), "--scores", str(scored), "--json"]
    for name, chosen in (("compare", names), ("combine", [word for each in names for word in ("-m", each)])):
        done = run([*capbench, name, *chosen, *more], folder, CAPBENCH_CACHE=str(folder / "cache"))
        what = f"{name} {columns} metrics on {count:,} ratings"
        print(f"{what}: {done.seconds:.1f} s, peak {done.megabytes:,.0f} MB", flush=True)


_WITHIN = """
import sys, time, numpy as np
from capbench.stats.within_images import within_images
count = int(sys.argv[1])
rng = np.random.default_rng(0)
image = np.repeat(np.arange(4), count // 4)
ratings = rng.integers(1, 6, len(image)).astype(float)
scores = 0.3 * ratings + rng.normal(size=len(image))
begin = time.process_time()
value = within_images("acc-eq", scores, ratings, image).value
print(f"  acc-eq: {value:.6f} in {time.process_time() - begin:.2f} s")
"""


def within(folder: Path, count: int) -> None:
    """Tie calibration within four images, in a process of its own so that the peak is its own."""
    measured = run([sys.executable, "-c", _WITHIN, str(count)], folder)
    print(f"{count:,} captions of four images, peak {measured.megabytes:,.0f} MB:\n{measured.out.rstrip()}", flush=True)


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=12_300)
    parser.add_argument("--captions", type=int, default=1_000_000)
    parser.add_argument("--ratings", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--judged", type=int, default=40_000, help="ratings of many metrics, captions of four images")
    parser.add_argument("--only", choices=("merge", "captions", "ratings", "arrays", "metrics", "within"))
    asked = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}; load {os.getloadavg()[0]:.1f}", flush=True)
    kinds: dict[str, Callable[[Path], None]] = {
        "merge": lambda folder: merges(folder, asked.images),
        "captions": lambda folder: captions(folder, asked.captions),
        "ratings": lambda folder: ratings(folder, asked.ratings),
        "arrays": lambda folder: arrays(folder, asked.pairs),
        "metrics": lambda folder: metrics(folder, asked.judged),
        "within": lambda folder: within(folder, asked.judged),
    }
    for kind, measure in kinds.items():
        if asked.only in (None, kind):
            begin = time.perf_counter()
            with tempfile.TemporaryDirectory() as name:
                measure(Path(name))
            print(f"  ({kind}: {time.perf_counter() - begin:.0f} s with the making of its data)", flush=True)


if __name__ == "__main__":
    main()
