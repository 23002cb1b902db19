"""METEOR of single captions and of a corpus, by the METEOR 1.5 jar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.errors import ToolError
from capbench.java import LineProcess, meteor_jar
from capbench.metrics.base import Progress, Resources
from capbench.metrics.tokens import TokenMetric
from capbench.records import FloatArray, Item
from capbench.text import ptb

__all__ = ["Meteor"]

_BATCH = 128
_COUNTS = 23
_STAGES = 4
_CHUNKS = 20  # where the number of chunks stands
# METEOR 1.5's tuned parameters for English, "rank" task, which is the jar's default.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase


class Meteor(TokenMetric):
    """METEOR 1.5 (Denkowski and Lavie, 2014) for English, normalised, as pycocoevalcap calls it.

    An empty candidate or reference scores 0; of several references the best counts. The string ``|||``, which
    separates texts in the jar's protocol, is taken out of candidates and references (the original takes it
    out of candidates only; tokenised captions never hold it).
    """

    name: ClassVar[str] = "meteor"
    columns: ClassVar[tuple[str, ...]] = ("meteor",)
    titles: ClassVar[Mapping[str, str]] = {"meteor": "METEOR"}
    citation: ClassVar[str] = "Denkowski and Lavie, Meteor universal, WMT 2014"
    needs: ClassVar[frozenset[str]] = frozenset({"references", "java"})
    batch_size: ClassVar[int] = 1024  # METEOR takes its time: an interrupted run should lose little
    order: ClassVar[int] = 30

    def __init__(self, resources: Resources | None = None) -> None:
        super().__init__(resources)

    def signature_parts(self) -> Mapping[str, object]:
        """Version of the jar, language, normalisation, tokeniser."""
        return {"jar": "1.5", "lang": "en", "norm": "yes", "tok": ptb.VERSION}

    def statistics(self, items: Sequence[Item], progress: Progress) -> FloatArray:
        """(n, 24): the jar's 23 counts of the best reference, in its order, and the score.

        The counts: candidate and reference length, function words of both; for each of the stages exact, stem,
        synonym, paraphrase the matched content words of candidate and reference and the matched function words
        of both; chunks; matched words of candidate and reference.
        """
        candidates, references = self.tokenize(items)
        process = _process()
        rows = np.empty((len(items), _COUNTS + 1))
        for start in range(0, len(items), _BATCH):
            part = slice(start, start + _BATCH)
            lines = [_request(c, r) for c, r in zip(candidates[part], references[part], strict=True)]
            counts = process.ask(lines)
            rows[part, :_COUNTS] = [_numbers(answer, _COUNTS, line) for answer, line in zip(counts, lines, strict=True)]
            # One score for each caption, then one for all of them, which is not used.
            scores = process.ask([" ||| ".join(("EVAL", *counts))], answers=len(counts) + 1)[:-1]
            rows[part, _COUNTS] = [_numbers(score, 1, line)[0] for score, line in zip(scores, lines, strict=True)]
            progress(len(lines))
        return rows

    def scores(self, statistics: FloatArray) -> dict[str, FloatArray]:
        """The jar's score of each caption."""
        return {"meteor": np.ascontiguousarray(statistics[:, _COUNTS])}

    def corpus_scores(self, statistics: FloatArray) -> dict[str, float]:
        """METEOR of the whole corpus: its formula over the sums of all counts."""
        counts = statistics[:, :_COUNTS].copy()
        # The jar leaves out the chunk of a caption that matches its reference as a whole.
        counts[_is_whole(counts), _CHUNKS] = 0
        return {"meteor": _score(counts.sum(axis=0))}


def _is_whole(counts: FloatArray) -> NDArray[np.bool_]:
    """Which rows of counts (n, 23) match in all words and in one chunk."""
    stages = counts[:, 4:_CHUNKS].reshape(-1, _STAGES, 2, 2)  # stage, content or function, candidate or reference
    matched_all = (stages.sum(axis=(1, 2)) == counts[:, 0:2]).all(axis=1)
    return np.asarray(matched_all & (counts[:, _CHUNKS] == 1))


def _score(counts: FloatArray) -> float:
    """METEOR from its counts (Denkowski and Lavie 2014, section 2): F-mean times (1 − fragmentation penalty)."""
    lengths, functions = counts[0:2], counts[2:4]
    stages = counts[4:_CHUNKS].reshape(_STAGES, 4)
    content, function = stages[:, 0:2], stages[:, 2:4]
    chunks, matched = counts[_CHUNKS], counts[_CHUNKS + 1 :]
    weights = np.array(_WEIGHTS)
    weighted = _DELTA * (weights @ content) + (1 - _DELTA) * (weights @ function)
    weighted_lengths = _DELTA * (lengths - functions) + (1 - _DELTA) * functions
    if not weighted.all() or not weighted_lengths.all():
        return 0.0
    precision, recall = weighted / weighted_lengths
    f_mean = 1 / ((1 - _ALPHA) / precision + _ALPHA / recall)
    fragmentation = 0.0 if _is_whole(counts[None])[0] else chunks / (matched.sum() / 2)
    return max(0.0, float(f_mean * (1 - _GAMMA * fragmentation**_BETA)))


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
