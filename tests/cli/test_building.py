"""Commands are built when somebody asks for their options."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from capbench.cli.app import app
from capbench.cli.common import build_late, split_names
from tests.conftest import Ran


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


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


def _flags(text: str) -> set[str]:
    """Long options at the start of lines, without those of examples."""
    lists = re.split(r"^\w+:$", text, maxsplit=1, flags=re.MULTILINE)[-1]
    return set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z0-9-]*)", lists, re.MULTILINE))


def test_help_shows_main_options_and_help_all_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.main.get_command(app)
    commands = list(_commands(group))
    assert len(commands) >= 30
    for words, command in commands:
        group.main([*words, "--help"], standalone_mode=False)
        main = capsys.readouterr().out
        group.main([*words, "--help-all"], standalone_mode=False)
        everything = capsys.readouterr().out
        named = {
            max(option.opts, key=len)
            for option in command.params
            if option.param_type_name == "option" and not option.hidden
        }
        assert _flags(everything) == named, words
        assert len(_flags(main)) <= 15, words
        assert _flags(main) - {"--help"} <= named, words
        more = len(named - _flags(main))
        assert (f"--help-all' for {more} more option" in main) == (more > 0), words
        assert "--help-all'" not in everything, words


@pytest.mark.parametrize(("command", "gate"), [("score", "--fail-under"), ("compare-systems", "--fail-if-worse")])
def test_help_shows_the_options_of_continuous_integration(
    command: str, gate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    typer.main.get_command(app).main([command, "--help"], standalone_mode=False)
    assert gate in _flags(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["data", "explore", "features", "train", "models"])
def test_help_all_of_a_group_is_its_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    shown = []
    for option in ("--help", "--help-all"):
        typer.main.get_command(app).main([name, option], standalone_mode=False)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert f"capbench {name}" in shown[0]


def test_arguments_are_shown_without_types_and_double_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    group = typer.main.get_command(app)
    for words, _ in _commands(group):
        group.main([*words, "--help"], standalone_mode=False)
        text = capsys.readouterr().out
        arguments = text.partition("\nArguments:\n")[2].partition("\n\n")[0]
        assert "<" not in arguments, words
        assert "[[" not in text.partition("\n\n")[0], words
        assert max(map(len, text.splitlines())) <= 80, words


def test_options_of_help_all_have_headings(capsys: pytest.CaptureFixture[str]) -> None:
    typer.main.get_command(app).main(["score", "--help-all"], standalone_mode=False)
    sections = re.split(r"^(\w+):$", capsys.readouterr().out, flags=re.MULTILINE)
    under = dict(zip(sections[1::2], map(_flags, sections[2::2]), strict=True))
    assert under["Data"] >= {"--dataset", "--protocol", "--candidates", "--references", "--draw"}
    assert under["Metrics"] >= {"--metric", "--option", "--scores"}
    assert under["Statistics"] >= {"--bootstrap", "--seed"}
    assert under["Output"] >= {"--out", "--json", "--escape-formulas"}
    assert under["Computing"] == {"--on", "--gpus-per-worker", "--worker-memory", "--workers", "--threads"}


def test_names_are_split_at_commas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_names("cider") == ["cider"]
    assert split_names("cider, meteor,x=bleu-4") == ["cider", "meteor", "x=bleu-4"]
    assert split_names("cider,") == ["cider"]
    assert split_names(",") == [","]
    monkeypatch.chdir(tmp_path)
    Path("a,b.csv").touch()
    for whole in ("a,b.csv", "a,b.csv@group", "mine=combination:a,b.csv"):
        assert split_names(whole) == [whole]
    assert split_names("c,a,b.csv") == ["c", "a", "b.csv"]
    # A column of a score file may contain a comma.
    Path("scores.csv").write_text('caption,"a,b",c\nx,1,2\n')
    Path("scores.jsonl").write_text('{"caption": "x", "c,d": 1}\n')
    assert split_names("a,b", ["scores.csv"]) == ["a,b"]
    assert split_names("c,d", ["scores.csv", "mine=scores.jsonl"]) == ["c,d"]
    assert split_names("b,c", ["scores.csv"]) == ["b", "c"]


@pytest.mark.parametrize("listed", [("-m", "cider,meteor"), ("-m", "cider", "-m", "meteor")])
def test_commas_and_repeated_options_mean_the_same(listed: tuple[str, ...], capbench: Callable[..., Ran]) -> None:
    ran = capbench("correlate", "-d", "flickr8k-expert,composite", *listed, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert list(dict.fromkeys(cell["title"] for cell in found["cells"])) == ["CIDEr", "METEOR"]
    assert {cell["protocol"].partition("/")[0] for cell in found["cells"]} == {"flickr8k-expert", "composite"}


def test_a_value_of_an_option_with_a_default_may_be_omitted() -> None:
    made = typer.Typer()

    @made.command()
    def command(
        names: Annotated[list[str] | None, typer.Argument()] = None,
        bootstrap: Annotated[int | None, typer.Option("--bootstrap", metavar="[N]", min=100)] = None,
        power: Annotated[float | None, typer.Option("--power", metavar="SHARE")] = None,
    ) -> None:
        print(names, bootstrap, power)

    @made.command()
    def other() -> None:
        """So that the commands have names."""

    build_late(made)

    def printed(*words: str) -> str:
        return CliRunner().invoke(made, ["command", *words]).output.strip()

    assert printed() == "None None None"
    assert printed("--bootstrap") == "None 1000 None"
    assert printed("--bootstrap", "200", "a") == "['a'] 200 None"
    assert printed("a", "--bootstrap", "b") == "['a', 'b'] 1000 None"
    assert printed("--bootstrap", "--power", ".5") == "None 1000 0.5"
    assert printed("--", "--bootstrap") == "['--bootstrap'] None None"
    # Without brackets in the help, the value is required, and a small number stays an error.
    assert CliRunner().invoke(made, ["command", "--power"]).exit_code == 2
    assert CliRunner().invoke(made, ["command", "--bootstrap", "50"]).exit_code == 2
