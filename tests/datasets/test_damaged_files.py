"""Every reader of judgements, captions and references reads a truncated file or refuses it with one clear line.

Any exception that is not a CapbenchError is a bug, and so is a caption that cannot be scored or a row that is dropped.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from capbench.core.errors import CapbenchError
from capbench.core.records import Item
from capbench.datasets import clipscore_json, composite, context, foil, imageinwords, pascal50s, thumb
from capbench.datasets.foil_sets import PartPair
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot, sample_dir
from capbench.datasets.row_models import read_rows
from capbench.datasets.user import caption_readers
from capbench.datasets.user.captions import captions_in_memory
from capbench.datasets.user.judgement_files import read_user_file
from tests.datasets.user.frames import pairs, rated

RATED = [
    {"image": f"{i // 2}.jpg", "candidate": f"caption {i}", "references": ["a dog", "a cat"], "rating": i % 5 + 1,
     "rater": "ann", "system": f"s{i % 2}", "group": "g", "scale": [1, 5], "candidate_id": f"c{i}"}
    for i in range(6)
]  # fmt: skip
PAIRS = [
    {"image": f"{i}.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "references": ["a cow"], "votes_a": i,
     "votes_b": 2, "system_a": "x", "system_b": "y", "group": "g"}
    for i in range(4)
]  # fmt: skip
GRADED = [
    {"image": f"{i}.jpg", "candidate_a": "a dog", "candidate_b": "a cat", "references": ["a cow"], "grade": i - 1}
    for i in range(4)
]
CANDIDATES = [{"image_id": i, "caption": f"caption {i}", "id": f"c{i}", "system": "s"} for i in range(4)]
COCO = {
    "images": [{"id": i, "file_name": f"{i}.jpg", "domain": "in-domain"} for i in range(4)],
    "annotations": [{"id": i, "image_id": i % 4, "caption": f"a dog {i}"} for i in range(8)],
}
KARPATHY = {
    "images": [{"filename": f"{i}.jpg", "split": "test", "sentences": [{"raw": "a dog"}]} for i in range(4)]
}  # fmt: skip


def lines(records: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def table(records: list[dict[str, Any]], delimiter: str) -> bytes:
    def cell(value: Any) -> str:
        text = json.dumps(value) if isinstance(value, list) else str(value)
        return '"' + text.replace('"', '""') + '"'

    rows = [delimiter.join(records[0]), *(delimiter.join(map(cell, record.values())) for record in records)]
    return ("\n".join(rows) + "\n").encode()


@dataclass(frozen=True)
class Reader:
    """A reader and a sound file for it.

    ``read`` takes the damaged file, in an empty folder of its own, and gives the items and captions that were read.
    """

    sound: Callable[[], bytes]
    name: str
    read: Callable[[Path], Iterable[Item | str]]


def of_sample(relative: str) -> Callable[[], bytes]:
    return lambda: (sample_dir() / relative).read_bytes()


def data_set(name: str, relative: str) -> Reader:
    """A data set that is read from the sample with one file in its place."""

    def read(path: Path) -> Iterable[Item]:
        root, folder = path.parent / "root", Path(relative).parent
        (root / folder).mkdir(parents=True)
        for source in (*sample_dir().iterdir(), *(sample_dir() / folder).iterdir()):
            target = root / source.relative_to(sample_dir())
            if not target.exists():
                target.symlink_to(source)
        (root / relative).unlink()
        (root / relative).symlink_to(path)
        dataset = open_dataset(name, DataRoot(root, False, "test"))
        return [item for draw in dataset.load(dataset.protocol().items) for item in draw.items]

    return Reader(of_sample(relative), Path(relative).name, read)


def judged(sound: bytes, name: str) -> Reader:
    def read(path: Path) -> Iterable[str]:
        rows = read_user_file(path)
        if path.suffix == ".jsonl":  # every line is a row, and none is dropped
            assert len(rows) == len(path.read_text("utf-8-sig").rstrip("\n").split("\n"))
        for row in rated(rows):
            yield from (row.image, row.candidate, *row.references)
        for pair in pairs(rows):
            yield from (pair.image, *pair.candidates, *pair.references)

    return Reader(lambda: sound, name, read)


def candidates(sound: bytes, name: str, references: Any) -> Reader:
    def read(path: Path) -> Iterable[Item]:
        other = path.with_name("other.json")
        other.write_text(json.dumps(references))
        return captions_in_memory(path, other).items

    return Reader(lambda: sound, name, read)


def references(sound: bytes, name: str, plain: bool = False) -> Reader:
    def read(path: Path) -> Iterable[Item]:
        other = path.with_name("other.txt" if plain else "other.json")
        other.write_text("one\ntwo\n" if plain else json.dumps(CANDIDATES))
        return captions_in_memory(other, path).items

    return Reader(lambda: sound, name, read)


def corpus(sound: Callable[[], bytes], name: str) -> Reader:
    def read(path: Path) -> Iterable[str]:
        read_captions: Mapping[str, Iterable[str]] = caption_readers.read_captions_file(path)
        return [text for image, texts in read_captions.items() for text in (image, *texts)]

    return Reader(sound, name, read)


def zipped(path: Path) -> Iterable[str]:
    """One caption file of Multi30k is damaged, the others are sound."""
    root = path.parent / "corpus"
    (root / "raw").mkdir(parents=True)
    (root / "image_splits").mkdir()
    (root / "image_splits" / "val_images.txt").write_text("1.jpg\n2.jpg\n")
    for number in range(1, 6):
        (root / "raw" / f"val.{number}.en.gz").write_bytes(gzip.compress(b"a dog\na cat\n"))
    os.replace(path, root / "raw" / "val.3.en.gz")
    return [text for texts in caption_readers.read_multi30k(root).values() for text in texts]


JUDGED = {
    str(i): {
        "human_judgement": [{"caption": "a dog", "rating": 1.0 + n} for n in range(3)],
        "ground_truth": ["a cat", "a cow"],
        "image_path": f"coco/{i}.jpg",
    }
    for i in range(3)
}
BY_SOURCE = {
    source: [{"image": f"{i}.jpg", "caption": f"a dog {i}", "human": 1 + i} for i in range(3)]
    for source in ("flickr8k", "flickr30k", "coco")
}
VALSE = {
    str(i): {"image_file": f"{i}.jpg", "caption": "one dog", "foil": "two dogs", "orig_caption": "a dog"}
    | {"mturk": {"caption": 2, "foil": 1, "other": 0}}
    for i in range(3)
}
VERDICTS = [
    {"image": f"test_{i}", "IIW": "a small dog", "DOCCI": "a dog"}
    | dict.fromkeys(imageinwords.CRITERIA.values(), "IIW is marginally better")
    for i in range(3)
]
CONTEXT = [
    {"context": "Roof", "participant": f"p{i}", "img_id": "church1", "description": "a roof, red", "q_overall": i + 1}
    for i in range(3)
]
BY_IMAGE = {str(i): ["a dog", "a cat"] for i in range(4)}
READERS = {
    "flickr8k expert": data_set("flickr8k-expert", "flickr8k/ExpertAnnotations.txt"),
    "flickr8k crowdflower": data_set("flickr8k-crowdflower", "flickr8k/CrowdFlowerAnnotations.txt"),
    "composite table": Reader(
        of_sample("composite/composite_11985.tsv"),
        "composite_11985.tsv",
        lambda path: [row.text for row in composite.read_table_of_candidates(path)],
    ),
    "composite export": Reader(
        of_sample("composite/8k_correctness.csv"),
        "8k_correctness.csv",
        lambda path: [str(composite.read_export(path, "8k"))],
    ),
    "pascal json": Reader(
        of_sample("pascal50s/pascal_50s.json"),
        "pascal_50s.json",
        lambda path: [str(pair) for pair in pascal50s.read_json_pairs(path)],
    ),
    "pascal pairs": Reader(
        of_sample("pascal50s/pair_pascal.mat"),
        "pair_pascal.mat",
        lambda path: [str(pair) for pair in pascal50s.read_pairs(path)],
    ),
    "pascal references": Reader(
        of_sample("pascal50s/pascal50S.mat"),
        "pascal50S.mat",
        lambda path: [text for texts in pascal50s.read_references(path).values() for text in texts],
    ),
    "foil": Reader(
        of_sample("foil/valse_foil-it.json"),
        "valse_foil-it.json",
        lambda path: [str(pair) for pair in foil.read_foil(path)],
    ),
    "foil annotations": Reader(
        of_sample("foil/foilv1.0_test_2017.json"),
        "foil.json",
        lambda path: [str(pair) for pair in foil.read_foil_annotations(path)],
    ),
    "foil sets": Reader(
        lambda: json.dumps(VALSE).encode(),
        "plurals.json",
        lambda path: [str(pair) for pair in read_rows(path, PartPair)],
    ),
    "verdicts": Reader(
        lambda: lines(VERDICTS),
        "DOCCI_Test.jsonl",
        lambda path: [str(row) for row in imageinwords._read(imageinwords._COMPARISONS[0], path)],
    ),
    "context": Reader(
        lambda: table(CONTEXT, ","),
        "blv.csv",
        lambda path: [str(row) for row in context.read_context_ratings(path, "participant", ["q_overall"])],
    ),
    "thumb": data_set("thumb", "thumb/mscoco_THumB-1.0.jsonl"),
    "thumb, few rows": Reader(
        lambda: b"".join(of_sample("thumb/mscoco_THumB-1.0.jsonl")().splitlines(keepends=True)[:20]),
        "thumb.jsonl",
        lambda path: [str(row) for row in thumb.read_thumb(path)],
    ),
    "thumb's references": data_set("thumb", "thumb/mscoco_references.json"),
    "nebula": data_set("nebula", "nebula/nebula_test.json"),
    "spica": data_set("nebula", "nebula/spica_val.csv"),
    "polaris": data_set("polaris", "polaris/polaris_test.csv"),
    "judgements by image": Reader(
        lambda: json.dumps(JUDGED).encode(),
        "flickr8k.json",
        lambda path: [
            text for image in clipscore_json.read_human_judgements(path) for text in (image.image, *image.references)
        ],
    ),
    "composite by source": Reader(
        lambda: json.dumps(BY_SOURCE).encode(),
        "composite.json",
        lambda path: [text for rated in composite.read_composite_json(path)[0] for text in (rated.image, rated.text)],
    ),
    "nocaps": data_set("nocaps", "nocaps/nocaps_corpus.json"),
    "token": corpus(lambda: of_sample("flickr8k/Flickr8k.token.txt")()[:4000].rpartition(b"\n")[0], "c.token"),
    "karpathy": corpus(lambda: json.dumps(KARPATHY).encode(), "c.json"),
    "coco annotations": corpus(lambda: json.dumps(COCO).encode(), "c.json"),
    "split captions": corpus(lambda: of_sample("coco/karpathy_val_captions.json")(), "c.json"),
    "multi30k": Reader(lambda: gzip.compress(b"a dog\na cat\n"), "c.gz", zipped),
    "user jsonl, ratings": judged(lines(RATED), "j.jsonl"),
    "user jsonl, pairs": judged(lines(PAIRS), "j.jsonl"),
    "user jsonl, graded pairs": judged(lines(GRADED), "j.jsonl"),
    "user csv, ratings": judged(table(RATED, ","), "j.csv"),
    "user csv, pairs": judged(table(PAIRS, ";"), "j.csv"),
    "user tsv, ratings": judged(table(RATED, "\t"), "j.tsv"),
    "candidates json": candidates(json.dumps(CANDIDATES).encode(), "c.json", BY_IMAGE),
    "candidates jsonl": candidates(lines(CANDIDATES), "c.jsonl", BY_IMAGE),
    "candidates txt": candidates(b"one\ntwo\n", "c.txt", [["a"], ["b", "c"]]),
    "references json": references(json.dumps(BY_IMAGE).encode(), "r.json"),
    "references coco": references(json.dumps(COCO).encode(), "r.json"),
    "references jsonl": references(lines({"image": k, "references": v} for k, v in BY_IMAGE.items()), "r.jsonl"),
    "references list": references(b'[["a", "b"], ["c"]]', "r.json", plain=True),
    "references txt": references(b"one\ntwo\n", "r.txt", plain=True),
}


@pytest.mark.parametrize("name", READERS)
def test_a_sound_file_is_read_and_a_truncated_or_other_one_read_or_refused(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    sound = reader.sound()
    damage = {
        "sound": sound,
        "half": sound[: len(sound) // 2],
        "end": sound[:-3],
        "empty": b"",
        "binary": b"\x89\0\xff",
    }
    for kind, content in damage.items():
        path = tmp_path / kind / reader.name
        path.parent.mkdir()
        path.write_bytes(content)
        try:
            records = list(reader.read(path))
        except CapbenchError as error:
            assert kind != "sound"
            assert "\n" not in str(error)  # noqa: PT017  # the other outcome is that it is read
            continue
        assert records
        assert kind not in ("empty", "binary")
        for record in records:
            texts = (record.candidate, record.image) if isinstance(record, Item) else (record,)
            assert all(text.strip() and text.encode() for text in texts)
