"""CLIP as an encoder of images and texts.

The weights are a folder in the format of ``transformers`` or ``open_clip``, or a single file in the layout of either,
such as PAC-S's checkpoints. Reading them runs no code. ``CLIPModel`` of ``transformers`` is the network.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core import errors
from capbench.core.errors import MissingFileError, ModelError
from capbench.core.files import read_json
from capbench.core.machine import without_cudnn_attention
from capbench.metrics.clip.files import (
    BPE_FILE,
    HINT,
    Activation,
    ClipTokens,
    configuration,
    cut,
    has_tokens,
    open_tokens,
    renamed,
    sizes_of,
)
from capbench.weights.checkpoints import fit_state, read_checkpoint

if TYPE_CHECKING:
    from PIL import Image

# Preprocessing of images.

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)
_BICUBIC = (3, "bicubic")


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of the released code (``clip.load``), which CLIPScore and PAC-S share.

    The shorter side is resized to ``size`` (bicubic, in the image's mode); the image is centre-cropped, converted to
    RGB, scaled to [0, 1] and normalised. The EXIF orientation is ignored.

    Attributes:
        size: pixels per side.
        mean: mean of each channel, in [0, 1].
        std: standard deviation of each channel.
    """

    size: int
    mean: tuple[float, float, float] = _MEAN
    std: tuple[float, float, float] = _STD

    def line(self) -> str:
        """Description for signatures and fingerprints."""
        numbers = "clip" if (self.mean, self.std) == (_MEAN, _STD) else f"{_short(self.mean)}/{_short(self.std)}"
        return f"bicubic-{self.size}+centre-crop+rgb+mean-std-{numbers}+exif-ignored"

    def __call__(self, image: Image.Image) -> NDArray[np.float32]:
        """(3, size, size) float32 pixels of a Pillow image."""
        from PIL import Image

        width, height = image.size
        if width <= height:
            resized = (self.size, int(self.size * height / width))
        else:
            resized = (int(self.size * width / height), self.size)
        image = image.resize(resized, Image.Resampling.BICUBIC)
        left, top = (round((side - self.size) / 2.0) for side in resized)
        image = image.crop((left, top, left + self.size, top + self.size)).convert("RGB")
        pixels = np.asarray(image, dtype=np.float32) / np.float32(255)
        normal = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1), dtype=np.float32)


def stated_preprocessing(facts: dict[str, Any], size: int, path: Path) -> Preprocessing:
    """The preprocessing in a configuration file next to the weights.

    Args:
        facts: ``preprocessor_config.json`` of ``transformers``, or ``preprocess_cfg`` of ``open_clip_config.json``.
        size: pixels per side of the network's input.
        path: the file, for messages.

    Raises:
        ModelError: preprocessing other than resizing, centre-cropping and normalising.
    """
    mean = facts.get("image_mean", facts.get("mean"))
    std = facts.get("image_std", facts.get("std"))
    other = [
        name
        for name in ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
        if facts.get(name, True) is not True
    ]
    if facts.get("resample", facts.get("interpolation", "bicubic")) not in _BICUBIC:
        other.append("resample")
    if facts.get("resize_mode", "shortest") != "shortest":
        other.append("resize_mode")
    if other:
        message = f"uses an unsupported preprocessing of images ('{other[0]}')"
        raise ModelError(message, code="unsupported", value=other[0], path=path)
    numbers = [
        _three(values, path) if values is not None else default for values, default in ((mean, _MEAN), (std, _STD))
    ]
    if min(numbers[1]) <= 0:
        raise ModelError("has a standard deviation of 0 or less", code="out-of-range", value=min(numbers[1]), path=path)
    return Preprocessing(size, *numbers)


def _three(values: Any, path: Path) -> tuple[float, float, float]:
    try:
        first, second, third = (float(value) for value in values)
    except (TypeError, ValueError) as error:
        message = "does not have three means and standard deviations of channels"
        raise ModelError(message, code="wrong-type", value=values, path=path) from error
    if not np.isfinite([first, second, third]).all():
        raise ModelError("has a mean or standard deviation that is not finite", code="not-a-number", path=path)
    return first, second, third


def _short(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)


Precision = Literal["float32", "float16", "bfloat16"]

_MODELS = 2
_WEIGHTS = (
    *("model.safetensors", "model-*-of-*.safetensors", "open_clip_model.safetensors"),
    *("pytorch_model.bin", "pytorch_model-*-of-*.bin", "open_clip_pytorch_model.bin"),
    *("*.safetensors", "*.bin", "*.pt", "*.pth"),
)
"""Names of weight files in a folder; the first that exist are used."""
_open: OrderedDict[tuple[object, ...], Clip] = OrderedDict()


@dataclass(frozen=True)
class _Stated:
    """Values of a configuration next to the weights; None for missing ones."""

    activation: Activation | None = None
    text_heads: int | None = None
    vision_heads: int | None = None


class Clip:
    """CLIP's two encoders.

    Args:
        source: a folder or a file.
        tokenizer: a folder or file with the word pieces; None: next to the weights.
        activation: activation of the perceptrons; None: that of the configuration next to the weights, otherwise
            OpenAI's ``quick-gelu``.
        precision: precision of weights and states.
        device: ``cpu`` or ``cuda``.

    Attributes:
        path: the folder or file.
        sha256: SHA-256 of the weights, 64 digits.
        activation: activation of the perceptrons.
        longest: maximum number of pieces of a text, start and end included.
        preprocessing: preprocessing of images.
        encoded: number of images and texts that the network has encoded, for tests and benchmarks.

    Raises:
        SetupError: ``transformers`` is not installed.
        MissingFileError: the weights or the tokeniser do not exist.
        ModelError: not a CLIP, a damaged file, or parts that do not fit each other.
    """

    def __init__(
        self,
        source: Path,
        tokenizer: Path | None = None,
        activation: Activation | None = None,
        precision: Precision = "float32",
        device: str = "cpu",
    ) -> None:
        transformers = _transformers()
        self.path, self.device = source, device
        files = _weights(source)
        folder = source if source.is_dir() else source.parent
        # The configuration next to a single file may belong to another model; that of a folder is used.
        stated = _stated(folder) if source.is_dir() else _Stated()
        parts = [read_checkpoint(file) for file in files]
        self.sha256 = parts[0].sha256 if len(parts) == 1 else _together([part.sha256 for part in parts])
        tensors: dict[str, torch.Tensor] = {}
        for part in parts:
            tensors |= part.tensors
        named = renamed(tensors, files[0])
        sizes = sizes_of(named, files[0], stated.text_heads, stated.vision_heads)
        self.activation: Activation = activation or stated.activation or "quick-gelu"
        self.longest = sizes.longest
        self.preprocessing = _preprocessing(folder if source.is_dir() else None, sizes.picture)
        self.tokens = _tokens(tokenizer, folder, files[0])
        if self.tokens.size > sizes.vocabulary:
            raise ModelError(
                f"has {sizes.vocabulary:,} word pieces, but the tokeniser has {self.tokens.size:,}",
                code="mismatch",
                value=self.tokens.size,
                path=files[0],
                hint="Use the tokeniser of these weights",
            )
        config = configuration(sizes, self.activation)
        with torch.device("meta"):
            network = transformers.CLIPModel(config)
        network = network.to_empty(device="cpu")
        _fill_places(network.text_model.embeddings)
        _fill_places(network.vision_model.embeddings)
        # Cosines do not use the scale, which is missing in some files.
        fit_state(network, named, files[0], optional=("logit_scale",))
        self._network = network.requires_grad_(False).to(device=device, dtype=getattr(torch, precision))
        self._type = getattr(torch, precision)
        self.encoded = 0

    def pieces(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Ids of texts' word pieces, truncated to the network's maximum; the end piece is kept."""
        return [cut(pieces, self.longest) for pieces in self.tokens.encode(texts)]

    def is_cut(self, text: str) -> bool:
        """True if a text is truncated."""
        return len(self.tokens.encode([text])[0]) > self.longest

    @torch.inference_mode()
    @without_cudnn_attention()
    def encode_texts(self, pieces: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        """(texts, D) vectors from ids of word pieces, which must be truncated.

        Shorter texts are padded after their end piece, which earlier pieces do not attend to.

        Raises:
            ModelError: a vector is not finite or is zero.
        """
        longest = max(map(len, pieces))
        ids = np.full((len(pieces), longest), self.tokens.end, dtype=np.int64)
        for row, numbers in enumerate(pieces):
            ids[row, : len(numbers)] = numbers
        ends = torch.tensor([len(numbers) - 1 for numbers in pieces], device=self.device)
        states = self._network.text_model(input_ids=torch.from_numpy(ids).to(self.device)).last_hidden_state
        pooled = states[torch.arange(len(pieces), device=self.device), ends]
        return self._vectors(self._network.text_projection(pooled))

    @torch.inference_mode()
    @without_cudnn_attention()
    def encode_pictures(self, pixels: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """(images, D) vectors of images from :attr:`preprocessing`. Raises as :meth:`encode_texts`."""
        batch = torch.from_numpy(np.stack(pixels)).to(device=self.device, dtype=self._type)
        pooled = self._network.vision_model(pixel_values=batch).pooler_output
        return self._vectors(self._network.visual_projection(pooled))

    def _vectors(self, projected: torch.Tensor) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = projected.float().cpu().numpy()
        if not np.isfinite(vectors).all() or not (vectors != 0).any(axis=1).all():
            message = "returns zero, NaN or infinite vectors"
            hint = "Use precision=float32, or download the weights again"
            raise ModelError(message, code="not-a-number", path=self.path, hint=hint)
        self.encoded += len(vectors)
        return vectors


def open_clip_model(
    source: str,
    tokenizer: str | None = None,
    activation: Activation | None = None,
    precision: Precision = "float32",
    device: str = "cpu",
) -> Clip:
    """A CLIP, from memory if it was opened before and its files are unchanged.

    Arguments and errors are those of :class:`Clip`.
    """
    path = Path(source).expanduser()
    pieces = None if tokenizer is None else Path(tokenizer).expanduser()
    files = tuple((str(file.resolve()), file.stat().st_mtime_ns, file.stat().st_size) for file in _files(path, pieces))
    key = (str(path), str(pieces), activation, precision, device, files)
    if key not in _open:
        _open[key] = Clip(path, pieces, activation, precision, device)
        while len(_open) > _MODELS:
            _open.popitem(last=False)
    _open.move_to_end(key)
    return _open[key]


def _files(path: Path, tokenizer: Path | None) -> list[Path]:
    """All files that determine the network and its tokeniser."""
    files: list[Path] = []
    for place in (path, path if path.is_dir() else path.parent, tokenizer):
        if place is not None and place.is_dir():
            names = ("*.json", "merges.txt", BPE_FILE, *(_WEIGHTS if place == path else ()))
            files += [file for pattern in names for file in sorted(place.glob(pattern)) if file.is_file()]
        elif place is not None and place.is_file():
            files.append(place)
    return files


def _transformers() -> Any:
    errors.require("transformers", purpose="a CLIP folder of Hugging Face")
    import transformers

    return transformers


def _weights(source: Path) -> list[Path]:
    """The weight files."""
    if not source.exists():
        raise MissingFileError("there is no such file or folder with weights", path=source, hint=HINT)
    if not source.is_dir():
        return [source]
    for pattern in _WEIGHTS:
        files = sorted(source.glob(pattern))
        if len(files) > 1 and "-of-" not in pattern:
            message = f"has {len(files)} weight files"
            raise ModelError(message, code="ambiguous", value=len(files), path=source, hint="Name one of them")
        if files:
            return files
    raise ModelError("has no weights", code="missing-weights", path=source, hint=HINT)


def _together(digests: Sequence[str]) -> str:
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _stated(folder: Path) -> _Stated:
    """Values of ``config.json`` or ``open_clip_config.json``."""
    path = folder / "config.json"
    if path.is_file():
        config = _object(path)
        kind = config.get("model_type")
        if kind != "clip":
            message = f"is the configuration of a '{kind}', not of a clip"
            raise ModelError(message, code="wrong-weights", value=kind, path=path, hint=HINT)
        text, vision = (_part(config, name, path) for name in ("text_config", "vision_config"))
        acts = {part.get("hidden_act", "quick_gelu") for part in (text, vision)}
        # Missing numbers of heads have transformers' defaults, those of ViT-B/32.
        return _Stated(
            _activation(acts, {"quick_gelu": "quick-gelu", "gelu": "gelu"}, path),
            _whole(text, "num_attention_heads", path) or 8,
            _whole(vision, "num_attention_heads", path) or 12,
        )
    path = folder / "open_clip_config.json"
    if path.is_file():
        config = _part(_object(path), "model_cfg", path)
        text, vision = (_part(config, name, path) for name in ("text_cfg", "vision_cfg"))
        quick = config.get("quick_gelu", False)
        width, head = _whole(vision, "width", path), _whole(vision, "head_width", path) or 64
        heads = None if width is None else width // head
        return _Stated("quick-gelu" if quick is True else "gelu", _whole(text, "heads", path), heads)
    return _Stated()


def _object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError("is not a JSON object", code="wrong-type", path=path, hint="Download the file again")
    return content


def _part(config: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    part = config.get(name) or {}
    if not isinstance(part, dict):
        hint = "Download the file again"
        raise ModelError(f"has a '{name}' that is not an object", code="wrong-type", value=part, path=path, hint=hint)
    return part


def _whole(part: Mapping[str, Any], name: str, path: Path) -> int | None:
    value = part.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        message, hint = f"has a '{name}' of {value!r}"[:100], "Download the file again"
        raise ModelError(message, code="wrong-value", value=value, path=path, hint=hint)
    return value


def _activation(acts: set[Any], known: Mapping[str, Activation], path: Path) -> Activation:
    if len(acts) != 1 or not acts <= set(known):
        shown = ", ".join(sorted(map(str, acts)))
        message = f"has the activation {shown} instead of one of {', '.join(known)}"
        raise ModelError(message, code="unsupported", value=shown, path=path, hint=HINT)
    return known[acts.pop()]


def _preprocessing(folder: Path | None, size: int) -> Preprocessing:
    for name in () if folder is None else ("preprocessor_config.json", "open_clip_config.json"):
        assert folder is not None
        path = folder / name
        if path.is_file():
            facts = _object(path)
            if name == "open_clip_config.json":
                facts = _part(facts, "preprocess_cfg", path)
            return stated_preprocessing(facts, size, path)
    return Preprocessing(size)


def _tokens(tokenizer: Path | None, folder: Path, weights: Path) -> ClipTokens:
    if tokenizer is None and not has_tokens(folder):
        raise MissingFileError(
            "there is no tokeniser next to the weights",
            path=weights,
            hint=f"Copy tokenizer.json, vocab.json and merges.txt, or {BPE_FILE} to its folder, or set the option "
            "'tokenizer'",
        )
    return open_tokens(folder if tokenizer is None else tokenizer)


def _fill_places(embeddings: Any) -> None:
    """Set position ids, which are neither in weight files nor in a network of meta tensors."""
    count = embeddings.position_embedding.weight.shape[0]
    embeddings.register_buffer("position_ids", torch.arange(count).expand((1, -1)), persistent=False)
