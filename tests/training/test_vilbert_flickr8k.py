"""Scripts that train ViLBERT on Flickr8k: dev scores, and tables."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.core.records import Item
from scripts.flickr8k_steps import Rated
from scripts.reproduce_vilbert_flickr8k import report, tables
from scripts.select_vilbert_flickr8k import above_all, held_out, own_and_foreign, wins


def test_an_images_own_caption_is_left_out_of_the_references_and_compared_with_all_others() -> None:
    items = [Item("a", f"x{i}", ("r1", "r2", "r3"), f"b#{i}", "anywhere") for i in range(2)]
    items.append(Item("c", "y", ("s1", "s2"), "a#0", "anywhere"))
    made, owners = own_and_foreign(items)
    assert [(item.candidate, item.references) for item in made] == [
        ("r3", ("r1", "r2")),
        ("x0", ("r1", "r2")),
        ("x1", ("r1", "r2")),
        ("s2", ("s1",)),
        ("y", ("s1",)),
    ]
    assert owners.tolist() == [0, 0, 0, 3, 3]
    assert wins(np.array([0.5, 0.4, 0.5, 0.1, 0.2]), owners).tolist() == [1.0, 0.5, 0.0]


def test_made_up_judgements_can_come_from_captions_that_the_metric_does_not_read() -> None:
    said = ("a dog runs", "a brown dog", "dog on grass", "a red car on the street", "a car drives past")
    candidates = ("a dog runs on grass", "a red car drives past", "two people eat", "the red car on a street")
    items = [Item("1", text, said) for text in candidates] + [Item("2", "a bird", ("a bird", "birds", "a", "b", "c"))]
    left, levels = held_out(items, 2)
    assert [item.references for item in left] == [item.references[:3] for item in items]
    assert levels[[1, 3]].min() > levels[[0, 2]].max()
    with pytest.raises(DataError, match="5 captions"):
        held_out(items, 5)


def test_own_captions_are_compared_with_foreign_ones_of_all_images() -> None:
    rng = np.random.default_rng(1)
    owners = np.repeat(np.arange(0.0, 60, 6), 6)
    scores = rng.integers(0, 9, 60).astype(float)
    own = owners == np.arange(60)
    pairs = [float(a > b) + float(a == b) / 2 for a in scores[own] for b in scores[~own]]
    assert above_all(scores, owners) == pytest.approx(np.mean(pairs))


def test_the_tables_hold_every_layer_and_the_difference_that_the_image_makes() -> None:
    rng = np.random.default_rng(0)
    items = tuple(Item(f"i{n // 4}", f"c{n}", ("r",)) for n in range(80))
    truth = rng.normal(size=80)
    value = np.clip(np.round(2.5 + np.repeat(truth, 2) + 0.3 * rng.normal(size=160)), 1, 4)
    data = Rated(items, np.repeat(np.arange(80), 2), value, "made up")

    def network() -> dict[str, np.ndarray]:
        names = [f"vilbertscore-{c}-{layer}{of}" for of in ("", ", blank") for layer in (1, 2) for c in "fpr"]
        return {name: truth + (3.0 if "blank" in name else 0.5) * rng.normal(size=80) for name in names}

    single = [network(), network()]
    together = {name: (single[0][name] + single[1][name]) / 2 for name in single[0]}
    text = {"meteor": truth + 2 * rng.normal(size=80), "cider": truth + 2 * rng.normal(size=80)}
    numbers = report(data, single, together, text, 100)
    tau = numbers["agreement"]["vilbertscore-f-2"]["tau-c"]
    assert np.mean(tau) == pytest.approx(numbers["intervals"]["vilbertscore-f-2"]["value"])
    assert min(tau) > max(numbers["agreement"]["vilbertscore-f-2, blank"]["tau-c"])
    pairs = {(p["better"], p["worse"]): p for p in numbers["comparison"]["pairs"]}
    assert pairs["vilbertscore-f-2", "vilbertscore-f-2, blank"]["low"] > 0
    results = {"seeds": [1, 2], "expert": numbers, "dev columns": ["alignment"], "dev": {"seed1": {"alignment": 90.0}}}
    shown = tables(results)
    for name in (
        "vilbertscore-r-1, blank, ensemble",
        "METEOR",
        "vilbertscore-f-2 over vilbertscore-f-2, blank",
        "90.0",
    ):
        assert name in shown
