"""BERTScore beside the package ``bert-score``, on the items of a data set under a network with random weights.

Both read the same folder, made here: BERT of a chosen size. Each side scores all items at once in a process of its own,
as often as the other; the least of its processor times counts, loading included. Both must give the same P, R and F.

Example: python -m scripts.bench.bertscore --items 300 --layers 9 --hidden 768
"""

from __future__ import annotations

import argparse
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
from capbench.metrics.bertscore import BERTScore
from capbench.records import Item
items = [Item(*row[:2], tuple(row[2])) for row in json.load(open(sys.argv[2]))]
metric = BERTScore(Resources(model=sys.argv[1]), layer=int(sys.argv[3]))
scores = metric.scores(metric.statistics(items, lambda _: None))
print(json.dumps([scores[f"bertscore-{which}"].tolist() for which in "prf"]))
"""
_PEER = """
import json, sys
from bert_score import BERTScorer
rows = json.load(open(sys.argv[2]))
scorer = BERTScorer(sys.argv[1], num_layers=int(sys.argv[3]), device="cpu")
scores = scorer.score([row[1] for row in rows], [row[2] for row in rows])
print(json.dumps([values.tolist() for values in scores]))
"""


def _run(code: str, *arguments: str) -> tuple[float, list[list[float]]]:
    """Processor time of a process, user and system, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, json.loads(done.stdout.strip().splitlines()[-1])


def _make(folder: Path, texts: list[str], layers: int, hidden: int) -> None:
    import torch
    import transformers

    from capbench.text.word_pieces import learn_word_pieces

    torch.manual_seed(0)
    pieces = learn_word_pieces(texts, 3000).pieces
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"))
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder, texts, asked.layers, asked.hidden)
        (folder / "rows.json").write_text(json.dumps(rows))
        arguments = (name, str(folder / "rows.json"), str(asked.layers))
        ours, peer = [], []
        for _ in range(asked.repeats):
            ours.append(_run(_OURS, *arguments))
            peer.append(_run(_PEER, *arguments))
    apart = max(float(np.abs(np.array(a[1]) - np.array(b[1])).max()) for a, b in zip(ours, peer, strict=True))
    if apart > 1e-5:
        raise SystemExit(f"scores differ by {apart:.2e}")
    first, second = min(seconds for seconds, _ in ours), min(seconds for seconds, _ in peer)
    print(f"capbench {first:.1f} s, bert-score {second:.1f} s of processor time: ratio {second / first:.2f}")
    print(f"same P, R and F to {apart:.0e}")


if __name__ == "__main__":
    main()
