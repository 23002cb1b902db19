"""Inputs of the benches: generated captions and ratings, items of Flickr8k Expert, random region features."""

from __future__ import annotations

import csv
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from capbench.core.errors import CapbenchError
from capbench.core.records import Item

_ODD = ["it's", "can't", "St.", "U.S.", "1,000", "10:30", "well-known", '"red"', "(small)", "...", "--", "$5", "p.m."]
_WORDS = "a the dog cat man woman runs sits on grass red blue ball field kite"


def groups(images: int, candidates: int, references: int, seed: int = 0) -> Iterator[tuple[list[str], list[str]]]:
    """Candidates and references of each image: 7 to 15 words of 12,000, one caption in ten with an unusual token.

    Word frequencies follow Zipf's law, references of an image share words, candidates are altered references.
    """
    rng = random.Random(seed)
    words = list(dict.fromkeys("".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(12_000)))
    cumulative = list(itertools.accumulate(1 / (i + 2) for i in range(len(words))))

    def finished(text: list[str]) -> str:
        if rng.random() < 0.1:
            text = list(text)
            text[rng.randrange(len(text) - 1)] = rng.choice(_ODD)
        return " ".join(text).capitalize() + rng.choice([".", ".", " .", ""])

    def altered(text: list[str], topic: list[str]) -> list[str]:
        text = list(text)
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.choice(topic)
        return text

    for _ in range(images):
        topic = rng.choices(words, cum_weights=cumulative, k=12)
        texts = []
        for _ in range(references):
            text = rng.choices(words, cum_weights=cumulative, k=rng.randint(7, 15))
            begin = rng.randint(0, 6)
            text[: rng.randint(2, 6)] = topic[begin : begin + rng.randint(2, 6)]
            texts.append(text)
        made = [altered(rng.choice(texts), topic) for _ in range(candidates)]
        yield [finished(text) for text in made], [finished(text) for text in texts]


def captions(count: int, references: int = 5) -> Iterator[tuple[str, list[str]]]:
    """Candidates with references, nearly all distinct."""
    for (candidate,), texts in groups(count, 1, references):
        yield candidate, texts


def write_captions(folder: Path, count: int) -> list[str]:
    """The options of ``capbench score`` for files of generated captions, written line by line to save memory."""
    candidates, references = folder / f"candidates-{count}.json", folder / f"references-{count}.json"
    with candidates.open("w") as ours, references.open("w") as theirs:
        for i, (candidate, texts) in enumerate(captions(count)):
            ours.write(("[" if i == 0 else ",\n") + json.dumps({"image_id": i, "caption": candidate}))
            theirs.write(("{" if i == 0 else ",\n") + f'"{i}": {json.dumps(texts)}')
        ours.write("]")
        theirs.write("}")
    return ["--candidates", str(candidates), "--references", str(references)]


def write_ratings(path: Path, ratings: int, seed: int = 0) -> None:
    """A CSV file of ratings: ten candidates an image, three raters each, five references a row."""
    rng = random.Random(seed)

    def caption() -> str:
        return " ".join(rng.choices(_WORDS.split(), k=rng.randint(8, 14)))

    def rows() -> Iterator[list[object]]:
        for image in itertools.count():
            references = [caption() for _ in range(5)]
            for candidate in range(10):
                text = caption()
                for rater in range(3):
                    name, rating = f"{image}-{candidate}", rng.randint(1, 5)
                    yield [f"{image}.jpg", text, *references, rating, f"rater-{rater}", name]

    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        columns = [f"reference_{i}" for i in range(1, 6)]
        writer.writerow(["image", "candidate", *columns, "rating", "rater", "candidate_id"])
        writer.writerows(itertools.islice(rows(), ratings))


def expert(data: str | None) -> tuple[str, list[Item]]:
    """Name and distinct items of Flickr8k Expert, or of its part of the embedded sample without the files."""
    from capbench.datasets.opening import open_dataset
    from capbench.datasets.root import find_root

    try:
        root = find_root(data or "sample")
        dataset = open_dataset("flickr8k-expert", root)
        judged = dataset.load(dataset.protocol().items)[0]
    except CapbenchError:
        return expert("sample")
    return ("the sample" if root.is_sample else "Flickr8k Expert"), list(dict.fromkeys(judged.items))


def items(data: str | None, images: int) -> tuple[str, list[Item]]:
    """Name and items of the first images of Flickr8k Expert; invented ones of the same structure without its files."""
    name, found = expert(data)
    if name == "the sample":
        name = "generated"
        found = [
            Item(f"image{image:04}", text, tuple(references))
            for image, (texts, references) in enumerate(groups(images, 6, 5))
            for text in texts
        ]
    first = set(list(dict.fromkeys(item.image for item in found))[:images])
    return name, [item for item in found if item.image in first]


def tokenized(chosen: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    """Candidates and references as PTB tokens."""
    from capbench.text.ptb import tokenize

    texts = list(dict.fromkeys(text for item in chosen for text in (item.candidate, *item.references)))
    tokens = dict(zip(texts, tokenize(texts), strict=True))
    return [tokens[item.candidate] for item in chosen], [[tokens[text] for text in item.references] for item in chosen]


def write_features(path: Path, images: Sequence[str], regions: int, columns: int) -> None:
    """A store of random region features like those of a ReLU layer, with boxes, half precision."""
    from capbench.features.records import Fingerprint, RegionFeatures
    from capbench.features.writing import StoreWriter

    generator = np.random.default_rng(1)
    with StoreWriter(
        path, Fingerprint("invented", "random:1", "none", f"{regions} regions"), dtype="float16"
    ) as writer:
        for image in images:
            values = np.maximum(generator.normal(size=(regions, columns)), 0).astype(np.float32)
            corners = np.sort(generator.uniform(0, 400, (regions, 2, 2)), axis=1).reshape(regions, 4)
            writer.add(RegionFeatures(image, 400, 400, corners.astype(np.float32), values))
        writer.finish()
