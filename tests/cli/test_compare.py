"""``capbench compare`` answers whether two metrics differ, in one sentence with its evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import capbench as cb
from tests.conftest import Ran


def test_a_difference_is_said_in_one_sentence_with_its_evidence(capbench: Callable[..., Ran]) -> None:
    ran = capbench("compare", "cider", "rouge-l", "--bootstrap", "400", "--permutations", "400")
    assert ran.code == 0, ran.err
    (sentence,) = [line for line in ran.out.splitlines() if " than " in line and "difference" in line]
    assert sentence.startswith("CIDEr agrees better with human ratings than ROUGE-L: τ-c 0.5225 against 0.3762")
    assert "flickr8k-expert:1/no-own-captions/unaggregated-tau-c: 900 judgements" in ran.out
    assert "permutation test over 50 images, 400 times, seed 0" in ran.out


def test_there_are_1000_resamples_and_10000_permutations_by_default(capbench: Callable[..., Ran]) -> None:
    found = json.loads(capbench("compare", "cider", "rouge-l", "--json").out)
    assert found["table"]["resamples"] == 10_000
    assert found["intervals"]["CIDEr"]["resamples"] == 1000
    in_python = cb.compare("flickr8k-expert", ["cider", "rouge-l"], data="sample").as_json()
    assert found == json.loads(json.dumps(in_python))
    found = json.loads(capbench("compare", "cider", "rouge-l", "--test", "bootstrap", "--json").out)
    assert found["table"]["resamples"] == 1000


def test_one_comparison_has_one_p_value_in_every_command(capbench: Callable[..., Ran]) -> None:
    metrics = [flag for name in ("bleu-1", "rouge-l", "cider") for flag in ("-m", name)]
    compared = json.loads(capbench("compare", "bleu-1", "rouge-l", "cider", "--json").out)["table"]
    correlated = json.loads(
        capbench("correlate", "-d", "flickr8k-expert", *metrics, "--compare", "permutation", "--json").out
    )
    titles = correlated["columns"]
    pairs = [
        {titles[pair["better"]]: pair["p_value"], titles[pair["worse"]]: pair["p_adjusted"]}
        for pair in correlated["comparisons"][0]["pairs"]
    ]
    assert pairs == [{p["better"]: p["p_value"], p["worse"]: p["p_adjusted"]} for p in compared["pairs"]]
    assert correlated["comparisons"][0]["resamples"] == compared["resamples"] == 10_000


def test_the_sentence_has_the_floor_and_the_json_has_the_number(capbench: Callable[..., Ran]) -> None:
    arguments = ("compare", "bleu-1", "rouge-l", "cider", "--bootstrap", "200", "--permutations", "200")
    pairs = json.loads(capbench(*arguments, "--json").out)["table"]["pairs"]
    assert min(pair["p_value"] for pair in pairs) == 1 / 201
    at_floor = [pair for pair in pairs if pair["p_adjusted"] == 3 / 201]
    assert len(pairs) >= len(at_floor) > 0
    lines = capbench(*arguments).out.splitlines()
    assert sum("p ≤ 0.0150" in line for line in lines) == len(at_floor)
    assert sum(" p = " in line for line in lines) == len(pairs) - len(at_floor)


def test_every_pair_of_columns_is_compared(capbench: Callable[..., Ran]) -> None:
    ran = capbench(
        "compare", "tests.studies.toys:Length", "cider", "--bootstrap", "200", "--permutations", "200", "--json"
    )
    found = json.loads(ran.out)
    by_pair = {frozenset((p["better"], p["worse"])): p for p in found["table"]["pairs"]}
    assert by_pair[frozenset(("CIDEr", "Length"))]["significant"]
    assert len(by_pair) == 3


def test_the_same_seed_gives_the_same_numbers_and_intervals_hold_the_value(capbench: Callable[..., Ran]) -> None:
    arguments = (
        "compare",
        "bleu-4",
        "cider",
        "-d",
        "composite",
        "--bootstrap",
        "300",
        "--permutations",
        "300",
        "--json",
    )
    first, second = json.loads(capbench(*arguments).out), json.loads(capbench(*arguments).out)
    assert first == second
    for interval in first["intervals"].values():
        assert interval["low"] < interval["value"] < interval["high"]
        assert interval["unit"] == "image"
    other = json.loads(capbench(*arguments, "--seed", "1").out)
    assert other["intervals"] != first["intervals"]


def test_accuracies_are_compared_too(capbench: Callable[..., Ran]) -> None:
    protocol = ("-d", "pascal-50s", "-p", "pascal-50s/json-5-refs/direct-strict")
    ran = capbench("compare", "bleu-4", "cider", *protocol, "--test", "bootstrap", "--bootstrap", "300")
    assert ran.code == 0, ran.err
    assert "pascal-50s:1/json-5-refs/direct-strict: 160 judgements; bootstrap test over 40 images" in ran.out
    assert "80.00" in ran.out


def test_several_draws_are_compared_by_their_mean(capbench: Callable[..., Ran]) -> None:
    protocol = "composite/one-reference/correctness-tau-b"
    ran = capbench(
        "compare",
        "bleu-1",
        "rouge-l",
        "-d",
        "composite",
        "-p",
        protocol,
        "--bootstrap",
        "200",
        "--permutations",
        "200",
        "--json",
    )
    compared = json.loads(ran.out)["table"]["values"]
    study = json.loads(capbench("correlate", "-p", protocol, "-m", "bleu-1", "-m", "rouge-l", "--json").out)
    means = {cell["title"]: cell["value"] for cell in study["cells"] if cell["group"] == ""}
    assert compared == pytest.approx(means, abs=1e-12)


def test_many_metrics_are_tested_with_more_permutations_and_that_is_said(capbench: Callable[..., Ran]) -> None:
    ran = capbench("compare", "bleu", "rouge-l", "cider", "--bootstrap", "100", "--permutations", "100", "--json")
    assert ran.code == 0, ran.err
    assert re.search(r"\b598\b.*\b100\b.*\b15 pairs", ran.err)
    found = json.loads(ran.out)
    assert found["table"]["resamples"] == 598
    assert found["intervals"]["CIDEr"]["resamples"] == 100


def test_intervals_and_permutations_have_their_own_numbers(capbench: Callable[..., Ran]) -> None:
    def found(*options: str) -> dict[str, Any]:
        ran = capbench("compare", "cider,rouge-l", "--json", *options)
        assert ran.code == 0, ran.err
        return dict(json.loads(ran.out))

    usual = found()
    assert (usual["table"]["resamples"], usual["intervals"]["CIDEr"]["resamples"]) == (10_000, 1000)
    assert found("--permutations", "10000", "--bootstrap") == usual
    assert found("--permutations", "300")["intervals"] == usual["intervals"]
    both = found("--bootstrap", "300", "--permutations", "300")
    assert (both["table"]["resamples"], both["intervals"]["CIDEr"]["resamples"]) == (300, 300)
    apart = found("--bootstrap", "200", "--permutations", "300")
    assert (apart["table"]["resamples"], apart["intervals"]["CIDEr"]["resamples"]) == (300, 200)
    assert [pair["p_value"] for pair in apart["table"]["pairs"]] == [pair["p_value"] for pair in both["table"]["pairs"]]
    # A bootstrap test uses the resamples of the intervals.
    tested = found("--test", "bootstrap", "--bootstrap", "200")
    assert (tested["table"]["resamples"], tested["intervals"]["CIDEr"]["resamples"]) == (200, 200)


def test_alpha_changes_the_decisions(capbench: Callable[..., Ran]) -> None:
    def pairs(alpha: str) -> list[dict[str, Any]]:
        ran = capbench("compare", "cider", "rouge-l", "meteor", "--permutations", "2000", "--alpha", alpha, "--json")
        assert ran.code == 0, ran.err
        return list(json.loads(ran.out)["table"]["pairs"])

    largest = max(pair["p_adjusted"] for pair in pairs("0.05"))
    for alpha in (largest / 2, largest * 1.01):
        tested = pairs(str(alpha))
        assert [pair["significant"] for pair in tested] == [pair["p_adjusted"] <= alpha for pair in tested]
        assert all(pair["significant"] for pair in tested) == (alpha > largest)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("cider",), "two"),
        ((), "metric"),
        (("cider", "meteor", "-d", "nocaps"), "nocaps"),
        (("cider", "meteor", "--test", "mcnemar"), "McNemar"),
        (("cider", "tests.studies.toys:Constant"), "Constant"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(
    arguments: tuple[str, ...], named: str, capbench: Callable[..., Ran]
) -> None:
    ran = capbench("compare", *arguments)
    assert ran.code == 2
    (line,) = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert named in line


def test_sentinels_are_printed_by_default_and_change_no_number_of_a_metric(capbench: Callable[..., Ran]) -> None:
    arguments = ("compare", "cider", "rouge-l", "-d", "composite", "--bootstrap", "200", "--permutations", "200")
    found, bare = (
        json.loads(capbench(*arguments, "--json").out),
        json.loads(capbench(*arguments, "--no-sentinels", "--json").out),
    )
    sentinels = found.pop("sentinels")
    assert found == bare
    names = ["length", "length-ratio", "source", "candidate-only", "image-mean"]
    assert [cell["column"] for cell in sentinels["cells"]] == names
    (tests,) = sentinels["tests"]
    assert [test["column"] for test in tests["tests"]] == list(bare["table"]["values"])
    assert "image-mean" not in tests["sentinels"]
    out = capbench(*arguments).out
    for name in names:
        assert re.search(rf"^ {name}\b.* -?0\.\d{{4}} ", out, re.MULTILINE), name
    marked = {test["column"] for test in tests["tests"] if not test["better"]}
    assert {line.split()[0] for line in out.splitlines() if re.search(r"\d‡ ", line)} == marked
    refused = capbench("compare", "cider", "rouge-l", "--power", "--sentinels")
    assert (refused.code, refused.failure.code, refused.failure.value) == (2, "conflict", "--sentinels")


def test_sentinels_of_a_comparison_are_in_its_report_and_its_frame(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    arguments = (
        "compare",
        "cider",
        "rouge-l",
        "-d",
        "composite",
        "--bootstrap",
        "200",
        "--permutations",
        "200",
        "--report",
        page,
    )
    assert capbench(*arguments, "--explanations", "0").code == 0
    assert "image-mean (bound)" in page.read_text(encoding="utf-8")
    made = cb.compare("composite", ["cider", "rouge-l"], resamples=200, data="sample")
    assert made.to_frame()["beats_sentinels"].dtype == bool
    assert "candidate-only" in made._repr_html_()
    bare = cb.compare("composite", ["cider", "rouge-l"], resamples=200, sentinels=False, data="sample")
    assert "beats_sentinels" not in bare.to_frame()


def test_cite_adds_a_sentence_and_the_entries_to_the_table(capbench: Callable[..., Ran]) -> None:
    call = ("compare", "bleu-4", "rouge-l", "--bootstrap", "100", "--permutations", "100")
    plain, cited = capbench(*call), capbench(*call, "--cite")
    assert cited.code == 0
    assert cited.out.startswith(plain.out)
    added = cited.out.removeprefix(plain.out)
    assert "Kendall's τ-c on Flickr8k Expert" in added
    for key in ("hodosh2013framing", "papineni2002bleu", "lin2004rouge", "capbench"):
        assert added.count(f"{{{key},\n") == 1


@pytest.mark.parametrize(
    "call",
    [
        ("compare", "bleu-4", "rouge-l", "--cite", "--json"),
        ("compare", "bleu-4", "rouge-l", "--cite", "--power", "0.8"),
        ("correlate", "-d", "flickr8k-expert", "-m", "bleu-4", "--cite", "--json"),
        ("correlate", "-d", "flickr8k-expert", "-m", "bleu-4", "--cite", "--all-protocols"),
        ("correlate", "-d", "pascal-50s", "-m", "bleu-4", "--cite", "--references-curve"),
    ],
)
def test_cite_is_rejected_where_it_has_no_effect(capbench: Callable[..., Ran], call: tuple[str, ...]) -> None:
    ran = capbench(*call)
    assert (ran.code, ran.out) == (2, "")
    assert "--cite" in ran.err
