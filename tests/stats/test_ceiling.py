from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.datasets.base import load_dataset
from capbench.datasets.protocol import ItemSelection, Protocol, accuracy
from capbench.datasets.root import find_root
from capbench.errors import StatisticError
from capbench.records import Coefficient, Item, Judgements, Preferences
from capbench.stats.ceiling import leave_one_rater_out, vote_agreement, vote_credit
from capbench.stats.correlation import correlation
from capbench.studies.human_side import people


def test_each_rating_stands_beside_the_mean_of_the_others() -> None:
    found = leave_one_rater_out([7, 7, 7, 3, 3, 5], [1, 2, 4, 3, 1, 4])
    pairs = sorted(zip(found.item.tolist(), found.own.tolist(), found.others.tolist(), strict=True))
    assert pairs == [(3, 1, 3), (3, 3, 1), (7, 1, 3), (7, 2, 2.5), (7, 4, 1.5)]
    assert found.single == 1


def test_the_order_of_ratings_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    item, value = np.repeat(np.arange(50), 3), rng.choice([0.1, 0.2, 0.3, 0.7], 150)
    order = rng.permutation(150)
    one, two = leave_one_rater_out(item, value), leave_one_rater_out(item[order], value[order])
    for a, b in ((one.own, two.own), (one.others, two.others)):
        assert a.tobytes() == b.tobytes()


def test_items_with_one_rating_only_have_no_ceiling() -> None:
    with pytest.raises(StatisticError, match="no item has two ratings"):
        leave_one_rater_out([0, 1, 2], [1, 2, 3])
    with pytest.raises(StatisticError, match="3 ratings for 2 items"):
        leave_one_rater_out([0, 1], [1, 2, 3])


def by_asking_each_voter(first: int, second: int) -> tuple[float, float]:
    ballots = [1] * first + [-1] * second
    with_others, with_all = [], []
    for i, own in enumerate(ballots):
        others = sum(ballots[:i] + ballots[i + 1 :])
        with_others.append(0.5 if others == 0 else float((others > 0) == (own > 0)))
        with_all.append(0.5 if sum(ballots) == 0 else float((sum(ballots) > 0) == (own > 0)))
    return float(np.mean(with_others)), float(np.mean(with_all))


@pytest.mark.parametrize("votes", [(11, 0), (6, 5), (5, 6), (1, 1), (2, 0), (3, 3), (7, 4), (24, 24)])
def test_agreement_is_that_of_asking_each_voter(votes: tuple[int, int]) -> None:
    (found,) = vote_agreement([votes])
    assert (found.one_with_others, found.one_with_all) == pytest.approx(by_asking_each_voter(*votes))


def test_the_credit_of_each_pair_is_its_agreement() -> None:
    votes = np.array([(11, 0), (6, 5), (1, 1), (3, 3)])
    each = [vote_agreement([(a, b)])[0].one_with_others for a, b in votes.tolist()]
    assert vote_credit(votes).tolist() == each


def test_the_whole_is_the_mean_over_groups() -> None:
    whole, human, machine = vote_agreement([(11, 0), (8, 3), (6, 5), (1, 0)], ["HC", "HC", "MM", "MM"])
    assert (human.group, machine.group, whole.group) == ("HC", "MM", "")
    assert whole.one_with_all == pytest.approx((human.one_with_all + machine.one_with_all) / 2)
    assert human.one_with_all == pytest.approx((1 + 8 / 11) / 2)
    assert (whole.pairs, whole.single, machine.pairs, machine.single) == (3, 1, 1, 1)


@pytest.mark.parametrize("votes", [[[1, 2, 3]], [[1.5, 2.0]], [[-1, 3]], [], [1, 2]])
def test_what_are_no_votes_is_refused(votes: list[list[int]]) -> None:
    with pytest.raises(StatisticError, match="votes"):
        vote_agreement(np.array(votes))


def test_a_group_without_votes_is_named() -> None:
    with pytest.raises(StatisticError, match="no pair of MM has two votes"):
        vote_agreement([(3, 4), (1, 0)], ["HC", "MM"])
    with pytest.raises(StatisticError, match="1 groups for 2 pairs"):
        vote_agreement([(3, 4), (1, 0)], ["HC"])


def test_pairs_on_which_people_are_even_do_not_count_in_the_ceiling() -> None:
    votes = np.array([(3, 1), (5, 0), (1, 3), (2, 2)])
    items = tuple(Item(f"i{i // 2}", f"caption {i}", ("r",)) for i in range(8))
    pairs = Preferences(np.arange(0, 8, 2), np.arange(1, 8, 2), np.array([1, 1, -1, 0]), ("",) * 4, votes)
    judged = Judgements("mine", "all", items, preferences={"votes": pairs})
    protocol = Protocol("mine", ItemSelection("all", ""), accuracy("votes")["votes-strict"])
    human = people(protocol, judged, "image")
    assert human is not None
    # Two pairs in which one of four voters differs, one without a doubt. The even pair would make it .625 of four.
    assert human[1].value == pytest.approx((0.75 + 1 + 0.75) / 3)
    assert human[1].n == 3


@pytest.mark.real_data
def test_the_ceilings_of_the_published_judgements_are_the_documented_ones(real_data: Path) -> None:
    flickr = load_dataset("flickr8k-expert")
    judgements = flickr(find_root(str(real_data))).load(flickr.selections["no-own-captions"])[0]
    ratings = judgements.ratings["expert"]
    people = leave_one_rater_out(ratings.item, ratings.value)
    assert people.single == 0
    names: tuple[Coefficient, ...] = ("tau-b", "tau-c", "spearman", "pearson")
    found = {c: round(correlation(c, people.others, people.own).value, 3) for c in names}
    assert found == {"tau-b": 0.657, "tau-c": 0.554, "spearman": 0.711, "pearson": 0.792}
    pascal = load_dataset("pascal-50s")
    votes = pascal(find_root(str(real_data))).load(pascal.selections["json-5-refs"])[0].preferences["direct"]
    parts = {part.group: round(part.one_with_others, 3) for part in vote_agreement(votes.votes, votes.group)}
    assert parts == {"": 0.85, "HC": 0.662, "HI": 0.978, "HM": 0.961, "MM": 0.798}
