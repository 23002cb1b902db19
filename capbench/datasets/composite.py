"""Composite: machine and human captions of Flickr8k, Flickr30k and COCO images, rated from 1 to 5.

Files: ``composite/composite_11985.tsv``, ``composite/composite.json``, or the original exports
``composite/{8k,30k,coco}_correctness.csv`` and ``…_throughness.csv`` (so spelled), which are taken where they are all
there (Aditya, Yang, Baral, Fermüller and Aloimonos 2015); references from the three caption corpora.

One candidate of each image is a human caption that is among the image's references, so every selection of items
says which references are left out. Two texts are the same if their :func:`~capbench.records.caption_key` is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from capbench.datasets import judging
from capbench.datasets.base import Dataset
from capbench.datasets.captions import CORPORA, Captions, load_captions, read_coco_annotations, read_karpathy
from capbench.datasets.composite_files import (
    SCALE,
    SUBSETS,
    SYSTEMS,
    Export,
    RatedCandidate,
    read_composite_json,
    read_export,
    read_table,
)
from capbench.datasets.protocol import (
    ItemSelection,
    StatisticSpec,
    correlations,
    system_statistics,
    within_image_statistics,
)
from capbench.errors import DataError, MissingFileError
from capbench.records import Item, Judgements, Ratings, caption_key

__all__ = ["Composite"]

_TABLE = "composite/composite_11985.tsv"
_JSON = "composite/composite.json"
_SELECTIONS = (
    ItemSelection(
        "same-text-out",
        "a reference that is the same text as the candidate is left out for that candidate, at any position",
        source="TIGEr Table 1",
    ),
    ItemSelection(
        "any-candidate-out",
        "references that are the same text as any of the image's three candidates are left out for all three",
        source="CLIPScore (Hessel et al. 2021), PAC-S, Polos, FLEUR, EXPERT",
    ),
    ItemSelection("all-references", "all references stay; the human candidate is one of them"),
    ItemSelection(
        "one-reference",
        "one of the image's references at random; the human candidate's own text may be drawn",
        draws=5,
        seed=0,
        source="FAIEr Table 1",
    ),
)


class Composite(Dataset):
    """11,985 candidates of 3,995 images (997 Flickr8k, 991 Flickr30k, 2,007 COCO), each rated once an aspect."""

    name: ClassVar[str] = "composite"
    title: ClassVar[str] = "Composite"
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    citation: ClassVar[str] = (
        "S. Aditya, Y. Yang, C. Baral, C. Fermüller, Y. Aloimonos: From Images to Sentences through Scene "
        "Description Graphs using Commonsense Reasoning and Knowledge. arXiv:1511.03292, 2015"
    )
    selections: ClassVar[Mapping[str, ItemSelection]] = {selection.name: selection for selection in _SELECTIONS}
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **correlations("correctness", prefix="correctness"),
        **correlations("thoroughness", prefix="thoroughness"),
        **correlations("both", prefix="both"),
        **{
            name: spec
            for aspect in ("correctness", "thoroughness")
            for statistics_of in (within_image_statistics, system_statistics)
            for name, spec in statistics_of(aspect, prefix=aspect).items()
        },
    }
    default: ClassVar[tuple[str, str]] = ("same-text-out", "correctness-tau-c")
    groups: ClassVar[Sequence[str] | None] = SUBSETS
    aliases: ClassVar[Mapping[str, str]] = {
        "clipscore": "any-candidate-out/correctness-tau-c",
        **{
            f"clipscore/{coefficient}": f"any-candidate-out/correctness-{coefficient}"
            for coefficient in ("tau-b", "tau-c")
        },
        **{
            f"{selection.name}/{coefficient}": f"{selection.name}/correctness-{coefficient}"
            for selection in _SELECTIONS
            for coefficient in ("tau-b", "tau-c", "spearman", "pearson")
        },
        **{
            coefficient: f"same-text-out/correctness-{coefficient}"
            for coefficient in ("tau-b", "tau-c", "spearman", "pearson")
        },
        **{
            other: f"{selection.name}/correctness-{name}"
            for selection in reversed(_SELECTIONS)  # without items, the first one is meant
            for name in (*within_image_statistics(""), *system_statistics(""))
            for other in (f"{selection.name}/{name}", name)
        },
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items in the order of the file (8k, 30k, COCO); ``group`` is ``8k``, ``30k`` or ``coco``.

        ``ratings["correctness"]`` has one rating an item. ``ratings["thoroughness"]`` (of the candidates that have
        one) and ``ratings["both"]`` (correctness, then thoroughness, pooled) are there if the files hold it.
        """
        rated, notes = self._correctness()
        thoroughness, more_notes = self._thoroughness(rated)
        references = self._references(rated)
        items, left_out = _items(rated, references, selection.name)
        judging.require_references(items, selection.name, rated[0].path)
        notes += more_notes
        if left_out:
            notes.append(f"{left_out:,} references are left out")
        scale = (float(SCALE[0]), float(SCALE[1]))
        aspects: dict[str, Ratings] = {
            "correctness": judging.ratings(range(len(rated)), (c.rating for c in rated if c.rating is not None), scale)
        }
        if thoroughness is not None:
            aspects["thoroughness"] = judging.ratings(thoroughness.keys(), thoroughness.values(), scale)
            aspects["both"] = _pool(aspects["correctness"], aspects["thoroughness"])
        ratings = judging.ByName(aspects, {"thoroughness": self._no_thoroughness, "both": self._no_thoroughness})
        if selection.seed is None:
            return (Judgements(self.name, selection.name, items, ratings, notes=tuple(notes)),)
        notes.append(f"one reference of each image is drawn at random (seed {selection.seed})")
        return tuple(
            Judgements(self.name, selection.name, drawn, ratings, draw=draw, notes=tuple(notes))
            for draw, drawn in enumerate(judging.draw_references(items, 1, selection.seed, selection.draws))
        )

    def _exports(self, aspect: str) -> dict[str, Path]:
        # The published names say "throughness"; a copy that somebody renamed is as good.
        spellings = {"correctness": ("correctness",), "thoroughness": ("throughness", "thoroughness")}[aspect]
        export_paths: dict[str, Path] = {}
        for subset in SUBSETS:
            for spelling in spellings:
                path = self.root.path / "composite" / f"{subset}_{spelling}.csv"
                if path.is_file():
                    export_paths.setdefault(subset, path)
        return export_paths

    def _correctness(self) -> tuple[list[RatedCandidate], list[str]]:
        exports = self._exports("correctness")
        table = self.root.path / _TABLE
        if len(exports) < len(SUBSETS):
            if table.is_file():
                return read_table(table), []
            if not exports and (self.root.path / _JSON).is_file():
                return self._correctness_from_json(self.root.path / _JSON)
            if not exports:
                self.root.file(
                    _TABLE, _JSON, *(f"composite/{s}_correctness.csv" for s in SUBSETS), what="Composite's ratings"
                )
            lacking = next(s for s in SUBSETS if s not in exports)
            raise MissingFileError(
                "this export is missing, the others are there",
                path=self.root.path / "composite" / f"{lacking}_correctness.csv",
                hint=f"Add it, or {_TABLE} in place of all three",
            )
        read = {path: read_export(path, subset, "correctness") for subset, path in exports.items()}
        rated = [candidate for export in read.values() for candidate in export.candidates]
        rated = [candidate for candidate in rated if candidate.rating is not None]
        if not rated:
            raise DataError("holds no correctness rating", path=exports["8k"], hint="Get the file again")
        return rated, _passed_over(read, "correctness")

    @staticmethod
    def _correctness_from_json(path: Path) -> tuple[list[RatedCandidate], list[str]]:
        rated, blank = read_composite_json(path)
        if not rated:
            raise DataError("holds no correctness rating", path=path, hint="Get the file again")
        return rated, [f"{path.name}: {blank} candidates have no correctness rating"] if blank else []

    def _thoroughness(self, rated: Sequence[RatedCandidate]) -> tuple[dict[int, float] | None, list[str]]:
        """Index of the item → its thoroughness, None if the files do not hold it; and notes."""
        exports = self._exports("thoroughness")
        if len(exports) < len(SUBSETS):
            given = {i: float(c.thoroughness) for i, c in enumerate(rated) if c.thoroughness is not None}
            return given or None, []
        place: dict[tuple[str, str, str], list[int]] = {}
        for index, candidate in enumerate(rated):
            place.setdefault((candidate.subset, candidate.image, _key(candidate.text)), []).append(index)
        images = {(candidate.subset, candidate.image) for candidate in rated}
        rating_of: dict[int, float] = {}
        read = {path: read_export(path, subset, "thoroughness") for subset, path in exports.items()}
        notes = _passed_over(read, "thoroughness")
        for subset, path in exports.items():
            alone = 0
            for candidate in read[path].candidates:
                if candidate.rating is None:
                    continue
                if (subset, candidate.image) not in images:
                    alone += 1
                    continue
                indices = place.get((subset, candidate.image, _key(candidate.text)), [])
                if not indices:
                    raise DataError(
                        f"candidate {candidate.position + 1} of {candidate.image} is not among those rated for "
                        "correctness",
                        path=path,
                        row=candidate.row,
                        hint="Both exports should be of the same release",
                    )
                # The same text can stand at two positions; then the position decides.
                same = [i for i in indices if rated[i].position == candidate.position]
                rating_of[(same or indices)[0]] = float(candidate.rating)
            if alone:
                notes.append(f"{path.name}: {alone} candidates of images without correctness ratings are left out")
        if not rating_of:
            raise DataError("holds no rating of a known candidate", path=exports["8k"], hint="Get the file again")
        return dict(sorted(rating_of.items())), notes

    def _no_thoroughness(self) -> Exception:
        have = self._exports("thoroughness")
        lacking = next((s for s in SUBSETS if s not in have), SUBSETS[0])
        return MissingFileError(
            "there is no such file (thoroughness is rated in the original exports only)",
            path=self.root.path / "composite" / f"{lacking}_throughness.csv",
            hint="Put the three exports there, or choose a statistic on correctness",
        )

    def _references(self, rated: Sequence[RatedCandidate]) -> dict[tuple[str, str], tuple[str, ...]]:
        """(subset, image) → its captions. Raises DataError for an image that has none."""
        readers: dict[str, Callable[[], Captions]] = {
            "8k": lambda: load_captions("flickr8k", self.root),
            "30k": lambda: load_captions("flickr30k", self.root),
            "coco": self._coco,
        }
        corpora: dict[str, Captions] = {}
        references_by_candidate: dict[tuple[str, str], tuple[str, ...]] = {}
        for candidate in rated:
            if candidate.subset not in corpora:
                corpora[candidate.subset] = readers[candidate.subset]()
            captions = corpora[candidate.subset]
            if candidate.image not in captions:
                raise DataError(
                    f"image '{candidate.image}' has no captions in {captions.source}",
                    path=candidate.path,
                    row=candidate.row,
                    hint="Use a file of captions that holds it",
                )
            references_by_candidate[candidate.subset, candidate.image] = captions[candidate.image]
        return references_by_candidate

    def _coco(self) -> Captions:
        # Composite's images are in Karpathy's test split; larger files hold them too.
        sources: dict[str, Callable[[Path], Captions]] = {
            **CORPORA["coco-test"].sources,
            "coco/dataset_coco.json": read_karpathy,
            "coco/captions_val2014.json": read_coco_annotations,
            "coco/annotations/captions_val2014.json": read_coco_annotations,
        }
        path = self.root.file(*sources, what="COCO's captions")
        return sources[path.relative_to(self.root.path).as_posix()](path)


def _passed_over(exports: Mapping[Path, Export], aspect: str) -> list[str]:
    skipped = sum(export.skipped for export in exports.values())
    notes = [f"{skipped} rows without an image at the ends of the {aspect} exports are skipped"] if skipped else []
    for path, export in exports.items():
        if export.blank:
            notes.append(f"{path.name}: {export.blank} candidates have no {aspect} rating")
    return notes


def _key(text: str) -> str:
    return caption_key(text) or text  # a text without any of [a-z0-9] is the same as itself only


def _items(
    rated: Sequence[RatedCandidate], references: Mapping[tuple[str, str], tuple[str, ...]], selection: str
) -> tuple[tuple[Item, ...], int]:
    """The items under a selection, and how many references were left out over all of them."""
    reference_keys = {image: [_key(text) for text in texts] for image, texts in references.items()}
    of_image: dict[tuple[str, str], set[str]] = {}
    for candidate in rated:
        of_image.setdefault((candidate.subset, candidate.image), set()).add(_key(candidate.text))
    items = []
    left_out = 0
    for candidate in rated:
        image = (candidate.subset, candidate.image)
        if selection in ("all-references", "one-reference"):
            keys: set[str] = set()
        elif selection == "any-candidate-out":
            keys = of_image[image]
        else:
            keys = {_key(candidate.text)}
        kept = tuple(t for t, key in zip(references[image], reference_keys[image], strict=True) if key not in keys)
        left_out += len(references[image]) - len(kept)
        candidate_id = f"{candidate.image}#{candidate.position}"
        system = SYSTEMS[candidate.position]
        items.append(Item(candidate.image, candidate.text, kept, candidate_id, candidate.subset, system))
    return tuple(items), left_out


def _pool(correctness: Ratings, thoroughness: Ratings) -> Ratings:
    """Both aspects' ratings as those of two raters (PAC-S)."""
    return Ratings(
        np.concatenate([correctness.item, thoroughness.item]),
        np.concatenate([correctness.value, thoroughness.value]),
        np.concatenate([np.zeros_like(correctness.item), np.ones_like(thoroughness.item)]),
        correctness.scale,
    )
