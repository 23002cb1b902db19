"""docs/migrating.md: former names work or fail as the page's tables state, and their replacements exist."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import capbench as package
from capbench.cli.app import ALIASES
from capbench.core.errors import CapbenchWarning
from tests.cli.commands import commands
from tests.conftest import Ran

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/migrating.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the only table below a heading, without the table's head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> str:
    """The first text in a cell that is marked as code; ``""`` without one."""
    found = re.search(r"`([^`]+)`", cell)
    return found[1] if found else ""


def result(ran: Ran) -> Any:
    """What a command printed as JSON, or the figure that it drew."""
    return json.loads(ran.out) if ran.out.startswith("{") else Path("forest.svg").read_bytes()


def test_the_page_lists_all_former_commands() -> None:
    listed = {
        code(former).removeprefix("capbench "): code(now).removeprefix("capbench ")
        for former, now, _ in rows("Commands")
    }
    assert len(listed) == len(rows("Commands"))
    assert listed == {
        **ALIASES,
        "power": "compare --power",
        "references": "correlate --references-curve",
    }


@pytest.mark.parametrize(("former", "now", "state"), rows("Commands"))
def test_a_former_command_and_its_replacement_exist(
    capbench: Callable[..., Ran], former: str, now: str, state: str
) -> None:
    assert state == "works"
    assert capbench(*shlex.split(code(former))[1:], "--help").code == 0
    words = code(now).split()[1:]
    flags = [word for word in words if word.startswith("--")]
    name = " ".join(word for word in words if word not in flags)
    known = dict(commands(groups=True))
    # The kinds of figures are arguments.
    command = known[name if name in known else name.split()[0]]
    assert set(flags) <= {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }


ARGUMENTS = {
    "compare": "bleu-1 rouge-l --json",
    "compare-systems": "a.json b.json --references references.json -m bleu-1 --json",
    "score": "-m bleu-1 --json",
    "figure forest": "bleu-1 rouge-l --out forest.svg",
    "train combination": "-m bleu-1 -m rouge-l -d composite --folds 2 --json",
    "power": "bleu-1 rouge-l --json",
    "explore parse": "'a dog'",
}
"""Arguments with which the command of an option runs."""


@pytest.mark.parametrize(("command", "former", "now", "state"), rows("Options"))
def test_a_former_option_works_or_names_what_replaces_it(
    capbench: Callable[..., Ran],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    former: str,
    now: str,
    state: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = code(command).removeprefix("capbench ")
    for name, caption in (("a", "a dog runs"), ("b", "a dog")):
        captions = {f"{n}.jpg": f"{caption} {n}" for n in range(30)}
        Path(f"{name}.json").write_text(json.dumps(captions), encoding="utf-8")
    Path("references.json").write_text(json.dumps({f"{n}.jpg": [f"dog {n} runs"] for n in range(30)}), encoding="utf-8")
    arguments = ARGUMENTS.get(words, "")
    before = capbench(*shlex.split(f"{words} {arguments} {code(former).replace(' N', ' 300')}"))
    if state == "error":
        assert (before.code, before.out, before.err.count("\n")) == (2, "", 1)
        assert re.split(r"[ .=]", code(former))[-2 if "=" in code(former) else 0] in before.err
        assert code(now) in before.err
        return
    assert (state, before.code) == ("works", 0), before.err
    expected = result(before)
    current = code(now).replace(" N", " 300")
    current = current.removeprefix("capbench ") if current.startswith("capbench ") else f"{words} {current}"
    after = capbench(*shlex.split(f"{current} {arguments}"))
    assert after.code == 0, after.err
    assert result(after) == expected


def test_exit_codes(capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["boat", "dog", "cat", "hill", "tree"]
    good = {f"{n}.jpg": f"a {words[n % 5]} by the {words[n % 3]} number {n}" for n in range(40)}
    few = dict(list(good.items())[:30])
    Path("twice.jsonl").write_text(
        "".join(json.dumps({"image": image, "caption": good[image]}) + "\n" for image in [*good, "0.jpg"]), "utf-8"
    )
    for name, captions in (("good", good), ("bad", dict.fromkeys(good, "blue")), ("few", few)):
        Path(f"{name}.json").write_text(json.dumps(captions), encoding="utf-8")
    Path("references.json").write_text(json.dumps({key: [text] for key, text in good.items()}), encoding="utf-8")
    runs = {
        "`score`: below `--fail-under`": (
            "score --candidates bad.json --references references.json -m bleu-1 --fail-under bleu-1=0.5"
        ),
        "`compare-systems`: worse, with `--fail-if-worse`": (
            "compare-systems good.json bad.json --references references.json -m bleu-1 --fail-if-worse"
        ),
        "`score`: images without a caption, with `--fail-under`": (
            "score --candidates few.json --references references.json -m bleu-1 --fail-under bleu-1=0.5"
        ),
        "`score`: repeated images, although most images have one caption": (
            "score --candidates twice.jsonl --references references.json -m bleu-1"
        ),
    }
    stated = {situation: int(now) for situation, _, now in rows("Exit codes")}
    assert {situation: capbench(*text.split()).code for situation, text in runs.items()} == stated


def test_defaults(capbench: Callable[..., Ran]) -> None:
    stated = {(command, code(now) or now): code(before) for command, _, now, before in rows("Defaults")}
    former = stated["`compare`", "10,000 permutations"].split()
    for arguments, permutations in (((), 10_000), (former, 1000)):
        ran = json.loads(capbench("compare", "bleu-1", "rouge-l", "--json", *arguments).out)
        assert ran["table"]["resamples"] == permutations
    flag = stated["`compare`", "sentinels"]
    shown, hidden = (
        json.loads(capbench("compare", "bleu-1", "rouge-l", "--json", *flags).out) for flags in ((), (flag,))
    )
    assert ["sentinels" in each for each in (shown, hidden)] == [True, False]
    assert capbench("train", "scan").code == 0


def test_former_extras_targets_and_metrics_are_replaced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    table = rows("Files and installation")
    renamed = {code(former): code(now) for former, now in table if former.startswith("extra ")}
    assert len(renamed) == 3
    assert not renamed.keys() & project["optional-dependencies"].keys()
    assert set(renamed.values()) < project["optional-dependencies"].keys()
    targets = [(code(former), code(now)) for former, now in table if former.startswith("`make ")]
    assert [[f"\n{name.split()[1]}:" in makefile for name in pair] for pair in targets] == [[False, True]]
    for former, now in table:
        assert not former.startswith("study scripts") or not list(ROOT.glob(code(former)))
        assert "examples/" not in now or (ROOT / code(now).split()[-1]).is_dir()


def found(path: str) -> object:
    """The module or attribute of a dotted path. Raises ImportError or AttributeError if there is none."""
    parts = path.split(".")
    for number in range(len(parts), 0, -1):
        name = ".".join(parts[:number])
        try:
            value: object = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(error.name or "?"):
                raise  # a package that the module imports is not installed
            continue
        for attribute in parts[number:]:
            value = getattr(value, attribute)
        return value
    raise ImportError(path)


@pytest.mark.parametrize(("former", "now", "state"), rows("Python"))
def test_a_former_path_works_or_is_removed(former: str, now: str, state: str) -> None:
    path = code(former)
    if state == "removed":
        with pytest.raises((ImportError, AttributeError)):
            found(path)
        assert now == "none" or found(code(now)) is not None
        return
    assert state == "works"
    current = found(code(now))
    sys.modules.pop(path, None)
    with pytest.warns(CapbenchWarning, match=re.escape(code(now))):
        module = importlib.import_module(path)
    public: list[str] = current.__all__  # type: ignore[attr-defined]
    assert len(public) > 0
    assert all(getattr(module, name) is getattr(current, name) for name in public)


def test_the_bounds_of_number_options_are_renamed() -> None:
    assert re.search(r"take `minimum` and `maximum` instead of `least` and `most`", PAGE)
    for kind in (package.Number, package.Count, package.Positive):
        assert kind(maximum=3) is not None
        with pytest.raises(TypeError):
            kind(most=3)  # type: ignore[call-arg]
