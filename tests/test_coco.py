"""The interface of pycocoevalcap, compared with pycocoevalcap itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench import coco as ours
from capbench.core.errors import CapbenchWarning
from capbench.core.records import Item
from capbench.text.java import find_java
from tests.installed_parser import parsed
from tests.metrics.captions import invented
from tests.text.parsed_captions import CAPTIONS

RULE_BASED = ["Bleu_1", "Bleu_2", "Bleu_3", "Bleu_4", "METEOR", "ROUGE_L", "CIDEr"]


def _files(items: Sequence[Item], folder: Path) -> tuple[str, str]:
    """COCO's annotations, and results of the same form as pycocoevalcap's example; image ids are not sorted."""
    ids = [7 * (i + 3) % 1009 for i in range(len(items))]
    images = [{"id": image} for image in ids]
    texts = [
        {"image_id": image, "caption": text} for image, item in zip(ids, items, strict=True) for text in item.references
    ]
    annotations = [{"id": number, **text} for number, text in enumerate(texts)]
    results = [{"image_id": image, "caption": item.candidate} for image, item in zip(ids, items, strict=True)]
    paths = folder / "captions.json", folder / "results.json"
    paths[0].write_text(json.dumps({"images": images, "annotations": annotations}), "utf-8")
    paths[1].write_text(json.dumps(results), "utf-8")
    return str(paths[0]), str(paths[1])


def _evaluated(kind: Any, files: tuple[str, str]) -> Any:
    """The evaluation of pycocoevalcap's ``coco_eval_example.py``."""
    from pycocotools.coco import COCO

    coco = COCO(files[0])
    results = coco.loadRes(files[1])
    evaluation = kind(coco, results)
    evaluation.params["image_id"] = results.getImgIds()
    evaluation.evaluate()
    return evaluation


@pytest.mark.java
def test_the_example_gives_the_numbers_of_pycocoevalcap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pycocoevalcap.eval as original

    class NoSpice:
        """The jar of SPICE needs gigabytes and minutes; tests/text/spice compares its numbers."""

        def method(self) -> str:
            return "SPICE"

        def compute_score(self, gts: Any, res: Any) -> tuple[float, list[float]]:
            return 0.0, [0.0] * len(gts)

    monkeypatch.setenv("PATH", str(find_java().path.parent), prepend=":")
    monkeypatch.setattr(original, "Spice", NoSpice)
    monkeypatch.setattr(ours, "Spice", NoSpice)
    monkeypatch.setattr(original, "Meteor", ours.Meteor)  # tests/metrics/test_reference_parity.py starts its jar
    last = Item("end", "A man's dog (small), isn't it?", ("A dog.", "A man and his dog."))
    files = _files([*invented(40), last], tmp_path)
    expected, found = _evaluated(original.COCOEvalCap, files), _evaluated(ours.COCOEvalCap, files)
    assert list(found.eval) == list(expected.eval) == [*RULE_BASED, "SPICE"]
    assert found.eval == pytest.approx(expected.eval, abs=1e-9)
    assert found.imgToEval.keys() == expected.imgToEval.keys()
    for image, of_image in expected.imgToEval.items():
        assert found.imgToEval[image] == pytest.approx(of_image, abs=1e-9)
    assert [entry["image_id"] for entry in found.evalImgs] == [entry["image_id"] for entry in expected.evalImgs]
    assert max(found.eval[name] for name in RULE_BASED) > 0.1, "the comparison must compare something"


@pytest.mark.parametrize(("name", "options"), [("bleu", {"n": 2}), ("rouge", {}), ("cider", {"sigma": 4.0})])
def test_scorers_take_any_texts_and_options(name: str, options: dict[str, Any]) -> None:
    """Not tokenised, as some callers pass them, with empty candidates and one image listed in another order."""
    from importlib import import_module

    original = getattr(import_module(f"pycocoevalcap.{name}.{name}"), name.capitalize())
    gts = {i: list(item.references) for i, item in enumerate(invented(30))} | {"x": ["A dog, a cat."], "e": ["", "a"]}
    res = {i: [item.candidate] for i, item in reversed(list(enumerate(invented(30))))} | {"e": [""], "x": ["A dog"]}
    scorer = getattr(ours, name.capitalize())
    expected_total, expected = original(**options).compute_score(gts, res)
    total, scores = scorer(**options).compute_score(gts, res)
    np.testing.assert_allclose(total, expected_total, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
    assert type(total) in (list, float)
    assert scorer().method() == original().method()


def test_spice_has_pycocoevalcaps_form() -> None:
    dogs, kids, boy = (next(text for text in CAPTIONS if word in text) for word in ("dogs", "kids", "boy"))
    with parsed(CAPTIONS):
        mean, scores = ours.Spice().compute_score({2: [dogs, "a dog runs"], 1: [kids]}, {1: [boy], 2: ["a dog runs"]})
    assert [of_image["All"]["tp"] for of_image in scores] == [0.0, 2.0]  # dog, dog-run
    assert mean == pytest.approx(np.mean([of_image["All"]["f"] for of_image in scores]))
    assert set(scores[0]) == {"All", "Object", "Attribute", "Relation", "Color", "Size", "Cardinality"}
    assert set(scores[0]["All"]) == {"pr", "re", "f", "fn", "numImages", "fp", "tp"}


def test_without_the_parser_all_other_scores_are_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_HOME", str(tmp_path))
    monkeypatch.setenv("CAPBENCH_CACHE", str(tmp_path / "cache"))
    files = _files(invented(5), tmp_path)
    with pytest.warns(CapbenchWarning, match="SPICE"):
        found = _evaluated(ours.COCOEvalCap, files)
    assert list(found.eval) == RULE_BASED
