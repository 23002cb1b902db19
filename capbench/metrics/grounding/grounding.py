"""What TIGEr and REO share: a grounding model beside the feature store, and the attention between words and regions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import ModelError
from capbench.core.options import Choice, File, Flag, Options, Positive, option
from capbench.core.records import FloatArray, IntArray, Item
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.base import Progress, Resources
from capbench.metrics.image_metric import ImageMetric, check_features, opened_networks, signed_together, store_key
from capbench.metrics.needs import Features, Need, References, Weights
from capbench.text.vocabulary import UNKNOWN
from capbench.weights.encodings import Encodings, Key, encode_by_length

if TYPE_CHECKING:
    from capbench.metrics.grounding.scan_files import GroundingModel

__all__ = [
    "CLIPS",
    "D_RELS",
    "LONG",
    "NORMS",
    "Attention",
    "GroundedMetric",
    "GroundingOptions",
    "GroundingSource",
    "Words",
    "attend",
    "compare",
    "context_norms",
    "contexts",
    "d_rel",
    "extraness_omission",
    "grounding",
    "one_thread",
    "open_source",
    "pad",
    "portions",
    "rank_similarity",
    "wds",
]


# What TIGEr and REO compute from region vectors and word vectors (Jiang et al., EMNLP 2019, twice): NumPy, float64.
#
# Letters are the papers': an image is V (n regions, D), a caption W (m words, D). A region attends to the words of a
# caption, which gives its *context* a_i, the caption as that region sees it. TIGEr's grounding vector holds the cosine
# of each region and its context; REO compares contexts with each other. Contexts are linear in the words, so that their
# norms come from the words' products and TIGEr never forms them.

NORMS = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
"""How products of regions and words are normalised over regions before words compete."""
CLIPS = ("leaky", "relu")
"""``leaky``: LeakyReLU(0.1), as released; ``relu``: max(0, ·), as printed."""
D_RELS = ("released", "half", "clip")
"""What grounding becomes before D_rel takes norms: s itself, (1 + s)/2, or max(0, s)."""

LONG = 128
"""Words beyond which the products of a caption's words with each other are not formed: they grow with the square."""

_EPSILON = 1e-8
_SLOPE = 0.1
_AT_ONCE = 64
_CONSTANT = 1e-12
"""Vectors whose values lie this near to each other are constant: what is left is rounding."""


@dataclass(frozen=True)
class Attention:
    """How a region attends to words. Values are checked where they are given, as ``GroundingOptions``.

    Attributes:
        smoothing: λ of eq. 2, above 0.
        norm: one of :data:`NORMS`.
        clip: one of :data:`CLIPS`; matters where ``norm`` clips.
        count_ends: whether ``<start>`` and ``<end>`` count as words.
    """

    smoothing: float = 9.0
    norm: str = "clipped_l2norm"
    clip: str = "leaky"
    count_ends: bool = True


@dataclass(frozen=True, eq=False)
class Words:
    """Captions as padded word vectors.

    Attributes:
        vectors: (k, m, D) float64; rows past a caption's length are zero.
        lengths: (k,) numbers of words.
    """

    vectors: FloatArray
    lengths: IntArray

    @property
    def long(self) -> bool:
        """Whether a caption has more than :data:`LONG` words."""
        return int(self.vectors.shape[1]) > LONG

    @cached_property
    def gram(self) -> FloatArray:
        """(k, m, m) products of a caption's words with each other."""
        return np.asarray(self.vectors @ self.vectors.transpose(0, 2, 1))

    def __len__(self) -> int:
        return len(self.lengths)


def pad(captions: Sequence[NDArray[np.floating]], attention: Attention) -> Words:
    """Captions of different lengths as one array.

    Args:
        captions: (m_i, D) word vectors, ``<start>`` first and ``<end>`` last; at least one caption.
        attention: says whether these two count.
    """
    if not attention.count_ends:
        captions = [words[1:-1] for words in captions]
    lengths = np.array([len(words) for words in captions], dtype=np.int64)
    vectors = np.zeros((len(captions), max(1, int(lengths.max())), captions[0].shape[1]))
    for row, words in zip(vectors, captions, strict=True):
        row[: len(words)] = words
    return Words(vectors, lengths)


def portions(lengths: Sequence[int], *, alike: bool = False) -> Iterator[slice]:
    """Consecutive captions to be worked on at once: 64, or fewer where long ones among them pad them all.

    Args:
        lengths: words of each caption.
        alike: whether a portion holds captions of one length only. The numbers of a caption are then bitwise those that
            it has on its own: the shape of a matrix product decides the order of its sums.
    """
    first, longest = 0, 0
    for place, length in enumerate(lengths):
        longest = max(longest, length)
        number = place - first
        differs = alike and length != lengths[first]
        if number and (differs or number >= _AT_ONCE or (number + 1) * longest > _AT_ONCE * LONG):
            yield slice(first, place)
            first, longest = place, length
    if lengths:
        yield slice(first, len(lengths))


def attend(regions: FloatArray, words: Words, attention: Attention) -> tuple[FloatArray, FloatArray]:
    """Attention of every region to the words of each caption (TIGEr eq. 2-4, REO eq. 2-3).

    Args:
        regions: (n, D) float64.
        words: k captions.
        attention: see :class:`Attention`.

    Returns:
        Weights, (k, m, n), which add up to 1 over the words of a caption (to 0 if it has none), and the plain products
        of words and regions, (k, m, n). Products are cosines where the model gives vectors of length 1.
    """
    m = words.vectors.shape[1]
    products = words.vectors @ regions.T  # a product for each caption: a joint one depends on how many there are
    similar = products
    if attention.norm.startswith("clipped"):
        similar = np.where(similar > 0, similar, (_SLOPE if attention.clip == "leaky" else 0.0) * similar)
    if attention.norm.endswith("l2norm"):
        similar = similar / (np.sqrt(np.square(similar).sum(axis=2, keepdims=True)) + _EPSILON)
    if attention.norm == "softmax":
        similar = _softmax(similar, axis=2)
    present = (np.arange(m) < words.lengths[:, None])[:, :, None]
    logits = np.where(present, attention.smoothing * similar, -np.inf)
    peak = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0.0))
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total > 0, total, 1.0), products


def _softmax(values: FloatArray, axis: int) -> FloatArray:
    raised: FloatArray = np.exp(values - values.max(axis=axis, keepdims=True))
    return np.asarray(raised / raised.sum(axis=axis, keepdims=True))


def contexts(weights: FloatArray, words: Words) -> FloatArray:
    """The context of every region in each caption (eq. 1): (k, n, D), from :func:`attend`'s weights."""
    return np.asarray(weights.transpose(0, 2, 1) @ words.vectors)


def quadratic(weights: FloatArray, products: FloatArray) -> FloatArray:
    """aᵀ M a of every context a, without forming it: (k, n).

    Args:
        weights: (k, m, n) of :func:`attend`.
        products: (k, m, m) wᵀ M w' of a caption's words w, w'; :attr:`Words.gram` gives squared norms.
    """
    squares: FloatArray = (weights * (products @ weights)).sum(axis=1)
    return np.maximum(squares, 0.0)  # rounding may leave a hair below 0


def context_norms(weights: FloatArray, words: Words) -> FloatArray:
    """‖a‖ of every context a: (k, n). Contexts are formed for long captions, whose words have too many products."""
    if words.long:
        return np.asarray(np.linalg.norm(contexts(weights, words), axis=2))
    return np.sqrt(quadratic(weights, words.gram))


def grounding(regions: FloatArray, words: Words, attention: Attention) -> FloatArray:
    """Grounding vectors s(V, C) of captions (TIGEr eq. 5-6): (k, n) cosines of regions and their contexts.

    The denominator is at least 1e-8, so that a zero vector has grounding 0, and so has a caption without words.
    """
    weights, products = attend(regions, words, attention)
    norms = context_norms(weights, words) * np.linalg.norm(regions, axis=1)
    return np.asarray((weights * products).sum(axis=1) / np.maximum(norms, _EPSILON))


STATISTICS = (
    "references",
    "rrs",
    "rrs_plain",
    "kl",
    *(f"norm_reference_{mapping}" for mapping in D_RELS),
    *(f"norm_candidate_{mapping}" for mapping in D_RELS),
    "grounding",
)
"""What :func:`compare` gives, from which every TIGEr score follows whatever τ, D_rel's mapping and the gains are."""


def compare(candidates: FloatArray, references: FloatArray, counts: IntArray) -> FloatArray:
    """TIGEr's statistics of candidates against mean reference vectors (section 3.2).

    Args:
        candidates: (k, n) grounding vectors.
        references: (k, n) mean grounding vector of each candidate's references.
        counts: (k,) numbers of references; where it is 0, everything but the candidate's own is given as 0.

    Returns:
        (k, 11): the columns of :data:`STATISTICS`.
    """
    logs = [values - values.max(axis=1, keepdims=True) for values in (references, candidates)]
    log_p, log_q = (values - np.log(np.exp(values).sum(axis=1, keepdims=True)) for values in logs)
    columns = [
        counts.astype(np.float64),
        rank_similarity(candidates, references, min_max=True),
        rank_similarity(candidates, references, min_max=False),
        (np.exp(log_p) * (log_p - log_q)).sum(axis=1),
        *(np.linalg.norm(_mapped(references, mapping), axis=1) for mapping in D_RELS),
        *(np.linalg.norm(_mapped(candidates, mapping), axis=1) for mapping in D_RELS),
        candidates.mean(axis=1),
    ]
    statistics = np.stack(columns, axis=1)
    statistics[counts == 0, : 4 + len(D_RELS)] = 0.0
    return statistics


def _mapped(values: FloatArray, mapping: str) -> FloatArray:
    if mapping == "half":
        return (1.0 + values) / 2.0
    return np.maximum(values, 0.0) if mapping == "clip" else values


def rank_similarity(candidates: FloatArray, references: FloatArray, *, min_max: bool) -> FloatArray:
    """RRS, an NDCG (TIGEr eq. 8-10): (k,).

    Regions are ranked by the candidate's values, ties in their own order; a region's gain is its reference value.

    Args:
        candidates: (k, n).
        references: (k, n).
        min_max: whether reference values are first mapped so that each vector spans 0 to 1, as released; else they
            are gains as they are, negative ones too.

    Where the original divides by zero, these are our values: against a constant reference vector every order is ideal
    and RRS is 1 (so with one region); a constant candidate ranks nothing, and RRS is its mean over all orders of the
    regions. Plain gains whose ideal DCG is not above 0 cannot be ranked for: RRS is 0.
    """
    low, high = references.min(axis=1, keepdims=True), references.max(axis=1, keepdims=True)
    flat = _is_constant(references)
    gains = (references - low) / np.where(flat[:, None], 1.0, high - low) if min_max else references
    discounts = 1.0 / np.log2(np.arange(2, references.shape[1] + 2))
    order = np.argsort(-candidates, axis=1, kind="stable")
    # Sums by row: a product of matrix and vector depends on the number of rows in the last bit.
    dcg = (np.take_along_axis(gains, order, axis=1) * discounts).sum(axis=1)
    dcg = np.where(_is_constant(candidates), gains.mean(axis=1) * discounts.sum(), dcg)
    ideal = (-np.sort(-gains, axis=1) * discounts).sum(axis=1)
    similarity = np.where(ideal > 0, dcg / np.where(ideal > 0, ideal, 1.0), 0.0)
    return np.where(flat, 1.0, similarity)


def _is_constant(values: FloatArray) -> NDArray[np.bool_]:
    spread = values.max(axis=1) - values.min(axis=1)
    constant: NDArray[np.bool_] = spread <= _CONSTANT * np.maximum(1.0, np.abs(values).max(axis=1))
    return constant


def d_rel(reference_norm: FloatArray, candidate_norm: FloatArray) -> FloatArray:
    """D_rel = ln(‖reference‖ / ‖candidate‖) (TIGEr eq. 12), 0 where either norm is 0."""
    zero = (reference_norm <= 0) | (candidate_norm <= 0)
    return np.where(zero, 0.0, np.log(np.where(zero, 1.0, reference_norm) / np.where(zero, 1.0, candidate_norm)))


def wds(distance: FloatArray, tau: float) -> FloatArray:
    """WDS = 1 - sigmoid(τ D), D = KL + D_rel (TIGEr eq. 13), without overflow."""
    x = tau * np.asarray(distance, dtype=np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x > 0, small, 1.0) / (1.0 + small)


def extraness_omission(
    dots: FloatArray, norms: tuple[FloatArray, FloatArray], mahalanobis: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """REO's three values of each region (eq. 4-9).

    a - a⊥ is a's projection on g, (a·g / ‖g‖²) g, whose Mahalanobis length is |a·g| / ‖g‖² times that of g; for
    omission likewise with a and g in each other's place.

    Args:
        dots: a·g of each region, any shape.
        norms: Euclidean lengths ‖a‖ and ‖g‖, of shapes that broadcast with ``dots``.
        mahalanobis: lengths √(aᵀ S⁻¹ a) and √(gᵀ S⁻¹ g) likewise.

    Returns:
        Relevance cos(a, g), extraness d(a, a⊥) and omission d(g, g⊥), each of the shape of ``dots``. Where a or g is
        a zero vector nothing is projected, and all three are 0. Higher is better for all three.
    """
    a, g = np.broadcast_arrays(*norms)
    zero = (a <= 0) | (g <= 0)
    safe_a, safe_g = np.where(zero, 1.0, a), np.where(zero, 1.0, g)
    size = np.where(zero, 0.0, np.abs(dots))
    relevance = np.where(zero, 0.0, dots) / (safe_a * safe_g)
    return relevance, size / safe_g**2 * mahalanobis[1], size / safe_a**2 * mahalanobis[0]


# A grounding model, or an ensemble of some, with the feature store that it looks at: what it encoded is kept.
#
# Encoded captions and images are kept up to a limit of memory, in one place for all metrics of a process.

_SOURCES = 2


class _Encoder:
    """One network, and what it has encoded so far.

    Args:
        model: the network with its vocabulary.
        store: the region features.
    """

    def __init__(self, model: GroundingModel, store: FeatureStore) -> None:
        self.model = model
        self.store = store
        self.encoded_captions = 0
        self.encoded_images = 0
        self._words = Encodings()
        self._regions = Encodings()

    def captions(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors (m, D) of each text, ``<start>`` and ``<end>`` included; texts of the same words but once."""
        keys = {text: tuple(self.model.vocabulary.encode(text)) for text in dict.fromkeys(texts)}
        vectors, number = encode_by_length(keys.values(), self._words, self._encode, UNKNOWN)
        self.encoded_captions += number
        return {text: vectors[key] for text, key in keys.items()}

    def _encode(self, captions: Sequence[Key]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            ids = torch.tensor(captions, dtype=torch.int64, device=self.model.device)
            lengths = torch.full((len(captions),), ids.shape[1], dtype=torch.int64)
            encoded: NDArray[np.float32] = self.model.network.encode_captions(ids, lengths).float().cpu().numpy()
        return encoded

    def regions(self, image: str) -> FloatArray:
        """Region vectors (n, D) float64 of an image. Raises FeatureError if the store lacks it."""
        regions = self._regions.get(image)
        if regions is None:
            (regions,) = self.model.encode_images([self.store[image].features])
            self.encoded_images += 1
            self._regions.put(image, regions)
        return regions.astype(np.float64)


class GroundingSource:
    """A grounding model, or an ensemble of several, and the features it looks at; made by :func:`open_source`.

    Under an ensemble a word's vector is the networks' vectors side by side, and so is a region's: D is the sum of
    theirs, and :meth:`parts` takes them apart. All networks tokenise alike, so that they read a caption as equally many
    words, whichever of these each of them knows.

    Args:
        models: the trained networks with their vocabularies: one, or an ensemble's.
        store: the region features.
        path: the ensemble's file.

    Attributes:
        models: as given.
        store: as given.
    """

    def __init__(self, models: Sequence[GroundingModel], store: FeatureStore, path: Path | None = None) -> None:
        self.models = tuple(models)
        self.store = store
        self._path = path
        self._encoders = [_Encoder(model, store) for model in models]
        self._ends = np.cumsum([model.options.embed_dim for model in models])[:-1]

    @property
    def model(self) -> GroundingModel:
        """The network. Raises ModelError if there are several."""
        if len(self.models) > 1:
            raise ModelError(
                f"is an ensemble of {len(self.models)} networks, and this needs a single one",
                path=self._path,
                hint=f"Give one of them, such as {self.models[0].path}",
            )
        return self.models[0]

    @property
    def encoded_captions(self) -> int:
        """Captions encoded so far, by each network, for tests and benchmarks."""
        return sum(encoder.encoded_captions for encoder in self._encoders)

    @property
    def encoded_images(self) -> int:
        """Images encoded so far, by each network."""
        return sum(encoder.encoded_images for encoder in self._encoders)

    def signature_parts(self) -> dict[str, object]:
        """Model, vocabulary and attention as trained, and what computed the features."""
        return {**signed_together(self.models), "features": self.store.signature()}

    def captions(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors (m, D) of each text, ``<start>`` and ``<end>`` included; words are encoded once."""
        texts = list(texts)
        of_networks = [encoder.captions(texts) for encoder in self._encoders]
        if len(of_networks) == 1:
            return of_networks[0]
        return {text: np.concatenate([words[text] for words in of_networks], axis=1) for text in of_networks[0]}

    def regions(self, image: str) -> FloatArray:
        """Region vectors (n, D) float64 of an image. Raises FeatureError if the store lacks it."""
        return np.concatenate([encoder.regions(image) for encoder in self._encoders], axis=1)

    def parts(self, vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """What of vectors (..., D) of words or regions is each network's: views (..., D_i)."""
        return np.split(vectors, self._ends, axis=-1) if len(self.models) > 1 else [vectors]


_open: OrderedDict[tuple[object, ...], GroundingSource] = OrderedDict()


def open_source(
    features: str, model: str, *, vocabulary: str | None = None, any_features: bool = False
) -> GroundingSource:
    """A model with a store, from memory if these files were opened before in this process.

    Args:
        features: path of a feature store.
        model: path of a grounding model (:func:`capbench.metrics.grounding.scan_files.load_scan`), or of an ensemble of
            some
            (:mod:`capbench.weights.ensembles`).
        vocabulary: path of the vocabulary JSON, for a released checkpoint that it does not lie beside.
        any_features: whether features of another fingerprint than the training's are taken.

    Raises:
        FeatureError: the store cannot be read, or holds features of another fingerprint than the model saw.
        ModelError: the model cannot be read, its image layer is for features of another size, or a part of an
            ensemble is not there or is another file than it was.
    """
    files_of_networks = opened_networks(model)
    store = open_store(features)
    given = None if vocabulary is None else files.sha256_file(vocabulary)
    key = (files_of_networks.sha256, given, store_key(store))
    if key not in _open:
        from capbench.metrics.grounding.scan_files import load_scan

        networks = [load_scan(path, vocabulary) for path in files_of_networks.paths]
        _open[key] = GroundingSource(networks, store, files_of_networks.ensemble)
        while len(_open) > _SOURCES:
            _open.popitem(last=False)
    _open.move_to_end(key)
    source = _open[key]
    for network in source.models:
        check_features(network, source.store, network.options.image_dim, any_features)
    return source


_TRAINED = {"lambda_softmax": "lambda_softmax", "norm": "feature_norm"}
"""Options that a model was trained with, by the model's name for them."""


def one_thread() -> AbstractContextManager[object]:
    """NumPy's products in one thread: those of one image are small, and threads would wait for each other."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


@dataclass(frozen=True)
class GroundingOptions(Options):
    """Options of metrics over a grounding model."""

    lambda_softmax: float | None = option(
        None, Positive(), "λ of the attention; the model's own by default", sign_as="lambda"
    )
    norm: str | None = option(
        None, Choice(*NORMS), "how products are normalised before the attention; the model's own by default"
    )
    clip: str = option("leaky", Choice(*CLIPS), "LeakyReLU 0.1 as SCAN is trained, or max(0, ·) as printed")
    count_ends: bool = option(
        True, Flag(("left-out", "counted")), "whether <start> and <end> count as words", sign_as="ends"
    )
    vocabulary: str | None = option(
        None, File("a vocabulary"), "the vocabulary of a released checkpoint that it does not lie beside", sign_as=""
    )
    any_features: bool = option(
        False, Flag(), "take features of another fingerprint than the model was trained on", quiet=True
    )


class GroundedMetric(ImageMetric):
    """A metric over a grounding model, which encodes regions and words into one space.

    Raises:
        MetricError: features or model are not given.
        UsageError: an option's value does not fit.
        FeatureError, ModelError: see :func:`open_source`.
    """

    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a grounding model", "capbench train scan"),
    )
    options: GroundingOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        chosen = self.options
        assert self.resources.features is not None
        assert self.resources.model is not None
        self.source = open_source(
            self.resources.features,
            self.resources.model,
            vocabulary=chosen.vocabulary,
            any_features=chosen.any_features,
        )
        self.store = self.source.store
        self.texts_at_once = ImageMetric.texts_at_once // len(self.source.models)
        smoothing = self._trained("lambda_softmax") if chosen.lambda_softmax is None else chosen.lambda_softmax
        norm = self._trained("norm") if chosen.norm is None else chosen.norm
        self.attention = Attention(smoothing=smoothing, norm=norm, clip=chosen.clip, count_ends=chosen.count_ends)

    def _trained(self, option_name: str) -> Any:
        """λ or the norm with which the model, or all networks of an ensemble, were trained."""
        trained_name = _TRAINED[option_name]
        models = self.source.models
        values = [getattr(model.options, trained_name) for model in models]
        for model, value in zip(models, values, strict=True):
            if value != values[0]:
                raise ModelError(
                    f"was trained with {trained_name}={value}, and {models[0].path} of the same ensemble with "
                    f"{values[0]}",
                    path=model.path,
                    hint=f"Say which to take: {self.name}.{option_name}={values[0]}",
                )
        return values[0]

    def facts(self) -> Mapping[str, object]:
        """Model, vocabulary, the attention that was trained, features, and λ and the norm that are used here."""
        attention = self.attention
        return {**self.source.signature_parts(), "lambda": Positive().sign(attention.smoothing), "norm": attention.norm}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k) statistics, image by image."""
        with one_thread():
            return super().statistics(items, progress)

    def encode(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors of texts; how they are batched does not depend on the order of items."""
        return self.source.captions(sorted(texts))
