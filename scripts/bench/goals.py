"""The headline paths beside their goals: processor time (user and system) and peak memory of whole commands.

Scored are generated captions, nearly all distinct, with five references each: once anew, and once from the cache; both
runs must print the same scores. The first ``--peer`` of them are scored by pycocoevalcap with its tokeniser, too, as
often as by ``capbench score``, and both must give the same corpus scores. Ratings are generated for the import (its
outcome is compared by ``data_import.py``). Every run is a process of its own; of ``--repeats`` runs the least counts.

Example: python -m scripts.bench.goals --captions 100000

Example: python -m scripts.bench.goals --only score --captions 1000000 --repeats 1
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.data_import import write_table

_ODD = ["it's", "can't", "St.", "U.S.", "1,000", "10:30", "well-known", '"red"', "(small)", "...", "--", "$5", "p.m."]
_PEER = """
import json, sys
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer
candidates, references = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
result = PTBTokenizer().tokenize({c["image_id"]: [{"caption": c["caption"]}] for c in candidates})
truth = PTBTokenizer().tokenize({int(i): [{"caption": text} for text in texts] for i, texts in references.items()})
bleu, cider = Bleu(4).compute_score(truth, result, verbose=0)[0][3], Cider().compute_score(truth, result)[0]
print(json.dumps({"bleu-4": float(bleu), "cider": float(cider)}), file=sys.stderr)
"""


@dataclass(frozen=True)
class Run:
    """Processor time (seconds), peak memory (megabytes) and output of a process."""

    seconds: float
    megabytes: float
    out: str


def captions(count: int, seed: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Candidates of 7 to 15 words with five references each; one caption in ten holds something odd."""
    rng = random.Random(seed)
    words = list(dict.fromkeys("".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(12_000)))
    cumulative = list(itertools.accumulate(1 / (i + 2) for i in range(len(words))))

    def finished(text: list[str]) -> str:
        if rng.random() < 0.1:
            text = list(text)
            text[rng.randrange(len(text) - 1)] = rng.choice(_ODD)
        return " ".join(text).capitalize() + rng.choice([".", ".", " .", ""])

    for _ in range(count):
        topic = rng.choices(words, cum_weights=cumulative, k=12)
        texts = []
        for _ in range(5):
            text = rng.choices(words, cum_weights=cumulative, k=rng.randint(7, 15))
            begin = rng.randint(0, 6)
            text[: rng.randint(2, 6)] = topic[begin : begin + rng.randint(2, 6)]
            texts.append(text)
        candidate = list(rng.choice(texts))
        for _ in range(rng.randint(1, 4)):
            candidate[rng.randrange(len(candidate))] = rng.choice(topic)
        yield finished(candidate), [finished(text) for text in texts]


def write_captions(folder: Path, count: int) -> tuple[Path, Path]:
    """Candidates and references as files; line by line, so that this process stays small."""
    candidates, references = folder / f"candidates-{count}.json", folder / f"references-{count}.json"
    with candidates.open("w") as ours, references.open("w") as theirs:
        for i, (candidate, texts) in enumerate(captions(count)):
            ours.write(("[" if i == 0 else ",\n") + json.dumps({"image_id": i, "caption": candidate}))
            theirs.write(("{" if i == 0 else ",\n") + f'"{i}": {json.dumps(texts)}')
        ours.write("]")
        theirs.write("}")
    return candidates, references


def run(command: Sequence[str], folder: Path, **environment: str) -> Run:
    """Run a command as a process of its own. Raises SystemExit, with what it said, if it fails."""
    with (folder / "out").open("w+") as out, (folder / "err").open("w+") as err:
        # Modules are compiled to byte code by the first run, as an installed package has them.
        settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
        process = subprocess.Popen(command, stdout=out, stderr=err, env=settings, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        said = err.read()
        if process.returncode:
            raise SystemExit(f"{' '.join(command[:6])} failed: {said[-400:]}")
        unit = 1 if sys.platform == "darwin" else 1024
        return Run(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 2**20, out.read() or said)


def least(make: Callable[[], Run], repeats: int) -> Run:
    """The run with the least processor time."""
    return min((make() for _ in range(repeats)), key=lambda each: each.seconds)


def tell(what: str, measured: Run, seconds: float | None, megabytes: float | None = None) -> None:
    """One line beside its goals."""
    goals = [f"{seconds:g} s"] if seconds else []
    goals += [f"{megabytes:g} MB"] if megabytes else []
    met = (seconds is None or measured.seconds <= seconds) and (megabytes is None or measured.megabytes <= megabytes)
    verdict = f"goal {', '.join(goals)}: {'met' if met else 'MISSED'}" if goals else ""
    print(f"{what:58} {measured.seconds:7.2f} s {measured.megabytes:6.0f} MB   {verdict}", flush=True)


def corpus_scores(run: Run) -> dict[str, float]:
    """Corpus scores by column, of what ``capbench score --json`` printed."""
    return {row["column"]: row["corpus"] for row in json.loads(run.out)["scores"]}


def study_numbers(run: Run) -> dict[str, object]:
    """The output of ``correlate --json`` without the date, the duration and the use of the cache."""
    return {key: value for key, value in json.loads(run.out).items() if key not in ("created", "seconds", "cached")}


def score_lines(folder: Path, count: int, peer: int, repeats: int) -> None:
    """``capbench score``, anew and from the cache, and beside pycocoevalcap."""
    large = count >= 1_000_000
    cache = folder / "cache"

    def score(files: tuple[Path, Path], *more: str) -> Run:
        command = [sys.executable, "-m", "capbench", "score", "-m", "bleu-4", "-m", "cider", "--json", *more]
        command += ["--candidates", str(files[0]), "--references", str(files[1])]
        return run(command, folder, CAPBENCH_CACHE=str(cache))

    files = write_captions(folder, count)

    def anew() -> Run:
        for path in cache.glob("scores.sqlite*"):
            path.unlink()
        return score(files)

    first = least(anew, repeats)
    again = least(lambda: score(files), repeats)
    if again.out != first.out:
        raise SystemExit("the cache gives other scores")
    goals = ((None, 700.0), (None, None)) if large else ((18.0, 350.0), (4.0, None))
    tell(f"score -m bleu-4 -m cider, {count:,} x 5 distinct captions", first, *goals[0])
    tell("  all from the cache, same scores", again, *goals[1])
    if not peer:
        return
    files = write_captions(folder, peer)
    ours = least(lambda: score(files, "--no-cache"), repeats)
    theirs = least(lambda: run([sys.executable, "-c", _PEER, *map(str, files)], folder), repeats)
    scores, wanted = corpus_scores(ours), json.loads(theirs.out.strip().splitlines()[-1])
    worst = max(abs(scores[column] - wanted[column]) for column in wanted)
    if worst > 1e-9:
        raise SystemExit(f"pycocoevalcap gives other corpus scores: {wanted}, not {scores}")
    tell(f"score, {peer:,} x 5, with the start of the program", ours, None)
    tell(f"  pycocoevalcap: same scores to {worst:.0e}, ratio {theirs.seconds / ours.seconds:.1f}", theirs, None)


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=100_000)
    parser.add_argument("--peer", type=int, default=2_000, help="captions for pycocoevalcap, 0 for none")
    parser.add_argument("--ratings", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=2, help="runs of each, the least counts (default 2)")
    parser.add_argument("--only", choices=("score", "import", "start"), help="one group of goals")
    parser.add_argument("--sacrebleu", metavar="PYTHON", help="an interpreter with sacrebleu, to compare --help with")
    asked = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}; load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        capbench = [sys.executable, "-m", "capbench"]
        if asked.only in (None, "start"):
            shown = least(lambda: run([*capbench, "--help"], folder), asked.repeats + 3)
            limit = None
            if asked.sacrebleu:
                peer = least(lambda: run([asked.sacrebleu, "-m", "sacrebleu", "--help"], folder), asked.repeats + 3)
                tell("sacrebleu --help", peer, None)
                limit = round(1.2 * peer.seconds, 2)
            tell("capbench --help", shown, limit)
            correlate = [*capbench, "correlate", "-m", "cider", "-m", "bleu-4", "--json"]
            # A home of its own: a bare ``correlate`` takes what the user has imported, too.
            study = {
                "CAPBENCH_CACHE": str(folder / "cache"),
                "CAPBENCH_DATA": "",
                "CAPBENCH_HOME": str(folder / "home"),
            }
            cold = run(correlate, folder, **study)
            warm = least(lambda: run(correlate, folder, **study), asked.repeats + 3)
            if study_numbers(warm) != study_numbers(cold):
                raise SystemExit("correlate gives other numbers from the cache")
            tell("correlate on the sample, from the cache, same numbers", warm, 0.5)
        if asked.only in (None, "import"):
            table = folder / "ratings.csv"
            write_table(table, asked.ratings)
            (folder / "data").mkdir()
            command = [*capbench, "data", "import", str(table), "--name", "bench", "--scale", "1-5", "--replace"]
            command += ["--data", str(folder / "data")]
            # An empty cache for each run: rows of a file are cached, too.
            imported = least(lambda: run(command, folder, CAPBENCH_CACHE=tempfile.mkdtemp(dir=folder)), asked.repeats)
            tell(f"data import, {asked.ratings:,} ratings", imported, 3.0 * asked.ratings / 100_000)
        if asked.only in (None, "score"):
            score_lines(folder, asked.captions, asked.peer, asked.repeats)


if __name__ == "__main__":
    main()
