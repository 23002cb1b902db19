"""Word vectors from files that a user has: word2vec ``.bin``, GloVe or word2vec text, gensim KeyedVectors.

A file is mapped into memory, not read: only the rows of words that are asked for are touched. Its first
opening checks every row and notes where each one lies; the notes and the file's SHA-256 go to the cache
folder under the file's path, size and time of change, so that later openings take no scan.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from capbench import files
from capbench.errors import DataError, MissingFileError, UsageError
from capbench.text.embeddings.files import FORMATS, FileIndex, guess_format, index_file, read_row

__all__ = ["FORMATS", "WordVectors", "write_word2vec"]

_NOTES_VERSION: Final = 1


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
    key = f"{_NOTES_VERSION}\0{kind}\0{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"
    second = path.with_name(f"{path.name}.vectors.npy")
    if second.exists():
        key += f"\0{second.stat().st_size}\0{second.stat().st_mtime_ns}"
    name = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    notes = files.cache_dir("word-vectors") / f"{name}.npz"
    if notes.exists():
        try:
            index = FileIndex.load(notes)
            if not index.array_path or Path(index.array_path).exists():
                return index
        except (OSError, ValueError, KeyError, EOFError):  # a damaged cache is no error: the file is scanned again
            notes.unlink(missing_ok=True)
    index = index_file(path, kind)
    index.save(notes)
    return index


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
