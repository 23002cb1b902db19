"""A user's own captions as items: candidates in one file, references in another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capbench import files
from capbench.errors import DataError
from capbench.records import Item, image_id

__all__ = ["user_items"]

_CANDIDATE_FORM = 'A candidate is {"image_id": …, "caption": "…"}, in a JSON list (COCO results) or one a line (JSONL)'
_REFERENCE_FORM = (
    'References are COCO annotations, {"image": ["caption", …]} in JSON, or JSONL of {"image": …, "references": […]} '
    'or {"image": …, "caption": "…"}'
)
_BLANKS = str.maketrans("\t\n\r", "   ")
_NO_CHARACTER = re.compile("[\x00-\x1f\ud800-\udfff]")


@dataclass(frozen=True)
class _References:
    """References by image id; ``names`` gives an image's id for every name it may be called by."""

    by_image: dict[str, list[str]]
    names: dict[str, str]


def user_items(candidates: str | Path, references: str | Path) -> tuple[Item, ...]:
    """Read candidates and their references.

    Args:
        candidates: COCO results (``[{"image_id": 42, "caption": "…"}]``) or JSONL with ``image`` or ``image_id``,
            ``caption`` or ``candidate``, and optionally ``id``. An image may have several candidates.
        references: COCO annotations, ``{"image": ["…", "…"]}``, or JSONL with ``image`` or ``image_id`` and either
            ``references`` (a list) or ``caption`` or ``reference`` (one a line). Images without a candidate
            are left alone.

    Returns:
        One item for each candidate, in file order. Where no ``id`` is given, it is the image's id, with
        ``#2``, ``#3`` … for further candidates of the image.

    Raises:
        MissingFileError: a file is not there.
        DataError: a file does not hold what it should, or a candidate's image has no references.
    """
    candidates, references = Path(candidates), Path(references)
    known = _read_references(references)
    items: list[Item] = []
    by_id: dict[str, Item] = {}
    for row, record in _candidate_records(candidates):
        name = _image(record, candidates, row)
        image = known.names.get(name)
        if image is None:
            raise DataError(
                f"the image '{name}' has no references in {references}", path=candidates, row=row, hint="Add some"
            )
        key = next((key for key in ("caption", "candidate") if key in record), None)
        if key is None:
            raise DataError("lacks 'caption'", path=candidates, row=row, hint=_CANDIDATE_FORM)
        text = _caption(record[key], key, candidates, row)
        given = _given_id(record, candidates, row)
        candidate_id = given or _free_id(image, text, by_id)
        item = Item(image, text, tuple(known.by_image[image]), candidate_id)
        other = by_id.setdefault(candidate_id, item)
        if (other.image, other.candidate) != (image, text):
            raise DataError(
                f"the id '{candidate_id}' has another caption above ('{other.candidate[:60]}')",
                path=candidates,
                row=row,
                hint="Ids must be different",
            )
        items.append(item)
    return tuple(items)


def _free_id(image: str, text: str, taken: dict[str, Item]) -> str:
    """The image's id, or with a number if other candidates have it; the same text keeps its id."""
    candidate_id, number = image, 1
    while candidate_id in taken and (taken[candidate_id].image, taken[candidate_id].candidate) != (image, text):
        number += 1
        candidate_id = f"{image}#{number}"
    return candidate_id


def _candidate_records(path: Path) -> Iterator[tuple[int | str, dict[str, Any]]]:
    """Row and record of every candidate."""
    if _is_jsonl(path):
        yield from _json_lines(path, _CANDIDATE_FORM)
        return
    data = files.read_json(path)
    if not isinstance(data, list):
        raise DataError("is no list of candidates", path=path, hint=_CANDIDATE_FORM)
    if not data:
        raise DataError("holds no candidates", path=path, hint=_CANDIDATE_FORM)
    for number, record in enumerate(data, 1):
        if not isinstance(record, dict):
            raise DataError("is no JSON object", path=path, row=f"entry {number}", hint=_CANDIDATE_FORM)
        yield f"entry {number}", record


def _read_references(path: Path) -> _References:
    found = _References({}, {})
    if _is_jsonl(path):
        for row, record in _json_lines(path, _REFERENCE_FORM):
            name = _image(record, path, row)
            key = next((k for k in ("references", "captions", "caption", "reference") if k in record), None)
            if key is None:
                raise DataError("lacks 'references' or 'caption'", path=path, row=row, hint=_REFERENCE_FORM)
            value = record[key]
            texts = _captions(value, key, path, row) if key.endswith("s") else [_caption(value, key, path, row)]
            if key.endswith("s") and name in found.by_image:
                raise DataError(f"a second list of references for the image '{name}'", path=path, row=row)
            found.names[name] = name
            found.by_image.setdefault(name, []).extend(texts)
        return found
    data = files.read_json(path, unique_keys=True)
    if not isinstance(data, dict) or not data:
        raise DataError("holds no references", path=path, hint=_REFERENCE_FORM)
    if isinstance(data.get("annotations"), list):
        return _coco_annotations(data, path)
    for key, value in data.items():
        place = f"image '{key}'"
        name = image_id(key.strip())
        if name in found.by_image:
            raise DataError(f"two images with the id '{name}'", path=path, row=place, hint="Rename one of them")
        found.names[name] = name
        found.by_image[name] = _captions(value, "the value", path, place)
    return found


def _coco_annotations(data: dict[str, Any], path: Path) -> _References:
    """COCO: an image is known by its number and, where ``images`` tells it, by its file name, which names it."""
    found = _References({}, {})
    images = data.get("images", [])
    if not isinstance(images, list):
        raise DataError("'images' is no list", path=path, hint=_REFERENCE_FORM)
    for number, record in enumerate(images, 1):
        row = f"images, entry {number}"
        if not isinstance(record, dict) or "id" not in record:
            raise DataError("is no image with an 'id'", path=path, row=row, hint=_REFERENCE_FORM)
        key = _name(record["id"], "id", path, row)
        file_name = record.get("file_name")
        image = image_id(_name(file_name, "file_name", path, row)) if file_name is not None else key
        if key in found.names or image in found.by_image:
            raise DataError(f"the image '{key}' stands twice", path=path, row=row, hint="Remove one of them")
        found.names[key] = found.names[image] = image
        found.by_image[image] = []
    for number, record in enumerate(data["annotations"], 1):
        row = f"annotations, entry {number}"
        if not isinstance(record, dict):
            raise DataError("is no JSON object", path=path, row=row, hint=_REFERENCE_FORM)
        key = _image(record, path, row)
        if images and key not in found.names:
            raise DataError(f"the image '{key}' is not among 'images'", path=path, row=row, hint="Add it there")
        if "caption" not in record:
            raise DataError("lacks 'caption'", path=path, row=row, hint=_REFERENCE_FORM)
        image = found.names.setdefault(key, key)
        found.by_image.setdefault(image, []).append(_caption(record["caption"], "caption", path, row))
    # An image without annotations has no references, which is an error only if a candidate needs them.
    empty = {image for image, texts in found.by_image.items() if not texts}
    names = {name: image for name, image in found.names.items() if image not in empty}
    return _References(found.by_image, names)


def _is_jsonl(path: Path) -> bool:
    return path.suffix.lower() in (".jsonl", ".ndjson")


def _json_lines(path: Path, form: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for row, line in enumerate(files.read_lines(path), 1):
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError("is no JSON", path=path, row=row, hint=form) from error
        if not isinstance(record, dict):
            raise DataError("is no JSON object", path=path, row=row, hint=form)
        yield row, record


def _image(record: dict[str, Any], path: Path, row: int | str) -> str:
    key = next((key for key in ("image", "image_id") if key in record), None)
    if key is None:
        raise DataError("lacks 'image' or 'image_id'", path=path, row=row, hint="Name the image that it belongs to")
    return image_id(_name(record[key], key, path, row))


def _given_id(record: dict[str, Any], path: Path, row: int | str) -> str:
    key = next((key for key in ("id", "candidate_id") if record.get(key) is not None), None)
    return _name(record[key], key, path, row) if key is not None else ""


def _name(value: Any, key: str, path: Path, row: int | str) -> str:
    """An id: a number or a non-empty text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DataError(
            f"'{key}' is {json.dumps(value)[:40]}, which is no name", path=path, row=row, hint="Give a text"
        )
    return _caption(value, key, path, row)


def _captions(value: Any, key: str, path: Path, row: int | str) -> list[str]:
    if not isinstance(value, list):
        raise DataError(f"{key} is no list of captions", path=path, row=row, hint=_REFERENCE_FORM)
    if not value:
        raise DataError("has 0 references", path=path, row=row, hint="Give at least one, or remove the image")
    return [_caption(text, f"reference {number}", path, row) for number, text in enumerate(value, 1)]


def _caption(value: Any, key: str, path: Path, row: int | str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{key} is {json.dumps(value)[:40]}, which is no text", path=path, row=row, hint="Give a text")
    # Line breaks and tabs mean nothing to a metric and would break tables.
    text = value.translate(_BLANKS).strip()
    if not text:
        raise DataError(f"{key} is empty", path=path, row=row, hint="Fill it in or remove the entry")
    if _NO_CHARACTER.search(text):
        raise DataError(
            f"{key} holds a control character or half of a surrogate pair", path=path, row=row, hint="Remove it"
        )
    return text
