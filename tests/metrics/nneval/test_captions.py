from __future__ import annotations

from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.core.records import Item
from capbench.metrics.nneval.training import FOREIGN, HUMAN, DrawOptions, draw_captions
from tests.errors import raises

PEOPLE = {f"im{number}": tuple(f"person {place} of {number}" for place in range(5)) for number in range(12)}
SYSTEMS = {f"s{place}": {image: f"system {place} on {image}" for image in PEOPLE} for place in range(4)}


def items(judged: tuple[str, ...] = (), **options: Any) -> list[Item]:
    return draw_captions(PEOPLE, SYSTEMS, judged, DrawOptions(**options))[0]


def test_three_of_each_with_four_references_that_are_never_the_caption_itself() -> None:
    drawn = items()
    assert len(drawn) == 6 * len(PEOPLE)
    for image in PEOPLE:
        people = [item for item in drawn if item.image == image and item.system == HUMAN]
        machines = [item for item in drawn if item.image == image and item.system != HUMAN]
        assert len({item.candidate for item in people}) == 3
        assert len({item.system for item in machines}) == 3
        for item in people:
            assert (*item.references,) == tuple(text for text in PEOPLE[image] if text != item.candidate)
        for item in machines:
            assert SYSTEMS[item.system][image] == item.candidate
            assert len(set(item.references)) == 4
            assert set(item.references) < set(PEOPLE[image])
    machines = [item for item in drawn if item.system != HUMAN]
    left_out = {text for item in machines for text in PEOPLE[item.image] if text not in item.references}
    assert {text.split()[1] for text in left_out} == {"0", "1", "2", "3", "4"}
    assert len({item.system for item in machines}) == 4


@pytest.mark.parametrize("foreign", [0, 1])
def test_a_smaller_draw_is_a_part_of_a_larger_one_and_other_images_change_nothing(foreign: int) -> None:
    whole, fewer = set(items(foreign=foreign)), set(items(("im3",), foreign=foreign))
    assert set(items(images=4, foreign=foreign)) < set(items(images=9, foreign=foreign)) < whole
    # Captions that were of the image that is gone are replaced.
    assert all(item.image == "im3" or item.candidate.endswith("of 3") for item in whole - fewer)
    assert not any(item.image == "im3" for item in fewer)


def test_foreign_captions_are_of_other_images_that_are_not_judged() -> None:
    drawn, counts = draw_captions(PEOPLE, SYSTEMS, ("im3",), DrawOptions(foreign=2))
    foreign = [item for item in drawn if item.system == FOREIGN]
    assert [item for item in drawn if item.system != FOREIGN] == items(("im3",))
    assert len(foreign) == 2 * 11 == counts["captions of other images"]
    for image in PEOPLE:
        of = [item.candidate.rpartition(" ")[2] for item in foreign if item.image == image]
        assert len(set(of)) == len(of)
        assert not {image.removeprefix("im"), "3"} & set(of)
    for item in foreign:
        assert len(set(item.references)) == 4
        assert set(item.references) < set(PEOPLE[item.image])
    two = {image: PEOPLE[image] for image in ("im1", "im2")}  # there is one other image
    assert draw_captions(two, SYSTEMS, (), DrawOptions(foreign=9))[1]["captions of other images"] == 2


def test_what_is_left_out_is_counted() -> None:
    people = {**PEOPLE, "im0": PEOPLE["im0"][:4], "lonely": PEOPLE["im1"]}
    assert draw_captions(people, SYSTEMS, ("im3", "im4", "elsewhere"), DrawOptions())[1] == {
        "images": 9,
        "captions": 54,
        "systems": 4,
        "images with captions of systems": 12,
        "images left out as judged": 2,
        "images left out for too few captions": 1,
    }
    with raises(DataError, "too-few", value=0) as caught:
        draw_captions(PEOPLE, SYSTEMS, PEOPLE, DrawOptions())
    assert "12 images with captions of systems, 12 images left out as judged" in caught.value.message
