"""The PASCAL-50S part: pairs of captions of one image, votes for either, and fifty references."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from scripts.sample import native
from scripts.sample.album import Album
from scripts.sample.chance import chance, normal, pick, shuffled, stream
from scripts.sample.composite import some_faults
from scripts.sample.language import Caption
from scripts.sample.machine import fluent, general, inventory
from scripts.sample.people import prefers, quality

__all__ = ["pascal_files"]

CATEGORIES = ("HC", "HI", "HM", "MM")
_HUMAN, _HUMAN_WRONG = 6, 7  # how ``new_data`` numbers who wrote a caption; 1 to 5 are machines
_REFERENCES = 50


def _machine(rng: np.random.Generator, album: Album, name: str, system: int) -> Caption:
    """One of five captioners: good, poor, one that lists, one that says little, one that takes another's caption."""
    scene = album.scenes[name]
    if system == 1:
        return fluent(rng, scene, some_faults(rng, {0: 2.0, 1: 2.0}))
    if system == 2:
        return fluent(rng, scene, some_faults(rng, {1: 1.0, 2: 3.0}))
    if system == 3:
        return inventory(rng, scene, some_faults(rng, {0: 1.0, 1: 2.0}))
    if system == 4:
        return general(rng, scene)
    other = pick(rng, [n for n in album.scenes if n != name])
    return pick(rng, album.captions[other])


def _pair(rng: np.random.Generator, album: Album, name: str, category: str) -> list[tuple[Caption, int]]:
    """Two captions that differ, and who wrote them, in random order."""
    first, second = album.captions[name][_REFERENCES], album.captions[name][_REFERENCES + 1]
    while True:
        if category == "HC":
            pair = [(first, _HUMAN), (second, _HUMAN)]
        elif category == "HI":
            other = pick(rng, [n for n in album.scenes if n != name])
            pair = [(first, _HUMAN), (album.captions[other][_REFERENCES], _HUMAN_WRONG)]
        elif category == "HM":
            system = pick(rng, (1, 2, 2, 3, 4, 5))
            pair = [(second, _HUMAN), (_machine(rng, album, name, system), system)]
        else:
            systems = shuffled(rng, (1, 2, 3, 4, 5))[:2]
            pair = [(_machine(rng, album, name, system), system) for system in systems]
        if pair[0][0].text.strip() != pair[1][0].text.strip():
            return shuffled(rng, pair)


def _likeness(reference: str, caption: str) -> float:
    """Share of a caption's words that a reference has, as a reader's feeling for how alike they are."""
    words = {word.strip(".,:'") for word in reference.lower().split()}
    caption_words = [word.strip(".,:'") for word in caption.lower().split()]
    return sum(word in words for word in caption_words) / max(len(caption_words), 1)


def pascal_files(album: Album) -> dict[str, bytes]:
    """The four MATLAB files (references, pairs with votes, candidates, triplets) and the JSON, by their paths."""
    order = shuffled(stream("pascal order"), [(name, c) for name in album.scenes for c in range(4)])
    pairs: list[tuple[str, str, str]] = []
    systems: list[tuple[int, int]] = []
    votes: list[list[int]] = []
    triplets: list[tuple[str, str, str, int]] = []
    entries: dict[str, list[dict[str, Any]]] = {CATEGORIES[c]: [] for _, c in order}
    for place, (name, category) in enumerate(order):
        rng = stream("pascal", name, CATEGORIES[category])
        (b, b_system), (c, c_system) = _pair(rng, album, name, CATEGORIES[category])
        scene = album.scenes[name]
        # What people like in a caption beyond its being right: the same for all who vote on the pair.
        taste = 0.1 * normal(rng)
        worth_b, worth_c = (quality(x, scene).overall + 0.25 * quality(x, scene).thorough for x in (b, c))
        number = 10 if place == 17 else 11  # six of the published pairs have ten votes
        votes.append([prefers(rng, worth_b + taste, worth_c) for _ in range(number)])
        # The published sentences begin with a blank; in the JSON it is gone.
        texts = [x.text.strip() for x in (b, c)]
        pairs.append((f"{name}.png", f" {texts[0]}", f" {texts[1]}"))
        systems.append((b_system, c_system))
        references = album.texts(name)[:_REFERENCES]
        winners = []
        for reference in shuffled(rng, references)[:48]:
            gap = 1.5 * (_likeness(reference, texts[0]) - _likeness(reference, texts[1]))
            winners.append(prefers(rng, worth_b + gap, worth_c, 3.0))
            triplets.append((reference, *pairs[-1][1:], winners[-1]))
        count = Counter(winners)
        label = int(count[-1] > count[1] or (count[-1] == count[1] and chance(rng, 0.5)))
        entries[CATEGORIES[category]].append(
            {
                "image": f"VOC2012/JPEGImages/{name}.png",
                "captions": texts,
                "label": label,
                "references": [text.strip() for text in shuffled(rng, references)[:5]],
            }
        )
    rows = [(f"{name}.png", album.texts(name)[:_REFERENCES]) for name in album.scenes]
    return {
        "pascal50s/pascal50S.mat": native.references_mat("refs", rows),
        "pascal50s/pair_pascal.mat": native.pairs_mat(pairs, systems, [c + 1 for _, c in order], votes),
        "pascal50s/pascal_cands.mat": native.references_mat("cands", [(p[0], p[1:]) for p in pairs]),
        "pascal50s/consensus_pascal.mat": native.consensus_mat(triplets),
        "pascal50s/pascal_50s.json": native.json_bytes(entries, 1),
    }
