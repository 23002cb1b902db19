"""A study file is checked as a whole before anything runs, and editors can check it while it is written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capbench.core.errors import StudyError
from capbench.core.yaml import read_yaml, shipped_configs
from capbench.studies.study import TASKS
from capbench.studies.study_file import StudyFile, find_study, load_study, study_schema
from scripts import make_study_schema
from tests.conftest import Ran
from tests.errors import raises

GOOD = """\
schema: 1
name: mine
title: My study
protocols:
  - flickr8k-expert
  - composite/all-references/correctness-tau-b
metrics:
  - bleu-4
  - cider: {df: coco-val}
published: tiger-table1
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_study_is_read_as_written(tmp_path: Path) -> None:
    study = load_study(_write(tmp_path, GOOD))
    assert study.name == "mine"
    assert study.title == "My study"
    assert study.protocols == ("flickr8k-expert", "composite/all-references/correctness-tau-b")
    assert study.metrics == ("bleu-4", "cider")
    assert study.options == {"cider": {"df": "coco-val"}}
    assert study.published == "tiger-table1"


def test_the_title_defaults_to_the_name(tmp_path: Path) -> None:
    assert load_study(_write(tmp_path, GOOD.replace("title: My study\n", ""))).title == "mine"


@pytest.mark.parametrize(
    ("before", "after", "code", "value"),
    [
        ("schema: 1", "schema: 7", "wrong-version", 7),
        ("schema: 1\n", "", "wrong-version", None),
        ("name: mine\n", "", "missing-key", "name"),
        ("name: mine", "name: ../up", "wrong-value", "../up"),
        ("metrics:", "metricz:", "invalid", None),
        ("  - bleu-4\n  - cider: {df: coco-val}\n", "  - 4\n", "wrong-value", 4),
        ("  - bleu-4\n", "  - bleu-4\n  - bleu-4\n", "duplicate", "bleu-4"),
        ("  - flickr8k-expert\n", "  - flickr8k-expert\n  - flickr8k-expert\n", "duplicate", "flickr8k-expert"),
        ("title: My study", "title: [a]", "wrong-type", "title"),
        ("cider: {df: coco-val}", "cider: coco-val", "wrong-value", None),
        ("published: tiger-table1", "models: [a]", "wrong-type", "models"),
    ],
)
def test_a_bad_study_says_what_is_wrong(tmp_path: Path, before: str, after: str, code: str, value: object) -> None:
    assert before in GOOD
    path = _write(tmp_path, GOOD.replace(before, after))
    with raises(StudyError, code, path=path, value=value) as caught:
        load_study(path)
    assert "\n" not in str(caught.value)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = _write(tmp_path, "schema: 2\nnam: x\nprotocols: []\nmetrics: bleu-4\n")
    with pytest.raises(StudyError) as caught:
        load_study(path)
    text = str(caught.value)
    assert "4 problems" in text
    for part in ("unknown key 'nam'", "'schema' is 2", "'name' is missing", "'protocols' should be a list"):
        assert part in text


@pytest.mark.parametrize("text", ["schema: [1", "- a\n- b\n", "just text", ""])
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StudyError):
        load_study(_write(tmp_path, text))


def test_yaml_errors_name_the_row(tmp_path: Path) -> None:
    with raises(StudyError, "wrong-format", path=tmp_path / "study.yaml", row=3):
        load_study(_write(tmp_path, "schema: 1\nname: x\n  title: y\n"))


def test_a_published_table_can_be_a_study_alone(tmp_path: Path) -> None:
    study = load_study(_write(tmp_path, "schema: 1\nname: printed\npublished: faier-table2\n"))
    assert (study.protocols, study.metrics, study.published) == ((), (), "faier-table2")


@pytest.mark.parametrize(
    ("kept", "lacking"), [("metrics: [cider]", "protocols"), ("protocols: [composite]", "metrics")]
)
def test_protocols_and_metrics_belong_together_beside_a_published_table(
    tmp_path: Path, kept: str, lacking: str
) -> None:
    with raises(StudyError, "missing-key", value=lacking):
        load_study(_write(tmp_path, f"schema: 1\nname: half\npublished: faier-table2\n{kept}\n"))


def test_shipped_studies_are_found_by_name_and_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names = [path.stem for path in shipped_configs().glob("*.yaml")]
    assert {"demo", "tiger-table1", "tiger-table2"} <= set(names)
    for name in names:
        assert load_study(find_study(name)).name == name
        assert find_study(f"configs/{name}.yaml") == find_study(name)


def test_an_unknown_study_is_answered_with_the_nearest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(StudyError, "missing-file", path="tiger-tabel1"):
        find_study("tiger-tabel1")


def test_problems_of_all_sections_are_reported_with_their_keys_in_one_line(
    capbench: Callable[..., Ran], tmp_path: Path
) -> None:
    text = """\
schema: 1
name: mine
protocols: [a, a]
metrics: [cider, {bleu-4: 3}, {label: x}, cider]
scores: [{label: x}, {file: f.csv, title: 3}]
models: {tiger: 3}
bootstrap: {resample: 1000, level: 95}
compare: {test: wilcoxon}
combine: [{of: 3, folds: 1}, {foldz: 5}]
curves: {draws: 0, counts: many}
human_ceiling: maybe
titel: x
"""
    path = _write(tmp_path, text)
    with pytest.raises(StudyError) as caught:
        load_study(path)
    told = str(caught.value)
    for part in (
        "'a' occurs twice in 'protocols'",
        "'cider' occurs twice in 'metrics'",
        "the metric entry {'bleu-4': 3}",
        "the metric entry {'label': 'x'}",
        "'file' of entry 1 of 'scores'",
        "'title' of entry 2 of 'scores'",
        "'models' should be",
        "bootstrap has no option 'resample'. Did you mean 'resamples'?",
        "bootstrap.level=95",
        "compare.test=wilcoxon",
        "'of' of 'combine'",
        "combine.folds=1",
        "combine has no option 'foldz'. Did you mean 'folds'?",
        "curves.draws=0",
        "curves.counts=many",
        "'human_ceiling' should be",
        "unknown key 'titel'. Did you mean 'title'?",
    ):
        assert part in told
    assert "17 problems" in told
    ran = capbench("correlate", str(path))
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_the_schema_of_the_documentation_is_that_of_the_models() -> None:
    assert make_study_schema.TARGET.read_text(encoding="utf-8") == make_study_schema.text()


def test_the_schema_has_every_key_and_every_option_of_a_section() -> None:
    schema = study_schema()
    assert set(schema["properties"]) == {field.alias or name for name, field in StudyFile.model_fields.items()}
    assert set(TASKS) <= set(schema["properties"])
    (section, _) = schema["properties"]["curves"]["anyOf"]
    assert set(section["properties"]) == {"counts", "draws", "seed"}
    assert section["properties"]["draws"]["maximum"] == 10_000


def test_shipped_studies_fit_the_schema() -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator(json.loads(make_study_schema.text()))
    for path in shipped_configs().glob("*.yaml"):
        assert list(validator.iter_errors(read_yaml(path, "study"))) == []
    for wrong in ({"schema": 1}, {"schema": 1, "name": "a", "metricz": []}, {"schema": 2, "name": "a"}):
        assert list(validator.iter_errors(wrong))


def test_a_study_without_a_file_needs_no_models_of_files() -> None:
    code = (
        "import sys, capbench.studies.study as study; study.Study('a', 'a', (), ()); "
        "print([name for name in sys.modules if name.startswith('pydantic')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
