from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from capbench.core.records import FloatArray, Item
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.needs import Resources
from capbench.metrics.scan.encode import NORMS
from capbench.metrics.scan.network import Attention, attend, context_cosines
from capbench.metrics.tiger import D_RELS, Tiger, d_rel, divergence, rrs, wds
from tests.metrics.scan.models import Files, make_files, make_items, slow_grounding

RNG = np.random.default_rng(7)
ITEMS = make_items()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tiger"), [item.image for item in ITEMS])


def statistics(metric: Tiger, items: tuple[Item, ...] = ITEMS) -> FloatArray:
    return metric.statistics(items, lambda _: None)


@pytest.mark.real_data
def test_scores_equal_the_originals(parity: Path) -> None:
    arrays = np.load(parity / "tiger" / "scoring_cases.npz")
    expected = json.loads((parity / "tiger" / "scoring_expected.json").read_text(encoding="utf-8"))
    assert expected
    for name, wanted in expected.items():
        reference, candidate = arrays[f"{name}__refs"].mean(axis=0), arrays[f"{name}__cand"]
        assert divergence(candidate, reference) == pytest.approx(wanted["kl"], abs=1e-10), name
        assert d_rel(candidate, reference) == pytest.approx(wanted["d_rel"], abs=1e-10), name
        assert wds(candidate, reference) == pytest.approx(wanted["wds"], abs=1e-10), name
        assert wds(candidate, reference, 1.0) == pytest.approx(wanted["wds_tau1"], abs=1e-10), name
        found = rrs(candidate, reference)
        if wanted["rrs"] is not None:
            assert found == pytest.approx(wanted["rrs"], abs=1e-10), name
            assert (found + wds(candidate, reference)) / 2 == pytest.approx(wanted["tiger"], abs=1e-10), name
        else:
            assert 0 <= found <= 1, name


@pytest.mark.real_data
def test_grounding_vectors_equal_the_originals(parity: Path) -> None:
    arrays = np.load(parity / "tiger" / "grounding_cases.npz")
    facts = json.loads((parity / "tiger" / "grounding_meta.json").read_text(encoding="utf-8"))
    assert facts
    for name, meta in facts.items():
        own = f"{name}__V" in arrays
        v, w = (torch.from_numpy(arrays[f"{name if own else 'full'}__{letter}"]).double() for letter in ("V", "W"))
        attention = Attention("i2t", meta["raw_feature_norm"], meta["lambda_softmax"])
        given = attention, v[None], w[None], torch.tensor([meta["n_words"]])
        tolerance = 1e-10 if meta["dtype"] == "torch.float64" else 1e-6
        weights = attend(*given)[0][0, :, 0, : meta["n_words"]].numpy()  # (n, m)
        if f"{name}__attn" in arrays:
            assert pytest.approx(arrays[f"{name}__attn"][: meta["n_words"]], abs=tolerance) == weights.T, name
        if f"{name}__context" in arrays:
            found = weights @ w[: meta["n_words"]].numpy()
            assert found == pytest.approx(arrays[f"{name}__context"], abs=tolerance), name
        found = context_cosines(*given)[0, 0].numpy()
        assert found == pytest.approx(arrays[f"{name}__grounding"], abs=tolerance), name


def test_constant_vectors_and_gains_without_an_ideal_have_their_documented_values() -> None:
    for value, minmax, candidate in itertools.product(
        (0.0, 0.4, -0.2), (True, False), (RNG.normal(size=6), np.zeros(6))
    ):
        assert rrs(candidate, np.full(6, value), minmax) == 1
    assert rrs(np.array([0.3]), np.array([0.7])) == 1
    reference = RNG.normal(size=5)
    each = [rrs(-np.array(order, dtype=np.float64), reference) for order in itertools.permutations(range(5))]
    nearly = np.full(5, 0.3)
    nearly[3] += 1e-16
    for candidate in (np.zeros(5), np.full(5, 0.3), nearly):
        assert rrs(candidate, reference) == pytest.approx(np.mean(each), abs=1e-12)
    negative = np.array([-0.1, -0.2, -0.3, -0.4])
    assert rrs(RNG.normal(size=4), negative, minmax=False) == 0


def test_d_rel_and_wds_at_their_edges() -> None:
    zero, values = np.zeros(3), np.array([-0.5, 0.0, 0.8])
    assert d_rel(zero, values) == d_rel(values, zero) == d_rel(zero, zero) == 0
    levels = {"released": 0.25 + 0.64, "half": 0.0625 + 0.25 + 0.81, "clip": 0.64}
    ones = np.ones(3)
    for mapping, square in levels.items():
        assert d_rel(values, ones, mapping) == pytest.approx(math.log(math.sqrt(3 / square)))
    assert wds(values, values) == 0.5
    assert 0 <= wds(values, values * 1e9) < 1e-12
    assert wds(np.full(3, 1e9), ones, 1e9) == 1


@pytest.mark.real_data
def test_the_whole_chain_equals_the_original(parity: Path, tmp_path: Path) -> None:
    with np.load(parity / "tiger" / "end_to_end.npz") as stored:
        arrays = dict(stored)
    expected = json.loads((parity / "tiger" / "end_to_end.json").read_text(encoding="utf-8"))
    assert expected
    with StoreWriter(tmp_path / "f.h5", Fingerprint("invented", "unknown", "unknown", "36")) as writer:
        for image, features in zip(sorted(expected), arrays["images"], strict=True):
            writer.add(RegionFeatures(image, 0, 0, None, features))
        writer.finish()
    metric = Tiger(Resources(features=str(tmp_path / "f.h5"), model=str(parity / "scan" / "model_best.pth.tar")))
    words = metric.source.model.vocabulary.words

    class Numbered:
        @staticmethod
        def encode(text: str) -> list[int]:
            return [int(number) for number in text.split()]

    object.__setattr__(metric.source.model, "vocabulary", Numbered())
    assert len(words) == metric.source.model.options.vocabulary_size
    for image, case in expected.items():
        texts = [" ".join(map(str, numbers)) for numbers in case["captions_token_ids"]]
        references = tuple(texts[: case["n_refs"]])
        vectors = metric.grounding(image, texts, metric.encode(texts))
        assert np.stack([vectors[text] for text in texts]) == pytest.approx(arrays[f"{image}__grounding"], abs=1e-6)
        places = [int(place) for place in case["candidates"]]
        rows = statistics(metric, tuple(Item(image, texts[place], references) for place in places))
        found = metric.scores(rows)
        for row, wanted in enumerate(case["candidates"].values()):
            for column in ("rrs", "wds", "tiger"):
                if wanted[column] is not None:
                    assert found[column][row] == pytest.approx(wanted[column], abs=1e-6), (image, row, column)


@pytest.mark.parametrize("seed", range(8))
def test_every_option_is_that_of_the_plain_equations(seed: int, made: Files) -> None:
    choose = random.Random(seed)
    smoothing, norm, clip = choose.choice([1.0, 4.0, 9.0, 20.0]), choose.choice(NORMS), choose.choice(["leaky", "relu"])
    tau, minmax, mapping = choose.choice([0.5, 1.0, 1.5, 3.0]), choose.random() < 0.5, choose.choice(list(D_RELS))
    ends = choose.random() < 0.5
    given = {"lambda_softmax": smoothing, "norm": norm, "clip": clip, "count_ends": ends}
    metric = Tiger(made.resources, **given, tau=tau, minmax=minmax, d_rel=mapping)
    texts = [
        "a dog",
        "zzz qqq",
        "DOG  \u0130 \U0001f436 e\u0301",
        "two men " * 80,
        "...",
        "the red ball sits on a house .",
    ]
    image = ITEMS[seed].image
    regions = metric.source.regions(image)
    vectors = {}
    for text in texts:
        words = metric.source.captions([text])[text].astype(np.float64)
        words = words if ends else words[1:-1]
        vectors[text] = slow_grounding(regions, words, norm, smoothing, clip)[0]
    items = []
    for count in (1, 2, 50):
        references = tuple(choose.choices(texts, k=count))
        items += [Item(image, choose.choice(texts), references), Item(image, references[0], references)]
    found = metric.scores(statistics(metric, tuple(items)))

    def level(values: FloatArray) -> float:
        mapped = {"released": values, "half": (1 + values) / 2, "clip": np.where(values > 0, values, 0)}[mapping]
        return float(np.sqrt((mapped**2).sum()))

    for i, item in enumerate(items):
        own = vectors[item.candidate]
        mean = np.sum([vectors[text] for text in item.references], axis=0) / len(item.references)
        gains = (mean - mean.min()) / (mean.max() - mean.min()) if minmax else mean
        discounts = np.log2(np.arange(len(gains)) + 2)
        ideal = (np.sort(gains)[::-1] / discounts).sum()
        order = sorted(range(len(gains)), key=lambda k: -own[k])
        rrs = (gains[order] / discounts).sum() / ideal if ideal > 0 else 0.0
        p, q = (np.exp(v) / np.exp(v).sum() for v in (mean, own))
        above, below = level(mean), level(own)
        distance = (p * np.log(p / q)).sum() + (np.log(above / below) if above and below else 0.0)
        wds = 1 - 1 / (1 + np.exp(-tau * distance))
        wanted = {"tiger": (rrs + wds) / 2, "rrs": rrs, "wds": wds, "grounding": own.mean()}
        assert {name: values[i] for name, values in found.items()} == pytest.approx(wanted, abs=1e-9), item
