"""The results of the recipe ``flickr8k-grid`` as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

MAIN = ("tiger", "rrs", "wds", "grounding")
MAPPINGS = ("released", "half", "clip")
TAUS = (0.5, 1.5, 3.0)
TITLES = {
    "cider": "CIDEr",
    "meteor": "METEOR",
    "spice": "SPICE",
    "rouge-l": "ROUGE-L",
    "bleu-1": "BLEU-1",
    "bleu-4": "BLEU-4",
}
HEADS = {"expert": "Flickr8k Expert", "composite-8k": "Composite, Flickr8k's third"}
COEFFICIENTS = {"tau-c": "τ-c", "spearman": "ρ"}


def table(rows: Mapping[str, Sequence[str]], head: Sequence[str]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join((name, *cells)) + " |" for name, cells in rows.items()]
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Mean and standard deviation over seeds."""
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def tables(results: Mapping[str, Any]) -> str:
    """All tables; numbers of our models are mean ± standard deviation over seeds."""
    sets = [name for name in HEADS if name in results]
    parts = [f"Seeds {', '.join(map(str, results['seeds']))}.", _agreement(results, sets), _options(results, sets)]
    for name in sets:
        parts += [
            f"### {HEADS[name]}: {results[name]['ratings']:,} ratings",
            _intervals(results[name]),
            _tests(results[name]),
        ]
        parts += [_by_image(results[name]), _distance(results[name]), _by_rating(results[name])]
    return "\n\n".join([*parts, _recall(results)]) + "\n"


def _agreement(results: Mapping[str, Any], sets: Sequence[str]) -> str:
    first = results[sets[0]]["tau-c"]
    shown = [name for name in first if "τ=" not in name and "without" not in name]
    rows = {}
    for name in [*MAIN, *(n for n in shown if n not in MAIN)]:
        cells = [spread(results[one][c][name]) for one in sets for c in COEFFICIENTS]
        rows[TITLES.get(name, name)] = cells
    return table(rows, ("column", *(f"{HEADS[one]} {label}" for one in sets for label in COEFFICIENTS.values())))


def _options(results: Mapping[str, Any], sets: Sequence[str]) -> str:
    texts = []
    for name in sets:
        taus = results[name]["tau-c"]
        # WDS falls with D whatever τ is: its correlation has one value for each mapping.
        rows = {
            mapping: [
                spread(taus[f"wds {mapping} τ=1.5"]),
                *(spread(taus[f"tiger {mapping} τ={tau:g}"]) for tau in TAUS),
            ]
            for mapping in MAPPINGS
        }
        rows["no D_rel"] = [spread(taus["wds without D_rel"]), "", spread(taus["tiger without D_rel"]), ""]
        head = (f"{HEADS[name]}, τ-c: D_rel", "WDS, any τ", *(f"TIGEr, τ = {tau:g}" for tau in TAUS))
        texts.append(table(rows, head))
    return "\n\n".join(texts)


def _intervals(result: Mapping[str, Any]) -> str:
    ranks = result["comparison"]["ranks"]
    rows = {
        name: [
            f"{one['value']:.4f}",
            f"{one['low']:.4f} to {one['high']:.4f}",
            f"{one['standard_error']:.4f}",
            f"{ranks[name]}",
        ]
        for name, one in sorted(result["intervals"].items(), key=lambda entry: -entry[1]["value"])
    }
    return table(rows, ("τ-c, mean over seeds", "value", "95 % bootstrap interval (images)", "standard error", "rank"))


def _tests(result: Mapping[str, Any]) -> str:
    text = {"CIDEr", "METEOR", "SPICE"}
    rows = {}
    for pair in result["comparison"]["pairs"]:
        if len(text & {pair["better"], pair["worse"]}) == 1:
            rows[f"{pair['better']} over {pair['worse']}"] = [
                f"{pair['difference']:.4f}",
                f"{pair['low']:.4f} to {pair['high']:.4f}",
                f"{pair['p_adjusted']:.3f}",
            ]
    return table(rows, ("pair", "difference", "95 % interval", "p (permutation, Holm)"))


def _by_image(result: Mapping[str, Any]) -> str:
    seeds = result["by image"]
    rows = {}
    for name in seeds[0]["columns"]:
        rows[name] = [spread([one["columns"][name][key] for one in seeds], 3) for key in seeds[0]["columns"][name]]
    for name, values in result["by image, others"].items():
        rows[name] = [f"{value:.3f}" for value in values.values()]
    facts = {key: [spread([one[key] for one in seeds], 3)] for key in seeds[0] if key not in ("columns", "images")}
    head = ("column", *next(iter(seeds[0]["columns"].values())))
    return table(rows, head) + "\n\n" + table(facts, (f"{seeds[0]['images']} images", "value"))


def _distance(result: Mapping[str, Any]) -> str:
    seeds = result["parts of the distance"]
    rows = {name: [spread([one[name] for one in seeds], 3)] for name in seeds[0]}
    return table(rows, ("part of the distance", "τ-b with mean rating"))


def _by_rating(result: Mapping[str, Any]) -> str:
    rows = {}
    for name, values in result["by rating"].items():
        rows[name] = [f"{value:.3f}" for key, value in values.items() if not key.startswith("step")]
        rows[name].append(", ".join(f"{value:.2f}" for key, value in values.items() if key.startswith("step")))
        rows[name].append(f"{result['overrated with length'][name]:.3f}")
    levels = [key for key in next(iter(result["by rating"].values())) if not key.startswith("step")]
    head = ("mean score at rating", *levels, "steps, in standard deviations", "ρ of words and overrating")
    return table(rows, head)


def _recall(results: Mapping[str, Any]) -> str:
    recalls = list(results["recall"].values())
    rows = {
        way.replace("_", " "): [spread([one[way][f"r@{k}"] for one in recalls], 1) for k in (1, 5, 10)]
        for way in ("image_to_text", "text_to_image")
    }
    return table(rows, (f"recall on test, %, {len(recalls)} seeds", "R@1", "R@5", "R@10"))
