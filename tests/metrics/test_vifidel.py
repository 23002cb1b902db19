from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.errors import DataError, MetricError, MissingFeaturesError, MissingFileError
from capbench.core.records import FloatArray, Item
from capbench.features.records import Fingerprint, RegionFeatures
from capbench.features.writing import StoreWriter
from capbench.metrics.needs import Resources
from capbench.metrics.vifidel import Labels, ObjectLabel, Vifidel, VifidelOptions, content_words, open_labels
from capbench.text.vocabulary import GLASGOW
from capbench.text.word_vectors import write_word2vec
from tests.errors import raises

RELEASED = json.loads((Path(__file__).parent / "vifidel_released.json").read_text())
WORDS: list[str] = RELEASED["words"]
VECTORS = np.array(RELEASED["vectors"], dtype=np.float32)
REFERENCES = ("A man walking with a dog.", "The dog is on the grass")


def _nothing(_done: int) -> None:
    pass


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    write_word2vec(tmp_path / "v.bin", WORDS, VECTORS)
    return tmp_path / "v.bin"


def labels_file(folder: Path, labels: object) -> Path:
    path = folder / "labels.json"
    path.write_text(json.dumps(labels))
    return path


def made(vectors: Path, labels: object, **options: Any) -> Vifidel:
    return Vifidel(vectors=str(vectors), labels=str(labels_file(vectors.parent, labels)), **options)


def scored(metric: Vifidel, items: Sequence[Item]) -> dict[str, FloatArray]:
    metric.prepare(items)
    return metric.scores(metric.statistics(items, _nothing))


def test_equals_what_the_released_code_gives(vectors: Path) -> None:
    cases = RELEASED["cases"]
    metric = made(vectors, {str(place): case["labels"] for place, case in enumerate(cases)})
    items = [Item(str(place), case["caption"], tuple(case["references"])) for place, case in enumerate(cases)]
    columns = scored(metric, items)
    assert len({case["distance"] for case in cases}) == 6
    assert -columns["vifidel"] == pytest.approx([case["distance"] for case in cases], abs=1e-7)
    assert -columns["vifidel-ref"] == pytest.approx([case["distance_with_references"] for case in cases], abs=1e-6)


def plain_distance(labels: list[str], caption: list[str], references: Sequence[str] = ()) -> float:
    from scipy.optimize import linear_sum_assignment

    unit = {word: row / np.linalg.norm(row) for word, row in zip(WORDS, VECTORS.astype(np.float64), strict=True)}

    def vector(word: str) -> FloatArray:
        costs = []
        for reference in references:
            cosines = [float(unit[word] @ unit[other]) for other in content_words(reference) if other in unit]
            costs.append(max(0.0, 1 - max(cosines, default=0.0)) / 2)
        return np.asarray(unit[word] * (sum(costs) / len(costs) if costs else 1.0))

    left, right = ([vector(word) for word in bag if word in unit] for bag in (labels, caption))
    cost = np.array([[np.linalg.norm(a - b) for b in right * len(left)] for a in left * len(right)])
    return float(cost[linear_sum_assignment(cost)].mean())


def test_equals_plain_code(vectors: Path) -> None:
    rng = np.random.default_rng(3)
    pool = [*WORDS, "unknown", "the"]
    labels = {f"i{n}": rng.choice(WORDS, rng.integers(1, 9)).tolist() for n in range(8)}
    items = []
    for image in labels:
        references = tuple(" ".join(rng.choice(pool, rng.integers(1, 6))) for _ in range(3))
        for _ in range(4):
            candidate = " ".join([str(rng.choice(WORDS)), *rng.choice(pool, rng.integers(0, 7))])
            items.append(Item(image, candidate, references))
    columns = scored(made(vectors, labels), items)
    for row, item in enumerate(items):
        # Single letters and stop words ("glass" of a label is none) leave both bags.
        bags = [word for name in labels[item.image] for word in content_words(name)], content_words(item.candidate)
        assert columns["vifidel"][row] == pytest.approx(-plain_distance(*bags), abs=1e-6)
        assert columns["vifidel-ref"][row] == pytest.approx(-plain_distance(*bags, item.references), abs=1e-6)


def test_what_the_release_calls_infinite_or_fails_on_has_a_value(vectors: Path) -> None:
    metric = made(vectors, {"dog": ["dog"], "none": [], "stop": ["fire"], "odd": ["zebra", "dog"]})
    captions = {
        ("dog", "A dog."): 0.0,  # the release: inf
        ("dog", "the"): -2.0,
        ("dog", "zebra"): -2.0,  # the release: KeyError
        ("none", "A dog."): -2.0,
        ("stop", "A dog."): -2.0,
        ("odd", "zebra with a dog"): 0.0,
    }
    items = [Item(image, text, REFERENCES) for image, text in captions]
    columns = scored(metric, items)
    assert columns["vifidel"].tolist() == list(captions.values())
    assert columns["vifidel-ref"].tolist() == list(captions.values())
    assert not np.signbit(columns["vifidel"][0])
    lines = metric.warnings("mine", items)
    assert lines == [
        "2 of 4 images have no label with a word vector: distance 2",
        "2 of 4 captions have no word with a word vector: distance 2",
    ]


@pytest.mark.parametrize(
    ("options", "image", "used"),
    [
        ({}, "1", "dog dog tree"),
        ({}, "2", "bus"),
        ({"repeats": "once"}, "1", "dog tree"),
        ({"threshold": 0.5}, "1", "dog dog tree"),  # a score that equals the threshold is enough
        ({"threshold": 0.51}, "1", "dog tree"),
    ],
)
def test_labels_are_kept_by_score_and_the_best_one_whatever_its_score(
    options: dict[str, Any], image: str, used: str, vectors: Path
) -> None:
    labels = {
        "1": [{"label": "dog", "score": 0.9}, {"label": "man", "score": 0.2}, {"label": "dog", "score": 0.5}, "tree"],
        "2": [{"label": "tv", "score": 0.1}, {"label": "bus", "score": 0.15}],
        "3": [],
    }
    assert made(vectors, labels, **options).used_labels(image) == used.split()


def test_content_words_are_those_of_scikit_learns_vectoriser() -> None:
    words = content_words("A man's dog_2 runs to 2 fire hydrants, Été-like.")
    assert " ".join(words) == "man dog_2 runs hydrants été like"
    # The list's SHA-256 was taken from scikit-learn 1.9.1's ENGLISH_STOP_WORDS.
    digest = hashlib.sha256(" ".join(sorted(GLASGOW)).encode()).hexdigest()
    assert digest == "e570e9b41eab43e963c44d1d8b7ad441d084fa84f1104e01c9e8b41ad43feb89"


def write_store(path: Path, class_names: tuple[str, ...] | None, images: str = "12") -> None:
    fingerprint = Fingerprint("tiny", "unknown", "none", "boxes")
    with StoreWriter(path, fingerprint, class_names=class_names) as writer:
        for image in images:
            writer.add(
                RegionFeatures(
                    image,
                    10,
                    10,
                    np.array([[0, 0, 5, 5], [1, 1, 9, 9]], dtype=np.float32),
                    np.ones((2, 3), dtype=np.float32),
                    np.array([0, 1], dtype=np.int32),
                    np.array([0.9, 0.4], dtype=np.float32),
                )
            )
        writer.finish()


def test_labels_are_a_stores_classes(vectors: Path, tmp_path: Path) -> None:
    write_store(tmp_path / "s.h5", ("dog", "tree"))
    resources = Resources(features=str(tmp_path / "s.h5"))
    items = [Item("1", "a tree and a man", REFERENCES), Item("2", "a dog", REFERENCES)]
    of_store = Vifidel(resources, vectors=str(vectors))
    of_file = made(vectors, {name: ["dog", "tree"] for name in "12"})
    assert scored(of_store, items)["vifidel-ref"].tolist() == scored(of_file, items)["vifidel-ref"].tolist()
    assert "|features:tiny+" in of_store.signature()
    assert of_store.cache_key(items[0]) != items[0].key
    with raises(MissingFeaturesError, "missing-features", path=tmp_path / "s.h5"):
        of_store.prepare([*items[:1], Item("3", "a dog", REFERENCES)])


def test_class_numbers_need_names(vectors: Path, tmp_path: Path) -> None:
    write_store(tmp_path / "s.h5", None)
    resources = Resources(features=str(tmp_path / "s.h5"))
    with raises(MetricError, "missing-features", value="vifidel") as caught:
        Vifidel(resources, vectors=str(vectors))
    assert "--option vifidel.classes=coco-80" in caught.value.message
    named = Vifidel(resources, vectors=str(vectors), classes="coco-80")
    assert named.used_labels("1") == ["person", "bicycle"]
    assert "|classes:coco-80" in named.signature()


def test_items_and_options_that_cannot_be_scored(vectors: Path, tmp_path: Path) -> None:
    with raises(MetricError, "missing-features", value="vifidel") as caught:
        Vifidel(vectors=str(vectors))
    assert "--option vifidel.labels=FILE" in caught.value.message
    with raises(DataError, "missing-image", value="2"):
        made(vectors, {"1": ["dog"]}).prepare([Item("2", "a dog", REFERENCES)])
    with raises(MetricError, "missing-value", path=vectors, value=2):
        made(vectors, {"1": ["zebra"]}).statistics([Item("1", "giraffe", ())], _nothing)


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def read_labels(labels: str, classes: str | None = None) -> Labels:
    return open_labels(VifidelOptions(labels=labels, classes=classes), Resources())


def test_a_file_has_labels_with_and_without_scores(tmp_path: Path) -> None:
    text = json.dumps({"im1.jpg": ["dog", {"label": "red ball", "score": 0.5}], "im2": []})
    labels = read_labels(write(tmp_path, "a.json", text))
    assert labels.of("im1") == [ObjectLabel("dog"), ObjectLabel("red ball", 0.5)]
    assert labels.of("im2") == []
    assert labels.key("im1") != labels.key("im2")
    with raises(DataError, "missing-image", path=tmp_path / "a.json", value="im3"):
        labels.require(["im1", "im3", "im3"])


BAD = {
    "word.json": ('"dog"', "wrong-format", None),
    "list.json": ("[1]", "wrong-format", None),
    "text.json": ('{"1": "dog"}', "wrong-value", "image '1'"),
    "number.json": ('{"1": ["dog", 3]}', "wrong-value", "image '1'"),
    "empty.json": ("{}", "wrong-format", None),
    "score.json": ('{"1": [{"label": "dog", "score": 1.5}]}', "wrong-value", "image '1'"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_file_is_named(name: str, tmp_path: Path) -> None:
    text, code, row = BAD[name]
    path = write(tmp_path, name, text)
    with raises(DataError, code, path=path, row=row):
        read_labels(path)
    with pytest.raises(MissingFileError):
        read_labels(str(tmp_path / f"no-{name}"))


def boxes(path: Path, **more: object) -> str:
    np.savez(
        path,
        image_names=np.array(["im1.jpg", "im2.jpg"]),
        boxes_normalised_xyxy=np.tile(np.array([0, 0, 0.5, 0.5], dtype=np.float32), (2, 3, 1)),
        num_boxes=np.array([3, 1]),
        class_scores=np.array([[0.9, 0.5, 0.25], [0.5, 0, 0]], dtype=np.float32),
        **{"class_ids": np.array([[16, 0, 16], [79, 0, 0]]), **more},  # type: ignore[arg-type]
    )
    return str(path)


def test_boxes_hold_labels_by_number(tmp_path: Path) -> None:
    path = boxes(tmp_path / "b.npz")
    with raises(DataError, "missing-key", path=path, value="class_names"):
        read_labels(path)
    labels = read_labels(path, "coco-80")
    assert [label.name for label in labels.of("im1")] == ["dog", "person", "dog"]
    assert [label.score for label in labels.of("im1")] == pytest.approx([0.9, 0.5, 0.25])
    assert [label.name for label in labels.of("im2")] == ["toothbrush"]
    with raises(DataError, "out-of-range", path=path, value=16):
        read_labels(path, write(tmp_path, "names.txt", "dog\ncat\n"))
