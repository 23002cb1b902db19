"""VIFIDEL: how far a caption's words are from the labels of the objects in the image (Madhyastha et al., ACL 2019)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from capbench.errors import MetricError
from capbench.metrics.base import Metric, Progress, Resources
from capbench.metrics.needs import Features, Need, References, WordVectors
from capbench.metrics.wmd import opened_vectors
from capbench.options import Choice, Count, File, Number, Options, Text, option
from capbench.records import FloatArray, Item
from capbench.text.stopwords import ENGLISH, GLASGOW
from capbench.text.transport import word_movers_distance

if TYPE_CHECKING:
    from capbench.features.object_labels import ObjectLabels

__all__ = ["FARTHEST", "Vifidel", "VifidelOptions", "content_words", "reference_weights"]

FARTHEST: Final = 2.0
"""The distance where one side holds no word with a vector: the largest that vectors of length 1 can have."""

_WORD = re.compile(r"\b\w\w+\b")
_STOP_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "glasgow-318": GLASGOW,
    "nltk-179": ENGLISH,
    "none": frozenset(),
}
Bag = tuple[str, ...]
"""Words in the order of the alphabet, repeats included."""


def content_words(text: str, stop_words: frozenset[str] = GLASGOW) -> list[str]:
    """The words that count: of two letters or digits and more, in lower case, and no stop words.

    >>> content_words("A man's dog runs to 2 fire hydrants.")
    ['man', 'dog', 'runs', 'hydrants']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in stop_words]


def reference_weights(
    words: Sequence[str], references: Sequence[Sequence[str]], vectors: Mapping[str, NDArray[np.float32]]
) -> dict[str, float]:
    """What words cost beside references: mean over these of max(0, 1 − the largest cosine with one of their words) / 2.

    A word that all references hold costs nothing. A reference of which no word has a vector holds nothing that a word
    could be near to: it counts as a cosine of 0.

    Args:
        words: each once, all with a vector.
        references: words of each; those without a vector do not count.
        vectors: word → (d,) vector of length 1.
    """
    if not words:
        return {}
    matrix = np.stack([vectors[word] for word in words]).astype(np.float64)
    total = np.zeros(len(words))
    for reference in references:
        known = [vectors[word] for word in dict.fromkeys(reference) if word in vectors]
        nearest = (matrix @ np.stack(known).astype(np.float64).T).max(axis=1) if known else 0.0
        # Rounding makes the cosine of a vector with itself a little more or less than 1.
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
        "labels by image instead of the features' classes: .json, .csv, .tsv, or .npz of boxes",
        quiet=True,
    )
    classes: str | None = option(
        None,
        Text("coco-80"),
        "what class numbers stand for where features or boxes do not say: coco-80, or a file with a name a line",
        quiet=True,
    )
    threshold: float = option(0.3, Number(0, 1), "labels of a lower score are left out; labels without a score stay")
    at_least: int = option(1, Count(), "so many labels of an image stay whatever their scores, the best ones")
    repeats: str = option("counted", Choice("counted", "once"), "whether a label that stands twice weighs twice")
    stop: str = option("glasgow-318", Choice(*_STOP_WORDS), "words that do not count, in labels and captions")


class LabelsNeed(Features):
    """Labels of objects: the classes of a feature store, or a file."""

    def __init__(self) -> None:
        super().__init__()

    def name(self) -> str:
        """One word."""
        return "object labels"

    def reads_store(self, options: Options) -> bool:
        """Not where a file holds the labels."""
        assert isinstance(options, VifidelOptions)
        return options.labels is None

    def lacking(self, label: str, resources: Resources, options: Options) -> str | None:
        """A file of labels, or a store whose regions have classes with names."""
        assert isinstance(options, VifidelOptions)
        how = f"--option {label}.labels=FILE, or --features STORE with classes of regions"
        if options.labels is not None:
            there = Path(options.labels).expanduser().exists()
            return None if there else f"object labels: there is no {options.labels} ({how})"
        if not resources.features:
            return f"labels of the objects in images ({how})"
        if not Path(resources.features).exists():
            return f"object labels: there is no {resources.features} ({how})"
        from capbench.features.store import open_store

        with open_store(resources.features) as store:
            if "class_ids" not in store.header.fields:
                return f"object labels: the regions of {resources.features} have no classes ({how})"
            if store.header.class_names is None and options.classes is None:
                return (
                    f"names of the classes in {resources.features} (--option {label}.classes=coco-80, or a FILE with a "
                    "name a line)"
                )
        return None


class Vifidel(Metric):
    """VIFIDEL as its negative, so that higher is better: 0 is the best, -2 the worst.

    Labels of an image's objects and the words of a caption are two bags of words with vectors of length 1;
    ``vifidel`` is the negative earth mover's distance of them, each word carrying its share of its bag. With
    references (``vifidel-ref``) the vector of each word, on both sides, is multiplied by a weight first: the mean over
    references of max(0, 1 - its largest cosine with one of their words) / 2. So words that references mention cost
    less.

    The released code fails or gives infinity in some cases. Here equal bags have distance 0; words without a vector
    are left out; and where no word of one side is left, the distance is 2, the largest that can be. With references it
    is 2 in that case, too.

    Raises:
        UsageError: an option's value does not fit.
        MetricError: vectors or labels are not given.
        DataError, FeatureError: these cannot be read.
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
        """The objects of images. Raises DataError or FeatureError if they cannot be read."""
        from capbench.features.object_labels import StoreLabels, read_labels
        from capbench.features.store import open_store

        if self.options.labels is not None:
            return read_labels(self.options.labels, self.options.classes)
        assert self.resources.features is not None
        return StoreLabels(open_store(self.resources.features), self.options.classes)

    def prepare(self, items: Sequence[Item]) -> None:
        """Look whether labels of all images are there. Raises DataError or FeatureError if not."""
        self.labels.require([item.image for item in items])

    def cache_key(self, item: Item) -> bytes:
        """The item's key with a checksum of its image's labels."""
        return item.key + self.labels.key(item.image)

    def facts(self) -> Mapping[str, object]:
        """Vectors and files by the first 16 digits of their SHA-256; the features where labels are theirs."""
        facts: dict[str, object] = {"vectors": self._vectors.sha256[:16], "dim": self._vectors.dimension}
        if self.options.labels is None:
            facts["features"] = super().facts()["features"]
        if self.options.classes is not None:
            from capbench.features.class_names import KNOWN
            from capbench.files import sha256_file

            named = self.options.classes
            facts["classes"] = named if named in KNOWN else sha256_file(Path(named).expanduser())[:16]
        return facts

    def cautions(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """How many captions get the largest distance for want of words or labels."""
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

    def kept_labels(self, image: str) -> list[str]:
        """The labels of an image that count: those above the threshold, and the best ones up to ``at_least``."""
        objects = self.labels.of(image)
        ranked = sorted(range(len(objects)), key=lambda i: -_score(objects[i].score))
        kept = {i for i in ranked if _score(objects[i].score) >= self.options.threshold}
        kept |= set(ranked[: self.options.at_least])
        names = [objects[i].name for i in sorted(kept)]
        return names if self.options.repeats == "counted" else list(dict.fromkeys(names))

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 3): number of references, distance, distance with references (0 without any).

        Each distinct pair of label set and caption is solved once, and each with its references.

        Raises:
            MetricError: not one word of all labels and captions has a vector.
        """
        labels = {image: self._label_bag(image) for image in dict.fromkeys(item.image for item in items)}
        texts = dict.fromkeys(text for item in items for text in (item.candidate, *item.references))
        captions = {text: self._caption_bag(text) for text in texts}
        words = dict.fromkeys(word for bag in (*labels.values(), *captions.values()) for word in bag)
        vectors = self._vectors.unit_vectors(words)
        if words and not vectors:
            raise MetricError(
                f"none of the {len(words)} words of these labels and captions is among the {len(self._vectors)} word "
                "vectors",
                path=self._vectors.path,
                hint="Captions are in lower case: check that the vectors are of English words in lower case",
            )
        # Words without a vector do not count, so bags that differ in them alone are one bag.
        labels = {image: tuple(word for word in bag if word in vectors) for image, bag in labels.items()}
        captions = {text: tuple(word for word in bag if word in vectors) for text, bag in captions.items()}
        out = np.zeros((len(items), 3))
        plain: dict[tuple[Bag, Bag], float] = {}
        beside: dict[tuple[Bag, ...], list[int]] = {}  # places of items with the same references
        for row, item in enumerate(items):
            pair = (labels[item.image], captions[item.candidate])
            if pair not in plain:
                plain[pair] = _distance(*pair, vectors)
            out[row, :2] = len(item.references), plain[pair]
            if item.references:
                # Of a reference's words each counts once, and the references' order plays no part.
                key = tuple(sorted(tuple(dict.fromkeys(captions[text])) for text in item.references))
                beside.setdefault(key, []).append(row)
            else:
                progress(1)
        for references, rows in beside.items():
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
        """Negative distances; that with references is NaN for items without any."""
        # Adding 0 makes 0 of -0.
        with_references = np.where(statistics[:, 0] > 0, 0.0 - statistics[:, 2], np.nan)
        return {"vifidel": 0.0 - statistics[:, 1], "vifidel-ref": with_references}

    def _label_bag(self, image: str) -> Bag:
        if image not in self._bags:
            kept = self.kept_labels(image)
            self._bags[image] = tuple(sorted(word for name in kept for word in content_words(name, self._stop_words)))
        return self._bags[image]

    def _caption_bag(self, text: str) -> Bag:
        return tuple(sorted(content_words(text, self._stop_words)))


def _score(score: float | None) -> float:
    """What a label without a score counts as."""
    return 1.0 if score is None else score


def _distance(labels: Bag, caption: Bag, vectors: Mapping[str, NDArray[Any]]) -> float:
    distance = word_movers_distance(labels, caption, vectors)
    return distance if math.isfinite(distance) else FARTHEST
