"""``capbench correlate`` as a user types it, on the embedded sample."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran

pytestmark = pytest.mark.java

NO_PICTURES = shutil.ignore_patterns("*.png", "Crowd*")
QUICK = ("correlate", "-d", "flickr8k-expert", "-m", "bleu-1", "-m", "bleu-4", "-m", "cider")


def test_without_arguments_every_judged_data_set_is_measured(found: Callable[..., Any]) -> None:
    result = found("correlate", "--metric", "bleu")
    expected = "flickr8k-expert flickr8k-crowdflower composite pascal-50s foil thumb nebula polaris"
    assert [p["dataset"] for p in result["protocols"]] == expected.split()
    assert all(-1 <= cell["value"] <= 1 for cell in result["cells"])
    assert result["sample"] is True


def test_without_arguments_what_is_not_here_is_left_out_and_imported_judgements_are_measured(
    capbench: Callable[..., Ran], sample: Path
) -> None:
    for name in ("composite", "flickr8k"):
        shutil.copytree(sample / name, Path("data") / name, ignore=NO_PICTURES)
    Path("mine.csv").write_text(
        "image,candidate,reference_1,ratings\na,a dog runs,a dog is running,4\nb,a cat,a dog is running,1\n"
        "c,the dog is running,a dog is running,5\n",
        encoding="utf-8",
    )
    imported = capbench("data", "import", "mine.csv", "--name", "mine", "--scale", "1-5", "--data", "data")
    assert imported.code == 0, imported.err
    ran = capbench("correlate", "-m", "bleu-1", "--data", "data", "--json")
    assert ran.code == 0, ran.err
    assert [protocol["dataset"] for protocol in json.loads(ran.out)["protocols"]] == ["flickr8k-expert", "mine"]
    # Composite's files are here, but not all captions of its images.
    assert "flickr8k-crowdflower, composite, pascal-50s, foil, thumb, nebula, polaris" in ran.err


@pytest.mark.parametrize(
    ("dataset", "other"),
    [("composite", "same-text-out/correctness-tau-c"), ("pascal-50s", "random-5-refs/consensus-strict")],
)
def test_a_quick_look_names_the_other_common_protocol(
    capbench: Callable[..., Ran], sample: Path, dataset: str, other: str
) -> None:
    shutil.copytree(sample, "data", ignore=shutil.ignore_patterns("*.png"))
    command = ("correlate", "-m", "bleu-1", "--data", "data")
    assert f"use {other}, with other numbers" in capbench(*command, "-d", dataset).out
    assert "with other numbers" not in capbench(*command, "-p", f"{dataset}/{other}").out


def test_a_data_set_restricts_a_study(found: Callable[..., Any]) -> None:
    result = found("correlate", "field-2025", "-d", "composite", "--without", "spice")
    ids = {protocol["id"] for protocol in result["protocols"]}
    assert ids == {f"composite/any-candidate-out/correctness-tau-{kind}" for kind in "bc"}


def test_flags_take_the_place_of_what_a_study_file_says(
    found: Callable[..., Any], capbench: Callable[..., Ran]
) -> None:
    Path("mine.yaml").write_text(
        "schema: 1\nname: mine\nprotocols: flickr8k-expert\nmetrics: [bleu-1, {cider: {df: images, sigma: 5.0}}]\n"
        "bootstrap: {resamples: 150, unit: item, seed: 4}\ncompare: {alpha: 0.1}\n",
        encoding="utf-8",
    )
    study = ("correlate", "mine.yaml", "--out", "out")
    changed = ("--unit", "image", "--interval", "bca", "--correction", "bh", "--option", "cider.df=coco-val")
    for flags, unit, method, correction, df in (
        ((), "item", "percentile", "holm", "images"),
        (changed, "image", "bca", "bh", "coco-val"),
    ):
        result = found(*study, *flags)
        boot, test = result["protocols"][0]["bootstrap"], result["comparisons"][0]
        assert (boot["resamples"], boot["unit"], boot["seed"], boot["method"]) == (150, unit, 4, method)
        assert (test["alpha"], test["unit"], test["seed"], test["correction"]) == (0.1, unit, 4, correction)
        assert "sigma:5" in str(result["signatures"])
        assert f"df:{df}" in str(result["signatures"])
    assert capbench(*study, "--option", "cidr.df=images").failure.value == "cidr"


def test_a_metric_is_left_out_of_a_study_and_nothing_is_amiss(capbench: Callable[..., Ran]) -> None:
    ran = capbench(*QUICK, "--without", "cider", "--without", "cidr", "--out", "out")
    assert ran.code == 0, ran.err
    assert ["CIDEr", "left", "out"] in [line.split() for line in ran.out.splitlines()]
    assert "left out" in Path("out/results.md").read_text(encoding="utf-8")
    assert "--without cidr" in ran.err  # a name that the study does not have


def test_tables_by_source_come_on_request(capbench: Callable[..., Ran]) -> None:
    asked = ("correlate", "-d", "composite", "-m", "bleu-1", "--out", "out")
    assert "by source" in capbench(*asked, "--by-source").out
    ran = capbench(*asked)
    assert ran.code == 0, ran.err
    assert "by source" not in ran.out + Path("out/results.md").read_text(encoding="utf-8")
    assert "8k" in Path("out/results.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("flag", ["--sentinels", "--no-sentinels", None])
def test_a_report_has_sentinels_by_default_and_other_output_on_request(
    capbench: Callable[..., Ran], flag: str | None
) -> None:
    arguments = ["correlate", "-d", "thumb", "-m", "cider,rouge-l"]
    plain = capbench(*arguments, "-o", "plain")
    page = ["-o", "out", "--report", "page.html"]
    ran = capbench(*arguments, *page, *([flag] if flag else []))
    assert ran.code == 0, ran.err
    assert ("image-mean (bound)" in Path("page.html").read_text(encoding="utf-8")) is (flag != "--no-sentinels")
    result = json.loads(Path("out/results.json").read_text(encoding="utf-8"))
    if flag != "--sentinels":
        assert ran.out == plain.out
        assert Path("out/results.csv").read_bytes() == Path("plain/results.csv").read_bytes()
        assert "sentinels" not in result
        return
    values = {(cell["column"], cell["group"]): cell["value"] for cell in result["sentinels"][0]["cells"]}
    rows = list(csv.DictReader(Path("out/results.csv").read_text(encoding="utf-8").splitlines()))
    of_csv = {(row["column"], row["group"]): float(row["value"]) for row in rows if row["metric"] == "sentinel"}
    assert of_csv == pytest.approx({key: value for key, value in values.items() if value is not None})
