"""Overlap of judged captions with what metrics were trained on, in results, notes and marks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capbench
from capbench.core.records import caption_key
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.text.word_vectors import write_word2vec
from capbench.weights.training_files import write_training_record

pytest.importorskip("nltk")


def token_file(sample: Path) -> dict[str, list[str]]:
    """Captions by image, read without capbench."""
    captions: dict[str, list[str]] = {}
    for line in (sample / "flickr8k" / "Flickr8k.token.txt").read_text().splitlines():
        name, text = line.split("\t")
        captions.setdefault(name.partition(".")[0], []).append(text)
    return captions


def split_of(sample: Path, kind: str) -> list[str]:
    lines = (sample / "flickr8k" / f"Flickr_8k.{kind}Images.txt").read_text().split()
    return [line.partition(".")[0] for line in lines]


def write_vectors(path: Path, captions: dict[str, list[str]], images: list[str] | None) -> Path:
    """Random vectors of the captions' words, with the record of some images' captions; without a record for None."""
    words = sorted({word for texts in captions.values() for text in texts for word in text.lower().split()})
    matrix = np.random.default_rng(1).normal(size=(len(words), 4)).astype(np.float32)
    write_word2vec(path, words, matrix)
    if images is not None:
        texts = [text for image in images for text in captions[image]]
        write_training_record(path, TrainingRecord(path.name, photographs_of(images), captions_of(texts)))
    return path


@pytest.fixture
def options(sample: Path, tmp_path: Path) -> list[str]:
    captions = token_file(sample)
    train, test = (split_of(sample, kind) for kind in ("train", "test"))
    flags: list[str] = []
    for label, images in {"whole": [*train, *test], "part": [*train, *test[:7]], "clean": train, "old": None}.items():
        path = write_vectors(tmp_path / f"{label}.bin", captions, images)
        flags += ["-m", f"{label}=wmd", "--option", f"{label}.vectors={path}"]
    return [*flags, "-m", "bleu-1"]


def test_a_study_counts_what_was_read_as_sets_of_the_files_do(
    capbench: Callable[..., Any], sample: Path, options: list[str]
) -> None:
    flags = ("-d", "flickr8k-expert", "-d", "composite", *options)
    found = json.loads(capbench("correlate", *flags, "--json").out)
    captions = token_file(sample)
    rows = [line.split("\t") for line in (sample / "flickr8k" / "ExpertAnnotations.txt").read_text().splitlines()]
    pairs = [(image.partition(".")[0], caption.partition(".")[0], caption[-1]) for image, caption, *_ in rows]
    pairs = [pair for pair in pairs if pair[0] != pair[1]]  # own captions are left out
    judged = {image for image, _, _ in pairs}
    candidates = {caption_key(captions[image][int(number)]) for _, image, number in pairs}
    references = {caption_key(text) for image in judged for text in captions[image]}
    train, test = (split_of(sample, kind) for kind in ("train", "test"))
    (key,) = (key for key in found["training"] if key.startswith("flickr8k-expert/"))
    known = {one["label"]: one for one in found["training"][key] if not one["group"]}
    assert set(known) == {"whole", "part", "clean", "old"}
    for label, images in {"whole": [*train, *test], "part": [*train, *test[:7]], "clean": train}.items():
        read = {caption_key(text) for image in images for text in captions[image]}
        one = known[label]
        assert (one["trained"], one["photographs"]) == (len(judged & set(images)), len(judged))
        assert (one["read_candidates"], one["candidates"]) == (len(candidates & read), len(candidates))
        assert (one["read_references"], one["references"]) == (len(references & read), len(references))
        assert (one["files"], one["unrecorded"]) == ([f"{label}.bin"], [])
    assert (known["part"]["trained"], known["clean"]["trained"]) == (7, 0)
    # More than a tenth of the sample's candidates are captions of training images.
    assert [known[label]["has_read"] for label in ("whole", "part", "clean", "old")] == [True, True, True, False]
    assert known["old"]["unrecorded"] == ["old.bin"]
    assert (known["old"]["trained"], known["old"]["read_candidates"]) == (0, None)
    # On Composite, only Flickr8k's images were read.
    (key,) = (key for key in found["training"] if key.startswith("composite/"))
    groups = {one["group"]: one["has_read"] for one in found["training"][key] if one["label"] == "whole"}
    assert groups == {"": True, "8k": True, "30k": False, "coco": False}


@pytest.mark.usefixtures("options")
@pytest.mark.parametrize(("label", "reads"), [("part", True), ("clean", False)])
def test_a_combination_has_read_what_its_inputs_have(tmp_path: Path, label: str, reads: bool) -> None:
    given = {f"{label}.vectors": str(tmp_path / f"{label}.bin")}
    few: dict[str, Any] = {"learner": "ridge", "folds": 2, "inner_folds": 2, "resamples": 100}
    result = capbench.combine("composite", ["bleu-1", f"{label}=wmd"], options=given, **few)
    (overlaps,) = result.comparison.training.values()
    assert {one.label: one.has_read for one in overlaps if not one.group} == {label: reads, "combination": reads}
