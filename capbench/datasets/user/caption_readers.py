"""Readers of caption corpora and of users' references: one for each published format.

All return :class:`Captions`. They reject empty captions, repeated keys and images without captions, with the row or
entry. Published captions are only stripped; in those of users, line breaks and tabs become spaces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from capbench.core import files
from capbench.core.coco_names import CocoNames
from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import image_id
from capbench.datasets.judgement_files import PathLike, file_error, parse_caption, parse_image, split_caption_id

FLICKR8K_TOKEN, FLICKR8K_LIST = "Flickr8k.token.txt", "Flickr_8k.{}Images.txt"


class Captions(dict[str, tuple[str, ...]]):
    """Image id → captions in published order."""

    def __init__(
        self,
        captions: Mapping[str, Sequence[str]],
        source: PathLike,
        groups: Mapping[str, str] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__({image: tuple(texts) for image, texts in captions.items()})
        self.source = Path(source)  # the file or folder
        # image id → split or domain, if the format has any
        self.groups = dict(groups or {})
        # other name of an image → image id, if the format has any
        self.names = dict(names or {})

    def of_groups(self, *groups: str) -> Captions:
        """The captions of images in some splits or domains."""
        captions = {image: texts for image, texts in self.items() if self.groups.get(image) in groups}
        return Captions(captions, self.source, {image: self.groups[image] for image in captions}, self.names)

    def find(self, name: str, path: PathLike | None = None, row: str | int | None = None) -> str | None:
        """The id of an image with captions, by one of its names, which stands in a row of a file."""
        image = name if name in self else self.names.get(name) or self._coco.find(name, path, row)
        return image if image is not None and self.get(image) else None

    @cached_property
    def _coco(self) -> CocoNames:
        return CocoNames(self)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that identify images and captions, independent of the file format (for signatures)."""
        digest = hashlib.blake2b(digest_size=8)
        for image in sorted(self):
            digest.update("\x1f".join((image, *sorted(self[image]))).encode() + b"\n")
        return digest.hexdigest()


class _Collected:
    """The captions of a file while it is read."""

    def __init__(self, path: PathLike, *, user: bool = False) -> None:
        self.path, self.user = path, user
        self.captions: dict[str, list[str]] = {}
        self.groups: dict[str, str] = {}
        self.names: dict[str, str] = {}

    def bad(self, code: str, message: str, row: str | int | None = None, value: object = None) -> DataError:
        """The error of an entry."""
        hint = "Correct or remove it" if self.user else "Download the file again, or correct it"
        return DataError(message, code=code, value=value, path=self.path, row=row, hint=hint)

    def image(self, name: object, row: str | int) -> str:
        """The id of a new image."""
        image = parse_image(named(name), "image's name", path=self.path, row=row)
        if image in self.captions:
            raise self.bad("duplicate", f"image {image} already occurs above", row, image)
        self.captions[image] = []
        return image

    def add(self, image: str, texts: object, row: str | int) -> None:
        """Add captions to an image."""
        if not isinstance(texts, list | tuple):
            raise self.bad("wrong-type", "is not a list of captions", row)
        if not texts:
            raise self.bad("missing-caption", f"image {image} has no caption", row)
        for number, text in enumerate(texts, 1):
            text = text["caption"] if isinstance(text, dict) and "caption" in text else text  # as pycocoevalcap has it
            caption = parse_caption(text, f"caption {number}", path=self.path, row=row, user=self.user)
            self.captions[image].append(caption)

    def done(self) -> Captions:
        """The captions. A user's image without any is an error only if a candidate needs it."""
        for image, texts in self.captions.items():
            if not texts and not self.user:
                raise self.bad("missing-caption", f"image {image} has no caption", value=image)
        return Captions(self.captions, self.path, self.groups, self.names)


def named(name: object) -> object:
    """A number as text."""
    return str(name) if isinstance(name, int) and not isinstance(name, bool) else name


def read_captions_file(path: PathLike) -> Captions:
    """Read captions in any of the supported formats, which is recognised by the content."""
    path = Path(path)
    if path.is_dir():
        if (path / FLICKR8K_TOKEN).is_file():
            return read_flickr8k(path)
        nested = path / "multi30k_task2"
        return read_multi30k(nested if nested.is_dir() else path)
    text = files.read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        return parse_captions(files.parse_json(text, path, unique_keys=True), path)
    return read_token(path, text)


def parse_captions(data: Any, path: PathLike, *, user: bool = False) -> Captions:
    """Captions of parsed JSON: Karpathy's, COCO annotations, nocaps' corpus, or lists of captions by image."""
    made = _Collected(path, user=user)
    images = data.get("images") if isinstance(data, dict) else None
    if isinstance(data, list) and data and isinstance(data[0], dict) and "split" in data[0]:
        for number, entry in enumerate(data, 1):
            image = made.image(_field(made, entry, "image_id", str, row := f"entry {number}"), row)
            made.add(image, entry.get("caption"), row)
            made.groups[image] = _field(made, entry, "split", str, row).replace("_", "-")
    elif isinstance(data, dict) and isinstance(data.get("annotations"), list):
        _coco_annotations(made, data)
    elif isinstance(images, list) and images and isinstance(images[0], dict) and "sentences" in images[0]:
        for number, entry in enumerate(images, 1):
            image = made.image(_field(made, entry, "filename", str, row := f"image {number}"), row)
            sentences = _field(made, entry, "sentences", list, row)
            made.add(image, [_field(made, sentence, "raw", str, row) for sentence in sentences], row)
            made.groups[image] = _field(made, entry, "split", str, row)
    elif isinstance(data, dict) and data and (user or all(isinstance(value, list) for value in data.values())):
        for name, texts in data.items():
            image = made.image(name, row := f"image '{name}'")
            last = texts[-1] if isinstance(texts, list) and texts else None
            # Some copies of Karpathy's splits end every list with the path of the image.
            is_path = isinstance(last, str) and last.strip() != image_id(last.strip()) == image
            texts = [texts] if user and isinstance(texts, dict) else texts
            made.add(image, texts[:-1] if is_path else texts, row)
    else:
        raise made.bad("wrong-format", "is not a caption file in a supported format")
    return made.done()


def _coco_annotations(made: _Collected, data: dict[str, Any]) -> None:
    """COCO annotations: ids of images are those of their file names, or else numbers; a ``domain`` is a group."""
    images: dict[Any, str] = {}
    listed = data.get("images", [])
    if not isinstance(listed, list) or not (listed or made.user):
        raise made.bad("missing-key", "contains no list 'images'", value="images")
    for number, entry in enumerate(listed, 1):
        row = f"image {number}"
        key = _field(made, entry, "id", int | str, row)
        if key in images:
            raise made.bad("duplicate", f"the image id {key} occurs twice", row, key)
        name = entry.get("file_name", key if made.user else None)
        images[key] = image = made.image(name, row)
        made.names[str(key)] = image
        if "domain" in entry:
            made.groups[image] = _field(made, entry, "domain", str, row)
    for number, entry in enumerate(data["annotations"], 1):
        row = f"annotation {number}"
        key = _field(made, entry, "image_id", int | str, row)
        if listed and key not in images:
            raise made.bad("unknown-item", f"its image {key} is not among the images", row, key)
        if key not in images:
            images[key] = made.image(key, row)
        made.add(images[key], [entry.get("caption")], row)
    if not data["annotations"] and not made.user:
        raise made.bad("missing-key", "contains no list 'annotations'", value="annotations")


def _field(made: _Collected, entry: Any, key: str, kind: Any, row: str) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        code = "missing-key" if value is None else "wrong-type"
        raise made.bad(code, f"'{key}' is missing or of the wrong type", row, key)
    return value


def read_token(path: PathLike, text: str | None = None) -> Captions:
    """Read a ``.token`` file of Flickr8k or Flickr30k: ``image.jpg#n``, a tab, the caption; ``text``: its content."""
    made, numbered = _Collected(path), dict[str, dict[int, str]]()
    for row, line in enumerate(files.split_lines(files.read_text(path) if text is None else text, path), 1):
        if not line.strip():
            continue
        caption_id, tab, text = line.partition("\t")
        if not tab:
            raise made.bad("wrong-format", "is not an image's file name, '#', a number, a tab and a caption", row)
        named = split_caption_id(caption_id)
        if named is None:
            value = caption_id[:80]
            raise made.bad("wrong-value", f"'{value}' is not an image's file name, '#' and a number", row, value)
        name, number = named
        of_image = numbered.setdefault(parse_image(name, "image's name", path=path, row=row), {})
        if number in of_image:
            raise made.bad("duplicate", f"caption {number} of {name} already occurs above", row, number)
        of_image[number] = parse_caption(text, "caption", path=path, row=row)
    for image, texts in numbered.items():
        missing = next((number for number in range(len(texts)) if number not in texts), None)
        if missing is not None:
            raise made.bad("missing-caption", f"image {image} has no caption {missing} before others", value=missing)
        made.captions[image] = [texts[number] for number in range(len(texts))]
    return made.done()


def read_multi30k(folder: PathLike) -> Captions:
    """Read Multi30k's task 2: ``raw/{split}.{1..5}.en`` (plain or ``.gz``) and ``image_splits/{split}_images.txt``.

    Line n of every caption file belongs to line n of the split's list. All splits with a list are read.
    """
    root = Path(folder)
    lists = sorted((root / "image_splits").glob("*_images.txt"))
    if not lists:
        path, hint = root / "image_splits" / "train_images.txt", "Keep the folders image_splits and raw together"
        raise MissingFileError("there is no list of images", path=path, hint=hint)
    made = _Collected(root)
    for split_list in lists:
        split = split_list.name.removesuffix("_images.txt")
        made.path = split_list
        images = [made.image(name, row) for row, name in enumerate(files.read_lines(split_list), 1)]
        made.groups |= dict.fromkeys(images, split)
        for number in range(1, 6):
            path = root / "raw" / f"{split}.{number}.en"
            packed = path.with_name(f"{path.name}.gz")
            path = packed if packed.is_file() and not path.is_file() else path
            texts = files.read_lines(path)
            if len(texts) != len(images):
                problem = f"has {len(texts)} lines, but {split_list.name} lists {len(images)} images"
                raise file_error(problem, "mismatch", path, value=len(texts))
            for row, (image, text) in enumerate(zip(images, texts, strict=True), 1):
                made.captions[image].append(parse_caption(text, "caption", path=path, row=row))
    made.path = root
    return made.done()


def read_flickr8k(folder: Path) -> Captions:
    """Read Flickr8k's folder: ``Flickr8k.token.txt``, and the splits of ``Flickr_8k.{train,dev,test}Images.txt``."""
    captions = read_token(folder / FLICKR8K_TOKEN)
    for split in ("train", "dev", "test"):
        path = folder / FLICKR8K_LIST.format(split)
        for image, row in split_list(path, captions).items() if path.is_file() else ():
            if captions.groups.setdefault(image, split) != split:
                problem = f"image '{image}' is also in the list of {captions.groups[image]}"
                raise DataError(problem, code="duplicate", value=image, path=path, row=row)
    captions.source = folder
    return captions


def split_list(path: Path, captions: Captions) -> dict[str, int]:
    """Image id → row of a list of file names. Raises DataError if an image occurs twice or has no captions."""
    rows = image_rows(path)
    for image, row in rows.items():
        if image not in captions:
            problem = f"image '{image}' has no captions in {captions.source.name}"
            hint = "Get both files from the same release"
            raise DataError(problem, code="unknown-item", value=image, path=path, row=row, hint=hint)
    return rows


def image_rows(path: Path) -> dict[str, int]:
    """Image id → row of a list of file names. Raises DataError if an image occurs twice."""
    rows: dict[str, int] = {}
    for row, line in enumerate(stripped_lines(path), 1):
        image = parse_image(line, "image's name", path=path, row=row)
        if rows.setdefault(image, row) != row:
            problem = f"the image {image} is already in row {rows[image]}"
            raise DataError(problem, code="duplicate", value=image, path=path, row=row, hint="Get the list again")
    return rows


def stripped_lines(path: Path) -> list[str]:
    """The lines of a file, stripped, without empty ones at the end."""
    return [line.strip() for line in files.read_text(path).rstrip().split("\n")]


def captions_of_records(records: Iterable[tuple[int | str, Mapping[str, Any]]], path: PathLike) -> Captions:
    """A user's references in records of an image with a list of references, or with one of them."""
    made = _Collected(path, user=True)
    listed: set[str] = set()
    for row, record in records:
        image = record_image(record, path, row)
        key = next((k for k in ("references", "captions", "caption", "reference") if k in record), None)
        if key is None:
            raise made.bad("missing-key", "has no 'references' or 'caption'", row)
        if key.endswith("s") and image in listed:
            raise made.bad("duplicate", f"a second list of references for the image '{image}'", row, image)
        listed |= {image} if key.endswith("s") else set()
        made.captions.setdefault(image, [])
        made.add(image, record[key] if key.endswith("s") else [record[key]], row)
    return made.done()


def record_image(record: Mapping[str, Any], path: PathLike, row: int | str) -> str:
    """The id of the image of a record."""
    key = next((key for key in ("image", "image_id", "image_name") if key in record), None)
    if key is None:
        hint = "Add the image of the caption"
        raise DataError("has no 'image' or 'image_id'", code="missing-image", path=path, row=row, hint=hint)
    return parse_image(named(record[key]), "image", path=path, row=row)
