"""The plug-in of ``examples/dual-encoder`` as an installation leaves it, and as it is where nobody installed it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from capbench.core import plugins
from tests.plugged import on_path

SOURCE = Path(__file__).parents[2] / "examples" / "dual-encoder"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installs it into, without a network."""
    folder = tmp_path_factory.mktemp("plug-in")
    shutil.copytree(SOURCE, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    command = [*install, "--disable-pip-version-check", "--target", str(folder / "target"), str(folder / "source")]
    subprocess.run(command, check=True, timeout=300)
    return folder / "target"


@pytest.fixture
def plugged(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """It is installed, for commands in this process and in others."""
    with on_path(installed, monkeypatch):
        monkeypatch.setenv("PYTHONPATH", str(installed))
        yield installed


@pytest.fixture
def unplugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It is not installed, whatever this environment has."""
    known = [point for group in plugins._KINDS for point in importlib.metadata.entry_points(group=group)]
    others = [point for point in known if not point.value.startswith("capbench_dual_encoder")]
    with on_path(tmp_path, monkeypatch), monkeypatch.context() as patch:
        patch.setattr(plugins, "_all_listed", cache(lambda: importlib.metadata.EntryPoints(others)))
        yield
