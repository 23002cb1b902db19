"""``capbench train``: train what metrics need on a user's own or the known data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from capbench.cli import (
    common,
    train_clip,
    train_faier,
    train_leic,
    train_nneval,
    train_reo,
    train_scan,
    train_vilbert,
)

__all__ = ["app"]

app = typer.Typer(
    help="Train what metrics need.\n\nExample: capbench train word-vectors --captions coco-val --out vectors.bin",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _train() -> None:
    """Keep 'word-vectors' a command of its own name, however many there are."""


@app.command("word-vectors")
def word_vectors(
    captions: Annotated[
        list[str],
        typer.Option(
            "--captions",
            "-c",
            metavar="NAME|FILE",
            help="Captions to learn from: a known corpus (flickr8k, flickr30k, coco-val, ...) or a file; repeatable.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write, as word2vec .bin.")],
    data: common.DataOption = None,
    dimension: Annotated[int, typer.Option(min=1, help="Components of a vector.")] = 300,
    window: Annotated[int, typer.Option(min=1, help="Words on each side that are predicted.")] = 5,
    min_count: Annotated[int, typer.Option(min=1, help="Rarer words get no vector.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the captions.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 1,
) -> None:
    """Train word vectors for WMD on captions (word2vec, skip-gram; needs gensim).

    The same captions, options and seed give the same file. Its SHA-256 is printed and stands in the signature of
    every score that is computed with it.

    Example: capbench train word-vectors --captions flickr8k --out vectors.bin
    """
    from capbench.datasets.captions import load_captions
    from capbench.datasets.root import find_root
    from capbench.files import sha256_file
    from capbench.text.embeddings.word_vectors import write_word2vec
    from capbench.training.word_vectors import WordVectorOptions, train_word_vectors

    root = find_root(data)
    common.announce_root(root)
    texts: list[str] = []
    for name in captions:
        corpus = load_captions(name, root)
        texts.extend(text for image in corpus.values() for text in image)
    options = WordVectorOptions(dimension=dimension, window=window, min_count=min_count, epochs=epochs, seed=seed)
    with common.progress("training", epochs) as done:
        words, matrix = train_word_vectors(texts, options, done)
    write_word2vec(out, words, matrix)
    print(f"{out}: {len(words):,} words x {dimension} from {len(texts):,} captions, sha256 {sha256_file(out)[:16]}")
    common.note(f"use it: capbench score --metric wmd --option wmd.vectors={out}")


app.command("scan")(train_scan.scan)


app.command("faier")(train_faier.faier)


app.command("vilbert")(train_vilbert.vilbert)


app.command("nneval")(train_nneval.nneval)


app.command("leic")(train_leic.leic)
app.command("clip")(train_clip.clip)


app.command("reo-covariance")(train_reo.reo_covariance)
