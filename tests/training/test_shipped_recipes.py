"""The plans of the shipped recipes: the trainings, seeds, inputs and evaluations with which their results were made."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from capbench.core.files import read_json
from capbench.datasets.root import find_root
from capbench.metrics.registry import trainable
from capbench.studies.recipe import Plan, make_plan
from capbench.studies.recipe_file import find_recipe, load_recipe
from capbench.training.settings import find_training, load_training
from tests.examples.conftest import installed, plugged

__all__ = ["installed", "plugged"]

pytestmark = pytest.mark.usefixtures("read_once")

RESULTS = Path(__file__).parents[2] / "results"
FEATURES = "flickr8k/mobilenetv2_grid49_pca256_int8.npz"
TEXT = ["cider", "meteor", "spice", "rouge-l", "bleu-1", "bleu-4"]
EXPERT = "flickr8k-expert/no-own-captions/unaggregated-tau-c"
COMPOSITE = "composite@8k/same-text-out/correctness-tau-c"
SETS = {"expert": EXPERT, "composite-8k": COMPOSITE}
ONE = {
    "expert": "flickr8k-expert/one-reference/unaggregated-tau-c",
    "composite-8k": "composite@8k/one-reference/correctness-tau-c",
}


def plan_of(name: str, out: Path, data: Path, **more: Any) -> Plan:
    return make_plan(load_recipe(find_recipe(name)), out, find_root(data), **more)


def tasks_of(plan: Plan, step: str) -> list[dict[str, Any]]:
    return [
        task
        for task, full in zip(plan.as_json()["tasks"], plan.tasks, strict=True)
        if full.step == step and task["kind"] == full.kind
    ]


def check_features(plan: Plan, step: str, windows: str) -> None:
    (cells,), (pooled,) = tasks_of(plan, "cells"), tasks_of(plan, step)
    assert (cells["inputs"], cells["settings"]) == ([FEATURES], {"detector": "mobilenetv2-grid-pca256"})
    assert pooled["inputs"] == ["cells.h5"]
    assert pooled["settings"] == {"windows": windows, "boxes": None, "top": None}
    assert pooled["outputs"] == [f"{step}.h5"]


def deciding(network: str, config: str, changes: list[str]) -> Mapping[str, Any]:
    kind = trainable(network)
    found: Mapping[str, Any] = load_training(kind.settings, find_training(config), changes).deciding()
    return found


def check_trainings(plan: Plan, network: str, config: str, runs: Mapping[str, tuple[str, int]], features: str) -> None:
    """Run folder → variant and seed; everything else is the training file's, in one thread."""
    tasks = tasks_of(plan, "networks")
    assert [task["outputs"] for task in tasks] == [[f"{folder}/model.safetensors"] for folder in runs]
    for task, (variant, seed) in zip(tasks, runs.values(), strict=True):
        row = trainable(network).variants.get(variant, ())
        expected = deciding(network, config, [*row, f"seed={seed}", "threads=1", f"features={features!r}"])
        named = {"network": network, "config": config, "variant": variant}
        assert task["settings"] == {**named, **expected}
        assert features in task["inputs"]


def check_scores(plan: Plan, step: str, protocol: str, metric: str, options: dict[str, Any], models: list[str]) -> None:
    tasks = tasks_of(plan, step)
    assert [task["settings"]["protocol"] for task in tasks] == [protocol] * len(models)
    assert all((task["settings"]["metric"], task["settings"]["options"]) == (metric, options) for task in tasks)
    assert [task["inputs"][-1] for task in tasks] == models


def check_text(plan: Plan) -> None:
    for name, protocol in SETS.items():
        tasks = tasks_of(plan, f"{name}-text")
        found = [task["settings"]["metric"] for task in tasks]
        assert found in (TEXT, [metric for metric in TEXT if metric != "spice"])
        assert {task["settings"]["protocol"] for task in tasks} == {protocol}


def test_vilbert(tmp_path: Path, real_data: Path) -> None:
    plan = plan_of("vilbert-flickr8k", tmp_path, real_data)
    check_features(plan, "windows10", "3x3/2+7x7/1")
    runs = {f"seed{seed}": ("", seed) for seed in (1, 2, 3)}
    check_trainings(plan, "vilbert", "vilbert-flickr8k", runs, "windows10.h5")
    models = [f"{folder}/model.safetensors" for folder in runs]
    (ensemble,) = tasks_of(plan, "ensemble")
    assert (ensemble["inputs"], ensemble["outputs"]) == (models, ["ensemble.json"])
    check_text(plan)
    for name, protocol in SETS.items():
        for image in ("seen", "blank"):
            options = {"layer": "1-2", "image": image}
            check_scores(plan, f"{name}-{image}", protocol, "vilbertscore", options, models)
        (evaluated,) = tasks_of(plan, name)
        assert evaluated["settings"]["coefficients"] == ["tau-c", "tau-b", "mean-tau-b"]
        rows = evaluated["settings"]["tests"]["rows"]
        assert list(rows) == list(read_json(RESULTS / "vilbert-flickr8k/results.json")[name]["intervals"])
    assert tasks_of(plan, "results")[0]["outputs"] == ["results.json"]


@pytest.mark.usefixtures("plugged")
def test_dual_encoder(tmp_path: Path, real_data: Path) -> None:
    for file in ("flickr8k-grid/pyr30.h5", "faier-flickr8k/pyr30.h5"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    others = [f"flickr8k-grid/seed{seed}" for seed in (1, 2, 3)]
    others += [f"faier-flickr8k/faier-flickr8k-seed{seed}" for seed in (1, 2, 3)]
    for folder in others:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.safetensors").touch()
    name = "dual-encoder-flickr8k"
    plan = plan_of(name, tmp_path / name, real_data)
    check_features(plan, "pyr30", "pyr30")
    runs = {f"{name}-seed{seed}": ("", seed) for seed in (1, 2, 3)}
    check_trainings(plan, "clip", name, runs, "pyr30.h5")
    models = [f"{folder}/model.safetensors" for folder in runs]
    (ensemble,) = tasks_of(plan, "ensembles")
    assert (ensemble["inputs"], ensemble["outputs"]) == (models, [f"{name}-ensemble1.json"])
    check_text(plan)
    beside = [(tmp_path / folder / "model.safetensors").as_posix() for folder in others]
    for key, protocol in SETS.items():
        check_scores(plan, f"{key}-single", protocol, "dual-encoder", {}, models)
        check_scores(plan, f"{key}-joined", protocol, "dual-encoder", {}, [f"{name}-ensemble1.json"])
        check_scores(plan, f"{key}-tiger", protocol, "tiger", {}, beside[:3])
        check_scores(plan, f"{key}-reo", protocol, "reo", {}, beside[:3])
        check_scores(plan, f"{key}-faier", protocol, "faier", {}, beside[3:])
        (evaluated,) = tasks_of(plan, key)
        assert evaluated["settings"]["coefficients"] == ["tau-c", "tau-b", "spearman"]
    assert tasks_of(plan, "results")[0]["outputs"] == [f"{name}.json"]
    assert plan.left_out == {}


def test_dual_encoder_without_the_other_recipes(tmp_path: Path, real_data: Path, plugged: Path) -> None:
    plan = plan_of("dual-encoder-flickr8k", tmp_path / "out", real_data)
    assert {step.rpartition("-")[2] for step in plan.left_out} == {"features", "grid", "faier", "tiger", "reo"}
    (evaluated,) = tasks_of(plan, "expert")
    assert not any("tiger" in path for path in evaluated["inputs"])


def check_faier(plan: Plan, models: list[str]) -> None:
    check_features(plan, "pyr30", "pyr30")
    for name, protocol in SETS.items():
        check_scores(plan, f"{name}-all", protocol, "faier", {"references": "all"}, models)
        check_scores(plan, f"{name}-none", protocol, "faier", {"references": "none"}, models)
        check_scores(plan, f"{name}-one", ONE[name], "faier", {"references": "all"}, models)


def test_faier(tmp_path: Path, real_data: Path) -> None:
    plan = plan_of("faier-flickr8k", tmp_path, real_data)
    runs = {f"faier-flickr8k-seed{seed}": ("", seed) for seed in (1, 2, 3)}
    check_trainings(plan, "faier", "faier-flickr8k", runs, "pyr30.h5")
    check_faier(plan, [f"{folder}/model.safetensors" for folder in runs])
    check_text(plan)
    kept = read_json(RESULTS / "faier-flickr8k/results.json")
    for name in SETS:
        (evaluated,) = tasks_of(plan, name)
        assert evaluated["settings"]["coefficients"] == ["tau-c", "tau-b", "spearman"]
        assert evaluated["settings"]["tests"]["rows"] == list(kept[name]["intervals"])
    assert tasks_of(plan, "results")[0]["outputs"] == ["faier-flickr8k.json"]


def test_faier_table_4(tmp_path: Path, real_data: Path) -> None:
    plan = plan_of("faier-flickr8k-table4", tmp_path, real_data)
    seeds = {row: [1, 2, 3] for row in trainable("faier").variants}
    runs = {f"faier-flickr8k-{row}-seed{seed}": (row, seed) for row in seeds for seed in seeds[row]}
    trained = {task["outputs"][0].partition("/")[0]: task for task in tasks_of(plan, "networks")}
    assert trained.keys() == runs.keys()
    check_trainings(plan, "faier", "faier-flickr8k", {folder: runs[folder] for folder in trained}, "pyr30.h5")
    check_faier(plan, [f"{folder}/model.safetensors" for folder in trained])
    kept = read_json(RESULTS / "faier-flickr8k/table4.json")
    assert kept["seeds"] == seeds
    assert tasks_of(plan, "results")[0]["settings"]["seeds"] == seeds
    only = plan_of("faier-flickr8k-table4", tmp_path, real_data, train_only=True)
    assert {task.kind for task in only.tasks} == {"import", "pool", "train"}


def test_faier_s_analysis(tmp_path: Path, real_data: Path) -> None:
    networks = {}
    for row in ("faier-r-ref", "fier", "aier-4-ref"):
        networks[row] = tmp_path / f"faier-flickr8k-table4/faier-flickr8k-{row}-seed1/model.safetensors"
        networks[row].parent.mkdir(parents=True)
        networks[row].touch()
    for file in ("faier-flickr8k-table4/pyr30.h5", "flickr8k-grid/pyr30.h5", "flickr8k-grid/seed1/model.safetensors"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    plan = plan_of("faier-flickr8k-analysis", tmp_path / "out", real_data)
    paths = {row: [path.as_posix()] for row, path in networks.items()}
    kept = read_json(RESULTS / "faier-flickr8k/analysis.json")
    for name, protocol in SETS.items():
        check_scores(plan, f"{name}-all", protocol, "faier", {"references": "all"}, paths["faier-r-ref"])
        check_scores(plan, f"{name}-none", protocol, "faier", {"references": "none"}, paths["faier-r-ref"])
        check_scores(plan, f"{name}-fier", protocol, "faier", {"references": "all"}, paths["fier"])
        check_scores(plan, f"{name}-aier", protocol, "faier", {"references": "all"}, paths["aier-4-ref"])
        (analysed,) = tasks_of(plan, name)
        rows = [value.get("row", "") for value in analysed["settings"]["values"]]
        assert [row for row in kept[name]["tau-c"] if row in rows] == [row for row in rows if row and "{" not in row]
    (results,) = tasks_of(plan, "results")
    assert results["settings"]["models"] == kept["models"]


def test_flickr8k_grid(tmp_path: Path, real_data: Path) -> None:
    plan = plan_of("flickr8k-grid", tmp_path, real_data)
    check_features(plan, "pyr30", "pyr30")
    runs = {f"seed{seed}": ("", seed) for seed in range(1, 10)}
    check_trainings(plan, "scan", "scan-flickr8k-grid", runs, "pyr30.h5")
    single = [f"{folder}/model.safetensors" for folder in runs]
    groups = [single[:3], single[3:6], single[6:]]
    merged = [f"merged{number}/model.safetensors" for number in (1, 2, 3)]
    for step, outputs in (("ensembles", [f"ensemble{number}.json" for number in (1, 2, 3)]), ("merged", merged)):
        tasks = tasks_of(plan, step)
        assert [task["inputs"] for task in tasks] == groups
        assert [task["outputs"] for task in tasks] == [[output] for output in outputs]
    for task, model in zip(tasks_of(plan, "covariances"), [*single, *merged], strict=True):
        images = "flickr8k/Flickr_8k.trainImages.txt"
        assert task["settings"] == {"captions": "flickr8k", "images": images}
        assert task["inputs"][:3] == [model, "pyr30.h5", images]
        assert task["outputs"] == [f"{model}.reo.npz"]
    (recall,) = tasks_of(plan, "recall")
    assert recall["settings"] == {"config": "scan-flickr8k-grid", "split": "test"}
    assert recall["inputs"][:4] == [*single[:3], "pyr30.h5"]
    check_text(plan)
    ensembles = ["ensemble1.json", "ensemble2.json", "ensemble3.json"]
    for name, protocol in SETS.items():
        for suffix, models in (("", single), ("-ensembles", ensembles), ("-merged", merged)):
            tiger, reo = tasks_of(plan, f"{name}-tiger{suffix}"), tasks_of(plan, f"{name}-reo{suffix}")
            assert [task["inputs"] for task in tiger] == [["pyr30.h5", model] for model in models]
            assert [task["inputs"][:2] for task in reo] == [["pyr30.h5", model] for model in models]
            assert {task["settings"]["protocol"] for task in (*tiger, *reo)} == {protocol}
        (evaluated,) = tasks_of(plan, name)
        assert evaluated["settings"]["coefficients"] == ["tau-c", "tau-b", "spearman"]
        rows = evaluated["settings"]["tests"]["rows"]
        assert list(rows) == list(read_json(RESULTS / "flickr8k-grid/results.json")[name]["intervals"])
    assert list(tasks_of(plan, "results")[0]["settings"]["parts"]) == ["recall", "expert", "composite-8k"]


def test_nneval(tmp_path: Path, real_data: Path) -> None:
    vectors = tmp_path / "glove.6B.100d.txt"
    vectors.touch()
    plan = plan_of("nneval", tmp_path, real_data)
    kinds = {
        "coco": ("nneval-coco", []),
        "coco-tau": ("nneval-coco", ["stopping.protocol=flickr8k-expert/all-pairs/mode-tau-b"]),
        "paper": ("nneval-coco-paper", ["evaluation.patience=20"]),
        "foreign": ("nneval-coco-foreign", []),
        "monotone": ("nneval-coco-monotone", []),
    }
    models = []
    for kind, (config, changes) in kinds.items():
        for seed, task in enumerate(tasks_of(plan, kind), 1):
            expected = deciding("nneval", config, [*changes, f"vectors='{vectors.name}'", f"seed={seed}"])
            assert task["settings"] == {"network": "nneval", "config": config, "variant": "", **expected}
            assert task["inputs"][0] == vectors.name
            models += task["outputs"]
    assert models == [f"{kind}-seed{seed}/model.safetensors" for kind in kinds for seed in (1, 2, 3)]
    kept = read_json(RESULTS / "nneval/results.json")
    (results,) = tasks_of(plan, "results")
    protocols = [name for name in results["settings"]["parts"] if name]
    assert protocols == [name for name in kept if "/" in name]
    tested = [task for task in plan.as_json()["tasks"] if task["kind"] == "nneval-inputs"]
    assert [task["settings"]["protocol"] for task in tested] == protocols
    for task in tested:
        assert task["inputs"] == [vectors.name, *models]
        assert task["settings"]["tested"] == ["coco", "foreign", "monotone", "released"]
        assert kept[task["settings"]["protocol"]]["permutations"] == 1000
    assert tested[0]["settings"]["coefficients"] == list(kept[protocols[0]]["by coefficient"])


def test_nneval_diagnosis(tmp_path: Path, real_data: Path) -> None:
    vectors = tmp_path / "nneval" / "glove.6B.100d.txt"
    vectors.parent.mkdir()
    vectors.touch()
    (vectors.parent / "released.npz").touch()
    plan = plan_of("nneval-diagnosis", tmp_path / "out", real_data)
    kept = read_json(RESULTS / "nneval/diagnosis.json")
    trained = [name for name in kept["weights"] if name != "released"]
    for row in trained:
        assert len(tasks_of(plan, row)) == len(kept["weights"][row])
        assert {f"{row}-seed{seed}" for seed in range(1, len(kept["weights"][row]) + 1)} <= set(kept["held-out"])
    for step in ("composite", "expert", "pascal-50s"):
        (evaluated,) = tasks_of(plan, step)
        assert set(evaluated["settings"]["networks"]) == set(kept["weights"])
        assert set(kept["weights"]) < set(kept[evaluated["settings"]["protocol"]]["values"])


def test_leic(tmp_path: Path, real_data: Path) -> None:
    plan = plan_of("leic-flickr8k", tmp_path, real_data)
    runs = {f"seed{seed}": ("", seed) for seed in (1, 2, 3)}
    check_trainings(plan, "leic", "leic-flickr8k", runs, "cells.h5")
    folds = tasks_of(plan, "folds")
    assert [(task["settings"]["folds.of"], task["settings"]["folds.out"]) for task in folds] == [
        (5, out) for out in range(1, 6)
    ]
    (parts,) = tasks_of(plan, "parts")
    assert parts["inputs"] == [f"part{out}/model.safetensors" for out in range(1, 6)]
    for name, protocol in SETS.items():
        check_scores(plan, f"{name}-networks", protocol, "leic", {}, [f"{folder}/model.safetensors" for folder in runs])
        check_scores(plan, f"{name}-parts", protocol, "leic", {}, parts["outputs"])
        (evaluated,) = tasks_of(plan, name)
        rows = [value["row"] for value in evaluated["settings"]["values"]]
        kept = read_json(RESULTS / "vifidel-leic/leic.json")[name]
        assert set(rows) == set(kept["rows"])
        assert set(evaluated["settings"]["tests"]["rows"]) == set(kept["intervals"])


def test_leic_by_submission(tmp_path: Path, real_data: Path) -> None:
    plan = plan_of("leic-submissions", tmp_path, real_data)
    kept = read_json(RESULTS / "vifidel-leic/submissions.json")
    tasks = tasks_of(plan, "networks")
    expected = [
        (seed, system, part)
        for seed in kept["seeds"]
        for system in kept["leic"]
        for part in range(1, kept["folds"] + 1)
    ]
    for task, (seed, system, part) in zip(tasks, expected, strict=True):
        changes = [f"systems=[flickr8k_{system}]", f"folds={{of: 2, out: {part}}}", "device=cpu"]
        settings = deciding("leic", "leic-flickr8k-systems", [*changes, "features='cells.h5'", f"seed={seed}"])
        named = {"network": "leic", "config": "leic-flickr8k-systems", "variant": ""}
        assert task["settings"] == {**named, **settings}
        assert task["outputs"] == [f"seed{seed}/{system}-part{part}/model.safetensors"]
    (systems,) = tasks_of(plan, "systems")
    assert systems["settings"]["metrics"] == list(kept["text"])


def test_combinations(tmp_path: Path, real_data: Path) -> None:
    scores = tmp_path / "leaderboard/scores"
    shutil.copytree(RESULTS / "leaderboard/scores", scores)
    kept = read_json(RESULTS / "reference/combinations.json")
    plan = plan_of("combinations", tmp_path / "out", real_data)
    tasks = [task for task in plan.as_json()["tasks"] if task["kind"] == "combine"]
    made = []
    for task in tasks:
        settings = task["settings"]
        (learner,) = settings["learners"]
        made.append(f"{settings['label']}/{learner}")
        if "test" in settings:
            made.append(f"{made[-1]} on {settings['test']}")
        stored = settings.get("scores", {})
        columns = len(settings["metrics"]) + sum(map(len, stored.values()))
        assert columns == len(kept[f"{settings['label']}/{learner}"]["parts"])
    assert made == [name for name in kept if "/" in name]
    trained = next(task for task in tasks if task["settings"]["label"] == "flickr8k-expert+trained")
    cards = ("bert-tbr-bert", "bertscore-bert", "dual-encoder-flickr8k", "faier-flickr8k", "nneval-coco")
    assert sorted(path for path in trained["inputs"] if not path.startswith("flickr8k/")) == [
        (scores / f"{card}{ending}").as_posix()
        for card in (*cards, "scan-flickr8k-grid", "spice-parsed", "vifidel-glove", "vilbert-flickr8k", "wmd-glove")
        for ending in (".csv.gz", ".yaml")
    ]
    assert plan.left_out == {}


@pytest.mark.parametrize("name", ["dual-encoder-flickr8k", "faier-flickr8k"])
@pytest.mark.usefixtures("plugged")
def test_selections_evaluate_the_recorded_settings(name: str, tmp_path: Path, real_data: Path) -> None:
    recipe = load_recipe(find_recipe(f"{name}-selection"))
    plan = make_plan(recipe, tmp_path, find_root(real_data), train_only=True)
    trained = {
        task["outputs"][0].partition("/")[0]: task for task in plan.as_json()["tasks"] if task["kind"] == "train"
    }
    kept = read_json(RESULTS / name / "dev.json")
    assert set(trained) == {entry["name"] for entry in kept}
    for entry in kept:
        task = trained[entry["name"]]
        features = "boxes.h5" if entry["features"] == "boxes.h5" else "pyr30.h5"
        changes = [*entry["set"], f"features={features!r}", f"seed={entry['seed']}"]
        settings = {**deciding(task["settings"]["network"], entry["config"], changes)}
        decided = {key: task["settings"][key] for key in settings}
        # the vectors are a step of the recipe, so that only the path differs
        assert (decided.pop("word_vectors", None) is None) == (settings.pop("word_vectors", None) is None)
        assert decided == settings
        of_epochs = 300 * decided["epochs"]  # 30,000 captions in batches of 100
        assert entry["steps"] == min(of_epochs, decided["max_steps"] or of_epochs)
