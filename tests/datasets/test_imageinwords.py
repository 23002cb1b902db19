"""ImageInWords: verdicts in five levels, and their statistics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.core.records import Judgements
from capbench.datasets.imageinwords import _COMPARISONS, CRITERIA, ImageInWords, _read
from tests.conftest import Ran
from tests.datasets.native_files import root, write

LONG, SHORT = "a long description of a dog on a hill", "a dog"


def verdicts(*words: str) -> dict[str, str]:
    return dict(zip(CRITERIA.values(), words, strict=True))


BETTER = ["IIW is substantially better", "IIW is marginally better", "Neutral"]


def lines(*entries: dict[str, Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docci = [
        {"image": f"test_{n}", "IIW": LONG, "DOCCI": SHORT, **verdicts(*BETTER, "DOCCI is marginally better", last)}
        for n, last in enumerate(["DOCCI is substantially better", "IIW is marginally better"])
    ]
    compared = {
        "image/key": "aar_1",
        "IIW": SHORT,
        "IIW-P5B": LONG,
        "iiw-human-sxs-iiw-p5b": verdicts(*["IIW-Human is marginally better"] * 4, "IIW-P5B is marginally better"),
        "iiw-human-sxs-gpt4v": verdicts(*["GPT-4V is substantially better"] * 5),
    }
    write(tmp_path / "iiw/DOCCI_Test.jsonl", lines(*docci))
    write(tmp_path / "iiw/IIW-400.jsonl", lines(compared, {"image/key": "aar_2", "IIW": LONG}))
    write(tmp_path / "iiw/DCI_Test.jsonl", lines({"image": "sa_1.jpg", "IIW": LONG, **verdicts(*["Neutral"] * 5)}))
    return tmp_path


def load(folder: Path) -> Judgements:
    (judged,) = ImageInWords(root(folder)).load(ImageInWords.selections["all-pairs"])
    return judged


def scores_of_length(folder: Path) -> Path:
    """A score file with the number of words, and one with its negative square root."""
    rows = {(item.image, item.candidate) for item in load(folder).items}
    text = "".join(
        f'{image},"{caption}",{n},{-(n**0.5)}\n' for image, caption in sorted(rows) for n in [len(caption.split())]
    )
    return write(folder / "scores.csv", "image,caption,words,brief\n" + text)


def test_raw_accuracy_rewards_length_and_balanced_accuracy_does_not(folder: Path, capbench: Callable[..., Ran]) -> None:
    scores = scores_of_length(folder)
    protocols = ["strict", "length-balanced", "graded-pearson"]
    asked = [part for name in protocols for part in ("-p", f"verdicts-{name}")]
    ran = capbench("correlate", "-d", "iiw", "--data", folder, "--scores", scores, *asked, "--json")
    found = json.loads(ran.out)
    values = {(c["protocol"].rpartition("-")[2], c["column"], c["group"]): c["value"] for c in found["cells"]}
    # The longer description is preferred: by criterion 2, 2, 0, 0 and 2 of 3, 3, 1, 3 and 3 decided pairs.
    assert values["strict", "words", ""] == pytest.approx(np.mean([2 / 3, 2 / 3, 0, 0, 2 / 3]))
    assert values["strict", "words", "specificity"] == pytest.approx(2 / 3)
    assert values["balanced", "words", ""] == values["balanced", "brief", ""] == 0.5
    # Criteria without pairs on both sides have no balanced accuracy.
    assert values["balanced", "words", "tldr"] is None
    grades = np.array([[2, 2, 1], [1, 1, 1], [0, 0, 1], [-1, -1, 1], [-2, 1, -1]])
    difference = np.tile([7, 7, -7], 5)
    expected = (difference * grades.ravel()).sum() / np.sqrt((difference**2).sum() * (grades**2).sum())
    assert values["pearson", "words", ""] == pytest.approx(expected)
    assert values["pearson", "brief", ""] == pytest.approx(-expected)


@pytest.mark.real_data
def test_published_verdicts_and_the_accuracy_of_the_longer_description(real_data: Path) -> None:
    judged = load(real_data)
    assert judged.notes[0].startswith("1,060 of 2,060 verdicts are left out")
    pairs = judged.preferences["verdicts"]
    assert pairs.grade is not None
    assert len(pairs) == 1000
    assert int((pairs.preferred != 0).sum()) == 790
    assert np.array_equal(np.sign(pairs.grade), pairs.preferred)
    words = np.array([len(item.candidate.split()) for item in judged.items])
    longer = np.sign(words[pairs.first] - words[pairs.second])
    by_criterion = [
        np.mean(
            [
                right == preferred
                for right, preferred, of in zip(longer, pairs.preferred, pairs.group, strict=True)
                if of == name and preferred
            ]
        )
        for name in CRITERIA
    ]
    assert np.mean(by_criterion) == pytest.approx(0.854, abs=5e-4)


@pytest.mark.real_data
def test_every_published_verdict_is_read(real_data: Path) -> None:
    found = Counter[str]()
    for comparison in _COMPARISONS:
        found[Path(comparison.file).stem] += len(_read(comparison, root(real_data).locate(comparison.file)))
    assert found == {"DOCCI_Test": 100, "IIW-400": 200, "DCI_Test": 112}
