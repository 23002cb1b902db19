"""``capbench compare`` is ``correlate`` with intervals, tests and sentinels, and a sentence for each pair."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import capbench as cb
from tests.conftest import Ran

FEW = ("--bootstrap", "200", "--permutations", "200")
PASCAL = ("-d", "pascal-50s", "-p", "pascal-50s/json-5-refs/direct-strict")


def found(capbench: Callable[..., Ran], *arguments: object) -> dict[str, Any]:
    ran = capbench("compare", *arguments, "--json")
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out))


def test_its_numbers_are_those_of_correlate_with_the_same_settings(capbench: Callable[..., Ran]) -> None:
    names = ("bleu-1", "rouge-l", "cider")
    compared = found(capbench, *names, "-d", "composite")
    flags = ("--bootstrap", "1000", "--compare", "permutation", "--permutations", "10000", "--sentinels")
    correlated = json.loads(capbench("correlate", "-d", "composite", "-m", ",".join(names), *flags, "--json").out)
    assert [cell for cell in compared["cells"] if not cell["group"]] == [
        cell for cell in correlated["cells"] if not cell["group"]
    ]
    for part in ("comparisons", "sentinels"):
        (of_compare,), (of_correlate) = compared[part], correlated[part]
        if part == "comparisons":
            assert of_compare == of_correlate[0]
        else:
            assert of_compare["tests"][0] == of_correlate[0]["tests"][0]
    # The best first.
    assert list(compared["columns"]) == list(compared["comparisons"][0]["ranks"])
    python = cb.compare("composite", names, data="sample").model_dump(mode="json")
    changing = {"created", "seconds", "cached"}
    assert {key: value for key, value in json.loads(json.dumps(python)).items() if key not in changing} == {
        key: value for key, value in compared.items() if key not in changing
    }


def test_the_sentence_has_the_floor_and_the_json_has_the_number(capbench: Callable[..., Ran]) -> None:
    arguments = ("bleu-1", "rouge-l", "cider", *FEW)
    pairs = found(capbench, *arguments)["comparisons"][0]["pairs"]
    assert min(pair["p_value"] for pair in pairs) == 1 / 201
    at_floor = [pair for pair in pairs if pair["p_adjusted"] == 3 / 201]
    assert len(pairs) >= len(at_floor) > 0
    lines = capbench("compare", *arguments).out.splitlines()
    assert sum("p ≤ 0.0150" in line for line in lines) == len(at_floor)
    assert sum(" p = " in line for line in lines) == len(pairs) - len(at_floor)


def test_intervals_and_permutations_have_their_own_numbers(capbench: Callable[..., Ran]) -> None:
    def drawn(*options: str) -> tuple[int, int]:
        result = found(capbench, "cider,rouge-l", *options)
        return result["comparisons"][0]["resamples"], result["protocols"][0]["bootstrap"]["resamples"]

    assert drawn() == drawn("--permutations", "10000", "--bootstrap") == (10_000, 1000)
    assert drawn("--bootstrap", "200", "--permutations", "300") == (300, 200)
    # A bootstrap test uses the resamples of the intervals.
    assert drawn("--test", "bootstrap", "--bootstrap", "200") == (200, 200)
    assert drawn("--test", "bootstrap") == (1000, 1000)
    (tests,) = found(capbench, "bleu", "cider", "rouge-l", "--permutations", "100")["comparisons"]
    assert (tests["resamples"], tests["requested"]) == (598, 100)


def test_the_seed_and_alpha_decide(capbench: Callable[..., Ran]) -> None:
    def tested(*options: str) -> dict[str, Any]:
        return found(capbench, "cider", "rouge-l", "meteor", *FEW, *options)

    first, other = tested(), tested("--seed", "1")
    assert [cell["low"] for cell in first["cells"]] != [cell["low"] for cell in other["cells"]]
    largest = max(pair["p_adjusted"] for pair in first["comparisons"][0]["pairs"])
    for alpha in (largest / 2, largest * 1.01):
        pairs = tested("--alpha", str(alpha))["comparisons"][0]["pairs"]
        assert [pair["significant"] for pair in pairs] == [pair["p_adjusted"] <= alpha for pair in pairs]


def test_sentinels_are_tested_by_default_and_change_no_number_of_a_metric(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    arguments = ("cider", "rouge-l", "-d", "composite", *FEW)
    full = found(capbench, *arguments, "--report", page)
    assert "image-mean (bound)" in page.read_text(encoding="utf-8")
    bare = found(capbench, *arguments, "--no-sentinels")
    assert [full["cells"], full["comparisons"]] == [bare["cells"], bare["comparisons"]]
    assert "sentinels" not in bare
    (tests,) = full["sentinels"][0]["tests"]
    assert "image-mean" not in tests["sentinels"]
    marked = {full["columns"][test["column"]] for test in tests["tests"] if not test["better"]}
    out = capbench("compare", *arguments).out
    assert {line.split()[0] for line in out.splitlines() if re.search(r"\d†?‡ ", line)} == marked


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("cider",), "two"),
        ((), "metric"),
        (("cider", "meteor", "-d", "nocaps"), "nocaps"),
        (("cider", "nneval"), "nneval requires"),
        (("cider", "meteor", "--test", "mcnemar"), "mcnemar"),
        (("cider", "tests.studies.toys:Constant"), "Constant"),
        (("cider", "rouge-l", "--power", "--sentinels"), "--sentinels"),
        (("cider", "rouge-l", "--cite", "--json"), "--cite"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(
    arguments: tuple[str, ...], named: str, capbench: Callable[..., Ran]
) -> None:
    ran = capbench("compare", *arguments)
    assert ran.code == 2
    (line,) = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert named in line


def test_cite_adds_a_sentence_and_the_entries_to_the_table(capbench: Callable[..., Ran]) -> None:
    call = ("compare", "bleu-4", "rouge-l", *FEW)
    plain, cited = capbench(*call), capbench(*call, "--cite")
    assert cited.out.startswith(plain.out)
    added = cited.out.removeprefix(plain.out)
    assert "Kendall's τ-c on Flickr8k Expert" in added
    for key in ("hodosh2013framing", "papineni2002bleu", "lin2004rouge", "capbench"):
        assert added.count(f"{{{key},\n") == 1


# How many images separate two metrics.


def test_power_is_one_sentence_with_its_evidence(capbench: Callable[..., Ran]) -> None:
    arguments = ("--power", "rouge-l", "cider", "--bootstrap", "200")
    power = found(capbench, *arguments)["power"]
    out = capbench("compare", *arguments).out
    (sentence,) = [line for line in out.splitlines() if "are needed" in line]
    assert sentence.startswith(f"{power['needed']} images are needed to distinguish CIDEr from ROUGE-L (τ-c ")
    assert sentence.endswith("with 80 % power at α = 0.05; the data has 50 images.")
    power = found(capbench, "--power", "bleu-4", "cider")["power"]
    assert (power["target"], power["alpha"], power["resamples"]) == (0.8, 0.05, 500)


def test_more_power_and_smaller_gaps_need_more_images(capbench: Callable[..., Ran]) -> None:
    def needed(*more: str) -> int:
        return int(
            found(capbench, "bleu-4", "cider", "-d", "composite", "--bootstrap", "150", *more)["power"]["needed"]
        )

    base = needed("--power")
    assert needed("--power", "0.95") > base
    assert needed("--power", "--alpha", "0.01") > base
    small = needed("--power", "--gap", "0.01")
    assert small > base
    assert needed("--power", "--gap", "0.005") == pytest.approx(4 * small, rel=0.001)


@pytest.mark.parametrize(("images", "warned"), [(12, True), (20, False)])
def test_an_estimate_from_fewer_than_twenty_images_is_warned_of(
    tmp_path: Path, images: int, warned: bool, capbench: Callable[..., Ran]
) -> None:
    words = ["a", "red", "kite", "flies", "over", "the", "hills"]
    rows = [
        f"{image}.jpg,{' '.join(words[: 3 + (image + rating) % 4] + ['kite'] * (image % 3))},{' '.join(words)},{rating}"
        for image in range(images)
        for rating in (1, 3, 4)
    ]
    file = tmp_path / "mine.csv"
    file.write_text("image,candidate,reference_1,rating\n" + "\n".join(rows) + "\n")
    ran = capbench("compare", "rouge-l", "bleu-1", "-d", file, "--power", "--gap", "0.1")
    assert ran.code == 0, ran.err
    assert len([line for line in ran.err.splitlines() if f"{images} images" in line]) == warned


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (("cider", "--power"), "wrong-value", 1),
        (("cider", "bleu", "--power"), "wrong-value", 5),
        (("cider", "rouge-l", "--power", "80"), "out-of-range", 80.0),
        (("cider", "rouge-l", "--power", "--alpha", "0"), "out-of-range", 0.0),
        (("cider", "rouge-l", "--power", "-d", "nocaps"), "unsupported", "nocaps/first-vs-rest/mean"),
        (("cider", "rouge-l", "--gap", "0.1"), "missing-option", "--gap"),
        (("cider", "rouge-l", "--power", "--test", "williams"), "conflict", "--test"),
        (("cider", "rouge-l", "--power", "--correction", "bh"), "conflict", "--correction"),
        (("cider", "rouge-l", "--power", "--permutations", "200"), "conflict", "--permutations"),
        (("cider", "rouge-l", "--power", "--report", "r.html"), "conflict", "--report"),
        (("cider", "rouge-l", "--test", "bootstrap", "--permutations", "200"), "conflict", "--permutations"),
    ],
)
def test_options_that_do_not_apply_are_rejected(
    options: tuple[str, ...], code: str, value: object, capbench: Callable[..., Ran]
) -> None:
    ran = capbench("compare", *options)
    assert (ran.code, ran.failure.code, ran.failure.value) == (2, code, value)
