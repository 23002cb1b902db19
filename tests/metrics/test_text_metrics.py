from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from pycocoevalcap.cider.cider_scorer import CiderScorer

from capbench.core.errors import CapbenchWarning, MetricError
from capbench.core.records import FloatArray, Item
from capbench.datasets.reference_draws import reference_orders
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.base import Metric
from capbench.metrics.meteor import Meteor
from capbench.metrics.needs import Resources
from capbench.metrics.ngram import Bleu, Cider, RougeL, Spider
from capbench.metrics.spice import Spice
from capbench.text import ptb
from tests.errors import raises
from tests.installed_parser import parsed
from tests.metrics.captions import CORNERS, invented
from tests.text.parsed_captions import CAPTIONS

ITEMS = (
    Item("i1", "a dog runs on the grass", ("a dog is running on grass", "the brown dog runs")),
    Item("i2", "a cat", ("a black cat on a mat", "the cat sleeps")),
    Item("i3", "two men ride bikes", ("two men ride bikes", "people on bikes")),
)


@pytest.fixture
def plain_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptb, "tokenize", lambda captions, **_: [text.lower() for text in captions])


def _scores(metric: Metric, items: Sequence[Item]) -> dict[str, FloatArray]:
    metric.prepare(items)
    return metric.scores(metric.statistics(items, lambda _: None))


@pytest.mark.parametrize("metric", [Bleu, RougeL, Cider, Meteor])
def test_item_without_references_is_named(metric: type[Metric]) -> None:
    items = (*ITEMS, Item("i9", "a lonely caption", (), "i9#0"))
    made = metric()
    made.prepare(items)
    with raises(MetricError, "missing-references", value="i9") as caught:
        made.statistics(items, lambda _: None)
    assert "'i9#0'" in caught.value.message


LONG = " ".join(f"w{i}" for i in range(1_001))


@pytest.mark.parametrize(
    ("item", "row"),
    [
        (Item("b", LONG, ("the cat",), "c2"), "image 'b', the candidate 'c2'"),
        (Item("a", "a dog", ("the dog", LONG)), "image 'a', reference 2"),
    ],
)
def test_a_caption_too_long_for_meteor_is_named(item: Item, row: str) -> None:
    with raises(MetricError, "too-large", row=row) as caught:
        Meteor().open([*ITEMS, item])
    assert row in str(caught.value)


@pytest.mark.parametrize("metric", [Bleu, RougeL, Cider])
@pytest.mark.usefixtures("plain_tokens")
def test_batches_do_not_change_scores_and_no_corner_gives_nan(
    metric: type[Metric], capfd: pytest.CaptureFixture[str]
) -> None:
    items = (*CORNERS, *invented(40))
    made = metric()
    made.prepare(items)
    whole = made.statistics(items, lambda _: None)
    parts = [made.statistics(items[i : i + 7], lambda _: None) for i in range(0, len(items), 7)]
    assert np.array_equal(np.vstack(parts), whole)
    assert all(np.isfinite(values).all() for values in made.scores(whole).values())
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("plain_tokens")
def test_rouge_weighs_recall_by_beta() -> None:
    item = Item("i", "a dog", ("a dog on the grass",))
    precision, recall = 1.0, 0.4
    for beta in (1.2, 3.0):
        expected = (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
        assert _scores(RougeL(beta=beta), [item])["rouge-l"][0] == pytest.approx(expected, abs=1e-15)


def test_bleu_of_a_corpus_comes_from_summed_counts() -> None:
    metric = Bleu()
    statistics = metric.statistics(ITEMS, lambda _: None)
    assert statistics[2].tolist() == [4, 3, 2, 1, 4, 3, 2, 1, 4, 4]
    assert metric.scores(statistics)["bleu-4"][2] == pytest.approx(1, abs=1e-8)
    matches, guesses = statistics[:, 0].sum(), statistics[:, 4].sum()
    penalty = np.exp(1 - statistics[:, 9].sum() / statistics[:, 8].sum())
    assert metric.corpus_scores(statistics)["bleu-1"] == pytest.approx(matches / guesses * penalty, abs=1e-8)


@pytest.mark.usefixtures("plain_tokens")
def test_cider_counts_one_document_for_each_item_repeats_included() -> None:
    once, twice = Cider(), Cider()
    scores, repeated = _scores(once, ITEMS)["cider"], _scores(twice, (*ITEMS, ITEMS[0]))["cider"]
    assert once.corpus_id().startswith("items(3 documents, ")
    assert twice.corpus_id().startswith("items(4 documents, ")
    assert scores[1] != repeated[1]
    original = CiderScorer(n=4, sigma=6.0)
    for item in (*ITEMS, ITEMS[0]):
        original += (item.candidate, list(item.references))
    np.testing.assert_allclose(repeated, original.compute_score()[1], rtol=1e-12)


def test_cider_on_a_single_image_warns_with_the_reason() -> None:
    with pytest.warns(CapbenchWarning, match=r"CIDEr.*cider\.df=coco-val"):
        scores = _scores(Cider(), ITEMS[:1])
    assert scores["cider"].tolist() == [0.0]


@pytest.mark.usefixtures("plain_tokens")
def test_cider_takes_frequencies_from_a_named_corpus() -> None:
    corpus = {"x": ["a dog", "the dog"], "y": ["a cat"], "z": ["a tree on grass"]}
    asked: list[str] = []

    def look_up(name: str) -> Mapping[str, Sequence[str]]:
        asked.append(name)
        return corpus

    metric = Cider(Resources(captions=look_up), df="some/folder/own.json")
    assert _scores(metric, ITEMS[:1])["cider"][0] > 0
    assert asked == ["some/folder/own.json"]
    assert "|df:own.json(3 documents, " in metric.signature()


def test_a_cider_corpus_without_captions_or_without_a_data_folder_is_an_error() -> None:
    with raises(MetricError, "missing-references", value="own"):
        Cider(Resources(captions=lambda _: {"x": []}), df="own").prepare(ITEMS)
    with raises(MetricError, "unsupported", value="coco-val"):
        Cider(df="coco-val").prepare(ITEMS)
    with raises(MetricError, "missing-value"):
        Cider().statistics(ITEMS, lambda _: None)


COUNTS = (1, 2, 3, 5, 9)  # 9: more than any item has


def _sweep(items: tuple[Item, ...], draws: int = 3) -> ReferenceSweep:
    items = tuple(item for item in items if len(item.candidate) < 1_000)  # METEOR takes seconds for the longest
    return ReferenceSweep(items, tuple(reference_orders(items, 4, draws)), COUNTS)


def _anew(metric: Metric, items: tuple[Item, ...]) -> FloatArray:
    metric.prepare(items)
    metric.open(items)
    return metric.statistics(items, lambda _: None)


def _check(metric: Metric, sweep: ReferenceSweep, tolerance: float = 0.0) -> None:
    metric.prepare(sweep.items)
    done: list[int] = []
    found = metric.sweep(sweep, done.append)
    assert found is not None
    arrays = list(found)
    assert sum(done) == len(sweep.items) * len(sweep.orders)
    assert len(arrays) == len(sweep.orders)
    for draw, array in enumerate(arrays):
        for step, count in enumerate(COUNTS):
            expected = _anew(metric, sweep.subset(draw, count))
            np.testing.assert_allclose(array[step], expected, rtol=0, atol=tolerance)
    assert not np.array_equal(arrays[0][0], arrays[1][0])  # the draws do differ


@pytest.mark.parametrize(
    "metric", [Bleu(), RougeL(), RougeL(beta=2.0), Meteor()], ids=["bleu", "rouge-l", "rouge-l-beta", "meteor"]
)
def test_sweeping_equals_scoring_each_subset_anew(metric: Metric) -> None:
    _check(metric, _sweep(invented(25)))


def test_cider_with_a_corpus_of_documents_keeps_them(tmp_path: Path) -> None:
    def corpus(_name: str) -> Mapping[str, list[str]]:
        return {"1": ["a dog runs", "the dog"], "2": ["a red house near a cat"], "3": ["two men sit"]}

    metric = Cider(Resources(captions=corpus), df="coco-val", sigma=4.0)
    _check(metric, _sweep(invented(25)), tolerance=1e-12)


@pytest.mark.java
@pytest.mark.parametrize("metric", [Spice(), Spider()], ids=["spice", "spider"])
def test_merging_references_one_by_one_equals_merging_them_anew(metric: Metric) -> None:
    texts = list(CAPTIONS)
    items = tuple(
        Item(f"i{i % 4}", texts[i % len(texts)], tuple(texts[(i % 4 + j) % len(texts)] for j in range(2 + i % 4)))
        for i in range(16)
    )
    with parsed(CAPTIONS):
        _check(metric, _sweep(items), tolerance=1e-12)
