"""Where each row of a word-vector file lies, after a check of every one: the formats behind ``WordVectors``."""

from __future__ import annotations

import hashlib
import importlib
import mmap
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import DataError, MissingFileError

__all__ = ["FORMATS", "FileIndex", "guess_format", "index_file", "read_row"]

FORMATS: Final = ("word2vec", "text", "keyed-vectors")
"""word2vec's binary format; GloVe's text, or word2vec's with its header line; what gensim's ``save`` writes."""

_AGAIN = "Get the file again, or check that it is whole"
_NUMBER = b"0123456789+-.eE "
_LONGEST_WORD = 10_000


@dataclass(frozen=True, eq=False)
class FileIndex:
    """Where the vectors lie.

    Attributes:
        kind: one of :data:`FORMATS`.
        dimension: components of a vector.
        sha256: of the file or files.
        words: (n) words in file order.
        starts: (n,) offset in bytes of each row's numbers.
        ends: (n,) offset in bytes of their end.
        array_path: the file that the offsets belong to, if it is not the file itself.
        array_size: its size in bytes.
        dtype: numpy's name of the numbers' type; ``""`` for text.
    """

    kind: str
    dimension: int
    sha256: str
    words: list[str]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    array_path: str
    array_size: int
    dtype: str

    def save(self, path: Path) -> None:
        """Write the index atomically."""
        with files.atomic_write(path, "wb") as stream:
            np.savez(
                stream,
                text=np.array([self.kind, self.sha256, self.array_path, self.dtype]),
                numbers=np.array([self.dimension, self.array_size], dtype=np.int64),
                words=np.frombuffer("\n".join(self.words).encode("utf-8", "surrogateescape"), dtype=np.uint8),
                starts=self.starts,
                ends=self.ends,
            )

    @classmethod
    def load(cls, path: Path) -> FileIndex:
        """Read what :meth:`save` wrote. Raises OSError, ValueError or KeyError if the file is damaged."""
        import zipfile

        try:
            with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as index:
                kind, sha256, array_path, dtype = (str(field) for field in index["text"])
                dimension, array_size = (int(number) for number in index["numbers"])
                words = index["words"].tobytes().decode("utf-8", "surrogateescape").split("\n")
                starts, ends = index["starts"], index["ends"]
        except zipfile.BadZipFile as error:
            raise ValueError(str(error)) from error
        if len(words) != len(starts) or len(starts) != len(ends):
            raise ValueError("words and rows do not fit together")
        return cls(kind, dimension, sha256, words, starts, ends, array_path, array_size, dtype)


def guess_format(path: Path) -> str:
    """Tell a format from a file's first bytes; ``text`` if nothing else fits.

    Raises:
        DataError: the file is empty, compressed, or cannot be read.
    """
    try:
        with open(path, "rb") as stream:
            head = stream.read(4096)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=path, hint="Check its permissions") from error
    if not head:
        raise DataError("is empty", path=path, hint=_AGAIN)
    if head[:2] == b"\x1f\x8b" or head[:2] == b"PK":
        raise DataError("is compressed", path=path, hint="Unpack it first: vectors are mapped into memory as they lie")
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return "keyed-vectors"
    line, newline, rest = head.partition(b"\n")
    if newline and _header(line) is not None:
        second = rest.partition(b"\n")[0]
        numbers = second.partition(b" ")[2]
        if numbers.translate(None, _NUMBER):
            return "word2vec"
    return "text"


def index_file(path: Path, kind: str) -> FileIndex:
    """Check every row of a file and note where it lies.

    Raises:
        DataError: the file is not what it should be; file and row are named.
    """
    if path.stat().st_size == 0:
        raise DataError("is empty", path=path, hint=_AGAIN)
    readers: dict[str, Callable[[Path], FileIndex]] = {"word2vec": _binary, "text": _text, "keyed-vectors": _keyed}
    return readers[kind](path)


def read_row(data: NDArray[np.uint8], index: FileIndex, row: int, path: Path) -> NDArray[np.float32]:
    """The (d,) float32 vector of one row of a mapped file. Raises DataError if it is not finite."""
    cut = data[index.starts[row] : index.ends[row]].tobytes()
    if index.dtype:
        vector = np.frombuffer(cut, dtype=index.dtype).astype(np.float32)
    else:
        try:
            vector = np.array(cut.split(), dtype=np.float64).astype(np.float32)
        except ValueError as error:
            raise DataError(f"the vector of '{index.words[row]}' holds what is no number", path=path) from error
    if len(vector) != index.dimension or not np.isfinite(vector).all():
        raise DataError(f"the vector of '{index.words[row]}' holds a value that is no number", path=path, hint=_AGAIN)
    return vector


def _header(line: bytes) -> tuple[int, int] | None:
    parts = line.split()
    if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return None


def _word(raw: bytes, seen: set[bytes], path: Path, row: int) -> str:
    if raw in seen:
        shown = raw.decode("utf-8", "replace")
        raise DataError(f"the word '{shown}' is here a second time", path=path, row=row, hint="Remove one of the two")
    seen.add(raw)
    # Public files hold some words cut in the middle of a character: they can never be asked for, and are kept.
    return raw.decode("utf-8", "surrogateescape")


def _binary(path: Path) -> FileIndex:
    words: list[str] = []
    seen: set[bytes] = set()
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        head_end = data.find(b"\n", 0, 100)
        header = _header(data[:head_end]) if head_end > 0 else None
        if header is None or min(header) < 1:
            raise DataError(
                "does not begin with the number of words and of dimensions, as word2vec's binary format does",
                path=path,
                row=1,
                hint="Check that this is a word2vec .bin file",
            )
        n, dimension = header
        width = 4 * dimension
        if head_end + 1 + n * (width + 2) > len(data):
            fits = max(0, (len(data) - head_end - 1) // (width + 2))
            raise DataError(
                f"is cut off: its header tells of {n} words x {dimension}, and it can hold {fits} at most",
                path=path,
                hint=_AGAIN,
            )
        starts = np.empty(n, dtype=np.int64)
        at = head_end + 1
        for row in range(n):
            space = data.find(b" ", at, at + _LONGEST_WORD)
            if space < 0 or space + 1 + width > len(data):
                raise DataError(f"is cut off: {n} words are announced", path=path, row=f"word {row + 1}", hint=_AGAIN)
            raw = data[at:space].lstrip(b"\n")
            if not raw or b"\n" in raw:
                raise DataError(
                    f"has no word where one must be: the vectors are not of {dimension} dimensions each",
                    path=path,
                    row=f"word {row + 1}",
                    hint=_AGAIN,
                )
            words.append(_word(raw, seen, path, row + 1))
            starts[row] = space + 1
            at = space + 1 + width
            vector = np.frombuffer(data, dtype="<f4", count=dimension, offset=space + 1)
            finite = np.isfinite(vector).all()
            del vector  # a view would keep the map open
            if not finite:
                raise DataError(
                    f"the vector of '{words[-1]}' holds a value that is no number (NaN or infinite)",
                    path=path,
                    row=f"word {row + 1}",
                    hint=_AGAIN,
                )
        if data[at:].strip():
            raise DataError(
                f"goes on after the {n} words x {dimension} of its header", path=path, row=1, hint="Mend the header"
            )
        size = len(data)
    return FileIndex("word2vec", dimension, files.sha256_file(path), words, starts, starts + width, "", size, "<f4")


def _text(path: Path) -> FileIndex:
    words: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    seen: set[bytes] = set()
    dimension = 0
    header: tuple[int, int] | None = None
    at = 0
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            text = line.rstrip(b"\r\n ")
            if number == 1:
                header = _header(text)
                if header is not None:
                    dimension = header[1]
                    at += len(line)
                    continue
                dimension = text.count(b" ")
                if dimension < 2:
                    raise DataError("is no word followed by its numbers", path=path, row=1, hint=_AGAIN)
            if not text:
                raise DataError("is an empty row", path=path, row=number, hint="Remove it")
            # Words may hold spaces (GloVe 840B has ". . ."), so the numbers are counted from the right.
            parts = text.rsplit(b" ", dimension)
            numbers = len(parts[0]) + 1
            if len(parts) != dimension + 1 or not parts[0]:
                raise DataError(
                    f"has {text.count(b' ')} numbers and not {dimension} like the rows before",
                    path=path,
                    row=number,
                    hint=_AGAIN,
                )
            _check_numbers(parts, dimension, path, number)
            words.append(_word(parts[0], seen, path, number))
            starts.append(at + numbers)
            ends.append(at + len(text))
            at += len(line)
    if header is not None and header[0] != len(words):
        raise DataError(
            f"tells of {header[0]} words in its header and holds {len(words)}", path=path, row=1, hint=_AGAIN
        )
    if not words:
        raise DataError("holds no word", path=path, hint=_AGAIN)
    return FileIndex(
        "text",
        dimension,
        files.sha256_file(path),
        words,
        np.array(starts, dtype=np.int64),
        np.array(ends, dtype=np.int64),
        "",
        path.stat().st_size,
        "",
    )


def _check_numbers(parts: list[bytes], dimension: int, path: Path, row: int) -> None:
    with np.errstate(over="ignore"):
        try:
            finite = np.isfinite(np.array(parts[1:], dtype=np.float64).astype(np.float32))
        except ValueError:
            finite = np.array([_is_number(number) for number in parts[1:]])
    if not finite.all():
        shown = parts[1 + int(np.argmin(finite))][:40].decode("utf-8", "replace")
        raise DataError(
            f"'{shown}' is no finite number: the row should be a word and {dimension} numbers",
            path=path,
            row=row,
            hint=_AGAIN,
        )
    head, _, last = parts[0].rpartition(b" ")
    if head and _is_number(last):
        raise DataError(f"has more numbers than the {dimension} of the rows before", path=path, row=row, hint=_AGAIN)


def _is_number(text: bytes) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


class _KeyedVectors:
    """Stands in for gensim's class: takes the pickled attributes and does nothing with them."""


class _Unpickler(pickle.Unpickler):
    """Loads KeyedVectors and arrays, and nothing that could run code."""

    _ARRAYS = frozenset({("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")})
    _CLASSES = frozenset({"KeyedVectors", "Word2VecKeyedVectors", "EuclideanKeyedVectors", "Vocab"})
    _CONTAINERS = frozenset({("collections", "OrderedDict"), ("collections", "defaultdict"), ("builtins", "int")})

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("gensim.models.keyedvectors") and name in self._CLASSES:
            return _KeyedVectors
        if module in {"numpy.core.multiarray", "numpy._core.multiarray"} and name in {"_reconstruct", "scalar"}:
            home = "numpy.core" if np.__version__.startswith("1.") else "numpy._core"
            return getattr(importlib.import_module(f"{home}.multiarray"), name)
        if (module, name) in self._ARRAYS or (module, name) in self._CONTAINERS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds a {module}.{name}")


def _unpickle(stream: IO[bytes], path: Path) -> dict[str, Any]:
    hint = "Save the vectors themselves with gensim's model.wv.save(), or model.wv.save_word2vec_format(binary=True)"
    try:
        loaded = _Unpickler(stream).load()
    except pickle.UnpicklingError as error:
        reason = str(error) if str(error).startswith("it holds") else "it is damaged or cut off"
        raise DataError(f"is not read as gensim KeyedVectors: {reason}", path=path, hint=hint) from error
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(
            "is not read as gensim KeyedVectors: it is damaged or cut off", path=path, hint=_AGAIN
        ) from error
    if not isinstance(loaded, _KeyedVectors):
        raise DataError(f"holds a {type(loaded).__name__} and not gensim KeyedVectors", path=path, hint=hint)
    return vars(loaded)


def _keyed(path: Path) -> FileIndex:
    with open(path, "rb") as stream:
        attributes = _unpickle(stream, path)
    keys = attributes.get("index_to_key", attributes.get("index2word"))
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise DataError("holds no list of words", path=path, hint=_AGAIN)
    digest = hashlib.sha256(bytes.fromhex(files.sha256_file(path)))
    array = attributes.get("vectors")
    second = path.with_name(f"{path.name}.vectors.npy")
    if array is None:
        if not second.exists():
            raise MissingFileError(
                "is not there: gensim keeps large arrays in a file of their own",
                path=second,
                hint=f"Put it beside {path}",
            )
        digest.update(bytes.fromhex(files.sha256_file(second)))
    else:
        # The numbers lie inside the pickle; a copy of them in the cache can be mapped like any other file.
        second = files.cache_dir("word-vectors") / f"{digest.hexdigest()[:24]}.npy"
        with files.atomic_write(second, "wb") as out:
            np.save(out, np.ascontiguousarray(array, dtype=np.float32), allow_pickle=False)
    try:
        mapped = np.load(second, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError("is no numpy array or is cut off", path=second, hint=_AGAIN) from error
    if mapped.ndim != 2 or mapped.dtype not in (np.float32, np.float64) or not mapped.flags.c_contiguous:
        raise DataError(f"holds an array of shape {mapped.shape} and type {mapped.dtype}", path=second, hint=_AGAIN)
    if len(mapped) != len(keys):
        raise DataError(f"has {len(keys)} words and {len(mapped)} vectors", path=path, hint=_AGAIN)
    if len(set(keys)) != len(keys) or any("\n" in key for key in keys):
        raise DataError("holds a word twice, or one with a line break in it", path=path, hint=_AGAIN)
    for start in range(0, len(mapped), 10_000):
        good = np.isfinite(mapped[start : start + 10_000]).all(axis=1)
        if not good.all():
            row = start + int(np.argmin(good))
            raise DataError(
                f"the vector of '{keys[row]}' holds a value that is no number",
                path=path,
                row=f"word {row + 1}",
                hint=_AGAIN,
            )
    width = mapped.shape[1] * mapped.dtype.itemsize
    starts = int(mapped.offset) + np.arange(len(keys), dtype=np.int64) * width
    return FileIndex(
        "keyed-vectors",
        mapped.shape[1],
        digest.hexdigest(),
        keys,
        starts,
        starts + width,
        str(second.resolve()),
        second.stat().st_size,
        mapped.dtype.str,
    )
