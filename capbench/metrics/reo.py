"""REO: relevance, extraness and omission of a caption's content (Jiang et al., EMNLP-IJCNLP 2019), from the paper.

The covariance of context vectors in its distance (eq. 7) is fitted on a caption corpus.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import DataError, ModelError, UsageError
from capbench.core.explanations import Bars, ExplainedCandidate, Explanation, Matrix, Panel, Subject, letter
from capbench.core.options import Choice, File, Options, option
from capbench.core.pickles import load_npz
from capbench.core.records import FloatArray
from capbench.core.training_record import TrainingRecord, captions_of, photographs_of
from capbench.features.class_names import regions_of
from capbench.metrics.image_metric import unknown_words
from capbench.metrics.needs import Need, Resources
from capbench.metrics.pair_metric import Pair
from capbench.metrics.scan.encode import GroundedMetric, GroundingOptions, GroundingSource, chunks
from capbench.weights.ensembles import network_files
from capbench.weights.registry import locate
from capbench.weights.training_files import KEY

if TYPE_CHECKING:
    from torch import Tensor

# Equations 4 to 9. An image has n regions; a_i (D) is the context of region i in the candidate, g_i that of the ground
# truth: its context in a reference, or the region itself.


def reo(a: Tensor, g: Tensor, b: Tensor) -> Tensor:
    """Relevance, extraness and omission of k candidates against j ground truths (k, j, 3), means over regions.

    ``a``: (k, n, D); ``g``: (j, n, D); ``b``: (D, D), with S⁻¹ = bᵀb, so that ‖b x‖ is the Mahalanobis length of x.

    Relevance is cos(a, g) (eq. 4). Extraness is the Mahalanobis distance d(a, a⊥) (eq. 6, 7) of a and its component
    orthogonal to g, a⊥ = a - (a·g / ‖g‖²) g (eq. 5): that of the projection, |a·g| / ‖g‖² times the length of g.
    Omission d(g, g⊥) exchanges a and g (eq. 8, 9). All three are 0 in a region where a or g is a zero vector.
    """
    import torch

    dots = torch.einsum("knd,jnd->kjn", a, g)
    of_a, of_g = a.norm(dim=2)[:, None], g.norm(dim=2)[None]
    long_a, long_g = (a @ b.T).norm(dim=2)[:, None], (g @ b.T).norm(dim=2)[None]
    relevance = dots / (of_a * of_g)
    extraness = dots.abs() / of_g**2 * long_g
    omission = dots.abs() / of_a**2 * long_a
    scores = torch.stack([relevance, extraness, omission], dim=3)
    return scores.masked_fill(((of_a <= 0) | (of_g <= 0))[..., None], 0.0).mean(dim=2)


def orthogonal(vectors: FloatArray, onto: FloatArray) -> FloatArray:
    """The direction of each row (n, D) without its projection on the other's row (n, D), eq. 5 and 8.

    0 if nothing is left but rounding; a row is not changed by a zero row.
    """
    squares = (onto * onto).sum(axis=1, keepdims=True)
    rest = vectors - (vectors * onto).sum(axis=1, keepdims=True) / np.where(squares > 0, squares, 1.0) * onto
    lengths = np.linalg.norm(rest, axis=1, keepdims=True)
    real = lengths > 1e-9 * np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(real, rest / np.where(real, lengths, 1.0), 0.0)


# The covariance S of context vectors in eq. 7, and its file.
#
# The paper does not define its S. The distances in Figure 1 are about √1024 times the relevance, as with the covariance
# of context vectors, shrunk towards a multiple of the identity.

_KIND = "capbench.reo-covariance/1"
_SINGULAR = 1e-7
"""Minimum ratio of a Cholesky factor's diagonal elements; below it, the matrix's condition number exceeds 1e14."""


@dataclass(frozen=True, eq=False)
class Covariance:
    """A fitted covariance."""

    matrix: FloatArray  # (D, D) float64 sample covariance of context vectors about their mean
    shrinkage: float  # ρ in [0, 1]: S is (1 - ρ) matrix + ρ tr(matrix)/D · I
    facts: Mapping[str, Any]  # the data of the fit, with the SHA-256 of the ``model`` and the record ``trained_on``
    sha256: str = ""  # of its file
    path: Path | None = None

    def whitener(self) -> FloatArray:
        """(D, D) b with S⁻¹ = bᵀb. Raises ModelError if S cannot be inverted."""
        from scipy.linalg import solve_triangular

        unit = np.eye(len(self.matrix))
        shrunk = (1.0 - self.shrinkage) * self.matrix + self.shrinkage * np.diagonal(self.matrix).mean() * unit
        try:
            lower = np.linalg.cholesky(shrunk)
            diagonal = np.diagonal(lower)
            if diagonal.min() <= _SINGULAR * diagonal.max():
                raise np.linalg.LinAlgError
        except np.linalg.LinAlgError as error:
            message = f"the covariance of {self.facts.get('captions')} captions cannot be inverted"
            hint = "Fit it to more captions or with more shrinkage, or use reo.covariance=identity"
            raise ModelError(message, code="undefined", value=self.shrinkage, path=self.path, hint=hint) from error
        return np.asarray(solve_triangular(lower, unit, lower=True), dtype=np.float64)


def default_path(model: str | os.PathLike[str]) -> Path:
    """Path of a model's covariance, next to the model: ``scan.safetensors.reo.npz``."""
    path = Path(model)
    return path.with_name(path.name + ".reo.npz")


def write_covariance(path: str | os.PathLike[str], covariance: Covariance) -> None:
    """Write a covariance as ``.npz``, atomically and deterministically."""
    facts = {"kind": _KIND, "shrinkage": covariance.shrinkage, **covariance.facts}
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with files.atomic_write(path, "wb") as file:
        np.savez(file, matrix=covariance.matrix, facts=np.frombuffer(text.encode(), dtype=np.uint8))


def read_covariance(path: str | os.PathLike[str]) -> Covariance:
    """Read a file from :func:`write_covariance`."""
    digest = files.sha256_file(path)
    try:
        arrays = load_npz(path)
        matrix, facts = arrays["matrix"], json.loads(arrays["facts"].tobytes().decode())
        shrinkage, kind = float(facts.pop("shrinkage")), facts.pop("kind")
        if kind != _KIND or matrix.shape != matrix.T.shape or matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise ValueError(kind)
    except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
        remake = "Fit it again with 'capbench train reo-covariance'"
        raise ModelError("is not a valid covariance for REO", code="wrong-format", path=path, hint=remake) from error
    return Covariance(matrix, shrinkage, facts, digest, Path(path))


_TEXTS_AT_ONCE = 2048


def fit_covariance(
    source: GroundingSource,
    captions: Mapping[str, Sequence[str]],  # captions by image; images without features or captions are ignored
    options: GroundingOptions,  # the attention of regions to words
    *,
    corpus: str,  # name of the corpus, for the signature of scores
    shrinkage: float | None = None,  # ρ in [0, 1]; by default :func:`oas_shrinkage` of so many *captions*
    progress: Callable[[int], None] = lambda _done: None,  # called with numbers of images done
) -> Covariance:
    """The covariance about the mean of the contexts a_i of all regions of images in their captions.

    Contexts are sums of word vectors, a_i = Σ_j α_ij w_j, so Σ_i a_i a_iᵀ = Wᵀ(ααᵀ)W is computed without the contexts.
    """
    import torch

    from capbench.metrics.scan.network import attend

    if shrinkage is not None and not 0 <= shrinkage <= 1:
        hint = "Use a number from 0 to 1, or none to estimate it"
        raise UsageError(f"the shrinkage is {shrinkage}", code="out-of-range", value=shrinkage, hint=hint)
    images = [image for image in sorted(captions) if image in source.store]
    n_captions = sum(len(captions[image]) for image in images)
    if n_captions < 2:
        message = f"of {len(captions):,} images of {corpus}, those with features have {n_captions} captions"
        hint = "Use at least 2 captions of images in the store, with the same ids"
        raise DataError(message, code="too-few", value=n_captions, path=source.store.paths[0], hint=hint)
    attention, size = options.attention("reo-covariance", [source.model]), source.model.options.embed_dim
    total, squares, n = torch.zeros(size).double(), torch.zeros(size, size).double(), 0
    for block in chunks([image for image in images if captions[image]], _TEXTS_AT_ONCE // 8):
        encoded = source.captions(text for image in block for text in captions[image])
        for image in block:
            words, lengths = options.padded([encoded[text] for text in captions[image]])  # (k, m, D)
            regions = torch.from_numpy(source.regions(image))[None]
            weights = attend(attention, regions, words, lengths)[0][0].movedim(0, 2)  # (k, m, n)
            flat = words.flatten(0, 1)
            total += weights.sum(dim=2).flatten() @ flat
            squares += flat.T @ (weights @ weights.mT @ words).flatten(0, 1)
            n += len(words) * regions.shape[1]
        progress(len(block))
    mean = total / n
    matrix = (squares / n - torch.outer(mean, mean)).numpy()
    matrix = (matrix + matrix.T) / 2.0
    if not np.isfinite(matrix).all() or not np.trace(matrix) > 0:
        hint = "Use other captions or another model"
        raise DataError(f"the {n:,} contexts of {corpus} are all equal", code="undefined", value=corpus, hint=hint)
    record = TrainingRecord("", photographs_of(images), captions_of(text for i in images for text in captions[i]))
    facts = {
        "model": source.model.sha256,
        "corpus": corpus,
        "features": source.store.signature(),
        "attention": f"lambda{attention.smoothing:g}+{attention.norm}+{options.clip}"
        + ("" if options.count_ends else "+no-ends"),
        "images": len(images),
        "captions": n_captions,
        "contexts": n,
        KEY: record.to_json(),
    }
    return Covariance(matrix, oas_shrinkage(matrix, n_captions) if shrinkage is None else float(shrinkage), facts)


def oas_shrinkage(covariance: FloatArray, observations: int) -> float:
    """Oracle approximating shrinkage of a sample covariance (p, p) towards a multiple of the identity.

    Chen, Wiesel, Eldar and Hero, IEEE Trans. Signal Processing 58, 2010, eq. 23.
    """
    p = len(covariance)
    of_square, square_of = float((covariance * covariance).sum()), float(np.trace(covariance)) ** 2
    above = (1 - 2 / p) * of_square + square_of
    below = (observations + 1 - 2 / p) * (of_square - square_of / p)
    return 1.0 if below <= 0 else min(1.0, above / below)


@dataclass(frozen=True)
class ReoOptions(GroundingOptions):
    """Options of REO."""

    covariance: str = option(
        "fitted",
        Choice("fitted", "identity"),
        "S of the distance: the file from 'capbench train reo-covariance', or none",
        sign_as="",
    )
    covariance_file: str | None = option(
        None, File("a covariance"), "this file, if it is not next to the model; not for an ensemble", sign_as=""
    )


class FittedCovariance(Need):
    """The covariance of context vectors, next to the model or as an option."""

    word = "covariance"

    def missing(self, label: str, resources: Resources, options: Options) -> str | None:
        assert isinstance(options, ReoOptions)
        decided = options.covariance == "identity" or options.covariance_file is not None
        for file in () if decided or not resources.model or not resources.features else network_files(resources.model):
            if not default_path(file).exists():
                how = f"train reo-covariance --model {file} --features {resources.features} --captions NAME"
                return f"{default_path(file)}, from 'capbench {how}' (or use reo.covariance=identity)"
        return None

    def trained_files(self, metric: str, resources: Resources, options: Options) -> tuple[Path, ...]:
        assert isinstance(options, ReoOptions)
        if options.covariance == "identity" or resources.model is None:
            return ()
        if options.covariance_file is not None:
            return (Path(options.covariance_file),)
        return tuple(default_path(file) for file in network_files(locate(resources.model, metric)))


TRUTHS = {"image": "reo-image-", "image + references": "reo-"}
"""REO's two ground truths, as the paper names them, and the prefixes of their columns."""
SCORES = ("relevance", "extraness", "omission")
_AT_ONCE = 64  # candidates that are compared together
Compared = tuple[str, FloatArray, Sequence[FloatArray]]  # name, its vectors (n or 1, D), errors of unit length (n, D)


class Reo(GroundedMetric):
    """REO's three scores against image and references, and against the image only. Higher is better for all six.

    A candidate's contexts a_i, one per region, are compared with g_i of the ground truth: the contexts of a reference
    (``reo-relevance``, ``reo-extraness``, ``reo-omission``: means over references, "Image + Reference" in the paper)
    or the region vectors (``reo-image-...``, "Image"). Extraness and omission are distances of a vector and its
    orthogonal component, so that *little* extra or missing content scores high. Scores of an ensemble are means; those
    of networks with larger vectors have larger distances (about √D).
    """

    name = "reo"
    columns = (
        *("reo-relevance", "reo-extraness", "reo-omission"),
        *("reo-image-relevance", "reo-image-extraness", "reo-image-omission"),
    )
    titles: ClassVar[Mapping[str, str]] = {
        column: f"REO {column.rpartition('-')[2]}{' (image)' if 'image' in column else ''}" for column in columns
    }
    citation = "Jiang et al., REO-Relevance, Extraness, Omission, EMNLP-IJCNLP 2019"
    explains_errors = True
    needs = (*GroundedMetric.needs, FittedCovariance())
    option_type = ReoOptions
    options: ReoOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        import torch

        super().__init__(resources, **options)
        kind, file = self.options.covariance, self.options.covariance_file
        models, self._covariances = self.source.models, list[Covariance]()
        if file is not None and (kind == "identity" or len(models) > 1):
            message = "reo.covariance_file has no effect with reo.covariance=identity, and with an ensemble"
            raise UsageError(message, code="conflict", value=file, hint="Remove one of them")
        paths = () if kind == "identity" else network_files(str(self.resources.model))
        for model, path in zip(models, paths, strict=False):
            covariance = read_covariance(default_path(path) if file is None else file)
            if covariance.facts.get("model") != model.sha256:
                message = f"is the covariance of another model than {model.path}"
                hint = "Fit it again with 'capbench train reo-covariance'"
                raise ModelError(message, code="wrong-weights", value=str(model.path), path=covariance.path, hint=hint)
            self._covariances.append(covariance)
        whiteners = [covariance.whitener() for covariance in self._covariances]
        whiteners = whiteners or [np.eye(model.options.embed_dim) for model in models]
        self._whiteners = list(map(torch.from_numpy, whiteners))

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        return frozenset(column for column in cls.columns if column.startswith("reo-image-"))

    def facts(self) -> Mapping[str, object]:
        named = self.options.covariance
        for covariance in self._covariances:
            named += f"+{covariance.facts.get('corpus')}+{covariance.facts.get('captions')}-captions"
            named += f"+shrinkage{covariance.shrinkage:.4g}+{covariance.sha256[:16]}"
        *others, references = super().facts().items()
        return dict([*others, ("S", named.replace("|", "/").replace(" ", "_")), references])

    def contexts(self, network: int, image: str, captions: Sequence[NDArray[Any]]) -> Tensor:
        """(k, n, D) contexts a_i of an image's regions in captions of words (m, D) (eq. 1-3)."""
        import torch

        from capbench.metrics.scan.network import attend

        regions = torch.from_numpy(self.source.parts(self.source.regions(image))[network])
        words, lengths = self.options.padded([self.source.parts(vectors)[network] for vectors in captions])
        return attend(self.attention, regions[None], words, lengths)[0][0].movedim(1, 0) @ words

    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Any]) -> Iterator[FloatArray]:
        """(3,) scores of each pair, the mean over the networks."""
        for image, group in groupby(pairs, key=lambda pair: pair.image):
            of_image = list(group)
            candidates = {pair.candidate: None for pair in of_image}
            references = {pair.reference: None for pair in of_image if pair.reference is not None}
            every = [self._table(i, image, candidates, references, encodings) for i in range(len(self._whiteners))]
            table = np.mean(every, axis=0)
            rows, columns = ({text: i for i, text in enumerate(texts)} for texts in (candidates, [None, *references]))
            yield from (table[rows[pair.candidate], columns[pair.reference]] for pair in of_image)

    def _table(
        self, i: int, image: str, candidates: Iterable[str], references: Iterable[str], encodings: Mapping[str, Any]
    ) -> FloatArray:
        """(candidates, 1 + references, 3) scores of one network, those against the image first."""
        import torch

        def contexts(texts: Iterable[str]) -> Iterator[Tensor]:
            return (self.contexts(i, image, some) for some in chunks([encodings[text] for text in texts], _AT_ONCE))

        regions = torch.from_numpy(self.source.parts(self.source.regions(image))[i])
        truths = torch.cat([regions[None], *contexts(references)])
        rows = torch.cat([reo(of, truths, self._whiteners[i]) for of in contexts(candidates)])
        return np.asarray(rows.numpy(), dtype=np.float64)

    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        """(7,): number of references, means of the three scores over references, the three against the image."""
        of_image, *references = rows
        return np.concatenate([[len(references)], np.mean(references or [np.zeros(3)], axis=0), of_image])

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        values = statistics[:, 1:].copy()
        values[statistics[:, 0] == 0, :3] = np.nan
        return {column: np.ascontiguousarray(values[:, i]) for i, column in enumerate(self.columns)}

    def explain(self, subject: Subject) -> Explanation:
        """Words and marked phrases by similarity to a⊥ and g⊥ (Figure 3), and all candidates' scores (Figure 4).

        The paper does not define the vectors of an error's description: here, they are its contexts as a caption.
        """
        image, items, vocabulary = subject.image, subject.items, self.source.model.vocabulary
        regions = self.source.regions(image)

        def contexts(text: str) -> FloatArray:
            return self.contexts(0, image, [self.source.captions([text])[text]])[0].numpy()

        def phrases(marked: Sequence[str], errors: Sequence[FloatArray]) -> list[Compared]:
            return [(f"“{phrase}”", contexts(phrase), errors) for phrase in marked]

        def words(text: str, errors: Sequence[FloatArray]) -> list[Compared]:
            vectors = self.options.padded([self.source.captions([text])[text]])[0][0].numpy()[:, None]
            return [(word, vector, errors) for word, vector in zip(self.options.words(text), vectors, strict=False)]

        texts = [text for item in items for text in (item.candidate, *item.references)]
        columns = self.scores(self.statistics(items, lambda _: None))
        truths = {t: p for t, p in TRUTHS.items() if t == "image" or all(item.references for item in items)}
        candidates = []
        for row, (item, human) in enumerate(zip(items, subject.humans, strict=True)):
            marked = subject.errors[row] if subject.errors else {}
            a, panels = contexts(item.candidate), list[Panel]()
            for truth in truths:
                ground = [regions] if truth == "image" else [contexts(text) for text in item.references]
                extra, missing = [orthogonal(a, g) for g in ground], [orthogonal(g, a) for g in ground]
                each = zip(item.references, missing * (len(item.references) // len(ground)), strict=True)
                found = {
                    "Extra phrases: sim(x, y) with a⊥": phrases(marked.get("extra", ()), extra),
                    "Missing phrases: sim(x, y) with g⊥": phrases(marked.get("missing", ()), missing),
                    "Extra words: similarity to a⊥": words(item.candidate, extra),
                    "Missing words: similarity to g⊥": [word for t, e in each for word in words(t, [e])],
                }
                panels += [similarities(f"{title} against {truth}", of) for title, of in found.items() if of]
            scores = {p + name: float(columns[p + name][row]) for p in truths.values() for name in SCORES}
            candidates.append(ExplainedCandidate(item.candidate, item.references, human, scores, tuple(panels)))
        comparison = tuple(scaled(candidates, truth) for truth in truths) if len(candidates) > 1 else ()
        shown, notes = regions_of(self.store, image), tuple(unknown_words([vocabulary], texts))
        return Explanation("REO", image, tuple(candidates), self.signature(), shown, comparison, notes)


def similarities(title: str, compared: Sequence[Compared]) -> Bars:
    """sim(x, y) of Figure 3, a mean cosine over regions and references; equal names once, the highest first."""
    found: dict[str, list[float]] = {}
    for name, vectors, errors in compared:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        units = vectors / np.where(lengths > 0, lengths, 1.0)
        found.setdefault(name, []).extend(float((error * units).sum(axis=1).mean()) for error in errors)
    means = {name: float(np.mean(values)) for name, values in found.items()}
    names = sorted(means, key=lambda name: -means[name])
    return Bars(title, tuple(names), np.array([means[name] for name in names]))


def scaled(candidates: Sequence[ExplainedCandidate], truth: str) -> Matrix:
    """Every score scaled to 0..1 over the candidates (Figure 4), 0.5 if all are equal; with complete human ratings."""
    rows = {name: [candidate.scores[TRUTHS[truth] + name] for candidate in candidates] for name in SCORES}
    humans = [candidate.human for candidate in candidates if candidate.human is not None]
    if len(humans) == len(candidates):
        rows["people"] = humans
    values = np.array(list(rows.values()))
    low, spread = values.min(axis=1, keepdims=True), np.ptp(values, axis=1, keepdims=True)
    values = np.where(spread > 0, (values - low) / np.where(spread > 0, spread, 1.0), 0.5)
    return Matrix(f"Against {truth}, scaled to 0..1", tuple(rows), tuple(map(letter, range(len(candidates)))), values)
