"""nocaps, validation set: 4,500 images of Open Images with ten captions each, in three domains. No human ratings.

Files in ``nocaps/``: ``nocaps_corpus.json``, or the original ``nocaps_val_4500_captions.json`` in COCO's format
(Agrawal et al. 2019). The optional ``nocaps_val_image_info.json`` adds file names and addresses of the images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from capbench.core import files
from capbench.core.errors import DataError, check_choice
from capbench.core.records import Item, Judgements, image_id
from capbench.datasets import judgement_files
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import ItemSelection, StatisticSpec
from capbench.datasets.user.caption_readers import parse_coco_annotations, read_nocaps_corpus

DOMAINS = ("in-domain", "near-domain", "out-domain")
_CORPUS = "nocaps/nocaps_corpus.json"
_ORIGINAL = "nocaps/nocaps_val_4500_captions.json"
_INFO = "nocaps/nocaps_val_image_info.json"


@dataclass(frozen=True)
class NocapsImage:
    """One image of nocaps.

    Attributes:
        image: nocaps' number of the image, as a string (``"0"``).
        domain: ``in-domain``, ``near-domain`` or ``out-domain``; ``""`` if unknown.
        captions: captions in published order.
        file_name: name of the image file (``0013ea2087020901.jpg``), ``""`` if unknown.
    """

    image: str
    domain: str
    captions: tuple[str, ...]
    file_name: str = ""


class Nocaps(Dataset):
    """4,500 images (417 in-domain, 2,670 near-domain, 1,413 out-domain) with ten captions each."""

    name: ClassVar[str] = "nocaps"
    title: ClassVar[str] = "nocaps (validation)"
    image_folders: ClassVar[Sequence[str]] = ("nocaps/images",)
    version: ClassVar[str] = "1"
    versions: ClassVar[Mapping[str, str]] = {"1": "as published"}
    citation: ClassVar[str] = "H. Agrawal et al.: nocaps: novel object captioning at scale. ICCV 2019"
    selections: ClassVar[Mapping[str, ItemSelection]] = {
        "first-vs-rest": ItemSelection(
            "first-vs-rest", "the first caption of an image is the candidate, the other nine are the references"
        )
    }
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        "mean": StatisticSpec(
            "mean",
            "mean",
            "",
            description="the metric's mean score of human captions, overall and by domain; there are no human ratings",
        )
    }
    default: ClassVar[tuple[str, str]] = ("first-vs-rest", "mean")

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """One item per image, without ratings; ``group`` is the domain."""
        images = self.references()
        items = tuple(
            Item(entry.image, entry.captions[0], entry.captions[1:], f"{entry.image}#0", entry.domain)
            for entry in images.values()
        )
        judgement_files.require_references(items, selection.name, self._path())
        notes = ("there are no human ratings: only mean scores can be reported",)
        return (Judgements(self.name, selection.name, items, notes=notes),)

    def references(self) -> dict[str, NocapsImage]:
        """Image id → captions, domain and file name, in published order; references for a user's candidates.

        Raises:
            MissingFileError: nocaps' captions are missing.
            DataError: a file has invalid content.
        """
        path = self._path()
        images = _read_original(path) if path.name == Path(_ORIGINAL).name else _read_corpus(path)
        info = self.root.path / _INFO
        return _with_info(images, info) if info.is_file() else images

    def _path(self) -> Path:
        return self.root.file(_CORPUS, _ORIGINAL, what="nocaps' captions")


def _read_corpus(path: Path) -> dict[str, NocapsImage]:
    captions = read_nocaps_corpus(path)
    for number, domain in enumerate(captions.groups.values(), 1):
        _check_domain(domain, path, f"entry {number}")
    return {image: NocapsImage(image, captions.groups[image], texts) for image, texts in captions.items()}


def _read_original(path: Path) -> dict[str, NocapsImage]:
    data = files.read_json(path)
    captions = parse_coco_annotations(data, path)  # validates the entries that are used below
    if captions.groups and len(captions.groups) < len(captions):
        incomplete = next(image for image in captions if image not in captions.groups)
        problem = f"image {incomplete} has no domain, but others have"
        raise judgement_files.file_error(problem, "missing-key", path, value=incomplete)
    captions_by_image = {}
    for number, entry in enumerate(data["images"], 1):
        name = entry["file_name"]
        domain = captions.groups.get(image_id(name), "")
        if domain:
            _check_domain(domain, path, f"image {number}")
        image = str(entry["id"])
        captions_by_image[image] = _described(NocapsImage(image, domain, captions[image_id(name)]), entry)
    return captions_by_image


def _with_info(images: Mapping[str, NocapsImage], path: Path) -> dict[str, NocapsImage]:
    data = files.read_json(path)
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise judgement_files.file_error("contains no list 'images'", "missing-key", path, value="images")
    by_id = {str(entry["id"]): entry for entry in entries if isinstance(entry, dict) and "id" in entry}
    for image in images:
        if image not in by_id:
            raise judgement_files.file_error(f"does not contain image {image}", "missing-image", path, value=image)
    return {image: _described(entry, by_id[image]) for image, entry in images.items()}


def _described(image: NocapsImage, entry: Mapping[str, Any]) -> NocapsImage:
    return NocapsImage(image.image, image.domain, image.captions, str(entry.get("file_name") or ""))


def _check_domain(domain: str, path: Path, row: str) -> None:
    check_choice("domain", domain, DOMAINS, DataError, path=path, row=row)
