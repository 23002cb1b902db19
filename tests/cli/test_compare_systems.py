"""``capbench compare-systems`` and ``score --bootstrap``: sentences, files, exit codes, and errors."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capbench import compare_systems
from capbench.core.errors import CapbenchWarning, DataError
from capbench.reports.systems import system_sentence
from tests.conftest import Ran
from tests.errors import raises
from tests.reports.latex import assert_compiles, assert_well_formed, needs_pdflatex

_WORDS = ["a", "the", "red", "small", "dog", "cat", "man", "house", "runs", "sits", "on", "near", "with", "two"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Captions of a baseline, a clearly better and a clearly worse system of 60 images."""
    monkeypatch.chdir(tmp_path)
    generator = random.Random(7)
    references: dict[str, list[str]] = {}
    systems: dict[str, list[dict[str, str]]] = {"base": [], "good": [], "bad": []}
    for number in range(60):
        meant = generator.choices(_WORDS, k=8)

        def said(share: float, meant: list[str] = meant) -> str:
            return " ".join(generator.choice(_WORDS) if generator.random() < share else word for word in meant)

        references[f"i{number}"] = [said(0.1) for _ in range(3)]
        for name, share in (("base", 0.45), ("good", 0.1), ("bad", 0.8)):
            systems[name].append({"image": f"i{number}", "caption": said(share)})
    _write("references.json", references)
    for name, rows in systems.items():
        _write(f"{name}.json", rows)
    return tmp_path


def _write(name: str, value: Any) -> None:
    Path(name).write_text(json.dumps(value), encoding="utf-8")


def _error(ran: Ran) -> str:
    """The one line of an error with exit code 2."""
    assert ran.code == 2, ran.out
    (line,) = [text for text in ran.err.splitlines() if text.startswith("error: ")]
    assert "Traceback" not in ran.err
    return line


BOTH = ("compare-systems", "base.json", "good.json", "--references", "references.json", "-m", "bleu-4", "-m", "cider")
THREE = ("compare-systems", "base.json", "good.json", "bad.json", "--references", "references.json", "-m", "bleu-4")


def test_a_pair_is_one_sentence_with_its_evidence(folder: Path, capbench: Callable[..., Ran]) -> None:
    ran = capbench(*BOTH, "--bootstrap", "300", "--permutations", "300", "--details")
    assert ran.code == 0, ran.err
    (sentence,) = [line for line in ran.out.splitlines() if " in CIDEr: " in line]
    assert sentence.startswith("good scores higher than base in CIDEr: ")
    # Twice 1/301, by Holm's correction of two comparisons: the smallest value of 300 permutations, rounded up.
    assert "corrected p ≤ 0.0067, uncorrected 95 % interval [+" in sentence
    assert "base (baseline)" in ran.out
    assert "  CIDEr's document frequencies are not resampled" in ran.out.splitlines()
    signature = ran.out.splitlines()[-1]
    assert signature.startswith("compare-systems|capbench:")
    for fact in ("images:60", "bootstrap:300", "permutations:300", "seed:0", "correction:holm", "comparisons:2"):
        assert fact in signature.split("|")
    assert signature not in capbench(*BOTH, "--bootstrap", "300", "--permutations", "300").out


def test_nothing_is_cut_at_80_columns(
    folder: Path, capbench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "a-long-name-of-a-captioning-system-" * 3
    arguments = ["compare-systems", "baseline=base.json", f"{long}=good.json", "--references", "references.json"]
    arguments += ("-m", "bleu", "-m", "rouge-l,meteor,cider", "--bootstrap", "100", "--permutations", "100")
    intervals = json.loads(capbench(*arguments, "--json").out)["table"]["intervals"]
    monkeypatch.setenv("COLUMNS", "80")
    table = capbench(*arguments).out.partition(f"{long} scores higher")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table
    assert "baseline (baseline)" not in table
    for title in ("BLEU-1", "BLEU-4", "ROUGE-L", "METEOR", "CIDEr"):
        assert title in table
    for interval in (of_system for score in intervals.values() for of_system in score.values()):
        assert f"{interval['value']:.4f}" in table
        assert f"[{interval['low']:.4f}, {interval['high']:.4f}]" in table


@pytest.mark.parametrize(("correction", "second"), [("holm", True), ("bh", True), ("none", False)])
def test_an_interval_that_suggests_the_opposite_of_a_corrected_test_is_explained(
    correction: Any, second: bool, folder: Path
) -> None:
    import capbench as cb

    found = cb.compare_systems(
        {"base": "base.json", "good": "good.json"},
        "references.json",
        ["bleu-4", "cider"],
        correction=correction,
        resamples=100,
    )
    pair, other = found.table.pairs
    near = replace(pair, low=0.01, high=0.2, p_value=0.03, p_adjusted=0.06 if second else 0.03, significant=not second)
    found = replace(found, table=replace(found.table, pairs=(near, other)))
    text = system_sentence(near, found)
    assert ("Without the correction for 2 comparisons, the difference is significant." in text) is second
    assert ("corrected p = 0.0600, uncorrected 95 % interval [+0.0100, +0.2000]" in text) is second
    heads = {"holm": "| p (Holm) |", "bh": "| p (BH) |", "none": "| p |"}
    markdown = found.to_markdown()
    assert [head for head in heads.values() if head in markdown] == [heads[correction]]
    assert ("| uncorrected 95 % interval |" in markdown) is second


def test_all_pairs_are_compared_where_asked_and_systems_have_names(folder: Path, capbench: Callable[..., Ran]) -> None:
    arguments = ("compare-systems", "first=base.json", *THREE[2:], "--json")
    found = [
        json.loads(capbench(*arguments, *more).out)["table"] for more in ((), ("--all-pairs", "--test", "bootstrap"))
    ]
    named = [[(pair["system"], pair["other"]) for pair in table["pairs"]] for table in found]
    assert named[0] == [("good", "first"), ("bad", "first")]
    assert named[1] == [*named[0], ("bad", "good")]
    assert (found[1]["permutations"], found[1]["resamples"]) == (None, 1000)


def test_resamples_and_permutations_have_their_own_numbers(folder: Path, capbench: Callable[..., Ran]) -> None:
    def numbers(*options: str) -> tuple[int, int | None]:
        table = json.loads(capbench(*BOTH, "--json", *options).out)["table"]
        return table["resamples"], table["permutations"]

    assert numbers() == (1000, 10_000)
    assert numbers("--bootstrap", "200") == (200, 10_000)
    assert numbers("--permutations", "300") == (1000, 300)
    assert numbers("--bootstrap", "200", "--permutations", "300") == (200, 300)
    assert numbers("--bootstrap", "200", "--test", "bootstrap") == (200, None)
    failure = capbench(*BOTH, "--test", "bootstrap", "--permutations", "300").failure
    assert (failure.code, failure.value) == ("conflict", "--permutations")


def test_the_score_and_its_interval_are_those_of_score_bootstrap(folder: Path, capbench: Callable[..., Ran]) -> None:
    found = json.loads(capbench(*BOTH, "--json", "--seed", "4").out)["table"]["intervals"]
    own = ("score", "--candidates", "good.json", "--references", "references.json", "-m", "bleu-4", "-m", "cider")
    rows = json.loads(capbench(*own, "--bootstrap", "--seed", "4", "--json").out)["scores"]
    assert [row["column"] for row in rows] == list(found)
    for row in rows:  # products of matrices of other shapes round the last digit otherwise
        theirs = found[row["column"]]["good"]
        assert row["interval"] == {
            key: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for key, value in theirs.items()
        }
    assert all(row["corpus"] == row["interval"]["value"] for row in rows)
    assert capbench(*BOTH, "--json", "--seed", "5").out != capbench(*BOTH, "--json", "--seed", "4").out


def test_intervals_of_a_data_set_are_over_its_images(capbench: Callable[..., Ran]) -> None:
    ran = capbench("score", "-m", "cider", "--bootstrap", "100", "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    (row,) = document["scores"]
    assert (row["interval"]["units"], row["interval"]["unit"], document["n"]) == (50, "image", 300)
    assert row["interval"]["low"] < row["corpus"] < row["interval"]["high"]
    shown = capbench("score", "-m", "cider", "--bootstrap", "100").out
    assert f"{row['interval']['low']:.4f} – {row['interval']['high']:.4f}" in shown
    assert "100 resamples of 50 images, seed 0; CIDEr's document frequencies are not resampled" in shown
    assert "interval" not in capbench("score", "-m", "cider").out


def test_all_forms_have_the_same_numbers(folder: Path, capbench: Callable[..., Ran]) -> None:
    arguments = (*THREE, "-m", "cider", "--bootstrap", "100", "--permutations", "100", "--examples", "1", "--json")
    for ending in ("csv", "json", "md", "tex"):
        ran = capbench(*arguments, "--out", f"out.{ending}", "--report", "out.html")
        assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert json.loads(Path("out.json").read_text(encoding="utf-8")) == document
    found = compare_systems(
        ["base.json", "good.json", "bad.json"],
        "references.json",
        ["bleu-4", "cider"],
        resamples=100,
        permutations=100,
        examples=1,
    )
    assert json.loads(json.dumps(found.as_json())) == document
    texts = {name: Path(f"out.{name}").read_text(encoding="utf-8") for name in ("md", "tex", "html")}
    assert (found.to_markdown(), found.to_latex()) == (texts["md"], texts["tex"])
    with open("out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    frame = found.to_frame().to_dict("records")
    for row, of_frame, pair in zip(rows, frame, document["table"]["pairs"], strict=True):
        assert [str(value).lower() if value is True else str(value) for value in of_frame.values()] == [*row.values()]
        assert (row["metric"], row["system"], row["other"]) == (pair["score"], pair["system"], pair["other"])
        assert float(row["p_adjusted"]) == pair["p_adjusted"]
        assert float(row["system_value"]) - float(row["other_value"]) == pytest.approx(pair["difference"], abs=1e-12)
        for text in texts.values():
            assert f"{abs(pair['difference']):.4f}" in text
            # Holm's correction of four comparisons with 100 permutations: none is below 4/101, .0396.
            assert "0.0397" in text
    for example in document["examples"]:
        for system, caption in example["captions"].items():
            assert f"| {example['image']} | {system} | {caption} | {example['scores'][system]:.4f} |" in texts["md"]
            assert caption in texts["html"]
    assert all(document["signature"] in text for text in texts.values())


def test_the_verdict_on_three_systems_is_in_the_json(folder: Path, capbench: Callable[..., Ran]) -> None:
    arguments = (*THREE, "-m", "cider", "--bootstrap", "100", "--permutations", "100")
    ran = capbench(*arguments, "--all-pairs", "--fail-if-worse", "--json", "--out", "out.json")
    assert ran.code == 3
    assert "bad scores significantly lower than base in CIDEr" in ran.err.splitlines()
    document = json.loads(ran.out)
    # Worse than the baseline: 'bad' is also worse than 'good', which is not what is tested.
    assert document["fail_if_worse"] == {
        "worse": [{"system": "bad", "score": "bleu-4"}, {"system": "bad", "score": "cider"}],
        "passed": False,
    }
    assert json.loads(Path("out.json").read_text(encoding="utf-8")) == document
    passed = json.loads(capbench(*BOTH, "--bootstrap", "100", "--permutations", "100", "--fail-if-worse", "--json").out)
    assert passed["fail_if_worse"] == {"worse": [], "passed": True}
    ran = capbench(*arguments, "--json")
    assert (ran.code, "fail_if_worse" in json.loads(ran.out)) == (0, False)


def _captions(folder: Path) -> dict[str, dict[str, str]]:
    return {
        name: {row["image"]: row["caption"] for row in json.loads((folder / f"{name}.json").read_text("utf-8"))}
        for name in ("base", "good", "bad")
    }


def test_examples_are_the_captions_whose_scores_differ_most(folder: Path, capbench: Callable[..., Ran]) -> None:
    ran = capbench(*THREE, "-m", "cider", "--bootstrap", "100", "--permutations", "100", "--examples", "2", "--json")
    examples = json.loads(ran.out)["examples"]
    assert [example["score"] for example in examples] == ["bleu-4", "bleu-4", "cider", "cider"]
    captions, scores = _captions(folder), {}
    for name in captions:
        own = ("score", "-m", "bleu-4", "-m", "cider", "--references", "references.json", "--candidates")
        assert capbench(*own, f"{name}.json", "--out", "scores.csv").code == 0
        with open("scores.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                scores[row["column"], row["image"], name] = float(row["value"])
    for metric in ("bleu-4", "cider"):
        differences = {}
        for image in captions["base"]:
            of_image = [scores[metric, image, name] for name in captions]
            differences[image] = max(of_image) - min(of_image)
        largest = sorted(differences, key=lambda image: -differences[image])[:2]
        of_metric = [example for example in examples if example["score"] == metric]
        assert [example["image"] for example in of_metric] == largest
        for example in of_metric:
            image = example["image"]
            assert example["difference"] == differences[image]
            assert example["scores"] == {name: scores[metric, image, name] for name in captions}
            assert example["captions"] == {name: captions[name][image] for name in captions}
            assert len(example["references"]) == 3
    assert json.loads(capbench(*THREE, "--bootstrap", "100", "--permutations", "100", "--json").out)["examples"] == []


def test_equal_captions_are_no_examples(folder: Path, capbench: Callable[..., Ran]) -> None:
    rows = json.loads(Path("base.json").read_text(encoding="utf-8"))
    _write("almost.json", [{**rows[0], "caption": "zebra"}, *rows[1:]])
    arguments = ("compare-systems", "base.json", "almost.json", "--references", "references.json", "-m", "rouge-l")
    ran = capbench(*arguments, "--bootstrap", "100", "--permutations", "100", "--examples", "5")
    assert ran.code == 0, ran.err
    lines = [line.split()[:2] for line in ran.out.splitlines()]
    start = lines.index(["ROUGE-L:", "largest"])
    assert lines[start + 3 : start + 6] == [["i0", "base"], ["i0", "almost"], []]
    assert capbench(*arguments, "--examples", "-1").code == 2


def test_names_and_captions_are_escaped(folder: Path, capbench: Callable[..., Ran]) -> None:
    rows = json.loads(Path("bad.json").read_text(encoding="utf-8"))
    _write("[b]_d.json", {row["image"]: "50% of <unk> & a_b | {x}" for row in rows})
    arguments = ("compare-systems", "[b]_d.json", "good.json", "--references", "references.json", "-m", "cider")
    flags = ("--bootstrap", "100", "--permutations", "100", "--examples", "2", "--out", "out.tex", "--report", "r.html")
    assert capbench(*arguments, *flags).code == 0
    text, page = Path("out.tex").read_text(encoding="utf-8"), Path("r.html").read_text(encoding="utf-8")
    assert_well_formed(text)
    assert text.count(r"\begin{table") == 3
    assert "\n{}[b]\\_d (baseline) & " in text
    assert r"50\% of $<$unk$>$ \& a\_b \textbar{} \{x\}" in text
    assert "<unk>" not in page
    assert "50% of &lt;unk&gt; &amp; a_b | {x}" in page


@needs_pdflatex
def test_latex_compiles(folder: Path, capbench: Callable[..., Ran]) -> None:
    Path("bad.json").rename("[b]_d.json")
    arguments = ("compare-systems", "[b]_d.json", "good.json", "--references", "references.json", "-m", "cider")
    assert (
        capbench(*arguments, "--bootstrap", "100", "--permutations", "100", "--examples", "2", "--out", "out.tex").code
        == 0
    )
    assert_compiles(Path("out.tex").read_text(encoding="utf-8"), folder)


def test_too_few_permutations_for_a_table_are_raised_and_that_is_said(
    folder: Path, capbench: Callable[..., Ran]
) -> None:
    arguments = ("compare-systems", "base.json", "good.json", "bad.json", "--references", "references.json")
    ran = capbench(*arguments, "-m", "bleu", "--bootstrap", "100", "--permutations", "100", "--details")
    assert ran.code == 0, ran.err
    assert re.search(r"\b318 permutations\b.*\b100\b.*\b8 comparisons", ran.err)
    assert "bootstrap:100|test:paired-permutation|permutations:318" in ran.out


def _several(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return [*rows, {"image": "i3", "caption": "a dog"}]


@pytest.mark.parametrize(
    ("change", "code", "value", "message"),
    [
        (_several, "duplicate", "i3", "2 captions"),
        (lambda rows: rows[2:], "missing-image", "i0", "2 images that base.json has: i0, i1"),
        (lambda rows: rows[:1], "missing-image", "i1", "59 images that base.json has: i1, i2, i3, …"),
        (lambda rows: [], "missing-caption", None, ""),
        (lambda rows: [*rows, {"image": "zoo", "caption": "a dog"}], "missing-references", "zoo", ""),
    ],
)
def test_captions_that_are_not_of_the_same_images_are_one_line(
    change: Callable[[list[dict[str, str]]], Any],
    code: str,
    value: str | None,
    message: str,
    folder: Path,
    capbench: Callable[..., Ran],
) -> None:
    _write("good.json", change(json.loads(Path("good.json").read_text(encoding="utf-8"))))
    ran = capbench(*BOTH)
    assert message in _error(ran)
    assert (ran.failure.code, ran.failure.value, ran.failure.path) == (code, value, "good.json")


def test_the_first_caption_of_each_image_is_compared(folder: Path, capbench: Callable[..., Ran]) -> None:
    expected = json.loads(capbench(*BOTH, "--json").out)["table"]
    _write("good.json", _several(json.loads(Path("good.json").read_text(encoding="utf-8"))))
    ran = capbench(*BOTH, "--json", "--keep-first")
    assert json.loads(ran.out)["table"] == expected
    assert "good: 1 further caption of" in ran.err
    systems, metrics = ["base.json", "good.json"], ["bleu-4", "cider"]
    with raises(DataError, "duplicate", path="good.json", value="i3"):
        compare_systems(systems, "references.json", metrics)
    with pytest.warns(CapbenchWarning, match="good: 1 further caption"):
        compared = compare_systems(systems, "references.json", metrics, keep_first=True)
    assert compared.as_json()["table"]["intervals"] == expected["intervals"]


def test_warnings_are_those_of_score(folder: Path, capbench: Callable[..., Ran]) -> None:
    references = json.loads(Path("references.json").read_text(encoding="utf-8"))
    of_score = {}
    for name, copied in (("base", 1), ("good", 2)):
        rows = json.loads(Path(f"{name}.json").read_text(encoding="utf-8"))
        for row in rows[:copied]:
            row["caption"] = f"{references[row['image']][0]} ."
        _write(f"{name}.json", rows)
        ran = capbench("score", "--candidates", f"{name}.json", "--references", "references.json", "-m", "cider")
        (of_score[name],) = re.findall("warning: (.*)", ran.err)
    ran = capbench(*BOTH, "--json")
    expected = [f"{name}: {line}" for name, line in of_score.items()]
    assert json.loads(ran.out)["warnings"] == re.findall("warning: (.*)", ran.err) == expected
    Path("good.json").write_bytes(Path("base.json").read_bytes())
    assert json.loads(capbench(*BOTH, "--json").out)["warnings"] == [f"base, good: {of_score['base']}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("base.json",), "two systems"),
        (("base.json", "base.json"), "'base'"),
        (("base.json", "base=good.json"), "base.json and good.json"),
        (("base.json", "none.json"), "none.json"),
        (("base.json", "good.json", "--out", "a.xlsx"), ".xlsx"),
        (("base.json", "good.json", "--out", "base.json/a.csv"), "base.json/a.csv"),
        (("base.json", "good.json", "-m", "blue"), "unknown metric 'blue'"),
        (("base.json", "good.json", "-m", "nneval"), "nneval requires"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    arguments: tuple[str, ...], message: str, folder: Path, capbench: Callable[..., Ran]
) -> None:
    assert message in _error(capbench("compare-systems", *arguments, "--references", "references.json"))


def test_one_image_has_no_interval(folder: Path, capbench: Callable[..., Ran]) -> None:
    _write("references.json", {"i0": ["a dog"]})
    for name in ("base", "good"):
        _write(f"{name}.json", [{"image": "i0", "caption": "a dog runs"}])
    assert "one image" in _error(capbench(*BOTH[:-4], "-m", "bleu-1"))
    own = ("score", "-m", "bleu-1", "--candidates", "base.json", "--references", "references.json")
    assert "one image" in _error(capbench(*own, "--bootstrap"))
    assert "--bootstrap" in _error(capbench(*own, "--seed", "1"))
