"""Proof that the tests notice wrong numbers: plant each fault of tests/faults.yaml in a copy of the checkout, and test.

python scripts/faults.py                        # all of them, a few seconds each
python scripts/faults.py --only 'cider|kendall' # those whose sentence, file or tests contain the pattern

An entry is a sentence, which lasts, and a change of the code of its day: 'from' and 'to' in a file, and the tests that
catch it. An entry whose 'from' is not in its file exactly once is listed as 'to restate': write the same fault for the
code of today. Exit code 1 if a fault is missed (but for those with 'caught: no'), or is to be restated.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "faults.yaml"


def read_faults() -> list[dict[str, Any]]:
    """All entries, each with its area."""
    areas = yaml.safe_load(FAULTS.read_text(encoding="utf-8"))
    return [{"area": area, **entry} for area, entries in areas.items() for entry in entries]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="regular expression")
    pattern = re.compile(parser.parse_args(arguments).only, re.IGNORECASE)
    chosen = [each for each in read_faults() if pattern.search(f"{each['fault']} {each['file']} {each['tests']}")]
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="capbench-faults-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "capbench"
        _copy(copy)
        if _pytest(copy, sorted({test for each in chosen for test in each["tests"]})) != "missed":
            raise SystemExit("these tests fail without any fault")
        for number, each in enumerate(chosen, 1):
            found = _try(each, copy)
            known = " (known)" if found == "missed" and each.get("caught") is False else ""
            tally[found + known] += 1
            print(f"{number:2} of {len(chosen)}  {found + known:14}  {each['area']}: {each['fault']}", flush=True)
    print(", ".join(f"{count} {found}" for found, count in tally.most_common()))
    return 0 if set(tally) <= {"caught", "missed (known)"} else 1


def _copy(copy: Path) -> None:
    """The files of the checkout as they are now."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def _try(fault: dict[str, Any], copy: Path) -> str:
    """``caught``, ``missed``, ``to restate``, or ``failed`` if the tests did not run."""
    original, planted = ROOT / fault["file"], copy / fault["file"]
    text = original.read_text(encoding="utf-8") if original.is_file() else ""
    if text.count(fault["from"]) != 1:
        return "to restate"
    planted.write_text(text.replace(fault["from"], fault["to"]), encoding="utf-8")
    try:
        return _pytest(copy, fault["tests"])
    finally:
        shutil.copy2(original, planted)


def _pytest(copy: Path, tests: list[str]) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow"]
    settings = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*command, *tests], cwd=copy, env=settings, capture_output=True, text=True)
    if ran.returncode > 1:
        print(ran.stdout[-2000:], ran.stderr[-2000:], file=sys.stderr)
    return {0: "missed", 1: "caught"}.get(ran.returncode, "failed")


if __name__ == "__main__":
    sys.exit(main())
