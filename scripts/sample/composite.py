"""The Composite part: three candidates an image, rated for correctness and thoroughness from 1 to 5."""

from __future__ import annotations

import numpy as np

from capbench.core.records import caption_key
from scripts.sample import native
from scripts.sample.album import Album, Sample
from scripts.sample.chance import below, chance, normal, pick, stream, weighted
from scripts.sample.language import Caption
from scripts.sample.machine import FAULTS, fluent, general, inventory
from scripts.sample.people import five_point, quality
from scripts.sample.scenes import Scene

__all__ = ["composite_files", "composite_images", "some_faults"]


def some_faults(rng: np.random.Generator, weights: dict[int, float]) -> tuple[str, ...]:
    """None, one or more sorts of mistake, by the weights of their numbers."""
    number = weighted(rng, weights)
    faults: list[str] = []
    while len(faults) < number:
        fault = pick(rng, FAULTS)
        if fault not in faults:
            faults.append(fault)
    return tuple(faults)


def _neural(rng: np.random.Generator, album: Album, scene: Scene) -> Caption:
    """Right, wrong in places, next to nothing, or about another image."""
    draw = rng.random()
    if draw < 0.1:
        return general(rng, scene)
    if draw < 0.3:
        return fluent(rng, album.scenes[pick(rng, [name for name in album.scenes if name != scene.name])])
    return fluent(rng, scene, some_faults(rng, {0: 2.0, 1: 4.0, 2: 3.0}))


def _candidates(rng: np.random.Generator, album: Album, name: str, repeats: bool) -> list[Caption]:
    scene = album.scenes[name]
    human = pick(rng, album.captions[name])
    text = human.text.rstrip(" .").lower() + "."
    neural = _neural(rng, album, scene)
    if repeats:
        # Now and then a captioner says word for word what a person said.
        twin = album.captions[name][(album.captions[name].index(human) + 1) % 5]
        neural = Caption(twin.text.rstrip(" .").lower() + " .", twin.mentions, twin.relation, twin.background)
    listed = inventory(rng, scene, some_faults(rng, {0: 1.5, 1: 4.0, 2: 3.0}))
    extra = fluent(rng, scene, some_faults(rng, {0: 1.0, 1: 1.0}))
    return [Caption(text, human.mentions, human.relation, human.background), neural, listed, extra]


def composite_images(sample: Sample) -> dict[str, tuple[str, list[str], int]]:
    """By subset: the data set that its images come from, their names, how many candidates were shown of each."""
    f30k = sample.splits["flickr30k"]
    return {
        "8k": ("flickr8k", sorted(sample.splits["flickr8k"]["test"])[:25], 3),
        "30k": ("flickr30k", [*f30k["test_2016"][:14], *f30k["val"][:3], *f30k["train"][:3]], 4),
        "coco": ("coco", sample.splits["coco"]["test"][:25], 4),
    }


def composite_files(sample: Sample) -> dict[str, bytes]:
    """The TSV with the correctness ratings, and the six original ``;``-separated exports that it comes from."""
    rows: list[tuple[object, ...]] = [("subset", "image", "position", "candidate", "correctness", "is_reference")]
    files: dict[str, bytes] = {}
    for subset, (dataset, names, shown) in composite_images(sample).items():
        album = sample.albums[dataset]
        exports: dict[str, list[list[object]]] = {"correctness": [], "throughness": []}
        for place, name in enumerate(names):
            rng = stream("composite", name)
            candidates = _candidates(rng, album, name, repeats=place == 7)[:shown]
            worth = [quality(candidate, album.scenes[name]) for candidate in candidates]
            correct = [five_point(rng, value.correct) for value in worth]
            thorough = [five_point(rng, 0.35 * v.correct + 0.65 * v.thorough + 0.05 * normal(rng)) for v in worth]
            keys = {caption_key(text) for text in album.texts(name)}
            for position in range(3):
                text = candidates[position].text
                rows.append((subset, f"{name}.png", position, text, correct[position], int(caption_key(text) in keys)))
            texts = [candidate.text for candidate in candidates]
            for aspect, ratings in (("correctness", correct), ("throughness", thorough)):
                exports[aspect].append(_export(subset, name, aspect, texts, ratings))
        for aspect, body in exports.items():
            head = ["HITId", "HITTypeId", "Title", "AssignmentId", "WorkerId", "AssignmentStatus", "Input.image_url"]
            head += [f"Input.text{i + 1}" for i in range(shown)]
            head += [f"Answer.Q{i + 1}Answer" for i in range(shown)]
            # The published exports end with two rows without judgements; public loaders drop them unseen.
            averages = [f"{np.mean([int(str(row[7 + shown + i])) for row in body]):.4f}" for i in range(shown)]
            blank = [""] * (7 + shown)
            tail = [[*blank, *[""] * shown, "", ""], [*blank, *averages, "", ""]]
            files[f"composite/{subset}_{aspect}.csv"] = native.table([[*head, "Approve", "Reject"], *body, *tail], ";")
    files["composite/composite_11985.tsv"] = native.table(rows)
    return files


def _export(subset: str, name: str, aspect: str, texts: list[str], ratings: list[int]) -> list[object]:
    """One row as the crowd-working site exports it."""
    rng = stream("assignment", aspect, name)
    ids = ["".join(pick(rng, "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789") for _ in range(14)) for _ in range(3)]
    url = f"http://example.org/{subset}/{name}.png"
    title = f"Rate the {'thoroughness' if aspect == 'throughness' else aspect} of captions"
    status = "Approved" if chance(rng, 0.9) else "Submitted"
    return [ids[0], ids[1], title, ids[2], f"A{below(rng, 40):03d}", status, url, *texts, *ratings, "", ""]
