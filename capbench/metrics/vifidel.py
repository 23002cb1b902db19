"""VIFIDEL: distance of a caption's words to the labels of the image's objects (Madhyastha et al., ACL 2019)."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, count
from capbench.core.options import Choice, File, Number, Options, Text, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item, image_id
from capbench.features.class_names import KNOWN, class_names
from capbench.features.importers.boxes import read_boxes
from capbench.features.records import RegionFeatures
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.base import Metric
from capbench.metrics.needs import Features, References, Resources, WordVectors
from capbench.metrics.wmd import FARTHEST, known_vectors, opened_vectors, word_movers_distance
from capbench.text.vocabulary import GLASGOW

_WORD = re.compile(r"\b\w\w+\b")
Bag = tuple[str, ...]  # Words in alphabetical order, repeats included


def content_words(text: str) -> list[str]:
    """Words of at least two letters or digits, in lower case, without the stop words of the Glasgow group."""
    return [word for word in _WORD.findall(text.lower()) if word not in GLASGOW]


def reference_weight(word: str, references: Sequence[Bag], vectors: Mapping[str, NDArray[np.float32]]) -> float:
    """Weight of a word: the mean over references of max(0, 1 − the largest cosine with a word of the reference) / 2.

    A reference without any word vector counts as a cosine of 0. ``vectors`` (d,) have length 1.
    """
    total = 0.0
    for reference in references:
        known = [vectors[other] for other in reference if other in vectors]
        nearest = float((np.stack(known).astype(np.float64) @ vectors[word]).max()) if known else 0.0
        if not math.isclose(nearest, 1.0, rel_tol=0, abs_tol=1e-6):  # a vector's cosine with itself is rounded
            total += max(0.0, 1.0 - nearest) / 2
    return total / len(references)


@dataclass(frozen=True)
class VifidelOptions(Options):
    """Options of VIFIDEL."""

    vectors: str | None = option(
        None, File("word vectors"), "the word vectors: word2vec .bin, GloVe text or gensim KeyedVectors"
    )
    labels: str | None = option(
        None,
        File("object labels"),
        "file of labels by image, instead of the features' classes: .json, or .npz of boxes",
        quiet=True,
    )
    classes: str | None = option(
        None,
        Text("coco-80"),
        "names of the classes if features or boxes have none: coco-80, or a file with one name per line",
        quiet=True,
    )
    threshold: float = option(0.3, Number(0, 1), "minimum score of a label; labels without a score are included")
    repeats: str = option("counted", Choice("counted", "once"), "weight of repeated labels")


class LabelsNeed(Features):
    """Object labels: the classes of a feature store, or a file."""

    word = "object labels"

    def reads_store(self, options: Options) -> bool:
        assert isinstance(options, VifidelOptions)
        return options.labels is None

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        assert isinstance(options, VifidelOptions)
        if options.labels is not None:
            return None
        if lacks := super().missing(label, resources, options):
            return f"{lacks}, or --option {label}.labels=FILE"
        source = str(resources.features)
        with open_store(source) as store:
            if "class_ids" not in store.header.fields:
                return f"classes of the regions in {source} (or --option {label}.labels=FILE)"
            if store.header.class_names is None and options.classes is None:
                return f"names of the classes in {source} (--option {label}.classes=coco-80, or a FILE of names)"
        return None

    def check_items(self, items: Sequence[Item], resources: Resources, options: Options) -> None:
        assert isinstance(options, VifidelOptions)
        if options.labels is None:
            super().check_items(items, resources, options)
        else:
            open_labels(options, resources).require([item.image for item in items])


class Vifidel(Metric):
    """VIFIDEL with the opposite sign, so that higher is better: 0 is the best score, -2 the worst.

    The labels of an image's objects and the words of a caption are two bags of words with vectors of length 1.
    ``vifidel`` is their negative earth mover's distance, with equal mass for each word of a bag. With references
    (``vifidel-ref``), the vector of each word on both sides is first multiplied by its :func:`reference_weight`, so
    that words which occur in references cost less.

    The released code fails or returns infinity in some cases. Here, equal bags have distance 0; words without a vector
    are ignored; and if a side has no words left, the distance is 2, the maximum, with and without references.
    """

    name = "vifidel"
    columns = ("vifidel", "vifidel-ref")
    titles: ClassVar[Mapping[str, str]] = {
        "vifidel": "VIFIDEL (negative)",
        "vifidel-ref": "VIFIDEL, references (negative)",
    }
    citation = "Madhyastha et al., VIFIDEL: Evaluating the Visual Fidelity of Image Descriptions, ACL 2019"
    needs = (References(), LabelsNeed(), WordVectors())
    batch_size = 4096
    by_image = True
    packages = ("ot",)

    option_type = VifidelOptions
    options: VifidelOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        self._vectors = opened_vectors(str(self.options.vectors))

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        return frozenset({"vifidel"})

    @cached_property
    def labels(self) -> Labels:
        """The objects in images."""
        return open_labels(self.options, self.resources)

    def prepare(self, items: Sequence[Item]) -> None:
        self.labels.require([item.image for item in items])

    def cache_key(self, item: Item) -> bytes:
        return item.key + self.labels.key(item.image)

    def facts(self) -> Mapping[str, object]:
        facts: dict[str, object] = {"vectors": self._vectors.sha256[:16], "dim": self._vectors.dimension}
        if self.options.labels is None:
            facts["features"] = super().facts()["features"]
        if self.options.classes is not None:
            source = self.options.classes
            facts["classes"] = source if source in KNOWN else files.sha256_file(Path(source).expanduser())[:16]
        return facts

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        images = [_bag(" ".join(self.used_labels(image))) for image in {item.image for item in items}]
        captions = [_bag(text) for text in {item.candidate for item in items}]
        lines = []
        for bags, what in ((images, "images have no label"), (captions, "captions have no word")):
            if bare := sum(not any(word in self._vectors for word in bag) for bag in bags):
                lines.append(f"{bare:,} of {len(bags):,} {what} with a word vector: distance {FARTHEST:g}")
        return lines

    def used_labels(self, image: str) -> list[str]:
        """The labels with a score of at least ``threshold``, and the best one."""
        objects = self.labels.of(image)
        best = max(objects, key=lambda label: label.score, default=None)
        names = [label.name for label in objects if label.score >= self.options.threshold or label is best]
        return names if self.options.repeats == "counted" else list(dict.fromkeys(names))

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 3): number of references, distance, distance with references (0 without any)."""
        labels = {image: _bag(" ".join(self.used_labels(image))) for image in {item.image for item in items}}
        texts = {text for item in items for text in (item.candidate, *item.references)}
        captions = {text: _bag(text) for text in texts}
        words = sorted({word for bag in (*labels.values(), *captions.values()) for word in bag})
        vectors = known_vectors(self._vectors, words)

        def known(bag: Bag) -> Bag:  # words without a vector are ignored, so bags that differ only in them are equal
            return tuple(word for word in bag if word in vectors)

        @cache
        def weight(word: str, references: tuple[Bag, ...]) -> float:
            return reference_weight(word, references, vectors)

        @cache
        def distance(left: Bag, right: Bag, references: tuple[Bag, ...]) -> float:
            used = vectors
            if references:
                used = {word: weight(word, references) * vectors[word] for word in {*left, *right}}
            return min(FARTHEST, word_movers_distance(left, right, used))

        out = np.zeros((len(items), 3))
        for row, item in enumerate(items):
            pair = known(labels[item.image]), known(captions[item.candidate])
            # A reference's words are distinct, and the order of references does not matter.
            references = tuple(sorted(tuple(dict.fromkeys(known(captions[text]))) for text in item.references))
            out[row, :2] = len(references), distance(*pair, ())
            out[row, 2] = distance(*pair, references) if references else 0.0
            progress(1)
        return out

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        # Adding 0 turns -0 into 0.
        distance, with_references = 0.0 - statistics[:, 1], 0.0 - statistics[:, 2]
        return {"vifidel": distance, "vifidel-ref": np.where(statistics[:, 0] > 0, with_references, np.nan)}


def _bag(text: str) -> Bag:
    return tuple(sorted(content_words(text)))


class ObjectLabel(NamedTuple):
    """One object: the name of its class, such as ``traffic light``, and a confidence from 0 to 1; 1 if unknown."""

    name: str
    score: float = 1.0


@dataclass(frozen=True)
class Labels:
    """Labels of images: the objects of each, or classes of its regions with their names."""

    path: Path
    images: FeatureStore | Mapping[str, Sequence[ObjectLabel]]
    names: Sequence[str] = ()  # of a store's classes

    def require(self, images: Sequence[str]) -> None:
        """Check that all images have labels."""
        if isinstance(self.images, FeatureStore):
            self.images.require(images)
        elif missing := [image for image in dict.fromkeys(images) if image not in self.images]:
            message = f"has no labels of {count(len(missing), 'image')}, such as '{missing[0]}'"
            hint = f"Its images look like '{next(iter(self.images))}'; one without objects has an empty list"
            raise DataError(message, code="missing-image", value=missing[0], path=self.path, hint=hint)

    def of(self, image: str) -> Sequence[ObjectLabel]:
        """An image's objects."""
        self.require([image])
        found = self.images[image]
        return _named(image, found, self.names, self.path) if isinstance(found, RegionFeatures) else found

    def key(self, image: str) -> bytes:
        """A CRC-32 of the image's labels and scores, or of its regions."""
        if isinstance(self.images, FeatureStore):
            return (self.images.checksum(image) or 0).to_bytes(4, "little")
        return zlib.crc32(repr(self.of(image)).encode()).to_bytes(4, "little")


def open_labels(options: VifidelOptions, resources: Resources) -> Labels:
    """The labels of a file, or of the feature store.

    - JSON: ``{"im1.jpg": ["dog", "ball"], "im2.jpg": [{"label": "cat", "score": 0.9}], "im3.jpg": []}``;
    - ``.npz`` in the format of :func:`capbench.features.importers.boxes.read_boxes`.
    """
    if options.labels is None:
        store = open_store(str(resources.features))
        return Labels(store.paths[0], store, _class_names(options.classes, store.header.class_names, store.paths[0]))
    path = Path(options.labels).expanduser()
    if path.suffix.lower() == ".npz":
        images, known = read_boxes(path)
        names = _class_names(options.classes, known, path)
        return Labels(path, {image: _named(image, of, names, path) for image, of in images.items()})
    labels: dict[str, list[ObjectLabel]] = {}
    form = 'Write JSON {"image": ["label", {"label": "label", "score": 0.9}]}'
    content = files.read_json(path, unique_keys=True)
    if not isinstance(content, dict) or not content:
        raise DataError("has no labels by image", code="wrong-format", path=path, hint=form)
    for image, objects in content.items():
        try:
            if not isinstance(objects, list) or not image.strip():
                raise TypeError
            labels.setdefault(image_id(image.strip()), []).extend(map(_label, objects))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message, row = f"{str(objects)[:80]} is not a list of labels with scores from 0 to 1", f"image '{image}'"
            raise DataError(message, code="wrong-value", value=objects, path=path, row=row, hint=form) from error
    return Labels(path, labels)


def _label(entry: Any) -> ObjectLabel:
    name, score = (entry["label"], entry.get("score")) if isinstance(entry, dict) else (entry, None)
    number = 1.0 if score in (None, "") else float(score)
    if not name.strip() or not 0 <= number <= 1:
        raise ValueError
    return ObjectLabel(name.strip(), number)


def _class_names(option: str | None, known: Sequence[str] | None, path: Path) -> Sequence[str]:
    names = class_names(option) if option is not None else known
    if names is None:
        hint = "Set the option 'classes': coco-80, or a file with one name per line"
        raise DataError("has no names of its classes", code="missing-key", value="class_names", path=path, hint=hint)
    return names


def _named(image: str, regions: RegionFeatures, names: Sequence[str], path: Path) -> list[ObjectLabel]:
    ids, scores = regions.class_ids, regions.class_scores
    if ids is None:
        raise DataError("has no 'class_ids'", code="missing-key", value="class_ids", path=path)
    if max(ids, default=0) >= len(names):
        message = f"the image '{image}' has an object of class {max(ids)}, but there are {len(names)} class names"
        hint = "Set the option 'classes' to the class names of this detector"
        raise DataError(message, code="out-of-range", value=int(max(ids)), path=path, hint=hint)
    confidences = [1.0] * len(ids) if scores is None else [min(float(score), 1.0) for score in scores]
    return [ObjectLabel(names[number], score) for number, score in zip(ids, confidences, strict=True)]
