"""The results of the recipe ``nneval`` as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.flickr8k_grid_tables import spread, table

__all__ = ["KINDS", "RELEASED", "TITLES", "tables"]

RELEASED = "released"
KINDS = {
    "coco": "NNEval",
    "coco, τ": "NNEval, chosen by τ on Expert",
    "paper": "NNEval, the paper's settings",
    "foreign": "NNEval with foreign captions (ours)",
    "monotone": "NNEval with foreign captions, monotone (ours)",
    RELEASED: "NNEval, released weights, other word vectors",
}
TITLES = {
    "meteor": "METEOR",
    "wmd": "WMD",
    "bleu-1": "BLEU-1",
    "bleu-2": "BLEU-2",
    "bleu-3": "BLEU-3",
    "bleu-4": "BLEU-4",
    "spice": "SPICE",
    "cider": "CIDEr (coco-val)",
    **KINDS,
}
HEADS = {
    "composite/same-text-out/correctness-tau-c": "Composite",
    "composite/any-candidate-out/correctness-tau-c": "Composite, the literature's references",
    "flickr8k-expert/no-own-captions/unaggregated-tau-c": "Flickr8k Expert",
    "pascal-50s/json-5-refs/direct-strict": "PASCAL-50S",
    "distractions/own-caption-out/right-strict": "Distractions (ours, after the paper)",
}
_SYMBOLS = {"pearson": "r", "spearman": "ρ", "tau-b": "τ-b", "tau-c": "τ-c"}
CHOSEN_ON_EXPERT = ("coco, τ", "paper", RELEASED)
"""Kinds whose weights were chosen by Flickr8k Expert's judgements; of the released ones the paper says so."""


def _cell(values: Sequence[float], percent: bool) -> str:
    return spread([100 * value for value in values], 2) if percent else spread(values)


def _rows(columns: Mapping[str, Mapping[str, Sequence[float]]], percent: bool) -> dict[str, list[str]]:
    """Cells by title; columns are values by row."""
    names = next(iter(columns.values()))
    return {
        TITLES[name] + (" †" if name in CHOSEN_ON_EXPERT else ""): [
            _cell(column[name], percent) for column in columns.values()
        ]
        for name in names
    }


def _tests(of_name: Mapping[str, Any], percent: bool) -> list[str]:
    scale, digits = (100, 2) if percent else (1, 4)
    shown = {
        TITLES[name]: [
            f"{scale * one['value']:.{digits}f}",
            f"{scale * one['low']:.{digits}f} to {scale * one['high']:.{digits}f}",
        ]
        for name, one in of_name["intervals"].items()
    }
    differences = {
        f"{TITLES[test['row']]} minus {TITLES[test['input']]}": [
            f"{scale * test['difference']:+.{digits}f}",
            f"{scale * test['low']:+.{digits}f} to {scale * test['high']:+.{digits}f}",
            f"{test['p_adjusted']:.3f}",
        ]
        for test in of_name["tests"]
    }
    return [
        table(shown, ("mean over seeds", "value", "95 % bootstrap interval (images)")),
        table(differences, ("", "difference", "95 % interval", "p (permutation, Holm)")),
    ]


def tables(results: Mapping[str, Any]) -> str:
    """All tables; a network's numbers are mean ± standard deviation over seeds."""
    parts = []
    for name in (name for name in HEADS if name in results):
        of_name = results[name]
        percent = "by group" in of_name and "ties half" in of_name
        parts.append(f"### {HEADS[name]}")
        columns: dict[str, Any] = {}
        if "by coefficient" in of_name:
            for coefficient, values in of_name["by coefficient"].items():
                columns[_SYMBOLS[coefficient]] = values
        elif percent:
            groups = of_name["by group"]
            if set(groups) == {"HC", "HI", "HM", "MM"}:  # PASCAL-50S's, in the literature's order
                groups = dict(sorted(groups.items()))
            columns = {**groups, "mean": of_name["values"], "mean, ties half": of_name["ties half"]}
        else:
            columns["τ-c"] = of_name["values"]
        if not percent and "by group" in of_name:
            columns |= {f"τ-c, {group}": values for group, values in of_name["by group"].items()}
        if "without Expert's images" in of_name:
            columns["τ-c without Expert's images"] = of_name["without Expert's images"]
        parts.append(table(_rows(columns, percent), ("", *columns)))
        parts += _tests(of_name, percent)
    return "\n\n".join(parts) + "\n"
