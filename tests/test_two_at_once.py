"""Two runs of one command on the same files: both end well, or the second says in one line why not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from capbench.features.maintenance import verify_store
from capbench.features.store import open_store
from tests.features.fakes import pictures


def _both(arguments: Sequence[str], folder: Path) -> list[tuple[int, str, str]]:
    """Run a command twice at once; gives exit codes, outputs and errors."""
    runs = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
        for _ in range(2)
    ]
    ended = []
    for run in runs:
        out, err = run.communicate(timeout=600)
        ended.append((run.returncode, out, err))
    return ended


def test_two_scorings_share_a_cache_and_two_studies_a_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "capbench", "correlate", "-d", "flickr8k-expert", "-m", "bleu-4", "--out", "out"]
    ended = _both(command, tmp_path)
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert all("damaged" not in err and "cannot be used" not in err for _, _, err in ended)
    assert json.loads((tmp_path / "out" / "results.json").read_text())
    left = {path.name for path in (tmp_path / "out").iterdir() if not path.name.endswith(".lock")}
    assert left == {"results.json", "results.csv", "results.md", "results.tex"}
    again = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "came from the cache" in again.stderr + again.stdout


def test_two_extractions_into_one_store_lose_nothing(tmp_path: Path) -> None:
    pictures(tmp_path / "pictures", 30)
    store = tmp_path / "a.h5"
    command = [sys.executable, "-m", "tests.features.extraction_run", str(tmp_path / "pictures"), str(store), "1", "0"]
    ended = _both(command, Path(__file__).parents[1])
    assert 0 in [code for code, _, _ in ended]
    for code, _, err in ended:
        assert code == 0 or "another run is writing this store" in err
    with open_store(store) as opened:
        assert len(opened) == 30
        assert verify_store(opened).bad == 0
    assert not store.with_name("a.h5.partial").exists()
