"""The results pages, the files and commands behind their numbers, and the Makefiles that reproduce them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from capbench.core.files import read_json, read_text
from scripts.result_tables import PAGES, ROOT, with_numbers, written

RESULTS = ROOT / "results"


@pytest.mark.parametrize("page", PAGES)
def test_every_table_of_a_page_has_the_stored_results(page: str) -> None:
    assert written(page) == read_text(ROOT / "docs" / page)


def test_a_number_that_differs_is_replaced_and_all_else_stays() -> None:
    page = "results/flickr8k-grid.md"
    text = read_text(ROOT / "docs" / page)
    changed = text.replace("| SPICE | 0.4489 ", "| SPICE | 0.4498 ", 1)
    assert changed != text
    assert with_numbers(changed, PAGES[page]())[0] == text


def test_the_bounds_that_the_choice_of_a_metric_names_are_those_of_the_results() -> None:
    page, results = read_text(ROOT / "docs" / "which-metric.md"), read_json(RESULTS / "within-source/results.json")
    within, systems = (
        [cell["value"] for cell in results["cells"] if (cell["protocol"], cell["group"]) == (protocol, "")]
        for protocol in ("composite/no-human/correctness-within-image-tau-c", "thumb/no-human/total-system-pearson")
    )
    assert len(within) == len(systems) == 5
    assert f"at most {np.ceil(100 * max(within)) / 100:.2f}".replace("0.", ".") in page
    assert f"r ≥ {np.floor(100 * min(systems)) / 100:.2f}".replace("0.", ".") in page


def test_every_committed_folder_is_in_the_list() -> None:
    listed = set(re.findall(r"`([^`]+\.json)`", read_text(RESULTS / "README.md")))
    folders = re.findall(r"\*\*`([a-z0-9-]+)/`\*\*", read_text(RESULTS / "README.md"))
    committed = re.findall(r"^!results/([a-z0-9-]+)/\*?\.?(?:json)?$", read_text(ROOT / ".gitignore"), re.MULTILINE)
    assert {*folders, *(Path(name).parts[0] for name in listed if "/" in name)} == set(committed)


MADE_BY = re.compile(r'"[\w-]+\|capbench:[^"]+"|"(?:sha256:)?[0-9a-f]{64}"|"[0-9a-f]{16}"')
"""A signature, or the SHA-256 of a file, whole or its first 16 digits."""


def listed() -> list[str]:
    """Files that the list of results/README.md names."""
    section = read_text(RESULTS / "README.md").partition("\n## ")[2]
    return [
        f"{folder}/{file}"
        for folder, files in re.findall(r"^- `([\w-]+)/`: (.*)$", section, re.MULTILINE)
        for file in re.findall(r"`([\w.-]+\.json)`", files)
    ]


def test_every_file_names_what_produced_it_or_is_listed_and_none_does_both() -> None:
    files = {path.relative_to(RESULTS).as_posix(): path for path in RESULTS.glob("*/*.json")}
    without = {
        name
        for name, path in files.items()
        if not name.startswith("leaderboard/") and not MADE_BY.search(read_text(path))
    }
    assert len(listed()) == len(set(listed()))
    assert without == set(listed())


MAKEFILES = sorted(path.stem for path in (ROOT / "scripts/reproduce").glob("*.mk") if "\ninclude " in path.read_text())


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("page", MAKEFILES)
def test_all_commands_of_a_page_can_be_parsed(page: str, tmp_path: Path) -> None:
    from tests.test_snippets import parse, words_of

    shutil.copytree(ROOT / "scripts/reproduce", tmp_path / "scripts/reproduce")
    (tmp_path / "vectors.bin").touch()
    given = ["CAPBENCH_DATA=data", "VECTORS=vectors.bin", "CAPBENCH=capbench"]
    made = subprocess.run(
        ["make", "-n", "-f", f"scripts/reproduce/{page}.mk", *given], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    lines = re.findall(r"^capbench .*$", re.sub(r"\\\n\s*", " ", made.stdout), re.MULTILINE)
    commands = [words_of(line)[0][1:] for line in lines]
    assert any(words[0] in ("correlate", "train") for words in commands)
    for words in commands:
        if words[:2] != ["train", "clip"]:  # a plug-in's
            parse(words)
        if words[0] == "train" and words[1] in ("scan", "faier", "vilbert", "clip", "leic", "nneval"):
            assert (ROOT / "configs/train" / f"{words[2]}.yaml").is_file()
