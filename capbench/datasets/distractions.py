"""Distractions: does a metric prefer a right caption to one with another person or scene, or with nothing else?

After Hodosh and Hockenmaier (2016), whose pairs of Flickr30k NNEval's Table 3 is measured on (Sharif and others, ECCV
2018, section 5.3). Six tasks; a distractor is

- ``replace-person``, ``replace-scene``: the right caption with the person or scene of another image's caption;
- ``share-person``, ``share-scene``: a caption of another image with the same person or scene and no other content word
  of any caption of this image;
- ``just-person``, ``just-scene``: the right caption's person or scene alone.

Their pairs are not at hand, so these are made by the rules of :mod:`capbench.text.distractions`: no person judged
them, and no other number for them exists. Of each image at most one pair a task is made. Which caption and which
distractor is decided by a hash of the image's id and the task; distractors come from the other images of the set.

Files: ``flickr8k/Flickr8k.token.txt`` and ``flickr8k/Flickr_8k.testImages.txt``; for ``distractions@coco`` Karpathy's
validation split (:data:`capbench.datasets.captions.CORPORA`).

``distractions@given`` reads pairs that a user has, such as the original ones, from ``distractions/pairs.jsonl``: a line
is an object with ``task`` (any name), ``image``, ``correct`` and ``distractor``, and may hold ``references`` (a list).
Without it the references are Flickr30k's captions of the image.

Pair i has the items 2i (right caption) and 2i + 1 (distractor). References are the image's captions but for the right
caption's own text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, Preferences, caption_key
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions, split_list
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy
from capbench.datasets.user.caption_readers import Captions, read_token
from capbench.text import ptb
from capbench.text.distractions import TASKS, Distraction, make_distractions, words
from capbench.text.spice import scene_graph

__all__ = ["Distractions", "DistractionsCoco", "DistractionsGiven", "GivenPair", "read_given"]

_TOKEN = "flickr8k/Flickr8k.token.txt"
_TEST = "flickr8k/Flickr_8k.testImages.txt"
_GIVEN = "distractions/pairs.jsonl"
_SOURCE = "after NNEval Table 3"
_OWN_OUT = ItemSelection(
    "own-caption-out",
    "at most one pair a task for each image; the right caption is left out of the references",
    source=_SOURCE,
)
_IN_GRAPH = ItemSelection(
    "in-scene-graph",
    "as own-caption-out, only pairs whose person or scene is an object of the right caption's scene graph by SPICE's "
    "parser",
)


class _Distractions(Dataset):
    """What the sets of distracted captions share."""

    version: ClassVar[str] = "1"
    statistics: ClassVar[Mapping[str, StatisticSpec]] = accuracy("right")
    default: ClassVar[tuple[str, str]] = ("own-caption-out", "right-strict")
    aliases: ClassVar[Mapping[str, str]] = {
        rule: f"own-caption-out/right-{rule}" for rule in ("strict", "ties-right", "ties-half")
    }

    def _judgements(
        self,
        selection: ItemSelection,
        pairs: Sequence[tuple[str, str, str, str, tuple[str, ...]]],
        path: Path,
        notes: Sequence[str],
    ) -> tuple[Judgements, ...]:
        """Judgements of pairs: task, image, right caption, distractor, references. An image may have several a task."""
        numbers: Counter[tuple[str, str]] = Counter()
        items = []
        for task, image, right, distractor, references in pairs:
            numbers[task, image] += 1
            more = f"#{numbers[task, image]}" if numbers[task, image] > 1 else ""
            for kind, text in (("right", right), ("distractor", distractor)):
                items.append(Item(image, text, references, f"{image}#{task}{more}#{kind}", task))
        judgement_files.require_references(items, selection.name, path)
        first = 2 * np.arange(len(pairs), dtype=np.int64)
        preferences = Preferences(
            first,
            first + 1,
            np.ones_like(first),
            tuple(task for task, *_ in pairs),
            np.zeros((len(pairs), 0), dtype=np.int64),
        )
        counts = Counter(task for task, *_ in pairs)
        told = ", ".join(f"{count:,} {task}" for task, count in counts.items())
        said = (f"{told} pairs of {len({pair[1] for pair in pairs}):,} images", *notes)
        return (
            Judgements(self.name, selection.name, tuple(items), preferences={"right": preferences}, notes=tuple(said)),
        )


class _MadeDistractions(_Distractions):
    """Pairs that are made by rules; a subclass says of which captions."""

    versions: ClassVar[Mapping[str, str]] = {"1": "made by the first rules"}
    citation: ClassVar[str] = (
        "After M. Hodosh and J. Hockenmaier: Focused Evaluation for Image Description with Binary Forced-Choice Tasks. "
        "Workshop on Vision and Language 2016; pairs made by capbench's rules"
    )
    selections: ClassVar[Mapping[str, ItemSelection]] = {one.name: one for one in (_OWN_OUT, _IN_GRAPH)}
    groups: ClassVar[Sequence[str] | None] = TASKS

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items two by two, the right caption first; ``preferences["right"]`` prefers it, by task.

        Raises:
            MissingFileError: a file is not there.
            DataError: a file does not hold what it should, the captions give no pair, or a right caption was never
                parsed (``in-scene-graph``).
        """
        captions, images = self._captions()
        made = make_distractions({image: captions[image] for image in images})
        lexicon = words()
        notes = [
            f"ours, after Hodosh and Hockenmaier (2016): made by rules version {lexicon.version} (lexicon "
            f"{lexicon.fingerprint}); no human judged them"
        ]
        if selection.name == _IN_GRAPH.name:
            kept = _in_graph(made, captions.source)
            notes.append(
                f"{len(made) - len(kept):,} of {len(made):,} pairs are left out: their person or scene is not an object of "
                "the right caption's scene graph"
            )
            made = kept
        if not made:
            hint = "The rules are for English captions: check the file"
            raise DataError("its captions give no pair", code="too-few", path=captions.source, hint=hint)
        pairs = []
        for one in made:
            own = caption_key(one.caption)
            references = tuple(text for text in captions[one.image] if caption_key(text) != own)
            pairs.append((one.task, one.image, one.caption, one.distractor, references))
        return self._judgements(selection, pairs, captions.source, notes)

    def _captions(self) -> tuple[Captions, list[str]]:
        """Captions, and the images of which pairs are made."""
        raise NotImplementedError


def _in_graph(made: Sequence[Distraction], path: Path) -> list[Distraction]:
    """The pairs whose phrase's noun is an object of the right caption's scene graph."""
    tokenised = ptb.tokenize([one.caption for one in made])
    unknown = scene_graph.missing(tokenised)
    if unknown:
        raise DataError(
            f"{len(unknown):,} right captions were never parsed by SPICE's parser",
            code="missing-data",
            value=len(unknown),
            path=path,
            hint="Parse them first: capbench correlate -d distractions -m spice (of COCO: -d distractions@coco)",
        )
    kept = []
    for one, tuples in zip(made, scene_graph.tuples(tokenised), strict=True):
        nouns = {name.split(" ")[-1] for name in scene_graph.SceneGraph.from_tuples(tuples).objects}
        if nouns & {one.phrase.head, one.phrase.lemma}:
            kept.append(one)
    return kept


class DistractionsCoco(_MadeDistractions):
    """Right and distracted captions of Karpathy's validation images of COCO."""

    name: ClassVar[str] = "distractions@coco"
    title: ClassVar[str] = "Distractions, COCO"
    image_folders: ClassVar[Sequence[str]] = ("coco/images",)

    def _captions(self) -> tuple[Captions, list[str]]:
        captions = load_captions("coco-val", self.root)
        return captions, list(captions)


@dataclass(frozen=True)
class GivenPair:
    """A pair of a user's file.

    Attributes:
        task: what was done, any name.
        image: image id.
        correct: the right caption.
        distractor: the wrong one.
        references: the file's own; None if it names none.
        row: its row there.
    """

    task: str
    image: str
    correct: str
    distractor: str
    references: tuple[str, ...] | None
    row: int


class DistractionsGiven(_Distractions):
    """Right and distracted captions from a file of the user, such as the original pairs of Flickr30k's images."""

    name: ClassVar[str] = "distractions@given"
    title: ClassVar[str] = "Distractions, given"
    image_folders: ClassVar[Sequence[str]] = (
        "distractions/images",
        "flickr30k/images",
        "flickr8k/images",
        "coco/images",
    )
    citation: ClassVar[str] = (
        "M. Hodosh and J. Hockenmaier: Focused Evaluation for Image Description with Binary Forced-Choice Tasks. "
        "Workshop on Vision and Language 2016, or whoever made the file"
    )
    versions: ClassVar[Mapping[str, str]] = {"1": "as given"}
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "own-caption-out": ItemSelection(
            "own-caption-out",
            "all pairs of the file; the right caption is left out of the references",
            source="NNEval Table 3",
        )
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items two by two, the right caption first; ``preferences["right"]`` prefers it, by task.

        Raises:
            MissingFileError: the file is not there, or it names no references and Flickr30k's captions are not there.
            DataError: the file does not hold what it should; the row is named.
        """
        path = self.root.file(_GIVEN, what="the pairs")
        given = read_given(path)
        captions: Mapping[str, tuple[str, ...]] = {}
        if any(pair.references is None for pair in given):
            captions = load_captions("flickr30k", self.root)
        pairs = []
        for pair in given:
            texts = captions.get(pair.image) if pair.references is None else pair.references
            if texts is None:
                hint = "Give its references in the file ('references'), or get Flickr30k's captions of all splits"
                raise DataError(
                    f"the image {pair.image} has no captions in Flickr30k's",
                    code="missing-references",
                    value=pair.image,
                    path=path,
                    row=pair.row,
                    hint=hint,
                )
            own = caption_key(pair.correct)
            references = tuple(text for text in texts if caption_key(text) != own)
            pairs.append((pair.task, pair.image, pair.correct, pair.distractor, references))
        return self._judgements(selection, pairs, path, ())


class Distractions(_MadeDistractions):
    """Right and distracted captions of Flickr8k's test images."""

    name: ClassVar[str] = "distractions"
    title: ClassVar[str] = "Distractions"
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    beside: ClassVar[Mapping[str, type[Dataset]]] = {"coco": DistractionsCoco, "given": DistractionsGiven}

    def _captions(self) -> tuple[Captions, list[str]]:
        captions = read_token(self.root.file(_TOKEN, what="Flickr8k's captions"))
        path = self.root.file(_TEST, what="the list of Flickr8k's test images")
        return captions, list(split_list(path, captions))


def read_given(path: Path) -> list[GivenPair]:
    """The pairs of a user's file, in its order.

    Raises:
        DataError: a line is not a JSON object, a field is missing, empty or of another kind, or both captions are the same
            text; the row is named.
    """
    pairs = []
    for number, record in judgement_files.json_lines(path):
        task = judgement_files.parse_caption(record.get("task"), "task", path=path, row=number)
        image = judgement_files.parse_image(record.get("image"), "image", path=path, row=number)
        correct, distractor = (
            judgement_files.parse_caption(record.get(name), name, path=path, row=number)
            for name in ("correct", "distractor")
        )
        if caption_key(correct) == caption_key(distractor):
            hint = "Remove or correct the row"
            raise DataError(
                "'correct' and 'distractor' are the same text",
                code="duplicate",
                value=correct,
                path=path,
                row=number,
                hint=hint,
            )
        listed: Any = record.get("references")
        references: tuple[str, ...] | None = None
        if listed is not None:
            if not isinstance(listed, list) or not listed:
                hint = "Leave it out to take Flickr30k's captions"
                raise DataError(
                    "'references' is not a list of captions", code="wrong-type", path=path, row=number, hint=hint
                )
            references = tuple(
                judgement_files.parse_caption(text, "reference", path=path, row=number) for text in listed
            )
        pairs.append(GivenPair(task, image, correct, distractor, references, number))
    return pairs
