"""What a study says about combinations of its metrics, and the check of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capbench.options import Choice, Count, Options, option

__all__ = ["LEARNERS", "METRIC", "CombineEntry", "CombineSettings", "parse_combine"]

METRIC = "combination"
"""What stands as the metric of a combination's row."""
LEARNERS = ("auto", "ridge", "logistic", "monotone")


@dataclass(frozen=True)
class CombineSettings(Options):
    """How a combination is learnt."""

    learner: str = option(
        "auto", Choice(*LEARNERS), "the model; auto: ridge where people gave ratings, logistic where they chose"
    )
    folds: int = option(10, Count(2), "outer folds: each is scored by what was learnt on the others")
    inner_folds: int = option(5, Count(2), "inner folds, which choose the penalty")
    seed: int = option(0, Count(), "seed of the folds")


@dataclass(frozen=True)
class CombineEntry:
    """A combination as a study asks for it.

    Attributes:
        label: what its row is called.
        title: what it is called in tables; default: its label.
        of: names of the metrics or columns that it combines; all of the study's by default.
        lower: those of them whose lower scores are better, beside those that say so themselves.
        settings: how it is learnt.
    """

    label: str = METRIC
    title: str = ""
    of: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    settings: CombineSettings = CombineSettings()


def parse_combine(raw: Any, add: Callable[[str], None]) -> tuple[CombineEntry, ...]:
    """Read ``combine:`` of a study file: one mapping, or a list of them.

    Args:
        raw: the value in the file; None if there is none.
        add: takes each problem.
    """
    if raw is None:
        return ()
    entries: list[CombineEntry] = []
    for given in raw if isinstance(raw, list) else [raw]:
        example = "{of: [cider, spice], learner: ridge, folds: 10, inner_folds: 5, seed: 0}"
        if not isinstance(given, dict):
            add(f"'combine' should be a mapping such as {example}, or a list of them, not {given!r}")
            continue
        texts = {key: given.get(key, default) for key, default in (("label", METRIC), ("title", ""))}
        lists = {key: given.get(key, []) for key in ("of", "lower")}
        lists = {key: [value] if isinstance(value, str) else value for key, value in lists.items()}
        wrong = [key for key, value in texts.items() if not isinstance(value, str)]
        wrong += [
            key
            for key, value in lists.items()
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value)
        ]
        if wrong or not texts["label"]:
            add(f"'{(wrong or ['label'])[0]}' of 'combine' should be names, as in {example}")
            continue
        settings = {str(key): value for key, value in given.items() if key not in (*texts, *lists)}
        values = CombineSettings.checked("combine", settings, lambda message, hint: add(f"{message}. {hint}"))
        # What does not fit was told, and the study is not run.
        if len(values) == len(settings):
            entries.append(
                CombineEntry(
                    of=tuple(lists["of"]), lower=tuple(lists["lower"]), **texts, settings=CombineSettings(**values)
                )
            )
    return tuple(entries)
