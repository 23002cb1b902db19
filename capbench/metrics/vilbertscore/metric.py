"""ViLBERTScore: greedy matching of word states that ViLBERT computes with the image (Lee et al., Eval4NLP 2020)."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from capbench.core.errors import MetricError, UsageError, suggest
from capbench.core.explanations import Explanation, Subject
from capbench.core.options import Choice, Count, File, Flag, Kind, option
from capbench.core.progress import Progress, share_of
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.image_metric import ImageMetric, ImageOptions
from capbench.metrics.needs import Features, Need, References, Resources, Weights
from capbench.metrics.vilbertscore.choosing import LONGEST, Choosing
from capbench.text.greedy_matching import Frequencies, Tokens, greedy_matching
from capbench.weights.encodings import DEFAULT_MB, StoredEncodings

if TYPE_CHECKING:
    from capbench.metrics.vilbertscore.source import ImageRows

# Options of ViLBERTScore.

PUBLISHED_LAYERS = 6
"""Number of connections of the published network."""
TASKS = {"retrieval-coco": 7, "retrieval-flickr30k": 8, "visual-entailment": 13}
"""Name → number of those tasks of 12-in-1 that concern captions."""

_MOST_TASKS = 1000


class _Layers(Kind):
    """Layers of the network: one (``6``), several (``1-4``, ``2,6``), or ``all`` six of the published network."""

    def describe(self) -> str:
        return "a layer from 1 on (6), several (1-4 or 2,6), or all (1-6)"

    def example(self) -> str:
        return "all"

    def read(self, value: object) -> tuple[int, ...]:
        if isinstance(value, tuple | list):
            value = ",".join(str(layer) for layer in value)
        text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        if text == "all":
            return tuple(range(1, PUBLISHED_LAYERS + 1))
        layers: list[int] = []
        for between in text.replace(" ", "").split(","):
            match = re.fullmatch(r"([1-9][0-9]?)(?:-([1-9][0-9]?))?", between)
            if match is None:
                raise ValueError
            layers += range(int(match[1]), int(match[2] or match[1]) + 1)
        if not layers or len(set(layers)) < len(layers):
            raise ValueError
        return tuple(sorted(layers))

    def sign(self, value: Any) -> str:
        return ",".join(map(str, value))


class _Task(Kind):
    """A task's number or name, or ``none``."""

    def describe(self) -> str:
        return f"none, the number of a task, or one of {', '.join(TASKS)}"

    def example(self) -> str:
        return "retrieval-coco"

    def read(self, value: object) -> int | str:
        if isinstance(value, str):
            if value == "none":
                return value
            if value in TASKS:
                return TASKS[value]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_TASKS:
            raise ValueError
        return value

    def hint(self, value: object) -> str:
        return suggest(str(value), ["none", *TASKS])


@dataclass(frozen=True)
class ViLBERTScoreOptions(ImageOptions):
    """Options of ViLBERTScore; the defaults are those of the released code."""

    layer: tuple[int, ...] | None = option(
        None,
        _Layers(),
        "connection whose word states are matched, by default the last; several give a column each",
    )
    task: int | str | None = option(
        None,
        _Task(),
        "task whose token follows [CLS]; by default retrieval-coco if the weights have tasks, otherwise none",
    )
    special_tokens: str = option(
        "released",
        Choice("released", "bertscore"),
        "released: the task's token counts as a word, [CLS] and [SEP] are omitted; bertscore: all of them can be "
        "matched, but have weight 0 in the mean",
        sign_as="special",
    )
    references: str = option("all", Choice("all", "first-5"), "references that the metric uses", sign_as="refs")
    reduce: str = option("mean", Choice("mean", "max"), "aggregation of P, R and F over references", recombines=True)
    idf: str = option(
        "none",
        Choice("none", "released", "corrected"),
        "weights of words by inverse document frequency in the references; released: shifted by one token, and also "
        "multiplied with the similarities",
    )
    padding: str = option(
        "released",
        Choice("released", "masked"),
        "released: a word can match the padding of a short text with similarity 0; masked: padding is not matched",
    )
    precision: str = option(
        "float32",
        Choice("float32", "bfloat16"),
        "precision of the network; with bfloat16, F differs by at most .003, on average .0005, on Flickr8k Expert "
        "with a small network (tau-c by .0001)",
        quiet=True,
    )
    vocabulary: str | None = option(
        None, File("a vocabulary"), "vocab.txt of a released checkpoint, if it is in another folder", sign_as=""
    )
    any_features: bool = option(False, Flag(), "accept features of another kind than in training", quiet=True)
    encodings_mb: int = option(
        DEFAULT_MB,
        Count(),
        "maximum size of word states in the cache folder, in megabytes, for all networks together; 0: no cache",
        sign_as="",
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "device of the network", sign_as="")


_COLUMNS = ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r")
_SCORES = {"p": 0, "r": 1, "f": 2}
_MOST_LAYERS = 12  # layers with titles
_PAIRS_AT_ONCE = 512
_FIRST = 5


class ViLBERTScore(ImageMetric):
    """Precision, recall and F of greedy matching between ViLBERT's word states of a candidate and a reference.

    The network reads every text with the image. P is the mean over the candidate's tokens of the cosine with the most
    similar token of a reference, R is the mean over the reference's tokens, and F is their harmonic mean; each is
    averaged over the references. For an ensemble, each score is the mean of the networks' scores.

    Values that the original leaves undefined: P, R and F are 0 for a text without tokens, and F is 0 if P + R is 0.
    """

    name: ClassVar[str] = "vilbertscore"
    columns: ClassVar[tuple[str, ...]] = _COLUMNS
    titles: ClassVar[Mapping[str, str]] = {
        **{column: f"ViLBERTScore-{column[-1].upper()}" for column in _COLUMNS},
        **{
            f"{column}-{layer}": f"ViLBERTScore-{column[-1].upper()}, layer {layer}"
            for layer in range(1, _MOST_LAYERS + 1)
            for column in _COLUMNS
        },
    }
    citation: ClassVar[str] = (
        "Lee et al., ViLBERTScore: evaluating image caption using vision-and-language BERT, Eval4NLP 2020"
    )
    packages = ("torch", "tokenizers")
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a ViLBERT", "capbench train vilbert", "vilbertscore"),
    )
    explains_ensembles: ClassVar[bool] = False
    order: ClassVar[int] = 140
    batch_size: int = 256

    option_type = ViLBERTScoreOptions
    options: ViLBERTScoreOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        from capbench.core.machine import choose_device
        from capbench.metrics.vilbertscore.source import Encoder, check_alike, check_store, open_models

        chosen = self.options
        assert self.resources.model is not None
        device = choose_device(chosen.device)
        self.models = open_models(self.resources.model, chosen.vocabulary, device, chosen.precision)
        check_alike(self.models)
        for model in self.models:
            check_store(model, self.store, any_features=chosen.any_features)
        sizes = self.models[0].options
        self.layers = (sizes.connections,) if chosen.layer is None else chosen.layer
        if self.layers[-1] > sizes.connections:
            raise UsageError(
                f"{self.name}.layer={self.layers[-1]}: {self.models[0].path} has {sizes.connections} layers",
                code="out-of-range",
                value=self.layers[-1],
                hint=f"Use {self.name}.layer=1-{sizes.connections} for all of them",
            )
        self.task = self._task(sizes.tasks)
        self.encoders = [
            Encoder(model.network, self.task, self.layers, device, model.identity) for model in self.models
        ]
        self._frequencies: list[Frequencies | None] = [None] * len(self.models)
        self._corpus = ""

    def __getstate__(self) -> dict[str, Any]:
        """The state of any metric, without the cache of word states in other processes."""
        return {**super().__getstate__(), "resources": dataclasses.replace(self.resources, cache=False)}

    def _task(self, known: int) -> int | None:
        task = self.options.task
        if task == "none" or (task is None and not known):
            return None
        number = TASKS["retrieval-coco"] if task is None else int(task)
        if number >= known:
            tasks = f"has tasks 0 to {known - 1}" if known else "has no tasks"
            raise UsageError(
                f"{self.name}.task={number}: {self.models[0].path} {tasks}",
                code="out-of-range",
                value=number,
                hint=f"Use {self.name}.task=none",
            )
        return number

    @classmethod
    def columns_under(cls, options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
        """One column per layer if there are several: ``vilbertscore-f-1``."""
        layers = cls.option_type.read(cls.name, options).layer
        if layers is None or len(layers) == 1:
            return tuple(columns)
        return tuple(f"{column}-{layer}" for layer in layers for column in columns)

    @classmethod
    def layers_of(cls, resources: Resources, options: Mapping[str, Any]) -> tuple[int, ...]:
        """The layers of the option ``layer``, or else all connections of the network."""
        from capbench.core.machine import choose_device
        from capbench.metrics.vilbertscore.source import open_models

        chosen = cls.option_type.read(cls.name, options)
        if chosen.layer is not None:
            return chosen.layer
        assert resources.model is not None
        models = open_models(resources.model, chosen.vocabulary, choose_device(chosen.device), chosen.precision)
        return tuple(range(1, models[0].options.connections + 1))

    def facts(self) -> Mapping[str, object]:
        """Model, word pieces, features, layers and task."""
        signed = [model.signature_parts() for model in self.models]
        parts: dict[str, object] = dict(signed[0])
        if len(signed) > 1:
            parts = {key: ",".join(dict.fromkeys(of_model[key] for of_model in signed)) for key in signed[0]}
            parts["model"] = "+".join([f"mean-of-{len(signed)}", *(of_model["model"] for of_model in signed)])
        return {
            **parts,
            "features": self.store.signature(),
            "layer": ",".join(map(str, self.layers)),
            "task": "none" if self.task is None else str(self.task),
        }

    def prepare(self, items: Sequence[Item]) -> None:
        """Check that features of all images exist; for idf, count the references that contain each word piece.

        A second call, with the whole data set of a group, only counts: images of other groups are not scored.
        """
        if not self._corpus:
            super().prepare(items)
        if self.options.idf == "none":
            return
        documents = sorted({(item.image, text) for item in items for text in self.references_of(item)})
        for place, model in enumerate(self.models):
            ids = ([*model.pieces.sequence(text, LONGEST)] for _, text in documents)
            self._frequencies[place] = Frequencies(ids)
        digest = hashlib.sha256()
        for image, text in documents:
            digest.update(f"{image}\0{text}\0".encode("utf-8", "surrogatepass"))
        self._corpus = f"idf:{len(documents)}-{digest.hexdigest()[:16]}"

    def corpus_id(self) -> str:
        """Identifier of the references in which document frequencies were counted."""
        return self._corpus

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Numbers of captions that are truncated, and that are longer than those in the training."""
        texts = {text for item in items for text in (item.candidate, *self.references_of(item))}
        lines = []
        for longest, effect in sorted(self._longest().items(), reverse=True):
            # Networks of an ensemble may have different word pieces: the maximum is reported.
            number = max(
                sum(len(pieces.sequence(text, longest + 1)) > longest for text in texts)
                for pieces in {model.pieces.sha256: model.pieces for model in self.models}.values()
            )
            if number:
                lines.append(f"{number:,} of {len(texts):,} captions have more than {longest} word pieces: {effect}")
        return lines

    def _longest(self) -> dict[int, str]:
        """Numbers of word pieces, with ``[CLS]`` and ``[SEP]``, above which captions are affected, with the effect."""
        effects = {LONGEST: "they are truncated"}
        for model in self.models:
            trained = model.longest
            if trained is not None and trained < LONGEST:
                effects[trained] = "the weights were trained on shorter ones, and further positions are untrained"
        return effects

    def references_of(self, item: Item) -> tuple[str, ...]:
        """The references of an item that the metric uses."""
        return item.references[:_FIRST] if self.options.references == "first-5" else item.references

    def choosing(self, network: int) -> Choosing:
        """Selection of matched states for one of the networks.

        Raises:
            MetricError: idf requires a call of :meth:`prepare` first.
        """
        chosen = self.options
        frequencies = self._frequencies[network]
        if chosen.idf != "none" and frequencies is None:
            raise MetricError(
                f"{self.name} has no document frequencies, which idf={chosen.idf} requires",
                code="conflict",
                value=chosen.idf,
                hint="Use idf=none",
            )
        return Choosing(
            self.models[network].pieces,
            self.task is not None,
            chosen.special_tokens,
            chosen.padding,
            chosen.idf,
            frequencies,
        )

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 2 * layers * 3): the means over references of P, R and F in each layer, then their maxima."""
        rows: FloatArray = np.empty((len(items), 2 * len(self.layers) * 3))
        for place, scores in self._matched(items, [self.references_of(item) for item in items], progress):
            rows[place] = _reduced(scores)
        return rows

    def image_statistics(self, image: str, items: Sequence[Item], encodings: Mapping[str, Any]) -> FloatArray:
        """Result of :meth:`statistics` for the items of one image."""
        return self.statistics(items, lambda _: None)

    def _matched(
        self, items: Sequence[Item], references: Sequence[Sequence[str]], progress: Progress
    ) -> Iterator[tuple[int, FloatArray]]:
        """Place and scores (references, layers, 3) of each item, image by image; ``progress`` counts items."""
        by_image: dict[str, list[int]] = {}
        for place, (item, texts) in enumerate(zip(items, references, strict=True)):
            if not texts:
                raise MetricError(
                    f"{self.name}: '{item.candidate[:60]}' of image '{item.image}' has no references",
                    code="missing-references",
                    value=item.image,
                )
            by_image.setdefault(item.image, []).append(place)
        chunk: list[int] = []
        number = 0
        for image in sorted(by_image):
            captions = {text for p in by_image[image] for text in (items[p].candidate, *references[p])}
            if chunk and number + len(captions) > _PAIRS_AT_ONCE:
                yield from self._matched_at_once(items, references, chunk, progress)
                chunk, number = [], 0
            chunk += by_image[image]
            number += len(captions)
        if chunk:
            yield from self._matched_at_once(items, references, chunk, progress)

    def _matched_at_once(
        self, items: Sequence[Item], references: Sequence[Sequence[str]], places: Sequence[int], progress: Progress
    ) -> Iterator[tuple[int, FloatArray]]:
        """:meth:`_matched` for a batch of items, with the states of all their captions in memory."""
        pairs = sorted({(items[p].image, text) for p in places for text in (items[p].candidate, *references[p])})
        links = [(items[p].image, items[p].candidate, text) for p in places for text in references[p]]
        step = share_of(progress, len(pairs) * len(self.models), len(places))
        of_networks = []
        for network in range(len(self.models)):
            tokens = self.tokens(network, pairs, step)
            candidates = [tokens[image, candidate] for image, candidate, _ in links]
            of_networks.append(greedy_matching(candidates, [tokens[image, text] for image, _, text in links]))
        scores = np.mean(of_networks, axis=0)
        first = 0
        for place in places:
            yield place, scores[first : first + len(references[place])]
            first += len(references[place])

    def tokens(
        self, network: int, pairs: Sequence[tuple[str, str]], done: Callable[[int], None] = lambda _: None
    ) -> dict[tuple[str, str], Tokens]:
        """Matched states of captions, for one of the networks.

        Args:
            network: its index in :attr:`models`.
            pairs: image and caption.
            done: called with numbers of distinct captions done.

        Raises:
            FeatureError: the store does not contain an image.
        """
        choosing, pieces = self.choosing(network), self.models[network].pieces
        ids = {text: tuple(pieces.sequence(text, LONGEST)) for text in {text for _, text in pairs}}
        images = {image: self.rows(image) for image in {image for image, _ in pairs}}
        with StoredEncodings(self.options.encodings_mb if self.resources.cache else 0) as stored:
            states = self.encoders[network].states(images, [(image, ids[text]) for image, text in pairs], done, stored)
        # Captions that differ only in capitalisation or spacing have the same word pieces.
        done(len(pairs) - len(states))
        tokens = {(image, numbers): choosing.tokens(numbers, of_pair) for (image, numbers), of_pair in states.items()}
        return {(image, text): tokens[image, ids[text]] for image, text in pairs}

    def rows(self, image: str) -> ImageRows:
        """The network's input for an image. Raises FeatureError if the store does not contain it."""
        from capbench.metrics.vilbertscore.source import image_rows

        return image_rows(self.store[image])

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each sample of references; the network reads every caption once.

        None with idf, whose document frequencies change with the references.
        """
        return None if self.options.idf != "none" else self._sweep(sweep, progress)

    def _sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray]:
        most = _FIRST if self.options.references == "first-5" else None
        matched = dict(self._matched(sweep.items, [item.references for item in sweep.items], lambda _: None))
        for orders in sweep.orders:
            rows = np.empty((len(sweep.counts), len(sweep.items), 2 * len(self.layers) * 3))
            for place, order in enumerate(orders):
                for step, count in enumerate(sweep.counts):
                    rows[step, place] = _reduced(matched[place][list(order[:count][:most])])
                progress(1)
            yield rows

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """P, R and F by column."""
        half = 0 if self.options.reduce == "mean" else 1
        by_layer = statistics.reshape(len(statistics), 2, len(self.layers), 3)[:, half]
        several = len(self.layers) > 1
        return {
            f"{column}-{layer}" if several else column: np.ascontiguousarray(by_layer[:, place, _SCORES[column[-1]]])
            for place, layer in enumerate(self.layers)
            for column in _COLUMNS
        }

    def explain(self, subject: Subject) -> Explanation:
        """See :func:`capbench.metrics.vilbertscore.explain.explain_vilbertscore`."""
        from capbench.metrics.vilbertscore.explain import explain_vilbertscore

        return explain_vilbertscore(self, subject)


def _reduced(scores: FloatArray) -> FloatArray:
    """Scores (references, layers, 3) → means, then maxima, (2 * layers * 3,)."""
    return np.concatenate((scores.mean(axis=0).reshape(-1), scores.max(axis=0).reshape(-1)))
