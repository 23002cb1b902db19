"""The embedded sample: complete, consistent between its files, made again as it is, and not too big."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from capbench.core.errors import MissingFileError
from capbench.core.records import caption_key, image_id
from capbench.datasets.base import dataset_names, load_dataset
from capbench.datasets.images import all_images
from capbench.datasets.root import DataRoot
from scripts import make_sample
from scripts.sample import build, native
from scripts.sample.album import Sample
from scripts.sample.captions import describe_many
from scripts.sample.chance import below, chance, normal, pick, shuffled, stream, weighted
from scripts.sample.drawing import paint, png_bytes
from scripts.sample.language import Caption, Mention
from scripts.sample.machine import FAULTS, fluent
from scripts.sample.people import expert_ratings, prefers, quality, yes_votes
from scripts.sample.scenes import COLOURS, KINDS, RARE, SIDE, Group, Plan, Scene, holds, lay_out, new_plan, sibling

SUBSETS = {"8k": ("flickr8k", 25, 3), "30k": ("flickr30k", 20, 4), "coco": ("coco", 25, 4)}


def rows(path: Path, separator: str = "\t") -> list[list[str]]:
    return [line.split(separator) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def token(sample: Path) -> dict[str, str]:
    return {row[0]: row[1] for row in rows(sample / "flickr8k" / "Flickr8k.token.txt")}


@pytest.fixture(scope="module")
def flickr30k(sample: Path) -> dict[str, list[str]]:
    folder = sample / "flickr30k" / "multi30k_task2"
    captions = {}
    for split in ("train", "val", "test_2016"):
        names = (folder / "image_splits" / f"{split}_images.txt").read_text().split()
        packed = [(folder / "raw" / f"{split}.{n}.en.gz").read_bytes() for n in range(1, 6)]
        columns = [gzip.decompress(data).decode().splitlines() for data in packed]
        assert {len(column) for column in columns} == {len(names)}
        captions.update({name: list(texts) for name, texts in zip(names, zip(*columns, strict=True), strict=True)})
    return captions


@pytest.fixture(scope="module")
def scenes(sample: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((sample / "scenes.json").read_text())["images"]
    return found


@pytest.fixture(scope="module")
def mats(sample: Path) -> dict[str, Any]:
    import scipy.io

    names = {"pascal50S": "refs", "pair_pascal": "", "pascal_cands": "cands", "consensus_pascal": "triplets"}
    found = {name: scipy.io.loadmat(sample / "pascal50s" / f"{name}.mat") for name in names}
    return {name: found[name][key] if key else found[name] for name, key in names.items()}


@pytest.fixture(scope="module")
def made() -> Sample:
    return build.build()


# What is there


def test_size_and_number_of_files_stay_small(sample: Path) -> None:
    sizes = [path.stat().st_size for path in sample.rglob("*") if path.is_file()]
    assert len(sizes) <= 400
    assert sum(sizes) <= 4_000_000


def test_every_scene_has_its_picture_and_every_picture_its_scene(sample: Path, scenes: list[dict[str, Any]]) -> None:
    assert len(scenes) == 300
    assert {scene["file"] for scene in scenes} == {p.relative_to(sample).as_posix() for p in sample.rglob("*.png")}
    for scene in scenes:
        with Image.open(sample / scene["file"]) as image:
            assert (image.format, image.mode, image.size) == ("PNG", "RGB", (SIDE, SIDE))
        assert Path(scene["file"]).stem == scene["id"]


def test_boxes_lie_inside_pictures_and_do_not_overlap(scenes: list[dict[str, Any]]) -> None:
    for scene in scenes:
        boxes = [thing["box"] for thing in scene["objects"]]
        assert boxes
        for x1, y1, x2, y2 in boxes:
            assert 0 <= x1 < x2 <= scene["width"]
            assert 0 <= y1 < y2 <= scene["height"]
            assert min(x2 - x1, y2 - y1) >= 14
        for i, a in enumerate(boxes):
            for b in boxes[:i]:
                assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_something_is_painted_in_every_box(sample: Path, scenes: list[dict[str, Any]]) -> None:
    for scene in scenes[::7]:
        pixels = np.asarray(Image.open(sample / scene["file"])).astype(int)
        for thing in scene["objects"]:
            x1, y1, x2, y2 = thing["box"]
            near = np.abs(pixels[y1:y2, x1:x2] - np.array(COLOURS[thing["colour"]])).max(axis=2) < 12
            assert near.mean() > 0.1, (scene["id"], thing)


def test_judged_pictures_are_held_out(sample: Path, scenes: list[dict[str, Any]]) -> None:
    split = {scene["id"]: scene["split"] for scene in scenes}
    judged = {row[0] for row in rows(sample / "flickr8k" / "ExpertAnnotations.txt")}
    judged |= {row[0] for row in rows(sample / "flickr8k" / "CrowdFlowerAnnotations.txt")}
    judged |= {row[1] for row in rows(sample / "composite" / "composite_11985.tsv")[1:]}
    judged |= {scene["file"] for scene in scenes if scene["dataset"] in ("pascal50s", "nocaps")}
    assert {split[image_id(name)] for name in judged} == {"held-out"}
    assert Counter(split.values())["train"] >= 100


def test_training_pictures_show_every_class_but_rare_ones_seldom(scenes: list[dict[str, Any]]) -> None:
    pictures = [{thing["class"] for thing in scene["objects"]} for scene in scenes if scene["split"] == "train"]
    count = Counter(kind for kinds in pictures for kind in kinds)
    assert all(count[kind] >= 8 for kind in KINDS if kind not in RARE)
    assert all(3 <= count[kind] <= 8 for kind in RARE)


# Flickr8k


def test_flickr8k_captions_and_splits_agree(sample: Path, token: dict[str, str]) -> None:
    images = {name.split("#")[0] for name in token}
    splits = [(sample / "flickr8k" / f"Flickr_8k.{s}Images.txt").read_text().split() for s in ("train", "dev", "test")]
    assert [len(names) for names in splits] == [85, 15, 50]
    assert {name for names in splits for name in names} == images
    assert len(token) == 5 * len(images) == 750
    for image in images:
        assert len({caption_key(token[f"{image}#{n}"]) for n in range(5)}) == 5


def test_expert_pairs_are_of_test_images_and_rated_captions(sample: Path, token: dict[str, str]) -> None:
    pairs = rows(sample / "flickr8k" / "ExpertAnnotations.txt")
    tests = set((sample / "flickr8k" / "Flickr_8k.testImages.txt").read_text().split())
    assert len(pairs) - sum(row[1].split("#")[0] == row[0] for row in pairs) == 300
    assert sum(row[1].split("#")[0] == row[0] for row in pairs) == 9
    assert {row[0] for row in pairs} == tests
    assert len({(row[0], row[1]) for row in pairs}) == len(pairs)
    assert all(row[1] in token for row in pairs)
    ratings = np.array([[int(value) for value in row[2:]] for row in pairs])
    assert ratings.shape == (309, 3)
    assert all(0.05 < share < 0.5 for share in np.bincount(ratings.ravel(), minlength=5)[1:] / ratings.size)
    agreement = np.corrcoef(ratings.T)[np.triu_indices(3, 1)]
    assert ((agreement > 0.7) & (agreement < 0.95)).all()


def test_crowd_votes_add_up(sample: Path, token: dict[str, str]) -> None:
    pairs = rows(sample / "flickr8k" / "CrowdFlowerAnnotations.txt")
    assert len(pairs) >= 400
    assert sum(row[1].split("#")[0] == row[0] for row in pairs) == 13
    assert len({(row[0], row[1]) for row in pairs}) == len(pairs)
    for _, caption, share, yes, no in pairs:
        assert caption in token
        assert int(yes) + int(no) >= 3
        assert float(share) == pytest.approx(int(yes) / (int(yes) + int(no)), abs=1e-14)


# Composite


def references(sample: Path, token: dict[str, str], flickr30k: dict[str, list[str]], image: str) -> list[str]:
    if f"{image}#0" in token:
        return [token[f"{image}#{n}"] for n in range(5)]
    if image in flickr30k:
        return flickr30k[image]
    found: list[str] = json.loads((sample / "coco" / "karpathy_test_captions.json").read_text())[image]
    return found


def test_composite_table_has_three_candidates_an_image_and_says_which_are_references(
    sample: Path, token: dict[str, str], flickr30k: dict[str, list[str]]
) -> None:
    head, *body = rows(sample / "composite" / "composite_11985.tsv")
    assert head == ["subset", "image", "position", "candidate", "correctness", "is_reference"]
    assert len(body) == 210
    for subset, (_, images, _) in SUBSETS.items():
        assert [row[2] for row in body if row[0] == subset] == ["0", "1", "2"] * images
    for _, image, position, candidate, correctness, is_reference in body:
        keys = {caption_key(text) for text in references(sample, token, flickr30k, image)}
        assert is_reference == str(int(caption_key(candidate) in keys))
        assert position != "0" or is_reference == "1"
        assert correctness in set("12345")
    assert sum(row[5] == "1" and row[2] == "1" for row in body) == 3  # machine captions that match a person's


@pytest.mark.parametrize("subset", SUBSETS)
def test_composite_exports_hold_what_the_table_holds(sample: Path, subset: str) -> None:
    table = [row for row in rows(sample / "composite" / "composite_11985.tsv") if row[0] == subset]
    _, images, shown = SUBSETS[subset]
    ratings = {}
    for aspect in ("correctness", "throughness"):
        with open(sample / "composite" / f"{subset}_{aspect}.csv", encoding="utf-8", newline="") as stream:
            export = list(csv.DictReader(stream, delimiter=";"))
        assert len(export) == images + 2
        assert [row["Input.image_url"] for row in export[-2:]] == ["", ""]
        read = [
            (row["Input.image_url"].rsplit("/", 1)[1], str(n), row[f"Input.text{n + 1}"], row[f"Answer.Q{n + 1}Answer"])
            for row in export[:-2]
            for n in range(3)
        ]
        assert [entry[:3] for entry in read] == [(row[1], row[2], row[3]) for row in table]
        ratings[aspect] = [entry[3] for entry in read]
        assert ("Input.text4" in export[0]) == (shown == 4)
    assert ratings["correctness"] == [row[4] for row in table]
    assert ratings["throughness"] != ratings["correctness"]
    assert set(ratings["throughness"]) <= set("12345")


# PASCAL-50S


def test_pascal_references_are_fifty_and_distinct(mats: dict[str, Any]) -> None:
    refs = mats["pascal50S"]
    assert refs.dtype.names == ("image", "sent")
    assert refs.shape == (1, 40)
    for record in refs[0]:
        assert len({caption_key(str(text[0])) for text in record["sent"][0]}) == 50


def test_pascal_pairs_agree_between_all_files(sample: Path, mats: dict[str, Any]) -> None:
    pairs, triplets = mats["pair_pascal"], mats["consensus_pascal"][0]
    refs = {str(r["image"][0]): [str(text[0]).strip() for text in r["sent"][0]] for r in mats["pascal50S"][0]}
    published = json.loads((sample / "pascal50s" / "pascal_50s.json").read_text())
    queue = {name: iter(entries) for name, entries in published.items()}
    categories = pairs["category"][0]
    assert Counter(categories.tolist()) == {1: 40, 2: 40, 3: 40, 4: 40}
    assert {name: len(entries) for name, entries in published.items()} == dict.fromkeys(("HC", "HI", "HM", "MM"), 40)
    assert len(triplets) == 48 * len(categories)
    for i, category in enumerate(categories):
        image, *texts = (str(field[0]) for field in pairs["new_input"][0, i])
        candidates = mats["pascal_cands"][0, i]
        assert [str(candidates["image"][0]), *(str(c[0]) for c in candidates["sent"][0])] == [image, *texts]
        entry = next(queue[("HC", "HI", "HM", "MM")[category - 1]])
        assert entry["image"] == f"VOC2012/JPEGImages/{image}"
        assert entry["captions"] == [text.strip() for text in texts]
        assert len(set(entry["references"])) == 5
        assert set(entry["references"]) <= set(refs[image])
        wins: Counter[int] = Counter()
        for record in triplets[48 * i : 48 * (i + 1)]:
            a, b, c, winner = (field[0][0] for field in record)
            assert str(a[0]).strip() in refs[image]
            assert [str(b[0]), str(c[0])] == texts
            wins[int(winner)] += 1
        assert set(wins) <= {1, -1}
        if wins[1] != wins[-1]:
            assert entry["label"] == int(wins[-1] > wins[1])
        assert set(entry["captions"]).isdisjoint(refs[image]) or category > 2


def test_pascal_votes_and_systems_have_the_published_form(mats: dict[str, Any]) -> None:
    pairs = mats["pair_pascal"]
    lengths = Counter(record["result"].shape for record in pairs["result"][0])
    assert lengths == {(1, 11): 159, (1, 10): 1}
    assert {int(v) for record in pairs["result"][0] for v in record["result"][0]} == {1, -1}
    for (first, second), category in zip(pairs["new_data"].tolist(), pairs["category"][0].tolist(), strict=True):
        machines = (first < 6) + (second < 6)
        assert machines == (0, 0, 1, 2)[category - 1]
        assert category > 2 or first + second == (12, 13)[category - 1]


# COCO, nocaps


def test_coco_splits_share_no_image(sample: Path) -> None:
    test, val = (json.loads((sample / "coco" / f"karpathy_{s}_captions.json").read_text()) for s in ("test", "val"))
    assert (len(test), len(val)) == (30, 20)
    assert not test.keys() & val.keys()
    assert {len(captions) for captions in (*test.values(), *val.values())} == {5}


def test_nocaps_out_domain_pictures_show_rare_classes_only(sample: Path, scenes: list[dict[str, Any]]) -> None:
    corpus = json.loads((sample / "nocaps" / "nocaps_corpus.json").read_text())
    info = json.loads((sample / "nocaps" / "nocaps_val_image_info.json").read_text())["images"]
    by_file = {Path(scene["file"]).name: scene for scene in scenes}
    assert Counter(entry["split"] for entry in corpus) == {"in_domain": 10, "near_domain": 10, "out_domain": 10}
    assert [image_id(entry["image_id"]) for entry in corpus] == [str(image["id"]) for image in info]
    for entry, image in zip(corpus, info, strict=True):
        assert len({caption_key(text) for text in entry["caption"]}) == 10
        kinds = {thing["class"] for thing in by_file[image["file_name"]]["objects"]}
        rare = len(kinds & set(RARE))
        assert {"in_domain": rare == 0, "near_domain": 0 < rare < len(kinds), "out_domain": kinds <= set(RARE)}[
            entry["split"]
        ], entry["split"]


# The loaders read it


def test_every_judged_image_has_a_picture(sample: Path) -> None:
    root = DataRoot(sample, True, "embedded sample")
    pictured = {image.image for image in all_images(root)}
    for name in dataset_names():
        dataset = load_dataset(name)
        with contextlib.suppress(MissingFileError):  # of data sets that the sample does not have
            judged = dataset(root).load(dataset.protocol().items)[0]
            assert {item.image for item in judged.items if item.image} <= pictured, name


@pytest.mark.parametrize(
    ("name", "items", "judgements"),
    [
        ("flickr8k-expert", 300, 900),
        ("flickr8k-crowdflower", 513, 513),
        ("composite", 210, 210),
        ("pascal-50s", 320, 160),
        ("nocaps", 30, 0),
        ("foil", 60, 30),
        ("foil-full", 386, 193),
        ("thumb", 150, 150),
        ("cxc-sits", 200, 200),
        ("cxc-sts", 200, 200),
        ("longcap-arena", 30, 30),
        ("publicsys", 150, 150),
        ("nebula", 60, 60),
        ("polaris", 100, 100),
        ("flickr8k-swaps", 234, 117),
        ("distractions", 110, 55),
        ("hm-coco", 120, 90),
        ("hm-flickr8k", 650, 600),
    ],
)
def test_registered_loaders_read_the_sample(sample: Path, name: str, items: int, judgements: int) -> None:
    dataset = load_dataset(name)
    judged = dataset(DataRoot(sample, True, "embedded sample")).load(dataset.protocol().items)[0]
    assert len(judged.items) == items
    sizes = {len(part) for part in judged.ratings.values()} | {len(part) for part in judged.preferences.values()}
    assert judgements in sizes or not judgements
    assert all(item.references for item in judged.items)


# It can be made again


def test_one_scene_made_again_has_the_same_pixels_and_captions(sample: Path, flickr30k: dict[str, list[str]]) -> None:
    album, splits = build.album("flickr30k")
    for name in (splits["test_2016"][0], splits["val"][2]):
        again = np.asarray(paint(album.scenes[name]))
        assert np.array_equal(again, np.asarray(Image.open(sample / "flickr30k" / "images" / f"{name}.png")))
        assert album.texts(name) == flickr30k[f"{name}.png"]


def test_the_committed_sample_is_what_the_program_makes(sample: Path, made: Sample) -> None:
    assert make_sample.differences(sample, made.files) == []


def test_check_names_files_that_differ_are_missing_or_in_excess(tmp_path: Path) -> None:
    picture = png_bytes(Image.new("RGB", (2, 2), (1, 2, 3)))
    files = {"a.txt": b"one\n", "b.gz": native.gzipped(b"two"), "c.png": picture, "d.txt": b"", "e.gz": b""}
    (tmp_path / "a.txt").write_bytes(b"uno\n")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"two", 1, mtime=77))  # same content, other bytes
    buffer = io.BytesIO()
    Image.new("RGB", (2, 2), (1, 2, 3)).save(buffer, "PNG", compress_level=0)  # same pixels, other bytes
    (tmp_path / "c.png").write_bytes(buffer.getvalue())
    (tmp_path / "e.gz").write_bytes(b"\x1f\x8b\x08broken")
    (tmp_path / "f.txt").write_bytes(b"")
    assert buffer.getvalue() != picture
    assert make_sample.differences(tmp_path, files) == [
        "a.txt: differs", "d.txt: missing", "e.gz: differs", "f.txt: not part of the sample"
    ]  # fmt: skip


def test_matlab_files_are_compared_without_their_compression() -> None:
    data = native.references_mat("refs", [("a.png", ["one", "two"])])
    other = native.references_mat("refs", [("a.png", ["one", "too"])])
    assert data == native.references_mat("refs", [("a.png", ["one", "two"])])  # no date in it
    assert make_sample.content("x.mat", data) != make_sample.content("x.mat", other)
    assert b"one"[:1] in make_sample.content("x.mat", data)


def test_written_sample_passes_its_own_check(
    made: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = Sample({path: data for path, data in made.files.items() if "/images/" not in path})
    monkeypatch.setattr(make_sample, "build", lambda progress: part)
    folder = tmp_path / "new"
    assert make_sample.main(["--out", str(folder)]) == 0
    assert make_sample.main(["--out", str(folder), "--check"]) == 0
    assert "identical (86 files)" in capsys.readouterr().out
    (folder / "scenes.json").unlink()
    assert make_sample.main(["--out", str(folder), "--check"]) == 1
    assert "scenes.json: missing" in capsys.readouterr().out


def test_readme_says_that_it_is_synthetic_and_counts_right(sample: Path) -> None:
    text = (sample / "README.md").read_text()
    assert "All of this is synthetic" in text
    assert "say nothing about how good a metric is" in text
    assert "309 expert pairs" in text
    assert "210 candidates" in text
    assert "Apache-2.0" in text


# The parts that make it

PLAN = Plan("meadow", (Group("car", "red", "large", 1), Group("tree", "green", "small", 3)), "left")


@pytest.fixture(scope="module")
def scene() -> Scene:
    return lay_out("a test's scene", PLAN)


def said(*mentions: Mention, relation: tuple[int, str, int] | None = None, background: str | None = None) -> Caption:
    return Caption("", mentions, relation, background)


def test_layout_follows_the_plan(scene: Scene) -> None:
    assert scene.plan == PLAN
    assert [thing.kind for thing in scene.things] == ["car", "tree", "tree", "tree"]
    assert holds(scene, 0, "left", 1)
    assert holds(scene, 1, "right", 0)
    assert not holds(scene, 0, "right", 1)


def test_quality_falls_with_every_sort_of_mistake(scene: Scene) -> None:
    car, trees = Mention("car", "red", "large", 1), Mention("tree", "green", "small", 3)
    right = quality(said(car, trees, relation=(0, "left", 1), background="meadow"), scene)
    assert right.correct == pytest.approx(1.0)
    assert right.thorough == pytest.approx(1.0)
    wrong = {
        "colour": said(Mention("car", "blue", "large", 1), trees),
        "count": said(car, Mention("tree", "green", "small", 2)),
        "kind": said(Mention("boat", "white", None, 1), trees),
        "size": said(Mention("car", "red", "small", 1), trees),
        "relation": said(car, trees, relation=(0, "right", 1)),
        "extra": said(car, trees, Mention("star", "pink", None, 1)),
        "general": said(Mention("car", None, None, 1, general=True)),
        "background": said(car, trees, background="sea"),
    }
    for name, caption in wrong.items():
        assert quality(caption, scene).correct < right.correct - 0.03, name
    missing = quality(said(car), scene)
    assert missing.correct == pytest.approx(1.0)
    assert missing.thorough < right.thorough - 0.2
    other_image = quality(said(Mention("star", "pink", None, 1), Mention("fish", "blue", None, 2)), scene)
    assert other_image.overall < min(quality(caption, scene).overall for caption in wrong.values())


def test_people_say_true_things_in_different_words(scene: Scene) -> None:
    captions = describe_many(stream("test"), scene, "coco", 40)
    assert len({caption_key(caption.text) for caption in captions}) == 40
    assert all(quality(caption, scene).correct > 0.99 for caption in captions if not any(
        mention.general for mention in caption.mentions))  # fmt: skip
    assert {caption.text.rstrip().endswith(".") for caption in captions} == {True, False}


@pytest.mark.parametrize("fault", FAULTS)
def test_machines_make_the_mistake_they_are_told_to(scene: Scene, fault: str) -> None:
    right = np.mean([quality(fluent(stream("right", str(i)), scene), scene).overall for i in range(40)])
    wrong = np.mean([quality(fluent(stream(fault, str(i)), scene, (fault,)), scene).overall for i in range(40)])
    assert wrong < right - 0.02


@pytest.mark.parametrize("change", ["colour", "count", "kind", "missing", "extra", "relation", "background"])
def test_siblings_differ_in_what_is_named(change: str) -> None:
    plan = Plan("plain white", PLAN.groups, "left")
    other = sibling(stream("sibling"), plan, change)
    assert other != plan
    if change in ("colour", "count", "kind"):
        changed = [(a, b) for a, b in zip(plan.groups, other.groups, strict=True) if a != b]
        assert len(changed) == 1
        old, new = changed[0]
        assert getattr(old, change) != getattr(new, change)
    assert len(other.groups) == 2 + {"missing": -1, "extra": 1}.get(change, 0)


def test_plans_can_always_be_laid_out() -> None:
    for i in range(60):
        plan = new_plan(stream("plans", str(i)), rare=0.5)
        made = lay_out(f"plan {i}", plan)
        assert len(made.things) == sum(group.count for group in made.plan.groups)


def test_raters_follow_quality(scene: Scene) -> None:
    rng = stream("raters")
    good = quality(said(Mention("car", "red", "large", 1), Mention("tree", "green", "small", 3)), scene)
    bad = quality(said(Mention("star", "pink", None, 1)), scene)
    for worth, low, high in ((good, 3.5, 4.0), (bad, 1.0, 1.4)):
        ratings = [rating for _ in range(50) for rating in expert_ratings(rng, worth)]
        assert set(ratings) <= {1, 2, 3, 4}
        assert low <= np.mean(ratings) <= high
    assert sum(yes_votes(rng, good, 3) for _ in range(50)) > 130
    assert sum(yes_votes(rng, bad, 3) for _ in range(50)) < 15
    assert sum(prefers(rng, 1.0, 0.2) for _ in range(100)) > 90


def test_random_choices_are_the_same_everywhere() -> None:
    rng = stream("same everywhere")
    drawn = (below(rng, 1000), chance(rng, 0.5), pick(rng, "abcdef"), shuffled(rng, range(5)),
             weighted(rng, {"x": 1.0, "y": 2.0}), round(normal(rng), 12))  # fmt: skip
    assert drawn == (25, True, "e", [0, 2, 1, 3, 4], "x", -0.856470973461)
