"""``capbench compare --power`` estimates how many images separate two metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran


def test_the_answer_is_one_sentence_with_its_evidence(capbench: Callable[..., Ran]) -> None:
    ran = capbench("compare", "--power", "rouge-l", "cider", "--bootstrap", "200")
    assert ran.code == 0, ran.err
    found = json.loads(capbench("compare", "--power", "rouge-l", "cider", "--bootstrap", "200", "--json").out)["power"]
    (sentence,) = [line for line in ran.out.splitlines() if "are needed" in line]
    assert sentence.startswith(
        f"{found['needed']} images are needed to distinguish CIDEr from ROUGE-L (τ-c 0.5225 against 0.3762"
    )
    assert sentence.endswith("with 80 % power at α = 0.05; the data has 50 images.")
    for point in found["points"]:
        assert re.search(rf"\b{point['units']}\b +{point['standard_error']:.4f} +{100 * point['power']:.0f} %", ran.out)
    assert "standard errors of the difference from 200 resamples of each number of images, seed 0" in ran.out


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
    found = json.loads(capbench("compare", "rouge-l", "bleu-1", "-d", file, "--power", "--gap", "0.1", "--json").out)
    assert found["file_columns"]["reference_1"] == "reference_1"
    lines = [line for line in ran.err.splitlines() if f"{images} images" in line]
    assert len(lines) == warned


def test_more_power_and_smaller_gaps_need_more_images(capbench: Callable[..., Ran]) -> None:
    def needed(*more: str) -> int:
        ran = capbench("compare", "bleu-4", "cider", "-d", "composite", "--bootstrap", "150", "--json", *more)
        assert ran.code == 0, ran.err
        return int(json.loads(ran.out)["power"]["needed"])

    base = needed("--power")
    assert needed("--power", "0.95") > base
    assert needed("--power", "--alpha", "0.01") > base
    small = needed("--power", "--gap", "0.01")
    assert small > base
    assert needed("--power", "--gap", "0.005") == pytest.approx(4 * small, rel=0.001)


def test_accuracies_are_percent(capbench: Callable[..., Ran]) -> None:
    protocol = ("-d", "pascal-50s", "-p", "pascal-50s/json-5-refs/direct-strict")
    ran = capbench("compare", "--power", "bleu-4", "cider", *protocol, "--bootstrap", "150", "--gap", "0.02")
    assert ran.code == 0, ran.err
    assert "a difference of 2.00 between CIDEr and BLEU-4 (measured: accuracy 80.00 against 70.00)" in ran.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--power", "cider"), "cider"),
        (("--power", "cider", "bleu"), "5"),
        (("cider", "rouge-l", "--power", "80"), "--power 80"),
        (("--power", "cider", "rouge-l", "--alpha", "0"), "--alpha 0"),
        (("--power", "cider", "rouge-l", "--gap", "0"), "equal"),
        (("--power", "cider", "rouge-l", "-d", "nocaps"), "nocaps"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_line(
    arguments: tuple[str, ...], named: str, capbench: Callable[..., Ran]
) -> None:
    ran = capbench("compare", *arguments)
    assert ran.code == 2
    (line,) = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert named in line


def test_power_without_a_value_is_80_percent_from_500_resamples(capbench: Callable[..., Ran]) -> None:
    ran = capbench("compare", "--power", "bleu-4", "cider", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["power"]
    assert (found["target"], found["alpha"], found["resamples"]) == (0.8, 0.05, 500)


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (("--gap", "0.1"), "missing-option", "--gap"),
        (("--explanations", "0"), "missing-option", "--explanations"),
        (("--power", "--test", "williams"), "conflict", "--test"),
        (("--power", "--correction", "bh"), "conflict", "--correction"),
        (("--power", "--permutations", "200"), "conflict", "--permutations"),
        (("--power", "--report", "r.html"), "conflict", "--report"),
        (("--test", "bootstrap", "--permutations", "200"), "conflict", "--permutations"),
        (("--power", "8"), "out-of-range", 8.0),
    ],
)
def test_options_that_do_not_apply_are_rejected(
    options: tuple[str, ...], code: str, value: object, capbench: Callable[..., Ran]
) -> None:
    ran = capbench("compare", "cider", "rouge-l", *options)
    assert (ran.code, ran.out) == (2, "")
    assert (ran.failure.code, ran.failure.value) == (code, value)
