"""The parts of the search for why NNEval loses: networks side by side, likeness of captions, shares of pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from capbench.metrics.nneval.network import INPUTS  # noqa: E402
from scripts import diagnose_nneval  # noqa: E402
from scripts.diagnose_nneval import Captions, Variant, falls, most_alike, on_dev, share_won, train_variant  # noqa: E402


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose_nneval, "EPOCHS", 25)


def made(images: int = 8) -> Captions:
    """Captions whose inputs all say the same: people .6, machines .5, others' .1 to .3."""
    rng = np.random.default_rng(0)
    kinds = ["person", "machine", "foreign", "alike", "viecap-coco", "viecap-flickr30k"]
    level = {"person": 0.6, "machine": 0.5, "foreign": 0.1, "alike": 0.3, "viecap-coco": 0.5, "viecap-flickr30k": 0.4}
    rows = [(f"image-{number}", kind) for number in range(images) for kind in kinds for _ in range(3)]
    inputs = np.array([level[kind] + rng.normal(0, 0.05, len(INPUTS)) for _, kind in rows])
    names = np.array([image for image, _ in rows])
    dev = np.isin(names, [f"image-{number}" for number in range(0, images, 4)])
    return Captions(inputs, np.array([kind for _, kind in rows]), names, dev)


def test_networks_side_by_side_learn_as_each_would_alone(tmp_path: Path) -> None:
    captions = made()
    together, facts = train_variant(captions, Variant("all"), [1, 2], tmp_path / "both.pt")
    alone, of_one = train_variant(captions, Variant("all"), [2], tmp_path / "one.pt")
    assert facts["epoch"][1] == of_one["epoch"][0]
    np.testing.assert_allclose(together[1](captions.inputs), alone[0](captions.inputs), rtol=1e-3, atol=1e-3)
    assert not np.allclose(together[0](captions.inputs), together[1](captions.inputs), atol=1e-2)


def test_what_was_trained_is_taken_from_the_folder(tmp_path: Path) -> None:
    captions = made()
    first, facts = train_variant(captions, Variant("all"), [1], tmp_path / "kept.pt")
    again, same = train_variant(captions, Variant("all"), [1], tmp_path / "kept.pt")
    assert facts == same
    np.testing.assert_array_equal(first[0](captions.inputs), again[0](captions.inputs))


def test_no_input_lowers_the_score_where_none_may_and_hidden_ones_change_nothing(tmp_path: Path) -> None:
    captions = made()
    (rising,), _ = train_variant(captions, Variant("rising", rising=True), [1], tmp_path / "rising.pt")
    assert set(falls(captions, rising).values()) == {0.0}
    (blind,), _ = train_variant(captions, Variant("blind", without=("spice",)), [1], tmp_path / "blind.pt")
    other = captions.inputs.copy()
    other[:, INPUTS.index("spice")] = 0.9
    np.testing.assert_array_equal(blind(other), blind(captions.inputs))


def test_shares_count_pairs_of_one_image_and_ties_as_half() -> None:
    names = (np.array(["a", "a", "b"]), np.array(["a", "b", "b"]))
    # a: 1 > 0 and 2 > 0; b: 3 = 3 and 3 < 4.
    assert share_won(np.array([1.0, 2.0, 3.0]), np.array([0.0, 3.0, 4.0]), names) == 62.5


def test_the_mean_of_what_fits_is_of_the_four_pairs_that_ask_for_it() -> None:
    captions = made()
    told = on_dev(captions, captions.inputs.mean(axis=1))
    assert told["person > foreign"] == told["machine > foreign"] == 100
    four = [told[f"{first} > {second}"] for first in ("person", "machine") for second in ("foreign", "alike")]
    assert told["fits"] == pytest.approx(np.mean(four), abs=0.01)


def test_most_alike_images_share_rare_words() -> None:
    people = {
        "dogs": ["a dog in the snow", "the dog runs"],
        "dog": ["a dog runs in deep snow"],
        "boat": ["a boat on the sea", "a red boat"],
        "ship": ["a ship on the sea"],
    }
    alike = most_alike(people, sorted(people))
    assert alike["dogs"][0] == "dog"
    assert alike["ship"][0] == "boat"
    assert all(image not in others for image, others in alike.items())
