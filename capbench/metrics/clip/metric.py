"""CLIPScore and RefCLIPScore (Hessel et al., EMNLP 2021), their base classes, and a store of embeddings."""

from __future__ import annotations

import abc
import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.errors import FeatureError, MetricError
from capbench.core.machine import choose_device
from capbench.core.options import Choice, Count, File, Kind, Options, Positive, option
from capbench.core.progress import Progress, SlowWork
from capbench.core.records import FloatArray, Item
from capbench.features.images import read_picture
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.shown import partner, shuffle_line
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.image_metric import partners_of
from capbench.metrics.needs import Images, Need, PublishedWeights, References, Resources, find_pictures
from capbench.metrics.pair_metric import Pair, PairMetric

if TYPE_CHECKING:
    from capbench.metrics.clip.encoder import Clip

# CLIPScore's formulas over any two encoders with a common space (Hessel et al., EMNLP 2021, sections 3 and 3.1).
#
# CLIPScore of an image and a candidate is w · max(cos, 0). RefCLIPScore is the harmonic mean of CLIPScore and the
# unscaled maximum cosine between the candidate and a reference. As in the paper, a negative maximum counts as 0; the
# mean is 0 in this case and if both sides are 0.


@dataclass(frozen=True)
class ContrastiveOptions(Options):
    """Options of every metric with these formulas."""

    scale: float = option(
        2.5, Positive(), "w, the factor of the cosines of images and captions", sign_as="w", recombines=True
    )


class ContrastiveMetric(PairMetric):
    """A metric over vectors of images and captions with two columns, one reference-free and one with references."""

    option_type: ClassVar[type[Options]] = ContrastiveOptions
    options: Any

    @abc.abstractmethod
    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        """(images, D) vectors of images by their ids, of any length except 0."""

    @abc.abstractmethod
    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        """(texts, D) vectors of captions, of any length except 0."""

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The first column."""
        return frozenset(cls.columns[:1])

    against_image: ClassVar[bool] = True

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
        """Both columns; the second is NaN for items without references."""
        count, cosines, of_references = statistics.T
        scaled = self.options.scale * np.maximum(cosines, 0.0)
        mean = harmonic_mean(scaled, np.maximum(of_references, 0.0))
        return dict(zip(self.columns, (scaled, np.where(count > 0, mean, np.nan)), strict=True))

    def matrix(
        self,
        images: Sequence[str],
        captions: Sequence[str],
        references: Mapping[str, Sequence[str]],
        column: str,
        progress: Progress,
    ) -> FloatArray | None:
        """(n, m) scores of every caption against every image, each side encoded once."""
        of_captions = unit_rows(self.text_vectors(list(captions)))
        cosines = unit_rows(self.image_vectors(list(images))) @ of_captions.T
        scaled: FloatArray = self.options.scale * np.maximum(cosines, 0.0)
        if column == self.columns[0]:
            progress(len(images))
            return scaled
        bare = next((image for image in images if not references.get(image)), None)
        if bare is not None:
            message = f"{column} requires references, but the image '{bare}' has none"
            raise MetricError(message, code="missing-references", value=bare)
        texts = list(dict.fromkeys(text for image in images for text in references[image]))
        of_references = dict(zip(texts, unit_rows(self.text_vectors(texts)), strict=True))
        for row, image in zip(scaled, images, strict=True):
            of_image = np.stack([of_references[text] for text in references[image]])
            row[:] = harmonic_mean(row, np.maximum((of_image @ of_captions.T).max(axis=0), 0.0))
            progress(1)
        return scaled


def unit_rows(vectors: NDArray[Any]) -> FloatArray:
    """Rows (n, D) of length 1, in float64. Raises MetricError if a row is all zeros."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    if not (lengths > 0).all():
        raise MetricError("an image or a caption has a zero vector, which has no direction", code="undefined")
    unit: FloatArray = rows / lengths
    return unit


def harmonic_mean(first: FloatArray, second: FloatArray) -> FloatArray:
    """2ab / (a + b) of non-negative numbers; 0 if both are 0."""
    total = first + second
    mean: FloatArray = 2 * first * second / np.where(total > 0, total, 1.0)
    return mean


# Store of text and image vectors in the format of feature stores, so that each is computed once.
#
# A vector is stored as the only region of an "image" with its key as id. The file's fingerprint identifies what
# computed the vectors; a file has one fingerprint. An interrupted run's vectors are in the journal next to the file
# (:mod:`capbench.features.writing`), from which the next run resumes. Runs that use the same file take turns.

_WAIT_S = 24 * 3600.0  # for another run, which shows its progress and may encode all images of a data set

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Keys → (keys, D) vectors."""


class Embeddings:
    """Vectors by key, in memory and, if there is a file, on disk.

    Args:
        path: the file; None stores them in memory only.
        fingerprint: identifies the network and settings that compute them.

    Attributes:
        path: the file.
        fingerprint: the fingerprint.
    """

    def __init__(self, path: Path | None, fingerprint: Fingerprint) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Distinct keys whose vectors must still be computed.

        Raises:
            FeatureError: the file is damaged or has another fingerprint.
        """
        left = [key for key in dict.fromkeys(keys) if key not in self._vectors]
        if left and self.path is not None and self.path.exists():
            self._read(left)
            left = [key for key in left if key not in self._vectors]
        return left

    def take(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """(keys, D) vectors. Raises KeyError if one is not computed."""
        return np.stack([self._vectors[key] for key in keys])

    def fill(
        self, keys: Iterable[str], encode: Encode, at_once: int, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Compute missing vectors batch by batch; each finished batch is stored.

        Args:
            keys: the keys; repeats are computed once.
            encode: computes vectors.
            at_once: maximum number of keys per call of ``encode``.
            progress: called with numbers of keys done, including those that another run computed meanwhile.

        Raises:
            FeatureError: as :meth:`missing`; or a vector is not finite.
            UsageError: the file cannot be written.
            CapbenchError: raised by ``encode``; earlier batches are stored.
        """
        left = self.missing(keys)
        if not left:
            return
        if self.path is None:
            self._encode(left, encode, at_once, lambda _key, _vector: None, progress)
            return
        # The store's lock has a timeout of seconds; this lock queues runs.
        with files.lock(Path(f"{self.path}.queue"), _WAIT_S):
            still = self.missing(left)
            progress(len(left) - len(still))
            with StoreWriter(self.path, self.fingerprint) as writer:

                def add(key: str, vector: NDArray[np.float32]) -> None:
                    writer.add(RegionFeatures(key, 0, 0, None, vector[None, :]))

                unfinished = [key for key in still if key not in writer]
                progress(len(still) - len(unfinished))
                if unfinished:
                    self._encode(unfinished, encode, at_once, add, progress)
                writer.finish().close()
            self._read(still)

    def _encode(
        self,
        keys: Sequence[str],
        encode: Encode,
        at_once: int,
        add: Callable[[str, NDArray[np.float32]], None],
        progress: Callable[[int], None],
    ) -> None:
        for start in range(0, len(keys), at_once):
            batch = keys[start : start + at_once]
            for key, vector in zip(batch, encode(batch), strict=True):
                copied = np.array(vector, dtype=np.float32)  # a view would keep the whole batch in memory
                if not np.isfinite(copied).all():
                    message = "an embedding is NaN or infinite"
                    raise FeatureError(message, code="not-a-number", value=key, hint="Use precision=float32")
                add(key, copied)
                self._vectors[key] = copied
            progress(len(batch))

    def _read(self, keys: Iterable[str]) -> None:
        assert self.path is not None
        try:
            with open_store(self.path) as store:
                if store.fingerprint != self.fingerprint:
                    differences = self.fingerprint.differences(store.fingerprint)
                    message = f"has other embeddings: {differences}"
                    raise FeatureError(message, code="wrong-features", path=self.path)
                for key in sorted(keys):
                    if key in store:
                        self._vectors[key] = store[key].features[0].astype(np.float32)
        except FeatureError as error:
            raise FeatureError(
                error.message,
                code=error.code,
                value=error.value,
                path=error.path or self.path,
                hint="Remove the file; the embeddings are then computed again",
            ) from error


# Base class of CLIPScore and PAC-S: a CLIP encodes each image and caption once; the vectors are stored on disk.

_PICTURES_AT_ONCE, _TEXTS_AT_ONCE = 32, 128
_PER_SECOND = {"cpu": 15.0, "cuda": 200.0}
"""Images and captions per second, with ViT-B/32."""


class _Prefix(Kind):
    """A text before every caption."""

    def describe(self) -> str:
        """In words."""
        return "a text, or '' for none"

    def example(self) -> str:
        """The papers'."""
        return "A photo depicts"

    def read(self, value: object) -> str:
        """The text without surrounding white space."""
        if not isinstance(value, str):
            raise ValueError
        return value.strip()

    def sign(self, value: Any) -> str:
        """The text, with the separators of signatures escaped."""
        return str(value).replace("%", "%25").replace("|", "%7C") or "none"


@dataclass(frozen=True)
class ClipOptions(ContrastiveOptions):
    """Options of every metric over a CLIP."""

    prefix: str = option("A photo depicts", _Prefix(), "text before every candidate and reference")
    image: str = option(
        "seen",
        Choice("seen", "shuffled"),
        "picture shown to the metric: the image (seen), or another image of the data set (shuffled)",
        quiet=True,
    )
    image_seed: int = option(1, Count(), "seed of image=shuffled", sign_as="")
    precision: Literal["float32", "float16", "bfloat16"] = option(
        "float32",
        Choice("float32", "float16", "bfloat16"),
        "precision of the network; the released code uses float16 on a GPU and float32 on a CPU",
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
    embeddings: str | None = option(
        None, File("embeddings"), "folder of the stored embeddings; by default in the cache folder", sign_as=""
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "device of the network", sign_as="")


class ClipMetric(ContrastiveMetric):
    """A metric over a CLIP.

    Raises:
        SetupError: the package transformers is not installed.
        MissingFileError: the weights or a tokeniser do not exist.
        ModelError: the weights are damaged or not a CLIP's.
    """

    batch_size: int = 4096
    option_type = ClipOptions
    options: ClipOptions

    def __init__(self, resources: Resources | None = None, **options: Any) -> None:
        from capbench.metrics.clip.encoder import open_clip_model

        super().__init__(resources, **options)
        assert self.resources.model is not None
        chosen = self.options
        self.clip: Clip = open_clip_model(
            self.resources.model,
            chosen.tokenizer,
            None if chosen.activation == "auto" else chosen.activation,
            chosen.precision,
            choose_device(chosen.device),
        )
        self._partner_of: dict[str, str] = {}
        if chosen.image == "shuffled":
            self._partner_of = partners_of(self.name, self.resources, chosen.image_seed)
        self._paths: dict[str, Path] = {}
        self._digests: dict[str, str] = {}

    def facts(self) -> Mapping[str, object]:
        """First 16 digits of the weights' SHA-256, activation, word pieces, truncation and preprocessing."""
        clip = self.clip
        return {
            "model": clip.sha256[:16],
            "activation": clip.activation,
            "pieces": clip.tokens.sha256[:16],
            "truncation": f"{clip.longest}-end-kept",
            "image": clip.preprocessing.line(),
            **({"shown": shuffle_line(self._partner_of, self.options.image_seed)} if self._partner_of else {}),
        }

    def prepare(self, items: Sequence[Item]) -> None:
        """Find the image files. Raises MissingFileError if some do not exist."""
        super().prepare(items)
        self._find([item.image for item in items])

    def _find(self, images: Sequence[str]) -> None:
        wanted = [image for image in dict.fromkeys(images) if image not in self._paths]
        if wanted:
            shown = {image: partner(self._partner_of, image) if self._partner_of else image for image in wanted}
            found = find_pictures(shown.values(), self.resources)
            self._paths |= {image: found[name] for image, name in shown.items()}

    def cache_key(self, item: Item) -> bytes:
        """The item's key with the SHA-256 of its image file, which may change under the same name."""
        return item.key + bytes.fromhex(self._digest(item.image))

    def _digest(self, image: str) -> str:
        if image not in self._digests:
            self._find([image])
            self._digests[image] = files.sha256_file(self._paths[image])
        return self._digests[image]

    @cached_property
    def _pictures(self) -> Embeddings:
        return self._embeddings("pictures", self.clip.preprocessing.line(), _PICTURES_AT_ONCE)

    @cached_property
    def _texts(self) -> Embeddings:
        cleaned = f"html+spaces+lower+pieces-{self.clip.tokens.sha256[:16]}+{self.clip.longest}-end-kept"
        return self._embeddings("texts", cleaned, _TEXTS_AT_ONCE)

    def _embeddings(self, what: str, preprocessing: str, at_once: int) -> Embeddings:
        """Vectors of one side, under a fingerprint of everything that can change them."""
        clip = self.clip
        fingerprint = Fingerprint(
            detector=f"clip-{what}",
            weights_sha256=clip.sha256,
            preprocessing=preprocessing,
            mode=f"projected, {clip.activation}",
            batch=f"batched:{at_once}",
            precision=f"{self.options.precision}-{clip.device}",
            versions=tuple((name, importlib.metadata.version(name)) for name in ("torch", "transformers")),
        )
        if self.options.embeddings is not None:
            folder = Path(self.options.embeddings).expanduser()
        elif self.resources.cache:
            folder = files.cache_dir("embeddings")
        else:
            return Embeddings(None, fingerprint)
        return Embeddings(folder / f"clip-{what}-{fingerprint.digest}.h5", fingerprint)

    def _pieces(self, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Word pieces of captions with the prefix, by key."""
        prefixed = [self._prefixed(text) for text in texts]
        return {_key(pieces): pieces for pieces in self.clip.pieces(prefixed)}

    def _prefixed(self, text: str) -> str:
        return f"{self.options.prefix} {text}" if self.options.prefix else text

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        """Images and captions that are not encoded yet; None if there are none."""
        digests = {self._digest(item.image): item.image for item in items}
        pieces = self._pieces([text for item in items for text in (item.candidate, *item.references)])
        pictures, texts = self._pictures.missing(digests), self._texts.missing(pieces)
        if not pictures and not texts:
            return None

        def run(progress: Progress) -> None:
            self._encode_pictures(digests, pictures, progress)
            self._encode_texts(pieces, texts, progress)

        kind = "cuda" if self.clip.device.startswith("cuda") else "cpu"
        return SlowWork(
            f"{self.titles[self.columns[0]]} encodes",
            "pictures and captions",
            frozenset(pictures) | frozenset(texts),
            _PER_SECOND[kind],
            run,
        )

    def _encode_pictures(self, images: Mapping[str, str], wanted: Sequence[str], progress: Progress) -> None:
        def encode(digests: Sequence[str]) -> NDArray[np.float32]:
            paths = [self._paths[images[digest]] for digest in digests]
            return self.clip.encode_pictures([read_picture(path, self.clip.preprocessing) for path in paths])

        self._pictures.fill(wanted, encode, _PICTURES_AT_ONCE, progress)

    def _encode_texts(self, pieces: Mapping[str, tuple[int, ...]], wanted: Sequence[str], progress: Progress) -> None:
        def encode(keys: Sequence[str]) -> NDArray[np.float32]:
            return self.clip.encode_texts([pieces[key] for key in keys])

        # Texts of similar length are encoded together.
        ordered = sorted(wanted, key=lambda key: (len(pieces[key]), key))
        self._texts.fill(ordered, encode, _TEXTS_AT_ONCE, progress)

    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        """(images, D) vectors of images, which are encoded if necessary.

        Raises:
            DataError: an image file cannot be decoded.
        """
        self._find(images)
        digests = {self._digest(image): image for image in images}
        self._encode_pictures(digests, list(digests), lambda _: None)
        return self._pictures.take([self._digest(image) for image in images]).astype(np.float64)

    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        """(texts, D) vectors of captions with the prefix, which are encoded if necessary."""
        pieces = self._pieces(texts)
        self._encode_texts(pieces, list(pieces), lambda _: None)
        keys = [_key(numbers) for numbers in self.clip.pieces([self._prefixed(text) for text in texts])]
        return self._texts.take(keys).astype(np.float64)

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """Number of captions that were truncated."""
        sides = {
            "candidates": {item.candidate for item in items},
            "references": {text for item in items for text in item.references},
        }
        cut = {side: sum(self.clip.is_cut(self._prefixed(text)) for text in texts) for side, texts in sides.items()}
        if not any(cut.values()):
            return ()
        counts = " and ".join(f"{cut[side]:,} of {len(texts):,} {side}" for side, texts in sides.items() if texts)
        return [f"{counts} have more than {self.clip.longest} word pieces and were truncated, with the end token kept"]


def _key(pieces: tuple[int, ...]) -> str:
    """Key of a text's vector; equal pieces have equal vectors."""
    return hashlib.blake2b(np.array(pieces, dtype="<i8").tobytes(), digest_size=20).hexdigest()


class ClipScore(ClipMetric):
    """CLIPScore, 2.5 · max(cos(image, candidate), 0) in CLIP's space, and RefCLIPScore, its harmonic mean with the
    unscaled maximum cosine of the candidate and a reference.

    As in the released code, candidates and references start with "A photo depicts", captions are truncated to 77 word
    pieces with the end token kept, and images are resized (bicubic) and centre-cropped. The papers use OpenAI's
    ViT-B/32. CLIPScore is reference-free. Each image and caption is encoded once, and its vector is stored in the cache
    folder.
    """

    name: ClassVar[str] = "clipscore"
    columns: ClassVar[tuple[str, ...]] = ("clipscore", "refclipscore")
    titles: ClassVar[Mapping[str, str]] = {"clipscore": "CLIPScore", "refclipscore": "RefCLIPScore"}
    citation: ClassVar[str] = (
        "Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021"
    )
    packages = ("torch", "tokenizers")
    needs: ClassVar[tuple[Need, ...]] = (References(), Images(), PublishedWeights("a CLIP", "clip-vit-b32"))
    order: ClassVar[int] = 170
