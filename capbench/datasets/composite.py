"""Composite: machine and human captions of Flickr8k, Flickr30k and COCO images, rated from 1 to 5.

Files: ``composite/composite_11985.tsv``, ``composite/composite.json``, or the original exports
``composite/{8k,30k,coco}_correctness.csv`` and ``…_throughness.csv`` (sic), which take precedence if all exist (Aditya,
Yang, Baral, Fermüller and Aloimonos 2015). The references are those of the three caption corpora.

One candidate of each image is a human caption that is also one of the image's references. Every selection of items
therefore defines which references are left out. Two texts are the same if they have the same
:func:`~capbench.core.records.caption_key`.

The exports are separated by semicolons. Their columns are those of Mechanical Turk, ``Input.image_url``,
``Input.text1``, ``Input.text2``, … and ``Answer.Q1Answer``, ``Answer.Q2Answer``, …. Candidate 1 is a human caption, 2
comes from a neural captioner, 3 from a scene description graph. The exports of Flickr30k and COCO have a fourth
candidate, which is not among the 11,985 published judgements and is not read. Each export ends with rows without an
image (two in the published files); such rows are skipped only at the end of the file.

The JSON has the same correctness ratings: an object of the sources ``flickr8k``, ``flickr30k`` and ``coco``, each a
list of ``image``, ``caption`` and ``human`` (FLEUR).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError, check_choice
from capbench.core.records import Item, Judgements, Ratings, caption_key, image_id
from capbench.datasets import judgement_files
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.captions import CORPORA, load_captions
from capbench.datasets.judgement_files import ByName, file_error, require_references
from capbench.datasets.protocol import ItemSelection, StatisticSpec, all_statistics, by_name, correlations
from capbench.datasets.reference_draws import drawn
from capbench.datasets.row_models import Image, Row, Text, distinct, parsed, read_rows
from capbench.datasets.tables import read_table
from capbench.datasets.user.caption_readers import Captions, read_captions_file

CANDIDATES = 3  # candidates per image
SYSTEMS = ("human reference", "neural captioner", "scene description")  # author of the candidate at each position
HUMAN = 0  # position of the human caption
SUBSETS = ("8k", "30k", "coco")
SCALE = (1.0, 5.0)
Rating = Annotated[int, Field(ge=1, le=5)]
_SOURCES = {"flickr8k": "8k", "flickr30k": "30k", "coco": "coco"}


class RatedCandidate(Row):
    """One rated candidate of an image."""

    subset: Literal["8k", "30k", "coco"]
    image: Image
    # 0 for the human caption, 1 for the neural captioner, 2 for the scene description graph
    position: int = Field(ge=0, lt=CANDIDATES)
    text: Text = Field(validation_alias="candidate")
    # correctness, or the aspect of an export; None if blank there
    rating: Rating | None = Field(validation_alias="correctness")
    thoroughness: Rating | None = None  # None unless a table has this column


def read_export(path: Path, subset: str) -> tuple[list[RatedCandidate], int]:
    """Three candidates per image of one export, and the number of rows without an image at its end."""
    table = read_table(path)
    numbers = range(1, CANDIDATES + 1)
    needed = ["Input.image_url", *(f"Input.text{n}" for n in numbers), *(f"Answer.Q{n}Answer" for n in numbers)]
    for name in needed:
        if name not in table.columns:
            hint = f"Get the published export again; its columns are {', '.join(table.columns)[:200]}"
            raise DataError(f"has no column {name}", code="missing-column", value=name, path=path, row=1, hint=hint)
    rows = list(zip(table.numbers, table.records(), strict=True))
    while rows and "Input.image_url" not in rows[-1][1]:
        rows.pop()
    if not rows:
        raise file_error("contains no row with an image", "missing-value", path)
    candidates = []
    for number, record in rows:
        if "Input.image_url" not in record:
            hint = "Only rows at the end of the file may have an empty Input.image_url"
            raise DataError("has no image", code="missing-image", path=path, row=number, hint=hint)
        image = record["Input.image_url"].strip().partition("?")[0]
        for position in range(CANDIDATES):
            answer = record.get(f"Answer.Q{position + 1}Answer", "nan").strip()
            cells = {"subset": subset, "image": image, "position": position}
            cells |= {"candidate": record.get(f"Input.text{position + 1}", "")}
            cells |= {"correctness": None if answer.lower() == "nan" else answer}
            candidates.append(parsed(RatedCandidate, cells, path, number))
    return distinct(candidates, ["image", "position"], path), len(table.numbers) + table.blank - len(rows)


def read_composite_json(path: Path) -> tuple[list[RatedCandidate], int]:
    """Read correctness ratings from JSON, and count those that are NaN.

    Candidates are sorted by source (8k, 30k, COCO); those of an image are consecutive and numbered in the file's order.
    """
    data = files.read_json(path, unique_keys=True, nan=True)
    if not isinstance(data, dict) or not data or not all(isinstance(entries, list) for entries in data.values()):
        raise file_error("is not a JSON object of lists", "wrong-format", path)
    of_image: dict[tuple[str, str], list[RatedCandidate]] = {}
    blank = 0
    for source in data:
        check_choice("source", source, _SOURCES, DataError, path=path)
    for source in sorted(data, key=list(_SOURCES).index):
        for number, entry in enumerate(data[source], 1):
            entry = entry if isinstance(entry, dict) else {}
            cells = {"image": entry.get("image"), "candidate": entry.get("caption"), "subset": _SOURCES[source]}
            if (rating := entry.get("human")) is None or rating != rating:
                blank += 1
                continue
            candidates = of_image.setdefault((source, image_id(str(cells["image"]))), [])
            cells |= {"correctness": rating, "position": len(candidates)}
            candidates.append(parsed(RatedCandidate, cells, path, f"{source} entry {number}"))
    return [candidate for candidates in of_image.values() for candidate in candidates], blank


_TABLE = "composite/composite_11985.tsv"
_JSON = "composite/composite.json"
_SELECTIONS = (
    ItemSelection(
        "any-candidate-out",
        "references with the same text as any of the image's three candidates are left out for all three",
        source="CLIPScore (Hessel et al. 2021), PAC-S, Polos, FLEUR, EXPERT, Pearl",
    ),
    ItemSelection(
        "same-text-out",
        "references with the same text as the candidate are left out for that candidate, at any position",
        source="TIGEr Table 1, REO Table 1",
    ),
    ItemSelection(
        "no-human",
        "only the two machine captions of each image; references with the same text as the candidate are left out, the "
        "human candidate is one of the references",
        systems=2,
    ),
    ItemSelection("all-references", "all references are used; the human candidate is one of them"),
    ItemSelection(
        "one-reference",
        "one of the image's references at random, possibly the human candidate's own text",
        draws=5,
        seed=0,
        source="FAIEr Table 1",
    ),
)


class Composite(Dataset):
    """11,985 candidates of 3,995 images (997 Flickr8k, 991 Flickr30k, 2,007 COCO), each rated once per aspect."""

    name: ClassVar[str] = "composite"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "Composite"
    image_folders: ClassVar[Sequence[str]] = ("composite/images", "flickr8k/images", "flickr30k/images", "coco/images")
    version, versions = AS_PUBLISHED
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(*_SELECTIONS)
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **all_statistics("correctness", prefix="correctness"),
        **all_statistics("thoroughness", prefix="thoroughness"),
        **correlations("both", prefix="both"),
    }
    default: ClassVar[tuple[str, str]] = ("any-candidate-out", "correctness-tau-c")
    other_practice: ClassVar[tuple[str, str]] = ("same-text-out/correctness-tau-c", "TIGEr and REO")
    groups: ClassVar[Sequence[str] | None] = SUBSETS

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file (8k, 30k, COCO); ``group`` is ``8k``, ``30k`` or ``coco``.

        ``ratings["correctness"]`` has one rating per item. ``ratings["thoroughness"]`` (for candidates that have one)
        and ``ratings["both"]`` (correctness, then thoroughness, pooled) exist if the files contain thoroughness.
        """
        rated, notes = self._correctness()
        rated, more_notes = self._with_thoroughness(rated)
        if selection.name == "no-human":
            machine = [candidate for candidate in rated if candidate.position != HUMAN]
            if not machine:
                raise file_error("contains no rated machine caption", "too-few", rated[0].path)
            more_notes = [*more_notes, f"{len(rated) - len(machine):,} human captions are left out"]
            rated = machine
        references = self._references(rated)
        items, left_out = _items(rated, references, selection.name)
        require_references(items, selection.name, rated[0].path)
        notes += more_notes
        if left_out:
            whose = "a candidate of the image" if selection.name == "any-candidate-out" else "the candidate"
            notes.append(f"{left_out:,} references are left out (same text as {whose})")
        aspects: dict[str, Ratings] = {
            "correctness": judgement_files.ratings(
                range(len(rated)), (c.rating for c in rated if c.rating is not None), SCALE
            )
        }
        thoroughness = {place: c.thoroughness for place, c in enumerate(rated) if c.thoroughness is not None}
        if thoroughness:
            aspects["thoroughness"] = judgement_files.ratings(thoroughness.keys(), thoroughness.values(), SCALE)
            aspects["both"] = _pool(aspects["correctness"], aspects["thoroughness"])
        ratings = ByName(aspects, dict.fromkeys(("thoroughness", "both"), self._no_thoroughness()))
        judgements = Judgements(self.name, selection.name, items, ratings, notes=tuple(notes))
        return drawn(judgements, selection)

    def _exports(self, aspect: str) -> dict[str, Path]:
        """The existing exports of an aspect; the published names have "throughness"."""
        folder = self.root.path / "composite"
        names = ("correctness",) if aspect == "correctness" else ("thoroughness", "throughness")
        paths = ((subset, folder / f"{subset}_{name}.csv") for name in names for subset in SUBSETS)
        return {subset: path for subset, path in paths if path.is_file()}

    def _correctness(self) -> tuple[list[RatedCandidate], list[str]]:
        exports = self._exports("correctness")
        folder = self.root.path / "composite"
        table, as_json = self.root.path / _TABLE, self.root.path / _JSON
        if len(exports) == len(SUBSETS):
            return _read_exports(exports, "correctness")
        if table.is_file():
            return read_rows(table, RatedCandidate, ["subset", "image", "position"], quotes=False), []
        if exports:
            missing = folder / f"{next(s for s in SUBSETS if s not in exports)}_correctness.csv"
            problem, hint = "this export is missing, although others exist", f"Add it, or {_TABLE} instead of all three"
            raise MissingFileError(problem, path=missing, hint=hint)
        if not as_json.is_file():
            names = [f"composite/{subset}_correctness.csv" for subset in SUBSETS]
            self.root.file(_TABLE, _JSON, *names, what="Composite's ratings")
        rated, blank = read_composite_json(as_json)
        if not rated:
            raise file_error("contains no correctness rating", "missing-value", as_json)
        return rated, [f"{as_json.name}: {blank} candidates have no correctness rating"] if blank else []

    def _with_thoroughness(self, rated: list[RatedCandidate]) -> tuple[list[RatedCandidate], list[str]]:
        """The candidates with the thoroughness in the exports, if all of them exist; and notes."""
        exports = self._exports("thoroughness")
        if len(exports) < len(SUBSETS):
            return rated, []
        places: dict[tuple[str, str, str], list[int]] = {}
        for index, candidate in enumerate(rated):
            places.setdefault((candidate.subset, candidate.image, caption_key(candidate.text)), []).append(index)
        images = {(candidate.subset, candidate.image) for candidate in rated}
        rating_of: dict[int, int | None] = {}
        unrated: Counter[str] = Counter()
        candidates, notes = _read_exports(exports, "thoroughness")
        for candidate in candidates:
            if (candidate.subset, candidate.image) not in images:
                unrated[candidate.path.name] += 1
                continue
            indices = places.get((candidate.subset, candidate.image, caption_key(candidate.text)), [])
            if not indices:
                problem = f"candidate {candidate.position + 1} of {candidate.image} has no rating of correctness"
                hint = "Both exports should be of the same release"
                raise candidate.error("unknown-item", problem, hint, value=candidate.image)
            # The same text can occur at two positions: then the position decides.
            same = [i for i in indices if rated[i].position == candidate.position]
            rating_of[(same or indices)[0]] = candidate.rating
        for name, number in unrated.items():
            notes.append(f"{name}: {number} candidates of images without correctness ratings are left out")
        if not rating_of:
            raise file_error("contains no rating of a known candidate", "missing-value", exports["8k"])
        with_both = (c.model_copy(update={"thoroughness": rating_of.get(i)}) for i, c in enumerate(rated))
        return list(with_both), notes

    def _no_thoroughness(self) -> MissingFileError:
        message = "there is no such file (only the original exports have ratings of thoroughness)"
        path = self.root.path / "composite" / "8k_throughness.csv"
        return MissingFileError(message, path=path, hint="Add the three exports, or choose a statistic of correctness")

    def _references(self, rated: Sequence[RatedCandidate]) -> dict[tuple[str, str], tuple[str, ...]]:
        """(subset, image) → captions. Raises DataError for an image without captions."""
        corpora: dict[str, Captions] = {}
        references_by_candidate: dict[tuple[str, str], tuple[str, ...]] = {}
        for candidate in rated:
            if candidate.subset not in corpora:
                name = candidate.subset
                corpora[name] = self._coco() if name == "coco" else load_captions(f"flickr{name}", self.root)
            captions = corpora[candidate.subset]
            texts = candidate.references_in(captions, candidate.image, str(captions.source))
            references_by_candidate[candidate.subset, candidate.image] = texts
        return references_by_candidate

    def _coco(self) -> Captions:
        # Composite's images are in Karpathy's test split; larger files contain them too.
        larger = ("coco/dataset_coco.json", "coco/captions_val2014.json", "coco/annotations/captions_val2014.json")
        path = self.root.file(*CORPORA["coco-test"].sources, *larger, what="COCO's captions")
        return read_captions_file(path)


def _read_exports(exports: Mapping[str, Path], aspect: str) -> tuple[list[RatedCandidate], list[str]]:
    """The rated candidates of an aspect's exports, and notes on the rows and candidates that have no rating."""
    rated: list[RatedCandidate] = []
    notes: list[str] = []
    skipped = 0
    for subset, path in exports.items():
        candidates, at_end = read_export(path, subset)
        kept = [candidate for candidate in candidates if candidate.rating is not None]
        if blank := len(candidates) - len(kept):
            notes.append(f"{path.name}: {blank} candidates have no {aspect} rating")
        rated += kept
        skipped += at_end
    if not rated:
        raise file_error(f"contains no {aspect} rating", "missing-value", exports["8k"])
    if skipped:
        notes.insert(0, f"{skipped} rows without an image at the ends of the {aspect} exports are skipped")
    return rated, notes


def _items(
    rated: Sequence[RatedCandidate], references: Mapping[tuple[str, str], tuple[str, ...]], selection: str
) -> tuple[tuple[Item, ...], int]:
    """The items under a selection, and the total number of references that were left out."""
    reference_keys = {image: [caption_key(text) for text in texts] for image, texts in references.items()}
    of_image: dict[tuple[str, str], set[str]] = {}
    for candidate in rated:
        of_image.setdefault((candidate.subset, candidate.image), set()).add(caption_key(candidate.text))
    items = []
    left_out = 0
    for candidate in rated:
        image = (candidate.subset, candidate.image)
        if selection in ("all-references", "one-reference"):
            keys: set[str] = set()
        elif selection == "any-candidate-out":
            keys = of_image[image]
        else:
            keys = {caption_key(candidate.text)}
        used = tuple(t for t, key in zip(references[image], reference_keys[image], strict=True) if key not in keys)
        left_out += len(references[image]) - len(used)
        candidate_id = f"{candidate.image}#{candidate.position}"
        system = SYSTEMS[candidate.position]
        items.append(Item(candidate.image, candidate.text, used, candidate_id, candidate.subset, system))
    return tuple(items), left_out


def _pool(correctness: Ratings, thoroughness: Ratings) -> Ratings:
    """The ratings of both aspects as if from two raters (PAC-S)."""
    return Ratings(
        np.concatenate([correctness.item, thoroughness.item]),
        np.concatenate([correctness.value, thoroughness.value]),
        np.concatenate([np.zeros_like(correctness.item), np.ones_like(thoroughness.item)]),
        correctness.scale,
    )
