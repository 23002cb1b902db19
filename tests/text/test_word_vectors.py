"""Word-vector files: supported formats, and errors for invalid files."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from capbench.core.errors import DataError, MissingFileError, UsageError
from capbench.text.word_vectors import WordVectors, write_word2vec
from tests.errors import raises

WORDS = ["dog", "cat", "café", ".", "12"]


@pytest.fixture
def matrix() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


def _binary(path: Path, matrix: NDArray[np.float32]) -> Path:
    write_word2vec(path, WORDS, matrix)
    return path


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


WRITERS: dict[str, Callable[[Path, NDArray[np.float32]], Path]] = {
    "word2vec": _binary,
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
        assert form.startswith(vectors.kind)
        assert (len(vectors), vectors.dimension, list(vectors.words)) == (5, 7, WORDS)
        found = vectors.vectors(["cat", "café", "horse", "cat", "12"])
        assert list(found) == ["cat", "café", "12"]
        np.testing.assert_array_equal(np.stack(list(found.values())), matrix[[1, 2, 4]])
        assert "dog" in vectors
        assert "horse" not in vectors


def test_unit_vectors_are_gensims(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    keyedvectors = pytest.importorskip("gensim.models.keyedvectors")
    path = _binary(tmp_path / "v.bin", matrix)
    kv = keyedvectors.KeyedVectors.load_word2vec_format(str(path), binary=True)
    unit = WordVectors(path).unit_vectors(WORDS)
    for word in WORDS:
        np.testing.assert_array_equal(unit[word], kv.get_vector(word, norm=True))


def test_a_zero_vector_stays_zero(tmp_path: Path) -> None:
    write_word2vec(tmp_path / "v.bin", ["a", "b"], np.array([[0, 0], [3, 4]], np.float32))
    unit = WordVectors(tmp_path / "v.bin").unit_vectors(["a", "b"])
    assert unit["a"].tolist() == [0, 0]
    assert unit["b"].tolist() == pytest.approx([0.6, 0.8])


def test_words_with_spaces_are_read_from_text(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("dog 0.5 1e-3\n. . . 1 2\n", "utf-8")
    assert list(WordVectors(path).words) == ["dog", ". . ."]
    assert WordVectors(path).vectors([". . ."])[". . ."].tolist() == [1, 2]


def test_word2vec_without_line_breaks_between_rows_is_read(tmp_path: Path) -> None:
    row = np.array([1, 2], "<f4").tobytes()
    (tmp_path / "v.bin").write_bytes(b"2 2\na " + row + b"b " + row)
    assert WordVectors(tmp_path / "v.bin").vectors(["b"])["b"].tolist() == [1, 2]


def test_the_hash_is_of_the_file_and_changes_with_it(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    import hashlib

    path = _binary(tmp_path / "v.bin", matrix)
    first = WordVectors(path).sha256
    assert first == hashlib.sha256(path.read_bytes()).hexdigest()
    _binary(path, matrix + 1)
    second = WordVectors(path)
    assert second.sha256 != first
    np.testing.assert_array_equal(second.vectors(["dog"])["dog"], matrix[0] + 1)


def test_the_second_opening_does_not_scan(
    tmp_path: Path, matrix: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _binary(tmp_path / "v.bin", matrix)
    WordVectors(path)
    monkeypatch.setattr("capbench.text.word_vectors.index_file", lambda *_: pytest.fail("scanned again"))
    assert len(WordVectors(path)) == 5


def test_a_pickle_without_an_array_of_numbers_is_rejected(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    for vectors, code in (
        ("text", "missing-value"),
        ([["a"]], "missing-value"),
        ([1.0, 2.0], "wrong-shape"),
        (np.empty((5, 0), np.float32), "wrong-shape"),
    ):
        path = _keyed(tmp_path / "vectors", matrix)
        loaded = pickle.loads(path.read_bytes())
        loaded.vectors = vectors
        path.write_bytes(pickle.dumps(loaded))
        with raises(DataError, code, path=path):
            WordVectors(path)


ROW = np.array([1, 2], "<f4").tobytes()
BAD_BYTES: dict[str, tuple[bytes, str, int | str | None, str | int | None]] = {  # content, then code, row and value
    "empty": (b"", "missing-value", None, None),
    "gzip": (gzip.compress(b"dog 1 2\n"), "wrong-format", None, None),
    "cut header": (b"12", "wrong-format", 1, None),
    "truncated word2vec": (b"3 2\na " + ROW + b"\nb " + ROW + b"\nc \0", "damaged", None, None),
    "truncated in the last row": (b"2 2\nlongword " + ROW + b"\nb " + ROW[:6] + b"\x80", "damaged", "word 2", None),
    "too many rows": (b"1 2\na " + ROW + b"\nb " + ROW, "mismatch", 1, None),
    "wrong dimension": (b"2 3\na " + ROW + b"\nlonglonglonglong " + ROW, "damaged", "word 2", None),
    "NaN in word2vec": (
        b"2 2\na " + ROW + b"\nb " + np.array([1, np.nan], "<f4").tobytes(),
        "not-a-number",
        "word 2",
        "b",
    ),
    "infinity in word2vec": (b"1 2\nb " + np.array([np.inf, 1], "<f4").tobytes(), "not-a-number", "word 1", "b"),
    "repeated word in word2vec": (b"2 2\na " + ROW + b"\na " + ROW, "duplicate", 2, "a"),
    "NaN in text": (b"dog 1 2\ncat nan 2\n", "not-a-number", 2, "nan"),
    "too large for float32": (b"dog 1 2\ncat 1e39 2\n", "not-a-number", 2, "1e39"),
    "letters in text": (b"dog 1 2\ncat x 2\n", "not-a-number", 2, "x"),
    "too few numbers": (b"dog 1 2 3\ncat 1 2\n", "wrong-shape", 2, 2),
    "too many numbers": (b"dog 1 2\ncat 1 2 3\n", "wrong-shape", 2, None),
    "empty row": (b"dog 1 2\n\ncat 1 2\n", "missing-value", 2, None),
    "repeated word in text": (b"dog 1 2\ndog 1 2\n", "duplicate", 2, "dog"),
    "header counts wrongly": (b"3 2\ndog 1 2\ncat 1 2\n", "mismatch", 1, 3),
    "header alone": (b"3 2\n", "mismatch", 1, 3),
    "pickle of something else": (pickle.dumps({"a": 1}), "wrong-type", None, "dict"),
    "dangerous pickle": (pickle.dumps(print), "unsafe", None, None),
    "truncated pickle": (pickle.dumps({"a": 1})[:8], "damaged", None, None),
}


@pytest.mark.parametrize("kind", BAD_BYTES)
def test_a_bad_file_gives_one_line(kind: str, tmp_path: Path) -> None:
    data, code, row, value = BAD_BYTES[kind]
    path = tmp_path / "vectors"
    path.write_bytes(data)
    with raises(DataError, code, path=path, row=row, value=value) as caught:
        WordVectors(path)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with raises(MissingFileError, "missing-file", path=tmp_path / "none.bin"):
        WordVectors(tmp_path / "none.bin")
    with raises(DataError, "wrong-format", path=tmp_path):
        WordVectors(tmp_path)
    (tmp_path / "v").write_bytes(b"dog 1 2\n")
    with raises(UsageError, "unknown-name", value="fasttext"):
        WordVectors(tmp_path / "v", kind="fasttext")


def test_keyed_vectors_without_their_second_file_are_rejected(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    path = _keyed(tmp_path / "v.kv", matrix, sep_limit=1)
    (tmp_path / "v.kv.vectors.npy").unlink()
    with raises(MissingFileError, "missing-file", path=tmp_path / "v.kv.vectors.npy"):
        WordVectors(path)


def test_a_whole_gensim_model_is_rejected_with_a_hint(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    model = models.Word2Vec([["a", "b"]], vector_size=2, min_count=1, workers=1)
    model.save(str(tmp_path / "m.model"))
    with raises(DataError, "unsafe", path=tmp_path / "m.model") as caught:
        WordVectors(tmp_path / "m.model")
    assert "model.wv.save()" in str(caught.value.hint)


def test_nan_in_keyed_vectors_is_found(tmp_path: Path, matrix: NDArray[np.float32]) -> None:
    matrix[3, 2] = np.nan
    with raises(DataError, "not-a-number", row="word 4", value="."):
        WordVectors(_keyed(tmp_path / "v.kv", matrix))


@pytest.mark.parametrize(
    ("words", "shape", "code", "value"),
    [
        (["a"], (2, 3), "mismatch", None),
        (["a b"], (1, 3), "wrong-value", "a b"),
        ([""], (1, 3), "wrong-value", ""),
        ([], (0, 3), "mismatch", None),
    ],
)
def test_what_cannot_be_read_back_is_not_written(
    words: list[str], shape: tuple[int, int], code: str, value: str | None, tmp_path: Path
) -> None:
    with raises(DataError, code, path=tmp_path / "v.bin", value=value):
        write_word2vec(tmp_path / "v.bin", words, np.zeros(shape, np.float32))
    assert not (tmp_path / "v.bin").exists()
