"""BERTScore beside the package ``bert-score``, on the items of a data set under a network with random weights.

Both read the same folder, made here: BERT of a chosen size. Each side scores all items at once in a process of its own,
as often as the other; the least of its processor times counts, loading included. Both must give the same P, R and F.
Ours begins with an empty cache folder; after that it scores other candidates over the same references, which it must
not encode again.

Example: python -m scripts.bench.bertscore --items 300 --layers 9 --hidden 768
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_OURS = """
import json, sys
from capbench.metrics.base import Resources
from capbench.metrics.bertscore.metric import BERTScore
from capbench.core.records import Item
items = [Item(*row[:2], tuple(row[2])) for row in json.load(open(sys.argv[2]))]
metric = BERTScore(Resources(model=sys.argv[1]), layer=int(sys.argv[3]))
scores = metric.scores(metric.statistics(items, lambda _: None))
print(metric.bert.encoded_texts)
print(json.dumps([scores[f"bertscore-{which}"].tolist() for which in "prf"]))
"""
_PEER = """
import json, sys
from bert_score import BERTScorer
rows = json.load(open(sys.argv[2]))
scorer = BERTScorer(sys.argv[1], num_layers=int(sys.argv[3]), device="cpu")
scores = scorer.score([row[1] for row in rows], [row[2] for row in rows])
print(len({text for row in rows for text in (row[1], *row[2])}))
print(json.dumps([values.tolist() for values in scores]))
"""


def _run(code: str, cache: Path, *arguments: str) -> tuple[float, int, list[list[float]]]:
    """Processor time of a process, user and system; how many texts it encoded; P, R and F."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CAPBENCH_CACHE": str(cache)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    *_, encoded, scores = done.stdout.strip().splitlines()
    return seconds, int(encoded), json.loads(scores)


def _make(folder: Path, texts: list[str], layers: int, hidden: int) -> None:
    import torch
    import transformers

    from capbench.text.word_pieces import learn_word_pieces

    torch.manual_seed(0)
    pieces = learn_word_pieces(texts, 3000).pieces
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))
    tokenizer.model_max_length = 512
    tokenizer.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden // 64),
        intermediate_size=4 * hidden,
    )
    transformers.BertModel(config).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="flickr8k-expert")
    parser.add_argument("--items", type=int, default=300, help="the first so many (default 300)")
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=2, help="runs of each, the least counts (default 2)")
    asked = parser.parse_args()

    import capbench

    items = list(capbench.load(asked.dataset).items)[: asked.items]
    rows = [[item.image, item.candidate, list(item.references)] for item in items]
    texts = sorted({text for item in items for text in (item.candidate, *item.references)})
    print(f"{platform.platform()}, Python {platform.python_version()}; load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{len(rows)} items, {len(texts)} distinct captions; BERT {asked.layers} x {asked.hidden}", flush=True)
    # The peer takes a network for T5 if there is "t5" in its path, and random names have that at times.
    with contextlib.ExitStack() as folders:
        name = folders.enter_context(tempfile.TemporaryDirectory())
        while "t5" in name:
            name = folders.enter_context(tempfile.TemporaryDirectory())
        folder = Path(name)
        _make(folder, texts, asked.layers, asked.hidden)
        (folder / "rows.json").write_text(json.dumps(rows))
        other = [[image, f"{candidate} again", references] for image, candidate, references in rows]
        (folder / "other.json").write_text(json.dumps(other))
        arguments = (name, str(folder / "rows.json"), str(asked.layers))
        others = (name, str(folder / "other.json"), str(asked.layers))
        ours, peer, second = [], [], []
        for repeat in range(asked.repeats):
            cache = folder / f"cache-{repeat}"
            ours.append(_run(_OURS, cache, *arguments))
            peer.append(_run(_PEER, cache, *arguments))
            second.append(_run(_OURS, cache, *others))
        fresh = _run(_OURS, folder / "empty", *others)
    apart = max(float(np.abs(np.array(a[2]) - np.array(b[2])).max()) for a, b in zip(ours, peer, strict=True))
    if apart > 1e-5:
        raise SystemExit(f"scores differ by {apart:.2e}")
    if any(run[2] != fresh[2] for run in second):
        raise SystemExit("scores from kept encodings are not those of fresh ones")
    candidates = {row[1] for row in other}
    if any(encoded > len(candidates) for _, encoded, _ in second):
        raise SystemExit("references were encoded again")
    least, least_peer, least_second = (min(run[0] for run in runs) for runs in (ours, peer, second))
    print(f"capbench {least:.1f} s, bert-score {least_peer:.1f} s of processor time: {least_peer / least:.2f} times")
    print(f"same P, R and F to {apart:.0e}")
    print(
        f"other candidates over the same references: {second[0][1]} captions encoded in {least_second:.1f} s, against "
        f"{fresh[1]} in {fresh[0]:.1f} s from an empty cache; the same bytes"
    )


if __name__ == "__main__":
    main()
