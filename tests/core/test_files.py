"""Files that are written, and arrays that others published."""

from __future__ import annotations

import collections
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core import files
from capbench.core.errors import DataError, StudyError
from capbench.core.files import csv_text
from capbench.core.pickles import load_npy, load_npz, load_pickle
from capbench.core.yaml import parse_value, read_yaml
from tests.errors import raises


def test_records_of_scalars_stand_on_one_line(tmp_path: Path) -> None:
    content = {
        "a": 1,
        "é": [],
        "rows": [{"x": 0.1, "y": None}, {"x": 1e-9, "y": "b\n"}],
        "values": [1, 2],
        "deep": {"k": {}},
    }
    path = tmp_path / "results.json"
    files.write_json(path, content)
    assert json.loads(path.read_text(encoding="utf-8")) == content
    assert path.read_text(encoding="utf-8").splitlines()[3:6] == [
        ' "rows": [',
        '  {"x": 0.1, "y": null},',
        '  {"x": 1e-09, "y": "b\\n"}',
    ]
    with pytest.raises(ValueError):
        files.json_text([math.nan])
    with raises(DataError, "duplicate", value="a"):
        files.parse_json('{"b": 1, "a": 2, "a": 3}', path, unique_keys=True)


ROWS = [
    {"title": "=1+1", "value": -0.25, "note": None},
    {"title": "-BLEU", "value": 1.5},
    {"title": 'a "dog", running', "value": 0.1 + 0.2, "note": "\tx"},
]


def test_csv_has_all_digits_and_quotes_texts() -> None:
    plain = 'title,value,note\n=1+1,-0.25,\n-BLEU,1.5,\n"a ""dog"", running",0.30000000000000004,\tx\n'
    assert csv_text(["title", "value", "note"], ROWS) == plain


class Bomb:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> Any:
        return self._call


@pytest.mark.parametrize("protocol", range(6))
def test_arrays_and_containers_come_back_as_they_were(protocol: int) -> None:
    features = np.arange(12, dtype=np.float32).reshape(3, 4)
    value: dict[str, Any] = {
        "features": features,
        "fortran": np.asfortranarray(features),
        "big-endian": features.astype(">f4"),
        "names": np.array(["a", "bc"]),
        "flags": np.array([True, False]),
        "scalar": np.float64(0.5),
        "ordered": collections.OrderedDict(b=1, a=[2, (3, "x", None, 1.5, True)]),
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "objects": np.array([features, "text"], dtype=object),
    }
    data = pickle.dumps(value, protocol=protocol)
    found, plain = load_pickle(data), pickle.loads(data)
    assert list(found) == list(value)
    for key in ("features", "fortran", "big-endian", "names", "flags"):
        assert found[key].dtype == plain[key].dtype
        np.testing.assert_array_equal(found[key], value[key])
    assert {key: found[key] for key in ("scalar", "ordered", "set", "bytes")} == {
        key: value[key] for key in ("scalar", "ordered", "set", "bytes")
    }
    np.testing.assert_array_equal(found["objects"][0], features)


def test_python_2_pickles_are_read_as_latin_1() -> None:
    # {"s": "\xe9", "a": numpy.array([1., 2.], "<f4")} as Python 2 wrote it with protocol 2.
    old = (
        b"\x80\x02}q\x00(U\x01sq\x01U\x01\xe9q\x02U\x01aq\x03cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\n"
        b"q\x05K\x00\x85q\x06U\x01bq\x07\x87q\x08Rq\t(K\x01K\x02\x85q\ncnumpy\ndtype\nq\x0bU\x02f4q\x0cK\x00K\x01\x87q\r"
        b"Rq\x0e(K\x03U\x01<q\x0fNNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x10b\x89U\x08\x00\x00\x80?\x00\x00\x00@q\x11"
        b"tq\x12bu."
    )
    found = load_pickle(old)
    assert found["s"] == "é"
    assert found["a"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("bomb", "named"),
    [(Bomb(os.system, "touch fallen"), "posix.system"), (Bomb(eval, "open('fallen', 'w')"), "builtins.eval")],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_bomb_is_rejected_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bomb: Bomb, named: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bomb.pkl"
    path.write_bytes(pickle.dumps({"features": bomb}, protocol=protocol))
    with raises(DataError, "unsafe", path=path) as caught:
        load_pickle(path)
    assert named in str(caught.value.value).replace("__builtin__", "builtins")
    assert not (tmp_path / "fallen").exists()


def test_npy_of_numbers_and_of_objects(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    np.testing.assert_array_equal(load_npy(tmp_path / "numbers.npy"), np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "info.npy", np.array({"features": np.ones(3)}, dtype=object), allow_pickle=True)
    assert load_npy(tmp_path / "info.npy")["features"].tolist() == [1.0, 1.0, 1.0]
    np.savez(tmp_path / "numbers.npz", x=np.arange(3), y=np.float64(2))
    arrays = load_npz(tmp_path / "numbers.npz")
    assert {name: array.tolist() for name, array in arrays.items()} == {"x": [0, 1, 2], "y": 2.0}
    np.savez(tmp_path / "both.npz", x=np.arange(3), info=np.array({"a": 1}, dtype=object))
    with raises(DataError, "wrong-format", path=tmp_path / "both.npz"):
        load_npz(tmp_path / "both.npz")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 0.0005),
        ("-2.e1", -20.0),
        ("12", 12),
        ("1e", "1e"),
        ("e5", "e5"),
        ("2024-01-31", "2024-01-31"),
        ('"a \\\\ b \\" ü"', 'a \\ b " ü'),
    ],
)
def test_values_are_what_they_look_like(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "code", "row"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate", 3),
        ("a:\n\tb: 1\n", "wrong-format", 2),
        ("a: 1\n---\na: 2\n", "wrong-format", 2),
        ("a: !!python/object/apply:os.getcwd []\n", "wrong-format", 1),
        ("a: !!bool z\n", "wrong-format", None),
        ("", "wrong-type", None),
    ],
)
def test_ambiguous_or_invalid_settings_are_rejected_with_their_row(
    tmp_path: Path, text: str, code: str, row: int | None
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with raises(StudyError, code, path=path, row=row):
        read_yaml(path, "a study (a mapping)")
