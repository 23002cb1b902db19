"""ImageInWords: verdicts in five levels, and their statistics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from capbench.core.errors import DataError
from capbench.datasets.imageinwords import CRITERIA, ImageInWords
from tests.datasets.native_files import root, write
from tests.errors import raises


@pytest.mark.parametrize(("verdicts", "code"), [("Neutral", "wrong-type"), ({}, "wrong-value")])
def test_verdicts_that_do_not_fit_are_refused(tmp_path: Path, verdicts: object, code: str) -> None:
    neutral = {"image": "b.jpg", "IIW": "a boat", "DOCCI": "boats", **dict.fromkeys(CRITERIA.values(), "Neutral")}
    write(tmp_path / "iiw/DOCCI_Test.jsonl", json.dumps(neutral) + "\n")
    row = {"image/key": "a.jpg", "IIW": "a kite", "IIW-P5B": "a toy", "iiw-human-sxs-iiw-p5b": verdicts}
    path = write(tmp_path / "iiw/IIW-400.jsonl", json.dumps(row) + "\n")
    with raises(DataError, code, path=path, row=1):
        ImageInWords(root(tmp_path)).load(ImageInWords.selections["all-pairs"])


@pytest.mark.real_data
def test_published_verdicts_and_the_accuracy_of_the_longer_description(real_data: Path) -> None:
    (loaded,) = ImageInWords(root(real_data)).load(ImageInWords.selections["all-pairs"])
    assert loaded.notes[0].startswith("1,060 of 2,060 verdicts are left out")
    pairs = loaded.preferences["verdicts"]
    assert pairs.grade is not None
    assert len(pairs) == 1000
    assert int((pairs.preferred != 0).sum()) == 790
    assert np.array_equal(np.sign(pairs.grade), pairs.preferred)
    words = np.array([len(item.candidate.split()) for item in loaded.items])
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
