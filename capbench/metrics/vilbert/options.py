"""Options of ViLBERTScore."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from capbench.errors import suggest
from capbench.models.stored_encodings import DEFAULT_MB
from capbench.options import Choice, Count, File, Flag, Kind, Options, option

__all__ = ["PUBLISHED_LAYERS", "TASKS", "ViLBERTScoreOptions"]

PUBLISHED_LAYERS = 6
"""Connections of the published network."""
TASKS = {"retrieval-coco": 7, "retrieval-flickr30k": 8, "visual-entailment": 13}
"""Tasks of 12-in-1 that bear on captions, by name."""

_MOST_TASKS = 1000


class _Layers(Kind):
    """Layers of the network: one (``6``), several (``1-4``, ``2,6``), or ``all`` of the published network."""

    def describe(self) -> str:
        return "a layer from 1 on (6), several (1-4 or 2,6), or all (1-6)"

    def example(self) -> str:
        return "all"

    def read(self, value: object) -> tuple[int, ...]:
        if isinstance(value, tuple | list):
            value = ",".join(str(layer) for layer in value)
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if text == "all":
            return tuple(range(1, PUBLISHED_LAYERS + 1))
        layers: list[int] = []
        for between in text.replace(" ", "").split(","):
            match = re.fullmatch(r"([1-9][0-9]?)(?:-([1-9][0-9]?))?", between)
            if match is None:
                raise ValueError
            layers += range(int(match[1]), int(match[2] or match[1]) + 1)
        if not layers or len(set(layers)) < len(layers):
            raise ValueError
        return tuple(sorted(layers))

    def sign(self, value: Any) -> str:
        return ",".join(map(str, value))


class _Task(Kind):
    """A task's number or name, or ``none``."""

    def describe(self) -> str:
        return f"none, the number of a task, or one of {', '.join(TASKS)}"

    def example(self) -> str:
        return "retrieval-coco"

    def read(self, value: object) -> int | str:
        if isinstance(value, str):
            if value == "none":
                return value
            if value in TASKS:
                return TASKS[value]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_TASKS:
            raise ValueError
        return value

    def hint(self, value: object) -> str:
        return suggest(str(value), ["none", *TASKS])


@dataclass(frozen=True)
class ViLBERTScoreOptions(Options):
    """Options of ViLBERTScore; defaults are those of the released run."""

    layer: tuple[int, ...] | None = option(
        None,
        _Layers(),
        "after which connection word states are taken, a column for each of several; the last by default",
    )
    task: int | str | None = option(
        None,
        _Task(),
        "whose token stands behind [CLS]; by default retrieval-coco if the weights know tasks, none if they do not",
    )
    special_tokens: str = option(
        "released",
        Choice("released", "bertscore"),
        "released: the task's token counts as a word, [CLS] and [SEP] are left out; bertscore: all may be matched, and "
        "none of them counts in the mean",
        sign_as="special",
    )
    references: str = option("all", Choice("all", "first-5"), "which references count", sign_as="refs")
    reduce: str = option("mean", Choice("mean", "max"), "what is taken of P, R and F over references", recombines=True)
    idf: str = option(
        "none",
        Choice("none", "released", "corrected"),
        "weights of words by inverse document frequency in the references; released: shifted by one token, and "
        "multiplied into similarities, too",
    )
    padding: str = option(
        "released",
        Choice("released", "masked"),
        "released: a word may match the padding of a short text with similarity 0; masked: it may not",
    )
    image: str = option(
        "seen",
        Choice("seen", "blank"),
        "blank: the network sees zeros in place of the image's features, which tells what the image adds",
        quiet=True,
    )
    precision: str = option(
        "float32",
        Choice("float32", "bfloat16"),
        "of the network; bfloat16 gives other digits: F by .003 at most, .0005 on average, on Flickr8k Expert under a "
        "small network (tau-c by .0001)",
        quiet=True,
    )
    vocabulary: str | None = option(
        None, File("a vocabulary"), "vocab.txt of a released checkpoint that it does not lie beside", sign_as=""
    )
    any_features: bool = option(
        False, Flag(), "take features of another kind than the model was trained on", quiet=True
    )
    encodings_mb: int = option(
        DEFAULT_MB,
        Count(),
        "megabytes of word states that the cache folder may hold, of all networks together, so that a caption is not "
        "read beside its image again; 0 keeps none",
        sign_as="",
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "where the network runs", sign_as="")
