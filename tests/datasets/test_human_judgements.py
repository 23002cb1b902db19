"""Judgements of Flickr8k and Composite in the JSON forms in which they travel: the same items as from the releases."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import DataError
from capbench.core.records import Judgements
from capbench.datasets.composite import Composite
from capbench.datasets.flickr8k import Flickr8kCrowdFlower, Flickr8kExpert
from tests.datasets.native_files import root, write_json
from tests.errors import raises

EXPERT, CROWD = "flickr8k/flickr8k.json", "flickr8k/crowdflower_flickr8k.json"


def token_captions(folder: Path) -> dict[str, dict[str, str]]:
    """Image → caption id → caption, read here anew. The release writes one image's ids with an extra '.1'."""
    captions: dict[str, dict[str, str]] = {}
    for line in (folder / "flickr8k/Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        name, text = line.split("\t")
        captions.setdefault(name.split(".")[0], {})[name] = text.strip()
    return captions


def expert_json(folder: Path) -> dict[str, Any]:
    """What CLIPScore's preparation makes of the experts' file: three entries a pair, no pair with an own caption."""
    captions = token_captions(folder)
    texts = {name: text for of_image in captions.values() for name, text in of_image.items()}
    images: dict[str, Any] = {}
    for line in (folder / "flickr8k/ExpertAnnotations.txt").read_text(encoding="utf-8").splitlines():
        file_name, caption_id, *scores = line.split("\t")
        image = file_name.split(".")[0]
        if texts[caption_id] in captions[image].values():
            continue
        entry = images.setdefault(
            image, {"human_judgement": [], "image_path": f"x/{file_name}", "ground_truth": [*captions[image].values()]}
        )
        entry["human_judgement"] += [{"caption": texts[caption_id], "rating": float(score)} for score in scores]
    return images


def same(first: Judgements, second: Judgements, aspect: str) -> bool:
    """Whether items and ratings are the same; candidates have other names."""
    triples = [[(item.image, item.candidate, item.references) for item in loaded.items] for loaded in (first, second)]
    ratings = [loaded.ratings[aspect] for loaded in (first, second)]
    return triples[0] == triples[1] and ratings[0].value.tolist() == ratings[1].value.tolist()


def test_the_json_gives_the_judgements_of_the_release(sample: Path, tmp_path: Path) -> None:
    write_json(tmp_path / EXPERT, expert_json(sample))
    chosen = Flickr8kExpert.selections["no-own-captions"]
    (released,), (travelled,) = (Flickr8kExpert(root(folder)).load(chosen) for folder in (sample, tmp_path))
    assert same(released, travelled, "expert")
    assert travelled.notes[0].startswith("read from flickr8k.json")


@pytest.mark.parametrize(("share", "code"), [(0.25, ""), (1.5, "out-of-range")])
def test_shares_of_yes_in_json_are_any_numbers_from_0_to_1(share: float, code: str, tmp_path: Path) -> None:
    data = {"x": {"human_judgement": [{"caption": "a kite", "rating": share}], "ground_truth": ["a red kite"]}}
    write_json(tmp_path / CROWD, data)
    crowd = Flickr8kCrowdFlower(root(tmp_path))
    with raises(DataError, code, row="entry 'x'", value=share) if code else contextlib.nullcontext():
        (loaded,) = crowd.load(crowd.selections["own-reference-out"])
        assert loaded.ratings["share-of-yes"].value.tolist() == [share]


def entry(*ratings: object, captions: tuple[str, ...] = ("a kite", "a kite", "a kite")) -> dict[str, Any]:
    entries = [{"caption": c, "rating": r} for c, r in zip(captions, ratings, strict=True)]
    return {"x": {"human_judgement": entries, "ground_truth": ["a red kite"], "image_path": "x.jpg"}}


@pytest.mark.parametrize(
    ("data", "code", "row", "value"),
    [
        ([], "missing-value", None, None),
        (entry(1, 2, "3"), "not-a-number", "entry 'x'", "3"),
        (entry(1, 2, 5), "out-of-range", "entry 'x'", 5),
        (entry(1, 2, captions=("a kite", "a kite")), "mismatch", "entry 'x'", None),
        (entry(1, 2, 3, captions=("a", "a", "b")), "mismatch", "entry 'x'", None),
        ({"x": entry(1, 1, 1)["x"], "x.jpg": entry(1, 1, 2)["x"]}, "duplicate", "entry 'x.jpg'", None),
    ],
)
def test_a_wrong_entry_is_named(data: object, code: str, row: str | None, value: object, tmp_path: Path) -> None:
    write_json(tmp_path / EXPERT, data)
    dataset = Flickr8kExpert(root(tmp_path))
    with raises(DataError, code, path=tmp_path / "flickr8k/flickr8k.json", row=row, value=value):
        dataset.load(dataset.selections["no-own-captions"])


# Composite

SOURCES = {"8k": "flickr8k", "30k": "flickr30k", "coco": "coco"}


def by_source(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = {source: [] for source in SOURCES.values()}
    head, *lines = (folder / "composite/composite_11985.tsv").read_text(encoding="utf-8").splitlines()
    for row in (dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines):
        entry = {"image": row["image"], "caption": row["candidate"], "human": int(row["correctness"])}
        data[SOURCES[row["subset"]]].append(entry)
    return data


@pytest.mark.parametrize("selection", ["same-text-out", "any-candidate-out"])
def test_the_json_of_composite_gives_the_judgements_of_the_table(selection: str, sample: Path, tmp_path: Path) -> None:
    for corpus in SOURCES.values():
        (tmp_path / corpus).symlink_to(sample / corpus)
    write_json(tmp_path / "composite/composite.json", by_source(sample))
    chosen = Composite.selections[selection]
    (table,), (travelled,) = Composite(root(sample)).load(chosen), Composite(root(tmp_path)).load(chosen)
    assert same(table, travelled, "correctness")
    assert [item.candidate_id for item in table.items] == [item.candidate_id for item in travelled.items]
    assert "thoroughness" not in travelled.ratings


@pytest.mark.parametrize(
    ("data", "code", "row", "value"),
    [
        ([], "wrong-format", None, None),
        ({"coc": []}, "unknown-name", None, "coc"),
        ({"coco": [{"image": "a.jpg", "caption": "a dog", "human": 6}]}, "out-of-range", "coco entry 1", 6),
    ],
)
def test_a_wrong_entry_of_composite_is_named(
    data: object, code: str, row: str | None, value: object, tmp_path: Path
) -> None:
    write_json(tmp_path / "composite/composite.json", data)
    with raises(DataError, code, path=tmp_path / "composite/composite.json", row=row, value=value):
        Composite(root(tmp_path)).load(Composite.selections["all-references"])
