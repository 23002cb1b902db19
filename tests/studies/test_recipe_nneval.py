"""NNEval's networks against their inputs, on invented judgements."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from capbench.core.records import Item, Judgements, Preferences, Ratings
from capbench.datasets.protocol import ItemSelection, Protocol, accuracy, correlations

pytest.importorskip("torch")

from capbench.metrics.nneval.network import INPUTS
from capbench.studies.recipe_nneval import (
    against_inputs,
    agreement_of,
    by_group,
    by_network,
    shares_of_pairs,
    without_long,
)
from scripts.result_tables import NNEVAL_ROWS, nneval_agreement, nneval_differences


def judged(seed: int = 0) -> tuple[Judgements, dict[str, list[Any]]]:
    rng = np.random.default_rng(seed)
    items = tuple(Item(f"im{n // 3}", f"c{n}", ("r",)) for n in range(120))
    truth = rng.normal(size=120)
    ratings = Ratings(np.arange(120), np.clip(np.round(3 + truth), 1, 5), np.zeros(120, dtype=np.int64), (1.0, 5.0))
    first = np.arange(0, 120, 2)
    pairs = Preferences(
        first,
        first + 1,
        np.where(truth[first] > truth[first + 1], 1, -1),
        tuple("one" if n % 2 else "two" for n in range(60)),
        np.zeros((60, 0), dtype=np.int64),
    )
    rows: dict[str, list[Any]] = {name: [truth + 2 * rng.normal(size=120)] for name in INPUTS}
    rows["coco"] = [truth + rng.normal(size=120) for _ in range(3)]
    rows["foreign"] = [truth + 0.1 * rng.normal(size=120) for _ in range(3)]
    return Judgements("made up", "all", items, ratings={"x": ratings}, preferences={"right": pairs}), rows


def protocol(name: str) -> Protocol:
    statistics = {**correlations("x"), **accuracy("right")}
    return Protocol("made up", ItemSelection("all", "all"), statistics[name])


def test_a_networks_value_is_the_mean_over_its_seeds_and_is_tested_against_every_input() -> None:
    data, rows = judged()
    del rows["coco"][2]  # two networks, next to three and to one
    told = against_inputs(data, protocol("tau-c"), rows, 900, 1000)
    seeds = by_network(data, protocol("tau-c"), rows)
    for name in rows:
        assert told["intervals"][name]["value"] == pytest.approx(np.mean(seeds[name]))
    tests = {(test["row"], test["input"]): test for test in told["tests"]}
    assert set(tests) == {(kind, name) for kind in ("coco", "foreign") for name in INPUTS}
    for (kind, name), test in tests.items():
        assert test["difference"] == pytest.approx(np.mean(seeds[kind]) - seeds[name][0])
        assert test["low"] < test["difference"] < test["high"]
        assert test["p"] <= test["p_adjusted"]
    assert all(tests["foreign", name]["p"] == pytest.approx(1 / 1001) for name in INPUTS)
    assert tests["foreign", "wmd"]["p_adjusted"] == pytest.approx(16 / 1001)


def test_a_part_of_the_items_is_a_part_of_the_judgements() -> None:
    data, rows = judged()
    kept = [n < 60 for n in range(120)]
    part = agreement_of(data, protocol("tau-b"), {"coco": rows["coco"]}, kept)
    assert part.units == 20
    assert (
        by_network(data, protocol("tau-b"), rows, kept=kept)["wmd"] != by_network(data, protocol("tau-b"), rows)["wmd"]
    )


def test_a_network_that_gives_all_captions_one_score_agrees_with_nobody() -> None:
    data, _ = judged()
    scores = np.where(np.arange(120) < 60, 0.4, np.arange(120))
    assert by_network(data, protocol("tau-c"), {"paper": [np.full(120, 0.4)]}) == {"paper": [0.0]}
    assert by_network(data, protocol("tau-c"), {"paper": [scores]}, kept=[n < 60 for n in range(120)]) == {
        "paper": [0.0]
    }


def test_captions_that_are_too_long_to_parse_are_left_out_with_their_pairs() -> None:
    data, _ = judged()
    assert without_long(data, 150) is data
    long = dataclasses.replace(data.items[0], candidate="a " * 151)
    kept = without_long(dataclasses.replace(data, items=(long, *data.items[1:])), 150)
    assert len(kept.items) == 119
    assert len(kept.preferences["right"]) == 59
    assert kept.notes == ("1 captions of more than 150 words are left out, with their pairs",)


def test_accuracies_by_group_have_the_mean_as_the_statistic_of_all() -> None:
    data, rows = judged()
    groups = by_group(data, protocol("right-strict"), rows)
    whole = by_network(data, protocol("right-strict"), rows)
    for name, values in whole.items():
        assert values == pytest.approx(np.mean([groups["one"][name], groups["two"][name]], axis=0))


def test_the_tables_have_every_row_and_the_difference_from_the_best_input() -> None:
    data, rows = judged()
    of_ratings = {
        "values": by_network(data, protocol("tau-c"), rows),
        "without Expert's images": by_network(data, protocol("tau-c"), rows),
        **against_inputs(data, protocol("tau-c"), rows, 900, 1000),
    }
    of_pairs = {
        "values": by_network(data, protocol("right-strict"), rows),
        "by group": by_group(data, protocol("right-strict"), rows),
        "ties half": by_network(data, protocol("right-ties-half"), rows),
        **against_inputs(data, protocol("right-strict"), rows, 900, 1000),
    }
    results = {
        "composite/same-text-out/correctness-tau-c": of_ratings,
        "pascal-50s/json-5-refs/direct-strict": of_pairs,
    }
    shown = nneval_agreement(results)
    assert shown.startswith("| row | Composite | PASCAL-50S, % |\n")
    for name in {*INPUTS, "coco", "foreign"} & set(NNEVAL_ROWS):
        assert f"\n| {NNEVAL_ROWS[name]} | " in shown
    of_foreign = nneval_differences(results).partition(f"| {NNEVAL_ROWS['foreign']} | ")[2].splitlines()[0]
    for judgements, scale, digits in ((of_ratings, 1, 4), (of_pairs, 100, 2)):
        best = max(INPUTS, key=lambda name: np.mean(judgements["values"][name]))
        (test,) = (one for one in judgements["tests"] if (one["row"], one["input"]) == ("foreign", best))
        assert f"{scale * test['difference']:+.{digits}f} [" in of_foreign


def test_held_out_captions_make_pairs_within_an_image_and_ties_are_halves() -> None:
    levels = np.array([2.0, 1.0, 0.0, 2.0, 1.0, 0.0])
    scores = np.array([0.9, 0.9, 0.1, 0.2, 0.5, 0.5])
    told = shares_of_pairs(scores, levels, ["a", "a", "a", "b", "b", "b"])
    assert told["person > machine"] == 25.0
    assert told["person > foreign"] == 50.0
    assert told["machine > foreign"] == 75.0
    from scipy.stats import kendalltau

    assert told["tau-b"] == pytest.approx(kendalltau(scores, levels).statistic, abs=1e-4)
