"""CLIP's published weight files and tokenisers.

Weights are read in the layout of ``transformers``' CLIPModel and in that of the released code, which ``open_clip`` and
PAC-S share, and renamed to the former. The numbers and sizes of layers follow from the tensors; a head has 64 columns
unless a configuration next to the weights has another number of heads.
"""

from __future__ import annotations

import hashlib
import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from capbench.core.errors import CapbenchError, DataError, MissingFileError, ModelError
from capbench.core.files import read_bytes, read_json, read_lines, sha256_file, unpack_gzip
from capbench.weights.checkpoints import shape_of, width_of

Activation = Literal["quick-gelu", "gelu"]

HINT = "Use weights of a CLIP with a vision transformer: transformers', OpenAI's, open_clip's or PAC-S's"
_HEAD = 64
_OTHER_TENSORS = ("input_resolution", "context_length", "vocab_size", "attn_mask", "logit_bias")
_LAYER = {
    "ln_1.weight": "layer_norm1.weight",
    "ln_1.bias": "layer_norm1.bias",
    "ln_2.weight": "layer_norm2.weight",
    "ln_2.bias": "layer_norm2.bias",
    "attn.out_proj.weight": "self_attn.out_proj.weight",
    "attn.out_proj.bias": "self_attn.out_proj.bias",
    "mlp.c_fc.weight": "mlp.fc1.weight",
    "mlp.c_fc.bias": "mlp.fc1.bias",
    "mlp.c_proj.weight": "mlp.fc2.weight",
    "mlp.c_proj.bias": "mlp.fc2.bias",
}
_SINGLE = {
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "logit_scale": "logit_scale",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_TURNED = {"text_projection": "text_projection.weight", "visual.proj": "visual_projection.weight"}
_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+)")


@dataclass(frozen=True)
class Tower:
    """One of CLIP's two transformers.

    Attributes:
        width: size of the states.
        inner: size of the perceptrons' hidden layer.
        layers: number of layers.
        heads: number of attention heads.
    """

    width: int
    inner: int
    layers: int
    heads: int


@dataclass(frozen=True)
class Sizes:
    """Sizes of a CLIPModel.

    Attributes:
        text: the transformer over word pieces.
        vision: the transformer over patches.
        embedding: number of columns of the common space.
        vocabulary: number of word pieces.
        longest: maximum number of pieces of a text, start and end included.
        patch: pixels per side of a patch.
        picture: pixels per side of an image.
    """

    text: Tower
    vision: Tower
    embedding: int
    vocabulary: int
    longest: int
    patch: int
    picture: int


def renamed(tensors: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """Tensors by the names of ``transformers``' CLIPModel, without those that inference does not use.

    Raises:
        ModelError: not a CLIP, or a CLIP with a ResNet.
    """
    if any(name.startswith("text_model.") for name in tensors):
        return {name: tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}
    # The text tower of open_clip may be a separate module.
    plain = {name.removeprefix("text."): tensor for name, tensor in tensors.items()}
    if "visual.layer1.0.conv1.weight" in plain or "visual.attnpool.positional_embedding" in plain:
        raise ModelError("is a CLIP with a ResNet, which is not supported", code="unsupported", path=path, hint=HINT)
    if not any(name.startswith("visual.") for name in plain):
        raise ModelError("is not a CLIP", code="wrong-weights", path=path, hint=HINT)
    named: dict[str, torch.Tensor] = {}
    for name, tensor in plain.items():
        if name in _OTHER_TENSORS:
            continue
        block = _BLOCK.fullmatch(name)
        if block is not None:
            side = "vision_model" if block[1] else "text_model"
            named |= _of_block(f"{side}.encoder.layers.{block[2]}", block[3], tensor, path)
        elif name in _TURNED:
            if tensor.ndim != 2:
                message = f"'{name}' has the shape {tuple(tensor.shape)} and is not a matrix"
                raise ModelError(message, code="wrong-shape", value=name, path=path, hint=HINT)
            named[_TURNED[name]] = tensor.t().contiguous()
        else:
            named[_SINGLE.get(name, name)] = tensor
    return named


def _of_block(layer: str, name: str, tensor: torch.Tensor, path: Path) -> dict[str, torch.Tensor]:
    """A layer's tensors; the released layout stores queries, keys and values in one tensor."""
    if name not in ("attn.in_proj_weight", "attn.in_proj_bias"):
        return {f"{layer}.{_LAYER.get(name, name)}": tensor}
    if tensor.shape[0] % 3:
        message = f"'{name}' of '{layer}' has {tensor.shape[0]} rows, which is not a multiple of 3"
        raise ModelError(message, code="wrong-shape", value=name, path=path, hint=HINT)
    kind = name.removeprefix("attn.in_proj_")
    thirds = zip("qkv", tensor.chunk(3), strict=True)
    return {f"{layer}.self_attn.{letter}_proj.{kind}": third.clone() for letter, third in thirds}


def sizes_of(
    tensors: Mapping[str, torch.Tensor], path: Path, text_heads: int | None, vision_heads: int | None
) -> Sizes:
    """The sizes of a CLIPModel from its tensors.

    Args:
        tensors: tensors by the names of ``transformers``.
        path: the file, for messages.
        text_heads: number of heads in the configuration; None: one head per 64 columns.
        vision_heads: likewise.

    Raises:
        ModelError: a tensor is missing or has an impossible shape.
    """

    def tower(side: str, norm: str, heads: int | None) -> Tower:
        width = width_of(tensors, f"{side}.{norm}.weight", path, HINT)
        pattern = re.compile(rf"{side}\.encoder\.layers\.(\d+)\.")
        numbers = {int(match[1]) for name in tensors if (match := pattern.match(name))}
        if not numbers or numbers != set(range(len(numbers))):
            missing = min(set(range(len(numbers) + 1)) - numbers)
            message = f"has no layer {missing} of '{side}'"
            raise ModelError(message, code="wrong-weights", value=missing, path=path, hint=HINT)
        inner = width_of(tensors, f"{side}.encoder.layers.0.mlp.fc1.bias", path, HINT)
        heads = width // _HEAD if heads is None else heads
        if heads < 1 or width % heads:
            message = f"has states of {width} columns, which cannot be split into {heads} heads"
            hint = "Use the folder with the configuration of these weights (config.json or open_clip_config.json)"
            raise ModelError(message, code="wrong-shape", value=width, path=path, hint=hint)
        return Tower(width, inner, len(numbers), heads)

    text = tower("text_model", "final_layer_norm", text_heads)
    vision = tower("vision_model", "post_layernorm", vision_heads)
    patch = shape_of(tensors, "vision_model.embeddings.patch_embedding.weight", 4, path, HINT)[-1]
    places = shape_of(tensors, "vision_model.embeddings.position_embedding.weight", 2, path, HINT)[0]
    side = math.isqrt(max(places - 1, 0))
    if side == 0 or side * side != places - 1:
        message = f"has {places} positions of an image, which is not a square number plus 1"
        raise ModelError(message, code="wrong-shape", value=places, path=path, hint=HINT)
    return Sizes(
        text,
        vision,
        shape_of(tensors, "text_projection.weight", 2, path, HINT)[0],
        shape_of(tensors, "text_model.embeddings.token_embedding.weight", 2, path, HINT)[0],
        shape_of(tensors, "text_model.embeddings.position_embedding.weight", 2, path, HINT)[0],
        patch,
        side * patch,
    )


def configuration(sizes: Sizes, activation: Activation) -> Any:
    """The ``CLIPConfig`` of ``transformers`` for these sizes."""
    import transformers

    act = {"quick-gelu": "quick_gelu", "gelu": "gelu"}[activation]
    text, vision = sizes.text, sizes.vision
    return transformers.CLIPConfig(
        projection_dim=sizes.embedding,
        text_config={
            "vocab_size": sizes.vocabulary,
            # Not used: a text's vector is that of its end piece, whose position is known.
            **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), sizes.vocabulary - 1),
            "hidden_size": text.width,
            "intermediate_size": text.inner,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "max_position_embeddings": sizes.longest,
            "hidden_act": act,
            "projection_dim": sizes.embedding,
        },
        vision_config={
            "hidden_size": vision.width,
            "intermediate_size": vision.inner,
            "num_hidden_layers": vision.layers,
            "num_attention_heads": vision.heads,
            "image_size": sizes.picture,
            "patch_size": sizes.patch,
            "hidden_act": act,
            "projection_dim": sizes.embedding,
        },
    )


# CLIP's tokeniser: byte pairs over lower-cased text.
#
# It is read from ``tokenizer.json``, from ``vocab.json`` with ``merges.txt``, or from ``bpe_simple_vocab_16e6.txt.gz``
# of the packages ``clip`` and ``open_clip_torch``. HTML entities and white space are cleaned as in the released code,
# but without ``ftfy``, which repairs wrong encodings and replaces curly quotes.

BPE_FILE = "bpe_simple_vocab_16e6.txt.gz"
"""File name of the merges in the released code."""

_START, _END = "<|startoftext|>", "<|endoftext|>"
_MERGES = 49152 - 256 - 2  # number of used merges, the first in the released file
_WORDS = rf"{re.escape(_START)}|{re.escape(_END)}|'s|'t|'re|'ve|'m|'ll|'d|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+"
_HINT = f"Use a folder with tokenizer.json, or with vocab.json and merges.txt, or the file {BPE_FILE}"


class ClipTokens:
    """Tokeniser that returns ids of pieces between a start and an end piece.

    Args:
        tokenizer: a tokeniser of the package ``tokenizers``.
        digest: SHA-256 of its files.
        path: the main file, for messages.

    Attributes:
        sha256: the digest.
        size: number of pieces.
        end: id of the end piece.

    Raises:
        ModelError: there is no start or end piece.
    """

    def __init__(self, tokenizer: Any, digest: str, path: Path) -> None:
        self._tokenizer, self.sha256 = tokenizer, digest
        tokenizer.no_truncation()
        tokenizer.no_padding()
        start, end = tokenizer.token_to_id(_START), tokenizer.token_to_id(_END)
        if start is None or end is None:
            message = f"has no '{_START}' or no '{_END}' and is not CLIP's tokeniser"
            raise ModelError(message, code="wrong-format", path=path, hint=_HINT)
        self.start, self.end = int(start), int(end)
        self.size = 1 + max(tokenizer.get_vocab().values())
        self._ids: dict[str, tuple[int, ...]] = {}

    def encode(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Ids of texts' pieces with start and end, not truncated."""
        new = [text for text in dict.fromkeys(texts) if text not in self._ids]
        cleaned = [_cleaned(text) for text in new]
        for text, encoding in zip(new, self._tokenizer.encode_batch(cleaned, add_special_tokens=False), strict=True):
            self._ids[text] = (self.start, *encoding.ids, self.end)
        return [self._ids[text] for text in texts]


def cut(pieces: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """A text's pieces, truncated to ``longest``; the end piece is kept."""
    return pieces if len(pieces) <= longest else (*pieces[: longest - 1], pieces[-1])


def _cleaned(text: str) -> str:
    # As in the released code, unescaped twice for captions from web pages that were escaped twice.
    return re.sub(r"\s+", " ", html.unescape(html.unescape(text)).strip()).strip().lower()


def open_tokens(source: Path) -> ClipTokens:
    """The tokeniser of a folder or file.

    Args:
        source: a folder with a tokeniser in one of the supported formats, or one of its files.

    Raises:
        MissingFileError: the folder or file does not exist.
        ModelError: not CLIP's tokeniser, or a damaged file.
    """
    if not source.exists():
        raise MissingFileError("the tokeniser does not exist", path=source, hint=_HINT)
    folder = source if source.is_dir() else source.parent
    names = ("tokenizer.json", "vocab.json", BPE_FILE) if source.is_dir() else (source.name,)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise ModelError("has no tokeniser of CLIP", code="missing-file", path=source, hint=_HINT)
    try:
        if path.name.endswith(".gz"):
            return _of_merges(path)
        if path.name == "vocab.json":
            return _of_vocabulary(path, folder / "merges.txt")
        return _of_tokenizer(path)
    except MissingFileError as error:
        raise MissingFileError(error.message, path=error.path, hint=_HINT) from error
    except ModelError:
        raise
    except CapbenchError as error:
        raise ModelError(
            error.message,
            code=error.code,
            value=error.value,
            path=error.path or path,
            row=error.row,
            hint=error.hint or _HINT,
        ) from error


def has_tokens(folder: Path) -> bool:
    """True if a folder has a tokeniser in one of the supported formats."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", BPE_FILE))


def _of_tokenizer(path: Path) -> ClipTokens:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(read_bytes(path).decode())
    except Exception as error:  # the package raises plain exceptions
        message = f"is not a tokeniser ({str(error)[:120]})"
        raise ModelError(message, code="wrong-format", path=path, hint=_HINT) from error
    return ClipTokens(tokenizer, sha256_file(path), path)


def _of_vocabulary(path: Path, merges: Path) -> ClipTokens:
    vocabulary = read_json(path)
    numbers = isinstance(vocabulary, dict) and all(
        isinstance(number, int) and not isinstance(number, bool) for number in vocabulary.values()
    )
    if not numbers or not vocabulary:
        message = "is not a vocabulary, a JSON object of pieces and their ids"
        raise ModelError(message, code="wrong-format", path=path, hint=_HINT)
    pairs = [_pair(line, merges, row) for row, line in enumerate(read_lines(merges), 1) if not line.startswith("#v")]
    digest = hashlib.sha256(f"{sha256_file(path)}{sha256_file(merges)}".encode()).hexdigest()
    return _made(vocabulary, pairs, digest, path)


def _of_merges(path: Path) -> ClipTokens:
    try:
        lines = unpack_gzip(path).decode().split("\n")[1 : 1 + _MERGES]
    except UnicodeDecodeError as error:
        raise ModelError("is not a text", code="wrong-format", path=path, hint=_HINT) from error
    pairs = [_pair(line, path, row) for row, line in enumerate(lines, 2) if line]
    letters = _letters_of_bytes()
    pieces = [*letters, *(letter + "</w>" for letter in letters), *map("".join, pairs), _START, _END]
    return _made({piece: number for number, piece in enumerate(pieces)}, pairs, sha256_file(path), path)


def _pair(line: str, path: Path, row: int) -> tuple[str, str]:
    first, space, second = line.partition(" ")
    if not first or not space or not second or " " in second:
        message = "is not a merge: two pieces separated by a space"
        raise DataError(message, code="wrong-format", value=line, path=path, row=row, hint=_HINT)
    return first, second


def _made(vocabulary: dict[str, int], pairs: list[tuple[str, str]], digest: str, path: Path) -> ClipTokens:
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    try:
        model = BPE(vocabulary, pairs, unk_token=_END, continuing_subword_prefix="", end_of_word_suffix="</w>")
        tokenizer = Tokenizer(model)
    except Exception as error:  # for example, a merge of pieces that are not in the vocabulary
        message = f"is not a vocabulary with its merges ({str(error)[:120]})"
        raise ModelError(message, code="wrong-format", path=path, hint=_HINT) from error
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(token) for token in (_START, _END) if token in vocabulary])
    return ClipTokens(tokenizer, digest, path)


def _letters_of_bytes() -> list[str]:
    """The letters that represent the 256 bytes, in the order of their ids in the released code.

    Printable bytes represent themselves and come first; the others are the letters from U+0100.
    """
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printing]
    return [*map(chr, printing), *(chr(256 + place) for place in range(len(others)))]
