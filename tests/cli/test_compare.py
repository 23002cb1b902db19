"""``capbench compare`` is ``correlate`` with intervals, tests and sentinels, and a sentence for each pair."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import capbench as cb
from tests.conftest import Ran

FEW = ("--bootstrap", "200", "--permutations", "200")


def test_its_numbers_are_those_of_correlate_with_the_same_settings(found: Callable[..., Any]) -> None:
    names = ("bleu-1", "rouge-l", "cider")
    compared = found("compare", *names, "-d", "composite")
    flags = ("--bootstrap", "1000", "--compare", "permutation", "--permutations", "10000", "--sentinels")
    correlated = found("correlate", "-d", "composite", "-m", ",".join(names), *flags)
    overall = [[cell for cell in result["cells"] if not cell["group"]] for result in (compared, correlated)]
    assert overall[0] == overall[1]
    assert compared["comparisons"] == correlated["comparisons"][:1]
    assert compared["sentinels"][0]["tests"][0] == correlated["sentinels"][0]["tests"][0]
    # The best first.
    assert list(compared["columns"]) == list(compared["comparisons"][0]["ranks"])
    python = json.loads(json.dumps(cb.compare("composite", names, data="sample").model_dump(mode="json")))
    for key in ("created", "seconds", "cached"):
        python.pop(key), compared.pop(key)
    assert python == compared


def test_intervals_and_permutations_have_their_own_numbers(found: Callable[..., Any]) -> None:
    def drawn(*options: str) -> tuple[int, int]:
        result = found("compare", "cider,rouge-l", *options)
        return result["comparisons"][0]["resamples"], result["protocols"][0]["bootstrap"]["resamples"]

    assert drawn() == drawn("--permutations", "10000", "--bootstrap") == (10_000, 1000)
    assert drawn("--bootstrap", "200", "--permutations", "300") == (300, 200)
    # A bootstrap test uses the resamples of the intervals.
    assert drawn("--test", "bootstrap", "--bootstrap", "200") == (200, 200)
    (tests,) = found("compare", "bleu", "cider", "rouge-l", "--permutations", "100")["comparisons"]
    assert (tests["resamples"], tests["requested"]) == (598, 100)


def test_sentinels_are_tested_by_default_and_change_no_number_of_a_metric(
    capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    arguments = ("compare", "cider", "rouge-l", "-d", "composite", *FEW)
    full = found(*arguments, "--report", "page.html")
    assert "image-mean (bound)" in Path("page.html").read_text(encoding="utf-8")
    bare = found(*arguments, "--no-sentinels")
    assert [full["cells"], full["comparisons"]] == [bare["cells"], bare["comparisons"]]
    assert "sentinels" not in bare
    (tests,) = full["sentinels"][0]["tests"]
    marked = {full["columns"][pair["better"]] for pair in tests["pairs"] if not pair["significant"]}
    out = capbench(*arguments).out
    assert {line.split()[0] for line in out.splitlines() if re.search(r"\d†?‡ ", line)} == marked


def test_power_is_said_with_its_defaults(capbench: Callable[..., Ran], found: Callable[..., Any]) -> None:
    power = found("compare", "--power", "bleu-4", "cider")["power"]
    assert (power["target"], power["alpha"], power["resamples"]) == (0.8, 0.05, 500)
    assert f"{power['needed']} images are needed to" in capbench("compare", "--power", "bleu-4", "cider").out
