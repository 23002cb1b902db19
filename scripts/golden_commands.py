"""The commands whose output ``golden.py`` keeps and compares, and the small files that they read."""

from __future__ import annotations

import fnmatch
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["REAL", "SAMPLE", "Command", "choose", "with_needed", "write_inputs"]

Parser = Literal["none", "shared", "fresh"]


@dataclass(frozen=True)
class Command:
    """One call of capbench.

    Attributes:
        name: what its file is called.
        arguments: what stands after ``capbench``.
        code: the exit code that it ends with.
        files: what it writes and is to be kept, below the work folder; of a folder, all that is in it.
        after: names of the commands whose files it reads.
        cache_of: the command whose cache folder it goes on with; default: an empty one of its own.
        parser: whether SPICE's parser is there: ``none``; ``shared``, with parses that earlier runs left; or ``fresh``.
        blank: keys of its JSON whose values depend on the machine, and are not kept.
        test: whether the tests run it, too.
        networks: whether its numbers come from networks, which other processors round otherwise.
        titles: in the tests: the command whose JSON says which metric column a title belongs to.
    """

    name: str
    arguments: tuple[str, ...]
    code: int = 0
    files: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    cache_of: str = ""
    parser: Parser = "none"
    blank: tuple[str, ...] = ()
    test: bool = False
    networks: bool = False
    titles: str = ""


def _command(
    name: str,
    line: str,
    *,
    code: int = 0,
    files: Sequence[str] = (),
    after: Sequence[str] = (),
    cache_of: str = "",
    parser: Parser = "none",
    blank: Sequence[str] = (),
    test: bool = False,
    titles: str = "",
) -> Command:
    """A command from its line; what reads the sample's features comes after their extraction."""
    arguments = tuple(shlex.split(line))
    networks = _FEATURES in arguments or "demo" in arguments
    needed = [*after, *(["extract"] if networks and name != "extract" else [])]
    if cache_of:
        needed.append(cache_of)
    return Command(
        name,
        arguments,
        code,
        tuple(files),
        tuple(dict.fromkeys(needed)),
        cache_of,
        parser,
        tuple(blank),
        test,
        networks,
        titles,
    )


_FEATURES = "features/sample.h5"
_GROUNDED = f"--features {_FEATURES} --model sample"
_TEXT = "-m bleu -m rouge-l -m meteor -m cider"
_NETWORKS = "-m tiger -m reo"
_EXPERT = "-p flickr8k-expert/no-own-captions/unaggregated-tau-c"
_CROWDFLOWER = "-p flickr8k-crowdflower/own-reference-out/tau-b"
_COMPOSITE = "-d composite -p composite/same-text-out/correctness-tau-c"
_COMPOSITE_8K = "-p composite@8k/same-text-out/correctness-tau-c"
_PASCAL = "-d pascal-50s -p pascal-50s/json-5-refs/direct-strict"
_WORDS = "bleu-1 bleu-4 rouge-l meteor cider"

_FEATURE_STORES = (
    _command("extract", f"extract-features --data sample --threads 1 --out {_FEATURES} --json"),
    _command("features-info", f"features info {_FEATURES} --json"),
    _command("features-verify", f"features info --verify {_FEATURES} --json"),
    _command(
        "features-show", f"features show f8k_003 --features {_FEATURES} --out shown.html --json", files=["shown.html"]
    ),
    _command("features-export-npz", f"features export {_FEATURES} sample.npz --json", files=["sample.npz"]),
    _command("features-export-tsv", f"features export {_FEATURES} sample.tsv --json"),
    _command(
        "import-features-tsv",
        "features import sample.tsv --detector other --out features/tsv.h5 --json",
        after=["features-export-tsv"],
    ),
    _command(
        "features-export-again",
        "features export features/tsv.h5 tsv.npz --json",
        files=["tsv.npz"],
        after=["import-features-tsv"],
    ),
    _command("features-merge", f"features merge features/merged.h5 {_FEATURES} --compression gzip --json"),
    _command("import-features-grid", "features import grid.npz --detector grid --out features/grid.h5 --json"),
    _command(
        "features-pool",
        "features pool features/grid.h5 features/pooled.h5 --windows pyr30 --json",
        after=["import-features-grid"],
    ),
    _command(
        "features-export-pooled",
        "features export features/pooled.h5 pooled.npz --json",
        files=["pooled.npz"],
        after=["features-pool"],
    ),
)

_TRAINING = (
    _command("train-scan", "train scan tiny.yaml --out run-1 --json", files=["run-1/log.jsonl"], after=["extract"]),
    _command("train-scan-seed", "train scan tiny.yaml --out run-2 --seed 2 --json", after=["extract"]),
    _command(
        "train-scan-evaluate", "train scan tiny.yaml --out run-1 --evaluate dev --folds 3 --json", after=["train-scan"]
    ),
    _command(
        "train-reo-covariance",
        f"train reo-covariance --model run-1/model.safetensors --features {_FEATURES} -c flickr8k",
        after=["train-scan"],
    ),
    _command(
        "models-ensemble",
        "models combine run-1/model.safetensors run-2/model.safetensors --out both.json --json",
        after=["train-scan", "train-scan-seed"],
    ),
    _command(
        "score-trained",
        f"score {_NETWORKS} --features {_FEATURES} --model tiger=both.json --model reo=run-1/model.safetensors --json",
        after=["models-ensemble", "train-reo-covariance"],
    ),
    _command(
        "figure-training-log",
        "figure training-log run-1 --out training.svg",
        files=["training.svg"],
        after=["train-scan"],
    ),
    _command("train-word-vectors", "train word-vectors -c coco-val --out vectors.bin --dimension 20 --epochs 2"),
    _command(
        "score-wmd",
        f"score -m wmd {_COMPOSITE} --option wmd.vectors=vectors.bin --json",
        after=["train-word-vectors"],
    ),
)

_LISTS = (
    _command("metrics", "metrics --json"),
    _command("metrics-table", "metrics"),
    _command("protocols", "data info --protocols --json"),
    _command("protocols-composite", "data info --protocols composite"),
    _command("models-list", "models list --json"),
    _command("models-info", "models list torchvision-frcnn --json"),
    _command("data-list", "data info --json"),
    _command("data-info", "data info --json"),
    _command("data-info-composite", "data info composite"),
    _command("data-verify", "data info --verify --json"),
    _command("data-verify-foil", "data info --verify foil"),
    _command("doctor", "doctor --no-java --json", parser="shared", blank=["detail"]),
    _command(
        "parse",
        "explore parse 'a brown dog chases two red balls' 'Three small kites over a sandy beach .' 'nothing' --json",
        parser="fresh",
    ),
    _command("parse-without-parser", "explore parse 'a brown dog chases two red balls'", code=2),
)

_IMPORTED = (
    _command("data-import-ratings", "data import ratings.csv --name rated --scale 1-5 --json"),
    _command("data-import-votes", "data import votes.jsonl --name voted --json"),
    _command("data-import-bad", "data import bad.csv --name bad --json", code=2),
    _command("data-list-imported", "data info", after=["data-import-ratings", "data-import-votes"]),
    _command(
        "data-verify-imported",
        "data info --verify rated voted --json",
        after=["data-import-ratings", "data-import-votes"],
    ),
    _command("protocols-imported", "data info --protocols rated --json", after=["data-import-ratings"]),
    _command(
        "correlate-imported",
        f"correlate -d rated -d voted {_TEXT} --json",
        after=["data-import-ratings", "data-import-votes"],
    ),
    _command("correlate-file", f"correlate -d ratings.csv {_TEXT} --json"),
    _command(
        "compare-imported",
        "compare cider bleu-1 -d rated --bootstrap 100 --permutations 100 --json",
        after=["data-import-ratings"],
    ),
)

_STUDIES = (
    _command("study-demo", "correlate demo --out results/demo", files=["results/demo"]),
    *(
        _command(f"study-{study}", f"correlate {study} --out results/{study} --json", parser="shared")
        for study in (
            "tiger-table2",
            "tiger-figure7",
            "faier-table1",
            "faier-table3",
            "vilbertscore-table1",
            "vilbertscore-table2",
            "field-2025",
        )
    ),
    _command("study-reo-table1", f"correlate reo-table1 {_GROUNDED} --json", parser="shared"),
    _command(
        "study-tiger-table1",
        f"correlate tiger-table1 {_GROUNDED} --out results/tiger-table1 --json",
        files=["results/tiger-table1/results.csv", "results/tiger-table1/results.md"],
        parser="shared",
    ),
    _command("study-foil", "correlate foil --json", parser="shared"),
    _command(
        "study-text-metrics",
        "correlate text-metrics --out results/text-metrics --json",
        files=["results/text-metrics/results.csv", "results/text-metrics/comparisons.csv"],
        parser="shared",
    ),
    _command("study-text-metrics-table", "correlate text-metrics", parser="shared"),
    _command("study-own", "correlate study.yaml --json"),
)

_QUICK = (
    _command(
        "correlate-text",
        f"correlate {_EXPERT} {_CROWDFLOWER} {_COMPOSITE} {_PASCAL} -p foil/own-caption-out/right-strict "
        f"-p flickr8k-swaps/changed-reference-out/component-strict {_TEXT} --json",
        test=True,
        titles="correlate-text",
    ),
    _command(
        "correlate-grounded",
        f"correlate {_EXPERT} {_CROWDFLOWER} {_COMPOSITE} {_PASCAL} {_NETWORKS} -m cider {_GROUNDED} --json",
        test=True,
        titles="correlate-grounded",
    ),
    _command("correlate-again", f"correlate {_COMPOSITE} {_TEXT} --json"),
    _command("correlate-from-cache", f"correlate {_COMPOSITE} {_TEXT} --json", cache_of="correlate-again"),
    _command("correlate-no-cache", f"correlate {_COMPOSITE} {_TEXT} --json --no-cache"),
    _command("correlate-all", f"correlate {_COMPOSITE} -m all {_GROUNDED} --json", parser="shared"),
    _command("correlate-all-without-parser", "correlate -d foil -m all"),
    _command(
        "correlate-recent",
        "correlate -d foil-full -d nebula -d nebula:1 -d polaris -p thumb/all-systems/total-pearson "
        "-p thumb/no-human/recall-tau-b -p composite/clipscore/tau-c -m bleu -m rouge-l -m cider --json",
        test=True,
        titles="correlate-recent",
    ),
    _command("correlate-nocaps", "correlate -d nocaps -m bleu-4 -m cider --json"),
    _command(
        "correlate-groups",
        f"correlate {_COMPOSITE_8K} -p composite@coco/same-text-out/correctness-tau-c "
        f"-p pascal-50s@MM/json-5-refs/direct-strict {_TEXT} --json",
    ),
    _command(
        "correlate-protocols",
        "correlate -p composite/all-references/thoroughness-tau-b -p flickr8k-expert/one-reference/mean-pearson "
        "-p pascal-50s/random-5-refs/consensus-ties-half -m bleu-4 -m meteor -m cider --json",
    ),
    _command(
        "correlate-partial-protocols",
        "correlate -d flickr8k-expert -p median-spearman -p all-pairs/mode-tau-b -m rouge-l -m cider --json",
    ),
    _command(
        "correlate-options",
        f"correlate {_COMPOSITE} -m cider -m rouge-l -m meteor --option cider.df=coco-val --option cider.sigma=4 "
        "--option rouge-l.beta=1 --json",
    ),
    _command(
        "correlate-grounded-options",
        f"correlate -d flickr8k-expert {_NETWORKS} {_GROUNDED} --option tiger.tau=0.5 --option tiger.d_rel=half "
        "--option reo.covariance=identity --json",
    ),
    _command(
        "correlate-intervals",
        f"correlate {_COMPOSITE} {_PASCAL} -m bleu-4 -m rouge-l -m cider --bootstrap 200 --compare permutation "
        "--permutations 200 --seed 3 --json",
        test=True,
        titles="correlate-text",
    ),
    _command(
        "correlate-intervals-bca",
        "correlate -d flickr8k-expert -m bleu-4 -m rouge-l -m cider --bootstrap 200 --interval bca --compare bootstrap "
        "--correction bh --alpha 0.1 --unit item --json",
    ),
    _command(
        "correlate-steiger",
        "correlate -p flickr8k-expert/no-own-captions/mean-pearson -m bleu-4 -m meteor -m cider --compare steiger "
        "--json",
    ),
    _command(
        "correlate-all-protocols",
        "correlate --all-protocols -d foil -d flickr8k-crowdflower -m bleu-1 -m bleu-4 -m cider --json",
        test=True,
        titles="correlate-text",
    ),
    _command("correlate-all-protocols-composite", "correlate --all-protocols -d composite -m rouge-l -m cider --json"),
    _command(
        "correlate-all-protocols-compared",
        "correlate --all-protocols -d pascal-50s -m bleu-1 -m rouge-l -m cider --compare permutation "
        "--permutations 200 --out results/all-protocols",
        files=["results/all-protocols"],
    ),
    _command("correlate-planned", "correlate -d foil -m bleu-1 -m nneval -m faier --json"),
)

_COMPARE = (
    _command(
        "compare",
        f"compare {_WORDS} {_COMPOSITE} --bootstrap 200 --permutations 200 --json",
        test=True,
        titles="correlate-text",
    ),
    _command("compare-table", f"compare {_WORDS} {_PASCAL} --bootstrap 200 --permutations 200 --correction bh"),
    _command(
        "compare-grounded",
        f"compare tiger rrs reo-omission cider --bootstrap 200 --permutations 200 {_GROUNDED} --json",
        test=True,
        titles="correlate-grounded",
    ),
    _command(
        "compare-spice",
        f"compare spice spider cider {_COMPOSITE} --bootstrap 100 --permutations 100 --json",
        parser="shared",
    ),
    _command("compare-bootstrap", f"compare {_WORDS} --test bootstrap --bootstrap 200 --unit rating --json"),
    _command("compare-williams", f"compare {_WORDS} --test williams -p mean-pearson --bootstrap 100 --json"),
    _command("compare-steiger", f"compare {_WORDS} --test steiger -p mean-spearman --bootstrap 100 --json"),
    _command("compare-mcnemar", f"compare {_WORDS} -d foil --test mcnemar --bootstrap 100 --correction none --json"),
    _command(
        "compare-group",
        "compare cider meteor -d composite -p composite@30k/same-text-out/correctness-tau-c --bootstrap 100 "
        "--permutations 100 --unit item --seed 7 --json",
    ),
)

_LOOKS = (
    _command("power", "compare --power bleu-4 cider --bootstrap 200 --json", test=True, titles="correlate-text"),
    _command(
        "power-gap",
        f"compare rrs meteor {_PASCAL} --gap 0.05 --power 0.9 --alpha 0.01 --bootstrap 100 {_GROUNDED}",
    ),
    _command(
        "references",
        "correlate --references-curve -m bleu-4 -m meteor -m cider --counts 1,5,50 --draws 2 --group MM --out curves "
        "--json",
        files=["curves/curves.csv", "curves/curves.svg"],
        test=True,
        titles="correlate-text",
    ),
    _command(
        "references-grounded",
        f"correlate --references-curve -d flickr8k-expert -m tiger.tiger -m grounding --counts 0,1,5 --draws 2 "
        f"{_GROUNDED} --json",
        test=True,
        titles="correlate-grounded",
    ),
    _command(
        "references-table", f"correlate --references-curve {_COMPOSITE} --counts 1-3 --draws 2 --seed 4 --group coco"
    ),
    _command("examples", f"explore examples {_COMPOSITE} -m meteor -n 3 --json", test=True, titles="correlate-text"),
    _command("examples-written", "explore examples --out examples.md", files=["examples.md"]),
    _command(
        "examples-page",
        f"explore examples -m reo-relevance -n 1 --seed 2 {_GROUNDED} --out examples.html --json",
        files=["examples.html"],
    ),
    _command(
        "explain-tiger",
        f"explore explain -i f8k_003 -c 'two purple fish' -r 'three blue houses and a fish' -r 'fish' {_GROUNDED} "
        "--option tiger.tau=0.5 --out explained",
        files=["explained.html"],
    ),
    _command(
        "explain-reo",
        f"explore explain -m reo -i f8k_003 {_GROUNDED} --out explained-reo --json",
        files=["explained-reo.html"],
    ),
)

_FIGURES = (
    _command(
        "figure-forest",
        f"figure forest bleu-4 meteor cider {_COMPOSITE} --bootstrap 200 --out forest.svg",
        files=["forest.svg"],
    ),
    _command(
        "figure-forest-saved",
        "figure forest --from results/text-metrics/results.json -p composite/same-text-out/correctness-tau-c "
        "--out forest-saved.svg",
        files=["forest-saved.svg"],
        after=["study-text-metrics"],
    ),
    _command(
        "figure-significance",
        "figure significance bleu-4 meteor cider --bootstrap 200 --out significance.svg",
        files=["significance.svg"],
    ),
    _command(
        "figure-curves",
        "figure curves curves/curves.json --group MM --out curves.svg",
        files=["curves.svg"],
        after=["references"],
    ),
    _command(
        "figure-ratings",
        "figure ratings cider meteor --out ratings.svg --json",
        files=["ratings.svg"],
        test=True,
        titles="correlate-text",
    ),
    _command("figure-ratings-table", f"figure ratings cider bleu {_COMPOSITE} --out ratings-2.svg"),
    _command(
        "figure-score-groups",
        f"figure score-groups cider grounding reo-omission {_COMPOSITE} {_GROUNDED} --out groups.svg --json",
        files=["groups.svg"],
        test=True,
        titles="correlate-grounded",
    ),
)

_SCORE = (
    _command(
        "score",
        f"score {_TEXT} {_COMPOSITE} --out scores.csv --json",
        files=["scores.csv"],
        test=True,
        titles="correlate-text",
    ),
    _command("score-from-cache", f"score {_TEXT} {_COMPOSITE} --json", cache_of="score"),
    _command("score-other-from-cache", f"score {_TEXT} -p composite/all-references --json", cache_of="score"),
    _command(
        "score-grounded",
        f"score {_NETWORKS} {_GROUNDED} --out grounded.csv --json",
        files=["grounded.csv"],
        test=True,
        titles="correlate-grounded",
    ),
    _command("score-grounded-from-cache", f"score {_NETWORKS} {_GROUNDED} --json", cache_of="score-grounded"),
    _command(
        "score-all",
        f"score -m all --candidates own.jsonl --references own-references.json {_GROUNDED} --out all.jsonl --json",
        files=["all.jsonl"],
        parser="shared",
    ),
    _command(
        "score-own-text",
        f"score {_TEXT} --candidates own.jsonl --references own-references.json --json",
        test=True,
        titles="correlate-text",
    ),
    _command(
        "score-own-coco",
        f"score {_TEXT} --candidates own.json --references own-references.json --out own.parquet",
        files=["own.parquet"],
    ),
    _command(
        "score-spice",
        f"score -m spice -m spider {_COMPOSITE} --out spice.csv --json",
        files=["spice.csv"],
        parser="shared",
    ),
    _command("score-draw", "score -m rouge-l -m cider -p flickr8k-expert/one-reference --draw 3 --json"),
    _command("score-nocaps", "score -m bleu -m cider -d nocaps --option cider.df=coco-val --json"),
    _command("score-without-features", "score -m tiger", code=2),
    _command("score-without-parser", "score -m spice", code=2),
)

SAMPLE = (
    *_FEATURE_STORES,
    *_TRAINING,
    *_LISTS,
    *_IMPORTED,
    *_STUDIES,
    *_QUICK,
    *_COMPARE,
    *_LOOKS,
    *_FIGURES,
    *_SCORE,
)
"""What runs on the embedded sample."""

_GRID = "features/grid25.h5"
_GRID_MODEL = "grid-run/model.safetensors"

REAL = (
    _command("real-data-list", "data info --json"),
    _command("real-data-verify", "data info --verify --json"),
    # Without SPICE's parser, whose parses of these captions take minutes: its row says so, the others have numbers.
    *(
        _command(f"real-{study}", f"correlate {study} --out results/{study} --json")
        for study in (
            "tiger-table1",
            "tiger-table2",
            "tiger-figure7",
            "reo-table1",
            "faier-table1",
            "faier-table3",
            "vilbertscore-table1",
            "vilbertscore-table2",
            "foil",
            "text-metrics",
            "field-2025",
        )
    ),
    _command("real-flickr8k", f"correlate -d flickr8k-expert -d flickr8k-crowdflower {_TEXT} --json"),
    _command("real-composite-8k", f"correlate {_COMPOSITE_8K} {_TEXT} --json"),
    _command("real-pascal", f"correlate -p pascal-50s/all-50-refs/triplets-ties-half {_TEXT} --json"),
    _command("real-coco-val", f"correlate {_COMPOSITE} -m cider --option cider.df=coco-val --json"),
    _command(
        "real-all-protocols",
        "correlate --all-protocols -d flickr8k-expert -m bleu-4 -m rouge-l -m meteor -m cider --json",
    ),
    _command("real-compare", f"compare {_WORDS} {_COMPOSITE} --json"),
    _command("real-power", "compare --power cider meteor --json"),
    _command(
        "real-references",
        "correlate --references-curve -m bleu-4 -m meteor -m cider --counts 1,5,20,50 --draws 2 --group MM --json",
    ),
    _command("real-examples", "explore examples -m meteor -n 5 --json"),
    _command("real-figure-ratings", "figure ratings cider meteor --out real-ratings.svg --json"),
    _command("real-figure-score-groups", f"figure score-groups cider meteor {_COMPOSITE} --out real-groups.svg --json"),
    _command("real-score", "score -m bleu-4 -m meteor -m cider --out real.csv --json", files=["real.csv"]),
    _command(
        "real-import-features",
        "features import {data}/flickr8k/mobilenetv2_grid49_pca256_int8.npz --detector mobilenetv2-grid-pca256 "
        "--out features/grid49.h5 --json",
    ),
    _command(
        "real-features-pool",
        f"features pool features/grid49.h5 {_GRID} --windows 5x5 --json",
        after=["real-import-features"],
    ),
    _command(
        "real-train-scan",
        f"train scan scan-flickr8k-grid --features {_GRID} --set max_steps=10 --set threads=1 --out grid-run --json",
        after=["real-features-pool"],
    ),
    _command(
        "real-train-reo-covariance",
        f"train reo-covariance --model {_GRID_MODEL} --features {_GRID} -c flickr8k "
        "--images {data}/flickr8k/Flickr_8k.devImages.txt",
        after=["real-train-scan"],
    ),
    _command(
        "real-flickr8k-grid",
        f"correlate flickr8k-grid --features {_GRID} --model tiger={_GRID_MODEL} --model reo={_GRID_MODEL} --json",
        after=["real-train-reo-covariance"],
    ),
    _command(
        "real-compare-grounded",
        f"compare tiger rrs reo-relevance cider --features {_GRID} --model {_GRID_MODEL} --json",
        after=["real-train-reo-covariance"],
    ),
)
"""What runs on the published files; ``{data}`` stands for their folder."""


def choose(commands: Sequence[Command], pattern: str) -> list[Command]:
    """The commands whose names fit a pattern such as ``correlate*``, and those whose files they read, in order."""
    return with_needed(commands, [command.name for command in commands if fnmatch.fnmatch(command.name, pattern)])


def with_needed(commands: Sequence[Command], names: Sequence[str]) -> list[Command]:
    """The commands of these names and those whose files they read, in the table's order."""
    by_name = {command.name: command for command in commands}
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += by_name[name].after
    return [command for command in commands if command.name in needed]


_CANDIDATES = (
    ("f8k_003", "Three blue houses and some purple fish ."),
    ("f8k_003", "A house"),
    ("f8k_067", "A simple picture of a purple circle ."),
    ("f8k_142", "A dark night sky with a yellow kite , two green balloons and a yellow star ."),
    ("f8k_142", "two green balloons"),
    ("f8k_150", "A yellow car over a little pink fish"),
)
_REFERENCES = {
    "f8k_003": ["Purple fish in front of three blue houses .", "Some fish , some houses", "3 homes and small fish ."],
    "f8k_067": ["A ball is on a sandy beach", "A purple ball and one kite on the beach under a blue sky ."],
    "f8k_142": [
        "Two balloons are floating in a starry sky",
        "A dark night sky with two green balloons and a pink car .",
        "Vehicle and balloons .",
        "Two green balloons over pink vehicle .",
    ],
    "f8k_150": ["A vehicle and a pink fish ."],
}
_RATINGS = """\
image,candidate,reference_1,reference_2,rating,rater,group
kite.jpg,a red kite over a hill,a kite in the sky,someone flies a red kite,4,ann,outdoor
kite.jpg,a red kite over a hill,a kite in the sky,someone flies a red kite,5,bob,outdoor
kite.jpg,two boats on a lake,a kite in the sky,someone flies a red kite,1,ann,outdoor
kite.jpg,two boats on a lake,a kite in the sky,someone flies a red kite,2,bob,outdoor
lake.jpg,"boats, many of them",a small boat on the water,a boat sails on a lake,2,ann,outdoor
lake.jpg,"boats, many of them",a small boat on the water,a boat sails on a lake,3,bob,outdoor
lake.jpg,a small boat on a lake,a small boat on the water,a boat sails on a lake,5,ann,outdoor
lake.jpg,a small boat on a lake,a small boat on the water,a boat sails on a lake,5,bob,outdoor
cup.jpg,a cup of tea,a cup on a wooden table,a mug of coffee stands on the table,3,ann,indoor
cup.jpg,a cup of tea,a cup on a wooden table,a mug of coffee stands on the table,4,bob,indoor
cup.jpg,a dog on the table,a cup on a wooden table,a mug of coffee stands on the table,1,ann,indoor
cup.jpg,a dog on the table,a cup on a wooden table,a mug of coffee stands on the table,1,bob,indoor
"""
_VOTES = (
    ("kite.jpg", "a red kite", "two boats", ["a kite in the sky", "someone flies a red kite"], 9, 2, "outdoor"),
    ("lake.jpg", "a lake", "a small boat on a lake", ["a small boat on the water"], 3, 8, "outdoor"),
    ("cup.jpg", "a cup of tea", "a mug of coffee", ["a cup on a wooden table"], 6, 5, "indoor"),
    ("dog.jpg", "a dog on the grass", "a grey cat", ["a cat sleeps", "a grey cat on a sofa"], 1, 10, "indoor"),
)
_BAD = """\
image,candidate,reference_1,rating
kite.jpg,a red kite,a kite in the sky,high
lake.jpg,,a small boat,3
"""
_TRAINING_FILE = """\
schema: 1
name: tiny
captions: flickr8k
features: features/sample.h5
network: {embed_dim: 16, word_dim: 8}
vocabulary: {min_count: 1}
loss: {kind: info-nce, temperature: 0.1}
optimiser: {lr: 0.01}
batch: 20
epochs: 2
threads: 1
device: cpu
log_every: 2
"""
_STUDY_FILE = """\
schema: 1
name: own-study
title: A user-defined study
protocols:
  - composite/same-text-out/correctness-tau-c
  - composite@coco/all-references/both-spearman
  - pascal-50s/json-5-refs/direct-strict
metrics:
  - meteor
  - bleu-4
  - cider: {df: coco-val}
published: tiger-table1
bootstrap: {resamples: 200, unit: image}
compare: {test: permutation, correction: holm, resamples: 200}
"""


def write_inputs(folder: Path) -> None:
    """Write what the commands on the sample read: captions, judgements, a study, a training, features of a grid."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    candidates = [{"image_id": image, "caption": caption} for image, caption in _CANDIDATES]
    first = {row["image_id"]: row for row in reversed(candidates)}  # COCO's results hold one caption an image
    keys = ("image", "candidate_a", "candidate_b", "references", "votes_a", "votes_b", "group")
    texts = {
        "own.jsonl": "".join(f"{json.dumps(row)}\n" for row in candidates),
        "own.json": json.dumps(list(first.values())),
        "own-references.json": json.dumps(_REFERENCES),
        "ratings.csv": _RATINGS,
        "votes.jsonl": "".join(f"{json.dumps(dict(zip(keys, row, strict=True)))}\n" for row in _VOTES),
        "bad.csv": _BAD,
        "tiny.yaml": _TRAINING_FILE,
        "study.yaml": _STUDY_FILE,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    cells = np.random.default_rng(1).normal(size=(3, 49, 8)).astype(np.float32)
    edges = np.arange(8) / 7
    boxes = [[edges[x], edges[y], edges[x + 1], edges[y + 1]] for y in range(7) for x in range(7)]
    np.savez(
        folder / "grid.npz",
        image_names=np.array(["a.jpg", "b.jpg", "c.jpg"]),
        features=cells,
        boxes_normalised_xyxy=np.array(boxes, dtype=np.float32),
    )
