"""Python functions and commands give the same numbers under the same keys, on the embedded sample."""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import capbench as cb
from capbench.core.errors import StudyError
from tests.conftest import Ran
from tests.errors import raises

Capbench = Callable[..., Ran]
EXPERT = "flickr8k-expert"
STUDY = """
schema: 1
name: small
protocols: [composite/same-text-out/correctness-tau-c, flickr8k-expert]
metrics: [bleu-1, {cider: {sigma: 3}}, {label: again, metric: cider}]
compare: {test: permutation, resamples: 100}
"""


def plain(value: Any) -> Any:
    """A JSON value without times and numbers of cached scores, which differ from run to run."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items() if key not in ("created", "seconds", "cached")}
    return [plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def printed(capbench: Capbench, *arguments: str | Path, code: int = 0) -> Any:
    ran = capbench(*arguments, "--json")
    assert ran.code == code, ran.err
    return plain(json.loads(ran.out))


@pytest.fixture
def incomplete(tmp_path: Path) -> Path:
    """Scores of all candidates of PASCAL-50S but one."""
    path = tmp_path / "mine.csv"
    items = {(item.image, item.candidate) for item in cb.load("pascal-50s", "random-5-refs").items}
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "candidate", "mine"])
        rows.writerows([image, text, len(text)] for image, text in sorted(items)[1:])
    return path


def test_several_draws_and_metrics_with_a_missing_score(capbench: Capbench, incomplete: Path) -> None:
    protocol = "pascal-50s/random-5-refs/direct-strict"
    flags = ("-p", protocol, "-m", "bleu-1", "-m", "rouge-l", "-m", "mine", "--scores", incomplete)
    command = printed(capbench, "correlate", *flags, "--bootstrap", "100", "--compare", "permutation", code=1)
    with pytest.warns(cb.CapbenchWarning, match=r"mine is undefined.* 1 of the 240 items"):
        result = cb.correlate(
            protocol=protocol,
            metrics=["bleu-1", "rouge-l", "mine"],
            scores=[incomplete],
            bootstrap=100,
            compare="permutation",
        )
    assert plain(result.model_dump(mode="json")) == command
    (info,) = result.protocols
    assert info.draws == 5
    # The groups that the missing caption does not belong to have their numbers.
    assert {(cell.column, cell.group) for cell in result.undefined} == {("mine", ""), ("mine", "HC"), ("mine", "HI")}

    spared = printed(capbench, "correlate", *flags, "--allow-missing")
    with warnings.catch_warnings():
        warnings.simplefilter("error", cb.CapbenchWarning)
        whole = cb.correlate(
            protocol=protocol, metrics=["bleu-1", "rouge-l", "mine"], scores=[incomplete], allow_missing=True
        )
    assert plain(whole.model_dump(mode="json")) == spared


def test_a_study_file(capbench: Capbench, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(STUDY, encoding="utf-8")
    command = printed(capbench, "correlate", path, "--without", "again", "--out", tmp_path / "command")
    result = cb.correlate(study=path, without="again")
    assert plain(result.model_dump(mode="json")) == command
    assert result.value("cider", f"{EXPERT}/no-own-captions/unaggregated-tau-c") > 0
    assert [missing.column for missing in result.missing if missing.left_out]
    written = result.write(tmp_path / "python")
    assert {file.name for file in written} == {file.name for file in (tmp_path / "command").glob("[!.]*")}
    table = "results.csv"
    assert (tmp_path / "python" / table).read_bytes() == (tmp_path / "command" / table).read_bytes()
    with raises(cb.UsageError, "conflict", value="metrics"):
        cb.correlate(study=path, metrics="cider")
    assert capbench("correlate", path, "-m", "cider").failure.value == "--metric"
    with pytest.raises(StudyError, match=r"gone\.yaml"):
        cb.correlate(study=tmp_path / "gone.yaml")


def test_all_protocols(capbench: Capbench) -> None:
    flags = ("--all-protocols", "-d", EXPERT, "-m", "bleu-1", "-m", "cider", "--compare", "permutation")
    command = printed(capbench, "correlate", *flags, "--permutations", "100")
    found = cb.correlate_all_protocols(EXPERT, ["bleu-1", "cider"], compare="permutation", permutations=100)
    assert plain(found.model_dump(mode="json")) == command
    assert len(found.datasets[0].protocols) > 1
    assert capbench("correlate", "--all-protocols", "-d", EXPERT, "--bootstrap", "100").failure.code == "conflict"


def test_a_comparison_and_its_power(capbench: Capbench) -> None:
    flags = ("bleu-1", "cider", "-d", "composite", "--bootstrap", "100", "--seed", "3")
    comparison = cb.compare("composite", ["bleu-1", "cider"], resamples=100, seed=3)
    assert plain(comparison.model_dump(mode="json")) == printed(capbench, "compare", *flags, "--permutations", "100")
    power = cb.power("composite", ["bleu-1", "cider"], resamples=100, seed=3, gap=0.02, alpha=0.1, power=0.9)
    more = ("--gap", "0.02", "--alpha", "0.1", "--power", "0.9")
    assert plain(json.loads(json.dumps(power.as_json()))) == printed(capbench, "compare", *flags, *more)


def test_a_ranking(capbench: Capbench, tmp_path: Path) -> None:
    path = tmp_path / "tasks.yaml"
    path.write_text(
        "schema: 1\nname: t\ntasks: [{protocol: flickr8k-expert}, {protocol: nebula, weight: 2}]\n", "utf-8"
    )
    flags = ("--tasks", path, "--permutations", "100", "--seed", "3", "--no-sentinels")
    command = printed(capbench, "rank", "-m", "bleu-1,rouge-l", *flags)
    found = cb.rank(["bleu-1", "rouge-l"], tasks=path, permutations=100, seed=3, sentinels=False, progress=False)
    assert plain(found.model_dump(mode="json")) == command
    assert found.to_frame()["metric"].tolist() == [metric["column"] for metric in command["ranking"]["metrics"]]
    assert found.write(tmp_path / "out")[0].name == "ranking.json"


def test_reference_curves(capbench: Capbench, tmp_path: Path) -> None:
    flags = ["-m", "bleu-1", "-m", "rouge-l", "--counts", "1,2,5", "--draws", "2", "--seed", "3"]
    found = cb.references("pascal-50s", ["bleu-1", "rouge-l"], counts=[1, 2, 5], draws=2, seed=3)
    assert plain(found.model_dump(mode="json")["curves"]) == [
        printed(capbench, "correlate", "--references-curve", *flags)
    ]
    assert len(found.curves[0].curve("bleu", "bleu-1")) == 3

    study = tmp_path / "curves.yaml"
    study.write_text(
        "schema: 1\nname: curves\ncurves: {counts: [1, 2], draws: 2}\nmetrics: [bleu-1, tiger]\n"
        "protocols: [composite/all-references/correctness-tau-c, pascal-50s/random-5-refs/direct-strict]\n"
        "features: gone.h5\n",
        encoding="utf-8",
    )
    command = printed(
        capbench, "correlate", "--references-curve", study, "--without", "tiger", "--out", tmp_path / "out", code=1
    )
    with pytest.warns(cb.CapbenchWarning, match="random-5-refs/direct-strict missing"):
        of_study = cb.references(study=study, without="tiger")
    assert plain(of_study.model_dump(mode="json")["curves"]) == command
    assert list(of_study.missing) == ["pascal-50s/random-5-refs/direct-strict"]
    with raises(cb.UsageError, "conflict", value="dataset"):
        cb.references("composite", study=study)
    assert capbench("correlate", "--references-curve", "--scores", study).failure.code == "conflict"


def test_retrieval(capbench: Capbench, tmp_path: Path) -> None:
    flags = ["-m", "bleu-1", "-m", "rouge-l", "--images", "8", "--seed", "2", "--references", "3"]
    found = cb.retrieve(["bleu-1", "rouge-l"], sample_size=8, seed=2, references=3)
    assert plain(found.rows()) == printed(capbench, "explore", "retrieve", *flags)
    study = tmp_path / "retrieval.yaml"
    study.write_text(
        "schema: 1\nname: retrieval\nmetrics: [bleu-1, clipscore]\nretrieval: {images: 8}\n", encoding="utf-8"
    )
    command = printed(capbench, "explore", "retrieve", study, "--seed", "1", code=1)
    with pytest.warns(cb.CapbenchWarning, match="CLIPScore requires"):
        of_study = cb.retrieve(study=study, seed=1)
    assert plain(of_study.rows()) == command
    assert set(of_study.missing) == {"CLIPScore", "RefCLIPScore"}
