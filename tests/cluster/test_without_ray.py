"""What works where Ray is not installed, and what is said there."""

from __future__ import annotations

import subprocess
import sys

import pytest

# None in sys.modules makes every import of the name fail.
PROGRAM = """
import sys
sys.modules["ray"] = None
sys.argv[1:] = {arguments}
from capbench.cli.app import main
main()
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [("score", "-m", "rouge-l"), ("data", "parses", "make", "--help")])
def test_commands_need_no_ray(command: tuple[str, ...]) -> None:
    ran = run(*command)
    assert ran.returncode == 0, ran.stderr


def test_asking_for_it_says_how_to_install_it() -> None:
    ran = run("score", "-m", "rouge-l", "--on", "ray")
    assert ran.returncode == 2
    (line,) = (line for line in ran.stderr.splitlines() if line.startswith("error: "))
    assert "--on ray requires ray, which is not installed" in line
    assert "pip install 'ray>=" in line
