"""Word vectors from user-supplied files: word2vec ``.bin``, GloVe or word2vec text, gensim KeyedVectors.

Files are memory-mapped: only the rows of requested words are read. The first opening of a file checks every row and
records its offset; this index and the file's SHA-256 are cached in a table, keyed by the file's path, size and
modification time, so that later openings need no scan.

The pickles of gensim's ``KeyedVectors.save`` are read without running any code.
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
from capbench.core.errors import DataError, MissingFileError, check_choice

AGAIN: Final = "Get the file again, or check that it is complete"


class _KeyedVectors:
    """Placeholder for gensim's class that only takes the pickled attributes."""


class _UnsafeError(pickle.UnpicklingError):
    """The pickle contains a class or function that is not allowed."""


class _Unpickler(pickle.Unpickler):
    """Unpickles KeyedVectors and arrays, and rejects everything that could run code."""

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
        raise _UnsafeError(f"it contains a {module}.{name}")


def read_attributes(path: Path) -> dict[str, Any]:
    """Attributes of pickled KeyedVectors.

    Raises:
        DataError: the file is damaged or contains other objects.
    """
    hint = "Save the vectors themselves with gensim's model.wv.save(), or model.wv.save_word2vec_format(binary=True)"
    files.check_readable(path)
    try:
        with open(path, "rb") as stream:
            loaded = _Unpickler(stream).load()
    except _UnsafeError as error:
        raise DataError(
            f"cannot be read as gensim KeyedVectors: {error}", code="unsafe", path=path, hint=hint
        ) from error
    except Exception as error:  # a damaged pickle may raise anything
        raise DataError(
            "cannot be read as gensim KeyedVectors: it is damaged or truncated", code="damaged", path=path, hint=AGAIN
        ) from error
    if not isinstance(loaded, _KeyedVectors):
        raise DataError(
            f"contains a {type(loaded).__name__}, not gensim KeyedVectors",
            code="wrong-type",
            value=type(loaded).__name__,
            path=path,
            hint=hint,
        )
    return vars(loaded)


def pickled_vectors(attributes: dict[str, Any], path: Path) -> NDArray[np.float32]:
    """The (n, d) array among the attributes.

    Args:
        attributes: from :func:`read_attributes`.
        path: the file, for the error message.

    Raises:
        DataError: the attributes contain no array of numbers.
    """
    try:
        return np.ascontiguousarray(attributes["vectors"], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("contains no array of numbers", code="missing-value", path=path, hint=AGAIN) from error


FORMATS: Final = ("word2vec", "text", "keyed-vectors")
"""word2vec's binary format; GloVe's text format, or word2vec's with a header line; the format of gensim's ``save``."""

FOLDER: Final = "word-vectors"
"""Folder of the tables, below the cache folder."""

_COPY_VERSION: Final = 1
_NUMBER = b"0123456789+-.eE "
_LONGEST_WORD = 10_000
_NOT_FINITE = "contains a value that is not a finite number"


def _not_finite(word: str, path: Path, row: int | None = None) -> DataError:
    """The error for the vector of a word; ``row`` is its place in the file, from 0."""
    place = None if row is None else f"word {row + 1}"
    return DataError(
        f"the vector of '{word}' {_NOT_FINITE}", code="not-a-number", value=word, path=path, row=place, hint=AGAIN
    )


@dataclass(frozen=True, eq=False)
class FileIndex:
    """Offsets of the vectors in a file.

    Attributes:
        kind: one of :data:`FORMATS`.
        dimension: components of a vector.
        sha256: of the file or files.
        words: (n) words in file order.
        starts: (n,) offset in bytes of each row's numbers.
        ends: (n,) offset in bytes of their end.
        array_path: the file to which the offsets refer, if different from the file itself.
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
        """The inverse of :meth:`arrays`."""
        kind, dimension, sha256, array_path, array_size, dtype = json.loads(arrays["notes"].tobytes())
        words = arrays["words"].tobytes().decode("utf-8", "surrogateescape").split("\n")
        return cls(kind, dimension, sha256, words, arrays["starts"], arrays["ends"], array_path, array_size, dtype)


def guess_format(path: Path) -> str:
    """Guess a format from a file's first bytes; ``text`` if no other format fits.

    Raises:
        DataError: the file is empty, compressed, or cannot be read.
    """
    files.check_readable(path)
    try:
        with open(path, "rb") as stream:
            head = stream.read(4096)
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror})", code="unreadable", path=path, hint="Check its permissions"
        ) from error
    if not head:
        raise DataError("is empty", code="missing-value", path=path, hint=AGAIN)
    if head[:2] == b"\x1f\x8b" or head[:2] == b"PK":
        raise DataError(
            "is compressed", code="wrong-format", path=path, hint="Decompress it first: vectors are memory-mapped"
        )
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
    """Check every row of a file and record its offset.

    Raises:
        DataError: the file is invalid; the error names file and row.
    """
    if path.stat().st_size == 0:
        raise DataError("is empty", code="missing-value", path=path, hint=AGAIN)
    readers: dict[str, Callable[[Path], FileIndex]] = {"word2vec": _binary, "text": _text, "keyed-vectors": _keyed}
    return readers[kind](path)


def read_row(data: NDArray[np.uint8], index: FileIndex, row: int, path: Path) -> NDArray[np.float32]:
    """The (d,) float32 vector of one row.

    Args:
        data: the mapped file, as bytes.
        index: offsets of its rows.
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
            raise _not_finite(index.words[row], path) from error
    if len(vector) != index.dimension or not np.isfinite(vector).all():
        raise _not_finite(index.words[row], path)
    return vector


def _header(line: bytes) -> tuple[int, int] | None:
    parts = line.split()
    if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit():
        return int(parts[0]), int(parts[1])
    return None


def _word(raw: bytes, seen: set[bytes], path: Path, row: int) -> str:
    if raw in seen:
        shown = raw.decode("utf-8", "replace")
        raise DataError(
            f"the word '{shown}' occurs a second time",
            code="duplicate",
            value=shown,
            path=path,
            row=row,
            hint="Remove one of the two",
        )
    seen.add(raw)
    # Public files contain words that are cut inside a character; they are kept but match no request.
    return raw.decode("utf-8", "surrogateescape")


def _binary(path: Path) -> FileIndex:
    words: list[str] = []
    seen: set[bytes] = set()
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        head_end = data.find(b"\n", 0, 100)
        header = _header(data[:head_end]) if head_end > 0 else None
        if header is None or min(header) < 1:
            raise DataError(
                "does not begin with the numbers of words and dimensions, as required by word2vec's binary format",
                code="wrong-format",
                path=path,
                row=1,
                hint="Check that this is a word2vec .bin file",
            )
        n, dimension = header
        width = 4 * dimension
        if head_end + 1 + n * (width + 2) > len(data):
            fits = max(0, (len(data) - head_end - 1) // (width + 2))
            raise DataError(
                f"is truncated: its header announces {n} words x {dimension}, but its size allows at most {fits}",
                code="damaged",
                path=path,
                hint=AGAIN,
            )
        starts = np.empty(n, dtype=np.int64)
        at = head_end + 1
        for row in range(n):
            space = data.find(b" ", at, at + _LONGEST_WORD)
            if space < 0 or space + 1 + width > len(data):
                raise DataError(
                    f"is truncated: the header announces {n} words",
                    code="damaged",
                    path=path,
                    row=f"word {row + 1}",
                    hint=AGAIN,
                )
            raw = data[at:space].lstrip(b"\n")
            if not raw or b"\n" in raw:
                raise DataError(
                    f"has no word at the expected place: the vectors do not have {dimension} dimensions each",
                    code="wrong-shape",
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
                raise _not_finite(words[-1], path, row)
        if data[at:].strip():
            raise DataError(
                f"continues after the {n} words x {dimension} of its header",
                code="mismatch",
                path=path,
                row=1,
                hint="Correct the header",
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
                    raise DataError(
                        "is not a word followed by its numbers", code="wrong-format", path=path, row=1, hint=AGAIN
                    )
            if not text:
                raise DataError("is an empty row", code="missing-value", path=path, row=number, hint="Remove it")
            # Words may contain spaces (GloVe 840B has ". . ."), so the numbers are counted from the right.
            parts = text.rsplit(b" ", dimension)
            numbers = len(parts[0]) + 1
            if len(parts) != dimension + 1 or not parts[0]:
                raise DataError(
                    f"has {text.count(b' ')} numbers instead of {dimension} as in the rows before",
                    code="wrong-shape",
                    value=text.count(b" "),
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
            f"announces {header[0]} words in its header but contains {len(words)}",
            code="mismatch",
            value=header[0],
            path=path,
            row=1,
            hint=AGAIN,
        )
    if not words:
        raise DataError("contains no word", code="missing-value", path=path, hint=AGAIN)
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
            f"'{shown}' is not a finite number: the row must be a word and {dimension} numbers",
            code="not-a-number",
            value=shown,
            path=path,
            row=row,
            hint=AGAIN,
        )
    head, _, last = parts[0].rpartition(b" ")
    if head and _is_number(last):
        raise DataError(
            f"has more numbers than the {dimension} of the rows before",
            code="wrong-shape",
            path=path,
            row=row,
            hint=AGAIN,
        )


def _is_number(text: bytes) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _keyed(path: Path) -> FileIndex:
    attributes = read_attributes(path)
    keys = attributes.get("index_to_key", attributes.get("index2word"))
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise DataError("contains no list of words", code="missing-value", path=path, hint=AGAIN)
    digest = hashlib.sha256(bytes.fromhex(files.sha256_file(path)))
    if attributes.get("vectors") is None:
        array_path = path.with_name(f"{path.name}.vectors.npy")
        if not array_path.exists():
            raise MissingFileError(
                "does not exist: gensim saves large arrays in a separate file",
                path=array_path,
                hint=f"Place it next to {path}",
            )
        digest.update(bytes.fromhex(files.sha256_file(array_path)))
        try:
            mapped = np.load(array_path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise DataError(
                "is not a numpy array or is truncated", code="damaged", path=array_path, hint=AGAIN
            ) from error
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
    """Make sure that the copy of the vectors to which an index refers exists and is valid; returns the index with its
    path.

    Only vectors inside gensim's pickle have a copy, a table in the cache. It is rebuilt if it is missing or damaged.
    """
    if not index.array_path.endswith(".table"):
        return index

    def read_again() -> dict[str, NDArray[Any]]:
        return {"vectors": pickled_vectors(read_attributes(path), path)}

    copy = _copy(index.sha256, read_again)
    return replace(index, array_path=str(Path(str(copy.filename)).resolve()))


def _copy(sha256: str, read: Callable[[], dict[str, NDArray[Any]]]) -> np.memmap[Any, Any]:
    """Vectors from inside a pickle as a table in the cache, so that they can be memory-mapped."""
    return derived_table(FOLDER, f"vectors-{sha256[:24]}", _COPY_VERSION, read)["vectors"]


def _check_vectors(vectors: NDArray[Any], words: list[str], path: Path, array_path: Path) -> None:
    sound = vectors.ndim == 2 and vectors.size > 0 and vectors.flags.c_contiguous
    if not sound or vectors.dtype not in (np.float32, np.float64):
        raise DataError(
            f"contains an array of shape {vectors.shape} and type {vectors.dtype}, not words x dimensions as floats",
            code="wrong-shape",
            value=vectors.shape,
            path=array_path,
            hint=AGAIN,
        )
    if len(vectors) != len(words):
        raise DataError(f"has {len(words)} words but {len(vectors)} vectors", code="mismatch", path=path, hint=AGAIN)
    if len(set(words)) != len(words) or any("\n" in word for word in words):
        raise DataError(
            "contains a repeated word, or a word with a line break", code="duplicate", path=path, hint=AGAIN
        )
    for start in range(0, len(vectors), 10_000):
        finite = np.isfinite(vectors[start : start + 10_000]).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise _not_finite(words[row], path, row)


_INDEX_VERSION: Final = 1


class WordVectors:
    """Word vectors, read from a file on request.

    Args:
        path: the file.
        kind: one of :data:`FORMATS`; by default guessed from the file's first bytes.

    Attributes:
        path: the file.
        kind: its format.
        dimension: number of components d of a vector.
        sha256: SHA-256 of the file; of both files for KeyedVectors whose array is in a second file.

    Raises:
        UsageError: the format is unknown.
        MissingFileError, DataError: the file does not exist or is invalid (truncated, wrong header, rows of different
            lengths, NaN or infinity, a repeated word); the error names file and row.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str | None = None) -> None:
        if kind is not None:
            check_choice("format of word vectors", kind, FORMATS)
        self.path = Path(path)
        if not self.path.exists():
            raise MissingFileError(
                "the file of word vectors does not exist",
                path=path,
                hint="Pass the path of a word2vec .bin, GloVe text or gensim KeyedVectors file",
            )
        if not self.path.is_file():
            raise DataError("is a folder, not a file of word vectors", code="wrong-format", path=path)
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
        """Word → (d,) float32 vector as stored, for the words that the file contains.

        Raises:
            DataError: the file changed after it was opened.
        """
        rows = self._row_numbers()
        if self._data is None:
            self._data = np.memmap(self._index.array_path or self.path, dtype=np.uint8, mode="r")
            if len(self._data) != self._index.array_size:
                raise DataError(
                    "changed while it was in use", code="changed", path=self.path, hint="Run the command again"
                )
        return {
            word: read_row(self._data, self._index, rows[word], self.path)
            for word in dict.fromkeys(words)
            if word in rows
        }

    def unit_vectors(self, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word → (d,) float32 vector of length 1, for the words that the file contains.

        The division is done in float32, as in gensim's ``get_vector(word, norm=True)``. A zero vector stays zero.
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
        path: the file; written atomically.
        words: (n) words without white space.
        matrix: (n, d) finite float32.

    Raises:
        DataError: words and matrix have different lengths, a word contains white space, or a value is not finite.
        UsageError: the file cannot be written.
    """
    if matrix.ndim != 2 or len(words) != len(matrix) or not len(words):
        raise DataError(f"{len(words)} words do not match an array of shape {matrix.shape}", code="mismatch", path=path)
    if not np.isfinite(matrix).all():
        raise DataError(f"a vector {_NOT_FINITE}", code="not-a-number", path=path)
    for word in words:
        if not word or word.split() != [word]:
            raise DataError(
                f"'{word}' is not a word: it is empty or contains white space",
                code="wrong-value",
                value=word,
                path=path,
            )
    little = np.ascontiguousarray(matrix, dtype="<f4")
    with files.atomic_write(path, "wb") as stream:
        stream.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, little, strict=True):
            stream.write(word.encode() + b" " + row.tobytes() + b"\n")
