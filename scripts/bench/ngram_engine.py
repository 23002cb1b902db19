"""BLEU, ROUGE-L and CIDEr-D: capbench's engine beside pycocoevalcap.

Every measurement runs in a fresh child process, one after the other, on the same captions, which are PTB
tokens already. By default the captions are generated (words with Zipf's frequencies, candidates that are
altered references); with ``--data DIR`` they are Flickr8k Expert's candidates and references, and
PASCAL-50S with all fifty references for the sweep.

Example: python scripts/bench/ngram_engine.py --items 5000 --sweep-images 1000
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import platform
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

Captions = tuple[list[str], list[list[str]]]
MEGABYTE = 1e6


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


def ours(captions: Captions) -> None:
    """All three metrics, from texts to scores."""
    from capbench.text.ngrams.statistics import EncodedCorpus, bleu_scores, bleu_statistics, cider_d, rouge_l

    corpus = EncodedCorpus.build(*captions)
    bleu_scores(bleu_statistics(corpus))
    rouge_l(corpus)
    cider_d(corpus)


def our_sweep(captions: Captions) -> None:
    """All three metrics with the first 1, 2, … references, from texts to scores."""
    from capbench.text.ngrams.statistics import EncodedCorpus, bleu_scores, sweep

    corpus = EncodedCorpus.build(*captions)
    bleu_scores(sweep(corpus, range(1, max(map(len, captions[1])) + 1)).bleu)


def reference(captions: Captions) -> None:
    """The same three metrics by pycocoevalcap."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    candidates, references = captions
    result, truth = {i: [text] for i, text in enumerate(candidates)}, dict(enumerate(references))
    Bleu(4).compute_score(truth, result, verbose=0)
    Rouge().compute_score(truth, result)
    Cider().compute_score(truth, result)


def _warm() -> Captions:
    return ["a b", "c"], [["a b c"], ["c d"]]


def measure(make: Callable[..., Captions], arguments: Sequence[Any], job: str, repeats: int) -> dict[str, float]:
    """Run one job in this process: best wall and CPU seconds, and the peak memory beyond an idle interpreter's."""
    run = {"ours": ours, "sweep": our_sweep, "reference": reference}[job]
    captions = make(*arguments)
    first = time.perf_counter()
    run(_warm())  # imports are no part of the scoring
    first = time.perf_counter() - first
    wall, cpu = [], []
    for _ in range(repeats):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        run(captions)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    return {"wall": min(wall), "cpu": min(cpu), "first": first, "peak": _peak(), "items": len(captions[0])}


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
    parser.add_argument("--repeats", type=int, default=3, help="runs of ours, the best counts (default 3)")
    options = parser.parse_args()

    print(f"{platform.platform()}, Python {platform.python_version()}, numpy {version('numpy')}, ", end="")
    print(f"pycocoevalcap {version('pycocoevalcap')}, capbench {version('capbench')}; one process, one thread")

    scoring: tuple[Callable[..., Captions], tuple[Any, ...]] = (generated, (options.items, options.references))
    steps: tuple[Callable[..., Captions], tuple[Any, ...]] = (
        generated,
        (8 * options.sweep_images, options.sweep_references, 8),
    )
    if options.data:
        scoring = published, (options.data, "flickr8k-expert", "no-own-captions")
        steps = published, (options.data, "pascal-50s", "all-50-refs")

    found, beside = (in_child(measure, *scoring, job, n) for job, n in (("ours", options.repeats), ("reference", 1)))
    _print(f"scoring {found['items']:,} candidates", found, beside, 1)
    print(f"  first call, with imports: {found['first']:.2f} s")

    found, beside = (in_child(measure, *steps, job, n) for job, n in (("sweep", options.repeats), ("reference", 1)))
    number = options.sweep_references if not options.data else 50
    _print(f"sweep over 1…{number} references of {found['items']:,} candidates", found, beside, number)
    print(f"  the reference: one run with all references took {beside['wall']:.1f} s, times {number}")

    print("growth (generated, 5 references):")
    for items in (5_000, 10_000, 20_000, 40_000):
        found = in_child(measure, generated, (items, 5), "ours", 1)
        print(f"  {items:>7,} candidates {found['cpu']:7.2f} s CPU {1e6 * found['cpu'] / items:6.1f} µs a candidate")

    arguments = (options.memory_items, 5)
    bare, loaded = in_child(idle), in_child(idle, generated, arguments)
    found = in_child(measure, generated, arguments, "ours", 1)
    print(f"memory, {options.memory_items:,} candidates x 5 references: peak {found['peak']:.0f} MB, ", end="")
    print(f"{found['peak'] - bare:.0f} MB above the interpreter with numpy ({bare:.0f} MB), of which ", end="")
    print(f"{loaded - bare:.0f} MB are the captions themselves; {found['cpu']:.1f} s CPU")


def _print(what: str, ours: dict[str, float], reference: dict[str, float], times: int) -> None:
    print(f"{what}:")
    for clock in ("wall", "cpu"):
        theirs = reference[clock] * times
        print(f"  {clock:4} {ours[clock]:8.3f} s, reference {theirs:10.1f} s, ratio {theirs / ours[clock]:8.1f}")


if __name__ == "__main__":
    main()
