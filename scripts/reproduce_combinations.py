"""The numbers of docs/results/combinations.md: metrics combined, by nested cross-validation over images.

Run: python scripts/reproduce_combinations.py --data DIR [--out FILE] [SET ...]

For each set of metrics and learner the whole of ``capbench combine`` with seed 0, and the agreement of the out-of-fold
scores under other seeds of the folds. What it has done is kept in FILE: run it again to go on. Sets of text metrics are
the default; those with metrics that look at the image, and with NNEval, want what was trained here, given as on the
command line: docs/results/combinations.md has the whole commands, and
scripts/reproduce_{flickr8k_grid,faier_flickr8k,nneval,dual_encoder_flickr8k,vilbert_flickr8k}.py make these files.
The dual encoder is a plug-in: ``pip install ./examples/dual-encoder``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from capbench import __version__
from capbench.cli.options import parse_files, parse_options
from capbench.core.files import write_text
from capbench.datasets.opening import open_dataset, split_protocol
from capbench.datasets.root import find_root
from capbench.metrics.base import Resources
from capbench.metrics.registry import metric_columns
from capbench.metrics.requests import resolve_metrics
from capbench.studies.combine import combine_metrics, inputs_of, learn_out_of_fold, row_of, with_column
from capbench.studies.compare import score_all
from capbench.studies.evaluate import evaluate
from capbench.studies.study import CombineSettings, TestSettings

TEXT = ("bleu-1", "bleu-4", "rouge-l", "meteor", "cider", "spice")
REO = ("reo-relevance", "reo-extraness", "reo-omission")
TRAINED = (
    *("meteor", "cider", "spice", "tiger.tiger", *REO, "faier.faier", "nneval"),
    *("wmd.wmd", "ref-dual-encoder", "vilbertscore.vilbertscore-f", "vifidel-ref"),
)
"""Whatever has a row on Flickr8k's images. BLEU and ROUGE-L, which add next to nothing to the others, stay out."""
TRAINED_TEXT = ("meteor", "cider", "spice", "wmd.wmd", "nneval")
"""Where the features that were trained on do not cover all images."""
METRICS = {
    "flickr8k-expert": TEXT,
    "composite": TEXT,
    "pascal-50s": TEXT,
    "pascal-50s/random-5-refs/direct-strict": TEXT,
    "flickr8k-expert+trained": TRAINED,
    "composite@8k+trained": TRAINED,
    "composite+trained": TRAINED_TEXT,
    "pascal-50s+trained": TRAINED_TEXT,
}
"""Metrics by set; a set's name is its data set's or protocol's, with ``+trained`` if metrics that were trained here are
in."""
DEFAULT = ("flickr8k-expert", "composite", "pascal-50s", "pascal-50s/random-5-refs/direct-strict")
LEARNERS = {name: "logistic" if name.startswith("pascal-50s") else "ridge" for name in METRICS}
TESTS = {"flickr8k-expert": "composite", "composite": "flickr8k-expert", "pascal-50s": "composite"}
"""Where the combination of text metrics is tried, too."""
SEEDS = (1, 2, 3, 4)


def run(name: str, learner: str, given: argparse.Namespace) -> dict[str, Any]:
    """One set and learner."""
    root = find_root(given.data)
    dataset_name, rest = split_protocol(name.partition("+")[0])
    dataset = open_dataset(dataset_name, root)
    protocol = dataset.protocol(rest)
    features_of = parse_files("--features", given.features)
    features = features_of.pop("", None)
    models = {owner: path for owner, path in parse_files("--model", given.model).items() if owner}
    resources = Resources(data=str(root.path), features=features, features_of=features_of, models=models)
    owner = {column: metric for column, (metric, _) in metric_columns().items()}
    asked = {owner[column.partition(".")[0]] for column in METRICS[name]}
    options = {metric: dict(of) for metric, of in parse_options(given.option).items() if metric in asked}
    for metric in ("nneval", "wmd", "vifidel"):
        if metric in asked and given.vectors:
            options.setdefault(metric, {}).setdefault("vectors", given.vectors)
    requests = resolve_metrics(METRICS[name], options, resources=resources)
    combined = combine_metrics(
        dataset,
        protocol,
        requests,
        CombineSettings(learner),
        compare=TestSettings(resamples=1000),
        resources=resources,
    )
    rows = [row for request in requests for row in request.rows]
    scored = score_all(dataset, protocol, requests, resources)
    values = {}
    for seed in SEEDS:
        learnt = learn_out_of_fold(
            protocol, scored.draws, scored.tables, inputs_of(rows, requests), CombineSettings(learner, seed=seed)
        )
        row = row_of("combination")
        tables = with_column(scored.tables, row.key, learnt.values, learnt.signature)
        cells, _ = evaluate(protocol, scored.draws, tables, [row])
        values[seed] = next(cell.value for cell in cells if not cell.group)
    told = combined.as_json()
    del told["combination"]  # it lists the images that were learnt from
    return {**told, "capbench": __version__, "other_seeds": values}


def transfer(name: str, learner: str, given: argparse.Namespace) -> dict[str, Any]:
    """The combination of the metrics that both data sets have, tried on another data set."""
    root = find_root(given.data)
    dataset, other = open_dataset(name, root), open_dataset(TESTS[name], root)
    resources = Resources(data=str(root.path))
    requests = resolve_metrics(TEXT, resources=resources)
    combined = combine_metrics(
        dataset,
        dataset.protocol(),
        requests,
        CombineSettings(learner),
        tests=[(other, other.protocol())],
        compare=TestSettings(resamples=1000),
        resources=resources,
    )
    told: list[dict[str, Any]] = combined.as_json()["transfers"]
    return told[0]


def _share(value: float) -> str:
    return f"{value:.4f}"


def _shares(low: float, high: float) -> str:
    return f"[{low:.4f}, {high:.4f}]"


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _percents(low: float, high: float) -> str:
    return f"[{100 * low:.2f}, {100 * high:.2f}]"


def tables(done: dict[str, Any]) -> list[str]:
    """What was found as Markdown: agreement, seeds, what each metric adds, other data sets."""
    lines: list[str] = []
    for name in METRICS:
        learners = [learner for learner in (LEARNERS[name], "monotone") if f"{name}/{learner}" in done]
        if not learners:
            continue
        results = {learner: done[f"{name}/{learner}"] for learner in learners}
        first = results[learners[0]]["comparison"]
        accuracy = first["table"]["statistic"].startswith("accuracy")
        show, between = (_percent, _percents) if accuracy else (_share, _shares)
        with_trained = ", with metrics that were trained here" if name.endswith("+trained") else ""
        lines += ["", f"### {first['protocol']}{with_trained}", "", "| | agreement | 95 % interval |", "|---|---|---|"]
        singles = {title: of for title, of in first["intervals"].items() if title != "combination"}
        for title, of in sorted(singles.items(), key=lambda entry: entry[1]["value"]):
            lines.append(f"| {title} | {show(of['value'])} | {between(of['low'], of['high'])} |")
        for learner, result in results.items():
            of = result["comparison"]["intervals"]["combination"]
            lines.append(f"| **{learner}** | **{show(of['value'])}** | {between(of['low'], of['high'])} |")
        best = max(singles, key=lambda title: singles[title]["value"])
        lines += ["", f"| | minus {best} | 95 % interval | p | seeds 0 to {max(SEEDS)} |", "|---|---|---|---|---|"]
        for learner, result in results.items():
            seeds = [result["comparison"]["intervals"]["combination"]["value"], *result["other_seeds"].values()]
            pairs = result["comparison"]["table"]["pairs"]
            (pair,) = [pair for pair in pairs if {pair["better"], pair["worse"]} == {"combination", best}]
            sign = 1 if pair["better"] == "combination" else -1
            ends = sorted((sign * pair["low"], sign * pair["high"]))
            lines.append(
                f"| {learner} | {show(sign * pair['difference'])} | {between(*ends)} | {pair['p_adjusted']:.3f} | "
                f"{show(min(seeds))} to {show(max(seeds))} |"
            )
        lines += [
            "",
            "| | learner | weight | 95 % interval | drop without it | 95 % interval |",
            "|---|---|---|---|---|---|",
        ]
        for learner, result in results.items():
            for part in result["parts"]:
                lines.append(
                    f"| {part['title']} | {learner} | {part['weight']:+.3f} | [{part['weight_low']:+.3f}, "
                    f"{part['weight_high']:+.3f}] | {show(part['drop'])} | "
                    f"{between(part['drop_low'], part['drop_high'])} |"
                )
    lines += ["", "### On another data set", ""]
    lines += [
        "| learnt from | tried on | learner | best metric there | combination | difference | p |",
        "|" + "---|" * 7,
    ]
    for what, told in done.items():
        if " on " not in what:
            continue
        source, _, target = what.partition(" on ")
        values = told["comparison"]["table"]["values"]
        best = max((title for title in values if title != "combination"), key=lambda title: float(values[title]))
        pairs = told["comparison"]["table"]["pairs"]
        (pair,) = [pair for pair in pairs if {pair["better"], pair["worse"]} == {"combination", best}]
        sign = 1 if pair["better"] == "combination" else -1
        low, high = sorted((sign * pair["low"], sign * pair["high"]))
        name, _, learner = source.partition("/")
        lines.append(
            f"| {name} | {target} ({told['shared']:,} of {told['images']:,} images shared) | {learner} | {best} "
            f"{values[best]:.4f} | {values['combination']:.4f} | {sign * pair['difference']:+.4f} [{low:+.4f}, "
            f"{high:+.4f}] | {pair['p_adjusted']:.3f} |"
        )
    return lines


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", type=Path, default=Path("results/reference/combinations.json"))
    parser.add_argument("--features", action="append", default=[], metavar="[METRIC=]FILE", help="region features")
    parser.add_argument("--option", action="append", default=[], metavar="METRIC.KEY=VALUE", help="options of metrics")
    parser.add_argument("--model", action="append", default=[], metavar="METRIC=FILE", help="weights, for these sets")
    parser.add_argument("--vectors", help="word vectors of NNEval, WMD and VIFIDEL")
    parser.add_argument("sets", nargs="*", metavar="SET", default=list(DEFAULT), help=f"of {', '.join(METRICS)}")
    given = parser.parse_args()
    done: dict[str, Any] = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    unknown = [name for name in given.sets if name not in METRICS]
    if unknown:
        parser.error(f"unknown set '{unknown[0]}': choose from {', '.join(METRICS)}")
    for name in given.sets:
        for learner in (LEARNERS[name], "monotone"):
            works = [(f"{name}/{learner}", run)]
            works += [(f"{name}/{learner} on {TESTS[name]}", transfer)] if name in TESTS else []
            for what, work in works:
                if what in done:
                    continue
                print(what, flush=True)
                done[what] = work(name, learner, given)
                write_text(given.out, json.dumps(done, indent=1, ensure_ascii=False) + "\n")
    print("\n".join(tables(done)))


if __name__ == "__main__":
    main()
