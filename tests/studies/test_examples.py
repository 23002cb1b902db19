"""Scores paired with ratings, and examples of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from capbench.core.errors import StatisticError, UsageError
from capbench.core.records import Item
from capbench.datasets.root import find_root
from capbench.metrics.requests import resolve_metrics
from capbench.stats.score_groups import binned, score_groups
from capbench.studies.examples import KINDS, RatedScores, choose_examples, rated_scores
from capbench.studies.plan import Plan
from tests.errors import raises
from tests.studies.toys import STUDY, Toy


def rated_of(toy: type[Toy] = Toy, *, medians: bool = False) -> RatedScores:
    dataset = toy(find_root("sample"))
    plan = Plan(STUDY, dataset.root, ((dataset, dataset.protocol()),), tuple(resolve_metrics(["bleu-1"])), ())
    return rated_scores(plan, medians=medians, cache=False)


@pytest.mark.parametrize(("levels", "kept"), [(15, True), (16, False), (20, False)])
def test_more_ratings_than_a_scale_has_points_are_put_into_bins(levels: int, kept: bool) -> None:
    class Fine(Toy):
        def load(self, selection):  # type: ignore[no-untyped-def]
            (one,) = super().load(selection)
            ratings = one.ratings["rating"]
            items = tuple(replace(one.items[0], candidate=f"w {i}") for i in range(levels))
            points = np.arange(levels)
            fine = replace(ratings, item=points, value=points / 2, rater=np.zeros(levels, dtype=np.int64))
            return (replace(one, items=items, ratings={"rating": fine}),)

    rated = rated_of(Fine)
    exact = np.arange(levels) / 2
    assert rated.human.tolist() == (exact if kept else binned(exact)).tolist()
    assert len(np.unique(rated.human)) == (levels if kept else 10)
    assert any(f"{levels} distinct ratings are put into 10 bins" in note for note in rated.notes) is not kept


def test_medians_replace_ratings_that_the_protocol_does_not_aggregate() -> None:
    assert (len(rated_of().human), str(rated_of().protocol)) == (12, "toy/all/unaggregated-tau-c")
    rated = rated_of(medians=True)
    assert (rated.human.tolist(), rated.item.tolist()) == ([1.5, 1, 2.5, 2.5, 4, 3.5], [0, 1, 2, 3, 4, 5])
    assert str(rated.protocol) == str(rated_of().protocol)


def _rated(scores: dict[str, list[float]], human: list[float]) -> RatedScores:
    rated, n = rated_of(), len(human)
    items = tuple(Item(f"image{i // 2}", f"caption {i}", ("a reference",)) for i in range(n))
    scored = replace(rated.scored, draws=(replace(rated.scored.draws[0], items=items),))
    arrays = {title: np.array(values) for title, values in scores.items()}
    return replace(rated, scored=scored, item=np.arange(n), human=np.array(human), scores=arrays)


def _examples_data() -> RatedScores:
    human = [1, 1, 2, 2, 3, 3, 4, 4, 1, 4, 2, 3]
    scores = [9, 1, 2, 7, 5, 6, 0, 12, 3, 8, 10, 4]
    return _rated({"M": [float(s) for s in scores]}, [float(h) for h in human])


def test_examples_of_each_kind_are_equally_many_and_the_clearest_first() -> None:
    rated = _examples_data()
    found = choose_examples(rated, 2)
    assert [example["kind"] for example in found["examples"]] == [kind for kind in KINDS for _ in range(2)]
    difference = score_groups(rated.scores["M"], rated.human) - rated.human
    assert found["counts"] == {kind: int((np.sign(difference) == sign).sum()) for kind, sign in KINDS.items()}
    higher, lower, equal = found["examples"][::2]
    assert higher["group"] - higher["human"] == difference.max()
    assert lower["group"] - lower["human"] == difference.min()
    assert equal["group"] == equal["human"]
    place = int(higher["candidate"].removeprefix("caption "))
    assert (higher["image"], higher["references"]) == (f"image{place // 2}", ("a reference",))
    assert (higher["human"], higher["score"]) == (rated.human[place], rated.scores["M"][place])
    assert len({example["image"] for example in found["examples"][:2]}) == 2


def test_too_many_examples_or_metrics_are_refused() -> None:
    with raises(StatisticError, "too-few"):
        choose_examples(_examples_data(), 9)
    with raises(UsageError, "wrong-value", value=2):
        choose_examples(_rated({"A": [1.0, 2.0], "B": [1.0, 2.0]}, [1.0, 2.0]))
