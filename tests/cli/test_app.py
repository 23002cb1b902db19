"""The command line as a whole: help, exit codes, what is imported at start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.cli.app import ENTRIES
from capbench.cli.explore import EXPLORED
from tests.cli.commands import commands
from tests.conftest import Ran

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "capbench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['capbench', '--help']\n"
        "from capbench.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'scipy', 'pandas', 'torch', 'pydantic', 'matplotlib', 'rich.console', 'yaml', 'sqlite3'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in result.stdout


def test_a_table_of_correlations_imports_only_its_own_studies() -> None:
    code = (
        "import sys; sys.argv = ['capbench', 'correlate', '-d', 'flickr8k-expert', '-m', 'bleu-4']\n"
        "from capbench.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "other = {'scipy.stats', 'pandas', 'torch', 'capbench.studies.combine', 'capbench.studies.power',\n"
        "    'capbench.studies.all_protocols', 'capbench.core.explanations'}\n"
        "print('IMPORTED', 'capbench.studies.evaluate' in sys.modules, sorted(other & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "human ceiling" in result.stdout  # which has a bootstrap interval
    assert "IMPORTED True []" in result.stdout


def test_the_version_is_printed() -> None:
    from capbench.core.version import version_text

    assert run("--version").stdout == f"capbench {version_text()}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["score", "--metric", "cidr"], "'cider'"),
        (["score", "--metric", "nneval"], "nneval"),
        (["correlate", "no-such-study"], "no-such-study"),
        (["correlate", "--data", "/nonexistent"], "/nonexistent"),
        (["score", "--metric", "bleu", "--option", "bleu=4"], "'bleu'"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(arguments: list[str], named: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert named in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


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


def test_a_data_folder_that_is_missing_is_not_replaced_by_the_sample() -> None:
    result = run("correlate", env={"CAPBENCH_DATA": "/nonexistent"})
    assert result.returncode == 2
    assert "CAPBENCH_DATA" in result.stderr


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


def test_a_list_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; sys.argv = ['capbench', *sys.argv[1:]]\n"
        "from capbench.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', sorted(name for name in sys.modules if name.startswith('capbench.cli.')))\n"
    )
    expected = {"--help": [], "train scan --help": ["combine", "options", "train"], "doctor --help": ["doctor"]}
    for arguments, modules in expected.items():
        command = [sys.executable, "-c", code, *arguments.split()]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        loaded = sorted(f"capbench.cli.{name}" for name in ["app", "common", *modules])
        assert result.stdout.splitlines()[-1] == f"LOADED {loaded}"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("capbench ex", {"explore", "extract-features"}),
        ("capbench explore ex", {"explain", "examples"}),
        ("capbench models list --j", {"--json"}),
        ("capbench figure s", {"significance", "score-groups"}),
        ("capbench check-m", set()),
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
        (("train", "combination", "-m", "cider", "--correction", "x"), "'holm', 'bh', 'none'"),
        (("compare", "--test", "x"), "'permutation', 'bootstrap', 'williams', 'steiger', 'mcnemar'"),
        (("compare", "--correction", "x"), "'holm', 'bh', 'none'"),
        (("compare", "--unit", "x"), "'image', 'item', 'rating'"),
        (("compare-systems", "a", "b", "--references", "c", "--test", "x"), "'permutation', 'bootstrap'"),
        (("compare-systems", "a", "b", "--references", "c", "--correction", "x"), "'holm', 'bh', 'none'"),
        (("compare", "--power", "cider", "meteor", "--unit", "x"), "'image', 'item', 'rating'"),
        (("figure", "forest", "cider", "meteor", "--unit", "x"), "'image', 'item', 'rating'"),
        (("figure", "ratings", "cider", "--format", "x"), "'png', 'svg', 'pdf'"),
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
