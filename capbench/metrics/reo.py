"""REO: relevance, extraness and omission of a caption's content (Jiang et al., EMNLP-IJCNLP 2019; paper only)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.errors import ModelError, UsageError, suggest
from capbench.metrics.base import Resources
from capbench.metrics.covariance import COVARIANCES, Covariance, default_path, read_covariance
from capbench.metrics.grounded import Bounded, GroundedMetric
from capbench.metrics.grounding import attend, contexts, extraness_omission, pad, quadratic
from capbench.records import FloatArray, Item

__all__ = ["Reo"]

_CAPTIONS_AT_ONCE = 64
_WHITENED_AT_ONCE = 512
_GRAM_BYTES = 128 << 20
_SCORES = 3


@dataclass(frozen=True, eq=False)
class _Contexts:
    """Contexts of k captions in one image: vectors (k, n, D), and (k, n) lengths and products with the regions."""

    vectors: FloatArray
    norms: FloatArray
    mahalanobis: FloatArray
    image: FloatArray


class Reo(GroundedMetric):
    """REO's three scores against image and references, and against the image alone. Higher is better for all six.

    A candidate's contexts a_i, one a region, are compared with the ground truth's g_i: the contexts of a reference
    (``reo-relevance``, ``reo-extraness``, ``reo-omission``: means over references, "Image + Reference" in the paper)
    or the region vectors (``reo-image-...``, "Image"). Relevance is the mean cosine; extraness the mean Mahalanobis
    distance of a_i and what is left of it without its projection on g_i, so that *little* extra content scores high;
    omission the same with a and g in each other's place.

    Options:
        lambda_softmax: λ of the attention; the model's own by default (the paper gives none).
        norm: how products are normalised before the attention; the model's own by default.
        clip: ``leaky`` (LeakyReLU 0.1, as SCAN is trained) or ``relu`` (max(0, ·), as printed).
        count_ends: whether ``<start>`` and ``<end>`` count as words.
        covariance: S of the distance: ``fitted`` (with shrinkage), ``full``, ``diagonal`` or ``identity``. All but the
            last come from a file that ``capbench train reo-covariance`` makes.
        covariance_file: that file, if it does not lie beside the model.
        vocabulary: the vocabulary JSON of a released checkpoint that it does not lie beside.
        any_features: take features of another fingerprint than the model was trained on.

    Where a context or its ground truth is a zero vector, all three are 0 in that region. An item without references
    has scores against the image only: asking for the others is an error.
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
    order: ClassVar[int] = 110

    def __init__(
        self,
        resources: Resources | None = None,
        *,
        lambda_softmax: float | None = None,
        norm: str | None = None,
        clip: str = "leaky",
        count_ends: bool = True,
        covariance: str = "fitted",
        covariance_file: str | None = None,
        vocabulary: str | None = None,
        any_features: bool = False,
    ) -> None:
        if covariance not in COVARIANCES:
            raise UsageError(f"reo.covariance={covariance}: unknown", hint=suggest(str(covariance), list(COVARIANCES)))
        if covariance == "identity" and covariance_file is not None:
            raise UsageError("reo.covariance_file is given with reo.covariance=identity", hint="Give one of them")
        attention = {"smoothing": lambda_softmax, "norm": norm, "clip": clip, "count_ends": count_ends}
        options = {"covariance": covariance, "covariance_file": covariance_file}
        super().__init__(resources, attention, vocabulary, any_features, options)
        self._kind = covariance
        self._covariance: Covariance | None = None
        self._whitener: FloatArray | None = None
        if covariance != "identity":
            path = covariance_file or default_path(str(self.resources.model))
            self._covariance = self._checked(read_covariance(path))
            self._whitener = self._covariance.whitener(covariance)
        self._grams: Bounded[str] = Bounded(_GRAM_BYTES)
        self._block: dict[str, FloatArray] = {}

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The columns against the image alone."""
        return frozenset(column for column in cls.columns if column.startswith("reo-image-"))

    @classmethod
    def lacks(cls, resources: Resources, options: Mapping[str, Any] | None = None) -> str | None:
        """Features, a model, or the model's covariance, with how to give and to make them."""
        lacking = super().lacks(resources, options)
        given = options or {}
        if lacking or given.get("covariance", "fitted") == "identity" or given.get("covariance_file") is not None:
            return lacking
        path = default_path(str(resources.model))
        if path.exists():
            return None
        return (
            f"the covariance of context vectors in {path}, made by 'capbench train reo-covariance --model "
            f"{resources.model} --features {resources.features} --captions NAME' (or use reo.covariance=identity)"
        )

    def _checked(self, covariance: Covariance) -> Covariance:
        model = self.source.model
        if covariance.facts.get("model") != model.sha256:
            raise ModelError(
                f"is the covariance of another model than {model.path}",
                path=covariance.path,
                hint="Make it again with 'capbench train reo-covariance'",
            )
        return covariance

    def signature_parts(self) -> Mapping[str, object]:
        """Those of :class:`GroundedMetric`, and S: kind, corpus, shrinkage and the file's SHA-256."""
        named = self._kind
        if self._covariance is not None:
            facts = self._covariance.facts
            named += f"+{facts.get('corpus')}+{facts.get('captions')}-captions"
            if self._kind == "fitted":
                named += f"+shrinkage{self._covariance.shrinkage:.4g}"
            named += f"+{self._covariance.sha256[:16]}"
        return {**super().signature_parts(), "S": named.replace("|", "/").replace(" ", "_"), "refs": "mean"}

    def encode(self, texts: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word vectors of texts; their products under S⁻¹ are made at once and kept."""
        words = super().encode(texts)
        if self._whitener is not None:
            self._block = self._mahalanobis_products(words, self._whitener)
        return words

    def _mahalanobis_products(
        self, words: Mapping[str, NDArray[np.float32]], whitener: FloatArray
    ) -> dict[str, FloatArray]:
        """(m, m) products wᵀ S⁻¹ w' of each caption's words: contexts are sums of them, so nothing else is whitened."""
        found = {text: held for text in words if (held := self._grams.get(text)) is not None}
        new = [text for text in words if text not in found]
        for start in range(0, len(new), _WHITENED_AT_ONCE):
            part = new[start : start + _WHITENED_AT_ONCE]
            kept = [words[text] if self.attention.count_ends else words[text][1:-1] for text in part]
            flat = np.concatenate(kept).astype(np.float64)
            flat = flat * whitener if whitener.ndim == 1 else flat @ whitener.T
            ends = np.cumsum([len(own) for own in kept])
            for text, own in zip(part, np.split(flat, ends[:-1]), strict=True):
                found[text] = own @ own.T
                self._grams.put(text, found[text])
        return found

    def image_statistics(
        self, image: str, items: Sequence[Item], words: Mapping[str, NDArray[np.float32]]
    ) -> FloatArray:
        """(items, 7): number of references, three scores against the references, three against the image."""
        regions = self.source.regions(image)
        norms = np.linalg.norm(regions, axis=1)
        whitened = norms
        if self._whitener is not None:
            b = self._whitener
            whitened = np.linalg.norm(regions * b if b.ndim == 1 else regions @ b.T, axis=1)
        candidates = {text: i for i, text in enumerate(dict.fromkeys(item.candidate for item in items))}
        references = {text: i for i, text in enumerate(dict.fromkeys(text for i in items for text in i.references))}
        against_image = np.empty((len(candidates), _SCORES))
        against = np.empty((len(candidates), len(references), _SCORES))
        for first in range(0, len(candidates), _CAPTIONS_AT_ONCE):
            own = self._contexts(regions, list(candidates)[first : first + _CAPTIONS_AT_ONCE], words)
            rows = slice(first, first + len(own.norms))
            scores = extraness_omission(own.image, (own.norms, norms), (own.mahalanobis, whitened))
            against_image[rows] = np.stack([values.mean(axis=1) for values in scores], axis=1)
            for start in range(0, len(references), _CAPTIONS_AT_ONCE):
                theirs = self._contexts(regions, list(references)[start : start + _CAPTIONS_AT_ONCE], words)
                against[rows, start : start + len(theirs.norms)] = _pairs(own, theirs)
        found = np.zeros((len(items), 1 + 2 * _SCORES))
        for row, item in zip(found, items, strict=True):
            i = candidates[item.candidate]
            row[0] = len(item.references)
            if item.references:
                row[1 : 1 + _SCORES] = against[i, [references[text] for text in item.references]].mean(axis=0)
            row[1 + _SCORES :] = against_image[i]
        return found

    def _contexts(
        self, regions: FloatArray, texts: Sequence[str], words: Mapping[str, NDArray[np.float32]]
    ) -> _Contexts:
        padded = pad([words[text] for text in texts], self.attention)
        weights, products = attend(regions, padded, self.attention)
        vectors = contexts(weights, padded)
        norms = np.sqrt(quadratic(weights, padded.gram))
        mahalanobis = norms
        if self._whitener is not None:
            gram = np.zeros_like(padded.gram)
            for own, text in zip(gram, texts, strict=True):
                known = self._block[text]
                own[: len(known), : len(known)] = known
            mahalanobis = np.sqrt(quadratic(weights, gram))
        return _Contexts(vectors, norms, mahalanobis, (weights * products).sum(axis=1))

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """The six columns; those against references are NaN for items without references."""
        values = statistics[:, 1:].copy()
        values[statistics[:, 0] == 0, :_SCORES] = np.nan
        return {column: np.ascontiguousarray(values[:, i]) for i, column in enumerate(self.columns)}


def _pairs(candidates: _Contexts, references: _Contexts) -> FloatArray:
    """(candidates, references, 3): scores of every pair, means over regions."""
    a, g = candidates, references
    dots = (a.vectors.transpose(1, 0, 2) @ g.vectors.transpose(1, 2, 0)).transpose(1, 2, 0)
    scores = extraness_omission(dots, (a.norms[:, None], g.norms[None]), (a.mahalanobis[:, None], g.mahalanobis[None]))
    return np.stack([values.mean(axis=2) for values in scores], axis=2)
