from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from capbench.features.records import RegionFeatures
from capbench.features.writing import StoreWriter
from tests.features.fakes import PRINT

_MERGE = """
import resource, sys
from capbench.features.maintenance import merge_stores
merge_stores(sys.argv[1], sys.argv[2:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_merging_takes_no_more_memory_for_more_images(tmp_path: Path) -> None:
    peaks, sizes = [], []
    for images in (120, 480):
        shards = []
        for shard in range(2):
            shards.append(tmp_path / f"{images}.{shard}.h5")
            with StoreWriter(shards[-1], PRINT) as writer:
                for place in range(shard, images, 2):
                    rng = np.random.default_rng(place)
                    features = rng.random((36, 2048), dtype=np.float32)
                    boxes = np.tile(np.array([0, 0, 10, 10], np.float32), (36, 1))
                    writer.add(RegionFeatures(f"{place:04}", 20, 20, boxes, features))
                writer.finish()
        target = tmp_path / f"{images}.h5"
        command = [sys.executable, "-c", _MERGE, str(target), *map(str, shards)]
        merged = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(merged.stdout) * (1 if sys.platform == "darwin" else 1024))
        sizes.append(target.stat().st_size)
    assert sizes[1] - sizes[0] > 100e6
    assert peaks[1] - peaks[0] < 30e6
