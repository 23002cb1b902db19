"""``capbench correlate`` as a user types it, on the embedded sample."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.studies.results import load_result
from tests.conftest import Ran

pytestmark = pytest.mark.java


def test_a_quick_look_prints_the_default_protocol(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench("correlate", "--dataset", "flickr8k-expert", "--metric", "bleu-1", "--metric", "cider", "--details")
    assert ran.code == 0, ran.err
    assert "embedded synthetic sample" in ran.out.splitlines()[0]
    assert "flickr8k-expert:1/no-own-captions/unaggregated-tau-c: 900 ratings of 300 items" in ran.out
    assert "cider|capbench:" in ran.out
    assert "wrote" not in ran.err


def test_without_arguments_every_judged_data_set_is_measured(capbench: Callable[..., Ran]) -> None:
    ran = capbench("correlate", "--metric", "bleu", "--json")
    found = json.loads(ran.out)
    assert [p["dataset"] for p in found["protocols"]] == [
        "flickr8k-expert",
        "flickr8k-crowdflower",
        "composite",
        "pascal-50s",
        "foil",
        "thumb",
        "nebula",
        "polaris",
    ]
    assert all(-1 <= cell["value"] <= 1 for cell in found["cells"])
    assert found["sample"] is True


def test_without_arguments_what_is_not_here_is_left_out_and_imported_judgements_are_measured(
    capbench: Callable[..., Ran], sample: Path, tmp_path: Path
) -> None:
    import shutil

    root = tmp_path / "data"
    shutil.copytree(sample / "composite", root / "composite", ignore=shutil.ignore_patterns("*.png"))
    ratings = tmp_path / "mine.csv"
    ratings.write_text(
        "image,candidate,reference_1,ratings\na,a dog runs,a dog is running,4\nb,a cat,a dog is running,1\n"
        "c,the dog is running,a dog is running,5\n",
        encoding="utf-8",
    )
    imported = capbench("data", "import", ratings, "--name", "mine", "--scale", "1-5", "--data", root)
    assert imported.code == 0, imported.err
    shutil.copytree(sample / "flickr8k", root / "flickr8k", ignore=shutil.ignore_patterns("*.png", "Crowd*"))
    ran = capbench("correlate", "-m", "bleu-1", "--data", root, "--json")
    assert ran.code == 0, ran.err
    assert [protocol["dataset"] for protocol in json.loads(ran.out)["protocols"]] == ["flickr8k-expert", "mine"]
    # Composite's files are here, but not all captions of its images.
    absent = "flickr8k-crowdflower, composite, pascal-50s, foil, thumb, nebula, polaris"
    assert absent in ran.err
    assert "capbench data info NAME" in ran.err


@pytest.mark.parametrize(
    ("dataset", "default", "other"),
    [
        ("composite", "any-candidate-out/correctness-tau-c", "same-text-out/correctness-tau-c"),
        ("pascal-50s", "random-5-refs/direct-strict", "random-5-refs/consensus-strict"),
    ],
)
def test_a_quick_look_shows_the_number_of_the_other_common_protocol(
    capbench: Callable[..., Ran], sample: Path, tmp_path: Path, dataset: str, default: str, other: str
) -> None:
    import shutil

    root = tmp_path / "data"
    shutil.copytree(sample, root, ignore=shutil.ignore_patterns("*.png"))
    command = ("correlate", "-m", "bleu-1", "-m", "cider", "--data", root)
    result = json.loads(capbench(*command, "-d", dataset, "--json").out)
    (practice,) = result["practices"]
    assert (practice["protocol"], practice["other"]) == (f"{dataset}/{default}", f"{dataset}/{other}")
    assert ("TIGEr" in practice["used_by"]) != ("TIGEr" in practice["other_used_by"])
    named = json.loads(capbench(*command, "-p", f"{dataset}/{other}", "--json").out)
    expected = {cell["column"]: cell["value"] for cell in named["cells"] if not cell["group"]}
    assert practice["values"] == expected
    text = capbench(*command, "-d", dataset, "--details", "--digits", "2").out
    (line,) = (line for line in text.splitlines() if f"{dataset}:1/{other}: " in line)
    assert all(f"{result['columns'][column]} {100 * value:.2f}" in line for column, value in expected.items())
    assert f"use {other}, with other numbers" in text
    # Named protocols, other data sets, the sample and metrics without numbers have no such note.
    assert "practices" not in named
    assert "practices" not in json.loads(capbench(*command, "-d", "flickr8k-expert", "--json").out)
    assert "practices" not in json.loads(capbench("correlate", "-d", dataset, "-m", "bleu-1", "--json").out)
    assert "practices" not in json.loads(capbench(*command[:1], *command[5:], "-d", dataset, "-m", "wmd", "--json").out)


def test_a_study_writes_four_files_that_agree(
    capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = capbench("correlate", "tiger-table1")
    assert ran.code == 1, ran.err  # TIGEr's rows wait
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["sample"]  # committed results stay
    folder = tmp_path / "results" / "sample" / "tiger-table1"
    assert sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) == [
        "results.csv",
        "results.json",
        "results.md",
        "results.tex",
    ]
    result = load_result(folder / "results.json")
    cell = result.cell("flickr8k-expert/no-own-captions/unaggregated-tau-c", "cider")
    assert cell is not None
    assert cell.value is not None
    for name in ("results.md", "results.tex"):
        assert f"{100 * cell.value:.1f}" in (folder / name).read_text(encoding="utf-8")
    assert f"{100 * cell.value:.1f}" in ran.out
    assert f"{cell.value!r}" in (folder / "results.csv").read_text(encoding="utf-8")


def test_a_data_set_restricts_a_study_and_an_absent_one_is_an_error(capbench: Callable[..., Ran]) -> None:
    ran = capbench("correlate", "field-2025", "-d", "composite", "--without", "spice", "--json")
    found = {protocol["id"] for protocol in json.loads(ran.out)["protocols"]}
    assert found == {f"composite/any-candidate-out/correctness-tau-{kind}" for kind in "bc"}
    absent = capbench("correlate", "field-2025", "-d", "thumb")
    assert (absent.code, absent.err.count("\n")) == (2, 1)
    assert "thumb" in absent.err


def test_missing_files_are_listed_and_the_exit_code_is_1(
    capbench: Callable[..., Ran], sample: Path, tmp_path: Path
) -> None:
    import shutil

    root = tmp_path / "data"
    shutil.copytree(sample / "flickr8k", root / "flickr8k", ignore=shutil.ignore_patterns("*.png"))
    ran = capbench(
        "correlate", "-d", "flickr8k-expert", "-d", "pascal-50s", "-m", "bleu-1", "--data", root, "--details"
    )
    assert ran.code == 1
    assert "pascal-50s/random-5-refs/direct-strict" in ran.out
    assert "there is no such file" in ran.out
    assert "flickr8k-expert:1/no-own-captions/unaggregated-tau-c: 900 ratings" in ran.out


def test_nothing_at_hand_is_an_error(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = capbench("correlate", "-d", "pascal-50s", "-m", "bleu-1", "--data", tmp_path / "empty")
    assert ran.code == 2
    assert ran.err.count("\n") <= 2
    assert "there is no such file" in ran.err


QUICK = ("correlate", "-d", "flickr8k-expert", "-m", "bleu-1", "-m", "bleu-4", "-m", "cider")


def test_flags_take_the_place_of_what_a_study_file_says(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: 1\nname: mine\nprotocols: flickr8k-expert\nmetrics: [bleu-1, cider]\n"
        "bootstrap: {resamples: 150, unit: item, seed: 4}\ncompare: {alpha: 0.1}\n",
        encoding="utf-8",
    )
    arguments = ("correlate", path, "--out", tmp_path / "out", "--json")
    found = json.loads(capbench(*arguments).out)
    boot, test = found["protocols"][0]["bootstrap"], found["comparisons"][0]
    assert (boot["resamples"], boot["unit"], boot["seed"], boot["method"]) == (150, "item", 4, "percentile")
    assert (test["alpha"], test["unit"], test["seed"], test["correction"]) == (0.1, "item", 4, "holm")
    found = json.loads(capbench(*arguments, "--unit", "image", "--interval", "bca", "--correction", "bh").out)
    boot, test = found["protocols"][0]["bootstrap"], found["comparisons"][0]
    assert (boot["resamples"], boot["unit"], boot["seed"], boot["method"]) == (150, "image", 4, "bca")
    assert (test["alpha"], test["unit"], test["seed"], test["correction"]) == (0.1, "image", 4, "bh")


def test_an_option_comes_before_what_a_study_file_says_of_it(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: 1\nname: mine\nprotocols: flickr8k-expert\nmetrics: [rouge-l, {cider: {df: images, sigma: 5.0}}]\n",
        encoding="utf-8",
    )
    arguments = ("correlate", path, "--out", tmp_path / "out", "--json")
    asked = json.loads(capbench(*arguments, "--option", "cider.df=coco-val").out)
    said = json.loads(capbench(*arguments).out)
    assert "sigma:5" in str(asked)
    assert "sigma:5" in str(said)
    assert ("df:coco-val" in str(asked), "df:images" in str(asked)) == (True, False)
    assert ("df:coco-val" in str(said), "df:images" in str(said)) == (False, True)
    wrong = capbench(*arguments, "--option", "cider.df=images", "--option", "cidr.df=images")
    assert wrong.code == 2
    assert "cidr" in wrong.err


def test_changes_of_rank_are_tested_with_the_settings_of_the_flags(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    study = ("correlate", "-d", "pascal-50s", "-m", "bleu-1", "-m", "cider", "-m", "rouge-l")
    flags = ("--compare", "permutation", "--correction", "bh", "--alpha", "0.1", "--permutations", "200", "--seed", "4")
    ran = capbench(*study, "--all-protocols", *flags, "--unit", "item", "--out", tmp_path, "--details")
    assert ran.code == 0, ran.err
    assert "permutation test (PERM-BOTH) over items, 200 permutations, seed 4; Benjamini and Hochberg's" in ran.out
    found = json.loads((tmp_path / "all-protocols.json").read_text(encoding="utf-8"))
    (data,) = found["datasets"]
    assert [test["protocol"] for test in found["result"]["comparisons"]] == [p["id"] for p in data["protocols"]]
    assert (tmp_path / "all-protocols-reversals.csv").exists()
    alone = json.loads(capbench(*study, *flags, "--unit", "item", "--json").out)
    assert next(test for test in alone["comparisons"] if not test["group"]) == found["result"]["comparisons"][0]


@pytest.mark.parametrize(
    ("options", "code", "value"),
    [
        (("--compare", "williams"), "conflict", "williams"),
        (("--interval", "bca"), "missing-option", "--interval"),
        (("--permutations", "500"), "missing-option", "--permutations"),
        (("--unit", "image"), "missing-option", "--unit"),
        (("--compare", "permutation", "--alpha", "2"), "wrong-value", 2.0),
        (("--all-protocols", "-p", "unaggregated-tau-b"), "conflict", "--protocol"),
        (("--all-protocols", "--bootstrap", "500"), "conflict", "--bootstrap"),
        (("--all-protocols", "--seed", "5"), "missing-option", "--seed"),
        (("--all-protocols", "--compare", "williams"), "conflict", "williams"),
        (("--all-protocols", "--sentinels"), "conflict", "--sentinels"),
        (("--all-protocols", "--cite"), "conflict", "--cite"),
        (("--cite", "--json"), "conflict", "--cite"),
        (("--items",), "missing-option", "--items"),
        (("--escape-formulas",), "missing-option", "--escape-formulas"),
        (("--counts", "1,2"), "missing-option", "--counts"),
        (("--group", "MM"), "missing-option", "--group"),
        (("--references-curve", "--compare", "permutation"), "conflict", "--compare"),
        (("--references-curve", "--bootstrap"), "conflict", "--bootstrap"),
        (("--references-curve", "--all-protocols"), "conflict", "--all-protocols"),
        (("--references-curve", "--sentinels"), "conflict", "--sentinels"),
        (("--references-curve", "-d", "composite,pascal-50s"), "too-many", "composite"),
        (("--references-curve", "--counts", "x"), "not-a-number", "x"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: tuple[str, ...], code: str, value: object, capbench: Callable[..., Ran]
) -> None:
    ran = capbench(*QUICK, *options)
    assert (ran.code, ran.failure.code, ran.failure.value) == (2, code, value)


def test_a_metric_is_left_out_of_a_study_and_nothing_is_amiss(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    ran = capbench(*QUICK, "--without", "cider", "--out", tmp_path)
    assert ran.code == 0, ran.err
    row = next(line for line in ran.out.splitlines() if line.strip().startswith("CIDEr"))
    assert row.split() == ["CIDEr", "left", "out"]
    assert "CIDEr left out (--without)" in ran.out
    assert "left out" in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_a_name_that_a_study_does_not_have_is_noted_and_the_study_runs(capbench: Callable[..., Ran]) -> None:
    ran = capbench(*QUICK, "--without", "cidr", "--without", "spice", "--json")
    assert ran.code == 0, ran.err
    assert "--without cidr" in ran.err
    assert "'cider'" in ran.err
    assert "--without spice" in ran.err
    assert json.loads(ran.out)["missing"] == []


@pytest.mark.parametrize(
    "command",
    [
        QUICK,
        ("correlate", "--references-curve", "-d", "flickr8k-expert", "-m", "bleu-1"),
        ("papers", "tiger-table1"),
    ],
)
def test_the_name_of_a_file_is_not_taken_for_a_folder_of_results(
    command: tuple[str, ...], capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    ran = capbench(*command, "--out", tmp_path / "x.csv")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"--out {tmp_path / 'x'}" in ran.err
    assert not (tmp_path / "x.csv").exists()


def test_tables_by_source_come_on_request(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    asked = ("correlate", "-d", "composite", "-m", "bleu-1", "--out", tmp_path)
    assert "by source" in capbench(*asked, "--by-source").out
    ran = capbench(*asked)
    assert ran.code == 0, ran.err
    assert "by source" not in ran.out
    assert "by source" not in (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "8k" in (tmp_path / "results.csv").read_text(encoding="utf-8")


def test_sentinels_are_rows_of_every_output(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    arguments = ("correlate", "-d", "composite", "-m", "cider,rouge-l", "-o", tmp_path)
    ran = capbench(*arguments, "--sentinels")
    assert ran.code == 0, ran.err
    result = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    values = {(cell["column"], cell["group"]): cell["value"] for cell in result["sentinels"][0]["cells"]}
    assert len(values) == 5 * 4
    shown = f"{100 * values['source', '']:.1f}"
    assert f"| source | {shown} |" in (tmp_path / "results.md").read_text(encoding="utf-8")
    assert f"source & {shown} " in (tmp_path / "results.tex").read_text(encoding="utf-8")
    assert re.search(rf"^source +{shown}\b", ran.out, re.MULTILINE)
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()))
    of_csv = {(row["column"], row["group"]): float(row["value"]) for row in rows if row["metric"] == "sentinel"}
    assert of_csv == pytest.approx(values)
    assert {row["beats_sentinels"] for row in rows if row["metric"] != "sentinel"} <= {"True", "False"}
    capbench(*arguments)
    assert "sentinel" not in (tmp_path / "results.json").read_text(encoding="utf-8")
    assert "sentinel" not in (tmp_path / "results.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("omitted", [False, True])
def test_a_report_has_sentinels_by_default_and_no_other_output(
    capbench: Callable[..., Ran], tmp_path: Path, omitted: bool
) -> None:
    page, arguments = tmp_path / "page.html", ["correlate", "-d", "thumb", "-m", "cider,rouge-l"]
    plain = capbench(*arguments, "-o", tmp_path / "plain")
    options = ["-o", tmp_path / "out", "--report", page]
    ran = capbench(*arguments, *options, *(["--no-sentinels"] if omitted else []))
    assert (ran.code, ran.out) == (0, plain.out)
    assert ("image-mean (bound)" in page.read_text(encoding="utf-8")) is not omitted
    assert (tmp_path / "out/results.csv").read_bytes() == (tmp_path / "plain/results.csv").read_bytes()
    assert "sentinels" not in json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
