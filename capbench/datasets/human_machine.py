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
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from capbench.core.errors import MissingFileError, count
from capbench.core.records import Item, Judgements, caption_key
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.captions import load_captions, read_folders
from capbench.datasets.judgement_files import paired, require_references
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name
from capbench.datasets.row_models import Image, Row, Text, read_rows

_SMURF = "machine_captions/smurf_karpathy_cand.json"
_WHERE_IMAGE = "machine_captions/where_image2"
_REFERENCES = 4
HUMAN, MACHINE = "human", "machine"
MACHINES = tuple(f"{where}_{run}" for where in ("init", "pre", "par", "merge") for run in (1, 2, 3))
"""The captioners of where_image2: four positions at which the image enters the network, with three runs each."""


class Written(Row):
    """The human caption of an image and those of captioners by name."""

    image: str
    human: str
    machines: Mapping[str, str]


class _Caption(Row):
    image: Image = Field(validation_alias="image_id")
    caption: Text


class _HumanMachine(Dataset):
    """Base class of the sets of human and machine captions; a subclass reads the captions."""

    corpus: ClassVar[str]  # name of the caption corpus with the references
    listed: ClassVar[str] = ""  # name of the list of images of where_image2
    version, versions = AS_PUBLISHED
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "own-caption-out",
            "every machine caption paired with the human caption of its image; the references are the first four "
            "captions of the image that do not have the human caption's text",
            source="after FAIEr Table 2",
        )
    )
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

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Items by image, the human caption first; ``preferences["human"]`` prefers it in every pair."""
        images = self._read()
        captions = load_captions(self.corpus, self.root)
        items: list[Item] = []
        first, second = [], []
        counts = dict.fromkeys(("unlike", "few", "of human", "of reference", "repeated"), 0)
        for entry in images:
            hint = "Both files must be of the same split"
            of_image = entry.references_in(captions, entry.image, captions.source.name, hint)
            human = caption_key(entry.human)
            others = [text for text in of_image if caption_key(text) != human]
            references = tuple(others[:_REFERENCES])
            keys = set(map(caption_key, references))
            counts["unlike"] += len(others) == len(of_image)
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
        require_references(items, selection.name, images[0].path)
        pairs = paired([""] * len(first), first, second)
        notes = (f"{len(first):,} pairs of {len(images):,} images; no human judged them", *_notes(counts))
        return (Judgements(self.name, selection.name, tuple(items), preferences={HUMAN: pairs}, notes=notes),)

    def _read(self) -> list[Written]:
        """The captions of each image."""
        return read_where_image(self.root.file(f"{_WHERE_IMAGE}/{self.listed}", what="the list of images"))


def _notes(counts: Mapping[str, int]) -> list[str]:
    templates = {
        "of reference": "{} machine captions have the text of a reference",
        "of human": "{} machine captions have the text of the human caption: no metric can distinguish these pairs",
        "repeated": "{} machine captions repeat another captioner's caption of the same image",
        "few": f"{{}} images have fewer than {_REFERENCES} references left",
        "unlike": "{} human captions are not among the captions of their image: no reference is left out for them",
    }
    return [text.format(f"{counts[name]:,}") for name, text in templates.items() if counts[name]]


class HmCoco(_HumanMachine):
    """One human caption and those of three captioners for each image of COCO's Karpathy test split."""

    name: ClassVar[str] = "hm-coco"
    title: ClassVar[str] = "Human and machine, COCO"
    corpus: ClassVar[str] = "coco-test"
    image_folders: ClassVar[Sequence[str]] = ("coco/images",)
    variants: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "where-image": {"title": "Human and machine, COCO (twelve captioners)", "listed": "imgs_mscoco.txt"}
    }

    def _read(self) -> list[Written]:
        if self.listed:
            return super()._read()
        return read_smurf(self.root.file(_SMURF, what="the human and machine captions"))


class HmFlickr8k(_HumanMachine):
    """One human caption and those of twelve captioners for each of Flickr8k's 1,000 test images."""

    name: ClassVar[str] = "hm-flickr8k"
    title: ClassVar[str] = "Human and machine, Flickr8k"
    corpus: ClassVar[str] = "flickr8k"
    listed: ClassVar[str] = "imgs_flickr8k.txt"
    image_folders: ClassVar[Sequence[str]] = ("flickr8k/images",)


def read_smurf(path: Path) -> list[Written]:
    """Read SMURF's captions, one entry per image in the order of the file."""
    of_image: dict[str, list[_Caption]] = {}
    for row in read_rows(path, _Caption):
        of_image.setdefault(row.image, []).append(row)
    wanted = max(len(next(iter(of_image.values()))), 2)
    written = []
    for image, rows in of_image.items():
        if len(rows) != wanted:
            problem = f"the image {image} has {count(len(rows), 'caption')}, expected {wanted}"
            hint = "Give one human caption, then the machine captions"
            raise rows[0].error("mismatch", problem, hint, value=image)
        named = {f"{MACHINE} {number}": row.caption for number, row in enumerate(rows[1:], 1)}
        first = rows[0]
        written.append(Written(path=path, row=first.row, image=image, human=first.caption, machines=named))
    return written


def read_where_image(listed: Path) -> list[Written]:
    """Read the captions of where_image2 for the images of a list ``imgs_{set}.txt``, in its order."""
    kind = listed.stem.removeprefix("imgs_")
    systems = read_folders(listed)
    for system in ("human_1", *MACHINES):
        if f"{kind}_{system}" not in systems:
            path = listed.parent / f"{kind}_{system}" / "generated_captions.txt"
            raise MissingFileError("there is no such file", path=path, hint="Get the captions again")
    written = []
    for row, (image, human) in enumerate(systems[f"{kind}_human_1"].items(), 1):
        machines = {system: systems[f"{kind}_{system}"][image] for system in MACHINES}
        written.append(Written(path=listed, row=row, image=image, human=human, machines=machines))
    return written
