from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from capbench.core.errors import UsageError
from capbench.core.options import Choice, Count, File, Flag, Number, Options, Positive, Text, option
from tests.errors import raises


@dataclass(frozen=True)
class Sample(Options):
    sigma: float = option(6.0, Positive(), "width")
    df: str = option("items", Text("coco-val"), "documents")
    norm: str | None = option(None, Choice("l2", "clip"), "norm")
    minmax: bool = option(True, Flag(("no", "yes")), "mapping", recombines=True)
    vectors: str | None = option(None, File("word vectors"), "vectors", quiet=True)
    layer: int = option(6, Count(1, 6), "layer", sign_as="")
    level: float = option(0.95, Number(0, 0.99), "level", sign_as="cover")
    bias: float = option(0.0, Number(-1, 1), "bias")


def test_defaults_stand_and_values_are_read() -> None:
    options = Sample.read("toy", {"sigma": 5, "layer": 2, "norm": None})
    assert (options.sigma, options.df, options.norm, options.layer) == (5.0, "items", None, 2)
    assert isinstance(options.sigma, float)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sigma", True),
        ("sigma", 1e308),
        ("sigma", float("nan")),
        ("df", ""),
        ("norm", "clp"),
        ("minmax", "yes"),
        ("vectors", 3),
        ("layer", 7),
        ("layer", 2.0),
        ("level", 1),
        ("bias", 2),
    ],
)
def test_an_invalid_value_is_rejected(name: str, value: object) -> None:
    with raises(UsageError, "wrong-value") as caught:
        Sample.read("toy", {name: value})
    assert caught.value.value is value
    assert caught.value.message.startswith(f"toy.{name}=")


def test_a_signature_says_every_option_that_is_declared_to(tmp_path: Path) -> None:
    signed = {"sigma": "6", "df": "items", "norm": "none", "minmax": "yes", "cover": "0.95", "bias": "0"}
    assert Sample().signature_parts() == signed
    assert "minmax" not in Sample(minmax=False).signature_parts(recombining=False)
    vectors = tmp_path / "v.bin"
    vectors.write_bytes(b"abc")
    assert Sample(vectors=str(vectors)).signature_parts()["vectors"] == "ba7816bf8f01cfea"
