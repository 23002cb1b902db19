"""Differences between two JSON values, path by path, and the list of intended differences."""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LABELS = (
    "id protocol column group dataset metric name path kind image candidate references count at rating units better "
    "worse region step"
)
"""Keys that say what an entry of a list is about: entries with equal ones are compared, wherever they stand."""

NOTHING = "nothing"
"""Stands for what one of the two values does not have."""

_WIDE = 120


@dataclass(frozen=True)
class Difference:
    """One place where two values differ."""

    path: str  # the place: ``stdout.cells[protocol=…, column=cider].value``
    before: str  # what the first has there, as JSON or text
    after: str  # what the second has
    distance: float = math.inf  # by how much numbers differ, relative to the larger; infinite for all else

    def __str__(self) -> str:
        gap = f"  (relative {self.distance:.1e})" if math.isfinite(self.distance) else ""
        return f"{self.path or 'whole'}: {_short(self.before)} → {_short(self.after)}{gap}"


def labels(*lists: Sequence[Any]) -> list[list[str]] | None:
    """Labels of the entries of lists, by as few keys of :data:`LABELS` as distinguish them; None if none do."""
    entries = [entry for entries in lists for entry in entries]
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        return None
    best, chosen = -1, list[str]()
    for key in LABELS.split():
        if all(isinstance(entry.get(key), str | int | float) for entry in entries):
            told_apart = sum(len(set(_labelled(entries, [*chosen, key]))) for entries in lists)
            if told_apart > best:
                best, chosen = told_apart, [*chosen, key]
    return [_labelled(entries, chosen) for entries in lists] if best == len(entries) else None


def _labelled(entries: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    return [", ".join(f"{key}={entry[key]}" for key in keys) for entry in entries]


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """All places where two values as JSON has them differ; ``1`` and ``1.0`` do, too."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_named(before, after, path, lambda name: f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif type(before) is not type(after) or before != after:
        yield Difference(path, _text(before), _text(after), _distance(before, after))


def _of_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Difference]:
    if all(isinstance(entry, str) for entry in (*before, *after)):
        yield from _of_lines(before, after, path)
        return
    labelled = labels(before, after)
    if labelled is None:
        labelled = [[str(place) for place in range(len(entries))] for entries in (before, after)]
    first, second = (dict(zip(*pair, strict=True)) for pair in zip(labelled, (before, after), strict=True))
    yield from _of_named(first, second, path, lambda name: f"{path}[{name}]")


def _of_named(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str, place: Callable[[str], str]
) -> Iterator[Difference]:
    for name, value in before.items():
        if name in after:
            yield from differences(value, after[name], place(name))
        else:
            yield Difference(place(name), _text(value), NOTHING)
    for name, value in after.items():
        if name not in before:
            yield Difference(place(name), NOTHING, _text(value))
    orders = [name for name in before if name in after], [name for name in after if name in before]
    if orders[0] != orders[1]:
        yield Difference(f"{path} (order)", ", ".join(orders[0]), ", ".join(orders[1]))


def _of_lines(before: list[str], after: list[str], path: str) -> Iterator[Difference]:
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs = itertools.zip_longest(before[i:i_end], after[j:j_end], fillvalue=NOTHING)
            for offset, (one, other) in enumerate(pairs):
                yield Difference(f"{path}[{i + offset}]", one, other, _distance(one, other))


def _distance(before: Any, after: Any) -> float:
    """By how much two numbers differ relative to the larger, in tables also where they stand as text."""
    try:
        one, other = float(before), float(after)
    except (TypeError, ValueError):
        return math.inf
    larger = max(abs(one), abs(other))
    distance = abs(one - other) / larger if larger else 0.0
    return distance if math.isfinite(distance) else math.inf


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= _WIDE else f"{text[: _WIDE - 20]} … ({len(text):,} letters)"


@dataclass
class Allowed:
    """An intended difference."""

    renamed: list[dict[str, str]] = field(default_factory=list)  # patterns of texts, and what stands for each
    # entries with ``command``, ``path``, ``reason`` and perhaps ``within``
    allowed: list[dict[str, Any]] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)  # how often each reason was given

    def rename(self, value: Any) -> Any:
        """The JSON with all of its texts and keys renamed."""
        if isinstance(value, str):
            for entry in self.renamed:
                value, count = re.subn(entry["from"], entry["to"], value)
                self.used[entry["reason"]] += count
            return value
        if isinstance(value, list):
            return [self.rename(one) for one in value]
        if isinstance(value, dict):
            return {self.rename(key): self.rename(one) for key, one in value.items()}
        return value

    def allows(self, command: str, difference: Difference) -> bool:
        """True if an entry fits."""
        for entry in self.allowed:
            fits = re.fullmatch(entry["command"], command) and re.fullmatch(entry["path"], difference.path)
            if fits and difference.distance <= entry.get("within", math.inf):
                self.used[entry["reason"]] += 1
                return True
        return False


def read_allowed(path: Path | None) -> Allowed:
    """Read the YAML file of what may differ, nothing without one. Leaves with a message if an entry is not right."""
    if path is None:
        return Allowed()
    import yaml

    raw = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    needed = {"renamed": {"from", "to", "reason"}, "allowed": {"command", "path", "reason"}}
    for key, entries in raw.items():
        for entry in entries or ():
            if key not in needed or needed[key] - entry.keys() or entry.keys() - needed[key] - {"within"}:
                raise SystemExit(f"{path}: {key}: {entry}: each entry has {', '.join(sorted(needed.get(key, ())))}")
    return Allowed(list(raw.get("renamed") or ()), list(raw.get("allowed") or ()))
