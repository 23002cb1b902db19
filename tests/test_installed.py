"""The wheel works outside the checkout: the core alone on every installed Python, and once with all extras."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capbench import __version__
from scripts.check_dist import check, published_checksums, tracked_files
from tests.conftest import Ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, as 'make dist' does."""
    pytest.importorskip("build")
    if not (ROOT / ".git").exists():
        pytest.skip("requires a checkout")
    dist = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)], check=True, capture_output=True)
    assert check(dist, tracked_files(), published_checksums()) == []
    (built,) = dist.glob("*.whl")
    return built


def _python(version: str) -> str:
    """The interpreter of a version. Skips the test if it is not installed."""
    python = shutil.which(f"python{version}")
    # A version manager's launcher exists for versions that are not active, too.
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip(f"Python {version} is not installed")
    return python


Run = Callable[..., subprocess.CompletedProcess[str]]


def _install(python: str, wheel: str, folder: Path) -> Run:
    """Install a wheel into an empty environment; a function that runs its command outside the checkout."""
    venv, work = folder / "venv", folder / "work"
    subprocess.run([python, "-m", "venv", str(venv)], check=True, capture_output=True)
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input", wheel]
    installed = subprocess.run(command, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    work.mkdir()
    # Not this process's cache: the numbers below are computed twice.
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    settings["CAPBENCH_CACHE"] = str(folder / "installed-cache")

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(venv / "bin" / "capbench"), *words]
        ran = subprocess.run(command, cwd=work, env=settings, capture_output=True, text=True)
        assert ran.returncode == code, ran.stderr
        assert "Traceback" not in ran.stderr
        return ran

    return run


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_installed_core_works_outside_the_checkout(
    version: str, wheel: Path, tmp_path: Path, capbench: Callable[..., Ran]
) -> None:
    run = _install(_python(version), str(wheel), tmp_path)
    assert run("--version").stdout == f"capbench {__version__}\n"

    results = json.loads(run("correlate", "--json").stdout)
    here = json.loads(capbench("correlate", "--json").out)
    found, expected = (_values(each["cells"], "protocol", "label", "column", "group") for each in (results, here))
    assert len(found) > 50
    assert found == pytest.approx({key: expected[key] for key in found}, abs=1e-9)

    (error,) = run("score", "--metric", "tiger", code=2).stderr.splitlines()
    assert "'networks'" in error


def test_the_installation_with_all_extras_extracts_features_and_scores_tiger(
    wheel: Path, tmp_path: Path, capbench: Callable[..., Ran]
) -> None:
    run = _install(sys.executable, f"{wheel}[all]", tmp_path)
    run("extract-features", "--out", "sample.h5")
    scored = ("score", "--metric", "tiger", "--model", "tiger=sample", "--json")
    store = tmp_path / "work" / "sample.h5"
    rows = [
        json.loads(text)["scores"]
        for text in (run(*scored, "--features", str(store)).stdout, capbench(*scored, "--features", store).out)
    ]
    found, expected = (_values(each, "column", key="corpus") for each in rows)
    assert {("tiger",), ("rrs",), ("wds",)} <= found.keys()
    # Another build of PyTorch may round differently.
    assert found == pytest.approx(expected, abs=1e-5)


def _values(rows: list[dict[str, Any]], *names: str, key: str = "value") -> dict[tuple[str, ...], float]:
    """One number of each row, by the columns that identify the row."""
    return {tuple(row[name] for name in names): row[key] for row in rows}
