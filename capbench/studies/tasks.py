"""Tasks of study files other than agreement with human judgements: retrieval, curves, layers, one image, regions.

Each task has its command (``capbench retrieve faier-table6``). The file has one of the keys::

    retrieval: {captions: nocaps-val, images: 1000, seed: 0, references: 4, gallery: rest}
    curves: {counts: [0, 1, 2, 3, 4, 5], draws: 5, seed: 0}          # with 'protocols'
    layers: {resamples: 1000, seed: 0}                               # with 'protocols'
    image: {dataset: hm-coco, id: COCO_val2014_000000420113, candidates: [...], references: [...]}
    words: {entities: coco/coco_entities_release.json, references: [1, 2, 3, 4], images: 1000, seed: 0}

and 'metrics' with their resources, as in any study.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from capbench.core.explanations import NamedErrors
from capbench.core.options import Choice, Count, Kind, Options, Text, option

__all__ = ["TASKS", "CurveTask", "Gallery", "ImageTask", "LayerTask", "RetrievalTask", "Task", "WordTask"]

Gallery = Literal["rest", "one"]
"""Captions of an image that are queries and gallery: all except the references, or the first of them."""


@dataclass(frozen=True)
class _Texts(Kind):
    """One text or more."""

    def describe(self) -> str:
        """In words."""
        return "a list of texts"

    def example(self) -> str:
        """A list."""
        return '["a dog runs", "two dogs"]'

    def read(self, value: object) -> tuple[str, ...]:
        """The texts."""
        if not isinstance(value, list | tuple) or not value:
            raise ValueError
        if not all(isinstance(text, str) and text.strip() for text in value):
            raise ValueError
        return tuple(value)

    def schema(self) -> dict[str, Any]:
        """A list."""
        return {"type": "array", "items": {"type": "string"}, "minItems": 1}


@dataclass(frozen=True)
class _Errors(Kind):
    """Errors that a human names in captions: for each caption two lists of phrases, both optional."""

    def describe(self) -> str:
        """In words."""
        return "a list with {extra: [phrases], missing: [phrases]} for each candidate"

    def example(self) -> str:
        """Of two candidates."""
        return '[{extra: ["on a table"]}, {missing: ["a red hat"]}]'

    def read(self, value: object) -> tuple[NamedErrors, ...]:
        """The errors."""
        if not isinstance(value, list | tuple) or not value:
            raise ValueError
        return tuple(entry if isinstance(entry, NamedErrors) else self._entry(entry) for entry in value)

    def _entry(self, value: object) -> NamedErrors:
        if not isinstance(value, dict) or not set(value) <= {"extra", "missing"}:
            raise ValueError
        texts = {name: _Texts().read(listed) for name, listed in value.items()}
        return NamedErrors(texts.get("extra", ()), texts.get("missing", ()))

    def schema(self) -> dict[str, Any]:
        """A list of mappings."""
        lists = dict.fromkeys(("extra", "missing"), _Texts().schema())
        entry = {"type": "object", "properties": lists, "additionalProperties": False}
        return {"type": "array", "items": entry, "minItems": 1}


@dataclass(frozen=True)
class _Counts(Kind):
    """Whole numbers, ascending.

    Attributes:
        low: minimum.
    """

    low: int = 0

    def describe(self) -> str:
        """In words."""
        return f"a list of whole numbers from {self.low}"

    def example(self) -> str:
        """A list."""
        return "[1, 2, 5]"

    def read(self, value: object) -> tuple[int, ...]:
        """The numbers, sorted, each once."""
        if not isinstance(value, list | tuple) or not value:
            raise ValueError
        return tuple(sorted({Count(self.low).read(number) for number in value}))

    def schema(self) -> dict[str, Any]:
        """A list."""
        return {"type": "array", "items": Count(self.low).schema(), "minItems": 1}


@dataclass(frozen=True)
class Task(Options):
    """A task of a study file other than agreement with human judgements."""

    key: ClassVar[str]
    """Key in a study file."""
    command: ClassVar[str]
    """Command that runs it."""
    judged: ClassVar[bool] = False
    """True if the file names protocols."""


@dataclass(frozen=True)
class RetrievalTask(Task):
    """Retrieval of images by captions and of captions by images."""

    key: ClassVar[str] = "retrieval"
    command: ClassVar[str] = "retrieve"
    captions: str = option("flickr8k", Text("nocaps-val"), "a corpus of captions, or a file")
    split: str | None = option(None, Text("test"), "split or domain of the images")
    images: int = option(1000, Count(2), "number of sampled images")
    seed: int = option(0, Count(), "seed of the sample")
    references: int = option(4, Count(1), "number of an image's captions, from the first, that are its references")
    gallery: Gallery = option("rest", Choice(*get_args(Gallery)), "captions that are queries and gallery")


@dataclass(frozen=True)
class CurveTask(Task):
    """Agreement with human ratings by the number of references."""

    key: ClassVar[str] = "curves"
    command: ClassVar[str] = "correlate --references-curve"
    judged: ClassVar[bool] = True
    counts: tuple[int, ...] | None = option(None, _Counts(), "numbers of references")
    draws: int = option(5, Count(1, 10_000), "random orders of the references")
    seed: int = option(0, Count(), "seed of the orders")


@dataclass(frozen=True)
class LayerTask(Task):
    """Agreement with human ratings by the layer of a network."""

    key: ClassVar[str] = "layers"
    command: ClassVar[str] = "figure layers"
    judged: ClassVar[bool] = True
    resamples: int = option(1000, Count(100), "bootstrap resamples of the intervals")
    seed: int = option(0, Count(), "seed of the resamples")


@dataclass(frozen=True)
class ImageTask(Task):
    """Candidates of one image, scored with all metrics."""

    key: ClassVar[str] = "image"
    command: ClassVar[str] = "examples"
    id: str = option("image", Text("f8k_003"), "the image's id")
    dataset: str | None = option(None, Text("flickr8k-expert"), "data set of the references, if none are listed")
    candidates: tuple[str, ...] | None = option(None, _Texts(), "captions to score")
    references: tuple[str, ...] | None = option(None, _Texts(), "captions to compare with")
    errors: tuple[NamedErrors, ...] | None = option(None, _Errors(), "errors that a human names in each candidate")


@dataclass(frozen=True)
class WordTask(Task):
    """Scores of words of a region, and of other words."""

    key: ClassVar[str] = "words"
    command: ClassVar[str] = "words"
    entities: str = option("coco/coco_entities_release.json", Text("entities.json"), "words and their regions")
    references: tuple[int, ...] = option((1, 2, 3, 4), _Counts(1), "numbers of references")
    images: int = option(1000, Count(1), "number of sampled images")
    seed: int = option(0, Count(), "seed of the sample")


TASKS: Mapping[str, type[Task]] = {
    task.key: task for task in (RetrievalTask, CurveTask, LayerTask, ImageTask, WordTask)
}
