"""CLIPScore (Hessel et al., EMNLP 2021) and PAC-S (Sarto et al., CVPR 2023)."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import MetricError
from capbench.core.files import sha256_file
from capbench.core.machine import choose_device
from capbench.core.options import Choice, File, Flag, Options, Positive, option
from capbench.core.progress import Progress
from capbench.core.records import FloatArray, Item
from capbench.features.images import read_picture
from capbench.metrics.needs import Images, References, Resources, Weights, find_pictures
from capbench.metrics.pair_metric import Pair, PairMetric
from capbench.weights.encodings import Encodings

if TYPE_CHECKING:
    from capbench.metrics.clip_files import Clip


@dataclass(frozen=True)
class ContrastiveOptions(Options):
    """Options of every metric with these formulas."""

    scale: float = option(
        2.5, Positive(), "w, the factor of the cosines of images and captions", sign_as="w", recombines=True
    )


class ContrastiveMetric(PairMetric):
    """CLIPScore's formulas over any two encoders with a common space (Hessel et al., sections 3 and 3.1).

    The first column is w · max(cos(image, candidate), 0); the second is its harmonic mean with the unscaled maximum
    cosine of the candidate and a reference, or 0.
    """

    option_type: ClassVar[type[Options]] = ContrastiveOptions
    options: Any
    against_image = True

    @abc.abstractmethod
    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        """(images, D) vectors of images by their ids, of any length except 0."""

    @abc.abstractmethod
    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        """(texts, D) vectors of captions, of any length except 0."""

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        return frozenset(cls.columns[:1])

    def encode(self, texts: Sequence[str]) -> dict[str, FloatArray]:
        """Vectors (D,) of length 1."""
        return dict(zip(texts, unit_rows(self.text_vectors(texts)), strict=True))

    def pairs(self, pairs: Sequence[Pair], encodings: Mapping[str, Any]) -> FloatArray:
        """(pairs,) cosines of a candidate with its image or a reference."""
        images = list(dict.fromkeys(pair.image for pair in pairs))
        of_images = dict(zip(images, unit_rows(self.image_vectors(images)), strict=True))
        others = [of_images[pair.image] if pair.reference is None else encodings[pair.reference] for pair in pairs]
        cosines: FloatArray = np.einsum("nd,nd->n", [encodings[pair.candidate] for pair in pairs], others)
        return cosines

    def reduce(self, rows: Sequence[FloatArray]) -> FloatArray:
        """(3,): number of references, cosine of image and candidate, maximum cosine of candidate and reference or 0."""
        return np.array([len(rows) - 1, rows[0], max(rows[1:], default=0.0)])

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        count, cosines, of_references = statistics.T
        scaled = self.options.scale * np.maximum(cosines, 0.0)
        mean = harmonic_mean(scaled, np.maximum(of_references, 0.0))
        return dict(zip(self.columns, (scaled, np.where(count > 0, mean, np.nan)), strict=True))

    def matrix(self, items: Sequence[Item], progress: Progress) -> dict[str, FloatArray]:
        vectors = self.encode(list(dict.fromkeys(text for it in items for text in (it.candidate, *it.references))))
        of_captions = np.stack([vectors[item.candidate] for item in items])
        references = {item.image: item.references for item in items}
        rows = []
        for image, texts in zip(unit_rows(self.image_vectors(list(references))), references.values(), strict=True):
            near = [of_captions @ vectors[text] for text in texts] or [np.zeros(len(items))]
            count = np.full(len(items), len(texts))
            rows.append(self.scores(np.stack([count, of_captions @ image, np.max(near, axis=0)], axis=1)))
            progress(len(items))
        return {column: np.stack([row[column] for row in rows]) for column in self.columns}


def unit_rows(vectors: NDArray[Any]) -> FloatArray:
    """Rows (n, D) of length 1, in float64; a row of zeros has no direction."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    if not (lengths > 0).all():
        raise MetricError("an image or a caption has a zero vector, which has no direction", code="undefined")
    return np.asarray(rows / lengths)


def harmonic_mean(first: FloatArray, second: FloatArray) -> FloatArray:
    """2ab / (a + b) of non-negative numbers; 0 if both are 0."""
    total = first + second
    return np.asarray(2 * first * second / np.where(total > 0, total, 1.0))


_PICTURES_AT_ONCE, _TEXTS_AT_ONCE = 32, 128
_PREFIX = "A photo depicts"


@dataclass(frozen=True)
class ClipOptions(ContrastiveOptions):
    """Options of every metric over a CLIP."""

    prefix: bool = option(
        True, Flag(("none", _PREFIX)), f"put '{_PREFIX}' before candidates and references; some other packages do not"
    )
    activation: Literal["auto", "quick-gelu", "gelu"] = option(
        "auto",
        Choice("auto", "quick-gelu", "gelu"),
        "activation of the network's perceptrons; by default that of the configuration next to the weights, otherwise "
        "quick-gelu as in OpenAI's weights (LAION's use gelu)",
    )
    tokenizer: str | None = option(
        None,
        File("CLIP's word pieces"),
        "tokenizer.json, vocab.json with merges.txt, bpe_simple_vocab_16e6.txt.gz, or a folder with one of them; by "
        "default next to the weights",
        sign_as="",
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "device of the network", sign_as="")


class ClipMetric(ContrastiveMetric):
    """A metric over a CLIP."""

    packages = ("torch", "tokenizers")
    batch_size = 4096
    option_type = ClipOptions
    options: ClipOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        from capbench.metrics.clip_files import open_clip_model

        super().__init__(resources, **options)
        assert self.resources.model is not None
        tokenizer, device = self.options.tokenizer, choose_device(self.options.device)
        activation = None if self.options.activation == "auto" else self.options.activation
        self.clip: Clip = open_clip_model(self.resources.model, tokenizer, activation, device)
        self._texts, self._paths = Encodings(), dict[str, Path]()
        self._digests: dict[str, str] = {}

    def facts(self) -> Mapping[str, object]:
        return {
            "model": self.clip.sha256[:16],
            "activation": self.clip.activation,
            "pieces": self.clip.tokens.sha256[:16],
            "truncation": f"{self.clip.longest}-end-kept",
            "image": self.clip.preprocessing.line(),
        }

    def prepare(self, items: Sequence[Item]) -> None:
        self._find([item.image for item in items])

    def _find(self, images: Sequence[str]) -> None:
        if wanted := [image for image in images if image not in self._paths]:
            self._paths |= find_pictures(wanted, self.resources)

    def cache_key(self, item: Item) -> bytes:
        """The item's key with the SHA-256 of its image file, which may change under the same name."""
        if item.image not in self._digests:
            self._find([item.image])
            self._digests[item.image] = sha256_file(self._paths[item.image])
        return item.key + bytes.fromhex(self._digests[item.image])

    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        self._find(images)
        batches = [images[start : start + _PICTURES_AT_ONCE] for start in range(0, len(images), _PICTURES_AT_ONCE)]
        prepare = self.clip.preprocessing
        vectors = [
            self.clip.encode_pictures([read_picture(self._paths[i], prepare) for i in batch]) for batch in batches
        ]
        return np.concatenate(vectors).astype(np.float64)

    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        pieces = self.clip.pieces(list(map(self._prefixed, texts)))
        vectors = self._texts.of(pieces, self.clip.encode_texts, _TEXTS_AT_ONCE)
        return np.stack([vectors[ids] for ids in pieces]).astype(np.float64)

    def _prefixed(self, text: str) -> str:
        return f"{_PREFIX} {text}" if self.options.prefix else text

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        texts, longest = {text for item in items for text in (item.candidate, *item.references)}, self.clip.longest
        cut = sum(len(ids) > longest for ids in self.clip.tokens.encode(list(map(self._prefixed, texts))))
        if not cut:
            return ()
        of = f"{cut:,} of {len(texts):,} captions have more than {longest} word pieces"
        return [f"{of} and were truncated, with the end token kept"]


class ClipScore(ClipMetric):
    """CLIPScore, 2.5 · max(cos(image, candidate), 0) in CLIP's space, and RefCLIPScore, its harmonic mean with the
    unscaled maximum cosine of the candidate and a reference. CLIPScore is reference-free.

    As in the released code, candidates and references start with "A photo depicts", captions are truncated to 77 word
    pieces with the end token kept, and images are resized and centre-cropped. The papers use OpenAI's ViT-B/32.
    """

    name = "clipscore"
    columns = ("clipscore", "refclipscore")
    titles: ClassVar[Mapping[str, str]] = {"clipscore": "CLIPScore", "refclipscore": "RefCLIPScore"}
    citation = "Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021"
    needs = (References(), Images(), Weights("a CLIP", "", "clipscore", "FOLDER|FILE|NAME"))


@dataclass(frozen=True)
class PacScoreOptions(ClipOptions):
    """Options of PAC-S."""

    scale: float = option(
        2.0, Positive(), "w, the factor of the cosines of images and captions", sign_as="w", recombines=True
    )


class PacScore(ClipMetric):
    """PAC-S and RefPAC-S: CLIPScore's formulas with w = 2, over a CLIP whose projections were fine-tuned with
    generated captions and images. PAC-S is reference-free.

    Prefix, truncation and preprocessing are those of CLIPScore. The checkpoint has no word pieces: these are next to
    it, or passed with the option ``tokenizer``.
    """

    name = "pac-s"
    columns = ("pac-s", "refpac-s")
    titles: ClassVar[Mapping[str, str]] = {"pac-s": "PAC-S", "refpac-s": "RefPAC-S"}
    citation = (
        "Sarto et al., Positive-augmented contrastive learning for image and video captioning evaluation, CVPR 2023"
    )
    needs = (References(), Images(), Weights("PAC-S's CLIP", "", "pac-s", "FOLDER|FILE|NAME"))

    option_type = PacScoreOptions
    options: PacScoreOptions
