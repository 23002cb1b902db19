"""ViLBERTScore: do a caption's words, read beside the image, match those of references? (Lee et al., Eval4NLP 2020)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from capbench.errors import MetricError, UsageError
from capbench.explanations import Explanation, Subject
from capbench.metrics.base import Progress, ReferenceSweep, Resources
from capbench.metrics.image_metric import ImageMetric
from capbench.metrics.needs import Features, Need, References, Weights
from capbench.metrics.vilbert.options import TASKS, ViLBERTScoreOptions
from capbench.metrics.vilbert.tokens import LONGEST, Choosing
from capbench.models.stored_encodings import StoredEncodings
from capbench.progress import share_of
from capbench.records import FloatArray, Item
from capbench.text.matching import Frequencies, Tokens, greedy_matching

if TYPE_CHECKING:
    from capbench.models.vilbert.inputs import ImageRows

__all__ = ["ViLBERTScore"]

_COLUMNS = ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r")
_SCORES = {"p": 0, "r": 1, "f": 2}
_MOST_LAYERS = 12  # that have titles
_PAIRS_AT_ONCE = 512
_FIRST = 5


class ViLBERTScore(ImageMetric):
    """Precision, recall and F of greedy matching between word states that ViLBERT gives a candidate and a reference.

    Every text goes through the network with the image. P averages over the candidate's tokens the cosine of each with
    the most similar token of a reference, R the other way round, F is their harmonic mean; each is averaged over the
    references. Defaults are the released run's. Under an ensemble each score is the mean of the networks' scores.

    Values that the original leaves undefined: a text without tokens has P, R and F of 0, and so has F where P + R is 0.
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
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a ViLBERT", "capbench train vilbert"),
    )
    explains_ensembles: ClassVar[bool] = False
    order: ClassVar[int] = 140
    batch_size: int = 256

    option_type = ViLBERTScoreOptions
    options: ViLBERTScoreOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        from capbench.metrics.vilbert.source import check_alike, check_store, open_models
        from capbench.models.device import choose_device
        from capbench.models.vilbert.encoder import Encoder

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
                hint=f"Say {self.name}.layer=1-{sizes.connections} for all of them",
            )
        self.task = self._task(sizes.tasks)
        self.encoders = [
            Encoder(model.network, self.task, self.layers, device, model.identity) for model in self.models
        ]
        self._frequencies: list[Frequencies | None] = [None] * len(self.models)
        self._corpus = ""

    def __getstate__(self) -> dict[str, Any]:
        """As of any metric; another process keeps no word states."""
        return {**super().__getstate__(), "resources": dataclasses.replace(self.resources, cache=False)}

    def _task(self, known: int) -> int | None:
        task = self.options.task
        if task == "none" or (task is None and not known):
            return None
        number = TASKS["retrieval-coco"] if task is None else int(task)
        if number >= known:
            knows = f"knows tasks 0 to {known - 1}" if known else "knows no tasks"
            raise UsageError(
                f"{self.name}.task={number}: {self.models[0].path} {knows}", hint=f"Say {self.name}.task=none"
            )
        return number

    @classmethod
    def columns_under(cls, options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
        """A column for each of several layers: ``vilbertscore-f-1``."""
        layers = cls.option_type.read(cls.name, options).layer
        if layers is None or len(layers) == 1:
            return tuple(columns)
        return tuple(f"{column}-{layer}" for layer in layers for column in columns)

    @classmethod
    def layers_of(cls, resources: Resources, options: Mapping[str, Any]) -> tuple[int, ...]:
        """All connections of the given network, unless ``layer`` says which."""
        from capbench.metrics.vilbert.source import open_models
        from capbench.models.device import choose_device

        chosen = cls.option_type.read(cls.name, options)
        if chosen.layer is not None:
            return chosen.layer
        assert resources.model is not None
        models = open_models(resources.model, chosen.vocabulary, choose_device(chosen.device), chosen.precision)
        return tuple(range(1, models[0].options.connections + 1))

    def facts(self) -> Mapping[str, object]:
        """Model, word pieces and features; the layers and the task that are used."""
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
        """Look whether features are there; for idf, count in how many references each word piece stands."""
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
        """The references that document frequencies were counted in."""
        return self._corpus

    def cautions(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """How many captions are longer than what is read of them, and than what the weights were trained on."""
        texts = {text for item in items for text in (item.candidate, *self.references_of(item))}
        lines = []
        for longest, what in sorted(self._longest().items(), reverse=True):
            # Networks of an ensemble may know other pieces: the longest count is told.
            number = max(
                sum(len(pieces.sequence(text, longest + 1)) > longest for text in texts)
                for pieces in {model.pieces.sha256: model.pieces for model in self.models}.values()
            )
            if number:
                lines.append(f"{number:,} of {len(texts):,} captions have more than {longest} word pieces: {what}")
        return lines

    def _longest(self) -> dict[int, str]:
        """Numbers of word pieces, ends included, beyond which something is to be said."""
        said = {LONGEST: "what is behind is not read"}
        for model in self.models:
            trained = model.longest
            if trained is not None and trained < LONGEST:
                said[trained] = (
                    "the weights were trained on no more, and places behind are as they were drawn at random"
                )
        return said

    def references_of(self, item: Item) -> tuple[str, ...]:
        """The references of an item that count."""
        return item.references[:_FIRST] if self.options.references == "first-5" else item.references

    def choosing(self, network: int) -> Choosing:
        """Which states are matched under one of the networks.

        Raises:
            MetricError: idf is asked for and :meth:`prepare` was not called.
        """
        chosen = self.options
        frequencies = self._frequencies[network]
        if chosen.idf != "none" and frequencies is None:
            raise MetricError(f"{self.name} has counted no document frequencies", hint="Use idf=none here")
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
        """What :meth:`statistics` gives, of the items of one image."""
        return self.statistics(items, lambda _: None)

    def _matched(
        self, items: Sequence[Item], references: Sequence[Sequence[str]], progress: Progress
    ) -> Iterator[tuple[int, FloatArray]]:
        """Place and scores (references, layers, 3) of each item, image by image; ``progress`` counts items."""
        by_image: dict[str, list[int]] = {}
        for place, (item, texts) in enumerate(zip(items, references, strict=True)):
            if not texts:
                raise MetricError(f"{self.name}: '{item.candidate[:60]}' of image '{item.image}' has no references")
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
        """The same for items at some places, all of whose captions are in memory together."""
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
        """What is matched of captions, under one of the networks.

        Args:
            network: its place among :attr:`models`.
            pairs: image and caption.
            done: called with numbers of distinct captions done.

        Raises:
            FeatureError: the store lacks an image.
        """
        choosing, pieces = self.choosing(network), self.models[network].pieces
        ids = {text: tuple(pieces.sequence(text, LONGEST)) for text in {text for _, text in pairs}}
        images = {image: self.rows(image) for image in {image for image, _ in pairs}}
        with StoredEncodings(self.options.encodings_mb if self.resources.cache else 0) as stored:
            states = self.encoders[network].states(images, [(image, ids[text]) for image, text in pairs], done, stored)
        # Captions that differ in their spelling only are the same word pieces.
        done(len(pairs) - len(states))
        tokens = {(image, numbers): choosing.tokens(numbers, of_pair) for (image, numbers), of_pair in states.items()}
        return {(image, text): tokens[image, ids[text]] for image, text in pairs}

    def rows(self, image: str) -> ImageRows:
        """What the network sees of an image. Raises FeatureError where the store lacks it."""
        from capbench.models.vilbert.inputs import image_rows

        rows = image_rows(self.store[image])
        return rows.blanked() if self.options.image == "blank" else rows

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """(counts, n, k) for each draw; every caption goes through the network once. None with idf, whose counts change
        with the references."""
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
        """Which word matched which: see :func:`capbench.metrics.vilbert.explain.explain_vilbertscore`."""
        from capbench.metrics.vilbert.explain import explain_vilbertscore

        return explain_vilbertscore(self, subject)


def _reduced(scores: FloatArray) -> FloatArray:
    """Scores (references, layers, 3) → means, then maxima, (2 * layers * 3,)."""
    return np.concatenate((scores.mean(axis=0).reshape(-1), scores.max(axis=0).reshape(-1)))
