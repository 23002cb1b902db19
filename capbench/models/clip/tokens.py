"""CLIP's word pieces: byte pairs over lower-cased text, from any of the files in which they are published.

These are ``tokenizer.json``, ``vocab.json`` with ``merges.txt``, and ``bpe_simple_vocab_16e6.txt.gz``, which comes with
the packages ``clip`` and ``open_clip_torch``. Texts are cleaned as the released code does, HTML's entities and white
space, but for ``ftfy``, which mends wrong encodings and makes curly quotes straight.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capbench.errors import CapbenchError, DataError, MissingFileError, ModelError
from capbench.files import read_bytes, read_json, read_lines, sha256_file, unpack_gzip

__all__ = ["BPE_FILE", "ClipTokens", "open_tokens"]

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
