"""Labels, options and needs: how names become requests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from capbench.core import plugins
from capbench.core.built_in import BUILT_IN
from capbench.core.errors import FeatureError, UsageError
from capbench.core.records import Item, ScoreColumn
from capbench.metrics.metric_request import FOR_ALL
from capbench.metrics.needs import Resources
from capbench.metrics.registry import columns_by_metric
from capbench.metrics.requests import left_out_of_all, resolve_metrics, without_references
from tests.errors import raises


def test_a_metric_may_stand_twice_under_labels() -> None:
    plain, labelled = resolve_metrics(["cider", "cider-coco=cider"], {"cider-coco": {"df": "images"}})
    assert (plain.label, plain.options) == ("cider", {})
    assert (labelled.label, labelled.options) == ("cider-coco", {"df": "images"})
    assert [row.name for row in (*plain.rows, *labelled.rows)] == ["cider", "cider-coco"]
    assert [row.title for row in labelled.rows] == ["CIDEr (cider-coco)"]
    assert labelled.score_columns == (ScoreColumn("cider-coco", "cider"),)


@pytest.mark.parametrize(
    ("names", "options", "code", "value"),
    [
        (["a b=cider"], {}, "wrong-format", "a b=cider"),
        (["x="], {}, "wrong-format", "x="),
        (["=cider"], {}, "wrong-format", "=cider"),
        (["x=all"], {}, "conflict", "x=all"),
        (["meteor=cider"], {}, "duplicate", "meteor"),
        (["all=cider"], {}, "duplicate", "all"),
        (["x=cider", "x=bleu"], {}, "duplicate", "x"),
        (["cidr"], {}, "unknown-name", "cidr"),
        (["bleu.bleu-9"], {}, "unknown-name", "bleu-9"),
        (["cider"], {FOR_ALL: {"beta": 1}}, "unknown-option", "beta"),
        (["cider"], {"bleu": {"sigma": 1}}, "unknown-name", "bleu"),
    ],
)
def test_an_invalid_name_label_or_owner(
    names: list[str], options: Mapping[str, Mapping[str, object]], code: str, value: str
) -> None:
    with raises(UsageError, code, value=value):
        resolve_metrics(names, options)


def test_the_table_of_built_in_metrics_says_what_their_classes_say() -> None:
    for name in BUILT_IN["capbench.metrics"]:
        assert columns_by_metric()[name] == plugins.load("capbench.metrics", name).columns


def test_looking_up_a_metric_imports_no_other_metric() -> None:
    code = (
        "import sys; from capbench.metrics.requests import resolve_metrics; resolve_metrics(['bleu-4']); "
        "print(*(name for name in sys.modules if name.startswith(('capbench.metrics.', 'torch', 'pydantic'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "capbench.metrics.ngram" in loaded
    assert not loaded & {"capbench.metrics.meteor", "capbench.metrics.tiger", "capbench.metrics.spice"}
    assert not any(name.startswith(("torch", "pydantic")) for name in loaded)


def test_an_option_of_a_label_comes_before_its_metrics_and_that_before_the_one_for_all() -> None:
    names = ["near=cider", "far=cider", "cider", "spider"]
    options: dict[str, dict[str, object]] = {
        FOR_ALL: {"sigma": 2.0, "df": "items"},
        "cider": {"sigma": 3.0},
        "near": {"sigma": 4.0},
        "spider": {"df": "coco-val"},
    }
    for order in (options, dict(reversed(options.items()))):
        requests = {request.label: dict(request.options) for request in resolve_metrics(names, order)}
        assert requests == {
            "near": {"sigma": 4.0, "df": "items"},
            "far": {"sigma": 3.0, "df": "items"},
            "cider": {"sigma": 3.0, "df": "items"},
            "spider": {"sigma": 2.0, "df": "coco-val"},
        }


def test_what_all_leaves_out_is_every_other_metric_with_what_it_requires() -> None:
    pytest.importorskip("torch")
    able = {request.metric.name for request in resolve_metrics(["all"])}
    reasons = left_out_of_all(Resources())
    assert able | set(reasons) == set(BUILT_IN["capbench.metrics"])
    assert not able & set(reasons)
    assert (reasons["tiger"], reasons["wmd"]) == ("features, weights", "word vectors")


def test_without_references_a_metric_keeps_its_reference_free_columns() -> None:
    requests, notes = without_references(resolve_metrics(["clipscore", "vifidel"]), "--references FILE")
    assert [request.columns for request in requests] == [("clipscore",), ("vifidel",)]
    for note, start in zip(notes, ("clipscore: refclipscore ", "vifidel: vifidel-ref "), strict=True):
        assert note.startswith(start)
        assert "(--references FILE)" in note


@pytest.mark.parametrize(("content", "code"), [(b"not HDF5", "wrong-format"), (b"\x89HDF\r\n\x1a\n", "damaged")])
def test_a_damaged_feature_file_is_not_something_that_items_lack(tmp_path: Path, content: bytes, code: str) -> None:
    features = tmp_path / "regions.h5"
    features.write_bytes(content)
    (tiger,) = resolve_metrics(["tiger"])
    with raises(FeatureError, code):
        tiger.unmet_by([Item("dog", "a dog", ("a dog runs",))], Resources(features=str(features)))
