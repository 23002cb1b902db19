"""TIGEr's commands of docs/paper-weights.md run as they stand there, with random weights of the published size.

The files that the section names are written in the authors' formats. Tests of each metric read those of the others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from capbench.features.store import open_store
from capbench.text.vocabulary import SPECIAL, Vocabulary
from capbench.weights import registry
from tests.datasets.native_files import token_text, write, write_json
from tests.text.vocabulary_files import write_vocabulary

ROOT = Path(__file__).resolve().parent.parent

# Names are of the published forms; captions, ratings and pictures are invented.
FLICKR8K = {
    "1000000101_0a1b2c3d4e": ["a black dog runs", "the dog runs on grass", "a dog", "one dog plays", "dog on a hill"],
    "1000000202_1b2c3d4e5f": ["a boy with a ball", "the boy kicks", "a child plays", "a boy on grass", "boy and ball"],
    "1000000303_2c3d4e5f60": ["two women sit", "women on a bench", "two people", "a bench with women", "women in red"],
}
FLICKR30K = {"4000000404": ["a man rides a bike", "the man is riding", "a bike", "a man on a road", "man and bike"]}
COCO = {"COCO_val2014_000000000505": ["a red boat", "a boat on a lake", "boats", "the lake is blue", "a boat sails"]}
HUMAN = FLICKR8K | FLICKR30K | COCO
OTHERS = ["a black dog on a bench", "the boy runs", "a woman and a child play on grass", "a blue bike near a boat"]
EXPERT = {  # ratings by image and caption of another image
    (image, text): [1 + (place + k) % 4 for k in ((0, 0, 1), (2, 3, 2), (1, 0, 3))[place % 3]]
    for place, (image, other, n) in enumerate(itertools.product(FLICKR8K, FLICKR8K, (0, 3)))
    if other != image
    for text in [FLICKR8K[other][n]]
}
COMPOSITE = {  # position 0 is one of the references
    (image, text): 1 + (3 * place + 4 * (position == 0)) % 5
    for place, image in enumerate(HUMAN)
    for position, text in enumerate([HUMAN[image][0], OTHERS[place % 4], OTHERS[(place + 1) % 4]])
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's home with the small data set in ``captions``; it is removed, since the weights take gigabytes."""
    folder = tmp_path / "user"
    _write_data(folder / "captions")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("CAPBENCH_MODELS", str(folder / "models"))
    monkeypatch.chdir(folder)
    yield folder
    shutil.rmtree(folder)


def _write_data(data: Path) -> None:
    write(data / "flickr8k/Flickr8k.token.txt", token_text({f"{image}.jpg": FLICKR8K[image] for image in FLICKR8K}))
    write(data / "flickr30k/results_20130124.token", token_text({f"{i}.jpg": FLICKR30K[i] for i in FLICKR30K}))
    write_json(data / "coco/karpathy_test_captions.json", {f"{image}.jpg": COCO[image] for image in COCO})
    identity = {text: f"{image}.jpg#{n}" for image, texts in FLICKR8K.items() for n, text in enumerate(texts)}
    pairs = [f"{image}.jpg\t{identity[text]}" for image, text in EXPERT]
    expert = [f"{pair}\t{a}\t{b}\t{c}\n" for pair, (a, b, c) in zip(pairs, EXPERT.values(), strict=True)]
    write(data / "flickr8k/ExpertAnnotations.txt", "".join(expert))
    subsets = {"8k": FLICKR8K, "30k": FLICKR30K, "coco": COCO}
    rows = ["subset\timage\tposition\tcandidate\tcorrectness\tis_reference"]
    for n, ((image, text), rating) in enumerate(COMPOSITE.items()):
        subset = next(name for name, images in subsets.items() if image in images)
        rows.append(f"{subset}\t{image}.jpg\t{n % 3}\t{text}\t{rating}\t{int(n % 3 == 0)}")
    write(data / "composite/composite_11985.tsv", "\n".join([*rows, ""]))


# The page.


PAGE = (ROOT / "docs/paper-weights.md").read_text(encoding="utf-8")


def _commands(heading: str) -> list[str]:
    """The commands of a section, after those that precede the first section."""
    parts = (PAGE.partition("\n## ")[0], PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0])
    return [line for text in parts for line in re.findall(r"^\$ (.*)", text, re.MULTILINE)]


def _run(heading: str) -> None:
    """Run a section's commands in one shell, as a user types them."""
    capbench = f'capbench() {{ "{sys.executable}" -m capbench "$@"; }}'
    settings = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script = "\n".join(["set -euo pipefail", capbench, *_commands(heading)])
    ran = subprocess.run(["bash", "-c", script], env=settings, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]


# The authors' files.


def _write_scan() -> None:
    torch.manual_seed(1)
    words = {"embed": nn.Embedding(11353, 300), "rnn": nn.GRU(300, 1024, batch_first=True, bidirectional=True)}
    networks = (nn.ModuleDict({"fc": nn.Linear(2048, 1024)}), nn.ModuleDict(words))
    options = argparse.Namespace(
        vocab_size=11353, word_dim=300, embed_size=1024, img_dim=2048, num_layers=1, bi_gru=True, no_imgnorm=False,
        no_txtnorm=False, cross_attn="t2i", agg_func="LogSumExp", raw_feature_norm="clipped_l2norm",
        precomp_enc_type="basic", lambda_lse=6.0, lambda_softmax=9.0, margin=0.2, max_violation=False,
        data_name="coco_precomp", resume="",
    )  # fmt: skip
    states = [network.state_dict() for network in networks]
    content = {"epoch": 20, "model": states, "best_rsum": 1.5, "opt": options, "Eiters": 9}
    path = Path("runs/coco_scan/log/model_best.pth")
    path.parent.mkdir(parents=True)
    torch.save(content, path, pickle_protocol=2, _use_new_zipfile_serialization=False)
    known = dict.fromkeys([*SPECIAL, *sorted(" ".join([*itertools.chain(*HUMAN.values()), *OTHERS]).split())])
    fillers = (f"filler{n}" for n in range(11353 - len(known)))
    Path("vocab").mkdir()
    write_vocabulary("vocab/coco_precomp_vocab.json", Vocabulary((*known, *fillers)))


def _write_precomputed() -> dict[str, np.ndarray[Any, Any]]:
    """Features as in the authors' folder, a row per reference; the features by image."""
    rng = np.random.default_rng(2)
    features = {image: rng.random((36, 2048), dtype=np.float32) for image in HUMAN}
    ids = {
        "flickr8k": {image: str(n) for n, image in enumerate(FLICKR8K)},
        "composite_30k": {image: image for image in FLICKR30K},
        "composite_coco": {image: image.rpartition("_")[2].lstrip("0") for image in COCO},
    }
    for name, images in ids.items():
        folder = Path(f"data/precomp/{name}_precomp")
        folder.mkdir(parents=True)
        np.save(folder / "cand_ims.npy", np.repeat([features[image] for image in images], 5, axis=0))
        write(folder / "cand_ids.txt", "".join(f"{number}\n" * 5 for number in images.values()))
        if name == "flickr8k":
            write(folder / "cand_names.txt", "".join(f"{image}.jpg\n" * 5 for image in images))
    return features


@pytest.mark.slow
def test_tiger(home: Path) -> None:
    _write_scan()
    features = _write_precomputed()
    _run("TIGEr")
    assert registry.status("scan-tiger").fits
    with open_store("features/tiger") as store:
        assert sorted(store.ids) == sorted(features)
        assert all(np.array_equal(store[image].features, features[image]) for image in features)
    results = json.loads(Path("results/tiger/results.json").read_text(encoding="utf-8"))
    assert {entry["reason"] for entry in results["missing"]} <= {"left out (--without)"}
    assert {cell["column"] for cell in results["cells"] if cell["value"] is not None} >= {"rrs", "wds", "tiger"}
    assert results["published_table"]["authors"] == {"tiger": ["model", "features"]}
