"""Word vectors from files that a user has: word2vec ``.bin``, GloVe or word2vec text, gensim KeyedVectors.

A file is mapped into memory, not read: only the rows of words that are asked for are touched. Its first
opening checks every row and notes where each one lies; this index and the file's SHA-256 go to a table in the
cache folder, under the file's path, size and time of change, so that later openings take no scan.

What gensim's ``KeyedVectors.save`` pickles is read without running anything.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import mmap
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.cache import derived_table
from capbench.core.errors import DataError, MissingFileError, UsageError

__all__ = [
    "AGAIN",
    "FOLDER",
    "FORMATS",
    "FileIndex",
    "WordVectors",
    "check_copy",
    "guess_format",
    "index_file",
    "pickled_vectors",
    "read_attributes",
    "read_row",
    "write_word2vec",
]


AGAIN: Final = "Get the file again, or check that it is whole"


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


def read_attributes(path: Path) -> dict[str, Any]:
    """The attributes of pickled KeyedVectors.

    Raises:
        DataError: the file is damaged, or holds anything else.
    """
    hint = "Save the vectors themselves with gensim's model.wv.save(), or model.wv.save_word2vec_format(binary=True)"
    files.check_readable(path)
    try:
        with open(path, "rb") as stream:
            loaded = _Unpickler(stream).load()
    except pickle.UnpicklingError as error:
        reason = str(error) if str(error).startswith("it holds") else "it is damaged or cut off"
        raise DataError(f"is not read as gensim KeyedVectors: {reason}", path=path, hint=hint) from error
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(
            "is not read as gensim KeyedVectors: it is damaged or cut off", path=path, hint=AGAIN
        ) from error
    if not isinstance(loaded, _KeyedVectors):
        raise DataError(f"holds a {type(loaded).__name__} and not gensim KeyedVectors", path=path, hint=hint)
    return vars(loaded)


def pickled_vectors(attributes: dict[str, Any], path: Path) -> NDArray[np.float32]:
    """The (n, d) array that lies among the attributes.

    Args:
        attributes: from :func:`read_attributes`.
        path: the file, for the error message.

    Raises:
        DataError: there is no array of numbers among them.
    """
    try:
        return np.ascontiguousarray(attributes["vectors"], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("holds no array of numbers", path=path, hint=AGAIN) from error


FORMATS: Final = ("word2vec", "text", "keyed-vectors")
"""word2vec's binary format; GloVe's text, or word2vec's with its header line; what gensim's ``save`` writes."""

FOLDER: Final = "word-vectors"
"""Of their tables, below the cache folder."""

_COPY_VERSION: Final = 1
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

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The index as arrays, for a table in the cache."""
        notes = json.dumps([self.kind, self.dimension, self.sha256, self.array_path, self.array_size, self.dtype])
        words = "\n".join(self.words).encode("utf-8", "surrogateescape")
        return {
            "notes": np.frombuffer(notes.encode(), np.uint8),
            "words": np.frombuffer(words, np.uint8),
            "starts": self.starts,
            "ends": self.ends,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> FileIndex:
        """The index that :meth:`arrays` was called on."""
        kind, dimension, sha256, array_path, array_size, dtype = json.loads(arrays["notes"].tobytes())
        words = arrays["words"].tobytes().decode("utf-8", "surrogateescape").split("\n")
        return cls(kind, dimension, sha256, words, arrays["starts"], arrays["ends"], array_path, array_size, dtype)


def guess_format(path: Path) -> str:
    """Tell a format from a file's first bytes; ``text`` if nothing else fits.

    Raises:
        DataError: the file is empty, compressed, or cannot be read.
    """
    files.check_readable(path)
    try:
        with open(path, "rb") as stream:
            head = stream.read(4096)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", path=path, hint="Check its permissions") from error
    if not head:
        raise DataError("is empty", path=path, hint=AGAIN)
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
        raise DataError("is empty", path=path, hint=AGAIN)
    readers: dict[str, Callable[[Path], FileIndex]] = {"word2vec": _binary, "text": _text, "keyed-vectors": _keyed}
    return readers[kind](path)


def read_row(data: NDArray[np.uint8], index: FileIndex, row: int, path: Path) -> NDArray[np.float32]:
    """The (d,) float32 vector of one row.

    Args:
        data: the mapped file, as bytes.
        index: where its rows lie.
        row: the row, from 0.
        path: the file, for the error message.

    Raises:
        DataError: the vector is not finite.
    """
    cut = data[index.starts[row] : index.ends[row]].tobytes()
    if index.dtype:
        vector = np.frombuffer(cut, dtype=index.dtype).astype(np.float32)
    else:
        try:
            vector = np.array(cut.split(), dtype=np.float64).astype(np.float32)
        except ValueError as error:
            raise DataError(f"the vector of '{index.words[row]}' holds what is no number", path=path) from error
    if len(vector) != index.dimension or not np.isfinite(vector).all():
        raise DataError(f"the vector of '{index.words[row]}' holds a value that is no number", path=path, hint=AGAIN)
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
                hint=AGAIN,
            )
        starts = np.empty(n, dtype=np.int64)
        at = head_end + 1
        for row in range(n):
            space = data.find(b" ", at, at + _LONGEST_WORD)
            if space < 0 or space + 1 + width > len(data):
                raise DataError(f"is cut off: {n} words are announced", path=path, row=f"word {row + 1}", hint=AGAIN)
            raw = data[at:space].lstrip(b"\n")
            if not raw or b"\n" in raw:
                raise DataError(
                    f"has no word where one must be: the vectors are not of {dimension} dimensions each",
                    path=path,
                    row=f"word {row + 1}",
                    hint=AGAIN,
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
                    hint=AGAIN,
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
                    raise DataError("is no word followed by its numbers", path=path, row=1, hint=AGAIN)
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
                    hint=AGAIN,
                )
            _check_numbers(parts, dimension, path, number)
            words.append(_word(parts[0], seen, path, number))
            starts.append(at + numbers)
            ends.append(at + len(text))
            at += len(line)
    if header is not None and header[0] != len(words):
        raise DataError(
            f"tells of {header[0]} words in its header and holds {len(words)}", path=path, row=1, hint=AGAIN
        )
    if not words:
        raise DataError("holds no word", path=path, hint=AGAIN)
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
            hint=AGAIN,
        )
    head, _, last = parts[0].rpartition(b" ")
    if head and _is_number(last):
        raise DataError(f"has more numbers than the {dimension} of the rows before", path=path, row=row, hint=AGAIN)


def _is_number(text: bytes) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _keyed(path: Path) -> FileIndex:
    attributes = read_attributes(path)
    keys = attributes.get("index_to_key", attributes.get("index2word"))
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise DataError("holds no list of words", path=path, hint=AGAIN)
    digest = hashlib.sha256(bytes.fromhex(files.sha256_file(path)))
    if attributes.get("vectors") is None:
        array_path = path.with_name(f"{path.name}.vectors.npy")
        if not array_path.exists():
            raise MissingFileError(
                "is not there: gensim keeps large arrays in a file of their own",
                path=array_path,
                hint=f"Put it beside {path}",
            )
        digest.update(bytes.fromhex(files.sha256_file(array_path)))
        try:
            mapped = np.load(array_path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise DataError("is no numpy array or is cut off", path=array_path, hint=AGAIN) from error
        _check_vectors(mapped, keys, path, array_path)
    else:
        vectors = pickled_vectors(attributes, path)
        _check_vectors(vectors, keys, path, path)
        mapped = _copy(digest.hexdigest(), lambda: {"vectors": vectors})
        array_path = Path(str(mapped.filename))
    width = mapped.shape[1] * mapped.dtype.itemsize
    starts = int(mapped.offset) + np.arange(len(keys), dtype=np.int64) * width
    return FileIndex(
        "keyed-vectors",
        mapped.shape[1],
        digest.hexdigest(),
        keys,
        starts,
        starts + width,
        str(array_path.resolve()),
        array_path.stat().st_size,
        mapped.dtype.str,
    )


def check_copy(path: Path, index: FileIndex) -> FileIndex:
    """See to it that the copy of vectors that an index tells of is there and right; the index with its path.

    Only vectors that lie inside gensim's pickle have a copy, which is a table in the cache. It is made again if it is
    lost or damaged.
    """
    if not index.array_path.endswith(".table"):
        return index

    def read_again() -> dict[str, NDArray[Any]]:
        return {"vectors": pickled_vectors(read_attributes(path), path)}

    copy = _copy(index.sha256, read_again)
    return replace(index, array_path=str(Path(str(copy.filename)).resolve()))


def _copy(sha256: str, read: Callable[[], dict[str, NDArray[Any]]]) -> np.memmap[Any, Any]:
    """Vectors that lie inside a pickle, as a table in the cache: there they can be mapped like any other file's."""
    return derived_table(FOLDER, f"vectors-{sha256[:24]}", _COPY_VERSION, read)["vectors"]


def _check_vectors(vectors: NDArray[Any], words: list[str], path: Path, array_path: Path) -> None:
    sound = vectors.ndim == 2 and vectors.size > 0 and vectors.flags.c_contiguous
    if not sound or vectors.dtype not in (np.float32, np.float64):
        raise DataError(
            f"holds an array of shape {vectors.shape} and type {vectors.dtype}", path=array_path, hint=AGAIN
        )
    if len(vectors) != len(words):
        raise DataError(f"has {len(words)} words and {len(vectors)} vectors", path=path, hint=AGAIN)
    if len(set(words)) != len(words) or any("\n" in word for word in words):
        raise DataError("holds a word twice, or one with a line break in it", path=path, hint=AGAIN)
    for start in range(0, len(vectors), 10_000):
        finite = np.isfinite(vectors[start : start + 10_000]).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise DataError(
                f"the vector of '{words[row]}' holds a value that is no number",
                path=path,
                row=f"word {row + 1}",
                hint=AGAIN,
            )


_INDEX_VERSION: Final = 1


class WordVectors:
    """Vectors of words, read from a file as they are asked for.

    Args:
        path: the file.
        kind: one of :data:`FORMATS`; by default told from the file's first bytes.

    Attributes:
        path: the file.
        kind: its format.
        dimension: number of components d of a vector.
        sha256: SHA-256 of the file, and for KeyedVectors whose array lies in a second file, of both.

    Raises:
        UsageError: no such format.
        MissingFileError, DataError: there is no such file, or it is not what it should be (truncated, wrong
            header, rows of different lengths, a value that is no number, a repeated word); file and row are named.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str | None = None) -> None:
        if kind is not None and kind not in FORMATS:
            raise UsageError(f"unknown format of word vectors '{kind}'", hint=f"Choices: {', '.join(FORMATS)}")
        self.path = Path(path)
        if not self.path.exists():
            raise MissingFileError(
                "there is no such file of word vectors",
                path=path,
                hint="Give the path of a word2vec .bin, a GloVe text or a gensim KeyedVectors file",
            )
        if not self.path.is_file():
            raise DataError("is not a file of word vectors", path=path)
        self.kind = kind or guess_format(self.path)
        self._index = _cached_index(self.path, self.kind)
        self.dimension = self._index.dimension
        self.sha256 = self._index.sha256
        self._array: NDArray[np.float32] | None = None
        self._rows: dict[str, int] = {}
        self._data: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self._index.starts)

    def __contains__(self, word: object) -> bool:
        return word in self._row_numbers()

    def __repr__(self) -> str:
        return f"WordVectors({len(self)} words x {self.dimension} from {self.path})"

    @property
    def words(self) -> Sequence[str]:
        """All words in the order of the file."""
        return list(self._row_numbers())

    def vectors(self, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word → (d,) float32 vector as it stands in the file, for those words that are in it.

        Raises:
            DataError: the file was changed since it was opened.
        """
        rows = self._row_numbers()
        if self._data is None:
            self._data = np.memmap(self._index.array_path or self.path, dtype=np.uint8, mode="r")
            if len(self._data) != self._index.array_size:
                raise DataError("was changed while it was in use", path=self.path, hint="Run the command again")
        return {
            word: read_row(self._data, self._index, rows[word], self.path)
            for word in dict.fromkeys(words)
            if word in rows
        }

    def unit_vectors(self, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word → (d,) float32 vector of length 1, for those words that are in the file.

        The division is done in float32, as gensim's ``get_vector(word, norm=True)`` does it. A vector of
        zeros has no direction and stays zero.
        """
        vectors = self.vectors(words)
        if not vectors:
            return {}
        matrix = np.stack(list(vectors.values()))
        norms = np.linalg.norm(matrix, axis=1)
        norms[norms == 0] = 1
        return dict(zip(vectors, matrix / norms[:, None], strict=True))

    def _row_numbers(self) -> dict[str, int]:
        if not self._rows:
            self._rows = {word: row for row, word in enumerate(self._index.words)}
        return self._rows


def _cached_index(path: Path, kind: str) -> FileIndex:
    state = path.stat()
    key = f"{kind}\0{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"
    second = path.with_name(f"{path.name}.vectors.npy")
    if second.exists():
        key += f"\0{second.stat().st_size}\0{second.stat().st_mtime_ns}"
    name = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    arrays = derived_table(FOLDER, f"index-{name}", _INDEX_VERSION, lambda: index_file(path, kind).arrays())
    return check_copy(path, FileIndex.from_arrays(arrays))


def write_word2vec(path: str | os.PathLike[str], words: Sequence[str], matrix: NDArray[np.float32]) -> None:
    """Write vectors in word2vec's binary format: a line ``n d``, then for each word its text, a space, d float32.

    Args:
        path: the file; it appears when it is whole.
        words: (n) words without white space.
        matrix: (n, d) finite float32.

    Raises:
        DataError: words and matrix do not fit together, a word holds white space or a value is no number.
        UsageError: the file cannot be written.
    """
    if matrix.ndim != 2 or len(words) != len(matrix) or not len(words):
        raise DataError(f"{len(words)} words do not fit an array of shape {matrix.shape}", path=path)
    if not np.isfinite(matrix).all():
        raise DataError("a vector holds a value that is no number", path=path)
    for word in words:
        if not word or word.split() != [word]:
            raise DataError(f"'{word}' is no word: it is empty or holds white space", path=path)
    little = np.ascontiguousarray(matrix, dtype="<f4")
    with files.atomic_write(path, "wb") as stream:
        stream.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, little, strict=True):
            stream.write(word.encode() + b" " + row.tobytes() + b"\n")
