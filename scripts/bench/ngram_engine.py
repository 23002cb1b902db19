"""BLEU, ROUGE-L and CIDEr-D: capbench's engine beside pycocoevalcap.

Every measurement runs in a fresh child process, one after the other, on the same captions, which are PTB
tokens already. Both sides run equally often, the best run of each counts, and their scores are
compared. By default the captions are generated (words with Zipf's frequencies, candidates that are
altered references); with ``--data DIR`` they are Flickr8k Expert's candidates and references, and
PASCAL-50S with all fifty references for the sweep.

Example: python scripts/bench/ngram_engine.py --items 5000 --sweep-images 1000

Example: python scripts/bench/ngram_engine.py --part scoring --data data --repeats 2
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import platform
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

Captions = tuple[list[str], list[list[str]]]
Scores = NDArray[np.float64]
"""(6, captions): BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D."""
MEGABYTE = 1e6
_PARTS = ("scoring", "sweep", "growth", "memory")


def generated(items: int, references: int, candidates_an_image: int = 1, seed: int = 0) -> Captions:
    """Captions of 7 to 15 words over 12,000 words, about as much alike as an image's captions are."""
    rng = random.Random(seed)
    words = [f"w{i}" for i in range(12_000)]
    cumulative = list(itertools.accumulate(1 / (i + 2) for i in range(len(words))))
    candidates: list[str] = []
    sets: list[list[str]] = []
    for _ in range(items // candidates_an_image):
        topic = rng.choices(words, cum_weights=cumulative, k=12)
        texts = []
        for _ in range(references):
            length = rng.randint(7, 15)
            text = rng.choices(words, cum_weights=cumulative, k=length)
            begin = rng.randint(0, 6)
            text[: rng.randint(2, 6)] = topic[begin : begin + rng.randint(2, 6)]
            texts.append(" ".join(text))
        for _ in range(candidates_an_image):
            text = rng.choice(texts).split()
            for _ in range(rng.randint(1, 4)):
                text[rng.randrange(len(text))] = rng.choice(topic)
            candidates.append(" ".join(text))
            sets.append(texts)
    return candidates, sets


def published(data: str, dataset: str, selection: str) -> Captions:
    """Candidates and references of a data set, tokenised."""
    from capbench.datasets.base import load_dataset
    from capbench.datasets.root import find_root
    from capbench.text.ptb import tokenize

    kind = load_dataset(dataset)
    items = kind(find_root(data)).load(kind.selections[selection])[0].items
    texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
    tokens = dict(zip(texts, tokenize(texts), strict=True))
    return [tokens[item.candidate] for item in items], [[tokens[text] for text in item.references] for item in items]


def ours(captions: Captions) -> Scores:
    """All three metrics, from texts to scores."""
    from capbench.text.ngrams.statistics import EncodedCorpus, bleu_scores, bleu_statistics, cider_d, rouge_l

    corpus = EncodedCorpus.build(*captions)
    return np.stack([*bleu_scores(bleu_statistics(corpus)).T, rouge_l(corpus), cider_d(corpus)])


def our_sweep(captions: Captions) -> Scores:
    """All three metrics with the first 1, 2, … references, from texts to scores; gives those with all references."""
    from capbench.text.ngrams.statistics import EncodedCorpus, bleu_scores, sweep

    corpus = EncodedCorpus.build(*captions)
    swept = sweep(corpus, range(1, max(map(len, captions[1])) + 1))
    return np.stack([*bleu_scores(swept.bleu)[-1].T, swept.rouge_l[-1], swept.cider_d[-1]])


def reference(captions: Captions) -> Scores:
    """The same three metrics by pycocoevalcap."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    candidates, references = captions
    result, truth = {i: [text] for i, text in enumerate(candidates)}, dict(enumerate(references))
    bleu = Bleu(4).compute_score(truth, result, verbose=0)[1]
    rouge, cider = Rouge().compute_score(truth, result)[1], Cider().compute_score(truth, result)[1]
    return np.stack([*map(np.asarray, bleu), rouge, cider]).astype(np.float64)


def _warm() -> Captions:
    return ["a b", "c"], [["a b c"], ["c d"]]


def measure(make: Callable[..., Captions], arguments: Sequence[Any], job: str, repeats: int) -> dict[str, Any]:
    """Run one job in this process: best wall and CPU seconds, peak memory, and the scores."""
    run = {"ours": ours, "sweep": our_sweep, "reference": reference}[job]
    captions = make(*arguments)
    first = time.perf_counter()
    run(_warm())  # imports do not count as scoring
    first = time.perf_counter() - first
    wall, cpu = [], []
    for _ in range(repeats):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        scores = run(captions)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {
        "wall": min(wall),
        "cpu": min(cpu),
        "first": first,
        "peak": _peak(),
        "items": len(captions[0]),
        "scores": scores,
    }


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE


def idle(make: Callable[..., Captions] | None = None, arguments: Sequence[Any] = ()) -> float:
    """Peak memory of an interpreter that has loaded the engine, and the captions if any, and done nothing."""
    run_on = make(*arguments) if make else _warm()
    ours(_warm())
    del run_on
    return _peak()


def in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a fresh interpreter."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the published data; generated captions if not given")
    parser.add_argument("--items", type=int, default=5_000, help="generated candidates (default 5000)")
    parser.add_argument("--references", type=int, default=5, help="generated references a candidate (default 5)")
    parser.add_argument("--sweep-images", type=int, default=1_000, help="generated images of the sweep (default 1000)")
    parser.add_argument("--sweep-references", type=int, default=50, help="references an image (default 50)")
    parser.add_argument("--memory-items", type=int, default=100_000, help="candidates of the memory run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side, the best counts (default 3)")
    parser.add_argument("--part", action="append", choices=_PARTS, help="only this part; repeatable")
    options = parser.parse_args()
    parts = options.part or _PARTS

    print(f"load {os.getloadavg()[0]:.1f}; {platform.platform()}, Python {platform.python_version()}, ", end="")
    print(f"numpy {version('numpy')}, ", end="")
    print(f"pycocoevalcap {version('pycocoevalcap')}, capbench {version('capbench')}; one process, one thread")

    scoring: tuple[Callable[..., Captions], tuple[Any, ...]] = (generated, (options.items, options.references))
    steps: tuple[Callable[..., Captions], tuple[Any, ...]] = (
        generated,
        (8 * options.sweep_images, options.sweep_references, 8),
    )
    if options.data:
        scoring = published, (options.data, "flickr8k-expert", "no-own-captions")
        steps = published, (options.data, "pascal-50s", "all-50-refs")

    if "scoring" in parts:
        engine, peer = (in_child(measure, *scoring, job, options.repeats) for job in ("ours", "reference"))
        _print(f"scoring {engine['items']:,} candidates", engine, peer, 1)
        print(f"  first call, with imports: {engine['first']:.2f} s", flush=True)

    if "sweep" in parts:
        engine, peer = (in_child(measure, *steps, job, options.repeats) for job in ("sweep", "reference"))
        number = options.sweep_references if not options.data else 50
        # Its time grows with the number of references: runs with 1, 2, … n of them take (1 + 2 + … + n) / n of one
        # with n.
        runs = (number + 1) / 2
        _print(f"sweep over 1…{number} references of {engine['items']:,} candidates", engine, peer, runs)
        print(f"  the reference: one run with all references took {peer['wall']:.1f} s, times {runs:g}", flush=True)

    if "growth" in parts:
        print("growth (generated, 5 references):")
        for items in (5_000, 10_000, 20_000, 40_000):
            engine = in_child(measure, generated, (items, 5), "ours", 1)
            a_candidate = 1e6 * engine["cpu"] / items
            print(f"  {items:>7,} candidates {engine['cpu']:7.2f} s CPU {a_candidate:6.1f} µs a candidate", flush=True)

    if "memory" in parts:
        arguments = (options.memory_items, 5)
        bare, loaded = in_child(idle), in_child(idle, generated, arguments)
        engine = in_child(measure, generated, arguments, "ours", 1)
        print(f"memory, {options.memory_items:,} candidates x 5 references: peak {engine['peak']:.0f} MB, ", end="")
        print(f"{engine['peak'] - bare:.0f} MB above the interpreter with numpy ({bare:.0f} MB), of which ", end="")
        print(f"{loaded - bare:.0f} MB are the captions themselves; {engine['cpu']:.1f} s CPU")


def _print(what: str, ours: dict[str, Any], reference: dict[str, Any], runs: float) -> None:
    """Print both sides; ``runs`` says how many runs of the reference do what ours did in one."""
    print(f"{what}:")
    for clock in ("wall", "cpu"):
        theirs = reference[clock] * runs
        print(f"  {clock:4} {ours[clock]:8.3f} s, reference {theirs:10.1f} s, ratio {theirs / ours[clock]:8.1f}")
    bleu_rouge, cider = (np.abs(ours["scores"][rows] - reference["scores"][rows]).max() for rows in (slice(5), 5))
    print(f"  scores differ by at most {bleu_rouge:.0e} (BLEU, ROUGE-L) and {cider:.0e} (CIDEr-D)")
    if bleu_rouge > 1e-12 or cider > 1e-9:
        raise SystemExit("the two sides do not give the same scores")


if __name__ == "__main__":
    main()
