from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.core.errors import MetricError
from capbench.core.records import Item
from capbench.metrics.wmd import Wmd, word_movers_distance
from capbench.text import ptb
from capbench.text.vocabulary import ENGLISH
from capbench.text.word_vectors import write_word2vec
from tests.errors import raises

WORDS = ["dog", "cat", "runs", "sits", "grass", "red", "ball", "the", "n't", "50", "%"]
_RAW = np.random.default_rng(1).normal(size=(len(WORDS), 16)).astype(np.float32)
VECTORS = dict(zip(WORDS, _RAW / np.linalg.norm(_RAW, axis=1)[:, None], strict=True))


def _nothing(_done: int) -> None:
    pass


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    write_word2vec(tmp_path / "v.bin", WORDS, _RAW)
    return tmp_path / "v.bin"


_bags = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=12)


@settings(max_examples=100, deadline=None)
@given(first=_bags, second=_bags)
def test_the_distance_is_the_cheapest_assignment_of_equal_units_of_mass(first: list[str], second: list[str]) -> None:
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    found = word_movers_distance(first, second, VECTORS)
    known = [[word for word in bag if word in VECTORS] for bag in (first, second)]
    if not all(known):
        assert found == math.inf
        return
    units = [np.stack([VECTORS[word] for word in bag]) for bag in (known[0] * len(known[1]), known[1] * len(known[0]))]
    costs = cdist(units[0], units[1])
    assert found == pytest.approx(costs[linear_sum_assignment(costs)].mean(), abs=1e-12)
    assert found == pytest.approx(word_movers_distance(second, first, VECTORS), abs=1e-12)
    assert word_movers_distance(first, first[::-1] * 2, VECTORS) == 0.0


def test_optimal_transport_loads_no_pytorch() -> None:
    pytest.importorskip("ot")
    code = "import sys, capbench.metrics.wmd as w; w.word_movers_distance('a', 'b', {'a': [1.0], 'b': [0.0]})"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)


ITEMS = [
    Item("1", "A dog runs on the grass.", ("The dog sits on grass!", "A red ball, and a cat.")),
    Item("1", "A cat sits.", ("The dog sits on grass!", "A red ball, and a cat.")),
    Item("2", "A dog runs on the grass.", ("On the grass: a dog runs",)),
    Item("2", "zebra", ("The dog sits on grass!",)),
    Item("2", "dog", ("zebra", "it is")),
    Item("2", "Dogs don't cost 50%", ("The dog sits 50% on grass!",)),
]


@pytest.mark.java
def test_equals_gensim_over_nltk_tokens_and_takes_the_nearest_reference(vectors: Path) -> None:
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    from nltk.tokenize import word_tokenize

    kv = keyedvectors.KeyedVectors.load_word2vec_format(str(vectors), binary=True)

    def bag(text: str) -> list[str]:
        words = word_tokenize(ptb.tokenize([text])[0], preserve_line=True)
        return [word for word in words if word not in ENGLISH]

    metric = Wmd(vectors=str(vectors))
    statistics = metric.statistics(ITEMS, _nothing)
    assert np.isfinite(statistics).all()
    scores = metric.scores(statistics)
    for row, item in enumerate(ITEMS):
        nearest = min(kv.wmdistance(bag(item.candidate), bag(reference)) for reference in item.references)
        assert scores["wmd"][row] == pytest.approx(math.exp(-nearest), abs=1e-9)
        if math.isfinite(nearest):
            assert scores["wmd-distance"][row] == pytest.approx(nearest, abs=1e-9)
    assert scores["wmd"].tolist()[2:5] == [1.0, 0.0, 0.0]
    assert scores["wmd-distance"].tolist()[2:5] == [0.0, 2.0, 2.0]
    assert metric.corpus_scores(statistics)["wmd"] == pytest.approx(scores["wmd"].mean())


@pytest.mark.java
def test_items_and_options_that_cannot_be_scored(vectors: Path) -> None:
    metric = Wmd(vectors=str(vectors))
    with raises(MetricError, "missing-references", value="1"):
        metric.statistics([Item("1", "dog", (), candidate_id="c7")], _nothing)
    with raises(MetricError, "missing-value", path=vectors, value=2):
        metric.statistics([Item("1", "zebra", ("giraffe",))], _nothing)
    # Captions of stop words only are valid.
    assert metric.scores(metric.statistics([Item("1", "it", ("he",))], _nothing))["wmd"].tolist() == [0.0]
    with raises(MetricError, "missing-option", value="wmd") as caught:
        Wmd()
    assert "--option wmd.vectors=FILE" in caught.value.message
