"""Training captions of NNEval."""

from __future__ import annotations

from pathlib import Path

import pytest

from capbench.core.errors import DataError, UsageError
from capbench.datasets.captions import load_captions, read_machine_captions
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.metrics.nneval.training import FOREIGN, HUMAN, DrawOptions, NNEvalTraining, draw, draw_captions
from tests.errors import raises

PEOPLE = {f"im{number}": tuple(f"person {place} of {number}" for place in range(5)) for number in range(12)}
SYSTEMS = {f"s{place}": {image: f"system {place} on {image}" for image in PEOPLE} for place in range(4)}


def test_three_of_each_with_four_references_that_are_never_the_caption_itself() -> None:
    drawn = draw_captions(PEOPLE, SYSTEMS, (), DrawOptions())
    assert len(drawn.items) == 6 * len(PEOPLE)
    for image in PEOPLE:
        of_image = [(item, human) for item, human in zip(drawn.items, drawn.human, strict=True) if item.image == image]
        people = [item for item, human in of_image if human]
        machines = [item for item, human in of_image if not human]
        assert len({item.candidate for item in people}) == 3
        assert len({item.system for item in machines}) == 3
        for item in people:
            assert (*item.references,) == tuple(text for text in PEOPLE[image] if text != item.candidate)
        for item in machines:
            assert SYSTEMS[item.system][image] == item.candidate
            assert len(set(item.references)) == 4
            assert set(item.references) < set(PEOPLE[image])
    machines = [item for item, human in zip(drawn.items, drawn.human, strict=True) if not human]
    left_out = {text for item in machines for text in PEOPLE[item.image] if text not in item.references}
    assert {text.split()[1] for text in left_out} == {"0", "1", "2", "3", "4"}
    assert len({item.system for item in machines}) == 4


def test_foreign_captions_are_of_other_images_that_are_not_judged_and_count_as_no_persons() -> None:
    plain = draw_captions(PEOPLE, SYSTEMS, ("im3",), DrawOptions())
    drawn = draw_captions(PEOPLE, SYSTEMS, ("im3",), DrawOptions(foreign=2))
    foreign = [item for item in drawn.items if item.system == FOREIGN]
    assert [item for item in drawn.items if item.system != FOREIGN] == list(plain.items)
    assert len(foreign) == 2 * 11 == drawn.counts["captions of other images"]
    assert not any(human for item, human in zip(drawn.items, drawn.human, strict=True) if item.system == FOREIGN)
    for image in PEOPLE:
        of = [item.candidate.rpartition(" ")[2] for item in foreign if item.image == image]
        assert len(set(of)) == len(of)
        assert not {image.removeprefix("im"), "3"} & set(of)
    for item in foreign:
        assert len(set(item.references)) == 4
        assert set(item.references) < set(PEOPLE[item.image])


def test_captions_of_other_images_can_be_the_only_ones_labelled_as_machine() -> None:
    drawn = draw_captions(PEOPLE, SYSTEMS, (), DrawOptions(machine=0, foreign=2))
    both = draw_captions(PEOPLE, SYSTEMS, (), DrawOptions(foreign=2))
    assert {item.system for item in drawn.items} == {HUMAN, FOREIGN}
    assert drawn.counts["systems"] == 0
    for system in (HUMAN, FOREIGN):
        candidates = [[item.candidate for item in of.items if item.system == system] for of in (drawn, both)]
        assert candidates[0] == candidates[1]
    options = DrawOptions(machine=0)
    config = NNEvalTraining(
        schema=1, name="none", captions="coco-test", machine=("x.json",), vectors="v.bin", draw=options
    )
    with raises(UsageError, "out-of-range", value=0):
        draw(config, DataRoot(Path(), False, "--data"), None, lambda _: None)


def test_what_is_left_out_is_counted() -> None:
    people = {**PEOPLE, "im0": PEOPLE["im0"][:4], "lonely": PEOPLE["im1"]}
    drawn = draw_captions(people, SYSTEMS, ("im3", "im4", "elsewhere"), DrawOptions())
    assert drawn.counts == {
        "images": 9,
        "captions": 54,
        "systems": 4,
        "images with captions of systems": 12,
        "images left out as judged": 2,
        "images left out for too few captions": 1,
    }
    with raises(DataError, "too-few", value=0) as caught:
        draw_captions(PEOPLE, SYSTEMS, PEOPLE, DrawOptions())
    assert "12 of 12 have captions by systems, 0 of these are not judged" in caught.value.message


@pytest.mark.real_data
def test_cocos_test_images_that_composite_and_thumb_do_not_judge(real_data: Path) -> None:
    root = DataRoot(real_data, False, "given")
    people = load_captions("coco-test", root)
    folder = real_data / "machine_captions"
    machine = read_machine_captions(
        [folder / "where_image2/imgs_mscoco.txt", folder / "smurf_karpathy_cand.json"], people
    )
    assert len(machine.systems) == 15
    assert [note.partition(" ")[0] for note in machine.notes] == ["mscoco_human_1", "smurf_karpathy_cand-1"]
    images = {}
    for name in ("composite", "thumb", "foil"):
        dataset = open_dataset(name, root)
        images[name] = {item.image for one in dataset.load(dataset.protocol().items) for item in one.items}
    judged = images["composite"] | images["thumb"]
    assert draw_captions(people, machine.systems, judged, DrawOptions()).counts["images"] == 2683
    assert draw_captions(people, machine.systems, judged | images["foil"], DrawOptions()).counts["images"] == 2613
