"""ImageInWords: verdicts in five levels, and their statistics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capbench.datasets.imageinwords import CRITERIA, ImageInWords
from tests.datasets.native_files import root


@pytest.mark.real_data
def test_published_verdicts_and_the_accuracy_of_the_longer_description(real_data: Path) -> None:
    (judged,) = ImageInWords(root(real_data)).load(ImageInWords.selections["all-pairs"])
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
