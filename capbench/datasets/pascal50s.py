"""PASCAL-50S: which of two captions of an image do raters prefer? 4,000 pairs, fifty references per image.

Files in ``pascal50s/`` (Vedantam, Zitnick and Parikh 2015):

- ``pair_pascal.mat``: pairs, categories and **direct** votes (raters saw both captions, 11 votes per pair);
- ``pascal_50s.json``: pairs, the **consensus** label and one sample of five references;
- ``pascal50S.mat``: the fifty references;
- ``consensus_pascal.mat``: the **triplets** behind the consensus (which of two captions is closer to a reference);
- ``pascal_cands.mat``: the pairs only, read if the first two files are missing.

Every selection reads as few files as possible. Pairs are in the order of ``pair_pascal.mat`` (without it: HC, HI, HM,
MM, each in the order of the JSON). Pair i has the items 2i (first caption) and 2i + 1 (second); CIDEr's document
frequencies therefore count 8,000 documents.

The files correspond for all 4,000 published pairs: ``pair_pascal.mat`` and ``pascal_cands.mat`` list the same pairs in
the same order, ``consensus_pascal.mat`` has 48 rows for each of them in that order, and the JSON lists the pairs of
every category in the order of ``pair_pascal.mat``.

Importing scipy takes longer than reading these files. The contents of ``pair_pascal.mat`` and ``pascal50S.mat`` are
therefore cached under the checksum of the file: a changed file is read again.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from capbench.core import files
from capbench.core.cache import kept_table, packed_texts, unpacked_texts
from capbench.core.errors import DataError, MissingFileError
from capbench.core.records import Item, Judgements, Preferences, image_id
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.judgement_files import ByName, drawn, file_error, paired, parse_caption
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name
from capbench.datasets.row_models import Image, Row, Text, parsed

CATEGORIES = ("HC", "HI", "HM", "MM")
"""Human-human correct, human-human incorrect, human-machine, machine-machine; 1 to 4 in ``pair_pascal.mat``."""
TRIPLETS = 48  # triplets (one reference, two candidates, one vote) of each pair
_CACHE_FOLDER, _CACHE_VERSION = "pascal50s", 1  # to increase when the reader or the cached form changes


@dataclass(frozen=True)
class Pair:
    """Two candidates of one image; ``category`` and votes for the first and for the second, if the file has them."""

    image: str
    candidates: tuple[str, str]
    category: str = ""
    votes: tuple[int, int] | None = None


class LabelledPair(Row):
    """A pair in the JSON file: the index of the preferred candidate, and a sample of five references."""

    image: Image
    candidates: tuple[Text, Text] = Field(validation_alias="captions")
    category: str
    label: Literal[0, 1]
    references: tuple[Text, ...] = Field(min_length=1)
    votes: None = None


Pairs = Sequence[Pair | LabelledPair]


def read_pairs(path: Path) -> list[Pair]:
    """Read ``pair_pascal.mat``: ``new_input`` (name, sent1, sent2), ``category``, ``result`` (votes, +1 or -1)."""
    content = files.read_bytes(path)

    def build() -> dict[str, NDArray[Any]]:
        pairs = _parse_pairs(content, path)
        numbers = [(CATEGORIES.index(pair.category), *(pair.votes or ())) for pair in pairs]
        texts = [text for pair in pairs for text in (pair.image, *pair.candidates)]
        return {"numbers": np.array(numbers, dtype=np.int64), **packed_texts(texts)}

    arrays = kept_table(_CACHE_FOLDER, f"pairs-{hashlib.sha256(content).hexdigest()}", _CACHE_VERSION, build)
    texts = iter(unpacked_texts(arrays))
    return [
        Pair(image, (first, second), CATEGORIES[category], (for_first, for_second))
        for (category, for_first, for_second), image, first, second in zip(
            arrays["numbers"].tolist(), texts, texts, texts, strict=True
        )
    ]


def _parse_pairs(content: bytes, path: Path) -> list[Pair]:
    mat = _load(content, path)
    entries = _records(mat, "new_input", path)
    categories = np.atleast_1d(_variable(mat, "category", path)).tolist()
    results = _records(mat, "result", path)
    if not len(entries) == len(categories) == len(results):
        raise file_error(
            f"new_input has {len(entries)} entries, category {len(categories)}, result {len(results)}", "mismatch", path
        )
    pairs = []
    known: dict[tuple[str, tuple[str, str]], int] = {}
    for number, (entry, category, result) in enumerate(zip(entries, categories, results, strict=True), 1):
        row = f"pair {number}"
        if category not in range(1, len(CATEGORIES) + 1):
            problem = f"the category {category} is not one of 1 to 4"
            raise file_error(problem, "out-of-range", path, row, value=category)
        image = image_id(_text(_field(entry, "name", path, row)))
        texts = [_field(entry, name, path, row) for name in ("sent1", "sent2")]
        candidates = _two_captions([_text(text) for text in texts], path, row)
        votes = _numbers(_field(result, "result", path, row))
        if not votes or any(vote not in (1.0, -1.0) for vote in votes):
            raise file_error("its votes are not all +1 or -1", "wrong-value", path, row)
        # Two published pairs occur twice with different votes: only a different category is a contradiction.
        if known.setdefault((image, candidates), category) != category:
            raise file_error("the pair has another category above", "duplicate", path, row)
        counted = (votes.count(1.0), votes.count(-1.0))
        pairs.append(Pair(image, candidates, CATEGORIES[int(category) - 1], counted))
    return pairs


def read_candidates(path: Path) -> list[Pair]:
    """Read ``pascal_cands.mat``: ``cands`` (image, sent), pairs without categories and votes."""
    pairs = []
    for number, entry in enumerate(_records(_load(files.read_bytes(path), path), "cands", path), 1):
        row = f"pair {number}"
        texts = [_text(text) for text in np.atleast_1d(_field(entry, "sent", path, row)).tolist()]
        image = image_id(_text(_field(entry, "image", path, row)))
        pairs.append(Pair(image, _two_captions(texts, path, row)))
    return pairs


def read_references(path: Path) -> dict[str, tuple[str, ...]]:
    """Read ``pascal50S.mat``: image id → fifty references.

    One release contains ``refs`` (image, sent), another ``train_sent_final`` (name, an address; sentences).
    """
    content = files.read_bytes(path)

    def build() -> dict[str, NDArray[Any]]:
        references_by_image = _parse_references(content, path)
        texts = [text for image, references in references_by_image.items() for text in (image, *references)]
        counts = [len(references) for references in references_by_image.values()]
        return {"counts": np.array(counts, dtype=np.int64), **packed_texts(texts)}

    arrays = kept_table(_CACHE_FOLDER, f"references-{hashlib.sha256(content).hexdigest()}", _CACHE_VERSION, build)
    texts = iter(unpacked_texts(arrays))
    return {next(texts): tuple(itertools.islice(texts, count)) for count in arrays["counts"].tolist()}


def _parse_references(content: bytes, path: Path) -> dict[str, tuple[str, ...]]:
    mat = _load(content, path)
    variable, name, sentences = "refs", "image", "sent"
    if variable not in mat and "train_sent_final" in mat:
        variable, name, sentences = "train_sent_final", "name", "sentences"
    references_by_image: dict[str, tuple[str, ...]] = {}
    for number, entry in enumerate(_records(mat, variable, path), 1):
        row = f"image {number}"
        image = image_id(_text(_field(entry, name, path, row)).strip())
        if not image:
            raise file_error("the image's name is empty", "missing-image", path, row)
        if image in references_by_image:
            raise file_error(f"image {image} already occurs above", "duplicate", path, row, value=image)
        texts = [_text(text) for text in np.atleast_1d(_field(entry, sentences, path, row)).ravel().tolist()]
        if not texts:
            raise file_error(f"image {image} has no reference", "missing-references", path, row, value=image)
        references_by_image[image] = tuple(
            parse_caption(text, f"reference {n}", path=path, row=row) for n, text in enumerate(texts, 1)
        )
    return references_by_image


def read_json_pairs(path: Path) -> list[LabelledPair]:
    """Read ``pascal_50s.json``: category → entries of image, captions, label (0 or 1) and references."""
    data = files.read_json(path, unique_keys=True)
    if not isinstance(data, dict) or not data or set(data) - set(CATEGORIES):
        raise file_error("is not a JSON object with the categories HC, HI, HM, MM", "wrong-format", path)
    pairs = []
    labels: dict[tuple[str, str, tuple[str, str]], int] = {}
    for category in CATEGORIES:
        entries = data.get(category, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise file_error(f"'{category}' is not a list of pairs", "wrong-type", path, value=category)
        for number, entry in enumerate(entries, 1):
            pair = parsed(LabelledPair, entry | {"category": category}, path, f"{category} entry {number}")
            if labels.setdefault((category, pair.image, pair.candidates), pair.label) != pair.label:
                raise pair.error("duplicate", "the pair has another label above")
            pairs.append(pair)
    if not pairs:
        raise file_error("contains no pair", "missing-value", path)
    return pairs


def read_triplets(path: Path, pairs: Pairs) -> list[tuple[int, int]]:
    """Read ``consensus_pascal.mat``: votes for the first and for the second candidate of every pair.

    ``triplets`` has 48 rows (reference, B, C, winner) per pair, winner 1 for B and -1 for C. B and C are identified by
    their text, so that their order does not matter. Reading the published file takes about six seconds.
    """
    triplets = _records(_load(files.read_bytes(path), path), "triplets", path)
    if len(triplets) != TRIPLETS * len(pairs):
        problem = f"has {len(triplets)} triplets, expected {TRIPLETS} for each of {len(pairs)} pairs"
        raise file_error(problem, "mismatch", path, value=len(triplets))
    names = triplets.dtype.names or ()
    if len(names) != 4:
        raise file_error("its triplets do not have four fields", "wrong-format", path)
    votes_by_pair = []
    for number, pair in enumerate(pairs):
        votes = [0, 0]
        for index in range(number * TRIPLETS, (number + 1) * TRIPLETS):
            row = f"triplet {index + 1}"
            _, b, c, winner = (triplets[index][name] for name in names)
            shown = (_text(b).strip(), _text(c).strip())
            if shown not in (pair.candidates, pair.candidates[::-1]):
                raise file_error(f"its candidates are not those of pair {number + 1}", "mismatch", path, row)
            vote = _numbers(winner)
            if vote not in ([1.0], [-1.0]):
                raise file_error(f"its winner {vote} is not 1 or -1", "wrong-value", path, row)
            for_first = (vote == [1.0]) == (shown == pair.candidates)
            votes[0 if for_first else 1] += 1
        votes_by_pair.append((votes[0], votes[1]))
    return votes_by_pair


def _load(content: bytes, path: Path) -> dict[str, Any]:
    import scipy.io

    try:
        stream: Any = io.BytesIO(content)  # scipy's stubs do not accept open files
        return dict(scipy.io.loadmat(stream, squeeze_me=True))
    except NotImplementedError as error:
        problem, hint = "is a MATLAB file of version 7.3", "Save it in MATLAB with the option -v7"
        raise DataError(problem, code="wrong-version", path=path, hint=hint) from error
    except Exception as error:  # a damaged file makes loadmat fail in many ways
        problem = f"cannot be read as a MATLAB file ({type(error).__name__})"
        raise file_error(problem, "wrong-format", path) from error


def _variable(mat: dict[str, Any], name: str, path: Path) -> Any:
    if name not in mat:
        known = ", ".join(key for key in mat if not key.startswith("__")) or "nothing"
        problem = f"contains no variable {name} (it contains {known})"
        raise file_error(problem, "missing-key", path, value=name)
    return mat[name]


def _records(mat: dict[str, Any], name: str, path: Path) -> Any:
    records = np.atleast_1d(_variable(mat, name, path))
    if records.dtype.names is None or records.ndim != 1 or not len(records):
        raise file_error(f"its variable {name} is not a list of structures", "wrong-type", path, value=name)
    return records


def _field(record: Any, name: str, path: Path, row: str) -> Any:
    if name not in record.dtype.names:
        raise file_error(f"has no field {name}", "missing-key", path, row, value=name)
    return record[name]


def _text(value: Any) -> str:
    """The string in a cell; ``""`` for anything else, which the check of captions then rejects."""
    while isinstance(value, np.ndarray):
        if value.size != 1:
            return ""
        value = value.ravel()[0]
    return value if isinstance(value, str) else ""


def _numbers(value: Any) -> list[float]:
    """The numbers in a cell of any numeric type (a vector of ones is unsigned); empty for anything else."""
    try:
        return [float(number) for number in np.atleast_1d(value).ravel().tolist()]
    except (TypeError, ValueError):
        return []


def _two_captions(texts: Sequence[object], path: Path, row: str) -> tuple[str, str]:
    if len(texts) != 2:
        raise file_error(f"has {len(texts)} candidates, not 2", "wrong-shape", path, row, value=len(texts))
    first, second = (parse_caption(text, f"candidate {n}", path=path, row=row) for n, text in enumerate(texts, 1))
    return first, second


_PAIRS = "pascal50s/pair_pascal.mat"
_JSON = "pascal50s/pascal_50s.json"
_REFERENCES = "pascal50s/pascal50S.mat"
_TRIPLETS = "pascal50s/consensus_pascal.mat"
_CANDIDATES = "pascal50s/pascal_cands.mat"
_DRAWN = {"random-5-refs": 5, "random-1-ref": 1}


class Pascal50S(Dataset):
    """4,000 pairs of captions (1,000 each of HC, HI, HM, MM) with human preferences under three labels.

    ``direct`` is the majority of the direct votes, ``consensus`` the published label in the JSON, ``triplets`` the
    majority of a pair's 48 triplets. A tie prefers neither caption (0); the published direct votes have no ties, even
    in the six pairs with 10 votes.
    """

    name: ClassVar[str] = "pascal-50s"
    licence: ClassVar[str] = "none stated"
    in_default: ClassVar[bool] = True
    title: ClassVar[str] = "PASCAL-50S"
    image_folders: ClassVar[Sequence[str]] = ("pascal50s/images",)
    version, versions = AS_PUBLISHED
    selections: ClassVar[Mapping[str, ItemSelection]] = by_name(
        ItemSelection(
            "random-5-refs",
            "all pairs; five of an image's fifty references, at random",
            draws=5,
            seed=0,
            source="TIGEr Table 2, NNEval Table 2",
        ),
        ItemSelection("json-5-refs", "all pairs; the five references that were published with the consensus label"),
        ItemSelection("random-1-ref", "all pairs; one of an image's fifty references, at random", draws=5, seed=0),
        ItemSelection("all-50-refs", "all pairs; all fifty references of an image"),
    )
    statistics: ClassVar[Mapping[str, StatisticSpec]] = {
        **accuracy("direct"),
        **accuracy("consensus"),
        **accuracy("triplets"),
    }
    default: ClassVar[tuple[str, str]] = ("random-5-refs", "direct-strict")
    other_practice: ClassVar[tuple[str, str]] = ("random-5-refs/consensus-strict", "CLIPScore and later papers")
    most_references: ClassVar[str] = "all-50-refs"
    groups: ClassVar[Sequence[str] | None] = CATEGORIES
    aliases: ClassVar[Mapping[str, str]] = {
        **{rule: f"random-5-refs/direct-{rule}" for rule in ("strict", "ties-right", "ties-half")},
        **{label: f"random-5-refs/{label}-strict" for label in ("direct", "consensus", "triplets")},
    }

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items; ``preferences`` has the labels whose files exist."""
        wants_json = selection.name == "json-5-refs"
        json_path = self.root.file(_JSON, what="its five references") if wants_json else self.root.path / _JSON
        labelled: Sequence[LabelledPair] | None = read_json_pairs(json_path) if json_path.is_file() else None
        pairs, source = self._pairs(labelled)
        if labelled is not None:
            labelled = _align(pairs, labelled, source, json_path)
        preferences = self._preferences(pairs, labelled)
        if wants_json and labelled is not None:
            references = [pair.references for pair in labelled]
        else:
            references = self._fifty(pairs, source, _DRAWN.get(selection.name, 1))
        items = _items(pairs, references)
        # No note for the triplets: few users have the file, and a lookup reports that it is missing.
        labels = [label for label in ("direct", "consensus") if label not in preferences]
        notes = [f"there are no {label} preferences: a file is missing" for label in labels]
        count = _DRAWN.get(selection.name, 1)
        if selection.seed is not None:
            notes.append(f"{count} references per image are sampled (seed {selection.seed})")
        judged = Judgements(self.name, selection.name, items, preferences=preferences, notes=tuple(notes))
        return drawn(judged, selection, count)

    def _pairs(self, labelled: Sequence[LabelledPair] | None) -> tuple[Pairs, Path]:
        if not (self.root.path / _PAIRS).is_file():
            if labelled is not None:
                return labelled, self.root.path / _JSON
            path = self.root.path / _CANDIDATES
            if path.is_file() and (self.root.path / _TRIPLETS).is_file():
                return read_candidates(path), path
        path = self.root.file(_PAIRS, _JSON, what="the pairs and human preferences")
        return read_pairs(path), path

    def _preferences(self, pairs: Pairs, labelled: Sequence[LabelledPair] | None) -> ByName[Preferences]:
        here: dict[str, Preferences] = {}
        absent = {"direct": (_PAIRS, "direct votes"), "consensus": (_JSON, "consensus labels")}
        votes = [pair.votes for pair in pairs if pair.votes is not None]
        if len(votes) == len(pairs):
            here["direct"] = _by_votes(pairs, votes)
        if labelled is not None:
            labels = np.array([pair.label for pair in labelled], dtype=np.int64)
            here["consensus"] = paired([pair.category for pair in labelled], preferred=1 - 2 * labels)
        path = self.root.path / _TRIPLETS
        later: dict[str, Callable[[], Preferences]] = {}
        if not path.is_file():
            absent["triplets"] = (_TRIPLETS, "triplets")
        elif pairs is labelled:
            # The triplets are in the order of the MATLAB files, which differs from that of the JSON.
            absent["triplets"] = (_PAIRS, "order of the triplets' pairs")
        else:
            later["triplets"] = lambda: _by_votes(pairs, read_triplets(path, pairs))
        later |= {label: partial(self._missing, *file) for label, file in absent.items() if label not in here}
        return ByName(here, later)

    def _missing(self, name: str, what: str) -> NoReturn:
        hint = f"See 'capbench data info {self.name}' for its source, or choose another statistic"
        raise MissingFileError(f"there is no such file ({what})", path=self.root.path / name, hint=hint)

    def _fifty(self, pairs: Pairs, source: Path, minimum: int) -> list[tuple[str, ...]]:
        path = self.root.file(_REFERENCES, what=f"the fifty references; the items json-5-refs have five, in {_JSON}")
        of_image = read_references(path)
        for number, pair in enumerate(pairs, 1):
            if pair.image not in of_image:
                problem = f"image '{pair.image}' has no references in {path.name}"
                row = f"pair {number}"
                raise file_error(problem, "missing-references", source, row, value=pair.image)
            if len(of_image[pair.image]) < minimum:
                problem = f"image '{pair.image}' has {len(of_image[pair.image])} references, {minimum} are required"
                raise file_error(problem, "too-few", path, value=pair.image)
        return [of_image[pair.image] for pair in pairs]


def _align(pairs: Pairs, labelled: Sequence[LabelledPair], source: Path, json_path: Path) -> Sequence[LabelledPair]:
    """The JSON's pairs in the order of ``pairs``: the n-th pair of a category is the n-th of that category."""
    if pairs is labelled:
        return labelled
    remaining: dict[str, list[LabelledPair]] = {}
    for candidate in reversed(labelled):
        remaining.setdefault(candidate.category, []).append(candidate)
    ordered = []
    for number, pair in enumerate(pairs, 1):
        of_category = remaining.get(pair.category, [])
        match = of_category.pop() if of_category else None
        if match is None or (match.image, match.candidates) != (pair.image, pair.candidates):
            which = f"pair {number} ({pair.category}, image {pair.image})"
            problem = f"{which} is not the next {pair.category} pair of {json_path.name}"
            raise file_error(problem, "mismatch", source)
        ordered.append(match)
    left = sum(len(of_category) for of_category in remaining.values())
    if left:
        problem = f"contains {left} pairs that {source.name} does not"
        raise file_error(problem, "mismatch", json_path, value=left)
    return ordered


def _items(pairs: Pairs, references: Sequence[tuple[str, ...]]) -> tuple[Item, ...]:
    counted: dict[str, int] = {}
    items = []
    for pair, texts in zip(pairs, references, strict=True):
        counted[pair.category] = number = counted.get(pair.category, 0) + 1
        name = f"{pair.category or 'pair'}-{number:04d}"
        for place, candidate in enumerate(pair.candidates, 1):
            items.append(Item(pair.image, candidate, texts, f"{name}#{place}", pair.category))
    return tuple(items)


def _by_votes(pairs: Pairs, votes: Sequence[tuple[int, int]]) -> Preferences:
    counts = np.array(votes, dtype=np.int64).reshape(-1, 2)
    return paired([pair.category for pair in pairs], preferred=np.sign(counts[:, 0] - counts[:, 1]), votes=counts)
