"""Packages that register something with capbench, as an installation leaves them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capbench.core import plugins


def install(folder: Path, package: str, entry_points: str, modules: dict[str, str]) -> None:
    """Write a package's modules and its list of entry points into a folder."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


@contextmanager
def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages of a folder are seen within the block."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        plugins.registered.cache_clear()
        plugins._all_listed.cache_clear()
        try:
            yield
        finally:
            plugins.registered.cache_clear()
            plugins._all_listed.cache_clear()
