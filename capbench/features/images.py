"""Image files: found in folders, lists and COCO's JSON, and decoded to RGB."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import image_id

if TYPE_CHECKING:
    from PIL import Image

P = TypeVar("P")

ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
"""File names that count as images in a folder."""


@dataclass(frozen=True)
class ImageFile:
    """An image to read."""

    image: str  # the id that its features are stored under
    path: Path  # its file


def images_in(folder: Path) -> list[ImageFile]:
    """All images below a folder, without hidden ones, sorted by path; ids are file names without suffix."""
    paths: list[Path] = []
    for base, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]  # os.walk skips the others
        paths += [Path(base, name) for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")]
    if not paths:
        raise DataError(f"contains no images ({', '.join(ENDINGS)})", code="missing-image", path=folder)
    return [ImageFile(image_id(path.name), path) for path in sorted(paths)]


def find_images(sources: Sequence[str | os.PathLike[str]], image_root: Path | None = None) -> list[ImageFile]:
    """The images of folders, lists and single files.

    ``sources``: folders, image files, ``.json`` files with COCO's ``images``, or text files with one path per line
    (``path``, or ``id`` TAB ``path``); ``image_root``: the folder of relative paths and COCO's file names; None for the
    folder of the list.
    """
    images: list[ImageFile] = []
    for source in sources:
        path = Path(source)
        if path.is_dir():
            images += images_in(path)
        elif not path.exists():
            raise MissingFileError("there is no such file or folder", path=path)
        elif path.name.lower().endswith(ENDINGS):
            images.append(ImageFile(image_id(path.name), path))
        elif path.suffix.lower() == ".json":
            images += _coco(path, image_root or path.parent)
        else:
            images += _listed(path, image_root or path.parent)
    return unique(images)


def unique(images: Iterable[ImageFile]) -> list[ImageFile]:
    """Each image once, in order. Raises DataError if two files have the same id."""
    by_id: dict[str, ImageFile] = {}
    for entry in images:
        first = by_id.setdefault(entry.image, entry)
        if first.path != entry.path and first.path.resolve() != entry.path.resolve():
            message = f"has the same image id '{entry.image}' as {first.path}"
            hint = "Rename one, or extract them into two stores"
            raise DataError(message, code="duplicate", value=entry.image, path=entry.path, hint=hint)
    return list(by_id.values())


def _listed(path: Path, root: Path) -> list[ImageFile]:
    images = []
    for row, line in enumerate(files.read_lines(path), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, tab, place = text.rpartition("\t")
        file = _existing(root / place, path, row)
        images.append(ImageFile(name.strip() if tab else image_id(file.name), file))
    if not images:
        raise DataError("names no images", code="missing-image", path=path, hint="Write one path per line")
    return images


def _coco(path: Path, root: Path) -> list[ImageFile]:
    data = files.read_json(path)
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        hint = "Pass COCO's JSON, or a text file with one path per line"
        raise DataError("has no list 'images'", code="missing-key", value="images", path=path, hint=hint)
    images = []
    for number, entry in enumerate(entries, start=1):
        name = entry.get("file_name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            row = f"image {number}"
            raise DataError("has no 'file_name'", code="missing-key", value="file_name", path=path, row=row)
        file = _existing(root / name, path, f"image {number}")
        images.append(ImageFile(image_id(name), file))
    return images


def _existing(file: Path, source: Path, row: int | str) -> Path:
    if not file.is_file():
        hint = "Name the folder of the images with --image-root"
        raise MissingFileError(f"there is no image file {file}", value=str(file), path=source, row=row, hint=hint)
    return file


def decode(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """An image as uint8 (height, width, 3) RGB, rotated by its EXIF orientation."""

    def pixels(image: Image.Image) -> NDArray[np.uint8]:
        from PIL import ImageOps

        if image.mode.startswith(("I", "F")):
            message, hint = f"has pixels of mode {image.mode}, not of 8 bits", "Convert the image to 8 bits"
            raise DataError(message, code="unsupported", value=image.mode, path=path, hint=hint)
        ImageOps.exif_transpose(image, in_place=True)
        return np.array(image if image.mode == "RGB" else image.convert("RGB"), dtype=np.uint8)

    return read_picture(path, pixels)


def read_picture(path: str | os.PathLike[str], take: Callable[[Image.Image], P]) -> P:
    """The result of ``take`` on a picture that Pillow opened, whose EXIF orientation is not applied."""
    from PIL import Image, UnidentifiedImageError

    files.check_readable(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about unusual EXIF and palettes, which change no pixel
            with Image.open(path) as image:
                return take(image)
    except DataError:
        raise
    except Image.DecompressionBombError as error:
        message = "has too many pixels to be read safely"
        raise DataError(message, code="too-large", path=path, hint="Reduce its size") from error
    except UnidentifiedImageError as error:
        reason = "it is empty" if Path(path).stat().st_size == 0 else "it is not an image of a known format"
        raise DataError(f"cannot be decoded ({reason})", code="wrong-format", path=path) from error
    except Exception as error:  # decoders of damaged files raise exceptions of many types
        reason = " ".join(str(error).split()).replace(os.fspath(path), "it")[:150]
        raise DataError(f"cannot be decoded ({reason or type(error).__name__})", code="damaged", path=path) from error
