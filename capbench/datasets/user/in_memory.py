"""Captions that a program holds in memory, or in files, as :mod:`capbench.datasets.user.captions` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capbench.datasets.user.caption_fields import (
    CANDIDATE_FORM,
    WITHOUT_REFERENCES,
    checked_caption,
    checked_captions,
)
from capbench.datasets.user.captions import (
    References,
    UserCaptions,
    candidate_records,
    is_plain,
    joined,
    listed_records,
    plain_captions,
    plain_items,
    read_references,
    reference_records,
    references_in,
    unreferenced,
)
from capbench.errors import DataError

__all__ = ["CandidatesGiven", "ReferencesGiven", "captions_in_memory"]

CandidatesGiven = Mapping[Any, str | Sequence[str]] | Iterable[str] | Iterable[Mapping[str, Any]]
"""Candidates in memory: by image, in the references' order, or records with ``image`` and ``caption``."""
ReferencesGiven = Mapping[Any, Any] | Iterable[str | Sequence[str]] | Iterable[Mapping[str, Any]]
"""References in memory: by image, in the candidates' order, records, or what a file of COCO annotations holds."""


def captions_in_memory(
    candidates: str | Path | CandidatesGiven, references: str | Path | ReferencesGiven | None
) -> UserCaptions:
    """Candidates and references that are in memory, or in a file each.

    Args:
        candidates: captions in the order of the references, captions by image (one or a list for each), or records
            (``{"image_id": 42, "caption": "…"}``); or the path of a file.
        references: a caption or a list of captions for each candidate, in their order; or by image; or records; or a
            path. None: no item has references, and candidates name their images.

    Raises:
        MissingFileError: a file is not there.
        DataError: something is no caption, or a candidate has no references; the entry is named.
    """
    if references is None and isinstance(candidates, str | Path):
        return unreferenced(Path(candidates))
    references_name: Path | None
    known: References | list[list[str]] | None
    if references is None:
        references_name, known = None, None
    elif isinstance(references, str | Path):
        references_name, known = Path(references), read_references(Path(references))
    else:
        references_name = Path("references")
        known = _references_given(references, references_name)
    if isinstance(candidates, str | Path):
        path = Path(candidates)
        if is_plain(path):
            assert references_name is not None
            assert known is not None
            return plain_items(plain_captions(path), path, references_name, known)
        return joined(candidate_records(path), path, references_name, known)
    name = Path("candidates")
    if isinstance(candidates, Mapping):
        return joined(_records_by_image(candidates, name), name, references_name, known)
    given = list(candidates)
    if given and all(isinstance(entry, str) for entry in given):
        texts = [checked_caption(text, "the caption", name, f"entry {row}") for row, text in enumerate(given, 1)]
        if references_name is None or known is None:
            raise DataError("are texts, which name no images", path=name, hint=WITHOUT_REFERENCES)
        return plain_items(texts, name, references_name, known)
    return joined(listed_records(given, name), name, references_name, known)


def _records_by_image(candidates: Mapping[Any, Any], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not candidates:
        raise DataError("holds no candidates", path=path, hint=CANDIDATE_FORM)
    for image, value in candidates.items():
        row = f"image '{image}'"
        for text in [value] if isinstance(value, str) else checked_captions(value, "the value", path, row):
            yield row, {"image": image, "caption": text}


def _references_given(references: ReferencesGiven, path: Path) -> References | list[list[str]]:
    if isinstance(references, Mapping):
        if isinstance(references.get("annotations"), list):
            return references_in(dict(references), path)
        listed = {image: [value] if isinstance(value, str) else value for image, value in references.items()}
        return references_in(listed, path)
    entries = list(references)
    if entries and all(isinstance(entry, Mapping) for entry in entries):
        records = ((f"entry {row}", dict(entry)) for row, entry in enumerate(entries, 1))
        return reference_records(records, path)
    return references_in([[entry] if isinstance(entry, str) else entry for entry in entries], path)
