"""The command line as a whole: help, exit codes, what is imported at start-up."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest
import typer

from capbench.cli.app import ENTRIES, app
from capbench.cli.commands import build, split_names
from capbench.cli.explore import EXPLORED
from tests.cli.commands import commands
from tests.conftest import Ran

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"


GROUP = typer.main.get_command(app)
RUN = "from capbench.cli.app import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"


def modules_after(arguments: str) -> tuple[set[str], str]:
    """What a run has imported at its end, and its output."""
    code = f"import sys; sys.argv = ['capbench', *{arguments.split()}]\n{RUN}print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    *lines, modules = ran.stdout.splitlines()
    return set(modules.split()), "\n".join(lines)


def shown(*words: str) -> str:
    """The output of a help page."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        GROUP.main([*words], standalone_mode=False)
    return out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "of_commands"),
    [("--help", []), ("train scan --help", ["combine", "options", "train"]), ("doctor --help", ["doctor", "options"])],
)
def test_a_run_imports_its_own_command_alone_and_a_list_nothing_heavy(arguments: str, of_commands: list[str]) -> None:
    modules, _ = modules_after(arguments)
    loaded = {name.removeprefix("capbench.cli.") for name in modules if name.startswith("capbench.cli.")}
    assert loaded - {"app", "commands", "common"} <= set(of_commands)
    heavy = {"numpy", "scipy", "pandas", "torch", "matplotlib", "rich.console", "yaml", "sqlite3"}
    assert modules & (heavy if of_commands else heavy | {"pydantic", "annotated_types"}) == set()


def test_a_table_of_correlations_imports_only_its_own_studies() -> None:
    modules, _ = modules_after("correlate -d flickr8k-expert -m bleu-4")
    other = {"scipy.stats", "pandas", "torch", "capbench.studies.combine", "capbench.studies.power"}
    other |= {"capbench.studies.all_protocols", "capbench.core.explanations"}
    assert modules & (other | {"capbench.studies.evaluate"}) == {"capbench.studies.evaluate"}


def test_the_version_is_printed_and_the_end_says_nothing() -> None:
    from capbench.core.version import version_text

    code = "import torch, torch._dynamo; " if importlib.util.find_spec("torch") else ""
    code += "import sys; sys.argv = ['capbench', '--version']; from capbench.cli.app import main; main()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert (ran.stdout, ran.stderr) == (f"capbench {version_text()}\n", "")


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ({}, "interrupted: nothing new was saved; finished files are unchanged\n"),
        (
            {"scores": 3328, "scene-graphs": 1, "ptb": 7},
            "interrupted; saved in the cache: 3,328 scores and 1 parse; run the same command again to resume\n",
        ),
    ],
)
def test_an_interruption_names_what_is_saved(
    capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, written: dict[str, int], line: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("capbench.api.agreement.find_root", interrupted)
    monkeypatch.setattr("capbench.core.cache.written", Counter(written))
    ran = capbench("correlate", "-m", "bleu")
    assert (ran.code, ran.out, ran.err) == (130, "", line)


def test_a_data_folder_that_is_missing_is_not_replaced_by_the_sample(
    capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPBENCH_DATA", "/nonexistent")
    ran = capbench("correlate")
    assert ran.code == 2
    assert "CAPBENCH_DATA" in ran.err


def test_the_command_reference_is_up_to_date() -> None:
    script = [sys.executable, str(SCRIPTS / "make_cli_docs.py"), "--check"]
    result = subprocess.run(script, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_every_command_has_help_with_an_example() -> None:
    for words, command in commands(groups=True):
        assert "Example: capbench" in (command.help or ""), f"capbench {words} --help has no example"


TOP_LEVEL, COMMANDS = 17, 41


def test_the_command_line_stays_small() -> None:
    listed = [words for words, _ in commands(groups=True)]
    assert 0 < len({words.split()[0] for words in listed}) <= TOP_LEVEL
    assert 0 < len(list(commands())) <= COMMANDS


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
    code = "import sys; sys.argv = ['capbench']; from capbench.cli.app import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **words}
    )
    assert set(result.stdout.split()) == completed


@pytest.mark.parametrize(
    ("arguments", "code", "value"),
    [
        (("score", "--metric", "cidr"), "unknown-name", "cidr"),
        (("correlate", "--data", "/nonexistent"), "missing-file", None),
        (("nothing",), "unknown-name", "nothing"),
        (("explore", "nothing"), "unknown-name", "nothing"),
        (("data", "nothing"), "unknown-name", None),
        (("score", "--nothing"), "unknown-option", "--nothing"),
        (("--nothing",), "unknown-option", "--nothing"),
        (("features", "info"), "missing-option", "stores"),
        (("data", "import", "x.csv"), "missing-option", "name"),
        (("score", "--metric"), "missing-value", "--metric"),
        (("figure", "nothing"), "wrong-value", "kind"),
        (("doctor", "more"), "invalid", None),
        (("figure", "forest", "cider", "--group", "MM"), "unsupported", "--group"),
        (("figure", "ratings", "cider", "--seed", "1"), "unsupported", "--seed"),
        (("figure", "curves"), "missing-option", "inputs"),
        (("figure", "curves", "a.json", "b.json"), "too-many", "inputs"),
        (("figure", "report"), "missing-option", "inputs"),
        (("figure", "report", "x", "--size", "6x4"), "unsupported", "--size"),
        (("data", "parses", "export"), "missing-option", "file"),
        (("score", "-m", "rouge-l", "--seed", "200"), "missing-option", "--seed"),
        (("score", "-m", "bleu-1", "--keep-first"), "conflict", "flickr8k-expert"),
        (("score", "-m", "bertscore", "--model", "sample"), "missing-weights", "sample"),
        (("score", "-m", "bleu-1", "--columns", "image=file", "--candidates", "x"), "missing-option", "--columns"),
        (("metrics", "--check", "tiger"), "missing-features", "tiger"),
        (("features", "export", "x.h5", "x.npz", "--format", "csv"), "missing-file", None),
        (("data", "import", "x.csv", "--name", "x"), "missing-file", None),
        (("data", "info", "--protocols", "--verify"), "unsupported", "--verify"),
        (("metrics", "bleu", "--model", "m.pt"), "unsupported", "--model"),
        (("metrics", "--check"), "missing-option", "metric"),
        (("doctor", "--from", "x"), "unsupported", "--from"),
        (("doctor", "--install", "spice", "--no-java"), "unsupported", "--no-java"),
        (("extract-features", "--measure", "2"), "unsupported", "--measure"),
        (("extract-features", "--dry-run", "--out", "x.h5"), "unsupported", "--out"),
        (("extract-features", "--dry-run", "--workers", "0"), "out-of-range", 0),
        (("extract-features", "--workers", "1", "--workers", "2"), "duplicate", "--workers"),
        (("train", "scan", "--seed", "1"), "missing-option", "config"),
    ],
)
def test_invalid_arguments_are_one_line(
    capbench: Callable[..., Ran], arguments: tuple[str, ...], code: str, value: object
) -> None:
    ran = capbench(*arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("error: ")
    assert (ran.failure.code, ran.failure.value) == (code, value)


@pytest.mark.parametrize(
    ("arguments", "choices"),
    [
        (("train", "combination", "-m", "cider", "--learner", "x"), "'auto', 'ridge', 'logistic', 'monotone'"),
        (("compare", "--test", "x"), "'permutation', 'bootstrap', 'williams', 'steiger', 'mcnemar'"),
        (("compare-systems", "a", "b", "--references", "c", "--correction", "x"), "'holm', 'bh', 'none'"),
        (("figure", "forest", "cider", "meteor", "--unit", "x"), "'image', 'item', 'rating'"),
        (("explore", "retrieve", "--gallery", "x"), "'rest', 'one'"),
    ],
)
def test_an_unknown_choice_is_named_with_all_choices(
    capbench: Callable[..., Ran], arguments: tuple[str, ...], choices: str
) -> None:
    ran = capbench(*arguments)
    assert ran.code == 2
    assert f"'{arguments[-2]}'" in ran.err
    assert f"'x' is not one of {choices}" in ran.err


def _flags(text: str) -> set[str]:
    """Long options at the start of lines, without those of examples."""
    lists = re.split(r"^\w+:$", text, maxsplit=1, flags=re.MULTILINE)[-1]
    return set(re.findall(r"^  (?:-\w, )?(--[a-z][a-z0-9-]*)", lists, re.MULTILINE))


def test_help_shows_main_options_and_help_all_every_option() -> None:
    for words, command in commands():
        main, everything = (shown(*words.split(), option) for option in ("--help", "--help-all"))
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
    assert "--fail-under" in _flags(shown("score", "--help"))
    assert "--fail-if-worse" in _flags(shown("compare-systems", "--help"))
    assert shown("data", "--help-all") == shown("data", "--help")


def test_options_of_help_all_have_headings() -> None:
    sections = re.split(r"^(\w+):$", shown("score", "--help-all"), flags=re.MULTILINE)
    under = dict(zip(sections[1::2], map(_flags, sections[2::2]), strict=True))
    assert under["Data"] >= {"--dataset", "--protocol", "--candidates", "--references", "--draw"}
    assert under["Statistics"] >= {"--bootstrap", "--seed"}
    assert under["Computing"] == {"--on", "--gpus-per-worker", "--worker-memory", "--workers", "--threads"}


def test_names_are_split_at_commas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    def declared(
        names: Annotated[list[str] | None, typer.Argument()] = None,
        bootstrap: Annotated[int | None, typer.Option("--bootstrap", metavar="[N]", min=100)] = None,
        power: Annotated[float | None, typer.Option("--power", metavar="SHARE")] = None,
    ) -> None:
        print(names, bootstrap, power)

    def printed(*words: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            build(declared, "command").main([*words], standalone_mode=False)
        return out.getvalue().strip()

    assert printed() == "None None None"
    assert printed("--bootstrap", "200", "a") == "['a'] 200 None"
    assert printed("a", "--bootstrap", "b") == "['a', 'b'] 1000 None"
    assert printed("--bootstrap", "--power", ".5") == "None 1000 0.5"
    assert printed("--", "--bootstrap") == "['--bootstrap'] None None"
    # Without brackets in the help, the value is required, and a small number stays an error.
    for words in (("--power",), ("--bootstrap", "50")):
        with pytest.raises(typer.TyperException):
            printed(*words)
