"""The METEOR 1.5 jar, asked in batches: the reference engine of the metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from capbench.core.errors import ToolError
from capbench.core.records import FloatArray
from capbench.text.java import LineProcess, meteor_jar
from capbench.text.meteor import N_COUNTS

__all__ = ["jar_statistics"]

_BATCH = 128


def jar_statistics(
    candidates: Sequence[str], references: Sequence[Sequence[str]], progress: Callable[[int], None]
) -> FloatArray:
    """(n, 24): the jar's 23 counts of each candidate's best reference, and its score.

    The string ``|||``, which separates texts in the jar's protocol, is removed from candidates and references (the
    original removes it from candidates only; tokenised captions never contain it).

    Raises:
        ToolError: Java could not be started, or the jar failed or answered nonsense.
    """
    process = _process()
    rows = np.empty((len(candidates), N_COUNTS + 1))
    for start in range(0, len(candidates), _BATCH):
        part = slice(start, start + _BATCH)
        lines = [_request(c, r) for c, r in zip(candidates[part], references[part], strict=True)]
        counts = process.ask(lines)
        rows[part, :N_COUNTS] = [_numbers(answer, N_COUNTS, line) for answer, line in zip(counts, lines, strict=True)]
        # One score for each caption, then one for all of them, which is not used.
        scores = process.ask([" ||| ".join(("EVAL", *counts))], answers=len(counts) + 1)[:-1]
        rows[part, N_COUNTS] = [_numbers(score, 1, line)[0] for score, line in zip(scores, lines, strict=True)]
        progress(len(lines))
    return rows


@cache
def _process() -> LineProcess:
    """The jar's process, one for all: it reads 60 MB of paraphrases before its first answer."""
    jar = meteor_jar()
    arguments = ["-jar", jar.path.name, "-", "-", "-stdio", "-l", "en", "-norm", "-a", "data/paraphrase-en.gz"]
    return LineProcess(arguments, name="METEOR", folder=jar.path.parent)


def _request(candidate: str, references: Sequence[str]) -> str:
    return " ||| ".join(("SCORE", *(_clean(reference) for reference in references), _clean(candidate)))


def _clean(text: str) -> str:
    return text.replace("|||", "").replace("  ", " ")


def _numbers(answer: str, width: int, request: str) -> list[float]:
    """The numbers of one answer. Raises ToolError if it is anything else."""
    try:
        numbers = [float(word) for word in answer.split()]
    except ValueError:
        numbers = []
    if len(numbers) != width or not np.isfinite(numbers).all():
        raise ToolError(
            f"METEOR answered '{answer[:100]}' instead of {width} number(s) to the request '{request[:200]}'",
            hint="'capbench doctor' checks Java",
        )
    return numbers
