"""The command line as a whole: help, exit codes, what is imported at start-up."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    import os

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
        "other = {'scipy', 'pandas', 'torch', 'capbench.studies.combine', 'capbench.studies.compare',\n"
        "    'capbench.studies.all_protocols', 'capbench.core.explanations'}\n"
        "print('IMPORTED', 'capbench.studies.evaluate' in sys.modules, sorted(other & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "human ceiling" in result.stdout  # which has a bootstrap interval
    assert "IMPORTED True []" in result.stdout


def test_the_version_is_printed() -> None:
    import capbench

    assert run("--version").stdout == f"capbench {capbench.__version__}\n"


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
        ({}, "interrupted: no new scores or parses are in the cache; finished files are unchanged\n"),
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
    sys.path.insert(0, str(SCRIPTS))
    try:
        from make_cli_docs import commands  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(SCRIPTS))
    for words in commands():
        text = run(*words, "--help").stdout
        assert "Example: capbench" in text, f"capbench {' '.join(words)} --help has no example"


@pytest.mark.parametrize(
    ("arguments", "choices"),
    [
        (("combine", "-m", "cider", "--learner", "x"), "'auto', 'ridge', 'logistic', 'monotone'"),
        (("combine", "-m", "cider", "--correction", "x"), "'holm', 'bh', 'none'"),
        (("compare", "--test", "x"), "'permutation', 'bootstrap', 'williams', 'steiger', 'mcnemar'"),
        (("compare", "--correction", "x"), "'holm', 'bh', 'none'"),
        (("compare", "--unit", "x"), "'image', 'item', 'rating'"),
        (("compare-systems", "a", "b", "--references", "c", "--test", "x"), "'permutation', 'bootstrap'"),
        (("compare-systems", "a", "b", "--references", "c", "--correction", "x"), "'holm', 'bh', 'none'"),
        (("power", "cider", "meteor", "--unit", "x"), "'image', 'item', 'rating'"),
        (("figure", "forest", "cider", "meteor", "--unit", "x"), "'image', 'item', 'rating'"),
        (("figure", "ratings", "cider", "--format", "x"), "'png', 'svg', 'pdf'"),
        (("retrieve", "--gallery", "x"), "'rest', 'one'"),
    ],
)
def test_an_unknown_choice_is_named_with_all_choices(
    capbench: Callable[..., Ran], arguments: tuple[str, ...], choices: str
) -> None:
    ran = capbench(*arguments)
    assert ran.code == 2
    assert f"'{arguments[-2]}'" in ran.err
    assert f"'x' is not one of {choices}" in ran.err
