"""Which images to read, and how: folders, lists, COCO's JSON; decoding to RGB."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import DataError, MissingFileError
from capbench.records import image_id

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ENDINGS", "ImageFile", "decode", "find_images", "images_in", "read_picture", "unique"]

P = TypeVar("P")

ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
"""File names that count as images in a folder."""


@dataclass(frozen=True)
class ImageFile:
    """An image to read.

    Attributes:
        image: the id that its features are stored under.
        path: its file.
    """

    image: str
    path: Path


def images_in(folder: Path) -> list[ImageFile]:
    """All images below a folder, hidden ones left out, in the order of their paths; ids are file names without ending.

    Raises:
        DataError: there are none.
    """
    paths = [
        Path(base, name)
        for base, folders, names in os.walk(folder, followlinks=True)
        if not _hide(folders)
        for name in names
        if name.lower().endswith(ENDINGS) and not name.startswith(".")
    ]
    if not paths:
        raise DataError(f"holds no images ({', '.join(ENDINGS)})", path=folder)
    return [ImageFile(image_id(path.name), path) for path in sorted(paths)]


def _hide(folders: list[str]) -> bool:
    folders[:] = [name for name in folders if not name.startswith(".")]
    return False


def find_images(sources: Sequence[str | os.PathLike[str]], image_root: Path | None = None) -> list[ImageFile]:
    """The images that a user names.

    Args:
        sources: folders, image files, ``.json`` files with COCO's ``images``, or text files with one path a line
            (``path``, or ``id`` TAB ``path``).
        image_root: where relative paths and COCO's file names begin; default: the folder of the list.

    Raises:
        DataError: a list is not as it should be, names a file that is not there, or one id is given two files.
        MissingFileError: a source is not there.
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
    """Each image once, in order. Raises DataError if two files would have the same id."""
    by_id: dict[str, ImageFile] = {}
    for entry in images:
        first = by_id.setdefault(entry.image, entry)
        if first.path != entry.path and files.real_path(first.path) != files.real_path(entry.path):
            raise DataError(
                f"has the image id '{entry.image}', and so has {first.path}",
                path=entry.path,
                hint="Rename one, or extract them into two stores",
            )
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
        raise DataError("names no images", path=path, hint="Give one path a line")
    return images


def _coco(path: Path, root: Path) -> list[ImageFile]:
    data = files.read_json(path)
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(
            "holds no list 'images'", path=path, hint="Give COCO's JSON, or a text file with one path a line"
        )
    images = []
    for number, entry in enumerate(entries, start=1):
        name = entry.get("file_name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            raise DataError("lacks 'file_name'", path=path, row=f"image {number}")
        file = _existing(root / name, path, f"image {number}")
        images.append(ImageFile(image_id(name), file))
    return images


def _existing(file: Path, source: Path, row: int | str) -> Path:
    if not file.is_file():
        raise MissingFileError(
            f"there is no image file {file}", path=source, row=row, hint="Say where the images are with --image-root"
        )
    return file


def decode(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """An image as people see it: uint8 (height, width, 3) RGB, turned as its EXIF orientation says.

    Raises:
        DataError: as :func:`read_picture`, or of more than 8 bits.
    """

    def as_seen(image: Image.Image) -> NDArray[np.uint8]:
        from PIL import ImageOps

        if image.mode.startswith(("I", "F")):
            raise DataError(f"has pixels of mode {image.mode}, not of 8 bits", path=path, hint="Convert it")
        ImageOps.exif_transpose(image, in_place=True)
        return np.array(image if image.mode == "RGB" else image.convert("RGB"), dtype=np.uint8)

    return read_picture(path, as_seen)


def read_picture(path: str | os.PathLike[str], take: Callable[[Image.Image], P]) -> P:
    """What is made of a picture as Pillow opens it, not turned.

    Args:
        path: the file.
        take: makes it, while the file is open.

    Raises:
        DataError: it is no image, is damaged or cut off, or of more than 179 million pixels.
        MissingFileError: there is no such file.
    """
    from PIL import Image, UnidentifiedImageError

    files.check_readable(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd EXIF and palettes, which change no pixel
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return take(image)
    except DataError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError("there is no such file", path=path) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError("has too many pixels to be read safely", path=path, hint="Make it smaller") from error
    except UnidentifiedImageError as error:
        reason = "it is empty" if Path(path).stat().st_size == 0 else "it is no image of a known format"
        raise DataError(f"cannot be decoded ({reason})", path=path) from error
    except Exception as error:  # damaged files fail in any of the ways that their decoders can
        reason = " ".join(str(error).split()).replace(os.fspath(path), "it")[:150]
        raise DataError(f"cannot be decoded ({reason or type(error).__name__})", path=path) from error
