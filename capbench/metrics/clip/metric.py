"""CLIPScore and RefCLIPScore (Hessel et al., EMNLP 2021)."""

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
from capbench.core.options import Choice, File, Kind, Options, Positive, option
from capbench.core.progress import SlowWork
from capbench.core.records import FloatArray, Item
from capbench.features.images import read_picture
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.store import open_store
from capbench.features.writing import StoreWriter
from capbench.metrics.base import Metric, Progress, Resources
from capbench.metrics.needs import Images, Need, PublishedWeights, References, find_pictures

if TYPE_CHECKING:
    from capbench.metrics.clip.encoder import Clip

__all__ = [
    "ClipMetric",
    "ClipOptions",
    "ClipScore",
    "ContrastiveMetric",
    "ContrastiveOptions",
    "Embeddings",
    "harmonic_mean",
    "unit_rows",
]


# The formulas of CLIPScore over any two encoders whose vectors lie in one space.
#
# CLIPScore of an image and a candidate is w · max(cos, 0). RefCLIPScore is the harmonic mean of that and of the largest
# cosine between the candidate and a reference, which is not scaled (Hessel et al., EMNLP 2021, sections 3 and 3.1). A
# negative largest cosine counts as 0, as in the paper; the mean is then 0, as it is where both sides are 0.


@dataclass(frozen=True)
class ContrastiveOptions(Options):
    """Options of every metric with these formulas."""

    scale: float = option(
        2.5, Positive(), "w, by which cosines of images and captions are multiplied", sign_as="w", recombines=True
    )


class ContrastiveMetric(Metric):
    """A metric of two columns, without references and with them, over vectors of images and of captions."""

    option_type = ContrastiveOptions
    options: Any

    @abc.abstractmethod
    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        """(images, D) vectors of images by their ids, of any length but 0."""

    @abc.abstractmethod
    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        """(texts, D) vectors of captions, of any length but 0."""

    @classmethod
    def reference_free(cls) -> frozenset[str]:
        """The first column."""
        return frozenset(cls.columns[:1])

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 3): number of references, cosine of image and candidate, largest cosine of candidate and reference.

        The third is 0 where there are no references.
        """
        images = list(dict.fromkeys(item.image for item in items))
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        image_place = {image: place for place, image in enumerate(images)}
        text_place = {text: place for place, text in enumerate(texts)}
        of_images, of_texts = unit_rows(self.image_vectors(images)), unit_rows(self.text_vectors(texts))
        candidates = of_texts[[text_place[item.candidate] for item in items]]
        rows = np.zeros((len(items), 3))
        rows[:, 1] = (of_images[[image_place[item.image] for item in items]] * candidates).sum(axis=1)
        for row, item, candidate in zip(rows, items, candidates, strict=True):
            row[0] = len(item.references)
            if item.references:
                row[2] = (of_texts[[text_place[text] for text in item.references]] @ candidate).max()
        progress(len(items))
        return rows

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """Both columns; the one with references is NaN for items without any."""
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
            raise MetricError(f"{column} needs references, and the image '{bare}' has none")
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
        raise MetricError("an image or a caption has a vector of zeros, which has no direction")
    unit: FloatArray = rows / lengths
    return unit


def harmonic_mean(first: FloatArray, second: FloatArray) -> FloatArray:
    """2ab / (a + b) of numbers from 0 on; 0 where both are 0."""
    total = first + second
    mean: FloatArray = 2 * first * second / np.where(total > 0, total, 1.0)
    return mean


# Vectors of texts and images in the layout of feature stores, so that each is computed once.
#
# A vector stands under its key as the one region of an "image". The file's fingerprint says what computed it: vectors
# of two fingerprints never lie in one file. What an interrupted run computed is kept in the journal beside the file
# (:mod:`capbench.features.writing`), and the next run goes on behind it. Runs that want one file wait for each other.

_WAIT_S = 24 * 3600.0  # for another run, which shows its own progress and may encode all images of a data set

Encode = Callable[[Sequence[str]], NDArray[np.float32]]
"""Keys → (keys, D) vectors."""


class Embeddings:
    """Vectors by key, in memory and, if there is a file, on disk.

    Args:
        path: the file; None keeps them in memory alone.
        fingerprint: of what computes them.

    Attributes:
        path: the file.
        fingerprint: of what computes them.
    """

    def __init__(self, path: Path | None, fingerprint: Fingerprint) -> None:
        self.path, self.fingerprint = path, fingerprint
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Those of some keys, each once, whose vectors must still be computed.

        Raises:
            FeatureError: the file is damaged, or holds what something else computed.
        """
        left = [key for key in dict.fromkeys(keys) if key not in self._vectors]
        if left and self.path is not None and self.path.exists():
            self._read(left)
            left = [key for key in left if key not in self._vectors]
        return left

    def take(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """(keys, D) vectors, which are there. Raises KeyError otherwise."""
        return np.stack([self._vectors[key] for key in keys])

    def fill(
        self, keys: Iterable[str], encode: Encode, at_once: int, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Compute what is missing, batch by batch; each batch is kept as soon as it is done.

        Args:
            keys: what is wanted; repeats are computed once.
            encode: computes vectors.
            at_once: keys that it gets at most.
            progress: called with numbers of keys done, those included that another run did meanwhile.

        Raises:
            FeatureError: as :meth:`missing`; or a vector is no number.
            UsageError: the file cannot be written.
            CapbenchError: what ``encode`` raises; what was done before is kept.
        """
        left = self.missing(keys)
        if not left:
            return
        if self.path is None:
            self._encode(left, encode, at_once, lambda _key, _vector: None, progress)
            return
        # A store's own lock is held for seconds only where another run holds it: this one is for the queue.
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
                kept = np.array(vector, dtype=np.float32)  # a view would keep the whole batch
                if not np.isfinite(kept).all():
                    raise FeatureError("an embedding is NaN or infinite", hint="Take precision=float32")
                add(key, kept)
                self._vectors[key] = kept
            progress(len(batch))

    def _read(self, keys: Iterable[str]) -> None:
        assert self.path is not None
        try:
            with open_store(self.path) as store:
                if store.fingerprint != self.fingerprint:
                    differences = self.fingerprint.differences(store.fingerprint)
                    raise FeatureError(f"holds other embeddings: {differences}", path=self.path)
                for key in sorted(keys):
                    if key in store:
                        self._vectors[key] = store[key].features[0].astype(np.float32)
        except FeatureError as error:
            raise FeatureError(
                error.message, path=error.path or self.path, hint="Remove the file: embeddings are then made again"
            ) from error


# The base of CLIPScore and PAC-S: pictures and captions through a CLIP, each once, and their vectors kept on disk.

_PICTURES_AT_ONCE, _TEXTS_AT_ONCE = 32, 128
_PER_SECOND = {"cpu": 15.0, "cuda": 200.0}
"""Pictures and captions together, with ViT-B/32."""


class _Prefix(Kind):
    """What stands before every caption."""

    def describe(self) -> str:
        """In words."""
        return "a text, or '' for none"

    def example(self) -> str:
        """The papers'."""
        return "A photo depicts"

    def read(self, value: object) -> str:
        """The text, without blanks around it."""
        if not isinstance(value, str):
            raise ValueError
        return value.strip()

    def sign(self, value: Any) -> str:
        """The text; what divides signatures is written otherwise."""
        return str(value).replace("%", "%25").replace("|", "%7C") or "none"


@dataclass(frozen=True)
class ClipOptions(ContrastiveOptions):
    """Options of every metric over a CLIP."""

    prefix: str = option("A photo depicts", _Prefix(), "what stands before every candidate and reference")
    precision: Literal["float32", "float16", "bfloat16"] = option(
        "float32",
        Choice("float32", "float16", "bfloat16"),
        "of the network; the released code takes float16 on a GPU and float32 on a CPU",
    )
    activation: Literal["auto", "quick-gelu", "gelu"] = option(
        "auto",
        Choice("auto", "quick-gelu", "gelu"),
        "of the network's perceptrons: by default what a configuration beside the weights says, else quick-gelu, "
        "OpenAI's; weights of LAION have gelu",
    )
    tokenizer: str | None = option(
        None,
        File("CLIP's word pieces"),
        "tokenizer.json, vocab.json with merges.txt, bpe_simple_vocab_16e6.txt.gz, or a folder with one of them; by "
        "default beside the weights",
        sign_as="",
    )
    embeddings: str | None = option(
        None, File("embeddings"), "the folder where embeddings are kept; by default in the cache folder", sign_as=""
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "where the network runs", sign_as="")


class ClipMetric(ContrastiveMetric):
    """A metric over a CLIP.

    Raises:
        SetupError: the package transformers is not installed.
        MissingFileError: the weights, or a tokeniser, are not there.
        ModelError: the weights are damaged, or are no CLIP's.
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
        self._paths: dict[str, Path] = {}
        self._digests: dict[str, str] = {}

    def facts(self) -> Mapping[str, object]:
        """The weights by the first 16 digits of their SHA-256, activation, word pieces, and how both sides are cut."""
        clip = self.clip
        return {
            "model": clip.sha256[:16],
            "activation": clip.activation,
            "pieces": clip.tokens.sha256[:16],
            "truncation": f"{clip.longest}-end-kept",
            "image": clip.preprocessing.line(),
        }

    def prepare(self, items: Sequence[Item]) -> None:
        """Find the pictures. Raises MissingFileError if some are not there; they are counted."""
        super().prepare(items)
        self._find([item.image for item in items])

    def _find(self, images: Sequence[str]) -> None:
        wanted = [image for image in dict.fromkeys(images) if image not in self._paths]
        if wanted:
            self._paths |= find_pictures(wanted, self.resources)

    def cache_key(self, item: Item) -> bytes:
        """The item's key with the SHA-256 of its picture: a file of one name may be another picture."""
        return item.key + bytes.fromhex(self._digest(item.image))

    def _digest(self, image: str) -> str:
        if image not in self._digests:
            self._find([image])
            self._digests[image] = files.sha256_file(self._paths[image])
        return self._digests[image]

    @cached_property
    def _pictures(self) -> Embeddings:
        return self._kept("pictures", self.clip.preprocessing.line(), _PICTURES_AT_ONCE)

    @cached_property
    def _texts(self) -> Embeddings:
        cleaned = f"html+spaces+lower+pieces-{self.clip.tokens.sha256[:16]}+{self.clip.longest}-end-kept"
        return self._kept("texts", cleaned, _TEXTS_AT_ONCE)

    def _kept(self, what: str, preprocessing: str, at_once: int) -> Embeddings:
        """Vectors of one side under everything that can change them."""
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
        """Word pieces of captions behind the prefix, by key."""
        prefixed = [self._prefixed(text) for text in texts]
        return {_key(pieces): pieces for pieces in self.clip.pieces(prefixed)}

    def _prefixed(self, text: str) -> str:
        return f"{self.options.prefix} {text}" if self.options.prefix else text

    def slow_work(self, items: Sequence[Item]) -> SlowWork | None:
        """Pictures and captions that never went through the network; None if there are none."""
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

        # Texts of about one length go together.
        ordered = sorted(wanted, key=lambda key: (len(pieces[key]), key))
        self._texts.fill(ordered, encode, _TEXTS_AT_ONCE, progress)

    def image_vectors(self, images: Sequence[str]) -> FloatArray:
        """(images, D) vectors of pictures; those that were never encoded are.

        Raises:
            DataError: a picture cannot be decoded; the file is named.
        """
        self._find(images)
        digests = {self._digest(image): image for image in images}
        self._encode_pictures(digests, list(digests), lambda _: None)
        return self._pictures.take([self._digest(image) for image in images]).astype(np.float64)

    def text_vectors(self, texts: Sequence[str]) -> FloatArray:
        """(texts, D) vectors of captions behind the prefix; those that were never encoded are."""
        pieces = self._pieces(texts)
        self._encode_texts(pieces, list(pieces), lambda _: None)
        keys = [_key(numbers) for numbers in self.clip.pieces([self._prefixed(text) for text in texts])]
        return self._texts.take(keys).astype(np.float64)

    def warnings(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
        """How many captions were too long and were cut."""
        sides = {
            "candidates": {item.candidate for item in items},
            "references": {text for item in items for text in item.references},
        }
        cut = {side: sum(self.clip.is_cut(self._prefixed(text)) for text in texts) for side, texts in sides.items()}
        if not any(cut.values()):
            return ()
        counts = " and ".join(f"{cut[side]:,} of {len(texts):,} {side}" for side, texts in sides.items() if texts)
        return [f"{counts} have more than {self.clip.longest} word pieces and were cut; the end token is kept"]


def _key(pieces: tuple[int, ...]) -> str:
    """What a text's vector is kept under: equal pieces have equal vectors."""
    return hashlib.blake2b(np.array(pieces, dtype="<i8").tobytes(), digest_size=20).hexdigest()


class ClipScore(ClipMetric):
    """CLIPScore, 2.5 · max(cos(image, candidate), 0) in CLIP's space, and RefCLIPScore, its harmonic mean with the
    largest cosine of the candidate and a reference, which is not scaled.

    As in the released code, "A photo depicts" stands before candidates and references, captions are cut at 77 word
    pieces with the end token kept, and pictures are resized (bicubic) and their middle is cut out. The papers take
    OpenAI's ViT-B/32. CLIPScore alone needs no references. Each picture and each caption is encoded once, and its
    vector kept in the cache folder.
    """

    name: ClassVar[str] = "clipscore"
    columns: ClassVar[tuple[str, ...]] = ("clipscore", "refclipscore")
    titles: ClassVar[Mapping[str, str]] = {"clipscore": "CLIPScore", "refclipscore": "RefCLIPScore"}
    citation: ClassVar[str] = (
        "Hessel et al., CLIPScore: a reference-free evaluation metric for image captioning, EMNLP 2021"
    )
    needs: ClassVar[tuple[Need, ...]] = (References(), Images(), PublishedWeights("a CLIP", "clip-vit-b32"))
    order: ClassVar[int] = 170
