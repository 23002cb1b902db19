"""Readers of caption corpora, one per published format, and checks of the fields of user caption files.

All readers return :class:`Captions`; only the white space around captions is removed. They reject empty captions,
repeated keys and images without captions, with the row or entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from capbench.core import files
from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import image_id
from capbench.datasets.judgement_files import PathLike, column_error, file_error, parse_caption, split_caption_id
from capbench.datasets.tables import plain_text


class Captions(Mapping[str, tuple[str, ...]]):
    """Image id → captions in published order; immutable.

    Attributes:
        source: the file or folder.
        file_names: image id → file name, if the format has file names.
        groups: image id → split or domain, if the format has any.
    """

    def __init__(
        self,
        captions: Mapping[str, Sequence[str]],
        source: PathLike,
        file_names: Mapping[str, str] | None = None,
        groups: Mapping[str, str] | None = None,
    ) -> None:
        self._captions = {image: tuple(texts) for image, texts in captions.items()}
        self.source = Path(source)
        self.file_names: Mapping[str, str] = MappingProxyType(dict(file_names or {}))
        self.groups: Mapping[str, str] = MappingProxyType(dict(groups or {}))

    def __getitem__(self, image: str) -> tuple[str, ...]:
        return self._captions[image]

    def __iter__(self) -> Iterator[str]:
        return iter(self._captions)

    def __len__(self) -> int:
        return len(self._captions)

    def __repr__(self) -> str:
        return f"Captions({len(self)} images from {self.source})"

    def of_groups(self, *groups: str) -> Captions:
        """The captions of images in some splits or domains."""
        captions = {image: texts for image, texts in self.items() if self.groups.get(image) in groups}
        names = {image: self.file_names[image] for image in captions if image in self.file_names}
        return Captions(captions, self.source, names, {image: self.groups[image] for image in captions})

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that identify images and captions, independent of the file format (for signatures)."""
        digest = hashlib.blake2b(digest_size=8)
        for image in sorted(self):
            digest.update("\x1f".join((image, *sorted(self[image]))).encode() + b"\n")
        return digest.hexdigest()


def read_token(path: PathLike) -> Captions:
    """Read a ``.token`` file of Flickr8k or Flickr30k: ``image.jpg#n``, a tab, the caption.

    Raises:
        DataError: a row has no tab, a caption id has no number, a caption is empty, or the numbers of an image have
            repetitions or gaps.
    """
    numbered_by_image: dict[str, dict[int, str]] = {}
    names: dict[str, str] = {}
    lines = files.read_lines(path)
    while not lines[-1].strip():
        lines.pop()
    for row, line in enumerate(lines, 1):
        caption_id, tab, text = line.partition("\t")
        if not tab:
            raise column_error(path, row, line, ["caption id", "caption"], "\t")
        name, number = split_caption_id(caption_id, path=path, row=row)
        image = image_id(name)
        of_image = numbered_by_image.setdefault(image, {})
        if number in of_image:
            same = "the same text" if of_image[number] == text.strip() else "another text"
            raise DataError(
                f"caption {number} of {name} already occurs above, with {same}",
                code="duplicate",
                value=number,
                path=path,
                row=row,
                hint="Keep one of the two",
            )
        of_image[number] = parse_caption(text, "caption", path=path, row=row)
        names[image] = name
    for image, numbered in numbered_by_image.items():
        if max(numbered) != len(numbered) - 1:
            missing = next(n for n in range(max(numbered)) if n not in numbered)
            raise DataError(
                f"image {names[image]} has a caption {max(numbered)} but no caption {missing}",
                code="missing-caption",
                value=missing,
                path=path,
                hint="An image's captions must be numbered from 0 without gaps: download the file again",
            )
    ordered = {image: [numbered[n] for n in range(len(numbered))] for image, numbered in numbered_by_image.items()}
    return Captions(ordered, path, names)


def read_multi30k(folder: PathLike) -> Captions:
    """Read Multi30k's task 2: ``raw/{split}.{1..5}.en`` (plain or ``.gz``) and ``image_splits/{split}_images.txt``.

    Line n of every caption file belongs to line n of the split's list. All splits with a list are read.

    Raises:
        MissingFileError: there is no list, or a caption file of a split is missing.
        DataError: line counts differ, a caption is empty, an image occurs twice, or a ``.gz`` is damaged.
    """
    root = Path(folder)
    lists = sorted((root / "image_splits").glob("*_images.txt"))
    if not lists:
        raise MissingFileError(
            "there is no list of images",
            path=root / "image_splits" / "train_images.txt",
            hint="Keep the folders image_splits and raw together",
        )
    captions: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    groups: dict[str, str] = {}
    for split_list in lists:
        split = split_list.name.removesuffix("_images.txt")
        listed = [name.strip() for name in files.read_lines(split_list)]
        for row, name in enumerate(listed, 1):
            image = image_id(name)
            if not name:
                raise file_error("the row is empty", "missing-value", split_list, row)
            if image in captions:
                raise file_error(f"image {name} is listed twice", "duplicate", split_list, row, value=name)
            captions[image], names[image], groups[image] = [], name, split
        for number in range(1, 6):
            path = _plain_or_gz(root / "raw" / f"{split}.{number}.en")
            texts = _lines_of(path)
            if len(texts) != len(listed):
                raise DataError(
                    f"has {len(texts)} lines, but {split_list.name} lists {len(listed)} images",
                    code="mismatch",
                    value=len(texts),
                    path=path,
                    hint="Get both files again, from the same release",
                )
            for row, (name, text) in enumerate(zip(listed, texts, strict=True), 1):
                captions[image_id(name)].append(parse_caption(text, "caption", path=path, row=row))
    return Captions(captions, root, names, groups)


def _plain_or_gz(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    if path.is_file() or not packed.is_file():
        return path
    return packed


def _lines_of(path: Path) -> list[str]:
    if path.suffix != ".gz":
        return files.read_lines(path)
    data = files.unpack_gzip(path)
    try:
        return data.decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        raise file_error("is not UTF-8", "unreadable", path, row) from error


def read_karpathy(path: PathLike) -> Captions:
    """Read Karpathy's JSON (``dataset_{coco,flickr8k,flickr30k}.json``); groups are splits."""
    return parse_karpathy(files.read_json(path), path)


def parse_karpathy(data: Any, path: PathLike) -> Captions:
    """Like :func:`read_karpathy`, from parsed JSON."""
    captions: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    groups: dict[str, str] = {}
    for number, entry in enumerate(_list_field(data, "images", path), 1):
        row = f"image {number}"
        name = _field(entry, "filename", str, path, row)
        image = _new_image(name, captions, path, row)
        texts = [_field(s, "raw", str, path, row) for s in _field(entry, "sentences", list, path, row)]
        captions[image] = _captions(texts, path, row)
        names[image] = name
        groups[image] = _field(entry, "split", str, path, row)
    return Captions(captions, path, names, groups)


def read_split_captions(path: PathLike) -> Captions:
    """Read a split from one JSON object: file name → list of captions.

    Some copies end every list with the path of the image, which is dropped.
    """
    return parse_split_captions(files.read_json(path, unique_keys=True), path)


def parse_split_captions(data: Any, path: PathLike) -> Captions:
    """Like :func:`read_split_captions`, from parsed JSON."""
    if not isinstance(data, dict):
        raise file_error("is not a JSON object of file names and captions", "wrong-format", path)
    captions: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for name, value in data.items():
        row = f"entry '{name}'"
        image = _new_image(name, captions, path, row)
        if not isinstance(value, list):
            raise DataError(
                "is not a list of captions", code="wrong-type", path=path, row=row, hint="Give a list of strings"
            )
        last = value[-1] if value else None
        if isinstance(last, str) and last.strip() != image_id(last.strip()) == image:
            value = value[:-1]
        captions[image] = _captions(value, path, row)
        names[image] = name
    return Captions(captions, path, names)


def read_coco_annotations(path: PathLike) -> Captions:
    """Read COCO's annotation JSON (``captions_val2014.json``): ``images`` and ``annotations``, joined by image id.

    Ids are those of the images' file names (``COCO_val2014_000000000042``). The ``domain`` of images (nocaps) is their
    group.
    """
    return parse_coco_annotations(files.read_json(path), path)


def parse_coco_annotations(data: Any, path: PathLike) -> Captions:
    """Like :func:`read_coco_annotations`, from parsed JSON."""
    images: dict[Any, str] = {}
    captions: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    groups: dict[str, str] = {}
    for number, entry in enumerate(_list_field(data, "images", path), 1):
        row = f"image {number}"
        name = _field(entry, "file_name", str, path, row)
        image = _new_image(name, captions, path, row)
        number_id = _field(entry, "id", (int, str), path, row)
        if number_id in images:
            raise DataError(
                f"the image id {number_id} occurs twice",
                code="duplicate",
                value=number_id,
                path=path,
                row=row,
                hint="Keep one of the two",
            )
        images[number_id], captions[image], names[image] = image, [], name
        if "domain" in entry:
            groups[image] = _field(entry, "domain", str, path, row)
    known: set[Any] = set()
    for number, entry in enumerate(_list_field(data, "annotations", path), 1):
        row = f"annotation {number}"
        number_id = _field(entry, "image_id", (int, str), path, row)
        if number_id not in images:
            raise file_error(
                f"its image {number_id} is not among the images", "unknown-item", path, row, value=number_id
            )
        annotation_id = _field(entry, "id", (int, str), path, row) if entry.get("id") is not None else None
        if annotation_id is not None and annotation_id in known:
            message = f"the annotation id {annotation_id} occurs twice"
            raise DataError(
                message, code="duplicate", value=annotation_id, path=path, row=row, hint="Keep one of the two"
            )
        known.add(annotation_id)
        text = parse_caption(entry.get("caption"), "caption", path=path, row=row)
        captions[images[number_id]].append(text)
    for image, texts in captions.items():
        if not texts:
            raise file_error(f"image {names[image]} has no caption", "missing-caption", path, value=names[image])
    return Captions(captions, path, names, groups)


def read_nocaps_corpus(path: PathLike) -> Captions:
    """Read nocaps' JSON, a list of ``split``, ``image_id`` (``"0.jpg"``), ``caption`` (a list); groups are domains."""
    return parse_nocaps_corpus(files.read_json(path), path)


def parse_nocaps_corpus(data: Any, path: PathLike) -> Captions:
    """Like :func:`read_nocaps_corpus`, from parsed JSON."""
    if not isinstance(data, list) or not data:
        raise file_error("is not a JSON list of images", "wrong-format", path)
    captions: dict[str, list[str]] = {}
    groups: dict[str, str] = {}
    for number, entry in enumerate(data, 1):
        row = f"entry {number}"
        image = _new_image(_field(entry, "image_id", str, path, row), captions, path, row)
        captions[image] = _captions(_field(entry, "caption", list, path, row), path, row)
        groups[image] = _field(entry, "split", str, path, row).replace("_", "-")
    return Captions(captions, path, None, groups)


def _captions(texts: Sequence[object], path: PathLike, row: str) -> list[str]:
    if not texts:
        raise DataError(
            "there is no caption",
            code="missing-caption",
            path=path,
            row=row,
            hint="Give at least one caption for every image",
        )
    return [parse_caption(text, f"caption {n}", path=path, row=row) for n, text in enumerate(texts, 1)]


def _new_image(name: str, seen: Mapping[str, object], path: PathLike, row: str) -> str:
    image = image_id(parse_caption(name, "image's name", path=path, row=row)) if name.strip() else ""
    if not image:
        raise DataError(
            "the image's name is empty", code="missing-image", path=path, row=row, hint="Give the image's file name"
        )
    if image in seen:
        raise DataError(
            f"image {image} already occurs above",
            code="duplicate",
            value=image,
            path=path,
            row=row,
            hint="Keep one of the two",
        )
    return image


def _list_field(data: Any, key: str, path: PathLike) -> list[Any]:
    entries = data.get(key) if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise DataError(
            f"contains no list '{key}'",
            code="missing-key",
            value=key,
            path=path,
            hint="Download the file again, or check that it is the right one",
        )
    return entries


def _field(entry: Any, key: str, kind: type | tuple[type, ...], path: PathLike, row: str) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join({str: "a string", int: "a number", list: "a list"}[k] for k in kinds)
        code = "missing-key" if value is None else "wrong-type"
        raise file_error(f"'{key}' is missing or is not {wanted}", code, path, row, value=key)
    return value


CANDIDATE_FORM = (
    'Candidates are {"image": "caption"} in JSON, {"image_id": …, "caption": "…"} in a JSON list (COCO results), on '
    "lines (JSONL) or in a table (.csv, .tsv, .xlsx), or the lines of a .txt file with references in the same order"
)
WITHOUT_REFERENCES = f"Captions without references need images. {CANDIDATE_FORM}"
REFERENCE_FORM = (
    'References are annotations of COCO, nocaps or Karpathy, Flickr8k.token.txt, {"image": ["caption", …]} in JSON, '
    'or {"image": …, "references": […]} or {"image": …, "caption": "…"} on lines (JSONL) or in a table; for candidates '
    "in plain text a JSON list of lists, or a .txt file with one a line"
)


def image_field(record: dict[str, Any], path: Path, row: int | str) -> str:
    """The image id of a record."""
    key = "image" if "image" in record else "image_id"
    if key not in record:
        raise DataError(
            "has no 'image' or 'image_id'",
            code="missing-image",
            path=path,
            row=row,
            hint="Add the image of the caption",
        )
    return image_of(record[key], key, path, row)


def image_of(value: Any, key: str, path: Path, row: int | str) -> str:
    """The image id in a value."""
    name = name_of(value, key, path, row)
    image = image_id(name)
    if not image:
        hint = "Write the image's file name, such as kite.jpg"
        raise DataError(
            f"{key} is '{name}', which names no image", code="missing-image", value=name, path=path, row=row, hint=hint
        )
    return image


def optional_name(record: dict[str, Any], keys: tuple[str, ...], path: Path, row: int | str) -> str:
    """The value of the first existing key of a record; ``""`` if none exists."""
    for key in keys:
        if record.get(key) is not None:
            return name_of(record[key], key, path, row)
    return ""


def name_of(value: Any, key: str, path: Path, row: int | str) -> str:
    """An id: a number or a non-empty string."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DataError(
            f"'{key}' is {_shown(value)}, which is not a name",
            code="wrong-type",
            value=value,
            path=path,
            row=row,
            hint="Give a text",
        )
    return checked_caption(value, key, path, row)


def checked_captions(value: Any, key: str, path: Path, row: int | str) -> list[str]:
    """A non-empty list of captions."""
    if not isinstance(value, list | tuple):
        raise DataError(f"{key} is not a list of captions", code="wrong-type", path=path, row=row, hint=REFERENCE_FORM)
    if not value:
        raise DataError(
            "has 0 references",
            code="missing-references",
            path=path,
            row=row,
            hint="Give at least one, or remove the image",
        )
    try:
        texts = list(map(str.strip, value))
    except TypeError:  # not all are strings: the loop below reports the first other value
        texts = []
    # Fast path: printable texts contain no invalid characters, and no white space other than plain spaces.
    if all(texts) and texts and "".join(texts).isprintable():
        return texts
    return [checked_caption(text, f"reference {number}", path, row) for number, text in enumerate(value, 1)]


def checked_caption(value: Any, key: str, path: Path, row: int | str, *, empty: bool = False) -> str:
    """A caption without surrounding white space; with ``empty``, it may be empty."""
    if not isinstance(value, str):
        raise DataError(
            f"{key} is {_shown(value)}, which is not a string",
            code="wrong-type",
            value=value,
            path=path,
            row=row,
            hint="Give a text",
        )
    text, unfit = plain_text(value)
    if not text and not empty:
        raise DataError(
            f"{key} is empty", code="missing-value", path=path, row=row, hint="Fill it in or remove the entry"
        )
    if unfit:
        raise DataError(f"{key} contains {unfit}", code="wrong-value", path=path, row=row, hint="Remove it")
    return text


def _shown(value: Any) -> str:
    """A value in a message, as JSON if possible."""
    try:
        return json.dumps(value)[:40]
    except (TypeError, ValueError):
        return repr(value)[:40]
