"""A saved combination scores captions by plain arithmetic on its metrics' columns, and a bad file is one clear line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench import __version__
from capbench.core.errors import CapbenchWarning, DataError
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.metrics.combination import image_digest
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from tests.errors import raises

ITEMS = (
    Item("i0", "a dog runs on the grass", ("a brown dog runs over the green grass", "the dog is running on grass")),
    Item("i1", "a brown dog runs over the green grass today", ("a brown dog runs over the grass", "a dog on grass")),
    Item("i2", "two cats sleep on a very soft red sofa", ("two cats sleep on a sofa", "cats on a red sofa")),
    Item("i3", "the man is outside", ("a man rides a bike down the street", "the man is on a bike outside")),
)


@cache
def signature(metric: str, options: tuple[tuple[str, Any], ...] = ()) -> str:
    if metric in ("tiger", "reo"):
        return f"{metric}|capbench:{__version__}"
    requests = resolve_metrics([metric], {metric: dict(options)})
    return score(ITEMS[:2], requests, dataset="training", cache=False).signatures[metric]


def linear(name: str, metric: str, column: str, weight: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "metric": metric,
        "label": more.pop("label", metric),
        "column": column,
        "signature": signature(metric, tuple(more.get("options", {}).items())),
        "center": 0.3,
        "scale": 0.2,
        "means": [0.0],
        "weights": [weight],
        **more,
    }


def combination(*inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "kind": "capbench combination",
        "schema_version": 2,
        "capbench": "0.1.0",
        "learner": "ridge",
        "protocol": "mine:1/all/tau-b",
        "learnt_images": [image_digest("elsewhere")],
        "examples": 20,
        "seed": 0,
        "inner_folds": 5,
        "penalty": 0.1,
        "intercept": 2.0,
        "inputs": list(inputs),
        **more,
    }


BLEU, ROUGE = linear("bleu-2", "bleu", "bleu-2", 0.5), linear("rouge-l", "rouge-l", "rouge-l", 0.25)


def save(path: Path, *inputs: dict[str, Any], **more: Any) -> Path:
    path.write_text(json.dumps(combination(*inputs, **more)), encoding="utf-8")
    return path


def column(name: str, label: str, metric_column: str, options: dict[str, Any] | None = None) -> FloatArray:
    requests = resolve_metrics([name], {label: options or {}})
    return score(ITEMS, requests, dataset="d", cache=False).values[ScoreColumn(label, metric_column)]


def scores(path: Path, name: str) -> FloatArray:
    requests = resolve_metrics([f"combination:{path}"])
    return score(ITEMS, requests, dataset="d").values[ScoreColumn(name, name)]


def test_scores_are_the_weighted_sum_of_standardised_columns(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.v1.json", BLEU, ROUGE)
    z = [(column(*names) - 0.3) / 0.2 for names in (("bleu", "bleu", "bleu-2"), ("rouge-l", "rouge-l", "rouge-l"))]
    np.testing.assert_allclose(scores(path, "mine-v1"), 2 + 0.5 * z[0] + 0.25 * z[1], atol=1e-12)


def test_a_curve_is_a_sum_of_ramps_and_a_turned_column_falls(tmp_path: Path) -> None:
    curve = linear(
        "rouge-l", "rouge-l", "rouge-l", 0, knots=[-1.0, 0.5], means=[0.1, 0.2, 0.3], weights=[1.0, 0.0, 2.0]
    )
    turned = {**BLEU, "lower_is_better": True, "center": -0.3}
    path = save(tmp_path / "bent.json", curve, turned, learner="monotone")
    expected = []
    for rouge, bleu in zip(column("rouge-l", "rouge-l", "rouge-l"), column("bleu", "bleu", "bleu-2"), strict=True):
        z = (rouge - 0.3) / 0.2
        first = 0.95 * min(z, -1.0) + 0.05 * z / 3 - 0.1
        third = 0.95 * max(z, 0.5) + 0.05 * z / 3 - 0.3
        expected.append(2 + first + 2 * third + 0.5 * (-bleu + 0.3) / 0.2)
    np.testing.assert_allclose(scores(path, "bent"), expected, atol=1e-12)


def warnings_of(path: Path, items: tuple[Item, ...] = ITEMS) -> list[str]:
    requests = resolve_metrics([f"combination:{path}"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        score(items, requests, dataset="d")
    return [str(entry.message) for entry in caught if entry.category is CapbenchWarning]


def test_another_version_in_an_inputs_signature_is_warned_of_and_other_documents_are_not(tmp_path: Path) -> None:
    cider = linear("cider", "cider", "cider", 1.0)
    assert "df:items(2 documents" in cider["signature"]
    assert warnings_of(save(tmp_path / "same.json", cider, BLEU)) == []
    for key, value in (("capbench", __version__), ("tok", "ptb-3.4.1"), ("engine", "native-1")):
        old = {**BLEU, "signature": BLEU["signature"].replace(f"{key}:{value}", f"{key}:older")}
        (line,) = warnings_of(save(tmp_path / f"{key}.json", cider, old))
        assert f"bleu of {key} older, which is now {value}" in line


Change = Callable[[dict[str, Any]], Any]


def changed(**values: Any) -> Change:
    return lambda raw: {**raw, **values}


def input_changed(**values: Any) -> Change:
    return lambda raw: {**raw, "inputs": [{**raw["inputs"][0], **values}, *raw["inputs"][1:]]}


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        (lambda raw: [raw], "wrong-format", None),
        (changed(schema_version=1), "wrong-version", 1),
        (input_changed(label="rouge-l"), "wrong-format", ""),
        (input_changed(scale=0), "wrong-format", "inputs.0.scale"),
        (input_changed(knots=[1.0, 0.5], means=[0, 0, 0], weights=[1, 1, 1]), "wrong-format", "inputs.0"),
        (input_changed(metric="os:system"), "unknown-name", "os:system"),
        (input_changed(options={"size": 3}), "unknown-option", "size"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(change: Change, code: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(change(combination(BLEU, ROUGE))), encoding="utf-8")
    row = "input 1" if code.startswith("unknown") else None
    with raises(DataError, code, path=path, row=row, value=value):
        resolve_metrics([f"combination:{path}"])
