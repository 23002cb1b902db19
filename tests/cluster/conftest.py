from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

# Before 2.57 Ray drops the processes and log files that it began without closing them, of which Python warns.
_WARNED_OF = "ignore:(?s).*(is still running|unclosed file):pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        major, minor = (int(part) for part in version("ray").split(".")[:2])
    except PackageNotFoundError:
        return
    if (major, minor) < (2, 57):
        for item in items:
            if item.get_closest_marker("cluster"):
                item.add_marker(pytest.mark.filterwarnings(_WARNED_OF))
