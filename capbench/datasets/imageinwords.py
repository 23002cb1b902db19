"""ImageInWords: which of two long descriptions of an image is better, in five levels and by five criteria?

Files in ``iiw/``, JSON Lines (Garg and others 2024), renamed from ``datasets/NAME/data.jsonl`` of the repository:

- ``DOCCI_Test.jsonl``: 100 images with a human description by the ImageInWords guidelines (``IIW``) and the human one
  of DOCCI (``DOCCI``); verdicts in ``metrics/CRITERION``;
- ``IIW-400.jsonl``: 400 images with a human description (``IIW``); for 100 of them also that of the model IIW-P5B
  (``IIW-P5B``), and two sets of verdicts: ``iiw-human-sxs-iiw-p5b``, and ``iiw-human-sxs-gpt4v`` against a description
  by GPT-4V that is not published;
- ``DCI_Test.jsonl``: 112 images with verdicts between ``IIW`` and DCI's description, which is not in the file.

A verdict is ``Neutral``, or names the better description: ``IIW is marginally better``, ``… substantially better``. Its
grade is 2, 1, 0, -1 or -2, positive for the ImageInWords human description, which is the first of each pair. Verdicts
without both texts are left out and counted in a note. Descriptions have some 200 words, and there are no references.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from capbench.core.records import Item, Judgements, Preferences
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.judgement_files import file_error, paired
from capbench.datasets.protocol import ItemSelection, StatisticSpec, by_name, graded_preferences
from capbench.datasets.row_models import Image, Row, Text, distinct, parsed
from capbench.datasets.tables import read_table

CRITERIA: Mapping[str, str] = {
    "comprehensiveness": "metrics/Comprehensiveness",
    "specificity": "metrics/Specificity",
    "hallucination": "metrics/Hallucination",
    "tldr": "metrics/First few line(s) as tldr",
    "human-like": "metrics/Human Like",
}
"""Criterion → its key in the files."""
_ALL = "verdicts"
_VERDICT = re.compile(r"(?P<better>\S+) is (?P<strength>marginally|substantially) better")
_STEPS = {"marginally": 1, "substantially": 2}
_HUMAN = "IIW"
_NAMES = {"IIW-Human": _HUMAN}  # verdicts of IIW-400 call its human description so


@dataclass(frozen=True)
class _Comparison:
    """A set of side-by-side verdicts in a file."""

    file: str
    image: str  # key of the image's name
    other: str  # name of the system compared with ``IIW``, and key of its description
    verdicts: str  # key of the object with the verdicts, ``""`` if they are keys of the entry
    group: str


_COMPARISONS = (
    _Comparison("iiw/DOCCI_Test.jsonl", "image", "DOCCI", "", "docci"),
    _Comparison("iiw/IIW-400.jsonl", "image/key", "IIW-P5B", "iiw-human-sxs-iiw-p5b", "iiw-400"),
    _Comparison("iiw/IIW-400.jsonl", "image/key", "GPT-4V", "iiw-human-sxs-gpt4v", "iiw-400"),
    _Comparison("iiw/DCI_Test.jsonl", "image", "DCI", "", "dci"),
)


class VerdictRow(Row):
    """One image of a comparison: the ImageInWords human description, the other one (None if it is not in the file).

    ``grades`` by criterion are from -2 to 2, positive if the former is better.
    """

    image: Image
    human: Text
    other: Text | None = None
    verdicts: dict[str, Any]  # as in the file
    grades: dict[str, int]


class ImageInWords(Dataset):
    """1,000 graded verdicts on 200 pairs of long descriptions: five criteria for each pair."""

    name: ClassVar[str] = "iiw"
    title: ClassVar[str] = "ImageInWords"
    image_folders: ClassVar[Sequence[str]] = ("iiw/images",)
    version, versions = AS_PUBLISHED
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection("all-pairs", "all pairs whose two descriptions are published; no references")
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        name: spec for label in (_ALL, *CRITERIA) for name, spec in graded_preferences(label).items()
    }
    default: ClassVar[tuple[str, str]] = ("all-pairs", f"{_ALL}-strict")
    groups: ClassVar[Sequence[str] | None] = ("docci", "iiw-400")

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items, the ImageInWords human description first; ``group`` is the source of the image.

        ``preferences`` has one label for each criterion, whose groups are the sources, and ``verdicts`` with those of
        all criteria, whose groups are the criteria.
        """
        rows: list[tuple[_Comparison, VerdictRow]] = []
        dropped = []
        total = 0
        for comparison in _COMPARISONS:
            path = self.root.file(comparison.file, what="verdicts and descriptions")
            verdicts = _read(comparison, path)
            total += len(verdicts) * len(CRITERIA)
            usable = [(comparison, row) for row in verdicts if row.other is not None]
            if len(usable) < len(verdicts):
                count = (len(verdicts) - len(usable)) * len(CRITERIA)
                dropped.append(f"{count:,} against {comparison.other}")
            rows += usable
        if not rows:
            raise file_error("no verdict has both descriptions", "too-few", self.root.locate("iiw"), value=0)
        notes = []
        if dropped:
            left_out = total - len(rows) * len(CRITERIA)
            notes.append(
                f"{left_out:,} of {total:,} verdicts are left out: a description is not published "
                f"({', '.join(dropped)})"
            )
        items = tuple(
            Item(row.image, text, (), f"{comparison.group}/{row.image}#{system}", comparison.group, system)
            for comparison, row in rows
            for system, text in zip((_HUMAN, comparison.other), (row.human, row.other), strict=True)
            if text is not None
        )
        places = [(2 * place, comparison.group, row.grades) for place, (comparison, row) in enumerate(rows)]
        verdicts_of = {_ALL: [(place, grades[name], name) for name in CRITERIA for place, _, grades in places]}
        verdicts_of |= {name: [(place, grades[name], source) for place, source, grades in places] for name in CRITERIA}
        preferences = {name: _preferences(of_name) for name, of_name in verdicts_of.items()}
        return (Judgements(self.name, selection.name, items, preferences=preferences, notes=tuple(notes)),)


def _preferences(pairs: Sequence[tuple[int, int, str]]) -> Preferences:
    """Preferences from the first item, the grade and the group of each pair; the second item follows the first."""
    first, grades, groups = zip(*pairs, strict=True)
    grade = np.array(grades, dtype=np.float64)
    return paired(groups, first, preferred=np.sign(grade), grade=grade)


def _read(comparison: _Comparison, path: Path) -> list[VerdictRow]:
    table = read_table(path)
    rows = []
    for number, record in zip(table.numbers, table.records(), strict=True):
        verdicts: Any = record.get(comparison.verdicts) if comparison.verdicts else record
        if verdicts is None:
            continue  # most images of IIW-400 were not compared
        fields = {"image": record.get(comparison.image), "human": record.get(_HUMAN), "verdicts": verdicts}
        row = parsed(VerdictRow, fields | {"other": record.get(comparison.other), "grades": {}}, path, number)
        grades = {name: _grade(row, key, comparison.other) for name, key in CRITERIA.items()}
        rows.append(row.model_copy(update={"grades": grades, "verdicts": {}}))
    return distinct(rows, ["image"], path)


def _grade(row: VerdictRow, key: str, other: str) -> int:
    """From 2 (``IIW is substantially better``) over 0 (``Neutral``) to -2 (``OTHER is substantially better``)."""
    verdict = row.verdicts.get(key)
    if verdict == "Neutral":
        return 0
    match = _VERDICT.fullmatch(verdict) if isinstance(verdict, str) else None
    better = "" if match is None else _NAMES.get(match["better"], match["better"])
    if match is None or better not in (_HUMAN, other):
        raise row.error("wrong-value", f"'{key}' is {verdict!r}, not a verdict on {_HUMAN} and {other}", value=verdict)
    return _STEPS[match["strength"]] * (1 if better == _HUMAN else -1)
