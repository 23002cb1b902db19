"""Finds the image files of a data set by image id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.core import files
from capbench.core.coco_names import CocoNames, coco_number
from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import groups_of_images, image_id
from capbench.datasets.base import Dataset
from capbench.datasets.nocaps import Nocaps
from capbench.datasets.opening import GroupDataset, open_dataset
from capbench.datasets.root import DataRoot

if TYPE_CHECKING:
    from capbench.features.images import ImageFile


def all_images(root: DataRoot) -> list[ImageFile]:
    """All images below the data folder (``*/images``); those of nocaps have nocaps' numbers as ids."""
    from capbench.features.images import ImageFile, images_in, unique

    folders = sorted(path for path in root.path.glob("*/images") if path.is_dir() and any(path.iterdir()))
    if not folders:
        problem = "contains no images (*/images)"
        hint = "Add images (see 'capbench data info'), or give their folder with --images"
        raise MissingFileError(problem, code="missing-image", path=root.path, hint=hint)
    image_files: list[ImageFile] = []
    for folder in folders:
        images = images_in(folder)
        if folder.parent.name == "nocaps":
            numbers = {image_id(name): number for number, name in _nocaps_files(root).items()}
            images = [ImageFile(numbers.get(entry.image, entry.image), entry.path) for entry in images]
        image_files += images
    return unique(image_files)


def dataset_images(name: str, root: DataRoot, folder: Path | None = None) -> tuple[list[ImageFile], list[str]]:
    """Images of a data set under its default protocol, in the order of its items, and the ids of missing ones."""
    dataset = open_dataset(name, root)
    ids = dict.fromkeys(item.image for item in dataset.load(dataset.protocol().items)[0].items)
    paths = image_finder(root, folder, dataset)(ids)
    if not paths:
        places = [folder] if folder is not None else dataset.image_places()
        others = f", nor does {' or '.join(map(str, places[1:]))}" if places[1:] else ""
        problem = f"contains none of the {len(ids):,} images of {name}{others}"
        hint = "Add the images (see 'capbench data info'), or give their folder with --image-root"
        raise MissingFileError(problem, code="missing-image", path=places[0], hint=hint)
    from capbench.features.images import ImageFile

    missing = [image for image in ids if image not in paths]
    return [ImageFile(image, paths[image]) for image in ids if image in paths], missing


def image_groups(dataset: Dataset) -> Callable[[], Mapping[str, Sequence[str]]]:
    """A function that looks up all images of a data set under its default items, each with the groups of its items."""
    complete = dataset.complete if isinstance(dataset, GroupDataset) else dataset
    known: dict[str, list[str]] = {}

    def look_up() -> Mapping[str, Sequence[str]]:  # without a cache's wrapper, which workers cannot receive
        if not known:
            draws = complete.load(complete.selections[complete.default[0]])
            known.update(groups_of_images(item for draw in draws for item in draw.items))
        return known

    return look_up


def image_finder(
    root: DataRoot, folder: Path | None = None, dataset: Dataset | None = None
) -> Callable[[Iterable[str]], dict[str, Path]]:
    """A function from image ids to existing image files by id.

    ``folder``: that of the images, default: those of ``dataset``, or without one every ``*/images`` of the data folder.
    """
    # The function may be sent to other processes, so it refers to folders and not to the data set.
    complete = dataset.complete if isinstance(dataset, GroupDataset) else dataset
    numbered = folder is not None or isinstance(complete, Nocaps)
    places = None if dataset is None else dataset.image_places()

    def find(images: Iterable[str]) -> dict[str, Path]:
        from capbench.features.images import images_in, unique

        wanted = dict.fromkeys(images)
        renamed = {number: image_id(name) for number, name in _nocaps_files(root).items()} if numbered else {}
        if folder is not None:
            ids, numbers = {*wanted, *renamed.values()}, {coco_number(image) for image in wanted} - {None}
            present = (e for e in images_in(folder) if e.image in ids or coco_number(e.image) in numbers)
            by_name = {entry.image: entry.path for entry in unique(present)}
        elif places is not None:
            by_name = {entry.image: entry.path for place in reversed(places) for entry in _images_below(place)}
        else:
            below = [entry for place in sorted(root.path.glob("*/images")) for entry in _images_below(place)]
            by_name = {entry.image: entry.path for entry in below}
            _check_same(entry for entry in below if entry.image in wanted)
        coco = CocoNames(by_name)
        named = {image: (image, renamed.get(image, "")) for image in wanted}
        found = {image: next((name for name in names if name in by_name), None) for image, names in named.items()}
        found = {image: name or coco.find(image) for image, name in found.items()}
        return {image: by_name[name] for image, name in found.items() if name is not None}

    return find


def _images_below(folder: Path) -> list[ImageFile]:
    from capbench.features.images import images_in

    return images_in(folder) if folder.is_dir() and any(folder.iterdir()) else []


def _check_same(found: Iterable[ImageFile]) -> None:
    """Raise DataError if two different images have the same id."""
    first: dict[str, Path] = {}
    for entry in found:
        other = first.setdefault(entry.image, entry.path)
        if other != entry.path and files.sha256_file(other) != files.sha256_file(entry.path):
            problem = f"has the image id '{entry.image}', as has a different image, {other}"
            hint = "Give the folder of the images with --image-root"
            raise DataError(problem, code="duplicate", value=entry.image, path=entry.path, hint=hint)


def _nocaps_files(root: DataRoot) -> dict[str, str]:
    """nocaps' number → file name; empty if the list of images does not exist."""
    path = root.path / "nocaps" / "nocaps_val_image_info.json"
    if not path.is_file():
        return {}
    data = files.read_json(path)
    try:
        return {str(entry["id"]): str(entry["file_name"]) for entry in data["images"]}
    except (TypeError, KeyError) as error:
        problem, hint = "does not list 'images' with an 'id' and a 'file_name' each", "Download the file again"
        raise DataError(problem, code="missing-key", path=path, hint=hint) from error
