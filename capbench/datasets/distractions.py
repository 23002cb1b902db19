"""Distractions: does a metric prefer the correct caption to one with another, or only with the same, person or scene?

After the binary forced-choice tasks of Hodosh and Hockenmaier (2016); Table 3 of NNEval (Sharif and others, ECCV 2018,
section 5.3) uses their pairs of Flickr30k captions. There are six tasks. The distractor is

- ``replace-person``, ``replace-scene``: the correct caption with the person or scene of another image's caption;
- ``share-person``, ``share-scene``: a caption of another image with the same person or scene that shares no other
  content word with any caption of this image;
- ``just-person``, ``just-scene``: only the person or scene of the correct caption.

The original pairs are not available. These pairs were made once by rules, were not judged by humans, and have no
published results. There is at most one pair per image and task; distractors come from the other images of the set.
Tables have the places of the phrases and captions (:mod:`capbench.datasets.changed_captions`).

Captions: ``flickr8k/Flickr8k.token.txt``; for ``distractions@coco`` Karpathy's validation split
(:data:`capbench.datasets.captions.CORPORA`).

Pair i has the items 2i (correct caption) and 2i + 1 (distractor). References are the image's captions without the text
of the correct caption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from capbench.core.errors import DataError
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.changed_captions import read_changes
from capbench.datasets.judgement_files import paired, require_references
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name
from capbench.datasets.user.caption_readers import Captions
from capbench.text import ptb
from capbench.text.spice import scene_graph

TASKS = ("replace-person", "replace-scene", "share-person", "share-scene", "just-person", "just-scene")
_OWN_OUT = ItemSelection(
    "own-caption-out",
    "at most one pair per task and image; the right caption is left out of the references",
    source="after NNEval Table 3",
)
_IN_GRAPH = ItemSelection(
    "in-scene-graph",
    "as own-caption-out, but only pairs whose person or scene is an object in SPICE's scene graph of the right caption",
)


class Distractions(Dataset):
    """Correct and distracted captions of Flickr8k's test images."""

    name: ClassVar[str] = "distractions"
    title: ClassVar[str] = "Distractions"
    corpus: ClassVar[str] = "flickr8k"  # name of the captions
    table: ClassVar[str] = "distractions-flickr8k"  # name of the table of changes
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "coco": {
            "title": "Distractions, COCO",
            "corpus": "coco-val",
            "table": "distractions-coco",
            "image_folders": ("coco/images",),
        }
    }
    generated: ClassVar[bool] = True
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "made by the first rules"}
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(_OWN_OUT, _IN_GRAPH)
    statistics: ClassVar[Mapping[str, StatisticSpec]] = accuracy("right")
    default: ClassVar[tuple[str, str]] = ("own-caption-out", "right-strict")
    groups: ClassVar[Sequence[str] | None] = TASKS

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items, the correct caption first; ``preferences["right"]`` prefers it, grouped by task."""
        captions = load_captions(self.corpus, self.root)
        rows = read_changes(self.table, captions)
        notes = ["ours, after Hodosh and Hockenmaier (2016): made by rules; no human judged them"]
        if selection.name == _IN_GRAPH.name:
            in_graph = _in_graph(rows, captions, self.root.path)
            notes.append(
                f"{len(rows) - len(in_graph):,} of {len(rows):,} pairs are left out: their person or scene is not an "
                "object in the right caption's scene graph"
            )
            rows = in_graph
        items = []
        for row in rows:
            task, image, correct = row["task"], row["image"], _correct(row, captions)
            key = caption_key(correct)
            references = tuple(text for text in captions[image] if caption_key(text) != key)
            for kind, text in (("right", correct), ("distractor", _distractor(row, correct, captions))):
                items.append(Item(image, text, references, f"{image}#{task}#{kind}", task))
        require_references(items, selection.name, captions.source)
        tasks = [row["task"] for row in rows]
        counts = ", ".join(f"{number:,} {task}" for task, number in Counter(tasks).items())
        notes.insert(0, f"{counts} pairs of {len({row['image'] for row in rows}):,} images")
        preferences = {"right": paired(tasks)}
        return (Judgements(self.name, selection.name, tuple(items), preferences=preferences, notes=tuple(notes)),)


def _correct(row: Mapping[str, str], captions: Captions) -> str:
    return captions[row["image"]][int(row["caption"])]


def _distractor(row: Mapping[str, str], correct: str, captions: Captions) -> str:
    """The row's part of another caption (``just``: of this one), which may replace a phrase of the correct caption."""
    new = captions[row["other_image"]][int(row["other_caption"])][int(row["other_start"]) : int(row["other_end"])]
    if not row["task"].startswith("replace"):
        return new
    start, end = int(row["start"]), int(row["end"])
    new = new.lower()
    if correct[start].isupper():
        new = new[:1].upper() + new[1:]
    return correct[:start] + new + correct[end:]


def _in_graph(rows: Sequence[dict[str, str]], captions: Captions, data: Path) -> list[dict[str, str]]:
    """The pairs whose phrase has a noun that is an object in the correct caption's scene graph."""
    texts = [_correct(row, captions) for row in rows]
    tokenised = ptb.tokenize(texts)
    unknown = scene_graph.missing(tokenised, data=data)
    if unknown:
        problem = f"{len(unknown):,} right captions have not been parsed by SPICE's parser"
        hint = "Parse them first: capbench data parses make distractions (for COCO: distractions@coco)"
        raise DataError(problem, code="missing-data", value=len(unknown), path=captions.source, hint=hint)
    in_graph = []
    for row, text, tuples in zip(rows, texts, scene_graph.tuples(tokenised, data=data), strict=True):
        objects = (name for parts in tuples for name in (parts[:2] if len(parts) == 3 else parts[:1]))
        nouns = {name.split(" ")[-1] for name in objects}
        head = text[int(row["start"]) : int(row["end"])].lower().split()[-1]  # a phrase ends with its noun
        if nouns & {head, row["noun"]}:
            in_graph.append(row)
    return in_graph
