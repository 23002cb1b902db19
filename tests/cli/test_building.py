"""Commands are built when somebody asks for their options."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from capbench.cli.app import app
from capbench.cli.common import build_late


def _built(group: Any) -> set[str]:
    """Names of the commands below a group whose options were read."""
    names: set[str] = set()
    for name, command in group.commands.items():  # those that were imported
        if hasattr(command, "commands"):
            names |= _built(command)
        elif "_built" in vars(command):
            names.add(name)
    return names


def _shown(group: Any, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    group.main([*words, "--help"], standalone_mode=False)
    return capsys.readouterr().out


def test_a_list_of_commands_builds_none(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.main.get_command(app)
    assert "Test whether metrics differ" in _shown(group, [], capsys)
    assert _built(group) == set()


def test_a_run_builds_its_command_alone(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.main.get_command(app)
    assert "--json" in _shown(group, ["features", "info"], capsys)
    assert _built(group) == {"info"}


def test_what_a_command_declares_is_what_it_gets() -> None:
    made = typer.Typer()

    @made.command()
    def first_of(word: Annotated[str, typer.Argument()], times: Annotated[int, typer.Option(min=1)] = 2) -> None:
        """Repeat a word.

        And say no more.
        """
        print(word * times)

    @made.command("other", hidden=True)
    def second() -> None:
        """Not listed."""
        print("second")

    build_late(made)
    run = CliRunner().invoke
    listed = run(made, ["--help"]).output
    assert "first-of" in listed
    assert "Repeat a word." in listed
    assert "other" not in listed
    assert run(made, ["first-of", "ab"]).output == "abab\n"
    assert run(made, ["first-of", "ab", "--times", "3"]).output == "ababab\n"
    assert run(made, ["first-of", "ab", "--times", "0"]).exit_code == 2
    assert run(made, ["first-of"]).exit_code == 2
    assert run(made, ["other"]).output == "second\n"


@pytest.mark.parametrize("module", ["", "import torch, torch._dynamo; "])
def test_the_end_of_a_run_says_nothing(module: str) -> None:
    if module:
        pytest.importorskip("torch")
    code = f"{module}import sys; sys.argv = ['capbench', '--version']; from capbench.cli.app import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert ran.stderr == ""
