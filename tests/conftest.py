"""Fixtures for all tests: where real data lies, and walls between tests and the user's own settings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

_SETTINGS = ("CAPBENCH_DATA", "CAPBENCH_CACHE", "CAPBENCH_PARITY", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
_GIVEN = {name: os.environ.get(name) for name in _SETTINGS}


@pytest.fixture(autouse=True)
def _own_settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's data, cache or terminal: tests that want real data ask for ``real_data``."""
    for name in _SETTINGS:
        monkeypatch.delenv(name, raising=False)
    # A cache of its own for every test: what is cached must not decide a test.
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("CAPBENCH_CACHE", str(cache))
    # METEOR's paraphrase table takes some 20 s to make: one for all tests, processes and runs.
    shared = (
        Path(tempfile.gettempdir()) / f"capbench-tests-{os.getuid() if hasattr(os, 'getuid') else 'user'}" / "meteor"
    )
    shared.mkdir(parents=True, exist_ok=True)
    (cache / "meteor").symlink_to(shared)
    monkeypatch.setenv("COLUMNS", "160")


def _folder(name: str) -> Path:
    given = _GIVEN[name]
    if not given:
        pytest.skip(f"{name} is not set")
    path = Path(given).resolve()
    if not path.is_dir():
        pytest.fail(f"{name}={given} is no folder")
    return path


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the published judgements (``CAPBENCH_DATA`` as it was set for the test run)."""
    return _folder("CAPBENCH_DATA")


@pytest.fixture(scope="session")
def parity() -> Path:
    """The folder of the original implementations' numbers (``CAPBENCH_PARITY``)."""
    return _folder("CAPBENCH_PARITY")


@pytest.fixture(scope="session")
def sample() -> Path:
    """The embedded sample."""
    from capbench.datasets.root import sample_dir

    return sample_dir()


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def capbench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs the command line in this process: ``capbench("score", "--metric", "cider")``."""

    def call(*arguments: str | Path) -> Ran:
        from capbench.cli.app import main

        monkeypatch.setattr(sys, "argv", ["capbench", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call
