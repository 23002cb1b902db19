"""Recipes: their files, the plans made of them, and runs that resume."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from pydantic import Field

import capbench
from capbench.core.errors import CapbenchError, StudyError, UsageError
from capbench.core.files import read_json, write_text
from capbench.datasets.root import DataRoot, find_root
from capbench.studies import recipe_file
from capbench.studies.judged import no_progress
from capbench.studies.recipe import LeftOut, Plan, Planning, Product, Recipe, Run, Step, finished, make_plan, run_plan
from capbench.studies.recipe_file import find_recipe, parse_recipe, shipped_recipes
from capbench.studies.recipe_scores import Rated, intervals_and_tests, listed, place
from tests.errors import raises

WORK: list[str] = []
"""Steps whose work was done, in order."""


class CopyStep(Step):
    """Writes a text, and the texts of other steps before it."""

    kind: ClassVar[str] = "copy"
    text: str = Field(alias="copy")
    of: list[str] = Field([])
    parts: int = 1
    fails: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        inputs = [product.path for step in self.of for product in planning.products(step)]
        for part in range(self.parts):
            made = Product(planning.out / f"{name}{part}.txt", {"part": part})

            def work(run: Run, made: Product = made) -> None:
                if self.fails:
                    raise KeyboardInterrupt
                WORK.append(made.path.stem)
                texts = [path.read_text(encoding="utf-8") for path in inputs]
                write_text(made.path, "".join([*texts, self.text]))

            planning.add(f"{name}/{part}", self.kind, {"text": self.text}, inputs, [made], work)


class AbsentStep(Step):
    """A step whose input is missing."""

    kind: ClassVar[str] = "absent"
    reason: str = Field(alias="absent")

    def plan(self, name: str, planning: Planning) -> None:
        raise LeftOut(self.reason)


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (CopyStep, AbsentStep):
        monkeypatch.setitem(recipe_file.KINDS, cls.kind, f"{__name__}:{cls.__name__}")
    WORK.clear()


def recipe(steps: dict[str, Any], **more: Any) -> Recipe:
    return parse_recipe({"schema": 1, "name": "toy", "steps": steps, **more}, "toy.yaml")


def go(plan: Plan) -> dict[str, str]:
    return run_plan(plan, Run(find_root("sample"), lambda _: None, no_progress))


def planned(out: Path, steps: dict[str, Any], **more: Any) -> Plan:
    return make_plan(recipe(steps), out, find_root("sample"), **more)


STEPS: dict[str, Any] = {
    "a": {"copy": "A"},
    "b": {"copy": "B", "of": ["a"], "parts": 2},
    "c": {"copy": "C", "of": ["b"]},
}


def test_tasks_are_done_in_order_and_once(tmp_path: Path) -> None:
    plan = planned(tmp_path, STEPS)
    assert finished(plan) == [False] * 4
    assert set(go(plan).values()) == {"done"}
    assert WORK == ["a0", "b0", "b1", "c0"]
    assert (tmp_path / "c0.txt").read_text(encoding="utf-8") == "ABABC"
    assert finished(plan) == [True] * 4
    assert set(go(planned(tmp_path, STEPS)).values()) == {"finished"}
    assert len(WORK) == 4


def test_what_changed_is_done_again_with_all_that_reads_it(tmp_path: Path) -> None:
    go(planned(tmp_path, STEPS))
    WORK.clear()
    go(planned(tmp_path, {**STEPS, "b": {"copy": "X", "of": ["a"], "parts": 2}}))
    assert WORK == ["b0", "b1", "c0"]
    WORK.clear()
    (tmp_path / "b1.txt").write_text("damaged", encoding="utf-8")
    go(planned(tmp_path, {**STEPS, "b": {"copy": "X", "of": ["a"], "parts": 2}}))
    assert WORK == ["b1"]  # it is again what the last step read
    WORK.clear()
    (tmp_path / "a0.txt").unlink()
    go(planned(tmp_path, {**STEPS, "a": {"copy": "Y"}}))
    assert WORK == ["a0", "b0", "b1", "c0"]


def test_a_folder_may_be_moved(tmp_path: Path) -> None:
    go(planned(tmp_path / "one", STEPS))
    (tmp_path / "one").rename(tmp_path / "two")
    assert finished(planned(tmp_path / "two", STEPS)) == [True] * 4


def test_an_interrupted_run_resumes(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(planned(tmp_path, {**STEPS, "c": {"copy": "C", "of": ["b"], "fails": True}}))
    assert WORK == ["a0", "b0", "b1"]
    outcome = go(planned(tmp_path, STEPS))
    assert WORK == ["a0", "b0", "b1", "c0"]
    assert list(outcome.values()) == ["finished"] * 3 + ["done"]


def test_two_runs_share_the_work(tmp_path: Path) -> None:
    steps = {**STEPS, **{f"d{n}": {"copy": "D", "of": ["c"]} for n in range(10)}}
    threads = [threading.Thread(target=lambda: go(planned(tmp_path, steps))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(WORK) == sorted(set(WORK))
    assert len(WORK) == 14


def test_one_step_brings_what_it_requires(tmp_path: Path) -> None:
    steps = {**STEPS, "d": {"copy": "D", "of": ["a"]}}
    assert [task.step for task in planned(tmp_path, steps, only="d").tasks] == ["a", "d"]
    with raises(UsageError, "unknown-name", value="e"):
        planned(tmp_path, steps, only="e")


def test_a_missing_input_leaves_out_all_that_requires_it(tmp_path: Path) -> None:
    steps = {"a": {"copy": "A"}, "x": {"absent": "no such file"}, "y": {"copy": "Y", "of": ["x"]}}
    plan = planned(tmp_path, steps)
    assert [task.step for task in plan.tasks] == ["a"]
    assert plan.left_out == {"x": "no such file", "y": "no such file"}
    assert plan.left_out_by_reason() == {"no such file": ["x", "y"]}


def test_a_step_that_is_not_there_is_named(tmp_path: Path) -> None:
    with raises(UsageError, "unknown-name", value="bb"):
        planned(tmp_path, {**STEPS, "d": {"copy": "D", "of": ["bb"]}})


def test_data_must_be_there_before_anything_starts(tmp_path: Path) -> None:
    found = recipe(STEPS, data=["flickr8k/no-such-file.txt"])
    with pytest.raises(CapbenchError, match=r"no-such-file\.txt"):
        make_plan(found, tmp_path, find_root("sample"))
    assert WORK == []


def test_seeds_and_settings_that_do_not_fit(tmp_path: Path) -> None:
    with raises(UsageError, "duplicate", value=2):
        planned(tmp_path, STEPS, seeds=[1, 2, 2])
    with raises(UsageError, "conflict", value="max_steps=1"):
        planned(tmp_path, STEPS, changes=["max_steps=1"])


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    steps = {"a": {"copi": "A"}, "b": {"copy": "B", "off": []}, "c": {"copy": 3}, "d": {"train": "scan"}}
    with raises(StudyError, "unknown-key", value="setz"):
        recipe(steps, setz={})
    with pytest.raises(StudyError) as caught:
        recipe(steps)
    told = str(caught.value)
    for part in ("4 problems", "step 'a' has no kind", "unknown key 'off'", "step 'c': 'copy'", "'config' is missing"):
        assert part in told


def test_steps_are_repeated_for_sets_and_changed_from_outside() -> None:
    raw = {
        "schema": 1,
        "name": "toy",
        "sets": {"one": "flickr8k-expert", "two": "composite@8k"},
        "steps": {"a": {"copy": "A"}, "{set}-b": {"copy": "{judgements} {set}", "of": ["a"]}},
    }
    found = parse_recipe(raw, "toy.yaml", ["one-b.copy=changed", "a.parts=3", "max_steps=5"])
    assert list(found.steps) == ["a", "one-b", "two-b"]
    steps: dict[str, Any] = dict(found.steps)
    assert steps["a"].parts == 3
    assert [steps[name].text for name in ("one-b", "two-b")] == ["changed", "composite@8k two"]
    with raises(StudyError, "wrong-format", value="a.parts"):
        parse_recipe(raw, "toy.yaml", ["a.parts"])


def test_a_recipe_is_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, path = next(iter(shipped_recipes().items()))
    assert find_recipe(name) == path == find_recipe(f"configs/recipes/{name}.yaml")
    with raises(StudyError, "unknown-name", value="vilbert-flickr9k"):
        find_recipe("vilbert-flickr9k")


# Scores and agreement

AGREEMENT: dict[str, Any] = {
    "text": {"score": ["cider", "meteor", "bleu-1"], "judgements": "flickr8k-expert"},
    "expert": {
        "evaluate": "flickr8k-expert",
        "coefficients": ["tau-c", "mean-tau-b"],
        "values": [
            {"scores": "text", "row": "{title}"},
            {"scores": "text", "where": {"metric": "cider"}, "joint": True, "coefficients": ["tau-c"],
             "at": "joint/{column}/{coefficient}"},
        ],
        "tests": {"width": 1, "resamples": 100, "rows": {"first": "CIDEr", "second": "METEOR"}},
        "resamples": 100,
    },
    "results": {"results": "results.json", "facts": {"config": "none"}, "parts": {"expert": "expert"}},
}  # fmt: skip


def test_agreement_is_that_of_correlate(tmp_path: Path) -> None:
    go(planned(tmp_path, AGREEMENT))
    results = read_json(tmp_path / "results.json")
    numbers = results["expert"]
    ours = capbench.correlate("flickr8k-expert", metrics=["cider", "meteor", "bleu-1"], data="sample")
    for title, column in (("CIDEr", "cider"), ("METEOR", "meteor"), ("BLEU-1", "bleu-1")):
        assert numbers["rows"][title]["tau-c"] == [pytest.approx(ours.value(column), abs=1e-12)]
    assert results["config"] == "none"
    assert set(numbers["intervals"]) == {"first", "second"}
    joint = numbers["joint"]["cider"]["tau-c"]
    assert joint["value"] == pytest.approx(numbers["rows"]["CIDEr"]["tau-c"][0], abs=1e-12)
    assert joint["low"] == pytest.approx(numbers["intervals"]["first"]["low"], abs=1e-12)


def test_results_name_changed_options_of_steps(tmp_path: Path) -> None:
    raw = {"schema": 1, "name": "toy", "steps": AGREEMENT}
    change = "text.score=[cider, meteor]"
    found = parse_recipe(raw, "toy.yaml", [change, "max_steps=5", "loss.margin=1"])
    assert found.changes == (change,)
    go(make_plan(found, tmp_path, find_root("sample")))
    results = read_json(tmp_path / "results.json")
    assert results["set"] == [change]
    assert set(results["expert"]["rows"]) == {"CIDEr", "METEOR"}


def test_other_judgements_make_other_scores(tmp_path: Path, sample: Path) -> None:
    go(planned(tmp_path / "out", AGREEMENT))
    import shutil

    shutil.copytree(sample, tmp_path / "data")
    file = tmp_path / "data" / "flickr8k" / "ExpertAnnotations.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join(lines[:-10]) + "\n", encoding="utf-8")
    root = DataRoot(tmp_path / "data", False, "test")
    assert finished(make_plan(recipe(AGREEMENT), tmp_path / "out", root)) == [False] * 5


def test_places_in_the_results_follow_the_path() -> None:
    tree: dict[Any, Any] = {}
    for network, value in ((0, 1.0), (1, 2.0)):
        place(tree, "faier//{network}/all/{column}", {"network": network, "column": "a"}, value)
        place(tree, "{row}/{network}", {"network": network, "row": "b"}, -value)
    assert listed(tree) == {"faier": {"": [{"all": {"a": 1.0}}, {"all": {"a": 2.0}}]}, "b": [-1.0, -2.0]}


def test_a_row_of_several_networks_is_tested_by_its_mean() -> None:
    rng = np.random.default_rng(0)
    items = tuple(capbench.Item(f"i{n // 4}", f"c{n}", ("r",)) for n in range(80))
    truth = rng.normal(size=80)
    value = np.clip(np.round(2.5 + truth), 1, 4)
    data = Rated(items, np.arange(80), value, "toy")
    good = np.stack([truth + 0.3 * rng.normal(size=80) for _ in range(3)])
    numbers = intervals_and_tests(data, {"good": good, "poor": np.stack([rng.normal(size=80)] * 3)}, 100)
    mean = np.mean([data.correlation("tau-c", scores) for scores in good])
    assert numbers["intervals"]["good"]["value"] == pytest.approx(mean)
    (pair,) = numbers["comparison"]["pairs"]
    assert (pair["better"], pair["worse"]) == ("good", "poor")
    assert pair["low"] > 0


def test_a_plan_is_json(tmp_path: Path) -> None:
    shown = json.loads(json.dumps(planned(tmp_path, AGREEMENT).as_json()))
    assert [task["task"] for task in shown["tasks"]] == [
        "text/cider",
        "text/meteor",
        "text/bleu-1",
        "expert",
        "results",
    ]
    assert shown["tasks"][3]["inputs"] == ["scores/text/cider.npz", "scores/text/meteor.npz", "scores/text/bleu-1.npz"]
    assert shown["tasks"][3]["outputs"] == ["evaluations/expert.json"]


def test_the_recipe_of_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    text = page.partition("```yaml\nschema: 1")[2].partition("```")[0]
    found = parse_recipe(yaml.safe_load(f"schema: 1{text}"), "training.md")
    assert [step.kind for step in found.steps.values()] == [
        *("import", "pool", "train", "ensemble", "score", "evaluate", "results")
    ]
