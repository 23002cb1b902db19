"""What ``import capbench`` gives is what the command line gives, and shows itself."""

from __future__ import annotations

import csv
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import capbench as cb
from capbench.core.errors import ProtocolError, StudyError, UsageError
from capbench.datasets.flickr8k import Flickr8kExpert
from capbench.studies.results import is_left_out, load_result
from tests.conftest import Ran
from tests.errors import raises

Capbench = Callable[..., Ran]
EVIL = "<script>alert('x')</script> & a dog"


def overlap(image: str, candidate: str, references: tuple[str, ...]) -> float:
    words = set(candidate.lower().split())
    return max(len(words & set(text.lower().split())) for text in references) / len(words)


def test_correlate_takes_protocols_options_and_labels_as_the_command_line_does(capbench: Capbench) -> None:
    ours = cb.correlate(
        ["composite", "flickr8k-expert"],
        {"plain": "cider", "narrow": "cider"},
        protocol=["composite@8k/all-references/correctness-tau-b", "flickr8k-expert/no-own-captions/mean-spearman"],
        options={"narrow.sigma": 3},
    )
    flags = ["-d", "composite", "-d", "flickr8k-expert", "-m", "plain=cider", "-m", "narrow=cider"]
    flags += ["-p", "composite@8k/all-references/correctness-tau-b"]
    flags += ["-p", "flickr8k-expert/no-own-captions/mean-spearman"]
    theirs = json.loads(capbench("correlate", *flags, "--option", "narrow.sigma=3", "--json").out)
    assert json.loads(ours.model_dump_json())["cells"] == theirs["cells"]
    values = [ours.value(label, "flickr8k-expert/no-own-captions/mean-spearman") for label in ("plain", "narrow")]
    assert values[0] != values[1]
    with raises(UsageError, "ambiguous"):
        ours.value("plain")


def test_score_gives_the_numbers_of_the_command_line(capbench: Capbench, tmp_path: Path) -> None:
    candidates = [{"image_id": "a", "caption": "a dog runs"}, {"image_id": "b.jpg", "caption": "a cat, asleep"}]
    references = {"a": ["a dog is running", "a brown dog"], "b": ["a cat sleeps"]}
    (tmp_path / "captions.json").write_text(json.dumps(candidates), encoding="utf-8")
    (tmp_path / "references.json").write_text(json.dumps(references), encoding="utf-8")
    files = (tmp_path / "captions.json", tmp_path / "references.json")
    flags = ("--candidates", files[0], "--references", files[1])
    theirs = json.loads(capbench("score", "-m", "bleu", "-m", "cider", *flags, "--json").out)
    by_image = {"a": "a dog runs", "b.jpg": ["a cat, asleep"]}
    in_order = [references["a"], tuple(references["b"])]
    texts = [entry["caption"] for entry in candidates]
    made = [
        cb.score(*files, metrics=["bleu", "cider"]),
        cb.score(candidates, references, ["bleu", "cider"]),
        cb.score(by_image, references, ["bleu", "cider"]),
        cb.score(texts, in_order, ["bleu", "cider"]),
        cb.score(cb.score(texts, in_order, "bleu").items, metrics=["bleu", "cider"]),
    ]
    for table in made:
        assert table.summary() == theirs["scores"]
        assert dict(table.signatures) == theirs["signatures"]
    assert [item.image for item in made[2].items] == ["a", "b"]
    assert [table.notes for table in made] == [()] * 5
    lonely = cb.score(candidates, references | {"c": ["a tree"]}, "bleu-1")
    assert lonely.notes == ("1 of 3 images of the references has no caption: c",)
    assert cb.score(iter(texts), iter(in_order), "bleu-1").summary() == cb.score(texts, in_order, "bleu-1").summary()
    assert not made[0].sample


def test_the_data_folder_is_the_argument_else_the_environment_else_the_sample(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert cb.load("flickr8k-expert").sample
    monkeypatch.setenv("CAPBENCH_DATA", str(tmp_path / "nowhere"))
    with raises(UsageError, "missing-file", path=tmp_path / "nowhere"):
        cb.load("flickr8k-expert")
    assert cb.load("flickr8k-expert", data="sample").sample
    with raises(UsageError, "missing-file", path=tmp_path / "nor-there"):
        cb.correlate("flickr8k-expert", "bleu-1", data=tmp_path / "nor-there")


def test_judgements_are_ratings_or_pairs_or_items() -> None:
    rated = cb.load("flickr8k-expert")
    assert (rated.kind, len(rated.to_frame())) == ("ratings", 900)
    assert rated.to_frame()["rating"].tolist() == rated.ratings["expert"].value.tolist()
    pairs = cb.load("pascal-50s")
    frame = pairs.to_frame()
    assert pairs.kind == "preferences"
    preferences = pairs.preferences["direct"]
    assert frame["preferred"].tolist() == preferences.preferred.tolist()
    assert frame["first"].tolist() == [pairs.items[i].candidate for i in preferences.first]
    assert cb.load("nocaps").kind == "items"
    assert len(cb.load("composite@8k", "correctness-tau-b").items) < len(cb.load("composite").items)
    with raises(ProtocolError, "unknown-name", value="tau-z"):
        cb.load("flickr8k-expert", "tau-z")
    with raises(UsageError, "out-of-range", value=9):
        cb.load("pascal-50s", draw=9)


def test_data_sets_are_files_and_classes_too(tmp_path: Path) -> None:
    rows = "image,candidate,reference_1,ratings\na,a dog runs,a dog is running,4\nb,a cat,a dog is running,1\n"
    (tmp_path / "mine.csv").write_text(rows + "c,the dog is running,a dog is running,5\n", encoding="utf-8")
    mine = cb.load(tmp_path / "mine.csv")
    assert mine.to_frame()["rating"].tolist() == [4.0, 1.0, 5.0]
    assert not mine.sample
    result = cb.correlate(tmp_path / "mine.csv", "bleu-1", protocol="tau-b")
    assert not result.sample
    assert result.value("bleu-1") == 1.0
    of_class, of_name = cb.load(Flickr8kExpert), cb.load("flickr8k-expert")
    assert issubclass(Flickr8kExpert, cb.Dataset)
    assert of_class.items == of_name.items


def test_a_score_file_without_all_scores_is_warned_of_and_leaves_the_other_metrics_alone(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = cb.score(dataset="flickr8k-expert", metrics=["bleu-1", "rouge-l"])
        complete = cb.compare("flickr8k-expert", ["bleu-1", "rouge-l"], resamples=100)
    item = table.items[0]
    part = tmp_path / "part.csv"
    pd.DataFrame([{"image": item.image, "caption": item.candidate, "mine": 1.0}]).to_csv(part, index=False)
    with pytest.warns(cb.CapbenchWarning, match="mine is undefined under") as caught:
        compared = cb.compare("flickr8k-expert", ["bleu-1", "rouge-l", "mine"], scores=part, resamples=100)
    assert [warning.filename for warning in caught] == [__file__]
    assert compared.comparisons == complete.comparisons
    assert {cell.column for cell in compared.undefined} == {"mine"}
    assert "scores for 1 of 300" in str(compared)
    with pytest.warns(cb.CapbenchWarning, match="mine is not computed: scores for 1 of 300"):
        scored = cb.score(dataset="flickr8k-expert", metrics=["bleu-1", "mine"], scores=part)
    assert [row.name for row in scored.rows] == ["bleu-1"]
    assert (scored["bleu-1"] == table["bleu-1"]).all()


def test_html_is_escaped_and_says_what_is_the_sample(tmp_path: Path) -> None:
    rows = pd.DataFrame({"image": ["a", "b"], "candidate": [EVIL, "a cat"], "rating": [1, 2]})
    rows.to_csv(tmp_path / "mine.csv", index=False)
    html = cb.load(tmp_path / "mine.csv")._repr_html_()
    assert "&lt;script&gt;" in html
    assert "synthetic sample" not in html
    result = cb.compare("flickr8k-expert", ["bleu-1", overlap], resamples=100)
    for shown in (result, cb.load("flickr8k-expert")):
        page = shown._repr_html_()
        assert page.count("<table") == page.count("</table>") == 1
        assert "embedded synthetic sample" in page
        assert "embedded synthetic sample" in repr(shown)
    evil = result.model_copy(update={"title": EVIL, "columns": {"bleu-1": EVIL, "overlap": "x"}})
    assert "<script" not in evil._repr_html_()


def test_results_are_pickled_and_told_in_one_line() -> None:
    result = cb.correlate("flickr8k-expert", ["bleu-1", overlap])
    compared = cb.compare("flickr8k-expert", ["bleu-1", overlap], resamples=100)
    table = cb.score(metrics=["bleu-1"], dataset="flickr8k-expert")
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(compared)) == compared
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(table))["bleu-1"], table["bleu-1"])
    pairs = cb.load("pascal-50s")
    assert pickle.loads(pickle.dumps(pairs)).to_frame().equals(pairs.to_frame())
    for made in (result, compared, table):
        assert "\n" not in repr(made)
        assert len(repr(made)) < 200
    assert "BLEU-1" in str(result)
    assert result.value("bleu-1") == result.to_frame().set_index("column")["value"]["bleu-1"]
    assert "function:tests.api.test_results.overlap@unsigned" in str(compared)


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
        complete = cb.correlate(
            protocol=protocol, metrics=["bleu-1", "rouge-l", "mine"], scores=[incomplete], allow_missing=True
        )
    assert plain(complete.model_dump(mode="json")) == spared


def test_a_study_file(capbench: Capbench, tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(STUDY, encoding="utf-8")
    command = printed(capbench, "correlate", path, "--without", "again", "--out", tmp_path / "command")
    result = cb.correlate(study=path, without="again")
    assert plain(result.model_dump(mode="json")) == command
    assert result.value("cider", f"{EXPERT}/no-own-captions/unaggregated-tau-c") > 0
    assert [missing.column for missing in result.missing if is_left_out(missing.reason)]
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
    tests: dict[str, Any] = {"compare": "permutation", "permutations": 100}
    found = cb.correlate(EXPERT, ["bleu-1", "cider"], all_protocols=True, **tests)
    assert plain(found.model_dump(mode="json")) == command
    assert len({row.protocol for row in found.rankings}) > 1
    with raises(cb.UsageError, "conflict", value="bootstrap"):
        cb.correlate(EXPERT, "cider", all_protocols=True, bootstrap=100)


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
    flags = ("-d", "pascal-50s", "-m", "bleu-1", "-m", "rouge-l", "--counts", "1,2,5", "--draws", "2", "--seed", "3")
    curves: dict[str, Any] = {"references_curve": True, "draws": 2, "seed": 3}
    found = cb.correlate("pascal-50s", ["bleu-1", "rouge-l"], counts=[1, 2, 5], **curves)
    assert plain(found.model_dump(mode="json")) == printed(capbench, "correlate", "--references-curve", *flags)
    assert [(p.column, p.at) for p in found.curve(found.protocols[0].id)] == [
        (column, count) for column in ("bleu-1", "rouge-l") for count in (1, 2, 5)
    ]

    study = tmp_path / "curves.yaml"
    study.write_text(
        "schema: 1\nname: curves\ncurves: {counts: [1, 2], draws: 2}\nmetrics: [bleu-1, tiger]\n"
        "protocols: [composite/all-references/correctness-tau-c]\nfeatures: gone.h5\n",
        encoding="utf-8",
    )
    command = printed(capbench, "correlate", study, "--without", "tiger", "--out", tmp_path / "out")
    of_study = cb.correlate(study=study, without="tiger")
    assert plain(of_study.model_dump(mode="json")) == command
    assert load_result(tmp_path / "out" / "results.json").points == of_study.points
    scores = tmp_path / "mine.csv"
    assert capbench("score", "-d", EXPERT, "-m", "bleu-1", "--out", scores).code == 0
    with raises(cb.UsageError, "conflict", value="mine"):
        cb.correlate(EXPERT, scores=[scores], references_curve=True)


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
