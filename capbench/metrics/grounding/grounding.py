"""Shared code of TIGEr and REO: attention between words and regions, and the encodings of a grounding model."""

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
from capbench.core.options import Choice, File, Flag, Positive, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, IntArray, Item
from capbench.features.store import FeatureStore, open_store
from capbench.metrics.image_metric import (
    ImageMetric,
    ImageOptions,
    check_features,
    opened_networks,
    signed_together,
    store_key,
)
from capbench.metrics.needs import Features, Need, References, Resources, Weights
from capbench.text.vocabulary import UNKNOWN
from capbench.weights.encodings import Encodings, Key, encode_by_length

if TYPE_CHECKING:
    from capbench.metrics.grounding.scan_files import GroundingModel

# Computations of TIGEr and REO on region vectors and word vectors (Jiang et al., EMNLP 2019, both): NumPy, float64.
#
# Notation of the papers: an image is V (n regions, D), a caption W (m words, D). The attention of region i to the words
# of a caption gives its *context* a_i. TIGEr's grounding vector contains the cosine of each region and its context; REO
# compares contexts with each other. Contexts are linear in the words, so their norms follow from the words' products,
# and TIGEr does not compute them.

NORMS = ("clipped_l2norm", "l2norm", "clipped", "softmax", "no_norm")
"""Normalisation of the products of regions and words over regions, before the softmax over words."""
CLIPS = ("leaky", "relu")
"""``leaky``: LeakyReLU(0.1), as released; ``relu``: max(0, ·), as printed."""
D_RELS = ("released", "half", "clip")
"""Mapping of grounding vectors before D_rel's norms: s, (1 + s)/2, or max(0, s)."""

LONG = 128
"""Maximum number of words of a caption whose pairwise products are computed; their number grows quadratically."""

_EPSILON = 1e-8
_SLOPE = 0.1
_AT_ONCE = 64
_CONSTANT = 1e-12
"""Relative spread of a vector below which it counts as constant."""


@dataclass(frozen=True)
class Attention:
    """Attention of regions to words; ``GroundingOptions`` checks the values.

    Attributes:
        smoothing: λ of eq. 2, greater than 0.
        norm: one of :data:`NORMS`.
        clip: one of :data:`CLIPS`; used if ``norm`` clips.
        count_ends: True if ``<start>`` and ``<end>`` count as words.
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
        """True if a caption has more than :data:`LONG` words."""
        return int(self.vectors.shape[1]) > LONG

    @cached_property
    def gram(self) -> FloatArray:
        """(k, m, m) products of each caption's words."""
        return np.asarray(self.vectors @ self.vectors.transpose(0, 2, 1))

    def __len__(self) -> int:
        return len(self.lengths)


def pad(captions: Sequence[NDArray[np.floating]], attention: Attention) -> Words:
    """Captions of different lengths as one array.

    Args:
        captions: (m_i, D) word vectors, ``<start>`` first and ``<end>`` last; at least one caption.
        attention: determines if these two count.
    """
    if not attention.count_ends:
        captions = [words[1:-1] for words in captions]
    lengths = np.array([len(words) for words in captions], dtype=np.int64)
    vectors = np.zeros((len(captions), max(1, int(lengths.max())), captions[0].shape[1]))
    for row, words in zip(vectors, captions, strict=True):
        row[: len(words)] = words
    return Words(vectors, lengths)


def portions(lengths: Sequence[int], *, alike: bool = False) -> Iterator[slice]:
    """Slices of captions that are processed together: 64 captions, or fewer if long captions would pad all.

    Args:
        lengths: number of words of each caption.
        alike: True gives slices of captions of equal length, so that values of a caption do not depend on the others
            (bitwise): the shape of a matrix product determines the order of its sums.
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
        Weights (k, m, n), which sum to 1 over the words of a caption (to 0 without words), and the products of words
        and regions (k, m, n), which are cosines if the model's vectors have length 1.
    """
    m = words.vectors.shape[1]
    products = words.vectors @ regions.T  # one per caption: a joint product would depend on their number
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
    """(k, n, D) context of every region in each caption (eq. 1), from the weights of :func:`attend`."""
    return np.asarray(weights.transpose(0, 2, 1) @ words.vectors)


def quadratic(weights: FloatArray, products: FloatArray) -> FloatArray:
    """(k, n) values aᵀ M a of every context a, without computing a.

    Args:
        weights: (k, m, n) from :func:`attend`.
        products: (k, m, m) wᵀ M w' of a caption's words w, w'; :attr:`Words.gram` gives squared norms.
    """
    squares: FloatArray = (weights * (products @ weights)).sum(axis=1)
    return np.maximum(squares, 0.0)  # rounding may give tiny negative values


def context_norms(weights: FloatArray, words: Words) -> FloatArray:
    """(k, n) norms ‖a‖ of every context a. Contexts are computed only for long captions."""
    if words.long:
        return np.asarray(np.linalg.norm(contexts(weights, words), axis=2))
    return np.sqrt(quadratic(weights, words.gram))


def grounding(regions: FloatArray, words: Words, attention: Attention) -> FloatArray:
    """Grounding vectors s(V, C) of captions (TIGEr eq. 5-6): (k, n) cosines of regions and their contexts.

    The denominator is at least 1e-8, so that a zero vector and a caption without words have grounding 0.
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
"""Columns of :func:`compare`, from which TIGEr's scores follow for all τ, mappings of D_rel and gains."""


def compare(candidates: FloatArray, references: FloatArray, counts: IntArray) -> FloatArray:
    """TIGEr's statistics of candidates against mean reference vectors (section 3.2).

    Args:
        candidates: (k, n) grounding vectors.
        references: (k, n) mean grounding vector of each candidate's references.
        counts: (k,) numbers of references; if 0, all values that involve references are 0.

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

    Regions are ranked by the candidate's values, with ties in region order; a region's gain is its reference value.

    Args:
        candidates: (k, n).
        references: (k, n).
        min_max: True maps the reference values of each vector to the range 0 to 1, as in the released code; otherwise
            gains are the unchanged values, including negative ones.

    If the original divides by zero: RRS against a constant reference vector is 1, because every order is ideal (also
    with one region); RRS of a constant candidate is the mean over all orders of the regions. Unmapped gains with an
    ideal DCG of 0 or less give an RRS of 0.
    """
    low, high = references.min(axis=1, keepdims=True), references.max(axis=1, keepdims=True)
    flat = _is_constant(references)
    gains = (references - low) / np.where(flat[:, None], 1.0, high - low) if min_max else references
    discounts = 1.0 / np.log2(np.arange(2, references.shape[1] + 2))
    order = np.argsort(-candidates, axis=1, kind="stable")
    # Sums by row, because the last bit of a matrix-vector product depends on the number of rows.
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
    """D_rel = ln(‖reference‖ / ‖candidate‖) (TIGEr eq. 12), 0 if either norm is 0."""
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
    """REO's three scores of each region (eq. 4-9).

    a - a⊥ is a's projection on g, (a·g / ‖g‖²) g, whose Mahalanobis length is |a·g| / ‖g‖² times that of g; for
    omission exchanges a and g.

    Args:
        dots: a·g of each region, any shape.
        norms: Euclidean lengths ‖a‖ and ‖g‖, of shapes that broadcast with ``dots``.
        mahalanobis: lengths √(aᵀ S⁻¹ a) and √(gᵀ S⁻¹ g) likewise.

    Returns:
        Relevance cos(a, g), extraness d(a, a⊥) and omission d(g, g⊥), each of the shape of ``dots``; all three are 0
        if a or g is a zero vector. Higher is better for all three.
    """
    a, g = np.broadcast_arrays(*norms)
    zero = (a <= 0) | (g <= 0)
    safe_a, safe_g = np.where(zero, 1.0, a), np.where(zero, 1.0, g)
    size = np.where(zero, 0.0, np.abs(dots))
    relevance = np.where(zero, 0.0, dots) / (safe_a * safe_g)
    return relevance, size / safe_g**2 * mahalanobis[1], size / safe_a**2 * mahalanobis[0]


# A grounding model or ensemble with its feature store. Encoded captions and images are kept in memory up to a limit,
# shared by all metrics of a process.

_SOURCES = 2


class _Encoder:
    """One network with its encodings.

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
        """Word vectors (m, D) of each text with ``<start>`` and ``<end>``; texts of the same words are encoded once."""
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
        """Region vectors (n, D) float64 of an image. Raises FeatureError if it is not in the store."""
        regions = self._regions.get(image)
        if regions is None:
            (regions,) = self.model.encode_images([self.store[image].features])
            self.encoded_images += 1
            self._regions.put(image, regions)
        return regions.astype(np.float64)


class GroundingSource:
    """A grounding model or ensemble with its features, made by :func:`open_source`.

    Under an ensemble, vectors of words and regions are the networks' concatenated vectors: D is the sum of their sizes,
    and :meth:`parts` splits them. All networks tokenise identically, so that a caption has the same number of words in
    each, whatever their vocabularies.

    Args:
        models: the trained networks with their vocabularies, one or several.
        store: the region features.
        path: the ensemble's file.

    Attributes:
        models: the networks.
        store: the region features.
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
                f"is an ensemble of {len(self.models)} networks, but a single network is required",
                code="unsupported",
                value=len(self.models),
                path=self._path,
                hint=f"Use one of them, such as {self.models[0].path}",
            )
        return self.models[0]

    @property
    def encoded_captions(self) -> int:
        """Number of encoded captions of all networks, for tests and benchmarks."""
        return sum(encoder.encoded_captions for encoder in self._encoders)

    @property
    def encoded_images(self) -> int:
        """Number of encoded images of all networks."""
        return sum(encoder.encoded_images for encoder in self._encoders)

    def signature_parts(self) -> dict[str, object]:
        """Model, vocabulary and attention of the training, and the features' signature."""
        return {**signed_together(self.models), "features": self.store.signature()}

    def captions(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors (m, D) of each text with ``<start>`` and ``<end>``; words are encoded once."""
        texts = list(texts)
        of_networks = [encoder.captions(texts) for encoder in self._encoders]
        if len(of_networks) == 1:
            return of_networks[0]
        return {text: np.concatenate([words[text] for words in of_networks], axis=1) for text in of_networks[0]}

    def regions(self, image: str) -> FloatArray:
        """Region vectors (n, D) float64 of an image. Raises FeatureError if it is not in the store."""
        return np.concatenate([encoder.regions(image) for encoder in self._encoders], axis=1)

    def parts(self, vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """Views (..., D_i) of vectors (..., D) of words or regions, one per network."""
        return np.split(vectors, self._ends, axis=-1) if len(self.models) > 1 else [vectors]


_open: OrderedDict[tuple[object, ...], GroundingSource] = OrderedDict()


def open_source(
    features: str | FeatureStore, model: str, *, vocabulary: str | None = None, any_features: bool = False
) -> GroundingSource:
    """A model with a store, from memory if this process has opened these files before.

    Args:
        features: path of a feature store, or an open one.
        model: path of a grounding model (:func:`capbench.metrics.grounding.scan_files.load_scan`) or of an ensemble
            (:mod:`capbench.weights.ensembles`).
        vocabulary: path of the vocabulary JSON, for a released checkpoint without one next to it.
        any_features: True accepts features of another fingerprint than in training.

    Raises:
        FeatureError: the store cannot be read, or has features of another fingerprint than in training.
        ModelError: the model cannot be read, it reads features of another size, or a file of an ensemble is missing or
            was changed.
    """
    files_of_networks = opened_networks(model)
    store = open_store(features) if isinstance(features, str) else features
    vocabulary_sha256 = None if vocabulary is None else files.sha256_file(vocabulary)
    key = (files_of_networks.sha256, vocabulary_sha256, store_key(store))
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
"""Options that are also settings of the training, with the settings' names."""


def one_thread() -> AbstractContextManager[object]:
    """Context in which NumPy uses one thread, which is faster for the small products of one image."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


@dataclass(frozen=True)
class GroundingOptions(ImageOptions):
    """Options of metrics over a grounding model."""

    lambda_softmax: float | None = option(
        None, Positive(), "λ of the attention; by default as in training", sign_as="lambda"
    )
    norm: str | None = option(
        None, Choice(*NORMS), "normalisation of products before the attention; by default as in training"
    )
    clip: str = option("leaky", Choice(*CLIPS), "LeakyReLU 0.1 as in SCAN's training, or max(0, ·) as in the paper")
    count_ends: bool = option(True, Flag(("left-out", "counted")), "count <start> and <end> as words", sign_as="ends")
    vocabulary: str | None = option(
        None, File("a vocabulary"), "the vocabulary of a released checkpoint, if it is not next to it", sign_as=""
    )
    any_features: bool = option(False, Flag(), "accept features of another fingerprint than in training", quiet=True)


class GroundedMetric(ImageMetric):
    """A metric over a grounding model, which encodes regions and words into one space.

    Raises:
        MetricError: no features or no model.
        UsageError: an invalid option.
        FeatureError, ModelError: see :func:`open_source`.
    """

    packages = ("torch", "nltk")
    needs: ClassVar[tuple[Need, ...]] = (
        References(),
        Features(),
        Weights("a grounding model", "capbench train scan", "tiger"),
    )
    options: GroundingOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        chosen = self.options
        assert self.resources.model is not None
        self.source = open_source(
            self.store,
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
        """λ or the norm of the training, which must be equal for all networks of an ensemble."""
        trained_name = _TRAINED[option_name]
        models = self.source.models
        values = [getattr(model.options, trained_name) for model in models]
        for model, value in zip(models, values, strict=True):
            if value != values[0]:
                raise ModelError(
                    f"was trained with {trained_name}={value}, but {models[0].path} of the same ensemble with "
                    f"{values[0]}",
                    code="mismatch",
                    value=value,
                    path=model.path,
                    hint=f"Set the value to use: {self.name}.{option_name}={values[0]}",
                )
        return values[0]

    def facts(self) -> Mapping[str, object]:
        """Model, vocabulary, attention of the training, features, and the λ and norm in use."""
        attention = self.attention
        return {**self.source.signature_parts(), "lambda": Positive().sign(attention.smoothing), "norm": attention.norm}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, k) statistics, computed image by image."""
        with one_thread():
            return super().statistics(items, progress)

    def encode(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors of texts, in batches that do not depend on the order of items."""
        return self.source.captions(sorted(texts))
