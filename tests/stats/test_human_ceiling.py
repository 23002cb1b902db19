from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import capbench
from capbench.core.records import Coefficient, Item, Judgements, Preferences
from capbench.datasets.base import load_dataset
from capbench.datasets.protocol import ItemSelection, Protocol, accuracy
from capbench.datasets.root import find_root
from capbench.stats.correlation import correlation
from capbench.stats.human_ceiling import leave_one_rater_out, pairwise_tau_b, vote_credit
from capbench.studies.human_ceiling import human_ceiling


def test_each_rating_stands_beside_the_mean_of_the_others() -> None:
    found = leave_one_rater_out([7, 7, 7, 3, 3, 5], [1, 2, 4, 3, 1, 4])
    pairs = sorted(zip(found.item.tolist(), found.rating.tolist(), found.others.tolist(), strict=True))
    assert pairs == [(3, 1, 3), (3, 3, 1), (7, 1, 3), (7, 2, 2.5), (7, 4, 1.5)]


def test_the_order_of_ratings_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    item, value = np.repeat(np.arange(50), 3), rng.choice([0.1, 0.2, 0.3, 0.7], 150)
    order = rng.permutation(150)
    one, two = leave_one_rater_out(item, value), leave_one_rater_out(item[order], value[order])
    for a, b in ((one.rating, two.rating), (one.others, two.others)):
        assert a.tobytes() == b.tobytes()


def by_asking_each_voter(first: int, second: int) -> float:
    ballots = [1] * first + [-1] * second
    with_others = []
    for i, own in enumerate(ballots):
        others = sum(ballots[:i] + ballots[i + 1 :])
        with_others.append(0.5 if others == 0 else float((others > 0) == (own > 0)))
    return float(np.mean(with_others))


@pytest.mark.parametrize("votes", [(11, 0), (6, 5), (5, 6), (1, 1), (2, 0), (3, 3), (7, 4), (24, 24)])
def test_the_credit_of_a_pair_is_that_of_asking_each_voter(votes: tuple[int, int]) -> None:
    assert vote_credit(np.array([votes])).tolist() == pytest.approx([by_asking_each_voter(*votes)])


def test_pairs_on_which_people_are_even_do_not_count_in_the_ceiling() -> None:
    votes = np.array([(3, 1), (5, 0), (1, 3), (2, 2)] * 10)
    items = tuple(Item(f"i{i // 2}", f"caption {i}", ("r",)) for i in range(80))
    preferred = np.array([1, 1, -1, 0] * 10)
    pairs = Preferences(np.arange(0, 80, 2), np.arange(1, 80, 2), preferred, ("",) * 40, votes)
    judged = Judgements("mine", "all", items, preferences={"votes": pairs})
    protocol = Protocol("mine", ItemSelection("all", ""), accuracy("votes")["votes-strict"])
    human = human_ceiling(protocol, judged, "image")
    assert human is not None
    # Two of three pairs in which one of four voters differs, one without a doubt. The even pairs would make it .625.
    assert human[1].value == pytest.approx((0.75 + 1 + 0.75) / 3)
    assert human[1].n == 30


@pytest.mark.real_data
def test_the_ceilings_of_the_published_judgements_are_the_documented_ones(real_data: Path) -> None:
    flickr = load_dataset("flickr8k-expert")
    judgements = flickr(find_root(str(real_data))).load(flickr.selections["no-own-captions"])[0]
    ratings = judgements.ratings["expert"]
    people = leave_one_rater_out(ratings.item, ratings.value)
    names: tuple[Coefficient, ...] = ("tau-b", "tau-c", "spearman", "pearson")
    found = {c: round(correlation(c, people.others, people.rating).value, 3) for c in names}
    assert found == {"tau-b": 0.657, "tau-c": 0.554, "spearman": 0.711, "pearson": 0.792}
    pascal = load_dataset("pascal-50s")
    votes = pascal(find_root(str(real_data))).load(pascal.selections["json-5-refs"])[0].preferences["direct"]
    group, several = np.array(votes.group), votes.votes.sum(axis=1) > 1
    parts = {
        name: float(vote_credit(votes.votes[several & (group == name)]).mean()) for name in dict.fromkeys(votes.group)
    }
    assert {name: round(part, 3) for name, part in parts.items()} == {
        "HC": 0.662,
        "HI": 0.978,
        "HM": 0.961,
        "MM": 0.798,
    }
    assert round(float(np.mean(list(parts.values()))), 3) == 0.85


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_of_tau_b_between_pairs_of_raters_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    raters, items = int(rng.integers(2, 5)), 40
    table = rng.integers(1, 5, (raters, items)).astype(float)
    rater, item = (places.ravel() for places in np.indices((raters, items)))
    order = rng.permutation(len(item))
    made = pairwise_tau_b(item[order] * 3, table.ravel()[order], rater[order])
    pairs = itertools.combinations(table, 2)
    assert made is not None
    assert made[0] == pytest.approx(np.mean([scipy.stats.kendalltau(a, b).statistic for a, b in pairs]), abs=1e-12)
    assert made[1] == raters
    assert pairwise_tau_b(item[1:], table.ravel()[1:], rater[1:]) is None  # a rating is missing
    assert pairwise_tau_b(item, np.where(rater == 0, 2.0, table.ravel()), rater) is None  # a constant rater
    assert pairwise_tau_b(np.arange(3), np.arange(3.0), np.zeros(3, dtype=int)) is None


@pytest.mark.real_data
def test_the_published_agreement_between_experts_comes_out(real_data: Path) -> None:
    known = {}
    for selection in ("no-own-captions", "all-pairs"):
        judgements = capbench.load("flickr8k-expert", f"{selection}/unaggregated-tau-c", data=real_data)
        (ratings,) = judgements.ratings.values()
        known[selection] = pairwise_tau_b(ratings.item, ratings.value, ratings.rater)
    for selection, value in (("no-own-captions", 0.7362), ("all-pairs", 0.7582)):
        found = known[selection]
        assert found is not None
        assert (round(found[0], 4), found[1]) == (value, 3)
