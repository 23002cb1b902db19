from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import Item, ScoreColumn
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.metrics.tiger import Tiger
from capbench.stats.retrieval import retrieval
from capbench.studies.retrieval import draw_gallery, metric_retrieval
from capbench.studies.study import RetrievalTask
from tests.errors import raises
from tests.metrics.scan.models import Files, make_files, make_items

ITEMS = make_items(12, images=4)

CAPTIONS = {
    "c": ["a tree", "a green tree", "the tree is green", "one tree stands"],
    "a": ["a red dog", "the red dog", "a dog", "red dog runs", "a small red dog"],
    "b": ["two men sit", "men sit", "two men on a bench", "men"],
    "d": ["a boat", "boats on water", "the boat sails", "a boat and water"],
}
TWO = RetrievalTask(references=2)


def pairs_of(items: list[Item]) -> list[Item]:
    references = {item.image: item.references for item in items}
    return [Item(image, item.candidate, texts) for image, texts in references.items() for item in items]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    pytest.importorskip("torch")
    return make_files(tmp_path_factory.mktemp("retrieval"), sorted({item.image for item in ITEMS}))


def test_the_first_captions_are_references_and_the_others_are_queries() -> None:
    items, _ = draw_gallery(CAPTIONS, TWO)
    assert [item.image for item in items] == list("ccaaabbdd")
    texts = ("a dog", "red dog runs", "a small red dog")
    assert items[2:5] == [Item("a", text, ("a red dog", "the red dog")) for text in texts]


def test_the_draw_depends_on_the_seed_and_not_on_the_order_of_the_file() -> None:
    many = {f"{number:03d}": ["x", "y"] for number in range(100)}
    task = RetrievalTask(references=1, images=10, seed=3)
    drawn, source = draw_gallery(many, task)
    images = [item.image for item in drawn]
    assert len(images) == 10
    assert images == sorted(images)
    backwards, _ = draw_gallery(dict(reversed(many.items())), task)
    assert backwards == drawn[::-1]
    assert draw_gallery(many, RetrievalTask(references=1, images=10, seed=4))[0] != drawn
    assert "10 of 100 images, drawn with seed 3" in source


def test_pairs_are_scored_as_any_items_are() -> None:
    items, _ = draw_gallery(CAPTIONS, TWO)
    requests = resolve_metrics(["bleu", "rouge-l"])
    table = score(pairs_of(items), requests, dataset="x", cache=False)
    for request in requests:
        for row, result in zip(request.rows, metric_retrieval(items, request), strict=True):
            matrix = table.values[row.key].reshape(4, len(items))
            assert result == {
                "metric": row.name,
                "title": row.title,
                "references": True,
                "signature": table.signatures[request.label],
                **retrieval(matrix, np.array([0, 0, 1, 1, 1, 2, 2, 3, 3])),
            }


def test_a_column_that_ignores_references_has_the_scores_without_them(made: Files) -> None:
    images = sorted({item.image for item in ITEMS})
    items = [Item(i, item.candidate, (f"a dog {i}",)) for i, item in zip(images, ITEMS, strict=False)]
    (request,) = resolve_metrics(["tiger.grounding", "tiger.tiger"])
    grounding, tiger = metric_retrieval(items, request, resources=made.resources)
    assert (grounding["references"], tiger["references"]) == (False, True)
    bare = [replace(pair, references=()) for pair in pairs_of(items)]
    (alone,) = resolve_metrics(["tiger.grounding"])
    matrix = score(bare, [alone], made.resources, dataset="x", cache=False).values[ScoreColumn("tiger", "grounding")]
    expected = retrieval(matrix.reshape(len(images), -1), np.arange(len(images)))
    assert grounding == {**grounding, **expected}


def test_a_matrix_is_what_scoring_pair_by_pair_gives(made: Files) -> None:
    images = sorted({item.image for item in ITEMS})
    texts = [item.candidate for item in ITEMS][:5]
    items = [Item(images[k % 4], text, ("the red ball", f"a dog {k % 4}")) for k, text in enumerate(texts)]
    metric, steps = Tiger(made.resources), list[int]()
    metric.texts_at_once = 2
    matrices = metric.matrix(items, steps.append)
    assert sum(steps) == 4 * 5
    (request,) = resolve_metrics(["tiger.tiger", "tiger.grounding"])
    table = score(pairs_of(items), [request], made.resources, dataset="x", cache=False)
    for key, values in table.values.items():
        np.testing.assert_allclose(matrices[key.column], values.reshape(4, 5), rtol=0, atol=1e-9)


def test_what_cannot_be_retrieved_is_said() -> None:
    with raises(DataError, "too-few", value="c"):
        draw_gallery(CAPTIONS, RetrievalTask())
    with raises(DataError, "too-few", value=0):
        draw_gallery({}, TWO)
