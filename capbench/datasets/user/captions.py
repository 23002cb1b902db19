"""User captions as items: candidates in one file and references in another, or both in memory.

Several systems have one file of candidates each and a common file of references.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from capbench.core import files
from capbench.core.coco_names import CocoNames
from capbench.core.errors import DataError, UsageError, suggest
from capbench.core.machine import paused_collector
from capbench.core.records import Item
from capbench.datasets.tables import read_table
from capbench.datasets.user.caption_readers import (
    CANDIDATE_FORM,
    REFERENCE_FORM,
    WITHOUT_REFERENCES,
    Captions,
    checked_caption,
    checked_captions,
    image_field,
    image_of,
    name_of,
    optional_name,
    parse_karpathy,
    parse_nocaps_corpus,
    read_token,
)

_MOST_LISTED = 3
_RECORD_KEYS = frozenset({"image", "image_id", "caption", "candidate"})


@dataclass(frozen=True)
class References:
    """References of images.

    Attributes:
        by_image: image id → references.
        names: alternative name of an image → image id.
        groups: image id → split (Karpathy) or domain (nocaps), if the file has any.
        split: the split that the references were limited to, or ``""``.
        others: images of the other splits.
    """

    by_image: dict[str, tuple[str, ...]]
    names: dict[str, str]
    groups: dict[str, str] = field(default_factory=dict)
    split: str = ""
    others: frozenset[str] = frozenset()

    @classmethod
    def of(cls, captions: Captions) -> References:
        """The captions of a published file."""
        return cls(dict(captions), {}, dict(captions.groups))

    @cached_property
    def _coco(self) -> CocoNames:
        return CocoNames((*self.by_image, *self.others))

    def image(self, name: str) -> str | None:
        """The id of an image by one of its names; None if it has no references.

        Raises:
            DataError: the name is a COCO number that several images have.
        """
        image = name if name in self.by_image else self.names.get(name) or self._coco.find(name)
        return image if image is not None and self.by_image.get(image) else None

    def is_elsewhere(self, name: str) -> bool:
        """True for an image of another split."""
        return (name if name in self.others else self.names.get(name) or self._coco.find(name)) in self.others

    def of_split(self, split: str, path: Path, spelled: str = "--split") -> References:
        """The references of one split or domain.

        Raises:
            UsageError: the file has no such split.
        """
        known = sorted(set(self.groups.values()))
        if split not in known:
            raise UsageError(
                f"{spelled} {split}: {path.name} has no such split",
                code="unknown-name",
                value=split,
                hint=suggest(split, known) if known else f"Omit {spelled}: the file has no splits",
            )
        chosen = {image: texts for image, texts in self.by_image.items() if self.groups.get(image) == split}
        others = frozenset(self.by_image.keys() - chosen.keys())
        groups = dict.fromkeys(chosen, split)
        return References(chosen, self.names, groups, split, others)


class UserCaptions(NamedTuple):
    """Items made from a user's candidates and references.

    Attributes:
        items: one item per candidate, in file order. Its group is its image's split or domain, if there is one.
        without_candidate: images with references but without a candidate, in file order.
        left_out: number of candidates that were left out since their images are not in the split.
    """

    items: tuple[Item, ...]
    without_candidate: tuple[str, ...]
    left_out: int = 0


class ReadingOptions(NamedTuple):
    """Choices of a user for reading captions.

    Attributes:
        split: the split of the references' file to score; None for all.
        restrict: True to leave out candidates of images in other splits instead of raising.
        spelled_split: how the user spells ``split``, for errors; and ``restrict``.
    """

    split: str | None = None
    restrict: bool = False
    spelled_split: str = "--split"
    spelled_restrict: str = "--restrict"


_EVERYTHING = ReadingOptions()


def user_items(candidates: str | Path, references: str | Path | None) -> tuple[Item, ...]:
    """Items of a user's candidates and references; arguments and errors as for :func:`read_captions`."""
    return read_captions(candidates, references).items


@paused_collector()
def read_captions(
    candidates: str | Path, references: str | Path | None, options: ReadingOptions = _EVERYTHING
) -> UserCaptions:
    """Read candidates and their references.

    Files may be JSON, JSON Lines, or tables (``.csv``, ``.tsv``, ``.xlsx``, ``.parquet``) with the columns ``image_id``
    and ``caption``.

    Args:
        candidates: COCO results (``[{"image_id": 42, "caption": "…"}]``), or rows with ``image`` or ``image_id``,
            ``caption`` or ``candidate``, and optionally ``id`` and ``system``. An image may have several
            candidates. Or ``{"image": "…"}`` or pycocoevalcap's ``{"image": [{"caption": "…"}]}``. Or a ``.txt`` file
            with one candidate per line: it names no images, so the references must be a list in the same order. An
            empty caption is a candidate, too.
        references: COCO annotations, nocaps' annotations, Karpathy's ``dataset_*.json``, ``Flickr8k.token.txt``,
            Kaggle's ``captions.txt``, ``{"image": ["…", "…"]}``, pycocoevalcap's ``{"image": [{"caption": "…"}]}``, or
            rows with ``image`` or ``image_id`` and ``references`` (a list), ``caption`` or ``reference`` (one per row),
            or ``reference_1``, ``reference_2`` …. Images without a candidate are ignored. For candidates in plain
            text: a JSON list with the list of references of each line, or a ``.txt`` file with one reference per line.
            None: items have no references, and each candidate names its image.
        options: see :class:`ReadingOptions`.

    Returns:
        The items, and the images without a candidate. The default ``id`` is the image's id, with ``#2``, ``#3`` … for
        further candidates of the image. The image of line 7 of a ``.txt`` file is ``line-7``.

    Raises:
        MissingFileError: a file does not exist.
        DataError: a file has invalid content, or a candidate's image has no references.
        UsageError: there is no such split.
    """
    if references is None:
        return unreferenced(Path(candidates))
    candidates, references = Path(candidates), Path(references)
    return captions_of(candidates, references, of_split(read_references(references), references, options), options)


def of_split(known: References | list[list[str]], path: Path, options: ReadingOptions) -> References | list[list[str]]:
    """The references of the chosen split; all without a choice. Raises UsageError if there is no such split."""
    if options.split is None:
        return known
    if not isinstance(known, References):
        known = References({}, {})
    return known.of_split(options.split, path, options.spelled_split)


def unreferenced(candidates: Path) -> UserCaptions:
    """Like :func:`read_captions`, without references, for reference-free metrics."""
    if file_form(candidates) == "plain":
        raise DataError("is plain text without images", code="missing-image", path=candidates, hint=WITHOUT_REFERENCES)
    return joined(candidate_records(candidates), candidates, None, None)


def captions_of(
    candidates: Path,
    references: Path,
    known: References | list[list[str]],
    options: ReadingOptions = _EVERYTHING,
) -> UserCaptions:
    """Like :func:`read_captions`, with references that were already read."""
    if file_form(candidates) == "plain":
        return plain_items(plain_captions(candidates, empty=True), candidates, references, known)
    return joined(candidate_records(candidates), candidates, references, known, options)


def joined(
    records: Iterable[tuple[int | str, dict[str, Any]]],
    candidates: Path,
    references: Path | None,
    known: References | list[list[str]] | None,
    options: ReadingOptions = _EVERYTHING,
) -> UserCaptions:
    """Items of candidates with images.

    Args:
        records: row and record of each candidate.
        candidates: name of the candidates' file, for error messages.
        references: name of the references' file, for error messages.
        known: the references; None for items without references.
        options: see :class:`ReadingOptions`.
    """
    if known is not None and not isinstance(known, References):
        hint = f"Add the image of each list. {REFERENCE_FORM}"
        raise DataError("has no images, but the candidates do", code="missing-image", path=references, hint=hint)
    items: list[Item] = []
    left_out = 0
    ids = _Ids()
    for row, record in records:
        name = image_field(record, candidates, row)
        try:
            image = name if known is None else known.image(name)
        except DataError as error:
            raise DataError(
                error.message, code=error.code, value=name, path=candidates, row=row, hint=error.hint
            ) from error
        if image is None:
            assert known is not None
            if known.is_elsewhere(name):
                if options.restrict:
                    left_out += 1
                    continue
                raise DataError(
                    f"the image '{name}' is not in the split '{known.split}' of {references}",
                    code="unknown-item",
                    value=name,
                    path=candidates,
                    row=row,
                    hint=f"Add {options.spelled_restrict} to leave out candidates of other splits",
                )
            raise DataError(
                f"the image '{name}' has no references in {references}",
                code="missing-references",
                value=name,
                path=candidates,
                row=row,
                hint="Add references for it, or remove the candidate",
            )
        key = "caption" if "caption" in record else "candidate"
        if key not in record:
            raise DataError("has no 'caption'", code="missing-caption", path=candidates, row=row, hint=CANDIDATE_FORM)
        text = checked_caption(record[key], key, candidates, row, empty=True)
        system = optional_name(record, ("system",), candidates, row)
        candidate_id = optional_name(record, ("id", "candidate_id"), candidates, row) or ids.free(image, system, text)
        texts, group = ((), "") if known is None else (known.by_image[image], known.groups.get(image, ""))
        item = Item(image, text, texts, candidate_id, group, system)
        owner = ids.owners.setdefault(candidate_id, item)
        if owner is not item and (owner.image, owner.system, owner.candidate) != (image, system, text):
            whose = f"caption above ('{owner.candidate[:60]}')" if owner.candidate != text else "image or system above"
            raise DataError(
                f"the id '{candidate_id}' has another {whose}",
                code="duplicate",
                value=candidate_id,
                path=candidates,
                row=row,
                hint="Ids must be different",
            )
        items.append(item)
    del ids  # as large as the items' texts
    referenced = {} if known is None else known.by_image
    with_candidate = {item.image for item in items}
    without = tuple(image for image, texts in referenced.items() if texts and image not in with_candidate)
    if not items:
        raise DataError("contains no candidates", code="missing-caption", path=candidates, hint=CANDIDATE_FORM)
    return UserCaptions(tuple(items), without, left_out)


class _Ids:
    """Ids of candidates, including generated ones; a candidate is (image, system, text).

    Attributes:
        owners: id → first item with this id.
    """

    def __init__(self) -> None:
        self.owners: dict[str, Item] = {}
        self._names: dict[tuple[str, str, str], str] = {}
        self._next: dict[str, int] = {}

    def free(self, image: str, system: str, text: str) -> str:
        """The image's id, with a number if another candidate has it; equal candidates get the same id."""
        if image not in self.owners:  # fast path: most images have one candidate
            return image
        candidate = (image, system, text)
        while candidate not in self._names:
            number = self._next.get(image, 1)
            candidate_id = image if number == 1 else f"{image}#{number}"
            owner = self.owners.get(candidate_id)
            owned_by = candidate if owner is None else (owner.image, owner.system, owner.candidate)
            if owned_by[0] == image:
                self._names.setdefault(owned_by, candidate_id)
            self._next[image] = number + 1  # this number need not be tried again
        return self._names[candidate]


_IMAGE_COLUMNS = ("image", "image_id", "image_name", "file_name", "filename", "id")
_CAPTION_COLUMNS = ("caption", "candidate", "prediction", "reference", "text")
_REFERENCE_COLUMN = re.compile(r"ref(?:erence)?_?(\d{1,9})", re.ASCII)


def file_form(path: Path) -> Literal["table", "lines", "token", "plain", "json"]:
    """The form of a file of captions, by its ending and, for ``.txt``, by its first line."""
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return "lines"
    if suffix in (".csv", ".tsv", ".xlsx", ".parquet"):
        return "table"
    if suffix not in (".txt", ".token"):
        return "json"
    text = files.read_text(path).lstrip()
    head = text.partition("\n")[0]
    if text[:1] in ("[", "{"):
        return "json"
    if suffix == ".token" or re.match(r"[^\t]+#\d+\t", head):
        return "token"
    columns = {cell.strip().lower() for cell in re.split(r"[,;\t]", head)}
    is_header = not columns.isdisjoint(_IMAGE_COLUMNS) and not columns.isdisjoint(_CAPTION_COLUMNS) and len(columns) > 1
    return "table" if is_header else "plain"


def _table_records(path: Path) -> Iterator[tuple[int | str, dict[str, Any]]]:
    """Row and record of every row of a table, with the keys of records in JSON Lines."""
    table = read_table(path, form=".csv" if path.suffix.lower() == ".txt" else "")
    by_name = {name.lower(): name for name in reversed(list(table.columns))}
    image = next((by_name[name] for name in _IMAGE_COLUMNS if name in by_name), None)
    texts = next((by_name[name] for name in _CAPTION_COLUMNS if name in by_name), None)
    numbered = sorted(
        (int(match[1]), name) for name in table.columns if (match := _REFERENCE_COLUMN.fullmatch(name.lower()))
    )
    listed = by_name.get("references") or by_name.get("captions")
    if image is None or (texts is None and listed is None and not numbered):
        lacking = _IMAGE_COLUMNS if image is None else _CAPTION_COLUMNS
        message = f"has the columns {', '.join(table.columns)}, but none of {', '.join(lacking)}"
        hint = "Name the columns image_id and caption"
        raise DataError(message, code="missing-column", path=path, row=1, hint=hint)
    others = {
        name: by_name[name] for name in ("id", "candidate_id", "system") if by_name.get(name) not in (None, image)
    }
    for row, cells in zip(table.numbers, table.records(), strict=True):
        if image not in cells:
            raise DataError(f"'{image}' is empty", code="missing-image", path=path, row=row, hint="Add the image")
        record = {"image_id": cells[image]} | {
            name: cells[column] for name, column in others.items() if column in cells
        }
        if numbered:
            record["references"] = [cells[name] for _, name in numbered if name in cells]
        if listed is not None:
            record["references"] = _listed_cell(cells.get(listed, []), path, row)
        if texts is not None:
            record["caption"] = cells.get(texts, "")
        yield row, record


def _listed_cell(cell: Any, path: Path, row: int | str) -> Any:
    """The list in a cell: JSON in text tables."""
    if not isinstance(cell, str):
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        message, hint = (
            "'references' is not a JSON list",
            'Write ["…", "…"], or use the columns reference_1, reference_2, …',
        )
        raise DataError(message, code="wrong-type", path=path, row=row, hint=hint) from None


def plain_items(
    texts: Sequence[str], path: Path, references: Path, lists: References | list[list[str]]
) -> UserCaptions:
    """Items of captions without images, with references in the same order."""
    if isinstance(lists, References):
        raise DataError(
            f"is plain text without images, but the references in {references} have images",
            code="missing-image",
            path=path,
            hint='Write candidates as {"image": …, "caption": "…"}, or references as a JSON list of lists in the order '
            "of the candidates, or as a .txt file with one per line",
        )
    if len(texts) != len(lists):
        raise DataError(
            f"contains {len(texts)} candidates, but {references} has references for {len(lists)}",
            code="mismatch",
            value=len(texts),
            path=path,
            hint="Line n of the candidates must belong to line or list n of the references",
        )
    pairs = enumerate(zip(texts, lists, strict=True), 1)
    items = tuple(Item(f"line-{row}", text, tuple(listed), f"line-{row}") for row, (text, listed) in pairs)
    return UserCaptions(items, ())


def plain_captions(path: Path, *, empty: bool = False) -> list[str]:
    """Return the captions of a text file with one caption a line; with ``empty``, a line may be empty."""
    lines = enumerate(files.read_lines(path), 1)
    return [checked_caption(line, "the caption", path, row, empty=empty) for row, line in lines]


def candidate_records(path: Path) -> Iterator[tuple[int | str, dict[str, Any]]]:
    """Row and record of every candidate."""
    form = file_form(path)
    if form == "table":
        yield from _table_records(path)
    elif form == "lines":
        yield from _json_lines(path, CANDIDATE_FORM)
    elif form == "token":
        for image, texts in read_token(path).items():
            yield from ((f"image '{image}'", {"image": image, "caption": text}) for text in texts)
    else:
        entries = files.read_json(path, unique_keys=True)
        if isinstance(entries, list):
            yield from listed_records(entries, path)
        else:
            yield from _captions_by_image(_candidate_object(entries, path), path)


def _candidate_object(data: Any, path: Path) -> Iterable[tuple[str, Any]]:
    """Images and captions of parsed JSON that is not a list."""
    if not isinstance(data, dict):
        raise DataError("is not a list of candidates", code="wrong-format", path=path, hint=CANDIDATE_FORM)
    if isinstance(data.get("annotations"), list) or _is_karpathy(data):
        raise DataError(
            "contains annotations of images, which are references",
            code="wrong-format",
            value="annotations" if "annotations" in data else "images",
            path=path,
            hint=f"Pass it with --references. {CANDIDATE_FORM}",
        )
    return data.items()


def _is_karpathy(data: Mapping[str, Any]) -> bool:
    images = data.get("images")
    return isinstance(images, list) and bool(images) and isinstance(images[0], dict) and "sentences" in images[0]


def _bare(value: Any) -> Any:
    """The captions of pycocoevalcap's ``[{"caption": "…"}]``; other values unchanged."""
    entries = [value] if isinstance(value, Mapping) else value
    if (
        isinstance(entries, list)
        and entries
        and all(isinstance(entry, Mapping) and "caption" in entry for entry in entries)
    ):
        return [entry["caption"] for entry in entries]
    return value


def is_caption_record(data: Mapping[str, Any]) -> bool:
    """True for ``{"image": …, "caption": …}``, or an incomplete one; False for ``{image: caption}``."""
    return not _RECORD_KEYS.isdisjoint(data)


def _captions_by_image(entries: Iterable[tuple[str, Any]], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Row and record of every entry of ``{image: caption}``, which has one caption per image."""
    images: set[str] = set()
    for key, value in entries:
        if key in _RECORD_KEYS:
            raise DataError(
                "is a single candidate, not a list of candidates",
                code="wrong-format",
                value=key,
                path=path,
                hint=CANDIDATE_FORM,
            )
        row = f"image '{key}'"
        image = image_of(key, "the image", path, row)
        if image in images:
            raise DataError(
                f"a second caption of the image '{image}'",
                code="duplicate",
                value=image,
                path=path,
                row=row,
                hint="Keep one of the two",
            )
        images.add(image)
        bare = _bare(value)
        if isinstance(bare, list) and len(bare) == 1 and bare is not value:
            value = bare[0]
        if isinstance(value, list):
            raise DataError(
                "has a list of captions, which looks like references",
                code="wrong-type",
                value=value,
                path=path,
                row=row,
                hint='Candidates are {"image": "caption"}: write one string per image, or pass the file with '
                "--references",
            )
        yield row, {"image": key, "caption": value}
    if not images:
        raise DataError("contains no candidates", code="missing-caption", path=path, hint=CANDIDATE_FORM)


def listed_records(entries: Iterable[Any], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Row and record of every entry."""
    number = 0
    for number, record in enumerate(entries, 1):
        if isinstance(record, str):
            hint = f"Name the image of each caption. {CANDIDATE_FORM}"
            raise DataError(
                "is a caption without an image", code="missing-image", path=path, row=f"entry {number}", hint=hint
            )
        if not isinstance(record, Mapping):
            raise DataError(
                "is not a JSON object", code="wrong-type", path=path, row=f"entry {number}", hint=CANDIDATE_FORM
            )
        yield f"entry {number}", dict(record)
    if not number:
        raise DataError("contains no candidates", code="missing-caption", path=path, hint=CANDIDATE_FORM)


def read_references(path: Path) -> References | list[list[str]]:
    """Read references by image, or lists of references in the order of candidates without images.

    Raises:
        MissingFileError: the file does not exist.
        DataError: the file has invalid content.
    """
    form = file_form(path)
    if form == "plain":
        return [[text] for text in plain_captions(path)]
    if form == "token":
        return References.of(read_token(path))
    if form == "json":
        return references_in(files.read_json(path, unique_keys=True), path)
    return reference_records(_table_records(path) if form == "table" else _json_lines(path, REFERENCE_FORM), path)


def references_in(data: Any, path: Path) -> References | list[list[str]]:
    """References of parsed JSON."""
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        if "split" in data[0]:
            return References.of(parse_nocaps_corpus(data, path))
        return reference_records(listed_records(data, path), path)
    if isinstance(data, list) and data:
        return [checked_captions(value, "the entry", path, f"entry {number}") for number, value in enumerate(data, 1)]
    if not isinstance(data, dict) or not data:
        raise DataError("contains no references", code="missing-references", path=path, hint=REFERENCE_FORM)
    if isinstance(data.get("annotations"), list):
        return _coco_annotations(data, path)
    if _is_karpathy(data):
        captions = parse_karpathy(data, path)
        names = {
            str(entry["cocoid"]): image
            for entry, image in zip(data["images"], captions, strict=True)
            if "cocoid" in entry
        }
        return References(dict(captions), names, dict(captions.groups))
    return _by_image(data.items(), path)


def _by_image(entries: Iterable[tuple[str, Any]], path: Path) -> References:
    """References from pairs of image and list of captions."""
    references = References({}, {})
    for key, value in entries:
        place = f"image '{key}'"
        name = image_of(key, "the image", path, place)
        if name in references.by_image:
            raise DataError(
                f"two images have the id '{name}'",
                code="duplicate",
                value=name,
                path=path,
                row=place,
                hint="Rename one of them",
            )
        references.by_image[name] = tuple(checked_captions(_bare(value), "the value", path, place))
    return references


def reference_records(records: Iterable[tuple[int | str, dict[str, Any]]], path: Path) -> References:
    """References from pairs of row and record."""
    references = References({}, {})
    for row, record in records:
        name = image_field(record, path, row)
        key = next((k for k in ("references", "captions", "caption", "reference") if k in record), None)
        if key is None:
            raise DataError(
                "has no 'references' or 'caption'", code="missing-key", path=path, row=row, hint=REFERENCE_FORM
            )
        value = _bare(record[key])
        texts = (
            checked_captions(value, key, path, row) if key.endswith("s") else [checked_caption(value, key, path, row)]
        )
        if key.endswith("s") and name in references.by_image:
            raise DataError(
                f"a second list of references for the image '{name}'", code="duplicate", value=name, path=path, row=row
            )
        references.by_image[name] = (*references.by_image.get(name, ()), *texts)
    return references


def _coco_annotations(data: dict[str, Any], path: Path) -> References:
    """References in COCO's format: an image is identified by its file name in ``images``, or else by its number."""
    by_image: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    groups: dict[str, str] = {}
    images = data.get("images", [])
    if not isinstance(images, list):
        raise DataError("'images' is not a list", code="wrong-type", path=path, hint=REFERENCE_FORM)
    for number, record in enumerate(images, 1):
        row = f"images, entry {number}"
        if not isinstance(record, dict) or "id" not in record:
            raise DataError(
                "is not an image with an 'id'", code="missing-key", value="id", path=path, row=row, hint=REFERENCE_FORM
            )
        key = name_of(record["id"], "id", path, row)
        file_name = record.get("file_name")
        image = image_of(file_name, "file_name", path, row) if file_name is not None else key
        if key in names or image in names:
            twice = key if key in names else image
            raise DataError(
                f"the image '{twice}' occurs twice",
                code="duplicate",
                value=twice,
                path=path,
                row=row,
                hint="Remove one of them",
            )
        names[key] = names[image] = image
        by_image[image] = []
        if isinstance(record.get("domain"), str):
            groups[image] = record["domain"]
    for number, record in enumerate(data["annotations"], 1):
        row = f"annotations, entry {number}"
        if not isinstance(record, dict):
            raise DataError("is not a JSON object", code="wrong-type", path=path, row=row, hint=REFERENCE_FORM)
        key = image_field(record, path, row)
        if images and key not in names:
            raise DataError(
                f"the image '{key}' is not among 'images'",
                code="unknown-item",
                value=key,
                path=path,
                row=row,
                hint="Add it there",
            )
        if "caption" not in record:
            raise DataError("has no 'caption'", code="missing-caption", path=path, row=row, hint=REFERENCE_FORM)
        image = names.get(key, key)
        by_image.setdefault(image, []).append(checked_caption(record["caption"], "caption", path, row))
    # An image without annotations has no references: an error only if a candidate needs them.
    return References({image: tuple(texts) for image, texts in by_image.items()}, names, groups)


def _json_lines(path: Path, form: str) -> Iterator[tuple[int, dict[str, Any]]]:
    twice: list[str] = []

    def note_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(key for key in record if keys.count(key) > 1)
        return record

    decode = json.JSONDecoder(object_pairs_hook=note_repeats).decode
    for row, line in enumerate(files.read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = decode(line)
        except ValueError as error:
            raise DataError("is not JSON", code="wrong-format", path=path, row=row, hint=form) from error
        if twice:
            raise DataError(
                f"the key '{twice[0]}' occurs twice",
                code="duplicate",
                value=twice[0],
                path=path,
                row=row,
                hint="Keep one of the two",
            )
        if not isinstance(record, dict):
            raise DataError("is not a JSON object", code="wrong-type", path=path, row=row, hint=form)
        yield row, record


CandidatesGiven = Mapping[Any, str | Sequence[str]] | Iterable[str] | Iterable[Mapping[str, Any]]
"""Candidates in memory: by image, in the references' order, or records with ``image`` and ``caption``."""
ReferencesGiven = Mapping[Any, Any] | Iterable[str | Sequence[str]] | Iterable[Mapping[str, Any]]
"""References in memory: by image, in the candidates' order, records, or the content of a COCO annotation file."""


def captions_in_memory(
    candidates: str | Path | CandidatesGiven,
    references: str | Path | ReferencesGiven | None,
    options: ReadingOptions = _EVERYTHING,
) -> UserCaptions:
    """Items of candidates and references, each in memory or in a file.

    Args:
        candidates: captions in the order of the references, captions by image (one or a list for each), or records
            (``{"image_id": 42, "caption": "…"}``); or the path of a file.
        references: a caption or a list of captions for each candidate, in their order; or by image; or records; or a
            path. None: items have no references, and candidates name their images.
        options: see :class:`ReadingOptions`.

    Raises:
        MissingFileError: a file does not exist.
        DataError: a value is not a caption, or a candidate has no references.
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
    if known is not None and references_name is not None:
        known = of_split(known, references_name, options)
    if isinstance(candidates, str | Path):
        path = Path(candidates)
        assert references_name is not None
        assert known is not None
        return captions_of(path, references_name, known, options)
    name = Path("candidates")
    if isinstance(candidates, Mapping):
        return joined(_records_by_image(candidates, name), name, references_name, known, options)
    entries = list(candidates)
    if entries and not any(isinstance(entry, Mapping) for entry in entries):
        places = ((f"entry {row}", text) for row, text in enumerate(entries, 1))
        texts = [checked_caption(text, "the caption", name, row, empty=True) for row, text in places]
        if references_name is None or known is None:
            raise DataError("are texts without images", code="missing-image", path=name, hint=WITHOUT_REFERENCES)
        return plain_items(texts, name, references_name, known)
    return joined(listed_records(entries, name), name, references_name, known, options)


def _records_by_image(candidates: Mapping[Any, Any], path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not candidates:
        raise DataError("contains no candidates", code="missing-caption", path=path, hint=CANDIDATE_FORM)
    for image, value in candidates.items():
        row = f"image '{image}'"
        value = _bare(value)
        for text in value if isinstance(value, list | tuple) and value else [value]:
            yield row, {"image": image, "caption": text}


def _references_given(references: ReferencesGiven, path: Path) -> References | list[list[str]]:
    if isinstance(references, Mapping):
        if isinstance(references.get("annotations"), list):
            return references_in(dict(references), path)
        listed = {image: _as_list(value) for image, value in references.items()}
        return references_in(listed, path)
    entries = list(references)
    if entries and all(isinstance(entry, Mapping) for entry in entries):
        records = ((f"entry {row}", dict(entry)) for row, entry in enumerate(entries, 1))
        return reference_records(records, path)
    return references_in([_as_list(entry) for entry in entries], path)


def _as_list(value: Any) -> Any:
    """A single caption as a list; likewise a number or None in its place, which is then reported as invalid."""
    return [value] if value is None or isinstance(value, str | int | float) else value


@dataclass(frozen=True)
class SystemCaptions:
    """Captions of several systems for the same images.

    Attributes:
        items: name of the system → one item per image, in the order of the system's file.
        images: the images, in the order of the first system's file.
        without_candidate: images with references but without candidates, in file order.
        left_out: name of the system → number of further captions of its images that were left out.
    """

    items: Mapping[str, tuple[Item, ...]]
    images: tuple[str, ...]
    without_candidate: tuple[str, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


def read_systems(
    systems: Mapping[str, Path],
    references: Path,
    *,
    keep_first: bool = False,
    keep_option: str = "--keep-first",
    options: ReadingOptions = _EVERYTHING,
) -> SystemCaptions:
    """Read captions of systems, and check that all systems have one caption for each of the same images.

    Args:
        systems: name of the system → file of captions, as for :func:`read_captions`.
        references: file of references.
        keep_first: see :func:`single_captions`, as for ``keep_option``.
        options: see :class:`ReadingOptions`.

    Raises:
        MissingFileError: a file does not exist.
        DataError: a file is invalid, a system has several captions of an image, or systems have different images.
    """
    known = of_split(read_references(references), references, options)
    captions = {name: captions_of(path, references, known, options) for name, path in systems.items()}
    items = {
        name: single_captions(
            of_system.items, systems[name], keep_first=keep_first, keep_option=keep_option, required=True
        )
        for name, of_system in captions.items()
    }
    left_out = {name: len(of_system.items) - len(items[name]) for name, of_system in captions.items()}
    first, *others = systems
    images = tuple(item.image for item in items[first])
    for name in others:
        theirs = tuple(item.image for item in items[name])
        for incomplete, complete, missing in (
            (name, first, _without(images, theirs)),
            (first, name, _without(theirs, images)),
        ):
            if missing:
                number = (
                    f"1 image that {systems[complete]} has"
                    if len(missing) == 1
                    else (f"{len(missing):,} images that {systems[complete]} has")
                )
                raise DataError(
                    f"has no caption of {number}: {_listed(missing)}",
                    code="missing-image",
                    value=missing[0],
                    path=systems[incomplete],
                    hint="Systems must have the same images: add these captions, or remove them from the other file",
                )
    return SystemCaptions(items, images, captions[first].without_candidate, left_out)


def single_captions(
    items: tuple[Item, ...],
    path: Path,
    *,
    keep_first: bool = False,
    keep_option: str = "--keep-first",
    required: bool = False,
) -> tuple[Item, ...]:
    """The captions of results, after a check for images that occur repeatedly by mistake.

    Results in which more than half of the images have one caption must have one for every image. Other results have
    several captions of an image on purpose. Captions of different systems (``Item.system``) are counted separately.

    Args:
        items: the captions.
        path: their file, for errors.
        keep_first: True to keep the first caption of each image instead of raising.
        keep_option: the user's spelling of ``keep_first``, for errors.
        required: True to require one caption per image in any case, whatever its system.

    Raises:
        DataError: an image has several captions.
    """
    if len({item.image for item in items}) == len(items):
        return items
    first: dict[tuple[str, str], Item] = {}
    numbers: Counter[tuple[str, str]] = Counter()
    for item in items:
        key = (item.image, "" if required else item.system)
        first.setdefault(key, item)
        numbers[key] += 1
    if keep_first:
        return tuple(first.values())
    several = [(image, number) for (image, _), number in numbers.items() if number > 1]
    if not several or (2 * len(several) >= len(numbers) and not required):
        return items
    image, number = several[0]
    more = f", and several of {len(several) - 1:,} more" if len(several) > 1 else ""
    raise DataError(
        f"contains {number:,} captions of the image '{image}'{more}{'' if required else ', but one of most images'}",
        code="duplicate",
        value=image,
        path=path,
        hint=f"Keep one caption per image, or pass {keep_option} to keep the first",
    )


def _without(images: Sequence[str], others: Sequence[str]) -> list[str]:
    known = set(others)
    return [image for image in images if image not in known]


def _listed(images: Sequence[str]) -> str:
    return ", ".join(images[:_MOST_LISTED]) + (", …" if len(images) > _MOST_LISTED else "")
