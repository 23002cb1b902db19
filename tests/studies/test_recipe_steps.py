"""Steps that select, combine, merge and score systems, on the embedded sample."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capbench
from capbench.core.files import read_json, write_text
from capbench.datasets.composite import Composite
from capbench.datasets.root import find_root
from capbench.metrics.score_joining import item_id
from capbench.studies.judged import no_progress
from capbench.studies.recipe import Run, make_plan, run_plan
from capbench.studies.recipe_file import parse_recipe
from capbench.studies.recipe_steps import SelectStep
from tests.metrics.grounding.models import write_features


def go(out: Path, steps: dict[str, Any]) -> None:
    recipe = parse_recipe({"schema": 1, "name": "toy", "steps": steps}, "toy.yaml")
    run_plan(make_plan(recipe, out, find_root("sample")), Run(find_root("sample"), lambda _: None, no_progress))


def test_settings_are_evaluated_in_their_order_and_the_best_is_chosen(tmp_path: Path) -> None:
    criteria = {"tau-c": {"protocol": "flickr8k-expert"}, "crowd": {"protocol": "flickr8k-crowdflower"}}
    settings = {"images": {"df": "images"}, "items": {"df": "items"}}
    go(tmp_path, {"dev": {"select": "cider", "criteria": criteria, "by": "tau-c", "settings": settings}})
    found = read_json(tmp_path / "dev.json")
    assert list(found["evaluations"]) == ["images", "items"]
    for name, options in settings.items():
        for criterion, dataset in (("tau-c", "flickr8k-expert"), ("crowd", "flickr8k-crowdflower")):
            ours = capbench.correlate(dataset, metrics=["cider"], options={"cider": options}, data="sample")
            assert found["evaluations"][name][criterion] == pytest.approx(ours.value("cider"), abs=1e-12)
    taus = {name: numbers["tau-c"] for name, numbers in found["evaluations"].items()}
    assert found["chosen"] == max(taus, key=lambda name: taus[name])


def test_an_undefined_agreement_is_never_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([None, -0.2, -0.1])
    monkeypatch.setattr(SelectStep, "_numbers", lambda *_: ({"tau-c": next(values)}, []))
    criteria = {"tau-c": {"protocol": "flickr8k-expert"}}
    settings = {"none": {"df": "images"}, "low": {"df": "items"}, "high": {"df": "corpus"}}
    go(tmp_path, {"dev": {"select": "cider", "criteria": criteria, "by": "tau-c", "settings": settings}})
    assert read_json(tmp_path / "dev.json")["chosen"] == "high"


def test_a_combination_is_that_of_capbench_combine(tmp_path: Path) -> None:
    step = {
        "combine": "flickr8k-expert",
        "label": "expert",
        "metrics": ["bleu-1", "meteor"],
        "learners": ["ridge"],
        "seeds": [1],
        "test": "composite",
        "resamples": 100,
    }
    go(tmp_path, {"expert": step, "results": {"results": "all.json", "parts": {"": "expert"}}})
    found = read_json(tmp_path / "all.json")
    assert [key for key in found if "/" in key] == ["expert/ridge", "expert/ridge on composite"]
    ours = capbench.combine("flickr8k-expert", ["bleu-1", "meteor"], learner="ridge", resamples=100, data="sample")
    expected = json.loads(json.dumps(ours.to_dict()))
    assert found["expert/ridge"]["parts"] == expected["parts"]
    assert found["expert/ridge"]["comparison"] == expected["comparison"]
    other = capbench.combine(
        "flickr8k-expert", ["bleu-1", "meteor"], learner="ridge", seed=1, resamples=100, data="sample"
    )
    values = other.to_dict()["comparison"]["intervals"]["combination"]
    assert found["expert/ridge"]["other_seeds"]["1"] == pytest.approx(values["value"], abs=1e-12)


def test_a_combination_of_stored_scores_is_that_of_the_metrics_themselves(tmp_path: Path) -> None:
    scores = capbench.score(dataset="flickr8k-expert", metrics=["rouge-l", "meteor"], data="sample")
    lines = [
        "id,rouge,other",
        *dict.fromkeys(
            f"{item_id(item)},{rouge!r},{meteor!r}"
            for item, rouge, meteor in zip(
                scores.items, scores["rouge-l"].tolist(), scores["meteor"].tolist(), strict=True
            )
        ),
    ]
    (tmp_path / "mine.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    card = "schema: 1\nname: mine\ntitle: Mine\nkind: metric\ntraining_data: none\nuses_ratings: false\n"
    write_text(tmp_path / "mine.yaml", card + "reads_references: true\ncolumns: {rouge: {}, other: {title: Other}}\n")
    shared = {"combine": "flickr8k-expert", "learners": ["ridge"], "seeds": [1], "resamples": 100}
    stored = {**shared, "label": "stored", "metrics": ["bleu-1"], "scores": {"mine": ["rouge", "other"]}}
    computed = {**shared, "label": "computed", "metrics": ["bleu-1", "rouge-l", "meteor"]}
    steps = {"mine": {"files": "mine.yaml"}, "stored": stored, "computed": computed}
    go(tmp_path, {**steps, "results": {"results": "all.json", "parts": {"": ["stored", "computed"]}}})
    found = read_json(tmp_path / "all.json")
    ours, expected = (found[f"{label}/ridge"]["comparison"]["intervals"] for label in ("stored", "computed"))
    assert list(ours) == ["BLEU-1", "Mine", "Other", "combination"]
    assert ours["combination"] == expected["combination"]
    assert found["stored/ridge"]["other_seeds"] == found["computed/ridge"]["other_seeds"]


def test_grounding_models_are_merged_in_groups(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch

    from capbench.metrics.grounding.scan import Scan, ScanOptions
    from capbench.metrics.grounding.scan_files import load_scan, save_scan
    from capbench.text.vocabulary import Vocabulary

    words = Vocabulary.build(["a dog runs in the park"] * 4)
    options = ScanOptions(vocabulary_size=len(words), word_dim=6, embed_dim=8, image_dim=12)
    for seed in (1, 2, 3, 4, 5):
        (tmp_path / f"seed{seed}").mkdir()
        network = Scan(options, torch.Generator().manual_seed(seed))
        save_scan(tmp_path / f"seed{seed}" / "model.safetensors", network, words, {"features": "0" * 16})
    networks = {"files": "seed{seed}/model.safetensors", "seeds": [1, 2, 3, 4, 5]}
    go(tmp_path, {"networks": networks, "merged": {"merge": "networks", "of": 2}})
    for number, seeds in ((1, (1, 2)), (2, (3, 4))):
        merged = load_scan(tmp_path / f"merged{number}" / "model.safetensors")
        parts = [load_scan(tmp_path / f"seed{seed}" / "model.safetensors").sha256 for seed in seeds]
        assert merged.training["merged"] == parts
    assert not (tmp_path / "merged3").exists()


def test_two_networks_are_tested_by_their_mean_and_by_their_difference_from_other_images(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch

    from capbench.core.files import sha256_file
    from capbench.metrics.grounding.scan import Scan, ScanOptions
    from capbench.metrics.grounding.scan_files import save_scan
    from capbench.stats.correlation import correlation
    from capbench.studies.recipe_scores import read_scores
    from capbench.text.vocabulary import Vocabulary

    composite = Composite(find_root("sample"))
    (judgements,) = composite.load(composite.protocol().items)
    items = judgements.items
    write_features(tmp_path / "all.h5", sorted({item.image for item in items}), 12)
    (tmp_path / "list.txt").write_text("\n".join(sorted({item.image for item in items})[:4]))
    words = Vocabulary.build([item.candidate for item in items])
    options = ScanOptions(vocabulary_size=len(words), word_dim=6, embed_dim=8, image_dim=12)
    for seed in (1, 2):
        (tmp_path / f"seed{seed}").mkdir()
        network = Scan(options, torch.Generator().manual_seed(seed))
        save_scan(tmp_path / f"seed{seed}" / "model.safetensors", network, words, {})
    steps: dict[str, Any] = {
        "features": {"files": "all.h5"},
        "networks": {"files": "seed{seed}/model.safetensors", "seeds": [1, 2]},
    }
    shown = {"seen": {}, "mean": {"training_images": str(tmp_path / "list.txt")}, "shuffled": {}}
    for kind, more in shown.items():
        steps[kind] = {
            "score": "tiger",
            "judgements": "composite",
            "features": "features",
            "model": "networks",
            "options": {"image": kind, **more},
        }
    steps["text"] = {"score": "cider", "judgements": "composite"}
    steps["all"] = {
        "evaluate": "composite",
        "coefficients": ["tau-c"],
        "values": [
            {"scores": kind, "columns": ["grounding"], "row": "grounding" + (f", {kind}" if kind != "seen" else "")}
            for kind in shown
        ]
        + [{"scores": "text", "row": "{title}"}],
        "tests": {"rows": ["grounding", "CIDEr"], "resamples": 100},  # fewer networks than the default width
        "contributions": ["grounding"],
        "resamples": 100,
    }
    steps["results"] = {"results": "all.json", "parts": {"composite": "all"}}
    go(tmp_path, steps)
    found = read_json(tmp_path / "all.json")
    digests = [sha256_file(tmp_path / f"seed{s}" / "model.safetensors") for s in (1, 2)]
    assert found["sha256"]["networks"] == digests
    assert "all" not in found["sha256"]  # the evaluation itself
    assert set(found["signatures"]) == {*shown, "text"}
    for lines in (found["signatures"][kind] for kind in shown):
        assert [digest[:16] in line for digest, line in zip(digests, lines, strict=True)] == [True, True]
    one = found["composite"]["contributions"]["grounding"]
    ratings = judgements.ratings["correctness"]
    taus = {}
    for kind in shown:
        each = [read_scores(tmp_path / "scores" / kind / f"tiger+seed{s}.npz")["grounding"][0] for s in (1, 2)]
        assert not np.array_equal(each[0], each[1])
        taus[kind] = np.mean([correlation("tau-c", scores[ratings.item], ratings.value).value for scores in each])
    assert (one["networks"], one["seen"]) == (2, pytest.approx(taus["seen"], abs=1e-12))
    intervals = found["composite"]["intervals"]
    assert intervals["grounding"]["value"] == pytest.approx(taus["seen"], abs=1e-12)
    assert intervals["CIDEr"]["value"] == pytest.approx(found["composite"]["rows"]["CIDEr"]["tau-c"][0], abs=1e-12)
    for kind in ("mean", "shuffled"):
        assert one[kind]["value"] == pytest.approx(taus[kind], abs=1e-12)
        assert one[kind]["difference"] == pytest.approx(taus["seen"] - taus[kind], abs=1e-12)
        assert one[kind]["low"] <= one[kind]["difference"] <= one[kind]["high"]
        assert 1 / 301 <= one[kind]["p"] <= 1


def test_numbers_of_a_run_are_means_of_its_last_evaluations(tmp_path: Path) -> None:
    from capbench.studies.recipe_steps import held_out_numbers

    lines = [{"kind": "step", "loss": 1.0}]
    lines += [{"kind": "evaluation", "p machine": n / 10, "p human": 1 - n / 10, "accuracy": 0.5} for n in range(6)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = held_out_numbers(tmp_path, 2)
    assert found == {"p machine": pytest.approx(0.45), "p human": pytest.approx(0.55), "accuracy": 0.5}
    assert held_out_numbers(tmp_path, 10)["p machine"] == pytest.approx(np.mean([n / 10 for n in range(6)]))
