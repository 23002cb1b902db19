"""Scores on the human scale, and examples of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import percentileofscore

from capbench.core.errors import StatisticError, UsageError
from capbench.core.records import Item
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Aggregation
from capbench.datasets.root import find_root
from capbench.metrics.requests import resolve_metrics
from capbench.studies.examples import (
    KINDS,
    RatedScores,
    binned,
    choose_examples,
    disagreement,
    group_differences,
    human_percentiles,
    percentiles,
    rated_scores,
    score_groups,
)
from capbench.studies.scoring import load_scorable
from tests.errors import raises
from tests.reports.page.world import make_items, make_pairs


def _rated(scores: dict[str, list[float]], human: list[float]) -> RatedScores:
    items = tuple(Item(f"image{i // 2}", f"caption {i}", ("a reference",)) for i in range(len(human)))
    arrays = {title: np.array(values) for title, values in scores.items()}
    return RatedScores(
        "toy/all/tau-c",
        "Toy",
        items,
        np.arange(len(human)),
        np.array(human),
        arrays,
        "unaggregated",
        1,
        dict.fromkeys(scores, "line"),
    )


def rated_of(dataset: Dataset, metric: str, aggregation: Aggregation | None = None) -> RatedScores:
    protocol = dataset.protocol()
    return rated_scores(
        load_scorable(dataset, protocol.items, resolve_metrics([metric]), cache=False), protocol, aggregation
    )


def test_scores_are_cut_where_the_ratings_are() -> None:
    human = [1, 1, 1, 2, 2, 5]
    assert score_groups(np.array([0.1, 0.9, 0.3, 0.2, 0.8, 0.4]), np.array(human)).tolist() == [1, 5, 1, 1, 2, 2]


def test_equal_scores_get_the_group_of_their_mean_rank() -> None:
    human = [1, 1, 2, 3]
    assert score_groups(np.array([0.0, 0.0, 0.0, 1.0]), np.array(human)).tolist() == [1, 1, 1, 3]
    assert (
        score_groups(np.full(4, 0.5), np.array([1, 1, 2, 2])).tolist() == [2] * 4
    )  # the middle belongs to the upper half


def test_differences_and_chance_by_hand() -> None:
    rated = _rated({"good": [1, 2, 3, 4], "bad": [4, 3, 2, 1]}, [1, 1, 2, 3])
    found = group_differences(rated)
    assert list(found.differences) == [-2, -1, 0, 1, 2]
    assert list(found.shares["good"]) == [0, 0, 1, 0, 0]
    assert list(found.shares["bad"]) == [0.25, 0.25, 0, 0.25, 0.25]
    assert found.chance == pytest.approx((2 / 16, 3 / 16, 6 / 16, 3 / 16, 2 / 16))
    assert (found.equal("good"), found.mean_distance("good")) == (1, 0)
    assert found.mean_distance("bad") == 1.5


def test_ratings_are_put_into_ten_bins_of_equal_width() -> None:
    assert binned(np.array([0.0, 0.99, 1.0, 5.5, 9.0, 10.0])).tolist() == [0.5, 0.5, 1.5, 5.5, 9.5, 9.5]
    ratings = np.random.default_rng(0).normal(3, 1, 200)
    middles = np.unique(binned(ratings))
    width = (ratings.max() - ratings.min()) / 10
    assert np.abs(binned(ratings) - ratings).max() <= width / 2 + 1e-12
    assert len(middles) <= 10


@pytest.mark.parametrize(("levels", "kept"), [(15, True), (16, False), (20, False)])
def test_more_ratings_than_a_scale_has_points_are_put_into_bins(levels: int, kept: bool) -> None:
    from tests.studies.toys import Toy

    class Fine(Toy):
        def load(self, selection):  # type: ignore[no-untyped-def]
            (one,) = super().load(selection)
            ratings = one.ratings["rating"]
            items = tuple(replace(one.items[0], candidate=f"w {i}") for i in range(levels))
            points = np.arange(levels)
            fine = replace(ratings, item=points, value=points / 2, rater=np.zeros(levels, dtype=np.int64))
            return (replace(one, items=items, ratings={"rating": fine}),)

    toy = Fine(find_root("sample"))
    rated = rated_of(toy, "bleu-1")
    exact = np.arange(levels) / 2
    assert rated.human.tolist() == (exact if kept else binned(exact)).tolist()
    assert len(rated.levels) == (levels if kept else 10)
    assert any(f"{levels} distinct ratings are put into 10 bins" in note for note in rated.notes) is not kept


def _examples_data() -> RatedScores:
    human = [1, 1, 2, 2, 3, 3, 4, 4, 1, 4, 2, 3]
    scores = [9, 1, 2, 7, 5, 6, 0, 12, 3, 8, 10, 4]
    return _rated({"M": [float(s) for s in scores]}, [float(h) for h in human])


def test_examples_of_each_kind_are_equally_many_and_the_clearest_first() -> None:
    rated = _examples_data()
    found = choose_examples(rated, number=2, seed=3)
    assert [example.kind for example in found.examples] == [kind for kind in KINDS for _ in range(2)]
    groups = score_groups(rated.scores["M"], rated.human)
    difference = groups - rated.human
    assert found.counts == {
        "metric-higher": int((difference > 0).sum()),
        "human-higher": int((difference < 0).sum()),
        "equal": int((difference == 0).sum()),
    }
    higher, lower, equal = found.examples[0], found.examples[2], found.examples[4]
    assert higher.group - higher.human == difference.max()
    assert lower.group - lower.human == difference.min()
    assert equal.group == equal.human
    assert (higher.candidate, higher.references) == (f"caption {int(higher.candidate[8:])}", ("a reference",))
    assert len({example.image for example in found.examples[:2]}) == 2


def test_too_many_examples_or_metrics_are_refused() -> None:
    with raises(StatisticError, "too-few"):
        choose_examples(_examples_data(), number=9)
    with raises(UsageError, "wrong-value", value=2):
        choose_examples(_rated({"A": [1.0, 2.0], "B": [1.0, 2.0]}, [1.0, 2.0]))


def test_percentiles_are_scipys_mean_percentiles() -> None:
    values = np.random.default_rng(3).integers(0, 9, 40).astype(float)
    expected = [percentileofscore(values, value, kind="mean") for value in values]
    assert percentiles(values).tolist() == pytest.approx(expected)


def test_disagreement_is_the_widest_distance_of_percentiles() -> None:
    table = make_items(50, ["cider", "meteor"])
    human = human_percentiles(table)
    wide = [np.abs(percentiles(np.array(values, dtype=float)) - human) for values in table.scores.values()]
    assert disagreement(table).tolist() == pytest.approx(np.max(wide, axis=0).tolist())
    pairs = make_pairs(20, ["cider"])
    assert int(np.argmax(disagreement(pairs))) == 15  # the most negative difference
