"""A study file is checked as a whole before anything runs, and editors can check it while it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capbench.core.errors import StudyError, UsageError
from capbench.core.yaml import find_config, read_yaml, shipped_configs
from capbench.datasets.protocol import ItemSelection, Protocol, accuracy, correlations
from capbench.metrics.from_file import ScoresEntry
from capbench.studies.study import BootstrapSettings, CurveSettings, Study, TestSettings, misfit, with_statistics
from capbench.studies.study_file import load_study, study_schema
from scripts import make_study_schema
from tests.errors import raises

GOOD = """\
schema: 1
name: mine
protocols: [flickr8k-expert, composite/all-references/correctness-tau-b]
metrics:
  - bleu-4
  - cider: {df: coco-val}
"""


def load(folder: Path, more: str = "", text: str = GOOD) -> Study:
    path = folder / "study.yaml"
    path.write_text(text + more, encoding="utf-8")
    return load_study(path)


def test_a_study_is_read_as_written(tmp_path: Path) -> None:
    study = load(tmp_path)
    assert (study.name, study.title, study.published) == ("mine", "mine", None)
    assert study.protocols == ("flickr8k-expert", "composite/all-references/correctness-tau-b")
    assert (study.metrics, study.options) == (("bleu-4", "cider"), {"cider": {"df": "coco-val"}})
    assert (study.bootstrap, study.compare, study.human_ceiling, study.sentinels) == (None, None, True, False)
    study = load(
        tmp_path,
        "title: My study\nmodels: {tiger: a.pth}\nfeatures: a.h5\nscores: [f.csv, {file: g.csv, columns: [a, b]}]\n"
        "bootstrap: {resamples: 2000, unit: item, seed: 7, method: bca, level: 0.9}\n"
        "compare: {test: bootstrap, correction: bh, alpha: 0.01, resamples: 3000, seed: 8, unit: rating}\n"
        "human_ceiling: false\nsentinels: true\n",
        GOOD + "  - {label: again, metric: cider, title: Again, features: b.h5, model: b.pth, df: images}\n",
    )
    assert study.metrics == ("bleu-4", "cider", "again=cider")
    assert study.options == {"cider": {"df": "coco-val"}, "again": {"df": "images"}}
    assert (study.title, study.titles) == ("My study", {"again": "Again"})
    assert (study.features, study.features_of) == ("a.h5", {"again": "b.h5"})
    assert (study.model, study.models) == (None, {"tiger": "a.pth", "again": "b.pth"})
    assert study.scores == (ScoresEntry("f.csv"), ScoresEntry("g.csv", options={"columns": "a,b"}))
    assert study.bootstrap == BootstrapSettings(2000, "item", 7, "bca", 0.9)
    assert study.compare == TestSettings("bootstrap", "bh", 0.01, 3000, 8, "rating")
    assert (study.human_ceiling, study.sentinels) == (False, True)


def test_short_forms_and_defaults(tmp_path: Path) -> None:
    study = load(tmp_path, "bootstrap: 500\ncompare: williams\nfeatures: {tiger: a.h5}\nmodels: a.pth\n")
    assert (study.bootstrap, study.compare) == (BootstrapSettings(500), TestSettings("williams"))
    assert (study.features, study.features_of, study.model, study.models) == (None, {"tiger": "a.h5"}, "a.pth", {})
    # Tests take unit and seed of the intervals.
    study = load(tmp_path, "bootstrap: {unit: rating, seed: 3}\ncompare: {seed: 4}\ncurves: {counts: [5, 1, 5]}\n")
    assert study.compare == TestSettings(unit="rating", seed=4)
    assert study.curves == CurveSettings(counts=(1, 5))
    printed = load(tmp_path, text="schema: 1\nname: printed\npublished: faier-table2\n")
    assert (printed.protocols, printed.metrics, printed.published) == ((), (), "faier-table2")


CHANGED = [
    ("schema: 1", "schema: 7", "wrong-version", 7),
    ("schema: 1\n", "", "wrong-version", None),
    ("name: mine\n", "", "missing-key", "name"),
    ("name: mine", "name: ../up", "wrong-value", "../up"),
    ("metrics:", "metricz:", None, None),
    ("  - bleu-4\n  - cider: {df: coco-val}\n", "  - 4\n", "wrong-value", 4),
    ("  - bleu-4\n", "  - bleu-4\n  - bleu-4\n", "duplicate", "bleu-4"),
    ("cider: {df: coco-val}", "cider: coco-val", "wrong-value", None),
    ("name: mine\n", "name: mine\nanswers: true\n", "unknown-key", "answers"),
]
ADDED = [
    ("title: [a]", "wrong-value", ["a"]),
    ("models: {tiger: 3}", "wrong-value", 3),
    ("bootstrap: true", "wrong-value", True),
    ("bootstrap: {resample: 1000}", "unknown-option", "resample"),
    ("bootstrap: {resamples: 50}", "wrong-value", 50),
    ("bootstrap: {resamples: 1e3}", "wrong-value", 1000.0),
    ("compare: 3", "wrong-value", 3),
    ("scores: [{label: x}]", "wrong-type", "scores"),
    ("retrieval: {captions: flickr8k}", "conflict", "protocols"),
]


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        *((GOOD.replace(before, after), code, value) for before, after, code, value in CHANGED),
        *((f"{GOOD}{more}\n", code, value) for more, code, value in ADDED),
        ("schema: 1\nname: half\npublished: faier-table2\nmetrics: [cider]\n", "missing-key", "protocols"),
        ("schema: 1\nname: half\npublished: faier-table2\nprotocols: [composite]\n", "missing-key", "metrics"),
        ("schema: [1", "wrong-format", None),
        ("- a\n- b\n", None, None),
        ("", None, None),
    ],
)
def test_a_bad_study_says_what_is_wrong(tmp_path: Path, text: str, code: str | None, value: object) -> None:
    with pytest.raises(StudyError) as caught:
        load(tmp_path, text=text)
    assert "\n" not in str(caught.value)
    assert (caught.value.code, caught.value.value) == (code, value) or code is None


def test_settings_are_checked_in_python_too() -> None:
    with raises(UsageError, "wrong-value", value=5):
        BootstrapSettings.read("bootstrap", {"resamples": 5})
    with raises(UsageError, "unknown-option", value="seeds"):
        BootstrapSettings.read("bootstrap", {"seeds": 5})


def test_choices_of_a_command_change_the_files_statistics() -> None:
    study = Study("s", bootstrap=BootstrapSettings(unit="rating", seed=3))
    added = with_statistics(study, {"compare": "bootstrap", "alpha": 0.1}, str)
    assert added.compare == TestSettings("bootstrap", alpha=0.1, unit="rating", seed=3)
    assert with_statistics(study, {"seed": 4}, str).bootstrap == BootstrapSettings(unit="rating", seed=4)
    with raises(UsageError, "missing-option", value="alpha"):
        with_statistics(study, {"alpha": 0.1}, str)


def test_shipped_studies_are_found_by_name_load_and_fit_the_schema(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = json.loads(make_study_schema.TARGET.read_text(encoding="utf-8"))
    validator = pytest.importorskip("jsonschema").Draft202012Validator(schema)
    paths = list(shipped_configs().glob("*.yaml"))
    assert {"demo", "tiger-table1", "tiger-table2"} <= {path.stem for path in paths}
    for path in paths:
        assert load_study(find_config(path.stem)).name == path.stem
        assert find_config(f"configs/{path.stem}.yaml") == find_config(path.stem)
        assert list(validator.iter_errors(read_yaml(path, "study"))) == []
    for wrong in ({"schema": 1}, {"schema": 1, "name": "a", "metricz": []}, {"schema": 2, "name": "a"}):
        assert list(validator.iter_errors(wrong))
    with raises(StudyError, "missing-file", path="tiger-tabel1"):
        find_config("tiger-tabel1")


def test_the_schema_of_the_documentation_is_that_of_the_model() -> None:
    assert json.loads(make_study_schema.TARGET.read_text(encoding="utf-8")) == study_schema()
    assert study_schema()["$defs"]["CurveSettings"]["properties"]["draws"]["maximum"] == 10_000


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
