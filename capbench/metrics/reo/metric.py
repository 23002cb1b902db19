"""REO: relevance, extraness and omission of a caption's content (Jiang et al., EMNLP-IJCNLP 2019), from the paper.

The covariance of context vectors in its distance (eq. 7) is fitted on a caption corpus.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, ModelError, UsageError
from capbench.core.explanations import Explanation, Subject
from capbench.core.options import Choice, File, Options, option
from capbench.core.pickles import load_npz
from capbench.core.records import FloatArray, Item
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.metrics.grounding.grounding import (
    LONG,
    Attention,
    GroundedMetric,
    GroundingOptions,
    GroundingSource,
    attend,
    context_norms,
    contexts,
    extraness_omission,
    pad,
    portions,
    quadratic,
)
from capbench.metrics.needs import Need, Resources
from capbench.weights.encodings import Encodings
from capbench.weights.ensembles import network_files
from capbench.weights.registry import locate
from capbench.weights.training_files import KEY

# The covariance of context vectors in REO's Mahalanobis distance (eq. 7), and its file.
#
# The paper does not define its S. The distances in Figure 1 are about √1024 times the relevance, which is consistent
# with a covariance of context vectors; it is fitted once to captions of a corpus and stored next to the model.

COVARIANCES = ("fitted", "diagonal", "full", "identity")
"""``fitted``: with shrinkage; ``full``: the plain covariance; ``diagonal``: its diagonal; ``identity``: none."""

_KIND = "capbench.reo-covariance/1"
_SINGULAR = 1e-7
"""Minimum ratio of a Cholesky factor's diagonal elements; below it, the matrix's condition number exceeds 1e14."""


@dataclass(frozen=True, eq=False)
class Covariance:
    """A fitted covariance.

    Attributes:
        matrix: (D, D) float64 sample covariance of context vectors about their mean.
        shrinkage: ρ in [0, 1]: ``fitted`` is (1 - ρ) matrix + ρ tr(matrix)/D · I.
        facts: ``model`` (SHA-256 of the weights), ``corpus``, ``features``, ``attention``, ``images``, ``captions``,
            ``contexts``: the data of the fit; ``trained_on``: its record.
        sha256: SHA-256 of its file; ``""`` before it is written.
        path: its file.
    """

    matrix: FloatArray
    shrinkage: float
    facts: Mapping[str, Any]
    sha256: str = ""
    path: Path | None = None

    def whitener(self, kind: str) -> FloatArray:
        """B with S⁻¹ = BᵀB: (D, D), or (D,) for a diagonal S.

        Args:
            kind: one of :data:`COVARIANCES` except ``identity``.

        Raises:
            ModelError: S cannot be inverted.
        """
        from scipy.linalg import solve_triangular

        size = len(self.matrix)
        variances = np.diagonal(self.matrix)
        if kind == "diagonal":
            if variances.min() <= _SINGULAR**2 * variances.max():
                raise self._singular(kind)
            return np.asarray(1.0 / np.sqrt(variances), dtype=np.float64)
        shrunk = self.matrix
        if kind == "fitted":
            shrunk = (1.0 - self.shrinkage) * self.matrix + self.shrinkage * variances.mean() * np.eye(size)
        try:
            lower = np.linalg.cholesky(shrunk)
        except np.linalg.LinAlgError as error:
            raise self._singular(kind) from error
        diagonal = np.diagonal(lower)
        if diagonal.min() <= _SINGULAR * diagonal.max():
            raise self._singular(kind)
        return np.asarray(solve_triangular(lower, np.eye(size), lower=True), dtype=np.float64)

    def _singular(self, kind: str) -> ModelError:
        return ModelError(
            f"the covariance ({kind}) of {self.facts.get('captions')} captions cannot be inverted",
            code="undefined",
            value=kind,
            path=self.path,
            hint="Fit it to more captions or with more shrinkage, or use reo.covariance=identity",
        )


def default_path(model: str | os.PathLike[str]) -> Path:
    """Path of a model's covariance, next to the model: ``scan.safetensors.reo.npz``."""
    path = Path(model)
    return path.with_name(path.name + ".reo.npz")


def write_covariance(path: str | os.PathLike[str], covariance: Covariance) -> None:
    """Write a covariance as ``.npz``, atomically and deterministically. Raises UsageError if it cannot be written."""
    facts = {"kind": _KIND, "shrinkage": covariance.shrinkage, **covariance.facts}
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with files.atomic_write(path, "wb") as file:
        np.savez(file, matrix=covariance.matrix, facts=np.frombuffer(text.encode(), dtype=np.uint8))


def read_covariance(path: str | os.PathLike[str]) -> Covariance:
    """Read a file from :func:`write_covariance`.

    Raises:
        MissingFileError: the file does not exist.
        ModelError: not a covariance, or a damaged file.
    """
    message, remake = "is not a valid covariance for REO", "Fit it again with 'capbench train reo-covariance'"
    digest = files.sha256_file(path)
    try:
        arrays = load_npz(path)
        matrix, facts = arrays["matrix"], json.loads(arrays["facts"].tobytes().decode())
        shrinkage = float(facts.pop("shrinkage"))
        kind = facts.pop("kind")
    except DataError as error:
        raise ModelError(f"{message}: {error.message}", code="wrong-format", path=path, hint=remake) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(message, code="wrong-format", path=path, hint=remake) from error
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] and matrix.dtype == np.float64
    if kind != _KIND or not square or not np.isfinite(matrix).all() or not 0 <= shrinkage <= 1:
        raise ModelError(message, code="wrong-format", path=path, hint=remake)
    return Covariance(matrix, shrinkage, facts, digest, Path(path))


_WHITENED_AT_ONCE = 512
_SCORES = 3


@dataclass(frozen=True, eq=False)
class _Contexts:
    """Contexts of k captions in one image: vectors (k, n, D), their (k, n) lengths and products with the regions."""

    vectors: FloatArray
    norms: FloatArray
    mahalanobis: FloatArray
    image: FloatArray


class _Space:
    """REO's scores in the vector space of one network.

    Args:
        attention: the attention of regions to words.
        whitener: B with S⁻¹ = BᵀB, (D, D) or (D,), or None for the identity.
    """

    def __init__(self, attention: Attention, whitener: FloatArray | None) -> None:
        self._attention = attention
        self._whitener = whitener
        self._grams = Encodings()
        self._block: dict[str, FloatArray] = {}

    def see(self, words: Mapping[str, NDArray[np.float32]]) -> None:
        """Compute the products under S⁻¹ of the captions for :meth:`statistics`."""
        if self._whitener is not None:
            self._block = self._mahalanobis_products(words, self._whitener)

    def _mahalanobis_products(
        self, words: Mapping[str, NDArray[np.float32]], whitener: FloatArray
    ) -> dict[str, FloatArray]:
        """(m, m) products wᵀ S⁻¹ w' of each caption's words, which suffice because contexts are sums of words.

        For long captions, which have too many products, the contexts are whitened instead.
        """
        products = {text: gram for text in words if (gram := self._grams.get(text)) is not None}
        longest = LONG if self._attention.count_ends else LONG + 2
        new = [text for text, vectors in words.items() if text not in products and len(vectors) <= longest]
        for start in range(0, len(new), _WHITENED_AT_ONCE):
            batch = new[start : start + _WHITENED_AT_ONCE]
            counted = [words[text] if self._attention.count_ends else words[text][1:-1] for text in batch]
            flat = np.concatenate(counted).astype(np.float64)
            flat = flat * whitener if whitener.ndim == 1 else flat @ whitener.T
            ends = np.cumsum([len(vectors) for vectors in counted])
            for text, whitened in zip(batch, np.split(flat, ends[:-1]), strict=True):
                products[text] = whitened @ whitened.T
                self._grams.put(text, products[text])
        return products

    def statistics(
        self, regions: FloatArray, items: Sequence[Item], words: Mapping[str, NDArray[np.float32]]
    ) -> FloatArray:
        """(items, 7): number of references, three scores against the references, three against the image."""
        norms = np.linalg.norm(regions, axis=1)
        whitened = norms
        if self._whitener is not None:
            b = self._whitener
            whitened = np.linalg.norm(regions * b if b.ndim == 1 else regions @ b.T, axis=1)
        candidates = {text: i for i, text in enumerate(dict.fromkeys(item.candidate for item in items))}
        references = {text: i for i, text in enumerate(dict.fromkeys(text for i in items for text in i.references))}
        against_image = np.empty((len(candidates), _SCORES))
        against = np.empty((len(candidates), len(references), _SCORES))
        for rows in portions([len(words[text]) for text in candidates]):
            of_candidates = self._contexts(regions, list(candidates)[rows], words)
            scores = extraness_omission(
                of_candidates.image, (of_candidates.norms, norms), (of_candidates.mahalanobis, whitened)
            )
            against_image[rows] = np.stack([values.mean(axis=1) for values in scores], axis=1)
            for columns in portions([len(words[text]) for text in references]):
                of_references = self._contexts(regions, list(references)[columns], words)
                against[rows, columns] = _pairs(of_candidates, of_references)
        statistics = np.zeros((len(items), 1 + 2 * _SCORES))
        for row, item in zip(statistics, items, strict=True):
            i = candidates[item.candidate]
            row[0] = len(item.references)
            if item.references:
                row[1 : 1 + _SCORES] = against[i, [references[text] for text in item.references]].mean(axis=0)
            row[1 + _SCORES :] = against_image[i]
        return statistics

    def _contexts(
        self, regions: FloatArray, texts: Sequence[str], words: Mapping[str, NDArray[np.float32]]
    ) -> _Contexts:
        padded = pad([words[text] for text in texts], self._attention)
        weights, products = attend(regions, padded, self._attention)
        vectors = contexts(weights, padded)
        norms = context_norms(weights, padded)
        mahalanobis, b = norms, self._whitener
        if b is not None and padded.long:
            mahalanobis = np.linalg.norm(vectors * b if b.ndim == 1 else vectors @ b.T, axis=2)
        elif b is not None:
            gram = np.zeros_like(padded.gram)
            for products_of_text, text in zip(gram, texts, strict=True):
                known = self._block[text]
                products_of_text[: len(known), : len(known)] = known
            mahalanobis = np.sqrt(quadratic(weights, gram))
        return _Contexts(vectors, norms, mahalanobis, (weights * products).sum(axis=1))


def _pairs(candidates: _Contexts, references: _Contexts) -> FloatArray:
    """(candidates, references, 3): scores of every pair, means over regions."""
    a, g = candidates, references
    dots = (a.vectors.transpose(1, 0, 2) @ g.vectors.transpose(1, 2, 0)).transpose(1, 2, 0)
    scores = extraness_omission(dots, (a.norms[:, None], g.norms[None]), (a.mahalanobis[:, None], g.mahalanobis[None]))
    return np.stack([values.mean(axis=2) for values in scores], axis=2)


@dataclass(frozen=True)
class ReoOptions(GroundingOptions):
    """Options of REO."""

    covariance: str = option(
        "fitted",
        Choice(*COVARIANCES),
        "S of the distance; all except identity require a file from 'capbench train reo-covariance'",
        sign_as="",
    )
    covariance_file: str | None = option(
        None,
        File("a covariance"),
        "this file, if it is not next to the model; not for an ensemble",
        sign_as="",
    )


class FittedCovariance(Need):
    """The covariance of context vectors, next to the model or as an option."""

    def name(self) -> str:
        """One word."""
        return "covariance"

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        """The missing file, with the command that fits it."""
        assert isinstance(options, ReoOptions)
        decided = options.covariance == "identity" or options.covariance_file is not None
        if decided or not resources.model or not resources.features:
            return None
        files = network_files(resources.model)
        for file in files:
            path = default_path(file)
            if not path.exists():
                of = "" if len(files) == 1 else f", a part of {resources.model},"
                return (
                    f"the covariance of context vectors of {file}{of} in {path}, fitted by 'capbench train "
                    f"reo-covariance --model {file} --features {resources.features} --captions NAME' (or use "
                    "reo.covariance=identity)"
                )
        return None

    def trained_files(self, metric: str, resources: Resources, options: Options) -> tuple[Path, ...]:
        """The covariance, or those of an ensemble's networks."""
        assert isinstance(options, ReoOptions)
        if options.covariance == "identity" or resources.model is None:
            return ()
        if options.covariance_file is not None:
            return (Path(options.covariance_file),)
        return tuple(default_path(file) for file in network_files(locate(resources.model, metric)))


class Reo(GroundedMetric):
    """REO's three scores against image and references, and against the image only. Higher is better for all six.

    A candidate's contexts a_i, one per region, are compared with g_i of the ground truth: the contexts of a reference
    (``reo-relevance``, ``reo-extraness``, ``reo-omission``: means over references, "Image + Reference" in the paper)
    or the region vectors (``reo-image-...``, "Image"). Relevance is the mean cosine. Extraness is the mean Mahalanobis
    distance between a_i and its component orthogonal to g_i, so that *little* extra content scores high; omission
    exchanges a and g.

    Under an ensemble, each score is the mean of the networks' scores, each computed in the network's vector space with
    its S: contexts of different networks cannot be averaged, but cosines and normalised distances can. Networks with
    larger vectors have larger distances (about √D) and thus more weight in extraness and omission.

    If a context or its ground truth is a zero vector, all three are 0 in this region. An item without references only
    has scores against the image: requesting the others is an error.
    """

    name: ClassVar[str] = "reo"
    columns: ClassVar[tuple[str, ...]] = (
        "reo-relevance",
        "reo-extraness",
        "reo-omission",
        "reo-image-relevance",
        "reo-image-extraness",
        "reo-image-omission",
    )
    titles: ClassVar[Mapping[str, str]] = {
        "reo-relevance": "REO relevance",
        "reo-extraness": "REO extraness",
        "reo-omission": "REO omission",
        "reo-image-relevance": "REO relevance (image)",
        "reo-image-extraness": "REO extraness (image)",
        "reo-image-omission": "REO omission (image)",
    }
    citation: ClassVar[str] = "Jiang et al., REO-Relevance, Extraness, Omission, EMNLP-IJCNLP 2019"
    explains_ensembles: ClassVar[bool] = False
    explains_errors: ClassVar[bool] = True
    order: ClassVar[int] = 110
    needs: ClassVar[tuple[Need, ...]] = (*GroundedMetric.needs, FittedCovariance())
    option_type = ReoOptions
    options: ReoOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        super().__init__(resources, **options)
        kind, file = self.options.covariance, self.options.covariance_file
        if kind == "identity" and file is not None:
            message = "reo.covariance_file has no effect with reo.covariance=identity"
            raise UsageError(message, code="conflict", value=file, hint="Remove one of them")
        models = self.source.models
        self._covariances: list[Covariance] = []
        whiteners: list[FloatArray | None] = [None] * len(models)
        if kind != "identity":
            self._covariances = self._read_covariances(file)
            whiteners = [covariance.whitener(kind) for covariance in self._covariances]
        self._spaces = [_Space(self.attention, whitener) for whitener in whiteners]

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The columns against the image only."""
        return frozenset(column for column in cls.columns if column.startswith("reo-image-"))

    def _read_covariances(self, covariance_file: str | None) -> list[Covariance]:
        """One covariance per network, in the order of the source's networks."""
        files = network_files(str(self.resources.model))
        if covariance_file is not None and len(files) > 1:
            raise UsageError(
                f"reo.covariance_file is one file, but {self.resources.model} is an ensemble of {len(files)} networks",
                code="conflict",
                value=covariance_file,
                hint="Remove it: the covariances next to the networks are used",
            )
        covariances = []
        for model, file in zip(self.source.models, files, strict=True):
            covariance = read_covariance(default_path(file) if covariance_file is None else covariance_file)
            if covariance.facts.get("model") != model.sha256:
                raise ModelError(
                    f"is the covariance of another model than {model.path}",
                    code="wrong-weights",
                    value=str(model.path),
                    path=covariance.path,
                    hint="Fit it again with 'capbench train reo-covariance'",
                )
            covariances.append(covariance)
        return covariances

    def facts(self) -> Mapping[str, object]:
        """Those of :class:`GroundedMetric`, and S: kind, corpus, shrinkage and the file's SHA-256."""
        kind = self.options.covariance
        named = kind
        for covariance in self._covariances:
            facts = covariance.facts
            named += f"+{facts.get('corpus')}+{facts.get('captions')}-captions"
            if kind == "fitted":
                named += f"+shrinkage{covariance.shrinkage:.4g}"
            named += f"+{covariance.sha256[:16]}"
        return {**super().facts(), "S": named.replace("|", "/").replace(" ", "_"), "refs": "mean"}

    def encode(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors of texts; also computes and stores their products under S⁻¹."""
        words = super().encode(texts)
        for space, words_of_network in zip(self._spaces, self._apart(words), strict=True):
            space.see(words_of_network)
        return words

    def _apart(self, words: Mapping[str, NDArray[np.float32]]) -> list[dict[str, NDArray[np.float32]]]:
        """Each network's part of word vectors."""
        parts = {text: self.source.parts(vectors) for text, vectors in words.items()}
        return [{text: vectors[i] for text, vectors in parts.items()} for i in range(len(self._spaces))]

    def image_statistics(
        self, image: str, items: Sequence[Item], encodings: Mapping[str, NDArray[np.float32]]
    ) -> FloatArray:
        """(items, 7): number of references, three scores against the references, three against the image."""
        texts = {text for item in items for text in (item.candidate, *item.references)}
        regions = self.source.parts(self.source.regions(image))
        apart = self._apart({text: encodings[text] for text in texts})
        of_networks = [
            space.statistics(seen, items, words)
            for space, seen, words in zip(self._spaces, regions, apart, strict=True)
        ]
        return np.asarray(np.mean(of_networks, axis=0), dtype=np.float64)

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """The six columns; those against references are NaN for items without references."""
        values = statistics[:, 1:].copy()
        values[statistics[:, 0] == 0, :_SCORES] = np.nan
        return {column: np.ascontiguousarray(values[:, i]) for i, column in enumerate(self.columns)}

    def explain(self, subject: Subject) -> Explanation:
        """See :func:`capbench.metrics.reo.explain.explain_reo`."""
        from capbench.metrics.reo.explain import explain_reo

        return explain_reo(self, subject)


_TEXTS_AT_ONCE = 2048


def fit_covariance(
    source: GroundingSource,
    captions: Mapping[str, Sequence[str]],
    attention: Attention,
    *,
    corpus: str,
    shrinkage: float | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> Covariance:
    """The covariance about the mean of the contexts a_i of all regions of images in their captions.

    Contexts are sums of word vectors, a_i = Σ_j α_ij w_j, so Σ_i a_i a_iᵀ = Wᵀ(ααᵀ)W is computed without the contexts.

    Args:
        source: the model, and features of at least one image of the corpus.
        captions: captions by image; images without features or captions are ignored.
        attention: the attention of regions to words.
        corpus: name of the corpus, for the signature of scores.
        shrinkage: ρ in [0, 1]; by default :func:`oas_shrinkage` with one observation per *caption*, because the
            contexts of one caption are nearly equal.
        progress: called with numbers of images done.

    Raises:
        UsageError: the shrinkage is outside [0, 1].
        DataError: no image of the corpus has features, or there are fewer than two captions.
        FeatureError, ModelError: the store or the model is damaged.
    """
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        raise UsageError(
            f"the shrinkage is {shrinkage}",
            code="out-of-range",
            value=shrinkage,
            hint="Use a number from 0 to 1, or none to estimate it",
        )
    images = [image for image in sorted(captions) if image in source.store]
    n_captions = sum(len(captions[image]) for image in images)
    if n_captions < 2:
        raise DataError(
            f"of {len(captions):,} images of {corpus}, those with features in {source.store.paths[0]} have "
            f"{n_captions} captions; at least 2 are required",
            code="too-few",
            value=n_captions,
            hint="Use captions of the images in the store, with the same ids",
        )
    size = source.model.options.embed_dim
    total, squares, n = np.zeros(size), np.zeros((size, size)), 0
    for block in _blocks(images, captions):
        words = source.captions(text for image in block for text in captions[image])
        for image in block:
            texts = captions[image]
            if not texts:
                continue
            regions = source.regions(image)
            padded = pad([words[text] for text in texts], attention)
            weights, _ = attend(regions, padded, attention)
            flat = padded.vectors.reshape(-1, size)
            total += weights.sum(axis=2).ravel() @ flat
            mixed = (weights @ weights.transpose(0, 2, 1)) @ padded.vectors
            squares += flat.T @ mixed.reshape(-1, size)
            n += len(texts) * len(regions)
        progress(len(block))
    mean = total / n
    matrix = squares / n - np.outer(mean, mean)
    matrix = (matrix + matrix.T) / 2.0
    if not np.isfinite(matrix).all() or not np.trace(matrix) > 0:
        raise DataError(
            f"the {n:,} contexts of {corpus} are all equal",
            code="undefined",
            value=corpus,
            hint="Use other captions or another model",
        )
    facts = {
        "model": source.model.sha256,
        "corpus": corpus,
        "features": source.store.signature(),
        "attention": f"lambda{attention.smoothing:g}+{attention.norm}+{attention.clip}"
        + ("" if attention.count_ends else "+no-ends"),
        "images": len(images),
        "captions": n_captions,
        "contexts": n,
        KEY: TrainingRecord(
            "", photographs_of(images), captions_of(text for image in images for text in captions[image])
        ).to_json(),
    }
    return Covariance(matrix, oas_shrinkage(matrix, n_captions) if shrinkage is None else float(shrinkage), facts)


def oas_shrinkage(covariance: FloatArray, observations: int) -> float:
    """Shrinkage of a sample covariance (p, p) towards a multiple of the identity.

    The oracle approximating shrinkage of Chen, Wiesel, Eldar and Hero (IEEE Trans. Signal Processing 58, 2010, eq. 23).
    """
    p = len(covariance)
    of_square, square_of = float((covariance * covariance).sum()), float(np.trace(covariance)) ** 2
    above = (1 - 2 / p) * of_square + square_of
    below = (observations + 1 - 2 / p) * (of_square - square_of / p)
    return 1.0 if below <= 0 else min(1.0, above / below)


def _blocks(images: Sequence[str], captions: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Images in blocks with at most ``_TEXTS_AT_ONCE`` captions, or a single image with more."""
    blocks: list[list[str]] = []
    texts = 0  # of the last block
    for image in images:
        if not blocks or texts + len(captions[image]) > _TEXTS_AT_ONCE:
            blocks.append([])
            texts = 0
        blocks[-1].append(image)
        texts += len(captions[image])
    return blocks
