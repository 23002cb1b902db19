"""Run all benches: print one table, and store it in ``results/bench/``.

Run: python -m scripts.bench [--size full] [--only NAME ...] [--data DIR] [--repeats N] [--no-store]

Each bench runs in its own process; one that fails gets a row with the reason, and the others go on. With ``--only``,
the stored rows of other benches stay. ``python scripts/result_tables.py`` writes the tables of ``docs/performance.md``
from the stored rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import scripts.bench
from capbench.core.errors import count
from capbench.core.files import read_json, write_json
from scripts.bench.common import HEAD, Row, Settings, lines, record

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results" / "bench"
_PARTS = ("__main__", "common", "inputs")


def names() -> list[str]:
    """Names of the benches."""
    return [module.name for module in pkgutil.iter_modules(scripts.bench.__path__) if module.name not in _PARTS]


def rows_of(name: str, options: list[str]) -> Iterator[Row]:
    """Rows of a bench as they arrive; the last one has the reason if it failed."""
    command = [sys.executable, "-m", "scripts.bench", "--rows", "--only", name, *options]
    with tempfile.TemporaryFile("w+") as errors:
        # PYTHONWARNINGS: peers print deprecations.
        settings = os.environ | {"PYTHONWARNINGS": "ignore"}
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, env=settings) as run:
            assert run.stdout is not None
            for line in run.stdout:
                if line.startswith("{"):  # peers print, too
                    yield Row.of(json.loads(line))
        if run.returncode:
            errors.seek(0)
            messages = errors.read().strip().splitlines() or [f"exit code {run.returncode}"]
            yield Row(name, missing=messages[-1])


def store(path: Path, name: str, rows: list[Row]) -> None:
    """Replace the rows of a bench in a file."""
    stored = read_json(path) if path.exists() else {}
    benches = {**stored, name: record(rows)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, dict(sorted(benches.items())))


def measure(name: str, settings: Settings) -> None:
    """Run a bench in this process, and print its rows as JSON."""
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[threads] = "1"  # child processes inherit it
    for row in importlib.import_module(f"scripts.bench.{name}").measure(settings):
        print(json.dumps(row.entry()), flush=True)


def main() -> None:
    """Run the benches. Exits with 1 if a row has no numbers or a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--only", nargs="+", choices=names(), default=names(), metavar="NAME", help=", ".join(names()))
    parser.add_argument("--repeats", type=int, default=2, help="runs of each side; the fastest counts (default 2)")
    parser.add_argument("--data", default=os.environ.get("CAPBENCH_DATA"), help="default: CAPBENCH_DATA")
    parser.add_argument("--no-store", action="store_true", help="only print")
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rows:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            measure(chosen.only[0], Settings(chosen.size == "full", chosen.repeats, chosen.data, Path(folder)))
        return
    options = ["--size", chosen.size, "--repeats", str(chosen.repeats)]
    options += ["--data", chosen.data] if chosen.data else []
    print(HEAD)
    failed = 0
    for name in chosen.only:
        print(f"\n{name}", flush=True)
        rows = []
        for row in rows_of(name, options):
            print(lines(row), flush=True)
            rows.append(row)
        failed += sum(bool(row.missing) or not all(goal.met for goal in row.goals) for row in rows)
        if not chosen.no_store:
            store(RESULTS / f"{chosen.size}.json", name, rows)
    if failed:
        print(f"\n{count(failed, 'row')} with missing numbers or missed goals")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
