from __future__ import annotations

import sys
from pathlib import Path

from capbench.features.extract import extract
from capbench.features.images import images_in
from tests.features.fakes import FakeDetector

if __name__ == "__main__":
    folder, store, batch, workers = sys.argv[1:]
    print("ready", flush=True)
    extract(images_in(Path(folder)), FakeDetector(int(batch), pause_s=0.004), store, workers=int(workers))
    print("done", flush=True)
