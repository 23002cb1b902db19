"""METEOR without Java, compared with pycocoevalcap and its jar; the start of both engines is not included."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import expert, tokenized

Captions = tuple[list[str], list[list[str]]]
_WARM: Captions = (["a dog runs"], [["a cat sits"]])


def ours(captions: Captions) -> Work:
    """The engine without Java, in one process."""
    from capbench.text.meteor.scores import meteor_scores, meteor_statistics

    meteor_statistics(*_WARM)
    return lambda: np.asarray(meteor_scores(meteor_statistics(*captions)))


def theirs(captions: Captions) -> Work:
    """pycocoevalcap: one caption after the other."""
    from capbench.text.java import find_java

    os.environ["PATH"] = f"{find_java().path.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()

    def work(captions: Captions = captions) -> object:
        candidates, references = captions
        result = {i: [text] for i, text in enumerate(candidates)}
        return np.asarray(scorer.compute_score(dict(enumerate(references)), result)[1], dtype=np.float64)

    work(_WARM)
    return work


def measure(settings: Settings) -> Iterator[Row]:
    """METEOR of judged captions."""
    name, items = expert(settings.data)
    items = items[: settings.pick(300, 2_000)]
    captions = tokenized(items)
    yield between(
        f"METEOR; {name}, {len(items):,} × 5", "pycocoevalcap (jar)", ours, theirs, captions, repeats=settings.repeats
    )
