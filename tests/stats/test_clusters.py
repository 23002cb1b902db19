from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from capbench.stats.significance import significance_ranks


def apart(*pairs: str) -> Callable[[str, str], bool]:
    found = {frozenset(pair) for pair in pairs}
    return lambda first, second: frozenset((first, second)) in found


VALUES = {"c": 0.3, "a": 0.5, "d": 0.2, "b": 0.4}


def test_a_new_rank_begins_with_the_first_metric_that_differs_from_any_of_the_rank() -> None:
    # b is as good as a and c as b, but c is worse than a: c opens rank 2, where d, though worse than a, stays.
    assert significance_ranks(VALUES, apart("ac", "ad", "bd")) == {"a": 1, "b": 1, "c": 2, "d": 2}
    assert significance_ranks(VALUES, apart()) == {"a": 1, "b": 1, "c": 1, "d": 1}
    every = apart("ab", "ac", "ad", "bc", "bd", "cd")
    assert significance_ranks(VALUES, every) == {"a": 1, "b": 2, "c": 3, "d": 4}


@given(st.dictionaries(st.sampled_from("abcdefg"), st.floats(-1, 1), min_size=1), st.data())
def test_metrics_of_one_rank_never_differ(values: dict[str, float], data: st.DataObject) -> None:
    pairs = [a + b for a in values for b in values if a < b]
    differ = apart(*data.draw(st.lists(st.sampled_from(pairs))) if pairs else ())
    ranks = significance_ranks(values, differ)
    assert not any(differ(*pair) for pair in pairs if ranks[pair[0]] == ranks[pair[1]])
    assert list(ranks.values()) == sorted(ranks.values())
    assert [values[name] for name in ranks] == sorted(values.values(), reverse=True)


def test_equal_values_keep_their_order() -> None:
    assert list(significance_ranks({"y": 0.2, "x": 0.2}, apart())) == ["y", "x"]
