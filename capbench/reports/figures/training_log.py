"""Figure of a training run's log: loss, learning rate, recall."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capbench.core.errors import DataError
from capbench.core.files import read_lines
from capbench.core.records import FloatArray
from capbench.reports.figures.style import (
    COLOURS,
    GREY,
    LINES,
    MARKERS,
    USUAL,
    Look,
    caption,
    finish,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EPOCHS = 20  # more epochs are not marked: their lines would hide the curves
_DIRECTIONS = {"image_to_text": "image → text", "text_to_image": "text → image"}


@dataclass(frozen=True)
class TrainingLog:
    """Contents of a training log."""

    name: str  # of the run
    steps: FloatArray  # (s,) step of each line with a loss
    loss: FloatArray  # (s,) mean loss since the line before
    rate: FloatArray  # (s,) learning rate; empty if it is not logged
    epochs: tuple[float, ...]  # last step of each finished epoch
    evaluated: FloatArray  # (e,) step of each evaluation
    recalls: Mapping[str, FloatArray]  # (e,) by name (``image → text R@1``), percent
    best: float | None  # step with the largest sum of recalls, None without evaluations
    seconds: float | None  # of training, None if they are not logged
    cut: bool  # the last line is unfinished: the run is being written, or was killed


def read_log(path: Path) -> TrainingLog:
    """Read a ``log.jsonl``, or that of a run's folder."""
    path = path / "log.jsonl" if path.is_dir() else path
    if path.is_file() and not path.stat().st_size:
        raise DataError("is still empty", code="missing-value", path=path, hint="Wait for the run's first lines")
    lines = [(number, line) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    rows: list[tuple[int, dict[str, Any]]] = []
    cut = False
    for number, line in lines:
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == lines[-1][0] and rows:
                cut = True
                break
            raise _not_an_object(path, number) from error
        if not isinstance(row, dict):
            raise _not_an_object(path, number)
        rows.append((number, row))
    training = [(n, r) for n, r in rows if "loss" in r]
    tests = [(n, r) for n, r in rows if any(key in r for key in _DIRECTIONS)]
    if not training and not tests:
        raise DataError(
            "contains neither losses nor recalls",
            code="missing-key",
            value="loss",
            path=path,
            hint="Pass the log.jsonl of a training run",
        )
    recalls: dict[str, list[float]] = {}
    for number, row in tests:
        for key, title in _DIRECTIONS.items():
            of_direction = row.get(key)
            if not isinstance(of_direction, dict):
                raise DataError(f"has no recalls '{key}'", code="missing-key", value=key, path=path, row=number)
            for name in of_direction:
                if name.startswith("r@"):
                    series = recalls.setdefault(f"{title} {name.upper()}", [])
                    series.append(_number(of_direction, name, path, number))
    if any(len(values) != len(tests) for values in recalls.values()) or (tests and not recalls):
        raise DataError("has evaluations with different recalls", code="mismatch", path=path)
    evaluated = np.array([_number(row, "step", path, n) for n, row in tests])
    sums = np.sum(list(recalls.values()), axis=0) if recalls else np.empty(0)
    ends: dict[float, float] = {}
    for number, row in rows:
        if "epoch" in row and "step" in row:
            ends[_number(row, "epoch", path, number)] = _number(row, "step", path, number)
    timed = [(n, r) for n, r in rows if "seconds" in r]
    return TrainingLog(
        name=path.resolve().parent.name or path.stem,
        steps=np.array([_number(row, "step", path, n) for n, row in training]),
        loss=np.array([_number(row, "loss", path, n) for n, row in training]),
        rate=np.array([_number(row, "lr", path, n) for n, row in training if "lr" in row]),
        epochs=tuple(ends.values())[:-1],
        evaluated=evaluated,
        recalls={name: np.array(values) for name, values in recalls.items()},
        best=float(evaluated[int(sums.argmax())]) if len(sums) else None,
        seconds=_number(timed[-1][1], "seconds", path, timed[-1][0]) if timed else None,
        cut=cut,
    )


def _not_an_object(path: Path, row: int) -> DataError:
    return DataError(
        "is not a JSON object", code="wrong-format", path=path, row=row, hint="Write one JSON object per line"
    )


def _number(row: Mapping[str, Any], key: str, path: Path, number: int) -> float:
    value = row.get(key)
    try:
        read = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:  # JSON's integers are unlimited
        read = math.nan
    if not math.isfinite(read):
        raise DataError(
            f"'{key}' is {repr(value)[:40]}, not a finite number",
            code="not-a-number",
            value=key,
            path=path,
            row=number,
            hint="Fix the row, or pass the log of another run",
        )
    return read


def training_log_figure(log: TrainingLog, look: Look = USUAL) -> Figure:
    """Loss (with the learning rate) at the top, recalls below; a panel without data is omitted."""
    from matplotlib.ticker import MaxNLocator

    parts = [content for content, there in (("loss", len(log.steps)), ("recalls", len(log.evaluated))) if there]
    ends = log.epochs if len(log.epochs) <= _EPOCHS else ()
    with style(look):
        figure, panels = new_figure(7.2, 0.6 + 2.5 * len(parts), rows=len(parts), look=look)
        for axes, content in zip(panels, parts, strict=True):
            for end in ends:
                axes.axvline(end, color="#dddddd", linewidth=0.8, zorder=0)
            (_loss if content == "loss" else _recalls)(axes, log)
            axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 2.5, 5, 10], integer=True))
            axes.set_xlim(0, 1.02 * max([*log.steps, *log.evaluated]))
        panels[-1].set_xlabel("step" + (" (vertical lines: ends of epochs)" if ends else ""))
        return finish(
            figure,
            caption(
                log.name,
                _steps(max([*log.steps, *log.evaluated])),
                "" if log.seconds is None else _time(log.seconds),
                "" if log.best is None else f"largest sum of recalls at step {log.best:,.0f}",
                "the last line is incomplete and ignored" if log.cut else "",
            ),
            look,
        )


def _steps(number: float) -> str:
    return f"{number:,.0f} step" + ("" if number == 1 else "s")


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def _loss(axes: Axes, log: TrainingLog) -> None:
    axes.plot(log.steps, log.loss, color=COLOURS[0], linewidth=1.2, marker="o" if len(log.steps) < 30 else "", ms=3)
    axes.set_ylabel("loss", color=COLOURS[0])
    axes.grid(axis="y")
    if len(log.rate) == len(log.steps):
        other = axes.twinx()
        other.plot(log.steps, log.rate, color=COLOURS[1], linewidth=1.0, linestyle="--")
        other.set_ylabel("learning rate", color=COLOURS[1])
        other.set_ylim(0, 1.15 * max(log.rate) or 1)
        other.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
        other.spines["right"].set_visible(True)


def _recalls(axes: Axes, log: TrainingLog) -> None:
    kinds = list(dict.fromkeys(name.rpartition(" ")[2] for name in log.recalls))
    for name, values in log.recalls.items():
        direction, _, kind = name.rpartition(" ")
        place = kinds.index(kind)
        first = direction == _DIRECTIONS["image_to_text"]
        axes.plot(
            *(log.evaluated, values),
            color=COLOURS[place % len(COLOURS)],
            linestyle=LINES[0] if first else LINES[1],
            marker=MARKERS[place % len(MARKERS)],
            markerfacecolor=None if first else "white",
            markersize=4,
            linewidth=1.2,
            label=name,
        )
    if log.best is not None:
        axes.axvline(log.best, color=GREY, linewidth=1.0, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("recall on dev, %")
    axes.grid(axis="y")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
