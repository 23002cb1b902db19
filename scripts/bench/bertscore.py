"""BERTScore, compared with the package ``bert-score``, with a BERT of random weights.

Both score all items at once, loading included.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from capbench.core.records import Item
from scripts.bench.common import Row, Settings, Work, between
from scripts.bench.inputs import items


def ours(folder: Path, chosen: Sequence[Item], layers: int) -> Work:
    """BERTScore."""
    from transformers import BertModel, BertTokenizer  # noqa: F401

    from capbench.metrics.bertscore import BERTScore
    from capbench.metrics.needs import Resources

    def work() -> object:
        metric = BERTScore(Resources(model=str(folder)), layer=layers)
        scores = metric.scores(metric.statistics(chosen, lambda _: None))
        return np.stack([scores[f"bertscore-{which}"] for which in "prf"])

    return work


def theirs(folder: Path, chosen: Sequence[Item], layers: int) -> Work:
    """The same by bert-score."""
    from bert_score import BERTScorer
    from transformers import BertModel, BertTokenizer  # noqa: F401

    def work() -> object:
        scorer = BERTScorer(str(folder), num_layers=layers, device="cpu")
        scores = scorer.score([item.candidate for item in chosen], [list(item.references) for item in chosen])
        return np.stack([values.numpy() for values in scores]).astype(np.float64)

    return work


def make(folder: Path, chosen: Sequence[Item], layers: int, hidden: int) -> None:
    """A folder with BERT of a size."""
    import torch
    import transformers

    from capbench.text.word_pieces import learn_word_pieces

    torch.manual_seed(0)
    texts = sorted({text for item in chosen for text in (item.candidate, *item.references)})
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


def measure(settings: Settings) -> Iterator[Row]:
    """All items."""
    name, chosen = items(settings.data, settings.pick(20, 100))
    layers, hidden = settings.pick((6, 256), (9, 768))
    # The package takes a network for T5 if its path contains "t5", as random names may.
    folder = settings.folder / "bert"
    while "t5" in str(folder):
        folder = Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    make(folder, chosen, layers, hidden)
    repeats, size = settings.repeats, f"{name}, {len(chosen):,} items, {layers} × {hidden}"
    arguments = (folder, chosen, layers)
    yield between(f"BERTScore; {size}", "bert-score", ours, theirs, *arguments, repeats=repeats, tolerance=1e-5)
