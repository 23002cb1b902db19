"""The way of a study from its flags to its tables stays short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDY = """\
schema: 1
name: short
protocols: [flickr8k-expert, pascal-50s/json-5-refs/direct-strict]
metrics: [bleu-1, cider]
published: tiger-table2
bootstrap: 100
compare: {resamples: 100}
"""


def test_a_study_passes_25_files_and_4_records_from_flags_to_tables(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text(STUDY, encoding="utf-8")
    command = [sys.executable, "-m", "scripts.trace_score", "--study", str(tmp_path / "short.yaml")]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    files, records = (line.partition(": ") for line in lines[-2:])
    assert int(files[0].split()[0]) <= 25, files[2]
    assert int(records[0].split()[0]) <= 4, records[2]
    assert {"cli/correlate.py", "reports/terminal.py"} <= set(files[2].split(", "))
