"""acc*_eq as the statistic of a protocol."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from capbench.core.records import FloatArray, ScoreColumn, ScoreTable
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from capbench.metrics.metric_request import Row
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.studies.evaluate import evaluate
from capbench.studies.protocol_notes import tie_cautions
from tests.conftest import Ran

PROTOCOL = "composite/same-text-out/correctness-acc-eq"


def by_listing_all_pairs(scores: FloatArray, human: FloatArray) -> float:
    """Every pair under every ε that changes something."""
    i, j = np.triu_indices(len(scores), 1)
    difference, order = scores[i] - scores[j], np.sign(human[i] - human[j])
    return max(
        float(np.mean(np.where(np.abs(difference) <= epsilon, 0, np.sign(difference)) == order))
        for epsilon in [0.0, *np.abs(difference)]
    )


def test_the_number_of_a_protocol_is_that_of_all_pairs_overall_and_by_group(
    capbench: Callable[..., Ran], sample: Path
) -> None:
    ran = capbench("correlate", "--protocol", PROTOCOL, "--metric", "bleu.bleu-1", "--json", "--no-cache")
    assert ran.code == 0, ran.err
    cells = {cell["group"]: cell for cell in json.loads(ran.out)["cells"]}
    dataset = open_dataset("composite", find_root(str(sample)))
    (judgements,) = dataset.load(dataset.protocol(PROTOCOL).items)
    (request,) = resolve_metrics(["bleu.bleu-1"])
    table = score(judgements.items, [request], dataset="composite", cache=False)
    ratings = judgements.ratings["correctness"]
    scores = table.values[ScoreColumn("bleu", "bleu-1")][ratings.item]
    groups = np.array([judgements.items[item].group for item in ratings.item])
    assert set(cells) == {"", "8k", "30k", "coco"}
    for group, cell in cells.items():
        chosen = groups == group if group else np.full(len(groups), True)
        assert cell["value"] == pytest.approx(by_listing_all_pairs(scores[chosen], ratings.value[chosen]), abs=1e-12)
        assert cell["n"] == int(chosen.sum())
        assert cell["p_value"] is None
    # The table has the chance level: that of a constant score, or of coin flips on untied pairs.
    first, second = np.triu_indices(len(scores), 1)
    tied = float(np.mean(ratings.value[first] == ratings.value[second]))
    (info,) = json.loads(ran.out)["protocols"]
    (note,) = [note for note in info["notes"] if "chance level" in note]
    assert f" {max(tied, (1 - tied) / 2):.4f}:" in note
    assert note in " ".join(
        capbench("correlate", "--protocol", PROTOCOL, "--metric", "bleu.bleu-1", "--details").out.split()
    )


def test_people_have_a_ceiling_and_a_note_says_that_there_are_no_intervals(capbench: Callable[..., Ran]) -> None:
    protocol = "flickr8k-expert/no-own-captions/unaggregated-acc-eq"
    ran = capbench("correlate", "-p", protocol, "-m", "bleu.bleu-1", "--bootstrap", "100", "--json")
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert [cell["low"] for cell in result["cells"]] == [None]
    (ceiling,) = result["ceilings"]
    assert (ceiling["low"], ceiling["high"], ceiling["method"]) == (None, None, "leave-one-rater-out")
    assert result["cells"][0]["value"] < ceiling["value"] < 1
    (note,) = [note for note in result["protocols"][0]["notes"] if "no intervals" in note]
    assert "acc-eq" in note


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
