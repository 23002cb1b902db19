from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.core.records import Judgements, caption_key
from capbench.datasets.distractions import Distractions
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.metrics.requests import resolve_metrics
from capbench.metrics.scoring import score
from capbench.studies.evaluate import evaluate
from capbench.text.distractions import TASKS
from tests.datasets.native_files import root, token_text, write, write_json
from tests.errors import raises

CAPTIONS = {
    "one.jpg": ["A man throws a ball in the snow .", "Somebody with a ball .", "a man throws a ball in the snow"],
    "two.jpg": ["A woman reads a book on a bench .", "A lady reads ."],
    "three.jpg": ["A man holds a long rope .", "Climbing in a kitchen with shoes looks odd ."],
    "four.jpg": ["Several brown cats play in the snow .", "Cats ."],
    "train.jpg": ["A man sings to old friends .", "A man ."],
}
PAIRS = "distractions/pairs.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "flickr8k/Flickr8k.token.txt", token_text(CAPTIONS))
    write(tmp_path / "flickr8k/Flickr_8k.testImages.txt", "one.jpg\ntwo.jpg\nthree.jpg\nfour.jpg\n")
    return tmp_path


def load(folder: Path, name: str = "distractions", selection: str = "own-caption-out") -> Judgements:
    dataset = open_dataset(name, root(folder))
    (judged,) = dataset.load(dataset.selections[selection])
    return judged


def test_pairs_have_the_right_caption_first_and_their_task_as_group(folder: Path) -> None:
    judged = load(folder)
    pairs = judged.preferences["right"]
    assert pairs.preferred.tolist() == [1] * len(pairs)
    assert pairs.first.tolist() == list(range(0, len(judged.items), 2))
    assert set(pairs.group) == set(TASKS)
    for right, wrong in zip(judged.items[::2], judged.items[1::2], strict=True):
        assert right.references == wrong.references
        assert right.candidate in CAPTIONS[f"{right.image}.jpg"]
        assert wrong.candidate not in CAPTIONS[f"{right.image}.jpg"]
    assert len({item.candidate_id for item in judged.items}) == len(judged.items)


def test_references_are_the_images_captions_without_the_right_ones_text(folder: Path) -> None:
    judged = load(folder)
    for item in judged.items[::2]:
        texts = CAPTIONS[f"{item.image}.jpg"]
        assert item.references == tuple(t for t in texts if caption_key(t) != caption_key(item.candidate))
    assert next(item for item in judged.items if item.image == "one").references == ("Somebody with a ball .",)


def test_images_of_other_splits_take_no_part(folder: Path) -> None:
    assert {item.image for item in load(folder).items} <= {"one", "two", "three", "four"}
    assert not any("friends" in item.candidate for item in load(folder).items)


def test_one_task_is_a_group_of_the_set(folder: Path) -> None:
    judged = load(folder, "distractions@just-scene")
    assert {item.candidate for item in judged.items[1::2]} >= {"the snow"}
    assert open_dataset("distractions@just-scene", root(folder)).protocol().versioned == (
        "distractions:1@just-scene/own-caption-out/right-strict"
    )
    with raises(UsageError, "unknown-name", value="nothing") as caught:
        open_dataset("distractions@nothing", root(folder))
    assert "coco, given" in str(caught.value.hint)


def test_the_note_counts_the_pairs_and_names_the_rules(folder: Path) -> None:
    counts, rules, *_ = load(folder).notes
    assert counts.startswith("3 replace-person, ")
    assert counts.endswith(" pairs of 4 images")
    assert rules.startswith("ours, after Hodosh and Hockenmaier (2016): made by rules version 1 (lexicon ")
    assert rules.endswith("no human judged them")


def test_the_accuracy_of_a_metric_is_the_share_of_right_captions_above_their_distractors(folder: Path) -> None:
    judged = load(folder)
    requests = resolve_metrics(["bleu-1"])
    table = score(judged.items, requests, dataset="x", cache=False)
    values = table.values[requests[0].score_columns[0]]
    pairs = judged.preferences["right"]
    expected = {}
    for task in TASKS:
        places = [n for n, group in enumerate(pairs.group) if group == task]
        expected[task] = sum(values[2 * n] > values[2 * n + 1] for n in places) / len(places)
    cells, _ = evaluate(Distractions.protocol(), [judged], [table], requests[0].rows)
    assert {cell.group: cell.value for cell in cells if cell.group in TASKS} == pytest.approx(expected)


def test_captions_of_coco_are_another_set(folder: Path) -> None:
    captions = {name.removesuffix(".jpg"): texts for name, texts in CAPTIONS.items()}
    entries = [
        {"filename": f"{name}.jpg", "split": "val", "imgid": n, "sentences": [{"raw": text} for text in texts]}
        for n, (name, texts) in enumerate(captions.items())
    ]
    write_json(folder / "coco/dataset_coco.json", {"images": entries, "dataset": "coco"})
    judged = load(folder, "distractions@coco")
    assert judged.dataset == "distractions@coco"
    assert "train" in {item.image for item in judged.items}


def test_captions_without_any_pair_are_refused(folder: Path) -> None:
    write(folder / "flickr8k/Flickr_8k.testImages.txt", "two.jpg\n")
    write(folder / "flickr8k/Flickr8k.token.txt", token_text({"two.jpg": ["Rouge et noir .", "Un chat"]}))
    with raises(DataError, "too-few", path=folder / "flickr8k/Flickr8k.token.txt"):
        load(folder)


def test_scene_graphs_that_are_not_there_are_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPBENCH_CACHE", str(folder / "cache"))
    write(
        folder / "flickr8k/Flickr8k.token.txt",
        token_text({**CAPTIONS, "one.jpg": ["A man with an odd xylophone in the snow .", "x"]}),
    )
    with raises(DataError, "missing-data", path=folder / "flickr8k/Flickr8k.token.txt", value=5) as caught:
        load(folder, selection="in-scene-graph")
    assert "capbench data parses make distractions" in str(caught.value)


def test_only_pairs_whose_noun_is_an_object_of_the_scene_graph_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capbench.text.spice import scene_graph

    monkeypatch.setattr(scene_graph, "missing", lambda tokens, **_: [])
    monkeypatch.setattr(
        scene_graph,
        "tuples",
        lambda tokens, **_: iter(
            [(("man",), ("man", "snow", "in")) if "ball" in text else (("x",),) for text in tokens]
        ),
    )
    judged = load(folder, selection="in-scene-graph")
    assert {item.image for item in judged.items} == {"one"}
    assert Counter(judged.preferences["right"].group) == dict.fromkeys(TASKS, 1)
    assert judged.notes[-1].startswith("10 of 16 pairs ")


# Pairs of the user

GIVEN: list[dict[str, Any]] = [
    {"task": "replace-person", "image": "1.jpg", "correct": "A man runs .", "distractor": "A girl runs ."},
    {"task": "just-scene", "image": "1.jpg", "correct": "A man at sea .", "distractor": "the sea", "references": ["b"]},
]


def write_given(folder: Path, pairs: list[dict[str, Any]]) -> None:
    write(folder / PAIRS, "".join(json.dumps(pair) + "\n" for pair in pairs))


def write_flickr30k(folder: Path) -> None:
    texts = ["a man runs", "A runner .", "Somebody in a race"]
    write(folder / "flickr30k/results_20130124.token", token_text({"1.jpg": texts}))


def test_given_pairs_take_their_references_or_those_of_flickr30k(folder: Path) -> None:
    write_given(folder, GIVEN)
    write_flickr30k(folder)
    judged = load(folder, "distractions@given")
    assert [item.candidate for item in judged.items] == ["A man runs .", "A girl runs .", "A man at sea .", "the sea"]
    assert [item.references for item in judged.items[::2]] == [("A runner .", "Somebody in a race"), ("b",)]
    assert judged.preferences["right"].group == ("replace-person", "just-scene")
    assert judged.notes == ("1 replace-person, 1 just-scene pairs of 1 images",)


def test_given_pairs_with_references_need_no_captions(folder: Path) -> None:
    write_given(folder, GIVEN[1:])
    assert len(load(folder, "distractions@given").items) == 2
    write_given(folder, GIVEN)
    with raises(MissingFileError, "missing-data", path=folder / "flickr30k/multi30k_task2", value="flickr30k"):
        load(folder, "distractions@given")


@pytest.mark.parametrize(
    ("change", "code", "row", "value"),
    [
        ({"task": ""}, "missing-value", 1, None),
        ({"image": None}, "wrong-type", 1, None),
        ({"correct": 3}, "wrong-type", 1, 3),
        ({"distractor": "a man RUNS"}, "duplicate", 1, "A man runs ."),
        ({"references": []}, "wrong-type", 1, None),
        ({"references": [""]}, "missing-value", 1, None),
        ({"image": "2.jpg"}, "missing-references", 1, "2"),
        ({"references": ["a man runs"]}, "missing-references", None, "1"),
    ],
)
def test_damaged_pairs_are_refused_by_row(
    folder: Path, change: dict[str, Any], code: str, row: int | None, value: object
) -> None:
    write_flickr30k(folder)
    write_given(folder, [{**GIVEN[0], **change}])
    with raises(DataError, code, path=folder / "distractions/pairs.jsonl", row=row, value=value):
        load(folder, "distractions@given")


def test_the_missing_file_is_named(folder: Path) -> None:
    with raises(MissingFileError, "missing-file", path=folder / "distractions/pairs.jsonl"):
        load(folder, "distractions@given")


def test_the_sample_has_pairs_by_its_scenes(sample: Path) -> None:
    dataset = Distractions(DataRoot(sample, True, "embedded sample"))
    (judged,) = dataset.load(dataset.protocol().items)
    counts = Counter(judged.preferences["right"].group)
    assert set(counts) == {"replace-scene", "share-scene", "just-scene"}
    assert min(counts.values()) >= 10


@pytest.mark.real_data
def test_published_captions_give_hundreds_of_pairs_a_task(real_data: Path) -> None:
    judged = load(real_data)
    counts = Counter(judged.preferences["right"].group)
    assert set(counts) == set(TASKS)
    assert min(counts.values()) > 450
    assert {len(item.references) for item in judged.items} <= {3, 4}
