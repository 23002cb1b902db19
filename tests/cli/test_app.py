"""The command line as a whole: help, exit codes, what is imported at start-up."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from capbench import __version__
from capbench.cli.app import ENTRIES, app
from capbench.cli.commands import build, split_names
from capbench.cli.explore import EXPLORED
from tests.cli.commands import commands
from tests.conftest import Ran

MAIN = "from capbench.cli.app import main\n"


def ran(code: str, **environment: str) -> str:
    """What a Python program prints, first on stderr."""
    command, env = [sys.executable, "-c", code], os.environ | environment
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=env)
    return result.stderr + result.stdout


def modules_after(arguments: str) -> set[str]:
    """What a run has imported at its end."""
    run = "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sys.modules)"
    return set(ran(f"import sys; sys.argv = ['capbench', *{arguments.split()}]\n{MAIN}{run}").splitlines()[-1].split())


def shown(command: Any, *words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        command.main([*words], standalone_mode=False)
    return out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "of_commands"),
    [("--help", []), ("train scan --help", ["combine", "options", "train"]), ("doctor --help", ["doctor", "options"])],
)
def test_a_run_imports_its_own_command_alone_and_a_list_nothing_heavy(arguments: str, of_commands: list[str]) -> None:
    modules = modules_after(arguments)
    loaded = {name.removeprefix("capbench.cli.") for name in modules if name.startswith("capbench.cli.")}
    assert loaded - {"app", "commands", "common"} <= set(of_commands)
    heavy = {"numpy", "scipy", "pandas", "torch", "matplotlib", "rich.console", "yaml", "sqlite3"}
    assert modules & (heavy if of_commands else heavy | {"pydantic", "annotated_types"}) == set()


def test_a_table_of_correlations_imports_only_its_own_studies() -> None:
    modules = modules_after("correlate -d flickr8k-expert -m bleu-4")
    other = {"scipy.stats", "pandas", "torch", "capbench.studies.combine", "capbench.studies.power"}
    other |= {"capbench.studies.all_protocols", "capbench.core.explanations"}
    assert modules & (other | {"capbench.studies.evaluate"}) == {"capbench.studies.evaluate"}


def test_the_version_is_printed_and_the_end_says_nothing() -> None:
    packages = [name for name in ("torch", "triton._C.libtriton") if importlib.util.find_spec(name.partition(".")[0])]
    code = "".join(f"import {name}; " for name in packages)
    assert ran(f"{code}import sys; sys.argv = ['capbench', '--version']\n{MAIN}main()") == f"capbench {__version__}\n"


def test_an_interruption_names_what_is_saved(capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("capbench.api.agreement.find_root", interrupted)
    stopped = capbench("correlate", "-m", "bleu")
    assert (stopped.code, stopped.out, stopped.err.partition(":")[0]) == (130, "", "interrupted")


def test_the_command_reference_is_up_to_date() -> None:
    script = Path(__file__).parents[2] / "scripts" / "make_cli_docs.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_command_has_help_with_an_example() -> None:
    for words, command in commands(groups=True):
        assert "Example: capbench" in (command.help or ""), f"capbench {words} --help has no example"


def test_the_lists_of_commands_show_the_first_line_of_each_help_in_one_line(capbench: Callable[..., Ran]) -> None:
    known = dict(commands(groups=True))
    for group, entries in (("", ENTRIES), ("explore", EXPLORED)):
        shown = [line.strip() for line in capbench(*group.split(), "--help").out.splitlines()]
        for name, entry in entries.items():
            assert entry.help == (known[f"{group} {name}".strip()].help or "").partition("\n")[0]
            line = f"{name:{max(map(len, entries))}}  {entry.help}"
            assert line in shown
            assert len(f"  {line}") <= 80


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("capbench ex", {"explore", "extract-features"}),
        ("capbench models list --j", {"--json"}),
        ("capbench figure s", {"significance", "score-groups"}),
    ],
)
def test_a_shell_completes_commands_and_options(typed: str, completed: set[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_CAPBENCH_COMPLETE": "complete_bash"}
    assert set(ran(f"import sys; sys.argv = ['capbench']\n{MAIN}main()", **words).split()) == completed


def _flags(text: str) -> set[str]:
    """Long options at the start of lines, without those of examples."""
    lists = re.split(r"^\w+:$", text, maxsplit=1, flags=re.MULTILINE)[-1]
    return set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z0-9-]*)", lists, re.MULTILINE))


def test_help_shows_main_options_and_help_all_every_option() -> None:
    group = typer.main.get_command(app)
    for words, command in commands():
        main, everything = (shown(group, *words.split(), option) for option in ("--help", "--help-all"))
        named = {max(option.opts, key=len) for option in command.params if option.param_type_name == "option"}
        assert _flags(everything) == named, words
        assert len(_flags(main)) <= 15, words
        assert _flags(main) - {"--help"} <= named, words
        more = len(named - _flags(main))
        assert (f"--help-all' for {more} more option" in main) == (more > 0), words
        assert "<" not in main.partition("\nArguments:\n")[2].partition("\n\n")[0], words
        assert "[[" not in main.partition("\n\n")[0], words
        assert max(map(len, main.splitlines())) <= 80, words
    # Options of continuous integration are among the main ones.
    assert "--fail-under" in _flags(shown(group, "score", "--help"))
    assert "--fail-if-worse" in _flags(shown(group, "compare-systems", "--help"))
    assert shown(group, "data", "--help-all") == shown(group, "data", "--help")


def test_names_are_split_at_commas() -> None:
    assert split_names("cider, meteor,x=bleu-4") == ["cider", "meteor", "x=bleu-4"]
    assert split_names("cider,") == ["cider"]
    assert split_names(",") == [","]
    Path("a,b.csv").touch()
    for text in ("a,b.csv", "a,b.csv@group", "mine=combination:a,b.csv"):
        assert split_names(text) == [text]
    assert split_names("c,a,b.csv") == ["c", "a", "b.csv"]
    # A column of a score file may contain a comma.
    Path("scores.csv").write_text('caption,"a,b",c\nx,1,2\n')
    Path("scores.jsonl").write_text('{"caption": "x", "c,d": 1}\n')
    assert split_names("a,b", ["scores.csv"]) == ["a,b"]
    assert split_names("c,d", ["scores.csv", "mine=scores.jsonl"]) == ["c,d"]
    assert split_names("b,c", ["scores.csv"]) == ["b", "c"]


def test_a_value_of_an_option_with_a_default_may_be_omitted() -> None:
    def declared(
        names: Annotated[list[str] | None, typer.Argument()] = None,
        bootstrap: Annotated[int | None, typer.Option("--bootstrap", metavar="[N]", min=100)] = None,
        power: Annotated[float | None, typer.Option("--power", metavar="SHARE")] = None,
    ) -> None:
        print(names, bootstrap, power)

    def printed(*words: str) -> str:
        return shown(build(declared, "command"), *words).strip()

    assert printed() == "None None None"
    assert printed("--bootstrap", "200", "a") == "['a'] 200 None"
    assert printed("a", "--bootstrap", "b") == "['a', 'b'] 1000 None"
    assert printed("--bootstrap", "--power", ".5") == "None 1000 0.5"
    assert printed("--", "--bootstrap") == "['--bootstrap'] None None"
    # Without brackets in the help, the value is required, and a small number stays an error.
    for words in (("--power",), ("--bootstrap", "50")):
        with pytest.raises(typer.TyperException):
            printed(*words)
