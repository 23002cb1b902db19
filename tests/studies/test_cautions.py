from __future__ import annotations

import numpy as np
import pytest

from capbench.core.records import ScoreColumn, ScoreTable
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.metric_request import Row
from capbench.studies.evaluate import evaluate
from capbench.studies.protocol_notes import tie_cautions

ROW = Row(ScoreColumn("m", "m"), "m", "m", "M")


@pytest.mark.parametrize(
    ("protocol", "levels", "says"),
    [
        ("unaggregated-tau-c", 3, True),
        ("unaggregated-tau-c", 10**9, False),
        ("unaggregated-tau-b", 3, False),
        ("mean-tau-c", 3, True),
    ],
)
def test_ties_are_told_under_tau_c(protocol: str, levels: int, says: bool) -> None:
    dataset = open_dataset("flickr8k-expert", find_root("sample"))
    chosen = dataset.protocol(protocol)
    draws = dataset.load(chosen.items)
    items = draws[0].items
    values = np.floor(np.random.default_rng(0).random(len(items)) * levels)
    table = ScoreTable(dataset.name, items, {ROW.key: values}, {ROW.key: 0.0}, {"m": "m"})
    cells, _ = evaluate(chosen, draws, [table], [ROW])
    lines = tie_cautions(chosen, [table], [ROW], cells)
    pairs = np.triu_indices(len(items), 1)
    share = np.mean(values[pairs[0]] == values[pairs[1]])
    assert [f"M has 3 distinct scores and gives {share:.0%} of all pairs of items" in line for line in lines] == (
        [True] if says else []
    )


def test_ties_are_those_of_all_draws() -> None:
    dataset = open_dataset("flickr8k-expert", find_root("sample"))
    chosen = dataset.protocol("one-reference/unaggregated-tau-c")
    draws = dataset.load(chosen.items)
    assert len(draws) == 5
    rng = np.random.default_rng(0)
    values = [
        np.floor(rng.random(len(draw.items)) * levels) for draw, levels in zip(draws, (9, 3, 4, 5, 6), strict=True)
    ]
    tables = [
        ScoreTable(dataset.name, draw.items, {ROW.key: of_draw}, {ROW.key: 0.0}, {"m": "m"})
        for draw, of_draw in zip(draws, values, strict=True)
    ]
    cells, _ = evaluate(chosen, draws, tables, [ROW])
    (line,) = tie_cautions(chosen, tables, [ROW], cells)
    pairs = np.triu_indices(len(draws[0].items), 1)
    share = np.mean([np.mean(of_draw[pairs[0]] == of_draw[pairs[1]]) for of_draw in values])
    assert f"M has 3 to 9 distinct scores and gives {share:.0%} of all pairs" in line
