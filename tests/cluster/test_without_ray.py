"""Commands where Ray is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

# None in sys.modules makes every import of the name fail.
PROGRAM = "import sys; sys.modules['ray'] = None; from capbench.cli.app import main; main()"


@pytest.mark.parametrize(("more", "code"), [((), 0), (("--on", "ray"), 2)])
def test_only_workers_need_ray(more: tuple[str, ...], code: int) -> None:
    command = [sys.executable, "-c", PROGRAM, "score", "-m", "rouge-l", *more]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert ("--on ray requires ray, which is not installed" in ran.stderr) == bool(more)
