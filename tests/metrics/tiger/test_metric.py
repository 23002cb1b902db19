"""TIGEr as a metric: the original's numbers, sharing of work, options, sweeps, and invalid inputs."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import CapbenchError, FeatureError, MetricError, ModelError, UsageError
from capbench.core.records import FloatArray, Item, ScoreColumn
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.grounding import grounding as grounding_source
from capbench.metrics.grounding.grounding import CLIPS, D_RELS, NORMS, STATISTICS, Attention
from capbench.metrics.image_metric import ImageMetric
from capbench.metrics.needs import Resources
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.metrics.tiger.metric import Tiger
from tests.errors import raises
from tests.metrics.grounding.models import DIMENSION, FINGERPRINT, Files, make_files, make_items, write_features
from tests.metrics.grounding.test_vectors import slow_grounding

ITEMS = make_items()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("tiger"), [item.image for item in ITEMS])


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Every test opens models anew, so that counts of work start at 0."""
    grounding_source._open.clear()


def statistics(metric: Tiger, items: tuple[Item, ...] = ITEMS) -> FloatArray:
    return metric.statistics(items, lambda _: None)


def slow_tiger(metric: Tiger, item: Item) -> dict[str, float]:
    """One item as the papers' equations stand, captions encoded one at a time."""
    model, store = metric.source.model, metric.source.store
    regions = model.encode_images([store[item.image].features])[0].astype(np.float64)

    def vector(text: str) -> FloatArray:
        words = model.encode_captions([text])[0].astype(np.float64)
        return slow_grounding(regions, words, Attention())[0]

    candidate = vector(item.candidate)
    reference = np.sum([vector(text) for text in item.references], axis=0) / len(item.references)
    gains = (reference - reference.min()) / (reference.max() - reference.min())
    discounts = np.log2(np.arange(2, len(gains) + 2))
    order = sorted(range(len(gains)), key=lambda i: -candidate[i])
    rrs = (gains[order] / discounts).sum() / (np.sort(gains)[::-1] / discounts).sum()
    p, q = (np.exp(v) / np.exp(v).sum() for v in (reference, candidate))
    distance = (p * np.log(p / q)).sum() + np.log(np.linalg.norm(reference) / np.linalg.norm(candidate))
    wds = 1 - 1 / (1 + np.exp(-1.5 * distance))
    return {"tiger": (rrs + wds) / 2, "rrs": rrs, "wds": wds, "grounding": candidate.mean()}


def test_scores_are_the_papers_equations(made: Files) -> None:
    metric = Tiger(made.resources)
    found = metric.scores(statistics(metric))
    assert list(found) == list(Tiger.columns)
    for i in (0, 7, 23, 41):
        for column, wanted in slow_tiger(metric, ITEMS[i]).items():
            assert found[column][i] == pytest.approx(wanted, abs=1e-6), column


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
        """Reads captions as word numbers, since the expected ones are given so."""

        @staticmethod
        def encode(text: str) -> list[int]:
            return [int(number) for number in text.split()]

    object.__setattr__(metric.source.model, "vocabulary", Numbered())
    assert len(words) == metric.source.model.options.vocabulary_size
    for image, case in expected.items():
        texts = [" ".join(map(str, numbers)) for numbers in case["captions_token_ids"]]
        references = tuple(texts[: case["n_refs"]])
        vectors = metric.grounding_vectors(image, texts)
        assert np.stack([vectors[text] for text in texts]) == pytest.approx(arrays[f"{image}__grounding"], abs=1e-6)
        places = [int(place) for place in case["candidates"]]
        rows = statistics(metric, tuple(Item(image, texts[place], references) for place in places))
        named = dict(zip(STATISTICS, rows.T, strict=True))
        found = metric.scores(rows)
        for row, wanted in enumerate(case["candidates"].values()):
            assert named["kl"][row] == pytest.approx(wanted["kl"], abs=1e-6)
            for column in ("rrs", "wds", "tiger"):
                if wanted[column] is not None:
                    assert found[column][row] == pytest.approx(wanted[column], abs=1e-6), (image, row, column)


def test_every_caption_and_image_is_encoded_once(made: Files) -> None:
    metric = Tiger(made.resources)
    metric.batch_size = 7
    done: list[int] = []
    for start in range(0, len(ITEMS), 7):
        metric.statistics(ITEMS[start : start + 7], done.append)
    encode = metric.source.model.vocabulary.encode
    distinct = {tuple(encode(text)) for item in ITEMS for text in (item.candidate, *item.references)}
    assert metric.source.encoded_captions == len(distinct)
    assert metric.source.encoded_images == len({item.image for item in ITEMS})
    assert sum(done) == len(ITEMS)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_batches_and_order_change_nothing(size: int, made: Files) -> None:
    wanted = statistics(Tiger(made.resources))
    grounding_source._open.clear()
    metric = Tiger(made.resources)
    order = np.random.default_rng(size).permutation(len(ITEMS))
    shuffled = [ITEMS[i] for i in order]
    found = np.empty_like(wanted)
    for start in range(0, len(shuffled), size):
        part = order[start : start + size]
        found[part] = metric.statistics(shuffled[start : start + size], lambda _: None)
    assert np.array_equal(found, wanted)


def test_what_is_held_in_memory_is_bounded(made: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = statistics(Tiger(made.resources))
    grounding_source._open.clear()
    from capbench.weights import encodings

    kept = encodings._Store(2000)
    monkeypatch.setattr(encodings, "_PROCESS", kept)
    monkeypatch.setattr(ImageMetric, "texts_at_once", 5)
    metric = Tiger(made.resources)
    assert statistics(metric) == pytest.approx(wanted, abs=1e-12)
    assert 0 < kept.bytes <= 2000
    assert sum(array.nbytes for array in kept.arrays.values()) == kept.bytes


def test_two_metrics_share_one_model_and_one_encoding(made: Files) -> None:
    first, second = Tiger(made.resources), Tiger(made.resources, tau=0.5)
    assert first.source is second.source
    statistics(first)
    encoded = first.source.encoded_captions
    statistics(second)
    assert second.source.encoded_captions == encoded


@pytest.mark.parametrize(
    ("options", "recombined"),
    [
        ({"tau": 0.5}, True),
        ({"minmax": False}, True),
        ({"d_rel": "half"}, True),
        ({"d_rel": "clip"}, True),
        ({"lambda_softmax": 4}, False),
        ({"norm": "l2norm"}, False),
        ({"clip": "relu"}, False),
        ({"count_ends": False}, False),
    ],
)
def test_options_change_scores_and_the_signature(options: dict[str, Any], recombined: bool, made: Files) -> None:
    plain, other = Tiger(made.resources), Tiger(made.resources, **options)
    assert plain.signature() != other.signature()
    assert (plain.statistics_signature() == other.statistics_signature()) is recombined
    assert np.array_equal(statistics(plain), statistics(other)) is recombined
    before, after = (metric.scores(statistics(metric)) for metric in (plain, other))
    assert not np.allclose(before["tiger"], after["tiger"])
    assert np.array_equal(before["grounding"], after["grounding"]) is recombined


def test_the_signature_names_everything(made: Files) -> None:
    metric = Tiger(made.resources)
    signature = metric.signature()
    assert f"model:scan-{metric.source.model.sha256[:16]}" in signature
    assert metric.source.model.vocabulary.sha256[:16] in signature
    assert FINGERPRINT.digest in signature
    for part in ("attention:t2i", "lambda:9", "norm:clipped_l2norm", "clip:leaky", "ends:counted", "tau:1.5"):
        assert f"|{part}" in signature
    for part in ("minmax:true", "d_rel:released", "refs:mean"):
        assert f"|{part}" in signature
    assert "tau" not in metric.statistics_signature()


def test_new_scores_from_kept_statistics_cost_no_encoding(made: Files) -> None:
    (plain,) = resolve_metrics(["tiger"])
    (other,) = resolve_metrics(["tiger"], {"tiger": {"tau": 0.5, "d_rel": "half"}})
    score(ITEMS, [plain], made.resources, dataset="invented")
    grounding_source._open.clear()
    table = score(ITEMS, [other], made.resources, dataset="invented")
    assert table.cached["tiger"] == len(ITEMS)
    (source,) = grounding_source._open.values()
    assert source.encoded_captions == 0
    direct = Tiger(made.resources, tau=0.5, d_rel="half")
    wanted = direct.scores(statistics(direct))
    assert table.values[ScoreColumn("tiger", "wds")] == pytest.approx(wanted["wds"], abs=1e-12)


def test_other_features_of_the_same_fingerprint_are_scored_anew(made: Files, tmp_path: Path) -> None:
    """Imported files often do not tell what computed them."""
    files = make_files(tmp_path, [item.image for item in ITEMS])
    requests = resolve_metrics(["tiger"])
    first = score(ITEMS, requests, files.resources, dataset="invented")
    changed = ITEMS[0].image
    store = open_store(files.features)
    kept = list(store)
    store.close()
    files.features.unlink()
    with StoreWriter(files.features, FINGERPRINT) as writer:
        for regions in kept:
            sign = np.float32(-1 if regions.image == changed else 1)
            writer.add(dataclasses.replace(regions, features=regions.features.astype(np.float32) * sign))
        writer.finish()
    second = score(ITEMS, requests, files.resources, dataset="invented")
    assert first.signatures == second.signatures
    of_it = np.array([item.image == changed for item in ITEMS])
    assert second.cached["tiger"] == (~of_it).sum()
    before, after = (table.values[ScoreColumn("tiger", "tiger")] for table in (first, second))
    assert np.array_equal(before[~of_it], after[~of_it])
    assert (before[of_it] != after[of_it]).all()
    assert score(ITEMS, requests, files.resources, dataset="invented").cached["tiger"] == len(ITEMS)


def test_an_image_of_one_colour_ranks_nothing(made: Files, tmp_path: Path) -> None:
    """Regions that are all the same give constant vectors: RRS has its documented value, and not one of rounding."""
    with StoreWriter(tmp_path / "same.h5", FINGERPRINT) as writer:
        for image, value in (("blank", 0.0), ("grey", 0.7)):
            row = np.linspace(0.5, 2, DIMENSION, dtype=np.float32) * value
            writer.add(RegionFeatures(image, 0, 0, None, np.tile(row, (49, 1))))
        writer.finish()
    metric = Tiger(Resources(features=str(tmp_path / "same.h5"), model=str(made.model)))
    items = tuple(Item(image, text, ("a red dog", "the man")) for image in ("blank", "grey") for text in ("a cat", "q"))
    assert metric.scores(statistics(metric, items))["rrs"].tolist() == [1.0] * 4


@pytest.mark.parametrize("seed", range(8))
def test_every_option_is_that_of_the_plain_equations(seed: int, made: Files) -> None:
    choose = random.Random(seed)
    attention = Attention(
        choose.choice([1.0, 4.0, 9.0, 20.0]), choose.choice(NORMS), choose.choice(CLIPS), choose.random() < 0.5
    )
    tau, minmax, mapping = choose.choice([0.5, 1.0, 1.5, 3.0]), choose.random() < 0.5, choose.choice(D_RELS)
    metric = Tiger(
        made.resources,
        lambda_softmax=attention.smoothing,
        norm=attention.norm,
        clip=attention.clip,
        count_ends=attention.count_ends,
        tau=tau,
        minmax=minmax,
        d_rel=mapping,
    )
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
        words = words if attention.count_ends else words[1:-1]
        vectors[text] = slow_grounding(regions, words, attention)[0]
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


def test_an_identical_candidate_and_one_above_it(made: Files) -> None:
    metric = Tiger(made.resources)
    item = ITEMS[0]
    alone = Item(item.image, item.references[0], (item.references[0],))
    found = metric.scores(statistics(metric, (alone,)))
    assert found["rrs"][0] == 1
    assert found["wds"][0] == pytest.approx(0.5, abs=1e-12)
    assert found["tiger"][0] == pytest.approx(0.75, abs=1e-12)


def test_a_sweep_over_references_equals_scoring_each_subset(made: Files) -> None:
    generator = np.random.default_rng(1)
    items = (*ITEMS, ITEMS[3])
    orders = tuple(
        tuple(tuple(generator.permutation(len(item.references)).tolist()) for item in items) for _ in range(2)
    )
    sweep = ReferenceSweep(items, orders, (1, 2, 5))
    metric = Tiger(made.resources)
    done: list[int] = []
    swept = metric.sweep(sweep, done.append)
    assert swept is not None
    for draw, found in enumerate(swept):
        assert found.shape == (3, len(items), len(STATISTICS))
        for step, count in enumerate(sweep.counts):
            wanted = Tiger(made.resources).statistics(sweep.subset(draw, count), lambda _: None)
            assert found[step] == pytest.approx(wanted, abs=1e-12)
    assert sum(done) == 2 * len(items)
    encode = metric.source.model.vocabulary.encode
    distinct = {tuple(encode(text)) for item in items for text in (item.candidate, *item.references)}
    assert metric.source.encoded_captions == len(distinct)


def test_without_references_there_is_grounding_alone(made: Files) -> None:
    metric = Tiger(made.resources)
    orders = (tuple(tuple(range(len(item.references))) for item in ITEMS),)
    swept = metric.sweep(ReferenceSweep(ITEMS, orders, (0, 1)), lambda _: None)
    assert swept is not None
    (found,) = swept
    none, one = (metric.scores(found[step]) for step in range(2))
    assert np.array_equal(none["grounding"], one["grounding"])
    assert np.isnan(none["tiger"]).all()
    bare = tuple(dataclasses.replace(item, references=()) for item in ITEMS)
    table = score(bare, resolve_metrics(["grounding"]), made.resources, dataset="invented")
    assert table.values[ScoreColumn("tiger", "grounding")] == pytest.approx(one["grounding"], abs=1e-12)
    with raises(MetricError, "not-a-number") as caught:
        score(bare, resolve_metrics(["tiger"]), made.resources, dataset="invented")
    assert "'c0'" in caught.value.message


def test_captions_at_the_edge_have_finite_scores(made: Files) -> None:
    image = ITEMS[0].image
    edge = tuple(
        Item(image, text, references)
        for text in ("", "...", "zzz qqq", "a " * 500)
        for references in (("a dog",), ("",), ("", "a dog", "a dog"))
    )
    for options in ({}, {"count_ends": False}, {"clip": "relu"}, {"minmax": False}):
        metric = Tiger(made.resources, **options)
        for column, values in metric.scores(statistics(metric, edge)).items():
            assert np.isfinite(values).all(), (options, column)
            if column != "grounding" and "minmax" not in options:
                assert ((values >= 0) & (values <= 1)).all()


def error_of(resources: Resources, **options: Any) -> CapbenchError:
    with pytest.raises(CapbenchError) as caught:
        Tiger(resources, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def test_missing_requirements_are_named_with_their_flags(made: Files) -> None:
    both = error_of(Resources())
    assert isinstance(both, MetricError)
    assert (both.code, both.value) == ("missing-features", "tiger")
    for part in ("--features", "extract-features", "--model tiger=FILE", "train scan"):
        assert part in str(both)
    assert "--model" not in str(error_of(Resources(model=str(made.model))))
    assert "--features" not in str(error_of(Resources(features=str(made.features))))


def test_features_of_another_size_and_missing_files(made: Files, tmp_path: Path) -> None:
    wide = tmp_path / "wide.h5"
    write_features(wide, ["imagex"], columns=20)
    error = error_of(Resources(features=str(wide), model=str(made.model)))
    assert isinstance(error, ModelError)
    assert (error.code, error.path, error.value) == ("wrong-features", str(made.model), 20)
    assert str(wide) in error.message
    gone = error_of(Resources(features=str(made.features), model="nowhere.pt"))
    assert gone.path == "nowhere.pt"
    assert "nowhere.h5 does not exist" in str(error_of(Resources(features="nowhere.h5", model=str(made.model))))


def test_features_of_another_fingerprint_are_rejected_unless_requested(made: Files, tmp_path: Path) -> None:
    other = make_files(tmp_path, [item.image for item in ITEMS], trained_on="0123456789abcdef")
    error = error_of(other.resources)
    assert isinstance(error, FeatureError)
    for part in (FINGERPRINT.kind, "0123456789abcdef", str(other.model), str(other.features), "any_features=true"):
        assert part in str(error)
    metric = Tiger(other.resources, any_features=True)
    assert "|any_features:true" in metric.signature()
    assert "any_features" not in Tiger(made.resources).signature()
    unknown = make_files(tmp_path / "unknown", ["imagex"], trained_on=None)
    assert Tiger(unknown.resources).source.model.features is None


def test_images_without_features_are_counted_and_named(made: Files) -> None:
    items = (*ITEMS, Item("elsewhere", "a dog", ("a cat",)), Item("nowhere", "a dog", ("a cat",)))
    with pytest.raises(FeatureError, match=r"2 of \d+ images: 'elsewhere', 'nowhere'.*extract-features") as error:
        score(items, resolve_metrics(["tiger"]), made.resources, dataset="invented")
    assert str(made.features) in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0}, "tiger.tau=0"),
        ({"tau": True}, "tiger.tau=true"),
        ({"minmax": "yes"}, "tiger.minmax=yes"),
        ({"d_rel": "third"}, "tiger.d_rel=third"),
        ({"clip": "gelu"}, "clip=gelu"),
        ({"norm": "l1norm"}, "norm=l1norm"),
        ({"lambda_softmax": -1}, "tiger.lambda_softmax=-1"),
        ({"any_features": 1}, "tiger.any_features=1"),
    ],
)
def test_invalid_options_are_named(options: dict[str, Any], message: str, made: Files) -> None:
    error = error_of(made.resources, **options)
    assert isinstance(error, UsageError)
    assert message in str(error)


def test_all_takes_it_where_features_and_a_model_are_given(made: Files) -> None:
    def names(resources: Resources | None) -> list[str]:
        return [request.metric.name for request in resolve_metrics(["all"], resources=resources)]

    assert "tiger" not in names(None)
    assert "tiger" not in names(Resources(features=str(made.features)))
    assert "tiger" in names(made.resources)
    assert "wmd" not in names(made.resources)
    named = Resources(features=str(made.features), models={"tiger": str(made.model)})
    assert "tiger" in names(named)
    assert "reo" not in names(named)
