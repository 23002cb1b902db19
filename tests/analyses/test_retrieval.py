from __future__ import annotations

import numpy as np
import pytest

from capbench.analyses import retrieval as module
from capbench.analyses.retrieval import metric_retrieval
from capbench.errors import DataError, UsageError
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.tiger import Tiger
from capbench.records import Item, ScoreColumn
from capbench.scoring import score
from tests.metrics.grounding.models import Files, make_files, make_items

ITEMS = make_items(12, images=4)

CAPTIONS = {"a": ["a red dog", "the red dog"], "b": ["two men sit", "men sit"], "c": ["a tree", "a green tree"]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("retrieval"), sorted({item.image for item in ITEMS}))


def test_a_metric_finds_images_by_what_their_references_say() -> None:
    (request,) = resolve_metrics(["bleu-1"])
    result = metric_retrieval(CAPTIONS, request, cache=False)
    assert result.retrieval.text_to_image.recalls == (100.0, 100.0, 100.0)
    assert result.with_references
    assert result.row.name == "bleu-1"


def test_a_matrix_is_what_scoring_pair_by_pair_gives(made: Files) -> None:
    images = sorted({item.image for item in ITEMS})
    captions = [item.candidate for item in ITEMS][:5]
    references = {image: ("the red ball", f"a dog {image}") for image in images}
    for column in ("tiger", "grounding"):
        metric = Tiger(made.resources)
        items = [Item(image, caption, references[image]) for image in images for caption in captions]
        (request,) = resolve_metrics([f"tiger.{column}"])
        table = score(items, [request], made.resources, dataset="x", cache=False)
        expected = table.values[ScoreColumn("tiger", column)].reshape(len(images), len(captions))
        metric.texts_at_once = 2
        steps: list[int] = []
        matrix = metric.matrix(images, captions, references, column, steps.append)
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-9)
        assert sum(steps) == len(images)


def test_what_cannot_be_retrieved_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (bleu,), (one,) = resolve_metrics(["bleu"]), resolve_metrics(["bleu-1"])
    with pytest.raises(UsageError, match="one column is wanted, and there are 4"):
        metric_retrieval(CAPTIONS, bleu)
    with pytest.raises(DataError, match="the image 'b' has 1 caption"):
        metric_retrieval({"a": ["x", "y"], "b": ["z"]}, one)
    with pytest.raises(DataError, match="no images"):
        metric_retrieval({}, one)
    monkeypatch.setattr(module, "MOST_PAIRS", 8)
    with pytest.raises(UsageError, match="there are 9"):
        metric_retrieval(CAPTIONS, one)
