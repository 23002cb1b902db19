"""Fixtures for all tests: where real data lies, and walls between tests and the user's own settings."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

from capbench.core.errors import CapbenchError, is_installed
from capbench.core.files import lock
from tests.http_server import server as server

# Property tests see the same examples in every run: a failure is that of a change. 'make test-all' draws new ones.
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")

_SETTINGS = (
    "CAPBENCH_DATA",
    "CAPBENCH_CACHE",
    "CAPBENCH_HOME",
    "CAPBENCH_PARITY",
    "COLUMNS",
    "NO_COLOR",
    "FORCE_COLOR",
)
_GIVEN = {name: os.environ.get(name) for name in _SETTINGS}
# Packages of extras that are not installed. Tests that need one are skipped.
_IMPORT_NAMES = {"pot": "ot"}
_ABSENT = {
    name
    for line in importlib.metadata.requires("capbench") or []
    if "extra ==" in line
    for name in [re.split(r"[^A-Za-z0-9._-]", line)[0]]
    if not is_installed(_IMPORT_NAMES.get(name.lower(), name).replace("-", "_").lower())
}
_ABSENT_MODULES = {_IMPORT_NAMES.get(name.lower(), name).replace("-", "_").lower() for name in _ABSENT}
# Folders whose tests must pass without PyTorch: a test there that needs it fails.
_WITHOUT_NETWORKS = ("datasets", "reports", "stats", "studies", "text")
# ... except for features that only networks have: explanations, layers, words of regions.
_OF_NETWORKS = ("reports/explain/", "studies/test_layers.py", "studies/test_region_words.py")


def _skip_without(package: object, path: Path) -> None:
    """Skip a test that needs a package that is not installed, unless its folder must work without PyTorch."""
    place = path.relative_to(Path(__file__).parent)
    bound = place.parts[0] in _WITHOUT_NETWORKS and not place.as_posix().startswith(_OF_NETWORKS)
    if package in _ABSENT_MODULES and not (bound and package in ("torch", "torchvision")):
        pytest.skip(f"{package} is not installed", allow_module_level=True)


def _skip_after(error: BaseException, path: Path) -> None:
    cause: BaseException | None = error
    while cause is not None:  # monkeypatch.setattr("torch.name", ...) raises its own error from that of the import
        if isinstance(cause, ModuleNotFoundError):
            _skip_without((cause.name or "").partition(".")[0], path)
        elif isinstance(cause, CapbenchError) and cause.code == "missing-package":
            _skip_without(cause.value, path)
            for package in sorted(_ABSENT_MODULES):
                if f"{package}, which is not installed" in cause.message:
                    _skip_without(package, path)
        cause = cause.__cause__


class _ModuleOfExtras(pytest.Module):
    """A file of tests that is skipped if it imports, directly or indirectly, a package that is not installed."""

    def _getobj(self) -> object:
        try:
            return super()._getobj()  # type: ignore[no-untyped-call]
        except self.CollectError as error:
            if error.__cause__ is not None:
                _skip_after(error.__cause__, self.path)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Where a package is missing, a file that needs it is skipped and not an error."""
    return _ModuleOfExtras.from_parent(parent, path=module_path) if _ABSENT else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """A fixture that needs a package skips its tests where that is missing."""
    yield from _skipping(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A test that needs a package is skipped where that is missing."""
    yield from _skipping(item)


def _skipping(item: pytest.Item) -> Generator[None, None, None]:
    try:
        yield
    except (ImportError, CapbenchError) as error:
        if _ABSENT:
            _skip_after(error, item.path)
        raise


def pytest_collection_finish() -> None:
    """Collections of garbage need not look through the modules and tests, which stay."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def _own_settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the user's data, cache or terminal: tests that want real data ask for ``real_data``."""
    for name in _SETTINGS:
        monkeypatch.delenv(name, raising=False)
    # A cache of its own for every test: what is cached must not decide a test.
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("CAPBENCH_CACHE", str(cache))
    # Judgements that the user imported would stand beside the sample's.
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path / "home"))
    share_paraphrases(cache)
    monkeypatch.setenv("COLUMNS", "160")


def share_paraphrases(cache: Path) -> None:
    """METEOR's paraphrase table takes some 20 s to make: one for all tests, processes and runs."""
    shared = (
        Path(tempfile.gettempdir()) / f"capbench-tests-{os.getuid() if hasattr(os, 'getuid') else 'user'}" / "meteor"
    )
    shared.mkdir(parents=True, exist_ok=True)
    (cache / "meteor").symlink_to(shared)


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


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The features of the sample's images, which all processes of a run share: the extraction takes seconds."""
    from capbench import extract_features

    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    store = folder / "features" / "sample.h5"
    with lock(folder / "sample"):
        if not store.is_file():
            extract_features(data="sample", out=store)
    return store


@dataclass(frozen=True)
class Ran:
    """The result of a command: its exit code, its output, and the error that it reported."""

    code: int
    out: str
    err: str
    error: CapbenchError | None = None

    @property
    def failure(self) -> CapbenchError:
        """The error that the command reported; there must be one."""
        assert self.error is not None, f"exit code {self.code}, but no error: {self.err}"
        return self.error


@pytest.fixture
def capbench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[..., Ran]:
    """Runs the command line in this process: ``capbench("score", "--metric", "cider")``."""

    from capbench.cli import app

    reported: list[CapbenchError] = []
    print_and_exit = app.report_error

    def report_error(error: CapbenchError) -> NoReturn:
        reported.append(error)
        print_and_exit(error)

    monkeypatch.setattr(app, "report_error", report_error)

    def call(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["capbench", *map(str, arguments)])
        capsys.readouterr()
        reported.clear()
        code = 0
        try:
            app.main()
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        captured = capsys.readouterr()
        if _ABSENT and reported:
            _skip_after(reported[-1], request.path)
        return Ran(code, captured.out, captured.err, reported[-1] if reported else None)

    return call
