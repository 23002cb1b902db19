"""``capbench compare``, and one group of a data set (``composite@8k``) in every command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

import capbench as cb
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
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


ID = "composite@8k/any-candidate-out/correctness-tau-c"
PRINTED = "composite:1@8k/any-candidate-out/correctness-tau-c"
LENGTH = "tests.studies.toys:Length"
KEPT = "Composite, 8k: 75 of 210 items of Composite, 25 of 70 images"


def test_its_number_is_the_statistic_of_its_ratings_alone(found: Callable[..., Any]) -> None:
    both = ("-p", ID, "-p", ID.replace("@8k", ""))
    cells = found("correlate", *both, "-m", LENGTH, "-m", "cider")["cells"]
    values = {(c["protocol"].partition("/")[0], c["group"], c["column"]): c["value"] for c in cells}
    (judgements,) = (dataset := open_dataset("composite", find_root("sample"))).load(dataset.protocol().items)
    rated = judgements.ratings["correctness"]
    of_group = [k for k, i in enumerate(rated.item.tolist()) if judgements.items[i].group == "8k"]
    lengths = [len(judgements.items[rated.item[k]].candidate.split()) for k in of_group]
    expected = scipy.stats.kendalltau(lengths, rated.value[of_group], variant="c").statistic
    assert values["composite@8k", "", "length"] == pytest.approx(expected, abs=1e-12)
    for column in ("length", "cider"):  # document frequencies are those of the whole data set
        assert values["composite@8k", "", column] == pytest.approx(values["composite", "8k", column], abs=1e-12)


@pytest.mark.parametrize("named", [("-d", "composite@8k"), ("-d", "composite", "-p", ID)])
def test_every_command_on_one_protocol_takes_a_group_and_says_what_is_kept(
    named: tuple[str, ...], capbench: Callable[..., Ran], found: Callable[..., Any]
) -> None:
    for flags in (("--permutations", "100"), ("--power",)):
        arguments = ("compare", *flags, "rouge-l", "bleu-1", *named, "--bootstrap", "100")
        ran = capbench(*arguments, "--details")
        assert ran.code == 0, ran.err
        assert f"{PRINTED}: 75 " in ran.out
        assert KEPT in ran.out
        result = found(*arguments)
        assert KEPT in result.get("notes", ()) or KEPT in result["protocols"][0]["notes"]
    for command in (
        ("explore", "examples", "-m", "rouge-l"),
        ("figure", "ratings", "rouge-l"),
        ("figure", "score-groups", "rouge-l"),
    ):
        assert found(*command, *named)["protocol"] == ID
        assert KEPT in capbench(*command, *named).err
    curves = ("correlate", "--references-curve", "-m", "rouge-l", "--counts", "1,2", "--draws", "2")
    assert {point["protocol"] for point in found(*curves, *named)["points"]} == {ID}
    assert found("score", "-d", "composite@8k", "-m", "rouge-l")["n"] == 75
    ran = capbench("figure", "forest", "rouge-l", "bleu-1", *named, "--bootstrap", "100", "-o", "g.svg")
    assert KEPT in ran.err
    assert PRINTED in Path("g.svg").read_text(encoding="utf-8")
