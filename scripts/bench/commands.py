"""Whole commands: ``score``, its cache, ``correlate`` on the sample, ``--help``.

The full size scores a million captions with five references, which takes half an hour.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.bench.common import Goal, Measured, MissingError, Row, Settings, command, least
from scripts.bench.inputs import write_captions

_CAPBENCH = [sys.executable, "-m", "capbench"]
_PEER = """
import json, os, sys
from capbench.text.java import find_java
os.environ["PATH"] = f"{find_java().path.parent}{os.pathsep}{os.environ.get('PATH', '')}"
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
candidates, references = json.load(open(sys.argv[2])), json.load(open(sys.argv[4]))
result = PTBTokenizer().tokenize({c["image_id"]: [{"caption": c["caption"]}] for c in candidates})
truth = PTBTokenizer().tokenize({int(i): [{"caption": text} for text in texts] for i, texts in references.items()})
bleu, cider = Bleu(4).compute_score(truth, result, verbose=0)[0][3], Cider().compute_score(truth, result)[0]
print(json.dumps({"bleu-4": float(bleu), "cider": float(cider)}))
"""


def corpus_scores(run: Measured) -> dict[str, float]:
    """Corpus scores by column, from the output of either side."""
    printed = json.loads(run.result.strip().splitlines()[-1] if '"scores"' not in run.result else run.result)
    return {row["column"]: row["corpus"] for row in printed["scores"]} if "scores" in printed else printed


def scoring(folder: Path, count: int, cache: str | None) -> Callable[[], Measured]:
    """``score -m bleu-4 -m cider``; ``cache`` is the folder to use, or None."""
    options = ["--json"] if cache else ["--json", "--no-cache"]
    words = [*_CAPBENCH, "score", "-m", "bleu-4", "-m", "cider", *write_captions(folder, count), *options]
    return lambda: command(words, folder, **({"CAPBENCH_CACHE": cache} if cache else {}))


def measure(settings: Settings) -> Iterator[Row]:
    """Each command; one that fails does not stop the others."""
    folder, repeats = settings.folder, settings.repeats
    for work in (_help, _correlate, _peer, _cached, _million):
        try:
            yield from work(settings, folder, repeats)
        except MissingError as error:
            yield Row(f"commands: {work.__name__.strip('_')}", missing=str(error))


def _help(_: Settings, folder: Path, repeats: int) -> Iterator[Row]:
    ours, theirs = least(
        lambda: command([*_CAPBENCH, "--help"], folder),
        lambda: command([sys.executable, "-m", "sacrebleu", "--help"], folder),
        repeats=repeats + 3,
    )
    goal = Goal(theirs.seconds / ours.seconds, 0.8, "times as fast", minimum=True)
    yield Row("--help", ours.seconds, "sacrebleu --help", theirs.seconds, ours.megabytes, goals=(goal,))


def _correlate(_: Settings, folder: Path, repeats: int) -> Iterator[Row]:
    words = [*_CAPBENCH, "correlate", "-m", "cider", "-m", "bleu-4", "--json"]
    homes = {"CAPBENCH_CACHE": str(folder / "sample"), "CAPBENCH_HOME": str(folder / "home")}
    command(words, folder, **homes)
    (warm,) = least(lambda: command(words, folder, **homes), repeats=repeats + 3)
    goals = (Goal(warm.seconds, 0.5, "s"),)
    yield Row("correlate, 2 metrics on the sample, cached", warm.seconds, megabytes=warm.megabytes, goals=goals)


def _peer(_: Settings, folder: Path, repeats: int) -> Iterator[Row]:
    count = 2_000
    files = write_captions(folder, count)
    ours, theirs = least(
        scoring(folder, count, None), lambda: command([sys.executable, "-c", _PEER, *files], folder), repeats=repeats
    )
    scores, wanted = corpus_scores(ours), corpus_scores(theirs)
    worst = max(abs(scores[column] - wanted[column]) for column in wanted)
    what, peer = f"score BLEU-4, CIDEr; {count:,} × 5, with start", "pycocoevalcap, its PTB jar included"
    if worst > 1e-9:
        yield Row(what, peer=peer, missing=f"corpus scores differ by {worst:.1e}")
    else:
        yield Row(what, ours.seconds, peer, theirs.seconds, ours.megabytes, worst)


def _cached(settings: Settings, folder: Path, repeats: int) -> Iterator[Row]:
    count = settings.pick(10_000, 100_000)
    caches = (str(folder / f"cache{place}") for place in range(repeats))
    (first,) = least(lambda: scoring(folder, count, next(caches))(), repeats=repeats)
    (again,) = least(scoring(folder, count, str(folder / "cache0")), repeats=repeats)
    goals = [(), ()] if not settings.full else [(18.0, 350.0), (4.0, 350.0)]
    for title, run, limits in (("", first, goals[0]), (", from the cache", again, goals[1])):
        values = zip((run.seconds, run.megabytes), limits, ("s", "MB"), strict=False)
        met = tuple(Goal(*value) for value in values)
        what = f"score BLEU-4, CIDEr; {count:,} × 5{title}"
        if corpus_scores(run) != corpus_scores(first):
            yield Row(what, missing="the cache gives other scores")
        else:
            yield Row(what, run.seconds, megabytes=run.megabytes, goals=met)


def _million(settings: Settings, folder: Path, _: int) -> Iterator[Row]:
    count = settings.pick(50_000, 1_000_000)
    run = scoring(folder, count, str(folder / "million"))()
    goals = (Goal(run.megabytes, 1_800, "MB"),)
    yield Row(f"score BLEU-4, CIDEr; {count:,} × 5", run.seconds, megabytes=run.megabytes, goals=goals)
