"""Images: found in folders, lists and COCO's JSON, decoded to RGB, and shown with their regions as PNG or HTML."""

from __future__ import annotations

import base64
import html
import io
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, FeatureError, MissingFileError, UsageError
from capbench.core.records import image_id
from capbench.features.layout import Header
from capbench.features.records import RegionFeatures

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageDraw import ImageDraw

__all__ = ["ENDINGS", "ImageFile", "Shown", "decode", "draw", "find_images", "images_in", "read_picture", "unique"]


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


# An image with its regions drawn on it, as a PNG or a page of HTML.

# Okabe and Ito's colours, which people of all kinds of colour vision tell apart.
_COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")
_SMALLEST_PX = 640


@dataclass(frozen=True)
class Shown:
    """One drawn region.

    Attributes:
        region: its index in the store.
        box: x1, y1, x2, y2 in pixels of the image that was drawn on.
        label: class, with the attribute before it where there is one; ``""`` if the store has neither.
        confidence: of the class, None if the store has none.
    """

    region: int
    box: tuple[float, float, float, float]
    label: str
    confidence: float | None

    def caption(self) -> str:
        """What stands at the box."""
        score = "" if self.confidence is None else f" {self.confidence:.2f}"
        return f"{self.label}{score}".strip() or str(self.region)

    def line(self) -> str:
        """One line for the terminal."""
        return f"{self.region:>3}  {self.caption():<30}  {', '.join(f'{value:.0f}' for value in self.box)}"


def top_regions(regions: RegionFeatures, header: Header, width: int, height: int, top: int) -> list[Shown]:
    """The most confident regions (the first where there are no confidences), in pixels of a picture of this size.

    Raises:
        FeatureError: the store has no boxes.
    """
    if regions.boxes is None:
        raise FeatureError(f"image '{regions.image}' has features but no boxes to draw")
    scale = np.array([width / regions.width, height / regions.height] * 2, dtype=np.float64)
    scores = regions.class_scores
    order = np.arange(len(regions)) if scores is None else np.argsort(-scores, kind="stable")
    shown = []
    for i in order[:top].tolist():
        box = tuple(float(x) for x in regions.boxes[i] * scale)
        confidence = None if scores is None else float(scores[i])
        shown.append(Shown(i, box, _label(regions, header, i), confidence))  # type: ignore[arg-type]
    return shown


def _label(regions: RegionFeatures, header: Header, i: int) -> str:
    words = []
    for ids, names in (
        (regions.attribute_ids, header.attribute_names),
        (regions.class_ids, header.class_names),
    ):
        if ids is not None:
            number = int(ids[i])
            words.append(names[number] if names is not None and number < len(names) else f"#{number}")
    return " ".join(words)


def draw(image: NDArray[np.uint8], regions: RegionFeatures, header: Header, path: Path, top: int) -> list[Shown]:
    """Draw boxes, labels and confidences and write a PNG or, if the file's name ends so, a page of HTML.

    Args:
        image: uint8 (h, w, 3) RGB.
        regions: of that image.
        header: of the store, for names.
        path: the file.
        top: how many boxes.

    Raises:
        FeatureError: the store has no boxes.
        UsageError: the file's name ends in neither ``.png`` nor ``.html``, or it cannot be written.
    """
    ending = path.suffix.lower()
    if ending not in (".png", ".html"):
        raise UsageError("ends neither in .png nor in .html", path=path, hint="Name such a file")
    shown = top_regions(regions, header, image.shape[1], image.shape[0], top)
    data = _png(image, shown) if ending == ".png" else _page(image, regions, header, shown).encode()
    with files.atomic_write(path, "wb") as stream:
        stream.write(data)
    return shown


def _png(image: NDArray[np.uint8], shown: list[Shown]) -> bytes:
    """The picture with boxes on it; small pictures are enlarged."""
    from PIL import Image, ImageDraw, ImageFont

    factor = _factor(image)
    height, width = image.shape[0] * factor, image.shape[1] * factor
    picture = Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default()
    for rank, drawn in reversed(list(enumerate(shown))):  # the most confident on top
        colour = _COLOURS[rank % len(_COLOURS)]
        box = [value * factor for value in drawn.box]
        pen.rectangle(box, outline=colour, width=3)
        _write_label(pen, font, drawn.caption(), (box[0], box[1]), colour, width, height)
    return _encoded(picture)


def _factor(image: NDArray[np.uint8]) -> int:
    return max(1, round(_SMALLEST_PX / int(max(image.shape[:2]))))


def _encoded(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def _write_label(
    pen: ImageDraw, font: object, text: str, corner: tuple[float, float], colour: str, width: int, height: int
) -> None:
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)  # type: ignore[arg-type]
    wide, high = right - left + 6, bottom - top + 6
    x = min(max(corner[0], 0), max(width - wide, 0))
    y = min(max(corner[1] - high, 0), max(height - high, 0))
    pen.rectangle([x, y, x + wide, y + high], fill=colour)
    pen.text((x + 3 - left, y + 3 - top), text, fill="black", font=font)  # type: ignore[arg-type]


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #222; }
figure { margin: 0; position: relative; display: inline-block; max-width: 100%; }
figure img { display: block; max-width: 100%; height: auto; image-rendering: pixelated; }
figure svg { position: absolute; inset: 0; width: 100%; height: 100%; }
rect { fill: transparent; stroke-width: 2px; vector-effect: non-scaling-stroke; }
figure text { pointer-events: none; fill: #000; stroke: #fff; stroke-width: .25em; paint-order: stroke; }
rect:hover, rect.lit { fill: currentColor; fill-opacity: .25; stroke-width: 5px; }
table { border-collapse: collapse; margin-top: 1rem; }
th, td { padding: .15rem .7rem; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr:hover { background: #eee; }
.key { display: inline-block; width: 1em; height: 1em; vertical-align: -.15em; }
.note { color: #555; font-size: .9em; overflow-wrap: anywhere; }
"""
_SCRIPT = """
for (const row of document.querySelectorAll("tr[data-region]")) {
  const box = document.getElementById("region-" + row.dataset.region);
  row.addEventListener("mouseenter", () => box.classList.add("lit"));
  row.addEventListener("mouseleave", () => box.classList.remove("lit"));
}
"""


def _page(image: NDArray[np.uint8], regions: RegionFeatures, header: Header, shown: list[Shown]) -> str:
    """One file that needs no other: the picture, its boxes as SVG, and a table whose rows light their box up."""
    from PIL import Image

    height, width = image.shape[:2]
    picture = base64.b64encode(_encoded(Image.fromarray(image))).decode()
    name = html.escape(regions.image)
    boxes, rows = [], []
    size = max(width, height) / 45  # of the letters, in pixels of the picture
    for rank, drawn in enumerate(shown):
        colour = _COLOURS[rank % len(_COLOURS)]
        x1, y1, x2, y2 = drawn.box
        caption, label = html.escape(drawn.caption()), html.escape(drawn.label)
        place = f'id="region-{drawn.region}" x="{x1:.2f}" y="{y1:.2f}" width="{x2 - x1:.2f}" height="{y2 - y1:.2f}"'
        boxes.append(
            f'<rect {place} stroke="{colour}" color="{colour}"><title>{caption}</title></rect>'
            f'<text x="{x1:.2f}" y="{max(y1, size):.2f}" font-size="{size:.2f}">{caption}</text>'
        )
        score = "" if drawn.confidence is None else f"{drawn.confidence:.3f}"
        corners = "".join(f'<td class="number">{value:.1f}</td>' for value in drawn.box)
        rows.append(
            f'<tr data-region="{drawn.region}"><td><span class="key" style="background:{colour}"></span></td>'
            f'<td class="number">{drawn.region}</td><td>{label}</td><td class="number">{score}</td>{corners}</tr>'
        )
    heads = ("", "region", "label", "confidence", "x1", "y1", "x2", "y2")
    shown_width = width * _factor(image)
    lines = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Regions of {name}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Regions of {name}</h1>",
        f"<p>{len(shown)} of {len(regions)} regions, the most confident first; {width} x {height} pixels.</p>",
        f'<figure><img src="data:image/png;base64,{picture}" width="{shown_width}" alt="{name}">',
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">',
        *reversed(boxes),  # the most confident on top
        "</svg></figure>",
        "<table><thead><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr></thead><tbody>",
        *rows,
        "</tbody></table>",
        f'<p class="note">{html.escape(header.fingerprint.line())}</p>',
        f"<script>{_SCRIPT}</script></body></html>\n",
    ]
    return "\n".join(lines)
