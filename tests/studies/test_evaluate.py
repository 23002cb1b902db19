"""One protocol's statistic: each cell on its own, and means over all draws of references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from capbench.core.errors import MissingFileError, StatisticError
from capbench.core.records import Item, Judgements, Preferences, Ratings, ScoreColumn, ScoreTable
from capbench.datasets.protocol import ItemSelection, Protocol, StatisticSpec, accuracy, correlations
from capbench.metrics.metric_request import Row
from capbench.studies.evaluate import check_defined, evaluate
from capbench.studies.results import Cell
from tests.errors import raises

STATISTICS: Mapping[str, StatisticSpec] = {
    **correlations("rating", ("unaggregated", "mean")),
    **accuracy("votes"),
}
ROWS = tuple(Row(ScoreColumn(name, name), name, name, name.upper()) for name in ("a", "b"))
GROUPS = ("g", "g", "g", "g", "h", "h")
HUMAN = (1.0, 2.0, 3.0, 4.0, 2.0, 2.0)


def protocol(statistic: str) -> Protocol:
    return Protocol("set", ItemSelection("items", "all"), STATISTICS[statistic])


def judgements(draw: int = 0) -> Judgements:
    """Six items in two groups, each rated twice; people are alike on all of group h, and even on the pairs of C."""
    items = tuple(Item(f"i{n}", "a", (), f"c{n}", group) for n, group in enumerate(GROUPS))
    ratings = Ratings(np.repeat(np.arange(6), 2), np.repeat(HUMAN, 2), np.tile([0, 1], 6), (1.0, 4.0))
    pairs = Preferences(
        first=np.array([0, 2, 0, 1, 3]),
        second=np.array([1, 3, 2, 3, 4]),
        preferred=np.array([1, 1, -1, 1, 0]),
        group=("A", "A", "B", "B", "C"),
        votes=np.zeros((5, 0), dtype=np.int64),
    )
    return Judgements("set", "items", items, {"rating": ratings}, {"votes": pairs}, draw)


def table(draw: Judgements, **scores: Sequence[float]) -> ScoreTable:
    values = {ScoreColumn(name, name): np.array(of_column, dtype=np.float64) for name, of_column in scores.items()}
    corpus = {key: float(array.mean()) for key, array in values.items()}
    return ScoreTable("set", draw.items, values, corpus, dict.fromkeys(scores, ""))


def cells(statistic: str, *draws: Mapping[str, Sequence[float]]) -> dict[tuple[str, str], Cell]:
    of_draws = [judgements(draw) for draw in range(len(draws))]
    tables = [table(draw, **scores) for draw, scores in zip(of_draws, draws, strict=True)]
    made, _ = evaluate(protocol(statistic), of_draws, tables, ROWS)
    return {(cell.column, cell.group): cell for cell in made}


FIRST = {"a": (6, 5, 4, 3, 2, 1), "b": (1, 2, 2, 4, 5, 6)}
SECOND = {"a": (1, 1, 4, 4, 2, 1), "b": (1, 3, 2, 4, 5, 6)}
THIRD = {"a": (2, 2, 3, 3, 2, 1), "b": (2, 1, 3, 4, 5, 6)}


def test_chance_and_value_are_means_over_all_draws_of_every_metric() -> None:
    drawn, alone = (
        cells("votes-strict", FIRST, SECOND, THIRD),
        [cells("votes-strict", draw) for draw in (FIRST, SECOND, THIRD)],
    )
    assert [one["a", "A"].chance for one in alone] == [0.5, 0.0, 0.0]
    for key, cell in drawn.items():
        if cell.value is None:
            continue
        values, chances = ([getattr(one[key], name) for one in alone] for name in ("value", "chance"))
        assert cell.value == pytest.approx(np.mean(values), abs=1e-15)
        assert cell.sd == pytest.approx(np.std(values, ddof=1), abs=1e-15)
        assert cell.chance == pytest.approx(np.mean(chances), abs=1e-15)
        assert (cell.ties, cell.p_value, cell.n) == (None, None, alone[0][key].n)
    assert drawn["a", "A"].chance == pytest.approx(1 / 6)


def test_an_undefined_group_takes_no_other_cell_down() -> None:
    made = cells("mean-tau-b", FIRST)
    assert list(made) == [(name, group) for name in ("a", "b") for group in ("", "g", "h")]
    for name in ("a", "b"):
        scores = FIRST[name]
        expected = scipy.stats.kendalltau(scores[:4], HUMAN[:4])
        assert made[name, "g"].number == pytest.approx(expected.statistic)
        assert made[name, "g"].p_value == pytest.approx(expected.pvalue)
        assert (made[name, "h"].value, made[name, "h"].n, made[name, "h"].p_value) == (None, 2, None)
    assert made["a", "h"].undefined == made["b", "h"].undefined  # the human side is alike, whatever the metric


def test_pairs_that_nobody_prefers_have_no_accuracy_and_the_mean_is_over_the_other_groups() -> None:
    made = cells("votes-strict", FIRST)
    assert [made["a", group].value for group in ("", "A", "B", "C")] == [0.75, 1.0, 0.5, None]
    assert (made["a", ""].n, made["a", "C"].n) == (4, 0)
    assert made["a", "C"].chance is None


def test_the_overall_accuracy_is_the_mean_of_groups_whatever_their_sizes() -> None:
    plain = judgements()
    unequal = replace(plain.preferences["votes"], group=("A", "A", "A", "B", "C"))
    draw = replace(plain, preferences={"votes": unequal})
    made, _ = evaluate(protocol("votes-strict"), [draw], [table(draw, a=FIRST["a"])], ROWS[:1])
    values = {cell.group: cell.value for cell in made}
    assert values["A"] == pytest.approx(2 / 3)
    assert values["B"] == 1.0
    assert values[""] == pytest.approx(5 / 6)  # three of four pairs are right


def test_a_metric_that_is_constant_on_one_of_several_draws_is_undefined_in_that_cell_alone() -> None:
    flat = {"a": (1, 1, 1, 1, 2, 1), "b": SECOND["b"]}
    made = cells("mean-tau-b", FIRST, flat, THIRD)
    assert (made["a", "g"].value, made["a", "g"].sd) == (None, None)
    assert made["a", "g"].undefined.startswith("on draw 2 of 3: the correlation of A with the human ratings of g")
    assert made["a", ""].value is not None
    of_b = [cells("mean-tau-b", draw)["b", "g"].value for draw in (FIRST, flat, THIRD)]
    assert made["b", "g"].value == pytest.approx(np.mean(of_b))  # type: ignore[arg-type]


def test_unaggregated_ratings_have_no_p_value() -> None:
    assert cells("unaggregated-tau-b", FIRST)["a", ""].p_value is None
    assert cells("mean-tau-b", FIRST)["a", ""].p_value == pytest.approx(
        scipy.stats.kendalltau(FIRST["a"], HUMAN).pvalue
    )


def test_a_group_with_one_rating_is_too_small_for_a_correlation() -> None:
    one = judgements()
    items = tuple(replace(item, group="h" if n == 5 else "g") for n, item in enumerate(one.items))
    ratings = Ratings(np.arange(6), np.array(HUMAN), np.zeros(6, dtype=np.int64), (1.0, 4.0))
    small = replace(one, items=items, ratings={"rating": ratings})
    made, groups = evaluate(protocol("mean-spearman"), [small], [table(small, **FIRST)], ROWS)
    assert groups == ("g", "h")
    (cell,) = [cell for cell in made if (cell.column, cell.group) == ("a", "h")]
    assert (cell.value, cell.n) == (None, 1)
    assert "the human ratings of h have 1" in cell.undefined
    check_defined(cell for cell in made if not cell.group)
    with raises(StatisticError, "undefined", value="A"):
        check_defined(made)


def test_judgements_without_any_ratings_have_none_to_name() -> None:
    with raises(MissingFileError, "missing-file", value="rating") as caught:
        evaluate(protocol("mean-pearson"), [replace(judgements(), ratings={})], [], ROWS)
    assert caught.value.message.endswith("contain: none")


def test_groups_and_n_are_those_of_all_draws() -> None:
    first = judgements()
    whole = replace(first, ratings={"rating": Ratings(np.arange(6), np.arange(6.0), np.zeros(6, np.int64), (0.0, 5.0))})
    second = replace(
        whole,
        items=tuple(replace(item, group="g") for item in whole.items[:5]),
        ratings={"rating": Ratings(np.arange(5), np.arange(5.0), np.zeros(5, np.int64), (0.0, 5.0))},
    )
    tables = [table(whole, **FIRST), table(second, a=FIRST["a"][:5], b=FIRST["b"][:5])]
    made, groups = evaluate(protocol("mean-tau-b"), [second, whole], tables[::-1], ROWS)
    assert groups == ("g", "h")
    (of_group,) = [cell for cell in made if (cell.column, cell.group) == ("b", "h")]
    assert of_group.undefined == "on draw 1 of 2: it has no data of this group"
    (overall,) = [cell for cell in made if (cell.column, cell.group) == ("b", "")]
    assert (overall.n, overall.value is None) == (5, False)
