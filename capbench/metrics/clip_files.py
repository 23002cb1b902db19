"""CLIP as an encoder of images and texts, from published weights and tokenisers.

The weights are a folder in the format of ``transformers`` or ``open_clip``, or a single file in the layout of either.
Numbers and sizes of the layers follow from the tensors; a head has 64 columns unless a configuration states otherwise.
"""

from __future__ import annotations

import hashlib
import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from capbench.core.errors import CapbenchError, MissingFileError, ModelError, require
from capbench.core.files import read_json, read_lines, sha256_file, unpack_gzip
from capbench.core.machine import without_cudnn_attention
from capbench.weights.checkpoints import Sizes, fit_state, read_checkpoint, shapes_only

if TYPE_CHECKING:
    from PIL import Image

Activation = Literal["quick-gelu", "gelu"]
_HINT = "Use weights of a CLIP with a vision transformer: transformers', OpenAI's, open_clip's or PAC-S's"


class Clip:
    """CLIP's two encoders, from a folder or a file of weights.

    By default the word pieces are those next to the weights, and the ``activation`` is that of the configuration in the
    folder, otherwise OpenAI's ``quick-gelu``.
    """

    def __init__(
        self,
        source: Path,
        tokenizer: Path | None = None,
        activation: Activation | None = None,
        device: str = "cpu",
    ) -> None:
        require("transformers", purpose="a CLIP folder of Hugging Face")
        import transformers

        self._path, self._device = source, device
        files = _weights(source)
        # A configuration next to a single file may belong to another model.
        stated = _stated(source) if source.is_dir() else _Stated()
        self.activation: Activation = activation or stated.activation or "quick-gelu"
        parts = [read_checkpoint(file) for file in files]
        digests = [part.sha256 for part in parts]
        self.sha256 = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
        tensors = _renamed({name: tensor for part in parts for name, tensor in part.tensors.items()}, files[0])
        config = _configuration(tensors, files[0], stated.heads, self.activation)
        self.longest = int(config.text_config.max_position_embeddings)
        self.preprocessing = Preprocessing(config.vision_config.image_size, stated.mean, stated.std)
        self.tokens = open_tokens(tokenizer or (source if source.is_dir() else source.parent))
        if self.tokens.size > config.text_config.vocab_size:
            message = f"has {config.text_config.vocab_size:,} word pieces, but the tokeniser has {self.tokens.size:,}"
            raise ModelError(message, code="mismatch", value=self.tokens.size, path=files[0])
        with shapes_only():
            network = transformers.CLIPModel(config)
        network = network.to_empty(device="cpu")
        for tower in (network.text_model, network.vision_model):  # position ids are in no weight file
            count = tower.embeddings.position_embedding.weight.shape[0]
            tower.embeddings.register_buffer("position_ids", torch.arange(count).expand((1, -1)), persistent=False)
        # Cosines do not use the scale, which is missing in some files.
        fit_state(network, tensors, files[0], optional=("logit_scale",))
        self._network = network.requires_grad_(False).to(device)

    def pieces(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Ids of texts' word pieces, truncated to the network's maximum; the end piece is kept."""
        cut = self.longest
        return [ids if len(ids) <= cut else (*ids[: cut - 1], ids[-1]) for ids in self.tokens.encode(texts)]

    @torch.inference_mode()
    @without_cudnn_attention()
    def encode_texts(self, pieces: Sequence[tuple[int, ...]]) -> NDArray[np.float32]:
        """(texts, D) vectors from ids of word pieces: the states of their end pieces, projected."""
        ends = torch.tensor([len(ids) - 1 for ids in pieces], device=self._device)
        padded = [[*ids, *[self.tokens.end] * (int(ends.max()) + 1 - len(ids))] for ids in pieces]
        states = self._network.text_model(input_ids=torch.tensor(padded, device=self._device)).last_hidden_state
        return self._vectors(self._network.text_projection(states[torch.arange(len(pieces)), ends]))

    @torch.inference_mode()
    @without_cudnn_attention()
    def encode_pictures(self, pixels: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """(images, D) vectors of images from :attr:`preprocessing`."""
        batch = torch.from_numpy(np.stack(pixels)).to(self._device)
        return self._vectors(self._network.visual_projection(self._network.vision_model(batch).pooler_output))

    def _vectors(self, projected: torch.Tensor) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = projected.cpu().numpy()
        if not np.isfinite(vectors).all() or not (vectors != 0).any(axis=1).all():
            message = "returns zero, NaN or infinite vectors"
            raise ModelError(message, code="not-a-number", path=self._path, hint="Download the weights again")
        return vectors


def open_clip_model(source: str, tokenizer: str | None = None, *how: Any) -> Clip:
    """A CLIP, from memory if it was opened before and its files are unchanged; arguments as of :class:`Clip`."""
    places = [Path(place).expanduser() for place in (source, tokenizer) if place is not None]
    files = [file for place in places for file in (sorted(place.glob("*")) if place.is_dir() else [place])]
    states = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.is_file())
    return _opened(places[0], places[1] if tokenizer else None, *how, states)


@lru_cache(maxsize=2)
def _opened(source: Path, tokenizer: Path | None, *how: Any) -> Clip:
    return Clip(source, tokenizer, *how[:-1])


# Images.

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of the released code (``clip.load``): resize (bicubic), centre crop, RGB, mean and deviation."""

    size: int
    mean: tuple[float, ...] = _MEAN
    std: tuple[float, ...] = _STD

    def line(self) -> str:
        """Description for signatures."""
        numbers = "/".join(",".join(f"{value:g}" for value in values) for values in (self.mean, self.std))
        numbers = "clip" if (self.mean, self.std) == (_MEAN, _STD) else numbers
        return f"bicubic-{self.size}+centre-crop+rgb+mean-std-{numbers}+exif-ignored"

    def __call__(self, image: Image.Image) -> NDArray[np.float32]:
        """(3, size, size) float32 pixels of a Pillow image."""
        from PIL import Image

        width, height = image.size
        shorter = min(width, height)
        resized = (int(self.size * width / shorter), int(self.size * height / shorter))
        left, top = (round((side - self.size) / 2.0) for side in resized)
        image = image.resize(resized, Image.Resampling.BICUBIC).crop((left, top, left + self.size, top + self.size))
        pixels = np.asarray(image.convert("RGB"), dtype=np.float32) / np.float32(255)
        normal = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(normal.transpose(2, 0, 1), dtype=np.float32)


# Weights and configurations.

_WEIGHTS = (
    *("model.safetensors", "model-*-of-*.safetensors", "open_clip_model.safetensors"),
    *("pytorch_model.bin", "pytorch_model-*-of-*.bin", "open_clip_pytorch_model.bin"),
    *("*.safetensors", "*.bin", "*.pt", "*.pth"),
)  # Names of weight files in a folder; the first that exist are used


def _weights(source: Path) -> list[Path]:
    if not source.exists():
        raise MissingFileError("there is no such file or folder with weights", path=source, hint=_HINT)
    found = (sorted(source.glob(pattern)) for pattern in _WEIGHTS) if source.is_dir() else ([source],)
    files = next(filter(None, found), [])
    if not files:
        raise ModelError("has no weights", code="missing-weights", path=source, hint=_HINT)
    if len(files) > 1 and "-of-" not in files[0].name:
        message = f"has {len(files)} weight files"
        raise ModelError(message, code="ambiguous", value=len(files), path=source, hint="Name one of them")
    return files


@dataclass(frozen=True)
class _Stated:
    """Values of the configuration in a folder; None for missing ones."""

    activation: Activation | None = None
    heads: tuple[int | None, int | None] = (None, None)
    mean: tuple[float, ...] = _MEAN
    std: tuple[float, ...] = _STD


def _stated(folder: Path) -> _Stated:
    """The configuration of ``transformers`` or ``open_clip``. Raises ModelError for an unsupported one."""
    configs = (folder / name for name in ("config.json", "open_clip_config.json", "preprocessor_config.json"))
    released, of_open_clip, pictures = (read_json(path) if path.is_file() else {} for path in configs)
    heads: tuple[int | None, int | None] = (None, None)
    acts: set[str] = set()
    if released:
        text, vision = released.get("text_config") or {}, released.get("vision_config") or {}
        acts = {part.get("hidden_act", "quick_gelu") for part in (text, vision)}
        # Missing numbers of heads have transformers' defaults, those of ViT-B/32.
        heads = text.get("num_attention_heads", 8), vision.get("num_attention_heads", 12)
    elif of_open_clip:
        network = of_open_clip["model_cfg"]
        text, vision = network.get("text_cfg") or {}, network.get("vision_cfg") or {}
        acts = {"quick_gelu" if network.get("quick_gelu") else "gelu"}
        heads = text.get("heads"), vision["width"] // vision.get("head_width", 64) if "width" in vision else None
        pictures = pictures or of_open_clip.get("preprocess_cfg") or {}
    if acts - {"quick_gelu", "gelu"} or len(acts) > 1 or released.get("model_type", "clip") != "clip":
        message = f"is a {released.get('model_type')} with the activation {', '.join(sorted(map(str, acts)))}"
        raise ModelError(message, code="wrong-weights", value=released.get("model_type"), path=folder, hint=_HINT)
    usual = {"resample": (3,), "interpolation": ("bicubic",), "resize_mode": ("shortest",)}
    usual |= dict.fromkeys(("do_resize", "do_center_crop", "do_rescale", "do_normalize"), (True,))
    other = [name for name, values in usual.items() if name in pictures and pictures[name] not in values]
    if other:
        message = f"uses an unsupported preprocessing of images ('{other[0]}')"
        raise ModelError(message, code="unsupported", value=other[0], path=folder)
    activation: Activation | None = None if not acts else "gelu" if "gelu" in acts else "quick-gelu"
    mean = pictures.get("image_mean", pictures.get("mean")) or _MEAN
    std = pictures.get("image_std", pictures.get("std")) or _STD
    return _Stated(activation, heads, tuple(mean), tuple(std))


_LAYER = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_SINGLE = {
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_TURNED = {"text_projection": "text_projection.weight", "visual.proj": "visual_projection.weight"}
_UNUSED = ("input_resolution", "context_length", "vocab_size", "attn_mask", "logit_bias")
_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+)")


def _renamed(tensors: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """Tensors by the names of CLIPModel, from its own or from the released layout."""
    if any(name.startswith("text_model.") for name in tensors):
        return {name: tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}
    # The text tower of open_clip may be a separate module.
    plain = {name.removeprefix("text."): tensor for name, tensor in tensors.items()}
    if "visual.layer1.0.conv1.weight" in plain or "visual.attnpool.positional_embedding" in plain:
        raise ModelError("is a CLIP with a ResNet, which is not supported", code="unsupported", path=path, hint=_HINT)
    if not any(name.startswith("visual.") for name in plain):
        raise ModelError("is not a CLIP", code="wrong-weights", path=path, hint=_HINT)
    named: dict[str, torch.Tensor] = {}
    for name, tensor in plain.items():
        if block := _BLOCK.fullmatch(name):
            layer = f"{'vision' if block[1] else 'text'}_model.encoder.layers.{block[2]}"
            part, _, kind = block[3].rpartition(".")
            if block[3].startswith("attn.in_proj_"):  # queries, keys and values in one tensor
                kind = block[3].removeprefix("attn.in_proj_")
                for letter, third in zip("qkv", tensor.chunk(3), strict=True):
                    named[f"{layer}.self_attn.{letter}_proj.{kind}"] = third.clone()
            else:
                named[f"{layer}.{_LAYER.get(part, part)}.{kind}"] = tensor
        elif name not in _UNUSED:
            named[_TURNED.get(name, _SINGLE.get(name, name))] = tensor.t().contiguous() if name in _TURNED else tensor
    return named


def _configuration(
    tensors: Mapping[str, torch.Tensor], path: Path, heads: tuple[int | None, int | None], activation: Activation
) -> Any:
    """The ``CLIPConfig`` of tensors; without stated numbers of heads, one per 64 columns."""
    import transformers

    sizes = Sizes(tensors, path, _HINT)
    columns = sizes.shape("text_projection.weight", 2)[0]

    def tower(side: str, norm: str, heads: int | None) -> dict[str, Any]:
        width = sizes.width(f"{side}.{norm}.weight")
        heads = heads or max(1, width // 64)
        if width % heads:
            message = f"'{side}' has {width} columns, which {heads} attention heads cannot share equally"
            raise ModelError(message, code="wrong-shape", value=heads, path=path, hint=_HINT)
        blocks = re.compile(rf"{side}\.encoder\.layers\.(\d+)\.")
        return {
            "hidden_size": width,
            "intermediate_size": sizes.width(f"{side}.encoder.layers.0.mlp.fc1.bias"),
            "num_hidden_layers": 1 + max(int(match[1]) for name in tensors if (match := blocks.match(name))),
            "num_attention_heads": heads,
            "hidden_act": activation.replace("-", "_"),
            "projection_dim": columns,
        }

    places = sizes.shape("vision_model.embeddings.position_embedding.weight", 2)[0]
    patch = sizes.shape("vision_model.embeddings.patch_embedding.weight", 4)[-1]
    pieces = sizes.shape("text_model.embeddings.token_embedding.weight", 2)[0]
    longest = sizes.shape("text_model.embeddings.position_embedding.weight", 2)[0]
    text = tower("text_model", "final_layer_norm", heads[0])
    # The special ids are not used: a text's vector is that of its end piece, whose position is known.
    text |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), pieces - 1)
    text |= {"vocab_size": pieces, "max_position_embeddings": longest}
    vision = tower("vision_model", "post_layernorm", heads[1])
    vision |= {"patch_size": patch, "image_size": math.isqrt(places - 1) * patch}
    return transformers.CLIPConfig(projection_dim=columns, text_config=text, vision_config=vision)


# CLIP's tokeniser: byte pairs over lower-cased text.

BPE_FILE = "bpe_simple_vocab_16e6.txt.gz"  # File name of the merges in the packages ``clip`` and ``open_clip_torch``
_START, _END = "<|startoftext|>", "<|endoftext|>"
_MERGES = 49152 - 256 - 2  # number of used merges, the first in the released file
_WORDS = rf"{re.escape(_START)}|{re.escape(_END)}|'s|'t|'re|'ve|'m|'ll|'d|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+"


class ClipTokens:
    """Ids of pieces between a start and an end piece, with the SHA-256 of the tokeniser's files.

    HTML entities and white space are cleaned as in the released code, but without ``ftfy``.
    """

    def __init__(self, tokenizer: Any, digest: str) -> None:
        self._tokenizer, self.sha256 = tokenizer, digest
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.start, self.end = int(tokenizer.token_to_id(_START)), int(tokenizer.token_to_id(_END))
        self.size = 1 + max(tokenizer.get_vocab().values())

    def encode(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Ids of texts' pieces with start and end, not truncated."""
        # As in the released code, unescaped twice for captions from web pages that were escaped twice.
        unescaped = [html.unescape(html.unescape(text)) for text in texts]
        cleaned = [re.sub(r"\s+", " ", text.strip()).strip().lower() for text in unescaped]
        encoded = self._tokenizer.encode_batch(cleaned, add_special_tokens=False)
        return [(self.start, *encoding.ids, self.end) for encoding in encoded]


def open_tokens(source: Path) -> ClipTokens:
    """The tokeniser of a folder or file: ``tokenizer.json``, ``vocab.json`` and ``merges.txt``, or :data:`BPE_FILE`."""
    from tokenizers import Tokenizer

    folder = source if source.is_dir() else source.parent
    names = ("tokenizer.json", "vocab.json", BPE_FILE) if source.is_dir() else (source.name,)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        hint = f"Copy tokenizer.json, vocab.json and merges.txt, or {BPE_FILE} there, or set the option 'tokenizer'"
        raise MissingFileError("has no tokeniser of CLIP", path=source, hint=hint)
    try:
        if path.name.endswith(".gz"):
            merges = _merges(unpack_gzip(path).decode().split("\n")[1 : 1 + _MERGES])
            return ClipTokens(_byte_pairs(_numbered(merges), merges), sha256_file(path))
        if path.name == "vocab.json":
            listed = folder / "merges.txt"
            merges = _merges(line for line in read_lines(listed) if not line.startswith("#v"))
            digest = hashlib.sha256(f"{sha256_file(path)}{sha256_file(listed)}".encode()).hexdigest()
            return ClipTokens(_byte_pairs(read_json(path), merges), digest)
        return ClipTokens(Tokenizer.from_file(str(path)), sha256_file(path))
    except CapbenchError:
        raise
    except Exception as error:  # the package raises plain exceptions
        message = f"is not a tokeniser of CLIP ({str(error)[:120]})"
        raise ModelError(message, code="wrong-format", path=path, hint=f"Use tokenizer.json or {BPE_FILE}") from error


def _merges(lines: Any) -> list[tuple[str, str]]:
    return [(first, second) for first, second in (line.split(" ") for line in lines if line)]


def _numbered(merges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The ids of the released code: 256 letters that represent bytes, printable ones first, and what is merged."""
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = [*map(chr, printing), *(chr(256 + place) for place in range(256 - len(printing)))]
    pieces = [*letters, *(letter + "</w>" for letter in letters), *map("".join, merges), _START, _END]
    return {piece: number for number, piece in enumerate(pieces)}


def _byte_pairs(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Any:
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    model = BPE(vocabulary, merges, unk_token=_END, continuing_subword_prefix="", end_of_word_suffix="</w>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    words = pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, letters])
    tokenizer.add_special_tokens([AddedToken(token) for token in (_START, _END) if token in vocabulary])
    return tokenizer
