"""The image files of a data set, under the ids that its judgements use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from capbench import files
from capbench.datasets.groups import GroupDataset
from capbench.datasets.nocaps import Nocaps
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import DataRoot
from capbench.errors import DataError, MissingFileError
from capbench.features.images import ImageFile, images_in, unique
from capbench.records import image_id

__all__ = ["all_images", "dataset_images", "image_paths"]


def all_images(root: DataRoot) -> list[ImageFile]:
    """Every image below the data folder (``*/images``), nocaps' under its own numbers.

    Raises:
        MissingFileError: there are none.
        DataError: two files would have the same id.
    """
    folders = sorted(path for path in root.path.glob("*/images") if path.is_dir() and any(path.iterdir()))
    if not folders:
        raise MissingFileError(
            "there are no images below it (*/images)",
            path=root.path,
            hint="Put them there (see 'capbench data info'), or name them with --images",
        )
    image_files: list[ImageFile] = []
    for folder in folders:
        images = images_in(folder)
        if folder.parent.name == "nocaps":
            numbers = {image_id(name): number for number, name in _nocaps_files(root).items()}
            images = [ImageFile(numbers.get(entry.image, entry.image), entry.path) for entry in images]
        image_files += images
    return unique(image_files)


def dataset_images(name: str, root: DataRoot, folder: Path | None = None) -> tuple[list[ImageFile], list[str]]:
    """The images that a data set judges under its default protocol, in its order.

    Args:
        name: as for :func:`capbench.datasets.opening.open_dataset`.
        root: the data folder.
        folder: where the images are; default: all ``*/images`` below the data folder.

    Returns:
        The images that are there, and the ids of those that are not.

    Raises:
        MissingFileError: none of them is there.
        CapbenchError: as opening and loading the data set do.
    """
    dataset = open_dataset(name, root)
    whole = dataset.whole if isinstance(dataset, GroupDataset) else dataset
    judged = dict.fromkeys(item.image for item in dataset.load(dataset.protocol().items)[0].items)
    here = images_in(folder) if folder is not None else _below(root)
    by_name = {entry.image: entry.path for entry in here}
    renamed = {k: image_id(v) for k, v in _nocaps_files(root).items()} if isinstance(whole, Nocaps) else {}
    paths = {image: by_name.get(renamed.get(image, image)) for image in judged}
    image_files = [ImageFile(image, path) for image, path in paths.items() if path is not None]
    if not image_files:
        raise MissingFileError(
            f"none of the {len(judged):,} images of {name} is below it",
            path=folder or root.path,
            hint="Put them into the data set's folder 'images' (see 'capbench data info'), or give --image-root",
        )
    return image_files, [image for image, path in paths.items() if path is None]


def image_paths(images: Iterable[str], root: DataRoot, folder: Path | None = None) -> dict[str, Path]:
    """The files of images as far as they are there, by image id.

    Args:
        images: ids.
        root: the data folder.
        folder: where the images are; default: all ``*/images`` below the data folder.

    Raises:
        DataError: nocaps' list of images is damaged, or the folder holds no images or two of one id.
    """
    renamed = {number: image_id(name) for number, name in _nocaps_files(root).items()}
    here = _below(root) if folder is None else unique(images_in(folder))
    by_name = {entry.image: entry.path for entry in here}
    named = {image: by_name.get(image, by_name.get(renamed.get(image, ""))) for image in images}
    return {image: path for image, path in named.items() if path is not None}


def _below(root: DataRoot) -> list[ImageFile]:
    image_files: list[ImageFile] = []
    for folder in sorted(root.path.glob("*/images")):
        if folder.is_dir() and any(folder.iterdir()):
            image_files += images_in(folder)
    return image_files


def _nocaps_files(root: DataRoot) -> dict[str, str]:
    """nocaps' number → file name, as far as its files are here and tell."""
    path = root.path / "nocaps" / "nocaps_val_image_info.json"
    if not path.is_file():
        return {}
    data = files.read_json(path)
    entries = data.get("images") if isinstance(data, dict) else None
    try:
        return {str(entry["id"]): str(entry["file_name"]) for entry in entries or ()}
    except (TypeError, KeyError) as error:
        raise DataError("has an image without 'id' and 'file_name'", path=path, hint="Get the file again") from error
