"""VIFIDEL: distance of a caption's words to the labels of the image's objects (Madhyastha et al., ACL 2019)."""

from __future__ import annotations

import csv
import io
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import CapbenchError, DataError, FeatureError, MetricError
from capbench.core.options import Choice, Count, File, Number, Options, Text, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, image_id
from capbench.features.class_names import class_names
from capbench.features.pooling import read_boxes
from capbench.features.store import FeatureStore
from capbench.metrics.base import Metric
from capbench.metrics.needs import Features, Need, References, Resources, WordVectors
from capbench.metrics.wmd import opened_vectors, word_movers_distance
from capbench.text.vocabulary import ENGLISH, GLASGOW

FARTHEST: Final = 2.0
"""The distance if one side has no word with a vector: the maximum for vectors of length 1."""

_WORD = re.compile(r"\b\w\w+\b")
_STOP_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "glasgow-318": GLASGOW,
    "nltk-179": ENGLISH,
    "none": frozenset(),
}
Bag = tuple[str, ...]
"""Words in alphabetical order, repeats included."""


def content_words(text: str, stop_words: frozenset[str] = GLASGOW) -> list[str]:
    """Words of at least two letters or digits, in lower case, without stop words.

    >>> content_words("A man's dog runs to 2 fire hydrants.")
    ['man', 'dog', 'runs', 'hydrants']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in stop_words]


def reference_weights(
    words: Sequence[str], references: Sequence[Sequence[str]], vectors: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """Weights of words: the mean over references of max(0, 1 − the largest cosine with a word of the reference) / 2.

    A word that occurs in all references has weight 0. A reference without any word vector counts as a cosine of 0.

    Args:
        words: distinct words, all with a vector.
        references: words of each reference; words without a vector are ignored.
        vectors: word → (d,) vector of length 1.
    """
    if not words:
        return {}
    matrix = np.stack([vectors[word] for word in words]).astype(np.float64)
    total = np.zeros(len(words))
    for reference in references:
        known = [vectors[word] for word in dict.fromkeys(reference) if word in vectors]
        nearest = (matrix @ np.stack(known).astype(np.float64).T).max(axis=1) if known else 0.0
        # The cosine of a vector with itself may differ from 1 by rounding.
        total += np.where(np.isclose(nearest, 1.0, rtol=0, atol=1e-6), 0.0, np.maximum(0.0, 1.0 - nearest) / 2)
    return dict(zip(words, (total / len(references)).tolist(), strict=True))


@dataclass(frozen=True)
class VifidelOptions(Options):
    """Options of VIFIDEL."""

    vectors: str | None = option(
        None, File("word vectors"), "the word vectors: word2vec .bin, GloVe text or gensim KeyedVectors"
    )
    labels: str | None = option(
        None,
        File("object labels"),
        "file of labels by image, instead of the features' classes: .json, .csv, .tsv, or .npz of boxes",
        quiet=True,
    )
    classes: str | None = option(
        None,
        Text("coco-80"),
        "names of the classes if features or boxes have none: coco-80, or a file with one name per line",
        quiet=True,
    )
    threshold: float = option(0.3, Number(0, 1), "minimum score of a label; labels without a score are included")
    at_least: int = option(1, Count(), "number of an image's best labels that are included regardless of their scores")
    repeats: str = option("counted", Choice("counted", "once"), "weight of repeated labels")
    stop: str = option("glasgow-318", Choice(*_STOP_WORDS), "stop words, which are ignored in labels and captions")


class LabelsNeed(Features):
    """Object labels: the classes of a feature store, or a file."""

    def __init__(self) -> None:
        super().__init__()

    def name(self) -> str:
        """One word."""
        return "object labels"

    def reads_store(self, options: Options) -> bool:
        """False if the labels come from a file."""
        assert isinstance(options, VifidelOptions)
        return options.labels is None

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        """A file of labels, or a store whose regions have classes with names."""
        assert isinstance(options, VifidelOptions)
        how = f"--option {label}.labels=FILE, or --features STORE with classes of regions"
        if options.labels is not None:
            exists = Path(options.labels).expanduser().exists()
            return None if exists else f"object labels: {options.labels} does not exist ({how})"
        if not resources.features:
            return f"labels of the objects in images ({how})"
        if not Path(resources.features).exists():
            return f"object labels: {resources.features} does not exist ({how})"
        from capbench.features.store import open_store

        with open_store(resources.features) as store:
            if "class_ids" not in store.header.fields:
                return f"object labels: the regions of {resources.features} have no classes ({how})"
            if store.header.class_names is None and options.classes is None:
                return (
                    f"names of the classes in {resources.features} (--option {label}.classes=coco-80, or a FILE with "
                    "one name per line)"
                )
        return None

    def unmet_by(self, items: Sequence[Item], resources: Resources, options: Options) -> CapbenchError | None:
        """Images without labels in the store or the file."""
        assert isinstance(options, VifidelOptions)
        if options.labels is None:
            return super().unmet_by(items, resources, options)
        labels = read_labels(options.labels, options.classes)
        try:
            labels.require([item.image for item in items])
        except DataError as error:
            return error
        return None


class Vifidel(Metric):
    """VIFIDEL with the opposite sign, so that higher is better: 0 is the best score, -2 the worst.

    The labels of an image's objects and the words of a caption are two bags of words with vectors of length 1.
    ``vifidel`` is their negative earth mover's distance, with equal mass for each word of a bag. With references
    (``vifidel-ref``), the vector of each word on both sides is first multiplied by a weight: the mean over references
    of max(0, 1 - the largest cosine with a word of the reference) / 2. Words that occur in references thus cost less.

    The released code fails or returns infinity in some cases. In this implementation, equal bags have distance 0;
    words without a vector are ignored; and if a side has no words left, the distance is 2, the maximum, with and
    without references.

    Raises:
        UsageError: an invalid option.
        MetricError: no vectors or labels.
        DataError, FeatureError: vectors or labels cannot be read.
    """

    name: ClassVar[str] = "vifidel"
    columns: ClassVar[tuple[str, ...]] = ("vifidel", "vifidel-ref")
    titles: ClassVar[Mapping[str, str]] = {
        "vifidel": "VIFIDEL (negative)",
        "vifidel-ref": "VIFIDEL, references (negative)",
    }
    citation: ClassVar[str] = (
        "Madhyastha et al., VIFIDEL: Evaluating the Visual Fidelity of Image Descriptions, ACL 2019"
    )
    needs: ClassVar[tuple[Need, ...]] = (References(), LabelsNeed(), WordVectors())
    batch_size: int = 4096
    by_image: ClassVar[bool] = True
    order: ClassVar[int] = 150

    option_type = VifidelOptions
    options: VifidelOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._vectors = opened_vectors(str(self.options.vectors))
        self._stop_words = _STOP_WORDS[self.options.stop]
        self._bags: dict[str, Bag] = {}

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The first column."""
        return frozenset({"vifidel"})

    @cached_property
    def labels(self) -> ObjectLabels:
        """The objects in images. Raises DataError or FeatureError if they cannot be read."""
        from capbench.features.store import open_store

        if self.options.labels is not None:
            return read_labels(self.options.labels, self.options.classes)
        assert self.resources.features is not None
        return StoreLabels(open_store(self.resources.features), self.options.classes)

    def prepare(self, items: Sequence[Item]) -> None:
        """Check that all images have labels. Raises DataError or FeatureError otherwise."""
        self.labels.require([item.image for item in items])

    def cache_key(self, item: Item) -> bytes:
        """The item's key with a checksum of its image's labels."""
        return item.key + self.labels.key(item.image)

    def facts(self) -> Mapping[str, object]:
        """First 16 digits of the SHA-256 of vectors and files; the signature of features that provide labels."""
        facts: dict[str, object] = {"vectors": self._vectors.sha256[:16], "dim": self._vectors.dimension}
        if self.options.labels is None:
            facts["features"] = super().facts()["features"]
        if self.options.classes is not None:
            from capbench.core.files import sha256_file
            from capbench.features.class_names import KNOWN

            source = self.options.classes
            facts["classes"] = source if source in KNOWN else sha256_file(Path(source).expanduser())[:16]
        return facts

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Numbers of images and captions whose distance is the maximum because no word has a vector."""
        images = {item.image: self._label_bag(item.image) for item in items}
        captions = {item.candidate: self._caption_bag(item.candidate) for item in items}
        vectors = self._vectors
        bare = {image for image, bag in images.items() if not any(word in vectors for word in bag)}
        empty = {text for text, bag in captions.items() if not any(word in vectors for word in bag)}
        lines = []
        if bare:
            lines.append(
                f"{len(bare):,} of {len(images):,} images have no label with a word vector: distance {FARTHEST:g}"
            )
        if empty:
            lines.append(
                f"{len(empty):,} of {len(captions):,} captions have no word with a vector: distance {FARTHEST:g}"
            )
        return lines

    def used_labels(self, image: str) -> list[str]:
        """The used labels of an image: those with a score of at least ``threshold``, and the best ``at_least`` ones."""
        objects = self.labels.of(image)
        ranked = sorted(range(len(objects)), key=lambda i: -_score(objects[i].score))
        used = {i for i in ranked if _score(objects[i].score) >= self.options.threshold}
        used |= set(ranked[: self.options.at_least])
        names = [objects[i].name for i in sorted(used)]
        return names if self.options.repeats == "counted" else list(dict.fromkeys(names))

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 3): number of references, distance, distance with references (0 without any).

        Each distinct pair of label set and caption is solved once without, and once with its references.

        Raises:
            MetricError: no word of any label or caption has a vector.
        """
        labels = {image: self._label_bag(image) for image in dict.fromkeys(item.image for item in items)}
        texts = dict.fromkeys(text for item in items for text in (item.candidate, *item.references))
        captions = {text: self._caption_bag(text) for text in texts}
        words = dict.fromkeys(word for bag in (*labels.values(), *captions.values()) for word in bag)
        vectors = self._vectors.unit_vectors(words)
        if words and not vectors:
            raise MetricError(
                f"none of the {len(words)} words of these labels and captions has one of the {len(self._vectors)} word "
                "vectors",
                code="missing-value",
                value=len(words),
                path=self._vectors.path,
                hint="Captions are in lower case: use vectors of English words in lower case",
            )
        # Words without a vector are ignored, so bags that differ only in them are equal.
        labels = {image: tuple(word for word in bag if word in vectors) for image, bag in labels.items()}
        captions = {text: tuple(word for word in bag if word in vectors) for text, bag in captions.items()}
        out = np.zeros((len(items), 3))
        plain: dict[tuple[Bag, Bag], float] = {}
        with_references: dict[tuple[Bag, ...], list[int]] = {}  # indices of items with the same references
        for row, item in enumerate(items):
            pair = (labels[item.image], captions[item.candidate])
            if pair not in plain:
                plain[pair] = _distance(*pair, vectors)
            out[row, :2] = len(item.references), plain[pair]
            if item.references:
                # A reference's words are distinct, and the order of references does not matter.
                key = tuple(sorted(tuple(dict.fromkeys(captions[text])) for text in item.references))
                with_references.setdefault(key, []).append(row)
            else:
                progress(1)
        for references, rows in with_references.items():
            pairs = {row: (labels[items[row].image], captions[items[row].candidate]) for row in rows}
            every = sorted({word for pair in pairs.values() for bag in pair for word in bag})
            weights = reference_weights(every, references, vectors)
            weighted = {word: (weights[word] * vectors[word]).astype(np.float64) for word in every}
            solved: dict[tuple[Bag, Bag], float] = {}
            for row, pair in pairs.items():
                if pair not in solved:
                    solved[pair] = _distance(*pair, weighted)
                out[row, 2] = solved[pair]
                progress(1)
        return out

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Negative distances; ``vifidel-ref`` is NaN for items without references."""
        # Adding 0 turns -0 into 0.
        with_references = np.where(statistics[:, 0] > 0, 0.0 - statistics[:, 2], np.nan)
        return {"vifidel": 0.0 - statistics[:, 1], "vifidel-ref": with_references}

    def _label_bag(self, image: str) -> Bag:
        if image not in self._bags:
            used = self.used_labels(image)
            self._bags[image] = tuple(sorted(word for name in used for word in content_words(name, self._stop_words)))
        return self._bags[image]

    def _caption_bag(self, text: str) -> Bag:
        return tuple(sorted(content_words(text, self._stop_words)))


def _score(score: float | None) -> float:
    """The score of a label, 1 if it has none."""
    return 1.0 if score is None else score


def _distance(labels: Bag, caption: Bag, vectors: Mapping[str, NDArray[Any]]) -> float:
    distance = word_movers_distance(labels, caption, vectors)
    return distance if math.isfinite(distance) else FARTHEST


# Object labels from a feature store's regions, a file of boxes, or a label file in one of these formats:
#
# - JSON, labels by image: ``{"im1.jpg": ["dog", "ball"], "im2.jpg": [{"label": "cat", "score": 0.9}], "im3.jpg": []}``;
# - JSON, a list with an object for each image, ``{"image": …, "labels": [...]}``, or for each label,
#   ``{"image": …, "label": …, "score": …}``;
# - CSV or TSV with the columns ``image``, ``label`` and optionally ``score``, one label per line. An image without
#   objects has one line with an empty label.
#
# Scores are confidences from 0 to 1. A label is repeated for each object of its class.

_FORM = 'Write JSON {"image": ["label", …]} or CSV with the columns image,label[,score]'
_TABLES = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class ObjectLabel:
    """One object.

    Attributes:
        name: name of its class, such as ``traffic light``.
        score: confidence from 0 to 1; None if unknown.
    """

    name: str
    score: float | None = None


class ObjectLabels(ABC):
    """The objects of images."""

    @abstractmethod
    def require(self, images: Sequence[str]) -> None:
        """Raise DataError or FeatureError if images have no labels."""

    @abstractmethod
    def of(self, image: str) -> tuple[ObjectLabel, ...]:
        """An image's objects in the order of their source. Raises DataError or FeatureError for an unknown image."""

    @abstractmethod
    def key(self, image: str) -> bytes:
        """A checksum of an image's objects."""


class StoreLabels(ObjectLabels):
    """Classes of a store's regions.

    Args:
        store: a store with ``class_ids``.
        names: names of the classes if the store has none, see :func:`class_names`.

    Raises:
        FeatureError: the store has no classes, or there are no names for them.
    """

    def __init__(self, store: FeatureStore, names: str | None = None) -> None:
        self._store = store
        if "class_ids" not in store.header.fields:
            raise FeatureError(
                "has no classes of its regions", code="missing-key", value="class_ids", path=store.paths[0]
            )
        known = class_names(names) if names is not None else store.header.class_names
        if known is None:
            raise FeatureError(
                "has no names of its classes", code="missing-key", value="class_names", path=store.paths[0]
            )
        self._names = known

    def require(self, images: Sequence[str]) -> None:
        """Raise MissingFeaturesError if images are not in the store."""
        self._store.require(images)

    def of(self, image: str) -> tuple[ObjectLabel, ...]:
        """An image's objects, region by region."""
        regions = self._store[image]
        assert regions.class_ids is not None
        return _named(image, regions.class_ids.tolist(), regions.class_scores, self._names, self._store.paths[0])

    def key(self, image: str) -> bytes:
        """The checksum of the image's regions."""
        return (self._store.checksum(image) or 0).to_bytes(4, "little")


class FileLabels(ObjectLabels):
    """Labels from a file, read by :func:`read_labels`.

    Attributes:
        path: the file.
        sha256: SHA-256 of the file.
    """

    def __init__(self, path: Path, labels: Mapping[str, tuple[ObjectLabel, ...]]) -> None:
        self.path, self.sha256, self._labels = path, files.sha256_file(path), labels

    def require(self, images: Sequence[str]) -> None:
        """Raise DataError if images are not in the file."""
        missing = [image for image in dict.fromkeys(images) if image not in self._labels]
        if missing:
            named = ", ".join(f"'{image}'" for image in missing[:3]) + (", ..." if len(missing) > 3 else "")
            raise DataError(
                f"has no labels of {len(missing):,} of {len(set(images)):,} images: {named}",
                code="missing-image",
                value=missing[0],
                path=self.path,
                hint=f"Its image names look like '{next(iter(self._labels))}'; an image without "
                "objects has an empty list",
            )

    def of(self, image: str) -> tuple[ObjectLabel, ...]:
        """An image's objects."""
        self.require([image])
        return self._labels[image]

    def key(self, image: str) -> bytes:
        """A CRC-32 of the image's labels and scores."""
        return zlib.crc32(repr(self.of(image)).encode()).to_bytes(4, "little")


def read_labels(file: str, names: str | None = None) -> FileLabels:
    """Read a label file: JSON, CSV or TSV, or ``.npz`` in the format of :func:`capbench.features.pooling.read_boxes`.

    Args:
        file: its path.
        names: names of the classes of an ``.npz`` file without names, see :func:`class_names`.

    Raises:
        MissingFileError: the file does not exist.
        DataError: another format, a repeated image, or an invalid label or score, with its row.
    """
    path = Path(file).expanduser()
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return FileLabels(path, _of_boxes(path, names))
    if suffix == ".json":
        entries = _json_entries(files.read_json(path, unique_keys=True), path)
    elif suffix in _TABLES:
        entries = _table_entries(files.read_text(path), _TABLES[suffix], path)
    else:
        raise DataError(
            f"labels cannot be read from '{path.suffix}' files",
            code="wrong-format",
            value=path.suffix,
            path=path,
            hint="Use .json, .csv, .tsv or .npz",
        )
    labels: dict[str, list[ObjectLabel]] = {}
    complete: set[str] = set()  # images whose labels are in one entry
    for row, name, objects, has_all in entries:
        if not isinstance(name, str) or not name.strip():
            raise DataError("has no image", code="missing-value", value="image", path=path, row=row, hint=_FORM)
        image = image_id(name.strip())
        if image in complete or (has_all and image in labels):
            message, hint = f"the image '{image}' occurs twice", "Remove one of the two entries"
            raise DataError(message, code="duplicate", value=image, path=path, row=row, hint=hint)
        if has_all:
            complete.add(image)
        labels.setdefault(image, []).extend(_label(entry, path, row) for entry in objects)
    if not labels:
        raise DataError("has no labels", code="missing-value", path=path, hint=_FORM)
    return FileLabels(path, {image: tuple(of_image) for image, of_image in labels.items()})


_Entry = tuple[int | str, object, Sequence[object], bool]
"""Row, image, labels, and True if these are all labels of the image."""


def _json_entries(data: object, path: Path) -> Iterator[_Entry]:
    if isinstance(data, dict):
        for image, objects in data.items():
            if not isinstance(objects, list):
                row = f"image '{image}'"
                raise DataError(
                    "the labels are not a list", code="wrong-type", value=objects, path=path, row=row, hint=_FORM
                )
            yield f"image '{image}'", image, objects, True
        return
    if not isinstance(data, list):
        raise DataError("is neither labels by image nor a list", code="wrong-format", path=path, hint=_FORM)
    for number, record in enumerate(data, 1):
        row = f"entry {number}"
        if not isinstance(record, dict) or ("label" in record) == ("labels" in record):
            message = "is not an object with 'image' and one of 'labels', 'label'"
            raise DataError(message, code="wrong-type", value=record, path=path, row=row, hint=_FORM)
        if "label" in record:
            yield row, record.get("image"), [record], False
        elif isinstance(record["labels"], list):
            yield row, record.get("image"), record["labels"], True
        else:
            raise DataError(
                "'labels' is not a list", code="wrong-type", value=record["labels"], path=path, row=row, hint=_FORM
            )


def _table_entries(text: str, delimiter: str, path: Path) -> Iterator[_Entry]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        head = [name.strip() for name in next(reader, [])]
        if sorted(head) not in (["image", "label"], ["image", "label", "score"]):
            shown = ", ".join(head)[:60] or "nothing"
            message = f"the columns in the first line are {shown}"
            raise DataError(message, code="missing-column", value=shown, path=path, row=1, hint=_FORM)
        last = reader.line_num
        for cells in reader:
            row, last = last + 1, reader.line_num
            if not cells:
                continue
            if len(cells) != len(head):
                message = f"has {len(cells)} cells instead of {len(head)}"
                raise DataError(message, code="wrong-format", value=len(cells), path=path, row=row)
            record: dict[str, object] = dict(zip(head, (cell.strip() for cell in cells), strict=True))
            if "score" in record:
                record["score"] = _number(str(record["score"]))
            yield row, record["image"], [record] if record["label"] else [], False
    except csv.Error as error:
        raise DataError(
            f"is not a valid table ({error})",
            code="wrong-format",
            path=path,
            row=reader.line_num,
            hint="Check the quotes",
        ) from error


def _number(cell: str) -> object:
    if not cell:
        return None
    try:
        return float(cell)
    except ValueError:
        return cell


def _label(entry: object, path: Path, row: int | str) -> ObjectLabel:
    name, score = (entry.get("label"), entry.get("score")) if isinstance(entry, dict) else (entry, None)
    if not isinstance(name, str) or not name.strip():
        raise DataError(
            f"{str(name)[:40]!r} is not a label", code="wrong-type", value=name, path=path, row=row, hint=_FORM
        )
    if score is None:
        return ObjectLabel(name.strip())
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise DataError(
            f"the score of '{name.strip()}' is {str(score)[:40]}, not a number from 0 to 1",
            code="out-of-range",
            value=score,
            path=path,
            row=row,
        )
    return ObjectLabel(name.strip(), float(score))


def _of_boxes(path: Path, names: str | None) -> dict[str, tuple[ObjectLabel, ...]]:
    boxes = read_boxes(path)
    known = class_names(names) if names is not None else boxes.class_names
    if known is None:
        raise DataError(
            "has no names of its classes",
            code="missing-key",
            value="class_names",
            path=path,
            hint="Set the option 'classes': coco-80, or a file with one name per line",
        )
    labels = {}
    for image, of_image in boxes.images.items():
        if of_image.class_ids is None:
            message, hint = "has no 'class_ids'", "Use boxes with classes, whose names are the labels"
            raise DataError(message, code="missing-key", value="class_ids", path=path, hint=hint)
        labels[image] = _named(image, of_image.class_ids.tolist(), of_image.class_scores, known, path)
    return labels


def _named(image: str, ids: Sequence[int], scores: Any, names: Sequence[str], path: Path) -> tuple[ObjectLabel, ...]:
    """Objects of class numbers. Raises DataError if a number has no name."""
    if max(ids, default=0) >= len(names):
        raise DataError(
            f"the image '{image}' has an object of class {max(ids)}, but there are {len(names)} class names",
            code="out-of-range",
            value=max(ids),
            path=path,
            hint="Set the option 'classes' to the class names of this detector",
        )
    confidences = [None] * len(ids) if scores is None else [min(float(score), 1.0) for score in scores.tolist()]
    return tuple(ObjectLabel(names[number], score) for number, score in zip(ids, confidences, strict=True))
