"""The base of CLIPScore and PAC-S: pictures and captions through a CLIP, each once, and their vectors kept on disk."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.features.embeddings import Embeddings
from capbench.features.images import read_picture
from capbench.features.records import Fingerprint
from capbench.metrics.base import Resources
from capbench.metrics.contrastive import ContrastiveMetric, ContrastiveOptions
from capbench.metrics.pictures import find_pictures
from capbench.models.device import choose_device
from capbench.options import Choice, File, Kind, option
from capbench.progress import Progress, SlowWork
from capbench.records import FloatArray, Item

if TYPE_CHECKING:
    from capbench.models.clip.encoder import Clip

__all__ = ["ClipMetric", "ClipOptions"]

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
        from capbench.models.clip.encoder import open_clip_model

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

    def cautions(self, dataset: str, items: Sequence[Item]) -> Sequence[str]:
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
