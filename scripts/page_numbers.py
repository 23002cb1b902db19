"""Numbers in the sentences of a page, written from stored results.

A number is followed by a mark with its name, and a comment at the end of the page says where each name's value is::

    The image adds .027 [.022, .033]<!--image--> to F, whose value is .414<!--f-->.

    <!-- numbers
    f: [results/vilbert-flickr8k/results.json, composite-8k, agreement, vilbertscore-f-2, tau-c]
    image: [results/image-contribution/results.json, composite-8k, contributions, vilbertscore-f, mean]
    -->

A place is a JSON or YAML file of the repository and what to follow in it: keys; positions in a list; ``{row: SPICE}``,
the one entry of a list with this value; ``{pair: [A, B]}``, A minus B in a list of tested pairs; ``{times: 100}``, a
factor; ``{each: [KEY, ...]}``, what these keys lead to in every entry of a list or mapping. ``{minus: [PLACE, PLACE]}``
is a difference. A list of numbers stands for its mean and its standard deviation (``±``); a text, such as a value of
``capbench/studies/published/``, for its number. Signs, leading zeros and digits are those of the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from capbench.core.files import read_json
from capbench.core.yaml import read_yaml

ROOT = Path(__file__).resolve().parent.parent
_NUMBER = r"[+−-]?(?:\d[\d,]*)?(?:\.\d+|(?<=\d))"
_MARK = re.compile(
    rf"(?P<value>{_NUMBER})(?: ± (?P<deviation>{_NUMBER}))?(?: \[(?P<low>{_NUMBER}), (?P<high>{_NUMBER})\])?"
    r"(?P<unit>(?: %)?)<!--(?P<name>[\w-]+)-->"
)
_FURTHER = ("deviation", "low", "high")
_PLACES = re.compile(r"<!-- numbers\n(.*?)-->", re.DOTALL)
_NO_SENTENCE = re.compile(r"```.*?```|^(?:\||    |\t).*?$|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL | re.MULTILINE)
_FIXED = re.compile(r"\b95 %|p ≤ \.05\b")
"""Not results: the level of all intervals, and the level of significance."""
_SHOWN = re.compile(r"(?<![\w.])[+−-]?(?:\d[\d,]*)?\.\d+|\d[\d,]* %")


def with_marked_numbers(page: str) -> str:
    """The page with the marked numbers as they are stored.

    Raises ValueError: a mark without a place, a place without a mark, or nothing at a place.
    """
    places: dict[str, Any] = {}
    for match in _PLACES.finditer(page):
        places |= yaml.safe_load(match[1])
    marks = {match["name"] for match in _MARK.finditer(page)} | set(re.findall(r"<!--([\w-]+)-->", page))
    if different := marks ^ set(places):
        raise ValueError(f"numbers with a mark or a place only: {', '.join(sorted(different))}")
    values = {name: _value(place) for name, place in places.items()}
    return _MARK.sub(lambda match: _renewed(match, values[match["name"]]), page)


def unmarked_numbers(page: str) -> list[str]:
    """Numbers with a decimal point or a percent sign in the page's sentences that have no mark."""
    sentences = _NO_SENTENCE.sub(" ", _MARK.sub(" ", page))
    return [match.group() for match in _SHOWN.finditer(_FIXED.sub(" ", sentences))]


def _renewed(match: re.Match[str], value: Any) -> str:
    numbers = _numbers(value)
    text = match.group()
    # From the last to the first, so that positions stay valid.
    for part in ("high", "low", "deviation", "value"):
        if match[part] is None:
            continue
        if part not in numbers:
            raise ValueError(f"'{match['name']}' has no {part}")
        begin, end = (position - match.start() for position in match.span(part))
        text = text[:begin] + _shown(match[part], numbers[part]) + text[end:]
    return text


def _numbers(value: Any) -> dict[str, float]:
    """Value, limits and standard deviation of a stored number, list of numbers or entry with an interval."""
    if isinstance(value, str):
        return {"value": float(value)}
    if isinstance(value, Mapping):
        main = value["difference"] if "difference" in value else value["value"]
        return {"value": main, **{key: value[key] for key in _FURTHER if key in value}}
    if isinstance(value, Sequence):
        return {"value": float(np.mean(value)), "deviation": float(np.std(value, ddof=1)) if len(value) > 1 else 0.0}
    return {"value": value}


def _shown(old: str, value: float) -> str:
    """The value with the digits, the leading zero and the signs of the old text."""
    _, point, decimals = old.partition(".")
    text = f"{abs(value):{',' if ',' in old or not point else ''}.{len(decimals)}f}"
    if point and not re.search(r"\d\.", old):
        text = text.removeprefix("0")
    if value < 0 and float(text.replace(",", "")) > 0:
        return ("-" if "-" in old else "−") + text
    return f"+{text}" if old.startswith("+") else text


def _value(place: Any) -> Any:
    if isinstance(place, Mapping):
        first, second = (_numbers(_value(one))["value"] for one in place["minus"])
        return first - second
    file, *steps = place
    value = _stored(ROOT / file)
    for step in steps:
        value = _followed(value, step, place)
    return value


@cache
def _stored(path: Path) -> Any:
    return read_json(path) if path.suffix == ".json" else read_yaml(path, "a page's numbers")


def _followed(value: Any, step: Any, place: Any) -> Any:
    if not isinstance(step, Mapping):
        try:
            return value[step]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"{place}: there is no {step!r}") from None
    if "times" in step:
        scaled = {key: step["times"] * number for key, number in _numbers(value).items()}
        if "low" in scaled:
            scaled["low"], scaled["high"] = sorted((scaled["low"], scaled["high"]))
        return scaled
    if "pair" in step:
        return _difference(value, *step["pair"])
    if "each" in step:
        entries = value.values() if isinstance(value, Mapping) else value
        return [reduce(lambda one, key: _followed(one, key, place), step["each"], entry) for entry in entries]
    found = [one for one in value if all(one.get(key) == wanted for key, wanted in step.items())]
    if len(found) != 1:
        raise ValueError(f"{place}: {len(found)} entries for {step}")
    return found[0]


def _difference(pairs: Any, first: str, second: str) -> dict[str, float]:
    """The first minus the second of a tested pair."""
    (pair,) = (one for one in pairs if {one["better"], one["worse"]} == {first, second})
    sign = 1 if pair["better"] == first else -1
    low, high = sorted((sign * pair["low"], sign * pair["high"]))
    return {"difference": sign * pair["difference"], "low": low, "high": high, "p": pair["p_adjusted"]}
