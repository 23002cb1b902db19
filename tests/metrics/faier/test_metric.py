from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError
from capbench.core.explanations import Bars, RegionMaps, Subject, Table
from capbench.core.records import FloatArray, Item
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.faier import encode
from capbench.metrics.faier.metric import Faier
from capbench.metrics.faier.network import VARIANTS, FaierModel
from capbench.text.vocabulary import tokenize_caption
from tests.errors import raises
from tests.metrics.faier.models import (
    IMAGES,
    TEXTS,
    TRIPLETS,
    know_triplets,
    make_ensemble,
    make_files,
    write_features,
    write_model,
)
from tests.metrics.faier.reference import PlainFaier, Text
from tests.metrics.scan.models import Files

ITEMS = tuple(
    Item(image, candidate, references)
    for image in IMAGES
    for candidate in TEXTS
    for references in ((), TEXTS[3:4], TEXTS[:3], (TEXTS[5], TEXTS[4], TEXTS[6], TEXTS[5]))
)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    know_triplets(monkeypatch)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def statistics(metric: Faier, items: tuple[Item, ...] = ITEMS) -> FloatArray:
    return metric.statistics(items, lambda _: None)


def plain(network: FaierModel, store: FeatureStore, item: Item) -> tuple[float, float, float]:
    weights = {name: weight.numpy() for name, weight in network.network.state_dict().items()}

    def text(caption: str) -> Text:
        def numbers(words: str) -> tuple[int, ...]:
            return tuple(network.vocabulary.number(word) for word in tokenize_caption(words))

        triplets = tuple(numbers(" ".join(triplet)) for triplet in TRIPLETS.get(caption, ()))
        return Text((1, *numbers(caption), 2), triplets)

    regions = store[item.image]
    assert regions.boxes is not None
    boxes = regions.boxes.astype(np.float64) / [80, 50, 80, 50]
    answer = PlainFaier(network.options, weights).score(
        regions.features.astype(np.float64), boxes, [text(r) for r in item.references or (".",)], text(item.candidate)
    )
    return answer.total, answer.objects, answer.relations


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_the_papers_equations(tmp_path: Path, variant: str) -> None:
    similarity = "cosine" if "object" in variant else "dot"
    made = make_files(tmp_path, variant=variant, similarity=similarity)
    got = statistics(Faier(made.resources))
    network = FaierModel.load(made.model)
    with open_store(made.features) as store:
        for place in random.Random(1).sample(range(len(ITEMS)), 40):
            np.testing.assert_allclose(got[place], plain(network, store, ITEMS[place]), atol=2e-6)


def test_an_ensembles_scores_are_the_means_of_its_networks(tmp_path: Path) -> None:
    made = make_ensemble(tmp_path)
    metric = Faier(made.resources)
    of_networks = [
        statistics(Faier(Files(tmp_path / f"{seed}.safetensors", made.features).resources)) for seed in (1, 2, 3)
    ]
    np.testing.assert_allclose(statistics(metric), np.mean(of_networks, axis=0), atol=1e-7)
    assert "model:mean-of-3+faier-" in metric.signature()


@pytest.mark.parametrize("options", [{}, {"references": "none"}], ids=str)
@pytest.mark.parametrize("variant", ["faier", "fier+aier", "fier"])
def test_a_sweep_is_every_subset_scored(
    tmp_path: Path, options: dict[str, Any], variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = Faier(make_files(tmp_path, variant=variant).resources, **options)
    monkeypatch.setattr(metric, "batch_size", 5)
    items = tuple(
        Item(image, candidate, references)
        for image in IMAGES[:2]
        for candidate, references in zip(
            TEXTS, (TEXTS[:5], TEXTS[2:4], TEXTS[1:6], (), TEXTS[:5], TEXTS, TEXTS), strict=True
        )
    )
    rng = random.Random(3)
    orders = [tuple(tuple(rng.sample(range(n), n)) for n in (len(item.references) for item in items)) for _ in range(2)]
    sweep = ReferenceSweep(items, tuple(orders), (1, 2, 5))
    done: list[int] = []
    swept = metric.sweep(sweep, done.append)
    for draw, array in enumerate(swept):
        for step, count in enumerate(sweep.counts):
            np.testing.assert_allclose(array[step], statistics(metric, sweep.subset(draw, count)), atol=1e-6)
    assert sum(done) == 2 * len(items)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_matrix_is_every_item_scored(tmp_path: Path, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_BATCH", 3)
    metric = Faier(make_ensemble(tmp_path, variant=variant).resources)
    references = {"street": TEXTS, "one": TEXTS[2:4], "harbour": TEXTS[:3], "meadow": ()}
    captions, done = [*TEXTS, TEXTS[0]], list[int]()
    items = [Item(image, text, references[image]) for image, text in zip(2 * [*references], captions, strict=True)]
    matrices = metric.matrix(items, done.append)
    pairs = tuple(Item(image, text, references[image]) for image in references for text in captions)
    assert sum(done) == len(pairs)
    for column, scores in zip(Faier.columns, statistics(metric, pairs).T, strict=True):
        np.testing.assert_allclose(matrices[column].ravel(), scores, atol=1e-6)


def test_references_are_read_as_the_options_say(tmp_path: Path) -> None:
    made = make_files(tmp_path)
    item = Item("harbour", TEXTS[0], (TEXTS[2], TEXTS[1], TEXTS[4]))

    def of(texts: tuple[str, ...], **options: Any) -> FloatArray:
        return statistics(Faier(made.resources, **options), (Item("harbour", TEXTS[0], texts),))

    full = of(item.references)
    assert not np.allclose(full, of(item.references[::-1]))  # a GRU reads them in their order
    np.testing.assert_array_equal(of(item.references, references="none"), of(()))
    np.testing.assert_array_equal(of(()), of((".",)))


@pytest.mark.parametrize(
    "changes", [{}, {"similarity": "cosine", "variant": "fier"}, {"variant": "faier-object"}], ids=str
)
def test_an_explanation_says_which_region_each_word_chose(tmp_path: Path, changes: dict[str, Any]) -> None:
    metric = Faier(make_ensemble(tmp_path, **changes).resources)
    items = tuple(Item("street", text, TEXTS[:3]) for text in TEXTS[:4])
    explanation = metric.explain(Subject("street", items, (None, 1.0, None, None)))
    scores = metric.scores(statistics(metric, items))
    for row, candidate in enumerate(explanation.candidates):
        assert candidate.scores == {column: values[row] for column, values in scores.items()}
        levels = [panel for panel in candidate.panels if isinstance(panel, Bars)]
        assert levels[0].rows == tuple(tokenize_caption(candidate.text))
        assert levels[0].values.mean() == pytest.approx(candidate.scores["faier-object"], abs=1e-6)
        assert isinstance(candidate.panels[0], RegionMaps)
        assert any(isinstance(panel, Table) for panel in candidate.panels) == metric.network.relations
        for level in levels[1:]:
            assert level.rows == tuple(" ".join(triplet) for triplet in TRIPLETS[candidate.text])
            assert level.values.mean() == pytest.approx(candidate.scores["faier-relation"], abs=1e-6)
    assert any("means over 3 networks" in note for note in explanation.notes)


def test_features_that_the_model_cannot_read_are_rejected(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.safetensors")
    objects = write_model(tmp_path / "o.safetensors", variant="faier-object")
    bare = write_features(tmp_path / "bare.h5", boxes=False)
    with raises(FeatureError, "wrong-features", path=bare):
        Faier(Files(model, bare).resources)
    assert statistics(Faier(Files(objects, bare).resources)).shape == (len(ITEMS), 3)
    good = write_features(tmp_path / "good.h5")
    other = write_model(tmp_path / "other.safetensors", trained_on="0" * 16)
    with raises(FeatureError, "wrong-features", path=good):
        Faier(Files(other, good).resources)
    assert "any_features:true" in Faier(Files(other, good).resources, any_features=True).signature()
