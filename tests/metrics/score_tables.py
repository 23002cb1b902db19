"""Items and scores that the tests of score files share."""

from __future__ import annotations

import numpy as np

from capbench.core.records import Item, ScoreColumn, ScoreTable

ITEMS = (
    Item("i1", 'a "quoted", caption', ("a", "b"), "c1"),
    Item("i2", "ein Café; 猫", ("c",), ""),
    Item("i1", 'a "quoted", caption', ("a", "b"), "c1"),
)
TABLE = ScoreTable(
    "own",
    ITEMS,
    {
        ScoreColumn("bleu", "bleu-1"): np.array([1 / 3, 1e-17, 1 / 3]),
        ScoreColumn("cider", "cider"): np.array([2.5, 0.0, 2.5]),
    },
    {},
    {"bleu": "bleu|capbench:1", "cider": "cider|capbench:1"},
)
