"""ViLBERTScore: greedy matching of word states that ViLBERT computes with the image (Lee et al., Eval4NLP 2020)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError, UsageError
from capbench.core.explanations import ExplainedCandidate, Explanation, Matrix, Panel, RegionMaps, Subject
from capbench.core.options import Choice, File, Flag, Kind, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.metrics.abilities import ReferenceSweep
from capbench.metrics.image_metric import ImageMetric, ImageOptions, loaded_networks, signed_together
from capbench.metrics.needs import Features, References, Resources, Weights
from capbench.metrics.pair_metric import Pair, PairMetric
from capbench.text.greedy_matching import Frequencies, Tokens, match, similarities, unit
from capbench.text.word_pieces import BEGIN, END

if TYPE_CHECKING:
    from capbench.metrics.vilbert.files import VilbertModel

LONGEST = 37
"""Maximum number of word pieces of a caption, including ``[CLS]`` and ``[SEP]``; longer captions are truncated."""
PUBLISHED_LAYERS = 6  # Number of connections of the published network
TASKS = {"retrieval-coco": 7, "retrieval-flickr30k": 8, "visual-entailment": 13}
"""Name → number of those tasks of 12-in-1 that concern captions."""


class _Layers(Kind):
    """Layers of the network: one (``6``), several (``1-4``, ``2,6``), or ``all`` six of the published network."""

    def __init__(self) -> None:
        super().__init__("a layer from 1 on (6), several (1-4 or 2,6), or all (1-6)")

    def read(self, value: object) -> tuple[int, ...]:
        if isinstance(value, tuple | list):
            value = ",".join(map(str, value))
        text = f"1-{PUBLISHED_LAYERS}" if value == "all" else str(value).replace(" ", "")
        matches = [re.fullmatch(r"([1-9]\d?)(?:-([1-9]\d?))?", part) for part in text.split(",")]
        spans = [range(int(found[1]), int(found[2] or found[1]) + 1) for found in matches if found]
        layers = sorted(layer for span in spans for layer in span)
        if len(spans) < len(matches) or not all(spans) or len(set(layers)) < len(layers):
            raise ValueError
        return tuple(layers)

    def sign(self, value: Any) -> str:
        return ",".join(map(str, value))


@dataclass(frozen=True)
class ViLBERTScoreOptions(ImageOptions):
    """Options of ViLBERTScore; the defaults are those of the released code."""

    layer: tuple[int, ...] | None = option(
        None,
        _Layers(),
        "connection whose word states are matched, by default the last; several give a column each",
    )
    task: str | None = option(
        None,
        Choice(*TASKS, "none"),
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
    vocabulary: str | None = option(
        None, File("a vocabulary"), "vocab.txt of a released checkpoint, if it is in another folder", sign_as=""
    )
    any_features: bool = option(False, Flag(), "accept features of another kind than in training", quiet=True)
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "device of the network", sign_as="")


_COLUMNS = ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r")
_SCORES = {"p": 0, "r": 1, "f": 2}
_MOST_LAYERS = 12  # layers with titles


class ViLBERTScore(PairMetric, ImageMetric):
    """Precision, recall and F of greedy matching between ViLBERT's word states of a candidate and a reference.

    The network reads every text with the image. P is the mean over the candidate's tokens of the cosine with the most
    similar token of a reference, R is the mean over the reference's tokens, and F is their harmonic mean (equations 1
    to 3); each is averaged over the references. For an ensemble, each score is the mean of the networks' scores.

    Values that the original leaves undefined: P, R and F are 0 for a text without tokens, and F is 0 if P + R is 0.
    """

    name = "vilbertscore"
    columns = _COLUMNS
    titles: ClassVar[Mapping[str, str]] = {
        **{column: f"ViLBERTScore-{column[-1].upper()}" for column in _COLUMNS},
        **{
            f"{column}-{layer}": f"ViLBERTScore-{column[-1].upper()}, layer {layer}"
            for layer in range(1, _MOST_LAYERS + 1)
            for column in _COLUMNS
        },
    }
    citation = "Lee et al., ViLBERTScore: evaluating image caption using vision-and-language BERT, Eval4NLP 2020"
    packages = ("torch", "tokenizers")
    needs = (References(), Features(), Weights("a ViLBERT", "capbench train vilbert", "vilbertscore"))
    batch_size = 256
    texts_at_once = 128  # half a minute with the published network on one core

    option_type = ViLBERTScoreOptions
    options: ViLBERTScoreOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        from capbench.metrics.vilbert.encode import check_store

        self.models = _models(self.resources, self.options)
        for model in self.models:
            check_store(model, self.store, any_features=self.options.any_features)
        sizes = self.models[0].options
        self.layers = self.options.layer or (sizes.connections,)
        if self.layers[-1] > sizes.connections:
            message = f"{self.name}.layer={self.layers[-1]}: {self.models[0].path} has {sizes.connections} layers"
            hint = f"Use {self.name}.layer=1-{sizes.connections} for all of them"
            raise UsageError(message, code="out-of-range", value=self.layers[-1], hint=hint)
        chosen = self.options.task or (next(iter(TASKS)) if sizes.tasks else "none")
        self.task = TASKS.get(chosen)
        if self.task is not None and self.task >= sizes.tasks:
            message, hint = f"{self.models[0].path} has {sizes.tasks} tasks", f"Use {self.name}.task=none"
            raise UsageError(f"{self.name}.task={chosen}: {message}", code="out-of-range", value=chosen, hint=hint)
        self._frequencies: list[Frequencies] = []
        self._corpus = ""

    @classmethod
    def columns_under(cls, options: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
        layers = cls.option_type.read(cls.name, options).layer
        if layers is None or len(layers) == 1:
            return tuple(columns)
        return tuple(f"{column}-{layer}" for layer in layers for column in columns)

    @classmethod
    def layers_of(cls, resources: Resources, options: Mapping[str, Any]) -> tuple[int, ...]:
        chosen = cls.option_type.read(cls.name, options)
        return chosen.layer or tuple(range(1, _models(resources, chosen)[0].options.connections + 1))

    def facts(self) -> Mapping[str, object]:
        return {
            **signed_together(self.models),
            "features": self.store.signature(),
            "layer": ",".join(map(str, self.layers)),
            "task": "none" if self.task is None else str(self.task),
        }

    def prepare(self, items: Sequence[Item]) -> None:
        """Check that features of all images exist; for idf, count the references that contain each word piece."""
        if not self._corpus:  # a second call, with the whole data set of a group, only counts
            super().prepare(items)
        if self.options.idf == "none":
            return
        documents = sorted({(item.image, text) for item in items for text in self.references_of(item)})
        self._frequencies = [
            Frequencies(model.vocabulary.sequence(text, LONGEST) for _, text in documents) for model in self.models
        ]
        digest = hashlib.sha256()
        for image, text in documents:
            digest.update(f"{image}\0{text}\0".encode("utf-8", "surrogatepass"))
        self._corpus = f"idf:{len(documents)}-{digest.hexdigest()[:16]}"

    def corpus_id(self) -> str:
        return self._corpus

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        texts = {text for item in items for text in (item.candidate, *self.references_of(item))}
        effects = {LONGEST: "they are truncated"}
        for model in self.models:
            if (trained := model.training.get("longest", LONGEST)) < LONGEST:
                effects[trained] = "the weights were trained on shorter ones, and further positions are untrained"
        lines = []
        for longest in sorted(effects, reverse=True):
            # Networks of an ensemble may have different word pieces: the maximum is reported.
            number = max(sum(len(m.vocabulary.sequence(t, longest + 1)) > longest for t in texts) for m in self.models)
            if number:
                said = f"captions have more than {longest} word pieces: {effects[longest]}"
                lines.append(f"{number:,} of {len(texts):,} {said}")
        return lines

    def references_of(self, item: Item) -> tuple[str, ...]:
        """The references of an item that the metric uses."""
        return item.references[:5] if self.options.references == "first-5" else item.references

    def _pairs_of(self, item: Item) -> list[Pair]:
        return super()._pairs_of(replace(item, references=self.references_of(item)))

    def sweep(self, sweep: ReferenceSweep, progress: Progress) -> Iterator[FloatArray] | None:
        """As of any metric of pairs; None with idf, whose document frequencies change with the references, and if not
        all references count."""
        sweeps = self.options.idf == "none" and self.options.references == "all"
        return super().sweep(sweep, progress) if sweeps else None

    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Any]) -> FloatArray:
        """(pairs, layers, 3) P, R and F, the mean over the networks."""
        captions = list(dict.fromkeys((image, str(text)) for image, *texts in pairs for text in texts))
        scores = np.zeros((len(pairs), len(self.layers), 3))
        for network in range(len(self.models)):
            tokens = self.tokens(network, captions)
            for row, (image, candidate, reference) in enumerate(pairs):
                scores[row] += match(tokens[image, candidate], tokens[image, str(reference)]) / len(self.models)
        return scores

    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        """Scores (layers, 3) with each reference → means, then maxima, (2 * layers * 3,)."""
        scores = np.array(rows)
        return np.concatenate((scores.mean(axis=0).reshape(-1), scores.max(axis=0).reshape(-1)))

    def tokens(self, network: int, captions: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Tokens]:
        """Matched states (layers, m, T) of captions by image and text, for one of :attr:`models`."""
        from capbench.metrics.vilbert.encode import image_rows, states

        model = self.models[network]
        ids = {text: tuple(model.vocabulary.sequence(text, LONGEST)) for _, text in captions}
        images = {image: image_rows(self.store[image]) for image in dict.fromkeys(image for image, _ in captions)}
        found = states(model.network, self.task, self.layers, images, [(image, ids[text]) for image, text in captions])
        return {(image, text): self._tokens(network, ids[text], found[image, ids[text]]) for image, text in captions}

    def _matched(self, network: int, ids: Sequence[int]) -> slice:
        """The states of a caption that are matched.

        The order of states is ``[CLS]``, the task's token if there is one, the word pieces, ``[SEP]`` unless truncated.
        The released rule drops the first one and has one place less than the padded length, so that the last piece of a
        caption truncated to 37 takes part in attention but is not matched.
        """
        length = len(ids) + (self.task is not None)
        if self.options.special_tokens == "bertscore":
            return slice(0, length)
        ended = ids[-1] == self.models[network].vocabulary.places[END]
        return slice(1, min(length - ended, self._width + 1))

    @property
    def _width(self) -> int:
        """Number of matched states of a caption of maximum length."""
        return LONGEST + (self.task is not None) - (0 if self.options.special_tokens == "bertscore" else 2)

    def _tokens(self, network: int, ids: Sequence[int], states: NDArray[np.float32]) -> Tokens:
        """The matched states of a caption, with their weights; ``states`` (layers, m, T) are of all its tokens."""
        places, chosen, matched = self.models[network].vocabulary.places, self.options, self._matched(network, ids)
        special, released = (places[BEGIN], places[END]), chosen.special_tokens == "released"
        if chosen.idf != "none" and not self._frequencies:
            message = f"{self.name} has no document frequencies, which idf={chosen.idf} requires"
            raise MetricError(message, code="conflict", value=chosen.idf, hint="Use idf=none")
        if chosen.idf == "none":
            weights, of_task = [float(released or number not in special) for number in ids], float(released)
        else:
            weight, of_task = self._frequencies[network].weight, 0.0
            weights = [0.0 if number in special else weight(number) for number in ids]
        if self.task is not None:
            # The released idf ignores the task's token here, so that each token has the weight of the next one.
            weights.insert(len(weights) if chosen.idf == "released" else 1, of_task)
        kept = np.array(weights)[matched]
        padded = chosen.padding == "released" and len(kept) < self._width
        return Tokens(unit(states[..., matched, :]), kept, kept if chosen.idf == "released" else None, padded)

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        half = 0 if self.options.reduce == "mean" else 1
        by_layer = statistics.reshape(len(statistics), 2, len(self.layers), 3)[:, half]
        several = len(self.layers) > 1
        return {
            f"{column}-{layer}" if several else column: np.ascontiguousarray(by_layer[:, place, _SCORES[column[-1]]])
            for place, layer in enumerate(self.layers)
            for column in _COLUMNS
        }

    def explain(self, subject: Subject) -> Explanation:
        """Similarities with the words of each reference, and attention to regions, in the last of the layers."""
        from capbench.features.class_names import regions_of
        from capbench.metrics.vilbert.encode import MOST_REGIONS

        if len(self.models) > 1:
            message = f"the matching of an ensemble of {len(self.models)} networks cannot be shown"
            hint = f"Use one of them, such as {self.models[0].path}"
            raise UsageError(message, code="unsupported", value=len(self.models), hint=hint)
        columns = self.scores(self.statistics(subject.items, lambda _: None))
        candidates = tuple(
            self._explained(item, {name: float(values[row]) for name, values in columns.items()}, human)
            for row, (item, human) in enumerate(zip(subject.items, subject.humans, strict=True))
        )
        regions = regions_of(self.store, subject.image)
        notes = [f"matches and attention are from layer {self.layers[-1]}"]
        if len(regions.names) > MOST_REGIONS:
            notes.append(f"the network reads the first {MOST_REGIONS} of {len(regions.names)} regions")
        return Explanation("ViLBERTScore", subject.image, candidates, self.signature(), regions, notes=tuple(notes))

    def _explained(self, item: Item, scores: dict[str, float], human: float | None) -> ExplainedCandidate:
        from capbench.metrics.vilbert.encode import attention, image_rows

        model, references = self.models[0], self.references_of(item)
        found = self.tokens(0, [(item.image, text) for text in (item.candidate, *references)])
        tokens = {text: replace(each, vectors=each.vectors[-1]) for (_, text), each in found.items()}
        words = {}
        for text in tokens:
            ids = model.vocabulary.sequence(text, LONGEST)
            names = [model.vocabulary.pieces[number] for number in ids]
            names[1:1] = [] if self.task is None else ["[TASK]"]
            words[text] = tuple(names[self._matched(0, ids)])
        if not (rows := words[item.candidate]):
            note = "the candidate has no words: its scores are 0"
            return ExplainedCandidate(item.candidate, item.references, human, scores, notes=(note,))
        panels: list[Panel] = []
        for number, text in enumerate(references, 1):
            alike = similarities(tokens[item.candidate], tokens[text])
            p, r, f = match(tokens[item.candidate], tokens[text]).tolist()
            title = f"Reference {number}: P {p:.3f}, R {r:.3f}, F {f:.3f}; outlined: the match of each word"
            marked = tuple(enumerate(alike.argmax(axis=1).tolist())) if alike.size else ()
            panels.append(Matrix(title, rows, words[text], alike, marked))
        ids = model.vocabulary.sequence(item.candidate, LONGEST)
        to_rows = attention(model.network, self.task, image_rows(self.store[item.image]), ids, self.layers[-1])
        weights = np.zeros((len(rows), self.store.regions(item.image)))
        weights[:, : to_rows.shape[1] - 1] = to_rows[self._matched(0, ids), 1:]
        title = "Attention of each word to the image's regions (mean over the heads of the layer's connection)"
        panels.append(RegionMaps(title, rows, weights))
        return ExplainedCandidate(item.candidate, item.references, human, scores, tuple(panels))


def _models(resources: Resources, options: ViLBERTScoreOptions) -> tuple[VilbertModel, ...]:
    from capbench.core.machine import choose_device
    from capbench.metrics.vilbert.files import load_vilbert

    how = options.vocabulary, choose_device(options.device)
    return loaded_networks(str(resources.model), "vilbertscore", load_vilbert, *how)
