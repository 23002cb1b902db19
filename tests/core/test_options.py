from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from capbench.core.errors import UsageError
from capbench.core.options import Choice, Count, File, Flag, Number, Options, Positive, Share, Text, option


@dataclass(frozen=True)
class Sample(Options):
    sigma: float = option(6.0, Positive(), "width")
    df: str = option("items", Text("coco-val"), "documents")
    norm: str | None = option(None, Choice("l2", "clip"), "norm")
    minmax: bool = option(True, Flag(("no", "yes")), "mapping", recombines=True)
    vectors: str | None = option(None, File("word vectors"), "vectors", quiet=True)
    layer: int = option(6, Count(1, 6), "layer", sign_as="")
    level: float = option(0.95, Share(), "level", sign_as="cover")
    bias: float = option(0.0, Number(-1, 1), "bias")


def test_defaults_stand_and_values_are_read() -> None:
    options = Sample.read("toy", {"sigma": 5, "layer": 2, "norm": None})
    assert (options.sigma, options.df, options.norm, options.layer) == (5.0, "items", None, 2)
    assert isinstance(options.sigma, float)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sigma", -1, "toy.sigma=-1: not a number above 0"),
        ("sigma", True, "toy.sigma=true: not a number above 0"),
        ("sigma", 1e308, "toy.sigma=1e\\+308: not a number above 0"),
        ("sigma", 10**400, "toy.sigma=1000"),
        ("sigma", float("nan"), "toy.sigma=nan"),
        ("df", "", "toy.df=: not a text such as coco-val"),
        ("df", None, "toy.df=None"),
        ("norm", "clp", "toy.norm=clp: not one of l2, clip. Did you mean 'clip'"),
        ("minmax", "yes", "toy.minmax=yes: not true or false. Write true or false"),
        ("vectors", 3, "toy.vectors=3: not a file of word vectors"),
        ("layer", 7, "toy.layer=7: not a whole number from 1 to 6"),
        ("layer", 2.0, "toy.layer=2.0: not a whole number"),
        ("level", 1, "toy.level=1: not a number between 0 and 1"),
        ("bias", 2, "toy.bias=2: not a number from -1 to 1"),
        ("sgma", 1, "toy has no option 'sgma'. Did you mean 'sigma'"),
    ],
)
def test_a_value_that_does_not_fit_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sample.read("toy", {name: value})


def test_a_signature_says_every_option_that_is_declared_to(tmp_path: Path) -> None:
    assert Sample().signature_parts() == {
        "sigma": "6",
        "df": "items",
        "norm": "none",
        "minmax": "yes",
        "cover": "0.95",
        "bias": "0",
    }
    assert "minmax" not in Sample(minmax=False).signature_parts(recombining=False)
    vectors = tmp_path / "v.bin"
    vectors.write_bytes(b"abc")
    assert Sample(vectors=str(vectors)).signature_parts()["vectors"] == "ba7816bf8f01cfea"


def test_numbers_in_a_signature_give_the_number_back() -> None:
    assert Sample(sigma=1 / 3).signature_parts()["sigma"] == "0.3333333333333333"
    assert Sample(sigma=0.1).signature_parts()["sigma"] == "0.1"


def test_help_names_values_default_and_meaning() -> None:
    lines = [declared.describe() for declared in Sample.declared()]
    assert lines[0] == "sigma: a number above 0 (default: 6); width"
    assert lines[2] == "norm: one of l2, clip (default: none); norm"
    assert lines[3] == "minmax: true or false (default: true); mapping"


def test_all_problems_can_be_collected() -> None:
    problems: list[str] = []
    checked = Sample.checked("toy", {"sigma": 0, "bias": 0.5, "x": 1}, lambda message, _: problems.append(message))
    assert checked == {"bias": 0.5}
    assert problems == ["toy.sigma=0: not a number above 0", "toy has no option 'x'"]
