"""PASCAL-50S: which of two captions of an image do raters prefer? 4,000 pairs, fifty references per image.

Files in ``pascal50s/`` (Vedantam, Zitnick and Parikh 2015):

- ``pair_pascal.mat``: pairs, categories and **direct** votes (raters saw both captions, 11 votes per pair);
- ``pascal_50s.json``: pairs, the **consensus** label and one sample of five references;
- ``pascal50S.mat``: the fifty references;
- ``consensus_pascal.mat``: the **triplets** behind the consensus (which of two captions is closer to a reference).

Every selection reads as few files as possible. Pairs are in the order of ``pair_pascal.mat`` (without it: HC, HI, HM,
MM, each in the order of the JSON). Pair i has the items 2i (first caption) and 2i + 1 (second); CIDEr's document
frequencies therefore count 8,000 documents.

The files correspond for all 4,000 published pairs: ``consensus_pascal.mat`` has 48 rows for each pair in the order of
``pair_pascal.mat``, and the JSON lists the pairs of every category in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AliasChoices, BeforeValidator, Field

from capbench.core import files
from capbench.core.errors import CapbenchError, DataError, MissingFileError
from capbench.core.records import Item, Judgements, Preferences
from capbench.datasets.base import AS_PUBLISHED, Dataset
from capbench.datasets.judgement_files import ByName, file_error, paired
from capbench.datasets.protocol import ItemSelection, StatisticSpec, accuracy, by_name
from capbench.datasets.reference_draws import drawn
from capbench.datasets.row_models import Image, Row, Text, distinct, parsed

CATEGORIES = ("HC", "HI", "HM", "MM")
"""Human-human correct, human-human incorrect, human-machine, machine-machine; 1 to 4 in ``pair_pascal.mat``."""
TRIPLETS = 48  # triplets (one reference, two candidates, one vote) of each pair


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


class Pair(Row):
    """Two candidates of one image, the number of their category, and the votes for the first (1) or second (-1)."""

    image: Image = Field(validation_alias="name")
    first: Text = Field(validation_alias="sent1")
    second: Text = Field(validation_alias="sent2")
    number: int = Field(validation_alias="category", ge=1, le=len(CATEGORIES))
    votes: Annotated[tuple[Literal[1, -1], ...], BeforeValidator(_listed)] = Field(validation_alias="result")

    @property
    def candidates(self) -> tuple[str, str]:
        """Both candidates."""
        return self.first, self.second

    @property
    def category(self) -> str:
        """One of :data:`CATEGORIES`."""
        return CATEGORIES[self.number - 1]


class _Fifty(Row):
    """The references of an image."""

    image: Image = Field(validation_alias=AliasChoices("image", "name"))
    texts: Annotated[tuple[Text, ...], BeforeValidator(_listed)] = Field(
        validation_alias=AliasChoices("sent", "sentences")
    )


class LabelledPair(Row):
    """A pair in the JSON file: the index of the preferred candidate, and a sample of five references."""

    image: Image
    candidates: tuple[Text, Text] = Field(validation_alias="captions")
    category: str
    label: Literal[0, 1]
    references: tuple[Text, ...] = Field(min_length=1)


Pairs = Sequence[Pair | LabelledPair]


def read_pairs(path: Path) -> list[Pair]:
    """Read ``pair_pascal.mat``: ``new_input`` (name, sent1, sent2), ``category``, ``result`` (votes, +1 or -1)."""
    mat = _load(path)
    entries, results = _structures(mat, "new_input", path), _structures(mat, "result", path)
    categories = np.atleast_1d(_variable(mat, "category", path)).tolist()
    if not len(entries) == len(categories) == len(results):
        problem = f"new_input has {len(entries)} entries, category {len(categories)}, result {len(results)}"
        raise file_error(problem, "mismatch", path)
    return [
        parsed(Pair, {**_fields(entry), **_fields(result), "category": category}, path, f"pair {number}")
        for number, (entry, category, result) in enumerate(zip(entries, categories, results, strict=True), 1)
    ]


def read_references(path: Path) -> dict[str, tuple[str, ...]]:
    """Read ``pascal50S.mat``: image id → fifty references.

    One release contains ``refs`` (image, sent), another ``train_sent_final`` (name, an address; sentences).
    """
    mat = _load(path)
    entries = _structures(mat, "train_sent_final" if "refs" not in mat and "train_sent_final" in mat else "refs", path)
    rows = [parsed(_Fifty, _fields(entry), path, f"image {number}") for number, entry in enumerate(entries, 1)]
    return {row.image: row.texts for row in distinct(rows, ["image"], path)}


def read_json_pairs(path: Path) -> list[LabelledPair]:
    """Read ``pascal_50s.json``: category → entries of image, captions, label (0 or 1) and references."""
    data = files.read_json(path, unique_keys=True)
    if not isinstance(data, dict) or not data or set(data) - set(CATEGORIES):
        raise file_error("is not a JSON object with the categories HC, HI, HM, MM", "wrong-format", path)
    pairs = []
    for category in CATEGORIES:
        entries = data.get(category, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise file_error(f"'{category}' is not a list of pairs", "wrong-type", path, value=category)
        for number, entry in enumerate(entries, 1):
            pairs.append(parsed(LabelledPair, entry | {"category": category}, path, f"{category} entry {number}"))
    if not pairs:
        raise file_error("contains no pair", "missing-value", path)
    return pairs


def read_triplets(path: Path, pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    """Read ``consensus_pascal.mat``: votes for the first and for the second candidate of every pair.

    ``triplets`` has 48 rows (reference, B, C, winner) per pair, winner 1 for B and -1 for C. B and C are identified by
    their text, so that their order does not matter. Reading the published file takes about six seconds.
    """
    triplets = _structures(_load(path), "triplets", path)
    if len(triplets) != TRIPLETS * len(pairs):
        problem = f"has {len(triplets)} triplets, expected {TRIPLETS} for each of {len(pairs)} pairs"
        raise file_error(problem, "mismatch", path, value=len(triplets))
    votes_by_pair = []
    for number, pair in enumerate(pairs):
        votes = [0, 0]
        for index in range(number * TRIPLETS, (number + 1) * TRIPLETS):
            row = f"triplet {index + 1}"
            _, b, c, winner = (_plain(triplets[index][name]) for name in triplets.dtype.names)
            shown = (str(b).strip(), str(c).strip())
            if shown not in (pair.candidates, pair.candidates[::-1]):
                raise file_error(f"its candidates are not those of pair {number + 1}", "mismatch", path, row)
            if winner not in (1, -1):
                raise file_error(f"its winner {winner} is not 1 or -1", "wrong-value", path, row)
            for_first = (winner == 1) == (shown == pair.candidates)
            votes[0 if for_first else 1] += 1
        votes_by_pair.append((votes[0], votes[1]))
    return votes_by_pair


def _load(path: Path) -> dict[str, Any]:
    import scipy.io

    files.check_readable(path)
    try:
        return dict(scipy.io.loadmat(path, squeeze_me=True))
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


def _structures(mat: dict[str, Any], name: str, path: Path) -> Any:
    structures = np.atleast_1d(_variable(mat, name, path))
    if structures.dtype.names is None or structures.ndim != 1 or not len(structures):
        raise file_error(f"its variable {name} is not a list of structures", "wrong-type", path, value=name)
    return structures


def _fields(structure: Any) -> dict[str, Any]:
    return {name: _plain(structure[name]) for name in structure.dtype.names}


def _plain(value: Any) -> Any:
    """The text, whole number or list in a cell; ``""`` for an empty one."""
    if isinstance(value, str | int):
        return value
    while isinstance(value, np.ndarray) and value.size == 1:
        value = value.ravel()[0]
    if isinstance(value, np.ndarray):
        return [_plain(cell) for cell in value.ravel()] or ""
    is_whole = isinstance(value, np.integer | np.floating) and np.isfinite(value) and value == int(value)
    return int(value) if is_whole else value


_PAIRS = "pascal50s/pair_pascal.mat"
_JSON = "pascal50s/pascal_50s.json"
_REFERENCES = "pascal50s/pascal50S.mat"
_TRIPLETS = "pascal50s/consensus_pascal.mat"
_DRAWN = {"random-5-refs": 5, "random-1-ref": 1}


class Pascal50S(Dataset):
    """4,000 pairs of captions (1,000 each of HC, HI, HM, MM) with human preferences under three labels.

    ``direct`` is the majority of the direct votes, ``consensus`` the published label in the JSON, ``triplets`` the
    majority of a pair's 48 triplets. A tie prefers neither caption (0); the published direct votes have no ties, even
    in the six pairs with 10 votes.
    """

    name: ClassVar[str] = "pascal-50s"
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

    def load(self, selection: ItemSelection) -> tuple[Judgements, ...]:
        """Pairs of items; ``preferences`` has the labels whose files exist."""
        wants_json = selection.name == "json-5-refs"
        json_path = self.root.file(_JSON, what="its five references") if wants_json else self.root.path / _JSON
        labelled: Sequence[LabelledPair] | None = read_json_pairs(json_path) if json_path.is_file() else None
        source = self.root.file(_PAIRS, _JSON, what="the pairs and human preferences")
        voted = read_pairs(source) if source.suffix == ".mat" else None
        if labelled is not None and voted is not None:
            labelled = _align(voted, labelled, source, json_path)
        pairs: Pairs = voted or labelled or ()
        preferences = self._preferences(voted, labelled)
        if wants_json and labelled is not None:
            references = [pair.references for pair in labelled]
        else:
            references = self._fifty(pairs, source, _DRAWN.get(selection.name, 1))
        items = _items(pairs, references)
        # No note for the triplets: few users have the file, and a lookup reports that it is missing.
        labels = [label for label in ("direct", "consensus") if label not in preferences]
        notes = [f"there are no {label} preferences: a file is missing" for label in labels]
        judgements = Judgements(self.name, selection.name, items, preferences=preferences, notes=tuple(notes))
        return drawn(judgements, selection, _DRAWN.get(selection.name, 1))

    def _preferences(
        self, voted: Sequence[Pair] | None, labelled: Sequence[LabelledPair] | None
    ) -> ByName[Preferences]:
        here: dict[str, Preferences] = {}
        later: dict[str, Callable[[], Preferences] | CapbenchError] = {
            "direct": self._missing(_PAIRS, "direct votes"),
            "consensus": self._missing(_JSON, "consensus labels"),
        }
        if voted is not None:
            here["direct"] = _by_votes(voted, [(pair.votes.count(1), pair.votes.count(-1)) for pair in voted])
        if labelled is not None:
            labels = np.array([pair.label for pair in labelled], dtype=np.int64)
            here["consensus"] = paired([pair.category for pair in labelled], preferred=1 - 2 * labels)
        path = self.root.path / _TRIPLETS
        if not path.is_file():
            later["triplets"] = self._missing(_TRIPLETS, "triplets")
        elif voted is None:
            # The triplets are in the order of the MATLAB files, which differs from that of the JSON.
            later["triplets"] = self._missing(_PAIRS, "order of the triplets' pairs")
        else:
            later["triplets"] = lambda: _by_votes(voted, read_triplets(path, voted))
        return ByName(here, later)

    def _missing(self, name: str, what: str) -> MissingFileError:
        hint = f"See 'capbench data info {self.name}' for its source, or choose another statistic"
        return MissingFileError(f"there is no such file ({what})", path=self.root.path / name, hint=hint)

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


def _align(
    pairs: Sequence[Pair], labelled: Sequence[LabelledPair], source: Path, json_path: Path
) -> list[LabelledPair]:
    """The JSON's pairs in the order of ``pairs``: the n-th pair of a category is the n-th of that category."""
    if len(labelled) != len(pairs):
        problem = f"contains {len(labelled)} pairs, but {source.name} {len(pairs)}"
        raise file_error(problem, "mismatch", json_path, value=len(labelled))
    order = sorted(range(len(pairs)), key=lambda place: CATEGORIES.index(pairs[place].category))
    of_place = dict(zip(order, labelled, strict=True))
    for place, pair in enumerate(pairs):
        other = of_place[place]
        if (other.category, other.image, other.candidates) != (pair.category, pair.image, pair.candidates):
            which = f"pair {place + 1} ({pair.category}, image {pair.image})"
            problem = f"{which} is not the next {pair.category} pair of {json_path.name}"
            raise file_error(problem, "mismatch", source)
    return [of_place[place] for place in range(len(pairs))]


def _items(pairs: Pairs, references: Sequence[tuple[str, ...]]) -> tuple[Item, ...]:
    counted: dict[str, int] = {}
    items = []
    for pair, texts in zip(pairs, references, strict=True):
        counted[pair.category] = number = counted.get(pair.category, 0) + 1
        name = f"{pair.category}-{number:04d}"
        for place, candidate in enumerate(pair.candidates, 1):
            items.append(Item(pair.image, candidate, texts, f"{name}#{place}", pair.category))
    return tuple(items)


def _by_votes(pairs: Pairs, votes: Sequence[tuple[int, int]]) -> Preferences:
    counts = np.array(votes, dtype=np.int64).reshape(-1, 2)
    return paired([pair.category for pair in pairs], preferred=np.sign(counts[:, 0] - counts[:, 1]), votes=counts)
