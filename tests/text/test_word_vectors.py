"""Word-vector files: supported formats, and errors for invalid files."""

from __future__ import annotations

import gzip
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import DataError, MissingFileError
from capbench.text.word_vectors import WordVectors, train_word2vec, write_word2vec
from tests.errors import raises

WORDS = ["dog", "cat", "café", ".", "12"]


@pytest.fixture
def matrix() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


def _text(path: Path, matrix: NDArray[np.float32], header: bool = False) -> Path:
    rows = [" ".join([word, *(repr(float(x)) for x in row)]) for word, row in zip(WORDS, matrix, strict=True)]
    path.write_text("\n".join(([f"{len(matrix)} {matrix.shape[1]}"] if header else []) + rows) + "\n", "utf-8")
    return path


def _keyed(path: Path, matrix: NDArray[np.float32], sep_limit: int = 10 * 1024**2) -> Path:
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    kv = keyedvectors.KeyedVectors(matrix.shape[1])
    kv.add_vectors(WORDS, matrix)
    kv.save(str(path), sep_limit=sep_limit)
    return path


def _word2vec(path: Path, matrix: NDArray[np.float32]) -> Path:
    write_word2vec(path, WORDS, matrix)
    return path


WRITERS: dict[str, Callable[[Path, NDArray[np.float32]], Path]] = {
    "word2vec": _word2vec,
    "text": _text,
    "text-with-header": lambda path, matrix: _text(path, matrix, header=True),
    "keyed-vectors": _keyed,
    "keyed-vectors-in-two-files": lambda path, matrix: _keyed(path, matrix, sep_limit=1),
}


@pytest.mark.parametrize("form", WRITERS)
def test_every_format_gives_the_same_vectors(form: str, tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    path = WRITERS[form](tmp_path / "vectors", matrix)
    for _ in range(2):  # the second time from the index in the cache
        vectors = WordVectors(path)
        assert (len(vectors), vectors.dimension, list(vectors.vectors(WORDS))) == (5, 7, WORDS)
        found = vectors.vectors(["cat", "café", "horse", "cat", "12"])
        assert list(found) == ["cat", "café", "12"]
        np.testing.assert_array_equal(np.stack(list(found.values())), matrix[[1, 2, 4]])


def test_unit_vectors_are_gensims(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    path = tmp_path / "v.bin"
    write_word2vec(path, WORDS, matrix)
    kv = keyedvectors.KeyedVectors.load_word2vec_format(str(path), binary=True)
    unit = WordVectors(path).unit_vectors(WORDS)
    write_word2vec(tmp_path / "zero.bin", ["a"], np.zeros((1, 2), np.float32))
    assert WordVectors(tmp_path / "zero.bin").unit_vectors(["a"])["a"].tolist() == [0, 0]
    for word in WORDS:
        np.testing.assert_array_equal(unit[word], kv.get_vector(word, norm=True))


def test_words_with_spaces_and_rows_without_line_breaks_are_read(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("dog 0.5 1e-3\n. . . 1 2\n", "utf-8")
    assert WordVectors(tmp_path / "glove.txt").vectors([". . ."])[". . ."].tolist() == [1, 2]
    row = np.array([1, 2], "<f4").tobytes()
    (tmp_path / "v.bin").write_bytes(b"2 2\na " + row + b"b " + row)
    assert WordVectors(tmp_path / "v.bin").vectors(["b"])["b"].tolist() == [1, 2]


def test_the_hash_is_of_the_file_and_a_changed_file_is_read_again(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    path = tmp_path / "v.bin"
    for vectors in (matrix, matrix + 1):
        write_word2vec(path, WORDS, vectors)
        assert WordVectors(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        np.testing.assert_array_equal(WordVectors(path).vectors(["dog"])["dog"], vectors[0])


ROW = np.array([1, 2], "<f4").tobytes()
BAD_BYTES = {
    "empty": (b"", ""),
    "gzip": (gzip.compress(b"dog 1 2\n"), "decompress"),
    "truncated word2vec": (b"3 2\na " + ROW + b"\nb " + ROW + b"\nc \0", "3 words x 2"),
    "too many rows": (b"1 2\na " + ROW + b"\nb " + ROW, "1 words x 2"),
    "NaN in word2vec": (b"2 2\na " + ROW + b"\nb " + np.array([1, np.nan], "<f4").tobytes(), "'b'"),
    "NaN in text": (b"dog 1 2\ncat nan 2\n", "'cat'"),
    "letters in text": (b"dog 1 2\ncat x 2\n", "row 2"),
    "too few numbers": (b"dog 1 2 3\ncat 1 2\n", "row 2"),
    "header counts wrongly": (b"3 2\ndog 1 2\ncat 1 2\n", "3 words"),
    "pickle of something else": (pickle.dumps({"a": 1}), "gensim"),
    "dangerous pickle": (pickle.dumps(print), "builtins.print"),
}


@pytest.mark.parametrize("kind", BAD_BYTES)
def test_a_bad_file_gives_one_line_that_names_the_place(kind: str, tmp_path: Path) -> None:
    data, place = BAD_BYTES[kind]
    path = tmp_path / "vectors"
    path.write_bytes(data)
    with raises(DataError, "unsafe" if kind == "dangerous pickle" else "damaged", path=path) as caught:
        WordVectors(path)
    assert place in caught.value.message


def test_gensim_files_without_usable_vectors_are_rejected(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    path = _keyed(tmp_path / "vectors", matrix)
    loaded = pickle.loads(path.read_bytes())
    for vectors in ("text", [["a"]], [1.0, 2.0], np.empty((5, 0), np.float32), np.full((5, 7), np.nan, np.float32)):
        loaded.vectors = vectors
        path.write_bytes(pickle.dumps(loaded))
        with raises(DataError, "damaged", path=path):
            WordVectors(path)
    path = _keyed(tmp_path / "v.kv", matrix, sep_limit=1)
    (tmp_path / "v.kv.vectors.npy").unlink()
    with raises(MissingFileError, "missing-file", path=tmp_path / "v.kv.vectors.npy"):
        WordVectors(path)


def test_a_seed_gives_trained_vectors_of_words_most_frequent_first() -> None:
    pytest.importorskip("gensim")
    texts = ["a dog runs on the grass", "a cat sits on the grass", "the dog sits by a red ball", "a cat runs"] * 5
    sentences, done = [text.split() for text in [*texts, "once"]], list[int]()
    words, matrix = train_word2vec(sentences, done.append, dimension=8, epochs=3)
    assert words[0] == "a"
    assert set(words) == {"a", "dog", "runs", "on", "the", "grass", "cat", "sits", "by", "red", "ball"}
    assert matrix.shape == (11, 8)
    assert matrix.dtype == np.float32
    assert done == [1, 1, 1]
    again, other = (train_word2vec(sentences, dimension=8, epochs=3, seed=seed)[1] for seed in (1, 2))
    np.testing.assert_array_equal(again, matrix)
    assert not np.array_equal(other, matrix)
    with raises(DataError, "too-few", value=2):
        train_word2vec([["a", "dog"]])
