"""CLIP's weights in the forms in which they are published, as tensors by the names of ``transformers``' CLIPModel.

Known are that layout itself, and the one of the released code, which ``open_clip`` and PAC-S share. What a file does
not say, its sizes say: layers and widths; a head has 64 columns unless a configuration beside the weights says
otherwise.
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

__all__ = ["BPE_FILE", "Activation", "ClipTokens", "Sizes", "Tower", "open_tokens", "renamed", "sizes_of"]


Activation = Literal["quick-gelu", "gelu"]

HINT = "Give weights of a CLIP with a vision transformer: transformers', OpenAI's, open_clip's or PAC-S's"
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
        width: of its states.
        inner: of the hidden layer of its perceptrons.
        layers: how many.
        heads: of its attention.
    """

    width: int
    inner: int
    layers: int
    heads: int


@dataclass(frozen=True)
class Sizes:
    """What a CLIPModel is built by.

    Attributes:
        text: the transformer over word pieces.
        vision: the one over patches.
        embedding: columns of the common space.
        vocabulary: word pieces.
        longest: pieces of the longest text, start and end included.
        patch: pixels of a patch's side.
        picture: pixels of a picture's side.
    """

    text: Tower
    vision: Tower
    embedding: int
    vocabulary: int
    longest: int
    patch: int
    picture: int


def renamed(tensors: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """Tensors by the names of ``transformers``' CLIPModel; numbers that inference never reads are left out.

    Raises:
        ModelError: they are of no CLIP, or of one with a ResNet.
    """
    if any(name.startswith("text_model.") for name in tensors):
        return {name: tensor for name, tensor in tensors.items() if not name.endswith("position_ids")}
    # A text tower of open_clip may be a module of its own.
    plain = {name.removeprefix("text."): tensor for name, tensor in tensors.items()}
    if "visual.layer1.0.conv1.weight" in plain or "visual.attnpool.positional_embedding" in plain:
        raise ModelError("is a CLIP with a ResNet, which is not read here", path=path, hint=HINT)
    if not any(name.startswith("visual.") for name in plain):
        raise ModelError("holds no CLIP", path=path, hint=HINT)
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
                raise ModelError(f"'{name}' has shape {tuple(tensor.shape)} and is no matrix", path=path, hint=HINT)
            named[_TURNED[name]] = tensor.t().contiguous()
        else:
            named[_SINGLE.get(name, name)] = tensor
    return named


def _of_block(layer: str, name: str, tensor: torch.Tensor, path: Path) -> dict[str, torch.Tensor]:
    """A layer's tensor; queries, keys and values stand in one in the released layout."""
    if name not in ("attn.in_proj_weight", "attn.in_proj_bias"):
        return {f"{layer}.{_LAYER.get(name, name)}": tensor}
    if tensor.shape[0] % 3:
        raise ModelError(f"'{name}' of '{layer}' has {tensor.shape[0]} rows, no multiple of 3", path=path, hint=HINT)
    kind = name.removeprefix("attn.in_proj_")
    thirds = zip("qkv", tensor.chunk(3), strict=True)
    return {f"{layer}.self_attn.{letter}_proj.{kind}": third.clone() for letter, third in thirds}


def sizes_of(
    tensors: Mapping[str, torch.Tensor], path: Path, text_heads: int | None, vision_heads: int | None
) -> Sizes:
    """The sizes of a CLIPModel, read off its tensors.

    Args:
        tensors: by the names of ``transformers``.
        path: the file, for messages.
        text_heads: what a configuration says; None: a head for each 64 columns.
        vision_heads: likewise.

    Raises:
        ModelError: a tensor is missing or has another shape than it can have.
    """

    def tower(side: str, norm: str, heads: int | None) -> Tower:
        width = width_of(tensors, f"{side}.{norm}.weight", path, HINT)
        pattern = re.compile(rf"{side}\.encoder\.layers\.(\d+)\.")
        numbers = {int(match[1]) for name in tensors if (match := pattern.match(name))}
        if not numbers or numbers != set(range(len(numbers))):
            lacking = min(set(range(len(numbers) + 1)) - numbers)
            raise ModelError(f"lacks layer {lacking} of '{side}'", path=path, hint=HINT)
        inner = width_of(tensors, f"{side}.encoder.layers.0.mlp.fc1.bias", path, HINT)
        heads = width // _HEAD if heads is None else heads
        if heads < 1 or width % heads:
            hint = "Give the folder with the configuration of these weights (config.json or open_clip_config.json)"
            raise ModelError(f"has states of {width} columns, which {heads} heads cannot share", path=path, hint=hint)
        return Tower(width, inner, len(numbers), heads)

    text = tower("text_model", "final_layer_norm", text_heads)
    vision = tower("vision_model", "post_layernorm", vision_heads)
    patch = shape_of(tensors, "vision_model.embeddings.patch_embedding.weight", 4, path, HINT)[-1]
    places = shape_of(tensors, "vision_model.embeddings.position_embedding.weight", 2, path, HINT)[0]
    side = math.isqrt(max(places - 1, 0))
    if side == 0 or side * side != places - 1:
        raise ModelError(f"has {places} places in a picture, which are no square and one more", path=path, hint=HINT)
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
    """The ``CLIPConfig`` of ``transformers`` that these sizes are."""
    import transformers

    act = {"quick-gelu": "quick_gelu", "gelu": "gelu"}[activation]
    text, vision = sizes.text, sizes.vision
    return transformers.CLIPConfig(
        projection_dim=sizes.embedding,
        text_config={
            "vocab_size": sizes.vocabulary,
            # Never read: a text's vector is taken where its end is known to stand.
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


# CLIP's word pieces: byte pairs over lower-cased text, from any of the files in which they are published.
#
# These are ``tokenizer.json``, ``vocab.json`` with ``merges.txt``, and ``bpe_simple_vocab_16e6.txt.gz``, which comes
# with the packages ``clip`` and ``open_clip_torch``. Texts are cleaned as the released code does, HTML's entities and
# white space, but for ``ftfy``, which mends wrong encodings and makes curly quotes straight.

BPE_FILE = "bpe_simple_vocab_16e6.txt.gz"
"""The name under which the released code ships its merges."""

_START, _END = "<|startoftext|>", "<|endoftext|>"
_MERGES = 49152 - 256 - 2  # of the merges in the released file, the first so many
_WORDS = rf"{re.escape(_START)}|{re.escape(_END)}|'s|'t|'re|'ve|'m|'ll|'d|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+"
_HINT = f"Give a folder with tokenizer.json, or with vocab.json and merges.txt, or the file {BPE_FILE}"


class ClipTokens:
    """Texts as numbers of pieces, between a start and an end.

    Args:
        tokenizer: of the package ``tokenizers``.
        digest: SHA-256 of the files that it was made of.
        path: where they lie.

    Attributes:
        sha256: the digest.
        size: pieces that it knows.
        end: the number of the piece that ends a text.

    Raises:
        ModelError: it knows no piece that begins or ends a text.
    """

    def __init__(self, tokenizer: Any, digest: str, path: Path) -> None:
        self._tokenizer, self.sha256 = tokenizer, digest
        tokenizer.no_truncation()
        tokenizer.no_padding()
        start, end = tokenizer.token_to_id(_START), tokenizer.token_to_id(_END)
        if start is None or end is None:
            raise ModelError(f"knows no '{_START}' or no '{_END}': it is not CLIP's", path=path, hint=_HINT)
        self.start, self.end = int(start), int(end)
        self.size = 1 + max(tokenizer.get_vocab().values())
        self._kept: dict[str, tuple[int, ...]] = {}

    def encode(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Numbers of texts' pieces, start and end included; nothing is cut."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        cleaned = [_cleaned(text) for text in new]
        for text, encoding in zip(new, self._tokenizer.encode_batch(cleaned, add_special_tokens=False), strict=True):
            self._kept[text] = (self.start, *encoding.ids, self.end)
        return [self._kept[text] for text in texts]


def cut(pieces: tuple[int, ...], longest: int) -> tuple[int, ...]:
    """A text's pieces, cut to the longest that fits; the piece that ends it stays at the end."""
    return pieces if len(pieces) <= longest else (*pieces[: longest - 1], pieces[-1])


def _cleaned(text: str) -> str:
    # The released code unescapes twice, for captions from web pages that were escaped twice.
    return re.sub(r"\s+", " ", html.unescape(html.unescape(text)).strip()).strip().lower()


def open_tokens(source: Path) -> ClipTokens:
    """The tokeniser of a folder or file.

    Args:
        source: a folder with one of the known forms, or one of the files.

    Raises:
        MissingFileError: there is nothing.
        ModelError: it is none, or is damaged.
    """
    if not source.exists():
        raise MissingFileError("there is no such tokeniser", path=source, hint=_HINT)
    folder = source if source.is_dir() else source.parent
    names = ("tokenizer.json", "vocab.json", BPE_FILE) if source.is_dir() else (source.name,)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise ModelError("holds no tokeniser of CLIP", path=source, hint=_HINT)
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
        raise ModelError(error.message, path=error.path or path, hint=error.hint or _HINT) from error


def has_tokens(folder: Path) -> bool:
    """Whether a folder holds a tokeniser in one of the known forms."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json", BPE_FILE))


def _of_tokenizer(path: Path) -> ClipTokens:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(read_bytes(path).decode())
    except Exception as error:  # the package raises plain exceptions
        raise ModelError(f"is no tokeniser ({str(error)[:120]})", path=path, hint=_HINT) from error
    return ClipTokens(tokenizer, sha256_file(path), path)


def _of_vocabulary(path: Path, merges: Path) -> ClipTokens:
    vocabulary = read_json(path)
    numbers = isinstance(vocabulary, dict) and all(
        isinstance(number, int) and not isinstance(number, bool) for number in vocabulary.values()
    )
    if not numbers or not vocabulary:
        raise ModelError("is no vocabulary: an object of pieces and their numbers", path=path, hint=_HINT)
    pairs = [_pair(line, merges, row) for row, line in enumerate(read_lines(merges), 1) if not line.startswith("#v")]
    digest = hashlib.sha256(f"{sha256_file(path)}{sha256_file(merges)}".encode()).hexdigest()
    return _made(vocabulary, pairs, digest, path)


def _of_merges(path: Path) -> ClipTokens:
    try:
        lines = unpack_gzip(path).decode().split("\n")[1 : 1 + _MERGES]
    except UnicodeDecodeError as error:
        raise ModelError("holds no text", path=path, hint=_HINT) from error
    pairs = [_pair(line, path, row) for row, line in enumerate(lines, 2) if line]
    letters = _letters_of_bytes()
    pieces = [*letters, *(letter + "</w>" for letter in letters), *map("".join, pairs), _START, _END]
    return _made({piece: number for number, piece in enumerate(pieces)}, pairs, sha256_file(path), path)


def _pair(line: str, path: Path, row: int) -> tuple[str, str]:
    first, space, second = line.partition(" ")
    if not first or not space or not second or " " in second:
        raise DataError("is no merge: two pieces with a space between them", path=path, row=row, hint=_HINT)
    return first, second


def _made(vocabulary: dict[str, int], pairs: list[tuple[str, str]], digest: str, path: Path) -> ClipTokens:
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import BPE

    try:
        model = BPE(vocabulary, pairs, unk_token=_END, continuing_subword_prefix="", end_of_word_suffix="</w>")
        tokenizer = Tokenizer(model)
    except Exception as error:  # a merge whose pieces the vocabulary lacks, say
        raise ModelError(f"is no vocabulary with its merges ({str(error)[:120]})", path=path, hint=_HINT) from error
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
    """The letters that stand for the 256 bytes, in the order in which the released code numbers them.

    Bytes that print stand for themselves and come first; the others are the letters from U+0100 on.
    """
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printing]
    return [*map(chr, printing), *(chr(256 + place) for place in range(len(others)))]
