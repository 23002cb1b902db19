"""Word vectors: of files (word2vec ``.bin``, GloVe or word2vec text, gensim KeyedVectors), or trained on sentences.

The first opening of a file reads and checks all rows and copies them into a table in the cache, named by the file's
path, size and modification time. The table is mapped into memory, so only the rows of requested words are read.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from capbench.core import files
from capbench.core.cache import derived_table, packed_texts, unpacked_texts
from capbench.core.errors import CapbenchError, DataError, ModelError
from capbench.core.pickles import load_pickle
from capbench.text.greedy_matching import unit

_VERSION: Final = 2  # of the tables
_HEADER: Final = re.compile(rb"\d+ \d+\s*")
_NUMBER: Final = re.compile(rb" [-+]?\.?\d[\d.eE+-]*$")
_AGAIN: Final = "Get the file again, or check that it is complete"


class WordVectors:
    """Word vectors, read from a file on request; its format is recognised by the first bytes.

    ``dimension``: number of components d of a vector; ``sha256``: SHA-256 of the file; for KeyedVectors, the SHA-256 of
    the digests of its one or two files.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        files.check_readable(self.path)
        key = [str(self.path.resolve())]
        for file in (self.path, _second(self.path)):
            if file.exists():
                key += [str(file.stat().st_size), str(file.stat().st_mtime_ns)]
        name = hashlib.blake2b("\0".join(key).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        self._table = derived_table("word-vectors", name, _VERSION, lambda: _read(self.path))
        self._matrix = self._table["vectors"]
        self.dimension: int = self._matrix.shape[1]
        self.sha256 = self._table["sha256"].tobytes().decode()

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(unpacked_texts(self._table))}

    def __len__(self) -> int:
        return len(self._matrix)

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    def vectors(self, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word → (d,) float32 vector as stored, for the words that the file contains."""
        return {word: np.array(self._matrix[self._rows[word]]) for word in dict.fromkeys(words) if word in self._rows}

    def unit_vectors(self, words: Iterable[str]) -> dict[str, NDArray[np.float32]]:
        """Word → (d,) float32 vector of length 1, for the words that the file contains.

        The division is done in float32, as in gensim's ``get_vector(word, norm=True)``. A zero vector stays zero.
        """
        vectors = self.vectors(words)
        return dict(zip(vectors, unit(np.stack(list(vectors.values()))), strict=True)) if vectors else {}


def _second(path: Path) -> Path:
    """The file in which gensim saves a large array."""
    return path.with_name(f"{path.name}.vectors.npy")


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """Words, their vectors (n, d) float32, and the SHA-256 of a file of any format."""
    digest = files.sha256_file(path)
    try:
        with open(path, "rb") as stream, np.errstate(over="ignore"):
            head = stream.read(4096)
            stream.seek(0)
            header, second, *_ = *head.split(b"\n", 2), b""
            if head[:2] in (b"\x1f\x8b", b"PK"):
                raise ValueError("it is compressed, so decompress it first")
            if head[:1] == b"\x80":
                words, matrix, more = _pickled(path)
                digest = hashlib.sha256(bytes.fromhex(digest + "".join(map(files.sha256_file, more)))).hexdigest()
            elif _HEADER.fullmatch(header) and second.partition(b" ")[2].translate(None, b"0123456789+-.eE "):
                words, matrix = _binary(stream, *map(int, header.split()))
            else:
                words, matrix = _text(stream)
        if matrix.ndim != 2 or not matrix.size or len(words) != len(matrix):
            raise ValueError(f"has {len(words)} words for vectors of shape {matrix.shape}")
        finite = np.isfinite(matrix.sum(axis=1, dtype=np.float64))
        if not finite.all():
            raise ValueError(f"the vector of '{words[np.argmin(finite)]}' has a value that is not finite")
        (word, times), *_ = Counter(words).most_common(1)
        if times > 1:
            raise ValueError(f"the word '{word}' occurs {times} times")
    except ValueError as error:
        raise DataError(f"cannot be read as word vectors: {error}", code="damaged", path=path, hint=_AGAIN) from error
    return {**packed_texts(words), "vectors": matrix, "sha256": np.frombuffer(digest.encode(), np.uint8)}


def _binary(stream: BinaryIO, n: int, dimension: int) -> tuple[list[str], NDArray[np.float32]]:
    """word2vec's binary format: a line ``n d``, then for each word its text, a space, and d float32."""
    words = list[str]()
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if n * (4 * dimension + 2) > len(data):
            raise ValueError(f"its header announces {n} words x {dimension}, more than it has")
        matrix, at = np.empty((n, dimension), "<f4"), data.find(b"\n") + 1
        for row in range(n):
            space = data.find(b" ", at)
            word = data[at : max(at, space)].lstrip(b"\n")
            if not word or b"\n" in word or space + 1 + 4 * dimension > len(data):
                raise ValueError(f"word {row + 1} of {n} is not where its header says")
            # Public files contain words that are cut inside a character; they are kept but match no request.
            words.append(word.decode("utf-8", "surrogateescape"))
            matrix[row] = np.frombuffer(data, "<f4", dimension, space + 1)
            at = space + 1 + 4 * dimension
        if data[at:].strip():
            raise ValueError(f"it continues after the {n} words x {dimension} of its header")
    return words, matrix


def _text(stream: BinaryIO) -> tuple[list[str], NDArray[np.float32]]:
    """GloVe's format, a word and its numbers in each line, or word2vec's, which begins with a line ``n d``."""
    words, rows = list[str](), list[NDArray[np.float32]]()
    dimension = announced = 0
    for number, line in enumerate(stream, 1):
        text = line.rstrip(b"\r\n ")
        if number == 1 and _HEADER.fullmatch(text):
            announced, dimension = map(int, text.split())
            continue
        dimension = dimension or text.count(b" ")
        # Words may contain spaces (GloVe 840B has ". . ."), so the numbers are counted from the right.
        word, *numbers = text.rsplit(b" ", dimension)
        try:
            if not word or len(numbers) != dimension or _NUMBER.search(word):
                raise ValueError
            rows.append(np.array(numbers, dtype=np.float64).astype(np.float32))
        except ValueError:
            raise ValueError(f"row {number} is not a word and {dimension} numbers") from None
        words.append(word.decode("utf-8", "surrogateescape"))
    if announced not in (0, len(words)):
        raise ValueError(f"it announces {announced} words in its header but has {len(words)}")
    return words, np.array(rows, dtype=np.float32)


def _pickled(path: Path) -> tuple[list[str], NDArray[np.float32], list[Path]]:
    """gensim's ``KeyedVectors.save``, with the array in the same file or in a second one, which is then the last."""
    try:
        found = vars(load_pickle(path, records="gensim.models.keyedvectors"))
        words, matrix, more = found.get("index_to_key", found.get("index2word")), found.get("vectors"), list[Path]()
        if matrix is None:
            more = [_second(path)]
            files.check_readable(more[0])
            matrix = np.load(more[0], allow_pickle=False)
        return list(map(str, words)), np.ascontiguousarray(matrix, dtype=np.float32), more
    except CapbenchError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        way = "save the vectors with gensim's model.wv.save() or model.wv.save_word2vec_format()"
        raise ValueError(f"no gensim KeyedVectors ({error}): {way}") from error


def train_word2vec(
    sentences: Sequence[Sequence[str]],
    progress: Callable[[int], None] = lambda _done: None,  # called with 1 after each epoch
    *,
    dimension: int = 300,  # components of a vector
    window: int = 5,  # predicted words on each side
    min_count: int = 2,  # minimum frequency of words with a vector
    epochs: int = 20,  # passes over the sentences
    seed: int = 1,  # of all random numbers, below 2³²
) -> tuple[list[str], NDArray[np.float32]]:
    """Train skip-gram vectors with negative sampling (Mikolov et al. 2013), in one thread, so that a seed repeats them.

    Returns the words, most frequent first, and their (n, dimension) float32 vectors.
    """
    from gensim.models import Word2Vec
    from gensim.models.callbacks import CallbackAny2Vec

    class Epochs(CallbackAny2Vec):  # type: ignore[misc]  # gensim has no types
        def on_epoch_end(self, model: Any) -> None:
            progress(1)

    model = Word2Vec(vector_size=dimension, window=window, min_count=min_count, negative=5, seed=seed, sg=1, workers=1)
    model.build_vocab(sentences)
    if not len(model.wv):
        message, hint = f"no word occurs {min_count} times in {len(sentences)} captions", "Lower --min-count"
        raise DataError(message, code="too-few", value=min_count, hint=hint)
    model.train(sentences, total_examples=model.corpus_count, epochs=epochs, callbacks=[Epochs()])
    matrix = np.array(model.wv.vectors, dtype=np.float32)
    if not np.isfinite(matrix).all():
        raise ModelError("a vector is not finite", code="not-converged", hint="Try fewer epochs")
    return list(model.wv.index_to_key), matrix


def write_word2vec(path: str | os.PathLike[str], words: Sequence[str], matrix: NDArray[np.float32]) -> None:
    """Write finite vectors (n, d) of words in word2vec's binary format."""
    odd = next((word for word in words if word.split() != [word]), None)
    if odd is not None or not len(words) or len(words) != len(matrix) or not np.isfinite(matrix).all():
        message = f"{len(words)} words and an array of shape {matrix.shape} are not words and finite vectors"
        raise DataError(message, code="wrong-value", value=odd, path=path)
    with files.atomic_write(path, "wb") as stream:
        stream.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, np.ascontiguousarray(matrix, dtype="<f4"), strict=True):
            stream.write(word.encode() + b" " + row.tobytes() + b"\n")
