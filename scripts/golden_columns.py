"""Columns of all metrics by item id: of 200 published items of three data sets, and of networks with random weights.

``golden.py write-tests`` writes ``tests/golden/columns.json.gz``: ids, scores of 13 digits, and statistics of these
scores, but no captions and no ratings. Networks of the published shapes are drawn anew for each comparison; an array
depends on its name and shape only.
"""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import itertools
import json
import os
import string
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import capbench

PATH = Path(__file__).resolve().parent.parent / "tests" / "golden" / "columns.json.gz"
DATASETS = ("flickr8k-expert", "composite", "pascal-50s")
ITEMS = 200
Items = Sequence[capbench.Item]


def chance(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def drawn(name: str, shape: Sequence[int]) -> Any:
    """Weights that keep the scale of a layer's inputs; attention adds little, or all words would get the same state."""
    values = chance(name).standard_normal(shape, np.float32)
    if len(shape) < 2:
        return values * np.float32(0.05) + np.float32("norm" in name.lower() and name.endswith("weight"))
    attends = "biOutput" in name or ("attention" in name and "output.dense" in name)
    return values * np.float32((0.3 if attends else 1.5) / np.sqrt(np.prod(shape[1:])))


def tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(np.asarray(drawn(name, shape), np.float32)) for name, shape in shapes.items()}


def fill(network: Any) -> Any:
    state = {name: tensor.shape for name, tensor in network.state_dict().items() if tensor.is_floating_point()}
    network.load_state_dict(tensors(state), strict=False)
    return network.eval()


def words_of(items: Items) -> list[str]:
    """The words of captions but for every seventh, so that some are unknown."""
    texts = " ".join(text for item in items for text in (item.candidate, *item.references)).lower()
    words = sorted(set("".join(letter if letter.isalnum() else " " for letter in texts).split()))
    return [word for place, word in enumerate(words) if place % 7]


def vectors(folder: Path, items: Items) -> dict[str, Any]:
    from capbench.text.word_vectors import write_word2vec

    rows = [chance(word).standard_normal(50, np.float32) for word in words_of(items)]
    write_word2vec(folder / "vectors.bin", words_of(items), np.stack(rows))
    return {"options": {"vectors": str(folder / "vectors.bin")}}


def regions(folder: Path, items: Items) -> dict[str, Any]:
    """Features, boxes and classes of 36 regions of each image."""
    from capbench.features.writing import StoreWriter

    with StoreWriter(folder / "regions.h5", capbench.Fingerprint("random", "random:1", "none", "36 boxes")) as writer:
        for image in dict.fromkeys(item.image for item in items):
            random = chance(image)
            boxes = np.sort(random.random((36, 2, 2), np.float32), axis=1).reshape(36, 4) * np.float32(300)
            features = np.abs(random.standard_normal((36, 2048), np.float32))
            classes = random.integers(0, 80, 36, np.int32), random.random(36, np.float32)
            writer.add(capbench.RegionFeatures(image, 300, 300, boxes, features, *classes))
        writer.finish()
    return {"features": folder / "regions.h5"}


def nneval(folder: Path, items: Items) -> dict[str, Any]:
    sizes = {"W1": (8, 72), "b1": (72,), "W2": (72, 72), "b2": (72,), "W_out": (72, 2), "b_out": (2,)}
    np.savez(folder / "nneval.npz", **{name: drawn(name, shape) for name, shape in sizes.items()})
    return {"model": folder / "nneval.npz", **vectors(folder, items)}


def trained(folder: Path, items: Items, *labels: str) -> dict[str, Any]:
    """SCAN with REO's covariance, FAIEr's variants and LEIC."""
    from capbench.metrics.faier.network import Faier, FaierOptions
    from capbench.metrics.leic.network import Leic, LeicOptions
    from capbench.metrics.scan.network import Scan, ScanOptions
    from capbench.weights.files import write_trained

    words = capbench.Vocabulary.build(words_of(items), 1)
    files = {label: folder / f"{label}.safetensors" for label in labels}
    for label, path in files.items():
        if label == "leic":
            write_trained(path, fill(Leic(LeicOptions(len(words)))), words, {})
        elif label in ("tiger", "reo"):
            write_trained(path, fill(Scan(ScanOptions(vocabulary_size=len(words)))), words, {})
            spread = chance("covariance").standard_normal((1024, 1100))
            facts = {"kind": "capbench.reo-covariance/1", "shrinkage": 0.1, "captions": 1100}
            facts["model"] = hashlib.sha256(path.read_bytes()).hexdigest()
            made = np.frombuffer(json.dumps(facts).encode(), np.uint8)
            np.savez(f"{path}.reo.npz", matrix=spread @ spread.T / 1100, facts=made)
        else:
            write_trained(path, fill(Faier(FaierOptions(len(words), variant=VARIANTS[label]))), words, {})
    return {"model": files, **regions(folder, items)}


def pieces(folder: Path, items: Items) -> None:
    """BERT's 30,522 word pieces."""
    letters = [*string.ascii_lowercase, *".,'", *(f"##{letter}" for letter in string.ascii_lowercase)]
    known = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words_of(items)])
    fillers = (f"unused{place}" for place in range(30522 - len(known)))
    (folder / "vocab.txt").write_text("\n".join([*known, *fillers, ""]), encoding="utf-8")


def vilbert(folder: Path, items: Items) -> dict[str, Any]:
    import torch

    shapes = Path(os.environ["CAPBENCH_PARITY"], "vilbert", "full_size_state_dict_shapes.json").read_text()
    torch.save(tensors(json.loads(shapes)["VILBertForVLTasks"]), folder / "multi_task_model.bin")
    pieces(folder, items)
    return {"model": folder / "multi_task_model.bin", **regions(folder, items)}


def bert(folder: Path, items: Items) -> dict[str, Any]:
    import transformers

    fill(transformers.BertModel(transformers.BertConfig())).save_pretrained(folder)
    pieces(folder, items)
    facts = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return {"model": folder}


def clip_merges() -> list[str]:
    """48,894 merges of letters, the number of CLIP's."""
    letters, ends = string.ascii_lowercase, ("", "</w>")
    merges = [f"{a} {b}{end}" for a, b, end in itertools.product(letters, letters, ends)]
    merges += [f"{a}{b} {c}{end}" for a, b, c, end in itertools.product(letters, letters, letters, ends)]
    more = (f"{a}{b} {c}{d}" for a, b, c, d in itertools.product(letters, repeat=4))
    return [*merges, *itertools.islice(more, 48894 - len(merges))]


def clip(folder: Path, items: Items) -> dict[str, Any]:
    import torch
    import transformers
    from PIL import Image

    network = fill(transformers.CLIPModel(transformers.CLIPConfig()))
    common = torch.from_numpy(drawn("common", (1, 512))[0])  # in all vectors: the score of a negative cosine is 0
    network.text_model.final_layer_norm.bias.data = 512 * common @ network.text_projection.weight
    network.vision_model.post_layernorm.bias.data = 512 * common @ network.visual_projection.weight
    network.save_pretrained(folder)
    merges = "\n".join(["version", *clip_merges(), ""])
    (folder / "bpe_simple_vocab_16e6.txt.gz").write_bytes(gzip.compress(merges.encode()))
    for image in dict.fromkeys(item.image for item in items):
        Image.fromarray(chance(image).integers(0, 256, (12, 16, 3), np.uint8)).save(folder / f"{image}.png")
    return {"model": folder, "images": folder}


@dataclass(frozen=True)
class Part:
    """Metrics that are scored together."""

    metrics: str  # a line for each: its label, ``=`` and its name if that is another, and options
    # writes what the metrics need into a folder; returns arguments of :func:`capbench.score`. The options that it
    # returns belong to all metrics
    files: Callable[..., dict[str, Any]] = lambda folder, items: {}
    tolerance: float = 1e-5  # 1e-12 for rules, 1e-10 for float64, 1e-5 for networks of float32; relative
    items: int = ITEMS  # how many of each data set
    datasets: Sequence[str] = DATASETS[:1]
    java: bool = False  # whether SPICE's parser is needed

    @property
    def requests(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Metric and options by label."""
        lines = (line.split() for line in self.metrics.strip().splitlines())
        pairs = {name: [option.split("=") for option in options] for name, *options in lines}
        return {
            name.partition("=")[0]: (name.rpartition("=")[2], {key: yaml.safe_load(value) for key, value in options})
            for name, options in pairs.items()
        }


VARIANTS = {"f": "faier-object", "i": "fier-object", "t": "aier-object", "f-r": "faier", "both-r": "fier+aier"}
_RULES = """
bleu
rouge-l
rouge-1=rouge-l beta=1
meteor
cider
cider-coco=cider df=coco-val
cider-images=cider df=images
cider-2=cider sigma=2
"""
_BERT = "bertscore\nidf=bertscore idf=references reduce=mean\nbert-tbr threshold=0.85\n"
_VILBERT = "vilbertscore any_features=true\nother=vilbertscore any_features=true "
PARTS = {
    "rules": Part(_RULES, tolerance=1e-12, datasets=DATASETS),
    "spice": Part("spice\nspider", tolerance=1e-12, items=24, java=True),
    "wmd": Part("wmd", vectors, 1e-10, datasets=DATASETS),
    "vifidel": Part("vifidel classes=coco-80", lambda *given: {**regions(*given), **vectors(*given)}, 1e-10),
    "nneval": Part("nneval", nneval, 1e-10, items=24, java=True),
    "tiger": Part("tiger\nhalf=tiger d_rel=half tau=0.5", lambda *given: trained(*given, "tiger")),
    "reo": Part("reo\nplain=reo covariance=identity", lambda *given: trained(*given, "reo")),
    "faier": Part("f=faier\ni=faier\nt=faier", lambda *given: trained(*given, "f", "i", "t")),
    "relations": Part("f-r=faier\nboth-r=faier", lambda *given: trained(*given, "f-r", "both-r"), items=24, java=True),
    "leic": Part("leic\nmax=leic references=max", lambda *given: trained(*given, "leic")),
    "bert": Part(f"{_BERT}slips=bert-tbr threshold=0.85 variant=released", bert, items=24),
    "vilbert": Part(f"{_VILBERT}special_tokens=bertscore reduce=max padding=masked idf=corrected", vilbert, items=12),
    "clip": Part("clipscore\npac-s", clip, items=16),
}


@functools.cache
def load(dataset: str) -> tuple[capbench.Judgements, dict[int, str]]:
    """Judgements, and ids by index of 200 items of images in an order of chance."""
    judgements = capbench.load(dataset)
    places = sorted(range(len(judgements.items)), key=lambda i: (zlib.crc32(judgements.items[i].image.encode()), i))
    chosen = ((i, judgements.items[i]) for i in places[:ITEMS])
    return judgements, {i: f"{item.image} {item.candidate_id}" for i, item in chosen}


def scores(part: Part, folder: Path) -> dict[str, Any]:
    """Ids of items, and scores by column, that of the corpus at the end, by data set."""
    answers = {}
    for dataset in part.datasets:
        judgements, names = load(dataset)
        items = [judgements.items[i] for i in names][: part.items]
        (folder / dataset).mkdir()
        given = part.files(folder / dataset, items)
        common = given.pop("options", {})
        options = {label: {**common, **own} for label, (_, own) in part.requests.items()}
        metrics = {label: metric for label, (metric, _) in part.requests.items()}
        table = capbench.score(items, metrics=metrics, options=options, cache=False, **given)
        columns = {
            f"{key.label}.{key.column}": [float(f"{value:.13g}") for value in (*values, table.corpus[key])]
            for key, values in table.values.items()
        }
        answers[dataset] = {"items": list(names.values())[: part.items], "columns": columns}
    return answers


def differences(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for each score that differs by more than the tolerance: of its value, for networks also of the mean."""
    lines, tolerance = [], PARTS[name].tolerance
    for dataset, stored in then.items():
        items, columns = now[dataset]["items"], now[dataset]["columns"]
        if stored["items"] != items or stored["columns"].keys() != columns.keys():
            lines.append(f"{name}, {dataset}: other items or columns")
            continue
        for column, values in stored["columns"].items():
            old, new = np.array(values), np.array(columns[column])
            scale = np.maximum(np.abs(old), 0 if tolerance < 1e-11 else np.abs(old).mean())
            for i in np.flatnonzero(~(np.abs(new - old) <= tolerance * scale)):
                of = f"{name}, {dataset}, {column} of {[*items, 'corpus'][i]}"
                lines.append(f"{of}: {old[i]} is stored, {new[i]} came out")
    return lines


_TESTS = "--bootstrap 100 --compare permutation --permutations 100"
_STEIGER = "--bootstrap 100 --interval bca --compare steiger --correction bh"
_BY_ITEM = "--bootstrap 100 --compare bootstrap --unit item"
COMMANDS = {
    "flickr8k-expert": ("--all-protocols", _TESTS, f"-p mean-pearson {_STEIGER}", f"-p mean-spearman {_BY_ITEM}"),
    "composite": ("--all-protocols", _TESTS, f"-p pearson {_STEIGER}", f"-p spearman {_BY_ITEM}"),
    "pascal-50s": ("--all-protocols", _TESTS, "--compare mcnemar --correction none"),
}
"""Options of ``correlate`` on stored scores."""


def _run(folder: Path, words: Sequence[str]) -> str:
    """The output of a command."""
    command = [sys.executable, "-m", "capbench", *words]
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True, text=True).stdout


def statistics(
    parts: Mapping[str, Any], folder: Path, run: Callable[[Path, Sequence[str]], str] = _run
) -> dict[str, dict[str, list[float | None]]]:
    """Numbers by command, from stored scores of rules and published judgements in files that have ids for captions."""
    answers = {}
    for dataset, commands in COMMANDS.items():
        judgements, names = load(dataset)
        columns = parts["rules"][dataset]["columns"]
        rows = {i: {"image": judgements.items[i].image, "group": judgements.items[i].group} for i in names}
        scored = [
            {**rows[i], "caption": names[i], **{column: values[place] for column, values in columns.items()}}
            for place, i in enumerate(names)
        ]
        judged: list[dict[str, Any]] = [
            {**rows[i], "reference_1": "a", "candidate": names[i], "rating": value, "rater": rater}
            for ratings in judgements.ratings.values()
            for i, value, rater in zip(ratings.item, ratings.value, ratings.rater, strict=True)
            if i in names
        ]
        if pairs := judgements.preferences.get("direct"):
            judged = [
                {**rows[a], "reference_1": "a", "candidate_a": names[a], "candidate_b": names[b], "preferred": word}
                for a, b, better in zip(pairs.first, pairs.second, pairs.preferred, strict=True)
                for word in [("tie", "a", "b")[better]]
                if a in names and b in names
            ]
        for file, lines in (("scores.csv", scored), ("judged.csv", judged)):
            with open(folder / file, "w", encoding="utf-8", newline="") as stream:
                writer = csv.DictWriter(stream, list(lines[0]))
                writer.writeheader()
                writer.writerows(lines)
        for options in commands:
            line = f"correlate -d judged.csv --scores scores.csv {options} --json".split()
            answers[f"{dataset} {options}"] = _numbers(json.loads(run(folder, line)))
    return answers


def _numbers(payload: Any) -> dict[str, list[float | None]]:
    result = payload.get("result", payload)
    numbers = {
        f"{cell['protocol']} {cell['column']} {cell['group']}": [
            cell[key] for key in ("value", "low", "high", "n", "ties", "p_value")
        ]
        for cell in result["cells"]
    }
    for test in result["comparisons"]:
        for pair in test["pairs"]:
            place = f"{test['protocol']} {test['group']} {pair['better']} over {pair['worse']}"
            numbers[place] = [pair[key] for key in ("difference", "low", "high", "p_value", "p_adjusted")]
    return numbers


def read() -> Any:
    """The stored parts and statistics."""
    return json.loads(gzip.decompress(PATH.read_bytes()))


def write() -> list[str]:
    """Compute everything anew and store it. Returns what differs from what was stored."""
    then = read() if PATH.exists() else {"parts": {}, "statistics": {}}
    parts = {}
    for name, part in PARTS.items():
        with tempfile.TemporaryDirectory(prefix="capbench-columns-") as folder:
            parts[name] = scores(part, Path(folder))
    with tempfile.TemporaryDirectory(prefix="capbench-columns-") as folder:
        now = {"parts": parts, "statistics": statistics(parts, Path(folder))}
    text = json.dumps(now, separators=(",", ":"))
    PATH.write_bytes(gzip.compress(text.encode(), mtime=0))
    lines = [line for name, of in then["parts"].items() if name in parts for line in differences(name, of, parts[name])]
    changed = [key for key, numbers in then["statistics"].items() if numbers != now["statistics"].get(key)]
    return [*lines, *(f"statistics of {key} differ" for key in changed)]
