"""METEOR 1.5 without Java: counts of captions, and scores from counts (Denkowski and Lavie 2014, section 2).

METEOR uses the best reference. With growing sets of references, a pair of texts is therefore aligned at most once for
all orders and numbers of references, and only if the upper bound of its score exceeds the best score so far.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

import capbench
from capbench.core.errors import CapbenchError, MetricError
from capbench.core.machine import usable_cores
from capbench.core.records import FloatArray
from capbench.text.meteor.aligner import N_COUNTS, Lexicon, Matches, Text, align, covered_words, find_matches
from capbench.text.meteor.paraphrases import paraphrase_table
from capbench.text.meteor.stemmer import words

# The jar's defaults, tuned for English on human rankings of translations.
_ALPHA: Final = 0.85
_BETA: Final = 0.2
_GAMMA: Final = 0.6
_DELTA: Final = 0.75
_WEIGHTS: Final = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase
_CONTENT: Final = tuple([*zip(range(4 + i, 20, 4), _WEIGHTS, strict=True)] for i in (0, 1))
_FUNCTION: Final = tuple([*zip(range(6 + i, 20, 4), _WEIGHTS, strict=True)] for i in (0, 1))
LONGEST: Final = 1_000
"""Maximum number of words of a caption. If all words are equal, the search time grows with the third power."""
_ROUNDING: Final = 1e-9  # exceeds the rounding error of a score


def chunk_statistics(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[int]]:
    """Counts of candidates, computed in this process; each distinct pair of texts is aligned at most once.

    Args:
        candidates: n tokenised captions.
        references: for each candidate its references, at least one.

    Returns:
        n rows of 23 counts with the reference of the highest score; see :func:`capbench.text.meteor.aligner.align`.

    Raises:
        MetricError: a text is not valid Unicode, or is too long.
        ToolError: pycocoevalcap's data files are missing or damaged.
    """
    texts = [normalised_words(text) for text in candidates]
    others = [[normalised_words(text) for text in group] for group in references]
    # There are millions of small tuples without cycles; garbage collection would take a sixth of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        lexicon = Lexicon(chain(texts, chain.from_iterable(others)))
        units = lexicon.texts()
        done: _Done = {}
        return [
            _best(units[text], [units[other] for other in group], lexicon, done)
            for text, group in zip(texts, others, strict=True)
        ]
    finally:
        if collecting:
            gc.enable()


_Done = dict[tuple[Text, Text], tuple[float, list[int]]]


def _best(candidate: Text, references: Sequence[Text], lexicon: Lexicon, done: _Done) -> list[int]:
    """Counts with the first of the references that yield the highest score.

    References are aligned in descending order of their upper bounds, until no other can score higher.
    """
    best, best_place, best_counts = -1.0, 0, [0] * N_COUNTS
    waiting = []
    references = list(dict.fromkeys(references))
    for place, reference in enumerate(references):
        known = done.get((candidate, reference))
        if known is None:
            matches = find_matches(candidate, reference, lexicon)
            waiting.append((-match_bound(covered_words(matches), candidate, reference), place, matches))
        elif known[0] > best:
            best, best_place, best_counts = known[0], place, known[1]
    waiting.sort()
    for bound, place, matches in waiting:
        if -bound < best:
            break
        reference = references[place]
        counts = align(matches, candidate, reference)
        score = meteor_score(counts)
        done[candidate, reference] = (score, counts)
        if score > best or (score == best and place < best_place):
            best, best_place, best_counts = score, place, counts
    return best_counts


def match_bound(covered: Sequence[int], candidate: Text, reference: Text) -> float:
    """Upper bound of the score of any alignment of two texts.

    Every word that takes part in a match counts, at its best stage, and all words form one chunk.

    Args:
        covered: from :func:`capbench.text.meteor.aligner.covered_words` for the pair.
        candidate: the candidate.
        reference: the reference.
    """
    exact, stem, synonym, paraphrase = covered
    synonym &= ~exact
    weaker = (stem | paraphrase) & ~exact & ~synonym
    n = reference.length
    shares = []
    matched = 0
    for shift, text in ((0, reference), (n, candidate)):
        length, function = text.length, text.function
        mask = (1 << length) - 1
        total = 0.0
        for words_of_stage, weight in ((exact, 1.0), (synonym, 0.8), (weaker, 0.6)):
            covered_here = (words_of_stage >> shift) & mask
            if covered_here:
                count, functions = covered_here.bit_count(), (covered_here & function).bit_count()
                matched += count
                total += weight * (_DELTA * (count - functions) + (1.0 - _DELTA) * functions)
        if not total:
            return 0.0
        functions = function.bit_count()
        shares.append(total / (_DELTA * (length - functions) + (1.0 - _DELTA) * functions))
    recall, precision = shares
    f_mean = 1.0 / ((1.0 - _ALPHA) / precision + _ALPHA / recall)
    if matched == n + candidate.length:
        return f_mean + _ROUNDING
    penalty: float = _GAMMA * (2.0 / matched) ** _BETA
    return f_mean * (1.0 - penalty) + _ROUNDING


def normalised_words(text: str) -> tuple[str, ...]:
    """Words of a text after METEOR's normaliser.

    Raises:
        MetricError: the text is not valid Unicode, or has too many words.
    """
    try:
        normalised = words(text)
    except UnicodeEncodeError as error:
        raise MetricError(
            f"a caption is not valid Unicode: {ascii(text)[:80]}",
            code="unreadable",
            value=text,
            hint="Remove the lone surrogate",
        ) from error
    if len(normalised) > LONGEST:
        raise MetricError(
            f"a caption of {len(normalised):,} words is too long for METEOR ('{text[:60]}…')",
            code="too-large",
            value=len(normalised),
            hint=f"METEOR aligns at most {LONGEST:,} words: shorten the caption, or omit METEOR",
        )
    return normalised


def meteor_score(counts: Sequence[float]) -> float:
    """METEOR of one row of counts (Denkowski and Lavie 2014, section 2); 0 without matches.

    Args:
        counts: 23 counts, see :func:`capbench.text.meteor.aligner.align`.
    """
    chunks, matched = counts[20], counts[21] + counts[22]
    if not matched:
        return 0.0
    weighted = [0.0, 0.0]
    # The sums are in the jar's order: its rounding decides between references of equal score.
    for i in (0, 1):
        total = 0.0
        for at, weight in _CONTENT[i]:
            if counts[at]:
                total += counts[at] * weight * _DELTA
        for at, weight in _FUNCTION[i]:
            if counts[at]:
                total += counts[at] * weight * (1.0 - _DELTA)
        weighted[i] = total / (_DELTA * (counts[i] - counts[2 + i]) + (1.0 - _DELTA) * counts[2 + i])
    precision, recall = weighted
    f_mean = 1.0 / ((1.0 - _ALPHA) / precision + _ALPHA / recall)
    whole = chunks == 1 and counts[21] == counts[0] and counts[22] == counts[1]
    fragmentation = 0.0 if whole else chunks / (matched / 2.0)
    return max(float(f_mean * (1.0 - _GAMMA * fragmentation**_BETA)), 0.0)


def meteor_scores(statistics: FloatArray) -> FloatArray:
    """(n,) METEOR of every row of counts; 0 without matches.

    Args:
        statistics: (n, 23) counts.
    """
    return np.array([meteor_score(row) for row in statistics.tolist()], dtype=np.float64)


def corpus_counts(statistics: FloatArray) -> FloatArray:
    """(n, 23) contribution of each candidate to the sums of a corpus.

    As in the jar, a candidate that matches its reference completely in one chunk adds no chunk.

    Args:
        statistics: (n, 23) counts.
    """
    counts = np.array(statistics, dtype=np.float64)
    whole = (counts[:, 20] == 1) & (counts[:, 4:20:2].sum(axis=1) == counts[:, 0])
    whole &= counts[:, 5:20:2].sum(axis=1) == counts[:, 1]
    counts[whole, 20] = 0.0
    return counts


def meteor_corpus(statistics: FloatArray) -> float:
    """METEOR of a corpus: the formula applied to the sums of :func:`corpus_counts`."""
    return meteor_score(corpus_counts(statistics).sum(axis=0).tolist())


_CHUNK = 1_000  # candidates that share one Lexicon
Order = Sequence[int]


def meteor_sweep(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    orders: Sequence[Sequence[Order]],
    counts: Sequence[int],
    *,
    progress: Callable[[int], None] = lambda _done: None,
) -> Iterator[FloatArray]:
    """METEOR with the first 1, 2, … references of given orders.

    Args:
        candidates: n captions, tokenised as for the other metrics.
        references: for each candidate its references.
        orders: for each sample and candidate, indices of its references in the order in which they are added.
        counts: ascending numbers of references, each at least 1.
        progress: called with the number of candidates done since the last call; the total is n.

    Returns:
        For each sample (counts, n, 24) float64: the counts of :func:`~capbench.text.meteor.meteor_statistics`, and the
        score.

    Raises:
        MetricError: a candidate has no references, or a text is not valid Unicode.
        ToolError: pycocoevalcap's data files are missing or damaged.
    """
    for row, group in enumerate(references):
        if not group:
            raise MetricError("METEOR requires references", code="missing-references", row=f"candidate {row + 1}")
    # Row numbers of the pool for each sample and count; the pool stores the counts of every best pair once.
    best = np.empty((len(orders), len(counts), len(candidates)), dtype=np.int32)
    pool: list[list[float]] = []
    # Candidates of one image have the same references and are cheaper in one chunk.
    by_references = sorted(range(len(candidates)), key=lambda i: (references[i], candidates[i]))
    for start in range(0, len(by_references), _CHUNK):
        places = by_references[start : start + _CHUNK]
        _chunk(places, candidates, references, orders, counts, best, pool)
        progress(len(places))
    rows = np.array(pool, dtype=np.float64).reshape(-1, N_COUNTS + 1)
    return (rows[numbers] for numbers in best)


@dataclass(slots=True)
class _Pair:
    """A candidate with one reference."""

    bound: float
    matches: Matches | None
    reference: Text
    score: float = -1.0
    row: int = -1


def _chunk(
    places: Sequence[int],
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    orders: Sequence[Sequence[Order]],
    counts: Sequence[int],
    best: np.ndarray[tuple[int, ...], np.dtype[np.int32]],
    pool: list[list[float]],
) -> None:
    """Fill in the rows of some candidates."""
    collecting = gc.isenabled()
    gc.disable()  # millions of small tuples without cycles
    try:
        texts = {text: normalised_words(text) for i in places for text in (candidates[i], *references[i])}
        lexicon = Lexicon(dict.fromkeys(chain(texts.values())))
        units = lexicon.texts()
        known: dict[tuple[str, str], _Pair] = {}
        before = None
        for i in places:
            candidate = units[texts[candidates[i]]]
            if candidates[i] != before:
                known.clear()  # saves memory
            before = candidates[i]
            pairs = []
            for reference in references[i]:
                pair = known.get((candidates[i], reference))
                if pair is None:
                    other = units[texts[reference]]
                    matches = find_matches(candidate, other, lexicon)
                    bound = match_bound(covered_words(matches), candidate, other)
                    pair = known[candidates[i], reference] = _Pair(bound, matches, other)
                pairs.append(pair)
            for draw, order in enumerate(orders):
                best[draw, :, i] = _best_rows(candidate, [pairs[place] for place in order[i]], counts, pool)
    finally:
        if collecting:
            gc.enable()


def _best_rows(candidate: Text, pairs: Sequence[_Pair], counts: Sequence[int], pool: list[list[float]]) -> list[int]:
    """For each count, the pool's row of the first best pair among that many pairs."""
    rows = []
    top: _Pair | None = None
    begin = 0
    for count in counts:
        # By descending bound, then in order; of equal scores the first in order wins.
        new = sorted(range(begin, min(count, len(pairs))), key=lambda place: (-pairs[place].bound, place))
        leader, leader_place = top, -1
        for place in new:
            pair = pairs[place]
            if leader is not None and pair.bound < leader.score:
                break
            if pair.matches is not None:
                pair_counts = align(pair.matches, candidate, pair.reference)
                pair.score, pair.row, pair.matches = meteor_score(pair_counts), len(pool), None
                pool.append([*pair_counts, pair.score])
            if leader is None or pair.score > leader.score or (pair.score == leader.score and place < leader_place):
                leader, leader_place = pair, place
        top = leader
        begin = count
        assert top is not None
        rows.append(top.row)
    return rows


# Worker processes. They read tasks and write counts, one line of JSON each. Unlike ``multiprocessing`` this neither
# forks a process with threads nor imports the caller's main module again.

Task = tuple[Sequence[str], Sequence[Sequence[str]]]
_Answer = tuple[int, list[list[int]] | BaseException]


def spread(tasks: Sequence[Task], workers: int) -> Iterator[tuple[int, list[list[int]]]]:
    """Run tasks in worker processes and yield the results as they are completed.

    If a worker dies or cannot be started, its task is done in this process.

    Args:
        tasks: each a list of candidates, and for each of these a list of references.
        workers: maximum number of processes.

    Yields:
        Number of the task, from 0, and the counts of its candidates.

    Raises:
        CapbenchError: a task failed.
    """
    paraphrase_table()  # built once, before the workers need it
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    children: list[subprocess.Popen[str]] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=_serve, args=(tasks, waiting, answers, children, stop), daemon=True)
        for _ in range(min(workers, len(tasks)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in tasks:
            number, answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield number, answer
    finally:
        stop.set()
        for child in list(children):
            with contextlib.suppress(OSError):
                child.kill()
        for thread in threads:
            thread.join()


def _serve(
    tasks: Sequence[Task],
    waiting: queue.SimpleQueue[int],
    answers: queue.SimpleQueue[_Answer],
    children: list[subprocess.Popen[str]],
    stop: threading.Event,
) -> None:
    with contextlib.ExitStack() as cleanup:
        child: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):
            child = _start()
            cleanup.callback(_end, child)
            children.append(child)
        while not stop.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            answer: list[list[int]] | BaseException | None = None
            if child is not None:
                answer = _ask(child, tasks[number])
                if answer is None:
                    child.kill()
                    child = None
            if answer is None and not stop.is_set():
                try:
                    answer = chunk_statistics(*tasks[number])
                except BaseException as error:  # handed to the caller's thread, which raises it
                    answer = error
            if answer is not None:
                answers.put((number, answer))


def _start() -> subprocess.Popen[str]:
    root = str(Path(capbench.__file__).resolve().parent.parent)
    path = os.pathsep.join(folder for folder in (root, os.environ.get("PYTHONPATH", "")) if folder)
    code = "from capbench.text.meteor.scores import main; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # failed tasks are repeated in this process, which reports the reason
        encoding="utf-8",
    )


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    with contextlib.suppress(OSError):  # closing the pipe flushes input that a killed child did not read
        child.communicate()


def _ask(child: subprocess.Popen[str], task: Task) -> list[list[int]] | None:
    assert child.stdin is not None
    assert child.stdout is not None
    candidates, references = task
    try:
        child.stdin.write(json.dumps([list(candidates), [list(group) for group in references]]) + "\n")
        child.stdin.flush()
        rows = json.loads(child.stdout.readline())
    except (OSError, ValueError):
        return None
    return rows if isinstance(rows, list) and len(rows) == len(candidates) else None


def main() -> None:
    """Worker process: reads lines ``[candidates, references]`` from stdin and writes a line of counts for each."""
    for line in sys.stdin:
        try:
            rows = chunk_statistics(*json.loads(line))
        except CapbenchError:
            sys.exit(2)
        print(json.dumps(rows), flush=True)


_CHUNK_OF_A_PROCESS: Final = 4_000  # candidates that share one Lexicon
_CHUNKS_A_PROCESS: Final = 2  # starting a process takes a second, as long as a chunk


def meteor_statistics(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    workers: int | None = None,
    progress: Callable[[int], None] = lambda _done: None,
) -> FloatArray:
    """The counts of the jar's ``SCORE`` command, of each candidate with the reference of the highest score.

    Args:
        candidates: n captions, tokenised as for the other metrics; METEOR's normaliser is applied to them again.
        references: for each candidate its references; ties go to the first. ``|||`` and line breaks, which the jar's
            protocol cannot transmit, are ordinary text here.
        workers: number of processes; by default the number of processors, or one for small inputs.
        progress: called with the number of candidates done since the last call.

    Returns:
        (n, 23) float64, see :func:`capbench.text.meteor.aligner.align`.

    Raises:
        MetricError: the two sequences differ in length, a candidate has no references, or a text is not valid Unicode.
        ToolError: pycocoevalcap's data files are missing or damaged.
    """
    if len(candidates) != len(references):
        raise MetricError(
            f"there are {len(candidates)} candidates but {len(references)} lists of references", code="mismatch"
        )
    for row, group in enumerate(references):
        if not group:
            raise MetricError("METEOR requires references", code="missing-references", row=f"candidate {row + 1}")
    rows = np.zeros((len(candidates), N_COUNTS))
    starts = range(0, len(candidates), _CHUNK_OF_A_PROCESS)
    tasks = [
        (candidates[start : start + _CHUNK_OF_A_PROCESS], references[start : start + _CHUNK_OF_A_PROCESS])
        for start in starts
    ]
    if workers is None:
        workers = min(usable_cores(), len(tasks) // _CHUNKS_A_PROCESS)
    if workers > 1:
        chunks = spread(tasks, workers)
    else:
        chunks = ((number, chunk_statistics(*task)) for number, task in enumerate(tasks))
    for number, counts in chunks:
        rows[starts[number] : starts[number] + len(counts)] = counts
        progress(len(counts))
    return rows
