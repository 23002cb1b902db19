"""What a study says about intervals and tests is checked with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import StudyError
from capbench.datasets.protocol import ItemSelection, Protocol, accuracy, correlations
from capbench.studies.study import BootstrapSettings, Study, TestSettings, misfit
from capbench.studies.study_file import load_study
from tests.errors import raises

STUDY = """\
schema: 1
name: mine
protocols: flickr8k-expert
metrics: [cider, meteor]
"""


def load(folder: Path, more: str) -> Study:
    path = folder / "study.yaml"
    path.write_text(STUDY + more, encoding="utf-8")
    return load_study(path)


def test_without_a_word_there_are_no_intervals_and_no_tests(tmp_path: Path) -> None:
    study = load(tmp_path, "")
    assert (study.bootstrap, study.compare, study.human_ceiling) == (None, None, True)
    assert not study.sentinels


def test_settings_are_read_as_written(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        "bootstrap: {resamples: 2000, unit: item, seed: 7, method: bca, level: 0.9}\n"
        "compare: {test: bootstrap, correction: bh, alpha: 0.01, resamples: 3000, seed: 8, unit: rating}\n"
        "human_ceiling: false\n"
        "sentinels: true\n",
    )
    assert study.sentinels
    assert study.bootstrap == BootstrapSettings(2000, "item", 7, "bca", 0.9)
    assert study.compare == TestSettings("bootstrap", "bh", 0.01, 3000, 8, "rating")
    assert not study.human_ceiling


def test_short_forms_and_defaults(tmp_path: Path) -> None:
    study = load(tmp_path, "bootstrap: 500\ncompare: williams\n")
    assert study.bootstrap == BootstrapSettings(500)
    assert study.compare == TestSettings("williams")
    study = load(tmp_path, "bootstrap: {}\ncompare: {}\n")
    assert study.bootstrap == BootstrapSettings()
    assert study.compare == TestSettings()


def test_tests_take_unit_and_seed_of_the_intervals(tmp_path: Path) -> None:
    study = load(tmp_path, "bootstrap: {unit: rating, seed: 3}\ncompare: {seed: 4}\n")
    assert study.compare == TestSettings(unit="rating", seed=4)


@pytest.mark.parametrize(
    ("more", "code", "value"),
    [
        ("bootstrap: true", "wrong-value", True),
        ("bootstrap: {resample: 1000}", "unknown-option", "resample"),
        ("bootstrap: {resamples: 50}", "wrong-value", 50),
        ("bootstrap: {resamples: 1e3}", "wrong-value", 1000.0),
        ("bootstrap: {unit: images}", "wrong-value", "images"),
        ("bootstrap: {unit: [image]}", "wrong-value", ["image"]),
        ("bootstrap: {seed: -1}", "wrong-value", -1),
        ("bootstrap: {method: basic}", "wrong-value", "basic"),
        ("bootstrap: {level: 95}", "wrong-value", 95),
        ("compare: 3", "wrong-value", 3),
        ("compare: {test: wilcoxon}", "wrong-value", "wilcoxon"),
        ("compare: {correction: sidak}", "wrong-value", "sidak"),
        ("compare: {alpha: 0}", "wrong-value", 0),
        ("compare: {alpha: true}", "wrong-value", True),
        ("compare: {resamples: many}", "wrong-value", "many"),
        ("human_ceiling: 3", "wrong-type", "human_ceiling"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, more: str, code: str, value: object) -> None:
    with raises(StudyError, code, value=value):
        load(tmp_path, more + "\n")


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as caught:
        load(tmp_path, "bootstrap: {unit: dog, level: 2}\ncompare: {test: t, alpha: 7}\npublish: x\n")
    assert "5 problems" in str(caught.value)


SINGLE, DRAWN = ItemSelection("all", ""), ItemSelection("drawn", "", draws=3, seed=0)
STATISTICS = {**correlations("h"), **accuracy("v")}


@pytest.mark.parametrize(
    ("test", "items", "statistic", "part"),
    [
        ("permutation", DRAWN, "tau-b", ""),
        ("bootstrap", DRAWN, "v-ties-half", ""),
        ("williams", SINGLE, "pearson", ""),
        ("steiger", SINGLE, "spearman", ""),
        ("williams", SINGLE, "tau-c", "Pearson's r or Spearman's rho"),
        ("steiger", SINGLE, "v-strict", "Pearson's r or Spearman's rho"),
        ("williams", DRAWN, "pearson", "has 3"),
        ("mcnemar", SINGLE, "v-strict", ""),
        ("mcnemar", SINGLE, "v-ties-half", "one half"),
        ("mcnemar", SINGLE, "pearson", "requires an accuracy"),
    ],
)
def test_a_test_that_does_not_fit_a_protocol_is_known_before(
    test: str, items: ItemSelection, statistic: str, part: str
) -> None:
    found = misfit(TestSettings(test), Protocol("d", items, STATISTICS[statistic]))  # type: ignore[arg-type]
    assert bool(found) == bool(part)
    assert part in found
