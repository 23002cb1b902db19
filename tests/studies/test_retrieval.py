from __future__ import annotations

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import Item, ScoreColumn
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.metrics.tiger import Tiger
from capbench.stats.retrieval import retrieval
from capbench.studies.retrieval import CaptionGallery, draw_gallery, metric_retrieval
from capbench.studies.study import RetrievalTask
from tests.errors import raises
from tests.metrics.scan.models import Files, make_files, make_items
from tests.studies.toys import known

ITEMS = make_items(12, images=4)

CAPTIONS = {
    "c": ["a tree", "a green tree", "the tree is green", "one tree stands"],
    "a": ["a red dog", "the red dog", "a dog", "red dog runs", "a small red dog"],
    "b": ["two men sit", "men sit", "two men on a bench", "men"],
    "d": ["a boat", "boats on water", "the boat sails", "a boat and water"],
}
TWO = RetrievalTask(references=2)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    pytest.importorskip("torch")
    return make_files(tmp_path_factory.mktemp("retrieval"), sorted({item.image for item in ITEMS}))


def test_the_first_captions_are_references_and_the_others_are_queries() -> None:
    gallery = draw_gallery(CAPTIONS, TWO)
    assert gallery.images == ("c", "a", "b", "d")
    assert gallery.references["a"] == ("a red dog", "the red dog")
    assert gallery.captions[2:5] == ("a dog", "red dog runs", "a small red dog")
    assert gallery.image_of.tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3]
    one = draw_gallery(CAPTIONS, RetrievalTask(references=2, gallery="one"))
    assert one.captions == ("the tree is green", "a dog", "two men on a bench", "the boat sails")


def test_the_draw_depends_on_the_seed_and_not_on_the_order_of_the_file() -> None:
    many = {f"{number:03d}": ["x", "y"] for number in range(100)}
    task = RetrievalTask(references=1, images=10, seed=3)
    drawn = draw_gallery(many, task).images
    assert len(drawn) == 10
    assert drawn == tuple(sorted(drawn))
    backwards = draw_gallery(dict(reversed(many.items())), task).images
    assert backwards == tuple(reversed(drawn))
    assert draw_gallery(many, RetrievalTask(references=1, images=10, seed=4)).images != drawn
    assert "10 of 100 images, drawn with seed 3" in draw_gallery(many, task).source


def test_pairs_are_scored_as_any_items_are() -> None:
    gallery = draw_gallery(CAPTIONS, TWO)
    requests = resolve_metrics(["bleu", "rouge-l"])
    images, captions = gallery.images, gallery.captions
    items = [Item(image, caption, gallery.references[image]) for image in images for caption in captions]
    table = score(items, requests, dataset="x", cache=False)
    for request in requests:
        for row, result in zip(request.rows, metric_retrieval(gallery, request), strict=True):
            matrix = table.values[row.key].reshape(len(images), len(captions))
            assert result.model_dump() == {
                "metric": row.name,
                "title": row.title,
                "references": True,
                "signature": table.signatures[request.label],
                **retrieval(matrix, gallery.image_of),
            }


def test_a_column_that_looks_at_no_references_gets_none(made: Files) -> None:
    images = sorted({item.image for item in ITEMS})
    texts = [item.candidate for item in ITEMS][: len(images)]
    requests = resolve_metrics(["tiger.grounding", "tiger.tiger"])
    gallery = CaptionGallery(
        tuple(images), tuple(texts), np.arange(len(images)), {image: (f"a dog {image}",) for image in images}, ""
    )
    (request,) = requests
    grounding, tiger = metric_retrieval(gallery, request, resources=made.resources)
    assert (grounding.references, tiger.references) == (False, True)
    bare = [Item(image, text, ()) for image in images for text in texts]
    (alone,) = resolve_metrics(["tiger.grounding"])
    matrix = score(bare, [alone], made.resources, dataset="x", cache=False).values[ScoreColumn("tiger", "grounding")]
    expected = retrieval(matrix.reshape(len(images), -1), np.arange(len(images)))
    assert grounding.image_to_text == expected["image_to_text"]
    assert grounding.text_to_image == expected["text_to_image"]


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
        matrix = known(metric.matrix(captions, references, column, steps.append))
        np.testing.assert_allclose(matrix, expected, rtol=0, atol=1e-9)
        assert sum(steps) == len(images)


def test_what_cannot_be_retrieved_is_said() -> None:
    with raises(DataError, "too-few", value="c"):
        draw_gallery(CAPTIONS, RetrievalTask())
    with raises(DataError, "too-few", value=0):
        draw_gallery({}, TWO)
