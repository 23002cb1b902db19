"""Single fields of a user's caption files, checked: images, names, captions. Errors tell the row and the form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from capbench.datasets.user.records import plain_text
from capbench.errors import DataError
from capbench.records import image_id

__all__ = [
    "CANDIDATE_FORM",
    "REFERENCE_FORM",
    "WITHOUT_REFERENCES",
    "checked_caption",
    "checked_captions",
    "image_field",
    "image_of",
    "name_of",
    "optional_name",
]


CANDIDATE_FORM = (
    'A candidate is {"image_id": …, "caption": "…"}, in a JSON list (COCO results) or one a line (JSONL), or one line '
    "of a .txt file beside references in the same order"
)
WITHOUT_REFERENCES = f"Captions without references are known by their images. {CANDIDATE_FORM}"
REFERENCE_FORM = (
    'References are COCO annotations, {"image": ["caption", …]} in JSON, or JSONL of {"image": …, "references": […]} '
    'or {"image": …, "caption": "…"}; for candidates in plain text a JSON list of lists, or a .txt file with one a line'
)


def image_field(record: dict[str, Any], path: Path, row: int | str) -> str:
    """The image that a record belongs to."""
    key = "image" if "image" in record else "image_id"
    if key not in record:
        raise DataError("lacks 'image' or 'image_id'", path=path, row=row, hint="Name the image that it belongs to")
    return image_of(record[key], key, path, row)


def image_of(value: Any, key: str, path: Path, row: int | str) -> str:
    """The id of the image that a value names."""
    name = name_of(value, key, path, row)
    image = image_id(name)
    if not image:
        hint = "Write the image's file name, such as kite.jpg"
        raise DataError(f"{key} is '{name}', which names no image", path=path, row=row, hint=hint)
    return image


def optional_name(record: dict[str, Any], keys: tuple[str, ...], path: Path, row: int | str) -> str:
    """The first of some names that a record gives; ``""`` if it gives none."""
    for key in keys:
        if record.get(key) is not None:
            return name_of(record[key], key, path, row)
    return ""


def name_of(value: Any, key: str, path: Path, row: int | str) -> str:
    """An id: a number or a non-empty text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise DataError(f"'{key}' is {_shown(value)}, which is no name", path=path, row=row, hint="Give a text")
    return checked_caption(value, key, path, row)


def checked_captions(value: Any, key: str, path: Path, row: int | str) -> list[str]:
    """A list of captions, at least one."""
    if not isinstance(value, list | tuple):
        raise DataError(f"{key} is no list of captions", path=path, row=row, hint=REFERENCE_FORM)
    if not value:
        raise DataError("has 0 references", path=path, row=row, hint="Give at least one, or remove the image")
    try:
        texts = list(map(str.strip, value))
    except TypeError:  # not all are texts: the first that is none is told
        texts = []
    # All at once first. No printable character is one that a caption may not hold, or white space but the plain space.
    if all(texts) and texts and "".join(texts).isprintable():
        return texts
    return [checked_caption(text, f"reference {number}", path, row) for number, text in enumerate(value, 1)]


def checked_caption(value: Any, key: str, path: Path, row: int | str) -> str:
    """A caption, without white space around it."""
    if not isinstance(value, str):
        raise DataError(f"{key} is {_shown(value)}, which is no text", path=path, row=row, hint="Give a text")
    text, unfit = plain_text(value)
    if not text:
        raise DataError(f"{key} is empty", path=path, row=row, hint="Fill it in or remove the entry")
    if unfit:
        raise DataError(f"{key} holds {unfit}", path=path, row=row, hint="Remove it")
    return text


def _shown(value: Any) -> str:
    """A value in a message, as JSON has it if it has."""
    try:
        return json.dumps(value)[:40]
    except (TypeError, ValueError):
        return repr(value)[:40]
