"""A plain function as a metric: what it is given, how it is signed and cached, and what is said when it fails."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import capbench as cb
from capbench.core.errors import MetricError, UsageError
from capbench.metrics.from_function import metric_of_function
from capbench.metrics.score_cache import may_be_cached
from capbench.metrics.signing import function_signature
from tests.errors import raises

MODULE = '''
import re

import tally

FACTOR = 1
SPACES = re.compile(" +")


def length(text):
    return FACTOR * len(SPACES.split(text))


def words(image, candidate, references):
    """How many words."""
    tally.CALLS.append(image)
    return length(candidate)


shortest = lambda image, candidate, references: min(map(len, references))  # noqa: E731


def made(factor):
    def scaled(image, candidate, references):
        return factor * len(candidate)

    return scaled


NETWORK = object()


def judged(image, candidate, references):
    return float(NETWORK is not None)


def with_default(image, candidate, references, network=NETWORK):
    return 1.0


class Judge:
    def method(self, image, candidate, references):
        return 1.0

    def __call__(self, image, candidate, references):
        return 2.0
'''
CANDIDATES, REFERENCES = ["a dog", "a cat sleeps"], [["a dog runs"], ["a cat", "the cat sleeps"]]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "own_metrics.py").write_text(MODULE, encoding="utf-8")
    # Where packages are installed, so that what it holds is in no signature.
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "tally.py").write_text("CALLS = []\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    importlib.invalidate_caches()
    yield importlib.import_module("own_metrics")
    del sys.modules["own_metrics"], sys.modules["tally"]


def test_it_gets_image_candidate_and_references() -> None:
    seen: list[tuple[Any, ...]] = []

    def noted(image: cb.Image, candidate: str, references: tuple[str, ...]) -> int:
        seen.append((image.id, candidate, references))
        return len(seen)

    table = cb.score({"x.jpg": "a dog"}, {"x": ["one", "two"]}, noted)
    assert seen == [("x", "a dog", ("one", "two"))]
    assert table["noted"].tolist() == [1.0]
    assert table["noted"].dtype == np.float64


def test_with_one_argument_it_gets_lists_of_items() -> None:
    def together(items: list[cb.Item]) -> np.ndarray[Any, Any]:
        assert all(isinstance(item, cb.Item) for item in items)
        return np.array([len(item.candidate) / len(items[0].references) for item in items])

    table = cb.score(CANDIDATES, REFERENCES, ["bleu-1", together])
    assert table["together"].tolist() == [5.0, 12.0]
    assert table.signatures["together"].endswith(".together@unsigned")


@pytest.mark.parametrize("value", [2, 2.0, True, np.float32(2.0), np.int64(2), np.array(2.0)])
def test_any_number_is_a_score(value: Any) -> None:
    table = cb.score(CANDIDATES, REFERENCES, {"it": lambda image, candidate, references: value})
    assert table["it"].tolist() == [float(value)] * 2


@pytest.mark.parametrize(
    "value",
    ["0.5", None, np.array([1.0, 2.0]), 1j, np.array("0.5"), 10**400, float("nan"), np.float32("inf")],
)
def test_a_value_that_is_not_a_finite_number_is_an_error_with_the_item(value: Any) -> None:
    def odd(image: str, candidate: str, references: tuple[str, ...]) -> Any:
        return 1.0 if candidate == "a dog" else value

    with raises(MetricError, "not-a-number") as caught:
        cb.score(CANDIDATES, REFERENCES, odd)
    assert "the function odd" in str(caught.value)
    assert "'line-2' of image 'line-2' ('a cat sleeps')" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_it_raises_is_told_with_the_item() -> None:
    def broken(image: str, candidate: str, references: tuple[str, ...]) -> float:
        return {"a dog": 1.0}[candidate]

    with raises(cb.CapbenchError, "tool-failed", value="broken") as caught:
        cb.score(CANDIDATES, REFERENCES, broken)
    assert "KeyError: 'a cat sleeps'" in caught.value.message
    assert "'line-2'" in caught.value.message
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(cb.CapbenchError, match=r"broken.*KeyError"):
        cb.correlate("flickr8k-expert", ["bleu-1", broken])


@pytest.mark.parametrize(("returned", "code"), [([1.0], "wrong-shape"), ("ab", "wrong-shape"), (3.0, "tool-failed")])
def test_a_list_of_another_length_is_rejected(returned: Any, code: str) -> None:
    def together(items: list[cb.Item]) -> Any:
        return returned

    with raises(MetricError, code, value="together"):
        cb.score(CANDIDATES, REFERENCES, together)


def test_parameters_with_other_names_keep_their_defaults() -> None:
    def batched(items: list[cb.Item], size: int = 2, device: str = "cpu") -> list[float]:
        return [float(size)] * len(items)

    def weighted(image: cb.Image, candidate: str, references: tuple[str, ...], weight: float = 3.0) -> float:
        return weight

    table = cb.score(CANDIDATES, REFERENCES, [batched, weighted])
    assert [float(table[name][1]) for name in ("batched", "weighted")] == [2.0, 3.0]


def _form(parameters: str, value: str = "1.0") -> Any:
    namespace: dict[str, Any] = {}
    exec(f"def made({parameters}):\n    return {value}\n", namespace)
    return namespace["made"]


@pytest.mark.parametrize(
    ("parameters", "value", "expected"),
    [
        ("candidate", "len(candidate)", [10.0, 12.0]),
        ("references, candidate", "len(references) + len(candidate) / 100", [2.1, 1.12]),
        ("image, candidate", "len(image.id) + 10 * (image.path is None)", None),
        ("image, candidate, *, references", "len(references)", [2.0, 1.0]),
        ("candidates", "[len(c) for c in candidates]", [10.0, 12.0]),
        ("candidates, references", "[len(r) + len(c) / 100 for c, r in zip(candidates, references)]", [2.1, 1.12]),
        ("images, candidates, batch_size=1", "[len(images)] * len(candidates)", [1.0, 1.0]),
        ("images, candidates, references", "[len(images)] * len(references)", [2.0, 2.0]),
        ("items, device=None", "[device == 'cpu' or device == 'cuda'] * len(items)", [1.0, 1.0]),
    ],
)
def test_names_of_parameters_decide_the_call(parameters: str, value: str, expected: list[float] | None) -> None:
    candidates, references = {"a": "a dog runs", "b": "two men talk"}, {"a": ["x", "y"], "b": ["z"]}
    scores = cb.score(candidates, references, {"made": _form(parameters, value)})["made"].tolist()
    assert scores == (expected or [11.0, 11.0])


@pytest.mark.parametrize(
    "parameters",
    ["*given", "candidate, *more", "candidate, **more", "i, c, r", "image", "references", "candidate, images", "",
     "candidate, reference, references", "candidates, reference", "candidate, weight", "items, candidates"],
)  # fmt: skip
def test_other_parameters_are_rejected_without_a_call(parameters: str) -> None:
    with raises(UsageError, "wrong-type", value="made"):
        cb.score(CANDIDATES, REFERENCES, {"made": _form(parameters, "1 / 0")})


def test_one_reference_is_one_reference() -> None:
    assert cb.score(["a"], [["bc"]], {"made": _form("candidate, reference", "len(reference)")})["made"].tolist() == [
        2.0
    ]
    with raises(MetricError, "wrong-shape", value=2):
        cb.score(["a"], [["b", "c"]], {"made": _form("candidate, reference")})


def test_functions_without_references_score_captions_without_references() -> None:
    made = {
        "made": _form("image, candidate", "len(candidate)"),
        "lengths": _form("candidates", "list(map(len, candidates))"),
    }
    table = cb.score({"a": "a dog", "b": "men"}, None, made)
    assert table["made"].tolist() == table["lengths"].tolist() == [5.0, 3.0]
    result = cb.correlate("flickr8k-expert", data="sample", metrics=made)
    assert result.value("made") == pytest.approx(result.value("lengths"))


def test_a_function_opens_the_picture_and_reads_the_features(tmp_path: Path) -> None:
    from PIL import Image

    from tests.cli.test_features import store

    def width(image: cb.Image, candidate: str) -> float:
        assert image.path is not None
        with Image.open(image.path) as picture:
            return float(picture.width)

    def regions(image: cb.Image, candidate: str) -> int:
        assert image.features is not None
        return len(image.features.features)

    features = store(str(tmp_path / "features.h5"))
    with cb.open_store(features) as opened:
        expected = len(opened["a"].features)
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (31, 7)).save(tmp_path / "pictures" / "a.png")
    table = cb.score({"a": "a dog"}, None, [width, regions], images=tmp_path / "pictures", features=features)
    assert (table["width"].tolist(), table["regions"].tolist()) == ([31.0], [float(expected)])


def test_a_picture_that_changed_is_scored_again(tmp_path: Path) -> None:
    from PIL import Image

    def width(image: cb.Image, candidate: str) -> float:
        assert image.path is not None
        with Image.open(image.path) as picture:
            return float(picture.width)

    for size in (5, 6):
        Image.new("RGB", (size, 7)).save(tmp_path / "a.png")
        assert cb.score({"a": "a dog"}, None, width, images=tmp_path, version="1")["width"].tolist() == [float(size)]


def test_names() -> None:
    def cider(image: str, candidate: str, references: tuple[str, ...]) -> float:
        return 1.0

    with raises(UsageError, "duplicate", value="cider"):
        cb.score(CANDIDATES, REFERENCES, cider)
    named: dict[str, Any] = {"mine": cider, "bleu-1": "bleu-1", "other": lambda image, candidate, references: 2.0}
    table = cb.score(CANDIDATES, REFERENCES, named)
    assert [row.name for row in table.rows] == ["mine", "bleu-1", "other"]
    lambdas = cb.score(
        CANDIDATES, REFERENCES, [lambda image, candidate, references: 1.0, lambda image, candidate, references: 2.0]
    )
    assert [(row.name, float(lambdas[row.name][0])) for row in lambdas.rows] == [("lambda", 1.0), ("lambda-2", 2.0)]

    def twins() -> list[Callable[..., float]]:
        def twin(image: str, candidate: str, references: tuple[str, ...]) -> float:
            return 1.0

        return [twin]

    with raises(UsageError, "duplicate", value="twin"):
        cb.score(CANDIDATES, REFERENCES, twins() + twins())
    assert len(cb.score(CANDIDATES, REFERENCES, twins() * 2).rows) == 1


def test_a_function_of_a_module_is_signed_by_its_source_and_cached(module: ModuleType) -> None:
    first = cb.score(CANDIDATES, REFERENCES, module.words)
    (signature,) = first.signatures.values()
    name, digest = signature.split("@")
    assert name == "function:own_metrics.words"
    assert len(bytes.fromhex(digest)) == 8
    assert len(module.tally.CALLS) == 2
    again = cb.score(CANDIDATES, REFERENCES, module.words)
    assert len(module.tally.CALLS) == 2
    assert again["words"].tolist() == first["words"].tolist() == [2.0, 3.0]
    assert again.cached["words"] == 2
    cb.score(CANDIDATES, REFERENCES, module.words, cache=False)
    assert len(module.tally.CALLS) == 4


def test_a_changed_source_is_another_metric(module: ModuleType, tmp_path: Path) -> None:
    before = cb.score(CANDIDATES, REFERENCES, module.words)
    changed = MODULE.replace("FACTOR * len", "FACTOR * 10 * len")
    (tmp_path / "own_metrics.py").write_text(changed, encoding="utf-8")
    # The file no longer says what this process runs, so nothing may be kept under its name.
    assert function_signature(module.words) is None
    stale = cb.score(CANDIDATES, REFERENCES, module.words)
    assert stale.signatures["words"] == "function:own_metrics.words@unsigned"
    fresh = importlib.reload(module)
    after = cb.score(CANDIDATES, REFERENCES, fresh.words)
    assert after["words"].tolist() == [20.0, 30.0]
    assert before.signatures["words"] != after.signatures["words"] != stale.signatures["words"]


def test_a_changed_value_of_its_module_is_another_metric(module: ModuleType) -> None:
    before = cb.score(CANDIDATES, REFERENCES, module.words)
    module.__dict__["FACTOR"] = 7
    after = cb.score(CANDIDATES, REFERENCES, module.words)
    assert (before["words"].tolist(), after["words"].tolist()) == ([2.0, 3.0], [14.0, 21.0])
    assert before.signatures["words"] != after.signatures["words"]
    module.__dict__["FACTOR"] = [{"a", "b"}, {"x": (1.5, None)}]
    assert function_signature(module.words) is not None
    module.__dict__["FACTOR"] = [object()]
    assert function_signature(module.words) is None


SWEPT = """
import functools
import own_settings
from own_settings import Config, scale

SETTINGS = {"threshold": 1.0}


class Inner:
    threshold = 1.0


def helper(text):
    return 1.0


def other(text):
    return 2.0


class Base:
    factor = 1.0

    @classmethod
    def scaled(cls, text):
        return cls.factor

    @staticmethod
    def doubled(text):
        return 1.0


class Derived(Base):
    pass


def by_class(image, candidate, references):
    return Inner.threshold


def by_imported_class(image, candidate, references):
    return Config.threshold


def by_nested_class(image, candidate, references):
    return Config.Nested.threshold


def by_base_class(image, candidate, references):
    return Derived.scaled(candidate)


def by_static_method(image, candidate, references):
    return Derived().doubled(candidate)


def by_module(image, candidate, references):
    return own_settings.THRESHOLD


def by_class_of_module(image, candidate, references):
    return own_settings.Config.threshold


def by_import_inside(image, candidate, references):
    from own_settings import THRESHOLD

    return THRESHOLD


def by_helper(image, candidate, references):
    return helper(candidate)


def by_helper_of_module(image, candidate, references):
    return own_settings.scale(candidate)


def by_imported_helper(image, candidate, references):
    return scale(candidate)


def by_attribute(image, candidate, references):
    return by_attribute.threshold


def by_globals(image, candidate, references):
    return globals()["SETTINGS"]["threshold"]


def by_getattr(image, candidate, references):
    return getattr(Config, "thres" + "hold")


def by_vars(image, candidate, references):
    return vars(own_settings)["THRESHOLD"]


def by_dict(image, candidate, references):
    return own_settings.__dict__["THRESHOLD"]


def by_inner_function(image, candidate, references):
    return max(Config.threshold for _ in range(2))


def by_bound_method(image, candidate, references):
    return GET("threshold")


GET = SETTINGS.get


def by_environment(image, candidate, references):
    import os

    return float(os.environ["OWN_THRESHOLD"])


def by_class_of_default(image, candidate, references, config=Config):
    return config.threshold


def by_handed_module(image, candidate, references):
    return of_module(own_settings)


def of_module(settings):
    return settings.THRESHOLD
"""
SETTINGS = """
THRESHOLD = 1.0


class Config:
    threshold = 1.0

    class Nested:
        threshold = 1.0


def scale(text):
    return 1.0


def other(text):
    return 2.0
"""
Setter = Callable[[ModuleType, ModuleType, float], object]


def _replaced(name: str) -> Setter:
    def put(swept: ModuleType, settings: ModuleType, value: float) -> None:
        module = settings if name == "scale" else swept
        chosen = module.other if value == 2.0 else SWEPT_HELPERS[name]
        for place in (swept, settings):
            if hasattr(place, name):
                setattr(place, name, chosen)

    return put


SWEPT_HELPERS: dict[str, Callable[..., float]] = {}
SWEEPS: dict[str, tuple[Setter, bool]] = {
    "by_class": (lambda swept, settings, value: setattr(swept.Inner, "threshold", value), True),
    "by_imported_class": (lambda swept, settings, value: setattr(settings.Config, "threshold", value), True),
    "by_nested_class": (lambda swept, settings, value: setattr(settings.Config.Nested, "threshold", value), True),
    "by_base_class": (lambda swept, settings, value: setattr(swept.Base, "factor", value), True),
    "by_static_method": (
        lambda swept, settings, value: setattr(
            swept.Base, "doubled", staticmethod(swept.other if value == 2.0 else swept.helper)
        ),
        True,
    ),
    "by_module": (lambda swept, settings, value: setattr(settings, "THRESHOLD", value), True),
    "by_class_of_module": (lambda swept, settings, value: setattr(settings.Config, "threshold", value), True),
    "by_import_inside": (lambda swept, settings, value: setattr(settings, "THRESHOLD", value), True),
    "by_helper": (_replaced("helper"), True),
    "by_helper_of_module": (_replaced("scale"), True),
    "by_imported_helper": (_replaced("scale"), True),
    "by_attribute": (lambda swept, settings, value: setattr(swept.by_attribute, "threshold", value), True),
    "by_globals": (lambda swept, settings, value: swept.SETTINGS.update(threshold=value), False),
    "by_getattr": (lambda swept, settings, value: setattr(settings.Config, "threshold", value), False),
    "by_vars": (lambda swept, settings, value: setattr(settings, "THRESHOLD", value), False),
    "by_dict": (lambda swept, settings, value: setattr(settings, "THRESHOLD", value), False),
    "by_inner_function": (lambda swept, settings, value: setattr(settings.Config, "threshold", value), True),
    "by_bound_method": (lambda swept, settings, value: swept.SETTINGS.update(threshold=value), False),
    "by_environment": (lambda swept, settings, value: os.environ.update(OWN_THRESHOLD=str(value)), False),
    "by_class_of_default": (lambda swept, settings, value: setattr(settings.Config, "threshold", value), True),
    "by_handed_module": (lambda swept, settings, value: setattr(settings, "THRESHOLD", value), True),
}


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    (tmp_path / "own_swept.py").write_text(SWEPT, encoding="utf-8")
    (tmp_path / "own_settings.py").write_text(SETTINGS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OWN_THRESHOLD", "1.0")
    importlib.invalidate_caches()
    modules = importlib.import_module("own_swept"), importlib.import_module("own_settings")
    SWEPT_HELPERS.update(helper=modules[0].helper, scale=modules[1].scale)
    yield modules
    del sys.modules["own_swept"], sys.modules["own_settings"]


@pytest.mark.parametrize("name", list(SWEEPS))
def test_a_sweep_gives_every_setting_its_own_scores(name: str, swept: tuple[ModuleType, ModuleType]) -> None:
    put, signed = SWEEPS[name]
    signatures = []
    for value in (1.0, 2.0):
        put(*swept, value)
        table = cb.score(CANDIDATES, REFERENCES, getattr(swept[0], name))
        assert table[name].tolist() == [value, value]
        signatures.append(table.signatures[name])
    put(*swept, 1.0)
    again = cb.score(CANDIDATES, REFERENCES, getattr(swept[0], name))
    assert again[name].tolist() == [1.0, 1.0]
    # What is signed finds its scores again; what cannot be signed says so and is scored anew.
    assert again.cached[name] == (2 if signed else 0)
    assert (signatures[0] == signatures[1]) is not signed
    assert signatures[0].endswith("@unsigned") is not signed


UNSIGNED = {
    "sets a global": "def f(image, candidate, references):\n    global N\n    N = 2\n    return N\nN = 1\n",
    "sets its own attribute": "def f(image, candidate, references):\n    f.n = 1\n    return 1.0\n",
    "memoises": "import functools\n@functools.lru_cache\ndef g(c):\n    return 1\ndef f(candidate):\n    return g(0)\n",
    "an enumeration": "import enum\nclass E(enum.Enum):\n    A = 1\ndef f(candidate):\n    return E.A.value\n",
    "evaluates text": "def f(image, candidate, references):\n    return eval('1.0')\n",
    "a list that holds itself": "L = []\nL.append(L)\ndef f(image, candidate, references):\n    return float(len(L))\n",
    "a closure": "def m(n):\n    return lambda: n\ng = m(1.0)\ndef f(image, candidate, references):\n    return g()\n",
    "a wrapped attribute": "def f(image, candidate, references):\n    return 1.0\nf.network = object()\n",
    "a name that is not there": "def f(candidate):\n    return LATER if candidate is None else 1.0\n",
}


@pytest.mark.parametrize("what", list(UNSIGNED))
def test_what_cannot_be_told_completely_is_unsigned(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_unsigned.py").write_text(UNSIGNED[what], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    function = importlib.import_module("own_unsigned").f
    try:
        assert function_signature(function) is None
        assert metric_of_function(function)().signature() == "function:own_unsigned.f@unsigned"
    finally:
        del sys.modules["own_unsigned"]


def test_a_stated_version_caches_what_cannot_be_signed(module: ModuleType) -> None:
    calls: list[str] = []

    def counted(image: str, candidate: str, references: tuple[str, ...]) -> float:
        calls.append(image)
        return float(len(calls))

    first = cb.score(CANDIDATES, REFERENCES, counted, version="1")
    again = cb.score(CANDIDATES, REFERENCES, counted, version="1")
    assert (first["counted"].tolist(), again["counted"].tolist(), again.cached["counted"]) == ([1, 2], [1, 2], 2)
    assert ".counted,counted@version:1+" in first.signatures["counted"]
    assert cb.score(CANDIDATES, REFERENCES, counted, version="2")["counted"].tolist() == [3, 4]
    # Two functions of one code in one call are told apart by their labels, and each may have a version of its own.
    twins = {"a": module.made(2.0), "b": module.made(3.0)}
    for _ in range(2):
        table = cb.score(CANDIDATES, REFERENCES, twins, version={"a": "1", "b": "1"})
        assert (table["a"].tolist(), table["b"].tolist()) == ([10, 24], [15, 36])
    assert table.cached == {"a": 2, "b": 2}
    assert cb.score(CANDIDATES, REFERENCES, twins, version={"a": "1"}).cached == {"a": 2, "b": 0}
    # Other code under the same version is another metric.
    other = cb.score(CANDIDATES, REFERENCES, {"counted": lambda image, candidate, references: 9.0}, version="1")
    assert other["counted"].tolist() == [9.0, 9.0]


@pytest.mark.parametrize(
    ("metrics", "version", "code", "value"),
    [
        ("cider", "1", "conflict", None),
        ({"mine": lambda image, candidate, references: 1.0}, {"min": "1"}, "unknown-name", "min"),
        (lambda image, candidate, references: 1.0, 2, "wrong-type", 2),
        (lambda image, candidate, references: 1.0, "a|b", "wrong-format", "a|b"),
        (lambda image, candidate, references: 1.0, {"lambda": ""}, "wrong-format", ""),
    ],
)
def test_a_version_that_fits_nothing_is_refused(metrics: Any, version: Any, code: str, value: Any) -> None:
    with raises(UsageError, code, value=value):
        cb.score(CANDIDATES, REFERENCES, metrics, version=version)


def test_what_has_no_source_of_its_own_is_never_cached(module: ModuleType) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def typed(image, candidate, references):\n    return 1.0\n", namespace)
    for function in (
        module.shortest,
        module.made(2.0),
        module.Judge().method,
        module.Judge(),
        module.judged,
        module.with_default,
        functools.partial(module.words),
        namespace["typed"],
        len,
    ):
        assert function_signature(function) is None
    for label, function in (("made", module.made(2.0)), ("judge", module.Judge()), ("typed", namespace["typed"])):
        assert not may_be_cached(metric_of_function(function, label)())
    first = cb.score(CANDIDATES, REFERENCES, module.made(2.0))
    second = cb.score(CANDIDATES, REFERENCES, module.made(3.0))
    assert first["scaled"].tolist() == [10.0, 24.0]
    assert second["scaled"].tolist() == [15.0, 36.0]
    assert second.cached["scaled"] == 0


def test_it_agrees_with_people_as_the_same_numbers_of_a_class_do(module: ModuleType) -> None:
    class Words(cb.Metric):
        name = "words-class"
        columns = ("words-class",)
        titles = {"words-class": "Words"}  # noqa: RUF012
        citation = "a test"
        keeps_statistics = False

        def statistics(self, items: Any, progress: Any) -> Any:
            return np.array([[float(len(item.candidate.split()))] for item in items])

    result = cb.correlate("flickr8k-expert", [module.words, Words, "bleu-1"], bootstrap=100)
    assert list(result.columns) == ["words", "words-class", "bleu-1"]
    cells = {cell.column: cell for cell in result.cells}
    assert cells["words"].value == cells["words-class"].value
    assert (cells["words"].low, cells["words"].high) == (cells["words-class"].low, cells["words-class"].high)
    labelled = cb.score(CANDIDATES, REFERENCES, {"mine": Words})
    assert labelled["mine"].tolist() == [2.0, 3.0]
