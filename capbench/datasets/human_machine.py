"""Human and machine captions of the same image: does a metric prefer the human caption?

After HM-MSCOCO (FAIEr: Wang and others, CVPR 2021, Table 2), which was not published: 15,000 pairs of a human and a
machine caption of the same image, scored against four references. These pairs were not judged by humans; the human
caption is assumed to be the better one.

Files:

- ``machine_captions/smurf_karpathy_cand.json`` (Feinglass and Yang 2021): a list of ``image_id`` (a file name) and
  ``caption``; for each image of COCO's Karpathy test split the human caption, then those of three captioners.
- ``machine_captions/where_image2/`` (Tanti and others 2018): ``imgs_{set}.txt``, one file name per line, and
  ``{set}_{system}/generated_captions.txt``, whose line n belongs to line n of the list; ``human_1`` and twelve
  captioners, for ``mscoco`` (the same split) and ``flickr8k`` (the test split).

The references are the first four captions of the image in COCO's or Flickr8k's files that do not have the text of the
human caption (:func:`capbench.core.records.caption_key`).

Items are ordered by image: the human caption, then the machine captions. Their groups are ``human`` and ``machine``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError, count
from capbench.core.records import Item, Judgements, Preferences, caption_key
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.captions import load_captions
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy

_SMURF = "machine_captions/smurf_karpathy_cand.json"
_WHERE_IMAGE = "machine_captions/where_image2"
_REFERENCES = 4
HUMAN, MACHINE = "human", "machine"
MACHINES = tuple(f"{where}_{run}" for where in ("init", "pre", "par", "merge") for run in (1, 2, 3))
"""The captioners of where_image2: four positions at which the image enters the network, with three runs each."""


@dataclass(frozen=True)
class Written:
    """The human and machine captions of one image.

    Attributes:
        image: image id.
        human: the human caption.
        machines: name of the captioner → caption.
        row: the row of the image in its file.
    """

    image: str
    human: str
    machines: Mapping[str, str]
    row: str


class _HumanMachine(Dataset):
    """Base class of the sets of human and machine captions; a subclass reads the captions."""

    corpus: ClassVar[str]
    """Name of the caption corpus with the references."""
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "own-caption-out": ItemSelection(
            "own-caption-out",
            "every machine caption paired with the human caption of its image; the references are the first four "
            "captions of the image that do not have the human caption's text",
            source="after FAIEr Table 2",
        )
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **accuracy("human"),
        "mean": StatisticSpec(
            "mean",
            "mean",
            "",
            description="the metric's score of the human and of the machine captions: the mean, or the corpus score "
            "for BLEU and METEOR",
            source="after FAIEr Table 2",
        ),
    }
    default: ClassVar[tuple[str, str]] = ("own-caption-out", "human-strict")
    groups: ClassVar[Sequence[str] | None] = (HUMAN, MACHINE)
    aliases: ClassVar[Mapping[str, str]] = {
        rule: f"own-caption-out/human-{rule}" for rule in ("strict", "ties-right", "ties-half")
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items by image, the human caption first; ``preferences["human"]`` prefers it in every pair."""
        path, images = self._read()
        captions = load_captions(self.corpus, self.root)
        items: list[Item] = []
        first, second = [], []
        counts = dict.fromkeys(("unlike", "few", "of human", "of reference", "repeated"), 0)
        for entry in images:
            if entry.image not in captions:
                problem = f"the image {entry.image} has no captions in {captions.source.name}"
                raise DataError(
                    problem,
                    code="missing-references",
                    value=entry.image,
                    path=path,
                    row=entry.row,
                    hint="Both files must be of the same split",
                )
            human = caption_key(entry.human)
            others = [text for text in captions[entry.image] if caption_key(text) != human]
            references = tuple(others[:_REFERENCES])
            keys = set(map(caption_key, references))
            counts["unlike"] += len(others) == len(captions[entry.image])
            counts["few"] += len(references) < _REFERENCES
            place = len(items)
            items.append(Item(entry.image, entry.human, references, f"{entry.image}#{HUMAN}", HUMAN, HUMAN))
            seen: set[str] = set()
            for system, text in entry.machines.items():
                key = caption_key(text)
                counts["of human"] += key == human
                counts["of reference"] += key in keys
                counts["repeated"] += key in seen
                seen.add(key)
                first.append(place)
                second.append(len(items))
                items.append(Item(entry.image, text, references, f"{entry.image}#{system}", MACHINE, system))
        judgement_files.require_references(items, selection.name, path)
        pairs = Preferences(
            np.array(first, dtype=np.int64),
            np.array(second, dtype=np.int64),
            np.ones(len(first), dtype=np.int64),
            ("",) * len(first),
            np.zeros((len(first), 0), dtype=np.int64),
        )
        notes = (f"{len(first):,} pairs of {len(images):,} images; no human judged them", *_notes(counts))
        return (Judgements(self.name, selection.name, tuple(items), preferences={HUMAN: pairs}, notes=notes),)

    def _read(self) -> tuple[Path, list[Written]]:
        """Path of the captions or of the list of images, and the captions."""
        raise NotImplementedError


def _notes(counts: Mapping[str, int]) -> list[str]:
    templates = {
        "of reference": "{} machine captions have the text of a reference",
        "of human": "{} machine captions have the text of the human caption: no metric can distinguish these pairs",
        "repeated": "{} machine captions repeat another captioner's caption of the same image",
        "few": f"{{}} images have fewer than {_REFERENCES} references left",
        "unlike": "{} human captions are not among the captions of their image: no reference is left out for them",
    }
    return [text.format(f"{counts[name]:,}") for name, text in templates.items() if counts[name]]


class HmCocoWhereImage(_HumanMachine):
    """One human caption and those of twelve captioners for each image of COCO's Karpathy test split."""

    name: ClassVar[str] = "hm-coco@where-image"
    title: ClassVar[str] = "Human and machine, COCO (twelve captioners)"
    citation: ClassVar[str] = (
        "After S. Wang and others: FAIEr. CVPR 2021; captions of M. Tanti, A. Gatt, K. Camilleri: Where to put the "
        "image in an image caption generator. Natural Language Engineering 2018"
    )
    corpus: ClassVar[str] = "coco-test"
    image_folders: ClassVar[Sequence[str]] = ("coco/images",)

    def _read(self) -> tuple[Path, list[Written]]:
        return read_where_image(self.root.file(f"{_WHERE_IMAGE}/imgs_mscoco.txt", what="the list of images"))


class HmCoco(_HumanMachine):
    """One human caption and those of three captioners for each image of COCO's Karpathy test split."""

    name: ClassVar[str] = "hm-coco"
    title: ClassVar[str] = "Human and machine, COCO"
    citation: ClassVar[str] = (
        "After S. Wang and others: FAIEr. CVPR 2021; captions of J. Feinglass, Y. Yang: SMURF. ACL 2021"
    )
    corpus: ClassVar[str] = "coco-test"
    image_folders: ClassVar[Sequence[str]] = ("coco/images",)
    beside: ClassVar[Mapping[str, type[Dataset]]] = {"where-image": HmCocoWhereImage}

    def _read(self) -> tuple[Path, list[Written]]:
        path = self.root.file(_SMURF, what="the human and machine captions")
        return path, read_smurf(path)


class HmFlickr8k(_HumanMachine):
    """One human caption and those of twelve captioners for each of Flickr8k's 1,000 test images."""

    name: ClassVar[str] = "hm-flickr8k"
    title: ClassVar[str] = "Human and machine, Flickr8k"
    citation: ClassVar[str] = HmCocoWhereImage.citation
    corpus: ClassVar[str] = "flickr8k"
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)

    def _read(self) -> tuple[Path, list[Written]]:
        return read_where_image(self.root.file(f"{_WHERE_IMAGE}/imgs_flickr8k.txt", what="the list of images"))


def read_smurf(path: Path) -> list[Written]:
    """Read SMURF's captions, one entry per image in the order of the file.

    Raises:
        DataError: the file is not a list of entries, a name or a caption is missing or empty, or an image does not have
            as many captions as the first one.
    """
    data = files.read_json(path)
    if not isinstance(data, list) or not data:
        raise judgement_files.file_error("is not a JSON list of captions", "wrong-format", path)
    captions_by_image: dict[str, list[str]] = {}
    rows: dict[str, str] = {}
    for number, entry in enumerate(data, 1):
        row = f"entry {number}"
        if not isinstance(entry, dict):
            raise judgement_files.file_error("is not a JSON object", "wrong-type", path, row)
        image = judgement_files.parse_image(entry.get("image_id"), "image's name (image_id)", path=path, row=row)
        text = judgement_files.parse_caption(entry.get("caption"), "caption (caption)", path=path, row=row)
        captions_by_image.setdefault(image, []).append(text)
        rows.setdefault(image, row)
    wanted = len(next(iter(captions_by_image.values())))
    written = []
    for image, (human, *machines) in captions_by_image.items():
        if len(machines) != wanted - 1 or not machines:
            problem = f"the image {image} has {count(1 + len(machines), 'caption')}, expected {max(wanted, 2)}"
            raise DataError(
                problem,
                code="mismatch",
                value=image,
                path=path,
                row=rows[image],
                hint="Give one human caption, then the machine captions",
            )
        named = {f"{MACHINE} {number}": text for number, text in enumerate(machines, 1)}
        written.append(Written(image, human, named, rows[image]))
    return written


def read_where_image(listed: Path) -> tuple[Path, list[Written]]:
    """Read the captions of where_image2 for one set of images, in the order of the list.

    Args:
        listed: path of ``imgs_{set}.txt``; the captions are in folders next to it.

    Returns:
        The path of the list, and the captions of each image.

    Raises:
        MissingFileError: the captions of a system are missing.
        DataError: an image is listed twice, a line is empty, or a system does not have one caption per image.
    """
    images: dict[str, int] = {}
    for row, name in enumerate(_lines(listed), 1):
        image = judgement_files.parse_image(name, "image's name", path=listed, row=row)
        if image in images:
            problem = f"the image {image} is already in row {images[image]}"
            raise DataError(problem, code="duplicate", value=image, path=listed, row=row, hint="Get the list again")
        images[image] = row
    kind = listed.stem.removeprefix("imgs_")
    texts: dict[str, list[str]] = {}
    for system in ("human_1", *MACHINES):
        path = listed.parent / f"{kind}_{system}" / "generated_captions.txt"
        lines = _lines(path)
        if len(lines) != len(images):
            problem = f"has {len(lines):,} captions for the {len(images):,} images of {listed.name}"
            raise DataError(problem, code="mismatch", value=len(lines), path=path, hint="Get both files again")
        texts[system] = [
            judgement_files.parse_caption(line, "caption", path=path, row=row) for row, line in enumerate(lines, 1)
        ]
    return listed, [
        Written(
            image,
            texts["human_1"][row - 1],
            {system: texts[system][row - 1] for system in MACHINES},
            f"row {row}",
        )
        for image, row in images.items()
    ]


def _lines(path: Path) -> list[str]:
    lines = files.read_lines(path)
    while lines and not lines[-1].strip():
        lines.pop()
    return lines
