"""User captions as items: candidates in one file and references in another, or both in memory.

Both ways give rows of records, which :func:`_joined` joins to the references. Several systems have one file of
candidates each and a common file of references.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from capbench.core import files
from capbench.core.errors import DataError, UsageError, suggest
from capbench.core.records import Item
from capbench.datasets.judgement_files import parse_caption, parse_image
from capbench.datasets.tables import SUFFIXES, filled, json_lines, read_table
from capbench.datasets.user.caption_readers import (
    Captions,
    captions_of_records,
    named,
    parse_captions,
    read_token,
    record_image,
)

_MOST_LISTED = 3
_RECORD_KEYS = frozenset({"image", "image_id", "caption", "candidate"})
TEXT_KEYS = ("caption", "candidate", "prediction")
_IMAGE_COLUMNS = ("image", "image_id", "image_name", "file_name", "filename", "id")
_CAPTION_COLUMNS = (*TEXT_KEYS, "reference", "text")
_REFERENCE_COLUMN = re.compile(r"ref(?:erence)?_?(\d{1,9})", re.ASCII)
CANDIDATE_FORM = (
    'Candidates are {"image": "caption"} in JSON, {"image_id": …, "caption": "…"} in a JSON list (COCO results), on '
    "lines (JSONL) or in a table (.csv, .tsv, .xlsx), or the lines of a .txt file with references in the same order"
)
REFERENCE_FORM = (
    'References are annotations of COCO, nocaps or Karpathy, Flickr8k.token.txt, {"image": ["caption", …]} in JSON, '
    'or {"image": …, "references": […]} or {"image": …, "caption": "…"} on lines (JSONL) or in a table; for candidates '
    "in plain text a JSON list of lists, or a .txt file with one a line"
)
Record: TypeAlias = tuple[int | str, Mapping[str, Any]]  # a row and its place
References: TypeAlias = Captions | list[list[str]] | None
"""By image, or a list for each candidate without an image; None for items without references."""
CandidatesGiven = Mapping[Any, str | Sequence[str]] | Iterable[str] | Iterable[Mapping[str, Any]]
"""Candidates in memory: by image, in the references' order, or records with ``image`` and ``caption``."""
ReferencesGiven = Mapping[Any, Any] | Iterable[str | Sequence[str]] | Iterable[Mapping[str, Any]]
"""References in memory: by image, in the candidates' order, records, or the content of a COCO annotation file."""


class ReadingOptions(NamedTuple):
    """Choices of a user for reading captions."""

    split: str | None = None  # the split of the references' file to score; None for all
    restrict: bool = False  # True to leave out candidates of images in other splits instead of raising
    keep_first: bool = False  # True to leave out all but the first caption of an image
    spelled: Callable[[str], str] = lambda name: f"--{name.replace('_', '-')}"  # how the user spells one, for errors


_EVERYTHING = ReadingOptions()


class UserCaptions(NamedTuple):
    """Items made from a user's candidates and references."""

    # one item per candidate, in file order. Its group is its image's split or domain, if there is one
    items: tuple[Item, ...]
    without_candidate: tuple[str, ...]  # images with references but without a candidate, in file order
    left_out: int = 0  # number of candidates that were left out since their images are not in the split


class _Known(NamedTuple):
    """The references, and the name of their file for errors."""

    path: Path | None
    references: References


def captions_in_memory(
    # a file, captions in the references' order, by image (lists, too), or records with an image, a caption and
    # optionally ``id`` and ``system``; an image may have several
    candidates: str | Path | CandidatesGiven,
    # a file, lists in the candidates' order, captions by image, or records; None: items have no references
    references: str | Path | ReferencesGiven | None,
    options: ReadingOptions = _EVERYTHING,
) -> UserCaptions:
    """Items of candidates and references, each in memory or in a file.

    The default ``id`` is the image's, with ``#2``, ``#3`` … for further candidates of the image. The image of the
    seventh caption without an image is ``line-7``.
    """
    return _items(candidates, _read_references(references, options), options)


def _items(candidates: str | Path | CandidatesGiven, known: _Known, options: ReadingOptions) -> UserCaptions:
    name = Path(candidates) if isinstance(candidates, str | Path) else Path("candidates")
    if isinstance(candidates, str | Path):
        if _form(name) != "plain":
            return _joined(candidate_records(name), name, known, options)
        lines = enumerate(files.read_lines(name), 1)
        return _in_order([_caption(line, "caption", name, row, empty=True) for row, line in lines], name, known)
    if isinstance(candidates, Mapping):
        return _joined(_records_by_image(candidates, name, several=True), name, known, options)
    entries = list(candidates)
    if entries and not any(isinstance(entry, Mapping) for entry in entries):
        texts = [_caption(text, "caption", name, f"entry {row}", empty=True) for row, text in enumerate(entries, 1)]
        return _in_order(texts, name, known)
    return _joined(_listed_records(entries, name), name, known, options)


def _joined(records: Iterable[Record], path: Path, known: _Known, options: ReadingOptions) -> UserCaptions:
    """Items of candidates with images."""
    references, split = known.references, options.split
    if isinstance(references, list):
        hint = f"Add the image of each list. {REFERENCE_FORM}"
        raise DataError("has no images, but the candidates do", code="missing-image", path=known.path, hint=hint)
    items: list[Item] = []
    left_out = 0
    owners: dict[str, Item] = {}  # id → first item with this id
    for row, record in records:
        name = image = record_image(record, path, row)
        texts: tuple[str, ...] = ()
        group = ""
        if references is not None:
            found = references.find(name, path, row)
            if found is None:
                problem = f"the image '{name}' has no references in {known.path}"
                hint = "Add references for it, or remove the candidate"
                raise DataError(problem, code="missing-references", value=name, path=path, row=row, hint=hint)
            image, texts, group = found, references[found], references.groups.get(found, "")
            if split is not None and group != split:
                if options.restrict:
                    left_out += 1
                    continue
                problem = f"the image '{name}' is not in the split '{split}' of {known.path}"
                hint = f"Add {options.spelled('restrict')} to leave out candidates of other splits"
                raise DataError(problem, code="unknown-item", value=name, path=path, row=row, hint=hint)
        key = next((key for key in TEXT_KEYS if key in record), None)
        if key is None:
            raise DataError("has no 'caption'", code="missing-caption", path=path, row=row, hint=CANDIDATE_FORM)
        text = _caption(record[key], key, path, row, empty=True)
        system, given = (
            next((_caption(named(record[key]), key, path, row) for key in keys if record.get(key) is not None), "")
            for keys in (("system",), ("id", "candidate_id"))
        )
        candidate_id = given or _free_id(owners, image, system, text)
        item = Item(image, text, texts, candidate_id, group, system)
        owner = owners.setdefault(candidate_id, item)
        if owner is not item and (owner.image, owner.system, owner.candidate) != (image, system, text):
            problem = f"the id '{candidate_id}' has another caption, image or system above ('{owner.candidate[:60]}')"
            hint = "Ids must be different"
            raise DataError(problem, code="duplicate", value=candidate_id, path=path, row=row, hint=hint)
        items.append(item)
    if not items:
        raise DataError("contains no candidates", code="missing-caption", path=path, hint=CANDIDATE_FORM)
    del owners  # as large as the items' texts
    with_candidate = {item.image for item in items}
    without = (image for image, texts in (references or {}).items() if texts and image not in with_candidate)
    if references is not None and split is not None:
        without = (image for image in without if references.groups.get(image) == split)
    return UserCaptions(tuple(items), tuple(without), left_out)


def _free_id(owners: Mapping[str, Item], image: str, system: str, text: str) -> str:
    """The image's id, with a number if another candidate has it; equal candidates get the same id."""
    name, number = image, 1
    while (owner := owners.get(name)) and (owner.image, owner.system, owner.candidate) != (image, system, text):
        number += 1
        name = f"{image}#{number}"
    return name


def _in_order(texts: Sequence[str], path: Path, known: _Known) -> UserCaptions:
    """Items of captions without images, with references in the same order."""
    lists, given = known.references, known.path
    if not isinstance(lists, list):
        problem = "contains texts without images" + ("" if lists is None else f", but the references in {given} have")
        raise DataError(problem, code="missing-image", path=path, hint=f"{CANDIDATE_FORM}. {REFERENCE_FORM}")
    if len(texts) != len(lists):
        problem = f"contains {len(texts)} candidates, but {given} has references for {len(lists)}"
        hint = "Line n of the candidates must belong to line or list n of the references"
        raise DataError(problem, code="mismatch", value=len(texts), path=path, hint=hint)
    pairs = enumerate(zip(texts, lists, strict=True), 1)
    items = (Item(f"line-{row}", text, tuple(listed), f"line-{row}") for row, (text, listed) in pairs)
    return UserCaptions(tuple(items), ())


def _caption(text: object, what: str, path: Path, row: int | str, *, empty: bool = False) -> str:
    return parse_caption(text, what, path=path, row=row, user=True, empty=empty)


def _form(path: Path) -> Literal["table", "token", "plain", "json"]:
    """The form of a file of captions, by its ending and, for ``.txt``, by its first line."""
    suffix = path.suffix.lower()
    if suffix not in (".txt", ".token"):
        return "table" if path.name.lower().endswith(SUFFIXES) and suffix != ".json" else "json"
    text = files.read_text(path).lstrip()
    head = text.partition("\n")[0]
    if text[:1] in ("[", "{"):
        return "json"
    if suffix == ".token" or re.match(r"[^\t]+#\d+\t", head):
        return "token"
    columns = {cell.strip().lower() for cell in re.split(r"[,;\t]", head)}
    is_header = not columns.isdisjoint(_IMAGE_COLUMNS) and not columns.isdisjoint(_CAPTION_COLUMNS) and len(columns) > 1
    return "table" if is_header else "plain"


def _table_records(path: Path) -> Iterator[Record]:
    """The rows of a table or of JSON Lines, with the keys of records; columns of tables may have other names."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        for row, cells in json_lines(path):
            yield row, {name: cell for name, cell in cells.items() if filled(cell) is not None}
        return
    table = read_table(path, form=".csv" if path.suffix.lower() == ".txt" else "")
    rows = zip(table.numbers, table.records(), strict=True)
    by_name = {name.lower(): name for name in reversed(list(table.columns))}
    image = next((by_name[name] for name in _IMAGE_COLUMNS if name in by_name), None)
    text = next((by_name[name] for name in _CAPTION_COLUMNS if name in by_name), None)
    matches = ((_REFERENCE_COLUMN.fullmatch(name.lower()), name) for name in table.columns)
    numbered = [name for _, name in sorted((int(match[1]), name) for match, name in matches if match)]
    listed = by_name.get("references") or by_name.get("captions")
    if image is None or not (text or listed or numbered):
        names = ", ".join(_IMAGE_COLUMNS if image is None else _CAPTION_COLUMNS)
        problem, hint = f"has none of the columns {names}", "Name the columns image_id and caption"
        raise DataError(problem, code="missing-column", path=path, row=1, hint=hint)
    others = {name: by_name.get(name, image) for name in ("id", "candidate_id", "system")}
    for row, cells in rows:
        if image not in cells:
            raise DataError(f"'{image}' is empty", code="missing-image", path=path, row=row, hint="Add the image")
        record = {name: cells[column] for name, column in others.items() if column != image and column in cells}
        record["image_id"] = cells[image]
        if numbered:
            record["references"] = [cells[name] for name in numbered if name in cells]
        if listed is not None:
            record["references"] = table.parsed(cells.get(listed, []))
        if text is not None:
            record["caption"] = cells.get(text, "")
        yield row, record


def candidate_records(path: Path) -> Iterator[Record]:
    """Row and record of every candidate in a file."""
    form = _form(path)
    if form == "table":
        yield from _table_records(path)
        return
    if form == "token":
        for image, texts in read_token(path).items():
            yield from ((f"image '{image}'", {"image": image, "caption": text}) for text in texts)
        return
    data = files.read_json(path, unique_keys=True)
    if isinstance(data, list):
        yield from _listed_records(data, path)
        return
    if not isinstance(data, dict) or isinstance(data.get("annotations", data.get("images")), list):
        hint = f"Pass references with --references. {CANDIDATE_FORM}"
        raise DataError("is not a list of candidates", code="wrong-format", path=path, hint=hint)
    yield from _records_by_image(data, path)


def _bare(value: Any) -> Any:
    """The caption of pycocoevalcap's ``[{"caption": "…"}]``; other values unchanged."""
    entries = [value] if isinstance(value, Mapping) else value
    if isinstance(entries, list) and len(entries) == 1 and isinstance(entries[0], Mapping) and "caption" in entries[0]:
        return entries[0]["caption"]
    return value


def _records_by_image(entries: Mapping[Any, Any], path: Path, *, several: bool = False) -> Iterator[Record]:
    """Row and record of every entry of ``{image: caption}``; ``several``: an image may have a list of captions."""
    if key := next((key for key in entries if key in _RECORD_KEYS and not several), None):
        problem = "is a single candidate, not a list of candidates"
        raise DataError(problem, code="wrong-format", value=key, path=path, hint=CANDIDATE_FORM)
    images: set[str] = set()
    for key, value in entries.items():
        row = f"image '{key}'"
        value = _bare(value)
        if isinstance(value, list | tuple) and value and several:
            yield from ((row, {"image": key, "caption": text}) for text in value)
            continue
        image = parse_image(named(key), "image", path=path, row=row)
        if image in images:
            problem, hint = f"a second caption of the image '{image}'", "Keep one of the two"
            raise DataError(problem, code="duplicate", value=image, path=path, row=row, hint=hint)
        images.add(image)
        if isinstance(value, list):
            problem = "has a list of captions, which looks like references"
            hint = "Write one string per image, or pass the file with --references"
            raise DataError(problem, code="wrong-type", value=value, path=path, row=row, hint=hint)
        yield row, {"image": key, "caption": value}


def _listed_records(entries: Iterable[Any], path: Path) -> Iterator[Record]:
    """Row and record of every entry."""
    for number, record in enumerate(entries, 1):
        if not isinstance(record, Mapping):
            code = "missing-image" if isinstance(record, str) else "wrong-type"
            problem = "is a caption without an image" if isinstance(record, str) else "is not a JSON object"
            raise DataError(problem, code=code, path=path, row=f"entry {number}", hint=CANDIDATE_FORM)
        yield f"entry {number}", record


def _read_references(given: str | Path | ReferencesGiven | None, options: ReadingOptions) -> _Known:
    """The references, after a check that they have the chosen split."""
    if given is None:
        return _Known(None, None)
    path, form = Path("references"), ""
    everything: References
    if isinstance(given, str | Path):
        path = Path(given)
        form = _form(path)
    if form == "plain":
        everything = [[_caption(line, "caption", path, row)] for row, line in enumerate(files.read_lines(path), 1)]
    elif form == "token":
        everything = read_token(path)
    elif form == "table":
        everything = captions_of_records(_table_records(path), path)
    else:
        data = files.read_json(path, unique_keys=True) if form else given
        everything = _references_in(data, path, is_file=bool(form))
    known = [] if isinstance(everything, list) or everything is None else sorted(set(everything.groups.values()))
    if options.split is not None and options.split not in known:
        flag = options.spelled("split")
        problem = f"{flag} {options.split}: {path.name} has no such split"
        hint = suggest(options.split, known) if known else f"Omit {flag}: the file has no splits"
        raise UsageError(problem, code="unknown-name", value=options.split, hint=hint)
    return _Known(path, everything)


def _references_in(data: Any, path: Path, *, is_file: bool = False) -> References:
    """References of parsed JSON or in memory, where a list may be a single caption."""
    if isinstance(data, Mapping):
        if data and not is_file and not isinstance(data.get("annotations"), list):
            data = {image: _as_list(value) for image, value in data.items()}
        if data:
            return parse_captions(dict(data), path, user=True)
    elif isinstance(data, Iterable) and (entries := list(data)):
        if all(isinstance(entry, Mapping) for entry in entries):
            if "split" in entries[0]:
                return parse_captions(entries, path, user=True)
            return captions_of_records(((f"entry {row}", entry) for row, entry in enumerate(entries, 1)), path)
        return [
            _texts(entry if is_file else _as_list(entry), path, f"entry {row}") for row, entry in enumerate(entries, 1)
        ]
    raise DataError("contains no references", code="missing-references", path=path, hint=REFERENCE_FORM)


def _texts(value: Any, path: Path, row: str) -> list[str]:
    """A list of references."""
    if not isinstance(value, list | tuple) or not value:
        code = "wrong-type" if not isinstance(value, list | tuple) else "missing-references"
        raise DataError("is not a list of references", code=code, path=path, row=row, hint=REFERENCE_FORM)
    return [_caption(text, f"reference {number}", path, row) for number, text in enumerate(value, 1)]


def _as_list(value: Any) -> Any:
    """A single caption as a list; likewise a number or None in its place, which is then reported as invalid."""
    return [value] if value is None or isinstance(value, str | int | float) else value


class SystemCaptions(NamedTuple):
    """Captions of several systems for the same images, by system."""

    items: Mapping[str, tuple[Item, ...]]  # one item per image, in the order of the system's file
    files: Mapping[str, UserCaptions]  # all captions of each file


def read_systems(
    systems: Mapping[str, Path], references: Path, options: ReadingOptions = _EVERYTHING
) -> SystemCaptions:
    """Read captions of systems, and check that all systems have one caption for each of the same images."""
    known = _read_references(references, options)
    captions = {name: _items(path, known, options) for name, path in systems.items()}
    items = {
        name: single_captions(of_system.items, systems[name], options, required=True)
        for name, of_system in captions.items()
    }
    first, *others = systems
    images = {name: dict.fromkeys(item.image for item in of_system) for name, of_system in items.items()}
    for incomplete, complete in [pair for name in others for pair in ((name, first), (first, name))]:
        missing = [image for image in images[complete] if image not in images[incomplete]]
        if missing:
            listed = ", ".join(missing[:_MOST_LISTED]) + (", …" if len(missing) > _MOST_LISTED else "")
            number = "1 image" if len(missing) == 1 else f"{len(missing):,} images"
            problem = f"has no caption of {number} that {systems[complete]} has: {listed}"
            hint = "Systems must have the same images: add these captions, or remove them from the other file"
            path = systems[incomplete]
            raise DataError(problem, code="missing-image", value=missing[0], path=path, hint=hint)
    return SystemCaptions(items, captions)


def single_captions(
    items: tuple[Item, ...],
    path: Path,
    options: ReadingOptions,
    *,
    required: bool = False,  # True to require one caption per image in any case, whatever its system
) -> tuple[Item, ...]:
    """The captions of results, after a check for images that occur repeatedly by mistake.

    Results in which more than half of the images have one caption must have one for every image. Other results have
    several captions of an image on purpose. Captions of different systems (``Item.system``) are counted separately.
    """
    if len({item.image for item in items}) == len(items):
        return items
    first: dict[tuple[str, str], Item] = {}
    numbers: Counter[tuple[str, str]] = Counter()
    for item in items:
        key = (item.image, "" if required else item.system)
        first.setdefault(key, item)
        numbers[key] += 1
    if options.keep_first:
        return tuple(first.values())
    several = [(image, number) for (image, _), number in numbers.items() if number > 1]
    if not several or (2 * len(several) >= len(numbers) and not required):
        return items
    image, number = several[0]
    more = f", and several of {len(several) - 1:,} more" if len(several) > 1 else ""
    problem = (
        f"contains {number:,} captions of the image '{image}'{more}{'' if required else ', but one of most images'}"
    )
    hint = f"Keep one caption per image, or pass {options.spelled('keep_first')} to keep the first"
    raise DataError(problem, code="duplicate", value=image, path=path, hint=hint)
