"""METEOR's counts of any number of captions, in this process or spread over several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from capbench.errors import MetricError
from capbench.machine import usable_cores
from capbench.records import FloatArray
from capbench.text.meteor.alignment import N_COUNTS
from capbench.text.meteor.parallel import spread
from capbench.text.meteor.scores import chunk_statistics

__all__ = ["meteor_statistics"]

_CHUNK: Final = 4_000  # candidates whose words and phrases are related at once
_CHUNKS_A_WORKER: Final = 2  # a process needs a second to start, in which another does a chunk


def meteor_statistics(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> FloatArray:
    """The counts that the jar's ``SCORE`` prints, of each candidate with the reference that it scores highest with.

    Args:
        candidates: n captions, tokenised as for the other metrics; the normaliser of METEOR goes over them again.
        references: for each candidate its references; the first of equally good ones is taken. ``|||`` and line breaks,
            which the jar's protocol cannot carry, are text like any other here.
        workers: processes to spread the work over; by default as many as there are processors, and one for little work.
        progress: called with the number of candidates done since the last call.

    Returns:
        (n, 23) float64, see :func:`capbench.text.meteor.alignment.align`.

    Raises:
        MetricError: the two sequences differ in length, a candidate has no references, or a text is no valid Unicode.
        ToolError: pycocoevalcap's data files are missing or damaged.
    """
    if len(candidates) != len(references):
        raise MetricError(f"{len(candidates)} candidates do not fit {len(references)} lists of references")
    for row, group in enumerate(references):
        if not group:
            raise MetricError("METEOR needs references", row=f"candidate {row + 1}")
    rows = np.zeros((len(candidates), N_COUNTS))
    starts = range(0, len(candidates), _CHUNK)
    tasks = [(candidates[start : start + _CHUNK], references[start : start + _CHUNK]) for start in starts]
    if workers is None:
        workers = min(usable_cores(), len(tasks) // _CHUNKS_A_WORKER)
    if workers > 1:
        chunks = spread(tasks, workers)
    else:
        chunks = ((number, chunk_statistics(*task)) for number, task in enumerate(tasks))
    for number, counts in chunks:
        rows[starts[number] : starts[number] + len(counts)] = counts
        progress(len(counts))
    return rows
