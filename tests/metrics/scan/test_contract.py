"""Metrics over networks keep the contract, on images of a store of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import capbench
from tests.metrics.faier.models import make_files as make_faier
from tests.metrics.scan.models import make_files as make_scan


@pytest.mark.parametrize("name", ["tiger", "reo", "faier"])
def test_a_network_keeps_the_contract(name: str, tmp_path: Path) -> None:
    files: Any
    if name == "faier":
        files = make_faier(tmp_path, variant="faier-object")
    else:
        files = make_scan(tmp_path, ["street", "harbour", "meadow"])
    checks = capbench.check_metric(
        name,
        features=files.features,
        model=files.model,
        options={"covariance": "identity"} if name == "reo" else None,
    )
    assert [check for check in checks if check.state == "failed"] == []
