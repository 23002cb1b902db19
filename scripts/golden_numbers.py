"""The numbers of a command's JSON by what they are of, and its structure: what the golden tests store and compare."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from scripts.golden_commands import SAMPLE, Command
from scripts.golden_diff import labels
from scripts.golden_record import BLANK

_LEFT_OUT = frozenset({*BLANK, "schema_version"})
RELATIVE = 1e-12
NETWORK_RELATIVE = 1e-5
# On another processor a network's sums are rounded otherwise, and captions of nearly equal scores change places.
_OF_NETWORKS = ("value", "mean", "corpus")
_NETWORK_ABSOLUTE = 0.01


def _with_columns(payload: Any, titles: Mapping[str, str]) -> Any:
    """The JSON with each metric's title replaced by its column, so that no test depends on how titles are worded.

    ``payload``: JSON; ``titles``: the column by title, as ``correlate --json`` tells under ``columns``.
    """
    if isinstance(payload, str):
        return titles.get(payload, payload)
    if isinstance(payload, list):
        return [_with_columns(entry, titles) for entry in payload]
    if isinstance(payload, dict):
        return {titles.get(key, key): _with_columns(value, titles) for key, value in payload.items()}
    return payload


def numbers(payload: Any) -> Any:
    """The numbers and yes-or-no answers of JSON; entries of lists stand under what they are about, texts are left out.

    Times, versions and counts from the cache are left out, too. None if there is no number.
    """
    if isinstance(payload, bool | int | float):
        return payload
    if isinstance(payload, dict):
        entries = {key: numbers(value) for key, value in payload.items() if key not in _LEFT_OUT}
    elif isinstance(payload, list):
        if payload and all(isinstance(entry, bool | int | float) for entry in payload):
            return payload
        labelled = labels(payload)
        names = [str(place) for place in range(len(payload))] if labelled is None else labelled[0]
        entries = {name: numbers(value) for name, value in zip(names, payload, strict=True)}
    else:
        return None
    return {key: value for key, value in entries.items() if value is not None} or None


def structure(payload: Any, columns: frozenset[str]) -> list[str]:
    """The structure of JSON: one line for each place, ``cells[].value: number``.

    ``payload``: JSON; ``columns``: keys that are data, for which ``*`` stands; so it does for all that hold a ``/``, as
    protocols do.
    """
    return sorted(set(_places(payload, "", columns)))


def _places(value: Any, path: str, columns: frozenset[str]) -> Iterator[str]:
    if isinstance(value, dict):
        if not value:
            yield f"{path}: empty"
        for key, entry in value.items():
            name = "*" if key in columns or "/" in key else key
            place = f"{path}.{name}" if path else name
            if key in BLANK:
                yield f"{place}: varies"
            else:
                yield from _places(entry, place, columns)
    elif isinstance(value, list):
        if not value:
            yield f"{path}[]: empty"
        for entry in value:
            yield from _places(entry, f"{path}[]", columns)
    else:
        kinds = {bool: "yes or no", int: "number", float: "number", str: "text"}
        yield f"{path}: {kinds.get(type(value), 'null')}"


def compare_numbers(stored: Any, now: Any, *, relative: float | None, path: str = "") -> list[str]:
    """One line for each number that is not what is stored, is missing, or was not there.

    ``stored``: what :func:`numbers` gave once; ``now``: what it gives now; ``relative``: the tolerance, or None to
    compare only values and means of networks, to 0.01; ``path``: where the two stand.
    """
    if isinstance(stored, dict) and isinstance(now, dict):
        lines = []
        for key in dict.fromkeys((*stored, *now)):
            lines += compare_numbers(stored.get(key), now.get(key), relative=relative, path=f"{path}/{key}")
        return lines
    if isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        lines = []
        for place, (one, other) in enumerate(zip(stored, now, strict=True)):
            lines += compare_numbers(one, other, relative=relative, path=f"{path}/{place}")
        return lines
    if isinstance(stored, int | float) and isinstance(now, int | float):
        if relative is not None:
            same = math.isclose(stored, now, rel_tol=relative, abs_tol=relative / 1000)
        else:
            compared = path.rpartition("/")[2] in _OF_NETWORKS
            same = not compared or math.isclose(stored, now, rel_tol=0, abs_tol=_NETWORK_ABSOLUTE)
        return [] if same else [f"{path}: {stored!r} is stored, {now!r} came out"]
    if relative is None or stored == now:
        return []
    return [f"{path}: {json.dumps(stored)[:80]} is stored, {json.dumps(now)[:80]} came out"]


def titles_of(payload: Mapping[str, Any]) -> dict[str, str]:
    """The metric column by title, from the JSON of ``correlate``."""
    return {title: column for column, title in payload["columns"].items()}


def in_tests() -> list[Command]:
    """The commands that the tests run."""
    return [command for command in SAMPLE if command.titles]


def stored(command: Command, payload: Any, titles: Mapping[str, str]) -> dict[str, Any]:
    """The stored part of an output: its numbers by their meaning, and the structure of its JSON."""
    named = _with_columns(payload, titles)
    # Signatures stand under a metric's name, which its columns begin with.
    columns = frozenset({*titles.values(), *(column.partition("-")[0] for column in titles.values())})
    facts: dict[str, Any] = {"rounding": rounding()} if command.networks else {}
    return {**facts, "structure": structure(named, columns), "numbers": numbers(named)}


def rounding() -> str:
    """The rounding of this machine: a hash of the results of a few fixed operations of networks and pictures."""
    import hashlib

    import torch
    from PIL import Image

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        random = torch.Generator().manual_seed(1)
        digest = hashlib.sha256()
        for size in (12, 128, 500):
            matrix = torch.randn(size, 256, generator=random)
            pixels = torch.randn(1, 16, size, 40, generator=random)
            kernel = torch.randn(32, 16, 3, 3, generator=random)
            products = matrix @ matrix.T
            normed = torch.nn.functional.normalize(matrix, dim=1)
            for result in (products, products.softmax(dim=1), products.tanh(), torch.conv2d(pixels, kernel), normed):
                digest.update(result.numpy().tobytes())
            picture = Image.fromarray((pixels[0, 0].sigmoid() * 255).byte().numpy())
            digest.update(picture.resize((61, 37), Image.Resampling.BILINEAR).tobytes())
    finally:
        torch.set_num_threads(threads)
    return digest.hexdigest()[:16]
